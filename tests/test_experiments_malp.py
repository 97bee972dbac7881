"The MaLP experiment: what counts as found, by hand; the form of its rows; nothing learned from a question; the same twice; weights of a tiny model from beginning to end."
import json
from collections import Counter
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.models.embed import Remembered
from memkit.models.local import embedded_folder
from memkit.models.lm import ScriptedLM
from memkit.models.local import LocalLM
from memkit.records import Hit, Memory, Message, utc_now
from memkit.store.store import MemoryStore
from memkit.evaluate.judge import VERDICTS, Gold, rubric
from memkit.evaluate.judge import RatingSession, save_rating
from memkit.evaluate.intervals import rouge_1
from memkit.experiments.malp import run as malp
from memkit.experiments.malp import answers as malp_answers
from memkit.experiments.malp import run as malp_case
from memkit.experiments.malp import recall as malp_recall
from memkit.experiments.malp import weights as malp_weights
from memkit.experiments.malp.answers import BOTH, INJECTION, LORA, MALP, OTHERS
from memkit.experiments.malp.recall import CONTROLS, DICTIONARY, DPEM, HISTORY, LETTER, RANDOM, RAW, STANDARD, malp_memories, patient_questions, studied, tells
from memkit.experiments.result import digest, save_result
from memkit.malp.injection import InjectionSettings, inject, save_injection
from memkit.malp.patients import PatientQuestion, draw_patient, new_queries, simulate
from memkit.malp.personalize import LoraSettings
from memkit.malp.timelines import PREFERENCES
from memkit.malp.patients import Telling

NAMES = (STANDARD, DICTIONARY, DPEM, LETTER, HISTORY, RANDOM)
TINY = malp.Size(patients=2, answered=1, visits=2, profile=2, knowledge=1, response=1, after=(1, 2), public=False, examples=1, others=1)


class Scripted(ScriptedLM):
    "Answers by the memories it is shown; labels by their length."
    def __init__(self): super().__init__(lambda messages: f"You have {messages[-1].text.count('- ')} memories.")
    def score_labels(self, prompts, labels, prefix=""): return -np.array([[len(label) for label in labels] for _ in prompts], float)


@pytest.fixture(scope="module")
def found(embedder): return malp.measured(TINY, Scripted(), embedder, 0, False, None, utc_now())

@pytest.fixture(scope="module")
def ann(): return draw_patient(3, seed=1, n_visits=4, split="train")

def of(result, table): return [r for r in result["rows"] if r["table"] == table]

NEW_YEAR = datetime(2024, 1, 1, tzinfo=timezone.utc)

def hit(shown, round, **meta):
    return Hit(item=Memory(id=1, user="u", text=shown, at=NEW_YEAR, meta={"round": round, **meta}), score=1., source="memory", parts={})

def said(round, sentence): return Telling(round, NEW_YEAR, "user", sentence, "f")


# what counts as found

NEW, OLD = said("r7", "It's 20 mg now."), said("r2", "I take 10 mg.")
ASKED = PatientQuestion("q", "p", "profile", "How much do I take?", "You take 20 mg.", "dose", (NEW,), stale=(OLD,))

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
        measured = tuple(f(hits, ASKED) for f in (malp_recall.found_round, malp_recall.found_sentence, malp_recall.found_stale, malp_recall.newest_first_of))
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

def test_asking_changes_nothing(ann, embedder):
    queries = [q.text for q in patient_questions(ann)[:5]]
    often, once = malp_memories(embedder), malp_memories(embedder)
    a, b = studied(ann, often, queries, (0, 1, 2, 3, 4)), studied(ann, once, queries, (4,))
    plain = lambda hits: [(h.item.text, h.item.meta["round"], round(h.score, 6)) for h in hits]
    for name in (*NAMES, RAW):
        assert [plain(a[name, 4, q]) for q in queries] == [plain(b[name, 4, q]) for q in queries], name
        assert [m.text for m in often[name].store.list(ann.id)] == [m.text for m in once[name].store.list(ann.id)]
        assert all(a[name, 0, q] == [] for q in queries), "nothing is known before the first visit"

