"Loaders of published conversations: nothing is lost, nothing is guessed, and every wrong file says what was expected."
import json
from collections import Counter
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.files import public_data
from memkit.malp.corpora import (LOCOMO_CATEGORIES, CorpusTurn, _evidence, _side, load_chatdoctor, load_locomo, load_malp_dialogues, load_meddialog,
                                 load_memorybank, rounds_of)

LOADERS = {"dialogues": load_malp_dialogues, "chatdoctor": load_chatdoctor, "locomo": load_locomo, "memorybank": load_memorybank, "meddialog": load_meddialog}


def public(name):
    path = public_data(name)
    if path is None: pytest.skip(f"needs {name} below MEMKIT_DATA")
    return path


def write(folder, content, name="x.json"):
    path = folder/name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


# ---- rounds

words = st.text(alphabet="abc é", min_size=1).filter(str.strip)
turns = st.lists(st.tuples(st.sampled_from(["Ana", "Ben"]), words, st.integers(0, 3)), max_size=25)

@given(turns, st.sampled_from(["Ana", "Ben"]))
@settings(max_examples=200, deadline=None)
def test_rounds_hold_every_turn_once_in_order_and_on_its_side(said, user):
    said = sorted(said, key=lambda t: t[2])
    each = [CorpusTurn(f"D{s}:{i}", who, text, session=f"D{s}") for i, (who, text, s) in enumerate(said)]
    if each and user not in {t.speaker for t in each}: return
    rounds, at = rounds_of(each, user), {t.id: t for t in each}
    assert [i for r in rounds for i in r.id.split("+")] == [t.id for t in each]
    for r in rounds:
        mine = [at[i] for i in r.id.split("+")]
        assert len({t.session for t in mine}) == 1, "a round stays within a session"
        assert r.user == "\n".join(t.text for t in mine if t.speaker == user) and r.assistant == "\n".join(t.text for t in mine if t.speaker != user)
        assert (mine[0].speaker == user) == (r.first == "user")
        assert sum(a.speaker != b.speaker for a, b in zip(mine, mine[1:])) <= 1, "each side speaks once"
    for a, b in zip(rounds, rounds[1:]):
        same = at[a.id.split("+")[0]].session == at[b.id.split("+")[0]].session
        assert b.before == ((a.assistant if b.first == "user" else a.user) if same else "")


def test_rounds_refuse_a_third_speaker_and_a_stranger():
    with pytest.raises(ValueError, match="two sides"): rounds_of([CorpusTurn("1", "a", "x"), CorpusTurn("2", "b", "x"), CorpusTurn("3", "c", "x")], "a")
    with pytest.raises(ValueError, match="'z'"): rounds_of([CorpusTurn("1", "a", "x")], "z")
    assert rounds_of([], "a") == ()


# ---- wrong files

@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("content", ["", "[", "[]", "{}", "3", "null", '["x"]', '[{}]', '{"a": 1}', "\x00", '[[1]]', '[{"0": 3}]', '{"a": {"history": []}}', '[{"conversation": {}}]'])
def test_a_wrong_file_is_one_clear_line(tmp_path, name, content):
    path = write(tmp_path, content, "some.txt" if name == "meddialog" else "some.json")
    with pytest.raises(ValueError) as e: LOADERS[name](path)
    assert "some." in str(e.value) and "expected" in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize("name", LOADERS)
def test_a_file_that_is_not_there_or_not_text(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="MEMKIT_DATA"): LOADERS[name](None)
    with pytest.raises(FileNotFoundError, match="expected"): LOADERS[name](tmp_path/"absent.txt")
    with pytest.raises(IsADirectoryError, match="expected"): LOADERS[name](tmp_path)
    (tmp_path/"bytes.txt").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(ValueError, match="isn't UTF-8 text"): LOADERS[name](tmp_path/"bytes.txt")


# ---- MaLP

@pytest.mark.parametrize("written, names, found", [
    ('"Hello."', (), ("Hello.", "")), ('Doctor: "Hello."', (), ("Hello.", "assistant")), ('"Patient: Hello."', (), ("Hello.", "user")), ('Patient:"Hello."', (), ("Hello.", "user")),
    ("Dr. Hall: Hello.", (), ("Hello.", "assistant")), ("Sandy: Hello.", ("Sandy",), ("Hello.", "")), ("Sandy: Hello.", (), ("Sandy: Hello.", "")), ('Hello."', (), ("Hello.", "")),
    ('He said "no" to me.', (), ('He said "no" to me.', "")), ("", (), ("", "")), ("At 11:00 then", ("At 11",), ("At 11:00 then", "")), ('"', (), ("", ""))])
