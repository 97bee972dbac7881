"The queue: what is left for later is done once, in order, by whoever comes first, and is forgotten with its turn."
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
from memkit.models.endpoint import ChatEndpoint, EndpointError
from memkit.models.lm import ScriptedLM
from memkit.records import new_id
from memkit.store.schema import SCHEMA, StoreError, meta
from memkit.store.store import MemoryStore
from memkit.malp import open_malp
from memkit.malp.coordinator import PromptedCoordinator
from memkit.mark import open_mark
from memkit.mark.refined import DOMAIN
from memkit.store import jobs as queue
from memkit.store.jobs import Worker, claim, end_job, jobs, leave_job, put_back, sealed, signature, unsealed, waiting
from memkit.store.erase import read_traces
from memkit.turn.assistants import assistants, design, open_assistant

FIXTURES = Path(__file__).with_name("fixtures")


@pytest.fixture
def store(place):
    with MemoryStore(place) as s: yield s


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
    if len(user) > 3 and store.file: assert user.encode() not in store.file.read_bytes() + Path(f"{store.file}-wal").read_bytes()


def test_a_job_is_left_once_and_is_its_users(store):
    turn, session = said(store), new_id("s")
    ids = {leave_job(store, "ann", "malp", "learn", turn=turn) for _ in range(3)} | {leave_job(store, "ann", "mark", "read", session=session) for _ in range(2)}
    assert len(ids) == 2 and len(jobs(store, "ann")) == 2 and len(jobs(store, "ann", "mark")) == 1
    assert not jobs(store, "bob") and claim(store, "bob", "malp", signature(), 9) is None
    assert not end_job(store, "bob", min(ids)) and end_job(store, "ann", min(ids))


def test_the_words_of_an_error_stay_out():
    e = ValueError("Mimi")
    e.__cause__ = EndpointError("no answer about Mimi", 503)
    assert queue.described(e) == "ValueError from EndpointError 503" and queue.described(KeyError("Mimi")) == "KeyError"


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
    assert claim(store, "ann", "malp", mine, 2.).id == job and claim(store, "ann", "malp", signature(), 9) is None
    time.sleep(2.1)
    host, _, n = mine.split("-")
    assert claim(store, "ann", "malp", f"{host}-99999999-{n}", 3600).id == job       # a process that isn't there …
    assert claim(store, "ann", "malp", mine, 9).id == job                            # … holds nobody up
    put_back(store, "ann", job)
    assert claim(store, "ann", "malp", f"elsewhere-99999999-{n}", 3600).id == job    # of another machine nobody knows
    assert claim(store, "ann", "malp", mine, 9) is None


def test_a_process_number_that_is_used_again_holds_nobody_up(store):
    "The lease decides, not the number: here it is that of a process that lives."
    job = leave_job(store, "ann", "malp", "learn", turn=said(store))
    assert claim(store, "ann", "malp", signature(), .05).id == job
    time.sleep(.06)
    assert claim(store, "ann", "malp", signature(), 9).id == job


def test_long_work_keeps_its_lease(store, monkeypatch):
    monkeypatch.setattr(queue, "LEASE", 2.)
    begun, seen = threading.Event(), []
    def slow(job, offline): begun.set(); time.sleep(3.)
    w = Worker(store, "d", slow)
    w.leave("ann", "learn", turn=said(store), seconds=0)
    t = threading.Thread(target=w.work, args=("ann",)); t.start(); begun.wait()
    while t.is_alive(): seen.append(claim(store, "ann", "d", signature(), 9)); time.sleep(.05)
    assert len(seen) > 3 and not any(seen) and jobs(store, "ann") == [] and (w.done, w.failed) == (1, 0)


def test_a_lease_that_is_somebody_elses_by_now_is_not_renewed(store):
    job, a, b = leave_job(store, "ann", "d", "learn", turn=said(store)), signature(), signature()
    claim(store, "ann", "d", a, -1); claim(store, "ann", "d", b, 9)
    assert not queue.renew(store, "ann", job, a, 9) and queue.renew(store, "ann", job, b, 9) and not queue.renew(store, "bob", job + 1, b, 9)


