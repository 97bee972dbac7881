"Vector indexes: exact against a plain sort, Chroma in a folder and behind a real server, damage, and what stays on the disk."
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.search import vectors as module
from memkit.search.vectors import GRAPH, ChromaIndex, ExactIndex, best_positions, check_vectors, corpus_index, index_name, kept_index


def clustered(n: int, dim: int = 64, topics: int = 40, seed: int = 0) -> np.ndarray:
    "Unit vectors around some centres, as those of texts are; never an even cloud, in which nearest means nothing."
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(topics, dim))[rng.integers(topics, size=n)] + .6*rng.normal(size=(n, dim))
    return (v/np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32)


def plain_search(ids, vectors, query, k):
    scores = [sum(float(a)*float(b) for a, b in zip(v, query)) for v in vectors]
    return sorted(range(len(ids)), key=lambda i: (-round(scores[i], 6), i))[:k]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), max_size=30), st.integers(1, 9))
def test_exact_compares_with_all(vectors, k):
    index = ExactIndex(np.array(vectors, float).reshape(-1, 2))
    assert len(index) == len(vectors)
    assert [i for i, _ in index.search([2, 1], k)] == [str(p) for p in plain_search(vectors, vectors, [2, 1], k)]


def test_exact_gives_inner_products_and_refuses_what_cannot_be():
    index = ExactIndex(np.array([[1, 0, 0], [0, 1, 0], [.6, .8, 0]]))
    hits = index.search([1, 0, 0], 10)
    assert [i for i, _ in hits] == ["0", "2", "1"] and np.allclose([s for _, s in hits], [1, .6, 0])
    for vector, k in (([1, 0, 0], 0), ([1, 0], 1), ([1, 0, np.nan], 1)):
        with pytest.raises(ValueError): index.search(vector, k)


def test_equal_vectors_keep_their_order():
    index = ExactIndex(np.tile(np.float32([.1, .2, .3, .4, .5]), (1000, 1)))
    assert [i for i, _ in index.search([.3, .1, .2, .7, .9], 8)] == list("01234567")


@given(st.lists(st.integers(-4, 4), max_size=20), st.integers(1, 25), st.integers(-5, 5))
def test_best_positions_is_a_stable_sort(scores, k, above):
    expected = [i for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)) if scores[i] > above][:k]
    assert best_positions(np.array(scores, float), k, above).tolist() == expected


def test_no_vectors_of_any_shape():
    assert check_vectors([], 4).shape == check_vectors(np.zeros((0, 4)), 4, 0).shape == (0, 4)


# Chroma, in a folder

def check_index(make):
    "Replace, delete, best first, at most `k`, nothing from nothing; `make` opens an empty index."
    index, x = make(3), np.array([1., 0, 0])
    assert len(index) == 0 and index.search(np.ones(3), 3) == [], "an empty index finds nothing"
    index.add(["x", "y", "xy"], np.array([[1, 0, 0], [0, 1, 0], [.6, .8, 0]]))
    hits = index.search(x, 10)
    assert [i for i, _ in hits] == ["x", "xy", "y"], f"best first, fewer than k where there are fewer; got {hits}"
    assert np.allclose([s for _, s in hits], [1, .6, 0], atol=1e-5), f"the score is the inner product; got {hits}"
    index.add(["x"], -2*x[None])
    assert len(index) == 3 and index.search(x, 3)[-1][0] == "x", "adding an id again replaces its vector"
    index.add([], np.zeros((0, 3)))
    for wrong in (lambda: index.search(np.ones(3), 0), lambda: index.search(np.ones(2), 1),
                  lambda: index.add(["a"], np.ones((2, 3))), lambda: index.add(["a", "a"], np.ones((2, 3))),
                  lambda: index.add(["a"], np.full((1, 3), np.nan))):
        try: wrong()
        except ValueError: continue
        raise AssertionError("k < 1, another size, ids that don't fit and NaN must raise ValueError")
    assert len(index) == 3, "what was refused leaves no trace"


def test_chroma_contract(tmp_path):
    opened = []
    check_index(lambda dim: opened.append(ChromaIndex(dim, tmp_path/"index")) or opened[-1])
    opened[-1].close()


def test_recall_against_exact(tmp_path):
    v = clustered(4050)
    exact = ExactIndex(v[:4000])
    with ChromaIndex(64, tmp_path) as chroma:
        chroma.add([str(i) for i in range(4000)], v[:4000])
        shares = [len({i for i, _ in chroma.search(q, 10)} & {i for i, _ in exact.search(q, 10)})/10 for q in v[4000:]]
        one = chroma.search(v[4000], 10)
    assert np.mean(shares) >= .98
    assert one == sorted(one, key=lambda hit: (-hit[1], hit[0])) and one[0][1] == pytest.approx(exact.search(v[4000], 1)[0][1], abs=1e-5)


def test_more_than_one_batch(tmp_path, monkeypatch):
    v = clustered(25)
    with ChromaIndex(64, tmp_path) as chroma:
        monkeypatch.setattr(chroma.client, "get_max_batch_size", lambda: 7)
        chroma.add([str(i) for i in range(25)], v)
        assert len(chroma) == 25
        assert sorted(int(i) for i, _ in chroma.search(v[0], 99)) == list(range(25))


