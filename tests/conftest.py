import pytest
from cli.ranks import end_all


@pytest.fixture(autouse=True)
def nothing_left_over():
    """No rank outlives the test that started it."""
    yield
    end_all()
