"""One page of the book from one notebook: pure functions from cells to cells, nothing is run.

An exported cell becomes its public names with their signatures and docments, as they stand in the source, and the source itself, folded.
Every picture gets words; names in prose become links where the notebook itself imports or defines them.
"""
import ast
import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nb import flags

ANSI = re.compile(r"\x1b\[[0-9;]*m")
LOCAL = re.compile(r"""(href=["'][\w./-]+)\.ipynb""")   # in HTML that a cell made, a link to another notebook
FENCE = re.compile(r"^ {0,3}(```|~~~)")


@dataclass(frozen=True)
class Page:
    "What other pages need to know of one."
    path: str                      # below nbs/, without .ipynb
    title: str
    summary: str
    module: str = ""               # memkit.mark.trust; '' for a notebook that exports nothing
    names: tuple[str, ...] = ()    # public, in the order of their definition


@dataclass
class Book:
    "All pages, and where a name is explained."
    pages: dict[str, Page] = field(default_factory=dict)   # by path
    rooms: frozenset[str] = frozenset()                    # folders with an overview
    places: dict[str, str] = field(default_factory=dict)   # by path: the page's place in the book, as Markdown
    words: dict[str, str] = field(default_factory=dict)    # by path: what else people call it, separated by commas

    def page_of(self, module: str) -> Page | None: return next((p for p in self.pages.values() if p.module == module), None)

    def link(self, module: str, name: str) -> str:
        "Where `name` of a module or package is explained; '' where that is not in this book."
        inside = [p for p in self.pages.values() if p.module and (p.module == module or p.module.startswith(f"{module}.")) and name in p.names]
        return f"#{anchor(inside[0].module, name)}" if len(inside) == 1 else ""


def relative(here: str, there: str) -> str:
    "The link from one page to another."
    return "../"*here.count("/") + f"{there}.ipynb" if here != there else ""


def anchor(module: str, name: str) -> str:
    "The id of a name, the only one in the book; `Trust` and `trust` may stand in one module."
    of = name if name.islower() or "." in name else f"{name}-constant" if name.isupper() else f"{name}-class"
    return re.sub(r"[._]+", "-", f"{module.removeprefix('memkit.')}.{of}").lower().strip("-")


def patched(node: ast.stmt) -> str:
    "The class that a function becomes a method of by fastcore's `@patch`, and a dot; '' for any other."
    is_patch = lambda d: getattr(d, "id", "") == "patch" or getattr(getattr(d, "func", None), "id", "") == "patch"
    if not any(map(is_patch, getattr(node, "decorator_list", []))) or not getattr(node, "args", None): return ""
    return f"{ast.unparse(node.args.args[0].annotation)}." if node.args.args and node.args.args[0].annotation else ""


def public(source: str) -> list[ast.stmt]:
    "The definitions of one exported cell that others may use."
    try: body = ast.parse(source).body
    except SyntaxError: return []
    named = lambda n: n.name if hasattr(n, "name") else next((t.id for t in getattr(n, "targets", [getattr(n, "target", None)]) if isinstance(t, ast.Name)), "_")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    out = [n for n in body if isinstance(n, kinds) and not named(n).startswith("_")]
    for n in out: n.called = patched(n) + named(n)
    return out


def read_page(path: Path, nbs: Path) -> Page:
    "Title, summary, module and names of a notebook."
    cells = json.loads(path.read_text())["cells"]
    sources = ["".join(c["source"]) for c in cells]
    first = next((s for c, s in zip(cells, sources) if c["cell_type"] == "markdown" and s.startswith("# ")), f"# {path.stem}")
    summary = next((line[2:] for line in first.splitlines() if line.startswith("> ")), "")
    module = next((m[1] for s in sources if (m := re.search(r"^#\|\s*default_exp (\S+)", s, re.M))), "")
    names = dict.fromkeys(n.called for c, s in zip(cells, sources) if c["cell_type"] == "code" and "export" in flags(s) for n in public(s))
    return Page(path.relative_to(nbs).with_suffix("").as_posix(), first.splitlines()[0][2:].strip(), summary, f"memkit.{module}" if module else "", tuple(names))


