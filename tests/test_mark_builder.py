"The builder: each conversation once, the same merged, the opposite settled, anything an agent returns survived, and nobody's words left behind."
import dataclasses
import json
import subprocess
import sys
import threading
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memkit.store import store as store_module
from memkit.records import Memory, new_id
from memkit.store.schema import StoreError, find_owner, write_lock
from memkit.store.schema import turns as turns_table
from memkit.store.store import MemoryStore
from memkit.mark.builder import BuildError, Builder, BuildReport, forget_contributions, turns_read
from memkit.mark.corrections import classify, injected, judge_memory, recall_outcomes, trust_of
from memkit.mark.conflict_resolution import ConflictSide, compared, contest, other_answer, other_subject, relations, same_term
from memkit.mark.conflict_resolution import said_at
from memkit.mark.maintain import QuorumSettings
from memkit.mark.refined import DOMAIN, KINDS, QUESTION, RESIDUAL, RESPONSE, RETRACTION, Conversation, Exchange, Refined, conversation_of
from memkit.mark.trust import replay
from memkit.reading import facts
from memkit.reading.labels import RELATIONS

START = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
TWICE, ONCE = "Velorin is given twice a day", "Velorin is given once a day"


class Listener:
    "Takes down every message that begins with its mark: 'residual: …', 'user-question: …', 'llm-response: …' (said by the assistant)."
    def __init__(self, kind, source=None): self.kind, self.source = kind, source or ("assistant" if kind == RESPONSE else "user")
    def extract(self, c):
        said = [(e.turn, e.answer if self.source == "assistant" else e.question) for e in c.exchanges]
        return [Refined(kind=self.kind, text=text.partition(": ")[2], turns=(t,), source=self.source, reason="correction") for t, text in said if text.startswith(self.kind + ": ")]


class Says:
    "Returns what it is told to."
    def __init__(self, found, kind=RESIDUAL): self.found, self.kind = found, kind
    def extract(self, c): return self.found(c) if callable(self.found) else self.found


class Words:
    "Vectors from words alone: quick."
    name, dim, unit = "words", 64, True
    def embed(self, texts, kind="document"):
        out = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(out, texts):
            for w in text.lower().split(): row[sum(map(ord, w)) % self.dim] += 1
            row /= max(np.linalg.norm(row), 1e-9)
        return out


@pytest.fixture
def store(tmp_path):
    with MemoryStore(tmp_path/"store.db") as s: yield s


def listeners(): return [Listener(k) for k in KINDS] + [Listener(RESIDUAL, "assistant")]


def builder(store, embedder, agents=None, **kwargs): return Builder(store, embedder, listeners() if agents is None else agents, clock=lambda: START + timedelta(days=365), **kwargs)


def talk(store, user, *exchanges, session=None, day=0, agent="assistant", metadata={}):
    session = session or new_id("s")
    for i, e in enumerate(exchanges):
        q, a = e if isinstance(e, tuple) else (e, "I see.")
        store.add_turn(user, session, q, a, START + timedelta(days=day, minutes=i))
    return conversation_of(store, user, session, agent, metadata)


def told(store, b, user, text, day=0, **kwargs): return b.build(talk(store, user, f"residual: {text}", day=day, **kwargs))


def shared(store): return [m.text for m in store.list(DOMAIN)]


def everything(store, *users): return [(store.list(u, superseded=True), store.events(u), store.turns(u)) for u in (*users, DOMAIN)]


def bytes_of(store): return b"".join(p.read_bytes() for p in Path(store.file).parent.iterdir())


# once

def test_the_same_conversation_twice_adds_nothing(store, minilm):
    b, c = builder(store, minilm), talk(store, "ann", f"residual: {TWICE}", "user-question: Call me Ann", ("Hm?", "llm-response: Take it with water"))
    first = b.build(c)
    assert [s.kind for s in first.of("added")] == [QUESTION, RESPONSE, RESIDUAL] and not first.repeated
    before = everything(store, "ann")
    for again in (b, builder(store, minilm)): assert again.build(c) == BuildReport(c.id, repeated=True)
    assert everything(store, "ann") == before


def test_a_conversation_that_went_on_adds_only_what_is_new(store, minilm):
    b, c = builder(store, minilm), talk(store, "ann", f"residual: {TWICE}", "user-question: Call me Ann")
    b.build(c)
    longer = talk(store, "ann", "residual: The night door is on Elm Street", session=c.id)
    report = b.build(longer)
    assert [store.get(DOMAIN, s.memory).text for s in report.of("added")] == ["The night door is on Elm Street"]
    assert {s.reason for s in report.of("dropped")} == {"from turns that were built before"} and len(report.of("dropped")) == 2
    assert b.build(longer).repeated and b.build(c).repeated


