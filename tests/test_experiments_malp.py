"The MaLP experiment: what counts as found, by hand; the form of its rows; nothing learned from a question; the same twice."
import json
from collections import Counter
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.core.embed import MiniLM, Remembered
from memkit.core.lm import ScriptedLM
from memkit.core.records import Hit, Memory, Message, utc_now
from memkit.core.store import MemoryStore
from memkit.evaluate.judge import VERDICTS, Gold, rubric
from memkit.evaluate.rating import RatingSession, save_rating
from memkit.evaluate.texts import rouge_1
from memkit.experiments import malp, malp_answers, malp_case, malp_recall
from memkit.experiments.malp_recall import CONTROLS, DICTIONARY, DPEM, HISTORY, LETTER, RANDOM, RAW, STANDARD, Question, malp_memories, patient_questions, studied, tells
from memkit.experiments.result import digest, save_result
from memkit.malp.patients import draw_patient, new_queries, simulate
from memkit.malp.phrases import PREFERENCES
from memkit.malp.visits import Said

NAMES = (STANDARD, DICTIONARY, DPEM, LETTER, HISTORY, RANDOM)
TINY = malp.Size(patients=2, answered=1, visits=2, profile=2, knowledge=1, response=1, after=(1, 2), public=False)


class Scripted(ScriptedLM):
    "Answers by the memories it is shown; labels by their length."
    def __init__(self): super().__init__(lambda messages: f"You have {messages[0].text.count('- ')} memories.")
    def score_labels(self, prompts, labels, prefix=""): return -np.array([[len(label) for label in labels] for _ in prompts], float)


@pytest.fixture(scope="module")
def minilm(): return Remembered(MiniLM(), keep=True)

@pytest.fixture(scope="module")
def found(minilm): return malp.measured(TINY, Scripted(), minilm, 0, False, None, utc_now())

@pytest.fixture(scope="module")
def ann(): return draw_patient(3, seed=1, n_visits=4, split="train")

def of(result, table): return [r for r in result["rows"] if r["table"] == table]

NEW_YEAR = datetime(2024, 1, 1, tzinfo=timezone.utc)

def hit(shown, round, **meta):
    return Hit(item=Memory(id=1, user="u", text=shown, at=NEW_YEAR, meta={"round": round, **meta}), score=1., source="memory", parts={})

def said(round, sentence): return Said(round, NEW_YEAR, "user", sentence, "f")


# what counts as found

NEW, OLD = said("r7", "It's 20 mg now."), said("r2", "I take 10 mg.")
ASKED = Question("q", "p", "profile", "How much do I take?", "You take 20 mg.", (NEW,), (OLD,))

@pytest.mark.parametrize("memory, is_told", [
    (hit("The user takes 20 mg.", "r7", text="It's 20 mg now."), True),                   # the sentence
    (hit('Asked, the user said "20 mg".', "r7", text="it's 20  MG now."), True),          # spelt with other spaces and capitals
    (hit("Hello. It's 20 mg now. Bye. -> Noted.", "r7"), True),                           # a whole exchange that holds it
    (hit("20 mg", "r7", text="20 mg now."), True),                                        # a part of it that was kept
    (hit("The user is well.", "r7", text="I am well."), False),                           # another sentence of the round
    (hit("The user takes 20 mg.", "r8", text="It's 20 mg now."), False),                  # the same words in another round
])
def test_a_memory_tells_what_was_told(memory, is_told): assert tells(memory, ASKED.told) is is_told

def test_measures_by_hand():
    other = [hit("x", f"r{i}", text="Something else.") for i in range(10, 15)]
    new, old, beside = hit("n", "r7", text=NEW.sentence), hit("o", "r2", text=OLD.sentence), hit("b", "r7", text="I am well.")
    for hits, expected in (([], (0, 0, 0, 0)), ([new], (1, 1, 0, 1)), ([old], (0, 0, 1, 0)), ([new, old], (1, 1, 1, 1)), ([old, new], (1, 1, 1, 0)), ([beside], (1, 0, 0, 0)),
                           ([*other, new], (0, 0, 0, 0)), ([*other[:4], new, old], (1, 1, 0, 1)), ([beside]*5 + [new], (1, 0, 0, 0))):
        measured = tuple(f(hits, ASKED) for f in (malp_recall.found_round, malp_recall.found_sentence, malp_recall.found_stale, malp_recall.newest_first))
        assert measured == expected, hits
    assert malp_recall.rounds_of([new, beside, old]) == ["r7", "r2"]

