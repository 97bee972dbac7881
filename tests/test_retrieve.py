"Retrieval: the contract in every mode, the paper's mode against an oracle, edges, threads."
import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.search import documents as module
from memkit.search.vectors import ChromaIndex, ExactIndex, corpus_index
from memkit.search.bm25 import BM25, tokenize
from memkit.search.documents import asked, passages, question_readings
from memkit.records import Document, Hit
from memkit.search.documents import FUSIONS, PAPER, FusedRetriever, RetrieveSettings, check_retriever, coverage, index_documents, products, rarest
from test_fusion import weighted


class TrigramEmbedder:
    "Counts of letter trigrams, projected at random with a fixed seed: texts that share letters get like vectors. For tests only."
    name, unit = "trigrams-for-tests", True

    def __init__(self, dim=48, scale=1.):
        self.dim, self.scale, self.calls = dim, scale, 0
        self.unit = scale == 1.
        self.table = np.random.default_rng(0).normal(size=(27**3, dim)).astype(np.float32)

    def embed(self, texts, kind="document"):
        self.calls += 1
        out = np.zeros((len(texts), self.dim), np.float32)
        for row, text in enumerate(texts):
            codes = [ord(c) - 96 if "a" <= c <= "z" else 0 for c in f" {text.lower()} "]
            for a, b, c in zip(codes, codes[1:], codes[2:]): out[row] += self.table[729*a + 27*b + c]
        return self.scale*out/np.linalg.norm(out, axis=1, keepdims=True)


TOPICS = "warfarin aspirin ibuprofen influenza asthma diabetes migraine eczema".split()
FACTS = ("thins the blood and may cause bleeding", "is treated with rest and fluids", "needs a test of the blood every month", "runs in families", "often begins in childhood", "gets worse at night")


def corpus(n=40, seed=1):
    rng = random.Random(seed)
    return [Document(id=f"doc-{i}", title=rng.choice(TOPICS).capitalize(), text=" ".join(f"{rng.choice(TOPICS).capitalize()} {rng.choice(FACTS)}." for _ in range(rng.randrange(1, 40)))) for i in range(n)]


def make(documents, settings=RetrieveSettings()): return FusedRetriever(documents, TrigramEmbedder(), settings, keep_vectors=False)


QUERIES = ("Does warfarin thin the blood?", "asthma", "I slept badly and my head hurts. My sister has asthma. Does it get worse at night? Thank you!", "zebra", "the of and", "???")


@pytest.mark.parametrize("settings", [RetrieveSettings(fusion=f) for f in FUSIONS] + [PAPER, RetrieveSettings(pool=1), RetrieveSettings(titles=False, rare_words=0, spelling=False, several=False, question_weight=0.)], ids=str)
def test_contract(settings): check_retriever(lambda documents: make(documents, settings))


def paper_oracle(documents, query, kept=5):
    "Section 5.1 said again: five of either search, votes of 1/(60 + rank), ties to BM25, one of the dense side."
    text = [f"{d.title}\n{d.text}" for d in documents]
    by_words = [i for i, _ in BM25(text).search(query, 5)]
    e = TrigramEmbedder()
    q, near = e.embed([query])[0], []
    for i, d in enumerate(documents):
        short = len(passages(d.text)) == 1
        near.append((-round(float(e.embed([f"{d.title}\n{passages(d.text)[0] if short else d.text}"])[0] @ q), 6), i))
    dense = [i for _, i in sorted(near)[:5]]
    votes = {i: sum(1/(60 + r.index(i) + 1) for r in (by_words, dense) if i in r) for i in by_words + dense}
    place = lambda r, i: r.index(i) if i in r else 99
    order = sorted(votes, key=lambda i: (-round(votes[i], 12), place(by_words, i), place(dense, i)))
    best = order[:kept]
    if not set(best) & set(dense): best[-1] = dense[0]
    return [documents[i].id for i in best]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("kept", [1, 2, 5, 10])
