"The memory encoder: which memory answers which question, recall by hand, pairs without leaks, training that gives the same twice, and a store that stays valid."
import json
from dataclasses import replace
from datetime import datetime, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memkit.search.contrastive import AdapterSettings, Pairs
from memkit.models.embed import MiniLM, check_embedder
from memkit.files import own_data
from memkit.reading.rounds import chat_sentences
from memkit.search.memories import RecallSettings
from memkit.store.store import MemoryStore
from memkit.malp.memories import (Kept, MemoryEncoder, MemoryQuestion, held_back, kept_memories, load_memory_encoder, memory_pairs, memory_questions, nearest, training_questions, read_patients, recall_at,
                                 telling, train_memory_encoder, what_is_told, with_name)
from memkit.malp.memories import DPeMMemory
from memkit.malp.patients import profile_questions, simulate
from memkit.malp.timelines import families, family_split, knowledge
from memkit.malp.memories import MalpRecall
from memkit.malp.patients import Said

AT = datetime(2024, 5, 1, tzinfo=timezone.utc)
QUICK = AdapterSettings(rank=2, batch=8, epochs=1, look_every=1, learning_rate=5e-3)


@pytest.fixture(scope="module")
def plain(): return MiniLM()


@pytest.fixture(scope="module")
def people(): return simulate(2, seed=3, n_visits=4, split="train")


@pytest.fixture(scope="module")
def memory(plain, people):
    m = DPeMMemory(MemoryStore(":memory:"), plain)
    read_patients(m, people, plain.name)
    return m


@pytest.fixture(scope="module")
def kept(memory, plain, people): return {p.id: kept_memories(memory.store, p.id, plain.name) for p in people}


def asked(text="What am I allergic to?", answers=(1,), user="ann", about=("allergy",), **names): return MemoryQuestion(user, text, answers, about, names, text)


def holding(user, *sources, dim=3):
    vectors = np.eye(dim, dtype=np.float32)[[i % dim for i in range(len(sources))]]
    return Kept(user, tuple(range(10, 10 + len(sources))), tuple(words for _, words in sources), tuple(sources), vectors)


# ---- which memory answers

def test_telling_wants_the_round_and_the_sentence():
    k = holding("ann", ("r1", "I take 5 mg."), ("r2", "I take 5 mg."), ("r1", "It rains."), ("r3", 'Asked "How much?", the user answered "Ten now."'), ("r4", "x"))
    said = lambda r, s: Said(r, AT, "user", s, "f")
    assert telling(k, [said("r1", "I take 5 mg.")]) == [0]
    assert telling(k, [said("r1", "I take 5 mg."), said("r2", "I take 5 mg.")]) == [0, 1]
    assert telling(k, [said("r3", "Ten now.")]) == [3], "a short answer is kept with its question"
    assert telling(k, [said("r1", "I take 5 mg. It rains.")]) == [0, 2], "what was said in two sentences may be kept as two memories"
    assert telling(k, [said("r9", "I take 5 mg.")]) == telling(k, []) == []


def test_answers_hold_the_fact_and_are_the_users_own(people, kept):
    for p in people:
        k, gold = kept[p.id], {f.id: f for f in p.facts}
        source = dict(zip(k.ids, k.sources))
        questions = {q.question: q for q in profile_questions(p)}
        mine = [q for q in memory_questions(p, k) if q.text in questions]
        assert len(mine) == len(questions) and any(q.answers for q in mine)
        for q in mine:
            told = [s for name in questions[q.text].facts for s in gold[name].said]
            for id in q.answers:
                round, words = source[id]
                assert round in questions[q.text].rounds and any(s.round == round and any(piece in words for _, piece in chat_sentences(s.sentence)) for s in told)


def test_kept_memories_are_those_in_force(memory, kept, plain, people):
    for p in people:
        there = memory.store.list(p.id)
        assert sorted(kept[p.id].ids) == sorted(m.id for m in there) and len(kept[p.id].texts) == len(there)
        assert np.allclose(plain.embed(list(kept[p.id].texts)), kept[p.id].vectors, atol=1e-4)
    assert kept_memories(memory.store, "nobody", plain.name).ids == ()


def test_questions_name_what_they_ask_for(people, kept):
    p = people[0]
    every = memory_questions(p, kept[p.id], every_wording=True)
    assert {q.text for q in memory_questions(p, kept[p.id])} <= {q.text for q in every}
    for q in every:
        assert "day" not in q.names and "{" not in q.text and all(v.lower() in q.text.lower() for v in q.names.values())
        assert ("{drug}" in q.wording) == ("drug" in q.names)


