"""Notebooks are run in children of one process that has imported the slow libraries, so that each starts at once.

`Notebooks` is what a test holds. This file, run as a program, is the process behind it: for each line of JSON that it
reads (`path`, `log`) it forks a child, which runs the notebook with nbdev-test and writes to the log, and prints the
child's exit status. Only imports are shared. No model is loaded and no thread is started before a fork.
"""
import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

STATUS: dict[int, int] = {}    # of a child, by its process number: 1, and 0 once its notebook has passed
ROOT = Path(__file__).resolve().parents[1]
SECONDS = 900    # what a notebook may take
# slow to import, and without a thread of their own; onnxruntime starts one, so it stays out
SLOW = ("nbdev.test", "matplotlib.pyplot", "matplotlib_inline.backend_inline", "sqlalchemy.dialects.sqlite", "chromadb",
        "bm25s", "scipy.stats", "ipywidgets", "anywidget", "torch", "transformers.models.bert.modeling_bert",
        "transformers.models.llama.modeling_llama", "peft", "pandas", "sklearn.linear_model", "datasets")
# allocators and libraries of linear algebra that would start threads when they are imported
ALONE = {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def preload():
    "Import what many notebooks import, and memkit; raises `RuntimeError` where that started a thread, which a fork would lose."
    own = (p.relative_to(ROOT).with_suffix("") for p in sorted((ROOT/"memkit").rglob("[a-z0-9]*.py")))
    for name in (*SLOW, *(".".join(p.parts) for p in own)):
        with contextlib.suppress(ImportError): importlib.import_module(name)
    threads = Path("/proc/self/task")
    if threads.is_dir() and len(list(threads.iterdir())) > 1:
        raise RuntimeError(f"one of {', '.join(SLOW)}, or a module of memkit, starts a thread when it is imported")
    gc.collect()
    gc.freeze()      # children leave the pages of these objects alone


def child(path: str, log: str):
    "Run one notebook as the command nbdev-test does; the process ends with its status, or by an alarm."
    from nbdev.test import nbdev_test
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2): os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), stream)
    STATUS[os.getpid()] = 1
    signal.alarm(SECONDS)
    nbdev_test(path, flags=os.environ.get("MEMKIT_NB_FLAGS", ""), n_workers=0)
    STATUS[os.getpid()] = 0


def leave():
    "What a child does last, after its threads and all other exit handlers: .4 s are saved by leaving modules whole."
    if os.getpid() not in STATUS: return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STATUS[os.getpid()])


def serve():
    "Run the notebooks that are asked for on stdin, one after the other."
    atexit.register(leave)      # the first to be registered is the last to run
    preload()
    for line in sys.stdin:
        pid = os.fork()
        if not pid: return child(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


class Notebooks:
    "Runs notebooks, one at a time, each in a fresh child of a process that starts with the first of them."
    def __init__(self): self.process = None

    def run(self, path: Path) -> str:
        "Run a notebook; what went wrong, or nothing."
        with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
            status = self._ask({"path": str(path), "log": log.name})
            said = log.read()
        if status == "0" and "Success." in said: return ""
        ends = {str(-signal.SIGALRM): f"stopped after {SECONDS} s", "": "the process that runs notebooks died"}
        return f"{ends.get(status, f'exit status {status}')}\n{said}"

    def _ask(self, what: dict) -> str:
        if self.process is None:
            command = [sys.executable, "-P", __file__]      # -P: notebooks see no module of tests/
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            env={**os.environ, "MPLBACKEND": "agg", **ALONE})
        with contextlib.suppress(BrokenPipeError): print(json.dumps(what), file=self.process.stdin, flush=True)
        status = self.process.stdout.readline().strip()
        if not status: self.stop()
        return status

    def stop(self):
        "End the process; the next notebook starts another."
        if self.process is None: return
        with contextlib.suppress(BrokenPipeError): self.process.stdin.close()
        self.process.wait(SECONDS)
        self.process.stdout.close()
        self.process = None


if __name__ == "__main__": serve()
