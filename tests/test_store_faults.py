"The memory store when things go wrong: other processes, full disks, killed writers, readers in the way, bytes that must be gone."
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.store import erase as erase_module
from memkit.store.erase import FEW, count_in, count_in_files, search_pieces
from memkit.store.schema import SCHEMA, StoreError
from memkit.store.store import MemoryStore

ROOT = Path(__file__).resolve().parents[1]


def python(code: str, *args, **more) -> subprocess.Popen:
    "Run `code` in another process, with `MemoryStore` at hand."
    head = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport os, time\nfrom memkit.store.store import MemoryStore, StoreError\n"
    return subprocess.Popen([sys.executable, "-c", head + code, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def said(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out.strip()


def on_disk(path: Path, *words: bytes) -> int:
    "How often `words` stand in the files, read by another process: here a `close` would take SQLite's locks away."
    code = "import sys; print(sum(open(p, 'rb').read().count(bytes.fromhex(w)) for p in (sys.argv[1], sys.argv[1] + '-wal') if __import__('os').path.exists(p) for w in sys.argv[2:]))"
    return int(subprocess.check_output([sys.executable, "-S", "-c", code, path, *(w.hex() for w in words)]))


# --- what isn't a store is refused and left as it is

def foreign(tmp_path: Path, what: str) -> Path:
    path = tmp_path/"file.db"
    if what == "text": path.write_text("Dear doctor, " * 1000)
    if what == "short": path.write_bytes(b"x")
    if what == "damaged": path.write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    if what == "other":
        with sqlite3.connect(path) as conn: conn.execute("CREATE TABLE meta (key, value)")
        conn.close()
    if what in ("newer", "odd"):
        MemoryStore(path).close()
        with sqlite3.connect(path) as conn: conn.execute("UPDATE meta SET value = ? WHERE key = 'schema'", [str(SCHEMA + 1) if what == "newer" else "two"])
        conn.close()
    return path


@pytest.mark.parametrize("what, told", [("text", "isn't a memkit store"), ("short", "isn't a memkit store"), ("damaged", "isn't a memkit store"), ("other", "another program's database"),
                                        ("newer", f"its schema is {SCHEMA + 1}, this memkit knows up to {SCHEMA}; update memkit"), ("odd", "its schema is two")])
def test_what_is_not_ours_is_not_touched(tmp_path, what, told):
    path = foreign(tmp_path, what)
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(StoreError, match=told) as e: MemoryStore(path)
    assert "\n" not in str(e.value) and (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [p.name for p in tmp_path.iterdir()] == ["file.db"]


def test_places_where_no_file_can_be(tmp_path):
    for path in (tmp_path, tmp_path/"no"/"such"/"folder.db", tmp_path/"file"/"x.db"):
        (tmp_path/"file").touch()
        with pytest.raises(StoreError, match="folder"): MemoryStore(path)


def test_an_empty_file_becomes_a_store_of_its_owner_alone(tmp_path):
    (tmp_path/"empty.db").touch()
    with MemoryStore(tmp_path/"empty.db") as s: s.add("u", "x")
    with MemoryStore(f"sqlite:///{tmp_path}/new.db") as s:
        s.add("u", "x")
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir() if p.name.startswith("new")}
    assert set(modes.values()) == {0o600} and len(modes) == 3


def test_without_the_right_to_write(tmp_path):
    MemoryStore(tmp_path/"s.db").close()
    code = """
MemoryStore(":memory:").close()                  # loads what nobody else may be able to read
if os.getuid() == 0: os.setgroups([]); os.setegid(65534); os.seteuid(65534)
for path in sys.argv[1:]:
    try:
        with MemoryStore(path) as s: s.add("u", "x")
    except StoreError as e: print(e)"""
    (tmp_path/"s.db").chmod(0o444); (tmp_path/"shut").mkdir(); (tmp_path/"shut").chmod(0o555); tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]: parent.chmod(0o755)          # pytest's own folders
    lines = said(python(code, tmp_path/"s.db", tmp_path/"shut"/"new.db")).splitlines()
    assert len(lines) == 2 and all("can't" in line and "check" in line for line in lines), lines
    (tmp_path/"s.db").chmod(0o600)
    with MemoryStore(tmp_path/"s.db") as s: assert s.list("u") == []


# --- a full disk

def limit(store: MemoryStore, pages: int):
    "Let the database have only so many pages more, on each connection."
    raws = [store._db.engine.raw_connection() for _ in range(3)]
    for raw in raws:
        now, = raw.execute("PRAGMA page_count").fetchone()
        raw.execute(f"PRAGMA max_page_count={now + pages}").fetchone()
    for raw in raws: raw.close()


def test_a_full_disk_keeps_what_was_there(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s:
        kept = s.add("u", "kept", [1, 0])
        limit(s, 5)
        with pytest.raises(StoreError, match="disk is full") as e: s.add("u", "secret words " * 10_000)
        assert "secret" not in str(e.value) and "\n" not in str(e.value) and e.value.__cause__ is None
        assert s.list("u") == [kept] and len(s.events("u")) == 1
        small = s.add("u", "small", [1, 0])                               # there is still room for this
        assert s.list("u") == [kept, small]
    with MemoryStore(tmp_path/"s.db") as s: assert s.list("u") == [kept, small]


def test_a_transaction_that_met_a_full_disk_is_lost_whole(tmp_path):
    "Even where the caller catches the error and goes on."
    with MemoryStore(tmp_path/"s.db") as s:
        s.add("u", "kept"); limit(s, 5)
        with pytest.raises(StoreError, match="nothing of it is kept"):
            with s.transaction("u"):
                s.add("u", "first")
                with pytest.raises(StoreError, match="disk is full"): s.add("u", "x" * 200_000)
                with pytest.raises(StoreError, match="nothing of it is kept"): s.add("u", "after")
        assert [m.text for m in s.list("u")] == ["kept"] and len(s.events("u")) == 1


def test_a_limit_on_the_files_size(tmp_path):
    code = """
import resource
with MemoryStore(sys.argv[1]) as s:
    s.add("u", "kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    n = 0
    try:
        while n < 100: s.add("u", "x" * 20_000); n += 1
    except StoreError as e: print(n, e)
    print(len(s.list("u")))"""
    lines = said(python(code, tmp_path/"s.db")).splitlines()
    n = int(lines[0].split()[0])
    assert 0 < n < 100 and "this write wasn't kept, all earlier ones were" in lines[0] and int(lines[1]) == n + 1
    with MemoryStore(tmp_path/"s.db") as s: assert len(s.list("u")) == n + 1


# --- several at once

def test_600_increments_of_two_writers_are_600(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s:
        m = s.add("u", "x", [1, 0])
        both = [python("s = MemoryStore(sys.argv[1])\nfor _ in range(300): s.count('u', int(sys.argv[2]), recalls=1)", tmp_path/"s.db", m.id) for _ in range(2)]
        for p in both: said(p)
        assert s.get("u", m.id).recalls == s.search("u", [1, 0])[0].item.recalls == 600
        assert sum(e.data.get("recalls", 0) for e in s.events("u")) == 600


def test_four_open_a_new_store_at_once(tmp_path):
    code = "while not os.path.exists(sys.argv[2]): pass\nwith MemoryStore(sys.argv[1]) as s: s.add('u', sys.argv[3])"
    all_ = [python(code, tmp_path/"s.db", tmp_path/"go", i) for i in range(4)]
    time.sleep(1); (tmp_path/"go").touch()
    for p in all_: said(p)
    with MemoryStore(tmp_path/"s.db") as s: assert sorted(m.text for m in s.list("u")) == [str(i) for i in range(4)]      # one key, one owner


def test_locked_for_longer_than_the_timeout(tmp_path):
    with MemoryStore(tmp_path/"s.db", timeout=.2) as s:
        s.add("u", "kept")
        other = sqlite3.connect(tmp_path/"s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="held it longer than the timeout") as e: s.add("u", "x")
        assert "\n" not in str(e.value) and [m.text for m in s.list("u")] == ["kept"]           # reading goes on
        with pytest.raises(StoreError, match="held it longer"): s.forget("u")
        other.execute("ROLLBACK"); other.close()
        s.add("u", "x")
        assert len(s.list("u")) == 2


def test_a_thread_that_keeps_its_transaction(tmp_path):
    with MemoryStore(tmp_path/"s.db", timeout=.2) as s, s.transaction("u"):
        told = []
        def other():
            try: s.add("v", "x")
            except StoreError as e: told.append(str(e))
        t = threading.Thread(target=other); t.start(); t.join()
        assert "another thread held it longer" in told[0]


@pytest.mark.parametrize("round", range(3))
def test_killed_in_the_middle_of_writing(tmp_path, round):
    "What was acknowledged is there, whole; at most one more is."
    code = """
s, n = MemoryStore(sys.argv[1]), 0
while True:
    with s.transaction("u"):
        t = s.add_turn("u", "s", f"question {n}", "answer"); m = s.add("u", f"memory {n}", [n, 1], turns=[t]); s.count("u", m.id, recalls=1)
    print(n, flush=True); n += 1"""
    p = python(code, tmp_path/"s.db")
    acknowledged = [p.stdout.readline() for _ in range(20 + 13*round)]
    p.kill()
    acknowledged += p.stdout.readlines(); p.wait(); p.stderr.close(); p.stdout.close()
    n = len([a for a in acknowledged if a.endswith("\n")])
    with MemoryStore(tmp_path/"s.db") as s:
        found = s.list("u")
        assert len(found) in (n, n + 1) and [m.text for m in found] == [f"memory {i}" for i in range(len(found))]
        assert len(s.turns("u")) == len(found) and all(m.recalls == 1 and len(m.turns) == 1 for m in found) and len(s.events("u")) == 3*len(found)
        assert s.search("u", [1, 0])[0].item.text == f"memory {len(found) - 1}"
        check, = s._db.engine.raw_connection().execute("PRAGMA integrity_check").fetchone()
        assert check == "ok"


@pytest.mark.filterwarnings("ignore:.*fork.*")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_was_forked_opens_its_own(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s:
        m = s.add("u", "x", [1, 0]); s.search("u", [1, 0])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(50): s.count("u", m.id, recalls=1)
                s.add("u", "of the child", [2, 0]); s.close(); code = 0
            finally: os._exit(code)
        for _ in range(50): s.count("u", m.id, recalls=1)
        assert os.waitpid(child, 0)[1] == 0
        assert s.get("u", m.id).recalls == 100 and s.search("u", [1, 0])[0].item.text == "of the child"


# --- the bytes

def test_words_names_and_vectors_leave_the_disk(tmp_path):
    path, v = tmp_path/"s.db", np.random.default_rng(0).normal(size=384).astype("<f4")
    with MemoryStore(path) as s:
        turn = s.add_turn("Anna Example", "session-of-anna", "Is epilepsy heritable?", "In part, epilepsy is.")
        m = s.add("Anna Example", "Has epilepsy in the family.", v, turns=[turn], meta={"topic": "epilepsy"}, reason="epilepsy was her word")
        s.set_state("Anna Example", "epilepsy-consent", {"epilepsy": True})
        s.add("Ben", "Likes to swim in the lake.")
        words = b"epilepsy", v.tobytes(), b"session-of-anna"
        assert on_disk(path, *words) >= 8 and on_disk(path, b"Anna Example") == 0
        assert s.forget("Anna Example", [m.id]).erased
        assert on_disk(path, v.tobytes(), b"heritable", b"her word", b"in the family") == 0
        assert s.forget("Anna Example").erased
        assert on_disk(path, *words) == 0 and on_disk(path, b"swim in the lake") == 1


@pytest.mark.parametrize("size", [1, 4_000, 5_000, 1_000_000])
def test_texts_of_any_length_are_erased(tmp_path, size):
    "Long ones are spread over pages."
    rng, path = np.random.default_rng(size), tmp_path/"s.db"
    text = "".join(chr(97 + i) for i in rng.integers(0, 26, size))
    with MemoryStore(path) as s:
        s.add("v", "stays")
        m = s.add("u", text)
        if size >= 4_000: assert on_disk(path, *(text[i:i + 40].encode() for i in range(0, size, size//10))) > 0
        assert s.forget("u", [m.id]).erased and s.list("v")[0].text == "stays"
        if size >= 4_000: assert on_disk(path, *(text[i:i + 40].encode() for i in range(0, size - 40, size//100))) == 0


def test_a_remnant_is_found_and_rewritten(tmp_path):
    "Rows struck by a program that doesn't overwrite: what a bug, or an index, would leave."
    path = tmp_path/"s.db"
    with MemoryStore(path) as s:
        m = s.add("u", "Grandmother's recipe for ginger tea.")
        with sqlite3.connect(path) as conn:
            conn.execute("PRAGMA secure_delete=OFF")
            conn.execute("INSERT INTO memories (owner, kind, text, at, encoder, meta, recalls, correct, incorrect) SELECT owner, kind, text, at, encoder, meta, 0, 0, 0 FROM memories")
            conn.execute("DELETE FROM memories WHERE id != ?", [m.id])
        conn.close()
        rewritten = []
        with pytest.MonkeyPatch.context() as mp:
            real = erase_module.rewrite
            mp.setattr(erase_module, "rewrite", lambda engine: (rewritten.append(1), real(engine)))
            assert s.forget("u", [m.id]).erased
        assert rewritten and on_disk(path, b"ginger tea") == 0


def test_words_that_others_hold_are_no_remnant(tmp_path):
    path = tmp_path/"s.db"
    with MemoryStore(path) as s, pytest.MonkeyPatch.context() as mp:
        mp.setattr(erase_module, "rewrite", lambda engine: pytest.fail("rewrote the file for nothing"))
        for u in "uvw": s.add(u, "My knee hurts when I climb stairs.", [1, 2, 3], reason="told us so")
        s.add("v", "She said: My knee hurts when I climb stairs. And then?")
        m = s.add("u", "yes"); s.add("v", "yes")
        assert s.forget("u", [m.id]).erased and s.forget("u").erased
        assert on_disk(path, b"My knee hurts when I climb stairs.") == 3 and len(s.list("v")) == 3


def test_a_reader_keeps_the_old_state_and_the_next_open_finishes(tmp_path):
    path = tmp_path/"s.db"
    with MemoryStore(path) as s:
        s.add("u", "Is allergic to penicillin.")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN"); assert reader.execute("SELECT count(*) FROM memories").fetchone() == (1,)
        receipt = s.forget("u")
        assert not receipt.erased and "next opened" in receipt.pending and "still pending" in str(receipt)
        assert s.list("u") == [] and on_disk(path, b"penicillin") > 0
        with MemoryStore(path) as during: assert during.pending == 1 and on_disk(path, b"penicillin") > 0
        reader.execute("COMMIT"); reader.close()
        s.add("v", "somebody else goes on")
    with MemoryStore(path) as s:
        assert s.pending == 0 and on_disk(path, b"penicillin") == 0 and len(s.list("v")) == 1
        assert s._db.engine.raw_connection().execute("SELECT count(*) FROM erasures").fetchone() == (0,)


def test_killed_between_deleting_and_erasing(tmp_path):
    path = tmp_path/"s.db"
    code = """
import memkit.store.store as store
s = MemoryStore(sys.argv[1]); s.add("u", "Is allergic to penicillin.")
store.erase = lambda *a: os.kill(os.getpid(), 9)
s.forget("u")"""
    p = python(code, path); p.communicate()
    assert p.returncode == -9 and on_disk(path, b"penicillin") > 0
    with MemoryStore(path) as s: assert s.list("u") == [] and s.pending == 0
    assert on_disk(path, b"penicillin") == 0


@pytest.mark.parametrize("error", [OSError(5, "input/output error"), StoreError("the disk is full")])
def test_erasing_that_fails_is_pending_and_says_so(tmp_path, monkeypatch, error):
    def fail(*a): raise error
    with MemoryStore(tmp_path/"s.db") as s:
        s.add("u", "Is allergic to penicillin.")
        with monkeypatch.context() as mp:
            mp.setattr(erase_module, "remnants", fail)
            receipt = s.forget("u")
        assert not receipt.erased and "next opened" in receipt.pending and "\n" not in receipt.pending and s.list("u") == []
    with MemoryStore(tmp_path/"s.db") as s: assert s.pending == 0


def test_opening_where_the_pending_cannot_be_finished(tmp_path, monkeypatch):
    path = tmp_path/"s.db"
    with MemoryStore(path) as s, monkeypatch.context() as mp:
        s.add("v", "kept"); s.add("u", "gone")
        mp.setattr(erase_module, "remnants", lambda *a: (_ for _ in ()).throw(OSError("no")))
        s.forget("u")
    def full(engine): raise StoreError("the disk is full")
    with monkeypatch.context() as mp:
        mp.setattr(erase_module, "rewrite", full)
        with MemoryStore(path) as s: assert s.pending == 1 and s.list("v")[0].text == "kept"
    with MemoryStore(path) as s: assert s.pending == 0


def test_searching_the_bytes_takes_no_locks_away(tmp_path):
    "A process that closes any descriptor of a file loses all its locks on it; then another one's close removes the log in use."
    path = tmp_path/"s.db"
    with MemoryStore(path) as s:
        for i in range(3):
            m = s.add("u", f"Number {i} of the things to be forgotten."); assert s.forget("u", [m.id]).erased
            said(python("with MemoryStore(sys.argv[1]) as s: s.add('v', 'by another process')", path))
            s.add("w", "by this process")
            assert len(s.list("v")) == len(s.list("w")) == i + 1
        assert Path(f"{path}-wal").exists()
    with MemoryStore(path) as s: assert len(s.list("v")) == len(s.list("w")) == 3


def test_forgetting_while_others_write(tmp_path):
    path = tmp_path/"s.db"
    with MemoryStore(path) as s:
        ids = [s.add("u", f"To be forgotten, number {i}.").id for i in range(8)]
        p = python("s = MemoryStore(sys.argv[1])\nfor i in range(150): s.add('v', f'Written meanwhile, {i}.'); s.list('v')", path)
        receipts = [s.forget("u", [i]) for i in ids]
        said(p)
        assert len(s.list("v")) == 150 and all(r.erased or "next opened" in r.pending for r in receipts)
    with MemoryStore(path) as s: assert s.pending == 0 and on_disk(path, b"To be forgotten") == 0


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=400), cuts=st.lists(st.tuples(st.integers(0, 400), st.integers(8, 40)), max_size=40), few=st.booleans())
def test_counting_agrees_with_a_naive_count(content, cuts, few):
    wanted = {content[a:a + n] for a, n in cuts if a + n <= len(content)} | {b"surely not there" + bytes([i]) for i in range(0 if few else FEW + 1)}
    naive = {p: n for p in wanted if (n := sum(content.startswith(p, i) for i in range(len(content))))}
    assert count_in(content, wanted) == naive


@settings(max_examples=40, deadline=None)
@given(content=st.binary(min_size=1, max_size=300), cut=st.integers(0, 290), n=st.integers(8, 60), block=st.integers(1, 320))
def test_counting_in_blocks(tmp_path_factory, content, cut, n, block):
    path = tmp_path_factory.mktemp("blocks")/"file"; path.write_bytes(content)
    wanted = {p for p in (content[cut:cut + n], content[cut:cut + 8]) if len(p) >= 8}
    assert count_in_files([path], wanted, block) == {p: c for p in wanted if (c := sum(content.startswith(p, i) for i in range(len(content))))}


@settings(max_examples=40, deadline=None)
@given(size=st.integers(0, 6000), at=st.integers(0, 6000))
def test_any_remnant_of_576_bytes_holds_a_piece(size, at):
    value = np.random.default_rng(size).bytes(size)
    remnant = value[at:at + 576]
    if len(remnant) == min(576, size) >= 8: assert any(p in remnant for p in search_pieces(value))
