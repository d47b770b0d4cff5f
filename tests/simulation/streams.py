"""The actors that use streams by the Python API: writers, producers, transactions, readers, followers, scales and
truncations; and what must be true of the events that they write and read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, NamedTuple

from engine.containers.container import Container
from pravega_spark import StreamManager
from pravega_spark.client.event import Event
from pravega_spark.client.transaction import StreamTransaction
from pravega_spark.client.writer import EventWriter
from pravega_spark.errors import (
    InvalidScale,
    InvalidStreamCut,
    StreamError,
    TransactionClosed,
    TransactionNotFound,
    TruncatedData,
)
from pravega_spark.streams.model.policies import ScalingPolicy
from tests.simulation.actors import Actor, Collector, Flusher, begin_actors
from tests.simulation.history import History, Process
from tests.simulation.ledger import Outcome, require

SCOPE, STREAM = "scope", "stream"


class Written:
    """An event that was given to a writer. key: its routing key; begun, ended: when."""

    def __init__(self, writer: str, key: str, number: int, begun: float, padding: int = 0) -> None:
        self.writer = writer
        self.key = key
        self.number = number
        self.data = f"{writer}|{key}|{number}{'|' * bool(padding)}".encode() + b"x" * padding
        self.begun = begun
        self.ended = float("inf")
        self.outcome = Outcome.PENDING

    def __str__(self) -> str:
        return f"{self.writer}|{self.key}|{self.number} ({self.outcome.value})"


class Seen(NamedTuple):
    """An event as it was read."""

    data: bytes
    segment: int
    offset: int


class Events:
    """All events of a history: what became of each, and where it was seen."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.written: dict[bytes, Written] = {}
        self.together: list[list[Written]] = []
        self.truncated: set[bytes] = set()
        self.places: dict[bytes, tuple[int, int]] = {}
        self._clock = clock
        self._numbers: Counter[str] = Counter()

    def begin(self, writer: str, key: str, padding: int = 0) -> Written:
        """An event that is about to be written."""
        self._numbers[writer] += 1
        written = Written(writer, key, self._numbers[writer], self._clock(), padding)
        self.written[written.data] = written
        return written

    def end(self, written: Iterable[Written], outcome: Outcome) -> None:
        """What became of them."""
        for each in written:
            require(each.outcome is Outcome.PENDING, f"{each} is completed twice")
            each.outcome, each.ended = outcome, self._clock()

    @property
    def acknowledged(self) -> set[bytes]:
        """Those that are there for sure."""
        return {data for data, written in self.written.items() if written.outcome is Outcome.DONE}

    def saw(self, read: list[Seen], by: str, whole: bool = True) -> None:
        """Check what a reader got, in its order: each event once, where it was before, those of a writer and a key in
        order. whole: the reader began at the stream's head, or before its first event."""
        times = Counter(each.data for each in read)
        latest: dict[tuple[str, str], Written] = {}
        begun: dict[str, Written] = {}
        for each in read:
            written = self.written.get(each.data)
            require(written is not None, f"{by}: {each} was never written")
            assert written is not None
            require(times[each.data] == 1, f"{by} read {written} {times[each.data]} times")
            require(written.outcome is not Outcome.REFUSED, f"{by} read {written}, which was not written")
            place = self.places.setdefault(each.data, (each.segment, each.offset))
            require(place == (each.segment, each.offset), f"{by} read {written} at {each}, and it was at {place}")
            before = latest.get((written.writer, written.key))
            require(before is None or before.number < written.number, f"{by} read {before} before {written}")
            latest[written.writer, written.key] = written
            other = begun.get(written.key)
            if other is not None:
                require(written.ended >= other.begun, f"{by} read {other} before {written}, which ended before")
            if other is None or written.begun > other.begun:
                begun[written.key] = written

    def check(self, read: list[Seen]) -> None:
        """Check what is there at the end, and what was read before it was truncated."""
        self.saw(read, "the last reader")
        there = {each.data for each in read} | self.places.keys()
        lost = [str(self.written[data]) for data in self.acknowledged - there]
        require(not lost, f"acknowledged and lost: {sorted(lost)}")
        self.check_together(there)

    def check_together(self, there: Collection[bytes]) -> None:
        """All events of a transaction are there, or none."""
        for group in self.together:
            found = [written for written in group if written.data in there]
            names = [str(each) for each in group]
            require(len(found) in (0, len(group)), f"only {len(found)} of {names} are there")


def seen(events: Iterable[Event]) -> list[Seen]:
    """What was read, in its order."""
    return [Seen(bytes(event.data), int(event.segment_id), int(event.offset)) for event in events]


