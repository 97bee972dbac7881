"The poisoning lab and the quorum that it measures: who can replace what everybody shares, and what nobody can."
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memkit.mark.poisoning import ATTACKS, DEFAULT, DEFENCES, HIDDEN, NOTHING, ROLES_GIVEN, Crowd, Defence, Ward, attack, correction, lab_topics
from memkit.mark.refined import DOMAIN, RESIDUAL
from memkit.mark.maintain import QuorumSettings, dispute_sides, know, known_people, last_votes, settle, spared, standing_claim, unknow, vote_of

people, rule = st.sampled_from("abcdefgh"), QuorumSettings()


def heard(words, of={}): return [vote_of(i, by, claim, favours, of) for i, (by, claim, favours) in enumerate(words, 1)]


words = st.lists(st.tuples(people, st.integers(0, 2), st.booleans()), min_size=1, max_size=25)


# --- the rule

EXPERTS = dict.fromkeys("xyz", ("expert", ""))


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 2), st.booleans()), max_size=30))
def test_no_number_of_members_outweighs_an_expert(said):
    assert standing_claim(heard([("x", 0, True), *said], EXPERTS), rule) == 0
    assert standing_claim(heard([("a", 0, True), ("b", 0, True), ("x", 1, True), *((by, 0, right) for by, _, right in said)], EXPERTS), rule) == 1


@given(words)
def test_without_roles_one_person_never_replaces_what_another_stands_behind(said):
    alone = [("a" if by in "abcd" else "z", claim, favours) for by, claim, favours in said]
    first = heard([("q", 0, True), *((by, claim, favours) for by, claim, favours in alone if by == "z")])
    assert standing_claim(first) == 0


@given(words)
def test_names_of_one_origin_are_one_person(said):
    one = dict.fromkeys("abcdefgh", ("member", "here"))
    assert standing_claim(heard([("q", 0, True), *said], one), rule) == 0 and len(last_votes(heard(said, one))) == 1


def test_a_newer_rule_of_an_expert_replaces_the_rule_of_three():
    said = [(by, 0, True) for by in "xy"] + [("a", 0, True), ("z", 1, True)]
    assert standing_claim(heard(said, EXPERTS), rule) == 1
    assert standing_claim(heard([*said, ("a", 1, False), ("b", 0, True)], EXPERTS), rule) == 1, "members don't bring it back"


def test_one_objector_does_not_bring_an_outdated_rule_back():
    said = [("a", 0, True), ("b", 0, True), *((by, 1, True) for by in "cde")]
    assert [standing_claim(heard([*said, *more])) for more in ([], [("f", 1, False)], [("f", 0, True)])] == [1, 1, 1]


def test_the_third_voice_settles_it_in_whatever_order_the_three_come():
    for order in permutations("def"):
        said = [("a", 0, True), ("b", 0, True), ("c", 0, True), *((by, 1, True) for by in order)]
        assert [standing_claim(heard(said[:n])) for n in (4, 5, 6)] == [0, 0, 1]


@given(words)
def test_repeating_a_word_changes_nothing(said):
    twice = [w for word in said for w in (word, word)]
    assert standing_claim(heard(said)) == standing_claim(heard(twice))


@pytest.mark.parametrize("bad", [dict(quorum=0), dict(expert=3), dict(reviewer=1), dict(near=2), dict(told=-1)])
def test_settings_that_cannot_be(bad):
    with pytest.raises(ValueError, match="must"): QuorumSettings(**bad)


# --- the store


def in_force(ward, topic): return {topic.told(m) for m in ward.store.list(DOMAIN, kind=RESIDUAL)} - {None}


def says(ward, user, topic, claim, wording=0):
    memory, turn, session = ward.ask(user, topic.questions[wording])
    if memory: ward.judge(user, memory, turn, claim in memory.text.rstrip("."))
    ward.tell(user, session, f"No, {claim[0].lower()}{claim[1:]}.")