def test_a_session_without_a_word_is_read_after_a_pause(store):
    read = threading.Event()
    w = Worker(store, "d", lambda job, offline: read.set())
    w.leave("ann", "read", session="s", seconds=.3)
    w.start(3600)                                       # a later alarm doesn't take the place of an earlier one
    assert read.wait(20)
    w.close()


def test_the_list_over_all_users_says_why_and_can_be_tried_again(store):
    def broken(job, offline): raise RuntimeError("Mimi")
    w = Worker(store, "d", broken, tries=1, wait=0.)
    for user in ("ann", "bob"): put_back(store, user, w.leave(user, "learn", turn=said(store, user), seconds=0), seconds=3600)
    for _ in range(3): w.work("ann", now=True)
    assert [(j.user, j.state, j.error) for j in queue.all_jobs(store, "d")] == [("ann", "given up", "RuntimeError"), ("bob", "waiting", "")]
    assert "1 waiting, 1 given up (RuntimeError)" in queue.summary([w]) and queue.all_jobs(store, "other") == []
    assert queue.try_again(store, "other") == 0 and queue.try_again(store) == 1 and queue.all_jobs(store)[0].attempts == 0
    w.close()


def test_serving_goes_on_when_the_store_is_away(store, monkeypatch):
    said_, calls = [], []
    def away(): calls.append(1); raise StoreError("the server went away") if len(calls) == 1 else KeyboardInterrupt
    w = Worker(store, "d", lambda job, offline: None)
    monkeypatch.setattr(w, "work_for_all", away)
    with pytest.raises(KeyboardInterrupt): queue.serve([w], .01, say=said_.append)
    assert said_ == ["the server went away"]
    calls.clear()
    with pytest.raises(StoreError): queue.serve([w], once=True)


@pytest.mark.parametrize("n", [2, 5])
def test_of_many_workers_one_gets_a_job(place, n):
    path, done = place, []
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


# --- every design

SAYS = {"map": "I just watched Alien, 5 stars."}
TELLS = "I have been allergic to penicillin since I was a child."
CORRECTS = ("When is the infusion pump calibrated?", "No. The infusion pump is calibrated every Monday.")
every = pytest.mark.parametrize("name", assistants())
WITHIN = [n for n in assistants() if n != "mark"]      # MARK learns from sessions, the others within the turn


def opened(name, store=":memory:", wait=3600., **settings):
    a = open_assistant(name, store=store, model=ScriptedLM(lambda messages: "4"), settings=replace(design(name).Settings(), wait=wait, **settings))
    if a.settings.consent:
        for user in ("ann", "bob"): a.consent(user)
    return a


def breaks(a, monkeypatch, step="learn"):
    "From now on, learning fails."
    def fail(*given, **named): raise RuntimeError("out of order, says Mimi")
    monkeypatch.setattr(a, "read_session" if a.name == "mark" else step, fail)


def talk(a, user="ann"):
    "Something to learn from; the turns of it. A session has ended where the design learns from sessions."
    turns = [a.chat(user, text) for text in (CORRECTS if a.name == "mark" else [SAYS.get(a.name, TELLS)])]
    if a.name == "mark" and (work := a.end(user)): work.exception()
    return turns


def learned(a, user="ann"): return [*a.store.list(user), *(a.store.list(DOMAIN) if a.name == "mark" else ())]