def test_the_papers_mode_is_the_paper(query, kept):
    documents = corpus()
    assert [h.item.id for h in make(documents, PAPER).search(query, kept)] == paper_oracle(documents, query, kept)


def test_one_place_and_it_is_the_dense_sides():
    documents = [Document(id="w", text="zyx"), Document(id="d", text="asthmatic asthmas")]
    for i in range(5): documents.append(Document(id=f"pad{i}", text=f"asthma {'quux ' * 30}"))
    found = make(documents, replace(PAPER, each=1)).search("asthma", 1)
    assert found[0].parts["dense rank"] == 1


def plain_search(documents, query, s, embedder):
    "The default search by its definition: lists, loops and a dictionary for each side; every document is compared with everything."
    dot = lambda a, b: math.fsum(float(x)*float(y) for x, y in zip(a, b))
    titled = lambda d, text: f"{d.title}\n{text}"
    q, part = embedder.embed([query], "query")[0], asked(query)
    if part != query:
        q = q + s.question_weight*embedder.embed([part], "query")[0]
        q = q/np.linalg.norm(q)
    bm25 = BM25([titled(d, d.text) for d in documents], k1=s.k1, b=s.b)
    known = [w for w in dict.fromkeys(tokenize(query)) if w in bm25.holding]
    sought, _ = bm25.ranked(" ".join(sorted(known, key=lambda w: bm25.holding[w])[:s.rare_words]), 1)
    words = {i: float(x) for i, x in enumerate(sought)}
    each = [[(dot(embedder.embed([titled(d, p)])[0], q), i, n) for n, p in enumerate(passages(d.text, s.passage_words, s.passage_overlap))] for i, d in enumerate(documents)]
    passage = {i: max(x for x, *_ in rows) for i, rows in enumerate(each)}
    whole = {i: dot(embedder.embed([titled(d, d.text)])[0], q) for i, d in enumerate(documents)}
    best = lambda side: sorted(side, key=lambda i: (-round(side[i], 6), i))
    near = [i for _, i, _ in sorted((x for rows in each for x in rows), key=lambda x: (-round(x[0], 6), x[1], x[2]))[:2*s.pool]]
    pool = sorted({*[i for i in best(words) if words[i] > 0][:s.pool], *best(whole)[:s.pool], *list(dict.fromkeys(near))[:s.pool]})
    return weighted([{i: side[i] for i in pool} for side in (words, passage, whole)], [s.bm25_weight, s.passage_weight, s.whole_weight])


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("pool", [3, 50])
def test_the_default_search_is_its_definition(query, pool):
    documents, s = corpus(30, seed=7), RetrieveSettings(pool=pool)
    expected = plain_search(documents, query, s, TrigramEmbedder())
    hits = make(documents, s).candidates(query)
    assert {h.item.id for h in hits} == {documents[i].id for i, _ in expected}
    assert [h.score for h in hits] == pytest.approx([x for _, x in expected], abs=1e-5)
    score = dict((documents[i].id, x) for i, x in expected)
    for h in hits: assert h.score == pytest.approx(score[h.item.id], abs=1e-5)      # so the order is the same, up to ties


def test_equal_documents_have_equal_scores_wherever_they_stand():
    text = "Asthma often begins in childhood. " + "It gets worse at night. "*40
    documents = [d for i, other in enumerate(corpus(37)) for d in ([Document(id=f"same-{i}", text=text), other] if i % 4 == 0 else [other])]
    hits = [h for h in make(documents, RetrieveSettings(passage_words=30)).candidates("Does asthma begin in childhood?") if h.item.id.startswith("same")]
    assert len(hits) == 10 and len({h.score for h in hits}) == 1 and [h.item.id for h in hits] == [f"same-{i}" for i in range(0, 37, 4)]


