"Questions, exercises and the clock of the walkthroughs, without a browser."
import re
from html import unescape

import numpy as np
import pytest
from hypothesis import given, strategies as st

from memkit.widgets.explorers.lesson import exercise, predict, quiz, start, took
from memkit.widgets.explorers.lesson import Question, right_answer, questions_text, read_number

LETTERS = ("alpha", "beta", "gamma")


def said(verdict) -> str: return unescape(re.sub("<[^>]+>", "", verdict.value)).strip()
def three(answer="beta", **more): return Question("Which?", lambda: answer, LETTERS, **more)


@given(st.floats(1e-6, 1e6), st.floats(-.009, .009))
def test_a_number_may_be_a_little_off(x, off):
    if float(x).is_integer(): x += .5
    assert Question("How much?", lambda: x).right(x*(1 + off)) and Question("How much?", lambda: x).right(f"{x:.3g}")
    assert not Question("How much?", lambda: x).right(x*1.05) and not Question("How much?", lambda: x).right(-x)


@given(st.integers(-10_000, 10_000))
def test_a_count_is_exact(n):
    q = Question("How many?", lambda: n)
    assert q.right(str(n)) and q.right(f" {n:,} ") and not q.right(n + 1) and not q.right(f"{n}.5")


@pytest.mark.parametrize("text, number", [("0,25", .25), ("25%", .25), ("25 %", .25), ("1,000", 1000), ("1,000,000", 1e6), ("1e-3", .001), ("−2", -2), ("+.5", .5),
                                          ("", None), ("%", None), (".", None), ("nan", None), ("inf", None), ("1 000", None), ("1.2.3", None), ("__import__('os')", None), (True, None), (None, None)])
def test_numbers_as_people_type_them(text, number): assert read_number(text) == number


def test_texts_are_compared_by_their_letters():
    q = Question("Who?", lambda: "Sir  Isaac Newton.")
    assert q.right("sir isaac NEWTON") and not q.right("Isaac Newton") and not q.right("")
    assert Question("Is it?", lambda: True).right("true") and not Question("Is it?", lambda: True).right(1)


def test_what_is_no_question_is_refused():
    for bad, words in (((" ", lambda: 1), "needs words"), (("Q", 3), "must be a function"), (("Q", lambda: 1, ("a", "A", "b")), "three or more that differ")):
        with pytest.raises((ValueError, TypeError), match=words): Question(*bad)
    with pytest.raises(TypeError, match="got one text"): Question("Q", lambda: 1, "abc")
    with pytest.raises(ValueError, match="none of the choices"): three("delta").right("alpha")


def test_the_answer_is_worked_out_when_it_is_asked_for():
    state = {}
    q = quiz([Question("How many?", lambda: state["n"])])
    assert not q.give(0, 3) and "can't be checked yet" in said(q.verdicts[0]) and q.show.disabled and not q.tried
    state["n"] = 3
    assert q.check(0) and said(q.verdicts[0]).startswith("✓ Right.")
    state["n"] = 4
    assert not q.check(0)


def test_verdicts_stand_at_their_questions_and_give_nothing_away():
    q = quiz([three(why="It is second."), three("gamma", why="It is last."), Question("How much?", lambda: 1/3)])
    assert [c.description for c in q.controls] == ["Answer 1", "Answer 2", "Answer 3"] and q.show.disabled
    assert not q.check(0) and said(q.verdicts[0]) == "Choose an answer first." and not q.check(2) and said(q.verdicts[2]) == "Type an answer first."
    assert not q.give(0, "alpha") and "beta" not in said(q.verdicts[0]) and "second" not in said(q.verdicts[0]) and not q.show.disabled
    assert all('role="status"' in v.value for v in q.verdicts)
    q.reveal()
    assert "The answer is: beta. It is second." in said(q.verdicts[0]) and said(q.verdicts[1]) == said(q.verdicts[2]) == "Try this one first."
    assert q.give(0, "beta") and said(q.verdicts[0]) == "✓ Right. It is second." and "1 of 3 questions right" in q.summary.value
    q.reveal()
    assert said(q.verdicts[0]) == "✓ Right. It is second."
    q.give(2, "0.9")
    q.reveal()
    assert "The answer is: 0.333" in said(q.verdicts[2])
    with pytest.raises(ValueError, match="choose one of"): q.give(0, "delta")


def test_buttons_and_the_enter_key_check():
    q = quiz([Question("How many?", lambda: 2), three()])
    q.controls[0].value = "2"
    q.controls[0]._handle_custom_msg({"event": "submit"}, [])
    assert said(q.verdicts[0]) == "✓ Right."
    buttons = {b.description: b for row in q.widget.children for b in getattr(row, "children", ()) if "Check" in getattr(b, "description", "")}
    q.controls[1].value = "alpha"
    buttons["Check 2"].click()
    assert "Not right" in said(q.verdicts[1])
    q.show.click()
    assert "beta" in said(q.verdicts[1])


def test_a_verdict_goes_with_the_answer_that_it_was_on():
    q = quiz([three(), Question("How many?", lambda: 12)])
    q.controls[1].value = "1"
    q.check(1)
    q.controls[1].value = "12"           # Enter overtook the last letter on its way from the browser
    assert said(q.verdicts[1]) == "✓ Right."
    q._when.clear()                      # later
    q.controls[1].value = "13"
    assert said(q.verdicts[1]) == "" and 'role="status"' in q.verdicts[1].value
    q.give(0, "alpha")
    q._when.clear()
    q.controls[0].value = "beta"
    assert said(q.verdicts[0]) == ""


