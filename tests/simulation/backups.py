"""Actors that back the root up while others write, and restore it: all that was acknowledged before the backup began is
there, where it was, and nothing that was not written."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from chunkstore import Store
from chunkstore.paths import ROOT
from chunkstore.testing import SimulatedStore
from engine.admin import backups
from engine.containers.container import Container
from engine.root import Root, RootConfig
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.checks import verify_root
from tests.simulation.history import History, Process
from tests.simulation.ledger import Outcome, require
from tests.simulation.network import Faults, HostStore
from tests.simulation.streams import SCOPE, STREAM, StreamActor, seen


class Copies:
    """The places of backups and restored roots, each with a storage of its own, in the place of URLs."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._objects: dict[str, SimulatedStore] = {}

    def open(self, url: str, options: Mapping[str, Any] | None = None) -> Store:
        """The storage of a place, as the host that asks reaches it."""
        history, task = self._history, self._history.world.current
        assert task is not None
        store = self._objects.setdefault(url, SimulatedStore(history.plan.seed, remote=True, can_append=False))
        faulty = task.host is not history.sound.host and history.world.now < history.plan.faulty
        faults = history.plan.faults if faulty else Faults()
        chance = random.Random(f"{history.plan.seed}/{url}/{history.world.now}")
        return HostStore(store, task.host, chance, faults, history.plan.median, history.plan.delay)

    def patched(self) -> AbstractContextManager[object]:
        """Within it, backups use these. The self-test of a storage, which profiles its threads, is left out."""
        return mock.patch.multiple(backups, open_store=self.open, self_test=lambda store: None)


class Keeper(StreamActor):
    """Backs the root up, again and again to the same place."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._acknowledged: set[bytes] | None = None
        self._place = f"simulated://{name.replace(' ', '-')}"

    def successor(self, process: Process) -> Keeper:
        """Another process continues to update the same backup."""
        return Keeper(self.history, process, self.name)

    def act(self) -> None:
        if self.begun % 3:
            return
        before = set(self.events.acknowledged)
        outcome, _ = self.attempt("back up", lambda: backups.back_up(self.process.root, self._place))
        if outcome is Outcome.DONE:
            self._acknowledged = before

    def check(self, container: Container) -> None:
        """Restore the backup, and read it."""
        if self._acknowledged is None:
            return
        target = f"{self._place}-restored-from-{self.process.host.name}"
        backups.restore(self._place, target)
        root = self._opened(lambda: self.history.copies.open(target))
        manager = StreamManager.over(root)
        read = seen(manager.read_events(SCOPE, STREAM))
        self.events.saw(read, f"the reader of {self.name}")
        missing = sorted(self._acknowledged - {each.data for each in read})
        require(not missing, f"{self.name}: acknowledged before the backup began, and not in it: {missing}")
        self.events.check_together({each.data for each in read})
        with manager.create_writer(SCOPE, STREAM) as writer:
            writer.write_event("after the restore", routing_key="k")
        again = [each.data for each in seen(manager.read_events(SCOPE, STREAM))]
        require(again.count(b"after the restore") == 1, f"{self.name}: the restored root has {again[-1]!r} at its end")
        require([each for each in again if each in {one.data for one in read}] == [each.data for each in read], "order")
        report = verify_root(root, deep=True)
        require(not report.errors, f"{self.name}: the restored root: {list(report.findings)}")
        root.close()

    def _opened(self, opener: Callable[[], Store]) -> Root:
        store = opener()
        config = RootConfig.from_bytes(store.read(ROOT), store.root)
        return Root(Stores(store, store), config, self.history.settings, described=True)
