"A JupyterLab and a browser, one of each for all tests of a process that want them."
import pytest

import lab as labs


@pytest.fixture(scope="session")
def lab():
    server = labs.Lab()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def chromium():
    with labs.browser() as b: yield b