def holds(folder: Path, *secrets: bytes) -> list[bool]:
    data = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    return [s in data for s in secrets]


def test_only_removing_the_folder_erases(tmp_path):
    "Chroma's own `delete` leaves the bytes; memkit removes the folder and builds the index again."
    v, names = clustered(30, seed=4), [f"n{i}" if i != 11 else "somebody-9f3a" for i in range(30)]
    secret = names[11].encode(), v[11].tobytes()
    with ChromaIndex(64, tmp_path/"a") as chroma:
        chroma.add(names, v)
        chroma.collection.delete(ids=[names[11]])
        assert len(chroma) == 29 and holds(tmp_path, *secret) == [True, True]
    shutil.rmtree(tmp_path/"a")
    assert holds(tmp_path, *secret) == [False, False]


def test_no_leftovers_of_memory_reach_the_disk(tmp_path):
    "Chroma writes a file of lengths from memory that it never sets, where freed words may stand."
    v = clustered(1100)
    def lengths(): return [p.read_bytes() for p in tmp_path.rglob("length.bin")]
    with ChromaIndex(64, tmp_path) as chroma:
        for n in (2, 1100):
            chroma.add([str(i) for i in range(n)], v[:n])
            assert lengths() and not any(map(any, lengths()))
        assert chroma.search(v[3], 1)[0][0] == "3"
    [file] = tmp_path.rglob("length.bin")
    file.write_bytes(b"Quizzlebarrow"*100)            # as an older version of memkit left it
    with ChromaIndex(64, tmp_path) as chroma: assert not any(map(any, lengths())) and chroma.search(v[3], 1)[0][0] == "3"


def test_one_owner_at_a_time(tmp_path):
    with ChromaIndex(3, tmp_path), pytest.raises(RuntimeError, match="open elsewhere"): ChromaIndex(3, tmp_path)
    program = "import sys; from memkit.search.vectors import ChromaIndex\ntry: ChromaIndex(3, sys.argv[1])\nexcept RuntimeError as e: print(e)"
    with ChromaIndex(3, tmp_path):
        out = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=600)
    assert "open elsewhere" in out.stdout, out.stderr


def test_damage_has_a_name(tmp_path):
    with ChromaIndex(3, tmp_path/"a") as chroma: chroma.add(["x"], np.ones((1, 3)))
    with pytest.raises(ValueError, match="holds vectors of 3 numbers, not 4"): ChromaIndex(4, tmp_path/"a")
    next((tmp_path/"a").glob("g-*/chroma.sqlite3")).write_bytes(b"not a database at all "*400)
    with pytest.raises(RuntimeError, match="build the index again"): ChromaIndex(3, tmp_path/"a")
    shutil.rmtree(tmp_path/"a")
    with ChromaIndex(3, tmp_path/"a") as chroma: assert len(chroma) == 0       # the advice works
    (tmp_path/"file").write_text("")
    with pytest.raises(OSError, match="can't open the index folder"): ChromaIndex(3, tmp_path/"file")


@pytest.mark.parametrize("wrong, says", [(lambda p: ChromaIndex(3), "either path"), (lambda p: ChromaIndex(3, p, host="h"), "either path"), (lambda p: ChromaIndex(0, p), "dim must be"),
    (lambda p: ChromaIndex(3, p, collection="ab"), "'ab'")])
def test_refusals(tmp_path, wrong, says):
    with pytest.raises(ValueError, match=says): wrong(tmp_path)


# An index that is kept

def found(index, v): return [index.search(q, 5) for q in v[:20]]


def test_readers_share_what_nobody_changes(tmp_path):
    with pytest.raises(RuntimeError, match="holds no index to share"): ChromaIndex(64, tmp_path/"none", shared=True)
    v = clustered(50)
    with ChromaIndex(64, tmp_path/"a") as chroma:
        chroma.add([str(i) for i in range(50)], v)
        with pytest.raises(RuntimeError, match="open elsewhere"): ChromaIndex(64, tmp_path/"a", shared=True)
    with ChromaIndex(64, tmp_path/"a", shared=True) as one, ChromaIndex(64, tmp_path/"a", shared=True) as other:
        assert found(one, v) == found(other, v) and len(one) == 50
        with pytest.raises(RuntimeError, match="open elsewhere"): ChromaIndex(64, tmp_path/"a")
        with pytest.raises(RuntimeError, match="shared with other readers"): one.add(["x"], v[:1])
    with ChromaIndex(64, tmp_path/"a") as alone: assert len(alone) == 50


def test_closing_one_reader_leaves_the_other(tmp_path):
    v = clustered(60)
    one, other = kept_index(v, tmp_path), kept_index(v, tmp_path)
    one.close()
    assert len(found(other, v)) == 20
    other.close()


def test_threads_share_one_reader(tmp_path):
    v = clustered(200)
    with kept_index(v, tmp_path) as index:
        alone = found(index, v)
        with ThreadPoolExecutor(4) as pool: assert list(pool.map(lambda _: found(index, v), range(8))) == [alone]*8


