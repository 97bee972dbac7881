"Every figure and table of the four papers, from the results that travel with memkit: told in words, light and dark, in the palette, with letters one can read at half the width."
import re
import xml.etree.ElementTree as ElementTree
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from memkit.files import own_data
from memkit.experiments.result import Card, diagram, inches, wrapped_lines
from memkit.experiments.result import PAPERS, SMALLEST, all_of, colours, lean, published_result, save
from memkit.widgets.draw.scene import COLOURS, contrast
from memkit.experiments.result import HERE, PAPER, Cell, Line, PaperTable, table_number, number_table

ALL = {"hybrid": (3, 3), "malp": (5, 5), "mark": (6, 7), "map": (7, 4)}   # figures and tables that each paper has
NAMES = [(paper, f"{kind}_{i}") for paper, counts in ALL.items() for kind, n in zip(("figure", "table"), counts) for i in range(1, n + 1)] + [("malp", "cold_start")]
each = pytest.mark.parametrize("paper, name", NAMES, ids=lambda x: x)
each_figure = pytest.mark.parametrize("paper, name", [n for n in NAMES if not n[1].startswith("table")], ids=lambda x: x)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def results(): return {paper: published_result(paper) for paper in PAPERS}

def call(paper, name): return getattr(import_module(f"memkit.experiments.{paper}.run"), name)   # the paper's own room holds them all

@cache
def drawn(paper, name):   # once for all tests
    picture = call(paper, name)(published_result(paper))
    return (picture, picture.svg(), picture.svg(dark=True)) if hasattr(picture, "svg") else (picture,)

def colours_in(svg): return set(re.findall(r"#[0-9a-f]{6}", re.sub(r"<desc>.*?</desc>|(?:xlink:href|id)=\"[^\"]*\"|url\([^)]*\)", "", svg, flags=re.S)))


@each
def test_each_is_one_call_and_has_words(paper, name):
    picture = drawn(paper, name)[0]
    assert picture.name.startswith(f"{paper}, ") and (name == "cold_start" or picture.name == f"{paper}, {name.replace('_', ' ').capitalize()}")
    assert len(picture.alt.split()) >= 8 and str(picture).startswith(picture.name)


@each_figure
def test_light_and_dark(paper, name):
    "Both parse, say what they show, and keep to the palette; the dark one has a dark ground and light letters, and the same shapes."
    picture, *both = drawn(paper, name)
    trees = []
    for dark, svg in enumerate(both):
        palette = colours(bool(dark))
        tree = ElementTree.fromstring(svg)
        trees.append(tree)
        assert tree.get("role") == "img" and picture.alt[:60].split("\n")[0] in tree.find(f"{SVG}desc").text
        assert colours_in(svg) <= set(palette.values()), f"colours outside the palette: {colours_in(svg) - set(palette.values())}"
        ground = re.search(r"fill:(#\w{6})", tree.find(f".//{SVG}path").get("style"))[1]
        letters = set(re.findall(r"<text[^>]*fill:(#\w{6})", svg))
        assert ground == palette["paper"] and letters <= {palette["ink"], palette["soft"]}
        assert min(contrast(ground, x) for x in letters) >= 4.5
    light, dark = ([t.text for t in tree.iter(f"{SVG}text")] for tree in trees)
    assert light == dark and light


def size_of(text, tree): return float((re.search(r"font-size:([\d.]+)px", text.get("style", "")) or re.search(r"([\d.]+)px", tree.get("font-size")))[1])

@each_figure
def test_letters_are_readable_at_half_the_width(paper, name):
    "SMALLEST points at full width are half of that at half the width: 5, below which print becomes hard to read. And none stands outside the picture."
    tree = ElementTree.fromstring(drawn(paper, name)[1])
    width, height = map(float, tree.get("viewBox").split()[2:])
    assert width <= 13.5*72, "wider, and a page shrinks it below half"
    texts = [t for t in tree.iter(f"{SVG}text") if (t.text or "").strip()]
    assert texts and min(size_of(t, tree) for t in texts) >= SMALLEST >= 10
    for t in (t for t in texts if not t.get("transform")):
        wide, x = inches(t.text, size_of(t, tree), "700" in t.get("style", ""))*72, float(t.get("x"))
        left = x - wide*(.5 if "middle" in t.get("style", "") else "anchor:end" in t.get("style", ""))
        assert -2 <= left and left + wide <= width + 2 and 0 <= float(t.get("y")) <= height, f"{t.text!r} stands outside: {left:.0f} to {left + wide:.0f} of {width:.0f}"


