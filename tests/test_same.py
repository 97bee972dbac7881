"Same knowledge, new knowledge, contradiction: nothing that differs is lost, order makes no difference, and the weights are those that the pairs give."
import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.core.embed import MiniLM
from memkit.core.files import own_data
from memkit.core.notes import stitched
from memkit.core.same import (RELATIONS, LabelledPair, Relation, SameModel, best_relation, compare, cue_rows, fit_same, load_same_model, never_duplicate, pair_cosines, pick,
                              relate, same_model_json, same_pairs, train_same)
from memkit.core.same_cues import PAIR_CUES, numbers_in, opposites, pair_cues, read_note, stem, units_clash

COSINE = st.floats(-1, 1, allow_nan=False)
SYMMETRIC = ("cosine", "overlap", "same words", "topic", "topics", "swap", "doing and swap", "numbers same", "times same", "times differ", "other person", "other mentions", "one general", "both general", "negation", "antonym", "opposed", "both negated", "never", "for good",
             "measured", "one at a time", "attribute", "same question", "other question", "one asked", "other answer", "opposed and swap")


@pytest.fixture(scope="module")
def embedder(): return MiniLM()


@pytest.fixture(scope="module")
def pairs(): return [p for p in same_pairs() if p.split != "natural"]   # those written as pairs


def unit(n, dim=16, seed=0):
    v = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return v/np.linalg.norm(v, axis=1, keepdims=True)


# ---- the pairs

def test_pairs_are_enough_and_apart(pairs):
    parts = {s: [p for p in pairs if p.split == s] for s in ("train", "tune", "test")}
    assert len(parts["train"]) >= 400 and len(parts["tune"]) == len(parts["test"]) == 120 and sum(map(len, parts.values())) == len(pairs)
    assert all(set(Counter(p.relation for p in part)) == set(RELATIONS) and min(Counter(p.relation for p in part).values()) >= 15 for part in parts.values())
    assert len({(p.new, p.old) for p in pairs}) == len(pairs) and all(p.new != p.old for p in pairs)
    for a, b in (("train", "tune"), ("train", "test"), ("tune", "test")):
        assert not {p.topic for p in parts[a]} & {p.topic for p in parts[b]}
        assert not {s for p in parts[a] for s in (p.new, p.old)} & {s for p in parts[b] for s in (p.new, p.old)}


def test_pairs_that_met_in_dialogues_are_apart_from_the_test(pairs):
    natural = same_pairs("natural")
    assert min(Counter(p.relation for p in natural)[k] for k in ("unrelated", "duplicate", "update")) >= 300
    assert not {s for p in natural for s in (p.new, p.old)} & {s for p in pairs if p.split == "test" for s in (p.new, p.old)}
    assert all(p.new != p.old and p.relation in RELATIONS for p in natural)


def test_notes_that_have_nothing_to_do_with_each_other_are_left_alone():
    "What a model fitted to written pairs alone took for updates: a word of change, and no more in common."
    new, old = ["You found the perfect spot for the store.", "The user won't quit, it motivates the user.", "Now the user is stepping into the unknown."], ["The user has been to Paris yesterday!", "The user is happy about the view.", "The user is going to make it happen!"]
    for a, b in zip(new, old): assert relate(a, [b], [.55])[0].kind == "unrelated", (a, b)


def test_pairs_have_one_form(pairs):
    for p in pairs:
        for text in (p.new, p.old): assert text == " ".join(text.split()) and text[0].isupper() and text[-1] in '."', text
        assert not [w for t in (p.new, p.old) for w in t.split() if w in ("U", "U's", "my") or w in ("I", "my") and not t.startswith("Asked ")], p


# ---- what must hold for any notes

@given(st.text(min_size=1, max_size=80).filter(str.strip).filter(lambda t: "\0" not in t), COSINE)
@settings(max_examples=150, deadline=None)
def test_the_same_text_is_a_duplicate(text, cosine): assert relate(text, [text], [cosine]) == [Relation("duplicate", 1., "the same words")]


