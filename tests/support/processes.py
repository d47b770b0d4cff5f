"""Simulated processes that share one log, their schedule drawn from a seed, and an observer who knows the truth.

A `Process` does with a `Log` what a container's processor does with it, in a few lines: it sends, acknowledges, catches
up, makes checkpoints and starts over. It may be interrupted at any of its requests, for as long as it likes, while the
others go on. The observer sees every frame at the moment it lands, so he knows which frames are live (W1) even when
they are deleted later; `World.check` holds what the processes believe against that.
"""

from __future__ import annotations

import os
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import msgpack

from chunkstore import ObjectNotFound, PutUnknown, StorageUnavailable, Store, stamps
from chunkstore.paths import container_folder
from chunkstore.port import TOKEN
from chunkstore.testing import Request, SimulatedExecutor, SimulatedStore, WrappingStore
from engine import errors
from engine.logs import frames
from engine.logs.age_evidence import EVERYTHING
from engine.logs.frames import START, Position
from engine.logs.log import Flight, Log, checkpoint_path, frame_path
from engine.logs.truncation import truncate_log
from engine.state.state import EMPTY, State

GRACE = 8.0
"""The grace period of a simulated log, seconds."""

EVERYTHING_FLUSHED: State = EMPTY._replace(checkpoint=1 << 62)
"""What a truncation of the log has to know of the container: that no segment needs a frame."""

Result = TypeVar("Result")
Item = tuple[int, int]
"""What a frame carries here: the number of the process, and of the item among the process's own."""