def test_a_side_loses_its_label_and_its_quotes_only(written, names, found): assert _side(written, frozenset(names)) == found


def dialogue(*sides): return [{str(i): {"Assistant": a, "User": u}} for i, (a, u) in enumerate(sides)]

@pytest.mark.parametrize("bad", [dialogue(("Doctor: Hi.", "Doctor: Hello.")), dialogue(("Patient: Hi.", "Hello.")), dialogue(("Hi.\nPatient: I cough.\nDoctor: Since when?", "x")), dialogue(("Hi", 'It hurts. Doctor: Where?'))])
def test_a_side_that_speaks_for_the_other_is_left_out(tmp_path, bad):
    path = write(tmp_path, [dialogue(("Doctor: Hi.", "Patient: I cough.")), bad])
    assert len(load_malp_dialogues(path).records) == 1
    assert load_malp_dialogues(path).skipped == {"where one side speaks for the other": 1}


def test_empty_sides_keep_their_round_and_empty_rounds_go(tmp_path):
    c = load_malp_dialogues(write(tmp_path, [dialogue(("Hi.", ""), ("", '""'), ("", "Bye."))])).records[0]
    assert [(r.id[-1], r.assistant, r.user) for r in c.rounds] == [("0", "Hi.", ""), ("2", "", "Bye.")] and len(c.turns) == 2


def test_the_released_dialogues():
    loaded = [load_malp_dialogues(public(f"malp/{n}.json")) for n in ("dialogues2_cleaned", "dialogues_3_cleaned")]
    assert [len(x.records) + sum(x.skipped.values()) for x in loaded] == [149, 555]
    assert sum(x.skipped['with "Error Networking"'] for x in loaded) == 40
    every = [c for x in loaded for c in x.records]
    assert len({c.id for c in every}) == len(every) and all(1 <= len(c.rounds) <= 6 for c in every)
    assert not any("Error Networking" in t.text or t.text.startswith(("Doctor:", "Patient:")) for c in every for t in c.turns)


# ---- MedDialog, ChatDoctor

def test_meddialog(tmp_path):
    text = "id=1\nhttps://example.org/1\nDescription\nQ. A cough?\n\nDialogue\nPatient:\nI cough.\nid est, often.\nDoctor:\nDrink tea.\n\n\nid=2\nDescription\nQ. None.\nDialogue\nPatient:\nHello?\n"
    x = load_meddialog(write(tmp_path, text, "a.txt"))
    assert [(c.about, [(t.speaker, t.text) for t in c.turns]) for c in x.records] == [("Q. A cough?", [("patient", "I cough.\nid est, often."), ("doctor", "Drink tea.")])]
    assert x.skipped == {"without both a patient and a doctor": 1}


def test_chatdoctor_as_list_as_lines_and_as_icliniq(tmp_path):
    rows = [{"input": "A?", "output": "B."}, {"input": "A?", "output": "B."}, {"input": "C?", "answer_icliniq": "D.", "answer_chatgpt": "E."}, {"input": "F?"}, {"input": " ", "output": "G"}]
    lists, lines = load_chatdoctor(write(tmp_path, rows)), load_chatdoctor(write(tmp_path, "\n".join(map(json.dumps, rows)), "y.jsonl"))
    assert [(c.rounds[0].user, c.rounds[0].assistant) for c in lists.records] == [("A?", "B."), ("C?", "D.")] == [(c.rounds[0].user, c.rounds[0].assistant) for c in lines.records]
    assert lists.skipped == lines.skipped == {"said before, word for word": 1, "without input and output": 1, "with an empty side": 1}


def test_chatdoctor_in_full():
    loaded = load_chatdoctor(public("chatdoctor/chatdoctor5k.json"))
    assert len(loaded.records) == 5452 and not loaded.skipped


# ---- LoCoMo, MemoryBank

@pytest.mark.parametrize("given, found, noted", [
    (["D1:1"], ("D1:1",), {}), (["D1:1; D2:2"], ("D1:1", "D2:2"), {"evidence put right": 1}), (["D1:01"], ("D1:1",), {"evidence put right": 1}), (["D:2:2"], ("D2:2",), {"evidence put right": 1}),
    (["D"], (), {"evidence that can't be read": 1}), (["D9:9"], (), {"evidence that names no turn": 1}), (["D1:1", "D1:1"], ("D1:1",), {}), (None, (), {}), ([], (), {}), ("D1:1", ("D1:1",), {}), ([3], (), {"evidence that can't be read": 1})])
