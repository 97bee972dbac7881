"Answers from memory: what is chosen, what is quoted, what is warned of, and that nothing forgotten comes back."
import re
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest

from memkit.answer.training import Case, cases
from memkit.answer.from_memory import (ANSWER_WORDS, amounts, chosen_messages, days_in, fitted_versions, hanging_day, quoted_answer,
                                       still_true, versions, worked_difference)
from memkit.answer.scorer import (READ, SET_SIZE, Evidence, known_features, load_scorer, needed_features,
                                  probabilities_needed, probability_known)
from memkit.answer.screening import (ASK_FIRST, WARNING_WORDS, classes_in, hazards, known_classes, screen_rules, screen_terms,
                                     warning)
from memkit.models.lm import ScriptedLM
from memkit.experiments.answers.run import right
from memkit.malp import open_malp
from memkit.malp.assistant import MalpSettings
from memkit.reading.examples import SEALED, hands_of
from memkit.reading.notes import NO_WORDS
from memkit.reading.reader import load_reader
from memkit.reading.times import phrases_in, resolve
from memkit.records import Turn, new_id
from memkit.turn.assistants import open_assistant
from memkit.turn.stages import QUOTED

DAY = date(2026, 4, 6)     # a Monday



def said(text, logit=3., sentences=(), day=DAY): return Evidence(text, day, logit, sentences)


# --- days

@pytest.mark.parametrize("words, day", [
    ("Tuesday week", "2026-04-14"), ("saturday fortnight", "2026-04-25"), ("a week on Friday", "2026-04-17"),
    ("a fortnight on friday", "2026-04-24"), ("three weeks on Sunday", "2026-05-03"), ("the Sunday after next", "2026-04-19"),
    ("Thu next week", "2026-04-16"), ("next week on Thursday", "2026-04-16"), ("the last Sunday of this month", "2026-04-26"),
    ("two weeks today", "2026-04-20"), ("three weeks from tomorrow", "2026-04-28"), ("last Thursday", "2026-04-02"),
    ("last Monday", "2026-03-30"), ("Monday week", "2026-04-20")])
def test_days_that_are_counted_from_weekdays(words, day):
    assert str(resolve(words, DAY, ahead=True)) == day


@pytest.mark.parametrize("offset", range(7))
def test_a_coming_weekday_is_never_today(offset):
    day = DAY + timedelta(days=offset)
    found = resolve(f"a week on {day:%A}", day, ahead=True)
    assert found.first == day + timedelta(days=14)


def test_phrases_are_found_once_and_whole():
    assert phrases_in("a week on Friday, or tomorrow") == ["a week on Friday", "tomorrow"]
    assert phrases_in("nothing of the kind") == []


def test_the_verb_says_which_friday():
    assert days_in("We met on Friday.", DAY) == ["Friday 3 April 2026"]
    assert days_in("The retest is on Friday.", DAY) == ["Friday 10 April 2026"]


@pytest.mark.parametrize("text, days", [
    ("She swelled up last Easter.", ["Sunday 5 April 2026"]), ("We meet on Christmas Eve.", ["Thursday 24 December 2026"]),
    ("The wedding is on Easter Monday.", ["Monday 6 April 2026"]), ("The cleaner comes this coming Friday.", ["Friday 10 April 2026"]),
    ("I never work on Friday.", []), ("We always go to Cornwall at Easter.", []), ("Gym mon wed fri.", []),
    ("I take methotrexate, ten milligrams on a Monday.", []), ("PT is Monday Wednesday Friday at 11.", [])])
def test_what_is_usual_is_no_day_and_last_and_this_point_to_one(text, days): assert days_in(text, DAY) == days


def test_last_easter_is_over():
    assert days_in("She swelled up last Easter.", date(2026, 3, 2)) == ["Sunday 20 April 2025"]


@pytest.mark.parametrize("texts, day", [
    (("The letter is dated 16 October, you get two months from that.",), "Tuesday 16 December 2025"),
    (("We land on 29 June.", "To be settled within 30 days of return."), ""),      # the second names no way: nothing is guessed
    (("The balance is due three weeks before the day.", "The hall is booked for 8 August."), "Saturday 18 July 2026"),
    (("The exam is on 14 May.", "I turn 15 the day after."), "Friday 15 May 2026"), (("I like tea.",), "")])
def test_days_that_hang_on_another_day(texts, day):
    assert hanging_day([said(t) for t in texts]) == day


@pytest.mark.parametrize("text, said_on, day", [
    ("My leave is approved from 27 July, 26 weeks.", date(2026, 5, 4), "Monday 25 January 2027"),
    ("The letter is dated 16 October, I get two months.", date(2026, 4, 6), "Tuesday 16 December 2025"),
    ("She has been admitted on 3 March for two weeks.", date(2026, 3, 10), "Tuesday 17 March 2026"),
    ("It was done on 12 November, 6 weeks off.", date(2026, 1, 10), "Wednesday 24 December 2025")])
def test_a_day_without_a_year_lies_where_the_verb_points(text, said_on, day):
    assert hanging_day([said(text, day=said_on)]) == day


def test_a_date_that_a_clause_cuts_in_two_is_one():
    assert days_in("We cross at Lebombo on Saturday the 4th of July, early.", date(2026, 6, 11)) == []
    assert days_in("We handed it in this Tuesday.", date(2026, 6, 11)) == ["Tuesday 9 June 2026"]
    assert days_in("Winter tires go on a week this Thursday.", date(2026, 6, 11)) == ["Thursday 25 June 2026"]


