"Every notebook below nbs/ runs from top to bottom, and what is committed is what a reader should see."
import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(p for p in (ROOT/"nbs").rglob("*.ipynb") if not any(part.startswith((".", "_")) for part in p.relative_to(ROOT/"nbs").parts))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.relative_to(ROOT/"nbs").as_posix())


ELSEWHERE = {p for p in NOTEBOOKS if p.parent.name == "walkthroughs" and p.name[0] in "12345"}   # tests/test_walkthroughs.py runs those


@pytest.mark.notebook
@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p not in ELSEWHERE], ids=lambda p: p.relative_to(ROOT/"nbs").as_posix())
def test_runs(path):
    run = subprocess.run([Path(sys.executable).with_name("nbdev-test"), path, "--n-workers", "0", "--flags", os.environ.get("MEMKIT_NB_FLAGS", "")],
                         cwd=ROOT, capture_output=True, text=True, timeout=900, env={**os.environ, "MPLBACKEND": "agg"})
    if run.returncode or "Success." not in run.stdout: pytest.fail(run.stdout + run.stderr, pytrace=False)


@each
def test_reads_well(path):
    "Prose between the code, outputs from a clean run, none of them an error, and a file that stays small."
    cells = json.loads(path.read_text())["cells"]
    code = [c for c in cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]
    prose = [c for c in cells if c["cell_type"] == "markdown"]
    outputs = [o for c in code for o in c["outputs"]]
    assert len(prose)*3 >= len(code), "at least one cell of prose for three of code"
    first = "".join(prose[0]["source"]).strip().splitlines()
    assert first[0].startswith("# ") and first[-1].startswith("> ") and len(first) == 3, "title and summary in a cell of their own: the site drops what follows them"
    assert outputs and not [o for o in outputs if o["output_type"] == "error"]
    assert not ["".join(o["text"])[:200] for o in outputs if o.get("name") == "stderr"], "nothing on stderr"
    assert path.stat().st_size <= 300*1024


def imports_and_more(source: str) -> bool:
    tree = ast.parse("\n".join(line for line in source.splitlines() if not line.startswith(("%", "!"))))
    found = [isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(tree)]
    return any(found) and not all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)


@each
def test_imports_stand_alone(path):
    "A cell that imports and does more is run while the documentation is made, out of its context: imports get a cell of their own."
    cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    mixed = [s[:80] for s in cells if not any(w in s for w in ("#| export", "eval: false")) and imports_and_more(s)]
    assert not mixed
