"""The book: a few pages are built and read as a browser reads them, from files, with no other machine to ask."""
import ast
import functools
import http.server
import importlib
import inspect
import json
import re
import subprocess
import sys
import threading

import lab as labs
import pytest

sys.path.insert(0, str(labs.ROOT/"tools"))
import links  # noqa: E402
import pages  # noqa: E402

PAGES = ("mark/02_trust", "search/03_fusion", "widgets/draw/01_scene", "widgets/steppers/02_dpem", "hybrid/04_chatbot", "walkthroughs/1_hybrid", "walkthroughs/3_mark",
         "turn/02_stages", "store/05_erase", "03_generative_agents", "walkthroughs/8_own_memory", "store/05_erase", "maprec/06_classical", "maprec/03_detection",
         "hybrid/02_memory")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    "The root of a small book."
    out = tmp_path_factory.mktemp("book")
    here = [p for p in PAGES if (labs.ROOT/f"nbs/{p}.ipynb").exists()]
    done = subprocess.run([sys.executable, labs.ROOT/"tools/docs.py", "site", out, *here], capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stdout + done.stderr
    return out/"_build/html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass


@pytest.fixture(scope="module")
def served(book):
    "The address of the small book on this machine."
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=book))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def built(book): return [(p, p.read_text()) for p in sorted(book.rglob("*.html")) if "_static" not in p.parts and p.name not in ("genindex.html", "search.html")]


def test_no_link_is_broken_and_nothing_comes_from_elsewhere(book):
    bad, outside, fetched = links.check(book)
    missing = [b for b in bad if not re.search(r"#[\w/.]+\.ipynb(#[\w-]+)?: no such anchor$", b)]   # a page that this small book left out, or a section of it
    assert not missing and not fetched and not outside
    assert len(built(book)) >= len(PAGES)


def test_every_notebook_has_its_place_in_the_book():
    "On the path, beside it, or in a room of the appendix; once."
    import contents
    import docs
    stems = [p.relative_to(docs.NBS).with_suffix("").as_posix() for p in docs.notebooks() if p.name != "index.ipynb"]
    placed = [f for folders in contents.APPENDIX.values() for f in folders]
    assert len(placed) == len(set(placed)) and set(placed) == set(contents.ROOMS)
    named = [*contents.CHAPTERS, *contents.BESIDE]
    assert len(contents.CHAPTERS) == 20 and len(named) == len(set(named)) and {*named, *contents.SEARCH_WORDS} <= set(stems)
    assert not [p for p in stems if p not in named and (p.rpartition("/")[0].partition("/")[0]) not in contents.ROOMS]


def test_every_chapter_soon_shows_a_picture():
    "Of its mechanism, drawn from its own example."
    import contents
    cells = {page: json.loads((labs.ROOT/f"nbs/{page}.ipynb").read_text())["cells"][:13] for page in contents.CHAPTERS}
    kinds = {page: {kind for c in of for o in c.get("outputs", []) for kind in o.get("data", {})} for page, of in cells.items()}
    assert not [page for page, of in kinds.items() if not of & {"image/svg+xml", "image/png"}]


def test_the_readme_lists_the_path():
    "In its order, and each page by its own title."
    import contents
    said = (labs.ROOT/"README.md").read_text()
    said = said[said.index("## The path"):]
    listed = re.findall(r"^\d+\. \[(.*)\]\(nbs/([\w/]+)\.ipynb\)", said[:said.index("\n## ", 5)], re.M)
    assert listed == [(pages.read_page(labs.ROOT/f"nbs/{p}.ipynb", labs.ROOT/"nbs").title, p) for p in contents.CHAPTERS]


def test_the_front_page_calls_what_is_there():
    from memkit.mark.assistant import MarkAssistant
    said = "".join("".join(c["source"]) for c in json.loads((labs.ROOT/"nbs/index.ipynb").read_text())["cells"] if c["cell_type"] == "markdown")
    for verb in ("release", "reject"): assert f"`mark.{verb}(id, by=" in said and "by" in inspect.signature(getattr(MarkAssistant, verb)).parameters
    calls = re.findall(r"`(memkit(?:\.\w+)+)\.(open_\w+)`", said)
    assert len(calls) == 4 and all(hasattr(importlib.import_module(module), name) for module, name in calls)