def test_a_number_with_a_point_is_no_day():
    assert days_in("They have put 2.8 per cent on the table.", DAY) == days_in("2.5 mg at most.", DAY) == []
    assert days_in("We meet on 2.8 in Bonn.", DAY) == ["Sunday 2 August 2026"]


@pytest.mark.parametrize("text, found", [
    ("£3,412.50 and 1.240 euros", [(3412.5, "money"), (1240., "money")]), ("at 14:30 on 3 May 2026", []), ("since 2019", []),
    ("up to 10mg", [(10., "mg")]), ("", [])])
def test_amounts(text, found): assert amounts(text) == found


def test_a_difference_is_worked_out_only_where_it_is_asked_for_and_sure():
    old, new, third = said("the hall was £120"), said("the hall is £145.50 now"), said("the caterer takes £300")
    assert worked_difference("How much more is the hall?", [old, new]) == "25.5 (145.5 − 120)"
    assert worked_difference("Which hall is it?", [old, new]) == worked_difference("How much more is it?", [old, new, third]) == ""
    assert worked_difference("how much more?", [said("94 kg"), said("30 minutes")]) == worked_difference("how much more?", [said("94"), said("30 kg")]) == ""


# --- choosing

def test_features_of_few_messages_are_finite():
    for n in range(1, 6):
        found = [said("a", logit=3. - i) for i in range(n)]
        logits = np.array([e.logit for e in found])
        assert np.isfinite(known_features(logits)).all() and needed_features(logits).shape == (n, 2)
        assert 0 < probability_known(found) < 1 and probabilities_needed(found) == sorted(probabilities_needed(found))[::-1]
    assert probability_known([]) == 0. and probabilities_needed([]) == []


def test_a_short_talk_counts_as_one_with_messages_beside_the_point():
    few, more = [said("a", logit=2.)], [said("a", logit=2.), *[said("b", logit=-7.)]*7]
    assert abs(probability_known(few) - probability_known(more)) < 1e-3


def test_a_newer_message_competes_with_an_older_one():
    old, new = (DAY, "I'm on 50 mg of sertraline."), (DAY + timedelta(days=30), "The GP put the sertraline up to 100 mg.")
    alone = load_scorer().evidence("What dose of sertraline am I on?", [old])[0]
    both = load_scorer().evidence("What dose of sertraline am I on?", [old, new])
    assert both[1].logit > both[0].logit and both[0].logit < alone.logit


@pytest.mark.parametrize("ask", ["What is gout?", "How do I treat a burn?", "Who wrote Hamlet?", "how long do you boil an egg"])
def test_a_talk_does_not_answer_a_question_about_the_world(ask):
    talk = next(c.said for c in cases("a"))
    for n in (1, 3, 8):
        assert probability_known(load_scorer().evidence(ask, [(day, text) for _, day, text in talk[:n]])) < .4


def test_at_most_so_many_messages_are_compared():
    said_ = [(DAY, f"I bought {i} apples.") for i in range(SET_SIZE + 4)]
    found = load_scorer().evidence("How many apples?", said_)
    assert [e.text for e in found] == [text for _, text in said_[4:]] and READ <= SET_SIZE


def test_no_more_than_the_settings_allow():
    found = [said(f"message {i}") for i in range(9)]
    assert 1 <= len(chosen_messages(found, enough=0.)) <= 4
    assert chosen_messages(found, enough=1.) == {}


def test_the_best_is_quoted_even_if_it_is_long():
    long = said("word " * 80)
    text = quoted_answer([long, said("short one")], DAY)
    assert text.count("word") == 80 and "short one" not in text


def test_years_are_told_where_they_differ():
    assert "6 April:" in quoted_answer([said("a dog")], date(2026, 12, 1))
    assert "6 April 2026:" in quoted_answer([said("a dog")], date(2027, 1, 1))


def test_messages_that_have_nothing_to_do_with_each_other_stay():
    assert still_true([said("I feel dizzy less often since May."), said("I moved to a flat by the canal.")]) == [0, 1]
    assert still_true([said("My sister teaches maths in Leeds."), said("The boiler is fixed again.")]) == [0, 1]


def test_a_long_message_is_cut_to_what_answers():
    text = "One two three four five six seven eight nine ten. The code is 42. " + "More words follow here. " * 8
    spans = ((0, 49, .01), (50, 65, .9))
    assert list(versions(said(text, sentences=spans)))[-1] == "The code is 42"
    assert versions(said("The code is 42.")) == {"The code is 42": 1.}
    assert list(versions(said("Is it 42?"))) == ["Is it 42?"]


def test_the_newest_goes_first_where_the_present_is_asked():
    found = [said("one"), said("two", day=DAY + timedelta(days=30))]
    assert quoted_answer(found, date(2026, 7, 1), asked="told") == "You told me on 6 May: “two”; 6 April: “one”."
    assert quoted_answer(found, date(2026, 7, 1)) == "You told me on 6 April: “one”; 6 May: “two”."


