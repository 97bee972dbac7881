"The walkthrough of MARK in a real JupyterLab: its steppers and its explorer worked as a person would."
import re

import lab as labs

pytestmark = labs.needed
NBS = labs.ROOT/"nbs"


def test_corrections_a_lie_a_merge_and_a_life_to_be_moved(lab, chromium):
    with labs.opened(chromium, lab, NBS/"walkthroughs"/"3_mark.ipynb") as page:
        page.locator(".mk-panel").nth(2).wait_for(timeout=240_000)      # three answers of a language model come before it
        s = labs.Worked(page, 1)
        s.at("cid asks")                # near the step that is asked for
        s.panel.locator(".mk-slider .noUi-handle").press("End")
        s.at("cid's conversation is read")
        assert any("twice a day" in t for t in s.struck()), "what gave way is struck"
        s.expect(s.panel.locator("svg")).to_contain_text("Why: contradiction; trust 0.250 against")
        assert any("superseded: contradiction" in row for row in s.compared())
        labs.shot(page, "mark_superseded", 1280, 800)

        s.button("◀ Back").click()
        s.at("cid asks")
        s.button("◀ Back").press("Enter")
        s.at("cid asks")
        jump = s.panel.get_by_label("Jump to")
        jump.select_option(index=3)
        s.at("ann's conversation is read")
        s.expect(s.panel.locator("svg text", has_text=re.compile(r"\bnew$"))).to_have_count(4)     # two above, two in their columns
        labs.shot(page, "mark_read", 1280, 800)
        s.button("Step ▶").click()
        s.at("ben asks")
        s.expect(s.panel.locator("svg")).to_contain_text("similarity")
        s.expect(s.panel.locator("svg")).to_contain_text("recalled 1, right 0, wrong 0")
        assert any("trust 0.250" in row and "trust 0.240" in row for row in s.compared()), "use wears trust off"
        labs.shot(page, "mark_round", 1280, 800)

        handle = s.panel.locator(".mk-slider .noUi-handle")             # the keyboard alone
        handle.focus()
        handle.press("ArrowRight")
        s.at("dora asks")
        handle.press("Home")
        s.at("Before the first round")
        assert handle.evaluate("h => h === document.activeElement"), "the focus stays on the slider"
        handle.press("End")
        s.at("cid's conversation is read")
        s.panel.get_by_label("Compare with").select_option(index=2)     # before the first round
        s.expect(s.panel.locator(".mk-differences")).to_contain_text("Before the first round")
        assert len([row for row in s.compared() if "not there" in row and "trust" in row or "superseded" in row]) == 3, "ann's two memories and cid's"

        v = labs.Worked(page, 2)
        v.panel.get_by_label("Jump to").select_option(index=9)
        v.at("cid's conversation is read")
        assert any("four times" in t for t in v.struck()), "the lie is put out again in the same step"
        labs.shot(page, "mark_voices", 1280, 800)
        options = v.panel.get_by_label("Jump to").locator("option").all_text_contents()
        merged = next(i for i, o in enumerate(options) if "merged" in o.replace("\xa0", " "))
        v.panel.get_by_label("Jump to").select_option(index=merged)
        v.at("gil's conversation is read")
        v.expect(v.panel.locator("svg text", has_text="said now")).to_have_count(1)
        labs.shot(page, "mark_merged", 1280, 800)
        labs.theme(page, "JupyterLab Dark")
        labs.shot(page, "mark_dark", 1280)
        labs.theme(page, "JupyterLab Light")
        v.panel.locator(".mk-play button").first.click()
        v.at("hans asks")                                              # it plays by itself
        v.panel.locator(".mk-play button").first.click()

        life = labs.Worked(page, 0)
        life.at("as it was recorded.*3 recalls")
        life.button("Called right +").press("Enter")
        life.at("one of my own.*4 recalls, 1 called right")
        labs.shot(page, "mark_life", 1280, 800)
        assert labs.errors(page) == []
