"""The explorers of trust, ratings, memories, adapters and profiles in a real JupyterLab and a real browser, worked as a person would."""
import re

import lab as labs
import pytest

pytestmark = labs.needed
NBS = labs.ROOT/"nbs"/"widgets"
SCREEN = 900 - 120    # pixels of a window of 900 that JupyterLab's own bars leave

def fits(worked):
    "Controls, drawing and caption are on one screen."
    assert worked.panel.bounding_box()["height"] <= SCREEN


def slide(panel, name: str, key: str, times: int = 1):
    "Move a slider with the keyboard; what it says it stands at then."
    handle = panel.panel.locator(".widget-inline-hbox", has_text=name).locator(".noUi-handle").first
    handle.focus()
    for _ in range(times): handle.press(key)
    assert handle.evaluate("h => h === document.activeElement"), "the focus stays on the slider"
    return handle


def texts(panel) -> list[str]:
    return panel.panel.locator("svg text").all_text_contents()


@pytest.fixture(scope="module")
def memories(lab, chromium):
    "Two explorers in one notebook: opened once, and each test works its own."
    with labs.opened(chromium, lab, NBS/"explorers/03_memories.ipynb") as page: yield page


@pytest.fixture(scope="module")
def ratings(lab, chromium):
    with labs.opened(chromium, lab, NBS/"explorers/02_rating.ipynb") as page: yield page


def test_a_life_of_trust(memories):
    page = memories
    p = labs.Worked(page)
    box, menu = p.panel.get_by_label("Script"), p.panel.get_by_label("Life")
    p.expect(box).to_have_value(re.compile("huh"))           # where the notebook left it: a script that can't be read, told in place
    p.expect(p.panel.get_by_role("alert")).to_contain_text("'huh' is nothing that happens to a memory")
    labs.shot(page, "trust_alert", 1280)

    menu.select_option(label="poisoned by one")
    p.button("Constants of the paper").click()
    p.at("poisoned by one.*22 recalls.*falls below the border on day 19")
    p.expect(p.panel.get_by_role("alert")).to_have_count(0)
    assert "falls below the border here" in texts(p) and "at the end: dropped" in texts(p)
    fits(p)
    labs.shot(page, "trust_poisoned", 1280, 800)

    slide(p, "threshold", "ArrowLeft", 10)                    # a lower threshold keeps it
    p.at("poisoned by one.*it never falls below the border")
    p.expect(p.panel.locator("svg text", has_text="falls below")).to_have_count(0)
    slide(p, "wₐ", "End")
    p.expect(p.panel.get_by_role("alert")).to_contain_text("w_a <= w_s")
    p.button("Constants of the paper").press("Enter")
    p.at("poisoned by one.*falls below the border")

    box.fill("+ +")
    box.press("Enter")
    p.at("one of my own.*2 recalls, 2 called right")
    p.expect(menu).to_have_value("one of my own")
    p.button("Called wrong −").click()
    p.button("Called wrong −").press("Enter")
    p.at("one of my own.*4 recalls, 2 called right, 2 called wrong")
    p.button("A week passes").click()
    p.expect(box).to_have_value("+ + - - 7d")
    p.button("Take back").click()
    p.expect(box).to_have_value("+ + - -")
    page.get_by_role("button", name="by event").first.click()
    p.expect(p.panel.locator("svg text", has_text="event 4")).to_have_count(1)
    labs.shot(page, "trust_own_by_event", 1280, 800)
    menu.select_option(label="right until the facts changed")
    p.at("right until the facts changed.*20 recalls")
    p.panel.get_by_role("button", name="by day").click()
    labs.theme(page, "JupyterLab Dark")
    labs.shot(page, "trust_dark", 1280)
    labs.theme(page, "JupyterLab Light")
    assert labs.errors(page) == []


