"""The actors that use a container: writers of several kinds, readers, and maintenance."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from chunkstore import StorageError
from engine.containers.container import Container
from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    ClocksDisagree,
    ContainerOffline,
    FlushIncomplete,
    OutcomeUnknown,
    Rejected,
    SegmentNotFound,
    SegmentTruncated,
    Throttled,
)
from engine.state.operations import Append, AttributeUpdate, CreateSegment, Operation, Payload, UpdateKind
from engine.state.segments import transient_name
from tests.simulation.history import UNSOUND, History, Process
from tests.simulation.ledger import Outcome, Written, require
from tests.simulation.world import Task

T = TypeVar("T")

PASSING = (StorageError, ContainerOffline, Throttled, ClocksDisagree, FlushIncomplete)
"""Errors that a caller may get where the storage fails, or clocks are wrong."""


class Actor:
    """Somebody who uses the product. done: its work is; begun: operations so far."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        self.history = history
        self.process = process
        self.name = name
        self.random = random.Random(f"{history.plan.seed}/{name}")
        self.done = False
        self.begun = 0
        self.task: Task | None = None

    def start(self) -> None:
        """Begin its thread."""
        self.task = self.history.world.spawn(self.process.host, self.name, self._run)

    def _run(self) -> None:
        self.run()
        self.done = True
        self.note("done")

    def run(self) -> None:
        """What it does: so many operations, with pauses."""
        for _ in range(self.history.plan.operations):
            self.pause()
            self.begun += 1
            self.act()

    def act(self) -> None:
        """One operation."""
        raise NotImplementedError

    def check(self, container: Container) -> None:
        """What is true for it at the end."""

    def successor(self, process: Process) -> Actor | None:
        """Who continues its work in another process, after its own was killed."""
        return None

    def note(self, what: str) -> None:
        """Add to the trace."""
        self.history.world.note(self.name, what)

    def pause(self) -> None:
        """Do nothing for some time."""
        self.history.world.sleep(self.random.expovariate(1 / self.history.plan.pause))

    def segment(self) -> str:
        """One of the history's segments."""
        return f"s/{self.random.randrange(self.history.plan.segments)}"

    def padding(self) -> int:
        """How long a record is."""
        return self.random.choice((0, 0, 5, 40, 300))

    def attempt(self, what: str, call: Callable[[], Any]) -> tuple[Outcome, Any]:
        """Do something. DONE with its result; UNKNOWN or REFUSED with the error. A Rejected error is the caller's."""
        self.note(what)
        try:
            with self._call():
                result = call()
        except UNSOUND:
            raise
        except OutcomeUnknown as error:
            self.note(f"{what}: unknown: {error}")
            return Outcome.UNKNOWN, error
        except (*PASSING, Rejected) as error:
            self.note(f"{what}: {type(error).__name__}: {error}")
            return Outcome.REFUSED, error
        self.note(f"{what}: done")
        return Outcome.DONE, result

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Within it, the product is called."""
        task = self.history.world.current
        assert task is not None
        task.host.calls += 1
        try:
            yield
        finally:
            task.host.calls -= 1

    def patiently(self, what: str, call: Callable[[], T]) -> T:
        """Do something that may be repeated until it succeeds."""
        while True:
            outcome, result = self.attempt(what, call)
            if outcome is Outcome.DONE:
                done: T = result
                return done
            if isinstance(result, Rejected):
                raise result
            self.history.world.sleep(0.3)


class Writer(Actor):
    """Appends records, one at a time or several under way."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._submitted: list[Written] = []
        self._completed: list[Written] = []

    def act(self) -> None:
        if self.random.random() < 0.3:
            self._pipelined()
        else:
            self._single()

    def _single(self) -> None:
        ledger, segment = self.history.ledger, self.segment()
        padding = self.padding()
        container = self.patiently("open", self.process.container)
        written = ledger.begin(self.name, segment, padding)
        outcome, result = self.attempt(f"append {written.number}", lambda: container.append(segment, written.data))
        if outcome is Outcome.DONE:
            ledger.done(written, result)
        else:
            require(not isinstance(result, Rejected), f"{written} was rejected: {result}")
            ledger.ended(written, outcome)

    def _pipelined(self) -> None:
        ledger, segment = self.history.ledger, self.segment()
        container = self.patiently("open", self.process.container)
        under_way: list[tuple[Written, Any]] = []
        for _ in range(self.random.randint(2, 5)):
            written = ledger.begin(self.name, segment, self.padding())
            try:
                self.note(f"submit {written.number}")
                with self._call():
                    future = container.submit_append(segment, written.data)
            except (*PASSING, OutcomeUnknown) as error:
                self.note(f"submit {written.number}: {error}")
                ledger.ended(written, Outcome.REFUSED)
                continue
            future.add_done_callback(partial(self._complete, written))
            self._submitted.append(written)
            under_way.append((written, future))
        for written, future in under_way:
            outcome, result = self.attempt(f"wait for {written.number}", future.result)
            if outcome is Outcome.DONE:
                ledger.done(written, result.results[0])
            else:
                require(not isinstance(result, Rejected), f"{written} was rejected: {result}")
                ledger.ended(written, outcome)

    def _complete(self, written: Written, _: object) -> None:
        self._completed.append(written)

    def check(self, container: Container) -> None:
        if self.done:
            completed = sorted(each.number for each in self._completed)
            require(completed == [each.number for each in self._submitted], f"{self.name}: completed {completed}")


