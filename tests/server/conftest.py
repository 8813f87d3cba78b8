import pytest
from server.serving import embedded, serving


@pytest.fixture(scope="session")
def client():
    """The embedded model, served with the usual settings."""
    with serving(embedded()) as found:
        yield found