# ---- no leaks

def test_training_and_scoring_share_no_wording_and_no_person():
    train, score = ({w for f in families(None, "question", s) for w in f.say} | {w for k in knowledge(s) for w in k.question} for s in ("train", "score"))
    assert train and score and not train & score
    assert all(family_split(f.id) == "train" for f in families(None, "ask", "train"))
    mine, theirs = simulate(1, 0, 3, split="train")[0], simulate(1, 0, 3, split="score")[0]
    none = lambda p: Kept(p.id, (), (), (), np.empty((0, 3), np.float32))
    asked_in = lambda p: {q.wording for q in memory_questions(p, none(p), every_wording=True)}
    assert asked_in(mine) <= train and asked_in(theirs) <= score


def test_held_back_wordings_are_a_quarter_and_stay_the_same():
    wordings = [w for f in families(None, "question", "train") for w in f.say]
    back = [w for w in wordings if held_back(w)]
    assert .1 < len(back)/len(wordings) < .45
    assert [held_back(w) for w in ("How old am I?", "What is my age?", "What is my job?")] == [False, False, False]


def test_pairs_stay_with_their_user_unless_told_otherwise(people, kept):
    questions = [q for p in people for q in memory_questions(p, kept[p.id]) if q.answers]
    pairs, start = memory_pairs(questions, kept), {}
    at = 0
    for user, k in kept.items(): start[user], at = at, at + len(k.ids)
    assert len(pairs.vectors) == at
    for q, rows in zip(questions, pairs.answers):
        k = kept[q.user]
        assert {r - start[q.user] for r in rows} == {k.ids.index(id) for id in q.answers}


def test_other_users_memories_count_where_they_tell_the_same():
    ann, bob = holding("ann", ("a", "5 mg of ramipril"), ("b", "rain")), holding("bob", ("c", "10 mg of ramipril"), ("d", "20 mg of metformin"), ("e", "snow"))
    told = {"ann": [[{"about": "dose", "drug": "ramipril", "mg": "5 mg"}], []], "bob": [[{"about": "dose", "drug": "ramipril", "mg": "10 mg"}], [{"about": "dose", "drug": "metformin"}], []]}
    named, unnamed = asked("How much ramipril?", (10,), about=("dose",), drug="ramipril"), asked("Which doses?", (10,), about=("dose",))
    both = {"ann": ann, "bob": bob}
    assert memory_pairs([named], both, told).answers == [[0, 2]]
    assert memory_pairs([unnamed], both, told).answers == [[0, 2, 3]]
    assert memory_pairs([named], both).answers == [[0]], "without gold, a user's own answers alone"


def test_what_is_told_names_old_values_too(people, kept):
    p = people[0]
    told = what_is_told(p, kept[p.id])
    assert len(told) == len(kept[p.id].ids) and any(told)
    old = [f for f in p.facts if f.until]
    for f in old:
        for i in telling(kept[p.id], f.said): assert any(t["about"] == f.about for t in told[i])


def test_practice_holds_every_wording_and_only_what_can_be_answered(people, kept):
    for p in people:
        practice = training_questions(p, kept[p.id])
        every = {(q.text, q.answers) for q in memory_questions(p, kept[p.id], every_wording=True) if q.answers}
        assert every < {(q.text, q.answers) for q in practice} and all(q.answers for q in practice)


def test_with_name_changes_words_not_answers(people, kept, plain):
    p = people[0]
    questions = memory_questions(p, kept[p.id])
    named, k = with_name(questions, kept[p.id], "Ines", plain)
    assert [q.answers for q in named] == [q.answers for q in questions] and k.ids == kept[p.id].ids
    assert any("Ines" in q.text for q in named) and not any("the user" in t.lower() for t in k.texts)
    assert np.allclose(plain.embed(list(k.texts)), k.vectors, atol=1e-4)


# ---- recall

def test_recall_by_hand():
    one, two = asked(answers=(7,)), asked(answers=(7, 9))
    assert recall_at([one, two], [[3, 7], [9, 3]], 1).tolist() == [0, 1]
    assert recall_at([one, two], [[3, 7], [9, 3]], 2).tolist() == [1, .5]
    assert recall_at([two], [[]], 5).tolist() == [0] and recall_at([], [], 5).shape == (0,)


@given(st.lists(st.integers(0, 20), unique=True, max_size=12), st.sets(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 12))
def test_recall_is_a_share_that_grows_with_what_is_found(found, answers, k):
    r = recall_at([asked(answers=tuple(answers))], [found], k).item()
    assert 0 <= r <= 1 and r == len(answers & set(found[:k]))/min(k, len(answers))
    assert recall_at([asked(answers=tuple(answers))], [sorted(answers) + [x for x in found if x not in answers]], k).item() == 1


