"Vector indexes: exact against a plain sort, Chroma in a folder and behind a real server, damage, and what stays on the disk."
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.core import index as module
from memkit.core.index import ChromaIndex, ExactIndex, best_positions, check_index, check_vectors


def clustered(n: int, dim: int = 64, topics: int = 40, seed: int = 0) -> np.ndarray:
    "Unit vectors around some centres, as those of texts are; never an even cloud, in which nearest means nothing."
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(topics, dim))[rng.integers(topics, size=n)] + .6*rng.normal(size=(n, dim))
    return (v/np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32)


def plain_search(ids, vectors, query, k):
    scores = [sum(float(a)*float(b) for a, b in zip(v, query)) for v in vectors]
    return sorted(range(len(ids)), key=lambda i: (-round(scores[i], 6), i))[:k]


def test_exact_contract(): check_index(ExactIndex)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.lists(st.integers(-3, 3), min_size=2, max_size=2), st.booleans()), max_size=30), st.integers(1, 9))
def test_exact_is_a_dictionary_that_can_be_searched(steps, k):
    index, model = ExactIndex(2), {}
    for id, vector, add in steps:
        if add: index.add([id], [vector]); model[id] = vector
        else: index.delete([id]); model.pop(id, None)
    ids, vectors = list(model), list(model.values())
    assert len(index) == len(model)
    assert [i for i, _ in index.search([2, 1], k)] == [ids[p] for p in plain_search(ids, vectors, [2, 1], k)]


def test_many_at_once_and_some_again():
    v = clustered(700)
    index = ExactIndex(64)
    for i in range(0, 700, 70): index.add([str(j) for j in range(i, i + 70)], v[i:i + 70])
    index.add([str(i) for i in range(100, 300)] + ["new"], np.concatenate([-v[100:300], v[:1]]))
    w = np.concatenate([v, v[:1]])
    w[100:300] *= -1
    for q in v[::100]: assert [i for i, _ in index.search(q, 7)] == [str(p) if p < 700 else "new" for p in plain_search(range(701), w, q, 7)]


def test_the_callers_array_stays_the_callers():
    v = np.ones((2, 3), np.float32)
    index = ExactIndex(3)
    index.add(["a", "b"], v)
    v[:] = 0
    assert index.search([1, 1, 1], 1)[0][1] == pytest.approx(3)


def test_equal_vectors_keep_their_order():
    index = ExactIndex(5)
    index.add([str(i) for i in range(1000)], np.tile(np.float32([.1, .2, .3, .4, .5]), (1000, 1)))
    assert [i for i, _ in index.search([.3, .1, .2, .7, .9], 8)] == list("01234567")


def test_searching_while_others_write():
    v, index, wrong, done = clustered(400), ExactIndex(64), [], threading.Event()
    index.add([str(i) for i in range(200)], v[:200])
    def read():
        while not done.is_set():
            for id, score in index.search(v[7], 5):
                if abs(score - float(v[int(id)] @ v[7])) > 1e-4: wrong.append((id, score))
    readers = [threading.Thread(target=read) for _ in range(3)]
    for r in readers: r.start()
    for i in range(200, 400): index.add([str(i), str(i - 200)], v[[i, i - 200]]); index.delete([str(i - 1)]) if i % 3 == 0 else None
    done.set()
    for r in readers: r.join(timeout=20)
    assert not wrong and not any(r.is_alive() for r in readers)


@given(st.lists(st.integers(-4, 4), max_size=20), st.integers(1, 25), st.integers(-5, 5))
def test_best_positions_is_a_stable_sort(scores, k, above):
    expected = [i for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)) if scores[i] > above][:k]
    assert best_positions(np.array(scores, float), k, above).tolist() == expected


def test_no_vectors_of_any_shape():
    assert check_vectors([], 4).shape == check_vectors(np.zeros((0, 4)), 4, 0).shape == (0, 4)


# Chroma, in a folder

def test_chroma_contract(tmp_path):
    opened = []
    check_index(lambda dim: opened.append(ChromaIndex(dim, tmp_path/"index")) or opened[-1])
    opened[-1].close()


def test_recall_against_exact(tmp_path):
    v = clustered(4050)
    exact = ExactIndex(64)
    with ChromaIndex(64, tmp_path) as chroma:
        for index in (exact, chroma): index.add([str(i) for i in range(4000)], v[:4000])
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
        chroma.delete([str(i) for i in range(20)])
        assert len(chroma) == 5
        chroma.erase()
        assert sorted(i for i, _ in chroma.search(v[0], 99)) == ["20", "21", "22", "23", "24"]