def test_what_was_forgotten_or_dropped_doesnt_come_back(store, minilm):
    "Neither a memory that maintenance set aside nor one that was forgotten returns when its conversation is read again."
    b, c = builder(store, minilm), talk(store, "ann", f"residual: {TWICE}", "residual: The east lift skips floor four")
    first, second = (s.memory for s in b.build(c).of("added"))
    store.move(DOMAIN, [first], f"dropped:{RESIDUAL}", "maintenance"); store.forget(DOMAIN, [second])
    assert b.build(c).repeated and builder(store, minilm).build(c).repeated
    assert [m.kind for m in store.list(DOMAIN)] == [f"dropped:{RESIDUAL}"]


def test_a_conversation_without_anything_to_keep_is_read_once(store, minilm):
    asked = []
    b, c = builder(store, minilm, [Says(lambda c: asked.append(c) or [])]), talk(store, "ann", "Hello")
    assert b.build(c) == BuildReport(c.id) and b.build(c).repeated and len(asked) == 1


def test_an_interruption_between_the_two_owners_is_made_good(store, minilm, monkeypatch):
    "The user's rows are written, then the disk is full; the next build does the domain's part alone."
    c, b = talk(store, "ann", f"residual: {TWICE}", "user-question: Call me Ann"), builder(store, minilm)
    real = store.set_state
    def full(owner, key, value):
        if owner == DOMAIN: raise StoreError("the disk is full")
        real(owner, key, value)
    monkeypatch.setattr(store, "set_state", full)
    with pytest.raises(StoreError, match="full"): b.build(c)
    assert (len(store.list("ann")), store.list(DOMAIN), store.events(DOMAIN)) == (1, [], [])
    monkeypatch.undo()
    report = b.build(c)
    assert [s.kind for s in report.of("added")] == [RESIDUAL] and len(store.list("ann")) == 1 and b.build(c).repeated
    assert set(turns_read(store, DOMAIN, c.id)) == set(turns_read(store, "ann", c.id)) == set(c.turns)


def test_one_message_and_many(store):
    b = builder(store, Words())
    assert len(told(store, b, "ann", "Just this").of("added")) == 1
    session = talk(store, "ben", "Hello").id
    with write_lock(store._db, "ben") as conn:           # add_turn would take longer than all the rest
        owner = find_owner(store._db, conn, "ben")[0]
        rows = [{"owner": owner, "turn": new_id("t"), "session": session, "at": i, "question": f"residual: rule number {i} of ward {i} on floor {i}" if not i % 500 else "Go on", "answer": ""} for i in range(10_000)]
        conn.execute(turns_table.insert(), rows)
    long = conversation_of(store, "ben", session)
    report = b.build(long)
    assert len(long.exchanges) == 10_001 and len(report.of("added")) + len(report.of("merged")) + len(report.of("superseded")) >= 20 and b.build(long).repeated


# the same again

def test_users_corroborate_and_the_assistant_never_does(store, minilm):
    b = builder(store, minilm)
    told(store, b, "ann", TWICE)
    id = store.list(DOMAIN)[0].id
    state = lambda: ((m := store.get(DOMAIN, id)).meta["users"], m.meta["patterns"], len(m.meta["sources"]), m.recalls, m.correct)
    assert state() == (1, 1, 1, 0, 0)
    b.build(talk(store, "eve", ("Hm?", f"residual: {TWICE}")));                    assert state() == (1, 1, 2, 0, 0)   # the assistant's words
    told(store, b, "ann", "Velorin is given twice daily", 1);                      assert state() == (1, 2, 3, 0, 0)   # herself
    told(store, b, "eve", TWICE, 1);                                               assert state() == (2, 3, 4, 0, 0)   # she had it from the assistant
    told(store, b, "ben", TWICE, 2);                                               assert state() == (3, 4, 5, 1, 1)
    told(store, b, "ben", TWICE, 3);                                               assert state() == (3, 5, 6, 1, 1)
    turn = new_id("t"); injected(store, DOMAIN, [id], turn, "cleo")
    told(store, b, "cleo", TWICE, 4);                                              assert state() == (4, 6, 7, 2, 1)   # she was shown it
    assert recall_outcomes(store.events(DOMAIN), id) == (True, None) and trust_of(store, DOMAIN, id) == replay((True, None)) and len(store.list(DOMAIN)) == 1


def test_a_pattern_raises_trust_and_persistence(store, minilm):
    b = builder(store, minilm)
    told(store, b, "ann", TWICE)
    id = store.list(DOMAIN)[0].id
    injected(store, DOMAIN, [id], new_id("t"), "dan"); judge_memory(store, DOMAIN, id, "dan", False)
    before = trust_of(store, DOMAIN, id)
    for who in ("ben", "cleo"): told(store, b, who, TWICE)
    after = trust_of(store, DOMAIN, id)
    assert after.score > before.score and after.persistence() > before.persistence()


def test_twice_in_one_conversation_is_one_source(store, minilm):
    b = builder(store, minilm)
    b.build(talk(store, "ann", f"residual: {TWICE}", "user-question: Call me Ann", f"residual: {TWICE}", "user-question: Call me Ann"))
    [m], [own] = store.list(DOMAIN), store.list("ann")
    assert (m.meta["patterns"], len(m.meta["sources"]), len(m.meta["sources"][0]["turns"]), m.correct) == (1, 1, 2, 0)
    assert len(own.turns) == 2 and own.correct == 0


