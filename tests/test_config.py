"The two files that configure the project say the same, and what the package promises about imports holds."
import json
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import memkit

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "sqlalchemy", "chromadb", "pandas", "matplotlib", "seaborn", "onnxruntime", "datasets", "openai", "bm25s", "sklearn", "IPython")


def settings():
    c = ConfigParser(delimiters=["="])
    c.read(ROOT/"settings.ini")
    return c["DEFAULT"]


def test_settings_and_pyproject_agree():
    cfg, toml = settings(), tomllib.loads((ROOT/"pyproject.toml").read_text())
    assert memkit.__version__ == cfg["version"]
    assert toml["project"]["name"] == cfg["lib_name"]
    assert toml["project"]["requires-python"] == ">=" + cfg["min_python"]
    for key in ("lib_path", "nbs_path", "tst_flags", "title"): assert toml["tool"]["nbdev"][key] == cfg[key], key


def test_every_requirement_is_pinned_for_ci():
    import re
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT/"constraints.txt").read_text().splitlines() if "==" in line}
    wanted = {re.split(r"[\[<>=]", r)[0].lower().replace("_", "-") for key in ("requirements", "dev_requirements") for r in settings()[key].split()}
    assert wanted <= pinned, f"not in constraints.txt: {sorted(wanted - pinned)}"


MODULES = sorted(".".join(p.relative_to(ROOT).with_suffix("").parts) for p in (ROOT/"memkit").rglob("*.py") if p.stem != "_modidx")
OWN_BACKBONE = {"memkit.reading.training", "memkit.store.store", "memkit.store.schema", "memkit.store.erase", "memkit.store.jobs"}  # these are sqlalchemy; nobody imports them before first use


IMPORT_EACH = f"""import importlib, json, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    print(json.dumps([module, [m for m in {HEAVY!r} if m in sys.modules]]))
"""


def test_importing_loads_nothing_heavy():
    "One process imports them all; the first that has something heavy, or what it imports, brought it."
    modules = [m for m in MODULES if m not in OWN_BACKBONE]
    done = subprocess.run([sys.executable, "-c", IMPORT_EACH, *modules], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    loaded = [json.loads(line) for line in done.stdout.splitlines()]
    assert next((found for found in loaded if found[1]), None) is None


def test_every_subpackage_is_a_package():
    missing = [p.parent for p in (ROOT/"memkit").rglob("*.py") if not (p.parent/"__init__.py").exists()]
    assert not missing, f"no __init__.py in {missing}: a wheel would leave it out"
