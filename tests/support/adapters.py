"""What lies below the stores that `open_store` returns."""

from __future__ import annotations

from typing import Any

from chunkstore import Store
from chunkstore.measured_store import MeasuredStore


def adapter_of(store: Store) -> Any:
    """The adapter that a store measures: its limits may be changed."""
    assert isinstance(store, MeasuredStore)
    return store.inner