def test_every_note_is_a_duplicate_of_itself(pairs):
    for p in pairs: assert relate(p.new, [p.new, p.new.upper(), f" {p.new[:-1]}!"], [1., .9, .9]) == [Relation("duplicate", 1., "the same words")]*3


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.sampled_from(["takes {} mg of zinc", "is {} years old", "has {} children", "runs {} km a week", "was born in {}"]), st.sampled_from(["The user ", "The user's mother "]), COSINE)
@settings(max_examples=200, deadline=None)
def test_another_number_is_never_a_duplicate(a, b, says, who, cosine):
    new, old = (f"{who}{says.format(n)}." for n in (a, b))
    assert (relate(new, [old], [cosine])[0].kind == "duplicate") <= (a == b)


@pytest.mark.parametrize("new, old", [("The user takes 5 g of salt.", "The user takes 5 mg of salt."), ("The user takes ten tablets.", "The user takes nine tablets."), ("The user takes 2 tablets of 5 mg.", "The user takes 5 mg."), ("It was 128/84.", "It was 128/85."),
                                      ("The user pays 1,200 euros.", "The user pays 1,300 euros."), ("The user weighs 70.5 kg.", "The user weighs 70 kg."), ("The user's mother is ill.", "The user is ill."), ("The user is ill.", "The user's dad is ill.")])
def test_never_a_duplicate(new, old): assert relate(new, [old], [1.])[0].kind != "duplicate"


@pytest.mark.parametrize("question, a, b", [("Do you smoke?", "No.", "Yes."), ("Do you smoke?", "Never.", "Ten a day."), ("What hurts?", "My knee.", "My elbow."), ("How tall are you?", "1.70 m.", "1.80 m."), ("Any allergies?", "Nuts.", "None."), ("Where do you live?", "In Rome.", "In Turin.")])
def test_another_answer_is_never_a_duplicate(question, a, b):
    for new, old in ((a, b), (b, a)): assert relate(stitched(question, new), [stitched(question, old)], [1.])[0].kind != "duplicate"


def test_what_should_be_symmetric_is(pairs):
    for p in pairs:
        new, old = read_note(p.new), read_note(p.old)
        there, back = pair_cues(new, old, .7), pair_cues(old, new, .7)
        assert {k: there[k] for k in SYMMETRIC} == {k: back[k] for k in SYMMETRIC}, p
        assert (there["new in old"], there["nothing new"]) == (back["old in new"], back["nothing left out"])


def test_another_person_is_unrelated_either_way(embedder):
    for a, b in (("The user has asthma.", "The user's sister has asthma."), ("The user's father takes warfarin.", "The user takes warfarin."), ("The user's son is 9.", "The user's daughter is 9.")):
        assert {compare(a, b, embedder).kind, compare(b, a, embedder).kind} == {"unrelated"}


STRANGE = ["Je suis allergique aux noix.", "薬を飲みます。", "المستخدم يعاني من الربو", "🙂🙂🙂", "…", "?", "The user " + "takes zinc and " * 5000, "1e999 ٣ ² 1,2,3 12:30:45", "a\tb\nc", 'Asked "", the user answered ""', 'Asked "a "b" c", the user answered ""no""', "İstanbul ﬁ ß", "9" * 400]

@pytest.mark.parametrize("new", STRANGE)
def test_strange_notes_get_a_relation(new):
    out = relate(new, STRANGE, [.5]*len(STRANGE))
    assert all(r.kind in RELATIONS and 0 <= r.probability <= 1 and r.reason for r in out) and out[STRANGE.index(new)].kind == "duplicate"


@given(st.text(max_size=200).filter(str.strip).filter(lambda t: "\0" not in t), st.text(max_size=200).filter(str.strip).filter(lambda t: "\0" not in t), COSINE)
@settings(max_examples=200, deadline=None)
def test_any_text_gets_a_relation(a, b, cosine):
    out = relate(a, [b], [cosine])[0]
    assert out.kind in RELATIONS and 0 <= out.probability <= 1 and out == relate(a, [b], [cosine])[0]


def test_one_old_note_says_nothing_about_another(pairs):
    olds, cosines = [p.old for p in pairs[:40]], np.linspace(.2, .95, 40)
    together = relate(pairs[0].new, olds, cosines)
    assert together == [relate(pairs[0].new, [o], [c])[0] for o, c in zip(olds, cosines)]


@pytest.mark.parametrize("olds, cosines, error, says", [(["a."], [], ValueError, "needs its cosine"), ([" "], [.5], ValueError, "old note 0"), ([3], [.5], TypeError, "old note 0")])
def test_bad_notes_are_refused(olds, cosines, error, says):
    with pytest.raises(error, match=says): relate("b.", olds, cosines)


