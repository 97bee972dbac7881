"Stores that several processes share: the same promises on a file and on a PostgreSQL server, and what only a server does."
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, make_url, select

import memkit.store.schema as server
import postgres_server
from memkit.models.lm import ScriptedLM
from memkit.records import new_id
from memkit.store.schema import SCHEMA, StoreError, erasures, memories, meta, owners
from memkit.store.schema import FULL_BYTES, NO_DRIVER, server_engine
from memkit.store.store import MemoryStore
from memkit.hybrid.memory import ChromaMemory
from memkit.store.jobs import jobs, leave_job
from memkit.store.erase import put_trace, read_traces
from memkit.turn.assistants import assistants, open_assistant

ROOT, FIXTURES = Path(__file__).resolve().parents[1], Path(__file__).with_name("fixtures")
HEAD = (f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport os, time\nfrom memkit.store.store import MemoryStore, StoreError\n"
        "place, go, who = sys.argv[1:4]\n")
READY = "print('ready', flush=True)\nwhile not os.path.exists(go): time.sleep(.0005)\n"


def four(place: str, tmp_path: Path, code: str, before: str = "MemoryStore(':memory:').close()", n: int = 4) -> list[str]:
    "What n processes print that begin `code` at the same moment."
    go = tmp_path/new_id("go")
    all_ = [subprocess.Popen([sys.executable, "-c", f"{HEAD}{before}\n{READY}{code}", place, str(go), str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for i in range(n)]
    for p in all_: assert p.stdout.readline() == "ready\n", p.stderr.read()
    go.touch()
    said = [p.communicate(timeout=300) for p in all_]
    assert [p.returncode for p in all_] == [0]*n, [err for _, err in said]
    return [out.strip() for out, _ in said]


def rows(s: MemoryStore, *what):
    with s._db.engine.connect() as conn: return conn.execute(select(*what)).all()


# --- four processes

def test_four_open_an_empty_store(place, tmp_path):
    four(place, tmp_path, "with MemoryStore(place) as s: s.add('u', who)")
    with MemoryStore(place) as s: assert sorted(m.text for m in s.list("u")) == list("0123") and len(rows(s, owners.c.id)) == 1


def test_sixty_first_writes_are_seen_and_each_user_is_there_once(place, tmp_path):
    MemoryStore(place).close()
    acknowledged = four(place, tmp_path, "n = 0\nfor i in range(15): s.add(f'user-{i}', f'of {who}'); n += 1\nprint(n)", "s = MemoryStore(place)")
    assert acknowledged == ["15"]*4
    with MemoryStore(place) as s:
        assert [len(s.list(f"user-{i}")) for i in range(15)] == [4]*15
        (n, digests), = rows(s, func.count(), func.count(owners.c.digest.distinct()))
        assert n == digests == 15
        for i in range(15): s.forget(f"user-{i}")
    with MemoryStore(place) as s: assert not any(s.list(f"user-{i}") for i in range(15)) and not rows(s, memories.c.id) and not rows(s, owners.c.id)


def test_every_read_modify_write_of_four_hundred_is_kept(place, tmp_path):
    four(place, tmp_path, "for _ in range(100):\n    with s.transaction('u'): s.set_state('u', 'n', (s.state('u', 'n') or 0) + 1)", "s = MemoryStore(place)")
    with MemoryStore(place) as s: assert s.state("u", "n") == 400 and s.count("u", s.add("u", "x").id, recalls=1).recalls == 1


def test_four_take_each_job_once(place, tmp_path):
    with MemoryStore(place) as s:
        for i in range(12): leave_job(s, f"u{i}", "d", "learn", turn=s.add_turn(f"u{i}", "s", "q", "a"))
    code = "from memkit.store.jobs import Worker\ndone = []\nw = Worker(s, 'd', lambda job, offline: done.append(job.user))\nfor i in range(12): w.work(f'u{i}')\nprint(*done)"
    done = " ".join(four(place, tmp_path, code, "s = MemoryStore(place)")).split()
    assert sorted(done) == sorted(f"u{i}" for i in range(12))


def test_threads_of_one_process_share_a_store(place):
    with MemoryStore(place) as s:
        s.set_state("u", "n", 0)
        def raise_it():
            for _ in range(25):
                with s.transaction("u"): s.set_state("u", "n", s.state("u", "n") + 1)
        all_ = [threading.Thread(target=raise_it) for _ in range(4)]
        for t in all_: t.start()
        for t in all_: t.join()
        assert s.state("u", "n") == 100


@pytest.mark.parametrize("round", range(3))
def test_killed_in_the_middle_of_writing(place, tmp_path, round):
    "What was acknowledged is there, whole; at most one more is."
    code = """
s, n = MemoryStore(place), 0
while True:
    with s.transaction("u"):
        t = s.add_turn("u", "s", f"question {n}", "answer"); m = s.add("u", f"memory {n}", [n, 1], turns=[t]); s.count("u", m.id, recalls=1)
    print(n, flush=True); n += 1"""
    p = subprocess.Popen([sys.executable, "-c", HEAD + code, place, "", ""], stdout=subprocess.PIPE, text=True)
    acknowledged = [p.stdout.readline() for _ in range(10 + 7*round)]
    p.send_signal(signal.SIGKILL)
    acknowledged += p.stdout.readlines(); p.wait(); p.stdout.close()
    n = len([a for a in acknowledged if a.endswith("\n")])
    with MemoryStore(place) as s:
        found = s.list("u")
        assert len(found) in (n, n + 1) and [m.text for m in found] == [f"memory {i}" for i in range(len(found))]
        assert len(s.turns("u")) == len(found) and all(m.recalls == 1 and len(m.turns) == 1 for m in found) and len(s.events("u")) == 3*len(found)
        s.add("u", "and on it goes")


# --- what a server does otherwise

def test_writers_of_two_users_dont_wait_for_each_other(pg):
    with MemoryStore(pg, timeout=.3) as s, s.transaction("ann"):
        told = []
        def write(user):
            try: told.append(s.add(user, "x").text)
            except StoreError as e: told.append(str(e))
        for user in ("bob", "ann"):
            t = threading.Thread(target=write, args=(user,)); t.start(); t.join()
        assert told[0] == "x" and "held it longer than the timeout" in told[1]


def test_a_program_that_falls_silent_in_a_transaction_doesnt_hold_its_user_up(pg, monkeypatch):
    "A machine without power can't say that it is gone."
    monkeypatch.setattr(server, "IDLE", .3)
    with MemoryStore(pg, timeout=5) as silent, MemoryStore(pg, timeout=5) as other:
        with pytest.raises(StoreError, match="the server ended this transaction"), silent.transaction("ann"):
            silent.add("ann", "half")
            other.add("ann", "whole")                    # waits until the server has ended the other one
            silent.add("ann", "too late")
        assert [m.text for m in other.list("ann")] == ["whole"] and silent.add("ann", "on")


def test_a_quote_of_what_is_being_forgotten_is_not_written(pg):
    "One checks that the source is there, the other that no quote is: neither may slip past the other."
    with MemoryStore(pg, timeout=5) as s:
        source, turn = s.add("bob", "Bob keeps a ferret."), s.add_turn("ann", "s", "q", "a")
        forgot = threading.Thread(target=s.forget, args=("bob",))
        with s.transaction("ann"):
            assert put_trace(s, "ann", turn, b"Bob keeps a ferret.", 1, [source.id])
            forgot.start()
            time.sleep(.3)
        forgot.join()
        assert read_traces(s, "ann") == {} and not put_trace(s, "ann", turn, b"Bob keeps a ferret.", 1, [source.id])


def in_tables(address: str, *words: bytes) -> int:
    "How often `words` stand in the server's files, its log of writes apart."
    engine = server_engine(make_url(server.with_driver(address)), 5)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("CHECKPOINT")
        number = conn.exec_driver_sql("SELECT oid FROM pg_database WHERE datname = current_database()").scalar()
    engine.dispose()
    folder = Path(make_url(address).query["host"])/"data"/"base"/str(number)
    return sum(f.read_bytes().count(w) for f in folder.iterdir() for w in words)


def test_what_is_forgotten_leaves_every_table(pg):
    v = np.random.default_rng(0).normal(size=384).astype("<f4")
    with MemoryStore(pg) as s:
        turn = s.add_turn("ann", new_id("s"), "Is epilepsy heritable?", "In part.")
        m = s.add("ann", "Has epilepsy in the family.", v, turns=[turn], reason="epilepsy was her word")
        s.set_state("ann", "epilepsy", True); s.put_adapter("ann", v.tobytes()*3, "base", "digest", {"of": "epilepsy"})
        put_trace(s, "ann", turn, b"epilepsy, the whole turn", 1, [m.id], [turn])
        s.add("ben", "Likes to swim in the lake.")
        words = b"epilepsy", v.tobytes()[:64]
        assert in_tables(pg, *words) > 5
        receipt = s.forget("ann")
        assert receipt.erased and "WAL" in receipt.report() and "backups" in receipt.report() and receipt.removed["adapters"] == 1
        assert in_tables(pg, *words) == 0 and in_tables(pg, b"swim in the lake") == 1 and not rows(s, erasures.c.id)


def test_a_reader_keeps_the_old_state_and_the_next_open_finishes(pg):
    with MemoryStore(pg) as s:
        s.add("u", "Is allergic to penicillin.")
        with s._db.engine.connect().execution_options(isolation_level="REPEATABLE READ") as reader:
            reader.execute(select(memories.c.text)).all()
            receipt = s.forget("u")
            assert not receipt.erased and "next opened" in receipt.pending and in_tables(pg, b"penicillin") > 0
            with MemoryStore(pg) as during: assert during.pending == 1
    with MemoryStore(pg) as s: assert s.pending == 0 and in_tables(pg, b"penicillin") == 0


def test_killed_between_deleting_and_vacuuming(pg):
    code = """
import memkit.store.store as store
s = MemoryStore(place); s.add("u", "Is allergic to penicillin.")
store.erase = lambda *a: os.kill(os.getpid(), 9)
s.forget("u")"""
    assert subprocess.run([sys.executable, "-c", HEAD + code, pg, "", ""]).returncode == -9
    assert in_tables(pg, b"penicillin") > 0
    with MemoryStore(pg) as s: assert s.list("u") == [] and s.pending == 0 and in_tables(pg, b"penicillin") == 0


def test_a_large_table_is_not_written_anew(pg, monkeypatch):
    with MemoryStore(pg) as s:
        s.add("u", "x")
        monkeypatch.setattr(server, "FULL_BYTES", 100)
        assert "too large" in s.forget("u").pending
        monkeypatch.setattr(server, "FULL_BYTES", FULL_BYTES)
    with MemoryStore(pg) as s: assert s.pending == 0


def test_somebody_elses_tables_are_said_to_be_so(pg):
    with MemoryStore(pg) as s, s._db.engine.begin() as conn:
        conn.exec_driver_sql("DROP ROLE IF EXISTS guest"); conn.exec_driver_sql("CREATE ROLE guest LOGIN")
        conn.exec_driver_sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO guest; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO guest")
    with MemoryStore(pg.replace("memkit@", "guest@")) as s:
        s.add("u", "x")
        assert "doesn't own the table" in s.forget("u").pending
    MemoryStore(pg).close()


# --- opening

def test_the_address_is_written_as_people_write_it(pg):
    for address in (pg, pg.replace("postgresql://", "postgres://"), pg.replace("postgresql://", "postgresql+psycopg://"), f"{pg}&pool_size=1&max_overflow=0&pool_timeout=.1"):
        with MemoryStore(address) as s: s.add("u", "x")
    assert s._db.engine.pool.size() == 1 and "psycopg" not in repr(s)
    with MemoryStore(address) as s:
        held = s._db.engine.connect()
        with pytest.raises(StoreError, match="longer than the timeout"): s.list("u")
        held.close()
        assert len(s.list("u")) == 4
    with pytest.raises(ValueError, match="pool_size in a store's address"): MemoryStore(f"{pg}&pool_size=many")


@pytest.mark.parametrize("address, told", [("postgresql://ann:secret@127.0.0.1:1/memkit", "no server answers there; start it"), ("mysql://host/memkit", "postgresql://host/database"),
                                           ("postgresql://a:b:c/d", "can't be read")])
def test_an_address_that_leads_nowhere(address, told):
    with pytest.raises((StoreError, ValueError), match=told) as e: MemoryStore(address, timeout=2)
    assert "\n" not in str(e.value) and "secret" not in str(e.value)


def test_no_such_database_no_such_role_another_programs(pg):
    with pytest.raises(StoreError, match="createdb") as e: MemoryStore(pg.replace("/test_", "/none_"))
    with pytest.raises(StoreError, match="check name and password"): MemoryStore(pg.replace("memkit@", "nobody@"))
    assert "\n" not in str(e.value)
    engine = server_engine(make_url(server.with_driver(pg)), 5)
    with engine.begin() as conn: conn.exec_driver_sql("CREATE TABLE recipes (dish text)")
    engine.dispose()
    with pytest.raises(StoreError, match="another program's database"): MemoryStore(pg)


def test_without_the_driver(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ModuleNotFoundError, match="memkit.postgres") as e: MemoryStore("postgresql://db.example/memkit")
    assert str(e.value) == NO_DRIVER


def test_a_server_that_goes_away_and_comes_back():
    try: programs = postgres_server.server_programs()
    except FileNotFoundError as e: pytest.skip(str(e))
    with postgres_server.temporary_postgres() as address:
        folder, who = Path(make_url(address).query["host"]), postgres_server._unprivileged()
        def ctl(*options): subprocess.run([programs/"pg_ctl", "-w", "-D", folder/"data", *options], cwd=folder, stdout=subprocess.DEVNULL, check=True, **who)
        with MemoryStore(address, timeout=3) as s:
            s.add("u", "kept")
            with pytest.raises(StoreError, match="went away|no server answers"):
                with s.transaction("u"):
                    s.add("u", "lost whole")
                    ctl("-m", "immediate", "stop")
                    s.add("u", "lost too")
            with pytest.raises(StoreError, match="no server answers"): s.list("u")
            ctl("-o", f"-c listen_addresses='' -k {folder}", "-l", str(folder/"log2"), "start")
            assert [m.text for m in s.list("u")] == ["kept"] and s.add("u", "on").id


# --- stores of before

def test_a_store_of_schema_4_is_read_by_todays_memkit(tmp_path):
    with sqlite3.connect(tmp_path/"old.db") as conn: conn.executescript((FIXTURES/"store_schema_4.sql").read_text())
    conn.close()
    with MemoryStore(tmp_path/"old.db") as s:
        turn, = s.turns("ann")
        memory, = s.list("ann")
        assert (turn.question, memory.turns, s.state("ann", "consent")) == ("I am allergic to penicillin.", (turn.id,), "yes")
        assert s.search("ann", [1, 0])[0].item == memory and list(read_traces(s, "ann")) == [turn.id] and s.adapter("ann").content == b"weights"
        job, = jobs(s, "ann")
        assert (job.kind, job.turn) == ("learn", turn.id) and rows(s, meta.c.value)[0].value == str(SCHEMA)
        assert s.forget("ann").erased and [m.text for m in s.list("bob")] == ["The user has a cat."]


# --- assistants, and Chroma beside a server

@pytest.mark.parametrize("name", assistants())
def test_every_design_learns_in_one_process_and_knows_in_the_next(name, place):
    says = {"map": "I just watched Alien, 5 stars."}.get(name, "I have been allergic to penicillin since I was a child.")
    def opened(): return open_assistant(name, store=place, model=ScriptedLM(lambda messages: "4"))
    with opened() as a:
        if a.settings.consent: a.consent("ann")
        turn = a.chat("ann", says)
        assert turn.answer
        a.end("ann"); a.wait("ann")
        known = a.memories("ann")
    with opened() as a:
        assert [m.text for m in a.memories("ann")] == [m.text for m in known] and [t.id for t in a.turns("ann")] == [turn.id]
        assert a.forget("ann").erased and a.memories("ann") == [] and a.turns("ann") == []


def test_four_processes_with_a_chroma_folder_each_find_their_users_words(tmp_path, minilm):
    place = str(tmp_path/"s.db")
    code = f"""
from memkit.records import utc_now
m = ChromaMemory(s, MiniLM(), {str(tmp_path/'chroma')!r})
for i in range(5): m.remember('user-' + who, 's', f'What helps against hay fever, number {{i}}?', 'Tablets.', utc_now(), {{}})
print(len(m.nearest('user-' + who, 'hay fever', 10)))"""
    before = "from memkit.hybrid.memory import ChromaMemory\nfrom memkit.models.embed import MiniLM\ns = MemoryStore(place)"
    assert four(place, tmp_path, code, before) == ["5"]*4
    with MemoryStore(place) as s:
        memory = ChromaMemory(s, minilm, tmp_path/"chroma")
        assert len(memory.nearest("user-0", "hay fever")) == 5
        receipt = s.forget("user-0")
        assert receipt.erased and receipt.removed["index folders"] == 1 and memory.nearest("user-0", "hay fever") == [] and len(memory.nearest("user-1", "hay fever")) == 5
