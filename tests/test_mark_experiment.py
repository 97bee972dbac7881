"The MARK experiment: its questions and halves, what is said and shown, errors removed against an oracle, nobody's words in the result, the same twice."
import json
import re
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.files import public_data
from memkit.models.lm import ScriptedLM
from memkit.store.store import MemoryStore
from memkit.search.documents import content_stems
from memkit.evaluate.coverage import key_points
from memkit.experiments.mark import run as mark
from memkit.experiments.mark import again as mark_again
from memkit.experiments.mark import lessons as mark_questions
from memkit.experiments.mark import run as mark_scenario
from memkit.experiments.mark import again as mark_texts
from memkit.experiments.mark.again import AGAIN, BARE, COLLEAGUE, FIRST, MEMORY, OTHER, PAPER_SETTINGS, RANDOM, RAW, Asked, errors_removed
from memkit.experiments.mark.lessons import EXPERTS, added_by, converse, learn, recalled, teach, texts, chatbot_says
from memkit.experiments.mark.lessons import MOST_TURNS, REWORDINGS, YES, Choice, Picker, correction_of, own_choices, lesson_prompt, read_medmcqa, reworded, shuffled, without_answer
from memkit.experiments.result import ROW, save_result
from memkit.mark.agents import embedded_agents
from memkit.mark.builder import Builder
from memkit.mark.refined import KINDS
from memkit.mark.search import RefinedSearch

matplotlib.use("Agg")
OWN = own_choices()
TINY = mark.Size(taught=5, others=2, texts=2, errors=1)


def repeated(messages):
    "What it is told; whoever says no is right."
    text = messages[-1].text.split("nswer my question")[0][:400]
    return f"You are right. {text.removeprefix('No. ')}" if text.startswith("No. ") else text

class Scripted(ScriptedLM):
    "Likes the option that the prompt names most often; writes down what it is shown."
    def __init__(self):
        super().__init__(repeated)
        self.prompts = []
    def score_labels(self, prompts, labels, prefix=""):
        self.prompts += prompts
        return np.array([[-self.count_tokens(l)/(1 + p.casefold().count(l.strip().casefold())) for l in labels] for p in prompts])


class Deaf(ScriptedLM):
    "Finds the shortest option best, whatever it is told."
    def __init__(self): super().__init__([])
    def score_labels(self, prompts, labels, prefix=""): return np.array([[-len(l)*self.count_tokens(l) for l in labels] for _ in prompts], float)


def choice(**more):
    return Choice(**{"id": "x", "text": "Which gland makes insulin", "options": ("Liver", "Pancreas", "Spleen"), "right": 1, "explanation": "Beta cells of the islets make it.", "subject": "s", "half": "tune"} | more)


@pytest.fixture(scope="module")
def run(embedder): return mark.measured(TINY, Scripted(), embedder, OWN, "own", progress=False)

@pytest.fixture(scope="module")
def lessons(): return teach(Picker(Scripted()), OWN[:10], progress=False)[1]

@pytest.fixture(scope="module")
def learned(lessons, embedder):
    store = MemoryStore(":memory:")
    yield learn(lessons, Builder(store, embedder, embedded_agents()), RefinedSearch(store, embedder, PAPER_SETTINGS))
    store.close()


# questions

def line(**more):
    return json.dumps({"question": "Which gland makes insulin", "exp": "The pancreas makes insulin.", "cop": 4, "opa": "Liver", "opb": "Lung", "opc": "Spleen", "opd": "Pancreas", "subject_name": "Anatomy", "id": "q"} | more)

def test_options_of_the_data_count_from_one():
    (c,) = read_medmcqa([line()])
    assert (c.answer, c.right, c.question) == ("Pancreas", 3, "Which gland makes insulin?")

@pytest.mark.parametrize("bad", [{"exp": None}, {"exp": "Ans. d"}, {"opd": ""}, {"opb": "LIVER"}, {"question": "  "}])
def test_rows_that_cannot_be_asked_are_left_out(bad): assert read_medmcqa([line(**bad), line()]) == read_medmcqa([line()])

def test_spaces_and_nul_are_cleaned(): assert read_medmcqa([line(question="Which\0 gland \n makes insulin", opd=" Pan\tcreas ")])[0].answer == "Pan creas"

def test_halves_are_fixed_and_disjoint():
    halves = [mark_questions.half_of(f"question {i}") for i in range(2000)]
    assert halves == [mark_questions.half_of(f"question {i}") for i in range(2000)]
    assert .45 < halves.count("tune")/2000 < .55

def test_public_questions():
    if public_data("medmcqa/dev_half.jsonl") is None: pytest.skip("MEMKIT_DATA holds no medmcqa/dev_half.jsonl")
    tune, score = (mark_questions.all_choices(h)[0] for h in ("tune", "score"))
    assert len(tune) > 400 < len(score) and not {c.id for c in tune} & {c.id for c in score}
    assert not {c.text.casefold() for c in tune} & {c.text.casefold() for c in score}

