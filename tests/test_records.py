"Records: what is refused, what comes back from JSON unchanged, what shares nothing with its maker."
import json
from dataclasses import FrozenInstanceError
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings, strategies as st

from memkit.records import (ROLES, Considered, Document, Hit, Memory, Message, Receipt, Section, Turn, check_text, check_time, json_copy, new_id, to_dict,
                                 utc_now)

storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
words = storable.filter(str.strip)
moments = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.timezones())
plain = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | storable,
                     lambda x: st.lists(x, max_size=3) | st.dictionaries(storable, x, max_size=3), max_leaves=8)
metas = st.dictionaries(storable, plain, max_size=3)

documents = st.builds(Document, id=words, text=words, title=storable, category=storable, source=storable, meta=metas)
memories = st.builds(Memory, id=st.integers(1), user=words, text=words, kind=words, at=moments, turns=st.lists(words, max_size=2).map(tuple), meta=metas,
                     recalls=st.integers(0, 99), correct=st.integers(0, 9), incorrect=st.integers(0, 9))
hits = st.builds(Hit, item=documents | memories, score=st.floats(-1, 1), source=words, parts=st.dictionaries(words, st.floats(-9, 9), max_size=2))


# --- text, time, identifiers

@given(st.text(max_size=40))
def test_text_is_accepted_exactly_if_it_can_be_stored(text):
    bad = next((i for i, c in enumerate(text) if c == "\0" or 0xd800 <= ord(c) < 0xe000), None)
    if bad is None and text.strip(): assert check_text(text) is text and check_text(text, empty=True) is text
    else:
        with pytest.raises(ValueError, match=f"position {bad}" if bad is not None else "is empty") as e: check_text(text, "question")
        assert str(e.value).startswith("question ") and "\n" not in str(e.value)


@given(st.text(" \t\n\u2003", max_size=5))
def test_blank_text_only_where_it_is_allowed(text):
    assert check_text(text, empty=True) == text
    with pytest.raises(ValueError, match="at least one word"): check_text(text)


@pytest.mark.parametrize("wrong", [None, b"bytes", 3, ["a"]])
def test_what_is_no_text_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=f"title must be a string, got {type(wrong).__name__}"): check_text(wrong, "title")


@given(moments)
def test_a_time_is_the_same_moment_in_utc(at):
    assert check_time(at).timestamp() == at.timestamp() and check_time(at).utcoffset() == timedelta(0)  # not ==: an hour that a zone has twice equals nothing
    assert check_time(check_time(at)) == check_time(at)
    with pytest.raises(ValueError, match="has no zone"): check_time(at.replace(tzinfo=None))


def test_now_has_a_zone(): assert utc_now().tzinfo is timezone.utc


def test_identifiers_are_random_and_say_nothing():
    made = [new_id(prefix) for prefix in "ust" for _ in range(200)]
    assert len(set(made)) == 600 and {len(i) for i in made} == {34}
    assert all(i[1] == "-" and set(i[2:]) <= set("0123456789abcdef") for i in made)


# --- meta

@given(metas)
def test_meta_is_a_copy_that_shares_nothing(meta):
    copy = json_copy(meta)
    assert copy == meta and copy is not meta
    for key, value in copy.items():
        if isinstance(value, (list, dict)): assert value is not meta[key]