def test_a_question_on_the_map(memories):
    page = memories
    p = labs.Worked(page, 1)
    p.at(r"26 memories")
    box = p.panel.get_by_label("Question")
    p.expect(box).to_have_value("")
    p.expect(p.panel.locator("svg text", has_text="Type a question")).to_have_count(1)
    box.fill("Which medicines must I avoid?")
    box.press("Enter")
    p.at(r"26 memories.*1\. I am allergic to penicillin")
    p.expect(p.panel.locator("svg text", has_text="?")).not_to_have_count(0)
    labs.shot(page, "map", 1280, 800)
    slide(p, "Nearest", "End")
    p.at(r"26 memories.*Of the nearest 10")
    fits(p)
    labs.shot(page, "map_ten", 1280, 800)
    box.fill("Who plays an instrument? <script>alert(1)</script>")
    box.press("Enter")
    p.at(r"26 memories.*1\. My daughter Mia plays the violin")
    slide(p, "Nearest", "Home")
    p.at(r"26 memories.*Of the nearest 1 by cosine")
    shapes = p.panel.locator("svg rect").count()
    p.panel.get_by_label("Show", exact=True).select_option(label="life")
    p.expect(p.panel.locator("svg rect")).not_to_have_count(shapes)
    labs.shot(page, "map_life", 1280)
    box.fill("")
    box.press("Enter")
    p.expect(p.panel.locator("svg text", has_text="Type a question")).to_have_count(1)
    p.button("Read the memories again").press("Enter")
    p.at("26 memories")
    labs.theme(page, "JupyterLab Dark")
    labs.shot(page, "map_dark", 1280)
    labs.theme(page, "JupyterLab Light")
    assert labs.errors(page) == []


def test_ratings_as_a_history_grows(ratings):
    page = ratings
    p = labs.Worked(page)
    p.at("After 12 of 29 ratings, the model predicts .* stars for Catch-22")
    fits(p)
    labs.shot(page, "rating", 1280, 800)
    before = p.picture.get_attribute("aria-label")
    slide(p, "Ratings known", "ArrowRight")
    p.at("After 13 of 29 ratings.*The 13th rating")
    slide(p, "Ratings known", "End")
    p.at("After 29 of 29 ratings")
    slide(p, "Ratings known", "Home")
    p.at("After 0 of 29 ratings")
    assert any("nothing does" in t for t in texts(p))
    slide(p, "Ratings known", "ArrowRight", 12)
    p.expect(p.picture).to_have_attribute("aria-label", before)
    p.panel.get_by_label("Predict", exact=True).select_option(index=5)
    p.at("After 12 of 29 ratings, the model predicts .* stars for Crash")
    p.panel.get_by_label("By", exact=True).select_option(index=2)
    p.expect(p.panel.locator("svg text", has_text="others like this user")).to_have_count(1)
    p.panel.get_by_role("button", name="median").click()
    p.at(r"After 12 of 29 ratings, the model predicts \d\.00 stars for Crash \(median\)")
    p.panel.get_by_label("Ratings shuffled").check()
    p.expect(p.panel.locator("svg text", has_text="ratings shuffled")).to_have_count(1)
    labs.shot(page, "rating_shuffled", 1280, 800)
    assert labs.errors(page) == []


def test_recorded_answers_of_three_users_weights(ratings):
    page = ratings
    p = labs.Worked(page, 1)
    page.get_by_text("has no weights in this store; train").first.wait_for(timeout=60_000)      # the notebook is through
    p.at("Asked “How long may a cough last after a cold.”.*without: “A cough can last")
    assert {"concise ★", "step by step ★", "with figures ★"} <= set(texts(p))
    p.expect(p.panel.get_by_role("status")).to_contain_text("Against no weights, the liked style")
    fits(p)
    labs.shot(page, "adapters", 1280, 800)
    p.panel.get_by_role("button", name="the other users' weights").click()
    p.at("Asked “How long may.*Against the other users' weights, the liked style")
    labs.shot(page, "adapters_others", 1280, 800)
    p.panel.get_by_role("button", name="no weights", exact=True).press("Enter")
    p.at("Asked “How long may.*Against no weights")
    p.panel.get_by_role("button", name="1.5", exact=True).click()
    p.at("Asked “How long may.*with weights at 1.5 of their strength")
    p.panel.get_by_role("button", name="0", exact=True).click()
    p.at("Asked “How long may.*with weights at 0 of their strength")
    p.panel.get_by_label("Question").select_option(index=1)
    p.at("Asked “What helps itchy skin")
    fold = p.panel.locator("details.mk-in-words")
    fold.locator("summary").click()
    p.expect(fold).to_contain_text("Asked “What helps itchy skin")
    p.panel.get_by_role("button", name="2", exact=True).click()
    p.at("Asked “What helps itchy skin.*with weights at 2 of")
    p.expect(fold).to_have_attribute("open", "")                   # what was opened stays open
    p.expect(fold).to_contain_text("at 2 of their strength")
    assert labs.accessible(page) == []
    assert labs.errors(page) == []


