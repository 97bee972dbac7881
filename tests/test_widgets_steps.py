"Every installed design is stepped through from its store: the same before and after a restart, one screen high, and safe to draw."
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from memkit.models.lm import ScriptedLM
from memkit.records import Change, Considered, Document, Hit, Memory, Section, Turn, utc_now
from memkit.malp.assistant import MalpAssistant
from memkit.turn.assistants import assistants, design, open_assistant
from memkit.widgets.draw.frames import turns_and_events
from memkit.widgets.draw.scene import CAPTION
from memkit.widgets.draw.board import TALL
from memkit.widgets.steppers.stepper import differences, step_table, stepper
from memkit.widgets.steppers.steps import any_steps, steps
from memkit.widgets.draw.pictures import BARE, draw_turn

NASTY = "</text><script>alert(1)</script> & \x1b‮ 'q' \"q\" $x$"
SAID = ["I have been allergic to penicillin since I was a child. Alien, 5 stars.", "Am I allergic to penicillin? What would I give Aliens?",
        f"No, that is wrong: velorin is given twice a day. {NASTY}", "Alien is only a 3. I am allergic to penicillin, as I said."]
each = pytest.mark.parametrize("name", assistants())


def opened(name, path, **settings):
    how = {"settings": design(name).Settings(**settings)} if settings else {}
    return open_assistant(name, store=path/f"{name}.sqlite3", model=ScriptedLM(lambda messages: "I see. Velorin is given once a day."), **how)


def talked(a, user="ann"):
    "A session, a judgement, a deletion, and another session."
    for who in (user, "ben"): a.consent(who)
    for text in SAID[:2]: a.chat(user, text)
    a.new_session(user)
    wait(a)
    shown = [h.item for t in a.turns(user) for h in t.recalled]
    if shown: a.feedback(user, shown[0].id, True)
    for text in SAID[2:]: a.chat(user, text)
    a.new_session(user)
    wait(a)
    a.chat("ben", "My locker is number nine.")
    a.end("ben")
    wait(a)


def wait(a):
    for user in ("ann", "ben"): assert not a.wait(user)


def told(found): return [(s.title, s.words, s.scene().caption, tuple(s.facts().items())) for s in found]


@each
def test_steps_come_from_the_store_and_every_picture_fits(name, tmp_path):
    with opened(name, tmp_path) as a:
        talked(a)
        before, turns = told(steps(a, "ann")), a.turns("ann")
    with opened(name, tmp_path) as a:
        logged = a.store.events("ann"), a.store.events("ben")
        found = steps(a, "ann")
        assert told(found) == before and [s.turn for s in found if s.turn] == turns, "the same after a restart"
        assert "locker" not in step_table(found), "somebody else's words are in no step"
        assert not any(s.turn for s in steps(a, "nobody")) and not stepper(found).error
        for made in (found, any_steps(a, "ann")): fit(made)
        whole_record(a)
        assert (a.store.events("ann"), a.store.events("ben")) == logged, "nothing is written"


def fit(found):
    "Every picture is one screen high, and only text and shapes."
    for step in found:
        scene = step.scene()
        tree = ElementTree.fromstring(scene.svg())
        assert {e.tag.split("}")[1] for e in tree.iter()} <= {"svg", "title", "desc", "style", "rect", "text", "path", "g"}
        assert scene.height <= TALL and scene.words == step.words and len(scene.caption) <= CAPTION + 3
        lowest = max((float(e.get("y")) + float(e.get("height")) for e in tree.iter() if e.tag.endswith("rect") and e.get("x")), default=0)
        assert lowest <= scene.height
    for one, two in zip(found, found[1:]): differences(one, two)


def whole_record(a):
    "The record has every event once, and ends with what there is."
    moments = turns_and_events(a, "ann")
    assert sorted(e.id for m in moments for e in m.events if e.user == "ann") == [e.id for e in a.store.events("ann")]
    assert [m.turn for m in moments if m.turn] == a.turns("ann") and moments[0].turn is None
    assert sorted(moments[-1].held) == [m.id for m in a.store.list("ann") if not a.kinds or m.kind in a.kinds]
    for m in moments:
        if m.whole: assert {c.memory for c in m.turn.changes if c.kind == "stored"} <= {e.memory for e in m.events}


