"Every walkthrough runs, hides its results until they are predicted, refuses a wrong answer, and accepts the solutions that its exercises hide."
import ast
import contextlib
import importlib
import io
import json
import re
import sys
import time
import types
from dataclasses import dataclass
from pathlib import Path

import pytest
from notebook_form import faults

from memkit.widgets.explorers.lesson import Prediction, Quiz, Verdict

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT/"nbs"/"walkthroughs"
ALL = sorted(FOLDER.glob("[0-9]_*.ipynb"))
LESSONS = [p for p in ALL if p.name[0] in "12345"]
OWN = FOLDER/"8_own_memory.ipynb"      # exercises, but no quiz
SECONDS = 60       # what a walkthrough may take on two quiet cores, by its own stored clock


@dataclass
class Run:
    "A walkthrough that was run from top to bottom in this process."
    path: Path
    cells: list[dict]
    ns: dict
    values: dict[int, object]      # by cell: its last expression
    printed: dict[int, str]
    seconds: float

    def of(self, kind: type) -> list: return [v for v in self.values.values() if isinstance(v, kind)]


def source(cell: dict) -> str: return "".join(cell["source"])
def prose(cells: list[dict]) -> list[str]: return [source(c) for c in cells if c["cell_type"] == "markdown"]


def execute(code: str, ns: dict, name: str = "cell") -> object:
    "Run the code of a cell; what its last expression is."
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), ns)
    return eval(compile(ast.Expression(last.value), name, "eval"), ns) if last else None


def run(path: Path) -> Run:
    cells, module = json.loads(path.read_text())["cells"], types.ModuleType(f"walkthrough_{path.stem}")
    sys.modules[module.__name__] = module       # where a dataclass of a cell looks its own names up
    values, printed, began = {}, {}, time.perf_counter()
    for i, cell in enumerate(cells):
        flags = set(" ".join(re.findall(r"^#\|(.*)$", source(cell), re.M)).split())
        if cell["cell_type"] != "code" or flags & {"slow", "notest", "eval:"}: continue
        with contextlib.redirect_stdout(io.StringIO()) as out: values[i] = execute(source(cell), module.__dict__, f"{path.stem}, cell {i}")
        printed[i] = out.getvalue()
    return Run(path, cells, module.__dict__, values, printed, time.perf_counter() - began)


def test_the_walkthroughs_are_there():
    assert [p.stem[2:] for p in ALL] == ["hybrid", "malp", "mark", "map", "compare", "glossary", "teaching", "own_memory"]


