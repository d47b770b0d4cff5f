"""What callers hear of their operations (W11): each once, success if and only if its frame is live, nothing stale."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import pytest

import engine
from chunkstore import ObjectNotFound, PutUnknown, StorageRefused, StorageUnavailable
from chunkstore.errors import StorageFull
from chunkstore.testing import CountingStore, FaultStore, LatencyStore, fail_at
from chunkstore.testing.faults import Fault, When
from chunkstore.wrapping import Request, Result, WrappingStore
from engine.containers.container import Container
from engine.containers.maintenance_scheduler import MaintenanceScheduler
from engine.errors import (
    BadAttributeUpdate,
    BadOffset,
    ContainerOffline,
    DataCorruption,
    EngineError,
    OutcomeUnknown,
    Rejected,
    SegmentExists,
    SegmentNotFound,
)
from engine.logs.acknowledgements import Acknowledgements
from engine.logs.frame_settler import FrameSettler
from engine.logs.log import InlineExecutor, Log
from engine.logs.processor import Processor
from engine.logs.transaction import Receipt, Transaction
from engine.settings import Settings
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    Operation,
    Payload,
    PutEntry,
    SpillAttributes,
    UpdateAttributes,
    UpdateKind,
)
from engine.storage.object_reads import Stores
from tests.engine.logs.stepped import Stepped
from tests.support import limits
from tests.support.cycles import frames_left
from tests.support.gated import GatedStore
from tests.support.linearizability import Recorder, Refused, Response, check
from tests.support.log_contracts import append as append_frames, open_log
from tests.support.processes import ByHand
from tests.support.simulation import Simulation, small_sizes

NUMBER = bytes(15) + b"n"


def set_to(value: int, expected: int) -> AttributeUpdate:
    return AttributeUpdate(NUMBER, UpdateKind.REPLACE_IF_EQUALS, value, expected)


class Meanwhile(FaultStore):
    """Before the next frame is put, once `other` is set, that happens."""

    def __init__(self, simulation: Simulation, paused: Callable[[], Any] = nullcontext) -> None:
        super().__init__(simulation.store, self._plan, verbs=["put_if_absent"])
        self.other: Callable[[], object] | None = None
        self._paused = paused

    def _plan(self, at: int, request: Request) -> None:
        if self.other is not None and "/wal/" in request.paths[0]:
            other, self.other = self.other, None
            with self._paused():
                other()


# --- what was looked up ------------------------------------------------------------------------------------------


@pytest.fixture
def spilling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flush moves all extended attributes to their table, and all tables to LTS."""
    limits.cached_attributes(monkeypatch, 0)
    limits.resident_bytes(monkeypatch, 0)


def numbered(simulation: Simulation) -> None:
    """A segment whose attribute is 5, which is in LTS only."""
    with simulation.open() as container:
        container.create_segment("s", [AttributeUpdate(NUMBER, UpdateKind.REPLACE, 5)])
        container.flush()
        assert container.info("s").spilled


def changed(container: Container) -> None:
    container.update_attributes("s", [set_to(6, 5)])


def changed_and_spilled(container: Container) -> None:
    changed(container)
    container.commit([SpillAttributes("s")])


def changed_and_flushed(container: Container) -> None:
    changed(container)
    container.flush()


def removed_and_flushed(container: Container) -> None:
    container.update_attributes("s", [AttributeUpdate(NUMBER, UpdateKind.REPLACE, -(1 << 63))])
    container.flush()