def test_our_own_stand_in_without_public_data(monkeypatch):
    monkeypatch.delenv("MEMKIT_DATA", raising=False)
    choices, name = mark_questions.all_choices()
    assert len(choices) == 40 and "own" in name
    assert mark_questions.all_choices("tune")[0] == []

def test_our_own_questions_are_sound():
    for c in OWN:
        assert len(c.options) == 4 and key_points(c.explanation) and not re.search(rf"\b{re.escape(c.answer)}\b", c.text, re.I), c.id
        assert not c.answer.startswith(("All of", "None of"))

@given(st.integers(0, 39), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_shuffling_keeps_the_answer(i, seed):
    mixed = shuffled(OWN[i], seed)
    assert mixed.answer == OWN[i].answer and sorted(mixed.options) == sorted(OWN[i].options) and mixed == shuffled(OWN[i], seed)

@given(st.integers(0, 39), st.integers(0, 10**6), st.sampled_from([None, *REWORDINGS]))
@settings(max_examples=120, deadline=None)
def test_other_words_for_the_same(i, seed, form):
    new = reworded(OWN[i], seed, form)
    assert new.strip() and new.strip(" ?") != OWN[i].text.strip(" ?") and new == reworded(OWN[i], seed, form)
    told = set(content_stems(OWN[i].answer)) - set(content_stems(OWN[i].text))
    assert not (told & set(content_stems(new)) and OWN[i].answer.casefold() in new.casefold())   # what is asked isn't given away

@given(st.text(min_size=1, max_size=80).filter(str.strip), st.sampled_from(REWORDINGS))
@settings(max_examples=80, deadline=None)
def test_any_text_can_be_reworded(text, form): assert reworded(choice(text=text), 1, form).strip()

def test_keywords_keep_what_turns_a_question_round():
    assert "except" in reworded(choice(text="All of the following are true of the liver except"), 1, "keywords")
    assert "not" in reworded(choice(text="Which is not a bone of the hand?"), 1, "keywords").split()

def test_taught_and_others_share_subjects_and_no_question():
    taught, others = mark_questions.taught_and_others(OWN, 12, 12, seed=4)
    assert len(taught) == len(others) == 12 and not {c.id for c in taught} & {c.id for c in others}
    assert {c.subject for c in taught} == {c.subject for c in others}


# the choice

@pytest.mark.parametrize("said", ["It is the pancreas: beta cells.", "PANCREAS", "pancreatic", "Pancreas — it makes insulin."])
def test_the_answers_words_go(said): assert "pancre" not in without_answer(said, "Pancreas").casefold()

@given(st.integers(0, 39))
@settings(max_examples=40, deadline=None)
def test_no_word_of_the_answer_stays(i):
    c = OWN[i]
    left = without_answer(f"{c.question} — {c.answer}. {c.explanation}", c.answer)
    assert not set(content_stems(c.answer)) & set(content_stems(left)), left

def test_scores_are_per_token():
    class Even(ScriptedLM):
        def score_labels(self, prompts, labels, prefix=""): return np.array([[-2.*self.count_tokens(l) for l in labels] for _ in prompts])
    np.testing.assert_allclose(mark_questions.option_scores(Even([]), "p", ["one", "two words", "three words here"]), -2.)

def test_the_order_of_options_changes_nothing():
    picker = Picker(Deaf())
    for c in OWN[:8]: assert len({(m := shuffled(c, s)).options[picker.pick(c.question, m.options)] for s in range(6)}) == 1

def test_the_same_prompt_is_asked_once():
    model = Scripted()
    picker = Picker(model)
    for s in range(5): picker.pick("Which?", shuffled(OWN[0], s).options, ["m"])
    assert len(model.prompts) == 1
    picker.pick("Which?", OWN[0].options, ["another"])
    assert len(model.prompts) == 2

def test_a_model_that_only_writes():
    c = OWN[0]
    picker = Picker(ScriptedLM(lambda messages: "Hard to say." if "options" in messages[-1].text else f"{'ABCD'[c.right]}. {c.answer}"))
    assert picker.pick(c.question, c.options) == c.right
    assert picker.pick("options?", c.options) is None

def test_own_answers_are_not_in_the_prompt():
    prompt = lesson_prompt("No, it is X.", ["m"], [("Q?", "I think the answer is Y.")])
    assert prompt == "Memory: m\n\nQuestion: Q?\nExpert: No, it is X.\nAnswer:"


# conversations

def test_right_at_once_needs_nobody():
    c = choice(options=("Liver and more", "Gut", "Spleen and more"))
    lesson = converse(Picker(Deaf()), c, "ann")
    assert lesson.right and lesson.use.turns == 0 and len(lesson.said) == 1

def test_who_never_listens_is_corrected_four_times():
    lesson = converse(Picker(Deaf()), choice(options=("Gut", "Pancreas", "Spleen")), "ann")
    assert not lesson.right and lesson.use.turns == MOST_TURNS and len(lesson.picks) == len(lesson.said) == MOST_TURNS + 1
    assert lesson.said[-1][0] not in YES and lesson.use.right_at is None

def test_counts_are_of_what_was_said(lessons):
    for l in lessons:
        assert l.use.turns == len(l.picks) - 1 and l.said[-1][0] in YES
        assert l.use.words == sum(len(f"{q} {a}".split()) for q, a in l.said if a)

def test_the_expert_names_the_right_option_and_gives_other_reasons():
    c = next(c for c in OWN if len(mark_questions.reasons(c)) >= 3)
    said = [correction_of(c, 0, t) for t in range(1, MOST_TURNS + 1)]
    assert all(c.answer in s for s in said) and said == [correction_of(c, 0, t) for t in range(1, MOST_TURNS + 1)]
    assert mark_questions.reasons(c)[0] in said[0] and mark_questions.reasons(c)[2] in said[1]

def test_without_a_reason_the_option_is_enough(): assert correction_of(choice(explanation="Pancreas."), None, 1).endswith("Pancreas.")

@pytest.mark.parametrize("option, before, words", [(None, None, "I don't know."), ("Gut", None, "I think"), ("Gut", "Gut", "I still think"), ("Liver", "Gut", "You are right.")])
def test_what_the_chatbot_says(option, before, words): assert chatbot_says(option, before).startswith(words)


# memory

def test_every_lesson_leaves_something(learned, lessons):
    assert len(learned.added) == len(lessons) and all(a["residual"] >= 1 for a in learned.added)

def test_others_see_residual_memories_only(learned, lessons):
    for l in lessons:
        kinds = {m.kind for m in recalled(learned.search, COLLEAGUE, l.choice.question)}
        assert kinds <= {"residual"}
        assert any(l.choice.answer.casefold() in t.casefold() for t in texts(recalled(learned.search, l.user, l.choice.question))), l.choice.id

def test_what_has_nothing_to_do_with_it_recalls_nothing(learned): assert recalled(learned.search, EXPERTS[0], "How do I change the tyre of a bicycle?") == ()

def test_an_unknown_session_added_nothing(learned): assert added_by(learned.search.store, EXPERTS[0], "s-none") == dict.fromkeys(KINDS, 0)


# again

def test_rows_show_what_they_say(lessons, embedder):
    choices, first = OWN[:10], [False]*10
    with MemoryStore(":memory:") as store:
        made = learn(lessons, Builder(store, embedder, embedded_agents()), RefinedSearch(store, embedder, PAPER_SETTINGS))
        asked = mark_again.ask_again(mark_again.Course(Picker(Scripted()), choices, OWN[10:13], first, lessons, progress=False), made)
    assert set(asked.memories[AGAIN]) == {()} and len(asked.right[MEMORY]) == 10
    for c, own, bare, other in zip(choices, asked.memories[MEMORY], asked.memories[BARE], asked.memories[RANDOM]):
        assert len(own) == len(bare) and not set(content_stems(c.answer)) & set(content_stems(" ".join(bare)))
        assert not set(own) & set(other) and bool(other) == bool(own)
    assert all(len(m) <= 1 for m in asked.memories[RAW]) and not any(m in YES for ms in asked.memories[RAW] for m in ms)
    assert sum(asked.right[MEMORY]) > sum(asked.right[AGAIN])

def test_without_lessons_there_is_nothing_to_show(embedder):
    assert mark_again.raw_memories([], embedder, ["a", "b"], .5) == [(), ()]

pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40).filter(lambda p: not all(b for _, b in p))