def test_a_users_own_memory_is_confirmed_by_another_conversation(store, minilm):
    b = builder(store, minilm)
    for day in range(3): b.build(talk(store, "ann", "user-question: Call me Ann", day=day))
    [own] = store.list("ann")
    assert (own.meta["patterns"], own.correct, len(own.turns)) == (3, 1, 3)
    receipt = store.forget("ann", [own.id])                       # all its turns go with it
    assert receipt.removed["turns"] == 3 and store.turns("ann") == []


def test_other_metadata_and_other_agents_stay_apart(store, minilm):
    b = builder(store, minilm)
    for region in ("EU", "US"): told(store, b, f"user in {region}", TWICE, metadata={"region": region})
    told(store, b, "nobody in particular", TWICE)
    assert len(store.list(DOMAIN)) == 3 and all(m.meta["users"] == 1 and not m.correct for m in store.list(DOMAIN))
    for agent in ("ward", "office"): b.build(talk(store, "ann", "user-question: Call me Ann", agent=agent))
    assert len(store.list("ann")) == 2
    told(store, b, "ben", TWICE, agent="another", metadata={"region": "EU"})      # residual memories don't ask which agent
    assert sorted(m.meta["users"] for m in store.list(DOMAIN)) == [1, 1, 2]


def test_other_regions_dont_crowd_out_ones_own(store):
    "A hundred regions say the same; the one neighbour that counts is found all the same."
    b = builder(store, Words())
    told(store, b, "ann", "rule one holds here", metadata={"region": "DE"})
    with store.transaction(DOMAIN):
        for i in range(100): store.add(DOMAIN, "rule one holds", Words().embed(["rule one holds"])[0], RESIDUAL, meta={"metadata": {"region": f"R{i}"}, "sources": [], "source": "user"}, encoder="words")
    told(store, b, "ben", "rule one holds here", metadata={"region": "DE"})
    assert [m.meta["users"] for m in store.list(DOMAIN) if m.meta["metadata"] == {"region": "DE"}] == [2]


# the opposite

def test_recency_decides_between_equals(store, minilm):
    b = builder(store, minilm)
    told(store, b, "ann", TWICE, day=1)
    report = told(store, b, "ben", ONCE, day=2)
    [step] = report.of("superseded")
    assert shared(store) == [ONCE] and store.superseded(DOMAIN) == {step.memory: step.other} and "equal, so what was said later holds" in step.reason and "0.250" in step.reason
    late = told(store, b, "cleo", "Velorin is not given once a day", day=0)        # said first, built last
    assert shared(store) == [ONCE] and late.of("superseded")[0].memory == max(m.id for m in store.list(DOMAIN, superseded=True)) and not late.of("added")
    assert [e.reason for e in store.events(DOMAIN) if e.kind == "superseded"] == [f"contradiction; {s.reason}" for s in (step, late.of("superseded")[0])]


@pytest.mark.parametrize("judged, wins", [((), True), ((True,), False), ((False,), True), ((True, False), False), ((False, False, True), True)])
def test_trust_decides_first(store, minilm, judged, wins):
    b = builder(store, minilm)
    told(store, b, "ann", TWICE)
    id = store.list(DOMAIN)[0].id
    for right in judged: injected(store, DOMAIN, [id], turn := new_id("t"), "dan"); judge_memory(store, DOMAIN, id, "dan", right, turn)
    [step] = told(store, b, "ben", ONCE, day=2).of("superseded")
    assert shared(store) == [ONCE if wins else TWICE]
    if judged: assert f"trust 0.250 against {replay(judged).score:.3f}" in step.reason


def test_feedback_decides_where_trust_is_equal():
    claim = lambda trust=.25, feedback=0., at=START, by="a", source="user": ConflictSide(source, frozenset(by), trust, feedback, at)
    later = START + timedelta(1)
    assert contest(claim(at=later, by="b"), claim(feedback=.5)) == (False, "trust 0.250 against 0.250, feedback 0.000 against 0.500: what was there is liked better")
    assert contest(claim(feedback=1, by="b"), claim(at=later))[0] and contest(claim(.26, -1, by="b"), claim(.25, 1, later))[0]
    assert not contest(claim(.9, 1, later, "b", "assistant"), claim(0, -1))[0] and contest(claim(0, -1), claim(.9, 1, later, "b", "assistant"))[0]
    assert contest(claim(at=later), claim(.9, 1))[0] and not contest(claim(.25), claim(.9, at=later))[0] and not contest(claim(at=later), claim(.9, 1, by="ab"))[0]


@settings(max_examples=50, deadline=None)
@given(*[st.builds(ConflictSide, st.sampled_from(["user", "assistant"]), st.frozensets(st.sampled_from("abc"), min_size=1), st.sampled_from([.2, .25, .3]), st.sampled_from([-1., 0., 1.]), st.sampled_from([START, START + timedelta(1)]))]*2)
def test_a_contest_has_one_winner(a, b):
    "Whoever is asked first, the same one wins; only what was written later decides between equals."
    equal = a.source == b.source and a.at == b.at and ((a.trust, a.feedback) == (b.trust, b.feedback) or a.by == b.by and len(a.by) == 1)
    assert contest(a, b)[0] is (True if equal else not contest(b, a)[0])