def test_evidence_is_read_where_it_can_be_and_counted_where_not(given, found, noted):
    remarks = Counter()
    assert _evidence(given, {"D1:1": 0, "D2:2": 1}, remarks) == found and +remarks == Counter(noted)


def talk(**more):
    turn = {"dia_id": "D1:1", "speaker": "Ana", "text": "Hi."}
    return {"sample_id": "t", "conversation": {"speaker_a": "Ana", "speaker_b": "Ben", "session_1_date_time": "12:05 am on 3 March, 2024", "session_1": [turn]}, "qa": [], **more}

def test_midnight_and_sessions_in_the_order_of_their_numbers(tmp_path):
    raw = talk()
    for n in (10, 2): raw["conversation"] |= {f"session_{n}": [{"dia_id": f"D{n}:1", "speaker": "Ben", "text": "Yes."}], f"session_{n}_date_time": "1:00 pm on 4 March, 2024"}
    c = load_locomo(write(tmp_path, [raw])).records[0]
    assert [t.session for t in c.turns] == ["D1", "D2", "D10"] and c.turns[0].at == datetime(2024, 3, 3, 0, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize("change, said", [
    ({"qa": [{"question": "Q?", "category": 9}]}, "category"), ({"qa": [{"category": 1}]}, "question"), ({"qa": {}}, "expected"), ({"conversation": []}, "expected"),
    ({"conversation": {"session_1": [{"dia_id": 3}]}}, "session 1"), ({"conversation": {"session_1_date_time": "1:00 pm on 4 March, 2024", "session_1": [{"dia_id": "D1:1", "speaker": "A"}]}}, "session 1: no .text."),
    ({"conversation": {"session_1_date_time": "1:00 pm on 4 March, 2024", "session_1": [{"dia_id": "D1:1", "speaker": "A", "text": "x"}]*2}}, "share an id"), ({"conversation": {"session_1": 3, "session_1_date_time": "1:00 pm on 4 March, 2024"}}, "expected")])
def test_a_broken_conversation_names_its_place(tmp_path, change, said):
    with pytest.raises(ValueError, match=said) as e: load_locomo(write(tmp_path, [talk(**change)]))
    assert "x.json, record 0" in str(e.value)


def test_a_stranger_is_named_and_a_wordless_turn_is_counted(tmp_path):
    raw = talk()
    raw["conversation"]["session_1"] += [{"dia_id": "D1:2", "speaker": "Ben", "text": " "}, {"dia_id": "D1:3", "speaker": "Ben", "text": "", "blip_caption": "a cat"}]
    loaded = load_locomo(write(tmp_path, [raw]))
    assert loaded.remarks == {"turns without words": 1} and loaded.records[0].turns[-1].text == "[image: a cat]"
    raw["conversation"]["session_1"][0]["speaker"] = "Eve"
    with pytest.raises(ValueError, match="record 0: Eve speaks, but the speakers are Ana and Ben"): load_locomo(write(tmp_path, [raw]))


def test_locomo_in_full():
    loaded = load_locomo(public("locomo/locomo2.json"))
    assert [(c.id, len(c.turns), len(c.questions)) for c in loaded.records] == [("conv-26", 419, 199), ("conv-30", 369, 105)]
    for c in loaded.records:
        known = {t.id for t in c.turns}
        assert all(set(q.evidence) <= known and q.category in LOCOMO_CATEGORIES.values() for q in c.questions)
        assert {i for r in c.rounds for i in r.id.split("+")} == known and [t.at for t in c.turns] == sorted(t.at for t in c.turns)
        assert all(q.trap for q in c.questions if q.category == "adversarial")
    assert any(q.evidence == ("D8:6", "D9:17") for q in loaded.records[0].questions), "two ids in one string"


def test_memorybank_in_full():
    loaded = load_memorybank(public("memorybank/memory_bank_en.json"), public("memorybank/probing_questions_en.jsonl"))
    assert (len(loaded.records), sum(len(c.questions) for c in loaded.records)) == (15, 100) and not loaded.remarks
    assert all(c.id == c.id.strip() for c in loaded.records)


@pytest.mark.parametrize("history, said", [({"March": []}, "March: expected a time such as '2023-05-08', got 'March'"), ({"2024-03-03": [{"query": "x"}]}, "query and response"), ({"2024-03-03": [{"query": "", "response": "y"}]}, "query is empty"), (3, "expected")])
def test_a_broken_history_names_its_place(tmp_path, history, said):
    with pytest.raises(ValueError, match=said) as e: load_memorybank(write(tmp_path, {" Ana": {"history": history}}))
    assert "x.json, Ana" in str(e.value)
