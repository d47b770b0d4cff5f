"""Garbage: the queue's contract, what the collector deletes and when."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chunkstore import StorageUnavailable, Store, open_store
from chunkstore.chunk_names import made_for, new_chunk_name
from chunkstore.errors import MetadataConflict
from chunkstore.garbage_collector import GarbageCollector, GarbageConfig, GarbageReport
from chunkstore.metadata.garbage_queue import GarbageKind, GarbageTask
from chunkstore.metadata.metadata_records import segment_key
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.pravega.journal import JournalConfig, SystemJournal
from chunkstore.segments.chunk_list import ChunkList
from chunkstore.segments.errors import ConcurrentModification
from chunkstore.segments.storage import ChunkedSegmentStorage
from chunkstore.testing import Crashed, Fault, FaultStore, SimulatedStore, WrappingStore
from chunkstore.testing.contracts import refused
from chunkstore.wrapping import Request
from tests.support.flaky_metadata import FlakyMetadataStore
from tests.support.garbage_queue import StoreGarbageQueue
from tests.support.segment_contracts import DATA, NAME, OTHER, World

TASKS = [
    GarbageTask("a/b.E-1-O-0.x", 1000.0),
    GarbageTask("a#deleted.x", 1000.25, 2, GarbageKind.SEGMENT, segment="a"),
    GarbageTask("_system/containers/_sysjournal.epoch1.container0.file1", 999.5, 1, GarbageKind.JOURNAL),
    GarbageTask("ü", 1000.5, 0, GarbageKind.NEW_CHUNK, segment="ö"),
]


# -- the queue


@pytest.fixture(params=["simulated", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return SimulatedStore() if request.param == "simulated" else open_store(str(tmp_path))


def test_tasks_come_when_they_are_due(store: Store) -> None:
    queue = StoreGarbageQueue(store, 7)
    queue.add(TASKS[1:3])
    queue.add(TASKS[:1])
    queue.add([])
    queue.add(TASKS[3:])
    assert list(queue.due(999.9)) == []
    assert [batch.tasks for batch in queue.due(1000.0)] == [(TASKS[0],)]
    assert [batch.tasks for batch in queue.due(1000.25)] == [(TASKS[0],), tuple(TASKS[1:3])]
    assert [batch.tasks for batch in queue.due(2000)] == [(TASKS[0],), tuple(TASKS[1:3]), (TASKS[3],)]
    assert list(StoreGarbageQueue(store, 70).due(2000)) == []


def test_what_is_due_now_is_due_whatever_the_fractions_of_a_second() -> None:
    queue = StoreGarbageQueue(SimulatedStore(), 7)
    numbers = random.Random(0)
    for _ in range(300):
        now = numbers.randrange(1_795_000_000_000, 1_800_000_000_000) / 1000
        queue.add([GarbageTask("x", now)])
        (batch,) = queue.due(now)
        queue.settle(batch)


def test_what_is_done_does_not_come_again(store: Store) -> None:
    queue = StoreGarbageQueue(store, 7)
    for task in TASKS:
        queue.add([task])
    for batch in queue.due(2000):
        queue.settle(batch)
        queue.settle(batch)
    assert list(StoreGarbageQueue(store, 7).due(2000)) == []
    assert store.list("") == []


def test_failed_tasks_are_kept_for_the_operator(store: Store) -> None:
    queue = StoreGarbageQueue(store, 7)
    queue.add(TASKS)
    for batch in queue.due(5000):
        queue.settle(batch, aside=TASKS)
    assert list(queue.due(5000)) == []
    (batch,) = queue.failed()
    assert batch.tasks == tuple(TASKS)
    queue.retry(batch, now=3000.0)
    assert list(queue.failed()) == []
    assert list(queue.due(2999)) == []
    (again,) = queue.due(3000)
    assert again.tasks == tuple(task._replace(attempts=0, due=3000.0) for task in TASKS)


def test_many_batches_come_page_by_page(store: Store) -> None:
    queue = StoreGarbageQueue(store, 7, page=3)
    for number in range(20):
        queue.add([GarbageTask(str(number), float(number))])
    assert [batch.tasks[0].name for batch in queue.due(13)] == [str(number) for number in range(14)]
    for batch in queue.due(100):
        queue.settle(batch)
    assert list(queue.due(100)) == []


# -- the collector


class FailingDeletes(WrappingStore):
    """Does not delete what `fails` says."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.fails: Callable[[str], bool] = lambda path: False

    def _carry_out(self, request: Request, call: Any) -> Any:
        if request.verb == "delete" and any(map(self.fails, request.paths)):
            raise StorageUnavailable("not now")
        return call()