@every
@pytest.mark.parametrize("step", ["prepare", "learn"])
def test_the_answer_comes_although_learning_fails_and_it_is_learned_later(name, step, monkeypatch):
    with opened(name) as a:
        with monkeypatch.context() as broken:
            breaks(a, broken, step)
            turns = talk(a)
            assert all(t.answer and t.changes == () for t in turns) and [t.id for t in a.turns("ann")] == [t.id for t in turns]
            job, = a.jobs("ann")
            assert (job.error, job.attempts, job.state) == ("RuntimeError", 1, "waiting") and "RuntimeError" in a.behind("ann") and not learned(a)
            if name != "mark":
                assert "RuntimeError" in turns[0].extra["learning"] and "Nothing was learned from it yet" in a.explain(turns[0])
                assert a.turn("ann", turns[0].id) == turns[0]
            assert [j.attempts for j in a.wait("ann")] == [2]
        assert a.wait("ann") == [] and a.behind("ann") == "" and learned(a)
        if name != "mark":
            now = a.turn("ann", turns[0].id)
            assert now.changes and "learning" not in now.extra and "Nothing was learned" not in a.explain(now)
            assert set(now.wrote) <= {m.id for m in learned(a)} and now.answer == turns[0].answer and a.turns("ann") == [now]


@pytest.mark.parametrize("name", WITHIN)
def test_what_is_learned_later_is_what_would_have_been_learned_at_once(name, monkeypatch):
    at = __import__("datetime").datetime(2026, 3, 2, 12, tzinfo=__import__("datetime").timezone.utc)
    texts = [SAYS.get(name, TELLS), "I also like Blade Runner, 4 stars." if name == "map" else "I moved from Leeds to York last week."]
    def rows(a): return [(m.kind, m.text, m.meta.get("flags"), len(m.turns), m.recalls) for m in a.store.list("ann", superseded=True)]
    with opened(name) as at_once:
        for text in texts: at_once.chat("ann", text, at=at)
        with opened(name) as late:
            with monkeypatch.context() as broken:
                breaks(late, broken)
                for text in texts: late.chat("ann", text, at=at)
            assert len(late.jobs("ann")) == 2 and not late.wait("ann")
            assert [(k, t, f, n) for k, t, f, n, _ in rows(late)] == [(k, t, f, n) for k, t, f, n, _ in rows(at_once)]
            assert [[c.kind for c in t.changes] for t in late.turns("ann")] == [[c.kind for c in t.changes] for t in at_once.turns("ann")]


@every
def test_what_waits_can_be_forgotten(name, monkeypatch):
    with opened(name) as a:
        with monkeypatch.context() as broken:
            breaks(a, broken)
            talk(a), talk(a, "bob")
            receipt = a.forget("ann")
        assert receipt.removed["jobs"] == 1 and "1 job" in str(receipt)
        assert not a.jobs("ann") and not a.wait("ann") and not a.store.list("ann") and len(a.jobs("bob")) == 1
        a.wait("bob")
        assert learned(a, "bob") and not a.store.list("ann")


@pytest.mark.parametrize("name", WITHIN)
def test_a_message_taken_back_while_it_waits_is_not_learned(name, monkeypatch):
    with opened(name) as a:
        with monkeypatch.context() as broken:
            breaks(a, broken)
            turn, = talk(a)
            assert a.forget("ann", turns=[turn.id]).removed["jobs"] == 1
        assert not a.jobs("ann") and not a.wait("ann") and not learned(a)


@pytest.mark.parametrize("name", WITHIN)
def test_what_is_forgotten_while_it_is_learned_stays_forgotten(name, monkeypatch):
    with opened(name) as a:
        real = a.prepare
        def prepare(turn):
            out = real(turn)
            a.forget("ann")
            return out
        monkeypatch.setattr(a, "prepare", prepare)
        turn, = talk(a)
        assert turn.answer and turn.changes == () and not a.turns("ann") and not learned(a) and not a.jobs("ann")


@every
def test_nobody_is_remembered_by_the_queue_without_consent(name):
    with open_assistant(name, store=":memory:", model=ScriptedLM(lambda messages: "4"), settings=design(name).Settings(consent=True)) as a:
        a.chat("ann", TELLS)
        assert a.jobs("ann") == [] and waiting(a.store, name) == {}


