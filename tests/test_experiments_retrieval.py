"The questions of the experiments: seeded, split by topic, each form what it says it is; and the trials made of them."
import json
import random
import re
from collections import Counter

import pytest

from memkit.files import own_data, public_data
from memkit.records import Document
from memkit.search.documents import FusedRetriever, RetrieveSettings
from memkit.evaluate.intervals import BERT
from memkit.experiments.hybrid import retrieval as q
from memkit.experiments.hybrid import retrieval as r

FOCUSES = ("Varicose Veins", "Gout", "Asthma", "Sleep Apnea", "Kidney Stones", "Migraine", "Lupus", "Shingles", "Celiac Disease", "Hives", "Measles", "Rosacea", "Cataract", "Psoriasis", "Tinnitus", "Scoliosis")
TYPES = {"treatment": "What are the treatments for {} ?", "causes": "What causes {} ?", "inheritance": "Is {} inherited ?", "information": "What is (are) {} ?"}
DOCUMENTS = [Document(id=f"{f}-{t}".lower().replace(" ", "-") + ("" if n == 0 else "-2"), text=f"A page about {f.lower()} and its {t}, number {n}.", title=f"{f}: {t}", category=t,
                      meta={"focus": f if n == 0 else f.upper() + " ", "question": question.format(f), "synonyms": [f"{f} disorder", "a, b"]})
             for i, f in enumerate(FOCUSES) for t, question in TYPES.items() for n in range(2 if i % 4 == 0 and t == "causes" else 1)]
OF = {d.id: d for d in DOCUMENTS}
SPLITS = ("tune", "score")


@pytest.fixture(scope="module")
def own(): return q.read_corpus("own")


@pytest.fixture
def without_data(monkeypatch): monkeypatch.delenv("MEMKIT_DATA", raising=False)


@pytest.mark.parametrize("form", q.FORMS)
def test_the_seed_decides_everything(form):
    once = q.draw_questions(DOCUMENTS, form, "score", seed=3)
    assert once == q.draw_questions(DOCUMENTS, form, "score", seed=3)
    assert once[:5] == q.draw_questions(DOCUMENTS, form, "score", n=5, seed=3)
    if form != "verbatim": assert [a.text for a in once] != [a.text for a in q.draw_questions(DOCUMENTS, form, "score", seed=4)]
    state = random.getstate()
    q.draw_questions(DOCUMENTS, form, "tune")
    assert random.getstate() == state                       # nobody else's random numbers are used up


def test_no_topic_and_no_document_is_in_both_halves():
    halves = {split: [a for form in q.FORMS for a in q.draw_questions(DOCUMENTS, form, split)] for split in SPLITS}
    topics, answers = ({s: {x(a) for a in found} for s, found in halves.items()} for x in (lambda a: a.focus, lambda a: a.relevant))
    assert topics["tune"] and topics["score"] and not topics["tune"] & topics["score"]
    ids = {s: {i for found in answers[s] for i in found} for s in SPLITS}
    assert not ids["tune"] & ids["score"] and ids["tune"] | ids["score"] == set(OF)
    assert all(q.split_of(a.focus) == a.split == s for s, found in halves.items() for a in found)


@pytest.mark.parametrize("form", q.FORMS)
def test_relevant_is_the_same_focus_and_type(form):
    bases = {b.key: b for b in q.base_questions(DOCUMENTS)}
    for a in q.draw_questions(DOCUMENTS, form, "tune") + q.draw_questions(DOCUMENTS, form, "score"):
        base = bases[a.id.split(":")[1]]
        assert set(base.relevant) <= set(a.relevant) and len(set(a.relevant)) == len(a.relevant)
        groups = {(q.normal(OF[i].meta["focus"]), OF[i].category) for i in a.relevant}
        assert {d.id for d in DOCUMENTS if (q.normal(d.meta["focus"]), d.category) in groups} == set(a.relevant)
        assert len(groups) == 1 if form != "several" else 2 <= len(groups) <= 3


def test_a_topic_written_twice_is_one():
    assert next(b for b in q.base_questions(DOCUMENTS) if (b.focus, b.type) == ("varicose veins", "causes")).relevant == ("varicose-veins-causes", "varicose-veins-causes-2")