@pytest.fixture
def failing() -> FailingDeletes:
    return FailingDeletes(SimulatedStore())


@pytest.fixture
def world(failing: FailingDeletes) -> World:
    return World(failing)


def collector(world: World, **options: Any) -> GarbageCollector:
    assert world.metadata is not None
    return GarbageCollector(world.chunks, world.metadata, world.queue, **options)


def truncated(world: World) -> tuple[ChunkedSegmentStorage, list[str]]:
    """A segment of five chunks, of which the three that are returned were taken out."""
    segments = world.open()
    world.make(segments, NAME, [10] * 5)
    names = [placed.chunk.name for placed in segments.layout(NAME)]
    segments.truncate(NAME, 35)
    return segments, names[:3]


def test_nothing_goes_before_its_time(world: World) -> None:
    _, names = truncated(world)
    assert collector(world).run_once(world.now + 59.9) == GarbageReport()
    assert set(names) < world.stored_chunks()
    assert collector(world).run_once(world.now + 60) == GarbageReport(deleted=3)
    assert not set(names) & world.stored_chunks()
    assert collector(world).run_once(world.now + 1000) == GarbageReport()


def test_chunks_that_are_alive_stay(world: World) -> None:
    segments = world.open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA)
    (placed,) = segments.layout(NAME)
    world.queue.add([GarbageTask(placed.chunk.name, world.now, segment=NAME)])  # of a truncation that did not happen
    assert collector(world).run_once(world.now + 61) == GarbageReport(alive=2)
    assert segments.read(NAME, 0, 1000) == DATA


def test_deletions_that_fail_are_tried_again_and_then_put_aside(world: World, failing: FailingDeletes) -> None:
    world.open()
    names = [new_chunk_name(NAME, 1, offset) for offset in range(3)]
    for name in names:
        world.chunks.put(name, b"x")
    world.queue.add([GarbageTask(name, world.now + 60, segment=NAME) for name in names])
    failing.fails = lambda path: path == names[1]
    now = world.now + 60
    assert collector(world).run_once(now) == GarbageReport(deleted=2, retried=1)
    assert collector(world).run_once(now + 59) == GarbageReport()
    assert collector(world).run_once(now + 60) == GarbageReport(retried=1)
    assert collector(world).run_once(now + 120) == GarbageReport(retried=1)
    assert collector(world).run_once(now + 180) == GarbageReport(failed=1), "the 4th time"
    assert collector(world).run_once(now + 1000) == GarbageReport()
    (batch,) = world.queue.failed()
    assert [task.name for task in batch.tasks] == [names[1]]
    failing.fails = lambda path: False
    world.queue.retry(batch, now)
    assert collector(world).run_once(now) == GarbageReport(deleted=1)
    assert not set(names) & world.stored_chunks()


def test_a_deleted_segment_is_kept_until_all_its_chunks_are_gone(world: World, failing: FailingDeletes) -> None:
    _, names = truncated(world)
    failing.fails = lambda path: path == names[1]
    assert collector(world).run_once(world.now + 60) == GarbageReport(retried=1)
    failing.fails = lambda path: False
    assert collector(world).run_once(world.now + 120) == GarbageReport(deleted=3)
    assert not set(names) & world.stored_chunks()
    assert not [key for key in world.table.rows if "#deleted" in key]


def test_chunks_that_something_else_names_stay(world: World) -> None:
    _, names = truncated(world)
    report = collector(world, held=lambda some: [names[1]]).run_once(world.now + 60)
    assert report == GarbageReport(deleted=2, alive=1)
    assert set(names) & world.stored_chunks() == {names[1]}


def test_a_collection_stops_when_it_is_told_and_is_resumed(world: World) -> None:
    """So a deleted segment of any number of chunks never changes too much of the metadata at once."""
    segments = world.open()
    world.make(segments, NAME, [1] * 20)
    segments.delete(NAME)
    left = iter([True, True, False] * 10)
    deleted: list[int] = []
    while world.stored_chunks():
        report = collector(
            world, config=GarbageConfig(transaction_batch=3, attempts=100), should_continue=lambda: next(left)
        ).run_once(world.now + 60 * (len(deleted) + 1))
        deleted.append(report.deleted)
    assert deleted == [6, 6, 6, 2]
    assert not world.table.rows