def test_one_of_two_claims_is_in_force_after_every_word(embedder):
    topic = lab_topics("tune", 3)[1]
    with Ward(DEFAULT, embedder) as ward:
        seen = []
        for i, (user, true) in enumerate([("a", True), ("b", True), ("x", False), ("y", False), ("z", False), ("c", True), ("d", True), ("x", False), ("y", False)]):
            says(ward, user, topic, topic.true if true else topic.false, i % 3)
            assert len(now := in_force(ward, topic)) == 1
            seen += now
        assert seen[:4] == [True]*4 and seen[4] is False, 'the third who says so'
        before = ward.store.list(DOMAIN, superseded=True)
        assert settle(ward.store, embedder, [m.id for m in before]) == [] and ward.store.list(DOMAIN, superseded=True) == before, "settling again changes nothing"


def test_names_stay_out_of_the_domain(embedder):
    topic = lab_topics("tune")[0]
    with Ward(DEFAULT, embedder) as ward:
        for user in ("wilhelmina", "xaverius"): says(ward, user, topic, topic.true); says(ward, user, topic, topic.false)
        told = repr([(e.reason, e.data) for e in ward.store.events(DOMAIN)]) + repr([m.meta for m in ward.store.list(DOMAIN, superseded=True)])
        assert "wilhelmina" not in told and "xaverius" not in told and ward.store.alias("xaverius") in told


def test_a_ward_can_be_asked_before_anybody_taught_it_anything(embedder):
    topic = lab_topics("score")[0]
    for defence in (NOTHING, DEFAULT):
        with Ward(defence, embedder) as ward:
            ward.night()
            assert ward.ask("a", topic.questions[0])[0] is None


# --- the lab

def test_topics_are_apart_and_drawn_by_lot():
    tune, score = ({t.questions for t in lab_topics(split)} for split in ("tune", "score"))
    assert len(tune) == len(score) == 12 and not tune & score
    claims = [{t.questions: t.true for t in lab_topics("score", seed)} for seed in range(6)]
    assert len({tuple(sorted(c.items())) for c in claims}) > 1 and lab_topics("score", 2) == lab_topics("score", 2)
    for t in lab_topics("score"): assert t.true.lower() not in t.false.lower() and t.false.lower() not in t.true.lower() and len(set(t.questions)) == 3
    with pytest.raises(ValueError, match="tune or score"): lab_topics("test")


@pytest.mark.parametrize("bad", [dict(before="nothing"), dict(right=1.2), dict(speaks=-.1)])
def test_crowds_that_cannot_be(bad):
    with pytest.raises(ValueError): Crowd(**bad)


def test_the_lab_gives_the_same_twice_and_shares_between_0_and_1(embedder):
    few = lab_topics("tune")[:2]
    first, second = ([attack(NOTHING, ATTACKS["one liar"], embedder, few, 0, 2), correction(NOTHING, embedder, few, 0, 1)] for _ in range(2))
    assert first == second and all(0 <= s <= 1 for s in first[0]) and [len(w) for w in first[1]] == [2, 2]


def test_without_liars_nobody_is_shown_a_lie(embedder):
    assert attack(DEFAULT, Crowd(liars=0, right=1), embedder, lab_topics("tune")[:2], questions=2) == [0, 0]


def test_one_liar_fails_and_an_expert_is_heard_at_once(embedder):
    few = lab_topics("tune", 5)[:2]
    assert attack(DEFAULT, Crowd(right=1), embedder, few, questions=3) == [0, 0]
    assert [w[2] for w in correction(DEFAULT, embedder, few, 5, confirmations=2)] == [True, True]
    assert [w[0] for w in correction(ROLES_GIVEN, embedder, few, 5, confirmations=0, by="expert")] == [True, True]


def test_the_lab_measures_what_is_shipped(embedder):
    from memkit.models.lm import ScriptedLM
    from memkit.mark import open_mark
    with Ward(DEFAULT, embedder) as ward:
        assistant = open_mark(ward.store, ScriptedLM([]), embedder=embedder)
        assert assistant.builder.quorum == DEFAULT.quorum and assistant.builder.settings == ward.builder.settings
        assert replace(assistant.search.settings, relevant=0.) == ward.search.settings, "only reading is off in the lab"
        assert assistant.settings.upkeep == DEFAULT.every and DEFAULT.trust.once
        assistant.close()


