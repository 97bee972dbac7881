"MARK's scores: relevance against a plain loop, trust against exact fractions, and what can't be."
import math
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memkit.records import Memory
from memkit.mark.scoring import PART_NAMES, PRESETS, TEST, Components, Score, Weights, age_days, components_of, feedback_score, preset, rank, relevance, why_first
from memkit.mark.trust import PAPER, TABLE_7, Trust, TrustSettings, errors_to_drop, new_trust, replay, table_7, timeline, trust_range, verdict

counts = st.integers(0, 10_000)
ages = st.floats(0, 36_500)
cosines = st.floats(-1.0001, 1.0001)
said = st.one_of(st.sampled_from([-1, 0, 1]), st.floats(-1, 1))
components = st.builds(Components, counts, ages, cosines, said)
candidates = st.lists(components, min_size=1, max_size=25)
weights = st.one_of(st.sampled_from([*PRESETS.values(), TEST]), st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any).map(lambda w: Weights(*(x/sum(w) for x in w))))


def columns(found: list[Components]) -> tuple:
    return ([c.recall_count for c in found], [c.age_days for c in found], [c.similarity for c in found], [float(c.feedback) for c in found])


def by_hand(c: Components, w: Weights, literal: bool) -> float:
    "The formulas once more, in plain Python."
    if literal: return w.recall*c.recall_count + w.recency/(c.age_days + .01) + w.similarity*c.similarity + w.feedback*c.feedback
    return w.recall*c.recall_count/(1 + c.recall_count) + w.recency/(1 + c.age_days) + w.similarity*min(max(c.similarity, 0), 1) + w.feedback*(c.feedback + 1)/2


# relevance

def test_presets_are_the_papers():
    assert {name: tuple(round(x, 2) for x in w.shares) for name, w in PRESETS.items()} == {
        "Default": (.1, .15, .7, .05), "Core Blend": (.33, .33, .33, 0), "Similarity + Freshness": (.05, .35, .55, .05), "Popularity + Similarity": (.3, .05, .6, .05),
        "Feedback + Freshness": (.1, .4, .1, .4), "Similarity + Feedback": (.05, .1, .55, .3), "Balanced": (.2, .2, .5, .1)}
    assert TEST.shares == (0, 0, 1, 0) and preset("TEST") is TEST and preset("core blend") is PRESETS["Core Blend"]
    assert all(abs(math.fsum(w.shares) - 1) < 1e-12 for w in PRESETS.values())
    with pytest.raises(TypeError): PRESETS["Default"] = TEST


@given(st.lists(st.floats(-.5, 1.5), min_size=4, max_size=4))
def test_weights_are_shares_of_one(shares):
    good = all(0 <= s <= 1 for s in shares) and abs(math.fsum(shares) - 1) <= 1e-6
    if good: assert Weights(*shares).shares == tuple(shares)
    else:
        with pytest.raises(ValueError, match="0..1|sum to 1"): Weights(*shares)


def test_sums_are_checked_to_a_millionth():
    assert Weights(.5, .5 + 9e-7, 0, 0)
    with pytest.raises(ValueError, match="sum to 1"): Weights(.5, .5 + 2e-6, 0, 0)
    with pytest.raises(ValueError, match="0..1"): Weights(float("nan"), .5, .5, 0)


@given(candidates, weights, st.booleans())
def test_order_is_that_of_a_plain_loop(found, w, literal):
    ranking = rank(*columns(found), w, literal)
    hand = [by_hand(c, w, literal) for c in found]
    assert np.allclose(ranking.parts.sum(axis=1), hand, rtol=1e-9, atol=1e-12)
    totals = ranking.parts.T.sum(axis=0)
    assert ranking.order.tolist() == sorted(range(len(found)), key=lambda i: (-totals[i], i))
    if not literal: assert np.allclose(ranking.values, hand, atol=1e-12)


def test_ties_keep_the_order_they_came_in():
    n = 10_000
    same = rank(np.full(n, 2), np.full(n, 3.), np.full(n, .4), np.zeros(n))
    assert same.order.tolist() == list(range(n))
    assert set(same.values.tolist()) == {relevance(Components(2, 3, .4)).value}