def test_words_of_ours_go_before_words_of_the_user():
    text = " ".join(f"word{i}" for i in range(37)) + " tomorrow"
    answer = quoted_answer([said(text)], DAY)
    assert answer == f"6 April: “{text}”." and len(answer.split()) == ANSWER_WORDS
    assert quoted_answer([said("It is tomorrow")], DAY) == "You told me on 6 April: “It is tomorrow” (Tuesday 7 April 2026)."


def test_an_answer_keeps_to_its_words():
    found = [said(f"{name} " + "and more of it " * 9) for name in ("one", "two", "three")]
    text = quoted_answer(found, DAY, likely=[.9, .2, .3])
    assert len(text.split()) <= 50 and "one" in text and "two" not in text
    assert fitted_versions([{"a b c": 1.}], 0) == ["a b c"], "one message is always quoted"


def test_only_the_present_value_stays():
    old, new = said("My dentist is in Leeds."), said("I've changed dentists, mine is in York now.")
    assert still_true([old, new]) == [1]
    assert still_true([old, new], [.9, .2]) == [0, 1], "what hardly answers replaces nothing"
    assert still_true([said("I have a dog called Rex."), said("My train leaves at nine.")]) == [0, 1]
    assert still_true([]) == []


def test_an_update_is_found_among_other_sentences():
    filler = "It rained all week and the dog was sick twice. The neighbours had a party. "
    old, new = "I'm on amlodipine, 5 mg a day.", "My amlodipine went down to 2.5 mg."
    a, b = (said(filler + text, sentences=((0, len(filler) - 1, .1), (len(filler), len(filler + text), .9))) for text in (old, new))
    assert still_true([a, b]) == [1]


# --- what a message wants

def test_sealed_hands_train_nothing():
    assert not set(SEALED) & set(hands_of("messages")) and set(hands_of("messages", sealed=True)) <= set(SEALED)
    assert set(hands_of("conversations", sealed=True)) == {"ac", "ad", "ae", "af", "ap", "aq", "aw", "ax", "dk", "dl", "dy", "dz", "ef", "eg",
                                                             "em", "en", "kh", "ki"}


def test_unsaid_questions_have_no_needed_message():
    for c in cases(["a"]): assert bool(c.needs) == (c.kind != "unsaid")


def test_a_new_line_begins_a_clause():
    assert [c.text for c in load_reader().clauses("I have gout.\nCall my sister at noon.")] == ["I have gout.", "Call my sister at noon."]


# --- the screen

def test_every_rule_is_whole():
    rules, terms = screen_rules(), screen_terms()
    assert len(rules) >= 300
    for (a, k), r in rules.items():
        assert a in terms and k.removeprefix("allergy: ") in terms, (a, k)
        assert r.severity in ("avoid", "caution") and r.warning.strip() and r.source.strip(), r


def clauses(*texts): return [c for t in texts for c in load_reader().clauses(t)]


def test_a_name_is_a_whole_word():
    assert "nsaid" in classes_in("2 x IBUPROFEN, please") and not classes_in("ibuprofenal")


def test_denied_and_asked_medicines_are_not_known():
    assert "warfarin" in known_classes(clauses("I take warfarin."))
    assert "warfarin" not in known_classes(clauses("Should I take warfarin?"))


def test_both_sides_are_needed():
    assert hazards("Can I take ibuprofen?", clauses("I take warfarin every evening."))
    assert not hazards("Can I take ibuprofen?", clauses("I live in Leeds."))
    assert not hazards("Where is my car?", clauses("I take warfarin every evening."))


@pytest.mark.parametrize("said, ask, known", [
    ("My son Otis is four.", "Can Otis have popcorn at the cinema?", "child under 5"),
    ("My grandmother turned 81 in March.", "Is trampolining fine for her?", "over 65"),
    ("I'm on blood thinners.", "Is it fine to take ibuprofen?", "anticoagulant"),
    ("I had a gastric bypass last year.", "Can I take Advil for my back?", "bariatric surgery"),
    ("I'm allergic to buckwheat.", "Are soba noodles safe for me?", "allergy: buckwheat")])
def test_ages_groups_of_medicines_and_foods_are_known(said, ask, known):
    assert known in [h.rule.known for h in hazards(ask, clauses(said))]


def test_what_must_be_avoided_comes_first_and_then_what_is_specific():
    found = hazards("Can I have a grapefruit and ibuprofen with a glass of wine?", clauses("I take warfarin every evening."))
    severities = [h.rule.severity for h in found]
    assert len(found) > 2 and severities == sorted(severities) and severities[0] == "avoid"


@pytest.mark.parametrize("text", ["goat's cheese", "Goats’ cheese", "GOATS CHEESE", "goats-cheese"])
def test_accents_apostrophes_and_hyphens_do_not_matter(text): assert "dairy" in classes_in(text)


# --- whose hazard it is, and whether it still holds

WARNED_ON = date(2026, 5, 1)

def warned(ask, *told):
    found = hazards(ask, clauses(*told))
    return warning(found, {}, WARNED_ON) if found else ""

def test_one_hazard_does_not_hide_another():
    text = warned("Is ibuprofen fine for my back?", "I take lithium every night.", "I'm on warfarin.", "I have a stomach ulcer.")
    assert {w for w in ("lithium", "warfarin", "ulcer") if w in text.lower()} >= {"lithium", "warfarin"}
    assert len(text.split()) <= WARNING_WORDS + len(ASK_FIRST.split())