class ByHand:
    """An executor that carries out a request when the test says so; once it is `inline`, each at once."""

    def __init__(self) -> None:
        self.inline = False
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Keep the request for later."""
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: fn(*args)))
        if self.inline:
            self.land(-1)
        return future

    def land(self, index: int = 0) -> None:
        """Carry out one of the requests that wait."""
        future, call = self._waiting.pop(index)
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)


class Interrupted(WrappingStore):
    """A process's way to the storage: before and after each request the process may be stopped for a while.

    Frames are put by the executor, whose delays and order are drawn anyway.
    """

    def __init__(self, inner: Store, world: World) -> None:
        super().__init__(world.through(inner))
        self._world = world

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        world = self._world
        if request.verb == "put_if_absent" and "/wal/" in request.paths[0]:
            try:
                return call()
            finally:
                world.observe()
        world.interrupt()
        try:
            return call()
        finally:
            world.observe()
            world.interrupt()


class World:
    """A simulated storage, the processes that use it, and the time.

    Args:
        seed: everything is drawn from it. writers, readers: numbers of processes. flights: frames in flight of each.
        stalls: the chance that a process is stopped at a step, and that it is at one of its own requests.
        grace: what the truncator takes for the grace period; None: no checkpoints and no truncation.
        frozen: while a process is stopped, all of its host's clocks stand still, as if a hypervisor had stopped it.
        through: each process's way to the storage.
        faults: rates of `SimulatedStore`.
    """

    def __init__(
        self,
        seed: int,
        *,
        writers: int = 2,
        readers: int = 1,
        flights: int = 2,
        stalls: float = 0.0,
        grace: float | None = None,
        process: type[Process] | None = None,
        frozen: bool = False,
        through: Callable[[Store], Store] = lambda store: store,
        **faults: float,
    ) -> None:
        self.random = random.Random(seed)
        self.store = SimulatedStore(seed, **faults)  # type: ignore[arg-type]
        self.now = 0.0
        self.live: list[Item] = []
        self.truncated = 0
        self._faults = faults
        self._stalls = stalls
        self._frozen = frozen
        self.through = through
        self.truncates = grace is not None
        self._running: list[object] = []
        self._stopped: dict[Process, int] = {}  # for how many steps yet
        self._head, self._next = START, 0
        self._truncator = Truncator(self, grace) if grace is not None else None
        self.processes: list[Process] = []
        for number in range(writers + readers):
            self.processes.append((process or Process)(self, number, flights if number < writers else 0))

    # --- running -----------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Make so many steps and check; then let everything land and check again, from scratch too."""
        for number in range(steps):
            self.step()
            if number % 5 == 0:
                self.check()
        self._stalls = 0.0
        self._running += [*self.processes, self._truncator]  # nobody does anything by itself any more
        with self.calm():
            for process in self.processes:
                process.finish()
            self.store.arrive()
            self.observe()
            self.check()
            newcomer = type(self.processes[0])(self, len(self.processes), 0)
            newcomer.follow()
            assert newcomer.applied == self.live, "who starts from scratch sees another log"
            for process in self.processes:
                process.follow()
                assert process.applied == self.live, f"process {process.number} does not see the whole log"

    def step(self) -> None:
        """Time passes, or a frame lands, or somebody who is not stopped does something."""
        self._stopped = {process: steps - 1 for process, steps in self._stopped.items() if steps > 1}
        if self.processes and self.random.random() < self._stalls:
            self._stopped[self.random.choice(self.processes)] = 60
        chance = self.random.random()
        awake = [process for process in self.processes if process not in self._stopped]
        if chance < 0.1:
            self.advance(self.random.choice((0.1, 0.5, 1.0, 3.0)))
        elif chance < 0.4:
            if awake:
                self.random.choice(awake).executor.step()
        else:
            actors = [actor for actor in (*awake, self._truncator) if actor and actor not in self._running]
            if actors:
                actor = self.random.choice(actors)
                self._running.append(actor)
                try:
                    actor.act()
                finally:
                    self._running.remove(actor)

    def interrupt(self) -> None:
        """Stop whoever runs now for a while."""
        if self._stalls and self.random.random() < self._stalls:
            with stamps.listening():  # others are told the storage's time, which it does not hear
                for _ in range(self.random.choice((3, 60))):
                    self.step()

    def advance(self, seconds: float, by: Process | None = None) -> None:
        """Let time pass, for the storage and for all processes, except for those whose host is stopped meanwhile.

        by: the process that sleeps for so long, which is not stopped.
        """
        for process in self.processes if self._frozen else ():
            if process is not by and (process in self._stopped or process in self._running):
                process.lost += seconds
        self.now += seconds
        self.store.now += seconds

    @contextmanager
    def calm(self) -> Iterator[None]:
        """No request meets a fault meanwhile."""
        rates = {name: getattr(self.store, name) for name in self._faults}
        for name in rates:
            setattr(self.store, name, 0.0)
        try:
            yield
        finally:
            for name, rate in rates.items():
                setattr(self.store, name, rate)

    # --- the truth ---------------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Note what has become live. Called whenever a frame may have landed."""
        with self.calm():
            while True:
                path = frame_path(0, self._next)
                try:
                    data = self.store.read(path)
                except ObjectNotFound:
                    return
                frame = frames.decode(data, path, 0, self._next, whole=True)
                if frame.follows(self._head):
                    self._head = frame.position
                    number, index = msgpack.unpackb(frame.meta)
                    self.live.append((number, index))
                self._next += 1

    def check(self) -> None:
        """Hold what the processes believe against the truth."""
        count = Counter(self.live)
        assert len(count) == len(self.live), "something is in the log twice"
        for process in self.processes:
            assert all(count[item] for item in process.acknowledged), f"process {process.number}: a lost ack"
            assert process.applied == self.live[: len(process.applied)], f"process {process.number} sees another log"
            assert not any(count[item] for item in process.given_up), "what was reported lost is in the log"
            own = [item for item in self.live if item[0] == process.number]
            assert own == sorted(own), f"the items of process {process.number} are not in order"


