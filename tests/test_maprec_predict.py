"Rating prediction without a language model."
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.experiments.map.single import prediction_cases, classical_rows, classical_scores, folds
from memkit.maprec.classical import (
    CONTROLS, PredictorInput, TrainingRatings, fit_biases, fit_factors, fit_user_mean, fit_user_median, joined_cases, seen, similarities, star_of)
from memkit.maprec.network import NetworkSettings, crossfitted, features, fit_networks, fit_stars, fit_statistics, matrix, history_windows
from memkit.maprec.prediction import decode
from memkit.maprec.ratings import simulated_ratings

FEW = ((2, 20.),)
LIGHT = NetworkSettings(members=1, hidden=8, epochs=1, batch=256, factors=FEW)
shares_of = lambda raw: np.asarray(raw)/np.sum(raw, -1, keepdims=True)
rows_of_shares = st.lists(st.lists(st.floats(.001, 1), min_size=5, max_size=5), min_size=1, max_size=6).map(shares_of)


@pytest.fixture(scope="module")
def ratings(): return simulated_ratings(80)


@pytest.fixture(scope="module")
def stats(ratings): return fit_statistics(seen(ratings, range(60)), ratings.items, FEW)


@pytest.fixture(scope="module")
def predictor(ratings): return fit_stars(ratings, range(60), settings=LIGHT)


# --- controls

def check_rating_predictor(make):
    "One number between .5 and 5 for each case, cold starts too; rows don't depend on each other, nor on padding."
    rng = np.random.default_rng(0)
    rated = TrainingRatings(
        np.repeat(np.arange(20), 6), np.concatenate([rng.permutation(10)[:6] for _ in range(20)]),
        rng.integers(1, 6, 120).astype(float), 20, 12)
    p = make(rated)
    known = np.array([[0, 3, 5], [2, -1, -1], [-1, -1, -1], [4, 11, -1]])
    rating = np.array([[5, 4, 1], [2, 0, 0], [0, 0, 0], [3, 4.5, 0]])
    target = np.array([7, 11, -1, 0])
    got = p.predict(PredictorInput(known, rating, target))
    assert got.shape == (4,) and ((got >= .5) & (got <= 5)).all(), "one number between .5 and 5 for each case"
    alone = [p.predict(PredictorInput(known, rating, target).at([i]))[0] for i in range(4)]
    assert np.allclose(got, alone, atol=1e-5), "a row must not depend on the others"
    wider = p.predict(PredictorInput(np.pad(known, ((0, 0), (0, 2)), constant_values=-1), np.pad(rating, ((0, 0), (0, 2))), target))
    assert np.allclose(got, wider, atol=1e-5), "padding must not count"


@pytest.mark.parametrize("name", CONTROLS)
def test_every_control_keeps_the_contract(name): check_rating_predictor(partial(fit_factors, k=3, rounds=4) if name == "factors" else CONTROLS[name])


def tiny(rng, n_users=8, n_items=5):
    pairs = [(u, i) for u in range(n_users) for i in range(n_items) if rng.random() < .7]
    user, item = np.array(pairs).T
    return TrainingRatings(np.unique(user, return_inverse=True)[1], item, rng.integers(1, 6, len(user)).astype(float), len(set(user.tolist())), n_items)


@pytest.mark.parametrize("seed", range(3))
def test_similarities_by_hand(seed):
    s = tiny(np.random.default_rng(seed))
    b = fit_biases(s)
    found, both = similarities(s, b)
    rest = {(u, i): r - b.mean - b.item[i] - b.user[u] for u, i, r in zip(s.user.tolist(), s.item.tolist(), s.rating.tolist())}
    for i in range(5):
        for j in range(5):
            a = [(rest[u, i], rest[u, j]) for u in range(s.n_users) if (u, i) in rest and (u, j) in rest]
            assert both[i, j] == len(a)
            if not a: continue
            x, y = np.array(a).T
            assert found[i, j] == pytest.approx(x @ y/np.sqrt(x @ x*(y @ y) + 1e-9)*len(a)/(len(a) + 50), abs=1e-4)


