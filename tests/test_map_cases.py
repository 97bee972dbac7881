"The protocol of MAP's single-domain experiment: who is in which fold, what is known when, and errors by user."
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.experiments.map.single import prediction_cases, folds, mae_difference, mean_mae, ordered_rows, user_errors
from memkit.maprec.ratings import simulated_ratings


def made(n_users=30, per_user=12, ties=3, seed=0):
    "Users with `per_user` ratings each, `ties` of them at a time; rows in a random order."
    rng = np.random.default_rng(seed)
    user, item = np.repeat(np.arange(n_users), per_user), np.concatenate([rng.permutation(40)[:per_user] for _ in range(n_users)])
    at, mix = np.tile(np.arange(per_user)//ties, n_users), rng.permutation(n_users*per_user)
    rating = rng.integers(1, 6, len(user)).astype(np.float32)
    return SimpleNamespace(users=tuple(f"u{i}" for i in range(n_users)), items=range(40), user=user[mix], item=item[mix], rating=rating[mix], at=at[mix])


@pytest.fixture(scope="module")
def ratings(): return made()


def test_folds_are_a_partition_and_follow_the_id(ratings):
    parts = folds(ratings)
    assert sorted(np.concatenate([f.test for f in parts]).tolist()) == list(range(30))
    for f in parts:
        assert sorted(np.concatenate(list(f)).tolist()) == list(range(30))
        assert f.others.tolist() == sorted([*f.train.tolist(), *f.tune.tolist()])
    turned = SimpleNamespace(**{**vars(ratings), "users": ratings.users[::-1]})
    for f, g in zip(parts, folds(turned)):
        assert {ratings.users[u] for u in f.test} == {turned.users[u] for u in g.test}
        assert {ratings.users[u] for u in f.tune} == {turned.users[u] for u in g.tune}


@pytest.mark.parametrize("k, tune", [(1, .2), (5, 0), (5, 1), (29, .2)])
def test_folds_that_cannot_be(ratings, k, tune):
    with pytest.raises(ValueError): folds(ratings, k, tune)


def test_orders_break_ties_only(ratings):
    found = [ordered_rows(ratings, 3, o) for o in range(6)]
    for rows in found:
        assert (np.diff(ratings.at[rows]) >= 0).all() and set(rows.tolist()) == set(np.flatnonzero(ratings.user == 3).tolist())
    assert len({tuple(ratings.item[r].tolist()) for r in found}) > 1
    single = made(ties=1)
    assert len({tuple(single.item[ordered_rows(single, 3, o)].tolist()) for o in range(6)}) == 1


def test_orders_do_not_depend_on_the_file(ratings):
    mix = np.random.default_rng(5).permutation(len(ratings.user))
    other = SimpleNamespace(users=ratings.users, items=ratings.items, **{c: getattr(ratings, c)[mix] for c in ("user", "item", "rating", "at")})
    for o in range(3): assert (ratings.item[ordered_rows(ratings, 7, o)] == other.item[ordered_rows(other, 7, o)]).all()


@settings(max_examples=20, deadline=None)
@given(history=st.integers(1, 11), orders=st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), users=st.lists(st.integers(0, 29), min_size=1, max_size=5, unique=True))
def test_a_case_holds_what_came_before_and_nothing_else(history, orders, users):
    ratings = made()
    c = prediction_cases(ratings, users, orders, history)
    assert len(c) == len(users)*len(orders)*history
    for row in np.random.default_rng(0).integers(0, len(c), 5):
        rows = ordered_rows(ratings, c.user[row], c.order[row])
        h = c.h[row]
        assert (c.known[row, :h] == ratings.item[rows[:h]]).all() and (c.known[row, h:] == -1).all() and (c.known_rating[row, h:] == 0).all()
        assert c.target[row] == ratings.item[rows[h]] and c.truth[row] == ratings.rating[rows[h]]
        assert c.target[row] not in c.known[row, :h]


def test_short_histories_are_left_out(ratings):
    assert len(prediction_cases(ratings, range(30), (0,), 11)) == 330
    with pytest.raises(ValueError, match="shorter history"): prediction_cases(ratings, range(30), (0,), 12)
    with pytest.raises(ValueError, match="one order"): prediction_cases(ratings, range(30), (), 5)


def test_errors_are_means_by_user(ratings):
    c = prediction_cases(ratings, range(30), (0, 1), 6)
    p = np.full(len(c), 3.)
    assert user_errors(c, p) == pytest.approx([np.abs(c.truth[c.user == u] - 3).mean() for u in range(30)])
    assert mean_mae(c, p).n == 30 and mean_mae(c, c.truth).high == 0
    d = mae_difference(c, c.truth, p)
    assert d.mean == pytest.approx(-mean_mae(c, p).mean) and d.high < 0


def test_simulated_raters_go_through():
    r = simulated_ratings(40)
    c = prediction_cases(r, range(40))
    assert (c.known >= 0).sum(1).tolist() == c.h.tolist() and len(c) == 40*3*18
    assert len(c.of([3, 5])) == 2*54 and set(c.of([3, 5]).user.tolist()) == {3, 5}
