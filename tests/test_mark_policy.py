"Who may see a memory: rules against a plain reading of them, denial by default, files with mistakes in them, and the record of who saw what."
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.records import new_id
from memkit.store.store import MemoryStore
from memkit.mark.search import RULES, Caller, Policy, admits, allowed, read_policy, record_seen, who_saw, within
from memkit.mark.refined import DOMAIN, QUESTION, RESIDUAL

PARENT = {"EU": "world", "US": "world", "DE": "EU", "FR": "EU", "Bavaria": "DE"}
HOLDS = {"world": ["EU", "US"], "EU": ["DE", "FR"], "DE": ["Bavaria"]}
places = st.sampled_from([*PARENT, "world"])
anything = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.text(max_size=2), max_size=2), places)
json_like = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["rule", *RULES]), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rule", "holds", "sees", "serves", "seen_by", "EU", ""]), inner, max_size=3), max_leaves=6)


def above(place: str) -> set[str]:
    "The place and all it lies in, by walking up."
    return {place} | (above(PARENT[place]) if place in PARENT else set())


@settings(deadline=None)
@given(places, places, st.sampled_from(["below", "above", "both"]))
def test_hierarchies_are_walked_both_ways(memory, caller, sees):
    down, up = caller in above(memory), memory in above(caller)
    assert admits(within(HOLDS, sees), memory, caller) == {"below": down, "above": up, "both": down or up}[sees]


def test_a_place_may_lie_in_two():
    rule = within({"DACH": ["DE", "CH"], "EU": ["DE"]})
    assert admits(rule, "DE", "DACH") and admits(rule, "DE", "EU") and not admits(rule, "CH", "EU")


@pytest.mark.parametrize("holds", [{"a": ["a"]}, {"a": ["b"], "b": ["c"], "c": ["a"]}, {"top": ["a"], "a": ["b"], "b": ["a"]}])
def test_circles_are_refused(holds):
    with pytest.raises(ValueError, match="no circles"): within(holds)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["region", "purpose", "other"]), anything, max_size=3), st.dictionaries(st.sampled_from(["region", "purpose"]), places, max_size=2))
def test_denied_where_either_side_lacks_a_field_or_has_no_word_for_it(metadata, attributes):
    policy = Policy({"region": within(HOLDS), "purpose": None})
    said = allowed(policy, metadata, Caller(user="u", attributes=attributes))
    m, c = metadata, attributes
    assert said == ({"region", "purpose"} <= c.keys() and m.get("region") in PARENT.keys() | {"world"} and c["region"] in above(m["region"]) and m.get("purpose") == c["purpose"]) if isinstance(m.get("region"), str) else not said


@pytest.mark.parametrize("metadata", [None, [], "region", 3, {"region": None}])
def test_metadata_of_any_shape_is_denied_quietly(metadata):
    assert not allowed(Policy({"region": None}), metadata, Caller(user="u", attributes={"region": "EU"}))
    assert allowed(Policy(), metadata, Caller(user="u")) and allowed(None, metadata, Caller(user="u"))


def test_purposes_serve_themselves_and_what_is_named():
    rule = read_policy({"purpose": {"rule": "purpose", "serves": {"care": ["audit"], "study": []}}}).fields["purpose"]
    assert [admits(rule, *p) for p in [("care", "care"), ("care", "audit"), ("audit", "care"), ("audit", "audit"), ("study", "study"), ("care", "study")]] == [True, True, False, False, True, False]


@pytest.mark.parametrize("bad, says", [
    (3, "an object"), (["region"], "an object"), ({"region": "same"}, "'region': rule must be one of"), ({"region": None}, "rule must be one of"), ({"region": {"rule": ["equals"]}}, "rule must be one of"),
    ({"region": {"rule": "equals", "holds": {}}}, "has no 'holds'"), ({"region": {"rule": "within"}}, "needs 'holds'"), ({"region": {"rule": "within", "holds": {}}}, "needs 'holds'"),
    ({"region": {"rule": "within", "holds": {"EU": "DE"}}}, "list of names"), ({"region": {"rule": "one of", "seen_by": {"EU": [""]}}}, "list of names"), ({"region": {"rule": "within", "holds": {"EU": ["EU"]}}}, "'region': .*circles"),
    ({"region": {"rule": "within", "holds": {"EU": ["DE"]}, "sees": ["all"]}}, "'below'"), ({"purpose": {"rule": "purpose", "serves": {"care": [None]}}}, "list of names"), ({" ": "equals"}, "empty")])
