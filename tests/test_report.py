"A report refers to nothing outside itself, is well-formed, escapes whatever it is given, and its pictures' labels never overlap."
import base64
import re
from dataclasses import replace
from datetime import datetime, timezone
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.records import Considered, Document, Hit, Memory, Receipt, Section, Turn
from memkit.widgets.draw import pictures
from memkit.widgets.draw.pictures import report, write_report

AT = datetime(2026, 5, 8, 18, 30, tzinfo=timezone.utc)
EVIL = """<script>alert("1")</script><img src=x onerror='a()'>]]>--><!-- " ' & </style></title></pre></details>"""
VOID = {"meta", "img", "br", "hr", "link", "input"}
PICTURES = (pictures.budget, pictures.ranks, pictures.draw_thresholds, pictures.seconds)


def doc(i=0, text="Rest and drink enough.", title="Colds", **parts):
    return Hit(item=Document(id=f"d{i}", title=title, text=text, source="a book", category="a kind"), score=.5, source="fused", parts=parts or {"bm25 rank": i + 1, "dense rank": i + 2, "fused": .5})


def mem(i=0, question="I have asthma.", cosine=.5):
    m = Memory(id=i, user="u", text=f"{question} Noted.", at=AT, turns=("t0",), meta={"question": question, "answer": "Noted."})
    return Hit(item=m, score=cosine, source="memory", parts={"cosine": cosine})


def a_turn(docs=(doc(),), mems=(mem(),), more=(), **changes):
    sections = (Section(name="instructions and question", tokens=90), *(Section(name="document", tokens=30, text=h.item.text, hit=h) for h in docs),
                *(Section(name="memory", tokens=20, text=h.item.text, hit=h) for h in mems))
    considered = (*(Considered(hit=h, outcome="shown", shown=True) for h in (*docs, *mems)), *(Considered(hit=h, outcome="ranked lower") for h in more))
    full = dict(id="t", user="u", session="s", at=AT, text="What helps a cold?", query="q", draft="Rest. Fly.", answer="Rest. [1]\nFrom [M1]: “Noted.”", prompt="system: …", sections=sections,
                budget=1024, prompt_tokens=sum(s.tokens for s in sections), answer_tokens=3, considered=considered, seconds={"generate": 1.5, "total": 1.6}, wrote=(4,), model="m",
                extra={"above": .4, "checked": [dict(text="Rest.", supported=True, source=0, cosine=.9), dict(text="Fly.", supported=False, reason="nothing comes close", source=0, cosine=.1)]})
    return Turn(**{**full, **changes})


class Reader(HTMLParser):
    "Checks that tags balance, and keeps every tag with its attributes and all text."
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID: self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style": self.text += data


def read(page):
    r = Reader()
    r.feed(page)
    r.close()
    assert not r.open, f"left open: {r.open}"
    return r


def check_page(page):
    "What holds of every report."
    r = read(page)
    names = {tag for tag, _ in r.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "form", "base"}, names
    for tag, attrs in r.tags:
        assert not [a for a in attrs if a.startswith("on")], (tag, attrs)
        for a in ("src", "href", "srcset", "poster", "action"):
            if a in attrs: assert attrs[a].startswith(("#", "data:image/svg+xml;base64,")), attrs[a]
        if tag == "img": assert len(attrs["alt"]) > 20
    assert not re.search(r"@import|url\s*\(", page)
    ids = [attrs["id"] for _, attrs in r.tags if "id" in attrs]
    assert len(ids) == len(set(ids)), "an id is used twice"
    targets = {attrs["href"][1:] for tag, attrs in r.tags if tag == "a"}
    assert targets <= set(ids), f"links to nowhere: {targets - set(ids)}"
    levels = [int(t[1]) for t, _ in r.tags if re.fullmatch(r"h[1-6]", t)]
    assert levels[0] == 1 and levels.count(1) == 1 and all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels
    return r


def svgs(page): return [base64.b64decode(x).decode() for x in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)]


