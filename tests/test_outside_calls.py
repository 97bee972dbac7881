"What scripts of other people call, such as the one that scores other people's words: these names keep working."
import pytest

from memkit import ScriptedLM
from memkit.hybrid import open_chatbot
from memkit.malp import open_malp
from memkit.maprec import open_map
from memkit.mark import open_mark

OPEN = {"malp": open_malp, "hybrid": open_chatbot, "mark": open_mark, "map": open_map}


def says(*answers):
    "A model that gives these answers, then only nods."
    left = list(answers)
    return ScriptedLM(lambda messages: left.pop(0) if left else "I see.")


@pytest.mark.parametrize("name", OPEN)
def test_every_design_opens_by_name_and_tells_what_it_recalled(name):
    with OPEN[name](":memory:", model=says()) as a:
        a.consent("ann")
        a.chat("ann", "My sister Ines lives in Porto.")
        a.new_session("ann")
        turn = a.chat("ann", "Where does my sister live?")
        assert "Porto" in turn.answer and all(isinstance(h.item.text, str) for h in turn.recalled)
        if job := a.end("ann"): job.result()
        assert isinstance(a.memories("ann"), list)


def test_mark_shows_what_the_domain_knows():
    with open_mark(":memory:", says("Once a year.", "You're right, every Monday. Thank you.")) as mark:
        mark.chat("ann", "How often is the infusion pump calibrated?")
        mark.chat("ann", "No. The infusion pump is calibrated every Monday.")
        if job := mark.end("ann"): job.result()
        assert any("Monday" in m.text for m in mark.shared_memories("ben"))


def test_mark_answers_with_what_colleagues_taught():
    asked = []
    def says(messages):
        asked.append(messages)
        return {1: "Once a year.", 2: "You're right, every Monday."}.get(len(asked), "I see.")
    with open_mark(":memory:", ScriptedLM(says)) as mark:
        mark.chat("ann", "How often is the infusion pump calibrated?")
        mark.chat("ann", "No. The infusion pump is calibrated every Monday.")
        if job := mark.end("ann"): job.result()
        turn = mark.chat("ben", "How often is the infusion pump calibrated?")
        assert len(asked) == 2 and "every Monday" in turn.answer and "what colleagues taught" in mark.explain(turn)
        assert "every Monday" not in mark.chat("ben", "How do I boil an egg?").answer


def test_map_tells_its_changes_and_what_it_detected():
    with open_map(":memory:", says()) as a:
        turn = a.chat("ann", "I give Heat (1995) 4 out of 5.")
        [change] = turn.extra["changes"]
        assert (change.action, change.item.title if change.item else change.title, change.rating) == ("rate", "Heat", 4)
        assert turn.detected["types"] == ("B",)


def test_malp_tells_the_relation_of_what_is_new():
    with open_malp(":memory:", says()) as a:
        a.chat("ann", "I live in Porto."); turn = a.chat("ann", "I moved, I live in Lisbon now.")
        assert [c.relation for c in turn.changes if getattr(c, "relation", None)] == ["update"]
