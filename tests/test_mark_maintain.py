"Maintenance: what goes is what the border says, everything leaves a reason, and each step can be taken back until its day."
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memkit.records import new_id
from memkit.store.store import MemoryStore
from memkit.mark import maintain as m
from memkit.mark.corrections import classify, injected, judge_memory
from memkit.mark.maintain import DROPPED, maintain, set_aside, standings, undo
from memkit.mark.refined import DOMAIN, KINDS, QUESTION, RESIDUAL
from memkit.mark.trust import PAPER, TrustSettings, replay, verdict
from memkit.reading.facts import Relation

START = datetime(2026, 5, 4, 9, tzinfo=timezone.utc)
META = {"agent": "assistant", "metadata": {}, "source": "user", "reason": "correction", "about": "", "sources": []}


@pytest.fixture
def store():
    with MemoryStore(":memory:") as s: yield s


def at(days: float = 0): return lambda: START + timedelta(days=days)


def add(store, text="the lamp is blue", kind=RESIDUAL, owner=DOMAIN, vector=None):
    return store.add(owner, text, vector, kind=kind, at=START, meta=META, encoder="" if vector is None else "topics")


def shown(store, memory, outcomes, owner=DOMAIN, by="u"):
    for right in outcomes:
        injected(store, owner, [memory.id], turn := new_id("t"), by)
        if right is not None: judge_memory(store, owner, memory.id, by, right, turn)


def state_of(store, owner=DOMAIN):
    return [(x.id, x.kind, x.text, x.recalls, x.correct, x.incorrect) for x in store.list(owner, superseded=True)], [(e.kind, e.memory) for e in store.events(owner)]


