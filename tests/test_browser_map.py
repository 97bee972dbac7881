"MAP's walkthrough in a real JupyterLab and a real browser, worked as a student would; pictures of the pages are written where MEMKIT_SHOTS names a folder."
import lab as labs

pytestmark = labs.needed
WALK = labs.ROOT/"nbs"/"walkthroughs"/"4_map.ipynb"


def drawn(s) -> list[str]: return s.panel.locator("svg text").all_text_contents()


def stepping(page, s):
    s.at("Message 6 of 9")
    assert s.struck() == ["5"] and {"changed", "What kind of message?", "B tells a preference"} <= set(drawn(s))
    assert any(row.startswith("Alien (1979): Profile, 5 → Profile, 3") for row in s.compared())
    labs.shot(page, "map_changed", 1280, 800)

    s.button("Step ▶").click()
    s.at("Message 7 of 9")
    assert s.struck() == [] and {"recommended", "Recalled"} <= set(drawn(s))
    s.panel.get_by_label("Compare with").select_option(index=7)      # message 5, which asked the same
    s.expect(s.panel.locator(".mk-differences")).to_contain_text("Message 5 of 9")
    rows = s.compared()
    assert any(row.startswith("expected of Neuromancer") for row in rows) and any(row.startswith("Alien (1979)") for row in rows)
    labs.shot(page, "map_expected", 1280, 800)
    s.panel.get_by_label("Compare with").select_option(label="nothing")
    s.expect(s.panel.locator(".mk-differences")).to_have_count(0)
    s.panel.get_by_label("Compare with").select_option(index=0)

    s.button("Step ▶").click()
    s.at("Message 8 of 9")
    title, stars = s.struck()
    assert title.startswith("The Sound of Music (19") and stars == "2" and "taken back" in drawn(s)
    assert any("The Sound of Music (1965): Profile, 2 → Profile" in row for row in s.compared())
    for _ in range(2): s.button("◀ Back").click()
    s.at("Message 6 of 9")


def by_keyboard(page, s):
    handle = s.panel.locator(".mk-slider .noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    s.at("Message 7 of 9")
    handle.press("End")
    s.at("Message 9 of 9")
    handle.press("Home")
    s.at("Before the first message")
    assert handle.evaluate("h => h === document.activeElement"), "the focus stays on the slider"
    s.button("Step ▶").focus()
    for _ in range(2): page.keyboard.press("Enter")
    s.at("Message 2 of 9")
    assert "C neither of them" in drawn(s) and "it goes straight to the language model" in drawn(s)
    assert s.button("Step ▶").evaluate("b => b === document.activeElement")
    jump = s.panel.get_by_label("Jump to")
    jump.focus()
    page.keyboard.press("End")
    s.at("Message 9 of 9")
    jump.select_option(index=5)
    s.at("Message 5 of 9")
    labs.shot(page, "map_books", 1280, 800)


def edited(page, start: str, text: str):
    "Put `text` into the cell that begins with `start`, and run it and the one below."
    cell = page.locator(".jp-CodeCell", has=page.locator(".cm-content", has_text=start)).first
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    for _ in range(2): page.keyboard.press("Shift+Enter")


def test_a_student_works_through_it(lab, chromium):
    with labs.opened(chromium, lab, WALK) as page:
        s = labs.Worked(page)
        stepping(page, s)
        by_keyboard(page, s)
        labs.theme(page, "JupyterLab Dark")
        s.panel.scroll_into_view_if_needed()
        labs.shot(page, "map_dark", 1280)
        labs.theme(page, "JupyterLab Light")

        e = labs.Worked(page, 1)
        before, handle = e.picture.get_attribute("aria-label"), e.panel.locator(".widget-inline-hbox", has_text="Ratings known").locator(".noUi-handle")
        handle.focus()
        handle.press("Home")
        e.expect(e.picture).not_to_have_attribute("aria-label", before)
        labs.shot(page, "map_rating", 1280, 800)

        page.locator(".mk-quiz").wait_for(timeout=60_000)
        s.expect(page.get_by_text("Not yet: mean_error")).to_have_count(1)
        edited(page, "def mean_error(", "def mean_error(expected, given):\n    return sum(abs(e - g) for e, g in zip(expected, given))/len(given)")
        s.expect(page.get_by_text("Right: all 3 cases.")).to_have_count(1)

        quiz = page.locator(".mk-quiz")
        quiz.scroll_into_view_if_needed()
        quiz.get_by_label("they fall").check()
        quiz.get_by_role("button", name="Check 1").click()
        s.expect(quiz.locator(".mk-wrong")).to_have_count(1)
        quiz.get_by_label("they rise").check()
        quiz.get_by_role("button", name="Check 1").click()
        s.expect(quiz.locator(".mk-right")).to_contain_text("every prediction rises")
        quiz.get_by_label("Answer 3").fill("2")
        quiz.get_by_label("Answer 3").press("Enter")
        s.expect(quiz.locator(".mk-right")).to_have_count(2)
        labs.shot(page, "map_quiz", 1280, 800)
        assert labs.errors(page) == []