def test_products_do_not_depend_on_the_place():
    rng = np.random.default_rng(0)
    rows, q = rng.normal(size=(50, 384)).astype(np.float32), rng.normal(size=384).astype(np.float32)
    rows[[3, 17, 49]] = rows[0]
    assert len(set(products(rows, q)[[0, 3, 17, 49]].tolist())) == 1 and products(rows[17:], q)[0] == products(rows, q)[0]
    assert np.allclose(products(rows, q), rows @ q, atol=1e-4)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=5), min_size=1, max_size=12), st.data())
def test_the_best_passages_are_those_of_a_loop(counts, data):
    values = [x for row in counts for x in row]
    dense = module.DenseSide.__new__(module.DenseSide)
    dense.of_passages, dense.starts = np.array(values, np.float32)[:, None], np.cumsum([0] + [len(row) for row in counts])
    positions = np.array(sorted(data.draw(st.sets(st.integers(0, len(counts) - 1), min_size=1))))
    best, number = dense.best_passages(np.ones(1, np.float32), positions)
    assert best.tolist() == [max(counts[i]) for i in positions]
    assert number.tolist() == [dense.starts[i] + counts[i].index(max(counts[i])) for i in positions]


@pytest.mark.parametrize("fusion", FUSIONS)
def test_parts_explain_the_score(fusion):
    s = RetrieveSettings(fusion=fusion, rare_words=0, spelling=False, several=False, question_weight=0.)
    retriever = make(corpus(), s)
    pool = retriever.candidates(QUERIES[0])
    assert [h.score for h in pool] == sorted((h.score for h in pool), reverse=True) and all(h.source == "fused" and h.parts["fused"] == h.score for h in pool)
    def stretched(h, name):
        column = [x.parts[name] for x in pool]
        return (h.parts[name] - min(column))/(max(column) - min(column))
    for h in pool:
        p = h.parts
        expected = {"bm25": lambda: p["bm25"], "dense": lambda: (.45*p["passage score"] + .3*p["dense"])/.75,
            "rrf": lambda: sum(1/(60 + p[r]) for r in ("bm25 rank", "dense rank") if p.get(r, 9) <= 5),
            "weighted": lambda: .25*stretched(h, "bm25") + .45*stretched(h, "passage score") + .3*stretched(h, "dense")}[fusion]()
        assert h.score == pytest.approx(expected, abs=1e-6)


def test_parts_are_the_sides_own_scores():
    documents, e = corpus(), TrigramEmbedder()
    retriever = make(documents, RetrieveSettings(rare_words=0, spelling=False, several=False, question_weight=0.))
    scores, q = retriever.bm25.ranked(QUERIES[0], 1)[0], e.embed([QUERIES[0]])[0]
    for h in retriever.candidates(QUERIES[0]):
        i = documents.index(h.item)
        pieces = [float(e.embed([f"{h.item.title}\n{p}"])[0] @ q) for p in passages(h.item.text)]
        assert h.parts["bm25"] == pytest.approx(scores[i]) and h.parts["passage score"] == pytest.approx(max(pieces), abs=1e-5)
        assert retriever.best_passage(h, QUERIES[0]) == retriever.best_passage(h.item, QUERIES[0]) == passages(h.item.text)[int(np.argmax(pieces))]


def test_a_fact_deep_in_a_long_document_is_found():
    long = Document(id="long", title="Sleep", text="Keep the room dark and quiet at night. "*60 + "Caffeine blocks adenosine for six hours. " + "Get up at the same hour. "*60)
    retriever = make([*corpus(), long], RetrieveSettings(passage_words=10, passage_overlap=0))
    hit = next(h for h in retriever.search("caffeine blocks adenosine", 3) if h.item.id == "long")
    assert "adenosine" in retriever.best_passage(hit, "caffeine blocks adenosine")
    assert hit.parts["passage score"] > hit.parts["dense"]