@pytest.mark.parametrize("paper, name", [("hybrid", "figure_3"), ("mark", "figure_1")])
def test_four_files(results, tmp_path, paper, name):
    files = save(call(paper, name)(results[paper]), tmp_path/"new", name)
    assert sorted(p.name for p in files) == sorted(f"{name}{look}.{kind}" for look in ("", "-dark") for kind in ("svg", "png")) and {p.parent for p in files} == {tmp_path/"new"}
    for p in files:
        if p.suffix == ".svg": ElementTree.fromstring(p.read_text(encoding="utf-8"))
        else: assert p.read_bytes().startswith(b"\x89PNG")
    assert len({p.read_bytes() for p in files}) == 4
    assert [p.read_bytes() for p in save(call(paper, name)(results[paper]), tmp_path, name)] == [p.read_bytes() for p in files], "the same picture, the same bytes"


def test_a_table_is_saved_as_html_and_text(results, tmp_path):
    page, text = save(call("hybrid", "table_3")(results["hybrid"]), tmp_path, "table_3")
    assert (page.name, text.name) == ("table_3.html", "table_3.txt") and "<caption>" in page.read_text("utf-8") and "hybrid, Table 3" in text.read_text("utf-8")


@each
def test_another_papers_result_is_refused(results, paper, name):
    other = next(p for p in PAPERS if p != paper)
    with pytest.raises(ValueError, match=f"a result of '{paper}', and got one of '{other}'") as e: call(paper, name)(results[other])
    assert "\n" not in str(e.value) and f"run_{paper}" in str(e.value)
    with pytest.raises(TypeError, match="needs a result"): call(paper, name)({"rows": []})


@pytest.mark.parametrize("paper", PAPERS)
def test_what_a_run_left_out_is_left_out(results, paper):
    assert set(all_of(results[paper])) == {name for p, name in NAMES if p == paper}
    bare = all_of({"experiment": paper, "rows": []})
    assert set(bare) < set(all_of(results[paper])), "drawings of how it works need no rows"
    with pytest.raises(ValueError, match="needs a result of hybrid, malp"): all_of({"experiment": "alchemy", "rows": []})


@pytest.mark.parametrize("paper", PAPERS)
def test_numbers_are_the_results_own(results, paper):
    "Every number in a column `paper` is printed in the result, and every one `here` is one of ours, rounded."
    rows = results[paper]["rows"]
    ours, printed = {table_number(r["ours"]) for r in rows}, {f"{r['paper']:,g}" for r in rows if r["paper"] is not None}
    for name in (n for p, n in NAMES if p == paper and n.startswith("table")):
        table = call(paper, name)(results[paper])
        if (paper, name) in {("malp", "table_1"), ("malp", "table_3"), ("malp", "table_4"), ("mark", "table_2"), ("mark", "table_3"), ("mark", "table_7"), ("map", "table_3")}: continue   # words, our own counts, yes and no, print of other data
        for line in table.lines:
            for cell, (_, who) in zip(line.cells, table.heads):
                if who == PAPER: assert cell.text in printed | {""}, (name, line.name, cell)
                if who == HERE: assert cell.text in ours | {"–"}, (name, line.name, cell)


def test_what_travels_holds_no_text_of_others():
    "Small files: no machine's path, no question or answer of a public data set; the only texts are of simulated patients, of our own dialogue, and a model's."
    for paper in PAPERS:
        path = own_data(f"results/{paper}.json")
        text = path.read_text(encoding="utf-8")
        assert path.stat().st_size < 150*1024 and not re.search(r"/(?:tmp|home|root|work|Users)/", text)
    keep = {"table", "row", "metric", "ours", "ci", "paper", "control", "n", "note"}
    for paper in PAPERS:
        found = published_result(paper)
        assert set(found) - {"experiment", "provenance", "rows"} == {"hybrid": set(), "map": set(), "malp": {"case_study", "pairs"}, "mark": {"answers", "scenario"}}[paper]
        assert all(set(r) == keep and all(len(str(r[k])) < 300 for k in keep) for r in found["rows"])
    assert all(not isinstance(v, str) or len(v) < 40 for a in published_result("mark")["answers"] for v in a.values())
    assert all(p["id"].startswith("s0-p") for p in published_result("malp")["pairs"])