class Producer(Actor):
    """Writes numbered records exactly once: each append compares and sets the number of the last one."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._segment = self.segment()
        self._attribute = name.encode().ljust(16, b"\0")[:16]
        self._written: list[Written] = []

    def act(self) -> None:
        ledger = self.history.ledger
        if self._written and self._written[-1].outcome is Outcome.PENDING:
            written = self._written[-1]  # of the process that was killed
        else:
            written = ledger.begin(self.name, self._segment, self.padding())
            self._written.append(written)
        number, offset = written.number, None
        kind = UpdateKind.REPLACE_IF_EQUALS if number > 1 else UpdateKind.NONE
        update = AttributeUpdate(self._attribute, kind, number, number - 1)
        while True:
            container = self.patiently("open", self.process.container)
            outcome, result = self.attempt(
                f"append number {number}",
                partial(container.append, self._segment, written.data, updates=[update]),
            )
            if outcome is Outcome.DONE:
                offset = result
                break
            last = self.patiently("look up the last number", self._last)
            require(last in (number - 1, number), f"{self.name}: the last number is {last}, not {number - 1}")
            if last == number:
                break
            require(not isinstance(result, BadAttributeUpdate), f"{self.name}: {number} was rejected after {last}")
            self.history.world.sleep(0.1)
        ledger.done(written, offset)

    def successor(self, process: Process) -> Producer:
        follower = Producer(self.history, process, self.name)
        follower.inherit(self._segment, self._written)
        return follower

    def inherit(self, segment: str, written: list[Written]) -> None:
        """Continue what another one did."""
        self._segment, self._written = segment, written

    def _last(self) -> int:
        return self.process.container().attributes(self._segment, [self._attribute]).get(self._attribute, 0)

    def check(self, container: Container) -> None:
        last = container.attributes(self._segment, [self._attribute]).get(self._attribute, 0)
        count = len(self._written)
        require(last in (count, count - 1), f"{self.name}: the last number is {last}, of {count}")
        for written in self._written[: count - 1]:
            require(written.outcome is Outcome.DONE, f"{written} was not acknowledged before the next one")


class Transactor(Actor):
    """Appends to two segments in one step, or merges a transient segment, or abandons one."""

    def act(self) -> None:
        container = self.patiently("open", self.process.container)
        if self.random.random() < 0.4:
            self._both(container)
        else:
            self._merged(container)

    def _both(self, container: Container) -> None:
        segments = sorted({self.segment(), self.segment(), self.segment()})
        group = self.history.ledger.begin_together(self.name, segments, self.padding())
        operations: list[Operation] = [Append(each.segment, Payload(each.data)) for each in group]
        outcome, result = self.attempt(f"append to {segments} together", lambda: container.commit(operations))
        require(not isinstance(result, Rejected), f"{group} was rejected: {result}")
        for place, written in enumerate(group):
            if outcome is Outcome.DONE:
                self.history.ledger.done(written, result.results[place])
            else:
                self.history.ledger.ended(written, outcome)

    def _merged(self, container: Container) -> None:
        ledger, target = self.history.ledger, self.segment()
        name = transient_name(target, uuid.uuid4(), uuid.uuid4())
        if self.attempt("begin", lambda: container.commit([CreateSegment(name, (), target)]))[0] is not Outcome.DONE:
            return
        group: list[Written] = []
        complete = True
        for _ in range(self.random.randint(1, 3)):
            written = ledger.begin(self.name, target, self.padding())
            group.append(written)
            complete = (
                complete and self.attempt("add", partial(container.append, name, written.data))[0] is Outcome.DONE
            )
            if not complete:
                break
            if self.random.random() < 0.3:
                self.pause()
        if not complete or self.random.random() < 0.3:
            self.attempt("abort", lambda: container.delete(name))
            for written in group:
                ledger.ended(written, Outcome.REFUSED)
            return
        outcome, result = self.attempt("merge", lambda: container.merge(target, name))
        if isinstance(result, Rejected):
            require(isinstance(result, SegmentNotFound), f"a merge was rejected: {result}")  # it expired
        ledger.together.append(group)
        place: Any = result
        for written in group:
            if outcome is Outcome.DONE:
                ledger.done(written, place)
                place += len(written.data)
            else:
                ledger.ended(written, outcome)


class Reader(Actor):
    """Reads each segment on from where it is, and everything now and then."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._positions: dict[str, int] = {}

    def act(self) -> None:
        ledger, segment = self.history.ledger, self.segment()
        content = ledger.contents[segment]
        least, least_start = content.length, content.start
        place = self._positions.get(segment, 0) if self.random.random() < 0.8 else 0

        def read() -> tuple[int, int, bytes]:
            container = self.process.container()
            info = container.info(segment)
            begin = max(place, info.start_offset)
            return info.length, info.start_offset, container.read(segment, begin, info.length)

        outcome, result = self.attempt(f"read {segment} from {place}", read)
        if outcome is not Outcome.DONE:
            if isinstance(result, Rejected):
                require(isinstance(result, SegmentTruncated), f"{self.name}: {result}")
            return
        length, start, data = result
        begin = max(place, start)
        require(length >= least, f"{self.name}: {segment} has {length} bytes, but had {least} before")
        require(start >= least_start, f"{self.name}: {segment} begins at {start}, but began at {least_start} before")
        require(len(data) == length - begin, f"{self.name}: {len(data)} bytes of {segment} from {begin} to {length}")
        ledger.saw(segment, begin, data, self.name)
        ledger.reached(segment, length, start)
        self._positions[segment] = length