def test_what_was_tried_survives_a_cell_that_is_run_again():
    first = quiz([three(), Question("How many?", lambda: 2)], key="test-again")
    first.give(0, "beta"); first.give(1, "3")
    again = quiz([three(), Question("How many?", lambda: 2)], key="test-again")
    assert again.controls[0].value == "beta" and said(again.verdicts[0]) == "✓ Right." and "Not right" in said(again.verdicts[1]) and not again.show.disabled
    other = quiz([Question("Which?", lambda: "x", ("x", "y", "z"))], key="test-again")
    assert other.controls[0].value is None and not other.tried
    assert quiz([three()]).controls[0].value is None, "without a key nothing is kept"


def test_texts_are_escaped_everywhere():
    evil = "<img src=x onerror=alert(1)> & `<b>`"
    q = quiz([Question(evil, lambda: evil, (evil, "two", "three"), why=evil), Question("Q", lambda: [][0], why=evil)])
    q.give(0, evil); q.give(1, evil); q.reveal()
    for html in [v.value for v in q.verdicts] + [c.value for c in q.widget.children if hasattr(c, "value")]: assert "<img" not in html and "<b>`" not in html
    page = q._repr_mimebundle_()["text/html"]
    assert "<img" not in page and "onerror" in page


def test_where_nothing_can_be_clicked_the_questions_stay():
    long = Question("Why " + "so very " * 60 + "long?", lambda: 1)
    bundle = quiz([three(), long])._repr_mimebundle_()
    assert bundle["text/plain"] == questions_text([three(), long]) and "b) beta" in bundle["text/plain"] and "application/vnd.jupyter.widget-view+json" in bundle
    assert "gamma" in bundle["text/html"] and right_answer(Question("Q", lambda: 2/3)) == "0.667" and right_answer(Question("Q", lambda: 12345)) == "12345"


def test_an_exercise_tells_the_first_case_that_fails():
    def share(part, total): return None
    cases = [((2, 5), .4), ((0, 0), 0)]
    v = exercise(share, cases, "A share is part over total.")
    assert repr(v) == ("Not yet: share(2, 5) should return 0.4, but your function returned nothing (None). Write your code, and end it with `return`.\n"
                       "This is case 1 of 2.\nHint: A share is part over total.") and not v.passed
    told = repr(exercise(lambda p, t: p/t, cases))
    assert told.startswith("Not yet: <lambda>(0, 0) should return 0, but your function stopped with ZeroDivisionError") and "case 2 of 2" in told
    assert "their order is not" in repr(exercise(lambda: [2, 1], [((), [1, 2])]))
    assert exercise(lambda p, t: p/t if t else 0, cases).passed
    with pytest.raises(ValueError, match="needs a case"): exercise(share, [])


@pytest.mark.parametrize("given, right, ok", [(1, 1.0, True), (.1 + .2, .3, True), (.3001, .3, False), (True, 1, False), (1, True, False), ([1, 2], (1, 2), True), ([1], [1, 2], False), ("a", "A", False),
                                              ({"a": .1 + .2}, {"a": .3}, True), ({"a": 1}, {"b": 1}, False), ([("x", 1/3)], (["x", .33333333],), True), (None, 0, False), (None, None, True), (float("nan"), .5, False),
                                              (np.float32(.5), .5, True), (np.bool_(True), True, True), (np.array([1, 2]), [1, 2], True), (np.array([1, 2]), [1, 3], False)])
def test_what_counts_as_the_same(given, right, ok): assert exercise(lambda: given, [((), right)]).passed is ok


def test_an_attempt_spoils_no_other_case_and_prints_shortly():
    given_list = [3, 1, 2]
    def worst(xs): xs.sort(); return xs[0]
    assert exercise(worst, [((given_list,), 1), ((given_list,), 1)]).passed and given_list == [3, 1, 2]
    assert len(repr(exercise(lambda x: "y"*5000, [(("x"*5000,), "z")]))) < 900


def test_the_clock(capsys):
    took(start())
    first, last = capsys.readouterr().out.splitlines()
    assert re.search(r", \d+ cores?, Python 3\.", first) and re.fullmatch(r"This notebook took 0 s(, and \d+\.\d GB of memory at most)?\.", last)


def test_a_result_waits_for_a_prediction():
    state = {"n": 3}
    p = predict("How many?", (), state["n"], lambda: print("there are", state["n"]), "Count <them>.")
    state["n"] = 4
    assert not p.check() and p.told.value == "" and said(p.verdict).startswith("Predict first")
    assert not p.give("2") and "there are 3" in p.told.value and "You predicted: 2. What happened: 3. Count <them>." in said(p.verdict)
    again = predict("How many?", (), 2, lambda: None)
    assert again.control.value == "2" and said(again.verdict) == "You predicted this.", "a cell that is run again keeps the prediction"
    stored = predict("Which?", LETTERS, "beta", lambda: print("<b>beta</b>"))._repr_mimebundle_()
    question, _, result = stored["text/html"].partition("<details>")
    assert "gamma" in question and "&lt;b&gt;beta" in result and "&lt;b&gt;" not in question + stored["text/plain"]
    with pytest.raises(ValueError, match="none of the choices"): predict("Which?", LETTERS, "delta", lambda: None)