def test_of_a_story_the_rarest_words_are_looked_for():
    documents = [Document(id="asked", text="Eczema itches."), Document(id="chat", text="My dear sister and my brother work in the old garden all summer."), *(Document(id=f"d{i}", text="A sister and a brother work in the old garden, dear summer.") for i in range(9))]
    story = "My sister is dear. My brother works. The garden is old. It is summer. What helps with eczema that itches?"
    best = lambda s: max(make(documents, s).candidates(story), key=lambda h: h.parts["bm25"]).item.id
    assert (best(RetrieveSettings(rare_words=2)), best(RetrieveSettings())) == ("asked", "asked")
    bm25 = make(documents, RetrieveSettings(fusion="bm25")).bm25
    assert rarest(bm25, story, 2) == ["eczema", "itche"] and rarest(bm25, "zebra") == [] and rarest(bm25, story, 99) == sorted(set(tokenize(story)) & set(bm25.holding), key=lambda w: (bm25.holding[w], tokenize(story).index(w)))


def test_each_question_of_a_message_is_answered():
    documents = [*corpus(40), Document(id="one", text="Eczema itches and needs ointment."), Document(id="two", text="Vertigo makes the room turn.")]
    message = "Hello. Which ointment is good for eczema? Why does vertigo make a room turn? Thanks."
    assert {h.item.id for h in make(documents, RetrieveSettings()).search(message, 2)} == {"one", "two"}
    apart = [make(documents, RetrieveSettings()).candidates(x) for x in question_readings(message)]
    score = {}
    for hits in apart:
        for h in hits: score[h.item.id] = max(score.get(h.item.id, 0), h.score)
    assert {h.item.id: h.score for h in make(documents, RetrieveSettings()).candidates(message)} == pytest.approx(score)


def test_misspelled_words_are_found_and_the_message_is_not_touched():
    documents = [*corpus(20), Document(id="it", text="Bronchiectasis widens the airways.")]
    retriever = make(documents, RetrieveSettings())
    assert retriever.search("bronchiectsais", 1)[0].item.id == "it" and retriever.read("Is it bronchiectsais?") == "Is it bronchiectasis?"
    assert make(documents, RetrieveSettings(spelling=False, fusion="bm25")).search("bronchiectsais") == [] == make(documents, PAPER).find("bronchiectsais", 5).words


def test_a_plain_question_is_embedded_once():
    e = TrigramEmbedder()
    retriever = FusedRetriever(corpus(5), e, keep_vectors=False)
    before = e.calls
    retriever.search("Does asthma run in families?")
    assert e.calls == before + 1


def test_words_alone_need_no_model():
    retriever = FusedRetriever(corpus(), None, RetrieveSettings(fusion="bm25"))
    hit = retriever.search("asthma at night", 1)[0]
    assert retriever.dense is None and "asthma" in retriever.best_passage(hit, "asthma").lower()


def test_no_document_and_no_match():
    for fusion in FUSIONS:
        empty = make([], RetrieveSettings(fusion=fusion))
        assert len(empty) == 0 and empty.search("asthma") == [] and empty.candidates("asthma") == []
    assert make(corpus(), RetrieveSettings(fusion="bm25")).search("zebra") == []


def test_words_that_say_nothing_cover_nothing(): assert coverage(make(corpus()).bm25, "the of", "anything") == 0


def test_chroma_underneath(tmp_path, monkeypatch):
    opened, documents = [], corpus(60)
    def chroma(v, home):
        opened.append(ChromaIndex(v.shape[1], tmp_path/str(len(opened))))
        opened[-1].add([str(i) for i in range(len(v))], v)
        return opened[-1]
    try:
        exact = make(documents)
        monkeypatch.setattr(module, "corpus_index", chroma)
        near = make(documents)
        for q in QUERIES: assert [h.item.id for h in near.search(q, 5)] == [h.item.id for h in exact.search(q, 5)]
    finally:
        for index in opened: index.close()