@given(pairs)
@settings(max_examples=15, deadline=None)
def test_errors_removed_by_hand(some):
    now, before = zip(*some)
    vanished, broken, wrong = sum(n and not b for n, b in some), sum(b and not n for n, b in some), sum(not b for b in before)
    found = errors_removed(now, before)
    assert found.mean == pytest.approx((vanished - broken)/wrong) and found.n == len(some)
    assert np.isnan(found.low) or found.low <= found.high <= 1

@pytest.mark.parametrize("now, before", [([], []), ([1, 1], [1, 1]), ([0], [1])])
def test_no_errors_no_share(now, before):
    with pytest.raises(ValueError): errors_removed(now, before)

def test_a_row_is_compared_with_its_own_reference():
    right = {FIRST: (False, True), AGAIN: (False, False), MEMORY: (True, True), mark_again.SAME: (True, True), mark_again.OTHERS_AGAIN: (False,), mark_again.OTHERS: (False,)}
    right |= dict.fromkeys((OTHER, BARE, RANDOM, RAW), (False, False))
    rows = {(r["row"], r["metric"]): r for r in mark_again.refinement_rows(Asked(right, {}, (True, False)))}
    assert rows[MEMORY, "errors removed"]["ours"] == rows[mark_again.SAME, "errors removed"]["ours"] == 1.
    assert rows[mark_again.SAME, "vanished, of the errors"]["n"] == 1 and rows[MEMORY, "vanished, of the errors"]["n"] == 2
    assert rows[mark_again.OTHERS, "errors removed"]["ours"] == 0. and (AGAIN, "errors removed") not in rows
    assert rows[AGAIN, "right"]["control"] and rows[BARE, "right"]["control"] and not rows[MEMORY, "right"]["control"]
    assert rows[f"{MEMORY}, corrected questions only", "right"]["n"] == 1