@every
def test_two_assistants_on_one_store_learn_once(name, monkeypatch, tmp_path):
    with opened(name, tmp_path/"s.db") as a:
        with monkeypatch.context() as broken:
            breaks(a, broken)
            for _ in range(2): talk(a)
        with opened(name, tmp_path/"s.db") as b, opened(name, tmp_path/"single.db") as alone:
            for _ in range(2): talk(alone)
            threads = [threading.Thread(target=x.wait, args=("ann",)) for x in (a, b)]
            for t in threads: t.start()
            for t in threads: t.join()
            while a.wait("ann"): pass                       # one may have come while the other held the first
            assert [m.text for m in learned(a)] == [m.text for m in learned(alone)]


@every
def test_the_order_holds_when_a_turn_comes_behind_one_that_waits(name, monkeypatch):
    if name == "mark": return
    with opened(name) as a:
        with monkeypatch.context() as broken:
            breaks(a, broken)
            talk(a)
        behind = a.chat("ann", "I moved from Leeds to York last week.")
        assert behind.extra["learning"] == "it waits for an earlier message" and [j.attempts for j in a.jobs("ann")] == [1, 0]
        assert a.wait("ann") == [] and a.turns("ann")[0].changes


def test_the_next_turn_of_a_user_tries_first_what_is_due(monkeypatch):
    with opened("malp", wait=0.) as a:
        monkeypatch.setattr(a.queue, "start", lambda seconds=0.: None)           # no thread
        with monkeypatch.context() as broken:
            breaks(a, broken)
            talk(a)
        turn = a.chat("ann", "Am I allergic to penicillin?")
        assert turn.recalled and "learning" not in turn.extra and a.jobs("ann") == []


def test_studied_rounds_are_kept_and_learned_later(monkeypatch):
    from memkit.reading.notes import Round
    with opened("generative-agents") as a:
        with monkeypatch.context() as broken:
            breaks(a, broken)
            assert a.study("ann", [Round("r1", TELLS, "I see.")]) == 1
        assert len(a.jobs("ann")) == 1 and not a.wait("ann") and [m.text for m in learned(a)] == [TELLS]
        assert a.study("ann", [Round("r1", TELLS, "I see.")]) == 0


# --- a model that takes notes, behind a server that fails

def notes(h):
    "A server whose model takes notes as it should, and agrees with them when asked again."
    import json
    from faulty_server import completion, say
    from memkit.records import Message
    from test_coordinator import answering, obliging
    said = [Message(role=m["role"], text=m["content"]) for m in h.body["messages"]]
    say(completion(answering(obliging)(said)))(h)


FAULTS = {"errors": status(503), "garbage": garbage, "hangs up": hang_up, "silence": silent, "prose": ok("I am sorry, I can't."), "empty": ok("")}


def endpoint(server, fault=""): return ChatEndpoint(server.url, "m", api_key="k", retries=0, timeout=.4 if fault == "silence" else 60.)


def asking(server, fault=""): return PromptedCoordinator(endpoint(server, fault))


@pytest.mark.parametrize("fault", FAULTS)
def test_malp_answers_whatever_the_note_taker_does_and_learns_when_it_is_back(fault, monkeypatch):
    with FaultyServer(FAULTS[fault]) as server, open_malp(":memory:", ScriptedLM(lambda m: "I see."), coordinator=asking(server, fault)) as a:
        monkeypatch.setattr(a.queue, "start", lambda seconds=0.: None)
        turn = a.chat("ann", TELLS)
        assert turn.answer and turn.extra["learning"] == "it waits until the answer is given" and not server.requests
        job, = a.wait("ann")
        assert job.error.split()[0] in ("EndpointError", "CoordinatorError") and "penicillin" not in job.error and server.requests
        server.script[:], a.memory.coordinator.model = [notes], endpoint(server)
        assert a.wait("ann") == [] and a.turn("ann", turn.id).changes[0].kind == "stored"
        assert any("penicillin" in m.text for m in a.memories("ann"))