def test_whom_the_question_names_comes_first():
    told = ("My brother is called Emil.", "Emil has coeliac disease.", "My daughter Tove is allergic to sesame.")
    ask = "Would hummus on wheat pitta be fine for {}?"
    assert warned(ask.format("Tove"), *told).startswith("Careful, for Tove: ") and "sesame" in warned(ask.format("Tove"), *told).split("Also")[0].lower()
    for name in ("Emil", "my brother"): assert "gluten" in warned(ask.format(name), *told).split("Also")[0].lower()

def test_who_asks_for_oneself_comes_before_somebody_else():
    text = warned("Can I have the satay?", "My aunt is allergic to peanuts.", "I'm allergic to peanuts.")
    assert text.startswith("Careful: ") and "Also for your aunt: " in text

def test_a_warning_says_whose_hazard_it_is():
    text = warned("Shall I put walnuts in the salad?", "I'm allergic to walnuts.", "My aunt is allergic to walnuts too.")
    assert text.startswith("Careful: ") and "Also for your aunt: " in text and text.count("You told me") == 2
    assert warned("Shall I put walnuts in it?", "My aunt is allergic to walnuts.").startswith("Careful, for your aunt: ")

@pytest.mark.parametrize("said, ask", [
    ("Ramipril is 10 now.", "Can I take some aspirin?"), ("The boiler is 4 now.", "Can I take codeine?"),
    ("Metformin is two now.", "Can I take loperamide?")])
def test_a_number_is_an_age_only_where_the_clause_says_so(said, ask):
    assert not any(of.startswith(("child", "baby")) for of in known_classes(clauses(said)))
    assert warned(ask, said) == ""

@pytest.mark.parametrize("ask, said_it", [
    ("Can I take codeine for my tooth?", False), ("Can Pia have codeine?", True), ("Can my daughter have codeine?", True),
    ("She has a bad cough, can she have codeine?", True)])
def test_what_is_not_for_children_needs_a_question_about_the_child(ask, said_it):
    assert ("children" in warned(ask, "My daughter Pia goes to nursery on Mondays.", "I work in a primary school.")) is said_it

def test_what_is_poisonous_at_home_needs_no_name():
    assert "poisonous" in warned("Where can I keep the bleach?", "My toddler gets into everything.")

@pytest.mark.parametrize("told, ask", [
    (("I take simvastatin at night.", "They took me off the simvastatin."), "Can I have grapefruit?"),
    (("I'm on lithium.", "I stopped the lithium in March."), "Can I take ibuprofen?"),
    (("I'm vegan.", "Scratch that, I'm not vegan any more."), "Is the omelette fine for me?"),
    (("I'm allergic to kiwi.", "Turns out I'm not allergic to kiwi after all."), "Can I have a kiwi?")])
def test_what_was_stopped_or_taken_back_does_not_warn(told, ask):
    assert warned(ask, told[0]) and not warned(ask, *told)
    assert warned(ask, *told, told[0])                     # and again, where it is said again

def test_a_medicine_that_takes_anothers_place_ends_it_and_another_dose_does_not():
    switched = known_classes(clauses("I take simvastatin 40 mg.", "I've been switched to atorvastatin 20 instead."))
    assert "atorvastatin" in switched and "simvastatin" not in switched
    assert "warfarin" in known_classes(clauses("I take warfarin 3 mg.", "They cut the warfarin to 2 mg.", "Ramipril is 5 now."))

def test_somebody_elses_denial_ends_nothing():
    assert warned("Can I have a kiwi?", "I'm allergic to kiwi.", "My son isn't allergic to kiwi.")

def test_what_says_the_same_is_said_once():
    text = warned("Can I take Nurofen?", "I'm on warfarin.", "The warfarin is going well.", "I take my warfarin at six.")
    assert text.count("You told me") == 1

def test_a_doctor_is_named_for_health_and_a_vet_for_pets():
    assert ASK_FIRST not in warned("Shall I order the prawns?", "I'm vegetarian.")
    assert ASK_FIRST in warned("Shall I order the prawns?", "I'm vegetarian.", "I'm allergic to prawns.")
    assert warned("Can Biscuit have grapes?", "Our dog Biscuit is a beagle.").endswith("Ask a vet first.")


# --- scoring

CASE = Case("a", "x", "Which dose?", "update", (), frozenset({"1.1"}), (r"\b100\b",), (r"(?<!from )\b50 ?mg",), "100 mg")

@pytest.mark.parametrize("answer, ok", [
    ("You told me on 2 March: “100 mg”.", True), ("100 mg, up from 50 mg", True), ("50 mg or 100 mg", False),
    ("I don't know, perhaps 100.", False), ("100 " + "very "*60, False), ("", False)])
def test_an_answer_is_right_short_and_no_excuse(answer, ok):
    assert right(CASE, answer) is ok


# --- in a turn

def nods(): return ScriptedLM(lambda messages: "I see.")

NOON = datetime(2026, 4, 6, 12, tzinfo=timezone.utc)


