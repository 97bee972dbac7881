"Which rounds of MemoryBank answer its probing questions: the labels are well formed and fit the data."
import json
import re
from hashlib import blake2b

import pytest

from memkit.files import own_data, public_data

SIDES = {"user", "assistant", "both"}


@pytest.fixture(scope="module")
def labels(): return [json.loads(line) for line in own_data("memorybank_evidence.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def bank():
    "`(questions, rounds)` by user; the history's names carry stray spaces, the questions' don't."
    history, asked = public_data("memorybank/memory_bank_en.json"), public_data("memorybank/probing_questions_en.jsonl")
    if not (history and asked): pytest.skip("MemoryBank isn't here: set MEMKIT_DATA to a folder that has memorybank/")
    questions = {}
    for line in asked.read_text(encoding="utf-8").splitlines(): questions.update(json.loads(line))
    rounds = {user.strip(): {f"{date}:{n}" for date, day in o["history"].items() for n in range(len(day))}
              for user, o in json.loads(history.read_text(encoding="utf-8")).items()}
    return questions, rounds


def test_labels_are_well_formed(labels):
    assert len(labels) == 100
    for o in labels:
        assert list(o) == ["user", "question", "digest", "evidence", "side", "answerable"], o
        assert isinstance(o["user"], str) and o["user"] == o["user"].strip() != "", o
        assert type(o["question"]) is int and type(o["answerable"]) is bool and isinstance(o["evidence"], list), o
        assert re.fullmatch("[0-9a-f]{12}", o["digest"]) and o["side"] in SIDES, o
        assert all(re.fullmatch(r"2023-\d\d-\d\d:\d+", e) for e in o["evidence"]), o
        assert o["evidence"] == sorted(set(o["evidence"]), key=lambda e: (e[:10], int(e[11:]))), o
        assert o["answerable"] == bool(o["evidence"]), o


def test_questions_are_numbered_from_zero_and_users_stay_together(labels):
    users = list(dict.fromkeys(o["user"] for o in labels))
    assert len(users) == 15
    assert [(o["user"], o["question"]) for o in labels] == \
        [(user, n) for user in users for n in range(sum(o["user"] == user for o in labels))]


def test_digests_match_the_questions_in_order(labels, bank):
    questions, _ = bank
    expected = [(user, n, blake2b(q.strip().strip('"').encode(), digest_size=16).hexdigest()[:12]) for user, qs in questions.items() for n, q in enumerate(qs)]
    assert [(o["user"], o["question"], o["digest"]) for o in labels] == expected


def test_every_evidence_round_exists(labels, bank):
    _, rounds = bank
    assert {o["user"] for o in labels} == set(rounds)
    missing = [(o["user"], o["question"], e) for o in labels for e in o["evidence"] if e not in rounds[o["user"]]]
    assert not missing


def test_no_text_of_the_data_is_in_the_file(bank):
    questions, _ = bank
    text = own_data("memorybank_evidence.jsonl").read_text(encoding="utf-8")
    assert not [q for qs in questions.values() for q in qs if q in text or q.strip('"') in text]