def test_only_visits_that_were_made(ann, embedder):
    with pytest.raises(ValueError, match="made 4 visits, asked for what is known after 5"): studied(ann, malp_memories(embedder), [], (5,))

def test_nothing_of_later_visits_is_recalled(ann, embedder):
    early = {r.id for v in ann.visits[:2] for r in v.rounds}
    found = studied(ann, malp_memories(embedder), ["Which medicines do I take?"], (2,))
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
    p = next(p for p in simulate(20, seed=1, split="train") if any(f.about == "allergy" for f in p.facts))
    allergies = {f.value for f in p.facts if f.about == "allergy"}
    gold = [malp_answers.query_gold(p, q) for q in new_queries(p)]
    assert gold and all(set(g.signs) == set(g.facts) and all(all(w.strip() for w in words) for words in g.signs.values()) for g in gold)
    assert all(allergies <= set(g.forbidden) for g in gold), "an allergen is forbidden, whatever is asked"
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
    rows = [r for r in of(found, "Table 2") if r["row"] in (LORA, MALP)]
    assert len(rows) == 12 and all(r["ours"] is None and r["paper"] and "memory-only" in r["note"] for r in rows)
    assert not of(found, "Table 5") and not of(found, malp_weights.COLD_START)

def test_paper_figures_stand_beside_ours(found):
    paper = {(r["row"], r["metric"]): r["paper"] for r in of(found, "Table 2")}
    assert paper[DPEM, "Profile QA ROUGE-L"] == .2097 and paper[DICTIONARY, "Knowledge QA ROUGE-1"] == .329 and paper[DPEM, "win rate against standard"] == .846
    assert all(p is None for (row, _), p in paper.items() if row in (LETTER, *CONTROLS, *malp_answers.QUOTED))

def test_the_same_twice(found, embedder):
    again = malp.measured(TINY, Scripted(), embedder, 0, False, None, utc_now() - timedelta(seconds=1))
    assert all(again[k] == found[k] for k in ("rows", "case_study", "pairs")) and again["provenance"]["data"] == found["provenance"]["data"]

def test_patients_are_of_the_scoring_half(found):
    texts = [f"{r.user} {r.assistant}" for p in simulate(2, 0, 2, 6, "score") for v in p.visits for r in v.rounds]
    assert found["provenance"]["data"]["rounds of the patients"] == digest(texts)

def test_figure_4(found):
    metrics = {r["metric"] for r in of(found, "Figure 4")}
    assert metrics == {f"{m}, after {n} rounds" for m in malp_answers.CURVES for n in (6, 12)}
    last = {(r["row"], r["metric"]): r["ours"] for r in of(found, "Figure 4")}
    table = {r["row"]: r["ours"] for r in of(found, "Table 2") if r["metric"] == "Profile QA ROUGE-L"}
    assert all(last[n, "Profile QA ROUGE-L, after 12 rounds"] == table[n] for n in malp_weights.CURVED), "the curve ends where Table 2 stands"
    titles = [ax.get_title().partition(", n = ")[0] for ax in malp.figure_4(found).figure.axes]
    assert titles == [*(malp._READABLE.get(m, m) for m in malp_answers.CURVES), ""]
    with pytest.raises(ValueError, match="no Figure 4"): malp.figure_4({"experiment": "malp", "rows": []})

def test_case_study(found):
    assert [(c["memory"], c["paper"]) for c in found["case_study"]] == [(STANDARD, 4), (DICTIONARY, 6), (DPEM, 9.5)] and found["case_study"][0]["shown"] == []
    assert all(c["score"] == pytest.approx(rubric(c["answer"], malp_case.CASE_GOLD).total) for c in found["case_study"])
    text = malp_case.case_text(found)
    assert all(c["memory"] in text for c in found["case_study"]) and "9.5 in the paper" in text
    with pytest.raises(ValueError, match="no case study"): malp_case.case_text({"rows": []})
    assert "9.5, with trained weights" in malp.figure_5(found).alt