class Flusher(Actor):
    """Flushes the container, makes checkpoints, truncates the log."""

    def act(self) -> None:
        work = self.random.choice(("flush", "flush", "checkpoint", "truncate_log"))
        self.attempt(work, lambda: getattr(self.process.container(), work)())


class Collector(Actor):
    """Collects garbage and expires transient segments."""

    def act(self) -> None:
        work = self.random.choice(("collect_garbage", "collect_garbage", "expire_transients", "truncate_log"))
        self.attempt(work, lambda: getattr(self.process.container(), work)())


class Retention(Actor):
    """Truncates segments at records that were acknowledged."""

    def act(self) -> None:
        ledger, segment = self.history.ledger, self.segment()
        offsets = [each.offset for each in ledger.written if each.segment == segment and each.offset is not None]
        if not offsets:
            return
        offset = self.random.choice(offsets)
        outcome, _ = self.attempt(
            f"truncate {segment} at {offset}", lambda: self.process.container().truncate(segment, offset)
        )
        if outcome is Outcome.DONE:
            ledger.reached(segment, offset, offset)


class Counter(Actor):
    """Counts in an entry of a table, by its version."""

    KEY = "counted"

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self.sure = 0
        self.perhaps = 0

    def act(self) -> None:
        container = self.patiently("open", self.process.container)
        if self.attempt("refresh", container.refresh)[0] is not Outcome.DONE:
            return
        outcome, entry = self.attempt("look up", lambda: container.entry("t", self.KEY))
        if outcome is not Outcome.DONE:
            return
        before, version = (int(entry.value), entry.version) if entry is not None else (0, -1)
        self.perhaps += 1  # until it is known
        value = b"%d" % (before + 1)
        outcome, result = self.attempt(
            f"count to {before + 1}", lambda: container.put_entries("t", {self.KEY: value}, {self.KEY: version})
        )
        if outcome is not Outcome.UNKNOWN:
            self.perhaps -= 1
        self.sure += outcome is Outcome.DONE
        if isinstance(result, Rejected):
            require(isinstance(result, BadKeyVersion), f"{self.name}: {result}")

    def check(self, container: Container) -> None:
        counters = [actor for actor in self.history.actors if isinstance(actor, Counter)]
        least, more = sum(each.sure for each in counters), sum(each.perhaps for each in counters)
        entry = container.entry("t", self.KEY)
        value = int(entry.value or b"0") if entry is not None else 0
        require(least <= value <= least + more, f"counted to {value}, by {least} calls and perhaps {more} more")


