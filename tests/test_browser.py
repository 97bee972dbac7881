"""Widgets in a real JupyterLab and a real browser, worked as a person would; pictures of the pages are written where MEMKIT_SHOTS names a folder."""
import re

import lab as labs

pytestmark = labs.needed
NBS = labs.ROOT/"nbs"/"widgets"


def test_stepping_through_a_dialogue(lab, chromium):
    with labs.opened(chromium, lab, NBS/"steppers/02_dpem.ipynb") as page:
        s = labs.Worked(page)
        s.at("Round 6")
        assert any("lisinopril" in row and "Long-term memory" in row for row in s.compared())
        s.expect(s.panel.locator("svg text", has_text="promoted")).to_have_count(1)
        labs.shot(page, "dpem_promoted", 1280, 800)

        s.button("Step ▶").click()
        s.at("Round 7")
        for _ in range(3): s.button("◀ Back").click()
        s.at("Round 4")
        assert "severe, and once is enough" in " ".join(s.panel.locator("svg text").all_text_contents())

        handle = s.panel.locator(".mk-slider .noUi-handle")     # the keyboard alone
        handle.focus()
        handle.press("ArrowLeft")
        s.at("Round 3")
        handle.press("End")
        s.at("Round 9")
        assert handle.evaluate("h => h === document.activeElement"), "the focus stays on the slider"
        s.button("Step ▶").press("Enter")                       # at the end nothing moves, and the focus stays
        s.at("Round 9")
        assert s.button("Step ▶").evaluate("b => b === document.activeElement")

        jump = s.panel.get_by_label("Jump to")
        jump.select_option(index=1)
        s.at("Round 1")
        assert "Hello doctor." in s.struck()
        s.expect(handle).to_have_attribute("aria-valuenow", "1.0")
        jump.select_option(index=8)
        s.at("Round 8")
        assert len(s.struck()) >= 6, "the refresh emptied short-term memory"
        labs.shot(page, "dpem_refreshed", 1280, 800)
        labs.theme(page, "JupyterLab Dark")
        ink = s.panel.locator("svg text").first.evaluate("t => getComputedStyle(t).fill")
        assert sum(map(int, re.findall(r"\d+", ink))) > 600, "light letters on a dark page"
        labs.shot(page, "dpem_dark", 1280)
        labs.theme(page, "JupyterLab Light")

        s.panel.get_by_label("Compare with").select_option(index=2)  # the state before the first round
        s.expect(s.panel.locator(".mk-differences")).to_contain_text("Before the first round")
        s.panel.get_by_label("Compare with").select_option(label="nothing")
        s.expect(s.panel.locator(".mk-differences")).to_have_count(0)

        s.button("◀ Back").focus()
        for _ in range(8): page.keyboard.press("Enter")
        s.at("Before the first round")
        s.panel.locator(".mk-play button").first.click()
        s.at("Round [23]")                                      # it plays by itself
        s.panel.get_by_role("button", name="Pause").click()     # the bare icons of Play have names, and the names follow what they do
        s.expect(s.panel.get_by_role("button", name="Play")).to_have_count(1)
        assert labs.accessible(page) == []
        assert labs.errors(page) == []


def test_a_conversation_and_taking_a_memory_away(lab, chromium):
    with labs.opened(chromium, lab, NBS/"steppers/05_steps.ipynb") as page:
        s = labs.Worked(page)
        s.at("Turn 3 of 4")
        assert "Drink beer every day." in s.struck() and "M1" in s.panel.locator("svg text").all_text_contents()
        assert any("no room: " in t for t in s.panel.locator("svg text").all_text_contents())
        labs.shot(page, "hybrid_turn", 1280, 800)
        s.button("Step ▶").click()
        s.at("Turn 4 of 4")
        s.button("◀ Back").press("Space")
        s.at("Turn 3 of 4")

        away = labs.Worked(page, 1)
        away.at("Without “I am allergic to penicillin")
        assert "only here" in away.panel.locator("svg text").all_text_contents()
        labs.shot(page, "hybrid_away", 1280, 800)
        away.panel.get_by_label("Without", exact=True).select_option(label="nothing")
        away.at("As it was")
        away.panel.get_by_label("Turn", exact=True).select_option(index=1)
        away.at("As it was.*What about honey")
        away.panel.get_by_label("Without", exact=True).select_option(index=1)
        away.expect(away.panel.locator("svg")).to_contain_text("press “Answer again”")
        away.button("Answer again").press("Enter")
        away.at("Without “")
        assert labs.errors(page) == []
