"Key points, coverage of an explanation, and what a conversation costs."
import hashlib
import json
import math
import re
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.files import own_data
from memkit.models.lm import Reply, ScriptedLM
from memkit.evaluate.coverage import (REGIONS, TABLE_4, TABLE_6, Price, SessionUse, TurnUse, conversation_table, cost, price_of, prices, session_use, summary_statistics, token_region, turn_use,
                                  turns_to_right)
from memkit.evaluate.coverage import ALPHAS, MATCHES, KeyPointCoverage, information_capture, information_coverage, key_point_coverage, match_words, opposite_pair, refusal
from memkit.evaluate.coverage import (KeyPoint, KeyPointError, clauses, held_points, key_points, Listed, ListedPoint,
                                      phrases, point_messages, prompted_key_points, statements, tidy, trimmed)

ROWS = [json.loads(line) for line in own_data("key_points.jsonl").read_text(encoding="utf-8").splitlines()]
few = settings(max_examples=80, deadline=None)
texts = st.lists(st.sampled_from("Ans. is 'b' i.e. Warfarin warfarin not no vitamin K and of the 15 to 30 minutes 4.5 % oedema without avoided , . ; ( ) - 1. * \n because ptosis T waves Ref: 9/e p 412".split(" ")), max_size=25).map(" ".join)


class Letters:
    "Vectors that count letters: deterministic, and equal texts are equal."
    name, dim = "letters", 26
    def embed(self, texts, kind="document"):
        counts = np.array([[t.lower().count(chr(97 + i)) for i in range(26)] for t in texts], dtype=np.float32).reshape(len(texts), 26) + 1e-3
        return counts/np.linalg.norm(counts, axis=1, keepdims=True)


class Axes:
    "A vector of its own for each text, or the one it was given."
    name, dim = "axes", 64
    def __init__(self, same=()): self.same, self.seen = dict(same), {}
    def embed(self, texts, kind="document"):
        return np.eye(64, dtype=np.float32)[[self.seen.setdefault(self.same.get(t, t), len(self.seen)) for t in texts]]


# --- the data

def test_each_explanation_has_its_form():
    for r in ROWS:
        assert list(r) == ["id", "style", "text", "points", "answers", "split"] and r["style"] in ("plain", "mcq", "list")
        assert r["text"] == " ".join(r["text"].split()) and len(r["points"]) >= 5
        assert r["split"] == ("tune" if hashlib.blake2b(r["text"].encode(), digest_size=8).digest()[0] % 2 == 0 else "score"), "a hash of the text draws the half"
        for p in r["points"]: assert list(p) == ["text", "denied"] and p["text"] in r["text"] and isinstance(p["denied"], bool), "marked in the explanation's own words"
        assert len({(p["text"], p["denied"]) for p in r["points"]}) == len(r["points"])
        assert [a["kind"] for a in r["answers"]] in (["close"], ["close", "free"])
        for a in r["answers"]: assert len(a["covered"]) == len(r["points"]) and all(isinstance(c, bool) for c in a["covered"])


def test_there_are_enough_of_each():
    assert len(ROWS) >= 30 and len({r["id"] for r in ROWS}) == len({r["text"] for r in ROWS}) == len(ROWS)
    for half in ("tune", "score"):
        rows = [r for r in ROWS if r["split"] == half]
        assert len(rows) >= 15 and {r["style"] for r in rows} == {"plain", "mcq", "list"} and sum(p["denied"] for r in rows for p in r["points"]) >= 10
        for kind in ("close", "free"):
            marks = [c for r in rows for a in r["answers"] if a["kind"] == kind for c in a["covered"]]
            assert min(sum(marks), len(marks) - sum(marks)) >= 20


# --- the extractor

def test_the_extractor_is_the_one_that_was_fixed():
    "If this fails, key points were changed: measure everything that was measured with them again, and only then change the fingerprint."
    found = json.dumps([[str(p) for p in key_points(t)] for r in ROWS for t in (r["text"], *(a["text"] for a in r["answers"]))], ensure_ascii=False)
    assert hashlib.blake2b(found.encode(), digest_size=8).hexdigest() == "1e43f8be482bf146"