def test_whoever_said_it_may_take_it_back(store, minilm):
    b = builder(store, minilm)
    told(store, b, "ann", TWICE)
    id = store.list(DOMAIN)[0].id
    for _ in range(3): injected(store, DOMAIN, [id], new_id("t"), "ann"); judge_memory(store, DOMAIN, id, "ann", True)
    assert "the same person said both" in told(store, b, "ann", ONCE, day=1).of("superseded")[0].reason and shared(store) == [ONCE]


class Retracts(Listener):
    "Takes 'back' for a retraction of everything said in the conversation."
    def extract(self, c):
        told = super().extract(c)
        if not any(e.question == "back" for e in c.exchanges): return told
        return [*told, Refined(kind=self.kind, text="back", turns=c.turns, source="user", reason=RETRACTION)]


def retracting(store, embedder): return builder(store, embedder, [Retracts(RESIDUAL)])


def test_a_retraction_takes_back_what_was_shared(store, minilm):
    b = retracting(store, minilm)
    told(store, b, "ben", ONCE)
    c = talk(store, "ann", f"residual: {TWICE}", day=1)
    b.build(c)
    assert shared(store) == [TWICE], "hers is later"
    report = b.build(talk(store, "ann", "back", session=c.id, day=2))
    assert [s.reason for s in report.of("dropped") if s.memory] == ["taken back by whoever said it"] and not report.of("added")
    assert sorted((m.kind, m.text) for m in store.list(DOMAIN)) == [(f"dropped:{RESIDUAL}", TWICE), (RESIDUAL, ONCE)], "what it had beaten returns"
    assert b.build(conversation_of(store, "ann", c.id)).repeated


def test_a_retraction_leaves_what_others_said_or_confirmed(store, minilm):
    b = retracting(store, minilm)
    c = talk(store, "ann", f"residual: {TWICE}", "residual: The night door is on Elm Street")
    b.build(c); told(store, b, "ben", TWICE, day=1)
    [door] = [m.id for m in store.list(DOMAIN) if "door" in m.text]
    injected(store, DOMAIN, [door], turn := new_id("t"), "dan"); judge_memory(store, DOMAIN, door, "dan", True, turn)
    b.build(talk(store, "ann", "back", session=c.id, day=2))
    left = {m.text: m.meta["users"] for m in store.list(DOMAIN, kind=RESIDUAL)}
    assert left == {TWICE: 1, "The night door is on Elm Street": 1}
    assert store.alias("ann") not in json.dumps([m.meta for m in store.list(DOMAIN) if m.text == TWICE])


def test_nobody_takes_back_what_another_said(store, minilm):
    b = retracting(store, minilm)
    told(store, b, "ann", TWICE); b.build(talk(store, "liar", "Hm?", "back"))
    assert shared(store) == [TWICE]


def test_but_not_once_others_have_confirmed_it(store, minilm):
    b = builder(store, minilm)
    told(store, b, "ann", TWICE); told(store, b, "ben", TWICE)
    told(store, b, "ann", ONCE, day=1)
    assert shared(store) == [TWICE]


def test_the_assistants_words_dont_beat_a_users(store, minilm):
    b = builder(store, minilm)
    b.build(talk(store, "ann", ("Hm?", f"residual: {TWICE}")))
    told(store, b, "ben", ONCE)
    b.build(talk(store, "cleo", ("Hm?", f"residual: {TWICE}"), day=5))
    assert shared(store) == [ONCE]


def test_a_loser_with_enough_confirmations_returns(store, minilm):
    "One liar is first and has an accomplice; two confirmations of the correction are enough."
    b = builder(store, minilm)
    for who in ("liar", "accomplice"): told(store, b, who, ONCE)
    told(store, b, "ann", TWICE, day=1);  assert shared(store) == [ONCE]
    told(store, b, "ben", TWICE, day=2);  assert shared(store) == [TWICE]           # equal now, and later
    [m] = store.list(DOMAIN)
    assert (m.meta["users"], m.correct, m.recalls) == (2, 1, 1) and recall_outcomes(store.events(DOMAIN), m.id) == (True,)
    told(store, b, "cleo", TWICE, day=3)
    assert trust_of(store, DOMAIN, m.id) == replay((True, True)) and store.get(DOMAIN, m.id).meta["users"] == 3
    told(store, b, "liar", ONCE, day=9);  assert shared(store) == [TWICE]


def test_the_report_says_what_the_votes_left_in_force(store, minilm):
    b = builder(store, minilm, quorum=QuorumSettings())
    steps = list(told(store, b, "ann", TWICE).steps)
    session = new_id("s")
    turn = store.add_turn("ben", session, f"residual: {ONCE}", "I see.", START + timedelta(days=1))
    injected(store, DOMAIN, [store.list(DOMAIN)[0].id], turn, "ben")          # trusted a little less from now on
    steps += b.build(conversation_of(store, "ben", session)).steps
    for text in (TWICE, ONCE): steps += told(store, b, "cleo", text, day=2).steps
    in_force = set()
    for s in steps: (in_force.discard if s.what in ("superseded", "dropped") else in_force.add)(s.memory)
    assert in_force == {m.id for m in store.list(DOMAIN)} and "once more, by votes" in " ".join(s.reason for s in steps)