def test_the_path_leads_from_page_to_page(book):
    first, second = ((book/f"{p}.html").read_text() for p in ("walkthroughs/1_hybrid", "turn/02_stages"))
    assert re.search(r'class="right-next"\s+href="../turn/02_stages.html"', first) and re.search(r'class="left-prev"\s+href="../path.html"', first)
    assert "Chapter 1 of 20 on" in first and "1. Will it remember what I said three weeks ago?" in first and re.search(r'class="left-prev"\s+href="../walkthroughs/1_hybrid.html"', second)
    assert re.search(r"Appendix: <a[^>]*>.*MAP: recommendation", (book/"maprec/03_detection.html").read_text())
    assert "Chapter 12 of 20" in (book/"store/05_erase.html").read_text()


def test_every_page_says_what_it_is(book):
    for path, text in built(book):
        levels = [int(n) for n in re.findall(r"<h([1-6])[ >]", text[text.index("<article"):text.index("</article>")])]
        assert '<html lang="en"' in text and re.search(r"<title>[^<]{3,}</title>", text), path
        assert levels[:1] == [1] and levels.count(1) == 1 and all(b <= a + 1 for a, b in zip(levels, levels[1:])), (path, levels)
        for table in re.findall(r"<table.*?</table>", text, re.S): assert "<th" in table, path


def test_every_picture_has_words(book):
    pictures = [(path.name, tag) for path, text in built(book) for tag in re.findall(r"<(?:img|svg)\b[^>]*>", text[text.index("<article"):text.index("</article>")])]
    words = [(name, re.search(r'(?:alt|aria-label)="([^"]*)"', tag)) for name, tag in pictures]
    assert len(pictures) >= 8
    assert not [name for name, m in words if not m or len(m[1]) < 20 or "Figure size" in m[1] or m[1].startswith("../_images")]
    assert any(name == "02_dpem.html" and m[1].startswith("Round 6") for name, m in words), "a stepper's own words"


SEARCHES = {"delete user data": "store/05_erase", "cold start": "maprec/06_classical", "detect preference message": "maprec/03_detection", "follow-up detection": "hybrid/02_memory"}


def in_view(page, address):
    page.goto(address)
    page.wait_for_load_state("load")


def contrast(page, selector: str) -> float:
    "Of an element's letters with what lies behind them, 1..21."
    return page.locator(selector).first.evaluate("""e => {
      const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => (v /= 255) <= .03928 ? v/12.92 : ((v + .055)/1.055)**2.4); return .2126*r + .7152*g + .0722*b; };
      let under = e; while (under.parentElement && /rgba\\(0, 0, 0, 0\\)|transparent/.test(getComputedStyle(under).backgroundColor)) under = under.parentElement;
      const svg = e.closest("svg"), back = svg ? getComputedStyle(svg.querySelector("rect")).fill : getComputedStyle(under).backgroundColor;
      const [a, b] = [light(svg ? getComputedStyle(e).fill : getComputedStyle(e).color), light(back)].sort((x, y) => y - x);
      return (a + .05)/(b + .05); }""")