class StreamActor(Actor):
    """An actor that uses the stream. KEYS: routing keys."""

    KEYS = ("a", "b", "c", "d", "e")

    @property
    def events(self) -> Events:
        """The events of the history."""
        events: Events = self.history.shared
        return events

    @property
    def manager(self) -> StreamManager:
        """The process's manager."""
        return self.process.manager

    def key(self) -> str:
        """Some routing key."""
        return self.random.choice(self.KEYS)

    def attempt(self, what: str, call: Callable[[], Any]) -> tuple[Outcome, Any]:
        """As of a container. Of a StreamError it is not known here whether anything was done."""
        try:
            return super().attempt(what, call)
        except StreamError as error:
            self.note(f"{what}: {type(error).__name__}: {error}")
            return Outcome.UNKNOWN, error


class Writer(StreamActor):
    """Writes events and flushes. After a failure it begins another writer."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._writer: EventWriter | None = None
        self._given: list[Written] = []

    def act(self) -> None:
        if self._writer is None:
            outcome, writer = self.attempt("create a writer", lambda: self.manager.create_writer(SCOPE, STREAM))
            if outcome is not Outcome.DONE:
                return
            self._writer, self._given = writer, []
        for _ in range(self.random.randint(1, 4)):
            written = self.events.begin(self.name, self.key())
            self._given.append(written)
            if self.attempt(f"write {written.data!r}", partial(self._write, written))[0] is not Outcome.DONE:
                self._failed()
                return
        if self.attempt("flush", self._writer.flush)[0] is not Outcome.DONE:
            self._failed()
            return
        self.events.end(self._given, Outcome.DONE)
        require(self._writer.unconfirmed == 0, f"{self.name}: flushed, and {self._writer.unconfirmed} are unconfirmed")
        self._given = []

    def _write(self, written: Written) -> None:
        assert self._writer is not None
        self._writer.write_event_bytes(written.data, written.key)

    def _failed(self) -> None:
        """Those that the writer has confirmed are durable; the others may be."""
        assert self._writer is not None
        unconfirmed = min(self._writer.unconfirmed, len(self._given))
        sure = len(self._given) - unconfirmed
        self.events.end(self._given[:sure], Outcome.DONE)
        self.events.end(self._given[sure:], Outcome.UNKNOWN)
        self._writer, self._given = None, []


class Producer(StreamActor):
    """Writes numbered events exactly once, by an id: after a failure it continues behind the last number."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._writer: EventWriter | None = None
        self._waiting: list[Written] = []

    def successor(self, process: Process) -> Producer:
        follower = Producer(self.history, process, self.name)
        follower.inherit(self._waiting)
        return follower

    def inherit(self, waiting: list[Written]) -> None:
        """Continue what another one did."""
        self._waiting = waiting

    def act(self) -> None:
        self._waiting += [self.events.begin(self.name, "k") for _ in range(self.random.randint(1, 3))]
        while self._waiting:
            if self._writer is None:
                outcome, writer = self.attempt("create a producer", self._created)
                if outcome is not Outcome.DONE:
                    self.history.world.sleep(0.3)
                    continue
                self._writer = writer
                last = writer.last_number
                least = self._waiting[0].number - 1
                require((last or 0) >= least, f"{self.name}: the last number is {last}, and {least} was acknowledged")
                self._settle(last or 0)
            if self.attempt(f"produce {[each.number for each in self._waiting]}", self._produce)[0] is Outcome.DONE:
                self._settle(self._waiting[-1].number if self._waiting else 0)
            else:
                self._writer = None
                self.history.world.sleep(0.1)

    def _created(self) -> EventWriter:
        return self.manager.create_writer(SCOPE, STREAM, producer=self.name)

    def _produce(self) -> None:
        assert self._writer is not None
        for written in self._waiting:
            self._writer.write_event_bytes(written.data, written.key, number=written.number)
        self._writer.flush()

    def _settle(self, last: int) -> None:
        done = [each for each in self._waiting if each.number <= last]
        self.events.end(done, Outcome.DONE)
        self._waiting = [each for each in self._waiting if each.number > last]


class Transactor(StreamActor):
    """Writes events in transactions, and commits or aborts them."""

    def act(self) -> None:
        outcome, found = self.attempt(
            "begin a transaction", lambda: self.manager.create_transaction_writer(SCOPE, STREAM).begin_txn()
        )
        if outcome is not Outcome.DONE:
            return
        transaction: StreamTransaction = found
        group: list[Written] = []
        complete = True
        for _ in range(self.random.randint(1, 4)):
            written = self.events.begin(self.name, self.key())
            group.append(written)
            outcome, _ = self.attempt(
                f"write {written.data!r}",
                partial(transaction.write_event_bytes, written.data, written.key),
            )
            complete = complete and outcome is Outcome.DONE
            if not complete:
                break
            if self.random.random() < 0.2:
                self.pause()
        if not complete or self.random.random() < 0.3:
            self.attempt("abort", transaction.abort)
            self.events.end(group, Outcome.REFUSED)
            return
        self.events.together.append(group)
        for _ in range(4):
            outcome, error = self.attempt("commit", transaction.commit)
            if outcome is Outcome.DONE or isinstance(error, TransactionClosed | TransactionNotFound):
                break
            self.history.world.sleep(0.2)
        self.events.end(group, outcome if outcome is Outcome.DONE else Outcome.UNKNOWN)