def test_drawing_goes_over_topics_before_it_repeats_one():
    drawn = q.draw(q.base_questions(DOCUMENTS), 40, seed=1)
    counts = Counter(b.focus for b in drawn)
    assert set(counts.values()) == {2, 3} and len(counts) == len(FOCUSES)
    assert len(q.draw(q.base_questions(DOCUMENTS), 10**6)) == 64 and q.draw([], 5) == []


def test_keywords_are_one_to_four_words():
    for split in SPLITS:
        for a in q.draw_questions(DOCUMENTS, "keywords", split):
            assert 1 <= len(a.text.split()) <= 4 and a.text == a.text.lower() and "?" not in a.text
            assert set(a.text.split()) & set(a.focus.split())


def test_a_story_has_parts_of_its_half_and_the_question_late():
    for split in SPLITS:
        p, other = q.parts(split), q.parts("tune" if split == "score" else "score")
        for a in q.draw_questions(DOCUMENTS, "story", split):
            assert 15 <= len(a.text.split()) <= 150 and a.focus.split()[0] in a.text.lower()
            assert not [w for w in other["worry"] + other["greetings"] if len(w) > 8 and w.strip(" .,!").lower() in a.text.lower()]
        assert any(w.strip(" .").lower() in a.text.lower() for w in p["worry"] for a in q.draw_questions(DOCUMENTS, "story", split))


def test_some_stories_name_the_topic_before_the_question_only():
    texts = [a.text.lower() for s in range(4) for a in q.draw_questions(DOCUMENTS, "story", "tune", seed=s)]
    apart = sum(bool(re.search(r"\b(it|this)\b[^.?]*\?", t)) for t in texts)
    assert .1 < apart/len(texts) < .7


def test_the_halves_share_no_sentence():
    def strings(x): return {x} if isinstance(x, str) else {s for v in (x.values() if isinstance(x, dict) else x) for s in strings(v)}
    both = {part: (strings(q.parts("tune")[part]), strings(q.parts("score")[part])) for part in ("wordings", "greetings", "thanks", "named", "setup", "more", "worry", "people", "complaints")}
    pronouns = {"she", "he", "her", "his"}
    assert all(not (a & b) - pronouns for a, b in both.values())
    assert {t for s in SPLITS for t in q.parts(s)["wordings"]} == {t for s in SPLITS for t in q.parts(s)["keywords"]}


def test_typos_hit_about_the_share_of_words_they_say():
    rng, changed, words = random.Random(0), 0, 0
    base = next(b for b in q.base_questions(DOCUMENTS) if b.type == "treatment")
    for a in q.draw_questions(DOCUMENTS, "typos", "tune") + q.draw_questions(DOCUMENTS, "typos", "score"):
        known = {w for d in OF.values() for w in re.findall(r"[a-z]+", (d.meta["question"] + d.title).lower())} | {w for s in SPLITS for t in q.parts(s)["wordings"].values() for x in t for w in re.findall(r"[a-z]+", x.lower())}
        found = [w for w in re.findall(r"[a-z]+", a.text.lower()) if len(w) > 3]
        changed, words = changed + sum(w not in known for w in found), words + len(found)
    assert .15 < changed/words < .6
    assert q.misspell("gut", rng) == "gut" and q.misspell("can't", rng) == "cant" and q.misspell("B12xx", rng) == "B12xx"
    slips = {q.misspell("diabetes", rng) for _ in range(200)}
    assert len(slips) > 15 and all(6 < len(s) < 10 and s[0] == "d" for s in slips) and base.type == "treatment"


def test_several_ask_two_or_three_things():
    for a in q.draw_questions(DOCUMENTS, "several", "tune"): assert 2 <= a.text.count("?") <= 3 and len(a.relevant) >= 2


@pytest.mark.parametrize("wrong, says", [(lambda: q.draw_questions(DOCUMENTS, "poem"), "form must be one of"), (lambda: q.draw_questions(DOCUMENTS, "story", "test"), "split must be"), (lambda: q.parts("all"), "split must be"),
                                         (lambda: q.draw_questions([Document(id="a", text="b")], "story"), "no questions are known")])
def test_refusals(wrong, says):
    with pytest.raises(ValueError, match=says): wrong()


