"""The actors of jobs on a stream: queries, large events, writers that are interrupted, backups, sweeps of garbage."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

from engine.admin import root_gc
from engine.containers.container import Container
from pravega_spark import StreamScalingPolicy
from pravega_spark.checks import verify_root
from pravega_spark.streams.maintenance.chunk_ownership import ChunkOwnership
from tests.simulation import streams
from tests.simulation.actors import Actor, Collector, Flusher, begin_actors
from tests.simulation.backups import Copies, Keeper
from tests.simulation.history import History
from tests.simulation.interrupted import InterruptedWriter
from tests.simulation.ledger import require
from tests.simulation.plan import GRACE
from tests.simulation.sinks import Query
from tests.simulation.streams import SCOPE, STREAM, Events, StreamActor, seen
from tests.simulation.uploads import SMALL_PARTS, Uploader

ORPHAN_AGE = 20 * GRACE
"""Seconds after which a chunk that nothing names is an orphan; a task that takes longer is refused."""

ROUNDS = 4
"""How often garbage is collected at the end until there may be none."""


class Sweeper(StreamActor):
    """Collects garbage of the whole root, with chunks of tasks that were left."""

    def act(self) -> None:
        root = self.process.root

        def sweep() -> None:
            age = self.random.choice((GRACE / 2, ORPHAN_AGE))
            root_gc.collect_garbage(root, root_gc.find_garbage(root, ChunkOwnership(root), age), share=1.0)

        self.attempt("sweep", sweep)


KINDS: dict[str, tuple[type[Actor], int]] = {
    "query": (Query, 5),
    "uploader": (Uploader, 5),
    "keeper": (Keeper, 2),
    "writer": (streams.Writer, 1),
    "interrupted": (InterruptedWriter, 3),
    "transactor": (streams.Transactor, 1),
    "reader": (streams.Reader, 2),
    "scaler": (streams.Scaler, 2),
    "flusher": (Flusher, 2),
    "collector": (Collector, 2),
    "sweeper": (Sweeper, 2),
}
"""The actors, and how likely each is."""


def prepare(history: History) -> None:
    """A stream, and the actors of the plan."""
    history.shared = Events(lambda: history.world.now)
    manager = history.sound.manager
    manager.create_scope(SCOPE)
    scaling = StreamScalingPolicy.fixed_scaling_policy(history.plan.segments)
    manager.create_stream_with_policy(SCOPE, STREAM, scaling)
    begin_actors(history, KINDS)
    history.actors.insert(0, _Last(history, history.sound, "last"))


def patches(history: History, stack: ExitStack) -> None:
    """Parts of large events are small, and backups have their own storages."""
    for owner, name, value in SMALL_PARTS:
        stack.enter_context(mock.patch.object(owner, name, value))
    history.copies = Copies(history)
    stack.enter_context(history.copies.patched())


class _Last(StreamActor):
    """Reads all at the end; again when all garbage was collected. Then no object is left that nothing names."""

    def run(self) -> None:
        pass

    def check(self, container: Container) -> None:
        read = seen(self.manager.read_events(SCOPE, STREAM))
        self.events.check(read)
        if self.history.plan.seed % 3 == 0:
            self._tidy(container)
            again = seen(self.manager.read_events(SCOPE, STREAM))
            require(again == read, f"{len(read)} events were there before garbage was collected, then {len(again)}")

    def _tidy(self, container: Container) -> None:
        root, world = self.process.root, self.history.world
        for _ in range(ROUNDS):
            world.sleep(3 * GRACE)
            container.flush()
            found = root_gc.find_garbage(root, ChunkOwnership(root), 2 * GRACE)
            root_gc.collect_garbage(root, found, share=1.0)
        since = min((each.since for each in container.refresh().garbage.values()), default=None)
        now = container.storage_clock.now() * 1000
        require(since is None or since > now - 7000 * GRACE, f"garbage of {since} is there at {now}")
        report = verify_root(root, deep=True)
        require(not report.errors, f"verify: {list(report.findings)}")
        orphans = report.orphans
        require(orphans is not None and not orphans.number, f"objects that nothing names: {orphans}")
        for balance in report.balances:
            parts = balance.live + balance.truncated + balance.tables + balance.garbage
            parts += balance.recovery_points + balance.surplus
            require(parts == balance.total, f"{balance} does not add up")
        require(not container.idle_transients(), "uploads that are left do not expire")
