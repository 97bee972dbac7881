"The queue: what is left for later is done once, in order, by whoever comes first, and is forgotten with its turn."
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from faulty_server import FaultyServer, garbage, hang_up, ok, silent, status
from memkit.core.endpoint import ChatEndpoint, EndpointError
from memkit.core.lm import ScriptedLM
from memkit.core.records import new_id
from memkit.core.schema import SCHEMA, StoreError, meta
from memkit.core.store import MemoryStore
from memkit.malp import open_malp
from memkit.malp.coordinator import PromptedCoordinator
from memkit.mark import open_mark
from memkit.mark.refined import DOMAIN
from memkit.store import jobs as queue
from memkit.store.jobs import Worker, claim, end_job, jobs, leave_job, put_back, sealed, signature, unsealed, waiting
from memkit.store.traces import forget_turns, read_traces
from memkit.turn.assistants import assistants, design, open_assistant
from memkit.turn.engine import Assistant

FIXTURES = Path(__file__).with_name("fixtures")


@pytest.fixture
def store(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s: yield s


def said(store, user="ann", text="I live in Leeds."): return store.add_turn(user, new_id("s"), text, "Noted.")

# --- the table


def test_a_store_of_schema_3_is_brought_up_and_keeps_everything(tmp_path):
    with sqlite3.connect(tmp_path/"old.db") as conn: conn.executescript((FIXTURES/"store_schema_3.sql").read_text())
    with MemoryStore(tmp_path/"old.db") as s:
        turn, = s.turns("ann")
        memory, = s.list("ann")
        assert (turn.question, memory.turns, s.state("ann", "consent")) == ("I am allergic to penicillin.", (turn.id,), "yes")
        assert list(read_traces(s, "ann")) == [turn.id] and [m.text for m in s.list("bob")] == ["The user has a cat."]
        with s._db.engine.connect() as conn: assert conn.execute(meta.select().where(meta.c.key == "schema")).one().value == str(SCHEMA)
        leave_job(s, "ann", "malp", "learn", turn=turn.id)
        assert s.forget("ann").removed["jobs"] == 1 and jobs(s, "ann") == []


@pytest.mark.parametrize("user", ["a", "Zoë Adams", "x"*500, "domain:shared"])
def test_a_name_is_sealed_and_comes_back(store, user):
    leave_job(store, user, "malp", "learn", turn=said(store, user))
    assert list(waiting(store, "malp")) == [user] and unsealed(b"k", sealed(b"k", user)) == user
    if len(user) > 3: assert user.encode() not in store.file.read_bytes() + Path(f"{store.file}-wal").read_bytes()


def test_a_job_is_left_once_and_is_its_users(store):
    turn, session = said(store), new_id("s")
    ids = {leave_job(store, "ann", "malp", "learn", turn=turn) for _ in range(3)} | {leave_job(store, "ann", "mark", "read", session=session) for _ in range(2)}
    assert len(ids) == 2 and len(jobs(store, "ann")) == 2 and len(jobs(store, "ann", "mark")) == 1
    assert not jobs(store, "bob") and claim(store, "bob", "malp", signature(), 9) is None
    assert not end_job(store, "bob", min(ids)) and end_job(store, "ann", min(ids))


def test_the_words_of_an_error_stay_out():
    e = ValueError("Mimi")
    e.__cause__ = EndpointError("no answer about Mimi", 503)
    assert queue.told(e) == "ValueError from EndpointError 503" and queue.told(KeyError("Mimi")) == "KeyError"


def test_turns_are_done_in_their_order_and_what_is_given_up_holds_nobody_up(store):
    first, second = (leave_job(store, "ann", "malp", "learn", turn=said(store)) for _ in range(2))
    read = leave_job(store, "ann", "malp", "read", session=new_id("s"))
    put_back(store, "ann", first, "E", 3600, 1)
    assert claim(store, "ann", "malp", signature(), 9).id == read            # the turn behind waits, a session doesn't
    assert claim(store, "ann", "malp", signature(), 9) is None
    put_back(store, "ann", first, "E", 0, 5, dead=True)
    assert claim(store, "ann", "malp", signature(), 9).id == second
    assert [j.state for j in jobs(store, "ann")] == ["given up", "running", "running"]


def test_a_lease_ends_by_time_or_with_its_process(store):
    job, mine = leave_job(store, "ann", "malp", "learn", turn=said(store)), signature()
    leave_job(store, "ann", "malp", "learn", turn=jobs(store, "ann")[0].turn, who=mine, seconds=60)
    assert claim(store, "ann", "malp", signature(), 9) is None
    put_back(store, "ann", job)
    assert claim(store, "ann", "malp", mine, .05).id == job and claim(store, "ann", "malp", signature(), 9) is None
    time.sleep(.06)
    host, _, n = mine.split("-")
    assert claim(store, "ann", "malp", f"{host}-99999999-{n}", 3600).id == job       # a process that isn't there …
    assert claim(store, "ann", "malp", mine, 9).id == job                            # … holds nobody up
    put_back(store, "ann", job)
    assert claim(store, "ann", "malp", f"elsewhere-99999999-{n}", 3600).id == job    # of another machine nobody knows
    assert claim(store, "ann", "malp", mine, 9) is None


@pytest.mark.parametrize("n", [2, 5])
def test_of_many_workers_one_gets_a_job(tmp_path, n):
    path, done = tmp_path/"s.db", []
    with MemoryStore(path) as s:
        for user in ("ann", "bob", "cem"): leave_job(s, user, "d", "learn", turn=said(s, user))
    def run():
        with MemoryStore(path) as s:
            w = Worker(s, "d", lambda job, offline: done.append(job.id))
            for user in ("cem", "ann", "bob"): w.work(user)
    threads = [threading.Thread(target=run) for _ in range(n)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert len(done) == len(set(done)) == 3


def test_waits_grow_and_the_offline_attempt_comes_at_once(store):
    def broken(job, offline): raise RuntimeError("Mimi")
    w, waits = Worker(store, "d", broken, tries=3, wait=100.), []
    w.leave("ann", "learn", turn=said(store), seconds=0)
    while (job := w.work("ann", now=True)[0]).state != "given up": waits.append((job.attempts, round((job.due - queue.utc_now()).total_seconds(), -2)))
    assert waits == [(1, 100.), (2, 400.), (4, 600.)] and job.attempts == 5 and job.error == "RuntimeError"
    w.close()


def test_a_closed_store_stops_the_thread(tmp_path):
    s = MemoryStore(tmp_path/"s.db")
    w = Worker(s, "d", lambda job, offline: None)
    w.leave("ann", "learn", turn=said(s), seconds=0)
    s.close()
    w.start()
    w._next.result()
    with pytest.raises(StoreError, match="was closed"): w.work("ann")
    w.close()