def test_a_hundred_words_are_a_room():
    long, new = hit("word "*95, "r1"), hit("It's 20 mg now.", "r7")
    assert malp_recall.found_in_words([long, new], ASKED) == 1.                       # 95 + 4 words
    assert malp_recall.found_in_words([long, hit("w w", "r1"), new], ASKED) == 0.     # 97 + 4
    assert malp_recall.found_in_words([hit("word "*101, "r1"), new], ASKED) == 1.     # what doesn't fit is passed over
    assert malp_recall.found_in_words([], ASKED) == 0.

def test_questions_know_their_tellings():
    p = draw_patient(0, seed=1, split="train")
    asked, rounds = patient_questions(p), {r.id: r for v in p.visits for r in v.rounds}
    assert {q.kind for q in asked} == {"profile", "knowledge"} and any(q.stale for q in asked)
    for q in asked:
        assert q.told and all(s.sentence in f"{rounds[s.round].user} {rounds[s.round].assistant}" for s in (*q.told, *q.stale))
        assert not {(s.round, s.sentence) for s in q.told} & {(s.round, s.sentence) for s in q.stale}


# studying and asking

def test_asking_changes_nothing(ann, minilm):
    queries = [q.text for q in patient_questions(ann)[:5]]
    often, once = malp_memories(minilm, lambda: MemoryStore(":memory:")), malp_memories(minilm, lambda: MemoryStore(":memory:"))
    a, b = studied(ann, often, queries, (0, 1, 2, 3, 4)), studied(ann, once, queries, (4,))
    plain = lambda hits: [(h.item.text, h.item.meta["round"], round(h.score, 6)) for h in hits]
    for name in (*NAMES, RAW):
        assert [plain(a[name, 4, q]) for q in queries] == [plain(b[name, 4, q]) for q in queries], name
        assert [m.text for m in often[name].store.list(ann.id)] == [m.text for m in once[name].store.list(ann.id)]
        assert all(a[name, 0, q] == [] for q in queries), "nothing is known before the first visit"

def test_only_visits_that_were_made(ann, minilm):
    with pytest.raises(ValueError, match="made 4 visits, asked for what is known after 5"): studied(ann, malp_memories(minilm, lambda: MemoryStore(":memory:")), [], (5,))

def test_nothing_of_later_visits_is_recalled(ann, minilm):
    early = {r.id for v in ann.visits[:2] for r in v.rounds}
    found = studied(ann, malp_memories(minilm, lambda: MemoryStore(":memory:")), ["Which medicines do I take?"], (2,))
    assert all(h.item.meta["round"] in early for hits in found.values() for h in hits)

def test_a_text_is_embedded_once():
    class Counting:
        name, dim, unit, seen = "counting", 2, True, []
        def embed(self, texts, kind="document"): self.seen += texts; return np.array([[len(t), kind == "query"] for t in texts], np.float32)
    once = Remembered(inner := Counting(), keep=True)
    assert once.embed(["a", "bb", "a"]).tolist() == [[1, 0], [2, 0], [1, 0]] and inner.seen == ["a", "bb"]
    assert once.embed(["bb", "ccc"]).tolist() == [[2, 0], [3, 0]] and inner.seen == ["a", "bb", "ccc"]
    assert once.embed(["a"], "query").tolist() == [[1, 1]] and once.embed([]).shape == (0, 2)
    with pytest.raises(ValueError): once.embed(["a"], "essay")


# what is asked

