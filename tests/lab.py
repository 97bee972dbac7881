"A JupyterLab of its own on this machine, and what a person does in it, for tests with a real browser."
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
QUIET = {"@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
         "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},   # all cells are on the page, also those that are scrolled away
         "@jupyterlab/docmanager-extension/plugin": {"autosave": False}}


def chromium() -> str | None:
    return os.environ.get("MEMKIT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def why_not() -> str:
    "Why no browser test can run here; '' where one can."
    if not chromium(): return "no Chromium on PATH (Debian: apt-get install chromium; or name one in MEMKIT_CHROMIUM)"
    missing = [m for m in ("playwright", "jupyterlab", "ipywidgets", "anywidget") if not importlib.util.find_spec(m)]
    return f"{', '.join(missing)} can't be imported (pip install -e '.[dev]')" if missing else ""


class Lab:
    "A server on loopback with folders of its own: the user's settings aren't touched, and nothing is written into the checkout."
    def __init__(self, theme: str = "JupyterLab Light"):
        self.folder = Path(tempfile.mkdtemp(prefix="memkit-lab-"))
        self.notebooks = self.folder/"notebooks"
        self.notebooks.mkdir()
        for name, values in {**QUIET, "@jupyterlab/apputils-extension/themes": {"theme": theme}}.items():
            file = self.folder/"settings"/f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.token = secrets.token_hex(12)
        self._start()

    def _start(self):
        own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTER_DATA_DIR": "data", "JUPYTERLAB_SETTINGS_DIR": "settings",
               "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython"}
        env = os.environ | {name: str(self.folder/part) for name, part in own.items()} | {"TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}
        options = {"ServerApp.ip": "127.0.0.1", "ServerApp.port": self.port, "ServerApp.port_retries": 0, "ServerApp.root_dir": self.notebooks, "IdentityProvider.token": self.token,
                   "ServerApp.terminals_enabled": False, "LabApp.expose_app_in_browser": True, "LabApp.extension_manager": "readonly"}
        self.log = self.folder/"log.txt"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", *(f"--{k}={v}" for k, v in options.items())],
                                            env=env, stdout=log, stderr=log, start_new_session=True)
        end = time.time() + 90
        while not self._answers():
            if self.process.poll() is not None or time.time() > end:
                said = self.log.read_text()[-2000:]
                self.stop()
                raise RuntimeError(f"JupyterLab didn't start:\n{said}")
            time.sleep(.2)

    def _answers(self) -> bool:
        try: return bool(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api?token={self.token}", timeout=2).read())
        except (urllib.error.URLError, OSError): return False

    def add(self, notebook: Path) -> str:
        "A copy of a notebook, without outputs: what is on the page afterwards was made there."
        content = json.loads(Path(notebook).read_text())
        for cell in content["cells"]:
            if cell["cell_type"] == "code": cell |= {"outputs": [], "execution_count": None}
            if "#| slow" in "".join(cell["source"]): cell["source"] = []
        content["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}   # or a dialog asks which one
        (self.notebooks/notebook.name).write_text(json.dumps(content))
        return notebook.name

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/lab/workspaces/w{secrets.token_hex(3)}/tree/{name}?token={self.token}&reset"

    def stop(self):
        if self.process.poll() is None: os.killpg(self.process.pid, signal.SIGTERM)
        try: self.process.wait(10)
        except subprocess.TimeoutExpired: os.killpg(self.process.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def browser():
    from playwright.sync_api import sync_playwright
    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=chromium(), args=FLAGS)
        try: yield b
        finally: b.close()


@contextmanager
def opened(browser, lab: Lab, notebook: Path, width: int = 1280, height: int = 1500):
    "A page with the notebook, all of its cells run; what went wrong on the page is collected in `page.wrong`."
    page = browser.new_page(viewport={"width": width, "height": height})
    page.wrong = []
    page.on("pageerror", lambda e: page.wrong.append(str(e)))
    outside = re.compile(rf"^(?!(https?|wss?)://127\.0\.0\.1:{lab.port}/|data:|blob:|about:)")
    page.on("request", lambda r: page.wrong.append(f"asked for {r.url}") if outside.match(r.url) else None)
    page.goto(lab.url(lab.add(notebook)))
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
    page.get_by_role("button", name=re.compile("Python 3.*Idle")).wait_for(timeout=60_000)    # in the status bar
    page.evaluate("""async () => { const app = window.jupyterapp; if (document.querySelector("#jp-left-stack:not(.lm-mod-hidden)")) await app.commands.execute("application:toggle-left-area");
                                   await app.commands.execute("notebook:run-all-cells"); }""")
    try: yield page
    finally: page.close()


def errors(page) -> list[str]:
    "Everything on the page that says that something went wrong."
    printed = page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"], .jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]')
    return [*page.wrong, *printed.all_inner_texts(), *page.get_by_text("Error displaying widget").all_inner_texts()]