def only_imports(source: str) -> bool:
    "A cell that defines nothing."
    try: body = ast.parse(source).body
    except SyntaxError: return False
    plain = lambda n: isinstance(n, (ast.Import, ast.ImportFrom)) or isinstance(n, ast.If) and all(map(plain, n.body))
    return all(map(plain, body))


def head(node: ast.FunctionDef, lines: list[str]) -> str:
    "A function's signature with its docments, as it stands in the source."
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    if node.body[0].lineno > node.lineno: return "\n".join(lines[first:node.body[0].lineno - 1]).rstrip()
    return "\n".join([*lines[first:node.lineno - 1], lines[node.lineno - 1].encode()[:node.body[0].col_offset].decode().rstrip()])


def signature(node: ast.stmt, source: str) -> str:
    "What one needs to know to use it: of a class its fields and the signatures of its public methods."
    lines = source.splitlines()
    if not isinstance(node, ast.ClassDef): return head(node, lines)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    out = lines[first:max(node.body[0].lineno - 1, node.lineno)]
    for n in node.body:
        if isinstance(n, (ast.Assign, ast.AnnAssign)): out += lines[n.lineno - 1:n.end_lineno]
        elif isinstance(n, ast.FunctionDef) and (n.name == "__init__" or not n.name.startswith("_")):
            said = (ast.get_docstring(n) or "").split("\n")[0]
            out += ["", head(n, lines), *([f'        "{said}"'] if said else [])]
    return "\n".join(out)


def quoted(text: str) -> str:
    "A docstring's sentence as Markdown: nothing but its backticks means anything."
    return "".join(part if i % 2 else re.sub(r"([\\*_$<>\[\]{}#|~])", r"\\\1", part) for i, part in enumerate(re.split(r"(`[^`\n]+`)", text)))


def entry(node: ast.stmt, module: str, source: str, level: int) -> str:
    "A public name: its heading, signature and docstring; of a constant the first line."
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        first = source.splitlines()[node.lineno - 1]
        whole = len(first) <= 110 and node.end_lineno == node.lineno
        return f"({anchor(module, node.called)})=\n" + (f"```python\n{first}\n```" if whole else f"```text\n{first[:110].rstrip()} …\n```")
    first, *rest = (ast.get_docstring(node) or "").split("\n\n")
    more = "".join(f"\n\n```text\n{part}\n```" for part in rest)
    return f"({anchor(module, node.called)})=\n{'#'*level} `{node.called}`\n\n```python\n{signature(node, source)}\n```\n\n{quoted(' '.join(first.split()))}{more}"


def callouts(source: str) -> str:
    "Quarto's callouts as bold paragraphs."
    return re.sub(r"^:::+ *$", "", re.sub(r"^:::+ *\{\.callout-(\w+)[^}]*\}", r"**\1:**", source, flags=re.M), flags=re.M)


def prose_parts(source: str) -> Iterator[tuple[str, bool]]:
    "The lines of a Markdown cell, and whether each is prose (and not in a fence)."
    inside = False
    for line in source.split("\n"):
        fence = bool(FENCE.match(line))
        yield line, not inside and not fence
        inside ^= fence


def imported(cells: list[dict]) -> dict[str, str]:
    "The names that a notebook takes from memkit, and from which module or package."
    found = {}
    for c in cells:
        try: tree = ast.parse("".join(c["source"])) if c["cell_type"] == "code" else ast.Module([], [])
        except SyntaxError: continue
        froms = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("memkit"))
        found |= {a.name: n.module for n in froms for a in n.names if not a.asname}
    return found


