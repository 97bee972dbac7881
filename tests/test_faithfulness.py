"The labelled sentences, and the count of supported ones."
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.files import own_data
from memkit.search.documents import split_sentences
from memkit.search.documents import best_support, denies, order_share, numbers, says_little, unsupported
from memkit.evaluate.intervals import agreement, claims, faithfulness, kappa, labelled_sentences, supported

ROWS = [json.loads(line) for line in own_data("faithfulness.jsonl").read_text(encoding="utf-8").splitlines()]
ENTRIES = [json.loads(line) for line in own_data("medical_knowledge.jsonl").read_text(encoding="utf-8").splitlines()]
KINDS = {"paraphrase", "reworded", "merged", "number", "negation", "direction", "subject", "cause", "always", "drug", "outside", "hedge", "condition", "draft"}
few = settings(max_examples=60, deadline=None)


# --- the data

def test_each_row_has_its_form_and_shows_our_own_entries_only():
    known, questions = {e["id"] for e in ENTRIES}, {json.loads(q)["question"]: json.loads(q)["split"] for q in own_data("medical_questions.jsonl").read_text(encoding="utf-8").splitlines()}
    for r in ROWS:
        assert list(r) == ["question", "sources", "sentence", "supported", "again", "why", "origin", "kind", "split"]
        assert set(r["sources"]) <= known and len(set(r["sources"])) == len(r["sources"]) >= 1
        assert isinstance(r["supported"], bool) and r["again"] in (True, False, None) and r["why"] and r["kind"] in KINDS
        assert (r["origin"] == "written") == (r["kind"] != "draft") and r["sentence"] == " ".join(r["sentence"].split())
        assert questions[r["question"]] == r["split"], "the split is that of the question"


def test_there_are_enough_of_each_and_no_question_is_in_both_halves():
    halves = {h: [r for r in ROWS if r["split"] == h] for h in ("tune", "score")}
    assert not {r["question"] for r in halves["tune"]} & {r["question"] for r in halves["score"]}
    for rows in halves.values():
        assert len(rows) >= 120 and {r["kind"] for r in rows} <= KINDS
        assert {(r["kind"] == "draft", r["supported"]) for r in rows} == {(a, b) for a in (True, False) for b in (True, False)}
    assert {r["kind"] for r in ROWS} == KINDS and len({(r["question"], r["sentence"]) for r in ROWS}) == len(ROWS) >= 240


def test_a_written_kind_says_its_label():
    for r in ROWS:
        if r["kind"] != "draft": assert r["supported"] == (r["kind"] in ("paraphrase", "reworded", "merged")), r["sentence"]


def test_the_loader_gives_the_rows_with_their_texts():
    text = {e["id"]: e["text"] for e in ENTRIES}
    assert [(s.question, s.sentence, s.supported, s.sources) for s in labelled_sentences()] == [(r["question"], r["sentence"], r["supported"], tuple(text[i] for i in r["sources"])) for r in ROWS]
    assert {s.split for s in labelled_sentences("tune")} == {"tune"}


def test_forty_were_read_twice_and_kappa_is_the_textbooks():
    from sklearn.metrics import cohen_kappa_score
    twice = [(r["supported"], r["again"]) for r in ROWS if r["again"] is not None]
    assert len(twice) == 40 and kappa(*zip(*twice)) == pytest.approx(cohen_kappa_score(*zip(*twice))) and kappa(*zip(*twice)) > .8


# --- the method

@few
@given(st.sampled_from(ENTRIES), st.data())
def test_a_sentence_copied_from_its_source_is_supported(entry, data):
    sentence = data.draw(st.sampled_from([s for s in split_sentences(entry["text"]) if not says_little(s)]))
    assert supported([sentence], [entry["text"]]) == [True]


