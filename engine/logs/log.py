"""The write-ahead log of one container: a sequence of frames, each published by `put_if_absent`.

Owns the protocol and nothing else: where the head is, what is in flight, which frames are live, when an address may be
trusted. It does not interpret frames. Not thread-safe: the caller serialises all calls.

Keeps W1 (succession), W2 (append after what was applied, an unknown outcome is settled by the same bytes at the same
address), W3 (acknowledged in order only), W7 (the log start is checked when the last proof of the head is stale), W8
(damage stops the log unless a repair frame skips it), W21 (an absent frame is not the log's end if frames behind it
show that it was there) and G3 (other writers' frames are made durable before they are trusted). Knows whether the log
has company: other processes that wrote to it lately (W18).
"""

from __future__ import annotations

import logging
import math
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from statistics import median_low
from typing import Any, NamedTuple, Protocol, TypeVar

import msgpack

from chunkstore import ObjectNotFound, Outcome, PutUnknown, Range, StorageError, StorageUnavailable, Store, stamps
from chunkstore.boot_clock import boot_time
from chunkstore.decoding import Natural, reader, unpack, validator
from chunkstore.errors import forget_frames
from chunkstore.metrics import default_metrics
from chunkstore.numbered import list_numbered, numbers_behind
from chunkstore.paths import generation_folder
from chunkstore.port import Parts, length_of
from engine.errors import (
    FrameDamaged,
    FrameForged,
    FrameMissing,
    LogMoved,
    OutcomeUnknown,
    Overtaken,
    RootReplaced,
    UnknownFormat,
    understanding,
)
from engine.identity import ANY_IDENTITY, Identity
from engine.logs import frames
from engine.logs.frames import Frame, Kind, Position
from engine.ownership import Owner
from engine.settings import MAX_FLIGHTS

logger = logging.getLogger(__name__)

T = TypeVar("T")

_METRICS = default_metrics().layer("log")

FOLLOW_BYTES = 32 << 10
"""How much of a frame is read by a process that follows the log: enough for the metadata of nearly all frames."""

MAX_WINDOW = 64
"""The most frames that one request reads."""

RACE_WINDOW = 8
"""The frames that the first request reads after a lost race: some of them are there."""

MAKER_TRIPS = 16
"""Round trips after the last sign of other writers for which the maker of the frames listens for submissions."""

OWNER_TRIPS = 8
"""Round trips after that sign for which another process submits: fewer, so that the maker still listens."""

OFTEN_TRIPS = 4
"""Round trips from one frame to the next on average, below which races are lost all the time."""

CROWD = 8
"""A frame that answers so many submitted transactions is a sign of other writers by itself, however long ago the last
frame was: a race won against its maker would make all of them be submitted again."""

LEAST_TRIP = 0.01
"""Seconds that a round trip counts for here at least: on one machine processes are held up for longer than requests."""

LONGEST_TRIP = 0.5
"""Seconds that a round trip counts for at most, so that no process waits for long for one that has stopped."""

BELLS_AHEAD = (4, 8, 16)
"""Addresses from the log's end to a bell, so that a maker with frames in flight runs into it; the next one if an object
is there already, which is another writer's bell as a rule, and has the same effect."""


_REMEDY = "Restore the object from a copy"


STOPPED = 3
"""A pause by the storage's clock that is longer than the grace period divided by this makes a proof old. It is less
than half of it, as a process may be stopped both before and after its frame lands."""

STALE = 2
"""A proof that is older than the grace period divided by this is stale: the next address may have been deleted since,
so what was seen there is not believed before the log start was read."""

RENEWED = 8
"""A proof that is older than the grace period divided by this is renewed before a frame or a submission is sent: it is
not stale yet when the storage answers, even by the storage's clock, so the log's end can be read without looking for
the log start."""

DRIFT = 1e-3
"""A host's monotonic clock gains no more than this share of the time on the storage's clock; NTP slews by half of it at
most."""

