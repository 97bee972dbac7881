"Fusion: an oracle written another way, ties, and the properties that must hold for any lists."
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.search.fusion import check_weights, guarantee, rrf, stretched, weighted_columns

ids = st.integers(0, 12)
rankings = st.lists(st.lists(ids, unique=True, max_size=8), min_size=1, max_size=4)
columns_of = st.lists(st.tuples(*[st.integers(-3, 3).map(float)]*3), min_size=1, max_size=12).map(lambda rows: [np.array(c) for c in zip(*rows)])


def slow_rrf(rankings, k=60):
    "Exact fractions, one document at a time; ties by the first ranking that tells the two apart."
    def score(d): return sum((Fraction(1, k + r.index(d) + 1) for r in rankings if d in r), Fraction())
    def place(d): return tuple(r.index(d) if d in r else 10**9 for r in rankings)
    found = {d for r in rankings for d in r}
    return [(d, score(d)) for d in sorted(found, key=lambda d: (-score(d), place(d)))]


def weighted(scores, weights):
    "Min-max score fusion of {id: score}, one document at a time: (id, score), best first, ties to the earlier list."
    def scaled(of, d):
        low, high = min(of.values()), max(of.values())
        return (of[d] - low)/(high - low) if high > low else 1.
    parts = {d: [scaled(of, d) for of in scores] for d in scores[0]}
    fused = {d: sum(w*x for w, x in zip(weights, p))/sum(weights) for d, p in parts.items()}
    return sorted(fused.items(), key=lambda ds: (-ds[1], [-x for x in parts[ds[0]]]))


@given(rankings)
def test_rrf_is_the_oracle(lists):
    ours, exact = rrf(lists), slow_rrf(lists)
    assert [d for d, _ in ours] == [d for d, _ in exact]
    assert [s for _, s in ours] == pytest.approx([float(s) for _, s in exact], abs=1e-15)


@given(rankings)
def test_order_of_the_lists_changes_no_score(lists):
    first = dict(rrf(lists))
    for other in list(permutations(lists))[:6]: assert dict(rrf(other)) == first


@given(rankings, st.data())
def test_a_better_rank_never_lowers_the_score(lists, data):
    which = data.draw(st.integers(0, len(lists) - 1))
    if len(lists[which]) < 2: return
    at = data.draw(st.integers(1, len(lists[which]) - 1))
    d, before = lists[which][at], dict(rrf(lists))
    lists[which][at - 1:at + 1] = lists[which][at - 1:at + 1][::-1]
    assert dict(rrf(lists))[d] >= before[d]


@pytest.mark.parametrize("lists, order", [([["a", "b"], ["b", "a"]], "ab"), ([["b"], ["a"]], "ba"), ([[], ["z", "y"]], "zy"),
    ([["a", "b", "c"], ["c", "b", "a"]], "acb"), ([["a"], ["b"], ["b"]], "ba")])
def test_ties_go_to_the_earlier_ranking(lists, order): assert "".join(d for d, _ in rrf(lists)) == order


def test_two_first_places_beat_one_and_k_flattens():
    assert dict(rrf([["a"], ["a"]]))["a"] == pytest.approx(2/61)
    sharp, flat = dict(rrf([["a", "b"]], k=0)), dict(rrf([["a", "b"]], k=1000))
    assert sharp["a"]/sharp["b"] == 2 and flat["a"]/flat["b"] < 1.001


@given(rankings)
def test_equal_weights_are_no_weights(lists): assert rrf(lists, weights=[1]*len(lists)) == rrf(lists)


def test_a_weight_of_nothing_silences_a_list():
    scores = dict(rrf([["a"], ["b"]], weights=[1, 0]))
    assert scores == {"a": 1/61, "b": 0}


def test_nothing_from_nothing():
    assert rrf([]) == rrf([[], []]) == []


@given(rankings, st.integers(1, 6))
def test_guarantee_keeps_k_and_one_of_the_dense(lists, k):
    fused, dense = rrf(lists), lists[-1]
    kept = guarantee(fused, dense, k)
    assert len(kept) == min(k, len(fused)) and len({d for d, _ in kept}) == len(kept)
    assert not dense or any(d in dense for d, _ in kept)
    assert kept[:k - 1] == fused[:k - 1]


def test_guarantee_takes_the_best_dense_one():
    fused = [("a", .9), ("b", .8), ("c", .7), ("y", .2), ("x", .1)]
    assert guarantee(fused, ["x", "y"], 2) == [("a", .9), ("x", .1)]
    assert guarantee(fused, ["nobody", "y"], 1) == [("y", .2)]
    assert guarantee(fused, ["c"], 3) == fused[:3]


@given(columns_of, st.floats(.5, 20), st.integers(-30, 30))
def test_min_max_fusion_ignores_scale_and_shift(columns, scale, shift):
    moved = [columns[0]*scale + shift, *columns[1:]]
    assert weighted_columns(moved, [1, 1, 1])[1] == pytest.approx(weighted_columns(columns, [1, 1, 1])[1], abs=1e-9)


def test_only_the_ratio_of_the_weights_matters():
    columns = [np.array([3., 1., 2.]), np.array([0., 9., 8.])]
    order, score = weighted_columns(columns, [3, 1])
    assert score == pytest.approx(weighted_columns(columns, [.75, .25])[1]) and order.tolist() == [0, 2, 1]
    assert weighted_columns([np.array([0., 1.]), np.array([1., 0.])], [1, 1])[0].tolist() == [1, 0], "ties go to the first"


@settings(max_examples=80, deadline=None)
@given(columns_of, st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3)))
def test_columns_are_fused_as_dictionaries_are(columns, weights):
    order, score = weighted_columns(columns, weights)
    plain = weighted([dict(enumerate(c)) for c in columns], weights)
    assert score == pytest.approx([s for _, s in plain])
    assert all(0 <= x <= 1 for c in columns for x in stretched(c))
    assert stretched(np.array([])).tolist() == [] and stretched(np.array([3.])).tolist() == [1]
    value = dict(plain)
    for a, b in zip(order, order[1:]): assert value[a] >= value[b] - 1e-12


@pytest.mark.parametrize("wrong, says", [(lambda: rrf([["a", "a"]]), "ranking 1 names a document twice"), (lambda: rrf([["a"]], k=-1), "k must be 0 or more"),
    (lambda: rrf([["a"]], weights=[0]), "one above 0"), (lambda: rrf([["a"]], weights=[float("nan")]), "finite"), (lambda: check_weights([1, 2], 1), "2 weights for 1 lists"),
    (lambda: guarantee([("a", 1.)], ["a"], 0), "k must be 1 or more")])
def test_refusals(wrong, says):
    with pytest.raises(ValueError, match=says): wrong()