def test_a_full_report():
    page = report([a_turn(), a_turn(session="s2")], [Receipt(user="u", at=AT, memories=(0,), removed={"memories": 1}, erased=True)], title="T", intro="One.\n\nTwo.",
                  provenance={"model": "m", "data": {"hash": "00"}}, memories=[mem().item, mem(7).item])
    r = check_page(page)
    assert page.startswith("<!DOCTYPE html>") and '<html lang="en">' in page and "prefers-color-scheme: dark" in page and "@media print" in page
    assert [t for t, _ in r.tags].count("img") == 8
    for words in ("What helps a cold?", "nothing comes close", "deleted since", "kept", "the words are gone", '{"hash": "00"}', "8 May 2026, 18:30 UTC"): assert words in r.text
    assert '<a href="#turn-2-M1">[M1]</a>' in page and "<del" in page and 'id="turn-1-1"' in page


def test_pictures_in_the_page_are_sound_svg_without_references():
    for svg in svgs(report([a_turn()])):
        root = ElementTree.fromstring(svg)
        assert root.tag.endswith("svg")
        assert not [v for e in root.iter() for a, v in e.attrib.items() if a.endswith("href")]
        assert not [e for e in root.iter() if e.tag.endswith(("script", "image", "foreignObject"))]


def test_the_same_turns_give_the_same_bytes(): assert report([a_turn()]) == report([a_turn()])


evil_doc, evil_mem = doc(0, text=EVIL, title=EVIL), mem(0, question=EVIL)
evil_item = replace(evil_doc.item, id=EVIL, source=EVIL, category=EVIL)


@pytest.mark.parametrize("turn", [
    *(a_turn(**{name: EVIL}) for name in ("text", "query", "draft", "answer", "prompt", "fallback", "model", "session", "user", "id")),
    a_turn(extra={}, draft=EVIL), a_turn(docs=[replace(evil_doc, item=evil_item)], mems=[evil_mem]), a_turn(more=[replace(evil_doc, parts={EVIL: 1.}), mem(8, EVIL)]),
    a_turn(seconds={EVIL: 1.}), a_turn(sections=(Section(name=EVIL, tokens=9), Section(name=EVIL, tokens=9999, kept=False))),
    a_turn(extra={"checked": [dict(text=EVIL, supported=s, quoted=q, source=0, cosine=.5, reason=EVIL) for s in (True, False) for q in (True, False)]}),
    a_turn(considered=(Considered(hit=doc(), outcome=EVIL),)),
], ids=lambda t: "")
def test_every_text_of_a_turn_is_escaped(turn):
    page = report([turn])
    check_page(page)
    assert "<script" not in page and "onerror='" not in page
    for svg in svgs(page): assert "<script" not in svg and ElementTree.fromstring(svg) is not None


def test_every_other_text_is_escaped():
    r = check_page(report([a_turn()], [Receipt(user=EVIL, at=AT, removed={EVIL: 1}, pending=EVIL)], title=EVIL, intro=EVIL, provenance={EVIL: EVIL, "x": [EVIL]}, memories=[replace(mem(1, EVIL).item, user=EVIL)]))
    assert r.text.count("""<script>alert("1")</script>""") >= 6, "it is all there, as text"


@pytest.mark.parametrize("text", ["x" * 5000, "שלום עולם العربية", "🩺🫀👩🏽‍⚕️ 日本語", "a\u202eb\u2066c", "tab\tand\x01control\x7f", "half \ud83d", "$x_{1}$ $$ \\frac", "\r\nlines\n\n\n"], ids=repr)
def test_any_text_is_shown(text, tmp_path):
    usable = text.replace("\ud83d", "?")
    turn = a_turn(docs=[doc(0, text=usable, title=usable)], mems=[mem(0, question=usable)], text=text, answer=text, draft=text, prompt=text)
    path = write_report(tmp_path/"new"/"r.html", [turn])
    r = check_page(path.read_bytes().decode("utf-8"))
    assert usable[:5].strip() in r.text


def test_a_turn_without_anything():
    r = check_page(report([Turn(id="t", user="u", session="s", at=AT, text="")]))
    assert "No documents reached the prompt." in r.text and "The answer is empty." in r.text and "img" not in {t for t, _ in r.tags}


def test_fifty_candidates():
    more = [doc(i, title=f"Entry {i} " + "and so on "*20, **({"bm25 rank": 51 - i} if i % 3 else {}), **({"dense rank": i} if i % 2 else {}), fused=1/i) for i in range(1, 51)]
    page = report([a_turn(more=[*more, *(mem(i, cosine=.3 - i/100) for i in range(1, 51))])])
    r = check_page(page)
    assert "102 candidates considered" in r.text and [t for t, _ in r.tags].count("tr") == 103
    assert "Entry 50" in r.text
    assert len(page) < 600_000