class ShortLived(Actor):
    """Processes that commit once: some close, some are killed."""

    def act(self) -> None:
        world = self.history.world
        process = self.history.process(f"{self.name} process {self.begun}", self.begun)
        task = world.spawn(process.host, self.name, lambda: self._commit(process))
        if self.random.random() < 0.3:
            world.at(world.now + self.random.expovariate(1 / (10 * self.history.plan.median)), process.host.kill)
        while not task.ended and not process.host.dead:
            world.sleep(0.05)

    def _commit(self, process: Process) -> None:
        ledger, segment = self.history.ledger, self.segment()
        container = self.patiently("open", process.container)
        written = ledger.begin(self.name, segment, self.padding())
        outcome, result = self.attempt(f"append {written.number}", lambda: container.append(segment, written.data))
        if outcome is Outcome.DONE:
            ledger.done(written, result)
        else:
            ledger.ended(written, outcome)
        self.attempt("close", process.root.close)


KINDS: dict[str, tuple[type[Actor], int]] = {
    "writer": (Writer, 6),
    "producer": (Producer, 4),
    "transactor": (Transactor, 3),
    "reader": (Reader, 3),
    "flusher": (Flusher, 3),
    "collector": (Collector, 2),
    "retention": (Retention, 1),
    "counter": (Counter, 2),
    "short-lived": (ShortLived, 2),
}
"""The actors, and how likely each is."""


def begin_actors(history: History, kinds: Mapping[str, tuple[type[Actor], int]]) -> None:
    """The actors of the plan."""
    for kind, host, number in history.plan.actors:
        history.actors.append(kinds[kind][0](history, history.processes[host], f"{kind} {number}"))


def prepare(history: History) -> None:
    """Segments, and the actors of the plan."""
    container = history.sound.container()
    for number in range(history.plan.segments):
        container.create_segment(f"s/{number}")
        history.ledger.reached(f"s/{number}", 0)
    begin_actors(history, KINDS)