class Process:
    """One process: `applied` is the log as it knows it, `acknowledged` what it told its callers to be durable.

    given_up: lost a race and was not tried again. unknown: its callers were told that the outcome is unknown.
    """

    def __init__(self, world: World, number: int, flights: int) -> None:
        self.world = world
        self.number = number
        self.flights = flights
        self.applied: list[Item] = []
        self.acknowledged: list[Item] = []
        self.given_up: list[Item] = []
        self.unknown: list[Item] = []
        self.restarts = 0
        self.lost = 0.0
        self.executor = SimulatedExecutor(world.random.randrange(1 << 30))
        self._store = Interrupted(world.store, world)
        self._again: deque[Item] = deque()
        self._made = 0
        self.start()

    def start(self) -> None:
        """Open from the newest checkpoint (W6)."""
        while True:
            proof = self.clock()
            try:
                with stamps.listening() as noted:
                    listed = self._store.list(f"{container_folder(0)}/checkpoints/")
                head, applied = self._load(listed[-1].path) if listed else (START, [])
                break
            except (ObjectNotFound, StorageUnavailable):
                self.world.advance(0.01, self)
        self.applied = applied
        self.log = Log(
            self._store,
            0,
            head,
            proof,
            grace=GRACE,
            executor=self.executor,
            timeout=2.0,
            clock=self.clock,
            wall=self.clock,
            stamp=noted.first,
            sleep=self._sleep,
            new_writer=lambda: self.world.random.randbytes(16),
        )

    def clock(self) -> float:
        """What this process's host shows, on all of its clocks."""
        return self.world.now - self.lost

    def _load(self, path: str) -> tuple[Position, list[Item]]:
        head, applied = msgpack.unpackb(self._store.read(path)[TOKEN:])
        return Position(*head), [(number, index) for number, index in applied]

    def _sleep(self, seconds: float) -> None:
        self.world.advance(seconds, self)
        self.world.step()

    def act(self) -> None:
        """Do one thing."""
        draw = self.world.random.random()
        if self.log.flights and (len(self.log.flights) == self.flights or draw < 0.5):
            self.settle()
        elif self.flights and draw < 0.9 and not self.log.unapplied:
            self.send()
        elif not self.log.flights:
            self.follow()

    def send(self) -> None:
        """Send the next item."""
        if self._again:
            item = self._again.popleft()
        else:
            item = (self.number, self._made)
            self._made += 1
        self.log.send(msgpack.packb(item), [], item)

    def settle(self) -> None:
        """Wait for the first frame in flight and act on its outcome."""
        try:
            flight = self.log.settle()
        except errors.Overtaken:
            self._lost([flight.body for flight in self.log.drop()])
            self.follow()
        except errors.LogMoved:
            self._give_up_on(self.log.drop())
            self._start_over()
        except errors.OutcomeUnknown:
            self._give_up_on(self.log.renew())
        else:
            self.applied.append(flight.body)
            self.acknowledged.append(flight.body)
            if self.world.truncates and self.world.random.random() < 0.2:
                self.checkpoint()

    def _lost(self, items: list[Item]) -> None:
        """Try again, or tell the callers that it was not done."""
        again = [item for item in items if self.world.random.random() < 0.8]
        self.given_up += [item for item in items if item not in again]
        self._again.extendleft(reversed(again))

    def _give_up_on(self, flights: list[Flight]) -> None:
        self.unknown += [flight.body for flight in flights]

    def _start_over(self) -> None:
        self.restarts += 1
        self.start()

    def follow(self) -> bool:
        """Read on and apply. False when the storage did not answer."""
        return self._read(self.log.follow)

    def _read(self, read: Callable[[], list[frames.Frame]]) -> bool:
        try:
            for frame in read():
                number, index = msgpack.unpackb(frame.meta)
                self.applied.append((number, index))
        except errors.LogMoved:
            self._start_over()
            return self._read(self.log.follow)
        except StorageUnavailable:
            return False
        return True

    def checkpoint(self) -> None:
        """Make the checkpoint object of the frame that was settled last, which covers all frames before it."""
        data = os.urandom(TOKEN) + msgpack.packb([list(self.log.head), self.applied])
        try:
            self._store.put_if_absent(checkpoint_path(0, self.log.head.address), data)
        except PutUnknown:
            return  # the next one will do

    def finish(self) -> None:
        """Settle everything that is in flight."""
        while self.log.flights:
            self.settle()


class Truncator:
    """A process that truncates the log, and like the others may be stopped at each request."""

    def __init__(self, world: World, grace: float) -> None:
        self.world = world
        self._grace = grace
        self._store = Interrupted(world.store, world)

    def act(self) -> None:
        """Truncate."""
        try:
            now = self._store.clock()
            covered = EVERYTHING.address
            deleted = truncate_log(self._store, 0, lambda: EVERYTHING_FLUSHED, self._grace, now, covered)
            self.world.truncated += deleted
        except StorageUnavailable:
            return