def test_a_model_elsewhere_cannot_be_trained_and_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(malp_weights, "train_all", lambda *a: pytest.fail("trained"))
    with pytest.raises(ValueError, match="--memory-only"): malp.run_malp(model="http://127.0.0.1:9/v1#m")


# scores by hand

def items_of(kind, n): return [malp_answers.ModelQuestion(f"i{i}", f"p{i}", kind, "May I?", "a b c d", Gold(query="May I swim?", facts=("You have asthma.",), signs={"You have asthma.": ("asthma",)})) for i in range(n)]

def test_question_rows_by_hand():
    some = items_of("profile", 2)
    answers = {(n, 1, i.id): t for n, t in ((STANDARD, "x"), (DPEM, "a b c d"), (DICTIONARY, "b a")) for i in some}
    ours = {(r["table"], r["row"], r["metric"]): r["ours"] for r in malp_answers.score_rows(some, answers, 1, malp_answers.TASKS[:4])}
    assert ours["Table 2", STANDARD, "Profile QA ROUGE-1"] == 0 and ours["Table 2", DPEM, "Profile QA ROUGE-L"] == 1
    assert ours["Table 2", DICTIONARY, "Profile QA ROUGE-1"] == pytest.approx(2*2/6) and ours["Table 2", DICTIONARY, "Profile QA ROUGE-L"] == pytest.approx(2/6)
    assert ours["Table 2, in pairs", "DPeM less dictionary", "Profile QA ROUGE-1"] == pytest.approx(1 - 2/3)

def test_response_rows_by_hand():
    some = items_of("response", 2)
    texts = {STANDARD: "Swim.", DPEM: "With asthma, swim slowly.", DICTIONARY: "Swim."}
    answers = {(n, 1, i.id): t for n, t in texts.items() for i in some}
    ours = {(r["row"], r["metric"]): r["ours"] for r in malp_answers.response_rows(some, answers, 1)}
    assert ours[DPEM, "win rate against standard"] == 1 and ours[DICTIONARY, "win rate against standard"] == .5 and (STANDARD, "win rate against standard") not in ours
    assert ours[STANDARD, "rubric total, of 10"] == 2 and ours[DPEM, "rubric total, of 10"] == 10 and ours["DPeM less standard", "rubric total, of 10"] == 8

def test_a_breach_is_counted():
    gold = Gold(query="What for pain?", forbidden=("ibuprofen",), preference="concise")
    item = malp_answers.ModelQuestion("i", "p", "response", "What for pain?", gold=gold)
    answers = {(n, 1, "i"): t for n, t in ((STANDARD, "Rest."), (DPEM, "Take ibuprofen."))}
    ours = {(r["row"], r["metric"]): r["ours"] for r in malp_answers.response_rows([item], answers, 1)}
    assert ours[DPEM, "answers with a breach"] == 1 and ours[DPEM, "rubric total, of 10"] == 0 and ours[DPEM, "win rate against standard"] == 0

def test_a_style_wins_by_what_the_memories_add():
    bare, more = np.array([-1., -9, -9, -9, -9, -9]), np.array([-2., -9, -9, -9, -9, -4])
    chosen = malp_answers.chosen_styles({(STANDARD, 1, "i"): bare[None], (DPEM, 1, "i"): more[None], (RANDOM, 1, "i"): bare[None]})
    assert chosen[STANDARD, 1, "i"] == PREFERENCES[0] and chosen[DPEM, 1, "i"] == PREFERENCES[5] and chosen[RANDOM, 1, "i"] == PREFERENCES[0]