# ---- the nearest

@pytest.fixture(scope="module")
def memory(embedder, pairs):
    olds = list(dict.fromkeys(p.old for p in pairs if p.split == "train"))[:150]
    return olds, embedder.embed(olds)


def test_order_of_old_notes_makes_no_difference(embedder, pairs, memory):
    olds, vectors = memory
    rng, news = np.random.default_rng(1), [p.new for p in pairs if p.split == "train"][:200:9]
    for new, v in zip(news, embedder.embed(news)):
        first, order = best_relation(new, v, olds, vectors), rng.permutation(len(olds))
        other = best_relation(new, v, [olds[i] for i in order], vectors[order])
        assert (first is None) == (other is None)
        if first: assert (olds[first[0]], first[1]) == (olds[order[other[0]]], other[1])


def test_best_is_the_likeliest_of_the_nearest(embedder, pairs, memory):
    olds, vectors = memory
    for new, v in zip(news := [p.new for p in pairs[:120:7]], embedder.embed(news)):
        near = np.argsort(-(vectors@v), kind="stable")[:8]
        related = [r for r in relate(new, [olds[i] for i in near], vectors[near]@v) if r.kind != "unrelated"]
        found = best_relation(new, v, olds, vectors)
        assert (found is None) == (not related)
        if related: assert abs(found[1].probability - max(r.probability for r in related)) < 1e-3 and found[0] in near


def test_few_none_and_equal_old_notes():
    v = unit(3)
    assert best_relation("a.", v[0], [], np.empty((0, 16), np.float32)) is None
    assert best_relation("The user sings.", v[0], ["The user sings."], v[:1]) == (0, Relation("duplicate", 1., "the same words"))
    assert best_relation("The user sings.", v[0], ["The user sings."]*20, np.repeat(v[:1], 20, axis=0)) == (0, Relation("duplicate", 1., "the same words"))
    found = best_relation("The user sings.", v[0], ["The user sings.", "Rain falls."], np.stack([v[1], v[0]]), near=1)
    assert found is None or found[0] == 1, "only the nearest is read"


@pytest.mark.parametrize("shape, near", [((1, 15), 8), ((2, 16), 8), ((16,), 8), ((1, 16), 0)])
def test_vectors_that_do_not_fit_are_refused(shape, near):
    with pytest.raises(ValueError): best_relation("a.", np.ones(16), ["b."], np.ones(shape), near=near)


# ---- the model

def test_the_weights_are_those_of_the_pairs(embedder):
    kept, fresh = load_same_model(), train_same(embedder)
    assert np.abs(kept.weights - fresh.weights).max() < .01 and np.abs(kept.bias - fresh.bias).max() < .01
    assert (kept.embedder, kept.sure) == (embedder.name, fresh.sure) and kept.weights.shape == (len(RELATIONS), len(PAIR_CUES))


def test_no_unrelated_pair_of_the_test_is_lost_and_the_model_beats_the_cosine(embedder, pairs):
    test = [p for p in pairs if p.split == "test"]
    cosines = pair_cosines(embedder, test)
    said = [relate(p.new, [p.old], [c])[0].kind for p, c in zip(test, cosines)]
    right = np.mean([k == p.relation for k, p in zip(said, test)])
    alone = max(np.mean([("duplicate" if c >= high else "update" if c >= low else "unrelated") == p.relation for c, p in zip(cosines, test)]) for high in np.arange(.5, 1, .02) for low in np.arange(.3, high, .02))
    assert right >= .8 and right > alone + .15, "even where the thresholds of the cosine are chosen on the test itself"
    assert [p for k, p in zip(said, test) if k == "duplicate" and p.relation == "unrelated"] == []


def test_a_model_survives_json(tmp_path, monkeypatch):
    model = SameModel("m", np.arange(4*len(PAIR_CUES)).reshape(4, -1)/1000, np.arange(4.), .8)
    kept = json.loads(same_model_json(model))
    assert np.array_equal(kept["weights"], model.weights) and kept["cues"] == list(PAIR_CUES) and kept["sure"] == .8
    (tmp_path/"same_model.json").write_text(json.dumps({**kept, "cues": ["other"]}))
    monkeypatch.setattr("memkit.core.same.own_data", lambda name: tmp_path/name)
    load_same_model.cache_clear()
    with pytest.raises(ValueError, match="other cues"): load_same_model()
    load_same_model.cache_clear()


