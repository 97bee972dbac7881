"Retrieval: the contract in every mode, the paper's mode against an oracle, edges, threads."
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from memkit.core.index import ChromaIndex
from memkit.core.lexical import BM25
from memkit.core.passages import passages
from memkit.core.records import Document, Hit
from memkit.core.retrieve import FUSIONS, PAPER, FusedRetriever, RetrieveSettings, check_retriever, coverage, index_documents


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


def make(documents, settings=RetrieveSettings(), **kw): return FusedRetriever(documents, TrigramEmbedder(), settings, keep_vectors=False, **kw)


QUERIES = ("Does warfarin thin the blood?", "asthma", "I slept badly and my head hurts. My sister has asthma. Does it get worse at night? Thank you!", "zebra", "the of and", "???")


@pytest.mark.parametrize("settings", [RetrieveSettings(fusion=f) for f in FUSIONS] + [PAPER, RetrieveSettings(pool=1), RetrieveSettings(titles=False, by_sentence=False, question_weight=0.)], ids=str)
def test_contract(settings): check_retriever(lambda documents: make(documents, settings))


def paper_oracle(documents, query, kept=5):
    "Section 5.1 said again: five of either search, votes of 1/(60 + rank), ties to BM25, one of the dense side."
    text = [f"{d.title}\n{d.text}" for d in documents]
    by_words = [i for i, _ in BM25(text, backend="rank_bm25").search(query, 5)]
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
    free = make(documents, replace(PAPER, each=1, one_dense=False)).search("asthma", 1)
    assert found[0].parts["dense rank"] == 1 and "bm25 rank" in free[0].parts


@pytest.mark.parametrize("fusion", FUSIONS)
def test_parts_explain_the_score(fusion):
    s = RetrieveSettings(fusion=fusion, by_sentence=False, question_weight=0.)
    retriever = make(corpus(), s)
    pool = retriever.candidates(QUERIES[0])
    assert [h.score for h in pool] == sorted((h.score for h in pool), reverse=True) and all(h.source == "fused" and h.parts["fused"] == h.score for h in pool)
    def stretched(h, name):
        column = [x.parts[name] for x in pool]
        return (h.parts[name] - min(column))/(max(column) - min(column))
    for h in pool:
        p = h.parts
        expected = {"bm25": lambda: p["bm25"], "dense": lambda: (.4*p["passage score"] + .3*p["dense"])/.7,
            "rrf": lambda: sum(1/(60 + p[r]) for r in ("bm25 rank", "dense rank") if p.get(r, 9) <= 5),
            "weighted": lambda: .3*stretched(h, "bm25") + .4*stretched(h, "passage score") + .3*stretched(h, "dense")}[fusion]()
        assert h.score == pytest.approx(expected, abs=1e-6)


def test_parts_are_the_sides_own_scores():
    documents, e = corpus(), TrigramEmbedder()
    retriever = make(documents, RetrieveSettings(by_sentence=False, question_weight=0.))
    scores, q = retriever.bm25.scores(QUERIES[0]), e.embed([QUERIES[0]])[0]
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


def test_a_story_counts_its_best_sentence():
    documents = [Document(id="asked", text="Eczema itches."), Document(id="chat", text="My dear sister and my brother work in the old garden all summer.")]
    story = "My sister is dear. My brother works. The garden is old. It is summer. What helps with eczema that itches?"
    best = lambda s: max(make(documents, s).candidates(story), key=lambda h: h.parts["bm25"]).item.id
    assert (best(RetrieveSettings(by_sentence=False)), best(RetrieveSettings())) == ("chat", "asked")


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
    assert set(retriever.evidence("asthma")) == {"dense", "passage", "sentence", "coverage"}


def test_no_document_and_no_match():
    for fusion in FUSIONS:
        empty = make([], RetrieveSettings(fusion=fusion))
        assert len(empty) == 0 and empty.search("asthma") == [] and empty.candidates("asthma") == []
        assert empty.evidence("asthma") == {"dense": 0, "passage": 0, "sentence": 0, "coverage": 0}
    assert make(corpus(), RetrieveSettings(fusion="bm25")).search("zebra") == []


def test_evidence_tells_known_from_unknown():
    documents = corpus()
    retriever = make(documents)
    known, unknown = retriever.evidence("Does asthma get worse at night?"), retriever.evidence("Which philharmonic plays Bruckner?")
    assert known["coverage"] > .9 > unknown["coverage"] == 0 and known["passage"] > unknown["passage"]
    assert retriever.evidence("asthma", retriever.candidates("asthma")) == retriever.evidence("asthma")
    assert coverage(retriever.bm25, "the of", "anything") == 0


def test_evidence_does_not_depend_on_the_size_of_the_corpus():
    few, many = corpus(10), corpus(10) + [Document(id=f"x{i}", text=f"Quite another matter number {i} altogether.") for i in range(300)]
    a, b = (make(d).evidence("Does asthma get worse at night?") for d in (few, many))
    assert a["dense"] == pytest.approx(b["dense"], abs=1e-5) and a["passage"] == pytest.approx(b["passage"], abs=1e-5) and abs(a["coverage"] - b["coverage"]) < .1


def test_chroma_underneath(tmp_path):
    opened, documents = [], corpus(60)
    def chroma(dim): opened.append(ChromaIndex(dim, tmp_path/str(len(opened)))); return opened[-1]
    try:
        near, exact = make(documents, make_index=chroma), make(documents)
        for q in QUERIES: assert [h.item.id for h in near.search(q, 5)] == [h.item.id for h in exact.search(q, 5)]
    finally:
        for index in opened: index.close()


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
    (lambda: RetrieveSettings(question_weight=-1), ValueError, "question_weight"), (lambda: RetrieveSettings(whole_weight=float("nan")), ValueError, "finite")])
def test_refusals(wrong, error, says):
    with pytest.raises(error, match=says): wrong()
