"Three judges of two answers: rules that say why, a model that must agree with itself, people whose clicks are never lost."
import json
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.models.lm import ScriptedLM
from memkit.evaluate.judge import (POINTS, PREFERENCE_RULES, VERDICTS, Criterion, Gold, Pair, RubricScore, advises, judge_agreement, judge_messages, judge_pairs, mentions, rubric, pair_verdict, win_rate)
from memkit.evaluate.judge import RatingSession, blind_order, load_ratings, rating_html, rating_widget, save_rating

GOLD = Gold(query="My ear hurts, what helps?", facts=("The user has asthma.", "The user is 72 years old."), knowledge=("Warm cloths ease ear pain.",), preference="prefer concise answer", forbidden=("aspirin",), signs={"The user has asthma.": ("asthma", "inhaler")})


# ---- the rubric

@given(st.text(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_answer_has_a_score_with_reasons(answer):
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in answer): return
    score = rubric(answer, GOLD)
    assert 0 <= score.total <= 10 and [c.name for c in score.criteria] == list(POINTS) and all(c.reason and 0 <= c.points <= c.of for c in score.criteria)


def test_what_the_gold_lacks_is_left_out_and_the_rest_is_scaled():
    for gold, names in [(Gold(query="My ear hurts"), ["question"]), (Gold(query="My ear hurts", facts=("The user has asthma.",)), ["facts", "question"]), (Gold(query="ear", preference="polite"), ["preference", "question"])]:
        assert [c.name for c in rubric("x", gold).criteria] == names
    assert rubric("Your ear and your asthma.", Gold(query="My ear hurts", facts=("The user has asthma.",))).total == 10


def test_points_are_those_stated():
    score = rubric("With your asthma, lay warm cloths on the ear that hurts.", GOLD)
    assert [round(c.points, 6) for c in score.criteria] == [2., 3., 2., 1.] and score.total == pytest.approx(8.)


@pytest.mark.parametrize("answer", ["", "  ", "...", "\n"])
def test_nothing_said_is_nothing_earned(answer): assert rubric(answer, GOLD).total == 0.


def test_a_breach_takes_everything_and_quotes_itself():
    score = rubric("With asthma at 72, warm cloths help. Take aspirin for the ear.", GOLD)
    assert score.total == 0. and score.breach == "Take aspirin for the ear." and score.breach in str(score)


@pytest.mark.parametrize("said, breach", [
    ("Use aspirin.", True), ("ASPIRIN helps.", True), ("Aspirin is safe.", True), ("Do not worry; take aspirin.", True), ("Rest and take aspirin.", True), ("You can't take aspirin.", False), ("Never take aspirin.", False),
    ("Take paracetamol instead of aspirin.", False), ("Aspirin makes asthma worse.", False), ("Aspirin is what it was called.", False), ("Do you take aspirin?", False), ("Take care. No aspirin.", False), ("", False), ("You’re fine without aspirin.", False)])
def test_advice_is_told_from_warning(said, breach): assert bool(advises(said, "aspirin")) == breach


def test_a_forbidden_thing_of_two_words_needs_both():
    assert not advises("Take the grapefruit.", "grapefruit juice") and advises("Take grapefruit juice.", "grapefruit juice")


def test_signs_need_all_their_words_in_one_sentence():
    assert not mentions("Your blood is fine. Eat less sugar.", "The user has diabetes.", signs=("blood sugar",))[0]
    assert mentions("Watch your blood sugar.", "The user has diabetes.", signs=("blood sugar",))[0]
    assert not mentions("anything", "The user has diabetes.", signs=("?",))[0], "a sign without a word shows nothing"


def test_a_fact_of_generic_words_is_never_found(): assert mentions("The user has it.", "The user has.") == (False, "0% of its words")


class Never:
    name, dim, unit = "never", 2, True
    def embed(self, texts, kind="document"): raise AssertionError("words were enough")

def test_the_embedder_is_asked_only_where_words_are_not_enough():
    assert mentions("Your asthma.", "The user has asthma.", embedder=Never())[0]
    with pytest.raises(AssertionError): mentions("Your lungs.", "The user has asthma.", embedder=Never())


@given(st.integers(0, 300))
@settings(deadline=None)
def test_lengths_give_what_they_promise(n):
    concise, detailed = (PREFERENCE_RULES[k]("w "*n)[0] for k in ("concise", "detailed"))
    assert 0 <= concise <= 1 and 0 <= detailed <= 1 and (concise == 1) == (n <= 45) and (detailed == 1) == (n >= 60)


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_every_rule_gives_a_share_and_a_reason(answer):
    for rule in PREFERENCE_RULES.values():
        points, why = rule(answer)
        assert 0 <= points <= 1 and why


@pytest.mark.parametrize("label", ["concise", "detailed", "reassuring", "plain words", "step by step", "with figures", "prefer detailed description", "prefer concise answer", "prefer polite response"])
def test_every_preference_of_the_paper_and_of_our_patients_has_a_rule(label): assert rubric("x", Gold(query="x", preference=label)).criteria[0].name == "preference"


# ---- verdicts

def total(t): return RubricScore((Criterion("x", t, 10, "y"),))

@given(st.floats(0, 10), st.floats(0, 10))
@settings(deadline=None)
def test_a_verdict_turns_round_with_its_answers(a, b):
    mirrored = {"win": "lose", "lose": "win", "tie": "tie"}
    assert pair_verdict(total(a), total(b)) == mirrored[pair_verdict(total(b), total(a))]


def test_the_margin_decides(): assert [pair_verdict(total(5 + d), total(5)) for d in (.49, .5, -.5, 0)] == ["tie", "win", "lose", "tie"] and pair_verdict(total(5), total(5), margin=0) == "tie"


@given(st.lists(st.sampled_from(["win", "tie", "lose", None]), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_the_rate_is_wins_and_half_the_ties(verdicts):
    n = Counter(verdicts)
    if len(verdicts) == n[None]:
        with pytest.raises(ValueError, match="none of"): win_rate(verdicts)
    else:
        rate = win_rate(verdicts)
        assert rate.mean == pytest.approx((n["win"] + n["tie"]/2)/(len(verdicts) - n[None])) and rate.n == len(verdicts) - n[None]


def test_users_are_drawn_as_a_whole():
    verdicts, users = ["win"]*20 + ["lose"]*20, ["a"]*20 + ["b"]*20
    assert win_rate(verdicts, users).high - win_rate(verdicts, users).low > win_rate(verdicts).high - win_rate(verdicts).low
    with pytest.raises(ValueError, match="groups"): win_rate(verdicts, users[:3])


@given(st.lists(st.tuples(st.sampled_from([*VERDICTS, None]), st.sampled_from([*VERDICTS, None])), max_size=40))
@settings(max_examples=100, deadline=None)
def test_agreement_is_numpys(pairs):
    human, judge = [h for h, _ in pairs], [j for _, j in pairs]
    got, both = judge_agreement(human, judge), [(VERDICTS[h], VERDICTS[j]) for h, j in pairs if h and j]
    assert got.n == len(both) and (got.accuracy is None) == (not both)
    if not both: assert str(got) == "not measured"
    elif len({h for h, _ in both}) < 2 or len({j for _, j in both}) < 2: assert got.pearson is None
    else: assert got.pearson == pytest.approx(np.corrcoef(*zip(*both))[0, 1])


def test_agreement_refuses_what_is_no_verdict():
    with pytest.raises(ValueError, match="draw"): judge_agreement(["draw"], ["win"])
    with pytest.raises(ValueError, match="2 human and 1"): judge_agreement(["win", "tie"], ["win"])


# ---- a model

PAIR = Pair(id="p", query="Q?", a="ANSWER ONE", b="ANSWER TWO")
reply = lambda better: json.dumps({"better": better, "reason": "r"})

@pytest.mark.parametrize("first, second, found", [("first", "second", "win"), ("second", "first", "lose"), ("tie", "tie", "tie"), ("first", "first", "tie"), ("second", "second", "tie"), ("first", "tie", "tie")])
def test_both_orders_must_agree(first, second, found): assert judge_pairs(ScriptedLM([reply(first), reply(second)]), [PAIR])[0].verdict == found


@pytest.mark.parametrize("broken", ["", "first", "The first is better.", '{"better": "First"}', '{"better": 1}', "[]", '"first"', "null", '{"reason": "x"}', '{"better": "first"', 'Sure! {"better": "first"}', '{"better": "first"} {"better": "second"}', '{"better": ["first"]}'])
def test_a_broken_reply_is_no_verdict(broken):
    for replies in ([broken, reply("first")], [reply("first"), broken]):
        judged = judge_pairs(ScriptedLM(replies), [PAIR])[0]
        assert judged.verdict is None and None in judged.orders


def test_a_fence_around_the_json_is_read(): assert judge_pairs(ScriptedLM([f"```json\n{reply('first')}\n```", reply("second")]), [PAIR])[0].verdict == "win"


def test_the_second_question_is_the_first_with_the_answers_swapped():
    one, two = (judge_messages(PAIR, s)[-1].text for s in (False, True))
    assert one != two and one.replace("ANSWER ONE", "x").replace("ANSWER TWO", "ANSWER ONE").replace("x", "ANSWER TWO") == two
    assert judge_pairs(ScriptedLM([]), []) == []


# ---- people

PAIRS = [Pair(id=f"q{i}", query=f"{i}?", a=f"ours {i}", b=f"theirs {i}") for i in range(12)]

def test_the_order_is_blind_seeded_and_whole():
    order = blind_order(PAIRS, 3)
    assert order == blind_order(PAIRS[::-1], 3) != blind_order(PAIRS, 4) and {p.id for p, _ in order} == {p.id for p in PAIRS}
    assert {s for _, s in order} == {True, False}
    page = rating_html(PAIRS, 3)
    assert [page.index(p.query) for p, _ in order] == sorted(page.index(p.query) for p, _ in order) and "swapped" not in page


def test_a_session_goes_on_where_it_stopped_and_knows_whose_answer_won(tmp_path):
    path = tmp_path/"r.jsonl"
    for _ in PAIRS:
        s = RatingSession(PAIRS, path, 7, "Kim")   # as if the notebook were closed after each click
        shown = s.current[1]
        s.rate("second" if shown else "first")
    assert RatingSession(PAIRS, path, 7, "Kim").current is None and s.verdicts(PAIRS) == ["win"]*12
    with pytest.raises(ValueError, match="every pair"): s.rate("tie")
    assert RatingSession(PAIRS, path, 7, "Ada").verdicts(PAIRS) == [None]*12


@pytest.mark.parametrize("lines", ["x\n{}\n", '{"pair": 1}\n', "[]\n[]\n", "3\n"])
def test_a_broken_file_names_its_line(tmp_path, lines):
    path = tmp_path/"r.jsonl"
    path.write_text(lines)
    with pytest.raises(ValueError, match="r.jsonl, line 1"): load_ratings(path)


def test_taking_back_reaches_the_disk(tmp_path):
    s = RatingSession(PAIRS, tmp_path/"r.jsonl")
    s.back()
    s.rate("tie"); first = s.current; s.rate("first"); s.back()
    assert s.current == first and len(load_ratings(tmp_path/"r.jsonl")) == 1


def test_the_widget_shows_pairs_safely_and_survives_a_full_disk(tmp_path):
    pytest.importorskip("ipywidgets")
    bad = [Pair(id="1", query="<b>?", a="<img src=x onerror=1>", b="b", background="<i>")]
    session = RatingSession(bad, tmp_path/"folder"/"r.jsonl")
    status, body, row = rating_widget(session).children
    assert "<img" not in body.value and "&lt;img" in body.value and all(b.description for b in row.children)
    (tmp_path/"folder").mkdir(); (tmp_path/"folder"/"r.jsonl").mkdir()
    row.children[0].click()
    assert "Not saved" in status.value and session.ratings == {}
    (tmp_path/"folder"/"r.jsonl").rmdir()
    row.children[0].click()
    assert "Done" in status.value and body.value == "" and all(b.disabled for b in row.children[:3])
    row.children[3].click()
    assert not any(b.disabled for b in row.children) and "&lt;img" in body.value


def test_ratings_of_many_threads_are_all_there(tmp_path):
    path = tmp_path/"r.jsonl"
    def rate(who): [save_rating(path, f"p{i}", "win", who) for i in range(20)]
    save_rating(path, "start", "tie")
    threads = [threading.Thread(target=rate, args=(f"r{n}",)) for n in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert all(len(load_ratings(path, f"r{n}")) == 20 for n in range(4))
