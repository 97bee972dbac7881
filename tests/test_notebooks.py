"Every notebook below nbs/ runs from top to bottom, and what is committed is what a reader should see: one item each."
import json
from pathlib import Path

import pytest
from notebook_form import NOTEBOOKS, ROOT, faults, wrong_outputs, wrong_title
from notebook_process import Notebooks

# the others are lessons, which tests/test_walkthroughs.py runs
HERE = [p for p in NOTEBOOKS if not (p.parent.name == "walkthroughs" and p.name[0] in "123458")]


@pytest.fixture(scope="session")
def notebooks():
    here = Notebooks()
    yield here
    here.stop()


@pytest.mark.notebook
@pytest.mark.parametrize("path", HERE, ids=lambda p: p.relative_to(ROOT/"nbs").as_posix())
def test_notebook(path, notebooks):
    wrong = faults(path) + [said for said in [notebooks.run(path)] if said]
    if wrong: pytest.fail("\n".join(wrong), pytrace=False)


def written(path: Path, *sources: str) -> Path:
    "A notebook of a title and these cells of code."
    code = [{"cell_type": "code", "metadata": {}, "source": s, "execution_count": None, "outputs": []} for s in sources]
    title = {"cell_type": "markdown", "metadata": {}, "source": "# A\n\n> b"}
    for i, cell in enumerate(cells := [title, *code]): cell["id"] = f"cell{i}"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def test_a_cell_that_fails_is_told_with_its_traceback(tmp_path, notebooks):
    assert "ZeroDivisionError" in (said := notebooks.run(written(tmp_path/"a.ipynb", "x = 0", "1/x"))) and "1/x" in said
    dead = notebooks.run(written(tmp_path/"b.ipynb", "import os; os._exit(7)"))
    assert dead.startswith("exit status 7")
    assert not notebooks.run(written(tmp_path/"c.ipynb", "assert 'x' not in globals()"))


def test_faults_are_found(tmp_path):
    assert len(faults(written(tmp_path/"a.ipynb", "import os; os.sep", "1", "2", "3"))) == 3
    assert wrong_title("# A\n\n> b\nmore") and not wrong_title("# A\n\n> b")
    error = {"output_type": "error", "ename": "KeyError"}
    warning = {"output_type": "stream", "name": "stderr", "text": ["!"]}
    assert len(wrong_outputs([{"outputs": [error, warning]}])) == 2