def holds(folder: Path, *secrets: bytes) -> list[bool]:
    data = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    return [s in data for s in secrets]


def test_only_erase_erases(tmp_path):
    v = clustered(30, seed=4)
    secret = (b"somebody-9f3a", v[11].tobytes())
    with ChromaIndex(64, tmp_path) as chroma:
        chroma.add([f"n{i}" if i != 11 else "somebody-9f3a" for i in range(30)], v)
        assert holds(tmp_path, *secret) == [True, True]
        chroma.delete(["somebody-9f3a"])
        chroma.erase()
        assert holds(tmp_path, *secret) == [False, False]
        assert len(chroma) == 29 and len(list(tmp_path.glob("g-*"))) == 1
        chroma.add(["later"], v[11:12])
    with ChromaIndex(64, tmp_path) as chroma: assert len(chroma) == 30 and chroma.search(v[11], 1)[0][0] == "later"


def test_an_erase_that_breaks_off_loses_nothing(tmp_path, monkeypatch):
    v = clustered(10)
    with ChromaIndex(64, tmp_path) as chroma:
        chroma.add([str(i) for i in range(10)], v)
        def full(*_): raise OSError(28, "No space left on device")
        monkeypatch.setattr(module, "write_file", full)
        with pytest.raises(OSError, match="No space left"): chroma.erase()
        assert len(chroma) == 10 and chroma.search(v[3], 1)[0][0] == "3"
        chroma.add(["10"], v[:1])
    monkeypatch.undo()
    with ChromaIndex(64, tmp_path) as chroma: assert len(chroma) == 11
    assert len(list(tmp_path.glob("g-*"))) == 1


def test_one_owner_at_a_time(tmp_path):
    with ChromaIndex(3, tmp_path), pytest.raises(RuntimeError, match="open elsewhere"): ChromaIndex(3, tmp_path)
    program = "import sys; from memkit.core.index import ChromaIndex\ntry: ChromaIndex(3, sys.argv[1])\nexcept RuntimeError as e: print(e)"
    with ChromaIndex(3, tmp_path):
        out = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120)
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
    (lambda p: ChromaIndex(3, p, collection="ab"), "'ab'"), (lambda p: ExactIndex(0), "dim must be")])
def test_refusals(tmp_path, wrong, says):
    with pytest.raises(ValueError, match=says): wrong(tmp_path)


# Chroma, behind a server

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    "A real `chroma run` on loopback; gone when the tests are."
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    program = Path(sys.executable).with_name("chroma")
    if not program.exists(): pytest.skip("the chroma program isn't installed beside this Python")
    run = subprocess.Popen([program, "run", "--path", tmp_path_factory.mktemp("chroma"), "--host", "127.0.0.1", "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            assert run.poll() is None, f"chroma run ended with {run.returncode}"
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0: break
            time.sleep(.25)
        else: pytest.fail("chroma run didn't answer within a minute")
        yield port
    finally:
        run.terminate()
        try: run.wait(timeout=20)
        except subprocess.TimeoutExpired: run.kill(); run.wait(timeout=20)


def test_server_contract(server):
    check_index(lambda dim: ChromaIndex(dim, host="127.0.0.1", port=server, collection="contract"))


def test_a_server_is_shared_and_promises_no_erasure(server):
    a, b = (ChromaIndex(3, host="127.0.0.1", port=server, collection="shared") for _ in range(2))
    a.add(["x", "y"], np.eye(3)[:2])
    assert [i for i, _ in b.search([0, 1, 0], 1)] == ["y"] and len(b) == 2
    b.delete(["y"])
    assert [i for i, _ in a.search([0, 1, 0], 2)] == ["x"]
    with pytest.raises(RuntimeError, match="keeps deleted vectors"): a.erase()
    with pytest.raises(ValueError, match="not 5"): ChromaIndex(5, host="127.0.0.1", port=server, collection="shared")


def test_no_server():
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"no Chroma server answers at 127.0.0.1:{port}"): ChromaIndex(3, host="127.0.0.1", port=port)


def test_importing_loads_nothing_heavy():
    program = "import sys, memkit.core.retrieve; print([m for m in ('torch', 'chromadb', 'bm25s', 'rank_bm25', 'onnxruntime', 'transformers', 'matplotlib', 'sqlalchemy', 'tqdm') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout.strip() == "[]"