LOOKED_AT = 10
"""Where answers do not carry the storage's time, it is asked for when a tenth of the grace period has passed."""


class Put(NamedTuple):
    """The outcome of a put, and the storage's time in its answer; None if that carried none."""

    outcome: Outcome
    stamp: float | None


class Repair(NamedTuple):
    """The content of a repair frame: the address of the damaged frame, and the container's attach fence then (ms).

    skipped: None if the frame fails its checks: it is void, and so are the frames that depend on it. Otherwise it is
    live, and these of its transactions, by their places, have no effect, as they cannot be decoded or applied. The
    repair of a missing frame stands at its address itself, and skips none of its own.
    """

    damaged: int
    min_attach_time: int
    skipped: tuple[Natural, ...] | None = None


def repair_of(frame: Frame, path: str) -> Repair:
    """The content of a repair frame. Raises DataCorruption."""
    with understanding(path, _REMEDY):
        return reader(Repair)(unpack(frame.meta))  # type: ignore[no-any-return]


def _encoded(repair: Repair) -> bytes:
    """The metadata of a repair frame, by the rules of `repair_of` (W14)."""
    return bytes(msgpack.packb(validator(Repair)(repair)))


class Executor(Protocol):
    """Carries out requests, maybe in the background (concurrent.futures.Executor, or a simulation of it)."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any: ...


class InlineExecutor:
    """Carries out each request at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            if isinstance(error, StorageError):
                forget_frames(error)  # the caller's, which hold the future
            future.set_exception(error)
        return future


_INLINE = InlineExecutor()

_UNSENT: Future[Put] = Future()
"""Of a frame whose put has not begun: settling it begins the put."""
_UNSENT.set_exception(PutUnknown("it was not sent yet"))


def frames_folder(container: int) -> str:
    """The folder of a container's frames, as a listing's prefix."""
    return generation_folder(container, "wal")


def frame_path(container: int, address: int) -> str:
    """The object of a frame."""
    return f"{frames_folder(container)}{address:020d}"


def checkpoints_folder(container: int) -> str:
    """The folder of a container's checkpoints, as a listing's prefix."""
    return generation_folder(container, "checkpoints")


def checkpoint_path(container: int, address: int) -> str:
    """The object of the state after the frame at `address`, from which an opening reads the log (W6, W7)."""
    return f"{checkpoints_folder(container)}{address:020d}"


def age_evidence_path(container: int) -> str:
    """The object that records what a process observed of the log, and when (see `engine.logs.age_evidence`)."""
    return f"{generation_folder(container, 'witness')}newest"


def address_of(path: str) -> int:
    """The address that an object of the log is named after; not for names that were listed (see `numbered`)."""
    return int(path.rpartition("/")[2])


@dataclass(slots=True)
class Flight:
    """A frame that was sent and is not settled yet. `body` is the owner's."""

    position: Position
    data: Parts
    sent: float
    future: Any
    body: Any


