"""A root in memory with a clock of its own, the containers opened on it, and a bookkeeper for their states.

Nothing here sleeps or starts a thread: time passes when a test says so, or when a container would wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from chunkstore import Store, checksums
from chunkstore.testing import SimulatedStore
from engine.admin.checks.reference_counts import state_problems
from engine.containers import maintenance_scheduler
from engine.containers.container import Container
from engine.logs import commit_queue, log, payload as layout, transaction, truncation, validation
from engine.logs.log import Executor
from engine.settings import Settings
from engine.state import tables
from engine.state.state import State
from engine.storage import object_reads
from engine.storage.object_reads import Stores
from engine.writer import flush_steps, storage_writer, table_writer

BEHIND = 28
"""The frames that an opening looks for behind the log's end in a folder (W21), by one request."""

BLOCK, MAX_PAYLOAD = 64, 256
"""The sizes within `small_sizes`, bytes."""


class Simulation:
    """A simulated root. `store` is its storage, whose clock `advance` moves together with the processes' own."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.store = SimulatedStore(seed)
        self.settings = {"grace": 600.0, "garbage_delay": 600.0, "maintenance": False, **settings}
        self._elapsed = 0.0

    def open(
        self,
        *,
        through: Store | None = None,
        exclusive: bool = False,
        repair: int | None = None,
        unread: bool = False,
        executor: Executor | None = None,
        sleep: Callable[[float], None] | None = None,
        stopped: Callable[[], float] = lambda: 0.0,
        **settings: Any,
    ) -> Container:
        """Container 0 as another process would open it. `through`: a store that wraps this root's. repair: the address
        of a damaged frame that is given up first. unread: see Container. sleep: what it does to wait; None: it lets
        time pass. stopped: the seconds for which its host was stopped so far, with all of its clocks."""
        store = through or self.store
        container = Container(
            Stores(store, store),
            0,
            Settings(threaded=False, **{**self.settings, **settings}),
            exclusive=exclusive,
            unread=unread or repair is not None,
            executor=executor,
            clock=lambda: self.clock() - stopped(),
            now=lambda: self.store.now - stopped(),
            sleep=sleep or self.advance,
        )
        if repair is not None:
            container.repair(repair)
            container.refresh()
        return container

    @property
    def stores(self) -> Stores:
        """The root's storage, twice."""
        return Stores(self.store, self.store)

    def advance(self, seconds: float) -> None:
        """Let time pass, for the storage and for all processes."""
        self.store.now += seconds
        self._elapsed += seconds

    def clock(self) -> float:
        self._elapsed += 1e-4  # who polls until a deadline gets there
        return self._elapsed


@contextmanager
def small_sizes() -> Iterator[None]:
    """Frames, blocks and chunks so small that a few bytes span several of them. Few checkpoints are kept."""
    with ExitStack() as patches:
        for owner, name, value in (
            (maintenance_scheduler, "CHECKPOINT_BYTES", 4096),
            (truncation, "KEPT_BYTES", 0),
            (truncation, "POINTS", 3),
            (truncation, "OPENING", 0.1),
            (checksums, "BLOCK", BLOCK),
            (layout, "BLOCK", BLOCK),
            (object_reads, "BLOCK", BLOCK),
            (object_reads, "GAP", 16),
            (layout.Layout.__init__, "__defaults__", (None, MAX_PAYLOAD)),
            (commit_queue, "MAX_PAYLOAD", MAX_PAYLOAD),
            (validation, "MAX_PAYLOAD", MAX_PAYLOAD),
            (transaction, "SPILL_BYTES", 2 * BLOCK),
            (flush_steps, "MAX_CHUNK", 2 * MAX_PAYLOAD),
            (storage_writer, "CACHED_ATTRIBUTES", 0),
            (tables, "RESIDENT_BYTES", 40),
            (table_writer, "FEW_EXTENTS", 2),
            (log, "FOLLOW_BYTES", 300),
        ):
            patches.enter_context(mock.patch.object(owner, name, value))
        yield


def audit(state: State) -> None:
    """Check a state's accounts against the segments and tables that they are about."""
    problems = [f"{problem.object}: {problem.problem}" for problem in state_problems(state)]
    assert not problems, problems