@pytest.mark.parametrize("fault", ["errors", "silence", "prose"])
def test_where_it_stays_away_the_embedded_notes_are_taken(fault, monkeypatch):
    with FaultyServer(FAULTS[fault]) as server, open_malp(":memory:", ScriptedLM(lambda m: "I see."), coordinator=asking(server, fault)) as a:
        monkeypatch.setattr(a.queue, "start", lambda seconds=0.: None)
        turn = a.chat("ann", TELLS)
        assert [len(a.wait("ann")) for _ in range(3)] == [1, 1, 0]
        assert any("penicillin" in m.text for m in a.memories("ann")) and a.turn("ann", turn.id).changes
        assert a.memory.coordinator.model.name == "m"        # the next turn asks again


def test_in_the_background_nobody_has_to_wait(monkeypatch):
    with FaultyServer(status(500), notes) as server:
        of = replace(design("malp").Settings(), wait=.02)
        with open_malp(":memory:", ScriptedLM(lambda m: "I see."), coordinator=asking(server), settings=of) as a:
            turn = a.chat("ann", TELLS)
            until = time.monotonic() + 20
            while a.jobs("ann") and time.monotonic() < until: time.sleep(.01)
            assert a.jobs("ann") == [] and a.turn("ann", turn.id).changes and a.memories("ann")


@pytest.mark.parametrize("fault", FAULTS)
def test_mark_loses_no_session_when_the_server_fails_at_its_end(fault, monkeypatch, tmp_path):
    from memkit.mark.builder import Builder
    from memkit.mark.agents import prompted_agents
    with FaultyServer(FAULTS[fault]) as server:
        with open_mark(tmp_path/"s.db", ScriptedLM(lambda m: "I see.")) as a:
            embedder = a.builder.embedder
            a.builder = Builder(a.store, embedder, prompted_agents(endpoint(server, fault)))
            monkeypatch.setattr(a.queue, "start", lambda seconds=0.: None)
            for text in CORRECTS: assert a.chat("ann", text).answer
            assert a.end("ann").exception() is not None
            job, = a.jobs("ann")
            assert job.error.startswith("BuildError from ") and not a.store.list(DOMAIN)
        with MemoryStore(tmp_path/"s.db") as s: put_back(s, "ann", job.id)       # time goes by
        with open_mark(tmp_path/"s.db", ScriptedLM(lambda m: "I see.")) as later:
            later.wait("ann")
            assert later.jobs("ann") == [] and any("Monday" in m.text for m in later.store.list(DOMAIN))
            assert later.chat("bob", CORRECTS[0]).recalled


def test_mark_falls_back_on_the_embedded_agents(monkeypatch):
    from memkit.mark.builder import Builder
    from memkit.mark.agents import prompted_agents
    with open_mark(":memory:", ScriptedLM(lambda m: "I see.")) as a:
        def down(messages): raise EndpointError("no answer about the pump", 503)
        a.builder = Builder(a.store, a.builder.embedder, prompted_agents(ScriptedLM(down)))
        monkeypatch.setattr(a.queue, "start", lambda seconds=0.: None)
        for text in CORRECTS: a.chat("ann", text)
        assert a.end("ann").exception() is not None
        assert [j.error for j in a.wait("ann")] == ["BuildError from EndpointError 503"] and a.wait("ann") == []
        assert any("Monday" in m.text for m in a.store.list(DOMAIN)) and not a.shown


# --- killed

LIVES = """
    import os, signal, sys
    from dataclasses import replace
    from memkit.models.lm import ScriptedLM
    from memkit.turn.assistants import design, open_assistant
    name, path, step, after = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    a = open_assistant(name, store=path, model=ScriptedLM(lambda messages: "4"), settings=replace(design(name).Settings(), wait=3600.))
    if a.settings.consent: a.consent("ann")
    left = [after]
    if step:
        of = a.queue if step == "end" else a
        real = getattr(of, step)
        def dies(*given, **named):
            out = real(*given, **named)
            left[0] -= 1
            if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)
            return out
        setattr(of, step, dies)
    for i in range(40):
        turn = a.chat("ann", f"I have been allergic to {'abcdefghijklmnopqrstuvwxyz'[i % 26]*5}in since I was a child." if name != "mark" else f"No. Pump {i + 1} is calibrated every Monday.")
        print(turn.id, flush=True)
"""


