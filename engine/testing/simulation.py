"""A root in memory with a clock of its own, the containers opened on it, and a bookkeeper for their states.

Nothing here sleeps or starts a thread: time passes when a test says so, or when a container would wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from chunkstore import Store
from chunkstore.testing import SimulatedStore
from engine import checksums, flush, layout, log, processor, reads
from engine.container import Container, Settings
from engine.log import Executor
from engine.reads import Stores
from engine.segments import FrameRef
from engine.state import State

BLOCK, MAX_PAYLOAD = 64, 256
"""The sizes within `small_sizes`, bytes."""


class Simulation:
    """A simulated root. `store` is its storage, whose clock `advance` moves together with the processes' own."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.store = SimulatedStore(seed)
        self.settings = {"grace": 600.0, "garbage_delay": 600.0, "upkeep": False, **settings}
        self._elapsed = 0.0

    def open(
        self,
        *,
        through: Store | None = None,
        exclusive: bool = False,
        executor: Executor | None = None,
        **settings: Any,
    ) -> Container:
        """Container 0 as another process would open it. `through`: a store that wraps this root's."""
        store = through or self.store
        return Container(
            Stores(store, store),
            0,
            Settings(threaded=False, **{**self.settings, **settings}),
            exclusive=exclusive,
            executor=executor,
            clock=self._clock,
            now=lambda: self.store.now,
            sleep=self.advance,
        )

    def advance(self, seconds: float) -> None:
        """Let time pass, for the storage and for all processes."""
        self.store.now += seconds
        self._elapsed += seconds

    def _clock(self) -> float:
        self._elapsed += 1e-4  # who polls until a deadline gets there
        return self._elapsed


@contextmanager
def small_sizes() -> Iterator[None]:
    """Frames, blocks and chunks so small that a few bytes span several of them."""
    with ExitStack() as patches:
        for owner, name, value in (
            (checksums, "BLOCK", BLOCK),
            (layout, "BLOCK", BLOCK),
            (reads, "BLOCK", BLOCK),
            (reads, "GAP", 16),
            (layout.Layout.__init__, "__defaults__", (None, MAX_PAYLOAD)),
            (processor, "MAX_PAYLOAD", MAX_PAYLOAD),
            (processor, "SPILL_BYTES", 2 * BLOCK),
            (flush, "MAX_CHUNK", 2 * MAX_PAYLOAD),
            (log, "FOLLOW_BYTES", 300),
        ):
            patches.enter_context(mock.patch.object(owner, name, value))
        yield


def audit(state: State) -> None:
    """Check a state's accounts against the segments that they are about."""
    references: Counter[str] = Counter()
    logged = {}
    for name, segment in state.segments.items():
        extents = list(segment.extents)
        assert segment.name == name
        assert 0 <= segment.start_offset <= segment.length
        end = extents[0][0] if extents else segment.length
        assert end <= segment.start_offset
        for offset, extent in extents:
            assert offset == end and extent.length > 0, f"{name}: a gap or an overlap at {offset}"
            assert offset + extent.length > segment.start_offset, f"{name}: an extent that nobody can read"
            end = offset + extent.length
        assert end == segment.length
        references.update(str(extent.source) for _, extent in extents if extent.flushed)
        logged[name] = sum(extent.length for _, extent in extents if isinstance(extent.source, FrameRef))
        assert segment.logged == logged[name]
        first = next((offset for offset, extent in extents if not extent.flushed), segment.length)
        assert segment.storage_length == first
    assert state.logged_bytes == sum(logged.values())
    assert set(state.unflushed) == {name for name, count in logged.items() if count}
    assert dict(state.chunks) == references
    assert not set(state.garbage) & set(references), "a chunk is garbage and in use"