@labs.needed
def test_read_in_a_browser(book, served, chromium):
    page = chromium.new_page(viewport={"width": 1280, "height": 1000})
    wrong = []
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("request", lambda r: wrong.append(f"asked for {r.url}") if not r.url.startswith((served, "data:", "blob:", "about:")) else None)
    page.on("response", lambda r: wrong.append(f"{r.status}: {r.url}") if r.status >= 400 else None)

    in_view(page, f"{served}/mark/02_trust.html")
    page.locator("html[data-typeset=done]").wait_for(state="attached", timeout=30_000)
    assert page.locator("div.math .MathJax_Display").count() >= 2 and page.locator("span.math .MathJax").count() >= 5
    assert page.locator(".MathJax_Error, .merror").count() == 0 and page.locator(".MJX_Assistive_MathML math").count() >= 7
    assert "\\(" not in page.locator("article").inner_text() and "\\frac" not in page.locator("article").inner_text()
    line, formula = (page.locator(s).first.bounding_box() for s in ("li:has(span.math)", "li span.math nobr"))
    assert line["y"] <= formula["y"] and formula["y"] + formula["height"] <= line["y"] + line["height"] + 4, "a formula stands on its line"
    labs.shot(page, "book_trust", 1280, 800)

    page.keyboard.press("Control+k")                     # search, by the keyboard alone
    page.keyboard.type("errors_to_drop")
    page.keyboard.press("Enter")
    found = page.locator("#search-results a[href*='02_trust.html#errors-to-drop']")
    found.wait_for(timeout=20_000)
    labs.shot(page, "book_search", 1280)
    found.click()
    page.wait_for_url(re.compile("02_trust.html.*#errors-to-drop"))
    assert "def errors_to_drop(" in page.locator("section#errors-to-drop").inner_text()

    for words, leads in SEARCHES.items():                # what people type, in other words than the page's own
        in_view(page, f"{served}/search.html?q={words.replace(' ', '+')}")
        page.locator("#search-results li").first.wait_for(timeout=20_000)
        assert leads in page.locator("#search-results li a").first.get_attribute("href"), words

    in_view(page, f"{served}/widgets/steppers/02_dpem.html")
    for _ in range(3):
        if page.locator("html").get_attribute("data-theme") == "dark": break
        page.locator(".theme-switch-button:visible").first.click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert min(contrast(page, s) for s in ("article p", "article h1", "article pre", ".mk-figure svg text")) >= 4.5
    labs.shot(page, "book_dark", 1280, 800)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page doesn't scroll sideways"

    walk = next((p for p in PAGES if p.startswith("walk") and (book/f"{p}.html").exists()), None)
    if walk:
        in_view(page, f"{served}/{walk}.html")
        fold = page.locator("article details:has(summary:text('Solution'))").first
        assert fold.get_attribute("open") is None and not fold.locator("pre").first.is_visible()
        fold.locator("summary").first.focus()
        page.keyboard.press("Enter")
        assert fold.locator("pre").first.is_visible() and "def " in fold.locator("pre").first.inner_text()
        labs.shot(page, "book_walkthrough", 1280, 800)
    page.close()
    assert wrong == []

    page = chromium.new_page()                           # opened from the disk, as `make docs` leaves it
    in_view(page, f"{book.as_uri()}/mark/02_trust.html")
    page.locator("html[data-typeset=done]").wait_for(state="attached", timeout=30_000)
    page.close()


# what a page is made of

HERE = pages.Page("mark/02_trust", "Which memories to keep", "", "memkit.mark.trust", ("Trust", "trust"))
THERE = pages.Page("search/03_fusion", "Fusion", "", "memkit.search.fusion", ("rrf",))
BOOK = pages.Book({p.path: p for p in (HERE, THERE)})


@pytest.mark.parametrize("said, shown", [
    ("Use `rrf` here.", "Use [`rrf`](#search-fusion-rrf) here."),
    ("`rrf()` and `memkit.search.fusion`", "[`rrf()`](#search-fusion-rrf) and [`memkit.search.fusion`](../search/03_fusion.ipynb)"),
    ("`memkit.search.fusion.rrf`", "[`memkit.search.fusion.rrf`](#search-fusion-rrf)"),
    ("`nbs/search/03_fusion.ipynb`", "[`nbs/search/03_fusion.ipynb`](../search/03_fusion.ipynb)"),
    ("`unknown`, `memkit.nothing` and [`rrf`](x.ipynb)", "`unknown`, `memkit.nothing` and [`rrf`](x.ipynb)"),
])
def test_names_become_links(said, shown): assert pages.linked(said, HERE, BOOK, {"rrf": "memkit.search.fusion"}) == shown