@given(components, weights)
def test_fixed_score_lies_between_nought_and_one_and_is_the_sum_of_its_parts(c, w):
    s = relevance(c, w)
    assert -1e-12 <= s.value <= 1 + 1e-6 and math.isclose(s.value, math.fsum(s.parts.values()), abs_tol=1e-12) and s.total == s.value
    assert list(s.parts) == list(PART_NAMES) and all(-1e-12 <= part <= share + 1e-12 for part, share in zip(s.parts.values(), w.shares))


@given(candidates, components, weights)
def test_fixed_score_does_not_depend_on_the_company(found, other, w):
    alone, together = rank(*columns(found), w), rank(*columns([*found, other]), w)
    assert together.values[:-1].tolist() == alone.values.tolist()
    for i, c in enumerate(found): assert alone.score(i) == relevance(c, w) and alone.score(i).total == alone.score(i).value


@given(components, components, weights)
def test_more_is_never_worse(a, b, w):
    best = Components(max(a.recall_count, b.recall_count), min(a.age_days, b.age_days), max(a.similarity, b.similarity), max(a.feedback, b.feedback))
    assert relevance(best, w).value >= max(relevance(a, w).value, relevance(b, w).value) - 1e-12


@given(candidates, weights)
def test_literal_totals_are_scaled_without_changing_the_order(found, w):
    ranking = rank(*columns(found), w, literal=True)
    totals = ranking.parts.T.sum(axis=0)
    assert ranking.values.max() == 1 and (ranking.values.min() == 0 or len(set(totals)) == 1)
    assert (np.diff(ranking.values[ranking.order]) <= 0).all() and (np.diff(totals[ranking.order]) <= 0).all()


@pytest.mark.parametrize("name", PRESETS)
def test_a_fresh_memory_is_worth_a_hundred_times_its_weight_in_the_literal_form(name):
    w = PRESETS[name]
    assert math.isclose(relevance(Components(0, 0, 0, 0), w, literal=True).value, 100*w.recency)
    assert math.isclose(relevance(Components(0, 0, 0, 0), w).recency, w.recency)


@given(candidates)
def test_similarity_alone_ranks_by_similarity(found):
    near = [min(max(c.similarity, 0), 1) for c in found]
    assert rank(*columns(found), TEST).order.tolist() == sorted(range(len(found)), key=lambda i: (-near[i], i))


@given(st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1)), st.integers(-10**9, 10**9))
def test_a_clock_that_ran_backwards_gives_an_age_all_the_same(moment, seconds):
    now = moment.replace(tzinfo=timezone.utc)
    past, future = (now + sign*timedelta(seconds=abs(seconds)) for sign in (-1, 1))
    a, b = age_days(past.timestamp(), now.timestamp()), age_days(future.timestamp(), now.timestamp())
    assert math.isclose(a, b, abs_tol=1e-9) and math.isclose(a, abs(seconds)/86_400, abs_tol=1e-9)
    assert relevance(Components(0, float(b), .5)).recency <= relevance(Components(0, 0, .5)).recency


@given(counts, counts)
def test_feedback_of_many_is_their_mean(right, wrong):
    fs = feedback_score(right, wrong)
    assert -1 <= fs <= 1 and fs == -feedback_score(wrong, right)
    if right + wrong: assert math.isclose(fs, sum([1]*right + [-1]*wrong)/(right + wrong))
    else: assert fs == 0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), cosines, st.timedeltas(timedelta(days=-4000), timedelta(days=4000)))
def test_what_a_stored_memory_brings(right, wrong, silent, similarity, since):
    now = datetime(2026, 3, 1, tzinfo=timezone.utc)
    memory = Memory(id=1, user="ann", text="Bread is baked at four.", at=now - since, recalls=right + wrong + silent, correct=right, incorrect=wrong)
    c = components_of(memory, similarity, now.astimezone(timezone(timedelta(hours=5))))
    assert (c.recall_count, c.similarity, c.feedback) == (memory.recalls, similarity, feedback_score(right, wrong)) and math.isclose(c.age_days, abs(since/timedelta(days=1)), abs_tol=1e-6)
    assert list(relevance(c).parts) == list(PART_NAMES)