def test_a_deleted_segment_is_taken_apart_in_parts(world: World) -> None:
    segments = world.open()
    world.make(segments, NAME, [1] * 20)
    segments.delete(NAME)
    config = GarbageConfig(transaction_batch=3)
    assert collector(world, config=config).run_once(world.now + 60).deleted == 20
    assert not world.stored_chunks() and not world.table.rows


def test_a_crash_anywhere_in_a_collection_loses_no_garbage() -> None:
    number = 1  # even: the request before which it crashes, doubled; odd: the one after which
    while True:
        number += 1
        inner = SimulatedStore()
        world = World(inner)
        segments = world.open()
        for name in (NAME, OTHER):
            world.make(segments, name, [1] * 7)
        segments.truncate(NAME, 5)
        segments.delete(OTHER)
        faulty = FaultStore(inner)
        faulty.plan = lambda at, request, number=number: _crash(at, number)
        crashing = GarbageCollector(
            faulty,
            MemoryMetadataStore(world.table),
            StoreGarbageQueue(faulty, 0),
            GarbageConfig(transaction_batch=3),
        )
        try:
            crashing.run_once(world.now + 60)
        except Crashed:
            pass
        else:
            break
        world.now += 61
        world.collect()
        world.collect()
        assert world.stored_chunks() == {placed.chunk.name for placed in segments.layout(NAME)}
        assert len(world.stored_chunks()) == 2
    assert number > 25


def _crash(at: int, number: int) -> Fault | None:
    return Fault("after" if number % 2 else "before", crash=True) if at == number // 2 else None


def test_who_slept_between_chunk_and_commit_cannot_commit(world: World) -> None:
    segments = world.open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA[:10])

    class Slow(WrappingStore):
        def _carry_out(self, request: Request, call: Callable[[], Any]) -> Any:
            result = call()
            if request.verb != "put" or made_for(request.paths[0]) is None:
                return result
            other = MemoryMetadataStore(world.table)
            report = GarbageCollector(world.chunks, other, world.queue).run_once(world.now + 61)
            assert report.deleted == 1
            return result

    sleeper = ChunkedSegmentStorage(
        Slow(world.chunks), MemoryMetadataStore(world.table), world.queue, 1, clock=lambda: world.now
    )
    refused(ConcurrentModification, sleeper.write, NAME, 10, b"late")
    assert sleeper.read(NAME, 0, 10) == DATA[:10]
    assert sleeper.info(NAME).length == 10


def test_who_slept_between_queue_and_commit_cannot_commit(world: World) -> None:
    """He queued a chunk that he is about to let go, and the collector finds that it is named: its task is done."""
    segments = world.open()
    world.make(segments, NAME, [10, 10])
    first, _ = (placed.chunk.name for placed in segments.layout(NAME))
    sleeper = MemoryMetadataStore(world.table)
    with sleeper.begin(segment_key(NAME)) as transaction:
        record = transaction.segment(NAME)
        assert record is not None
        chunks = ChunkList(transaction, record._replace(start_offset=10))
        world.queue.add([GarbageTask(first, world.now, segment=NAME)])
        assert chunks.cut(1) == [first]
        chunks.save()
        assert collector(world).run_once(world.now) == GarbageReport(alive=1)
        refused(MetadataConflict, transaction.commit)
    assert segments.read(NAME, 0, 20) == DATA[:20]


def test_a_segment_that_is_there_loses_no_chunk(world: World) -> None:
    """Though the queue has it: who queued it has not deleted it."""
    segments = world.open()
    world.make(segments, NAME, [10, 10])
    world.queue.add([GarbageTask(NAME, world.now, kind=GarbageKind.SEGMENT, segment=NAME)])
    assert collector(world).run_once(world.now) == GarbageReport()
    assert world.open().read(NAME, 0, 20) == DATA[:20]


def test_a_collector_that_always_loses_tries_later_and_warns_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.open().create(NAME)
    name = new_chunk_name(NAME, 1, 0)
    world.chunks.put(name, b"x")
    world.queue.add([GarbageTask(name, world.now, kind=GarbageKind.NEW_CHUNK, segment=NAME)])
    metadata = FlakyMetadataStore(world.table)
    metadata.fence = MetadataConflict("somebody was quicker")
    world.metadata = metadata
    assert collector(world).run_once(world.now) == GarbageReport(retried=1)
    assert not caplog.records
    metadata.fence = None
    assert collector(world).run_once(world.now + 60) == GarbageReport(deleted=1)