def test_a_model_without_label_scores(ann, embedder):
    size = malp.Size(patients=1, answered=1, visits=4, profile=0, knowledge=0, response=0, after=(4,), public=False)
    studies = malp.study_all([ann], size, embedder, progress=False)
    assert malp_weights.style_scores(studies, malp_weights.MEMORY_ROWS, lambda *_: (ScriptedLM(["x"]), "x"), (4,), [], progress=False) == {}

def test_an_answer_counts_per_token():
    class Table:
        def render(self, messages): return messages[0].text
        def count_tokens(self, text): return len(text.split())
        def score_labels(self, prompts, labels, prefix=""): return np.array([[-2. - 2*("b" in l)*("shown" in p) - len(l.split()) for l in labels] for p in prompts])
    ask = lambda t: (Message(role="user", text=t),)
    assert malp_answers.mean_scores(Table(), ask("x "), ["a", "a b c d"]).tolist() == [-3, -8/4 + .5]
    answers = ("a", "b", "b", "b", "b", "b")
    shown = {(STANDARD, 1, "i"): [ask("bare "), ask("bare ")], (DPEM, 1, "i"): [ask("shown "), ask("bare ")]}
    scores = malp_answers.example_scores(Table(), shown, [("q", answers)]*2)
    assert scores[DPEM, 1, "i"].tolist() == [[-3, -5, -5, -5, -5, -5], [-3, -3, -3, -3, -3, -3]]
    assert malp_answers.chosen_styles(scores)[DPEM, 1, "i"] == PREFERENCES[0] and malp_answers.chosen_styles(scores, slice(2, None)) == {}
    with pytest.raises(ValueError): malp_answers.example_scores(Table(), shown, [("q", answers)])

def test_what_is_raised_for_everybody_says_nothing():
    rng = np.random.default_rng(0)
    everybody, own = np.array([9., 0, 3, 0, 0, 0]), np.eye(6)
    raised = [everybody + own[i]*2 + rng.normal(0, .3, 6) + rng.normal() for i in range(6)]
    for n in (2, 4, 6):
        for i in range(n): assert np.argmax(malp_answers.raised_above(raised[i], raised[:i] + raised[i + 1:n])) == i
    assert malp_answers.raised_above(raised[0], []) is raised[0]
    assert np.isfinite(malp_answers.raised_above(np.zeros(6), [np.zeros(6)]*4)).all()

def test_example_answers():
    asked = malp_answers.other_words()
    assert len(asked) == 6 and len(malp_answers.other_words(2)) == 2 and len({q for q, _ in asked}) == 6
    new = malp_answers.style_examples(12)
    assert len({q for q, _ in new}) == 12 and all(len(set(answers)) == len(PREFERENCES) for _, answers in new)
    said = {r.assistant for p in simulate(6, 0, 6, split="score") for v in p.visits for r in v.rounds}
    assert not any(a in s for _, answers in new for a in answers for s in said), "the other half's knowledge"
    for _, answers in asked: assert len(set(answers)) == len(PREFERENCES) and all(a.strip() == a and a for a in answers)
    theirs = {r.assistant for p in simulate(6, 0, 6) for v in p.visits for r in v.rounds}
    assert not any(a in said for _, answers in asked for a in answers for said in theirs), "no doctor says them"


# weights, of a tiny model from beginning to end

SMALL = malp.Size(patients=2, answered=2, visits=2, profile=1, knowledge=1, response=1, after=(1, 2), public=False, examples=1, others=0, lora=LoraSettings(epochs=2, questions=2, least=12, share=.5, rank=2, learning_rate=3e-2))