def lives_and_dies(name, path, step="", after=0, seconds=None) -> list[str]:
    "A process that chats until it is killed: by itself at a step, or from outside. The turns that it had answered."
    p = subprocess.Popen([sys.executable, "-c", textwrap.dedent(LIVES), name, str(path), step, str(after)], stdout=subprocess.PIPE, text=True)
    if seconds is not None:
        first = p.stdout.readline()
        time.sleep(seconds)
        p.send_signal(signal.SIGKILL)
        out = first + p.communicate(timeout=120)[0]
    else: out = p.communicate(timeout=120)[0]
    assert p.returncode == -signal.SIGKILL
    return out.split()


def taught(a, name) -> list[str]:
    "For each turn of Ann's that is kept: how many memories rest on it alone."
    if name == "mark": return [len(a.store.state("ann", f"mark: read of {s}", [])) for s in dict.fromkeys(t.session for t in a.turns("ann"))]
    return [sum(m.turns == (t.id,) for m in a.store.list("ann", superseded=True)) for t in a.turns("ann")]


KILLED = [("malp", "learn", 1), ("malp", "end", 0), ("malp", "record", 1),
          ("hybrid", "learn", 1), ("generative-agents", "prepare", 2), ("mark", "leave_job", 1), ("mark", "record", 2)]
ON_SERVER = ("malp", "learn", 1), ("mark", "record", 2)   # a server sees a process die in one way, whatever it did

@pytest.mark.parametrize("name, step, after, place", [*((*k, "file") for k in KILLED), *((*k, "postgres") for k in ON_SERVER)], indirect=["place"])
def test_killed_between_the_answer_and_what_is_learned(name, step, after, place):
    path = place
    answered = lives_and_dies(name, path, step, after)
    with opened(name, path) as a:
        until = time.monotonic() + 60
        while a.jobs("ann") and time.monotonic() < until: time.sleep(.02)
        kept = [t.id for t in a.turns("ann")]
        assert len(answered) == after and set(answered) <= set(kept) and len(kept) - len(answered) in (0, 1)
        assert a.jobs("ann") == []
        if name == "mark": assert taught(a, name) == [len(kept)]
        else: assert taught(a, name) == [1]*len(kept)


@pytest.mark.parametrize("name, seconds, place", [("malp", .31, "file"), ("generative-agents", .05, "file"), ("malp", .13, "postgres")], indirect=["place"])
def test_killed_from_outside_at_any_moment(name, seconds, place):
    path = place
    answered = lives_and_dies(name, path, seconds=seconds)
    with opened(name, path) as a:
        a.wait("ann")
        kept = [t.id for t in a.turns("ann")]
        assert set(answered) <= set(kept) and a.jobs("ann") == [] and taught(a, name) == [1]*len(kept)


def test_two_processes_open_what_a_third_has_left_and_learn_once(place):
    path = place
    with opened("generative-agents", path) as a:
        def fail(*given): raise RuntimeError
        a.learn = fail
        for i in range(12): a.chat("ann", f"My number {i} is lucky.")
        assert len(a.jobs("ann")) == 12
    with MemoryStore(path) as s:
        for job in jobs(s, "ann"): put_back(s, "ann", job.id)
    code = "import sys, memkit; a = memkit.open_assistant('generative-agents', store=sys.argv[1], model=memkit.ScriptedLM([])); [a.wait('ann') for _ in range(3)]; a.close()"
    both = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(2)]
    assert [p.wait(timeout=120) for p in both] == [0, 0]
    with opened("generative-agents", path) as a:
        while a.wait("ann"): pass
        assert taught(a, "generative-agents") == [1]*12