def test_gold_of_a_query():
    p = next(p for p in simulate(20, seed=1, split="train") if p.profile.allergies)
    gold = [malp_answers.query_gold(p, q) for q in new_queries(p)]
    assert gold and all(set(g.signs) == set(g.facts) and all(all(w.strip() for w in words) for words in g.signs.values()) for g in gold)
    assert all(set(p.profile.allergies) <= set(g.forbidden) for g in gold), "an allergen is forbidden, whatever is asked"
    for g in gold: assert rubric(" ".join(g.facts), g).criteria[0].points == 4, "the reference sentences themselves show every fact"

def test_items_are_drawn_the_same(ann):
    n = {"profile": 3, "knowledge": 2, "response": 1}
    items, asked = malp_answers.draw_items(ann, patient_questions(ann), n), {q.id for q in patient_questions(ann)}
    assert items == malp_answers.draw_items(ann, patient_questions(ann), n)
    assert all(sum(i.kind == k for i in items) <= m for k, m in n.items()) and items[-1].reference == ann.preference
    assert all(i.id in asked for i in items if i.kind in ("profile", "knowledge")) and {i.patient for i in items} == {ann.id}
    assert [i.kind for i in malp_answers.draw_items(ann, [], dict.fromkeys(n, 0))] == ["preference"]

def test_the_same_prompt_is_answered_once():
    model, prompt = ScriptedLM(lambda messages: messages[0].text.upper()), lambda t: [Message(role="user", text=t)]
    answers = malp_answers.answer_all(model, {(n, 1, str(i)): prompt(t) for n in NAMES for i, t in enumerate("abc")}, progress=False)
    assert len(model.asked) == 3 and all(answers[n, 1, "2"] == "C" for n in NAMES) and len(answers) == 18


# rows

def test_form(found, tmp_path):
    tables = list(dict.fromkeys(r["table"] for r in found["rows"]))
    assert {"Table 2", "Figure 4", "Figure 5", "Human judgement", malp_recall.RECALL} <= set(tables) and found["experiment"] == "malp"
    assert {r["row"] for r in of(found, "Table 2") if r["ours"] is not None} == {*NAMES, *malp_answers.QUOTED}
    assert all(r["control"] == (r["row"] in (*CONTROLS, *malp_answers.QUOTED)) for r in of(found, "Table 2"))
    assert all(0 <= r["ours"] <= 1 for r in of(found, "Table 2") if r["metric"] in malp_answers.TASKS and r["ours"] is not None)
    assert json.loads(save_result(found, tmp_path/"malp.json").read_text()) == found

def test_weights_are_listed_and_not_ours(found):
    rows = [r for r in of(found, "Table 2") if r["row"] in ("LoRA", "MaLP")]
    assert len(rows) == 12 and all(r["ours"] is None and r["paper"] and "personalize" in r["note"] for r in rows)

def test_paper_figures_stand_beside_ours(found):
    paper = {(r["row"], r["metric"]): r["paper"] for r in of(found, "Table 2")}
    assert paper[DPEM, "Profile QA ROUGE-L"] == .2097 and paper[DICTIONARY, "Knowledge QA ROUGE-1"] == .329 and paper[DPEM, "win rate against standard"] == .846
    assert all(p is None for (row, _), p in paper.items() if row in (LETTER, *CONTROLS, *malp_answers.QUOTED))

def test_the_same_twice(found, minilm):
    again = malp.measured(TINY, Scripted(), minilm, 0, False, None, utc_now() - timedelta(seconds=1))
    assert all(again[k] == found[k] for k in ("rows", "case_study", "pairs")) and again["provenance"]["data"] == found["provenance"]["data"]

def test_patients_are_of_the_scoring_half(found):
    texts = [f"{r.user} {r.assistant}" for p in simulate(2, 0, 2, 6, "score") for v in p.visits for r in v.rounds]
    assert found["provenance"]["data"]["rounds of the patients"] == digest(texts)