@pytest.fixture(scope="module")
def course(tmp_path_factory):
    "A model of random numbers that reads as the embedded one does, and a domain adapter for it."
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    folder, tokenizer = tmp_path_factory.mktemp("tiny"), AutoTokenizer.from_pretrained(embedded_folder())
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, vocab_size=len(tokenizer), max_position_embeddings=2048,
                                         tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id, bos_token_id=None, initializer_range=.2)).bfloat16()
    model.save_pretrained(folder/"model"); tokenizer.save_pretrained(folder/"model")
    lm = LocalLM(str(folder/"model"))
    adapter = inject(lm.load()[0], InjectionSettings(width=4))
    adapter.fill({n: np.random.default_rng(0).normal(size=w.shape)/4 for n, w in adapter.weights().items()})
    save_injection(folder/"domain", lm.load()[0])
    return malp_weights.TrainingPlan(model=str(folder/"model"), injection=str(folder/"domain"), lora=SMALL.lora, visits=SMALL.visits)

@pytest.fixture(scope="module")
def weights(course):
    "Trained here, one after the other: another process is tried once below."
    import torch
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trials = [malp_weights.Trial(v, i, b) for v in SMALL.after for b in course.bases for i in range(SMALL.answered)]
        trained = {t: malp_weights.train_trial(course, t) for t in trials}
    finally: torch.set_num_threads(threads)
    models = {b: malp_weights.base_model(course, b) for b in course.bases}
    return malp_weights.gathered(course, simulate(SMALL.answered, 0, SMALL.visits), trained, models)

@pytest.fixture(scope="module")
def weighed(weights, embedder): return malp.measured(SMALL, weights.models[malp_weights.PLAIN], embedder, 0, False, None, utc_now(), weights)

def test_every_patient_has_weights_on_every_base(weights):
    assert {k for k, d in weights.trained.items() if d} == {(p, b, 2) for p in weights.others for b in ("plain", "injected")}, "one visit is too little, two are enough"
    assert all(d.weights and d.card["figures"]["after"] < d.card["figures"]["before"] for d in weights.trained.values() if d)
    bases = {b: {d.card["base"] for (_, base, _), d in weights.trained.items() if d and base == b} for b in ("plain", "injected")}
    assert len(bases["plain"]) == len(bases["injected"]) == 1 and bases["plain"] != bases["injected"]

def test_another_process_trains_the_same_weights(course, weights):
    there = malp_weights.train_all(course, [trial := malp_weights.Trial(2, 1, "injected")], workers=1, progress=False)[trial]
    here = weights.trained[list(weights.others)[1], "injected", 2]
    assert here.weights.keys() == there.weights.keys() and all((here.weights[n] == w).all() for n, w in there.weights.items())

def test_rows_with_weights(weighed):
    rows = {(r["table"], r["row"], r["metric"]): r for r in weighed["rows"]}
    for name in (INJECTION, LORA, BOTH, MALP, OTHERS):
        for task in (*malp_answers.TASKS, "rubric total, of 10"): assert rows["Table 2", name, task]["ours"] is not None, (name, task)
    assert {r["row"] for r in of(weighed, "Table 2") if r["ours"] is not None} == {*NAMES, *malp_answers.QUOTED, INJECTION, LORA, BOTH, MALP, OTHERS}
    assert all(r["control"] == (r["row"] in malp_answers.NOT_OURS) for r in of(weighed, "Table 2")) and not any("memory-only" in r["note"] for r in weighed["rows"])
    assert {r["row"] for r in of(weighed, "Table 5")} == {STANDARD, INJECTION, DPEM, LORA, MALP}
    assert rows["Table 5", INJECTION, "Knowledge QA ROUGE-L"]["paper"] == .3411 and rows["Table 5", MALP, "preference accuracy"]["paper"] == .6995
    assert all(r["ours"] == rows["Table 2", r["row"], r["metric"]]["ours"] for r in of(weighed, "Table 5"))
    pairs = {r["row"] for r in of(weighed, "Table 2, in pairs") if r["metric"] == "win rate against standard" or r["metric"] == "Profile QA ROUGE-L"}
    assert {f"{a} less {b}" for a, b in malp_answers.PAIRS if DPEM not in (a, b) or (a, b) in ((MALP, DPEM), (DPEM, STANDARD))} <= pairs