def linked(line: str, here: Page, book: Book, known: dict[str, str]) -> str:
    "Code in backticks as a link where it is a name, a module or a notebook that the reader can go to."
    def one(m: re.Match) -> str:
        text = m[1]
        if (m2 := re.fullmatch(r"nbs/([\w/]+)\.ipynb", text)) and m2[1] in book.pages: to = relative(here.path, m2[1])
        elif (m2 := re.fullmatch(r"nbs/(\w+)/", text)) and m2[1] in book.rooms: to = relative(here.path, f"{m2[1]}/index").replace(".ipynb", ".md")
        elif text.startswith("memkit.") and any(p.path.startswith(f"{text[7:]}/") for p in book.pages.values()): to = relative(here.path, f"{text[7:]}/index").replace(".ipynb", ".md")
        elif text.startswith("memkit.") and (page := book.page_of(text)): to = relative(here.path, page.path)
        elif text.startswith("memkit.") and "." in text[7:]: to = book.link(*text.rsplit(".", 1))
        else: to = book.link(known[name], name) if (name := text.removesuffix("()").partition(".")[0]) in known and (name == text.removesuffix("()") or name[0].isupper()) else ""
        return f"[`{text}`]({to})" if to else m[0]
    return re.sub(r"(?<![\[`\w])`([\w./]+(?:\(\))?)`(?![\]`])", one, line)


def plain_words(markdown: str) -> str:
    "Markdown as one would read it aloud."
    text = re.sub(r"\$+([^$]*)\$+", r"\1", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown))
    return " ".join(re.sub(r"[*`>#|\\]|^\s*-\s", "", text, flags=re.M).split())


def own_words(output: dict) -> str:
    "What a stored picture says of itself; '' where it says nothing."
    said = " ".join("".join(output["data"].get("text/plain", "")).split())
    if m := re.fullmatch(r"Picture\(figure=<.*>, alt=(['\"].*)\)", said): return ast.literal_eval(m[1])
    return said if " " in said and not re.match(r"<|\w+\(|\[", said) else ""


def words_of(output: dict, section: str, before: str) -> str:
    "The words that stand for a picture: its own, or else the heading it stands under and the sentences before it."
    last = re.split(r"(?<=[.:?!])\s+", plain_words(before))
    return own_words(output) or f"Picture: {section}. {' '.join(last[-2:])}".strip()[:600]


def picture(output: dict, words: str) -> dict:
    "An output with one form of its picture: our own drawings become part of the page, so that they follow its colours."
    data = output["data"]
    svg = "".join(data.get("image/svg+xml", ""))
    if 'class="mk-scene"' in svg:
        inline = re.sub(r"<style>.*?</style>", "", svg[svg.index("<svg"):], flags=re.S).replace("<svg ", f'<svg aria-label="{html.escape(words)}" ', 1)
        return {**output, "metadata": {}, "data": {"text/html": f'<div class="mk-figure">{inline}</div>'}}
    kind = "image/svg+xml" if svg else "image/png"
    return {**output, "metadata": {}, "data": {kind: data[kind]}}


def outputs(cell: dict, section: str, before: str) -> tuple[list[dict], str]:
    "A cell's outputs as they are shown, and the words of its image files."
    out, said = [], []
    for o in cell.get("outputs", []):
        if "text" in o: o = {**o, "text": ANSI.sub("", "".join(o["text"]))}
        if {"image/png", "image/svg+xml"} & set(o.get("data", {})):
            words = words_of(o, section, before)
            o = picture(o, words)
            if "text/html" not in o["data"]: said.append(words)
        elif "text/html" in o.get("data", {}): o = {**o, "data": {"text/html": LOCAL.sub(r"\1.html", re.sub(r"<style.*?</style>", "", "".join(o["data"]["text/html"]), flags=re.S))}}
        out.append(o)
    return out, " ".join(dict.fromkeys(said))


def pictures_in_order(cells: list[dict]) -> Iterator[str]:
    "The words of each image file of a notebook, in the order in which they stand there."
    section = before = ""
    for c in cells:
        if c["cell_type"] == "markdown":
            lines = [line for line, is_prose in prose_parts("".join(c["source"])) if is_prose and line.strip()]
            section = next((line.lstrip("# ") for line in reversed(lines) if line.startswith("#")), section)
            before = next((line for line in reversed(lines) if not line.startswith("#")), before)
        yield from (words_of(o, section, before) for o in c.get("outputs", []) if {"image/png", "image/svg+xml"} & set(o.get("data", {})))