@pytest.mark.parametrize("given, left", [
    ("Ans. is 'b' i.e., Vitamin B12", "Vitamin B12"), ("Answer: C. Tuberculosis is likely.", "Tuberculosis is likely."), ("Ans (c) Ileum", "Ileum"), ("Ans: D i.e. Lithium", "Lithium"), ("B i.e. Lupus", "Lupus"),
    ("Correct option is a. Zinc", "Zinc"), ("Ans. d. 120 days.", "120 days."), ("Lithium (Ref: Big Book 12/e p209, 302)", "Lithium"), ("Lithium. Ref- Notes of Drugs page 77", "Lithium."), ("Lithium Harrison 19/e p 2203", "Lithium"),
    ("Causes: - Stroke - Tumour", "Causes\n\nStroke\n\nTumour"), ("1. Stroke 2. Tumour", "Stroke\n\nTumour"), ("It is rare.Treatment is rest", "It is rare.\n\nTreatment is rest"), ("", ""), (" - ", ""),
    ("A vaginal pH above 4.5. There is no pus.", "A vaginal pH above 4.5. There is no pus."), ("Anaemia and answers", "Anaemia and answers"), ("A diet is advised.", "A diet is advised."), ("E. coli grows.", "E. coli grows.")])
def test_tidy_takes_out_what_is_no_knowledge(given, left): assert tidy(given) == left


@pytest.mark.parametrize("text, points", [
    ("Reflexes are not lost.", ["not Reflexes"]), ("Dirt does not cause acne.", ["Dirt", "not acne"]), ("It must not be given in pregnancy.", ["not pregnancy"]), ("Atropine is contraindicated because it widens the pupil.", ["not Atropine", "pupil"]),
    ("There is wasting but no oedema.", ["wasting", "not oedema"]), ("Vitamin K, vitamin D and hepatitis A", ["Vitamin K", "vitamin D", "hepatitis A"]), ("It takes 15 to 30 minutes, or 3.5 % of 0.1 mg/kg.", ["15 to 30 minutes", "3.5 % of 0.1 mg/kg"]),
    ("The most common cause in young patients.", []), ("", []), ("compression of the median nerve", ["compression of the median nerve"]), ("Iron and iron. Not iron.", ["Iron", "not iron"]), ("The karyotype is 45,X.", ["karyotype", "45,X"])])
def test_points_of_a_sentence(text, points):
    found = [str(p) for p in key_points(text)]
    assert [p for p in found if p in points] == points and (points or not found)


@few
@given(texts)
def test_points_are_in_the_text_once_and_the_same_each_time(text):
    points = key_points(text)
    assert points == key_points(text) and len(set(points)) == len(points)
    plain = " ".join(tidy(text).split())
    for p in points: assert " ".join(p.text.split()) in plain and trimmed(p.text)
    assert len(points) <= len(phrases(text))


@few
@given(st.text(max_size=200))
def test_any_text_is_read(text):
    try: key_points(text)
    except ValueError as e: assert "explanation" in str(e)


@few
@given(texts)
def test_tidy_is_calm_and_statements_have_words(text):
    assert all(re.search(r"\w", s) for s in statements(text))
    for s in statements(text):
        for c in clauses(s): assert c in s


def test_what_is_no_text_is_refused():
    for bad in (None, 3, b"x", ["a"]):
        with pytest.raises(TypeError, match="explanation"): key_points(bad)


def test_a_long_text_costs_time_in_proportion():
    assert len(key_points("Ptosis and miosis. "*3000)) == 2
    assert isinstance(tidy("Ref "*5000 + "("*2000), str)


# --- the prompted extractor

TEXT = "Kwashiorkor is due to lack of protein. There is no hair loss. Give 2 g/kg."

def says(*points, wrap="{}"): return wrap.format(json.dumps({"points": [{"text": t, "denied": d} for t, d in points]}))


def test_a_good_list_is_taken_whatever_stands_around_it():
    for wrap in ("{}", "Here it is:\n```json\n{}\n```\nDone."):
        model = ScriptedLM([says(("lack of protein", False), ("hair loss", True), ("lack of protein", False), wrap=wrap)])
        assert prompted_key_points(TEXT, model) == (KeyPoint("lack of protein"), KeyPoint("hair loss", True))
    assert model.asked[0] == point_messages(TEXT) and "Kwashiorkor" in model.asked[0][-1].text


