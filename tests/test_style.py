"""How the package is written: short cells, short lines, no circle of modules, and rooms that import only what is below.

Cells that broke the rule when it came in are listed by a hash of their text in style_baseline.json. A cell that is
changed has another hash, so it must obey. `python tests/test_style.py --update` takes out what is no longer needed;
nothing puts a cell in.
"""
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pytest
from notebook_form import NOTEBOOKS, ROOT

BASELINE = Path(__file__).with_name("style_baseline.json")
LINE, LINES = 120, 25

# --- exported cells


def exported(notebook: Path) -> Iterator[str]:
    "The source of each cell that is exported."
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and re.search(r"^#\|\s*export", source, re.M): yield source.strip()


def field_lines(tree: ast.Module) -> int:
    "How many lines are fields of a class: a list of them may be of any length."
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return sum(f.end_lineno - f.lineno + 1 for c in classes for f in c.body if isinstance(f, ast.AnnAssign))


def is_table(node: ast.stmt) -> bool:
    "A name for a dict, tuple, list, set or text that is written out, or for a call of such, as frozenset({...})."
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None: return False
    works = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    called = isinstance(node.value, ast.Call) and len(node.value.args) == 1
    value = node.value.args[0] if called else node.value
    written = isinstance(value, ast.Dict | ast.Tuple | ast.List | ast.Set) or value is node.value and text(value)
    return written and not any(isinstance(n, works) for n in ast.walk(node))


def text(node: ast.expr) -> bool: return isinstance(node, ast.Constant) and isinstance(node.value, str)


def faults(source: str) -> list[str]:
    "What is too long in an exported cell; a cell of tables and lists of fields may have any number of lines."
    lines = [line for line in source.splitlines() if not line.startswith("#|")]
    long = [f"a line of {len(line)} characters: {line.strip()[:60]}…" for line in lines if len(line) > LINE]
    tree = ast.parse(source)
    n = len(lines) - field_lines(tree)
    return long if n <= LINES or all(map(is_table, tree.body)) else [f"{n} lines", *long]


def digest(source: str) -> str: return blake2b(source.encode(), digest_size=5).hexdigest()


@cache
def offenders() -> dict[str, dict[str, str]]:
    "For each notebook, the hash of each cell that is too long, and what to say of it."
    found = {}
    for notebook in NOTEBOOKS:
        name = notebook.relative_to(ROOT).as_posix()
        for source in exported(notebook):
            if wrong := faults(source): found.setdefault(name, {})[digest(source)] = words(name, source, wrong)
    return found


def words(name: str, source: str, wrong: list[str]) -> str:
    "One offender, for the eye."
    lines = source.splitlines()
    begins = next((line for line in lines if line.startswith(("def ", "class "))), lines[-1])
    return f"{name}, cell with {begins[:60]!r}: {'; '.join(wrong)}"


def baseline() -> dict[str, list[str]]: return json.loads(BASELINE.read_text())