def test_a_correction_of_what_was_on_display(store, minilm, monkeypatch):
    "Where the words alone don't surely tell that the one address replaces the other, the turn in which it was shown does."
    monkeypatch.setattr("memkit.mark.conflict_resolution.SURE", 1.)
    b = builder(store, minilm)
    told(store, b, "ann", "The night door is on Elm Street")
    id = store.list(DOMAIN)[0].id
    told(store, b, "ben", "The night door is on Oak Street")
    assert len(shared(store)) == 2
    session = new_id("s")
    turn = store.add_turn("cleo", session, "residual: The night door has moved to Kiln Street", "I see.", START + timedelta(days=3))
    injected(store, DOMAIN, [id], turn, "cleo")
    b.build(conversation_of(store, "cleo", session))
    assert sorted(shared(store)) == ["The night door has moved to Kiln Street", "The night door is on Oak Street"]


def test_the_rules_around_the_model():
    assert same_term("BP means blood pressure", "BP stands for bullous pemphigoid") and not same_term("BP means blood pressure", "PE means pulmonary embolism") and not same_term("Hello", "Hello")
    assert other_subject("Ethanol boils at 78 °C", "Methanol boils at 64.7 °C") and not other_subject(ONCE, TWICE) and not other_subject("It is started at 1.25 mg once a day", "Ramipril is started at 2.5 mg daily")
    assert other_answer("The right answer is omeprazole", "The right answer is ranitidine") and not other_answer("The right answer is omeprazole", "The right answer is omeprazole, by mouth")


class Reads:
    "A reader that gives the shares it is told, by (old, new), and remembers what it was asked."
    def __init__(self, shares): self.name, self.shares, self.asked = new_id("r"), shares, []
    def relations(self, pairs):
        self.asked += pairs
        return [dict.fromkeys(RELATIONS, 0.) | self.shares[p] for p in pairs]


@pytest.mark.parametrize("old, new, there, back, cosine, kind", [
    ("It is given early", "One takes it at dawn", dict(duplicate=.9), dict(duplicate=.9), .6, "duplicate"),
    ("It is given early", "One takes it at dawn", dict(duplicate=.9), dict(duplicate=.9), .59, "unrelated"),
    ("It is given early", "One takes it at dawn", dict(duplicate=.9), dict(duplicate=.2), .9, "unrelated"),     # one way only
    ("It is kept at the desk upstairs", "It is kept at the desk downstairs", dict(duplicate=.8), dict(duplicate=.8), .8, "unrelated"),   # one frame
    ("It is kept at the desk upstairs", "It is kept at the desk downstairs", dict(duplicate=.9), dict(duplicate=.9), .9, "duplicate"),
    ("It is given early", "It isn't given early", dict(duplicate=.9), dict(duplicate=.9), .9, "contradiction"),  # one denies
    ("It is on Elm Street", "It is on Oak Street", dict(duplicate=.9), dict(duplicate=.9), .9, "unrelated"),   # other names
    ("It is given early", "It is given late", dict(update=.3, contradiction=.2, retraction=.1, unrelated=.4), {}, .9, "unrelated"),
    ("It is given early", "It is given late", dict(update=.3, contradiction=.2, retraction=.1, duplicate=.2, refines=.2), {}, .9, "contradiction"),
    ("It is given early", "It is given early, to children late", dict(refines=.9, duplicate=.1), {}, .9, "unrelated"),
    ("It is given early", "it is given early.", {}, {}, -1., "duplicate")])
def test_what_two_claims_are_to_each_other(old, new, there, back, cosine, kind, monkeypatch):
    monkeypatch.setattr(facts, "load_relations", lambda: Reads({(old, new): there, (new, old): back}))
    r, = compared(new, [old], [cosine])
    assert r.kind == kind and 0 <= r.probability <= 1


def test_two_answers_to_one_question_never_merge(minilm, monkeypatch):
    "Whatever the reader says: a lie that is merged into the truth would be confirmed by everybody who confirms that."
    asked, true, lie = "Where are the spare keys?", "The spare keys are kept at the desk", "The spare keys are kept in the cellar"
    old = Memory(id=1, user=DOMAIN, kind=RESIDUAL, text=f"{asked} {true}", at=START, meta={"about": asked})
    new = Refined(kind=RESIDUAL, text=f"{asked} {lie}", turns=("t",), source="user", reason="correction", about=asked)
    monkeypatch.setattr(facts, "load_relations", lambda: Reads({pair: dict(duplicate=1.) for pair in ((true, lie), (lie, true))}))
    r, = relations(new, [old], minilm)
    assert (r.kind, r.reason) == ("contradiction", "another answer to the same question")