def test_a_journal_that_cannot_be_deleted_is_tried_again(world: World, failing: FailingDeletes) -> None:
    world.open()
    world.chunks.put("_system/containers/_sysjournal.epoch1.container0.file1", b"journal")
    world.queue.add(
        [GarbageTask("_system/containers/_sysjournal.epoch1.container0.file1", 0, kind=GarbageKind.JOURNAL)]
    )
    failing.fails = lambda path: "_sysjournal" in path
    options: dict[str, Any] = {"is_needed": lambda name: False}
    assert collector(world, **options).run_once(world.now) == GarbageReport(retried=1)
    failing.fails = lambda path: False
    assert collector(world, **options).run_once(world.now + 60) == GarbageReport(deleted=1)


def test_journals_go_when_nobody_needs_them(world: World) -> None:
    world.open()
    names = [f"_system/containers/_sysjournal.epoch1.container0.file{number}" for number in range(2)]
    for name in names:
        world.chunks.put(name, b"journal")
    world.queue.add([GarbageTask(name, world.now, kind=GarbageKind.JOURNAL) for name in names])
    assert collector(world, is_needed=lambda name: name == names[0]).run_once(world.now) == GarbageReport(1, 1)
    assert [info.path for info in world.chunks.list("")] == names[:1]
    world.queue.add([GarbageTask(names[0], world.now, kind=GarbageKind.JOURNAL)])
    assert collector(world).run_once(world.now) == GarbageReport(retried=1)  # it was not told which are needed


class Container:
    """An instance with a system journal, in its own process: only storage is shared."""

    def __init__(self, store: Store, epoch: int, config: JournalConfig | None = None) -> None:
        self.queue = StoreGarbageQueue(store, 0)
        self.metadata = MemoryMetadataStore()
        self.journal = SystemJournal(store, 0, epoch, self.queue, config or JournalConfig())
        self.journal.boot(self.metadata)
        self.segments = ChunkedSegmentStorage(store, self.metadata, self.queue, epoch, journal=self.journal.record)
        self.collector = GarbageCollector(
            store, self.metadata, self.queue, is_needed=self.journal.is_needed, snapshot=self.journal.snapshot
        )

    def collect(self) -> GarbageReport:
        return self.collector.run_once(time.time() + 100)


SYSTEM = "_system/containers/metadata_0"


def test_system_chunks_stay_where_their_segment_is_not_known() -> None:
    store = SimulatedStore()
    container = Container(store, 1)
    container.segments.write(SYSTEM, 0, DATA)
    not_booted = GarbageCollector(store, MemoryMetadataStore(), container.queue)
    assert not_booted.run_once(time.time() + 100).deleted == 0
    assert container.segments.read(SYSTEM, 0, 1000) == DATA


def test_an_overtaken_collector_does_not_touch_the_system_segments_of_its_successor() -> None:
    store = SimulatedStore()
    old = Container(store, 1)
    old.segments.write(SYSTEM, 0, DATA)
    new = Container(store, 2)
    new.segments.write(SYSTEM, 1000, DATA)
    old.segments.truncate(SYSTEM, 1000)  # nothing has told it, so as it sees it the first chunk is dead
    assert old.collect().deleted == 0
    new.collect()
    last = Container(store, 3)
    last.collect()
    assert last.segments.read(SYSTEM, 0, 2000) == DATA * 2


def test_a_system_chunk_whose_journal_record_may_have_arrived_is_not_missed_by_the_next_boot() -> None:
    store = FaultStore(SimulatedStore())
    first = Container(store, 1, JournalConfig(attempts=1))
    first.segments.write(SYSTEM, 0, DATA)
    # The commit fails although the journal has taken it, as every answer of the journal is lost.
    store.plan = lambda at, request: Fault("after") if "_sysjournal" in request.paths[0] else None
    refused(StorageUnavailable, first.segments.truncate, SYSTEM, 100)
    refused(StorageUnavailable, first.segments.write, SYSTEM, 1000, DATA)
    store.plan = None
    assert first.collect().retried == 0
    second = Container(store, 2)
    info = second.segments.info(SYSTEM)
    assert second.segments.read(SYSTEM, info.start_offset, info.length - info.start_offset) == DATA
    assert (info.start_offset, info.length) == (0, 1000)


def test_the_version_of_a_live_segment_changes_only_where_it_must(world: World) -> None:
    segments = world.open()
    segments.create(NAME)
    segments.write(NAME, 0, DATA)
    version = world.table.rows[segment_key(NAME)][0]
    collector(world).run_once(world.now + 61)
    assert world.table.rows[segment_key(NAME)][0] == version