class Reader(StreamActor):
    """Reads all of the stream."""

    def act(self) -> None:
        before = self.events.acknowledged - self.truncated()
        outcome, read = self.attempt("read", lambda: seen(self.manager.read_events(SCOPE, STREAM)))
        if outcome is not Outcome.DONE:
            if isinstance(read, StreamError):
                require(isinstance(read, TruncatedData), f"{self.name}: {read}")
            return
        self.events.saw(read, self.name)
        missing = before - {each.data for each in read} - self.truncated()
        require(not missing, f"{self.name} read {len(read)} events, without {sorted(missing)}")

    def truncated(self) -> set[bytes]:
        """Events that may be truncated."""
        return self.events.truncated


class Follower(StreamActor):
    """Follows the stream, from its head on."""

    def run(self) -> None:
        self._read: list[Seen] = []
        world = self.history.world
        end = world.now + self.history.plan.pause * self.history.plan.operations
        while world.now < end:
            self.begun += 1
            self._read = []
            outcome, error = self.attempt("follow", lambda: self._follow(lambda: world.now > end))
            self.events.saw(self._read, self.name)
            if outcome is not Outcome.DONE:
                if isinstance(error, StreamError):
                    require(isinstance(error, TruncatedData), f"{self.name}: {error}")
                world.sleep(0.2)

    def _follow(self, over: Callable[[], bool]) -> None:
        for event in self.manager.tail(SCOPE, STREAM, start="earliest", poll_interval=0.2, stop=over):
            self._read += seen([event])


class Scaler(StreamActor):
    """Splits a segment, or merges two."""

    def act(self) -> None:
        outcome, info = self.attempt("look at the stream", lambda: self.manager.stream_info(SCOPE, STREAM))
        if outcome is not Outcome.DONE:
            return
        segments = sorted(info.segments, key=lambda each: each.low)
        if len(segments) > 1 and self.random.random() < 0.5:
            place = self.random.randrange(len(segments) - 1)
            pair = segments[place : place + 2]
            ranges = [(pair[0].low, pair[1].high)]
            chosen = [each.id for each in pair]
        else:
            one = self.random.choice(segments)
            middle = (one.low + one.high) / 2
            ranges, chosen = [(one.low, middle), (middle, one.high)], [one.id]
        _, error = self.attempt(
            f"scale {chosen} to {ranges}", lambda: self.manager.scale_stream(SCOPE, STREAM, chosen, ranges)
        )
        if isinstance(error, StreamError):
            require(isinstance(error, InvalidScale), f"{self.name}: {error}")


class Retention(StreamActor):
    """Truncates the stream at a cut, once it has read all that is before."""

    def act(self) -> None:
        manager, size = self.manager, self.random.choice((50, 200, 1000))
        outcome, cut = self.attempt("find a cut", lambda: manager.next_stream_cut(SCOPE, STREAM, "earliest", size))
        if outcome is not Outcome.DONE:
            return
        outcome, read = self.attempt(
            f"read up to {cut}", lambda: seen(manager.read_events(SCOPE, STREAM, start="earliest", end=cut))
        )
        if outcome is not Outcome.DONE:
            return
        self.events.saw(read, self.name)
        self.events.truncated |= {each.data for each in read}
        _, error = self.attempt(f"truncate at {cut}", lambda: manager.truncate_stream(SCOPE, STREAM, cut))
        if isinstance(error, StreamError):
            require(isinstance(error, InvalidStreamCut | TruncatedData), f"{self.name}: {error}")


KINDS: dict[str, tuple[type[Actor], int]] = {
    "writer": (Writer, 6),
    "producer": (Producer, 4),
    "transactor": (Transactor, 4),
    "reader": (Reader, 3),
    "follower": (Follower, 3),
    "scaler": (Scaler, 3),
    "retention": (Retention, 2),
    "flusher": (Flusher, 2),
    "collector": (Collector, 2),
}
"""The actors, and how likely each is."""


def prepare(history: History) -> None:
    """A stream, and the actors of the plan."""
    history.shared = Events(lambda: history.world.now)
    manager = history.sound.manager
    manager.create_scope(SCOPE)
    manager.create_stream_with_policy(SCOPE, STREAM, ScalingPolicy.fixed_scaling_policy(history.plan.segments))
    begin_actors(history, KINDS)
    history.actors.append(_Last(history, history.sound, "last"))


class _Last(StreamActor):
    """Reads all at the end."""

    def run(self) -> None:
        pass

    def check(self, container: Container) -> None:
        self.events.check(seen(self.manager.read_events(SCOPE, STREAM)))
