"What a reader of a committed notebook would find wrong, without running it."
import ast
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HIDDEN = (".", "_")
NOTEBOOKS = sorted(p for p in (ROOT/"nbs").rglob("*.ipynb")
                   if not any(part.startswith(HIDDEN) for part in p.relative_to(ROOT/"nbs").parts))


def faults(path: Path) -> list[str]:
    "Every fault of a notebook: its prose, title, outputs, imports and size."
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = [c for c in cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]
    prose = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    found = [] if len(prose)*3 >= len(code) else ["at least one cell of prose for three of code"]
    found += wrong_title(prose[0] if prose else "") + wrong_outputs(code) + mixed_imports(code)
    most = 400 if path.stem.endswith("gallery") else 300     # the gallery shows every figure and table
    return found + [f"a notebook has {most} KiB at most"]*(path.stat().st_size > most*1024)


def wrong_title(cell: str) -> list[str]:
    lines = cell.strip().splitlines()
    if len(lines) == 3 and lines[0].startswith("# ") and lines[-1].startswith("> "): return []
    return ["title and summary in a cell of their own: the site drops what follows them"]


def wrong_outputs(code: list[dict]) -> list[str]:
    outputs = [o for c in code for o in c["outputs"]]
    found = [] if outputs else ["no outputs: run it with tools/nb.py"]
    found += [f"an error among the outputs: {o['ename']}" for o in outputs if o["output_type"] == "error"]
    return found + [f"on stderr: {''.join(o['text'])[:200]}" for o in outputs if o.get("name") == "stderr"]


def mixed_imports(code: list[dict]) -> list[str]:
    "Such a cell is run while the documentation is made, out of its context."
    cells = [s for c in code if not any(w in (s := "".join(c["source"])) for w in ("#| export", "eval: false"))]
    return [f"imports get a cell of their own: {s[:80]!r}" for s in cells if imports_and_more(s)]


def imports_and_more(source: str) -> bool:
    tree = ast.parse("\n".join(line for line in source.splitlines() if not line.startswith(("%", "!"))))
    found = [isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(tree)]
    return any(found) and not all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)