class Log:
    """The log of one container, seen from one process.

    Args:
        store: the root of the log. container: its number.
        head: the last live frame that the caller has applied (`frames.START` for a new log).
        proof: `clock()` before the request that showed that `head` is not before the log start.
        grace: seconds for which frames outlive the checkpoint that covers them; the same for all processes of a root.
        timeout: seconds for which the log tries to settle an unknown outcome before it raises OutcomeUnknown.
        log_start: the address of the newest checkpoint that was seen, -1 for none.
        stamp: the storage's time at the proof, None if it is not known: the first address that is touched then is not
            trusted before the log start was read.
        wall: this host's time of day. identity: of the root that this log belongs to (P4).
        new_writer, new_attempt: give what a frame's token is made of, from the system's random numbers: a counter,
            or anything else from memory, would be the same in both lives of one memory image (W15).
    """

    def __init__(
        self,
        store: Store,
        container: int,
        head: Position,
        proof: float,
        *,
        grace: float,
        executor: Executor,
        timeout: float = 60.0,
        clock: Callable[[], float] = boot_time,
        sleep: Callable[[float], None] = time.sleep,
        new_writer: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
        new_attempt: Callable[[], int] = lambda: int.from_bytes(os.urandom(8), "big"),
        log_start: int = -1,
        stamp: float | None = None,
        wall: Callable[[], float] = time.time,
        identity: Identity = ANY_IDENTITY,
    ) -> None:
        self.store = store
        self.container = container
        self.head = head
        self.next = head.address + 1
        self.flights: deque[Flight] = deque()
        self.losses = 0  # races that were lost in a short time
        self._window = 1  # frames to ask for at first, when the log is read on
        self._writer = new_writer()
        self._proof = proof
        self._stamp = stamp
        self._stamped = proof  # when the storage's time was `_stamp`, or it was last asked for
        self._wall = wall
        self._wall_offset = wall() - clock()  # from the monotonic clock to the time of day, at the proof
        self._grace = grace
        self._executor = executor
        self._timeout = timeout
        self._clock = clock
        self._sleep = sleep
        self._new_writer = new_writer
        self._new_attempt = new_attempt
        self._log_start = log_start
        self._identity = identity
        self._folder = frames_folder(container)
        self._owner = Owner(f"the log of container {container}", "open the container again")
        self.unapplied: list[Frame] = []
        self._end_checked = False  # whether the log's end was checked since the opening (W21)
        self.round_trip = 0.001
        self._trips: deque[float] = deque(maxlen=8)
        self._guesses: deque[float] = deque(maxlen=8)
        self._met = -math.inf  # when there was the last sign of other writers
        self._lost = -math.inf  # when the last race was lost
        self._former: set[bytes] = set()  # writers that this process was

    # --- writing -----------------------------------------------------------------------------------------------

    def _path(self, address: int) -> str:
        return f"{self._folder}{address:020d}"

    def upcoming(self) -> Position:
        """The position that the next frame sent will have."""
        last = self.flights[-1].position if self.flights else self.head
        address = last.address + 1 if self.flights else self.next
        return Position(address, self._writer, last.epoch + (0 if last.writer == self._writer else 1))

    def send(
        self, meta: bytes, payload: Sequence[bytes | bytearray | memoryview], body: Any, inline: bool = False
    ) -> Flight:
        """Send a frame behind those in flight. inline: put it on this thread, so that it has landed on return."""
        self._owner.check()  # two processes with one writer id would both believe that the frame is theirs (W10)
        assert not self.unapplied, "the caller has not applied all frames before this one"
        position = self.upcoming()
        last = self.flights[-1].position if self.flights else self.head
        data = frames.encode(self.container, position, self._new_attempt(), last, meta, payload)
        flight = Flight(position._replace(seal=frames.seal_of(data)), data, self._clock(), _UNSENT, body)
        self.flights.append(flight)  # first: what is under way is never forgotten
        if inline:
            flight.future = _INLINE.submit(self._put, position.address, data)
        else:
            self._start(flight)
        return flight

    def _start(self, flight: Flight) -> None:
        """Start the put of a frame. If no thread can be started, it runs here. It does no harm if the executor puts the
        same bytes there once more (W2)."""
        address, data = flight.position.address, flight.data
        try:
            flight.future = self._executor.submit(self._put, address, data)
        except Exception as error:
            logger.warning("%s is put without a thread: %s", self._path(address), repr(error))
            flight.future = _INLINE.submit(self._put, address, data)

    def settle(self) -> Flight:
        """Wait for the first frame in flight. When this returns, the frame is live (W3): it was created, and no earlier
        frame at its address can have been deleted (W7, `_trust`).

        Raises Overtaken (another's frame is there), LogMoved (the address proves nothing, W7), RootReplaced (it is in
        no root any more, P4) or OutcomeUnknown; the flights are then still there for `drop`.
        """
        flight = self.flights[0]
        outcome, stamp = self._outcome(flight)
        took = min(max(self._clock() - flight.sent, 0.0005), LONGEST_TRIP)
        if outcome is Outcome.MINE or took > self.round_trip:  # a loser may get its answer before anything is synced
            self._trips.append(took)
            self.round_trip = median_low(self._trips)  # so that one slow answer delays no other frame
        try:
            if stamp is None and self._clock() - self._stamped > self._grace / LOOKED_AT:
                stamp = self._stamp_of(self._path(flight.position.address))
            # After a lost race too: our frame may have been there, and deleted since.
            self._trust(flight.position.address, stamp)
            self._recognise()
        except RootReplaced:
            raise
        except StorageError as error:
            raise OutcomeUnknown(
                f"{self._path(flight.position.address)} was made, but whether the log had gone on without it could not "
                f"be found out: {error}"
            ) from error
        if outcome is Outcome.ANOTHERS:
            self._window = RACE_WINDOW
            self._note_loss()
            raise Overtaken(f"{self._path(flight.position.address)} holds another writer's frame")
        self._prove(flight.sent, stamp)
        self.flights.popleft()  # nothing may fail after this: the frame would be lost
        if flight.position.epoch > self.head.epoch:
            _METRICS.add("begin_epoch", took, 0, None)
        self.head = flight.position
        self.next = flight.position.address + 1
        return flight

    def guess_trip(self, took: float) -> None:
        """A write of another object than a frame took so many seconds. That is all that is known before the first
        frame."""
        if not self._trips:
            self._guesses.append(min(max(took, 0.001), LONGEST_TRIP))
            self.round_trip = median_low(self._guesses)

    def drop(self) -> list[Flight]:
        """Forget all frames in flight, once none of their requests is under way any more. Returns them.

        Where one of them has not landed, the next frame there is another one than those behind it name, so they stay
        void (W15).
        """
        dropped = list(self.flights)
        self.flights.clear()
        for flight in dropped:
            flight.future.exception()  # waits for it
            flight.future = _UNSENT  # its error may be on the way to a caller, with frames that hold the flight
        return dropped

    def renew(self) -> list[Flight]:
        """Like `drop`, and continue as another writer: a frame that lands late is never taken for a new one."""
        dropped = self.drop()
        self._change_writer()
        return dropped

    def _change_writer(self) -> None:
        self._former.add(self._writer)
        self._writer = self._new_writer()

    def _put(self, address: int, data: Parts) -> Put:
        with _METRICS.measure("put_frame") as measurement:
            with stamps.listening() as noted:
                outcome = self.store.put_if_absent(self._path(address), data)
            measurement.bytes = length_of(data)
            return Put(outcome, noted.latest)

    def _outcome(self, flight: Flight) -> Put:
        """Mine or another's. An unknown outcome is settled by the same bytes at the same address (W2).

        After an undeclared error the outcome is unknown too.
        """
        pause, deadline, unknown = 0.01, self._clock() + self._timeout, False
        while True:
            error = flight.future.exception()  # not raised: its traceback would hold this frame, and so the flight
            if error is None:
                put: Put = flight.future.result()
                return put
            if not isinstance(error, Exception):
                raise error
            declared = isinstance(error, StorageError)
            unknown = unknown or not declared or isinstance(error, PutUnknown)
            passing = not declared or isinstance(error, PutUnknown | StorageUnavailable)
            if not (passing or unknown):
                try:
                    raise error
                finally:
                    del error  # or this frame, which its traceback holds, holds it
            if not passing or self._clock() >= deadline:
                raise OutcomeUnknown(
                    f"{self._path(flight.position.address)}: the storage gave no answer that "
                    f"settles it ({error if declared else repr(error)}); the operations in this frame may have "
                    "been done or not"
                ) from error
            self._sleep(pause)
            pause = min(2 * pause, 1.0)
            self._start(flight)

    # --- reading -----------------------------------------------------------------------------------------------

    def follow(self) -> list[Frame]:
        """The live frames from the head on, up to the first absent address. Nothing may be in flight.

        Raises FrameDamaged (W8) or LogMoved (W7). Live frames that were passed before an error are in the next answer.
        """
        window, self._window = self._window, 1
        self._read_on(window)
        return self._taken()

    def follow_durable(self, address: int) -> list[Frame]:
        """The live frames up to an address, up to which the log is durable according to another process. The log is not
        read beyond it. Nothing may be in flight. Raises as `follow` does."""
        while self.next <= address:
            with stamps.listening() as noted:
                found, ended = self._look(min(address - self.next + 1, MAX_WINDOW))
            self._trust(self.next, noted.latest)
            for frame in found:
                self._pass(frame)
            if ended:
                break
        self._recognise()
        return self._taken()

    @property
    def writer(self) -> bytes:
        """The writer id with which this process makes frames."""
        return self._writer

    def _taken(self) -> list[Frame]:
        taken, self.unapplied = self.unapplied, []
        return taken

    def follow_some(self, window: int) -> tuple[list[Frame], bool]:
        """The live frames at the next `window` addresses, and whether the log ends there. Raises as `follow` does."""
        ended = self._read_window(window)
        return self._taken(), ended

    def _read_on(self, window: int) -> None:
        """Read on to the log's end."""
        while not self._read_window(window):
            window = min(2 * window, MAX_WINDOW)

    def _read_window(self, window: int) -> bool:
        """Read at most so many frames on. Whether that is the log's end."""
        sent = self._clock()
        with stamps.listening() as noted:
            found, ended = self._look(window)
        old = self._trust(self.next, noted.latest)
        if found:
            self.store.sync(self._folder)  # their makers may have died before that (G3)
        for frame in found:
            self._pass(frame)
        if ended:
            if old or not self._end_checked:
                self._check_end()
            self._recognise()
            self._prove(sent, noted.latest)
        return ended

    def _check_end(self) -> None:
        """Raise FrameMissing if what lies behind the log's end shows that the log went on there (W21), and LogMoved if
        it was truncated meanwhile."""
        shown_by = self._shown_behind(self.next)
        self._end_checked = not shown_by
        if shown_by and self._read_prefixes(self.next, 1)[0] is None:  # or it was made only now
            self._check_log_start(self.next)
            raise FrameMissing(self._path(self.next), self.container, self.next, shown_by)

    def _shown_behind(self, address: int) -> str:
        """What shows that there was a frame at an address without an object; "" if nothing is found."""
        addresses = self._patiently(lambda: numbers_behind(self.store, self._folder, address, MAX_FLIGHTS))
        for each, prefix in zip(addresses, self._prefixes_at(addresses), strict=True):
            frame = self._parse(each, prefix) if prefix is not None else None
            if isinstance(frame, Frame) and (shown := frame.shows(address)):
                return shown
        return ""

    def _pass(self, frame: Frame | FrameDamaged | UnknownFormat) -> None:
        """Go past one frame: live or void (W1), or damaged and skipped by a repair (W8)."""
        if isinstance(frame, FrameDamaged):
            if frame.address >= self.next:
                self.next = self._repaired(frame)
            return
        if isinstance(frame, UnknownFormat):
            raise frame
        if frame.position.address != self.next:
            return  # behind a repair that was found on the way
        if frame.follows(self.head):
            if frame.position.writer == self._writer:  # own frames are settled: a clone made it
                self._change_writer()
                logger.warning(
                    "container %d: another process has this one's identity, as a clone of its memory does; this "
                    "process continues as another writer",
                    self.container,
                )
            self.head = frame.position
            self.unapplied.append(frame)
            if self.in_company(OWNER_TRIPS):
                self.meet()
        elif frame.kind is Kind.BELL and frame.position.writer != self._writer:
            self.meet()
        self.next += 1

    def _look(self, window: int) -> tuple[list[Frame | FrameDamaged | UnknownFormat], bool]:
        """The frames at the next addresses, at most `window`, and whether one was absent, which ends the log."""
        found: list[Frame | FrameDamaged | UnknownFormat] = []
        with _METRICS.measure("follow") as measurement:
            prefixes = self._read_prefixes(self.next, window)
            measurement.bytes = sum(len(prefix) for prefix in prefixes if isinstance(prefix, bytes))
        for address, prefix in enumerate(prefixes, self.next):
            frame = self._parse(address, prefix) if prefix is not None else None
            if frame is None:
                return found, True
            found.append(frame)
        return found, False

    def _read_prefixes(self, address: int, window: int) -> list[bytes | FrameForged | None]:
        """Header and metadata of the frames at `window` addresses, or of the first alone if that is too much."""
        addresses = range(address, address + window)
        paths = [self._path(each) for each in addresses]
        try:
            return frames.read_beginnings(self.store, paths, addresses, FOLLOW_BYTES)
        except StorageUnavailable:
            return self._patiently(lambda: frames.read_beginnings(self.store, paths[:1], addresses[:1], FOLLOW_BYTES))

    def _prefixes_at(self, addresses: Sequence[int]) -> list[bytes | FrameForged | None]:
        """Header and metadata of the frames at these addresses, by one request, or by one for each if that is too
        much."""
        paths = [self._path(address) for address in addresses]
        try:
            return frames.read_beginnings(self.store, paths, addresses, FOLLOW_BYTES) if paths else []
        except StorageUnavailable:
            return [self._read_prefixes(address, 1)[0] for address in addresses]

    def _patiently(self, request: Callable[[], T]) -> T:
        """Repeat a request that only reads until the storage answers, or the timeout is over."""
        pause, deadline = 0.01, self._clock() + self._timeout
        while True:
            try:
                return request()
            except StorageUnavailable:
                if self._clock() >= deadline:
                    raise
            self._sleep(pause)
            pause = min(2 * pause, 1.0)

    def _parse(self, address: int, prefix: bytes | FrameForged) -> Frame | FrameDamaged | UnknownFormat | None:
        """The frame, what is wrong with it, or None when it vanished while the rest of its metadata was read."""
        if isinstance(prefix, FrameForged):
            return prefix
        path = self._path(address)
        whole = len(prefix) < FOLLOW_BYTES
        try:
            end = frames.meta_end(prefix, path, address)
            if end > len(prefix) and not whole:
                try:
                    begin = prefix
                    prefix = self._patiently(lambda: frames.read_rest(self.store, path, address, begin, end))
                except ObjectNotFound:
                    return None
            return frames.decode(prefix, path, self.container, address, whole)
        except (FrameDamaged, UnknownFormat) as problem:
            return problem

    # --- trust (W7) ---------------------------------------------------------------------------------------------

    def log_start(self) -> int:
        """The address of the newest checkpoint: frames before it may be deleted at any time. -1 when there is none.

        Raises StorageUnavailable if the one that was there before is gone and there is no newer one: then this is not
        the place where the log was, and a missing frame proves nothing.
        """
        newest = self._listed_log_start()
        if newest < self._log_start:
            newest = self._listed_log_start()  # a listing may miss both when one replaces the other meanwhile
        if newest < self._log_start:
            raise StorageUnavailable(
                f"{self.store.root}: {checkpoint_path(self.container, self._log_start)!r} was there, and neither it "
                "nor a newer one is there any more: is the storage mounted?"
            )
        self._log_start = newest
        return newest

    def _listed_log_start(self) -> int:
        listed = self._patiently(lambda: list_numbered(self.store, checkpoints_folder(self.container)))
        return address_of(listed[-1].path) if listed else -1

    def proof_is_older_than(self, part: int) -> bool:
        """Whether the last proof of the head is older than the grace period divided by `part`: by the monotonic clock,
        or by the time of day, which is set when a host continues that was stopped."""
        now = self._clock()
        stepped = self._wall() - now - self._wall_offset
        return now - self._proof > self._grace / part or abs(stepped) > self._grace / STOPPED

    def _stamp_of(self, path: str) -> float:
        """When the storage made an object that was there just now; endless if it is gone."""
        try:
            return self._patiently(lambda: self.store.stat(path).modified)
        except ObjectNotFound:
            return math.inf

    def _trust(self, address: int, stamp: float | None) -> bool:
        """Called after a request for `address`, before its answer is trusted. If the proof of the head is old and a
        checkpoint covers the address, a frame may have been there and been deleted: raises LogMoved. Returns whether
        the proof is old.

        stamp: the storage's time in the answer, None if that had none. A hypervisor may have stopped this host with all
        of its clocks, but not the storage's clock: if that has advanced by much since the proof, the proof is stale.
        """
        apart = stamp is not None and self._expected(stamp) is None
        if not apart and not self.proof_is_older_than(STALE):
            return False
        self._check_log_start(address)
        return True

    def _check_log_start(self, address: int) -> None:
        """Raise LogMoved if an address is before the log start."""
        newest = self.log_start()
        if address < newest:
            raise LogMoved(
                f"container {self.container}: address {address} was used when the log's end had last been seen more "
                f"than {self._grace / STOPPED:g} s before, and the log now starts at {newest}"
            )

    def _recognise(self) -> None:
        """Check from time to time that this is still the log that was opened, and not an older copy: the last frame
        that was applied is there, unless it is before the log start (P4)."""
        if not self._identity.check() or self.head.address <= self._log_start:
            return
        path = self._path(self.head.address)
        found = self._patiently(lambda: self.store.read_ranges([Range(path, 0, len(self.head.writer))]))[0]
        if found != self.head.writer and self.head.address > self.log_start():
            raise RootReplaced(self.store.root)

    def _expected(self, stamp: float) -> float | None:
        """The storage's time at the proof, at least: not all answers carry it, such as that a file is absent. A stop in
        between is not counted, so the time looks earlier than it was. None if `stamp` is far from it."""
        if self._stamp is None:
            return None
        expected = self._stamp + (self._proof - self._stamped) * (1 - DRIFT)
        return expected if abs(stamp - expected) <= self._grace / STOPPED else None

    def _prove(self, sent: float, stamp: float | None) -> None:
        """The head was there when a request was sent, and the storage's time was `stamp` when it was answered."""
        now = self._clock()
        self._proof = max(self._proof, sent)
        self._wall_offset = self._wall() - now
        if stamp is not None and stamp < math.inf:
            stamp -= max(now - sent, 0.0)  # it was there no earlier
            expected = self._expected(stamp)
            self._stamp = stamp if expected is None else max(stamp, expected)
            self._stamped = self._proof

    # --- company (W18) -----------------------------------------------------------------------------------------

    def _note_loss(self) -> None:
        """A race was lost. Two lost in a short time are a sign of other writers."""
        now = self._clock()
        again = now - self._lost < self._seconds_of(MAKER_TRIPS)
        self._lost, self.losses = now, self.losses + 1 if again else 1
        if again:
            self.meet()

    def meet(self) -> None:
        """There was a sign of other writers."""
        self._met = self._clock()

    @property
    def end_seen(self) -> float:
        """When the log's end was last known."""
        return self._proof

    def made_often(self, count: int, since: float) -> bool:
        """Whether `count` frames since the time `since` are more than one in OFTEN_TRIPS round trips."""
        return self._clock() - since < self._seconds_of(count * OFTEN_TRIPS)

    def in_company(self, trips: int) -> bool:
        """Whether there was a sign of other writers within so many round trips."""
        return self._met > -math.inf and self._clock() - self._met < self._seconds_of(trips)

    def _seconds_of(self, trips: int) -> float:
        """Seconds that so many round trips count for."""
        return trips * max(self.round_trip, LEAST_TRIP)

    @property
    def made_elsewhere(self) -> bool:
        """Whether another process makes the frames of the head's epoch."""
        writer = self.head.writer
        return self.head != frames.START and writer != self._writer and writer not in self._former

    @property
    def makes_frames(self) -> bool:
        """Whether this process makes the frames of the head's epoch."""
        return self.head.writer == self._writer

    def ring(self, ahead: Sequence[int] = BELLS_AHEAD) -> None:
        """Publish a bell, a void frame, at the first free address of those at these distances from the log's end. The
        maker runs into it, and learns that it has company."""
        self._owner.check()
        for addresses in ahead:
            bell = Position(self.next + addresses, self._writer, 0)
            data = frames.encode(self.container, bell, self._new_attempt(), frames.START, b"", (), Kind.BELL)
            try:
                if self._put(bell.address, data).outcome is Outcome.MINE:
                    return
            except StorageError:  # nothing depends on a void frame
                return

    # --- repair (W8) -------------------------------------------------------------------------------------------

    def check_missing(self, address: int) -> None:
        """Raise ValueError unless the frame at `address` is missing, and stops the log."""
        if address != self.next or not self._shown_behind(address):
            raise ValueError(f"frame {address} of container {self.container} is not a missing frame that stops the log")

    def fill(self, missing: int, min_attach_time: int = 0) -> None:
        """Publish a repair at the address of a missing frame, which must be the next one. The log goes on there, and
        the frames behind it are void from then on. Arguments and errors as of `repair`."""
        self._owner.check()
        self.check_missing(missing)
        position, meta = self.upcoming(), _encoded(Repair(missing, min_attach_time, ()))
        data = frames.encode(self.container, position, self._new_attempt(), self.head, meta, (), Kind.REPAIR)
        if self._put(missing, data).outcome is not Outcome.MINE:
            raise ValueError(f"frame {missing} of container {self.container} is not missing any more")

    def check_damaged(self, address: int) -> None:
        """Raise ValueError unless a frame that fails its checks stands at `address`, and stops the log."""
        found, _ = self._look(1)
        if address != self.next or not found or not isinstance(found[0], FrameDamaged):
            raise ValueError(f"frame {address} of container {self.container} is not a damaged frame that stops the log")

    def pass_over(self, repair: Repair) -> None:
        """Publish, behind the last live frame, which transactions of a live frame have no effect. Nothing may be in
        flight."""
        self._owner.check()
        while True:
            position, meta = self.upcoming(), _encoded(repair)
            data = frames.encode(self.container, position, self._new_attempt(), self.head, meta, (), Kind.REPAIR)
            if self._put(position.address, data).outcome is Outcome.MINE:
                return
            self._read_on(RACE_WINDOW)

    def repair(self, damaged: int, min_attach_time: int = 0) -> None:
        """Publish the decision to skip the damaged frame at `damaged`, which must be the next one.

        The frame itself and all frames that depend on it are void from then on. min_attach_time: the container's
        from then on, ms. Raises ValueError when it is not damaged.
        """
        self._owner.check()
        self.check_damaged(damaged)
        address = damaged
        while True:
            address += 1
            prefix = self._read_prefixes(address, 1)[0]
            if prefix is not None:
                continue
            position = Position(address, self._new_writer(), self.head.epoch + 1)  # it is followed, not settled
            meta = _encoded(Repair(damaged, min_attach_time))
            data = frames.encode(self.container, position, self._new_attempt(), self.head, meta, (), Kind.REPAIR)
            if self._put(address, data).outcome is Outcome.MINE:
                return

    def _repaired(self, damage: FrameDamaged) -> int:
        """The address of the repair frame that skips the damaged frame; raises the damage when there is none."""
        address = damage.address
        while True:
            address += 1
            path = self._path(address)
            with stamps.listening() as noted:
                prefix = self._read_prefixes(address, 1)[0]
                frame = self._parse(address, prefix) if prefix is not None else None
            self._trust(damage.address, noted.latest)
            if frame is None:
                raise damage
            if (
                isinstance(frame, Frame)
                and frame.kind is Kind.REPAIR
                and frame.follows(self.head)
                and repair_of(frame, path)[::2] == (damage.address, None)
            ):
                return address
