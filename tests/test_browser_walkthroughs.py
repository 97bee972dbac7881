"The walkthroughs of two papers, and the quiz, in a real JupyterLab and a real browser, worked as a student would."
import re

import lab as labs

pytestmark = labs.needed
NBS = labs.ROOT/"nbs"


class Asked:
    "A quiz on a page, as one sees and touches it."
    def __init__(self, page):
        from playwright.sync_api import expect
        self.page, self.expect, self.quiz = page, expect, page.locator(".mk-quiz")
        self.quiz.wait_for(timeout=60_000)
        self.quiz.scroll_into_view_if_needed()

    def button(self, name: str): return self.quiz.get_by_role("button", name=name, exact=True)
    def verdicts(self): return self.quiz.locator("[role=status]")
    def told(self, i: int, words: str): self.expect(self.verdicts().nth(i)).to_contain_text(words)


def test_a_quiz_by_mouse_and_by_keyboard(lab, chromium):
    with labs.opened(chromium, lab, NBS/"widgets"/"explorers/06_lesson.ipynb") as page:
        q = Asked(page)
        labs.shot(page, "quiz", 1280, 800)
        q.told(0, "Right.")                                       # the notebook gave these itself
        q.told(2, "is allergic to penicillin")
        text = q.quiz.get_by_label("Answer 2")
        text.fill("0,7")
        text.press("Enter")
        q.told(1, "Not right.")
        assert "0.5" not in q.verdicts().nth(1).inner_text() and text.evaluate("t => t === document.activeElement")
        text.fill("50 %")
        text.press("Tab")
        page.keyboard.press("Enter")                              # the button beside it
        q.told(1, "Right. Three of six.")
        group = q.quiz.get_by_role("radiogroup", name="Answer 3")
        allergic = group.get_by_role("radio", name="is allergic")
        allergic.check()
        page.keyboard.press("ArrowUp")                            # JupyterLab would go to another cell
        q.expect(group.get_by_role("radio", name="has a cough")).to_be_checked()
        q.expect(group.get_by_role("radio", name="has a cough")).to_be_focused()
        page.keyboard.press("Tab")                                # one stop for the group, then its button
        page.keyboard.press("Space")
        q.told(2, "Not right.")
        q.quiz.get_by_text("is allergic to penicillin", exact=True).first.click()
        q.button("Check 3").click()
        q.told(2, "Right. It was said twice.")
        q.expect(q.quiz).to_contain_text("3 of 3 questions right")
        labs.theme(page, "JupyterLab Dark")
        labs.shot(page, "quiz_dark", 1280, 800)
        labs.theme(page, "JupyterLab Light")
        assert labs.errors(page) == []


def solve(page, start: str, code: str) -> str:
    "Write `code` over the cell that begins with `start`, run it and the check below it; what the check says."
    from playwright.sync_api import expect
    cell = page.locator(".jp-CodeCell", has=page.locator(".cm-line", has_text=start)).first
    check = page.locator(".jp-CodeCell", has=page.locator(".cm-line", has_text=f"exercise({start.removeprefix('def ').partition('(')[0]}")).first
    expect(check.locator(".jp-OutputArea-output")).to_contain_text("Not yet:", timeout=120_000)
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(code)
    page.keyboard.press("Shift+Enter")
    check.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    expect(check.locator(".jp-OutputArea-output")).to_contain_text("Right:", timeout=30_000)
    return check.locator(".jp-OutputArea-output").inner_text()


def finished(page):
    "All cells have run: the last one says how long it took."
    page.get_by_text(re.compile(r"This notebook took \d+ s")).last.wait_for(timeout=240_000)


def keeps_keys(page):
    "Keys pressed in any control stay there: JupyterLab would go to another cell (arrows, j), add one (b) or, twice, delete it (d)."
    where = "() => { const nb = window.jupyterapp.shell.currentWidget.content; return [nb.activeCellIndex, nb.widgets.length, nb.mode]; }"
    for control in page.locator(":is(.mk-panel, .mk-quiz, .mk-predict) :is(select, input:not([type=hidden]), button:enabled, [role=slider])").all():
        if not control.is_visible(): continue
        control.focus()
        before = page.evaluate(where)
        for key in ("ArrowDown", "ArrowUp", "j", "b", "d"): page.keyboard.press(key)
        assert page.evaluate(where) == before, f"keys left {control.evaluate('e => e.outerHTML')[:200]}"
        assert page.evaluate("() => !!document.activeElement.closest('.mk-panel, .mk-quiz, .mk-predict')")


def predicted(page, start: str, choice: str, words: str):
    "Predict, as a student does: nothing is shown before it, the result after it."
    from playwright.sync_api import expect
    box = page.locator(".mk-predict", has=page.get_by_text(re.compile(re.escape(start)))).first
    box.scroll_into_view_if_needed()
    assert words not in box.inner_text()
    box.get_by_role("button", name="Show the result").click()
    expect(box).to_contain_text("Predict first")
    box.get_by_role("radio", name=choice).check()
    box.get_by_role("button", name="Show the result").click()
    expect(box).to_contain_text(words)


def hidden_solution(page, nth: int) -> str:
    "Unfold a solution, as somebody who gives up does, and read it."
    box = page.locator("details", has=page.locator("summary", has_text="Solution")).nth(nth)
    assert not box.locator("pre").is_visible()
    box.locator("summary").click()
    box.locator("pre").wait_for(state="visible")
    return box.locator("pre").inner_text()


