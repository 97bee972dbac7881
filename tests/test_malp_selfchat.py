"Self-chat: what a model can't do is refused with its reason, what was made is on disk, and a run goes on where it stopped."
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.models.lm import ScriptedLM
from memkit.malp.corpora import (DOCTOR, PROFILE_LABELS, SAFETY, CorpusConversation, Profile, Refused, CorpusTurn, SelfChatSettings, extract_profile, grounded, make_history,
                                 role_prompts, rounds_of, self_chat, why_end)

TURNS = (CorpusTurn("c:0", "patient", "I am 51, a carpenter, and my ears ring after every shift at the saw."), CorpusTurn("c:1", "doctor", "Wear ear protection."))
GIVEN = CorpusConversation("c", ("patient", "doctor"), rounds_of(TURNS, "patient"), turns=TURNS)
GOOD = {"personal_information": "I am 51 and a carpenter.", "symptoms": "My ears ring after every shift at the saw."}
PROFILE = Profile(GOOD["personal_information"], GOOD["symptoms"], PROFILE_LABELS[1])


def actors(patient_says=lambda n: f"Patient {n}.", doctor_says=lambda n: f"Doctor asks {n}?", extraction=json.dumps(GOOD)):
    def say(m):
        if "describe a patient" in m[0].text: return extraction
        n = sum(x.role == "assistant" for x in m)
        return patient_says(n) if "You play a patient" in m[0].text else doctor_says(n)
    return ScriptedLM(say, context=100_000)


# ---- profiles

@pytest.mark.parametrize("change, why", [({"symptoms": ""}, "symptoms is empty"), ({"personal_information": "I am [AGE]."}, r"leaves a blank, '\[AGE\]'"), ({"personal_information": "I am {age} years."}, "leaves a blank"),
                                         ({"symptoms": "Headaches and nausea since Tuesday."}, "stand in the consultation"), ({"personal_information": 3}, "wrong shape"), ({"personal_information": None}, "wrong shape")])
def test_a_profile_that_cannot_be_used_is_asked_for_once_more_and_then_refused(change, why):
    bad = json.dumps({**GOOD, **change})
    lm = ScriptedLM([bad, bad, json.dumps(GOOD)])
    with pytest.raises(Refused, match=why): extract_profile(lm, GIVEN)
    assert len(lm.asked) == 2 and lm.asked[1][-2].text == bad
    assert extract_profile(ScriptedLM([bad, json.dumps(GOOD)]), GIVEN).symptoms == GOOD["symptoms"]


@pytest.mark.parametrize("reply", ["", "I can't.", "{", "[]", "null", '{"symptoms": "x"}', '"symptoms"', json.dumps(GOOD)[:-1], "{}" * 3])
def test_broken_json_is_refused(reply):
    with pytest.raises(Refused, match="asked twice for a profile"): extract_profile(ScriptedLM([reply]*2), GIVEN)


def test_the_preference_is_drawn_by_seed_not_by_the_model():
    drawn = [extract_profile(actors(), GIVEN, seed=s).preference for s in range(60)]
    assert drawn == [extract_profile(actors(), GIVEN, seed=s).preference for s in range(60)] and min(Counter(drawn)[label] for label in PROFILE_LABELS) > 8


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=80, deadline=None)
def test_what_a_source_says_is_grounded_in_it(text, source): assert 0 <= grounded(text, source) <= 1 and grounded(text, source + " " + text) == 1


# ---- the dialogue

def test_both_roles_have_both_profiles_and_the_safety_rules_at_the_beginning():
    for prompt in role_prompts(PROFILE, "You meet for the first time."):
        assert all(part in prompt for part in (PROFILE.personal, PROFILE.symptoms, PROFILE.preference, SAFETY))
    assert DOCTOR in role_prompts(PROFILE, "")[1]