def check_form(path: Path):
    "What stands in the file: the promise at the top, the clock's two prints, folded solutions, and a time that holds."
    cells = json.loads(path.read_text())["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    text = lambda c: "".join("".join(o.get("text", "")) for o in c["outputs"])
    head = "\n".join(prose(cells[:6]))
    assert 18 <= len(cells) <= 70
    assert path == OWN or prose(cells)[0].splitlines()[0].endswith("?"), "the title is a student's question"
    assert re.search(r"\d+ (s|seconds)\b|a minute", head) and "cores" in head, "the top says how long it takes, and on what"
    assert re.search(r"\d+ cores?, Python 3", "".join(map(text, code[:5])))
    took = re.search(r"took (\d+) s\b", text(code[-1]))
    assert took and int(took[1]) <= (SECONDS/2 if path == OWN else SECONDS)
    assert not any("#| export" in source(c) or "#| default_exp" in source(c) for c in code)
    assert "Solution</summary>" in "\n".join(prose(cells))


def check_imports(path: Path):
    "A walk has one import: names from `memkit.walks`, each of which it uses."
    code = [source(c) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    line, = ast.parse(code[0]).body
    assert isinstance(line, ast.ImportFrom) and line.module == "memkit.walks"
    later = list(ast.walk(ast.parse("\n".join(code[1:]))))
    assert not [ast.unparse(n) for n in later if isinstance(n, (ast.Import, ast.ImportFrom))]
    unused = {alias.name for alias in line.names} - {n.id for n in later if isinstance(n, ast.Name)}
    assert not unused


def links(path: Path) -> list[str]:
    "The files that a walkthrough leads to."
    return re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", "\n".join(prose(json.loads(path.read_text())["cells"])))


def test_links_lead_somewhere():
    assert not [p.stem for p in ALL if not links(p)]
    assert not [(p.stem, to) for p in ALL for to in links(p) if not (p.parent/to).is_file()]


def check_questions(lesson: Run):
    "The answer that the notebook works out is the one that is worked out here in another way; nothing else passes for it."
    quizzes = lesson.of(Quiz)
    assert len(quizzes) == 1 and len(quizzes[0].questions) == 5
    answers = importlib.import_module(f"answers_{lesson.path.stem}").ANSWERS
    assert len(answers) == 5
    for i, (q, other) in enumerate(zip(quizzes[0].questions, answers)):
        expected = other(lesson.ns)
        assert q.right(expected), f"question {i + 1}, {q.ask!r}: the notebook says {q.truth()!r}, the test {expected!r}"
        assert q.answer.__code__.co_names or q.answer.__code__.co_freevars, "an answer is worked out, not written down"
        wrong = [c for c in q.choices if c != q.truth()] or [f"not {q.truth()}", "", "-17.25"]
        assert not any(map(q.right, wrong)), q.ask
        assert q.why.strip(), "a right answer is told why"
        assert quizzes[0].give(i, expected if not q.choices else q.truth()) is True


def check_predictions(lesson: Run):
    "A result is hidden until somebody predicts it, in the notebook as in the stored file."
    predictions = {i: v for i, v in lesson.values.items() if isinstance(v, Prediction)}
    assert len(predictions) >= 3
    for i, p in predictions.items():
        assert p.result and not p.told.value, f"{p.question.ask!r} shows its result at once"
        [stored] = lesson.cells[i]["outputs"]
        question, fold, result = "".join(stored["data"]["text/html"]).partition("<details>")
        assert p.question.ask[:20].split("“")[0].split("'")[0] in question and fold and "<pre" not in question
        assert lesson.cells[i]["metadata"].get("jupyter", {}).get("source_hidden"), "its code would tell the answer"
        assert p.give(p.question.truth()) and p.told.value == p.result


def check_exercises(lesson: Run):
    "As it comes, an exercise isn't done; with the hidden solution it is."
    checks = [i for i, v in lesson.values.items() if isinstance(v, Verdict)]
    solutions = re.findall(r"<details>\s*<summary>Solution</summary>\s*```python\n(.*?)```\s*</details>", "\n".join(prose(lesson.cells)), re.S)
    assert checks and len(checks) == len(solutions), "every check cell has its solution, in the same order"
    for cell, solution in zip(checks, solutions):
        assert not lesson.values[cell].passed and str(lesson.values[cell]).startswith("Not yet:")
        kept = dict(lesson.ns)
        execute(solution, lesson.ns, "solution")
        verdict = execute(source(lesson.cells[cell]), lesson.ns, "check")
        lesson.ns.update(kept)
        assert verdict.passed, str(verdict)


def put_away(lesson: Run):
    "Close what a notebook leaves open: a store, a model."
    for v in list(lesson.ns.values()):
        if type(v).__module__.startswith("memkit") and callable(close := getattr(v, "close", None)): close()
    del sys.modules[f"walkthrough_{lesson.path.stem}"]


def cells_of(stem: str) -> list[dict]: return json.loads((FOLDER/f"{stem}.ipynb").read_text())["cells"]


def test_the_formula_by_hand_gives_every_symbol_its_number():
    cells = cells_of("4_map")
    at = next(i for i, c in enumerate(cells) if c["cell_type"] == "markdown" and "## Step 2: from ratings to stars" in source(c))
    for symbol in ("n", "r_i", "r_0", "v_i", "s_i", "w_i", "c", r"\\ell", "m", r"\\text\{above\}"): assert re.search(rf"(?m)^\| \${symbol}\$ \| \S", source(cells[at])), f"{symbol} is named"
    sums = next(c for c in cells[at:] if c["cell_type"] == "code" and c["outputs"])    # what prints them, in the box of a prediction
    asked, fold, told = "".join("".join(o["data"]["text/html"]) for o in sums["outputs"]).partition("<details>")
    assert fold and not re.search(r"\d\.\d", source(cells[at]).partition("| symbol |")[0]), "the result stands in the box only"
    n, = map(int, re.findall(r"n = (\d+)", told))
    for symbol in ("r_0", "c", "m"): assert re.search(rf"\b{symbol} = \d", told)
    assert len(re.findall(r"i = \d+ .* r = \d.*v = \d.* = [+-]\d.*s = 0\.\d+.*w = 0\.\d+", told)) == n
    for line, places in (("level", 3), ("above", 2), ("stars", 2)):
        sum_, result = re.search(rf"{line} = ([-+*/() .\d]+) = (-?\d+\.\d+)", told).groups()
        assert eval(sum_) == pytest.approx(float(result), abs=1.1*10**-places), f"{line}: the numbers shown give the result shown"


def test_the_parts_of_a_score_are_spelled_out_where_they_first_appear():
    first = next(source(c) for c in cells_of("5_compare") if "RC" in source(c))
    for short, name in (("RC", "recall count"), ("Rec", "recency"), ("SS", "semantic similarity"), ("FS", "feedback score"), ("MRS", "memory relevance score")):
        assert re.search(rf"{short}\W+(?:is )?the \*{name}\*", first), short


@pytest.mark.notebook
@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_a_walk(path):
    "What stands in it; from top to bottom, once; then its questions, and its exercises."
    assert not faults(path)
    check_form(path)
    check_imports(path)
    lesson = run(path)
    try:
        assert not [v.error for v in lesson.values.values() if getattr(v, "error", "")], "a panel that can't draw says so in place: none may have"
        check_questions(lesson)
        check_predictions(lesson)
        check_exercises(lesson)
        assert lesson.seconds < 10*SECONDS
    finally:
        put_away(lesson)


@pytest.mark.notebook
def test_a_memory_of_ones_own():
    "The designs of the last walk keep the contract or break it as they say, the package is found, and the exercises accept their solutions."
    assert not faults(OWN)
    check_form(OWN)
    check_imports(OWN)
    lesson = run(OWN)
    try:
        promise, listed = lesson.ns["promise"], lesson.ns["listed"]
        assert {promise(lesson.ns[name]) for name in ("Diary", "Fresh", "Careful")} == {"kept"}
        assert promise(lesson.ns["Fast"]) == "broken: a memory never comes back to another user"
        assert re.search(r"^diary +my_memory:Diary$", listed, re.M) and "recalled: I am allergic to penicillin." in listed
        firsts = lesson.ns["tried"]
        assert "doctor" in firsts[10]["first for the allergy"] and "20 mg" in firsts[3000]["first for the dose"], "too fast, and too slow"
        assert "doctor" in firsts[300]["first for the dose"] and "allergic" in firsts[300]["first for the allergy"]
        check_predictions(lesson)
        check_exercises(lesson)
    finally: put_away(lesson)