@given(st.lists(st.lists(st.sampled_from([True, False, None]), max_size=7), min_size=1, max_size=5), st.sampled_from([PAPER, TrustSettings(penalty=1), TrustSettings(threshold=1), TrustSettings(alpha=.5, threshold=.7)]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_goes_is_what_the_border_says(lives, how):
    with MemoryStore(":memory:") as store:
        memories = [add(store, f"fact {i}") for i in range(len(lives))]
        todo = [(mem, o) for mem, life in zip(memories, lives) for o in life]
        random.Random(1).shuffle(todo)
        met = {mem.id: [] for mem in memories}
        for mem, o in todo: shown(store, mem, [o]); met[mem.id].append(o)
        expected = {id for id, life in met.items() if not verdict(replay(life, how), how).kept}
        before = state_of(store)
        told = {s.memory.id for s in standings(store, DOMAIN, how) if not s.verdict.kept}
        done = maintain(store, DOMAIN, how, clock=at(1))
        assert told == {d.id for d in done.dropped} == expected and done.looked_at == len(lives) and {x.id for x in store.list(DOMAIN, kind=RESIDUAL)} == met.keys() - expected
        assert {d.id for d in set_aside(store, DOMAIN)} == expected and all(d.reason.startswith("dropped: ") for d in done.dropped)
        after = state_of(store)
        assert not maintain(store, DOMAIN, how, clock=at(2)).dropped and state_of(store) == after
        for id in expected: undo(store, DOMAIN, id, at(3))
        assert not maintain(store, DOMAIN, how, clock=at(4)).dropped and [x[:2] for x in state_of(store)[0]] == [x[:2] for x in before[0]]


def test_the_day_is_kept_to_the_microsecond(store):
    mem = add(store); shown(store, mem, [False]*3)
    d, = maintain(store, DOMAIN, clock=at(0)).dropped
    assert d.until == START + m.GRACE
    assert not maintain(store, DOMAIN, clock=at(30)).forgotten, "on the day itself it can still be brought back"
    undo(store, DOMAIN, mem.id, at(30)); shown(store, mem, [False]*3); maintain(store, DOMAIN, clock=at(31))
    late = lambda: START + timedelta(days=61, microseconds=1)
    with pytest.raises(ValueError, match="could be brought back until"): undo(store, DOMAIN, mem.id, late)
    assert maintain(store, DOMAIN, clock=late).forgotten == (mem.id,)
    with pytest.raises(KeyError): undo(store, DOMAIN, mem.id, at(3))


def test_the_bytes_go(tmp_path):
    with MemoryStore(tmp_path/"m.db") as store:
        mem = add(store, "the zirconium lamp is blue"); shown(store, mem, [False]*3)
        maintain(store, DOMAIN, clock=at(0)); assert maintain(store, DOMAIN, clock=at(31)).receipt.erased
    assert not any(b"zirconium" in p.read_bytes() for p in tmp_path.iterdir())


def test_a_search_does_not_find_what_was_set_aside(store):
    v = np.eye(4, dtype="f4")
    mem, other = add(store, vector=v[0]), add(store, "the door is green", vector=v[1])
    shown(store, mem, [False]*3); maintain(store, DOMAIN, clock=at(0))
    assert [h.item.id for h in store.search(DOMAIN, v[0], kind=set(KINDS))] == [other.id]
    undo(store, DOMAIN, mem.id, at(1))
    assert [h.item.id for h in store.search(DOMAIN, v[0], 1, kind=set(KINDS))] == [mem.id]


def test_only_refined_memories_and_only_this_owner(store):
    mine, note, other = add(store, kind=QUESTION, owner="anna"), store.add("anna", "a note", kind="note"), add(store, kind=QUESTION, owner="ben")
    for mem, owner in ((mine, "anna"), (other, "ben")): shown(store, mem, [False]*3, owner, owner)
    for _ in range(3): store.count("anna", note.id, recalls=1, incorrect=1)
    assert [d.id for d in maintain(store, "anna", clock=at(0)).dropped] == [mine.id] and store.get("ben", other.id).kind == QUESTION
    assert store.get("anna", note.id).kind == "note" and maintain(store, "somebody new").looked_at == 0
    with pytest.raises(KeyError): undo(store, "ben", mine.id, at(0))


def test_a_reviewer_outranks_the_record(store):
    good, bad = add(store, "one"), add(store, "two")
    shown(store, good, [False]*9); shown(store, bad, [True]*9)
    classify(store, DOMAIN, good.id, "good", by="r"); classify(store, DOMAIN, bad.id, "bad", by="r")
    assert [d.id for d in maintain(store, DOMAIN, clock=at(0)).dropped] == [bad.id]
    with pytest.raises(ValueError, match="reviewer"): undo(store, DOMAIN, bad.id, at(0))
    classify(store, DOMAIN, bad.id, None, by="r"); undo(store, DOMAIN, bad.id, at(0))
    classify(store, DOMAIN, good.id, None, by="r")
    assert [d.id for d in maintain(store, DOMAIN, clock=at(0)).dropped] == [good.id]


def test_half_a_run_is_no_run(store, monkeypatch):
    memories = [add(store, f"fact {i}") for i in range(3)]
    for mem in memories: shown(store, mem, [False]*3)
    before, real, calls = state_of(store), m.move_aside, []
    def breaks(*args):
        calls.append(1)
        if len(calls) == 3: raise RuntimeError("power cut")
        real(*args)
    monkeypatch.setattr(m, "move_aside", breaks)
    with pytest.raises(RuntimeError): maintain(store, DOMAIN, clock=at(0))
    assert state_of(store) == before and len(calls) == 3
    monkeypatch.undo()
    assert len(maintain(store, DOMAIN, clock=at(0)).dropped) == 3


def test_two_runs_at_once_drop_each_memory_once(tmp_path):
    with MemoryStore(tmp_path/"m.db") as store:
        memories = [add(store, f"fact {i}") for i in range(8)]
        for mem in memories: shown(store, mem, [False]*3)
        with ThreadPoolExecutor(4) as pool: reports = list(pool.map(lambda _: maintain(store, DOMAIN, clock=at(0)), range(4)))
        assert sorted(d.id for r in reports for d in r.dropped) == [x.id for x in memories]
        assert sum(e.kind == "dropped" for e in store.events(DOMAIN)) == 8
        with ThreadPoolExecutor(4) as pool: reports = list(pool.map(lambda _: maintain(store, DOMAIN, clock=at(40)), range(4)))
        assert {id for r in reports for id in r.forgotten} == {x.id for x in memories} and not set_aside(store, DOMAIN)


class Topics:
    "An embedder for tests: every text is the same direction."
    name, dim = "topics", 4
    def embed(self, texts, kind="document"): return np.tile(np.eye(4, dtype="f4")[0], (len(texts), 1))


@pytest.mark.parametrize("relation, back", [("contradiction", True), ("unrelated", True), ("duplicate", False)])
def test_what_gave_way_comes_back_with_its_record(store, monkeypatch, relation, back):
    monkeypatch.setattr(m, "compared", lambda *a: [Relation(relation, .9, "so")])
    old, new = add(store, "the keys are here", vector=np.eye(4)[0]), add(store, "the keys are there", vector=np.eye(4)[0])
    shown(store, old, [True, None, True]); store.supersede(DOMAIN, old.id, new.id, "contradicted"); shown(store, new, [False]*3)
    report = maintain(store, DOMAIN, clock=at(0), embedder=Topics())
    assert bool(report.revived) == back
    if not back: return
    again = store.get(DOMAIN, next(iter(report.revived)))
    assert (again.text, again.at, again.recalls, again.correct) == (old.text, old.at, 3, 2)
    assert [s.trust for s in standings(store, DOMAIN)] == [replay([True, None, True])]
    assert not maintain(store, DOMAIN, clock=at(0), embedder=Topics()).revived
    undo(store, DOMAIN, new.id, at(1))
    assert [x.id for x in store.list(DOMAIN, kind=RESIDUAL)] == [new.id]


def test_what_was_bad_itself_does_not_come_back(store, monkeypatch):
    monkeypatch.setattr(m, "compared", lambda *a: [Relation("contradiction", .9, "so")])
    old, new = add(store, "the keys are here", vector=np.eye(4)[0]), add(store, "the keys are there", vector=np.eye(4)[0])
    for mem in (old, new): shown(store, mem, [False]*3)
    store.supersede(DOMAIN, old.id, new.id, "contradicted")
    assert maintain(store, DOMAIN, clock=at(0), embedder=Topics()).revived == {}
    assert not [x for x in store.list(DOMAIN) if not x.kind.startswith(DROPPED)]


@pytest.mark.parametrize("bad, error", [(dict(clock=lambda: datetime(2026, 1, 1)), ValueError), (dict(clock=lambda: None), TypeError)])
def test_what_cannot_be_changes_nothing(store, bad, error):
    shown(store, add(store), [False]*3)
    before = state_of(store)
    with pytest.raises(error): maintain(store, DOMAIN, **bad)
    assert state_of(store) == before