@pytest.mark.parametrize("bad", ["", "I can't.", "\0", "\ud800", "[1]", '{"points": 3}', '{"points": [{"text": "protein"}]}', '{"points": [{"text": "protein", "denied": "no"}]}', '{"points": []}', says(("fatty liver", False)), says(("3 g/kg", False)), '{"points": [', '{"points": [{"text": "", "denied": false}]}'])
def test_what_cannot_be_used_is_asked_again_and_then_refused(bad):
    good = says(("protein", False))
    model = ScriptedLM([bad, good])
    assert prompted_key_points(TEXT, model) == (KeyPoint("protein"),) and "can't be used" in model.asked[1][-1].text
    with pytest.raises(KeyPointError, match="no usable list"): prompted_key_points(TEXT, ScriptedLM([bad, bad]))


def test_points_that_nobody_made_are_left_out():
    assert prompted_key_points(TEXT, ScriptedLM([says(("protein", False), ("fatty liver", False))])) == (KeyPoint("protein"),)
    assert held_points(Listed([ListedPoint("2 g/kg", False), ListedPoint("the", False), ListedPoint("4 g/kg", False)]), TEXT) == (KeyPoint("2 g/kg"),)


def test_requests_that_cannot_be():
    with pytest.raises(ValueError, match="says nothing"): prompted_key_points(" - ", ScriptedLM([]))
    with pytest.raises(KeyPointError, match="can't be asked"): prompted_key_points("protein "*9000, ScriptedLM(["x"]))


# --- ICS

def test_ics_counts_a_sentence_once_and_literally_as_often_as_it_is_met():
    e = Axes({"One again.": "One is said.", "One more.": "One is said."})
    args = ("One is said. Two is said.", "One is said. One again. One more.", e)
    assert information_coverage(*args) == .5 and information_coverage(*args, literal=True) == 1.5


def test_ics_by_hand_against_the_papers_sum():
    e, expected, generated = Letters(), "Dogs bark. Cats purr at night. Rain falls.", "Cats purr at night. Dogs bark. Dogs bark. Snow falls."
    for at in (.5, .8, .95):
        v = lambda s: e.embed([s])[0]
        close = [[float(v(x) @ v(y)) >= at for x in statements(expected)] for y in statements(generated)]
        assert information_coverage(expected, generated, e, at, literal=True) == pytest.approx(sum(map(sum, close))/3)
        assert information_coverage(expected, generated, e, at) == pytest.approx(sum(map(any, zip(*close)))/3)


@few
@given(texts, texts, st.floats(-1, 1))
def test_ics_lies_in_its_range_and_falls_with_the_threshold(expected, generated, at):
    e = Letters()
    if not statements(expected):
        with pytest.raises(ValueError, match="no sentence"): information_coverage(expected, generated, e, at)
        return
    once, literal = information_coverage(expected, generated, e, at), information_coverage(expected, generated, e, at, literal=True)
    assert 0 <= once <= 1 and once <= literal + 1e-9 and literal <= max(1, len(statements(generated)))
    assert information_coverage(expected, generated, e, 1.) <= once + 1e-9 and information_coverage(expected, expected, e, 1.) == 1


def test_ics_refuses():
    with pytest.raises(ValueError, match="cosine"): information_coverage("A is B.", "x", Letters(), 1.5)
    with pytest.raises(ValueError, match="cosine"): information_coverage("A is B.", "x", Letters(), math.nan)
    assert information_coverage("A is B.", " ", Letters()) == 0.


# --- KPCS

def test_guards_refuse_numbers_denials_and_opposites():
    p = KeyPoint
    assert refusal(p("2 to 3"), p("2 to 3")) == "" and "3" in refusal(p("2 to 3"), p("2 to 4")) and refusal(p("vitamin K"), p("vitamin D"))
    assert "denies" in refusal(p("oedema"), p("oedema", True)) and "doesn't" in refusal(p("oedema", True), p("oedema"))
    for a, b in (("hyperkalaemia", "hypokalaemia"), ("left lung", "right lung"), ("renal artery", "renal vein"), ("irreversible pulpitis", "reversible pulpitis"), ("dominant", "recessive"), ("open-angle", "closed-angle")):
        assert opposite_pair(a, b) and opposite_pair(b, a) and not opposite_pair(a, a) and not opposite_pair(b, b), (a, b)
    assert not opposite_pair("artery and vein", "vein") and not opposite_pair("heart", "lung")