def test_a_patched_method_is_named_with_its_class():
    made = pages.public("@patch\ndef take(self: Diary, n: int) -> int:\n    return n\n\n@patch(as_prop=True)\ndef size(self: Diary) -> int: return 1\n\ndef take(n): return n\n")
    assert [n.called for n in made] == ["Diary.take", "Diary.size", "take"]
    assert [pages.anchor("memkit.a", n.called) for n in made] == ["a-diary-take", "a-diary-size", "a-take"]


def test_two_names_that_differ_in_case_have_two_places():
    assert len({pages.anchor("memkit.a.b", n) for n in ("Trust", "trust", "TRUST")}) == 3


SOURCE = '''@dataclass(frozen=True)
class Kept:
    "A thing (ours)."
    k: int = 3   # 1..9

    def grow(self, by: int) -> int:  # more
        "Grow it."
        return self.k + by

    def _secret(self): return 1

def near(
    a: float,  # metres
) -> float:    # 0..1
    """How near (ours).

    1 / (1 + a)
    """
    return 1/(1 + a)

def short(é: str) -> str: return é
'''


def test_signatures_stand_as_in_the_source():
    kept, near, short = pages.public(SOURCE)
    assert pages.signature(kept, SOURCE) == '@dataclass(frozen=True)\nclass Kept:\n    k: int = 3   # 1..9\n\n    def grow(self, by: int) -> int:  # more\n        "Grow it."'
    assert pages.signature(near, SOURCE) == "def near(\n    a: float,  # metres\n) -> float:    # 0..1"
    assert pages.signature(short, SOURCE) == "def short(é: str) -> str:"
    assert pages.entry(near, "memkit.a", SOURCE, 3).endswith("How near (ours).\n\n```text\n1 / (1 + a)\n```")
    assert pages.quoted("w_a * `w_a` <b> $5") == r"w\_a \* `w_a` \<b\> \$5"


def test_signatures_of_all_modules_can_be_read():
    "Each public function of each notebook: what is shown is Python again once a body is added."
    shown = 0
    for path in (labs.ROOT/"nbs").rglob("[0-9]*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] != "code" or "export" not in pages.flags(source): continue
            for node in pages.public(source):
                if isinstance(node, ast.FunctionDef): ast.parse(pages.signature(node, source) + "\n  ...") and (shown := shown + 1)
    assert shown > 500


def test_headings_follow_each_other():
    cells = [dict(cell_type="markdown", source=s) for s in ("# A\n\n> b", "### c\n\n```\n# no heading\n```", "# d", "##### e")]
    page = pages.Page("x", "A", "")
    out = "\n".join(c["source"] for c in pages.Writer(page, pages.Book({"x": page}), cells).write())
    assert re.findall(r"^#+ .*", out, re.M) == ["# A", "## c", "# no heading", "## d", "### e"]


@pytest.mark.parametrize("plain, words", [
    ("Round 6: the user said “Yes”.", "Round 6: the user said “Yes”."),
    ("Picture(figure=<Figure size 6x2 with 2 Axes>, alt='It\\'s 3 of 4.')", "It's 3 of 4."),
    ("<Figure size 640x480 with 1 Axes>", "Picture: Forgetting. It falls. See:"),
    ("", "Picture: Forgetting. It falls. See:"),
])
def test_words_of_a_picture(plain, words): assert pages.words_of({"data": {"text/plain": plain}}, "Forgetting", "First. It **falls**. See:") == words


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path/"a.html").write_text('<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a><a href="https://example.org">4</a><a href="#x">5</a>'
                                   '<img src="https://example.org/p.png"><a href="../up.html">6</a>')
    (tmp_path/"b.html").write_text('<p id="there">')
    (tmp_path/"s.css").write_text("@import url('https://example.org/f.css'); a {background: url(i.png)}")
    bad, outside, fetched = links.check(tmp_path)
    assert [b.split(": ", 1)[1] for b in bad] == ["b.html#gone: no such anchor", "c.html: no such file", "#x: no such anchor", "../up.html: no such file"]
    assert list(outside) == ["https://example.org"] and fetched == ["a.html: https://example.org/p.png", "s.css: https://example.org/f.css"]
