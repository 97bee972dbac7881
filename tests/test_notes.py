"Notes of a round: what is verbatim stays verbatim, owners stay owners, and the model is the one its sentences give."
import json
import re
import subprocess
import sys
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.files import own_data
from memkit.reading.notes import (FLAGS, KINDS, Round, chat_sentences, flags_of, points_back, short_answer,
                               shown_note, stitched)
from memkit.reading.notes import third_person
from memkit.reading.examples import note_sentences
from memkit.reading.notes import take_notes

NEGATION = re.compile(r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|nope|nah|cannot)\b|\b\w+n['’]t\b|\b(?:do|does|did|ca|is|was|have|has|are|wo|would|could|should)nt\b", re.I)
NUMBERS = re.compile(r"\d+(?:[.,:/]\d+)*|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|fifty|hundred|half|twice|dozen)\b", re.I)


# ---- sentences

@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_sentences_stand_in_their_text_in_order(text):
    end = 0
    for at, sentence in chat_sentences(text):
        assert text[at:at + len(sentence)] == sentence and at >= end and sentence == sentence.strip()
        end = at + len(sentence)
    assert sum(c.isalnum() for _, s in chat_sentences(text) for c in s) == sum(c.isalnum() for c in text), "no letter may be lost"


@pytest.mark.parametrize("text, found", [
    ("i'm ill. it began monday.", ["i'm ill.", "it began monday."]), ("Dr. Hall said 2.5 mg. I agreed.", ["Dr. Hall said 2.5 mg.", "I agreed."]),
    ("Really?!\nYes... maybe", ["Really?!", "Yes... maybe"]), ("Thanks.I have asthma.", ["Thanks.", "I have asthma."]), ("I don't. I can't.", ["I don't.", "I can't."]),
    ("Take e.g. ginger. Or tea 🙂 Bye", ["Take e.g. ginger.", "Or tea 🙂", "Bye"]), ("熱があります。頭も痛い。", ["熱があります。", "頭も痛い。"]), ("", []), ("🙂 !!! …", []),
    ("I'm 40. My son is 4. He is well.", ["I'm 40.", "My son is 4.", "He is well."])])
def test_chat_is_split_as_people_write_it(text, found): assert [s for _, s in chat_sentences(text)] == found


# ---- third person

def test_no_number_and_no_negation_changes_in_any_of_our_sentences():
    for row in note_sentences():
        for speaker in ("user", "assistant"):
            out = third_person(row.sentence, speaker)
            assert NUMBERS.findall(out.lower()) == NUMBERS.findall(row.sentence.lower()), (row.sentence, out)
            assert len(NEGATION.findall(out)) == len(NEGATION.findall(row.sentence)), (row.sentence, out)


WORDS = st.sampled_from("I you my your me we never not don't can't haven't have take took am are is was 20 3.5 mg two and but that if , . ? sister she he no yes \" doctor type work".split())

@given(st.lists(WORDS, min_size=1, max_size=14).map(" ".join), st.sampled_from(["user", "assistant"]))
@settings(max_examples=150, deadline=None)
def test_no_number_and_no_negation_changes_in_word_salad(text, speaker):
    out = third_person(text, speaker)
    assert NUMBERS.findall(out.lower()) == NUMBERS.findall(text.lower())
    assert len(NEGATION.findall(out)) == len(NEGATION.findall(text))


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_third_person_takes_any_text(text): assert isinstance(third_person(text), str)


@pytest.mark.parametrize("speaker, said, shown", [
    ("user", "My mother has diabetes.", "The user's mother has diabetes."), ("user", "My brother is allergic to peanuts, I am not.", "The user's brother is allergic to peanuts, the user is not."),
    ("user", "I work and my wife studies.", "The user works and the user's wife studies."), ("user", "He said \"I am fine\".", "He said \"I am fine\"."),
    ("user", "I can't, and I won't.", "The user can't, and the user won't."), ("user", "Should I stop?", "Should the user stop?"), ("user", "He has type I diabetes.", "He has type I diabetes."),
    ("user", "I carry it with me.", "The user carries it with the user."), ("user", "I'd rather walk.", "The user would rather walk."), ("user", "My wife and I are ill.", "The user's wife and the user are ill."),
    ("assistant", "Your mother's scan is clear.", "The user's mother's scan is clear."), ("assistant", "You have anaemia.", "The user has anaemia."), ("assistant", "I grew up in Bristol.", "The assistant grew up in Bristol."),
    ("assistant", "I want you to rest.", "The assistant wants the user to rest."), ("assistant", "If you smoke, you cough.", "If the user smokes, the user coughs.")])
def test_persons_and_verbs(speaker, said, shown): assert third_person(said, speaker) == shown


@pytest.mark.parametrize("said", ["My mother has diabetes.", "My sister had her appendix out.", "My dad died of a stroke in 1999.", "Our dog is on antibiotics.", "His wife takes warfarin.", "My best friend can't eat nuts."])
def test_other_peoples_facts_keep_their_owner(said):
    assert "other person" in flags_of(said)
    owner = re.search(r"mother|sister|dad|dog|wife|friend", said)[0]
    out = third_person(said)
    assert re.search(rf"(?:user's|His) (?:best )?{owner} ", out) and not re.search(r"\buser (?:has|had|is|takes|died)\b", out, re.I)


# ---- flags

def test_every_flag_that_the_writers_of_the_sentences_saw_is_found():
    wanted = [(flag, row) for row in note_sentences() for flag in row.flags]
    assert len(wanted) > 80 and not [row.sentence for flag, row in wanted if flag not in flags_of(row.sentence)]


@pytest.mark.parametrize("said, flag, there", [
    ("I'm not allergic to anything.", "severe", False), ("I had an allergic reaction to aspirin.", "severe", True), ("I live with my mother.", "other person", False), ("I think my son has measles.", "other person", True),
    ("Actually it's 20 mg.", "correction", True), ("It's actually nice.", "correction", False), ("If I had diabetes, I'd stop.", "hypothetical", True), ("If it itches I scratch.", "hypothetical", False),
    ("I’m not sure.", "negated", True), ("Another note.", "negated", False), ("They operated on my knee.", "other person", False), ("My wife and I moved.", "other person", False)])
def test_flags(said, flag, there): assert (flag in flags_of(said)) is there


def test_kind_words_of_a_friend_are_no_standing_wish():
    "A wish is in every later prompt; the reader alone sees one in each of these."
    def wishes(said: str) -> bool:
        return any("wish" in n.flags for n in take_notes(Round("r0", said, "")))
    assert wishes("Please keep your answers under three lines.") and wishes("When you give me recipes, put everything in grams.")
    assert not any(map(wishes, ("Your kind words mean a lot.", "Marketing is key.", "The colors are so bold.")))


def test_flags_are_of_the_list(): assert all(set(flags_of(r.sentence)) <= set(FLAGS) and set(r.flags) <= set(FLAGS) for r in note_sentences())


# ---- rounds and notes

PARTS = st.lists(st.one_of(st.sampled_from(["I have asthma.", "Yes.", "Since May 🙂", "Do you smoke?", "She is nine.", "J'ai mal.", "如果", "Thanks!", "i take 5mg", "\n- no"]), st.text(max_size=20)), max_size=6).map(" ".join)

@given(PARTS, PARTS, PARTS, st.sampled_from(["user", "assistant"]))
@settings(max_examples=40, deadline=None)
def test_notes_are_verbatim_or_stitched_of_verbatim_parts(user, assistant, before, first):
    try: r = Round("r", user, assistant, before=before, first=first)
    except ValueError: return  # nothing said, or characters that no store can hold
    notes = take_notes(r)
    for n in notes:
        side = getattr(r, n.speaker)
        if n.text.startswith('Asked "') and n.text not in side:
            asked, answered = re.fullmatch(rf'Asked "(.*)", the {n.speaker} answered "(.*)"', n.text, re.S).groups()
            earlier = f"{before} {getattr(r, first)}"
            assert answered in side and all(q in earlier for q in (s for _, s in chat_sentences(asked)))
        else: assert n.text in side
        assert n.kind in KINDS and 0 <= n.probability <= 1 and n.kept == (not n.reason) and n.round == "r" and n.text == n.text.strip()
    assert list(dict.fromkeys((n.speaker, n.place) for n in notes)) == [(s, i) for s in ((first, "assistant" if first == "user" else "user")) for i in range(len(chat_sentences(getattr(r, s))))]
    assert notes == take_notes(r)


def test_a_round_must_say_something():
    for bad, text in ((lambda: Round("r", "", "\n"), "empty"), (lambda: Round("", "a", "b"), "round id"), (lambda: Round("r", "a\0", ""), "NUL"), (lambda: Round("r", "a", "", first="mother"), "first"),
                      (lambda: Round("r", "a", "", datetime(2026, 1, 1)), "zone")):
        with pytest.raises(ValueError, match=text): bad()


def test_emoji_and_symbols_give_no_notes(): assert take_notes(Round("r", "🙂🙂 !!", "…")) == []


def test_two_hundred_sentences():
    notes = take_notes(Round("r", " ".join(f"I have {i} cats." for i in range(200)), ""))
    assert len({n.place for n in notes}) == 200 and notes[-1].text == "I have 199 cats." and notes[-1].place == 199


def test_one_enormous_sentence(): assert len(take_notes(Round("r", "cats and "*50_000, ""))) == 1


def test_what_must_not_become_a_memory():
    r = Round("r", "If I had diabetes, I would quit sugar. Do I need a scan? What foods are good for the heart? I'll think about it. Thank you so much!", "You're welcome! Please don't hesitate to call. Do you smoke?")
    assert not [n.text for n in take_notes(r) if n.kept]
    assert all(n.reason for n in take_notes(r, keep=1.))


def test_what_must():
    r = Round("r", "I can't take penicillin, it gave me hives. My mother has diabetes. Sorry, I meant 20 mg, not 10.", "Your blood pressure was 150 over 95. Ibuprofen can irritate the stomach lining.")
    notes = take_notes(r)
    assert all(n.kept for n in notes) and {(n.speaker, n.place) for n in notes} == {("user", i) for i in range(3)} | {("assistant", i) for i in range(2)}
    assert {n.kind for n in notes if n.speaker == "user"} == {"user-specific"} and notes[-1].kind == "common-sense"
    of = lambda place: {f for n in notes if (n.speaker, n.place) == ("user", place) for f in n.flags}
    assert "severe" in of(0) and "other person" in of(1) and {"correction", "number"} <= of(2)
    assert "The user's mother has diabetes." in [n.shown for n in notes]


def test_a_short_answer_keeps_its_question():
    for r in (Round("r", "Twenty a day.", "", before="I see. How many cigarettes do you smoke?"), Round("r", "Twenty a day.", "How many cigarettes do you smoke?", first="assistant")):
        note = [n for n in take_notes(r) if n.speaker == "user"][0]
        assert note.text == stitched("How many cigarettes do you smoke?", "Twenty a day.") and note.kept and note.shown == note.text
    assert take_notes(Round("r", "Twenty a day.", ""))[0].text == "Twenty a day."
    assert not short_answer("Twenty a day.", "") and not short_answer("Who?", "Do you smoke?")


def test_pronouns_bring_what_they_stand_for():
    assert points_back("She is nine.") and points_back("And it hurts.") and not points_back("My sister says she is ill.") and not points_back("This morning I fell.")
    assert shown_note([("user", "I have a niece."), ("user", "She is nine.")]).startswith("The user has a niece. ")
    assert shown_note([("user", "She is nine.")]) == "The user said: She is nine."


def test_keep_moves_the_threshold():
    r = Round("r", "I like tea. The film was fine. I feel that it was okay, sort of.", "")
    kept = [{n.text for n in take_notes(r, keep=k) if n.kept} for k in (0., .3, .6, 1.)]
    assert all(b <= a for a, b in zip(kept, kept[1:])) and len(kept[0]) >= 2
    for bad in (-.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="0..1"): take_notes(r, keep=bad)


# ---- our sentences

def test_sentences_are_many_and_different():
    rows = note_sentences()
    assert len(rows) >= 700 and len({(r.sentence, r.before, r.speaker) for r in rows}) == len(rows) and {r.speaker for r in rows} == {"user", "assistant"}
    openings = [" ".join(r.sentence.split()[:3]).lower() for r in rows]
    assert max(map(openings.count, set(openings))) < 15, "too many sentences begin alike"


def test_importing_is_light():
    code = "import sys, memkit.reading.notes; print(sorted({'sklearn', 'torch', 'transformers', 'onnxruntime', 'pandas', 'sqlalchemy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# ---- real rounds

def test_labels_hold_no_words():
    for row in map(json.loads, own_data("note_labels.jsonl").read_text().splitlines()):
        assert set(row) - {"judged"} == {"file", "round", "style", "sealed", "begins", "sentences", "facts"}
        assert all(re.fullmatch(r"[0-9a-f]{16}", s[3]) and {s[4], s[5], s[6]} <= set("nuc") for s in row["sentences"])
        assert all(0 <= i < len(row["sentences"]) for fact in row["facts"] for i in fact)