def test_a_large_corpus_is_kept_in_chroma_and_finds_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMKIT_CACHE", str(tmp_path))
    documents = corpus(60)
    exact = index_documents(documents, TrigramEmbedder())
    assert isinstance(exact.dense.passage_index, ExactIndex) and not (tmp_path/"indexes").exists()
    monkeypatch.setattr(module, "corpus_index", partial(corpus_index, exact_up_to=20))
    first, again = (index_documents(documents, TrigramEmbedder()) for _ in range(2))
    own = FusedRetriever(documents, TrigramEmbedder(), keep_vectors=False)
    try:
        assert first.dense.passage_index.path == again.dense.passage_index.path != first.dense.whole_index.path
        for q in QUERIES: assert [h.item.id for h in exact.search(q, 5)] == [h.item.id for h in first.search(q, 5)] == [h.item.id for h in again.search(q, 5)]
        assert isinstance(own.dense.passage_index, ExactIndex)        # somebody's own words never reach the cache
        assert len([p for p in (tmp_path/"indexes").iterdir() if p.is_dir()]) == 2
    finally:
        for index in (r.dense for r in (first, again)): index.passage_index.close(); index.whole_index.close()


def test_vectors_of_any_length_will_do():
    documents = corpus()
    scaled = FusedRetriever(documents, TrigramEmbedder(scale=7.), keep_vectors=False)
    assert [h.item.id for h in scaled.search(QUERIES[2], 5)] == [h.item.id for h in make(documents).search(QUERIES[2], 5)]


def test_kept_vectors_are_used_again(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMKIT_CACHE", str(tmp_path))
    documents = corpus(6)
    first, again = TrigramEmbedder(), TrigramEmbedder()
    a, b = index_documents(documents, first), index_documents(documents, again)
    assert first.calls > 0 == again.calls
    assert [h.item.id for h in a.search("asthma")] == [h.item.id for h in b.search("asthma")]
    stored = {p for p in tmp_path.rglob("*") if p.is_file()}
    a.search("a user's own words")
    FusedRetriever(documents[:3], TrigramEmbedder(), keep_vectors=False)
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == stored


def test_threads_share_one_retriever():
    retriever = make(corpus())
    alone = [[h.item.id for h in retriever.search(q)] for q in QUERIES]
    with ThreadPoolExecutor(4) as pool: together = list(pool.map(lambda q: [h.item.id for h in retriever.search(q)], QUERIES*4))
    assert together == alone*4


@pytest.mark.parametrize("query", ["asthma "*100_000, "Is it asthma? "*3_000, "x"*1_000_000])
def test_a_megabyte_is_no_trouble(query): assert len(make(corpus(8)).search(query, 3)) == 3


def test_a_failing_encoder_fails_loudly():
    class Broken(TrigramEmbedder):
        def embed(self, texts, kind="document"):
            if kind == "query": raise ConnectionError("the encoder is gone")
            return super().embed(texts, kind)
    with pytest.raises(ConnectionError, match="encoder is gone"): FusedRetriever(corpus(4), Broken(), keep_vectors=False).search("asthma")


@pytest.mark.parametrize("wrong, error, says", [
    (lambda: make([corpus()[0]]*2), ValueError, "'doc-0' is used more than once"), (lambda: make(["text"]), TypeError, "Document records, got str"),
    (lambda: make(corpus(2)).search(""), ValueError, "query is empty"), (lambda: make(corpus(2)).search("a\0"), ValueError, "NUL"), (lambda: make(corpus(2)).search(None), TypeError, "string"),
    (lambda: make(corpus(2)).search("asthma", 0), ValueError, "k must be 1"), (lambda: make([]).search("  "), ValueError, "query is empty"),
    (lambda: make(corpus(2)).best_passage(Hit(item=Document(id="other", text="x"), score=1., source="fused"), "x"), ValueError, "not in this corpus"),
    (lambda: RetrieveSettings(fusion="sum"), ValueError, "fusion must be one of"), (lambda: RetrieveSettings(each=0), ValueError, "each must be 1"),
    (lambda: RetrieveSettings(question_weight=-1), ValueError, "question_weight"), (lambda: RetrieveSettings(rare_words=-1), ValueError, "rare_words"), (lambda: RetrieveSettings(whole_weight=float("nan")), ValueError, "finite")])
def test_refusals(wrong, error, says):
    with pytest.raises(error, match=says): wrong()
