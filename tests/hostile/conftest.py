"""One warm worker for all tests of a process."""

import pytest

from hostile.pool import RemoteWorker


@pytest.fixture(scope="session")
def worker():
    made = RemoteWorker()
    yield made
    made.close()