def made_again(container: Container) -> None:
    container.delete("s")
    container.create_segment("s", [AttributeUpdate(NUMBER, UpdateKind.REPLACE, 6)])
    container.flush()


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("active", [25_000, 0], ids=["active", "evicted"])
@pytest.mark.parametrize("other", [changed, changed_and_spilled, changed_and_flushed, removed_and_flushed, made_again])
def test_what_was_looked_up_does_not_survive_a_lost_race(other: Callable[[Container], None], active: int) -> None:
    """A writer's number is loaded from LTS; before the frame lands, another process writes the next one."""
    simulation = Simulation(active_segments=active)
    numbered(simulation)
    through = Meanwhile(simulation)
    with simulation.open(through=through) as container, simulation.open() as another:
        through.other = lambda: other(another)
        with pytest.raises(BadAttributeUpdate):
            container.commit([Append("s", Payload(b"replayed"), None, (set_to(7, 5),))])
        assert through.other is None
        known = container.attributes("s", [NUMBER])
        assert known == simulation.open().attributes("s", [NUMBER])
        assert known == ({} if other is removed_and_flushed else {NUMBER: 6})
        assert container.info("s").length == 0


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("active", [25_000, 0], ids=["active", "evicted"])
def test_what_is_still_so_is_loaded_again_after_a_lost_race(active: int) -> None:
    simulation = Simulation(active_segments=active)
    numbered(simulation)
    through = Meanwhile(simulation)
    with simulation.open(through=through) as container, simulation.open() as another:
        through.other = lambda: (another.append("s", b"other"), another.flush())
        assert container.commit([Append("s", Payload(b"own"), None, (set_to(7, 5),))]).results == [5]
        for process in (container, another, simulation.open()):
            assert process.attributes("s", [NUMBER]) == {NUMBER: 7}


@pytest.mark.usefixtures("spilling")
def test_what_was_looked_up_does_not_survive_a_spill_ahead_of_it() -> None:
    """A spill is more urgent than what waits for its look-up."""
    simulation = Simulation()
    numbered(simulation)
    with mock.patch("engine.logs.durable_log.Processor", Stepped):
        container = simulation.open()
    processor = container.log.processor
    assert isinstance(processor, Stepped)
    replayed = container.submit([Append("s", Payload(b"replayed"), None, (set_to(7, 5),))])
    processor.step()  # looked up, and queued again
    with simulation.open() as another:
        changed(another)
    container.refresh()
    spill = container.submit([SpillAttributes("s")])
    for _ in range(8):
        processor.step()
    assert spill.result().results == [None]
    assert isinstance(replayed.exception(), BadAttributeUpdate)


@pytest.mark.usefixtures("spilling")
def test_what_was_looked_up_is_forgotten_when_its_operation_is_queued_again() -> None:
    simulation, executor = Simulation(linger=0.0), ByHand()
    numbered(simulation)
    with mock.patch("engine.logs.durable_log.Processor", Stepped):
        container = simulation.open(executor=executor)
    processor = container.log.processor
    assert isinstance(processor, Stepped)
    future = container.submit([Append("s", Payload(b"x"), None, (set_to(7, 5),))])
    processor.step()
    assert processor.first.looked_up
    processor.step()
    with simulation.open() as another:
        another.append("s", b"other")
    executor.land()
    processor.step()
    assert not processor.first.looked_up
    processor.step()
    processor.step()
    executor.land()
    processor.step()
    processor.step()
    assert future.result().results == [5]


@pytest.mark.usefixtures("spilling")
def test_a_table_that_is_gone_is_damage_and_not_waited_for() -> None:
    simulation = Simulation()
    numbered(simulation)
    with simulation.open() as container:
        for listed in simulation.store.list("_system/containers/"):
            simulation.store.delete([listed.path])
        with pytest.raises((DataCorruption, ObjectNotFound), match="Restore"):
            container.commit([UpdateAttributes("s", (set_to(7, 5),))])


# --- faults between submit and tell ------------------------------------------------------------------------------


class Injected(Exception):
    """Something that nobody has reckoned with, such as that there is no memory or no thread left."""


Site = tuple[CodeType, CodeType, int]
"""A function, and the place that it is called from."""

ENGINE = str(Path(engine.__file__).parent)


def callers(frame: FrameType, most: int) -> Iterator[FrameType]:
    """The frames that a frame was called from, the nearest first."""
    above = frame.f_back
    while above is not None and most:
        yield above
        above, most = above.f_back, most - 1