def test_a_profile_seen_and_steered(lab, chromium):
    with labs.opened(chromium, lab, NBS/"explorers/05_profile.ipynb", height=900) as page:
        p = labs.Worked(page)
        page.get_by_text("newcomer hasn't agreed").first.wait_for(timeout=60_000)                   # the notebook is through
        cell = lambda title: p.panel.locator(".mk-rows tbody tr", has_text=title)
        places = lambda: p.panel.locator(".mk-told .name").all_text_contents()
        star = lambda n, title: p.panel.get_by_role("radio", name=f"{n} star{'s' if n > 1 else ''} for {title}", exact=True)
        row = p.panel.locator(".mk-rows tbody td:first-child").all_text_contents()
        assert row[0].startswith("Alien") and row[-1].startswith("The Terminator"), "as the notebook left it: by title"
        p.expect(p.button("Keep")).to_be_disabled()
        fits(p)
        labs.shot(page, "profile", 1280)

        before = places()
        p.panel.get_by_label("What if").check()
        star(1, "Blade Runner (1982)").click()
        p.expect(cell("Blade Runner")).to_contain_text("was 5")
        p.expect(p.panel.locator(".mk-told .move", has_text="▲ from").first).to_be_visible()
        assert places() != before
        p.expect(p.panel.get_by_role("status").first).to_contain_text("With 1 change tried, not stored")
        assert page.evaluate("document.activeElement.dataset.at").endswith("blade-runner-1982 1"), "the keyboard stays where it was"
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        p.expect(star(2, "Blade Runner (1982)")).to_have_attribute("aria-checked", "true")
        star(2, "Blade Runner (1982)").click()
        p.expect(cell("Blade Runner").locator(".half")).to_have_count(1)                              # once more on the same star
        fits(p)
        labs.shot(page, "profile_what_if", 1280)
        p.button("Undo").click()
        p.expect(cell("Blade Runner")).not_to_contain_text("was")
        p.expect(p.panel.locator(".mk-told .name").first).to_have_text(before[0])

        why = p.panel.get_by_role("button", name=re.compile("^Why ")).first
        why.press("Enter")
        p.expect(p.panel.locator(".mk-why li").first).to_contain_text("stars: you gave")
        p.expect(why).to_have_attribute("aria-expanded", "true")

        box = p.panel.get_by_label("Add a title")
        box.press_sequentially("solari")
        p.expect(p.panel.locator(".mk-add [role=option]").first).to_contain_text("Solaris")
        box.press("ArrowDown")
        p.expect(p.panel.locator(".mk-add [role=option]").first).to_have_attribute("aria-selected", "true")
        labs.shot(page, "profile_add", 1280)
        box.press("Enter")
        p.expect(p.panel.locator(".mk-rows tbody tr").first).to_contain_text("Solaris")
        p.panel.get_by_label("What if").uncheck()
        p.panel.locator(".mk-rows tbody tr").first.get_by_role("radio").nth(3).click()
        p.expect(p.panel.get_by_role("tab", selected=True)).to_have_text(f"Ratings {len(row) + 1}")
        p.panel.locator(".c-stars button").click()
        p.expect(p.panel.locator("th[aria-sort=descending]")).to_contain_text("Stars")
        p.panel.get_by_role("button", name=re.compile("Take back Solaris")).click()
        p.expect(p.panel.get_by_role("tab", selected=True)).to_have_text(f"Ratings {len(row)}")
        p.panel.get_by_role("tab", name="Seen").click()
        p.expect(p.panel.locator(".mk-rows tbody tr")).to_have_count(1)
        box.fill("<img src=x onerror=alert(1)>")
        box.press("Enter")
        p.expect(p.panel.get_by_role("alert")).to_contain_text("no title like “<img src=x onerror=alert(1)>”")
        p.panel.get_by_role("tab", name="Wish list").press("Enter")
        p.expect(p.panel.locator(".mk-rows")).to_contain_text("Nothing is on the wish list")
        assert labs.accessible(page) == []
        labs.theme(page, "JupyterLab Dark")
        labs.shot(page, "profile_dark", 1280)
        labs.theme(page, "JupyterLab Light")
        assert labs.errors(page) == []