def left_of(listed: dict[str, list[str]], now: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    "The entries of a baseline that are still needed."
    left = {name: [h for h in hashes if h in now.get(name, {})] for name, hashes in listed.items()}
    return {name: hashes for name, hashes in left.items() if hashes}


def test_new_and_changed_cells_are_short():
    listed = baseline()
    wrong = [said for name, cells in offenders().items() for h, said in cells.items() if h not in listed.get(name, [])]
    assert not wrong, f"at most {LINES} lines of {LINE} characters in an exported cell:\n" + "\n".join(wrong)


def test_lines_of_code_fit_a_screen():
    "In all cells; what is longer is a text or a table of texts."
    cells = [cell for n in NOTEBOOKS for cell in json.loads(n.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    lines = [line.rstrip() for cell in cells for line in cell["source"]]
    assert sum(len(line) > 140 for line in lines) <= .005*len(lines)


def test_the_baseline_lists_nothing_that_is_gone():
    listed = baseline()
    gone = {name: set(hashes) - set(offenders().get(name, {})) for name, hashes in listed.items()}
    gone = {name: sorted(hashes) for name, hashes in gone.items() if hashes}
    assert not gone, f"no such cell any more; run: python tests/test_style.py --update\n{json.dumps(gone, indent=1)}"


FIELDS = "@dataclass\nclass A:\n    'One line.'\n" + "    x: int = 1   # one\n"*30


@pytest.mark.parametrize("source, wrong", [
    ("x = 1\n"*25, 0), ("x = f(y)\n"*26, 1), ("#| export\n" + "f(x)\n"*25, 0), ("x = '" + "a"*115 + "'", 1),
    (FIELDS, 0), (FIELDS + "    def f(self): pass", 0), (FIELDS + "    def f(self):\n" + "        g()\n"*25, 1),
    ("A = {\n" + "    1: 2,\n"*30 + "}", 0), ("A = frozenset((\n" + "    1,\n"*30 + "))", 0),
    ("A = {\n" + "    1: lambda: 2,\n"*30 + "}", 1), ("A = {\n" + "    1: 2,\n"*30 + "}\nf(A)", 1),
], ids=range(11))
def test_faults(source, wrong): assert len(faults(source)) == wrong


def test_a_baseline_only_shrinks():
    now = {"a": {"1": "", "2": ""}, "b": {"3": ""}}
    assert left_of({"a": ["1", "9"], "c": ["4"]}, now) == {"a": ["1"]}


# --- modules: who imports whom

PAPERS = {"hybrid", "malp", "mark", "maprec", "generative_agents"}
BELOW = {  # the rooms of which assistants are built: what each may import, so that no arrow goes up
    "records": set(), "files": set(), "models": {"records", "files"}, "search": {"records", "files", "models"},
    "train": {"records", "files", "models"}, "store": {"records", "files", "search"},
    "reading": {"records", "files", "models", "search"}, "answer": {"records", "files", "models", "search", "reading"},
    "turn": {"records", "files", "models", "search", "store", "reading", "answer"},
}
ROOMS = set(BELOW)
LAYERS = {  # a room: the rooms that its modules may import
    **BELOW, **{paper: ROOMS for paper in PAPERS},
    "evaluate": ROOMS, "benchmarks": ROOMS | PAPERS, "widgets": ROOMS | PAPERS,
    "experiments": ROOMS | PAPERS | {"evaluate", "widgets"}, "demo": ROOMS | PAPERS | {"widgets"},
    "arena": ROOMS | PAPERS | {"evaluate", "experiments", "widgets"},
    "walks": ROOMS | PAPERS | {"widgets"},
    "cli": ROOMS | PAPERS | {"arena", "benchmarks", "demo", "experiments", "widgets"},
    "__main__": {"cli"},
}
EXCEPTIONS = {  # (importer, imported): one that is no longer there is taken out
    ("malp.injection", "hybrid.corpus"), ("mark.poisoning", "evaluate.intervals"),
    ("experiments.result", "benchmarks.timing"),
    ("widgets.explorers.lesson", "benchmarks.timing"), ("widgets.explorers.prompt", "evaluate.intervals"),
    ("widgets.explorers.rating", "experiments.malp.answers"),
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT/"memkit").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, package: list[str], inside: bool = False) -> Iterator[tuple[str, bool]]:
    "The dotted name of each import below `tree`, and whether it stands in a function; type checkers' are left out."
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test): continue
        if isinstance(node, ast.Import): yield from ((a.name, inside) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[:len(package) - node.level + 1] if node.level else []
            yield from ((".".join([*above, *filter(None, [node.module]), a.name]), inside) for a in node.names)
        else: yield from imported(node, package, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def imports() -> list[tuple[str, str, bool]]:
    "Which module of memkit imports which, and whether in a function."
    paths = {name_of(p): p for p in (ROOT/"memkit").rglob("*.py") if p.stem != "_modidx"}
    found = []
    for name, path in paths.items():
        package = ["memkit", *filter(None, name_of(path.parent/"__init__.py").split("."))]
        for target, inside in imported(ast.parse(path.read_text("utf-8")), package):
            target = target.removeprefix("memkit.") if target.startswith("memkit.") else ""
            while target and target not in paths: target = target.rpartition(".")[0]
            if target not in ("", name): found.append((name, target, inside))
    return found


def graph(functions: bool) -> dict[str, set[str]]:
    "For each module the modules that it imports, those imported in functions too if asked for."
    found = defaultdict(set)
    for name, target, inside in imports():
        if functions or not inside: found[name].add(target)
    return dict(found)


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    "Groups of nodes that reach each other."
    reach = {node: reached(edges, node) for node in edges}
    groups = {frozenset(m for m in reach[n] if n in reach.get(m, ())) for n in reach}
    return sorted(sorted(g) for g in groups if g)


def reached(edges: dict[str, set[str]], start: str) -> set[str]:
    "Every node that can be reached from `start` by one step or more."
    seen, to_see = set(), [start]
    while to_see:
        new = edges.get(to_see.pop(), set()) - seen
        seen |= new
        to_see += new
    return seen


def test_circles():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}, "e": {"a"}}) == [["b", "c"], ["d"]]


@pytest.mark.parametrize("functions", [False, True], ids=["at the top", "in functions too"])
def test_no_circle_of_modules(functions):
    assert sum(map(len, graph(functions).values())) > 100, "the imports were read"
    assert not circles(graph(functions)), "move what they share into a module that imports neither"


def test_rooms_import_what_is_below():
    room = lambda module: module.split(".")[0]
    edges = {(a, b) for a, to in graph(True).items() for b in to if room(a) != room(b)}
    unknown = {room(a) for pair in edges for a in pair} - set(LAYERS)
    assert not unknown, f"rooms without a line in LAYERS: {sorted(unknown)}"
    wrong = {(a, b) for a, b in edges if room(b) not in LAYERS[room(a)]}
    assert not wrong - EXCEPTIONS, "imports that LAYERS doesn't allow"
    assert not EXCEPTIONS - wrong, "exceptions that nobody needs any more: take them out"


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]: sys.exit("python tests/test_style.py --update: take out what is no longer needed")
    before, after = baseline(), left_of(baseline(), offenders())
    BASELINE.write_text(json.dumps(after, indent=1) + "\n")
    print(f"{sum(map(len, before.values()))} cells listed before, {sum(map(len, after.values()))} now")