def test_nearest_is_by_meaning_and_looks_at_the_own_user_alone(people, kept, plain):
    p, q = people
    questions = [a for a in memory_questions(p, kept[p.id]) if a.answers]
    found = nearest(questions, kept, plain, 5)
    assert all(set(f) <= set(kept[p.id].ids) and len(f) == 5 for f in found) and nearest([], kept, plain) == []
    brute = MalpRecall(_store_of(kept[p.id], plain), plain, settings=RecallSettings(words=0, message=0, before=()))
    assert [[kept[p.id].texts[kept[p.id].ids.index(i)] for i in f] for f in found[:5]] == [[h.item.text for h in brute.recall(p.id, a.text, 5)] for a in questions[:5]]


def _store_of(k, plain):
    s = MemoryStore(":memory:")
    for text, v in zip(k.texts, k.vectors): s.add(k.user, text, v, kind="short-term", encoder=plain.name)
    return s


# ---- training and use

@pytest.fixture(scope="module")
def toy(plain):
    facts = ["The user is allergic to nuts.", "The user lives in Leeds.", "The user takes ramipril.", "The user plays the cello.", "The user has a cat.", "The user works nights."]
    asks = ["What can't I eat?", "Where's home?", "Which tablets?", "Which instrument?", "What animal?", "When is my shift?"]
    return Pairs(asks, [[i] for i in range(6)], plain.embed(facts)), facts


@pytest.fixture(scope="module")
def adapter(toy): return train_memory_encoder(toy[0], None, QUICK, progress=False, note="six facts")


def test_training_is_the_same_twice_and_takes_no_validation(toy, adapter):
    a, b = adapter, train_memory_encoder(toy[0], None, QUICK, progress=False, note="six facts")
    assert a.digest == b.digest and a.card["note"] == "six facts" and any(np.abs(w).max() > 0 for name, w in a.weights.items() if name.endswith(".B"))


def test_a_store_stays_valid_with_and_without_the_encoder(toy, adapter, plain):
    facts, tuned = toy[1], MemoryEncoder(adapter.at(2.))
    check_embedder(lambda: tuned)
    assert tuned.name == plain.name and tuned.adapter and np.array_equal(tuned.embed(facts), plain.embed(facts))
    assert not np.allclose(tuned.embed(["Which tablets?"], "query"), plain.embed(["Which tablets?"], "query"), atol=1e-3)
    with MemoryStore(":memory:") as store:
        for t, v in zip(facts[:3], plain.embed(facts[:3])): store.add("ann", t, v, kind="short-term", encoder=plain.name)
        for t, v in zip(facts[3:], tuned.embed(facts[3:])): store.add("ann", t, v, kind="short-term", encoder=tuned.name)
        for e in (plain, tuned): assert {h.item.text for h in MalpRecall(store, e).recall("ann", "Which tablets?", 6)} == set(facts)


def test_the_encoder_that_travels_with_memkit(plain):
    e = load_memory_encoder()
    card = json.loads(own_data("minilm_memories.json").read_text("utf-8"))
    assert e.adapter == card["digest"] and "simulated patients" in card["note"] and e.name == plain.name
    assert np.array_equal(e.embed(["The user has a cat."]), plain.embed(["The user has a cat."]))
    assert .5 < float((e.embed(["What animal do I have?"], "query")*plain.embed(["What animal do I have?"], "query")).sum()) < .9999


# ---- refusals

def test_refusals(kept, people, plain):
    q = next(q for q in memory_questions(people[0], kept[people[0].id]) if q.answers)
    with pytest.raises(ValueError, match="one question at least"): memory_pairs([], kept)
    with pytest.raises(ValueError, match="give it one row or more"): memory_pairs([replace(q, answers=())], kept)
    with pytest.raises(ValueError, match="has no answer among the memories"): recall_at([replace(q, answers=())], [[1]])
    with pytest.raises(ValueError, match="1 questions and 2 rankings"): recall_at([q], [[1], [2]])
    with pytest.raises(ValueError, match="k must be 1"): recall_at([q], [[1]], 0)
    with pytest.raises(ValueError, match="nothing is left"): memory_pairs([asked(answers=(10,))], {"ann": holding("ann", ("r", "nuts"))})
    with pytest.raises(FileNotFoundError, match="there is no"): MemoryEncoder("nowhere")
