"What `labs.accessible` finds and what it lets pass, and exported HTML, in a real browser."
import subprocess
import sys

import lab as labs
import pytest

pytestmark = labs.needed

STYLE = "<style>button:focus-visible, select:focus-visible, input:focus-visible, [role=slider]:focus-visible {outline: 2px solid blue}</style>"
FINE = """<div class="mk-panel"><button>Step</button><button aria-label="Play"><i class="fa"></i></button><label>k <input></label><label for="m">menu</label><select id="m"><option>1</option></select>
<div class="jupyter-widgets"><label class="widget-label">weight</label><div role="slider" tabindex="0" style="width:9px;height:9px"></div></div>
<div class="mk-drawing" role="img" aria-label="Three memories."><svg width="10" height="10"><rect width="5" height="5"/></svg></div></div>"""
FAULTS = [("<button><i class='fa'></i></button>", "no name: <button"), ("<input>", "no name: <input"), ("<select><option>1</option></select>", "no name: <select"),
          ("<svg width='9' height='9'></svg>", "without role=img"), ("<svg width='9' height='9' role='img'></svg>", "without words"), ("<img src='data:,' width='9' height='9'>", "without words"),
          ("<div role='slider' tabindex='0' style='width:9px;height:9px'></div>", "no name: <div role"), ("<button style='outline: none !important'>Go</button>", "can't be seen: BUTTON")]


@pytest.fixture(scope="module")
def page(chromium):
    page = chromium.new_page()
    yield page
    page.close()


def test_what_is_named_and_seen_passes(page):
    page.set_content(STYLE + FINE)
    assert labs.accessible(page) == []


@pytest.mark.parametrize("html, told", FAULTS)
@pytest.mark.parametrize("box", ["mk-panel", "mk-chat", "mk-quiz"])
def test_each_fault_is_found(page, html, told, box):
    page.set_content(f"{STYLE}{FINE}<div class='{box}'>{html}</div><div class='elsewhere'>{html}</div>")
    found = labs.accessible(page)
    assert len([f for f in found if told in f]) == 1, found


@pytest.mark.parametrize("name", ["mark/02_trust", "widgets/steppers/02_dpem", "walkthroughs/1_hybrid"])
def test_one_notebook_as_one_file(page, tmp_path, name):
    "Pictures with words and within the page, formulas typeset, no answers of a quiz, nothing asked of another machine."
    subprocess.run([sys.executable, labs.ROOT/"tools/docs.py", "html", labs.ROOT/f"nbs/{name}.ipynb", tmp_path/"a.html"], check=True, capture_output=True, timeout=120)
    asked = []
    page.on("request", lambda r: asked.append(r.url) if not r.url.startswith(("file:", "data:", "blob:", "about:")) else None)
    page.goto((tmp_path/"a.html").as_uri())
    told = page.evaluate("""() => [...document.querySelectorAll(".jp-OutputArea-output img, .jp-OutputArea-output svg")]
                                   .map(e => e.getAttribute("alt") || e.querySelector("title")?.textContent || "")""")
    assert told and all(len(t) > 20 and "No description" not in t for t in told)
    if "41" in name: page.locator(".MathJax, .MathJax_Display").first.wait_for(timeout=20_000)
    page.set_viewport_size({"width": 800, "height": 1000})
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.jp-OutputArea-output :is(img, svg)')].map(e => e.getBoundingClientRect().right)) <= innerWidth")
    assert "Question(" not in page.locator("body").inner_text()
    assert not asked