def test_a_statement_is_noted_and_a_question_answered_with_its_day():
    with open_malp(":memory:", nods()) as a:
        assert a.chat("ann", "My dog is called Rex.", at=NOON).answer == "Noted: My dog is called Rex."
        a.new_session("ann")
        turn = a.chat("ann", "What's my dog called?", at=NOON + timedelta(days=3))
        assert "Rex" in turn.answer and "6 April" in turn.answer
        made = turn.extra["answer"]
        assert made["way"] == "memory" and [e["used"] for e in made["evidence"]] == [True]
        assert turn.answer_tokens == 0, "no language model was asked"


def test_what_was_never_told_is_not_known():
    with open_malp(":memory:", nods()) as a:
        turn = a.chat("ann", "What's my dog called?")
        assert turn.extra["answer"]["way"] == "unknown" and "haven't told" in turn.answer


def test_who_asks_for_everything_gets_the_newest_first():
    from memkit.answer.stage import NOTHING
    with open_malp(":memory:", nods()) as a:
        assert a.chat("ann", "What do you know about me?").answer == NOTHING
        for text in ("My name is Ada and I live in Leeds.", "I'm allergic to penicillin."): a.chat("ann", text)
        answer = a.chat("ann", "What do you know about me?").answer
        assert answer.index("penicillin") < answer.index("Leeds") and "Ada" in answer
        for n in range(20): a.chat("ann", f"My brother number {n} lives in house {n} at the end of Long Lane in Leeds.")
        answer = a.chat("ann", "What do you know about me?").answer
        assert answer.endswith(" more.") and "house 19" in answer and "penicillin" not in answer


def test_nobody_is_answered_with_what_somebody_else_said():
    with open_malp(":memory:", nods()) as a:
        a.chat("ann", "My dog is called Rex.")
        assert "Rex" not in a.chat("bob", "What's my dog called?").answer


def test_a_forgotten_message_is_never_quoted_again(tmp_path):
    store = tmp_path/"m.sqlite3"
    with open_malp(store, nods()) as a:
        told_, quoting = a.chat("ann", "My dog is called Rexington."), a.chat("ann", "What's my dog called?")
        assert "Rexington" in quoting.answer
        assert next(t for t in a.store.turns("ann") if t.id == quoting.id).answer == QUOTED
        receipt = a.forget("ann", turns=[told_.id])
        assert receipt.erased
        assert "Rexington" not in a.chat("ann", "What's my dog called?").answer
        assert all("Rexington" not in t.answer for t in a.turns("ann"))
    assert b"Rexington" not in store.read_bytes()


def test_the_model_alone_where_somebody_wants_that():
    with open_malp(":memory:", nods(), settings=MalpSettings(answers="model")) as a:
        a.chat("ann", "My dog is called Rex.")
        assert a.chat("ann", "What's my dog called?").answer == "I see."
    with pytest.raises(ValueError, match="'model' or 'known'"): MalpSettings(answers="maybe")


def test_questions_about_the_world_are_left_to_the_model():
    with open_malp(":memory:", nods()) as a:
        for asks in ("What are the side effects of omeprazole?", "Translate 'good night' into Welsh.", "I have hay fever. Why is it worse at night?"):
            assert a.chat("ann", asks).answer == "I see.", asks


@pytest.mark.parametrize("text, says", [("I don't want to be alive any more.", "988"), ("he has collapsed and isn't breathing", "112"),
                                        ("she swallowed bleach", "poison"), ("I can't stop the bleeding", "Press hard"),
                                        ("My chest hurts and I can't breathe", "112"), ("Can I take ibuprofen with warfarin?", ""),
                                        ("My shoulder aches after the gym.", ""), ("Who wrote Heart of Darkness?", "")])
def test_emergencies_are_told_at_once_and_aches_are_none(text, says):
    with open_assistant("hybrid", store=":memory:", model=nods()) as a:      # without consent, too
        turn = a.chat("ann", text)
        assert (turn.extra.get("answer", {}).get("way") == "emergency") == bool(says) and says in turn.answer


def test_without_consent_nothing_is_known():
    with open_assistant("hybrid", store=":memory:", model=nods()) as a:
        assert "answer" not in a.chat("ann", "My dog is called Rex.").extra, "nothing is noted, so nothing says so"
        assert "Rex" not in a.chat("ann", "What's my dog called?").answer
        a.consent("ann")
        a.chat("ann", "My dog is called Rex.")
        assert "Rex" in a.chat("ann", "What's my dog called?").answer


def test_a_warning_names_its_reason():
    with open_malp(":memory:", nods()) as a:
        a.chat("ann", "I've been on warfarin since May.", at=NOON)
        turn = a.chat("ann", "Can I take two ibuprofen for my headache?", at=NOON + timedelta(days=1))
        assert turn.extra["answer"]["way"] == "warning" and "warfarin" in turn.answer and turn.answer.startswith("Careful")


def test_vectors_go_with_the_user():
    with open_malp(":memory:", nods()) as a:
        a.chat("ann", "My dog is called Rex.")
        a.chat("ann", "What's my dog called?")
        assert a.heard_of("ann")
        a.forget("ann")
        assert not a.heard_of("ann")


def test_a_request_to_delete_brings_no_older_value_back():
    with open_malp(":memory:", nods()) as a:
        for i, text in enumerate(("My rent is 900 euros.", "My rent is 950 euros now.", "Forget my rent.")):
            a.chat("ann", text, at=NOON + timedelta(days=i))
        assert not {"900", "950"} & set(re.findall(r"\d+", a.chat("ann", "How much is my rent?", at=NOON + timedelta(days=9)).answer))