def test_it_is_built_once_and_named_by_what_is_in_it(tmp_path, monkeypatch):
    v, built = clustered(80), []
    real = module._build
    monkeypatch.setattr(module, "_build", lambda *a: built.append(1) or real(*a))
    for _ in range(2): kept_index(v, tmp_path).close()
    assert len(built) == 1
    w = v.copy(); w[3, 5] = np.nextafter(w[3, 5], 2)
    assert len({index_name(x, *GRAPH.values()) for x in (v, w, v[:79], v.reshape(40, 128))} | {index_name(v, 99)}) == 5
    assert index_name(np.asfortranarray(v), *GRAPH.values()) == index_name(v, *GRAPH.values())


def test_a_build_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    v, real = clustered(30), ChromaIndex.add
    def half(self, ids, vectors): real(self, ids[:10], vectors[:10]); raise OSError(28, "No space left on device")
    monkeypatch.setattr(ChromaIndex, "add", half)
    with pytest.raises(OSError, match="No space left"): kept_index(v, tmp_path)
    assert [p.suffix for p in tmp_path.iterdir()] == [".lock"]
    monkeypatch.undo()
    (tmp_path/f".{index_name(v, *GRAPH.values())}-killed").mkdir()          # what a process leaves that was killed while it built
    with kept_index(v, tmp_path) as index: assert len(index) == 30
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("damage", [lambda f: next(f.glob("g-*/chroma.sqlite3")).write_bytes(b"not a database "*400), lambda f: (f/"current").unlink(), lambda f: shutil.rmtree(next(f.glob("g-*")))], ids=["bytes", "name", "files"])
def test_a_damaged_one_is_built_again(tmp_path, damage):
    v = clustered(30)
    with kept_index(v, tmp_path) as index: folder, before = index.path, found(index, v)
    damage(folder)
    with kept_index(v, tmp_path) as index: assert (index.path, found(index, v)) == (folder, before)


def test_one_that_lacks_vectors_is_built_again(tmp_path):
    v = clustered(30)
    with kept_index(v, tmp_path) as index: folder = index.path
    with ChromaIndex(64, folder) as index: index.collection.delete(ids=["7"])
    with kept_index(v, tmp_path) as index: assert len(index) == 30 and index.search(v[7], 1)[0][0] == "7"


READER = """
import sys, numpy as np
from memkit.search.vectors import kept_index
from pathlib import Path
v = np.load(sys.argv[1])
with kept_index(v, Path(sys.argv[2])) as index:
    print(index.path.name, [index.search(q, 5)[0][0] for q in v[:20]] == [str(i) for i in range(20)])
"""


def test_processes_that_come_together_build_one_and_both_read_it(tmp_path):
    v = clustered(300)
    np.save(tmp_path/"v.npy", v)
    readers = [subprocess.Popen([sys.executable, "-c", READER, str(tmp_path/"v.npy"), str(tmp_path/"kept")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [r.communicate(timeout=600) for r in readers]
    assert [out.split() for out, _ in said] == [[index_name(v, *GRAPH.values()), "True"]]*2, said
    assert len([p for p in (tmp_path/"kept").iterdir() if p.is_dir()]) == 1


def test_a_corpus_changes_over_by_its_size(tmp_path):
    v = clustered(40)
    assert isinstance(corpus_index(v, tmp_path), ExactIndex) and isinstance(corpus_index(v, None, exact_up_to=10), ExactIndex) and not list(tmp_path.iterdir())
    large = corpus_index(v, tmp_path, exact_up_to=39)
    assert isinstance(large, ChromaIndex) and [[i for i, _ in r] for r in found(large, v)] == [[i for i, _ in r] for r in found(corpus_index(v), v)]
    large.close()
    (tmp_path/"file").write_text("")
    with pytest.warns(UserWarning, match="can't keep an index of 40 vectors"): assert isinstance(corpus_index(v, tmp_path/"file", exact_up_to=39), ExactIndex)


# Chroma, behind a server

@pytest.fixture
def server(chroma_server) -> int: return chroma_server


def test_server_contract(server):
    check_index(lambda dim: ChromaIndex(dim, host="127.0.0.1", port=server, collection="contract"))


def test_a_server_is_shared(server):
    a, b = (ChromaIndex(3, host="127.0.0.1", port=server, collection="shared") for _ in range(2))
    a.add(["x", "y"], np.eye(3)[:2])
    assert [i for i, _ in b.search([0, 1, 0], 1)] == ["y"] and len(b) == 2
    with pytest.raises(ValueError, match="not 5"): ChromaIndex(5, host="127.0.0.1", port=server, collection="shared")


def test_no_server():
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"no Chroma server answers at 127.0.0.1:{port}"): ChromaIndex(3, host="127.0.0.1", port=port)


def test_importing_loads_nothing_heavy():
    program = "import sys, memkit.search.documents; print([m for m in ('torch', 'chromadb', 'bm25s', 'rank_bm25', 'onnxruntime', 'transformers', 'matplotlib', 'sqlalchemy', 'tqdm') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True).stdout.strip() == "[]"
