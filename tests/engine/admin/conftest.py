"""Small sizes, so that everything happens soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.simulation import small_sizes


@pytest.fixture
def small() -> Iterator[None]:
    with small_sizes():
        yield