def test_of_two_times_the_later_message_is_quoted():
    with open_malp(":memory:", nods()) as a:
        for i, text in enumerate(("My meeting with Lee is at 9.", "Sorry, my meeting with Lee is at 11, not at 9.")):
            a.chat("ann", text, at=NOON + timedelta(minutes=i))
        turn = a.chat("ann", "When is my meeting with Lee?", at=NOON + timedelta(hours=1))
        assert "at 11" in turn.answer and "is at 9”" not in turn.answer
        assert "No language model wrote the answer" in a.explain(turn) and "at 11, not at 9" in a.explain(turn).splitlines()[-1]


@pytest.mark.parametrize("text", ["\N{PARTY POPPER}", "???", "\u2764\ufe0f \u2764\ufe0f"])
def test_a_message_without_words_never_reaches_the_model(text):
    def say(messages): raise AssertionError("the model was asked")
    with open_malp(":memory:", ScriptedLM(say)) as a: assert a.chat("ann", text).answer == NO_WORDS


def test_what_was_taken_back_is_not_quoted():
    with open_malp(":memory:", nods()) as a:
        for i, text in enumerate(("I wear size 42 shoes.", "We're getting a puppy at Easter.", "Please take the puppy back out of your notes, I said it before asking anyone.")):
            a.chat("ann", text, at=NOON + timedelta(days=i))
        later = NOON + timedelta(days=9)
        assert "Easter" not in a.chat("ann", "When are we getting a puppy?", at=later).answer
        assert "puppy at Easter" not in a.chat("ann", "What do you know about me?", at=later).answer
        assert "42" in a.chat("ann", "What size are my shoes?", at=later).answer


def test_the_day_shift_is_no_stretch_of_time():
    from memkit.answer.from_memory import hanging_day
    from memkit.answer.scorer import Evidence
    told = [Evidence("Callum has been on the day shift since Monday 23 March 2026.", NOON.date(), 2., ()),
            Evidence("The meeting is two weeks later.", NOON.date(), 1., ())]
    assert hanging_day(told[:1]) == "" and hanging_day(told[::-1]) == "Monday 6 April 2026"


def test_bees_are_no_allergy_and_the_newest_dose_is_quoted():
    with open_malp(":memory:", nods()) as a:
        for i, text in enumerate(("I keep bees: four hives in a field.", "I take lithium, 800 mg at night.", "They cut my lithium to 600 mg at night.")):
            a.chat("ann", text, at=NOON + timedelta(days=i))
        later = NOON + timedelta(days=9)
        assert "allergy" not in a.chat("ann", "Why do queen bees live longer than workers?", at=later).answer
        warned = a.chat("ann", "Can I take ibuprofen for my back?", at=later).answer
        assert warned.startswith("Careful") and "600 mg" in warned and "800 mg" not in warned


def test_a_thousand_messages_are_not_all_read(monkeypatch):
    read = []
    scorer = load_scorer()
    monkeypatch.setattr(type(scorer), "evidence", lambda self, q, m, v=None: read.append(len(m)) or [])
    from memkit.answer.stage import READ, nearest_said
    from memkit.store.store import StoredTurn
    turns = [StoredTurn(id=f"t{i}", user="ann", session="s", at=NOON, question=f"I bought {i} apples.", answer="") for i in range(40)]
    near = nearest_said("How many apples?", turns, {})
    assert len(near) == READ and [t.id for t in near] == sorted((t.id for t in near), key=lambda i: int(i[1:]))


def test_a_name_that_a_question_shares_with_one_message_is_among_what_is_read():
    from memkit.answer.stage import READ, nearest_said
    from memkit.store.store import StoredTurn
    said = [f"My {who} {how}." for who in ("brother", "sister", "uncle", "aunt", "cousin") for how in
            ("moved house in June", "found a new job", "bought a car", "is on holiday", "has a cold")]
    said.insert(3, "Zebulon came round at six and fixed the gutter.")
    turns = [StoredTurn(id=f"t{i}", user="ann", session=f"s{i}", at=NOON + timedelta(minutes=i), question=text, answer="") for i, text in enumerate(said)]
    near = nearest_said("Has Zebulon got any family news?", turns, {})
    assert len(near) == READ and "t3" in [t.id for t in near]


def test_words_before_a_message_count_in_its_session_only():
    from memkit.answer.stage import read_into
    from memkit.store.store import StoredTurn
    turns = [StoredTurn(id=f"t{i}", user="ann", session=s, at=NOON + timedelta(minutes=i), question=text, answer=answer)
             for i, (s, text, answer) in enumerate((("a", "I play the bassoon.", "Since when?"), ("a", "Since May.", ""), ("b", "It rained.", "")))]
    known = {}
    read_into(known, turns)
    assert 0 < known["t1"].words["bassoon"] < known["t0"].words["bassoon"] and set(known["t2"].words) == {"rain"}
    assert known["t1"].whole == "Since when? Since May." and known["t2"].in_context is known["t2"].vector


