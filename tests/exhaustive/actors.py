"""The scripts of the processes: what each does with the product's log.

A script says what became of it: `acknowledged`, `unknown` and `refused` records, and what it `saw`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from chunkstore import StorageError, stamps
from engine.clocks import StorageClock
from engine.containers.container import Container
from engine.errors import EngineError, LogMoved, NotPrimary, OutcomeUnknown, Overtaken
from engine.logs.durable_log import DurableLog
from engine.logs.frames import Position
from engine.logs.log import Log
from engine.logs.observer import LogObserver
from engine.logs.truncation import truncate_log
from engine.settings import Settings
from engine.state.operations import (
    AttributeUpdate,
    Checkpoint,
    CreateSegment,
    LoggedTransaction,
    Operation,
    UpdateAttributes,
    UpdateKind,
    encode_transactions,
)
from engine.state.segments import FrameRef
from engine.state.state import State
from engine.storage.cache import Cache
from engine.storage.container_storage import ContainerStorage
from engine.storage.lookups import Lookups
from engine.storage.object_reads import Stores
from tests.exhaustive.process import Process
from tests.exhaustive.storage import UNIT, Request
from tests.exhaustive.truth import SEGMENT, digest

GRACE = 3.3 * UNIT
"""The grace period: what is older by four units may go; a proof is old after two."""

BARRIER, MARK = "barrier", "mark"
"""Requests to the explorer: to wait until the exploration begins; how many live frames are acknowledged up to now."""

Script = Callable[[Process], None]


class Ended(Exception):
    """A script ends here."""


def record(process: Process, number: int) -> Operation:
    """A record, which is added once more each time that it is written."""
    return UpdateAttributes(SEGMENT, (AttributeUpdate(tag(process.name, number), UpdateKind.ACCUMULATE, 1),))


def tag(name: str, number: int) -> bytes:
    """What a record is known by."""
    return f"{name}-{number}".encode().ljust(16, b"\0")


def opened(process: Process, timeout: float = 0.0) -> DurableLog:
    """The log as a process opens it. timeout: for how long it settles an unknown outcome."""
    store = process.store
    stores, clock = Stores(store, store), StorageClock(store, process.wall, process.clock)
    log = DurableLog(
        store,
        0,
        Settings(threaded=False, grace=GRACE, timeout=timeout),
        ContainerStorage(stores, 0, Lookups(stores, 0, Cache()), clock.now),
        store_clock=clock,
        now=lambda: 0.0,
        executor=process,
        clock=process.clock,
        wall=process.wall,
        sleep=process.sleep,
    )
    log.refresh()
    return log


def founder(process: Process, checkpoint: bool = False) -> None:
    """Makes the log, and a checkpoint of it."""
    log = opened(process)
    log.commit([CreateSegment(SEGMENT)])
    if checkpoint:
        log.commit([Checkpoint()])
        log.write_checkpoint(log.head, log.state)


def grower(process: Process, count: int = 2) -> None:
    """Appends records, and makes a checkpoint that covers them."""
    log = opened(process)
    for number in range(count):
        log.commit([record(process, number)])
    log.commit([Checkpoint()])
    log.write_checkpoint(log.head, log.state)


def wait(process: Process) -> None:
    """Wait until the exploration begins, or the next step of what goes before it."""
    process.ask(Request(BARRIER, ("",)))


def append(process: Process, log: DurableLog, number: int) -> None:
    """Append a record, and say what became of it."""
    name = tag(process.name, number)
    process.say("sent", name)
    try:
        receipt = log.commit([record(process, number)])
    except OutcomeUnknown:
        process.say("unknown", name)
    except (EngineError, StorageError) as error:
        process.say("refused", name)
        if isinstance(error, NotPrimary):
            raise Ended from error
    else:
        process.say("acknowledged", name, receipt.address, digest(receipt.state))


def committer(
    process: Process,
    appends: int = 1,
    company: bool = False,
    timeout: float = 0.0,
    late: bool = False,
    reads: bool = False,
    exclusive: bool = False,
    close: bool = False,
) -> None:
    """Appends records by the commit queue, which may hand them to another process or carry those of others.

    company: it knows of other writers when it begins. late: it opens the log after the exploration has begun. reads:
    it refreshes first. exclusive: it claims the log.
    """
    if not late:
        log = opened(process, timeout)
        if exclusive:
            log.claim()
    wait(process)
    if late:
        log = opened(process, timeout)
    if company:
        log.processor.log.meet()
    try:
        for number in range(appends):
            if reads:
                see(process, log)
            append(process, log, number)
    except Ended:
        return
    if close:
        log.close()


def see(process: Process, log: DurableLog) -> None:
    """Read the log to its end, and say what it holds."""
    before = process.ask(Request(MARK, ("",))).value
    try:
        state = log.refresh()
    except StorageError:
        return
    process.say("saw", before, log.head.address, digest(state))


def reader(process: Process, looks: int = 2, late: bool = False) -> None:
    """Reads the log to its end several times."""
    if not late:
        log = opened(process)
    wait(process)
    if late:
        log = opened(process)
    for _ in range(looks):
        see(process, log)


class _Checkpoints(LogObserver):
    """Remembers where a checkpoint is to be made."""

    due: tuple[Position, State] | None = None

    def committed(self, position: Position, state: State, checkpoint: bool) -> None:
        if checkpoint:
            self.due = position, state


def truncator(process: Process, checkpoint: bool = False, times: int = 1) -> None:
    """Deletes what checkpoints cover that are older than the grace period; makes a checkpoint first, if it is to."""
    log = opened(process)
    made = _Checkpoints()
    log.observe(made)
    wait(process)
    for _ in range(times):
        try:
            if checkpoint:
                log.commit([Checkpoint()])
                if made.due is not None:
                    log.write_checkpoint(*made.due)
            truncate_log(process.store, 0, log.refresh, GRACE, process.store.clock(), 1 << 62)
        except (EngineError, StorageError):
            continue


def flusher(process: Process) -> None:
    """Flushes the container to long-term storage, and says what the flush was to cover and what it covers."""
    store = process.store
    container = Container(
        Stores(store, store),
        0,
        Settings(threaded=False, maintenance=False, grace=GRACE, timeout=0.0, poll=0.001),
        executor=process,
        clock=process.clock,
        now=process.wall,
        sleep=process.sleep,
    )
    wait(process)
    before = process.ask(Request(MARK, ("",))).value
    try:
        container.maintenance.flush()
    except (EngineError, StorageError):
        return  # it says that it is not done
    process.say("flushed", before, container.state.cycle.recovery_point)


def pipeliner(process: Process, count: int = 2, timeout: float = 0.0) -> None:
    """Appends records with several frames in flight, by the log itself."""
    with stamps.listening() as noted:
        first = opened(process)
    proof = process.clock()
    log = Log(
        process.store,
        0,
        first.head,
        proof,
        grace=GRACE,
        executor=process,
        timeout=timeout,
        clock=process.clock,
        sleep=process.sleep,
        wall=process.wall,
        log_start=first.log_start(),
        stamp=noted.first,
    )
    wait(process)
    left = list(range(count))
    while left:
        try:
            left = _flown(process, log, left)
        except LogMoved:
            _say_all(process, "unknown", [flight.body for flight in log.drop()])
            return


def _flown(process: Process, log: Log, numbers: Sequence[int]) -> list[int]:
    """Send a frame for each record, settle them, and return the records that lost the race."""
    for number in numbers:
        process.say("sent", tag(process.name, number))
        meta = partial(encode_transactions, [LoggedTransaction(0, (record(process, number),))])
        log.send(meta(FrameRef(log.upcoming().address, 0)), [], number)
    while log.flights:
        try:
            flight = log.settle()
        except Overtaken:
            lost = [flight.body for flight in log.drop()]
            log.follow()
            return lost
        except OutcomeUnknown:
            _say_all(process, "unknown", [flight.body for flight in log.renew()])
            return []
        process.say("acknowledged", tag(process.name, flight.body), flight.position.address, None)
    return []


def _say_all(process: Process, what: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        process.say(what, tag(process.name, number))