@pytest.mark.parametrize("point, answer, exact, regex", [
    ("Thiazides", "A thiazide is given.", True, True), ("median nerve", "The median nerve is hurt.", True, True), ("lack of protein", "lack of the protein", True, True), ("nerve compression", "The nerve that is compressed hurts", False, True),
    ("nerve compression", "The nerve is then compressed.", False, True), ("15 minutes", "within 15 minutes", True, True), ("15 minutes", "within 150 minutes", False, False), ("factors II, VII, IX and X", "factors II, VII, IX and X fall", True, True),
    ("oedema", "no oedema", False, False), ("iron", "environment", False, False), ("Negri bodies", "a Negri body", True, True), ("ovaries", "an ovary", True, True), ("+", "a + b", False, False), ("oedema", "", False, False)])
def test_words_in_a_row_and_words_in_order(point, answer, exact, regex):
    assert [bool(match_words(KeyPoint(point), answer, loose).heard) for loose in (False, True)] == [exact, regex]


@few
@given(texts, texts)
def test_kpcs_explains_itself(expected, generated):
    points = key_points(expected)
    if not points:
        with pytest.raises(ValueError, match="no key point"): key_point_coverage(expected, generated, "exact")
        return
    found = {m: key_point_coverage(expected, generated, m, Letters(), .9) for m in MATCHES}
    for c in found.values():
        assert tuple(m.point for m in c.matches) == points and 0 <= float(c) <= 1
        for m in c.matches: assert not (m.heard and m.reason) and (m.heard or m.reason or not phrases(generated))
    assert float(found["exact"]) <= float(found["semantic"])
    assert str(found["exact"]).count("\n") == len(points)


@pytest.mark.parametrize("match", MATCHES)
def test_a_text_covers_itself_and_nothing_covers_nothing(match):
    for r in ROWS:
        whole = key_point_coverage(r["text"], r["text"], match, Letters())
        assert float(whole) >= .85, str(whole)
        assert float(key_point_coverage(r["text"], "", match, Letters())) == 0.


def test_the_best_phrase_that_no_guard_refuses_is_taken():
    e = Axes({"caval vein": "vena cava", "hypokalaemia": "hyperkalaemia"})
    c = key_point_coverage([KeyPoint("vena cava"), KeyPoint("hyperkalaemia"), KeyPoint("ptosis")], "The caval vein. The hypokalaemia.", embedder=e, at_least=.5)
    assert [m.heard for m in c.matches] == ["caval vein", "", ""] and "opposite" in c.matches[1].reason and float(c) == pytest.approx(1/3)


def test_kpcs_refuses():
    with pytest.raises(ValueError, match="semantic, exact, regex"): key_point_coverage("Ptosis.", "x", "fuzzy")
    with pytest.raises(ValueError, match="needs an embedder"): key_point_coverage("Ptosis.", "x")
    with pytest.raises(ValueError, match="no key point"): key_point_coverage([], "x", "exact")
    with pytest.raises(ValueError, match="cosine"): key_point_coverage("Ptosis.", "x", "exact", at_least=2)


# --- AICS

@few
@given(st.floats(0, 3), st.floats(0, 1), st.floats(0, 1))
def test_aics_lies_between_its_parts(ics, kpcs, alpha):
    value = information_capture(ics, kpcs, alpha)
    assert min(ics, kpcs) - 1e-9 <= value <= max(ics, kpcs) + 1e-9
    assert information_capture(ics, kpcs, 0) == pytest.approx(kpcs) and information_capture(ics, kpcs, 1) == pytest.approx(ics)


def test_aics_is_the_papers_figure_4_and_refuses_what_cannot_be():
    assert (round(information_capture(.76, .12), 2), round(information_capture(.76, .32), 2)) == (.18, .36)
    assert ALPHAS == (.1, .2, .3, .4, .5) and information_capture(.8, .1, .3) == pytest.approx(.3*.8 + .7*.1)
    for bad in ((-.1, .5, .1), (math.nan, .5, .1), (.5, 1.1, .1), (.5, math.nan, .1), (.5, .5, 1.1), (.5, .5, math.nan), (math.inf, .5, .1)):
        with pytest.raises(ValueError): information_capture(*bad)
    assert information_capture(.5, KeyPointCoverage(match_and_miss()), .5) == pytest.approx(.5)