def test_claims_are_compared_one_by_one_and_each_needs_its_cosine(monkeypatch):
    olds, reader = ["It is given early", "It is stored cold"], Reads({("It is given early", "It is given late"): dict(update=.9),
                                                                        ("It is stored cold", "It is given late"): dict(unrelated=.9)})
    monkeypatch.setattr(facts, "load_relations", lambda: reader)
    assert [r.kind for r in compared("It is given late", olds, [.8, .8])] == ["contradiction", "unrelated"]
    assert not compared("It is given late", [], [])
    with pytest.raises(ValueError, match="zip"): compared("It is given late", olds, [.8])


# clocks

def test_a_clock_that_runs_backwards(store, minilm):
    "Within a conversation order counts, not the stamps; nothing is ever said in the future."
    now = START + timedelta(days=365)
    c = Conversation(id="s", user="u", exchanges=[Exchange(turn=f"t{i}", question="x", at=START + timedelta(days=d)) for i, d in enumerate((3, 1, 9999, 2))])
    assert list(said_at(c, now).values()) == [START + timedelta(days=3)]*2 + [now]*2
    b = builder(store, minilm)
    session = new_id("s")
    for days, text in ((10, ONCE), (1, TWICE)): store.add_turn("ann", session, f"residual: {text}", "", START + timedelta(days=days))
    b.build(conversation_of(store, "ann", session))
    assert shared(store) == [TWICE]
    session = new_id("s")
    store.add_turn("ben", session, f"residual: {ONCE}", "", START + timedelta(days=99_999))
    b.build(conversation_of(store, "ben", session))
    assert store.list(DOMAIN)[0].at == now


# agents that return anything

def test_what_an_agent_may_not_return(store, minilm):
    c = talk(store, "ann", "user-question: Call me Ann", f"residual: {TWICE}")
    make = lambda **k: Refined(**{"kind": RESIDUAL, "text": "x", "turns": c.turns[:1], "source": "user", "reason": "r", **k})
    before = everything(store, "ann")
    for found in ("text", [None], [make(turns=(*c.turns, new_id("t")))], [make(kind=QUESTION)], lambda c: 1/0):
        b = builder(store, minilm, [*listeners(), Says(found)])
        with pytest.raises(BuildError, match="the residual agent .Says., conversation ") as e: b.build(c)
        assert "Velorin" not in str(e.value) and "Call me" not in str(e.value)
        assert everything(store, "ann") == before
    assert len(builder(store, minilm).build(c).of("added")) == 2


def test_what_isnt_in_the_store_isnt_learned(store, minilm):
    b, c = builder(store, minilm), talk(store, "ann", f"residual: {TWICE}")
    for odd in (dataclasses.replace(c, user="ben"), dataclasses.replace(c, id=new_id("s")), dataclasses.replace(c, exchanges=[*c.exchanges, dataclasses.replace(c.exchanges[0], turn=new_id("t"))])):
        with pytest.raises(BuildError, match="add_turn comes first"): b.build(odd)
    for odd in (None, "hello", c.exchanges):
        with pytest.raises(TypeError, match="takes a Conversation"): b.build(odd)
    assert store.list(DOMAIN) == [] and store.events("ben") == []


def test_memories_of_others_kinds_are_left_alone(store, minilm):
    "Rows of the same kind that another program wrote, without our meta, are no neighbours."
    store.add(DOMAIN, TWICE, minilm.embed([TWICE])[0], kind=RESIDUAL, encoder=minilm.name)
    assert len(told(store, builder(store, minilm), "ann", TWICE).of("added")) == 1 and len(store.list(DOMAIN)) == 2


# several at once

