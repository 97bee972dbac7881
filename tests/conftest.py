"A JupyterLab and a browser, for the tests that want them."
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