def test_each_role_hears_the_other_as_its_user_and_the_doctor_begins():
    lm = actors()
    rounds, ended = self_chat(lm, role_prompts(PROFILE, ""))
    assert rounds == [s for n in range(6) for s in (("assistant", f"Doctor asks {n}?"), ("user", f"Patient {n}."))] and ended == "6 rounds"
    for messages in lm.asked:
        assert messages[0].role == "system" and [m.role for m in messages[1:]] == ["user", "assistant"]*((len(messages) - 2)//2) + ["user"]
        patient = "You play a patient" in messages[0].text
        assert all(m.text == "(You meet.)" or m.text.startswith("Patient" if (m.role == "assistant") == patient else "Doctor") for m in messages[1:])


@pytest.mark.parametrize("patient, ended, rounds", [
    (lambda n: "Bye. [END]" if n == 3 else f"P {n}.", "the patient said goodbye", 4), (lambda n: "" if n == 2 else f"P {n}.", "the patient said nothing", 3), (lambda n: "..." if n == 2 else f"P {n}.", "the patient said nothing", 3),
    (lambda n: f"P {min(n, 2)}.", "the patient said what was said before", 4), (lambda n: "Fine. Doctor: Good." if n == 2 else f"P {n}.", "the patient spoke for the other side", 3),
    (lambda n: "As an AI language model, I feel fine." if n == 2 else f"P {n}.", "the patient fell out of the role", 3), (lambda n: "[END]" if n == 2 else f"P {n}.", "the patient said goodbye", 3)])
def test_why_a_dialogue_ends(patient, ended, rounds):
    got, why = self_chat(actors(patient), role_prompts(PROFILE, ""))
    assert (why, sum(who == "assistant" for who, _ in got)) == (ended, rounds) and all("[END]" not in t and "Doctor: Good" not in t for _, t in got)


def test_too_short_is_refused():
    with pytest.raises(Refused, match="gave 1 rounds, fewer than 2: the patient said goodbye"): self_chat(actors(lambda n: "Bye. [END]"), role_prompts(PROFILE, ""))
    assert len(self_chat(actors(lambda n: "Bye. [END]"), role_prompts(PROFILE, ""), SelfChatSettings(fewest=1))[0]) == 2


def test_echo_and_circles_end_a_dialogue():
    assert why_end("I cough.", "assistant", ["i  cough."]) == "the doctor said what was said before"
    assert why_end("I cough. I cough. I cough. Well.", "user", []) == "the patient went round in circles" and why_end("I cough. I cough. Well.", "user", []) == ""


@pytest.mark.parametrize("wrong", [{"fewest": 0}, {"fewest": 7}, {"plan": ()}, {"plan": ("same symptom",)}, {"plan": ("first", "third")}])
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ValueError): SelfChatSettings(**wrong)


# ---- histories

def test_follow_ups_remember_the_last_visit_and_keep_the_plan():
    lm, how = actors(), SelfChatSettings(plan=("first", "new symptom", "same symptom"))
    h = make_history(lm, GIVEN, how)
    assert h.ended == ("6 rounds",)*3 and h.profile.symptoms == h.conversation.about
    systems = list(dict.fromkeys(m[0].text for m in lm.asked if "You play a patient" in m[0].text))
    assert "last time" not in systems[0] and all("Patient: Patient 5." in s for s in systems[1:]) and ["something new" in s for s in systems] == [False, True, False]
    c = h.conversation
    assert len(c.rounds) == 18 and len({t.session for t in c.turns}) == 3 and all(r.first == "assistant" for r in c.rounds)
    assert make_history(actors(), GIVEN, how) == h


def test_a_refusal_keeps_what_was_there():
    visits = iter(range(100))
    h = make_history(actors(patient_says=lambda n: "" if next(visits) > 6 else f"P {n}."), GIVEN)
    assert len({t.session for t in h.conversation.turns}) == 1 and h.ended[1].startswith("same symptom:")
    with pytest.raises(Refused): make_history(actors(extraction="no"), GIVEN)
    with pytest.raises(ValueError, match="window"): make_history(ScriptedLM([json.dumps(GOOD)], context=20), GIVEN)


def test_a_failed_request_is_an_error_and_never_words():
    def fails(m): raise ConnectionError("no network")
    with pytest.raises(ConnectionError): make_history(ScriptedLM(fails), GIVEN)
