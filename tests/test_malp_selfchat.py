"Self-chat: what a model can't do is refused with its reason, what was made is on disk, and a run goes on where it stopped."
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.models.lm import ScriptedLM
from memkit.malp.corpora import PROFILE_LABELS, Conversation, Profile, Said, rounds_of
from memkit.malp.corpora import (DOCTOR, SAFETY, Refused, SelfChatSettings, as_conversation, extract_profile, grounded, history_numbers, load_histories, make_histories,
                                  make_history, role_prompts, self_chat, why_end)

TURNS = (Said("c:0", "patient", "I am 51, a carpenter, and my ears ring after every shift at the saw."), Said("c:1", "doctor", "Wear ear protection."))
GIVEN = Conversation("c", ("patient", "doctor"), rounds_of(TURNS, "patient"), turns=TURNS)
GOOD = {"personal_information": "I am 51 and a carpenter.", "symptoms": "My ears ring after every shift at the saw."}
PROFILE = Profile("c", GOOD["personal_information"], GOOD["symptoms"], PROFILE_LABELS[1], PROFILE_LABELS[1])


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
    with pytest.raises(Refused, match="asked twice for ExtractedProfile"): extract_profile(ScriptedLM([reply]*2), GIVEN)


def test_the_preference_is_drawn_by_seed_not_by_the_model():
    drawn = [extract_profile(actors(), GIVEN, seed=s).preference for s in range(60)]
    assert drawn == [extract_profile(actors(), GIVEN, seed=s).preference for s in range(60)] and min(Counter(drawn)[label] for label in PROFILE_LABELS) > 8


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=80, deadline=None)
def test_what_a_source_says_is_grounded_in_it(text, source): assert 0 <= grounded(text, source) <= 1 and grounded(text, source + " " + text) == 1


# ---- the dialogue

def test_both_roles_have_both_profiles_and_the_safety_rules_at_the_beginning():
    for prompt in role_prompts(PROFILE, "You meet for the first time."):
        assert all(part in prompt for part in (PROFILE.personal, PROFILE.symptoms, PROFILE.said, SAFETY))
    assert DOCTOR in role_prompts(PROFILE, "")[1]


def test_each_role_hears_the_other_as_its_user_and_the_doctor_begins():
    lm = actors()
    rounds, ended = self_chat(lm, role_prompts(PROFILE, ""))
    assert rounds == tuple((f"Doctor asks {n}?", f"Patient {n}.") for n in range(6)) and ended == "6 rounds"
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
    assert (why, len(got)) == (ended, rounds) and all("[END]" not in t and "Doctor: Good" not in t for r in got for t in r)


def test_too_short_is_refused():
    with pytest.raises(Refused, match="gave 1 rounds, fewer than 2: the patient said goodbye"): self_chat(actors(lambda n: "Bye. [END]"), role_prompts(PROFILE, ""))
    assert len(self_chat(actors(lambda n: "Bye. [END]"), role_prompts(PROFILE, ""), SelfChatSettings(fewest=1))[0]) == 1


def test_echo_and_circles_end_a_dialogue():
    assert why_end("I cough.", "assistant", ["i  cough."]) == "the doctor said what was said before"
    assert why_end("I cough. I cough. I cough. Well.", "user", []) == "the patient went round in circles" and why_end("I cough. I cough. Well.", "user", []) == ""


@pytest.mark.parametrize("wrong", [{"fewest": 0}, {"fewest": 7}, {"plan": ()}, {"plan": ("same symptom",)}, {"plan": ("first", "third")}])
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ValueError): SelfChatSettings(**wrong)


# ---- histories

def test_follow_ups_remember_the_last_visit_and_keep_the_plan():
    lm = actors()
    h = make_history(lm, GIVEN, SelfChatSettings(plan=("first", "new symptom", "same symptom")))
    assert [d.kind for d in h.dialogues] == ["first", "new symptom", "same symptom"] and h.dialogues[0].days == 0 and all(5 <= d.days <= 90 for d in h.dialogues[1:]) and not h.refused
    systems = list(dict.fromkeys(m[0].text for m in lm.asked if "You play a patient" in m[0].text))
    assert "last time" not in systems[0] and all("Patient: Patient 5." in s for s in systems[1:])
    c = as_conversation(h)
    assert len(c.rounds) == 18 and len({t.session for t in c.turns}) == 3 and all(r.first == "assistant" for r in c.rounds)
    assert make_history(actors(), GIVEN, SelfChatSettings(plan=("first", "new symptom", "same symptom"))) == h


def test_a_refusal_keeps_what_was_there():
    visits = iter(range(100))
    h = make_history(actors(patient_says=lambda n: "" if next(visits) > 6 else f"P {n}."), GIVEN)
    assert len(h.dialogues) == 1 and h.refused.startswith("same symptom:") and h.profile
    assert make_history(actors(extraction="no"), GIVEN).profile is None
    assert "window" in make_history(ScriptedLM([json.dumps(GOOD)], context=20), GIVEN).refused


def test_a_failed_request_is_an_error_and_never_words(tmp_path):
    def fails(m): raise ConnectionError("no network")
    with pytest.raises(ConnectionError): make_histories(ScriptedLM(fails), [GIVEN], tmp_path/"h.jsonl", progress=False)
    assert load_histories(tmp_path/"h.jsonl") == []


def several(n): return [Conversation(f"c{i}", GIVEN.speakers, GIVEN.rounds, turns=TURNS) for i in range(n)]

@pytest.mark.parametrize("cut", [0, 1, 40, 2000])
def test_a_run_goes_on_where_it_stopped(tmp_path, cut):
    path, whole = tmp_path/"h.jsonl", tmp_path/"w.jsonl"
    full = make_histories(actors(), several(4), whole, progress=False)
    make_histories(actors(), several(2), path, progress=False)
    path.write_bytes(path.read_bytes()[:-cut or None])
    assert make_histories(actors(), several(4), path, progress=False) == full and path.read_bytes() == whole.read_bytes()
    lm = actors()
    assert make_histories(lm, several(4), path, progress=False) == full == load_histories(path) and not lm.asked


def test_refused_ones_are_not_asked_again_and_are_counted(tmp_path):
    path = tmp_path/"h.jsonl"
    make_histories(actors(extraction="no"), several(2), path, progress=False)
    lm = actors()
    got = make_histories(lm, several(3), path, progress=False)
    assert history_numbers(got) == {"users": 1, "dialogues": 3, "rounds": 18, "utterances": 36, "refused or cut short": 2}
    with pytest.raises(ValueError, match="holds no dialogue"): as_conversation(got[0])


def test_a_file_made_otherwise_or_broken_is_left_alone(tmp_path):
    path = tmp_path/"h.jsonl"
    make_histories(actors(), several(1), path, progress=False)
    before = path.read_bytes()
    for lm, s in ((actors(), SelfChatSettings(seed=1)), (ScriptedLM([], name="other"), SelfChatSettings())):
        with pytest.raises(ValueError, match="was made with"): make_histories(lm, several(2), path, s, progress=False)
    assert path.read_bytes() == before
    for broken in (b"[]\n", b"x\n", b'{"id": "c"}\n', b"3\n"):
        path.write_bytes(before + broken)
        with pytest.raises(ValueError, match="h.jsonl, line 2"): make_histories(actors(), several(2), path, progress=False)
        assert path.read_bytes() == before + broken