@pytest.mark.parametrize("given_, what", [
    (dict(recall_counts=[1, -1]), "candidate 1 has .-1.0"), (dict(ages=[0., -.5]), "candidate 1 has .2.0, -0.5"), (dict(ages=[float("nan"), 0]), "candidate 0"), (dict(ages=[0, float("inf")]), "candidate 1 has .2.0, inf"),
    (dict(similarities=[.5, float("inf")]), "finite"), (dict(feedbacks=[0, 1.5]), "-1..1"), (dict(feedbacks=[float("nan"), 0]), "-1..1"), (dict(similarities=[.5]), "for every candidate"),
    (dict(similarities=[[.5], [.5]]), "for every candidate"), (dict(recall_counts=[1.5, 2]), "whole number")])
def test_candidates_that_cannot_be(given_, what):
    with pytest.raises(ValueError, match=what): rank(**{"recall_counts": [1, 2], "ages": [0., 1.], "similarities": [.5, .5], "feedbacks": [0, 0]} | given_)


@pytest.mark.parametrize("broken", [lambda: feedback_score(-1, 0), lambda: preset("Fresh"), lambda: preset(None), lambda: Components(-1, 0, 0), lambda: Components(0, 0, 0, 1.1)])
def test_what_cannot_be(broken):
    with pytest.raises(ValueError): broken()


def test_nothing_to_rank():
    assert rank([], [], [], []).order.tolist() == [] and rank([], [], [], [], literal=True).values.tolist() == []


def test_why_the_first_beat_the_second():
    a, b = relevance(Components(1, 2, .8)), relevance(Components(6, 30, .9, -1))
    assert why_first(b, a).startswith("ahead by") and why_first(b, a).index("similarity +") < why_first(b, a).index("feedback -")
    assert "ties" in why_first(a, a)
    with pytest.raises(ValueError, match="better one first"): why_first(a, b)
    assert Score(1, .1, .2, .3, .4).parts == {"recall": .1, "recency": .2, "similarity": .3, "feedback": .4}


# trust

outcomes = st.lists(st.sampled_from([True, False, None]), max_size=40)
any_settings = st.builds(lambda alpha, w_a, more, penalty, threshold: TrustSettings(alpha=alpha, w_a=w_a, w_s=w_a + more, penalty=penalty, threshold=threshold),
                         st.floats(0, 1), st.floats(0, 5), st.floats(.1, 5), st.floats(.5, 1), st.floats(0, 1))


def exact(log) -> tuple[Fraction, Fraction]:
    "TS and PS in fractions, by the paper's numbers."
    ts = Fraction(1, 4)
    for n in range(1, len(log) + 1): ts = Fraction(4, 5)*ts + Fraction(1, 5)*Fraction(log[:n].count(True) + 1, n + 4)
    return ts, Fraction(len(log))/(len(log) + Fraction(1, 2)*log.count(False)) if log else Fraction(1)


@given(outcomes)
def test_trust_and_persistence_against_fractions(log):
    trust, (ts, ps) = replay(log), exact(log)
    assert (trust.total, trust.correct, trust.incorrect) == (len(log), log.count(True), log.count(False))
    assert math.isclose(trust.score, ts, rel_tol=1e-12) and math.isclose(trust.persistence(), ps, rel_tol=1e-12)
    needed = Fraction(17, 20)*(1 - ts)
    assume(abs(ts - Fraction(1, 4)) > 1e-9 and abs(ps - needed) > 1e-9)
    assert verdict(trust).kept == (not log or ts > Fraction(1, 4) or ps > needed)


@given(outcomes, any_settings)
def test_scores_stay_in_their_bounds(log, s):
    for trust in timeline(log, s):
        assert 0 <= trust.score <= 1 and 1/(1 + s.penalty) - 1e-12 <= trust.persistence(s) <= 1
    assert len(timeline(log, s)) == len(log) + 1 and timeline(log, s)[0] == new_trust(s)


@given(st.lists(st.booleans(), max_size=30), any_settings)
def test_no_order_leaves_the_range(log, s):
    low, high = trust_range(len(log), sum(log), s)
    assert low - 1e-9 <= replay(log, s).score <= high + 1e-9
    assert math.isclose(replay(sorted(log), s).score, low, abs_tol=1e-9) and math.isclose(replay(sorted(log, reverse=True), s).score, high, abs_tol=1e-9)


def test_the_range_is_reached_by_trying_every_order():
    for n in range(1, 7):
        for c in range(n + 1):
            tried = [replay(order).score for order in set(permutations([True]*c + [False]*(n - c)))]
            assert np.allclose((min(tried), max(tried)), trust_range(n, c)) and trust_range(0, 0) == (.25, .25)


