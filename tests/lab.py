"""A JupyterLab of its own on this machine, and what a person does in it, for tests with a real browser.

`opened(chromium, lab, notebook)` gives a page with all cells run; `Worked(page, nth)` a panel as one works it; `errors(page) == []` says that nothing went wrong;
`accessible(page) == []` that everything in panels, chats and quizzes has a name, every drawing has words, and the keyboard's place is seen; `shot` and `theme` for pictures of it."""
import contextlib
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

import pytest

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


needed = pytest.mark.skipif(bool(why_not()), reason=f"no browser test: {why_not()}")


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
        try: return bool(self._ask("api"))
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

    def close(self, name: str):
        "End a notebook's kernel: each holds models."
        with contextlib.suppress(urllib.error.URLError, OSError):
            for session in json.loads(self._ask("api/sessions")):
                if session["path"] == name: self._ask(f"api/sessions/{session['id']}", "DELETE")

    def _ask(self, path: str, method: str = "GET") -> bytes:
        wanted = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", method=method, headers={"Authorization": f"token {self.token}"})
        with urllib.request.urlopen(wanted, timeout=10) as answer: return answer.read()

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
    finally:
        page.close()
        lab.close(notebook.name)


def errors(page) -> list[str]:
    "Everything on the page that says that something went wrong."
    printed = page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"], .jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]')
    return [*page.wrong, *printed.all_inner_texts(), *page.get_by_text("Error displaying widget").all_inner_texts()]


def shot(page, name: str, *widths: int):
    if not (folder := os.environ.get("MEMKIT_SHOTS")): return
    for width in widths:
        page.set_viewport_size({"width": width, "height": 1500})
        page.wait_for_timeout(700)
        page.screenshot(path=Path(folder)/f"{name}_{width}.png")
    page.set_viewport_size({"width": 1280, "height": 1500})


def theme(page, name: str):
    page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
    page.locator(f'body[data-jp-theme-name="{name}"]').wait_for(state="attached", timeout=60_000)
    page.locator("#jupyterlab-splash").wait_for(state="detached", timeout=60_000)   # JupyterLab takes it away 200 ms later, and fails on its own when it was shown a second time meanwhile


class Worked:
    "A panel on a page, as one sees and touches it."
    def __init__(self, page, nth: int = 0):
        from playwright.sync_api import expect
        self.page, self.expect, self.panel = page, expect, page.locator(".mk-panel").nth(nth)
        self.picture = self.panel.locator(".mk-drawing")
        self.picture.wait_for(timeout=60_000)
        self.panel.scroll_into_view_if_needed()

    def button(self, name: str): return self.panel.get_by_role("button", name=name)
    def at(self, words: str): self.expect(self.picture).to_have_attribute("aria-label", re.compile(f"^{words}"))
    def compared(self): return self.panel.locator(".mk-differences li").all_text_contents()
    def struck(self): return self.panel.locator("svg text[text-decoration=line-through]").all_text_contents()


_ACCESSIBLE = """() => {
  const wrong = [], seen = e => !!(e.offsetWidth || e.offsetHeight || e.getClientRects().length);
  const text = e => (e?.textContent || "").replace(/\\s+/g, " ").trim();
  const referred = (e, a) => (e.getAttribute(a) || "").split(/\\s+/).filter(Boolean).map(id => text(document.getElementById(id))).join(" ").trim();
  const name = e => e.getAttribute("aria-label")?.trim() || referred(e, "aria-labelledby") || [...(e.labels || [])].map(text).join(" ").trim()
    || text(e.closest("label")) || (e.matches("button, a, summary") ? text(e) : "") || e.getAttribute("title")?.trim() || e.getAttribute("placeholder")?.trim();
  const around = e => text(e.closest(".jupyter-widgets")?.querySelector(".widget-label, label"));   // a slider's handle: the label of its widget
  const short = e => e.outerHTML.slice(0, 160);
  for (const box of document.querySelectorAll(".mk-panel, .mk-chat, .mk-quiz, .mk-predict")) {
    for (const e of box.querySelectorAll("button, input, select, textarea, a[href], summary, [role=button], [role=slider], [role=spinbutton], [role=checkbox], [role=radio], [tabindex='0']")) {
      if (!seen(e) || e.type === "hidden" || e.matches("[role=img]")) continue;
      if (!name(e) && !(e.matches("[role=slider], [tabindex], input") && around(e))) wrong.push(`no name: ${short(e)}`);
    }
    for (const e of box.querySelectorAll("svg, img, canvas, .mk-drawing")) {
      if (!seen(e) || e.closest("button, [aria-hidden=true]") || e.parentElement.closest("svg")) continue;
      const holder = e.closest("[role=img]") || e;
      const words = holder.getAttribute("aria-label")?.trim() || e.getAttribute("alt")?.trim() || text(e.querySelector("title"));
      if (e.tagName !== "IMG" && holder.getAttribute("role") !== "img") wrong.push(`a drawing without role=img: ${short(e)}`);
      if (!words) wrong.push(`a drawing without words: ${short(e)}`);
    }
  }
  return wrong;
}"""

_FOCUS = """e => { const look = n => { const c = getComputedStyle(n); return [c.outlineStyle, c.outlineWidth, c.outlineColor, c.boxShadow, c.borderColor, c.backgroundColor].join("|"); };
  const chain = [e, e.parentElement]; e.blur(); const before = chain.map(look); e.focus({focusVisible: true}); const after = chain.map(look); e.blur();
  return document.activeElement === null || before.some((b, i) => b !== after[i]); }"""


def accessible(page) -> list[str]:
    "What somebody without a mouse or without sight would miss in panels, chats and quizzes on the page; [] where nothing is missing."
    wrong = page.evaluate(_ACCESSIBLE)
    places = ":is(.mk-panel, .mk-chat, .mk-quiz, .mk-predict) :is(button:enabled, select:enabled, textarea:enabled, input:enabled:not([type=hidden]), [role=slider])"
    seen = {}
    for place in page.locator(places).all():    # one of each kind: they share their style
        kind = place.evaluate("e => `${e.tagName} ${e.type || ''} ${e.className} ${e.getAttribute('style') || ''}`")
        if kind not in seen and place.is_visible(): seen[kind] = place.evaluate(_FOCUS)
    return wrong + [f"the keyboard's place can't be seen: {kind}" for kind, shown in seen.items() if not shown]