def test_threads_build_the_same_conversation(store, minilm):
    c = talk(store, "ann", f"residual: {TWICE}", "user-question: Call me Ann")
    reports, b = [], builder(store, minilm)
    threads = [threading.Thread(target=lambda: reports.append(b.build(c))) for _ in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert len(reports) == 6 and sum(len(r.of("added")) for r in reports) == 2 and not any(r.of("merged") for r in reports)
    assert (len(store.list(DOMAIN)), len(store.list("ann"))) == (1, 1) and store.list(DOMAIN)[0].correct == 0


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from test_mark_builder import Listener, Words, builder
from memkit.store.store import MemoryStore
from memkit.mark.refined import conversation_of
with MemoryStore(sys.argv[1], timeout=60) as store:
    for session in sys.argv[3:]: builder(store, Words()).build(conversation_of(store, "ann", session))
"""


def test_processes_build_the_same_conversations(store):
    sessions = [talk(store, "ann", f"residual: rule {i} of ward {i}", f"user-question: wish number {i}").id for i in range(5)]
    runs = [subprocess.Popen([sys.executable, "-c", SCRIPT, store.file, Path(__file__).parent, *sessions]) for _ in range(2)]
    assert [r.wait(60) for r in runs] == [0, 0]
    alone = MemoryStore(":memory:")
    for s in sessions:
        for t in store.turns("ann", s): alone.add_turn("ann", s, t.question, t.answer, t.at, t.id)
        builder(alone, Words()).build(conversation_of(alone, "ann", s))
    for owner in ("ann", DOMAIN):
        assert sorted((m.text, m.correct, m.meta["patterns"]) for m in store.list(owner)) == sorted((m.text, m.correct, m.meta["patterns"]) for m in alone.list(owner))
    assert all(builder(store, Words()).build(conversation_of(store, "ann", s)).repeated for s in sessions)


# forgetting

def counted(receipt):   # shared memories that are gone, and rebuilt
    of = {p.state: p.count for p in receipt.places if p.name == "what others are told"}
    return [of.get("gone", 0), of.get("rebuilt", 0)]


def test_the_only_contributor_takes_the_memory_along(store, minilm):
    b = builder(store, minilm)
    told(store, b, "Annabel Longname", "The xylophone cupboard is beside the zebrawood door")
    told(store, b, "ben", TWICE)
    assert store.forget("Annabel Longname").erased
    gone = forget_contributions(store, minilm, "Annabel Longname")
    assert counted(gone) == [1, 0] and gone.erased and gone.removed["memories"] == 1
    content = bytes_of(store)
    for word in (b"xylophone", b"zebrawood", b"Longname", store.alias("Annabel Longname").encode()): assert word not in content
    assert shared(store) == [TWICE] and counted(forget_contributions(store, minilm, "Annabel Longname")) == [0, 0]


def test_with_others_the_memory_is_rebuilt_from_their_words(store, minilm):
    b = builder(store, minilm)
    told(store, b, "ann", "Velorin is administered twice daily"); told(store, b, "ben", TWICE); told(store, b, "cleo", "Velorin is given twice daily")
    [m] = store.list(DOMAIN)
    for who in ("ann", "ben"): injected(store, DOMAIN, [m.id], new_id("t"), who); judge_memory(store, DOMAIN, m.id, who, True)
    trust, counts = trust_of(store, DOMAIN, m.id), (m := store.get(DOMAIN, m.id)).recalls
    classify(store, DOMAIN, m.id, "good", "ann")
    store.forget("ann"); gone = forget_contributions(store, minilm, "ann")
    now = store.get(DOMAIN, m.id)
    assert (counted(gone), gone.erased) == ([0, 1], True) and now.text == TWICE and now.meta["users"] == 2 and now.recalls == counts and trust_of(store, DOMAIN, m.id) == trust
    content = bytes_of(store)
    assert b"administered" not in content and store.alias("ann").encode() not in content and store.alias("ben").encode() in content
    [hit] = store.search(DOMAIN, minilm.embed([TWICE])[0], encoder=minilm.name)
    assert hit.score > .999 and hit.item == now
    forget_contributions(store, minilm, "ben"); assert shared(store) == ["Velorin is given twice daily"]
    forget_contributions(store, minilm, "cleo"); assert shared(store) == []


def test_what_one_superseded_and_what_superseded_it(store, minilm):
    "Losers go with their author too; a memory that lost against one that is forgotten stays out of force."
    b = builder(store, minilm)
    told(store, b, "ann", TWICE); told(store, b, "ben", ONCE, day=1)
    assert counted(forget_contributions(store, minilm, "ann")) == [1, 0] and [m.text for m in store.list(DOMAIN, superseded=True)] == [ONCE]
    told(store, b, "cleo", TWICE, day=2)
    assert counted(forget_contributions(store, minilm, "cleo")) == [1, 0]
    assert shared(store) == [] and [m.text for m in store.list(DOMAIN, superseded=True)] == [ONCE]


def test_only_some_turns(store, minilm):
    b = builder(store, minilm)
    c = talk(store, "ann", f"residual: {TWICE}", "residual: The east lift skips floor four")
    b.build(c)
    gone = forget_contributions(store, minilm, "ann", turns=c.turns[1:])
    assert counted(gone) == [1, 0] and shared(store) == [TWICE] and counted(forget_contributions(store, minilm, "ann", turns=[])) == [0, 0]
    assert b.build(c).repeated                            # and it doesn't come back


@pytest.mark.parametrize("some, reopened", [(False, False), (True, False), (True, True)])
def test_a_crash_between_the_new_words_and_the_old_bytes_is_healed_by_calling_again(store, minilm, monkeypatch, some, reopened):
    b, c = builder(store, minilm), talk(store, "ann", "residual: Velorin is administered twice daily")
    b.build(c); told(store, b, "ben", TWICE)
    turns = c.turns if some else None
    def dies(*a): raise OSError("the power went")
    store.forget("ann")
    monkeypatch.setattr(store_module, "erase", dies)
    with pytest.raises(OSError): forget_contributions(store, minilm, "ann", turns)
    monkeypatch.undo()
    assert shared(store) == [TWICE]
    with MemoryStore(store.file) if reopened else nullcontext(store) as after:
        again = forget_contributions(after, minilm, "ann", turns)
        assert again.erased and b"doled" not in bytes_of(store)


def test_forgetting_stands_alone_and_needs_a_user(store, minilm):
    told(store, builder(store, minilm), "ann", TWICE)
    for owner in ("ann", DOMAIN):
        with pytest.raises((StoreError, ValueError), match="transaction"):
            with store.transaction(owner): forget_contributions(store, minilm, "ann")
    for bad in ("", DOMAIN):
        with pytest.raises(ValueError): forget_contributions(store, minilm, bad)
    assert counted(forget_contributions(store, minilm, "nobody")) == [0, 0] and shared(store) == [TWICE]


def test_a_user_who_forgets_while_the_agents_read(store, minilm):
    "Nothing of it is in the store afterwards, not even that there was such a user."
    c, b = talk(store, "ann", f"residual: {TWICE}", "user-question: Call me Ann"), builder(store, minilm, [Says(lambda c: store.forget("ann") and Listener(RESIDUAL).extract(c)), Listener(QUESTION)])
    with pytest.raises(BuildError, match="isn't learned again"): b.build(c)
    assert everything(store, "ann") == [([], [], [])]*2 and TWICE.encode() not in bytes_of(store)
    with write_lock(store._db, "ann") as conn: assert find_owner(store._db, conn, "ann") == (0, 0)


def test_a_user_who_forgets_between_their_rows_and_the_domains(store, minilm, monkeypatch):
    c, b, real = talk(store, "ann", f"residual: {TWICE}", "user-question: Call me Ann"), builder(store, minilm), store.transaction
    def forgetting(owner):
        if owner == DOMAIN and store.turns("ann"): store.forget("ann")
        return real(owner)
    monkeypatch.setattr(store, "transaction", forgetting)
    b.build(c)
    assert store.list(DOMAIN, superseded=True) == store.list("ann") == [] and TWICE.encode() not in bytes_of(store)


def test_rows_that_others_wrote(store, minilm):
    "Sources that say less than ours: the memory itself fills in."
    old = store.add(DOMAIN, TWICE, minilm.embed([TWICE])[0], kind=RESIDUAL, at=START, encoder=minilm.name,
                    meta={"agent": "a", "metadata": {}, "source": "user", "reason": "correction", "about": "", "sources": [{"by": store.alias("ann"), "session": "s", "turns": ["t"]}]})
    b = builder(store, minilm)
    told(store, b, "ben", "Velorin is given twice daily")
    assert store.get(DOMAIN, old.id).meta["users"] == 2 and store.get(DOMAIN, old.id).correct == 1
    assert counted(forget_contributions(store, minilm, "ann")) == [0, 1] and shared(store) == ["Velorin is given twice daily"]


def test_no_words_in_the_log_and_no_name_in_the_domain(store, minilm):
    b = builder(store, minilm)
    for who, text, day in (("Annabel", TWICE, 0), ("Bernard", TWICE, 1), ("Cleopatra", ONCE, 2), ("Dorothea", ONCE, 3), ("Dorothea", ONCE, 4)): told(store, b, who, text, day)
    log = json.dumps([(e.kind, e.reason, dict(e.data)) for e in store.events(DOMAIN)])
    rows = json.dumps([(m.text, dict(m.meta)) for m in store.list(DOMAIN, superseded=True)])
    assert "elorin" not in log and not [n for n in ("Annabel", "Bernard", "Cleopatra", "Dorothea") if n in log + rows]


# whatever is said, by whomever

said = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([RESIDUAL, QUESTION]), st.sampled_from(["rule one holds", "rule one does not hold", "rule two holds on mondays", "no exceptions at all"]), st.integers(0, 5)), max_size=12)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(said, st.randoms(use_true_random=False))
def test_whatever_is_said(lines, rng):
    "Counts are the log's, sources are real, nothing is lost, a second pass changes nothing, and forgetting everybody leaves the domain empty."
    with MemoryStore(":memory:") as store:
        b, talks = builder(store, Words()), [talk(store, who, f"{kind}: {text}", day=day) for who, kind, text, day in lines]
        for c in talks: b.build(c)
        for owner in (*"abc", DOMAIN):
            events, lost = store.events(owner), store.superseded(owner)
            for m in store.list(owner, superseded=True):
                lived = recall_outcomes(events, m.id)
                assert (m.recalls, m.correct, m.incorrect) == (len(lived), lived.count(True), lived.count(False))
                assert m.meta["patterns"] == len({s["session"] for s in m.meta["sources"]}) and all(s["turns"] for s in m.meta["sources"])
                if owner == DOMAIN: assert {s["by"] for s in m.meta["sources"]} <= {store.alias(u) for u in "abc"} and m.correct <= m.meta["users"] - 1
            texts = {m.text for m in store.list(owner, superseded=True)}
            assert texts == {text for who, kind, text, _ in lines if owner == (DOMAIN if kind == RESIDUAL else who)}
        before = [store.list(o, superseded=True) for o in (*"abc", DOMAIN)]
        rng.shuffle(talks)
        assert all(b.build(c).repeated for c in talks) and [store.list(o, superseded=True) for o in (*"abc", DOMAIN)] == before
        for u in "abc": forget_contributions(store, Words(), u)
        assert store.list(DOMAIN, superseded=True) == []