def test_biases_solve_their_ridge():
    s = tiny(np.random.default_rng(1))
    b = fit_biases(s, 2., 3., rounds=400)
    x = np.zeros((len(s.rating), s.n_items + s.n_users))
    x[np.arange(len(x)), s.item], x[np.arange(len(x)), s.n_items + s.user] = 1, 1
    exact = np.linalg.solve(x.T @ x + np.diag([2.]*s.n_items + [3.]*s.n_users), x.T @ (s.rating - s.rating.mean()))
    assert np.concatenate([b.item[:-1], b.user]) == pytest.approx(exact, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 10).map(lambda x: x/2), min_size=1, max_size=9))
def test_user_mean_and_median(rated):
    s = tiny(np.random.default_rng(0), n_items=12)
    case = np.arange(len(rated))[None], np.array([rated]), np.array([11])
    assert fit_user_mean(s).predict(PredictorInput(*case))[0] == pytest.approx(np.mean(rated)) and fit_user_median(s).predict(PredictorInput(*case))[0] == pytest.approx(np.median(rated))


def test_the_variance_falls_with_what_is_known(ratings):
    f = fit_factors(seen(ratings, range(60)), k=4)
    rows = ratings.of(70)[:10]
    known, rating = np.tile(ratings.item[rows], (11, 1)), np.tile(ratings.rating[rows], (11, 1))*(np.arange(10) < np.arange(11)[:, None])
    mean, variance = f.moments(PredictorInput(known, rating, np.full(11, 5)))
    assert (np.diff(variance) <= 1e-12).all() and variance[0] == pytest.approx(f.noise + f.loading[5] @ f.loading[5]) and mean[0] == pytest.approx(f.mean[5])


def test_a_rating_of_an_unknown_item_counts_for_the_user(ratings):
    b = fit_biases(seen(ratings, range(60)))
    one = lambda r: b.predict(PredictorInput(np.array([[-1]]), np.array([[r]]), np.array([3])))[0]
    assert one(5.) > b.predict(PredictorInput(np.array([[-1]]), np.zeros((1, 1)), np.array([3])))[0] > one(1.)


# --- features

def test_windows_never_show_the_target(ratings):
    w = history_windows(ratings, range(60), 1.)
    for row in range(0, len(w), 97):
        h = (w.known[row] >= 0).sum()
        rows = ratings.of(w.user[row]).tolist()
        at = next(k for k, r in enumerate(rows) if ratings.item[r] == w.target[row])
        assert 1 <= h <= 18 and w.known[row, :h].tolist() == ratings.item[rows[at - h:at]].tolist() and w.truth[row] == ratings.rating[rows[at]]
    assert len(joined_cases(type(w), w, w)) == 2*len(w)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_features_are_finite_and_do_not_see_padding(stats, data):
    h = data.draw(st.integers(0, 18))
    known = np.full((1, 18), -1)
    known[0, :h] = data.draw(st.lists(st.integers(-1, len(stats.biases.item) - 2), min_size=h, max_size=h))
    rating = np.zeros((1, 18))
    rating[0, :h] = data.draw(st.lists(st.sampled_from([.5, 1, 2.5, 3, 4, 5]), min_size=h, max_size=h))
    target = np.array([data.draw(st.integers(-1, len(stats.biases.item) - 2))])
    full, wide = features(stats, PredictorInput(known, rating, target)), features(stats, PredictorInput(np.pad(known, ((0, 0), (0, 4))), np.pad(rating, ((0, 0), (0, 4))), target))
    for name, value in full.items():
        assert value.shape == (1,) and np.isfinite(value).all(), name
        assert value == pytest.approx(wide[name], abs=1e-6), name


def test_features_in_a_batch_are_those_alone(ratings, stats):
    w = history_windows(ratings, range(60, 80), .3)
    assert matrix(stats, w, batch=7) == pytest.approx(matrix(stats, w), abs=1e-5)