def test_the_walk_through_an_answer(lab, chromium):
    with labs.opened(chromium, lab, NBS/"walkthroughs"/"1_hybrid.ipynb") as page:
        finished(page)
        predicted(page, "What does the chatbot answer?", "it asks Ann", "You told me on 2 March")
        predicted(page, "The recalled memory is taken away", "nothing changes", "the answer is the same")
        labs.shot(page, "walk1_predicted", 1280, 800)
        away = labs.Worked(page, 0)
        away.panel.get_by_label("Without").select_option(index=1)
        away.button("Answer again").click()
        away.at("Without “I am allergic to penicillin")
        assert "only here" in away.panel.locator("svg text").all_text_contents()
        labs.shot(page, "walk1_away", 1280, 800)
        s = labs.Worked(page, 1)
        s.at("Turn .*User: “Can I take amoxicillin")
        labs.shot(page, "walk1_steps", 1280, 800)
        s.button("◀ Back").click()
        s.at("Turn .*User: “How can I fall asleep")
        s.panel.get_by_label("Jump to").select_option(index=0)
        s.at("Turn .*User: “I am allergic")
        s.panel.locator(".mk-slider .noUi-handle").press("End")
        s.at("Turn .*User: “Can I take amoxicillin")

        fusion = labs.Worked(page, 2)
        labs.shot(page, "walk1_fusion", 1280, 800)
        before = fusion.picture.get_attribute("aria-label")
        fusion.panel.get_by_role("slider", name="k of RRF").or_(fusion.panel.locator(".noUi-handle")).first.press("Home")
        fusion.expect(fusion.picture).not_to_have_attribute("aria-label", before)
        room = labs.Worked(page, 3)
        labs.shot(page, "walk1_room", 1280, 800)
        room.panel.locator(".noUi-handle").first.press("Home")
        fusion.expect(room.panel.locator("[role=alert]")).to_contain_text("budget")     # too small even for the question: told in place
        room.button("Room for all").click()
        fusion.expect(room.panel.locator("[role=alert]")).to_have_count(0)

        assert solve(page, "def recalled(", hidden_solution(page, 0)).startswith("Right: all")
        assert solve(page, "def rrf_score(", hidden_solution(page, 1)).startswith("Right: all")

        q = Asked(page)
        labs.shot(page, "walk1_quiz", 1280, 800)
        q.quiz.get_by_role("radio", name="its cosine is too low then").check()
        q.button("Check 1").press("Enter")
        q.told(0, "Not right.")
        for name in ("its cosine is too low then", "it is too old"): q.quiz.get_by_role("radio", name=name).press("ArrowUp")
        q.expect(q.quiz.get_by_role("radio", name="it is recalled")).to_be_checked()
        q.button("Check 1").click()
        q.told(0, "Right. The vectors of the question")
        q.quiz.get_by_label("Answer 3").fill("61")
        q.quiz.get_by_label("Answer 3").press("Enter")
        q.told(2, "Right.")
        q.quiz.get_by_label("Answer 4").fill("many")
        q.quiz.get_by_label("Answer 4").press("Enter")
        q.told(3, "Not right.")
        q.button("Show the answers").click()
        q.told(3, "The answer is:")
        q.told(4, "Try this one first.")
        labs.shot(page, "walk1_answers", 1280)
        assert labs.errors(page) == []


def test_the_walk_through_a_memory(lab, chromium):
    with labs.opened(chromium, lab, NBS/"walkthroughs"/"2_malp.ipynb") as page:
        finished(page)
        s = labs.Worked(page, 0)
        s.at("Round 5")                     # where the coffee leaves
        s.panel.get_by_label("Jump to").select_option(index=0)
        s.at("Before the first round")
        s.button("Step ▶").press("Enter")
        s.at("Round 1")
        assert s.panel.locator("svg text").count() > 10, "the memories of the round are drawn"
        labs.shot(page, "walk2_steps", 1280, 800)
        s.button("Step ▶").press("Enter")
        s.at("Round 2")
        s.panel.get_by_label("Jump to").select_option(index=6)
        s.at("Round 6")
        s.panel.get_by_label("Compare with").select_option(index=2)
        s.expect(s.panel.locator(".mk-differences")).to_contain_text("Before the first round")
        assert solve(page, "def promoted(", hidden_solution(page, 0)).startswith("Right: all")
        assert solve(page, "def evict(", hidden_solution(page, 1)).startswith("Right: all")
        q = Asked(page)
        q.quiz.get_by_label("Answer 5").fill("9216")
        q.quiz.get_by_label("Answer 5").press("Enter")
        q.told(4, "Not right.")
        q.quiz.get_by_label("Answer 5").fill("4,608")
        q.quiz.get_by_label("Answer 5").press("Enter")
        q.told(4, "Right.")
        q.quiz.get_by_text("long-term", exact=True).first.click()
        q.button("Check 3").click()
        q.told(2, "Right. Said once")
        labs.shot(page, "walk2_quiz", 1280, 800)
        menu = s.panel.get_by_label("Jump to")
        menu.select_option(index=2)
        menu.press("ArrowDown")
        s.at("Round 3")
        keeps_keys(page)
        assert labs.errors(page) == []