def match_and_miss(): return key_point_coverage([KeyPoint("ptosis"), KeyPoint("miosis")], "Ptosis.", "exact").matches


# --- cost

counts = st.integers(0, 5000)
turns = st.lists(st.builds(TurnUse, counts, counts, counts, counts), min_size=1, max_size=8)


def test_the_price_table_is_dated_and_says_where():
    raw = json.loads(own_data("prices.json").read_text(encoding="utf-8"))
    assert list(raw) == ["unit", "note", "prices"] and "million" in raw["unit"] and len({p["model"] for p in raw["prices"]}) == len(raw["prices"]) == len(prices())
    for p in prices().values(): assert re.fullmatch(r"20\d\d-[01]\d(-[0-3]\d)?", p.on) and len(p.where.split()) >= 6
    assert price_of("embedded").input == 0 and price_of("gpt-4").output > price_of("gpt-4").input
    with pytest.raises(ValueError, match="gpt-3.5-turbo"): price_of("")
    for bad in (-1., math.nan, math.inf):
        with pytest.raises(ValueError): Price("x", bad, 1., "2026-01", "here")


@few
@given(turns)
def test_a_session_is_the_sum_of_its_turns(ts):
    price = Price("x", 2., 6., "2026-01", "a test")
    s = session_use(ts, [None]*len(ts), price)
    assert (s.turns, s.tokens, s.words) == (len(ts), sum(t.tokens for t in ts), sum(t.words for t in ts))
    assert s.billed == sum(t.prompt_tokens + t.answer_tokens for t in ts) and s.cost == pytest.approx(sum(cost(t.prompt_tokens, t.answer_tokens, price) for t in ts))
    assert s.per_turn()["cost"]*s.turns == pytest.approx(s.cost) and "cost" not in session_use(ts).per_turn()


@few
@given(st.lists(st.sampled_from([True, False, None]), max_size=6))
def test_turns_to_the_right_answer(right):
    assert turns_to_right(right) == (right.index(True) + 1 if True in right else None)


@few
@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=30))
def test_summary_is_the_textbooks(values):
    s = summary_statistics(values)
    assert (s.count, s.min, s.max) == (len(values), min(values), max(values))
    assert s.mean == pytest.approx(statistics.mean(values)) and s.std == pytest.approx(statistics.stdev(values), abs=1e-9)


def test_one_value_has_no_deviation_and_none_is_refused():
    assert math.isnan(summary_statistics([3]).std)
    for bad in ([], [math.inf], [1, math.nan]):
        with pytest.raises(ValueError, match="at least one"): summary_statistics(bad)


def test_the_table_has_the_form_of_tables_4_and_6():
    a, b = SessionUse(2, 30, 40, 90, .1, 2), SessionUse(1, 10, 20, 25, None, None)
    table = conversation_table([a, b])
    assert list(table) == ["turns", "tokens", "words", "billed", "cost", "right_at"] and [table[k].count for k in table] == [2, 2, 2, 2, 1, 1]
    assert TABLE_4["tokens"].mean == 415.22
    assert list(conversation_table([b])) == ["turns", "tokens", "words", "billed"] and TABLE_6["turns"].count == 15


def test_a_turn_is_counted_by_the_model():
    model = ScriptedLM([])
    reply = Reply(text="Yes, it is.", prompt_tokens=50, answer_tokens=4, seconds=.1, finished=True)
    assert turn_use("Is it so?", reply, model) == TurnUse(6, model.count_tokens("Is it so?") + 4, 50, 4)
    for bad in ((-1, 0, 0, 0), (0, 0, 0, -1)):
        with pytest.raises(ValueError, match="0 or more"): TurnUse(*bad)
    with pytest.raises(ValueError): cost(-1, 0, price_of("embedded"))
    with pytest.raises(ValueError, match="at least one turn"): session_use([])
    with pytest.raises(ValueError, match="verdicts"): session_use([TurnUse(1, 1, 1, 1)], [True, False])


@given(st.integers(0, 400))
def test_regions_part_the_line(tokens):
    inside = [f"{a}-{b}" for a, b in REGIONS if a <= tokens < b] or (["220-250"] if tokens == 250 else [])
    assert token_region(tokens) == (inside[0] if inside else None)


def test_a_negative_count_has_no_region():
    with pytest.raises(ValueError, match="0 or more"): token_region(-1)