def test_without_public_data_it_is_the_own_corpus(without_data, own):
    documents, name = q.experiment_corpus(50)
    assert [d.id for d in documents] == [d.id for d in own] and "memkit's own" in name
    rows = [json.loads(line) for line in own_data("medical_questions.jsonl").read_text("utf-8").splitlines()]
    plain = {x["question"]: x for x in rows if x["answerable"] and x["style"] == "plain"}
    for split in SPLITS:
        asked = q.draw_questions(documents, "verbatim", split)
        assert len(asked) == sum(x["split"] == split for x in plain.values())
        assert all(plain[a.text]["split"] == split and tuple(plain[a.text]["relevant"]) == a.relevant for a in asked)


def test_a_part_of_medquad_keeps_whole_topics():
    if public_data("medquad.tar.gz") is None: pytest.skip("MEMKIT_DATA holds no medquad.tar.gz")
    part, name = q.experiment_corpus(500, seed=2)
    everything, _ = q.experiment_corpus()
    assert 450 < len(part) <= 500 and "500" in name or len(part) <= 500
    focuses = {q.normal(d.meta["focus"]) for d in part}
    assert [d for d in everything if q.normal(d.meta["focus"]) in focuses] == part
    whole = {a.id: a for a in q.draw_questions(everything, "verbatim", "score")}
    assert all(whole[a.id].relevant == a.relevant and whole[a.id].text == a.text for a in q.draw_questions(part, "verbatim", "score"))


def test_no_question_and_no_title_is_searched():
    "A word that stands only in titles and questions finds nothing by words and changes no vector."
    seen = []
    class Watching:
        name, dim, unit = "watching", 4, True
        def embed(self, texts, kind="document"):
            seen.extend((kind, t) for t in texts)
            import numpy as np
            return np.tile(np.array([1, 0, 0, 0], dtype=np.float32), (len(texts), 1))
    documents = [Document(id=str(i), text=t, title="Zebra: treatment", category="treatment", meta={"focus": "Zebra", "question": "What are the treatments for Zebra ?"}) for i, t in enumerate(("Rest helps.", "So does tea."))]
    for name, settings in r.systems().items():
        retriever = FusedRetriever(documents, Watching(), settings, keep_vectors=False)
        if settings.fusion == "bm25": assert retriever.search("zebra") == []
    assert seen and not any("ebra" in t for kind, t in seen if kind == "document")


def test_trials_keep_forms_searches_and_order(own, without_data):
    trials = r.run_trials(own, {"words": RetrieveSettings(titles=False, fusion="bm25")}, n=6, forms=("verbatim", "typos"))
    assert list(trials) == ["verbatim", "typos"] and set(trials["typos"].found) == {"words", r.LOT}
    assert [a.focus for a in trials["verbatim"].asked] == [a.focus for a in trials["typos"].asked]
    assert all(len(set(f)) == len(f) <= 10 for t in trials.values() for found in t.found.values() for f in found)
    scores = trials["verbatim"].scores("R@5")
    assert scores["words"].shape == (6,) and 0 <= scores["words"].min() and scores["words"].max() <= 1


def test_rows_have_the_papers_figures_and_mark_the_control(own, without_data):
    ids = [d.id for d in own]
    asked = tuple(q.draw_questions(own, "verbatim", n=5))
    perfect = [[*a.relevant, *(i for i in ids if i not in a.relevant)][:10] for a in asked]
    trial = r.FormRanking(asked, {r.OURS: perfect, r.PAPERS: perfect, r.WORDS: [[] for _ in asked], r.DENSE: [p[::-1] for p in perfect], r.LOT: r.by_lot(own, asked, 10, 0)})
    rows = {(x["row"], x["metric"]): x for x in r.table_3(own, trial, 2)}
    assert rows[r.PAPERS, "Recall@5"]["paper"] == .75 and rows[r.PAPERS, "Precision@5"]["paper"] == .26 and rows[r.PAPERS, BERT]["paper"] == .8654
    assert rows[r.OURS, "Recall@5"]["ours"] == 1 and rows[r.OURS, BERT]["ours"] == pytest.approx(1, abs=1e-5) and rows[r.WORDS, BERT]["ours"] == 0
    assert {row for (row, _), x in rows.items() if x["control"]} == {r.LOT} and all(x["paper"] is None for (row, _), x in rows.items() if row != r.PAPERS)
    by_form = {x["row"]: x for x in r.form_rows("verbatim", trial)}
    assert by_form["verbatim: ours less the better side"]["note"].endswith(r.DENSE) and by_form["verbatim: ours less the better side"]["ours"] > 0
    assert r.by_lot(own, asked, 10, 0) == trial.found[r.LOT] != r.by_lot(own, asked, 10, 1)
