"""Build notebooks: export them to memkit/, run them in place so that what a reader sees is their own output, clean them.

    python tools/nb.py nbs/01_records.ipynb …   build these (all below nbs/ where none is named)
    python tools/nb.py --no-run …                    export and clean only
    python tools/nb.py --slow …                      run the `#| slow` cells too
    python tools/nb.py --slow-with TEXT …            run only those of them that contain this text
    python tools/nb.py --draft FILE.md NOTEBOOK      make NOTEBOOK from a jupytext Markdown draft, then build it
"""
import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notebooks() -> list[Path]:
    "Every notebook below nbs/, in reading order of its folder and name."
    hidden = lambda p: any(part.startswith((".", "_")) for part in p.relative_to(ROOT/"nbs").parts)
    return sorted((p for p in (ROOT/"nbs").rglob("*.ipynb") if not hidden(p)), key=lambda p: (p.name == "index.ipynb", p.name))


def flags(source: str) -> set[str]:
    "The words of a cell's `#|` lines."
    return {w for line in re.findall(r"^#\|(.*)$", source, re.M) for w in line.split()}


WIDGET = "application/vnd.jupyter.widget-view+json"
TELL = "from memkit.widgets.draw.figure_words import tell_figures; tell_figures()"   # in the kernel, before the first cell: pictures bring words along


def describe(output: dict):
    "What is stored beside a picture: no widget view (without its kernel it would be neither), and its words where nbconvert looks for a text alternative."
    data = output.get("data", {})
    if {"image/svg+xml", "text/html"} & set(data): data.pop(WIDGET, None)
    words = data.get("text/plain", "")
    if "image/png" in data and not words.startswith("<"): output.setdefault("metadata", {}).setdefault("image/png", {})["alt"] = re.sub(r"^Picture\(figure=<.*?>, alt=['\"](.*)['\"]\)$", r"\1", words, flags=re.S)


def run(path: Path, slow: str | None = None):
    "Run every cell but those marked `notest` or `eval: false`, and those marked `slow` without this text; keep what they print."
    import nbformat
    from nbclient import NotebookClient
    nb = nbformat.read(path, 4)
    def skipped(source: str) -> bool:
        return bool(flags(source) & {"notest", "eval:"}) or "slow" in flags(source) and (slow is None or slow not in source)
    held = {i: c.source for i, c in enumerate(nb.cells) if c.cell_type == "code" and skipped(c.source)}
    for i in held: nb.cells[i].cell_type = "raw"
    outputs = {i: nb.cells[i].pop("outputs", []) for i in held}
    for i in held: nb.cells[i].pop("execution_count", None)
    env = {**os.environ, "TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}
    NotebookClient(nb, timeout=7200, store_widget_state=False, coalesce_streams=True, kernel_name="python3", extra_arguments=[f"--IPKernelApp.exec_lines={TELL}"],
                   resources={"metadata": {"path": str(ROOT)}}).execute(env=env)
    for i in held: nb.cells[i].update(cell_type="code", outputs=outputs[i], execution_count=None)
    for output in (o for c in nb.cells for o in c.get("outputs", [])): describe(output)
    nbformat.write(nb, path)


def export(path: Path):
    "Write the notebook's `#| export` cells into memkit/."
    from nbdev.export import nb_export
    nb_export(path, ROOT/"memkit")


def build(path: Path, do_run: bool = True, slow: str | None = None):
    "Export, run and clean one notebook."
    start = time.perf_counter()
    export(path)
    if do_run: run(path, slow)
    subprocess.run([Path(sys.executable).with_name("nbdev-clean"), "--fname", str(path)], cwd=ROOT, check=True)
    print(f"{path.relative_to(ROOT)}  {time.perf_counter() - start:.1f} s", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("paths", nargs="*", type=lambda s: Path(s).resolve())
    p.add_argument("--no-run", action="store_true")
    p.add_argument("--slow", action="store_const", const="", dest="slow")
    p.add_argument("--slow-with", metavar="TEXT", dest="slow")
    p.add_argument("--draft", type=Path)
    a = p.parse_args()
    if a.draft:
        if len(a.paths) != 1: p.error("--draft wants exactly one NOTEBOOK to make")
        a.paths[0].parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([Path(sys.executable).with_name("jupytext"), "--quiet", "--to", "ipynb", "--set-kernel", "python3",
                        "-o", str(a.paths[0]), str(a.draft)], check=True)
    for path in a.paths or notebooks(): build(path, not a.no_run, a.slow)


if __name__ == "__main__": main()