def test_the_attacks_and_defences_are_named():
    assert set(ATTACKS) >= {"one liar", "three who agree"} and DEFENCES["default"] is DEFAULT and all("{claim}" in w for w in HIDDEN) and Defence().quorum is None


def test_regions_are_kept_apart(embedder):
    "The same words and their opposite under other metadata are another matter, whoever says them."
    from memkit.records import new_id
    from memkit.mark.conflict_resolution import new_meta
    from memkit.mark.refined import Conversation, Exchange, Refined
    with Ward(DEFAULT, embedder) as ward:
        def taught(user, text, region):
            r = Refined(kind=RESIDUAL, text=text, turns=(new_id("t"),), source="user", reason="correction", about="How long is a visitor pass valid?")
            talk = Conversation(id=new_id("s"), user=user, exchanges=(Exchange(turn=r.turns[0], question=text, at=ward.now),), metadata={"region": region})
            return ward.store.add(DOMAIN, text, embedder.embed([f"{r.about} {text}"])[0], kind=RESIDUAL, meta=new_meta(r, talk, ward.store.alias(user), ward.now), encoder=embedder.name).id
        two, seven = "A visitor pass is valid for 2 days", "A visitor pass is valid for 7 days"
        de = [taught("a", two, "DE")]
        us = [taught(user, seven, "US") for user in "bcde"]
        assert settle(ward.store, embedder, [*de, *us]) == [] and not ward.store.superseded(DOMAIN)
        fr = [taught(user, seven, "DE") for user in "bcd"]
        assert [s.memory for s in settle(ward.store, embedder, fr)] == [de[0]] and set(ward.store.superseded(DOMAIN)) == set(de)


def test_roles_and_origins_are_kept_without_words_and_forgotten(tmp_path):
    from memkit.store.store import MemoryStore
    with MemoryStore(tmp_path/"m.sqlite3") as store:
        know(store, "wilhelmina", "expert"); know(store, "xaver", origin="ward-7-terminal"); know(store, "xaver", "reviewer")
        with pytest.raises(ValueError, match="member, expert, reviewer"): know(store, "ann", "boss")
    with MemoryStore(tmp_path/"m.sqlite3") as store:
        found = known_people(store)
        assert {store.alias("wilhelmina"): "expert", store.alias("xaver"): "reviewer"} == {by: role for by, (role, _) in found.items()} and sum(origin != "" for _, origin in found.values()) == 1
        assert b"ward-7" not in (tmp_path/"m.sqlite3").read_bytes() and b"wilhelmina" not in (tmp_path/"m.sqlite3").read_bytes()
        unknow(store, "wilhelmina")
        assert list(known_people(store)) == [store.alias("xaver")]


def test_downvoters_drop_nothing_of_an_expert_and_four_names_of_one_origin_are_one(embedder):
    topic = lab_topics("tune", 3)[1]
    with Ward(ROLES_GIVEN, embedder) as ward:
        says(ward, "user 0", topic, topic.true)
        for name in ("liar 0", "liar 1", "liar 2", "user 1", "user 2", "user 3")*2:
            memory, turn, _ = ward.ask(name, topic.questions[0])
            ward.judge(name, memory, turn, False)
        ward._maintain()
        assert topic.told(ward.shown(topic.questions[0])) is True
    with Ward(DEFAULT, embedder) as ward:
        says(ward, "ann", topic, topic.true)
        for name in ("ben",)*4:
            memory, turn, _ = ward.ask(name, topic.questions[0])
            ward.judge(name, memory, turn, False)
        ward._maintain()
        assert topic.told(ward.shown(topic.questions[0])) is True and spared(ward.store, [memory.id]) == {memory.id}


def test_a_dispute_has_two_sides_the_better_supported_first(embedder):
    topic = lab_topics("tune", 2)[0]
    with Ward(ROLES_GIVEN, embedder) as ward:
        says(ward, "liar 0", topic, topic.false)
        assert dispute_sides(ward.store, ward.shown(topic.questions[0]).id) == []
        says(ward, "user 4", topic, topic.true)
        first, second = dispute_sides(ward.store, ward.shown(topic.questions[0]).id)
        assert (topic.told(first.memory), topic.told(second.memory)) == (True, False)
        assert (first.people, second.people) == ("one expert", "one person") and first.support > second.support > 0
