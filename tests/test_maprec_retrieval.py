"Which rows of a history are shown: properties of every selection, and what can't be."
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.maprec.items import Item, Rated
from memkit.maprec.prediction import SELECTIONS, text_cosine, genre_overlap, select

GENRES = ("Action", "Comedy", "Drama", "Film-Noir", "Horror")
items = st.builds(lambda n, g: Item(id=f"i{n}", title=f"Film {n}", genres=tuple(g)), st.integers(0, 30), st.lists(st.sampled_from(GENRES), max_size=3, unique=True))
histories = st.lists(st.builds(Rated, items, st.integers(1, 10).map(lambda n: n/2)), max_size=20)


@settings(max_examples=60, deadline=None)
@given(histories, items, st.one_of(st.none(), st.integers(1, 25)), st.sampled_from(SELECTIONS))
def test_a_selection_is_part_of_the_history(history, target, k, how):
    rows = select(history, target, k, how, genre_overlap)
    places = [next(i for i, r in enumerate(history) if r is x) for x in rows]
    wanted = len(history) if k is None else min(k, len(history))
    assert len(rows) == wanted == len(set(places)) or len({id(r) for r in history}) < len(history)
    assert places == sorted(places)
    assert select(history, target, k, how, genre_overlap) == rows


@settings(max_examples=60, deadline=None)
@given(histories, items, st.integers(1, 8))
def test_nothing_better_is_left_out(history, target, k):
    score = lambda rows: genre_overlap(target, [r.item for r in rows])
    for how in ("genres", "cosine"):
        shown = select(history, target, k, how, genre_overlap)
        left = sorted(score(history))[:len(history) - len(shown)]
        if left and len(shown): assert min(score(shown)) >= max(left)


def test_cosine_embeds_each_text_once():
    class Counting:
        name, dim, seen = "counting", 3, []
        def embed(self, texts, kind="document"):
            self.seen += texts
            return np.array([[len(t), 1., 0.] for t in texts], np.float32)
    embedder = Counting()
    similar = text_cosine(embedder, "genres")
    films = [Item(id=str(n), title=f"Film {n}", genres=("Drama",)*(n % 2)) for n in range(4)]
    first = similar(films[0], films)
    assert np.allclose(similar(films[0], films), first) and first[0] == pytest.approx(1) and len(embedder.seen) == len(set(embedder.seen)) == 3
    assert similar(films[0], []).shape == (0,)


@pytest.mark.parametrize("wrong, says", [(dict(k=0), "k must be"), (dict(how="best"), "genres, cosine"), (dict(how="cosine"), "needs a similarity")])
def test_refused(wrong, says):
    with pytest.raises(ValueError, match=says): select([], Item(id="t", title="t"), **wrong)