def test_a_citation_of_nothing_is_no_link():
    page = report([a_turn(answer="Yes. [1] [2] [M1] [M4] [999] [[1]] [x]")])
    check_page(page)
    assert len(re.findall(r'<a href="#turn-1-\w+">', page.split("Sentence by sentence")[0])) == 3


def test_a_verdict_with_odd_fields():
    page = report([a_turn(extra={"checked": [{}, {"text": "a", "supported": True, "source": 99}, {"text": "b", "supported": True, "source": -1, "quoted": True}]})])
    assert check_page(page).text.count("a source") == 2


@pytest.mark.parametrize("call, kind, words", [
    (lambda: report([]), ValueError, "at least one Turn"), (lambda: report("turns"), TypeError, "got str"),
    (lambda: report([a_turn(), None]), TypeError, "got None"), (lambda: report([a_turn()], title=""), ValueError, "title"), (lambda: report([a_turn()], memories=[a_turn()]), TypeError, "Memory records only"),
    (lambda: pictures.budget(a_turn(sections=())), ValueError, "no sections or no budget"), (lambda: pictures.budget(a_turn(budget=0)), ValueError, "no sections or no budget"),
    (lambda: pictures.ranks(a_turn(considered=())), ValueError, "considered no documents"), (lambda: pictures.draw_thresholds(a_turn(considered=())), ValueError, "considered no memories"),
    (lambda: pictures.seconds(a_turn(seconds={"total": 1.})), ValueError, "no times")])
def test_errors_say_what_is_wrong(call, kind, words):
    with pytest.raises(kind, match=words): call()


def test_nothing_is_written_on_an_error(tmp_path):
    path = write_report(tmp_path/"r.html", [a_turn()])
    before = path.read_bytes()
    with pytest.raises(ValueError): write_report(path, [])
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["r.html"]


names = st.sampled_from(["W"*200, "a rather long title "*9]) | st.text(min_size=1, max_size=60).filter(lambda s: s.strip() and "\0" not in s and not re.search("[\ud800-\udfff]", s))
kinds = st.sampled_from(["document", "memory", "profile", "a section with quite a long name"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(kinds, st.integers(5, 300), names), min_size=1, max_size=7), st.sampled_from([60, 300, 1024]))
def test_the_pieces_of_a_budget_add_up(parts, limit):
    sections, total = [Section(name="instructions and question", tokens=50)], 50
    for i, (kind, tokens, name) in enumerate(parts):
        hit = doc(i, title=name) if kind == "document" else mem(i, question=name) if kind == "memory" else None
        sections.append(Section(name=kind, tokens=tokens, kept=total + tokens <= limit, hit=hit))
        total += tokens if total + tokens <= limit else 0
    turn = a_turn(sections=tuple(sections), budget=limit, prompt_tokens=total)
    drawn = [float(b.get("width")) for b in ElementTree.fromstring(pictures.budget(turn).svg()).iter() if b.tag.endswith("rect") and b.get("height") == "20"]
    assert abs(sum(drawn[1:])*limit/drawn[0] - total) < 1, "the pieces are as long as their tokens"
    assert [c.missed > 0 for c in pictures.cuts(turn)] == [True]*sum(not s.kept for s in sections)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(names, st.none() | st.integers(1, 60), st.none() | st.integers(1, 60), st.booleans(), st.floats(-1, 1)), min_size=1, max_size=14))
def test_any_candidates_can_be_drawn(rows):
    parts = lambda b, d: {k: v for k, v in (("bm25 rank", b), ("dense rank", d)) if v} or {"passage score": .1}
    docs = [Considered(hit=doc(i, title=n, **parts(b, d)), outcome="x", shown=s) for i, (n, b, d, s, _) in enumerate(rows)]
    mems = [Considered(hit=mem(i, n, c), outcome="x", shown=s) for i, (n, *_, s, c) in enumerate(rows)]
    turn = a_turn(considered=(*docs, *mems), seconds={n: abs(c)*100 for n, *_, c in rows} | {"total": 50.})
    for draw in PICTURES:
        root = ElementTree.fromstring(draw(turn).svg())
        for e in root.iter():
            if e.tag.endswith("rect") and e.get("x"): assert 0 <= float(e.get("x")) and float(e.get("x")) + float(e.get("width")) <= 760
