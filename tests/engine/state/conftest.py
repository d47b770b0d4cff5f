"""Tables of both sizes."""

from collections.abc import Iterator

import pytest

from tests.support.simulation import small_sizes


@pytest.fixture(params=["resident", "large"])
def tables_of_size(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether tables are kept in memory whole."""
    if request.param == "resident":
        yield request.param
    else:
        with small_sizes():
            yield request.param