@pytest.mark.parametrize("wrong", [{"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}, {"a": object()}, {"a": b"x"}, {("a", "b"): 1}, {"a": "half \ud83d"}])
def test_meta_that_is_no_json_is_refused(wrong):
    with pytest.raises(ValueError, match="meta"): json_copy(wrong)


# --- records

@pytest.mark.parametrize("record, field", [(Message(role="user", text="x"), "text"), (Document(id="d", text="x"), "meta"), (Memory(id=1, user="u", text="x", at=utc_now()), "recalls"),
                                           (Receipt(user="u", at=utc_now()), "erased"), (Section(name="s", tokens=1), "kept")])
def test_frozen_is_frozen(record, field):
    with pytest.raises(FrozenInstanceError): setattr(record, field, "other")


@pytest.mark.parametrize("wrong, says", [
    (lambda: Message(role="doctor", text="x"), "role must be one of system, user, assistant; got 'doctor'"), (lambda: Message(role="user", text="\n"), "user message is empty"),
    (lambda: Message(role="system", text="a\0b"), "system message holds a NUL"), (lambda: Document(id="", text="x"), "document id is empty"),
    (lambda: Document(id="d7", text=" "), "text of document d7 is empty"), (lambda: Document(id="d7", text="x", title="\udc00"), "title of document d7 holds half of a surrogate"),
    (lambda: Memory(id=1, user=" ", text="x", at=utc_now()), "user is empty"), (lambda: Memory(id=9, user="u", text="x", at=utc_now(), correct=-1), "counts of memory 9"),
    (lambda: Memory(id=1, user="u", text="x", at=datetime(2026, 1, 1)), "has no zone"), (lambda: Turn(id="t", user="u", session="s", at=datetime(2026, 1, 1), text="x"), "has no zone")])
def test_refusals_are_one_line_that_names_the_part(wrong, says):
    with pytest.raises(ValueError) as e: wrong()
    assert says in str(e.value) and "\n" not in str(e.value)


def test_only_a_users_message_needs_words():
    for role in ROLES:
        if role == "user": continue
        assert Message(role=role, text="").text == ""


@settings(max_examples=60, deadline=None)
@given(documents, memories)
def test_documents_and_memories_come_back_from_json(d, m):
    assert Document(**json.loads(json.dumps(to_dict(d)))) == d
    read = json.loads(json.dumps(to_dict(m)))
    assert Memory(**{**read, "at": datetime.fromisoformat(read["at"]), "turns": tuple(read["turns"])}) == m


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(hits, st.booleans()), max_size=5), moments, words, st.integers(0, 9))
def test_a_turn_becomes_json_with_everything_in_it(found, at, text, tokens):
    sections = tuple(Section(name="piece", tokens=tokens, text=text, kept=kept, hit=hit) for hit, kept in found)
    turn = Turn(id=new_id("t"), user="u", session="s", at=at, text=text, sections=sections, considered=tuple(Considered(hit=h, outcome="because", shown=k) for h, k in found))
    read = json.loads(json.dumps(to_dict(turn)))
    assert datetime.fromisoformat(read["at"]).timestamp() == at.timestamp() and read["text"] == text and set(read) == set(vars(turn))
    assert [(s["kept"], s["hit"]["item"]["id"], s["hit"]["score"]) for s in read["sections"]] == [(k, h.item.id, h.score) for h, k in found]
    assert to_dict(turn) == to_dict(turn) and json.loads(json.dumps(read)) == read


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(hits, st.booleans()), max_size=6))
def test_shown_is_what_was_kept_in_order_and_of_each_kind(found):
    sections = (Section(name="instructions and question", tokens=3), *(Section(name="piece", tokens=1, kept=kept, hit=hit) for hit, kept in found))
    turn = Turn(id="t", user="u", session="s", at=utc_now(), text="x", sections=sections)
    assert list(turn.shown) == [h for h, kept in found if kept]
    assert sorted(map(id, (*turn.documents, *turn.recalled))) == sorted(map(id, turn.shown))
    assert all(isinstance(h.item, Document) for h in turn.documents) and all(isinstance(h.item, Memory) for h in turn.recalled)


def test_a_callers_later_change_reaches_no_record():
    meta, parts, seconds, removed = {"a": [1]}, {"bm25": 1.}, {"total": 1.}, {"memories": 1}
    d, hit = Document(id="d", text="x", meta=meta), Hit(item=Document(id="d", text="x"), score=1., source="s", parts=parts)
    turn, receipt = Turn(id="t", user="u", session="s", at=utc_now(), text="x", seconds=seconds), Receipt(user="u", at=utc_now(), removed=removed)
    for changed in (meta["a"], ): changed.append(2)
    for changed in (meta, parts, seconds, removed): changed.clear()
    assert d.meta == {"a": [1]} and hit.parts == {"bm25": 1.} and turn.seconds == {"total": 1.} and receipt.removed == {"memories": 1}


@pytest.mark.parametrize("receipt, says", [
    (dict(removed={"memories": 2, "turns": 0}, erased=True), "removed 2 memories; the words are gone from the bytes on disk"), (dict(erased=True), "removed nothing; the words are gone from the bytes on disk"),
    (dict(removed={"memories": 2}, erased=True, in_memory=True), "removed 2 memories; the words are gone; this store is only in memory"), (dict(in_memory=True), "removed nothing; still pending"),
    (dict(unknown=True, erased=True), "removed nothing: the store holds nothing under this name"),
    (dict(removed={"memories": 1}, pending="a reader holds it"), "removed 1 memory; still pending: a reader holds it"), (dict(), "removed nothing; still pending: not checked")])
def test_a_receipt_never_claims_more_than_it_knows(receipt, says): assert str(Receipt(user="u", at=utc_now(), **receipt)).startswith(says)


@given(plain)
def test_plain_data_stays_as_it_is(value): assert to_dict(value) == value