def test_figure_4(found):
    metrics = {r["metric"] for r in of(found, "Figure 4")}
    assert metrics == {f"{m}, after {n} rounds" for m in malp_answers.CURVES for n in (6, 12)}
    last = {(r["row"], r["metric"]): r["ours"] for r in of(found, "Figure 4")}
    table = {r["row"]: r["ours"] for r in of(found, "Table 2") if r["metric"] == "Profile QA ROUGE-L"}
    assert all(last[n, "Profile QA ROUGE-L, after 12 rounds"] == table[n] for n in malp.CURVED), "the curve ends where Table 2 stands"
    assert len(malp.figure_4(found).axes) == 3
    with pytest.raises(ValueError, match="no rows of Figure 4"): malp.figure_4({"rows": []})

def test_case_study(found):
    assert [(c["memory"], c["paper"]) for c in found["case_study"]] == [(STANDARD, 4), (DICTIONARY, 6), (DPEM, 9.5)] and found["case_study"][0]["shown"] == []
    assert all(c["score"] == pytest.approx(rubric(c["answer"], malp_case.CASE_GOLD).total) for c in found["case_study"])
    text = malp_case.figure_5(found)
    assert all(c["memory"] in text for c in found["case_study"]) and "9.5 in the paper" in text
    with pytest.raises(ValueError, match="no case study"): malp_case.figure_5({"rows": []})

def test_weights_are_refused():
    with pytest.raises(ValueError, match="memkit.malp.personalize"): malp.run_malp(memory_only=False)


# scores by hand

def items_of(kind, n): return [malp_answers.Item(f"i{i}", f"p{i}", kind, "May I?", "a b c d", Gold(query="May I swim?", facts=("You have asthma.",), signs={"You have asthma.": ("asthma",)})) for i in range(n)]

def test_question_rows_by_hand():
    some = items_of("profile", 2)
    answers = {(n, 1, i.id): t for n, t in ((STANDARD, "x"), (DPEM, "a b c d"), (DICTIONARY, "b a")) for i in some}
    ours = {(r["table"], r["row"], r["metric"]): r["ours"] for r in malp_answers.qa_rows(some, answers, 1)}
    assert ours["Table 2", STANDARD, "Profile QA ROUGE-1"] == 0 and ours["Table 2", DPEM, "Profile QA ROUGE-L"] == 1
    assert ours["Table 2", DICTIONARY, "Profile QA ROUGE-1"] == pytest.approx(2*2/6) and ours["Table 2", DICTIONARY, "Profile QA ROUGE-L"] == pytest.approx(2/6)
    assert ours["Table 2, in pairs", "DPeM less dictionary", "Profile QA ROUGE-1"] == pytest.approx(1 - 2/3)

def test_response_rows_by_hand():
    some = items_of("response", 2)
    texts = {STANDARD: "Swim.", DPEM: "With asthma, swim slowly.", DICTIONARY: "Swim."}
    scores = malp_answers.response_scores(some, {(n, 1, i.id): t for n, t in texts.items() for i in some})
    ours = {(r["row"], r["metric"]): r["ours"] for r in malp_answers.response_rows(some, scores, 1)}
    assert ours[DPEM, "win rate against standard"] == 1 and ours[DICTIONARY, "win rate against standard"] == .5 and (STANDARD, "win rate against standard") not in ours
    assert ours[STANDARD, "rubric total, of 10"] == 2 and ours[DPEM, "rubric total, of 10"] == 10 and ours["DPeM less standard", "rubric total, of 10"] == 8

def test_a_breach_is_counted():
    gold = Gold(query="What for pain?", forbidden=("ibuprofen",), preference="concise")
    item = malp_answers.Item("i", "p", "response", "What for pain?", gold=gold)
    scores = malp_answers.response_scores([item], {(n, 1, "i"): t for n, t in ((STANDARD, "Rest."), (DPEM, "Take ibuprofen."))})
    ours = {(r["row"], r["metric"]): r["ours"] for r in malp_answers.response_rows([item], scores, 1)}
    assert ours[DPEM, "answers with a breach"] == 1 and ours[DPEM, "rubric total, of 10"] == 0 and ours[DPEM, "win rate against standard"] == 0