class CallFaults:
    """Raises Injected where the engine's functions are called, at the first call from `site`; None: notes all sites."""

    def __init__(self, site: Site | None = None) -> None:
        self.site = site
        self.sites: dict[Site, None] = {}
        self.armed = False
        self._begins: dict[CodeType, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        caller = frame.f_back
        if event == "call" and frame.f_lasti != self._begins.setdefault(frame.f_code, frame.f_lasti):
            return  # a generator that goes on, or is closed because nobody needs more of it: that is no call
        if not self.armed or event != "call" or caller is None or not frame.f_code.co_filename.startswith(ENGINE):
            return
        after_operation = MaintenanceScheduler.after_operation.__code__
        if caller.f_code is threading.Thread.run.__code__ or frame.f_code is after_operation:
            return  # a thread that never began, see below; and what guards an operation from the upkeep beside it
        if any(each.f_code is Outcomes.error.__code__ for each in callers(frame, 4)):
            return  # the test's own look at what became of an operation
        site = (frame.f_code, caller.f_code, caller.f_lineno)
        if self.site is None:
            self.sites[site] = None
        elif site == self.site:
            self.armed = False
            raise Injected(f"{frame.f_code.co_name}, called from line {caller.f_lineno}")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Among all calls of this thread, and of those that begin meanwhile."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            self.armed = False
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        armed, self.armed = self.armed, False
        yield
        self.armed = armed


def appended(letter: str, size: int = 1, offset: int | None = None, *updates: AttributeUpdate) -> list[Operation]:
    return [Append("s", Payload(letter.encode() * size), offset, updates)]


WORK: dict[str, list[Operation]] = {
    "A": appended("A"),
    "B": appended("B"),
    "C": appended("C", 1, 999),  # refused
    "D": appended("D", 1, None, set_to(7, 5)),  # looked up in LTS
    "E": [*appended("E"), CreateSegment("new")],
    "F": [*appended("F"), Append("none", Payload(b"F"))],  # refused after a look-up
    "G": appended("G", 700),  # spans frames, or goes to a chunk
    "H": appended("H", 1, None, set_to(9, 1)),  # refused
    "I": [*appended("I"), PutEntry("t", "k", b"", -1)],
}
REFUSED = {"C": BadOffset, "F": SegmentNotFound, "H": BadAttributeUpdate}


class Outcomes:
    """What was heard of each operation of WORK: its future, or what `submit` raised."""

    def __init__(self) -> None:
        self.heard: dict[str, Future[Receipt] | Exception] = {}

    def submit(self, container: Container, letter: str) -> None:
        try:
            self.heard[letter] = container.submit(WORK[letter])
        except Exception as error:
            self.heard[letter] = error

    def commit(self, container: Container, letter: str) -> None:
        """Carry it out in this thread. What counts is what it was told, whatever goes wrong after that."""
        try:
            transaction = Transaction(WORK[letter])
            self.heard[letter] = transaction.create_future()
        except Injected as error:
            self.heard[letter] = error
            return
        try:
            container.log.processor.commit(transaction)
        except Exception as error:
            if transaction.outcome is None:
                self.heard[letter] = error

    def error(self, letter: str) -> BaseException | None:
        heard = self.heard[letter]
        return heard if isinstance(heard, Exception) else heard.exception(30)

    def check(self, fresh: Container, unknown: bool = False) -> None:
        """Each was told, once, and success if and only if it is there; with `unknown`, this may not be known."""
        content = fresh.read("s", 0, fresh.info("s").length)
        for letter, operations in WORK.items():
            appends = [operation for operation in operations if isinstance(operation, Append)]
            assert isinstance(appends[0].content, Payload)
            size = len(appends[0].content)
            error = self.error(letter)
            if unknown and isinstance(error, OutcomeUnknown):
                continue
            assert content.count(letter.encode()) == (0 if error else size), (letter, error)
            assert content.count(letter.encode() * size) == (0 if error else 1), (letter, error)
            if letter in REFUSED:
                assert isinstance(error, REFUSED[letter] | ContainerOffline | Injected | StorageUnavailable), error


def lost_by(simulation: Simulation, through: Meanwhile) -> Callable[[], None]:
    """What lets the process behind `through` lose its next race."""
    another = simulation.open(maintenance=False)

    def lose() -> None:
        through.other = lambda: another.append("s", b"other")

    return lose


SETTINGS: dict[str, Any] = {
    "maintenance": True,
    "checkpoint_frames": 2,
    "flush_frames": 1 << 20,
    "flush_seconds": 1e9,
    "timeout": 1.0,
}


def work_alone(faults: CallFaults) -> None:
    """Carry out WORK in one thread, one after the other, the first and the large one after a lost race."""
    simulation = Simulation(**SETTINGS)
    numbered(simulation)
    through = Meanwhile(simulation, faults.paused)
    lose = lost_by(simulation, through)
    container = simulation.open(through=through)
    with faults.installed():
        faults.armed = True
        outcomes = one_by_one(container, lose)
    with simulation.open() as fresh:
        outcomes.check(fresh)
        if faults.site is None:
            assert {letter for letter in WORK if outcomes.error(letter)} == set(REFUSED)


def work_with_threads(faults: CallFaults) -> None:
    """Carry out WORK all at once, by the threads of a container."""
    outcomes, simulation = Outcomes(), Simulation(**SETTINGS)
    numbered(simulation)
    through = Meanwhile(simulation, faults.paused)
    lose = lost_by(simulation, through)
    with faults.installed():
        container = Container(Stores(through, through), 0, Settings(**simulation.settings, linger=0.001))
        lose()
        faults.armed = True
        for letter in WORK:
            outcomes.submit(container, letter)
        for letter in WORK:
            outcomes.error(letter)
        faults.armed = False
        container.close()
    with simulation.open() as fresh:
        outcomes.check(fresh)


def work_of_a_caller(faults: CallFaults) -> None:
    """Carry out WORK in the thread of who commits it, of a container that has threads."""
    simulation = Simulation(**SETTINGS)
    numbered(simulation)
    through = Meanwhile(simulation, faults.paused)
    lose = lost_by(simulation, through)
    with faults.installed():
        container = Container(Stores(through, through), 0, Settings(**simulation.settings, linger=0.001))
        faults.armed = True
        outcomes = committed(container, lose)
        faults.armed = False
        container.close()
    with simulation.open() as fresh:
        outcomes.check(fresh)


def work_of_a_caller_that_meets_others(faults: CallFaults) -> None:
    """Commit in the caller's thread what then is submitted to another process, which does not carry it."""
    simulation = Simulation(**SETTINGS)
    numbered(simulation)
    through = Meanwhile(simulation, faults.paused)
    another = simulation.open(maintenance=False)
    with faults.installed():
        container = Container(Stores(through, through), 0, Settings(**simulation.settings, linger=0.001))

        def meet() -> None:
            another.log.processor.log.meet()
            another.append("s", b"other")
            container.log.processor.log.meet()

        def lose() -> None:
            through.other = meet

        faults.armed = True
        outcomes = committed(container, lose)
        faults.armed = False
        container.close()
    with simulation.open() as fresh:
        outcomes.check(fresh, unknown=True)


def committed(container: Container, lose: Callable[[], None]) -> Outcomes:
    """Carry out WORK as `one_by_one`, each waited for."""
    outcomes = Outcomes()
    for letter in WORK:
        if letter in "AG":
            lose()
        outcomes.commit(container, letter)
    return outcomes


def one_by_one(container: Container, lose: Callable[[], None]) -> Outcomes:
    """Carry out WORK, the first and the large one after a lost race."""
    outcomes = Outcomes()
    for letter in WORK:
        if letter in "AG":
            lose()
        outcomes.submit(container, letter)
    return outcomes


def all_at_once(container: Container, lose: Callable[[], None]) -> Outcomes:
    """Carry out WORK, which leaves together, after a lost race."""
    outcomes, processor = Outcomes(), container.log.processor
    assert isinstance(processor, Stepped)
    lose()
    for letter in WORK:
        outcomes.submit(container, letter)
    while not processor.idle:
        processor.step()
    processor.step()
    return outcomes


def sites(work: Callable[[CallFaults], None]) -> list[Site]:
    noting = CallFaults()
    work(noting)
    return list(noting.sites)


CRUCIAL = {
    function.__code__
    for function in (
        Processor.submit,
        Processor.commit,
        Processor._enqueue,
        FrameSettler.settle_or_raise,
        Acknowledgements.complete_settled,
        Acknowledgements.complete,
        Log.send,
    )
}
"""What these call fails in turn, each time: there an operation passes from one hand to another."""


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("work", [work_alone, work_with_threads, work_of_a_caller])
def test_a_fault_at_every_call_between_submit_and_tell(work: Callable[[CallFaults], None], step: int) -> None:
    with small_sizes():
        found = sites(work)
        assert len(found) > 200
        for site in [site for number, site in enumerate(found) if number % step == 0 or site[1] in CRUCIAL]:
            try:
                work(CallFaults(site))
            except BaseException as error:
                where = f"{site[0].co_name} called from {site[1].co_name} in {site[1].co_filename}, line {site[2]}"
                raise AssertionError(where) from error


HANDING_OVER = {"_commit_inline", "_steps_inline"}
"""Where a caller's thread hands its transaction over to the container's own."""


def test_a_fault_where_a_caller_hands_over_what_it_submitted_to_another_process() -> None:
    with small_sizes():
        found = [site for site in sites(work_of_a_caller_that_meets_others) if site[1].co_name in HANDING_OVER]
        assert {"_hand_over", "_steps"} <= {site[0].co_name for site in found}
        for site in found:
            try:
                work_of_a_caller_that_meets_others(CallFaults(site))
            except BaseException as error:
                raise AssertionError(f"{site[0].co_name} called from {site[1].co_name}, line {site[2]}") from error


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("work", [one_by_one, committed, all_at_once])
def test_a_storage_that_fails_at_every_request(
    work: Callable[[Container, Callable[[], None]], Outcomes], when: When, forever: bool, step: int
) -> None:
    """Where it fails once, nothing stays unknown; where it is gone for good, nothing is told that nobody knows."""
    with (
        small_sizes(),
        mock.patch("engine.logs.durable_log.Processor", Stepped if work is all_at_once else Processor),
    ):
        for number in itertools.count(1, step):
            simulation = Simulation(**SETTINGS, linger=0.0)
            with mock.patch("engine.logs.durable_log.Processor", Processor):
                numbered(simulation)
                meanwhile = Meanwhile(simulation)
                lose = lost_by(simulation, meanwhile)
            broken = FaultStore(meanwhile)
            container = simulation.open(through=broken)
            last = broken.passed + number
            broken.plan = fail_at(last, when, forever=forever)
            outcomes = work(container, lose)
            with mock.patch("engine.logs.durable_log.Processor", Processor), simulation.open() as fresh:
                outcomes.check(fresh, unknown=forever)
            if broken.passed < last:
                break


@pytest.mark.parametrize("failing", range(1, 8))
def test_a_thread_that_cannot_be_started(failing: int) -> None:
    """Be it the processor's, one of the executor's, or one of upkeep's, which the call-back of a frame wants."""
    simulation = Simulation(**SETTINGS)
    begin, begun = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        begun.append(thread)
        if len(begun) == failing:
            raise RuntimeError("can't start new thread")
        begin(thread)

    store = LatencyStore(simulation.store, 0.001)
    settings = Settings(**simulation.settings, linger=0.0)
    heard: dict[bytes, object] = {}
    with mock.patch.object(threading.Thread, "start", start), Container(Stores(store, store), 0, settings) as container:
        for _ in range(2):
            with suppress(RuntimeError):
                container.create_segment("s")
                break
        for number in range(8):
            data = b"%d" % number
            try:
                heard[data] = container.submit([Append("s", Payload(data))])
            except RuntimeError as error:
                heard[data] = error
        told = {data: future.exception(30) if isinstance(future, Future) else future for data, future in heard.items()}
    with simulation.open() as fresh:
        content = fresh.read("s", 0, fresh.info("s").length)
        assert content == b"".join(data for data, error in told.items() if error is None)
        assert len(content) >= 7


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_put_that_fails_for_no_declared_reason_is_settled(when: When) -> None:
    """That a client of a storage has a bug, say, tells nothing of the frame that it was to put."""

    class Surprising(WrappingStore):
        surprises = 0

        def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
            if request.verb != "put_if_absent" or not self.surprises:
                return call()
            self.surprises -= 1
            if when == "after":
                call()
            raise Injected("nobody has declared this")

    simulation = Simulation()
    store = Surprising(simulation.store)
    with simulation.open(through=store) as container:
        container.create_segment("s")
        store.surprises = 2
        assert container.append("s", b"data") == 0
        store.surprises = 1 << 20
        with pytest.raises(OutcomeUnknown, match="nobody has declared this"):
            container.append("s", b"more")
    with simulation.open() as fresh:
        assert fresh.info("s").length == (8 if when == "after" else 4)


def test_a_frame_is_known_before_its_request_leaves() -> None:
    """Whatever happens behind that, it is settled, and not forgotten."""
    flying: list[int] = []

    class Looking(InlineExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
            flying.append(len(container.log.processor.log.flights))
            return super().submit(fn, *args)

    with Simulation().open(executor=Looking()) as container:
        container.create_segment("s")
    assert flying == [1]


def test_a_call_back_that_fails_is_not_taken_for_the_operations_failure() -> None:
    simulation = Simulation()
    with simulation.open() as container:
        observer = mock.Mock(**{"checkpoint_due.return_value": False})
        observer.committed.side_effect = RuntimeError("can't start new thread")
        container.log.observe(observer)
        container.create_segment("s")
        assert container.append("s", b"data") == 0
        assert observer.committed.call_count == 2
        assert not container.offline


def test_frames_that_were_passed_before_an_error_are_applied_before_anything_is_sent() -> None:
    """The log was read on by one frame when the storage failed: nothing is held against the state before it (W2)."""
    simulation = Simulation()
    other = simulation.open()
    other.create_segment("s")
    broken = FaultStore(simulation.store, verbs=["read_ranges"])
    container = simulation.open(through=broken, timeout=0.1)
    other.append("s", b"first")
    broken.plan = fail_at(broken.passed + 2, forever=True)
    with pytest.raises(StorageUnavailable):
        container.refresh()
    with pytest.raises(StorageUnavailable):
        container.append("s", b"not sent")
    broken.plan = None
    assert container.append("s", b"second") == 5
    assert container.state.sequence == simulation.open().state.sequence
    assert other.refresh().segments["s"].length == container.state.segments["s"].length == 11


def test_a_race_that_is_lost_against_a_void_frame_leaves_no_trace() -> None:
    """Nothing is read on that would make the state anew: what was sent is judged without itself."""
    simulation = Simulation()
    with simulation.open() as container:
        container.create_segment("s")
        zombie = open_log(simulation.store)
        zombie.next = container.head.address + 1
        append_frames(zombie, b"by somebody who knows nothing of the log")
        assert container.append("s", b"data") == 0
        assert container.append("s", b"more") == 4
    with simulation.open() as fresh:
        assert fresh.read("s", 0, fresh.info("s").length) == b"datamore"


def test_what_the_storage_refused_leaves_no_trace() -> None:
    """What comes next is judged without it."""

    class Full(WrappingStore):
        full = False

        def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
            if self.full and request.verb == "put_if_absent":
                raise StorageFull("no space left")
            return call()

    simulation = Simulation()
    store = Full(simulation.store)
    with simulation.open(through=store) as container:
        container.create_segment("s")
        store.full = True
        with pytest.raises(StorageFull):
            container.append("s", b"refused")
        store.full = False
        assert container.append("s", b"data") == 0
    with simulation.open() as fresh:
        assert fresh.read("s", 0, fresh.info("s").length) == b"data"


def test_of_what_flies_when_a_container_fails_nobody_is_told_that_it_is_not_done() -> None:
    """Its frame has landed, and nobody answers any more; what was only queued is not done."""
    simulation, executor = Simulation(linger=0.0), ByHand()
    simulation.open().create_segment("s")
    broken = FaultStore(simulation.store, verbs=["put_if_absent"])
    with mock.patch("engine.logs.durable_log.Processor", Stepped):
        container = simulation.open(through=broken, executor=executor, timeout=0.0)
    processor = container.log.processor
    assert isinstance(processor, Stepped)
    live = container.submit([Append("s", Payload(b"live"))])
    processor.step()
    queued = container.submit([Append("s", Payload(b"queued"))])
    broken.plan = lambda at, request: Fault("after")
    executor.land()
    executor.inline = True
    container.log.processor.fail(RuntimeError("something is wrong"))
    assert isinstance(live.exception(), OutcomeUnknown)
    assert isinstance(queued.exception(), ContainerOffline)
    with simulation.open() as fresh:
        assert fresh.read("s", 0, fresh.info("s").length) == b"live"


@pytest.mark.usefixtures("spilling")
def test_what_is_live_is_told_although_what_another_needs_cannot_be_looked_up() -> None:
    """They left together; the one's table is gone, and reading on to find out where it is fails."""
    simulation = Simulation(linger=0.0)
    numbered(simulation)
    broken = FaultStore(simulation.store, verbs=["read_ranges"])
    with mock.patch("engine.logs.durable_log.Processor", Stepped):
        container = simulation.open(through=broken, timeout=0.1)
    processor = container.log.processor
    assert isinstance(processor, Stepped)
    for listed in simulation.store.list("_system/containers/"):
        simulation.store.delete([listed.path])
    broken.plan = lambda at, request: Fault("before") if "/wal/" in request.paths[0] else None
    live = container.submit([Append("s", Payload(b"live"))])
    lost = container.submit([Append("s", Payload(b"lost"), None, (set_to(7, 5),))])
    for _ in range(4):
        processor.step()
    assert live.result().results == [0]
    assert isinstance(lost.exception(), StorageUnavailable)


# --- refusals ----------------------------------------------------------------------------------------------------


class LateAnswers:
    """An executor that carries out a request at once, and answers when the test says so."""

    def __init__(self) -> None:
        self._answers: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._answers.append((future, fn(*args)))
        return future

    def answer(self) -> None:
        for future, result in self._answers:
            future.set_result(result)
        self._answers.clear()


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with one that is accepted"])
def test_a_refusal_is_not_older_than_the_call(together: bool) -> None:
    """Held against the state behind a frame that had landed before the call, and been followed by another's."""
    simulation, executor = Simulation(linger=0.0), LateAnswers()
    simulation.open().create_segment("a")
    with mock.patch("engine.logs.durable_log.Processor", Stepped):
        container = simulation.open(executor=executor)
    processor = container.log.processor
    assert isinstance(processor, Stepped)
    futures = [container.submit([Append("a", Payload(b"first"))])]
    processor.step()
    with simulation.open() as another:
        another.create_segment("b")
    futures.append(container.submit([Append("b", Payload(b"second"))]))
    if together:
        futures.append(container.submit([Append("a", Payload(b"third"))]))
    for _ in range(6):
        processor.step()
        executor.answer()
    processor.step()
    assert [future.result().results for future in futures] == [[0], [0], [5]][: len(futures)]


class SlowAnswers(WrappingStore):
    """Answers a while after it has done what was asked."""

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        result = call()
        time.sleep(0.003)
        return result


def test_a_refusal_waits_for_the_frames_in_flight_that_it_was_held_against() -> None:
    """Though the log was read to its end since the call: what refuses it is not in the log, and does not get there."""
    simulation, executor = Simulation(linger=0.0, frame_transactions=1), ByHand()
    simulation.open().create_segment("s", [AttributeUpdate(NUMBER, UpdateKind.REPLACE, 5)])
    refusing = FaultStore(simulation.store, verbs=["put_if_absent"])
    with mock.patch("engine.logs.durable_log.Processor", Stepped):
        container = simulation.open(through=refusing, executor=executor, timeout=0.0)
    processor = container.log.processor
    assert isinstance(processor, Stepped)
    futures = [container.submit([Append("s", Payload(b"x"), None, (set_to(7, 5),))]) for _ in range(2)]
    container.refresh()
    for _ in range(2):
        processor.step()
    assert not any(future.done() for future in futures)
    refusing.plan = fail_at(refusing.passed + 1)
    executor.land()
    for _ in range(3):
        processor.step()
    executor.land()
    for _ in range(2):
        processor.step()
    assert isinstance(futures[0].exception(), OutcomeUnknown)
    assert futures[1].result().results == [0]


def test_a_refusal_among_many_frames_in_flight_is_not_older_than_the_call() -> None:
    """The same with threads: one appends all the time, another does what a third has just made possible."""
    simulation = Simulation()
    stores = [Stores(store, store) for store in (SlowAnswers(simulation.store), simulation.store)]
    settings = Settings(maintenance=False, linger=0.0)
    with Container(stores[0], 0, settings) as busy, Container(stores[1], 0, settings) as other:
        busy.create_segment("a")
        done = threading.Event()

        def append() -> None:
            while not done.is_set():
                busy.append("a", b"x")

        with ThreadPoolExecutor(2) as pool:
            writers = [pool.submit(append) for _ in range(2)]
            try:
                for number in range(20):
                    name = f"made/{number}"
                    with pytest.raises(SegmentNotFound):
                        busy.append(name, b"too early")
                    other.create_segment(name)
                    assert busy.append(name, b"data") == 0
                    with pytest.raises(SegmentExists):
                        busy.create_segment(name)
            finally:
                done.set()
            for writer in writers:
                writer.result()


@pytest.mark.parametrize("there", [False, True], ids=["deleted", "made again"])
def test_a_read_is_refused_by_no_older_state_either(there: bool) -> None:
    simulation = Simulation()
    with simulation.open() as container, simulation.open() as another:
        another.create_segment("s")
        another.append("s", b"before")
        another.truncate("s", 3)
        container.refresh()
        another.delete("s")
        if there:
            another.create_segment("s")
            another.append("s", b"after")
            assert container.read("s", 0, 5) == b"after"
        else:
            with pytest.raises(SegmentNotFound):
                container.read("s", 0, 5)


def test_refusals_share_the_read_that_makes_them_final() -> None:
    gate = GatedStore(Simulation().store, lambda request: request.verb == "read_ranges")
    gate.remote = True
    counting = CountingStore(gate)
    with Container(Stores(counting, counting), 0, Settings(maintenance=False)) as container:
        container.create_segment("s")
        counting.reset()
        gate.open.clear()
        futures = [container.submit([Append("s", Payload(b"x"), 7)]) for _ in range(100)]
        gate.open.set()
        assert all(isinstance(future.exception(), BadOffset) for future in futures)
        assert counting.count("read_ranges") <= 2
        assert counting.count("put_if_absent") == 0


@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_histories_with_refusals_are_linearizable(rounds: int) -> None:
    """Through a process that always has frames in flight, and one that has none, two callers make a segment, append to
    it at places that they guess, and seal it; most of it is refused."""
    simulation, settings = Simulation(), Settings(maintenance=False, linger=0.0)
    refused: Counter[str] = Counter()
    done = threading.Event()

    def append(container: Container) -> None:
        while not done.is_set():
            container.append("other", b"x")

    with ExitStack() as opened, ThreadPoolExecutor(4) as threads:
        stores = [SlowAnswers(simulation.store), simulation.store]
        containers = [opened.enter_context(Container(Stores(store, store), 0, settings)) for store in stores]
        containers[0].create_segment("other")
        writers = [threads.submit(append, containers[0]) for _ in range(2)]
        try:
            for number in range(rounds):
                recorders = [Recorder(container, f"s/{number}", f"{n}") for n, container in enumerate(containers)]
                draws = [random.Random(f"{number} {caller}") for caller in range(2)]
                for caller in [threads.submit(use, recorders, draw) for draw in draws]:
                    caller.result()
                history = [event for recorder in recorders for event in recorder.events]
                check(history, exists=False)
                outcomes = [event.outcome for event in history if isinstance(event, Response)]
                refused.update(outcome.error for outcome in outcomes if isinstance(outcome, Refused))
        finally:
            done.set()
        for writer in writers:
            writer.result()
    assert {"SegmentNotFound", "SegmentExists", "BadOffset", "SegmentSealed"} <= {*refused}


def use(recorders: list[Recorder], draw: random.Random) -> None:
    """Do this and that with a segment, here and there."""
    for _ in range(8):
        recorder = draw.choice(recorders)
        with suppress(Rejected):
            match draw.randrange(12):
                case 0 | 1:
                    recorder.create()
                case 2 | 3 | 4:
                    recorder.append(bytes([draw.randrange(256)]) * 3)
                case 5 | 6 | 7:
                    recorder.append(bytes([draw.randrange(256)]) * 3, 3 * draw.randrange(6))
                case 8:
                    recorder.truncate(draw.randrange(9))
                case 9 if draw.random() < 0.5:
                    recorder.seal()
                case _:
                    recorder.info()


# --- what failures leave --------------------------------------------------------------------------------------------


class Failing(WrappingStore):
    """Fails each create with one error, while there is one."""

    error: type[Exception] | None = None

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if self.error is not None and request.verb == "put_if_absent":
            raise self.error("what fails")
        return call()


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("error", [StorageUnavailable, StorageRefused, PutUnknown])
def test_a_failed_commit_leaves_nothing_to_the_collector(error: type[Exception], in_background: bool) -> None:
    """A frame in a cycle with its exception would hold what was to be written, which may be megabytes."""
    simulation = Simulation(timeout=1.0)
    store = Failing(simulation.store)
    with ThreadPoolExecutor(1) as threads:
        container = simulation.open(through=store, executor=threads if in_background else None)
        container.create_segment("s")

        def append() -> None:
            store.error = error
            container.append("s", b"x" * 1000)

        assert frames_left(append) == 0
        store.error = None
        with suppress(EngineError):
            container.refresh()
        container.close()