def test_personalisation(weighed, weights):
    rows = {(r["row"], r["metric"]): r["ours"] for r in of(weighed, malp_weights.PERSONAL)}
    pair = {r["metric"]: r["ours"] for r in of(weighed, f"{malp_weights.PERSONAL}, in pairs")}
    for base in ("plain", "injected"):
        metric = f"held-out loss, share gone ({base} base)"
        losses = malp_weights.held_out_losses(weights, base, 2)
        assert rows["own weights", metric] == pytest.approx(np.mean([1 - own/without for without, own, _ in losses.values()]), rel=.05)
        assert pair[metric] == pytest.approx(rows["own weights", metric] - rows["other users' weights", metric])
        for p, (without, own, others) in losses.items():
            figures = weights.trained[p, base, 2].card["figures"]
            assert without == pytest.approx(figures["before"], rel=.01) and own == pytest.approx(figures["after"], rel=.01) and len(others) == 1
        assert rows[f"a training ({base} base)", "rounds learned"] == 10

def test_before_there_are_weights_the_base_answers(weighed, weights):
    ours = {(r["row"], r["metric"]): r["ours"] for r in of(weighed, malp_weights.COLD_START)}
    for metric in malp_weights.MEASURES:
        if metric != malp_answers.TASKS[4]: assert ours[LORA, f"{metric}, after 6 rounds"] == ours[STANDARD, f"{metric}, after 6 rounds"]
        assert ours[MALP, f"{metric}, after 12 rounds"] == next(r["ours"] for r in of(weighed, "Table 2") if (r["row"], r["metric"]) == (MALP, metric))
    assert [ax.get_title().partition(", n = ")[0] for ax in malp.cold_start(weighed).figure.axes] == [*malp_weights.MEASURES, ""] and len(malp_weights.crossings(weighed)) == 12
    with pytest.raises(ValueError, match="no Cold start"): malp.cold_start({"experiment": "malp", "rows": []})
    lora, none = next(r for r in weights.rows if r.name == LORA), next(r for r in weights.rows if r.name == INJECTION)
    named = [weights.model_of(lora, n, p)[1][1] for n in (1, 2) for p in weights.others]
    assert named[:2] == [None, None] and all(named[2:]) and weights.model_of(none, 1, "anybody")[1] == ("injected", None)

def test_crossings_by_hand():
    lines = {STANDARD: (1, 1, 1), DPEM: (2, 2, 2), LORA: (1, 2, 3), MALP: (3, 1, 3)}
    rows = [{"table": malp_weights.COLD_START, "row": n, "metric": f"{malp_weights.MEASURES[0]}, after {r} rounds", "ours": y} for n, ys in lines.items() for r, y in zip((6, 36, 120), ys)]
    said = [s.split(": ")[1] for s in malp_weights.crossings({"rows": rows})]
    assert said == [f"{a} is above {b} after {n} of 6, 36, 120 rounds" for a, b, n in ((LORA, STANDARD, "36, 120"), (LORA, DPEM, "120"), (MALP, DPEM, "6, 120"), (MALP, LORA, "6"))]

def test_others_like_it_otherwise():
    people = simulate(12, 0, 1)
    likes = {p.id: p.preference for p in people}
    for p, others in malp_weights.others_of(people).items(): assert others and all(likes[o] != likes[p] for o in others)
    same = [p for p in people if p.preference == people[0].preference]
    assert malp_weights.others_of(same[:1]) == {same[0].id: []} and all(len(o) == len(same) - 1 for o in malp_weights.others_of(same).values())

def test_a_model_without_a_domain_adapter():
    assert malp_weights.injection_path("./some/model") is None and malp_weights.TrainingPlan().bases == ("plain",)
    rows = malp_answers.weights_rows([MALP], malp.NO_BASE)
    assert all(r["ours"] is None and r["paper"] and "domain adapter" in r["note"] for r in rows)


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
    with pytest.raises(TypeError, match="must be lists"): rouge_1("a", ["a"])
