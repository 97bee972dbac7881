"""Earlier messages in MaLP's recall: found without a note, never a model's words, and forgotten with their turn."""
from datetime import date

import pytest

from memkit.answer.scorer import load_scorer
from memkit.malp import open_malp
from memkit.malp.assistant import MalpAssistant, MalpSettings, keeps_words, memory_block
from memkit.malp.memories import DPeMMemory
from memkit.models.lm import ScriptedLM
from memkit.reading.notes import Round
from memkit.records import Hit, Memory, Utterance, utc_now
from memkit.store.store import MemoryStore
from memkit.turn.prompt import Piece

HERON, ASKED = "Lovely weather by the weir today, a heron stood there.", "Which bird stood by the weir?"   # nobody notes it


def opened(minilm, store=None, **settings):
    model = ScriptedLM(lambda messages: "There was a purple parrot.")
    return MalpAssistant(DPeMMemory(store or MemoryStore(":memory:"), minilm), model, MalpSettings(rounds=0, **settings))

def messages(turn): return [h.item for h in turn.recalled if isinstance(h.item, Utterance)]


def test_what_nobody_noted_is_found_and_explained(minilm):
    a = opened(minilm)
    first = a.chat("ann", HERON)
    assert not first.wrote
    turn = a.chat("ann", ASKED)
    assert [(m.turn, m.role, m.text) for m in messages(turn)][0] == (first.id, "user", HERON)
    assert HERON in turn.prompt and "earlier messages considered" in a.explain(turn)
    assert not a.memories("ann")


def test_only_notes_where_the_setting_says_so(minilm):
    a = opened(minilm, messages=False)
    a.chat("ann", HERON)
    assert not messages(a.chat("ann", ASKED))


def test_a_models_words_and_bare_questions_are_never_found(minilm):
    a = opened(minilm, answers="model")
    a.chat("ann", "Which bird lives here?")
    a.chat("ann", HERON)
    turn = a.chat("ann", "Which bird lives here, and is there a purple parrot?")
    assert [m.text for m in messages(turn)] == [HERON]


def test_both_sides_of_a_dialogue_of_people_are_found(minilm):
    a = opened(minilm)
    a.study("ann", [Round("r1", "Where shall we meet?", "Let's meet at the boat house, near the weir.", at=utc_now())])
    found = a.recall(a.read(a.turns("ann")[0]), 5)
    said = [h.item if isinstance(h, Hit) else h.hit.item for h in found]
    assert any("boat house" in m.text for m in said)


def test_a_message_is_forgotten_with_its_turn_and_so_is_every_trace_of_it(minilm):
    a = opened(minilm)
    first = a.chat("ann", HERON)
    later = a.chat("ann", ASKED)
    assert messages(later) and a.turn("ann", later.id).prompt
    assert a.forget("ann", turns=[first.id]).erased
    assert not a.turn("ann", later.id).prompt, "the trace that quoted it went along"
    assert not any(m.turn == first.id for m in messages(a.chat("ann", ASKED)))


def test_what_another_process_says_and_forgets_is_seen(minilm, tmp_path):
    with MemoryStore(tmp_path/"m.db") as one, MemoryStore(tmp_path/"m.db") as two:
        a, b = opened(minilm, one), opened(minilm, two)
        a.chat("ann", "Hello, nice to be here today.")
        b.chat("ann", ASKED)
        first = a.chat("ann", HERON)
        assert HERON in b.chat("ann", ASKED).prompt.split(ASKED)[0]
        a.forget("ann", turns=[first.id])
        assert HERON not in b.chat("ann", ASKED).prompt
        assert not messages(b.chat("bob", ASKED))


def test_a_message_stands_in_the_prompt_with_its_day_and_who_said_it():
    said = Utterance(turn="t-1", user="ann", role="user", text=HERON, at=utc_now())
    piece = Piece(name="memory", text=HERON, hit=Hit(item=said, score=1., source="message"))
    assert memory_block([piece]).endswith(f"{said.at:%-d %B %Y}, the user: {HERON}”")


@pytest.mark.parametrize("note, whole", [
    ("The user was charged only $11 by Walgreens on their Medicare plan.", True),
    ("Walgreens only charged the user … Medicare plan.", False)])
def test_a_note_stands_for_its_message_only_if_no_word_is_lost(minilm, note, whole):
    said = Utterance(turn="t-1", user="ann", role="user", text="Walgreens only charged me $11 on my Medicare plan.", at=utc_now())
    m = Memory(id=1, user="ann", at=utc_now(), text=note, turns=("t-1",), meta={"speaker": "user"})
    assert keeps_words(m, said) is whole
    a = opened(minilm)
    hit = lambda item: Hit(item=item, score=1., source="test")
    assert [h.item for h in a.in_notes(a.read(a.chat("ann", "Hello.")), [hit(said)], [hit(m)])] == [m if whole else said]


LONG = ("Hello again, I hope you are well and that the weather is nice with you. My exam about medicines is in room twelve. "
        "We had so much to do on the ward that I could hardly sit down all day long.")


@pytest.mark.parametrize("excerpts", [True, False])
def test_a_prompt_shows_the_sentences_of_a_message_that_may_answer(excerpts):
    settings = MalpSettings(excerpts=excerpts, answers="model")
    with open_malp(":memory:", model=ScriptedLM(lambda messages: "I see."), settings=settings) as a:
        a.chat("ann", LONG)
        a.new_session("ann")
        turn = a.chat("ann", "In which room is my exam?")
        assert "room twelve" in turn.prompt and ("the weather is nice" in turn.prompt) == (not excerpts)
        assert any(h.item.text == LONG for h in turn.recalled), "what was recalled is the whole message"
        assert a.forget("ann").erased and a.look("ann", "In which room is my exam?").recalled == ()


def test_a_message_is_read_once_a_turn(monkeypatch):
    scorer, asked = load_scorer(), []
    states = type(scorer).states
    monkeypatch.setattr(type(scorer), "states", lambda self, rows: asked.append(len(rows)) or states(self, rows))
    kept = {}
    said = [(date(2026, 3, 1), "I live in Leeds."), (date(2026, 3, 2), "I have two dogs.")]
    first = scorer.read("Where do I live?", said, kept)
    assert asked == [2] and scorer.read("Where do I live?", said[::-1], kept) == first[::-1] and asked == [2]
    scorer.read("How many dogs have I?", said[:1], kept)
    assert asked == [2, 1]