def test_the_notes_of_a_message_help_to_find_it_even_when_they_were_replaced():
    from memkit.answer.scorer import MessageSearch
    from memkit.store.store import MemoryStore
    store = MemoryStore(":memory:")
    turns = [store.add_turn("ann", f"s{i}", text, "ok") for i, text in enumerate(("He did it again.", "We had soup.", "The bus was late."))]
    plain = MessageSearch(store).search("ann", "Which instrument does the user's brother play?", 3)
    note = store.add("ann", "The user's brother plays the bassoon.", turns=[turns[0]], meta={"speaker": "user"})
    store.supersede("ann", note.id, store.add("ann", "The user's brother sold it.", meta={"speaker": "user"}).id, "newer")
    helped = MessageSearch(store).search("ann", "Which instrument does the user's brother play?", 3)
    part = {h.item.turn: h.parts["note"] for h in helped}
    assert helped[0].item.turn == turns[0] and part[turns[0]] > {h.item.turn: h.parts["note"] for h in plain}[turns[0]]
    assert part[turns[1]] == {h.item.turn: h.parts["note"] for h in plain}[turns[1]]      # a message without a note stays as it was


def test_without_traces_no_yes_is_promised():
    with open_malp(":memory:", nods(), settings=MalpSettings(trace=False)) as a:
        told = a.chat("ann", "My neighbour drinks too much.", at=NOON)
        answer = a.chat("ann", "Please forget what I said about my neighbour.", at=NOON + timedelta(days=1)).answer
        assert "neighbour drinks" in answer and "Say yes" not in answer and told.id in answer
        a.forget("ann", turns=[told.id])
        assert not [t for t in a.turns("ann") if "drinks" in t.text]


def test_a_request_to_delete_another_thing_deletes_nothing():
    with open_malp(":memory:", nods()) as a:
        for i, text in enumerate(("My neighbour drinks too much.", "Amber got a posting to Lima.")): a.chat("ann", text, at=NOON + timedelta(minutes=i))
        a.chat("ann", "Please forget what I said about my neighbour.", at=NOON + timedelta(days=1))
        again = a.chat("ann", "Amber's posting abroad is not public. Please get rid of it.", at=NOON + timedelta(days=1, minutes=1)).answer
        assert "deleted for good, with" not in again and len([t for t in a.turns("ann") if "drinks" in t.text or "Lima" in t.text]) == 2


def test_what_only_gave_words_back_is_no_context():
    from memkit.answer.scorer import may_lean_on
    from memkit.reading.notes import NOTED, QUOTED
    assert may_lean_on("Since when?") and not any(map(may_lean_on, (QUOTED, f"{NOTED}I have bees.", " ")))


def test_what_was_told_long_ago_is_answered_when_recall_finds_it(monkeypatch):
    monkeypatch.setattr("memkit.answer.stage.LOOKED", 2)
    with open_malp(":memory:", nods()) as a:
        for text in ("My sister Elspeth lives in Inverness.", "I had soup today.", "My bike is blue.", "It rained."):
            a.chat("ann", text)
        a.new_session("ann")
        assert "Inverness" in a.chat("ann", "Where does Elspeth live?").answer


def test_an_allergy_is_to_the_thing_and_not_to_what_is_bad_for_pets():
    def warned(told, ask): return [h.rule.warning for h in hazards(ask, load_reader().clauses(told))]
    assert "penicillin" in warned("I am allergic to penicillin.", "Can I take amoxicillin for a sore throat?")[0]
    assert warned("I'm allergic to milk.", "Is aspirin ok for my headache?") == []
    assert warned("I am allergic to dogs.", "Should we adopt a dog?") == ["An allergy to dog was mentioned."]

def test_each_warning_is_a_sentence_with_a_source():
    for r in screen_rules().values():
        assert r.warning.endswith(".") and r.source.strip() and ".;" not in r.source and r.severity in ("avoid", "caution"), r


# --- asked to forget

def test_who_asks_to_forget_is_asked_first_and_nothing_is_deleted():
    with open_assistant("malp", store=":memory:", model=ScriptedLM(lambda messages: "…")) as a:
        told = a.chat("ann", "My locker code is 9931.")
        a.chat("ann", "My dog is called Rex.")
        asked = a.chat("ann", "Please delete my locker code from your memory.")
        assert asked.extra["answer"]["way"] == "forget" and "9931" in asked.answer
        assert "9931" not in a.chat("ann", "What is my locker code?").answer, "it is still there, but quoted no more"
        assert a.turns("ann")[0].text == told.text
        a.forget("ann", turns=[told.id])
        assert "9931" not in a.chat("ann", "What is my locker code?").answer
        everything = a.chat("ann", "Please erase everything you know about me.").answer
        assert "forget" in everything and "Rex" not in everything


@pytest.mark.parametrize("request_, agrees", [("Please delete my locker code from your memory.", "Yes, delete it."),
                                              ("Scrap what I just said.", "yes please")])
def test_a_yes_deletes_what_was_proposed_and_the_request(request_, agrees, tmp_path):
    with open_assistant("malp", store=tmp_path/"m.db", model=ScriptedLM(lambda messages: "…")) as a:
        a.chat("ann", "My dog is called Rex.")
        told = a.chat("ann", "My locker code is bacalhau77.")
        asked = a.chat("ann", request_)
        assert [e["turn"] for e in asked.extra["answer"]["evidence"] if e["used"]] == [told.id]
        done = a.chat("ann", agrees)
        assert done.extra["answer"]["way"] == "forgotten"
        assert [t.text for t in a.turns("ann")] == ["My dog is called Rex."], "the request and the yes aren't kept either"
        assert "bacalhau77" not in a.chat("ann", "What is my locker code?").answer
        assert a.chat("ann", "yes").extra.get("answer", {}).get("way") != "forgotten", "nothing is proposed any more"
        assert any("Rex" in t.text for t in a.turns("ann"))
    assert not any(b"bacalhau77" in p.read_bytes() for p in tmp_path.iterdir())