@given(outcomes)
def test_silence_lowers_trust_as_an_error_does_but_not_persistence(log):
    quiet = replay([o or None for o in log])
    assert quiet.score == replay(log).score and quiet.persistence() == 1


@given(outcomes)
def test_praise_never_hurts(log):
    trust = replay(log)
    assert trust.after(True).score > trust.after(False).score and trust.after(True).persistence() >= trust.after(False).persistence()
    assert verdict(trust.after(True)).kept or not verdict(trust.after(False)).kept


def test_alpha_at_its_ends():
    log = [True, False, None, True, True]
    assert replay(log, TrustSettings(alpha=1)).score == .25
    assert math.isclose(replay(log, TrustSettings(alpha=0)).score, (3 + 1)/(5 + 4))


def test_a_memory_never_recalled_is_exempt_whatever_the_settings():
    for s in (PAPER, TrustSettings(threshold=1, w_a=0), TrustSettings(threshold=1, penalty=1, w_a=4)):
        assert verdict(new_trust(s), s).kept and "never recalled" in verdict(new_trust(s), s).reason


@given(outcomes.filter(len), any_settings)
def test_a_verdict_says_both_numbers_and_agrees_with_itself(log, s):
    trust = replay(log, s)
    v = verdict(trust, s)
    assert v.reason.startswith("kept" if v.kept else "dropped") and "trust" in v.reason and "persistence" in v.reason
    assert f"{trust.score:.3f}"[:4] in v.reason and f"{v.persistence:.3f}"[:4] in v.reason


def test_on_the_border_is_not_above_it():
    assert not verdict(Trust(4, 1, 3, .25), TrustSettings(threshold=1, penalty=1)).kept                  # trust is exactly a newcomer's, so persistence decides
    assert not verdict(Trust(1, 0, 1, .5), TrustSettings(w_a=2, threshold=1, penalty=1)).kept            # and persistence is exactly what it must exceed


def test_errors_to_drop():
    needed = [errors_to_drop([True]*n) for n in range(8)]
    assert needed[0] == 3 and needed == sorted(needed)
    for n, m in enumerate(needed):
        assert [verdict(t).kept for t in timeline([True]*n + [False]*m)][-2:] == [True, False]
    assert errors_to_drop(settings=TrustSettings(threshold=0), at_most=50) is None


# Table 7

def test_table_7_is_the_formulas():
    rows = table_7()
    assert [row for row, _, _ in rows] == list(TABLE_7)
    assert [kept for _, _, kept in rows] == [(True, True), (True, True), (False, False), (True, True), (True, True), (False, False)]


def test_table_7_against_fractions():
    log = [False, False, False, True, False]
    for n, (_, found, _) in enumerate(table_7()[:5], 1):
        e_ts, e_ps = exact(log[:n])
        assert np.allclose([*found["ts"], found["ps"][0], found["needed"][0]], [float(x) for x in (e_ts, e_ts, e_ps, Fraction(17, 20)*(1 - e_ts))], rtol=1e-12)


def test_the_last_row_of_table_7_cannot_be_reached():
    low, high = trust_range(50, 5)
    assert math.isclose(low, exact([False]*45 + [True]*5)[0]) and math.isclose(high, exact([True]*5 + [False]*45)[0])
    assert low < .07 and .12 < high < .125 and float(TABLE_7[-1].ts) > high


@pytest.mark.parametrize("broken", [lambda: TrustSettings(alpha=-.1), lambda: TrustSettings(alpha=float("nan")), lambda: TrustSettings(threshold=1.1), lambda: TrustSettings(penalty=.4), lambda: TrustSettings(w_a=-1), lambda: TrustSettings(w_s=.5),
                                    lambda: TrustSettings(w_s=float("inf")), lambda: Trust(1, -1, 0, .2), lambda: Trust(1, 1, 1, .2), lambda: Trust(1, 0, 0, float("nan")),
                                    lambda: trust_range(2, 3), lambda: trust_range(2, -1)])
def test_trust_that_cannot_be(broken):
    with pytest.raises(ValueError): broken()


@pytest.mark.parametrize("outcome", [1, 0, "right", .5, np.bool_(True)])
def test_outcomes_are_true_false_or_nothing(outcome):
    with pytest.raises(TypeError, match="True, False or None"): replay([True, outcome])
