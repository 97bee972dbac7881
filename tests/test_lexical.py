"BM25, with rank_bm25 as the oracle, on corpora that nobody chose."
import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.search.vectors import best_positions
from memkit.search.bm25 import BM25, STOP_WORDS, idf_weight, saturation, tokenize

words = st.sampled_from("fever cough aspirin warfarin liver heart stomach virus".split())
corpora = st.lists(st.lists(words, max_size=9).map(" ".join), min_size=1, max_size=9)
queries = st.lists(words, min_size=1, max_size=5).map(" ".join)


def oracle(texts, k1=1.5, b=.75):
    "rank_bm25 with weights of words that never fall to 0."
    from rank_bm25 import BM25Okapi
    corpus = [tokenize(t) for t in texts]
    index = BM25Okapi(corpus, k1=k1, b=b)
    index.idf = {w: float(idf_weight(sum(w in d for d in corpus), len(corpus))) for d in corpus for w in d}
    return lambda query: index.get_scores(tokenize(query))


@settings(max_examples=60, deadline=None)
@given(corpora, queries)
def test_scores_are_rank_bm25s(texts, query):
    if any(map(tokenize, texts)): assert np.allclose(BM25(texts).ranked(query, 1)[0], oracle(texts)(query), atol=1e-9, rtol=0)


def test_a_word_in_more_than_half_of_the_documents_still_counts():
    texts = ["fever", "fever cough", "fever aspirin"]
    common, rare = (BM25(texts).idf(w) for w in ("fever", "cough"))
    assert 0 < common < rare and [i for i, _ in BM25(texts).search("fever", 3)] == [0, 1, 2]


@settings(max_examples=60, deadline=None)
@given(corpora, queries)
def test_by_hand(texts, query):
    corpus = [tokenize(t) for t in texts]
    n, mean = len(corpus), sum(map(len, corpus))/len(corpus)
    def part(w, d):
        held = sum(w in c for c in corpus)
        return math.log(1 + (n - held + .5)/(held + .5))*d.count(w)*2.5/(d.count(w) + 1.5*(.25 + .75*len(d)/mean)) if d.count(w) else 0
    assert np.allclose(BM25(texts).ranked(query, 1)[0], [sum(part(w, d) for w in tokenize(query)) for d in corpus], atol=1e-9, rtol=0)


@settings(max_examples=60, deadline=None)
@given(corpora, queries, st.integers(1, 12))
def test_search_is_the_head_of_the_sorted_scores(texts, query, k):
    index = BM25(texts)
    scores = index.ranked(query, 1)[0].round(9)
    expected = sorted((i for i in range(len(texts)) if scores[i] > 0), key=lambda i: (-scores[i], i))[:k]
    assert [i for i, _ in index.search(query, k)] == expected


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(words, max_size=9).map(" ".join), min_size=1, max_size=30), queries, st.integers(1, 12))
def test_passing_over_what_is_below_the_floor_loses_nothing(texts, query, k):
    index = BM25(texts)
    scores, best = index.ranked(query, k)
    assert (scores == index.ranked(query, 1)[0]).all() and best.tolist() == best_positions(scores, k, above=0.).tolist() == [i for i, _ in index.search(query, k)]


@pytest.mark.parametrize("k1, b", [(.01, 0), (.5, .2), (3, 1)])
def test_other_settings(k1, b):
    texts = ["fever fever cough", "fever", "liver heart stomach"]
    f, one = BM25(texts, k1=k1, b=b).ranked("fever", 1)[0], idf_weight(2, 3)
    mean = 7/3
    assert f == pytest.approx([one*saturation(2, 3, mean, k1, b), one*saturation(1, 1, mean, k1, b), 0], abs=1e-9)


def test_repeated_words_of_the_query_count_again():
    index = BM25(["fever and cough", "liver"])
    assert index.ranked("fever fever", 1)[0] == pytest.approx(2*index.ranked("fever", 1)[0])


def test_words():
    assert tokenize("Crohn's disease; COVID-19!") == ["crohn", "disease", "covid", "19"]
    assert tokenize("ÄRZTE raten: 多喝水 δ-Wert") == ["ärzte", "raten", "多喝水", "δ", "wert"]
    assert tokenize("hepatitis B") == ["hepatitis", "b"]
    assert tokenize("the tablets", stop=frozenset(), plurals=False) == ["the", "tablets"]
    assert tokenize("blood_pressure") == ["blood", "pressure"]
    assert not STOP_WORDS & {"b", "c", "pain", "blood", "help"}


def test_a_corpus_of_stop_words_and_one_of_nothing():
    for texts in ([], ["the of and"], ["", " ", "!?"]):
        index = BM25(texts)
        assert len(index) == len(texts) and index.search("the fever", 4) == [] and index.idf("fever") >= 0


def test_unknown_words_beside_known_ones_change_nothing():
    index = BM25(["aspirin thins the blood", "fever"])
    assert index.search("aspirin zebra quux", 5) == index.search("aspirin", 5)


def test_many_threads_one_index():
    rng = random.Random(3)
    texts = [" ".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(300)]
    index = BM25(texts)
    alone = [index.search(q, 5) for q in "bcefghjk"]
    with ThreadPoolExecutor(4) as pool: assert list(pool.map(lambda q: index.search(q, 5), "bcefghjk"*5)) == alone*5


@pytest.mark.parametrize("wrong, says", [(lambda: BM25([], k1=0), "k1 must be above 0"),
    (lambda: BM25([], b=1.1), "b lie in 0..1"), (lambda: BM25(["a fever"]).search("fever", -1), "k must be 1"), (lambda: BM25(["x"]).search("a\0b"), "NUL"), (lambda: BM25(["x"]).search("\ud800"), "surrogate")])
def test_refusals(wrong, says):
    with pytest.raises(ValueError, match=says): wrong()