def test_a_yes_that_is_only_tried_deletes_nothing():
    with open_assistant("malp", store=":memory:", model=ScriptedLM(lambda messages: "…")) as a:
        told = a.chat("ann", "My locker code is bacalhau77.")
        a.chat("ann", "Scrap what I just said.")
        yes = Turn(id=new_id("t"), user="ann", session=a.session("ann"), at=a.clock(), text="yes please")
        assert told.id in a.run(yes, learn=False).extra["answer"]["forgets"] and a.turns("ann")[0].text == told.text
        a.run(yes)
        assert not a.turns("ann")


def test_a_no_deletes_nothing_and_may_name_another_message():
    with open_assistant("malp", store=":memory:", model=ScriptedLM(lambda messages: "…")) as a:
        owed, moved = a.chat("ann", "I owe Tiago 500 euros."), a.chat("ann", "We moved to Leith last month.")
        a.chat("ann", "Please forget that.")
        other = a.chat("ann", "No, the money I owe Tiago.")
        assert [e["turn"] for e in other.extra["answer"]["evidence"] if e["used"]] == [owed.id]
        assert a.chat("ann", "No, keep it.").answer == "Nothing was deleted."
        a.chat("ann", "Please forget that I owe Tiago money.")
        a.chat("ann", "My sister Ida teaches chemistry.")
        assert a.chat("ann", "yes").extra.get("answer", {}).get("way") != "forgotten", "something else came between"
        assert {owed.id, moved.id} <= {t.id for t in a.turns("ann")}


def test_a_request_to_delete_is_never_quoted():
    with open_assistant("malp", store=":memory:", model=ScriptedLM(lambda messages: "…")) as a:
        a.chat("ann", "I had soup for lunch.")
        asked = a.chat("ann", "Can you forget what I said about Clara and Malte splitting up, that's private.")
        assert asked.extra["answer"]["way"] == "forget"
        assert "Malte" not in a.chat("ann", "What happened between Clara and her husband?").answer


def test_what_a_request_to_delete_means_is_out_of_force_and_still_there():
    with open_assistant("malp", store=":memory:", model=ScriptedLM(lambda messages: "…")) as a:
        told = a.chat("ann", "I have a nut allergy.")
        [note] = a.memories("ann")
        asked = a.chat("ann", "Please strike the nut allergy from your notes, I never had one.")
        assert asked.extra["answer"]["way"] == "forget" and [c.relation for c in asked.changes] == ["retraction"]
        assert note.id not in [m.id for m in a.memories("ann")] and a.store.superseded("ann")[note.id]
        assert a.store.get("ann", note.id).text == note.text and a.turns("ann")[0].id == told.id, "nothing is deleted yet"
        before = [m.id for m in a.memories("ann")]
        assert not a.chat("ann", "Please erase everything you know about me.").changes and [m.id for m in a.memories("ann")] == before


@pytest.mark.parametrize("said", ["I forgot my keys again.", "Don't let me forget the milk.", "My aunt keeps forgetting names."])
def test_what_only_sounds_like_it_is_no_request_to_forget(said): assert load_scorer().forgetting(said)["no"] > .5


@pytest.mark.parametrize("asks, way", [("What is my blood type?", "unknown"), ("What sets off an asthma attack?", "documents")])
def test_what_is_surely_about_the_user_is_not_answered_by_a_document(asks, way):
    with open_assistant("hybrid", store=":memory:", model=ScriptedLM(lambda messages: "No.")) as bot:
        bot.consent("ann")
        bot.chat("ann", "I have a ferret called Quizzle.")
        assert bot.chat("ann", asks).extra["answer"]["way"] == way


# --- tasks

@pytest.mark.parametrize("text", ["Draft two lines to my landlord about the leak in the bathroom.", "table pls: Mon 14 seen, Tue 19 seen, Wed 11 seen",
                                  "Could you translate this into French: the pool is closed on Mondays"])
@pytest.mark.parametrize("name", ["malp", "mark"])
def test_a_task_is_given_to_the_model(name, text):
    model = ScriptedLM(lambda messages: "Here it is.")
    with open_assistant(name, store=":memory:", model=model) as a:
        a.chat("ann", "I live in Leeds and my landlord is called Mr Hay.")
        assert a.chat("ann", text).answer == "Here it is."


def test_a_list_of_what_was_told_is_no_task():
    with open_malp(":memory:", ScriptedLM(lambda messages: "Here it is.")) as a:
        a.chat("ann", "I take 5 mg of bisoprolol in the morning.")
        assert "bisoprolol" in a.chat("ann", "List the tablets that I take.").answer


def test_a_dangerous_task_is_warned_of():
    with open_malp(":memory:", ScriptedLM(lambda messages: "Prawns on toast.")) as a:
        a.chat("ann", "I'm severely allergic to prawns.")
        assert "prawns" in (said := a.chat("ann", "Can you give me a recipe with prawns for tonight?").answer) and "allergic" in said