def test_a_label_wins_by_what_the_memories_add():
    class Table:
        def render(self, messages): return messages[0].text
        def score_labels(self, prompts, labels, prefix=""):
            return np.array([[-1., -9., -9., -9., -9., -9.] if "bare" in p else [-2., -9., -9., -9., -9., -4.] for p in prompts])
    prompts = {(n, 1, "i"): [Message(role="user", text=t)] for n, t in ((STANDARD, "bare "), (DPEM, "shown "), (RANDOM, "bare "))}
    chosen = malp_answers.choose_styles(Table(), prompts)
    assert chosen[STANDARD, 1, "i"] == PREFERENCES[0] and chosen[DPEM, 1, "i"] == PREFERENCES[5] and chosen[RANDOM, 1, "i"] == PREFERENCES[0]

def test_a_model_without_label_scores(ann, minilm):
    size = malp.Size(patients=1, answered=1, visits=4, profile=0, knowledge=0, response=0, after=(4,), public=False)
    studies = malp.study_all([ann], size, minilm, progress=False)
    assert {k[0] for k in malp.all_styles(studies, ScriptedLM(["x"]), minilm, size)} == set(malp_answers.QUOTED)


# people

def test_pairs_can_be_rated(found, tmp_path):
    pairs = malp_case.rating_pairs(found)
    assert pairs and len({p.id for p in pairs}) == len(pairs) and all(p["rubric"] in VERDICTS for p in found["pairs"])
    page = malp_case.save_pairs(found, tmp_path/"pairs.html").read_text()
    assert "DPeM" not in page and "standard" not in page, "a rater isn't told which is which"
    session = RatingSession(pairs, tmp_path/"ratings.jsonl")
    while session.current: session.rate("tie")
    assert malp_case.human_agreement(found["pairs"], tmp_path/"ratings.jsonl").n == len(pairs)

def test_agreement_by_hand(tmp_path):
    pairs = [{"id": f"q{i}", "query": "May I?", "a": "No.", "b": "Yes.", "background": "", "rubric": v} for i, v in enumerate(("win", "lose", "win", "tie"))]
    for i, v in enumerate(("win", "lose", "lose")): save_rating(tmp_path/"r.jsonl", f"q{i}", v)
    rows = {r["metric"]: r for r in malp_case.agreement_rows(pairs, tmp_path/"r.jsonl")}
    assert rows["accuracy"]["ours"] == pytest.approx(2/3) and rows["accuracy"]["n"] == 3 and rows["Pearson"]["paper"] == .72
    assert rows["Pearson"]["ours"] == pytest.approx(np.corrcoef([1, -1, -1], [1, -1, 1])[0, 1])

def test_nobody_rated(found):
    assert {(r["metric"], r["ours"], r["n"]) for r in of(found, "Human judgement")} == {("Pearson", None, 0), ("accuracy", None, 0)}
    assert all("not measured" in r["note"] for r in of(found, "Human judgement"))

def test_ratings_of_something_else(found, tmp_path):
    save_rating(tmp_path/"r.jsonl", "unknown", "win")
    with pytest.raises(ValueError, match="rates none of the"): malp_case.human_agreement(found["pairs"], tmp_path/"r.jsonl")
    with pytest.raises(ValueError, match="no pairs"): malp_case.save_pairs({"rows": []}, tmp_path/"p.html")


# ROUGE-1, with an oracle of our own

words = st.lists(st.sampled_from("ada bea cee dora".split()), min_size=1, max_size=8)

@settings(deadline=None, max_examples=60)
@given(words, words)
def test_rouge_1_against_our_own_count(said, wanted):
    common = sum((Counter(said) & Counter(wanted)).values())
    expected = 2*common/(len(said) + len(wanted))
    assert rouge_1([" ".join(said)], [" ".join(wanted)])[0] == pytest.approx(expected)

def test_rouge_1_refuses_what_rouge_l_refuses():
    assert rouge_1([], []).shape == (0,) and rouge_1([""], ["a"]).tolist() == [0]
    with pytest.raises(ValueError, match="reference 0 is empty"): rouge_1(["a"], [" "])
    with pytest.raises(TypeError, match="must be a list"): rouge_1("a", ["a"])
