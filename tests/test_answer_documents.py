"Answers from documents: headers and furniture, units, which sentences are said, and when nothing answers."
import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from memkit.answer.from_documents import (EVIDENCE, JudgedPassage, PassageScorer, chosen_sentences, document_answer, focused,
                                          from_documents, in_words, is_furniture, load_passages, nearest_part,
                                          probability_answered, answerable_features, sentences_of, units, without_header)
from memkit.answer.training import batched
from memkit.models.lm import ScriptedLM
from memkit.reading.examples import Example
from memkit.records import Document
from memkit.search.documents import RetrieveSettings, index_documents, split_sentences
from memkit.hybrid import read_corpus
from memkit.hybrid.chatbot import NOTICE, HybridSettings
from memkit.turn.assistants import open_assistant

few = settings(max_examples=60, deadline=None)

# --- text and furniture


@pytest.mark.parametrize("text, asks, body", [
    ("Question: What causes Gout ? URL: https://a.org/x Answer: Crystals do.", "What causes Gout ?", "Crystals do."),
    ("Question: What is it?\nAnswer: A cold.", "What is it?", "A cold."),
    ("URL: https://a.org/x Crystals do.", "", "Crystals do."),
    ("Key Points\n- Gout hurts. It passes.", "", "Gout hurts. It passes."),
    ("Summary : Meth is a drug.", "", "Meth is a drug."),
    ("A question: what helps?", "", "A question: what helps?"), ("", "", "")])
def test_a_header_becomes_the_heading(text, asks, body): assert without_header(text) == (asks, body)


@pytest.mark.parametrize("sentence", [
    "What causes dermatomyositis?", "See the PDQ summary about leukemia.", "Click here to learn more.", "Symptoms",
    "NIH: National Institute of Allergy and Infectious Diseases", "https://medlineplus.gov/gout.html", "Key Points",
    "These resources address the diagnosis or management of sickle cell disease: - Gene Review", "…", ""])
def test_furniture(sentence): assert is_furniture(sentence)


@pytest.mark.parametrize("sentence", [
    "Treatment is symptomatic and supportive.", "Brush and floss your teeth.", "Seek medical help at once.",
    "See a doctor if the pain lasts longer than a week.", "Rest the joint."])
def test_what_says_something_is_no_furniture(sentence): assert not is_furniture(sentence)


words = st.sampled_from(["Gout hurts.", "- Fever", "- Weight loss.", "These are signs:", "Why?", "see a doctor", "Ω 药.", "\n\n", "A. B."])

@few
@given(st.lists(words, max_size=12))
def test_units_are_stretches_in_order_that_hold_every_sentence(parts):
    text = " ".join(parts)
    found = units(text)
    assert all(a < b for a, b in found) and all(b <= c for (_, b), (c, _) in zip(found, found[1:]))
    bare = [re.sub(r"[\s-]", "", t) for t in (text, "".join(text[a:b] for a, b in found))]
    assert bare[0] == bare[1], "nothing is lost"


def test_points_stay_with_what_leads_to_them():
    text = "Gout hurts. See a doctor for: - Fever. - Weight loss. - A rash. Most people get well."
    assert [text[a:b] for a, b in units(text)] == ["Gout hurts.", "See a doctor for: - Fever. - Weight loss. - A rash.", "Most people get well."]
    key_points = "One is true. - Two is true. - Three is true."
    assert [key_points[a:b] for a, b in units(key_points)] == ["One is true.", "Two is true.", "Three is true."]


@few
@given(st.lists(st.sampled_from(["I am 61.", "Why does it hurt?", "My wife drives me everywhere these days.", "thanks", "x "*70]), min_size=1, max_size=12))
def test_a_long_message_keeps_its_questions(parts):
    message = " ".join(parts)
    short = focused(message)
    assert short.strip() and len(short.split()) <= 55
    if "Why does it hurt?" in split_sentences(message): assert "Why does it hurt?" in short


# --- in few words

LIST = "See a doctor for any of these: - Fever or night sweats. - Easy bruising. - Weight loss."

@few
@given(st.integers(1, 40))
def test_a_list_is_cut_between_points(room):
    text = in_words(LIST, room)
    assert len(text.replace("; …", "").split()) <= room
    assert not text or text.startswith("See a doctor for any of these: Fever or night sweats")
    assert text.endswith("…") == (0 < len(text) < len(in_words(LIST, 99)))


# --- which sentences

def judged(text, *scores, relevant=.9):
    return JudgedPassage(text, relevant, tuple((a, b, p) for (a, b), p in zip(units(text), scores, strict=True)))