def test_in_a_notebook_and_without_a_result():
    for paper, name in (("hybrid", "figure_2"), ("hybrid", "table_2")):
        picture = call(paper, name)()   # the result that travels
        assert str(picture) == str(drawn(paper, name)[0])
        shown = picture._repr_mimebundle_()
        assert shown["text/plain"] == str(picture) and ("text/html" if name.startswith("table") else "image/svg+xml") in shown


def test_the_palette_keeps_its_contrasts():
    for dark in (False, True):
        c = colours(dark)
        assert all(contrast(c[n], c["paper"]) >= 4.5 for n in ("ink", "soft")) and all(contrast(c["ink"], c[n]) >= 4.5 for n in ("card", "paper"))
        assert all(contrast(c[n], c["paper"]) >= 3 for n in ("blue", "navy", "deep", "red", "faint", "orange", "green", "mauve"))
    assert contrast("#ffffff", "#000000") == pytest.approx(21) and contrast(*COLOURS["ink"]) == contrast(*COLOURS["ink"][::-1])


def test_lean_keeps_every_word_and_digit():
    svg = '<?xml version="1.0"?><svg width="10.123"><metadata>x</metadata><g id="figure_1"><g id="axes_1"><text style="font-size: 10px; fill: #1a1a1a" x="1.2345">0.8644: a &lt; b</text></g></g></svg>'
    out = lean(svg, "a name. What & why")
    assert ">0.8644: a &lt; b<" in out and 'x="1.2"' in out and "metadata" not in out and "figure_1" not in out and "What &amp; why" in out
    ElementTree.fromstring(out.replace('<svg ', '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def test_words_wrap_and_nothing_is_lost():
    text = "Hypersensitivity after ein-sehr-langes-Wort-ohne-jede-Lücke-das-nirgends-passt,\nand a line break."
    for room in (.6, 1.2, 3.):
        lines = wrapped_lines(text, room)
        assert max(map(inches, lines)) <= room + 1e-6 and "".join("".join(lines).split()) == "".join(text.split())
    assert wrapped_lines("", 1.) == [""]


def test_user_text_is_data():
    "Letters that mean something to SVG, HTML or matplotlib are shown as they are."
    odd = "<script>alert(1)</script> & $x^2$ \"quoted\""
    picture = diagram("a test, Figure 1", odd, [Card(key="a", row=0, title=odd, text=odd)])
    assert "<script" not in picture.svg() and "$x^2$" in "".join(t.text or "" for t in ElementTree.fromstring(picture.svg()).iter(f"{SVG}text"))
    table = PaperTable("a test, Table 1", odd, ((odd, HERE),), (Line(odd, (Cell(odd, odd),)),), (odd,))
    assert "<script" not in table._repr_mimebundle_()["text/html"]


def test_a_table_of_odd_rows():
    row = lambda name, metric, **more: {"table": "Table 9", "row": name, "metric": metric, "ours": None, "ci": None, "paper": None, "control": False, "n": None, "note": "", **more}
    result = {"experiment": "hybrid", "rows": [row("a", "m", ours=-.25, ci=[-.5, .1]), row("b", "m", paper=2.), row("c", "n", ours=1234.5, control=True)]}
    table = number_table(result, "hybrid", "Table 9", "odd", {"m": "M", "n": "N"})
    assert table.heads == (("M", HERE), ("M", PAPER), ("N", HERE))
    assert [[c.text for c in l.cells] for l in table.lines] == [["-0.250", "", "–"], ["–", "2", "–"], ["–", "", "1,234"]]
    assert table.lines[0].cells[0].small == "-0.500 to 0.100" and [l.label for l in table.lines][2] == "c (control)"
    with pytest.raises(ValueError, match="no Table 8"): number_table(result, "hybrid", "Table 8", "", {"m": "M"})


def test_drawing_leaves_matplotlib_as_it_was(results):
    import matplotlib
    import matplotlib.pyplot as plt
    before, open_before = dict(matplotlib.rcParams), plt.get_fignums()
    call("hybrid", "figure_3")(results["hybrid"]).svg(True)
    assert dict(matplotlib.rcParams) == before and plt.get_fignums() == open_before


def test_the_gallery_shows_each_of_them():
    import json
    page = Path(__file__).resolve().parents[1]/"nbs/experiments/02_gallery.ipynb"
    if not page.exists(): pytest.skip("the notebooks aren't here")
    cells = ["".join(c["source"]) for c in json.loads(page.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert [s for s in cells if re.fullmatch(r"\w+\.(?:figure|table)_\d\(found\)", s)] == [f"{paper}.{name}(found)" for paper, name in NAMES if name != "cold_start"]
