"A built wheel, in an empty environment outside the checkout, imports every subpackage and finds its data."
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROBE = """
import importlib, pkgutil, sys
from pathlib import Path
import memkit
from memkit.files import own_data
assert Path(memkit.__file__).is_relative_to(sys.prefix), memkit.__file__
names = [m.name for m in pkgutil.walk_packages(memkit.__path__, "memkit.")]
for name in names: importlib.import_module(name)
from memkit.experiments.result import PAPERS, published_result
assert all(published_result(p)["rows"] for p in PAPERS)
print(len(names), "modules;", sum(1 for _ in own_data("medical_knowledge.jsonl").open()), "entries")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    tree = out/"tree"                       # a copy: a build leaves folders behind, and stale ones would go into the wheel
    for name in filter(lambda n: n.startswith(("memkit/", "data/")) or n in ("setup.py", "settings.ini", "pyproject.toml", "README.md", "LICENSE"), files):
        target = tree/name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT/name).exists(): target.write_bytes((ROOT/name).read_bytes())
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", out, tree], check=True, capture_output=True)
    return next(out.glob("memkit-*.whl"))


def test_wheel_imports_everything(wheel, tmp_path):
    """The environment holds the wheel alone; the libraries are lent to it by path, behind its own packages,
    so that memkit itself can only come from the wheel."""
    venv.create(tmp_path/"env", with_pip=False)
    python = tmp_path/"env"/"bin"/"python"
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel], check=True, capture_output=True)
    lent = [p for p in sys.path if p.endswith("site-packages")]
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, "PYTHONPATH": os.pathsep.join([site, *lent])}
    run = subprocess.run([python, "-c", PROBE], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    modules, entries = int(run.stdout.split()[0]), int(run.stdout.split()[2])
    assert modules >= 15 and entries >= 300