@each
def test_turns_without_a_trace_keep_their_words(name, tmp_path):
    with opened(name, tmp_path, trace=False) as a:
        talked(a)
        found = steps(a, "ann")
        assert [s.turn.text[:40] for s in found if s.turn] == [text[:40] for text in SAID] and not any(s.turn.model for s in found if s.turn)
        assert all(m.turn is None or not m.whole for m in turns_and_events(a, "ann"))
        for step in (*found, *any_steps(a, "ann")): assert step.scene().height <= TALL and step.facts() is not None


@each
def test_what_is_forgotten_is_in_no_step(name, tmp_path):
    with opened(name, tmp_path) as a:
        talked(a)
        gone = [m.id for m in a.memories("ann") if "penicillin" in m.text.lower() or "Alien" in m.text]
        a.forget("ann", gone, [t.id for t in a.turns("ann") if "penicillin" in t.text])
        for make in (steps, any_steps): assert "penicillin" not in "".join(s.title + s.words + s.scene().svg() for s in make(a, "ann")).lower()
        a.forget("ann")
        assert not any(s.turn for s in steps(a, "ann"))


def test_a_design_of_ones_own_has_the_picture_of_any_turn_and_a_subclass_that_of_its_design(tmp_path):
    class Mine(MalpAssistant): name = "mine"
    with opened("malp", tmp_path) as a:
        mine = Mine(a.memory, a.model)
        mine.chat("ann", SAID[0])
        assert steps(mine, "ann")[1].title.startswith("Round 1")
    with open_assistant("malp", store=":memory:", model=ScriptedLM(lambda m: "I see.")) as a:
        other = type(a).open(type("P", (), {"store": a.store, "model": a.model, "embedder": a.memory.dpem.embedder, "prompted": False, "clock": staticmethod(utc_now)})(), memory="standard")
        other.chat("ann", SAID[0])
        assert steps(other, "ann")[1].title.startswith("Turn 1")


def a_turn(documents: int, memories: int, **more) -> Turn:
    "A turn with as many candidates, half of them shown."
    at, found = utc_now(), []
    for i in range(documents): found.append(Hit(item=Document(id=f"d{i}", text=NASTY*9, title=f"Document {i} {NASTY}"), score=1., source="bm25", parts={"bm25 rank": 1.}))
    for i in range(memories): found.append(Hit(item=Memory(id=i + 1, user="u", text=NASTY*9, at=at), score=2.5, source="x", parts={NASTY: .5, "big": 7.}))
    considered = tuple(Considered(hit=h, shown=i % 2 == 0, outcome=NASTY) for i, h in enumerate(found))
    sections = tuple(Section(name="document" if isinstance(c.hit.item, Document) else "memory", tokens=9, kept=c.shown, hit=c.hit) for c in considered)
    changes = tuple(Change(kind=k, memory=i, text=NASTY, reason=NASTY*4) for i, k in enumerate(("stored", "counted", "moved", "rated"), 1))
    whole = {"id": "t-1", "user": "u", "session": "s-1", "at": at, "text": NASTY*9, "query": NASTY, "answer": NASTY*40, "model": "m", "fallback": NASTY*3,
             "considered": considered, "sections": (Section(name="instructions", tokens=30), *sections), "budget": 100, "prompt_tokens": 90, "changes": changes,
             "extra": {"checked": [{"text": NASTY, "reason": NASTY}]*5, "probability": .4, "threshold": .5}, "detected": {"leans": NASTY}}
    return Turn(**{**whole, **more})


@pytest.mark.parametrize("documents, memories", [(0, 0), (0, 1), (0, 300), (9, 0), (300, 300)])
def test_any_turn_fits(documents, memories):
    for turn in (a_turn(documents, memories), a_turn(documents, memories, model=""), replace(a_turn(documents, memories), extra={}, detected={}, changes=())):
        scene = draw_turn(turn, "Turn 1 of 1", {i: NASTY for i in range(memories)})
        ElementTree.fromstring(scene.svg())
        assert scene.height <= TALL and (turn.model or BARE in scene.words)


def test_what_is_no_assistant_is_refused():
    for wrong in (None, 3, "hybrid", [1]):
        with pytest.raises(TypeError, match="open_assistant"): steps(wrong, "ann")
        with pytest.raises(TypeError, match="open_assistant"): turns_and_events(wrong, "ann")