@few
@given(st.sampled_from([(e, s) for e in ENTRIES for s in split_sentences(e["text"]) if any(c.isdigit() for c in s)]), st.integers(1000, 9999))
def test_a_changed_number_is_not(pair, other):
    entry, sentence = pair
    changed = re.sub(r"\d[\d.,]*\d|\d", f"{other}7", sentence, count=1)
    assert f"{other}7" not in numbers(entry["text"]) and supported([changed], [entry["text"]]) == [False]


@few
@given(st.sampled_from([(e, s) for e in ENTRIES for s in split_sentences(e["text"]) if " not " in s]))
def test_a_dropped_not_is_not(pair):
    entry, sentence = pair
    said = sentence.replace(" not ", " ")
    if not denies(said): assert unsupported(said, sentence)


@pytest.mark.parametrize("said, why", [
    ("Give insulin, as nasal spray or injection, if it is at hand and you know how.", "of its words"), ("Do not give glucagon, as nasal spray or injection, if it is at hand.", "it denies what the source does not"),
    ("Give glucagon twice, as nasal spray or injection, if it is at hand and you know how.", "the number 2"), ("Glucagon.", "next to nothing"),
    ("Give glucagon, as nasal spray or injection, if it is at hand.", "")])
def test_each_reason(said, why):
    found = unsupported(said, "Give glucagon, as nasal spray or injection, if it is at hand and you know how, turn the person on the side and call emergency services.")
    assert why in found and bool(why) == bool(found)


def test_a_denial_in_another_clause_is_no_dropped_warning():
    source = "Lay the person flat with legs raised, or let them sit if breathing is hard; they should not stand or walk."
    assert not unsupported("Lay the person flat with legs raised.", source) and unsupported("Let them sit if breathing is hard; they should stand or walk.", source) == "it drops the source's warning"


def test_the_best_source_supports_or_comes_nearest():
    shown = ["Cool a burn under running water.", "Do not put ice on a burn."]
    assert best_support("Do not put ice on a burn.", shown) == (1, "") and best_support("Put ice on a burn.", shown)[0] == 1
    assert best_support("Elephants live in Africa.", shown)[1] and 0 <= order_share("Put water on ice.", shown[0]) <= 1


# --- the count

def test_what_is_counted():
    assert claims("Rest. Rest. Why? Drink water! And then") == ["Rest.", "Drink water!"]
    assert faithfulness("Why?", ["Rest and drink."]) is None and faithfulness("", []) is None and faithfulness("Rest and drink water.", []) == 0


@few
@given(st.lists(st.sampled_from(["Cool a burn under running water.", "Put butter on a burn.", "Why?", "broken", "Ω 药 🩺."]), max_size=6))
def test_faithfulness_is_a_share(said):
    got = faithfulness(" ".join(said), ["Cool a burn under running water. Do not put butter on a burn."])
    assert got is None if not claims(" ".join(said)) else 0 <= got <= 1


@few
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_agreement_brackets_its_figures(pairs):
    a, b = zip(*pairs)
    figures = agreement(a, b, resamples=50)
    assert set(figures) == {"precision", "recall", "f1", "kappa"} and figures["kappa"].mean == pytest.approx(kappa(a, b)) and figures == figures
    assert math.isnan(figures["precision"].mean) == (not any(a)) and math.isnan(figures["recall"].mean) == (not any(b))


def test_the_bootstrap_draws_whole_questions_and_refuses_what_does_not_fit():
    said, truth = [True]*10 + [False]*10, [True]*10 + [True]*10
    grouped, single = agreement(said, truth, ["a"]*10 + ["b"]*10), agreement(said, truth)
    assert grouped["recall"].high - grouped["recall"].low > single["recall"].high - single["recall"].low
    for bad in (([True], []), ([], [])):
        with pytest.raises(ValueError): agreement(*bad)
        with pytest.raises(ValueError): kappa(*bad)


def test_most_of_what_it_calls_supported_is():
    rows = labelled_sentences("tune")
    said = np.array([supported([s.sentence], s.sources)[0] for s in rows])
    assert agreement(said, [s.supported for s in rows], resamples=10)["precision"].mean >= .9
