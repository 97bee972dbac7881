"Which rows of a history are shown: properties of every selection, an oracle for the learned similarity, and what can't be."
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.maprec.items import Item, Rated
from memkit.maprec.prediction import SELECTIONS, Likeness, cosine, genre_overlap, learn_likeness, rare_genres, select

GENRES = ("Action", "Comedy", "Drama", "Film-Noir", "Horror")
items = st.builds(lambda n, g: Item(id=f"i{n}", title=f"Film {n}", genres=tuple(g)), st.integers(0, 30), st.lists(st.sampled_from(GENRES), max_size=3, unique=True))
histories = st.lists(st.builds(Rated, items, st.integers(1, 10).map(lambda n: n/2)), max_size=20)


@settings(max_examples=60, deadline=None)
@given(histories, items, st.one_of(st.none(), st.integers(1, 25)), st.sampled_from(SELECTIONS))
def test_a_selection_is_part_of_the_history(history, target, k, how):
    rows = select(history, target, k, how, genre_overlap)
    places = [next(i for i, r in enumerate(history) if r is x) for x in rows]
    wanted = len(history) if k is None or how == "all" else min(k, len(history))
    assert len(rows) == wanted == len(set(places)) or len({id(r) for r in history}) < len(history)
    assert places == sorted(places)
    assert select(history, target, k, how, genre_overlap) == rows


@settings(max_examples=60, deadline=None)
@given(histories, items, st.integers(1, 8))
def test_nothing_better_is_left_out(history, target, k):
    score = lambda rows: genre_overlap(target, [r.item for r in rows])
    for how in ("genres", "alike"):
        shown = select(history, target, k, how, genre_overlap)
        left = sorted(score(history))[:len(history) - len(shown)]
        if left and len(shown): assert min(score(shown)) >= max(left)


@settings(max_examples=40, deadline=None)
@given(st.lists(items, min_size=1, max_size=12), items)
def test_rare_genres_lie_in_0_1_and_are_symmetric(catalogue, target):
    similar = rare_genres(catalogue)
    values = similar(target, catalogue)
    assert ((values >= 0) & (values <= 1 + 1e-9)).all()
    assert np.allclose(values, [similar(i, [target])[0] for i in catalogue])


def test_a_rare_genre_weighs_more():
    noir, drama = (Item(id=g, title=g, genres=(g, "Short")) for g in ("Film-Noir", "Drama"))
    catalogue = [Item(id=str(i), title=str(i), genres=("Film-Noir" if i == 0 else "Drama",)) for i in range(20)]
    target = Item(id="t", title="t", genres=("Film-Noir", "Drama"))
    a, b = rare_genres(catalogue)(target, [noir, drama])
    assert a > b


def ratings_of(matrix: np.ndarray):
    user, item = np.nonzero(matrix)
    return SimpleNamespace(users=tuple(map(str, range(len(matrix)))), items=SimpleNamespace(items=tuple(Item(id=f"i{n}", title=f"Film {n}") for n in range(matrix.shape[1]))),
                           user=user, item=item, rating=matrix[user, item].astype(np.float32))


def test_learned_likeness_against_loops():
    rng = np.random.default_rng(3)
    matrix = rng.integers(1, 6, (12, 7))*(rng.random((12, 7)) < .7)
    found, seen, pull, shrink = learn_likeness(ratings_of(matrix), range(12), 5.), matrix > 0, 10., 5.
    mean = matrix[seen].mean()
    of_item = [(matrix[seen[:, i], i] - mean).sum()/(seen[:, i].sum() + pull) for i in range(7)]
    of_user = [sum(matrix[u, i] - mean - of_item[i] for i in range(7) if seen[u, i])/(seen[u].sum() + pull) for u in range(12)]
    rest = lambda u, i: matrix[u, i] - mean - of_item[i] - of_user[u] if seen[u, i] else 0.
    for i in range(7):
        for j in range(7):
            both = sum(seen[u, i] and seen[u, j] for u in range(12))
            length = (sum(rest(u, i)**2 for u in range(12))*sum(rest(u, j)**2 for u in range(12)))**.5
            wanted = 1. if i == j else sum(rest(u, i)*rest(u, j) for u in range(12))/length*both/(both + shrink)
            assert found.matrix[i, j] == pytest.approx(wanted, abs=1e-5)


def test_others_ratings_only():
    "What a user outside the group rated changes nothing."
    rng = np.random.default_rng(4)
    matrix = rng.integers(1, 6, (10, 6))
    changed = matrix.copy()
    changed[8:] = 6 - changed[8:]
    a, b = (learn_likeness(ratings_of(m), range(8)) for m in (matrix, changed))
    assert (a.matrix == b.matrix).all()


def test_unknown_items_are_like_nothing():
    like = Likeness({"a": 0, "b": 1}, np.array([[1, .5], [.5, 1]], np.float32))
    a, b, new = (Item(id=n, title=n) for n in ("a", "b", "new"))
    assert like(a, [a, b, new]).tolist() == [1, .5, 0]
    assert like(new, [a, b, new]).tolist() == [0, 0, 0]
    assert len(like(a, [])) == 0


def test_cosine_embeds_each_text_once():
    class Counting:
        name, dim, seen = "counting", 3, []
        def embed(self, texts, kind="document"):
            self.seen += texts
            return np.array([[len(t), 1., 0.] for t in texts], np.float32)
    embedder = Counting()
    similar = cosine(embedder, "genres")
    films = [Item(id=str(n), title=f"Film {n}", genres=("Drama",)*(n % 2)) for n in range(4)]
    first = similar(films[0], films)
    assert np.allclose(similar(films[0], films), first) and first[0] == pytest.approx(1) and len(embedder.seen) == len(set(embedder.seen)) == 3
    assert similar(films[0], []).shape == (0,)


@pytest.mark.parametrize("wrong, says", [(dict(k=0), "k must be"), (dict(how="best"), "genres, cosine"), (dict(how="cosine"), "needs a similarity"), (dict(how="alike"), "needs a similarity")])
def test_refused(wrong, says):
    with pytest.raises(ValueError, match=says): select([], Item(id="t", title="t"), **wrong)


def test_learning_needs_ratings():
    with pytest.raises(ValueError, match="no rating"): learn_likeness(ratings_of(np.ones((2, 2))), [])
    with pytest.raises(ValueError, match="above 0"): learn_likeness(ratings_of(np.ones((2, 2))), [0], 0)
