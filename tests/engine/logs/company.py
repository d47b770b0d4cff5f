"""Containers of one root that know of each other: one makes the frames, the others submit to it (W18)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest import mock

from chunkstore import Store, open_store
from chunkstore.testing import Crashed
from engine.containers.container import Container
from engine.logs.replay import carried_in
from engine.logs.submission import inbox_folder
from engine.state.operations import Append, CreateSegment, Operation, Payload
from tests.engine.logs.stepped import Stepped
from tests.support.log_contracts import open_log
from tests.support.power import Killed
from tests.support.simulation import Simulation

S = "s/a"

STEPS = 6
"""What a process does while another one waits: it lists, takes in, sends and settles, and has two to spare."""


def processor_of(container: Container) -> Stepped:
    processor = container.log.processor
    assert isinstance(processor, Stepped)
    return processor


def appended(data: bytes, offset: int | None = None) -> Append:
    return Append(S, Payload(data), offset)


def carried(store: Store) -> int:
    """How many transactions the live frames of a log carry for others than their makers."""
    said = [carried_in(frame) for frame in open_log(store).follow()]
    return sum(answer.results is not None for each in said if each is not None for answer in each.answers)


class OnFolder(Simulation):
    """A root in a folder; each process has a store of its own, which knows nothing of what others did."""

    def __init__(self, folder: str, **settings: Any) -> None:
        super().__init__(linger=0.0, **settings)
        self.store.now = time.time()
        self.folder = folder

    def open(self, *, through: Store | None = None, **settings: Any) -> Container:
        return super().open(through=open_store(self.folder), **settings)


class Company:
    """Containers of one root that know of each other; the first one makes the frames. Each moves on when it is told
    to, or when one that `finishes` waits for it. One whose storage lets it crash is in `dead` and does no more.

    processor: how they move on. through: each one's way to the storage. others_work: a context for what the others do
    while one waits. settings: of `Simulation.open`.
    """

    processor: type[Stepped] = Stepped

    def __init__(
        self,
        others: int = 2,
        *,
        simulation: Simulation | None = None,
        through: Callable[[Store], Any] = lambda store: store,
        others_work: Callable[[], Any] = nullcontext,
        **settings: Any,
    ) -> None:
        self.simulation = simulation or Simulation(linger=0.0)
        self.stores = [through(self.simulation.store) for _ in range(1 + others)]
        self.dead: set[Container] = set()
        self.others_work = others_work
        self._working = False
        self.containers: list[Container] = []
        for store in self.stores:
            self.join(store, **settings)
        self.maker = self.containers[0]
        processor_of(self.maker).log.meet()
        self.now(self.maker, CreateSegment(S))
        for container in self.containers:
            container.refresh()
            processor_of(container).log.meet()

    @property
    def owner(self) -> Container:
        """The first of those who submit."""
        return self.containers[1]

    def join(self, store: Store | None = None, **settings: Any) -> Container:
        """One more process."""
        itself: list[Container] = []
        with mock.patch("engine.logs.durable_log.Processor", self.processor):
            itself.append(self.simulation.open(through=store, sleep=partial(self._sleep, itself), **settings))
        self.containers += itself
        return itself[0]

    def _sleep(self, sleeping: list[Container], seconds: float) -> None:
        """While one waits the others work, and wait for nobody."""
        self.simulation.advance(seconds)
        if not self._working:
            with self.others_work():
                self.work(*(each for each in self.containers if each not in sleeping))

    def work(self, *containers: Container) -> None:
        """Let these do what there is to do now."""
        self._working = True
        try:
            for container in containers:
                for _ in range(STEPS):
                    self.step(container)
        finally:
            self._working = False

    def step(self, container: Container) -> None:
        """Let one do the next thing that there is to do, if it lives."""
        processor = processor_of(container)
        self.let(container, processor.log.meet)
        self.let(container, processor.step)

    def let(self, container: Container, work: Callable[[], object]) -> None:
        """Let one do some work, if it lives; it may crash meanwhile."""
        if container in self.dead:
            return
        try:
            work()
        except (Crashed, Killed):
            self.dead.add(container)
            processor_of(container).die()

    def now(self, container: Container, *operations: Operation) -> None:
        """Let a container commit by itself, as if it were alone: the others do nothing while it waits."""
        processor = processor_of(container)
        working, self._working = self._working, True
        processor.submits = False
        try:
            future = container.submit(operations)
            for number in range(40):
                if number >= 4 and future.done():
                    break
                processor.step()
        finally:
            processor.submits = True
            self._working = working
        assert future.exception(0) is None

    def turn(self, *containers: Container) -> None:
        """Let some time pass, in which each of these does what there is to do."""
        for _ in range(30):
            for container in containers or self.containers:
                self.step(container)
            self.simulation.advance(0.001)

    def close_maker(self) -> None:
        """Let it finish all that it has begun, and close."""
        processor_of(self.maker).finishes = True
        self.maker.close()

    @property
    def inbox(self) -> list[str]:
        """What was submitted and not deleted."""
        return [info.path for info in self.simulation.store.list(inbox_folder(0))]

    @property
    def content(self) -> bytes:
        """What somebody reads who comes anew."""
        with self.simulation.open() as fresh:
            return fresh.read(S, 0, fresh.info(S).length)