def test_cross_fitting_leaves_the_users_own_ratings_out(ratings):
    "Changing what a user rated outside a case must not change that case's features."
    w = history_windows(ratings, range(20), .3)
    before = crossfitted(ratings, range(20), w, parts=2, factors=FEW)
    from dataclasses import replace
    rating = ratings.rating.copy()
    rating[ratings.user == 4] = 6 - rating[ratings.user == 4]
    after = crossfitted(replace(ratings, rating=rating), range(20), w, parts=2, factors=FEW)
    same, others = w.user == 4, w.user != 4
    assert before[same] == pytest.approx(after[same], abs=1e-5) and np.abs(before[others] - after[others]).max() > 1e-3


@pytest.mark.parametrize("users, parts", [(range(5), 2), (range(20), 1), (range(20), 21)])
def test_cross_fitting_that_cannot_be(ratings, users, parts):
    with pytest.raises(ValueError): crossfitted(ratings, users, history_windows(ratings, range(20), .1), parts)


# --- deciding

@settings(max_examples=60, deadline=None)
@given(rows_of_shares)
def test_no_answer_errs_less_than_the_median(shares):
    error = lambda answer: (shares*np.abs(np.arange(1, 6) - answer[:, None])).sum(1)
    best = error(decode(shares))
    for a in np.linspace(1, 5, 33): assert (best <= error(np.full(len(shares), a)) + 1e-6).all()


def test_halves_round_up(): assert star_of(np.array([0, .5, 2.5, 4.4, 5])).tolist() == [0, 1, 3, 4, 5]


# --- networks

def test_numpy_runs_what_torch_trained():
    import torch
    rng = np.random.default_rng(0)
    x, truth = rng.normal(size=(300, 4)).astype(np.float32), rng.integers(1, 6, 300).astype(float)
    state = torch.random.get_rng_state()
    net = fit_networks(x, truth, LIGHT)
    assert torch.equal(state, torch.random.get_rng_state()), "the caller's random numbers are left alone"
    (w0, b0), (w1, b1), (w2, b2) = (tuple(map(torch.as_tensor, layer)) for layer in net.members[0])
    silu = torch.nn.functional.silu
    out = silu(silu(torch.as_tensor(net.scale(x)) @ w0 + b0) @ w1 + b1) @ w2 + b2
    assert net.shares(x) == pytest.approx(out.softmax(1).numpy(), abs=1e-5)


def test_the_predictor_keeps_the_contract_and_is_cold_safe(ratings, predictor):
    n = predictor.statistics.biases.item.size - 1
    p = predictor.shares(PredictorInput(np.full((2, 18), -1), np.zeros((2, 18)), np.array([0, -1])))
    assert p.sum(1) == pytest.approx([1, 1]) and set(predictor.predict(PredictorInput(np.array([[0, -1]]), np.array([[5., 0]]), np.array([n - 1])))) <= {1., 2., 3., 4., 5.}


# --- all folds

def test_scoring_never_lets_test_ratings_in(ratings):
    "Turning a test user's later ratings upside down must not move anything that was predicted for them."
    from dataclasses import replace
    parts, kw = folds(ratings, 2), dict(orders=(0,), history=5, settings=LIGHT)
    a = classical_scores(ratings, parts, **kw)
    u = int(parts[0].test[0])
    c = prediction_cases(ratings, [u], (0,), 5)
    late = (ratings.user == u) & ~np.isin(ratings.item, c.known[-1])
    rating = ratings.rating.copy()
    rating[late] = 6 - rating[late]
    b = classical_scores(replace(ratings, rating=rating), parts, **kw)
    mine = a.cases.user == u
    for name, p in a.predicted.items(): assert p[mine] == pytest.approx(b.predicted[name][mine], abs=1e-6), name
    assert len({r["row"] for r in classical_rows(a, "Table 1")}) > 20
