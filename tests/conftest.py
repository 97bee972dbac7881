"A JupyterLab, a browser and a PostgreSQL server, for the tests that want them."
from itertools import count

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


@pytest.fixture(scope="session")
def postgres():
    "A server in a temporary folder, one for all tests of this process."
    pytest.importorskip("psycopg", reason="psycopg isn't installed: pip install 'memkit[postgres]'")
    from memkit.core.server import server_programs, temporary_postgres
    try: server_programs()
    except FileNotFoundError as e: pytest.skip(str(e))
    with temporary_postgres() as address: yield address


NUMBER = count()


@pytest.fixture
def pg(postgres) -> str:
    "The address of an empty database of this test alone."
    from memkit.core.server import drop_database, new_database
    name = f"test_{next(NUMBER)}"
    yield new_database(postgres, name)
    drop_database(postgres, name)


@pytest.fixture(params=["file", "postgres"])
def place(request, tmp_path) -> str:
    "Where a store may be that outlives its process: a file, a server."
    return str(tmp_path/"s.db") if request.param == "file" else request.getfixturevalue("pg")