def test_mistakes_in_a_policy_are_told_in_one_line(bad, says):
    with pytest.raises(ValueError, match=says) as e: read_policy(bad)
    assert "\n" not in str(e.value)


@settings(deadline=None)
@given(json_like)
def test_any_json_is_a_policy_or_one_clear_error(data):
    try: assert isinstance(read_policy(data if not isinstance(data, str) else [data]), Policy)
    except ValueError as e: assert "\n" not in str(e) and ("policy" in str(e))


def test_policies_are_read_from_files(tmp_path):
    file = tmp_path/"policy.json"
    file.write_text(json.dumps(said := {"region": {"rule": "within", "holds": HOLDS, "sees": "both"}, "tenant": "equals"}))
    assert read_policy(file) == read_policy(str(file)) == read_policy(said)
    for broken in (b"{", b"\xff\xfe{", b"[1]"):
        file.write_bytes(broken)
        with pytest.raises(ValueError, match="policy") as e: read_policy(file)
        assert str(tmp_path) not in str(e.value) and "\n" not in str(e.value)
    with pytest.raises(FileNotFoundError): read_policy(tmp_path/"none.json")


@pytest.mark.parametrize("wrong", [{"user": ""}, {"user": "domain:shared"}, {"user": "u", "agent": " "}, {"user": "u", "attributes": {"region": None}}, {"user": "u", "attributes": {"": "EU"}}, {"user": "u\0"}])
def test_callers_are_names_and_words(wrong):
    with pytest.raises((TypeError, ValueError)): Caller(**wrong)


# who saw it

@pytest.fixture
def kept(tmp_path):
    with MemoryStore(tmp_path/"s.db") as store:
        yield store, store.add(DOMAIN, "A shared word.", kind=RESIDUAL), store.add("ann", "Her own word.", kind=QUESTION)


def test_who_saw_names_the_owner_and_a_pseudonym_of_others(kept):
    store, shared, own = kept
    turn = new_id("t")
    for user in ("ann", "bob", "bob"): record_seen(store, Caller(user=user, attributes={"purpose": "care"}), [shared], turn)
    record_seen(store, Caller(user="ann"), [own, own, shared], turn)
    assert [(s.by, s.purpose) for s in who_saw(store, DOMAIN, shared.id)] == [(store.alias("ann"), "care"), (store.alias("bob"), "care"), (store.alias("ann"), "")]
    assert [(s.by, s.turn, s.how) for s in who_saw(store, "ann", own.id)] == [("ann", turn, "prompt")]
    assert not any(word in repr(store.events(DOMAIN)) for word in ("ann", "bob", "word"))


def test_nothing_is_recorded_of_somebody_elses(kept):
    store, shared, own = kept
    with pytest.raises(ValueError, match="somebody else") as e: record_seen(store, Caller(user="bob"), [shared, own], new_id("t"))
    assert "word" not in str(e.value) and "ann" not in str(e.value)
    assert who_saw(store, DOMAIN, shared.id) == who_saw(store, "ann", own.id) == []
    for owner, id in (("bob", own.id), ("ann", shared.id), ("ann", 999)):
        with pytest.raises(LookupError, match="no memory"): who_saw(store, owner, id)


def test_the_record_goes_with_the_memory_and_stays_when_it_is_out_of_date(kept):
    store, shared, own = kept
    record_seen(store, Caller(user="ann"), [shared, own], new_id("t"))
    store.supersede(DOMAIN, shared.id, store.add(DOMAIN, "Newer.", kind=RESIDUAL).id, "corrected")
    assert len(who_saw(store, DOMAIN, shared.id)) == 1
    store.forget("ann", [own.id])
    assert not [e for e in store.events("ann") if e.kind == "seen"]


def test_nobody_empties_a_policy_afterwards():
    rules = {"region": None}
    policy, asking = Policy(rules), Caller(user="u", attributes={"region": "DE"})
    rules.clear()
    assert not allowed(policy, {"region": "FR"}, asking)