class Writer:
    "Goes through a notebook's cells and remembers where it is."
    def __init__(self, page: Page, book: Book, cells: list[dict]):
        self.page, self.book, self.cells = page, book, cells
        self.known = imported(cells) | {n: page.module for n in page.names}
        self.level, self.section, self.before = 0, page.title, ""

    def markdown(self, source: str) -> str:
        "Headings that follow each other in order, and links."
        out = []
        for line, is_prose in prose_parts(callouts(source)):
            if is_prose and (m := re.match(r"(#{1,6}) +(.+)", line)):
                self.level = 1 if not self.level else min(max(len(m[1]), 2), self.level + 1)
                self.section = plain_words(m[2])
                line = f"{'#'*self.level} {m[2]}"
            elif is_prose:
                line = linked(line, self.page, self.book, self.known)
                if line.strip(): self.before = line
            out.append(line)
        return "\n".join(out)

    def code(self, cell: dict) -> Iterator[dict]:
        "A code cell; an exported one with its names before it, and folded."
        source = "".join(cell["source"])
        marks, shown = flags(source), re.sub(r"^#\|.*\n?", "", source, flags=re.M).strip()
        if "default_exp" in marks or not shown: return
        exported = bool(marks & {"export", "exporti"})
        if exported and only_imports(shown): return
        if exported and (named := public(shown) if "export" in marks else []):
            yield markdown("\n\n".join(entry(n, self.page.module, shown, min(self.level + 1, 4)) for n in named))
        shows, words = outputs(cell, self.section, self.before)
        folded = cell["metadata"].get("jupyter", {}).get("source_hidden")    # the answers of a quiz
        meta = {"tags": ["hide-input"]} if exported or folded else {"tags": ["remove-input"]} if "echo:" in marks else {}
        if words: meta["mystnb"] = {"image": {"alt": words}}
        yield {**cell, "source": shown, "outputs": shows, "metadata": meta}

    def under_title(self) -> str:
        "Where this page stands in the book, its module, and, for the search only, what else people call it."
        said = [self.book.places.get(self.page.path, ""), f"The module `{self.page.module}`." if self.page.module else ""]
        if not (words := self.book.words.get(self.page.path, "")): return " ".join(filter(None, said))
        phrases = [w.strip() for w in words.split(",")]
        single = dict.fromkeys(w for phrase in phrases for w in phrase.split())
        return (f"```{{index}} {', '.join(f'! {w}' for w in phrases)}\n```\n\n```{{eval-rst}}\n.. meta::\n   :keywords: {', '.join(single)}\n```\n\n"
                + " ".join(filter(None, said)))

    def write(self) -> Iterator[dict]:
        titled = False
        for cell in self.cells:
            source = "".join(cell["source"])
            if "hide" in flags(source) or cell["cell_type"] == "raw": continue
            if cell["cell_type"] == "code": yield from self.code(cell)
            else:
                yield {**cell, "source": self.markdown(source), "metadata": {}}
                if source.startswith("# ") and not titled and (more := self.under_title()): yield markdown(more)
                titled |= source.startswith("# ")


def markdown(source: str) -> dict: return dict(cell_type="markdown", metadata={}, source=source)


def write_page(path: Path, nbs: Path, out: Path, book: Book):
    "The notebook as a page, below `out`."
    nb = json.loads(path.read_text())
    page = book.pages[path.relative_to(nbs).with_suffix("").as_posix()]
    cells = list(Writer(page, book, nb["cells"]).write())
    for i, c in enumerate(cells): c["id"] = f"cell-{i}"
    target = out/f"{page.path}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"cells": cells, "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}, "language_info": {"name": "python"}},
                                  "nbformat": 4, "nbformat_minor": 5}, indent=1))