# free text

def test_differences_and_ratios():
    assert mark_texts.times([.4, .2], [.2, .1]).mean == pytest.approx(2.) and mark_texts.times([1.], [0.]) is None
    assert mark_texts.mean_difference([1., 1.], [.5, .5]).mean == .5 and mark_texts.mean_difference([], [1.]) is None

def test_scores_come_back_from_json(run):
    again = json.loads(json.dumps(run))
    assert mark_texts.read_kept(again, MEMORY) == mark_texts.read_kept(run, MEMORY)
    with pytest.raises(ValueError, match="run_mark"): mark_texts.read_kept({"answers": []}, MEMORY)


# the run

def test_the_same_twice(run, embedder):
    once_more = mark.measured(TINY, Scripted(), embedder, OWN, "own", progress=False)
    timeless = lambda rows: [r for r in rows if not r["metric"].startswith("ms ")]
    assert timeless(once_more["rows"]) == timeless(run["rows"]) and once_more["answers"] == run["answers"]

def test_form_and_nobodys_words(run, tmp_path):
    assert all(tuple(r) == ROW for r in run["rows"]) and save_result(run, tmp_path/"mark.json").is_file()
    assert {r["table"] for r in run["rows"]} >= {"Table 1", "Table 4", "Table 5", "Table 7", "Experiment 3", "Figure 2", "Figure 4"}
    assert not any(part[:30] in json.dumps(run) for c in OWN for part in (c.text, c.explanation))

def test_pictures(run):
    for draw in (mark.figure_2, mark.figure_3, mark.figure_4, mark.figure_5, mark.figure_6):
        (ax,) = draw(run).figure.axes
        assert (ax.get_xlabel() or ax.get_xticklabels() or ax.texts) and draw(run).png(dpi=40).startswith(b"\x89PNG")
    assert [l.name for l in mark.table_4(run).lines] == ["turns", "tokens", "words"] and len(mark.table_7(run).lines) == 6

def test_what_has_words_instead_of_figures(run):
    text = mark.word_rows(run)
    assert "Table 3" in text and "practitioner 2" in text and mark.word_rows({}) == str(mark.table_3())

def test_two_practitioners(run):
    who = [l["who"] for l in run["scenario"]]
    assert who[-1] == mark_scenario.CONTROL and who.index(mark_scenario.LEARNED) < who.index(mark_scenario.TWO)
    assert "pulpectomy" in run["scenario"][who.index(mark_scenario.LEARNED)]["text"]
    assert all(len(line) <= 60 for line in mark_scenario.transcript(run["scenario"], 60).splitlines())

def test_table_7_differs_from_the_print_in_one_verdict():
    kept = [(r["ours"], r["paper"]) for r in mark_scenario.table_7_rows() if r["metric"].startswith("kept")]
    assert len(kept) == 6 and [a != b for a, b in kept].count(True) == 1

def test_table_1_takes_only_what_both_sides_have(run):
    rows = mark_scenario.table_1_rows([r for r in run["rows"] if r["row"] != AGAIN], 1.)
    assert not [r for r in rows if r["metric"] == "right, MARK" and "corrected" not in r["row"]]

def test_table_3_names_both_experts():
    text = str(mark.table_3())
    assert "GPT-4" in text and "simulated" in text and len(text.splitlines()) == 6

def test_a_model_that_only_writes_runs_too(embedder):
    small = replace(TINY, taught=3, others=2, texts=1)
    found = mark.measured(small, ScriptedLM(lambda messages: "B."), embedder, OWN, "own", progress=False)
    assert next(r for r in found["rows"] if (r["row"], r["metric"]) == (AGAIN, "right"))["n"] == 3

def test_nothing_to_ask(embedder):
    with pytest.raises(ValueError, match="at least one"): mark.measured(TINY, Scripted(), embedder, [], "none", progress=False)
