"The explorers of prompt, fusion and relevance, and the walk that compares the four assistants, worked in a real browser."
import re

import lab as labs
import pytest

pytestmark = labs.needed
NBS = labs.ROOT/"nbs"
SCREEN = 900 - 120    # pixels of a window of 900 that JupyterLab's own bars leave

def fits(worked):
    "Controls, drawing and caption are on one screen."
    assert worked.panel.bounding_box()["height"] <= SCREEN


def key(panel, label: str, *keys: str):
    "Press keys on a control that is found by its label."
    handle = panel.locator(".widget-inline-hbox", has=panel.page.get_by_text(label, exact=True)).locator(".noUi-handle")
    handle.focus()
    for k in keys: handle.press(k)
    assert handle.evaluate("h => h === document.activeElement"), "the focus stays on the slider"
    return handle


@pytest.fixture(scope="module")
def prompts(lab, chromium):
    "Three explorers in one notebook: opened once, and each test works its own."
    with labs.opened(chromium, lab, NBS/"widgets"/"explorers/01_prompt.ipynb") as page: yield page


def test_the_budget_is_moved(prompts):
    page = prompts
    s = labs.Worked(page)
    s.at("The prompt takes 220 of 240 tokens")
    assert "8 too many" in s.panel.locator("svg text").all_text_contents()
    fits(s)
    labs.shot(page, "budget", 1280, 800)
    s.button("Room for all").click()
    s.at("The prompt takes 278 of 278 tokens; everything has room")
    key(s.panel, "Budget in tokens", "ArrowLeft")
    s.at("The prompt takes .* of 277 tokens; 1 section has no room.*Cough.*too many")
    key(s.panel, "Budget in tokens", "Home")
    s.expect(s.panel.get_by_role("alert")).to_contain_text("need 61 tokens and the budget is 36")
    s.at("The prompt takes .* of 277 tokens")                  # the picture before it stays
    labs.shot(page, "budget_too_small", 800)
    s.button("As it was").press("Enter")
    s.at("The prompt takes 220 of 240 tokens")
    s.expect(s.panel.get_by_role("alert")).to_have_count(0)
    s.panel.get_by_label("Show the text of").select_option(index=2)
    s.expect(s.panel.locator("svg")).to_contain_text("On 1 March 2026 the user said")
    labs.shot(page, "budget_memory", 1280)
    assert labs.errors(page) == []


def test_two_rankings_are_fused(prompts):
    page = prompts
    s = labs.Worked(page, 1)
    s.at("“Our 3 year old.*Fused: “by rank, k 5, weights 0.3")
    assert sum(t.startswith("✓") for t in s.panel.locator("svg text").all_text_contents()) >= 5
    fits(s)
    labs.shot(page, "fusion", 1280, 800)
    key(s.panel, "k of RRF", "End")
    s.at("“Our.*k 100, weights 0.3")
    key(s.panel, "Weight of words", "End")
    s.at("“Our.*k 100, weights 1 \\(words\\) and 1")
    s.expect(s.panel.locator("[role=status]")).to_contain_text("nDCG@10")
    s.panel.get_by_label("Fuse", exact=True).select_option(label="by score")
    s.at("“Our.*Fused: “by score, weights 1")
    for name in ("words", "meaning"): key(s.panel, f"Weight of {name}", "Home")
    s.expect(s.panel.get_by_role("alert")).to_contain_text("nobody has a vote")
    key(s.panel, "Weight of meaning", "End")
    s.at("“Our.*weights 0 \\(words\\) and 1")

    box = s.panel.get_by_label("Question", exact=True)
    box.fill("Do <b>ear</b> infections need antibiotics?")
    box.press("Enter")
    s.at("“Do <b>ear</b> infections.*There is nothing to measure against")
    s.expect(s.panel.locator("[role=status]")).to_contain_text("no relevant documents are labelled")
    assert s.panel.locator("svg b").count() == 0, "what is typed stays text"
    labs.shot(page, "fusion_typed", 1280, 800)
    box.fill("")
    box.press("Enter")
    s.expect(s.panel.get_by_role("alert")).to_contain_text("query is empty")
    assert labs.errors(page) == []


def test_weights_rank_memories_anew(prompts):
    page = prompts
    s = labs.Worked(page, 2)
    rows = lambda: s.panel.locator("svg g[data-key]").evaluate_all("gs => gs.map(g => g.dataset.key)")
    s.at("Weights Default")
    before = rows()
    signs = "".join(s.panel.locator("svg text").all_text_contents())
    assert "▲" in signs and "▼" in signs, "a sign for what moved, up and down"
    fits(s)
    labs.shot(page, "mrs", 1280, 800)
    menu = s.panel.get_by_label("Preset", exact=True)
    menu.select_option(label="Feedback + Freshness")
    s.at("Weights Feedback \\+ Freshness")
    assert sorted(rows()) == sorted(before) and rows()[-1] == before[0], "the same rows, in another order"
    handle = key(s.panel, "a recall", "End")
    s.at("Weights your own")
    s.expect(menu).to_have_value("your own")
    s.expect(handle).to_have_attribute("aria-valuenow", "1.0")
    for name in ("a recall", "b recency", "d feedback"): key(s.panel, name, "Home")
    key(s.panel, "c similarity", "End")
    s.at("Weights test: .*Against similarity alone, none of")
    s.expect(menu).to_have_value("test")
    s.panel.get_by_label("The formula as printed").press("Space")
    s.at("Weights test: .*the formula as printed")
    menu.select_option(label="Default")
    s.at("Weights Default.*the formula as printed")
    labs.shot(page, "mrs_printed", 1280, 800)
    s.panel.get_by_label("Kind", exact=True).select_option(label="user-question")
    s.at("Weights Default: .*“By last tablet")
    labs.theme(page, "JupyterLab Dark")
    labs.shot(page, "mrs_dark", 1280)
    labs.theme(page, "JupyterLab Light")
    assert labs.errors(page) == []


def test_four_assistants_side_by_side(lab, chromium):
    with labs.opened(chromium, lab, NBS/"walkthroughs"/"5_compare.ipynb") as page:
        page.get_by_text(re.compile(r"^This notebook took \d+ s")).wait_for(timeout=120_000)
        weights, ask = labs.Worked(page), labs.Worked(page, 1)
        weights.at("Weights Default: “The user takes 20 mg")
        weights.panel.get_by_label("Preset", exact=True).select_option(label="Similarity + Freshness")
        weights.at("Weights Similarity.*: “The user's doctor raised")
        labs.shot(page, "compare_weights", 1280, 800)
        ask.panel.scroll_into_view_if_needed()
        ask.at("For “What is my lisinopril dose")
        box = ask.panel.get_by_label("Question", exact=True)
        box.fill("How much paracetamol may one take with liver disease?")
        box.press("Enter")
        ask.panel.get_by_label("Who asks").select_option(label="bob")
        ask.at("For “How much paracetamol.*of bob each recalls: hybrid: nothing. MaLP: nothing. MARK: .*With liver disease .* MAP: nothing")
        fits(weights)
        fits(ask)
        labs.shot(page, "compare_ask", 1280, 800)
        quiz = page.locator(".mk-quiz")
        quiz.get_by_label("MARK").first.check()
        quiz.get_by_role("button", name="Check 2").click()
        ask.expect(quiz.get_by_role("status").nth(1)).to_contain_text("Right")
        labs.shot(page, "compare_quiz", 1280)
        assert labs.errors(page) == []