def test_training_wants_all_relations():
    with pytest.raises(ValueError, match="all relations"): fit_same(np.zeros((1, len(PAIR_CUES))), ["update"], "m")


@given(st.lists(st.tuples(*[st.floats(.01, 1)]*4), min_size=1, max_size=8), st.floats(0, 1), st.data())
def test_pick_takes_a_duplicate_only_when_sure(rows, sure, data):
    p = np.array(rows)/np.sum(rows, axis=1, keepdims=True)
    barred = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    for row, no, k in zip(p, barred, pick(p, barred, sure)):
        assert k == (row.argmax() if not no and row[0] >= sure else 1 + row[1:].argmax())


def test_using_it_needs_no_scikit_learn():
    code = "import sys; from memkit.core.same import relate; print(relate('The user sings.', ['The user sang.'], [.9])[0].kind in ('duplicate', 'update', 'contradiction', 'unrelated'), *[m for m in ('sklearn', 'onnxruntime', 'torch', 'sqlalchemy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["True"]


# ---- cues

@pytest.mark.parametrize("a, b, same", [("allergic", "allergies", True), ("diabetic", "diabetes", True), ("prednisone", "prednisolone", False), ("smoker", "smoking", True), ("hydroxyzine", "hydrochlorothiazide", False), ("clonidine", "clonazepam", False), ("metformin", "metoprolol", False)])
def test_stems(a, b, same): assert (stem(a) == stem(b)) is same


@given(st.text(st.characters(categories=["Ll"]), max_size=30))
def test_a_stem_is_a_beginning_and_has_a_stem_of_its_own(word): assert word.startswith(stem(word)) and stem(stem(word)) == stem(word)


@pytest.mark.parametrize("text, numbers", [("takes ten milligrams", {"10": "mg"}), ("1,200 euros", {"1200": ""}), ("128/84 and 7.50", {"128/84": "", "7.5": ""}), ("5 mg twice", {"5": "mg", "2": ""}), ("none", {}), ("٣ tablets", {"٣": ""})])
def test_numbers(text, numbers): assert read_note(text).numbers == numbers and numbers_in(text.split() if "," not in text else text.replace(",", "").split()) == numbers


def test_units():
    assert units_clash({"5": "mg"}, {"5": "g"}) and not units_clash({"5": "mg"}, {"6": "g"}) and not units_clash({}, {"5": "mg"})


@pytest.mark.parametrize("text, owners, mentions", [("The user's mum is ill.", {"mother"}, {"mother"}), ("The mother of the user is ill.", {"mother"}, {"mother"}), ("The user has a daughter.", set(), {"daughter"}), ("The user has a sister. The user said: She is ill.", {"sister"}, {"sister"}),
                                                    ("The user's mother tongue is Czech.", set(), {"mother"}), ("The user's mother-in-law is ill.", {"mother-in-law"}, {"mother-in-law"}), ("The user is ill.", set(), set())])
def test_whose_fact(text, owners, mentions): assert (read_note(text).owners, read_note(text).mentions) == (owners, mentions)


@pytest.mark.parametrize("text, negated", [("The user doesn't smoke.", True), ("The user never goes without a hat.", False), ("The user takes 20 mg, not 10.", False), ('Asked "Don\'t you smoke?", the user answered "Yes."', False), ('Asked "Do you smoke?", the user answered "No."', True), ("The user can’t swim.", True)])
def test_negation(text, negated): assert read_note(text).negated is negated


def test_opposites_need_one_on_each_side():
    words = lambda s: read_note(s).content
    assert opposites(words("likes maths"), words("hates maths")) and not opposites(words("left and right"), words("right")) and not opposites(words("a"), words("b"))


def test_cues_are_numbers_between_0_and_1(pairs):
    for p in pairs:
        v = pair_cues(read_note(p.new), read_note(p.old), .8)
        assert tuple(v) == PAIR_CUES and all(0 <= x <= 1 for x in v.values()), p
        assert never_duplicate(v) in (True, False)


def test_a_labelled_pair_is_a_row_of_the_file(pairs):
    rows = [json.loads(line) for line in own_data("same_pairs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [LabelledPair(**r) for r in rows] == pairs
