"Numbers and units by rule, windows, verdicts, and the judge in the place of the words."
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.answer.entailment import Window, sentence_verdict, quantities, sentence_mask, strange_number, windows
from memkit.search.embedders import load_embedder
from memkit.search.documents import Checked, check_answer
from memkit.reading.labels import tokens_of
from memkit.reading.examples import SEALED, hands_of

few = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize("text, found", [
    ("", []), ("No one knows the first half.", []), ("twenty-one days", ["21 days"]), ("two hundred and fifty", ["250"]), ("three thousand and twenty one cats", ["3021"]), ("five, six days", ["5", "6 days"]),
    ("five hundred mg", ["500 mg"]), ("1,200 mg", ["1200 mg"]), ("2,5 ml", ["2.5 ml"]), ("38.5 °C", ["38.5"]), ("40%", ["40%"]),
    ("forty per cent", ["40%"]), ("a week ago", ["1 week"]), ("a fortnight", ["1 fortnight"]), ("1.2.3", [])])
def test_quantities(text, found): assert [str(q) for q in quantities(text)] == found


@pytest.mark.parametrize("said, source, found", [
    ("Take 40 mg.", "Take 20 mg.", "40 mg"), ("Take 40 mg.", "Take forty milligrams.", ""), ("Take 40 g.", "Take 40 mg.", "40 g"),
    ("Take 0.5 g.", "Take 500 mg.", ""), ("It lasts 7 days.", "It lasts a week.", ""), ("It lasts 14 days.", "It lasts a fortnight.", ""),
    ("Take 2 tablets.", "Take two tablets twice a day.", ""), ("Take 40 mg.", "Take 40 of it.", ""), ("Wait 3 days.", "Wait three hours.", "3 days"),
    ("You have had it for nineteen years.", "I was 22, I am 41 now.", ""), ("Take fifty milligrams.", "Take 40 mg.", "50 milligrams"),
    ("It was on 30 May.", "It was on 30 May 2021.", "")])
def test_a_number_that_no_source_has(said, source, found): assert strange_number(said, source) == found


@few
@given(st.integers(2, 99_999), st.sampled_from(["mg", "ml", "days", "%", "kg", ""]))
def test_a_text_has_its_own_numbers(n, unit):
    text = f"Take {n} {unit} of it."
    assert not strange_number(text, text) and strange_number(text, "Take none of it.")


# --- windows

def test_windows_are_near_one_a_source_and_whole():
    long = "Bees fly. Cats sleep. Warfarin thins blood. Dogs bark. Fish swim."
    near = windows(["Warfarin is a blood thinner."], ["Rest well.", long], load_embedder("minilm"), most=2)[0]
    assert [w.source for w in near] == [1, 0] and near[0].nearest == "Warfarin thins blood."
    assert near[0].text == "Cats sleep. Warfarin thins blood. Dogs bark." and near[0].cosine > near[1].cosine
    assert windows([], [long], load_embedder("minilm")) == [] and windows(["x"], [], load_embedder("minilm")) == [[]]


# --- the verdict, from given probabilities

NEAR = [Window("Take 20 mg at night.", "Take 20 mg at night.", 0, .8), Window("Rest.", "Rest.", 1, .2)]

@pytest.mark.parametrize("said, shares, verdict, reason", [
    ("Take 20 mg at bedtime.", [[.9, .05, .05], [.1, .1, .8]], "stands", ""),
    ("Take 40 mg at bedtime.", [[.9, .05, .05], [.1, .1, .8]], "absent", "a number that no source has: 40 mg"),
    ("Take 20 mg at noon.", [[.1, .8, .1], [.1, .1, .8]], "contradicted", "it contradicts the source: “Take 20 mg at night.”"),
    ("Take it with food.", [[.1, .2, .7], [.1, .1, .8]], "absent", "it is not in the sources")])
def test_verdicts_and_their_reasons(said, shares, verdict, reason):
    v = sentence_verdict(said, NEAR, np.array(shares), [w.text for w in NEAR])
    assert (v.verdict, v.reason) == (verdict, reason) and 0 <= v.probability <= 1


def test_a_source_without_the_number_supports_nothing():
    v = sentence_verdict("Take 20 mg.", NEAR, np.array([[.3, .1, .6], [.99, 0, .01]]), [w.text for w in NEAR])
    assert v.verdict == "absent"


def test_a_number_word_at_the_head_of_a_later_source_counts():
    sources = [*(w.text for w in NEAR), "Drink a lot.", "Two tablets are enough."]
    v = sentence_verdict("Take 2 tablets.", NEAR, np.array([[.3, .1, .6], [.1, .1, .8]]), sources)
    assert v.reason == "it is not in the sources", "the number is in the fourth"


def test_the_sentence_is_the_first_part():
    mask = sentence_mask([tokens_of(p) for p in (("He sleeps.", "He sleeps at night."), ("He does not sleep.", "No."))])
    assert mask.sum(1).tolist() == [3, 5] and mask.shape[0] == 2


# --- what it learns from

def test_sealed_hands_train_nothing():
    assert not set(hands_of("entailment")) & set(SEALED) and set(hands_of("entailment")) == {"am", "an"}


# --- the judge

def test_a_judge_says_what_stands_and_form_goes_first():
    def judge(said, sources, embedder, settings): return [Checked(text=s, supported=True, source=0) for s in said]
    got = check_answer("Rest in bed now. Rest in bed now. Why? And then", "What helps?", ["Rest."], None, judge=judge)
    assert [c.supported for c in got] == [True, False, False, False]
    assert [c.reason for c in got] == ["", "it repeats itself", "it asks instead of answering", "it breaks off"]
    assert check_answer("Rest.", "What?", [], None, judge=judge)[0].reason == "nothing was shown"


def test_either_lets_stand_what_one_of_them_does(monkeypatch):
    import memkit.hybrid.fallback as support
    read = []
    def network(said, sources, embedder, settings):
        read.extend(said)
        return [Checked(text=s, supported="asleep" in s, reason="" if "asleep" in s else "not there") for s in said]
    monkeypatch.setattr(support, "by_entailment", network)
    said = ["Cool a burn under running water.", "The cat is asleep here.", "Elephants live in Africa."]
    got = support.by_either(said, ["Cool a burn under running water. Cats sleep."], load_embedder("minilm"))
    assert [c.supported for c in got] == [True, True, False] and read == said[1:] and got[2].reason == "not there"
