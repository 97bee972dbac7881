"A LoRA that answers from notes and passages: what a lesson shows, and which answer is kept."
import random
from datetime import date

import numpy as np
import pytest

from memkit.answer.examples import Case, cases
from memkit.answer.from_memory import UNKNOWN
from memkit.train.adapters import AdapterError, LoraShape, pack
from memkit.models.embed import Remembered
from memkit.search.embedders import load_embedder
from memkit.models.lm import ScriptedLM
from memkit.models.local import LocalLM
from memkit.records import Document
from memkit.experiments.answers.documents import own_questions
from memkit.experiments.answers.writer import (LEAST, NOT_THERE, TAUGHT, TUNED, Noted, Passage, beside_it, change_lessons,
                                       chosen_least, first_passage, gated, lessons, note_lessons, note_prompt,
                                       notes_of, passage_lessons, passage_prompt, passage_right, sample_of, support,
                                       way_rows, writer, written)
from memkit.hybrid import read_corpus
from memkit.reading.examples import SEALED

DAY = date(2026, 3, 9)
DOSE = Case("a", "x", "What dose am I on?", "update", (("1.1", DAY, "I take 100 mg."),), frozenset({"1.1"}),
            (r"\b100\b",), (r"\b50 ?mg",), "100 mg")


def noted(quoted="You told me on 9 March: “I take 100 mg.”"): return Noted(DOSE, ((DAY, "I take 100 mg."),), quoted)


def test_no_sealed_hand_teaches_or_tunes():
    assert not {*TAUGHT, *TUNED} & {*SEALED} and not {*TAUGHT} & {*TUNED}


def test_a_prompt_has_the_notes_in_order_and_the_question_last():
    text = note_prompt("How much?", [(DAY, "one"), (DAY, "two")], DAY)[1].text
    assert text.index("one") < text.index("two") < text.index("How much?") and text.endswith("How much?")
    assert passage_prompt("Why?", "Because.")[1].text == "Because.\nQuestion: Why?"


def test_a_question_without_its_messages_is_taught_as_untold():
    embedder = Remembered(load_embedder("minilm"), keep=True)
    every, plain = (note_lessons(["a"], embedder, random.Random(0), unsaid) for unsaid in (1., 0.))
    assert len(plain) == len(list(cases(["a"]))) < len(every)
    more = sum(t[-1].text == UNKNOWN for t in every) - sum(t[-1].text == UNKNOWN for t in plain)
    assert more == len(every) - len(plain)


@pytest.mark.parametrize("c", list(cases(["c"]))[:20], ids=lambda c: c.ask[:30])
def test_notes_hold_what_is_needed_or_none_of_it(c):
    embedder = load_embedder("minilm")
    needed = {text for id, _, text in c.said if id in c.needs}
    assert needed <= {text for _, text in notes_of(c, embedder)}
    assert not needed & {text for _, text in notes_of(c, embedder, 2, needed=False)}
    assert [d for d, _ in notes_of(c, embedder)] == sorted(d for d, _ in notes_of(c, embedder))


def test_changes_show_the_old_statement_before_the_new_one():
    for talk in change_lessons(["c"], random.Random(0), 10):
        assert len(talk) == 3 and talk[1].text.count("\n- ") == 1 and talk[2].text


def test_marked_sentences_answer_and_other_passages_do_not():
    own = list(read_corpus("own"))
    talks = passage_lessons(own_questions(), own, random.Random(0))
    said = [t for t in talks if t[-1].text != NOT_THERE]
    assert 0 < len(said) < len(talks)
    for t in said: assert all(part in t[1].text for part in t[2].text.split(". ")[:1])


def test_what_stands_beside_a_passage_is_on_its_topic():
    own = list(read_corpus("own"))
    a = next(a for a in own_questions() if len(a.relevant) == 1)
    beside = beside_it(a, own, random.Random(0))
    assert beside.id not in a.relevant and first_passage(Document(id="x", text="One. Two.")) == "One. Two."


def test_lessons_are_the_same_for_the_same_seed():
    few = {"notes": 4, "changes": 2, "passages": 3}
    one, two = (lessons(["a"], (), few, seed) for seed in (0, 0))
    assert one == two and len(one) == 9 and one != lessons(["a"], (), few, 1)
    with pytest.raises(ValueError, match="wrote no conversations"): lessons(["q"])


def test_who_knows_nothing_is_not_asked():
    def reply(messages): return "100 mg."
    assert written(ScriptedLM(reply), [noted(), Noted(DOSE, (), UNKNOWN)]) == ["100 mg.", UNKNOWN]
    assert written(ScriptedLM([]), [Noted(DOSE, (), UNKNOWN)]) == [UNKNOWN]


def test_a_number_that_was_not_told_has_no_support():
    found = support([noted()]*3, ["You take 100 mg.", "You take 50 mg.", UNKNOWN])
    assert found[0] > 0 and found[1] == found[2] == 0


def test_the_quotation_stays_where_the_written_answer_is_not_borne_out():
    n = noted()
    assert gated([n, n], ["100 mg.", "50 mg."], np.array([.9, .1]), .5) == ["100 mg.", n.quoted]


def test_the_threshold_is_the_lowest_that_loses_nothing():
    n = noted()
    assert chosen_least([n], ["100 mg."], np.array([.9])) == LEAST[0]
    assert chosen_least([n, n], ["100 mg.", "50 mg."], np.array([.9, .25])) == .3
    assert chosen_least([n], ["50 mg."], np.array([.99])) == 2.
    assert gated([n], ["50 mg."], np.array([.99]), 2.) == [n.quoted]


def test_rows_pair_each_way_with_the_first():
    n = noted()
    rows = way_rows("T", [n, n], {"quoted": [n.quoted]*2, "written": ["100 mg.", "50 mg."]})
    of = {(r["row"], r["metric"]): r["ours"] for r in rows if r["table"] == "T"}
    assert of["quoted", "right"] == 1 and of["written", "right"] == .5
    assert of["written", "outdated, invented or harmful"] == .5 and of["written less quoted", "right"] == -.5
    assert [r["row"] for r in rows if r["table"] == "T, by kind"] == ["quoted", "written"]


@pytest.mark.parametrize("answers, text, right", [
    (True, "Gout comes from uric acid.", 1.), (True, NOT_THERE, 0.), (True, "Gout comes from 7 cats.", 0.),
    (False, NOT_THERE, 1.), (False, "The passage doesn't mention it.", 1.), (False, "Gout comes from uric acid.", 0.)])
def test_a_passage_is_answered_where_it_answers(answers, text, right):
    p = Passage("What causes gout?", "Gout comes from uric acid.", answers, NOT_THERE)
    assert passage_right(p, text)["right"] == right


def test_a_sample_is_drawn_by_lot_and_stays_the_same():
    assert sample_of(["a"], 5) == sample_of(["a"], 5) != sample_of(["a"], 5, 1)
    assert len(sample_of(["a"], None)) == len(list(cases(["a"]))) and sample_of(["q"], 5) == []


def test_an_adapter_of_another_base_is_refused():
    shape, weights = LoraShape(rank=1, alpha=1.), {f"m.lora_{half}.weight": np.zeros((1, 1)) for half in "AB"}
    content = pack(weights, {"base": "0"*32, "shape": shape, "model": "another"})
    with pytest.raises(AdapterError, match="belongs to another"): writer(LocalLM.embedded(), content)