def test_furniture_is_never_said_however_likely():
    j = judged("Click here for more information. Brush your teeth daily. What is it?", .99, .6, .99)
    assert [s.text for s in sentences_of([j], [0])] == ["Brush your teeth daily."]
    assert j.answers == .6


def test_one_document_speaks_in_its_own_order():
    a, b = judged("First comes this one. Then comes that one.", .8, .9), judged("Another says so too.", .85)
    said = chosen_sentences(sentences_of([a, b], [0, 1]), 60)
    assert [(s.text, s.document) for s in said] == [("First comes this one.", 0), ("Then comes that one.", 0)]


def test_what_is_unlikely_is_not_said():
    j = judged("It may be so perhaps. Nobody knows why it is.", .1, .12)
    assert sentences_of([j], [0]) == [] and sentences_of([j], [0], least=0.) != []


def test_the_second_document_speaks_only_if_it_is_worth_twice_as_much():
    first, weak, strong = judged("Rest the joint.", .4), judged("Cool the joint.", .7), judged("Raise the leg.", .9)
    def speaks(*read): return chosen_sentences(sentences_of(read, range(len(read))), 60)[0].document
    assert speaks(first, weak) == 0 and speaks(first, strong) == 1


# --- batches

def test_a_question_is_never_torn_between_batches():
    groups = [[Example("passage", "", ("why", f"part {i}"), 1, {}, (), {"group": f"q{i}"})]*n for i, n in enumerate((3, 5, 2, 7, 1))]
    made = batched([*groups, []], 8, random.Random(0))
    assert sum(map(len, made)) == 18
    where = {g: {n for n, b in enumerate(made) for e in b if e.source["group"] == g} for g in ("q0", "q1", "q2", "q3", "q4")}
    assert all(len(at) == 1 for at in where.values())


# --- the scorer

PAGES = [
    Document(id="valve", text="Question: How to prevent Endocarditis ? URL: https://a.org/e Answer: Key Points\n- Endocarditis can be prevented. Brush and floss your "
             "teeth regularly. Avoid body piercing and tattoos. Click here to learn more. NIH: National Heart, Lung, and Blood Institute"),
    Document(id="gout", text="Question: What causes Gout ? URL: https://a.org/g Answer: Gout is caused by crystals of uric acid in a joint. Beer and red meat raise uric acid."),
    Document(id="cold", text="A cold is caused by a virus. It passes within ten days. Honey may ease the cough."),
    Document(id="links", text="What causes gout? See the PDQ summary about gout. Click here for more information.")]

@pytest.fixture(scope="module")
def pages(): return index_documents(PAGES)


@pytest.mark.parametrize("question", ["What causes gout?", "how do i keep germs off my new heart valve", "Is gout caused by beer? And how long does a cold last?"])
def test_no_answer_holds_furniture(pages, question):
    made = from_documents(question, pages.search(question, 4), pages)
    assert made.text and sum(len(s.text.split()) for s in made.said) <= 60
    for bad in ("Question:", "URL", "http", "Key Points", "Click here", "PDQ", "NIH:", "Answer:"): assert bad not in made.text
    assert {int(n) for n in re.findall(r"\[(\d+)\]", made.text)} <= {1, 2, 3, 4}


def test_reading_is_the_same_alone_and_together():
    pairs = [("What causes gout?", "", d.text) for d in PAGES]*3
    together, other = load_passages().judge(pairs), PassageScorer()
    for pair, j in zip(pairs, together): assert other.judge([pair])[0] == j
    assert other.judge([]) == []


def test_what_was_judged_is_not_read_again(monkeypatch):
    scorer, read = PassageScorer(), []
    real = scorer.states
    monkeypatch.setattr(scorer, "states", lambda rows: (read.append(len(rows)), real(rows))[1])
    pairs = [("What causes gout?", "", d.text) for d in PAGES]
    assert scorer.judge(pairs + pairs) == scorer.judge(pairs)*2 and sum(read) == len(PAGES)
    scorer.judge([("What causes gout?", "Gout", PAGES[1].text), ("Why?", "", PAGES[1].text)])
    assert sum(read) == len(PAGES) + 2, "another heading or question is read"
    assert all("gout" not in str(k) for k in scorer._kept), "no user's words stay"


def test_judgements_are_kept_up_to_a_number(monkeypatch):
    monkeypatch.setattr("memkit.answer.from_documents._MOST", 3)
    scorer = PassageScorer()
    found = scorer.judge([(f"What is gout, part {i}?", "", "Gout hurts.") for i in range(6)])
    assert len(found) == 6 and len(scorer._kept) == 3


def test_threads_judge_alike(monkeypatch):
    pairs = [("What causes gout?", "", d.text) for d in PAGES]
    alone = PassageScorer().judge(pairs)
    monkeypatch.setattr("memkit.answer.from_documents.usable_cores", lambda: 4)
    assert PassageScorer().judge(pairs) == alone


# --- the part of a passage that is read

@few
@given(st.lists(words, max_size=60), st.integers(1, 30), st.sampled_from(["Why fever?", "", "doctor", "药"]))
def test_the_nearest_part_is_a_stretch_of_whole_units(parts, most, question):
    text = " ".join(parts)
    part, spans = nearest_part(question, text, most), units(text)
    assert part in text and (len(text.split()) > most or part == text)
    if part != text:
        starts, ends = {a for a, _ in spans}, {b for _, b in spans}
        at = [i for i in starts if text.startswith(part, i) and i + len(part) in ends]
        assert at and (len(part.split()) <= most or any((i, i + len(part)) in spans for i in at))


def test_the_nearest_part_shares_most_words():
    text = "It rains a lot. "*40 + "Gout is treated with colchicine. " + "It snows now. "*40
    assert "colchicine" in nearest_part("How is gout treated?", text) and text.startswith(nearest_part("Zebra?", text))


def test_eight_bits_order_as_thirty_two_do():
    class Exact(PassageScorer): bits = 32

    entries = list(read_corpus("own"))[:40]
    pairs = [("How is asthma treated?", d.title, d.text) for d in entries]
    a, b = ([j.relevant for j in s.judge(pairs)] for s in (load_passages(), Exact()))
    assert max(abs(x - y) for x, y in zip(a, b)) < .2


# --- enough or not, and in the turn

def test_nothing_found_is_no_evidence(pages):
    assert set(answerable_features("gout", [], pages).values()) == {0.}
    assert probability_answered(answerable_features("gout", [], pages)) < .5


class First:
    "A search that knows no passages."
    def search(self, query, k=5): return [replace(h, parts={}) for h in index_documents(PAGES).search(query, k)]


def test_evidence_is_of_the_document_that_speaks(pages):
    hits = pages.search("What causes gout?", 4)
    found = answerable_features("What causes gout?", hits, pages)
    assert all(-1 <= v <= 1 for v in found.values()) and found["shared"] == 1. and found["near"] > .5
    away = answerable_features("What causes gout?", [h for h in hits if h.item.id != "gout"], pages)
    assert probability_answered(away) < probability_answered(found)
    assert answerable_features("?", hits, pages)["shared"] == 0.


def test_titles_are_read_only_where_they_are_searched():
    titled = [Document(id="a", title="What causes gout?", text="Crystals do."), Document(id="b", title="Colds", text="A virus does.")]
    bare = index_documents(titled, settings=RetrieveSettings(titles=False))
    full = index_documents(titled)
    a, b = (answerable_features("What causes gout?", r.search("What causes gout?", 2), r) for r in (full, bare))
    assert a["near"] > b["near"] and a["relevant"] != b["relevant"]


def test_any_search_will_do():
    hits = First().search("What causes gout?", 2)
    assert set(answerable_features("What causes gout?", hits, First())) == set(EVIDENCE)
    assert from_documents("What causes gout?", hits, First()).text


def opened(design="hybrid", lines=("I am a model.",)*4, **more):
    return open_assistant(design, store=":memory:", model=ScriptedLM(list(lines)), **more)


def test_the_chatbot_answers_from_documents_without_its_model():
    with opened() as bot:
        turn = bot.chat("ann", "What are the signs of dehydration in a baby?")
    assert turn.extra["answer"]["way"] == "documents" and not turn.fallback and "model" not in turn.answer
    cited = {int(n) for n in re.findall(r"\[(\d+)\]", turn.answer)}
    assert cited and cited <= set(range(1, len(turn.documents) + 1))
    shown = " ".join(h.item.text for h in turn.documents)
    assert all(c["text"].rstrip("…;. ") in shown for c in turn.extra["checked"])


def test_what_no_document_answers_is_declined():
    with opened() as bot:
        turn = bot.chat("ann", "What does the pharmacy in Mill Lane charge for a box of plasters?")
    assert turn.fallback and turn.answer == NOTICE


def test_the_papers_way_asks_the_model():
    with opened(settings=HybridSettings(answers="model", check=False)) as bot:
        turn = bot.chat("ann", "What are the signs of dehydration in a baby?")
    assert turn.answer == "I am a model." and document_answer(bot, turn) is None


def test_an_answer_from_documents_is_kept_as_an_exchange():
    with opened() as bot:
        bot.consent("ann")
        turn = bot.chat("ann", "What are the signs of dehydration in a baby?")
        kept = bot.memories("ann")[0]
    assert turn.extra["answer"]["way"] == "documents" and not kept.meta.get("fallback")
    assert kept.meta["answer"] and "[1]" not in kept.meta["answer"]
