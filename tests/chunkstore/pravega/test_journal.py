"""The system journal: what boots is what was committed, whoever was stopped wherever, and whoever goes on writing."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from chunkstore import ObjectNotFound, StorageUnavailable, Store
from chunkstore.garbage_collector import GarbageCollector, GarbageReport
from chunkstore.metadata.metadata_records import ChunkRecord, RecordStatus, StoredSegmentRecord
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.pravega.journal import JournalConfig, JournalDamaged, SystemJournal, SystemLayouts, system_segments
from chunkstore.pravega.journal_records import (
    JournalRecord,
    JournalSnapshot,
    SegmentSnapshot,
    SnapshotInfo,
    encode_batch,
    encode_info,
    encode_snapshot,
    journal_name,
    snapshot_info_name,
    snapshot_name,
)
from chunkstore.segments.errors import StorageNotPrimary
from chunkstore.segments.storage import ChunkedSegmentStorage
from chunkstore.segments.system_changes import Appended, ChunkAdded, SystemChange, Truncated
from chunkstore.testing import Crashed, FaultStore, SimulatedStore, crash_at, fail_at
from tests.support.garbage_queue import StoreGarbageQueue

CONTAINER = 3
SEGMENTS = system_segments(CONTAINER)
DATA, INDEX = SEGMENTS[:2]
QUICK = JournalConfig(snapshot_batches=4, attempts=3, pause=0)


class Layout(NamedTuple):
    """What a segment's owner knows of it."""

    chunks: tuple[tuple[str, int], ...] = ()
    start_offset: int = 0
    first_chunk_start: int = 0

    @property
    def length(self) -> int:
        return self.first_chunk_start + sum(length for _, length in self.chunks)

    def with_chunk(self, name: str, length: int) -> Layout:
        return self._replace(chunks=(*self.chunks, (name, length)))

    def appended(self, length: int) -> Layout:
        *before, (name, old) = self.chunks
        return self._replace(chunks=(*before, (name, old + length)))

    def truncated(self, offset: int) -> Layout:
        chunks, start = list(self.chunks), self.first_chunk_start
        while chunks and start + chunks[0][1] <= offset:
            start += chunks.pop(0)[1]
        return Layout(tuple(chunks), offset, start)


Layouts = dict[str, Layout]
EMPTY: Layouts = dict.fromkeys(SEGMENTS, Layout())


class Owner:
    """An instance that owns the segments, as the segment layer does: it believes what it could record."""

    def __init__(self, store: Store, epoch: int, seed: int = 0, config: JournalConfig = QUICK) -> None:
        self.store = store
        self.garbage = StoreGarbageQueue(store, CONTAINER)
        self.journal = SystemJournal(store, CONTAINER, epoch, self.garbage, config)
        self.epoch = epoch
        self.layouts: Layouts = {}
        self.attempted: Layouts = {}  # with the change whose outcome is not known
        self._random = random.Random(f"{seed} {epoch}")
        self._named = 0
        self._own: set[str] = set()  # segments whose last chunk this instance made, and whose last write went well

    def boot(self) -> Owner:
        metadata = MemoryMetadataStore()
        self.journal.boot(metadata)
        self.layouts = self.attempted = layouts_in(metadata, self.epoch)
        return self

    def write(self, segment: str, length: int, roll: bool = False) -> None:
        layout = self.layouts[segment]
        if roll or segment not in self._own:
            self._named += 1
            name = f"{segment}.E-{self.epoch}-O-{layout.length}.{self._named}"
            after = layout.with_chunk(name, length)
            before = layout.chunks[-1][0] if layout.chunks else None
            with self._change(segment, after):
                self._record([ChunkAdded(segment, name, before, layout.length), Appended(segment, name, 0, length)])
        else:
            name, old = layout.chunks[-1]
            with self._change(segment, layout.appended(length)):
                self.journal.record([Appended(segment, name, old, length)])
        self._own.add(segment)

    def truncate(self, segment: str, offset: int) -> None:
        after = self.layouts[segment].truncated(offset)
        with self._change(segment, after):
            first = after.chunks[0][0] if after.chunks else None
            self.journal.record([Truncated(segment, offset, first, after.first_chunk_start)])
        if not after.chunks:
            self._own.discard(segment)

    def do_something(self) -> None:
        segment = self._random.choice(SEGMENTS[:2])
        layout = self.layouts[segment]
        if self._random.random() < 0.2 and layout.length > layout.start_offset:
            self.truncate(segment, self._random.randint(layout.start_offset + 1, layout.length))
        else:
            self.write(segment, self._random.randint(1, 100), roll=self._random.random() < 0.3)

    def _record(self, changes: Sequence[SystemChange]) -> None:
        """All records count together; or not, which makes no difference to their readers."""
        for some in [changes] if self._random.random() < 0.5 else [[change] for change in changes]:
            self.journal.record(some)

    def collect(self) -> GarbageReport:
        """What the garbage collector does when its delay is over."""
        collector = GarbageCollector(self.store, MemoryMetadataStore(), self.garbage, is_needed=self.journal.is_needed)
        return collector.run_once(time.time() + 1000)

    def _change(self, segment: str, after: Layout) -> _Change:
        self._own.discard(segment)  # until it went well
        return _Change(self, segment, after)


class _Change:
    def __init__(self, owner: Owner, segment: str, after: Layout) -> None:
        self.owner = owner
        owner.attempted = {**owner.layouts, segment: after}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.owner.layouts = self.owner.attempted


def layouts_in(metadata: MemoryMetadataStore, epoch: int) -> Layouts:
    """The layouts in the metadata, whose records are checked."""
    found = {}
    assert not metadata.table.rows, "a pinned record was stored"
    with metadata.begin(read_only=True) as transaction:
        for name in SEGMENTS:
            segment = transaction.segment(name)
            assert segment is not None
            segment.check_invariants()
            assert segment.owner_epoch == epoch
            assert segment.status & RecordStatus.SYSTEM_SEGMENT
            chunks, at = [], segment.first_chunk
            while at is not None:
                chunk = transaction.chunk(at)
                assert chunk is not None
                chunks.append((chunk.name, chunk.length))
                at = chunk.next_chunk
            found[name] = Layout(tuple(chunks), segment.start_offset, segment.first_chunk_start)
            assert found[name].length == segment.length
            assert len(chunks) == segment.chunk_count
    return found


def boots(store: Store, epoch: int) -> Layouts:
    return Owner(store, epoch).boot().layouts


@pytest.fixture(params=[True, False], ids=["appending", "one file per batch"])
def store(request: pytest.FixtureRequest) -> SimulatedStore:
    return SimulatedStore(can_append=request.param)


def test_the_first_boot_finds_empty_segments(store: SimulatedStore) -> None:
    assert boots(store, 1) == EMPTY
    assert boots(store, 2) == EMPTY


def test_the_next_owner_finds_what_was_recorded(store: SimulatedStore) -> None:
    owner = Owner(store, 1).boot()
    owner.write(DATA, 100)
    owner.write(DATA, 50)
    owner.write(DATA, 7, roll=True)
    owner.write(INDEX, 9)
    owner.truncate(DATA, 120)
    assert boots(store, 2) == owner.layouts
    assert owner.layouts[DATA].start_offset == 120
    assert owner.layouts[DATA].length == 157


def test_a_segment_is_truncated_to_its_very_end_and_goes_on(store: SimulatedStore) -> None:
    owner = Owner(store, 1).boot()
    owner.write(DATA, 100)
    owner.truncate(DATA, 100)
    assert owner.layouts[DATA] == Layout((), 100, 100)
    owner = Owner(store, 2).boot()
    assert owner.layouts[DATA] == Layout((), 100, 100)
    owner.write(DATA, 5)
    assert boots(store, 3) == owner.layouts


@pytest.mark.parametrize("seed", range(10))
def test_many_changes_and_owners(store: SimulatedStore, seed: int) -> None:
    layouts = EMPTY
    for epoch in range(1, 6):
        owner = Owner(store, epoch, seed).boot()
        assert owner.layouts == layouts
        for _ in range(20):
            owner.do_something()
        assert owner.collect().deleted
        layouts = owner.layouts


def test_journals_and_snapshots_are_collected(store: SimulatedStore) -> None:
    for epoch in range(1, 4):
        owner = Owner(store, epoch).boot()
        for _ in range(30):
            owner.do_something()
        assert owner.collect().deleted
    files = [found.path for found in store.list("_system/containers/") if "_sysjournal" in found.path]
    assert sum("snapshot_info" in file for file in files) == 1
    assert sum(".epoch3.container3.snapshot" in file for file in files) == 1
    assert sum(".file" in file for file in files) <= QUICK.snapshot_batches
    assert all(".epoch3." in file or "snapshot_info" in file for file in files)


def test_snapshots_are_due_by_count_and_by_time(store: SimulatedStore) -> None:
    now = 0.0
    config = JournalConfig(snapshot_batches=3, snapshot_seconds=60)
    journal = SystemJournal(store, CONTAINER, 1, StoreGarbageQueue(store, CONTAINER), config, clock=lambda: now)
    journal.boot(MemoryMetadataStore())

    def snapshots() -> int:
        return sum(".epoch1.container3.snapshot" in found.path for found in store.list("_system/containers/"))

    journal.record([ChunkAdded(DATA, "a", None, 0)])
    for number in range(3):
        assert snapshots() == 1
        journal.record([Appended(DATA, "a", number, 1)])
    assert snapshots() == 2
    now = 61
    journal.record([Appended(DATA, "a", 3, 1)])
    assert snapshots() == 3


def test_what_the_next_boot_may_read_is_needed(store: SimulatedStore) -> None:
    owner = Owner(store, 1)
    assert owner.journal.is_needed(journal_name(CONTAINER, 0, 1)), "before it has booted, nobody knows"
    owner.boot()
    for _ in range(3):
        run(owner)
    other = journal_name(CONTAINER + 1, 0, 1)
    files = {found.path for found in store.list("_system/containers/") if "_sysjournal" in found.path} | {other}
    needed = {file for file in files if owner.journal.is_needed(file)}
    assert {other, snapshot_info_name(CONTAINER)} < needed < files
    store.delete(sorted(files - needed))
    assert boots(store, 2) == owner.layouts
    for file in needed - {other, snapshot_info_name(CONTAINER)}:
        content = store.read(file)
        store.delete([file])
        newer = [name for name in store.list("_system/containers/") if ".epoch2." in name.path]
        store.delete([found.path for found in newer])
        with contextlib.suppress(JournalDamaged):
            assert boots(store, 2) != owner.layouts, f"{file} is not needed"
        store.put(file, content)


# -- whoever goes on writing


@pytest.mark.parametrize("seed", range(20))
def test_an_overtaken_owner_changes_nothing(store: SimulatedStore, seed: int) -> None:
    """Old owners write on, snapshots and the info file included, in between what the new one does."""
    chance = random.Random(seed)
    zombies: list[Owner] = []
    owner = Owner(store, 1, seed).boot()
    for epoch in range(2, 7):
        for _ in range(chance.randrange(12)):
            owner.do_something()
            for zombie in zombies:
                if chance.random() < 0.5:
                    with contextlib.suppress(StorageNotPrimary):
                        zombie.do_something()
        expected = owner.layouts
        zombies.append(owner)
        owner = Owner(store, epoch, seed).boot()
        assert owner.layouts == expected


def test_an_overtaken_owner_learns_it_at_its_next_snapshot(store: SimulatedStore) -> None:
    zombie = Owner(store, 1).boot()
    zombie.write(DATA, 1)
    Owner(store, 2).boot()
    with pytest.raises(StorageNotPrimary, match=r"1.*2|2.*1"):
        zombie.journal.snapshot()
    with pytest.raises(StorageNotPrimary):
        Owner(store, 1).boot()
    store.delete([snapshot_info_name(CONTAINER)])
    with pytest.raises(StorageNotPrimary):
        Owner(store, 1).boot()


def test_an_overtaken_owner_that_wins_the_race_for_the_info_file_changes_nothing(store: SimulatedStore) -> None:
    zombie = Owner(store, 1).boot()
    zombie.write(DATA, 10)
    owner = Owner(store, 2).boot()
    owner.write(DATA, 20)
    late = JournalSnapshot(1, 5, (SegmentSnapshot(StoredSegmentRecord(DATA), ()),))
    store.put(snapshot_name(CONTAINER, 1, 9), encode_snapshot(late))
    store.put(snapshot_info_name(CONTAINER), encode_info(SnapshotInfo(1, 9)))
    assert boots(store, 3) == owner.layouts


def replayed(*records: JournalRecord) -> SegmentSnapshot:
    layouts = SystemLayouts()
    for record in records:
        layouts.apply(record, 1000)
    layouts.drop_empty_chunks()
    [snapshot] = layouts.snapshots(1)
    return snapshot


A_AND_B = (
    ChunkAdded("s", "a", None, 0),
    Appended("s", "a", 0, 10),
    ChunkAdded("s", "b", "a", 10),
    Appended("s", "b", 0, 5),
)
C_1 = Appended("s", "c", 0, 1)
Z_ALONE = SegmentSnapshot(StoredSegmentRecord("s", 2, 1, first_chunk="z", last_chunk="z"), (ChunkRecord("z", 2),))


@pytest.mark.parametrize(
    ("records", "chunks"),
    [
        pytest.param((), {"a": 10, "b": 5}, id="nothing"),
        pytest.param((A_AND_B[3],), {"a": 10, "b": 5}, id="a repeated append"),
        pytest.param(A_AND_B[2:], {"a": 10, "b": 5}, id="a repeated chunk and append"),
        pytest.param((ChunkAdded("s", "c", "b", 15),), {"a": 10, "b": 5}, id="a chunk that was never written to"),
        pytest.param(
            (ChunkAdded("s", "c", "b", 12), Appended("s", "c", 0, 1)), {"a": 10, "b": 2, "c": 1}, id="a failed append"
        ),
        pytest.param(
            (ChunkAdded("s", "c", "a", 10), Appended("s", "c", 0, 1)), {"a": 10, "c": 1}, id="a zombie's chunk"
        ),
        pytest.param(
            (ChunkAdded("s", "c", "a", 8), Appended("s", "c", 0, 1)), {"a": 8, "c": 1}, id="a zombie's append"
        ),
        pytest.param((Appended("s", "a", 10, 3),), {"a": 13}, id="a chunk whose commit failed"),
        pytest.param((Appended("s", "b", 2, 1),), {"a": 10, "b": 3}, id="another append whose commit failed"),
        pytest.param((Appended("s", "b", 6, 1),), {"a": 10, "b": 5}, id="an append that continues nothing"),
        pytest.param((Appended("s", "x", 0, 1),), {"a": 10, "b": 5}, id="an append to an unknown chunk"),
        pytest.param((ChunkAdded("s", "c", "x", 15),), {"a": 10, "b": 5}, id="a chunk behind an unknown one"),
        pytest.param((ChunkAdded("s", "c", None, 0), C_1), {"c": 1}, id="a whole other history"),
        pytest.param((Truncated("s", 10, "b", 10),), {"b": 5}, id="a truncation"),
        pytest.param((Truncated("s", 3, "a", 0), Truncated("s", 12, "b", 10)), {"b": 5}, id="two truncations"),
        pytest.param((Truncated("s", 15, None, 15),), {}, id="all truncated"),
        pytest.param(
            (Truncated("s", 15, None, 15), ChunkAdded("s", "c", "b", 15), C_1),
            {"c": 1},
            id="a truncation whose commit failed",
        ),
        pytest.param(
            (Truncated("s", 10, "b", 10), JournalSnapshot(0, 0, (Z_ALONE,))),
            {"z": 2},
            id="a snapshot within a journal",
        ),
    ],
)
def test_a_record_undoes_what_contradicts_it(records: tuple[JournalRecord, ...], chunks: dict[str, int]) -> None:
    snapshot = replayed(*A_AND_B, *records)
    assert {chunk.name: chunk.length for chunk in snapshot.chunks} == chunks
    snapshot.segment.check_invariants()


def test_a_chunk_that_a_truncation_kept_may_grow() -> None:
    """It is dead from end to end, but its owner named it as the first."""
    kept = replayed(*A_AND_B, Truncated("s", 15, "b", 10))
    assert [chunk.name for chunk in kept.chunks] == ["b"]
    for records in ((*A_AND_B, Truncated("s", 15, "b", 10)), (JournalSnapshot(0, 0, (kept,)),)):
        grown = replayed(*records, Appended("s", "b", 5, 3))
        assert grown.chunks == (ChunkRecord("b", 8),)
    assert replayed(JournalSnapshot(0, 0, (kept,))).chunks == kept.chunks


# -- faults


class Outcomes:
    """What may be found of a segment: what was recorded last, and what may have been.

    What failed may have been recorded all the same. The next write takes back what was added, as it says where the
    segment ends, and the next truncation what was truncated.
    """

    def __init__(self, layout: Layout) -> None:
        self._written = [layout]
        self._offsets: set[int] = set()
        self._truncated_to = 0

    def changed(self, before: Layout, after: Layout) -> None:
        if after.start_offset > before.start_offset:
            self._truncated_to = after.start_offset
            self._offsets.clear()
        else:
            self._written = [after]

    def failed(self, before: Layout, attempted: Layout) -> None:
        if attempted.start_offset > before.start_offset:
            self._offsets.add(attempted.start_offset)
        else:
            self._written.append(attempted)

    def __contains__(self, found: Layout) -> bool:
        offsets = self._offsets | {self._truncated_to}
        return any(
            found == written.truncated(max(offset, written.start_offset))
            for written in self._written
            for offset in offsets
        )


@pytest.mark.parametrize("seed", range(60))
def test_lost_requests_lost_responses_and_late_ones(seed: int) -> None:
    store = SimulatedStore(seed, can_append=seed % 2 == 0)
    outcomes = {segment: Outcomes(Layout()) for segment in SEGMENTS}
    epoch = failures = 0
    for _ in range(6):
        store.fail_before = store.fail_after = store.late = 0.15
        while True:
            epoch += 1
            owner = Owner(store, epoch, seed, QUICK._replace(snapshot_batches=8, attempts=2))
            with contextlib.suppress(StorageUnavailable):
                owner.boot()
                break
        for segment, layout in owner.layouts.items():
            assert layout in outcomes[segment]
        outcomes = {segment: Outcomes(layout) for segment, layout in owner.layouts.items()}
        for _ in range(15):
            before = owner.layouts
            try:
                owner.do_something()
            except StorageUnavailable:
                failures += 1
                failed, after = True, owner.attempted
            else:
                failed, after = False, owner.layouts
            for segment in SEGMENTS:
                if after[segment] != before[segment]:
                    note = outcomes[segment].failed if failed else outcomes[segment].changed
                    note(before[segment], after[segment])
    assert failures


WHENS = ["before", "partway", "after"]


def run(owner: Owner) -> None:
    """Enough for chunks, appends, truncations and two snapshots."""
    owner.write(DATA, 10)
    owner.write(DATA, 20)
    owner.write(INDEX, 5)
    owner.write(DATA, 30, roll=True)
    owner.truncate(DATA, 35)
    owner.write(DATA, 40)


def crashes(make: Any, every: int = 1, first: int = 0) -> Iterator[tuple[Store, Layouts, Layouts]]:
    """For each request of boot and run, and each way to crash there: what is left, and what may be found in it."""
    store = make()
    counting = FaultStore(store)
    run(Owner(counting, 1).boot())
    for number in range(1, counting.passed + 1):
        for place, when in enumerate(WHENS):
            if (first + 3 * number + place) % every:
                continue
            store = make()
            owner = Owner(FaultStore(store, crash_at(number, when)), 1)  # type: ignore[arg-type]
            owner.layouts = owner.attempted = EMPTY
            with pytest.raises(Crashed):
                owner.boot()
                run(owner)
            yield store, owner.layouts, owner.attempted


def test_a_crash_at_every_request(store: SimulatedStore) -> None:
    tried = 0
    for left, committed, attempted in crashes(lambda: SimulatedStore(can_append=store.can_append)):
        found = boots(left, 2)
        assert found in (committed, attempted)
        tried += 1
    assert tried > 50


def crash_twice(can_append: bool, every: int) -> None:
    """A crash at every request, then one at every request of the boot that follows; of each pair every `every`th."""
    pairs = 0
    for number in range(1, 100):
        for when in WHENS:
            for left, committed, attempted in crashes(lambda: SimulatedStore(can_append=can_append), every, pairs):
                second = FaultStore(left, crash_at(number, when))  # type: ignore[arg-type]
                with contextlib.suppress(Crashed):
                    Owner(second, 2).boot()
                pairs += second.crashed
                found = boots(left, 3)
                assert found in (committed, attempted)
                assert boots(left, 4) == found
        if not second.crashed:  # the boot has fewer requests
            break
    assert number > 5
    assert pairs * every > 1000


def test_two_crashes_in_a_row(store: SimulatedStore) -> None:
    crash_twice(store.can_append, every=17)


@pytest.mark.long
def test_two_crashes_in_a_row_anywhere(store: SimulatedStore) -> None:
    crash_twice(store.can_append, every=1)


def test_a_crash_at_every_request_while_a_zombie_writes_on(store: SimulatedStore) -> None:
    for number in range(1, 30):
        for when in WHENS:
            left = SimulatedStore(can_append=store.can_append)
            zombie = Owner(left, 1).boot()
            run(zombie)
            committed = zombie.layouts
            second = FaultStore(left, crash_at(number, when))  # type: ignore[arg-type]
            owner = Owner(second, 2)
            owner.layouts = owner.attempted = committed
            try:
                owner.boot()
                owner.write(DATA, 7)
            except Crashed:
                pass
            booted = any(".epoch2." in found.path for found in left.list("_system/containers/"))
            with contextlib.suppress(StorageNotPrimary):
                zombie.write(DATA, 1000)
            found = boots(left, 3)
            if booted:
                assert found in (owner.layouts, owner.attempted)
            else:  # nobody has overtaken it yet
                assert found == zombie.layouts


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failed_write_is_tried_again_in_a_new_file(store: SimulatedStore, when: Any) -> None:
    for number in range(1, 12):
        left = SimulatedStore(can_append=store.can_append)
        faulty = FaultStore(left)
        owner = Owner(faulty, 1).boot()
        faulty.plan = fail_at(faulty.passed + number, when)
        run(owner)
        assert boots(left, 2) == owner.layouts


def test_a_change_that_cannot_be_recorded_does_not_count(store: SimulatedStore) -> None:
    faulty = FaultStore(store)
    owner = Owner(faulty, 1).boot()
    owner.write(DATA, 10)
    before = owner.layouts
    faulty.plan = fail_at(faulty.passed + 1, "after", forever=True)
    with pytest.raises(StorageUnavailable):
        owner.write(DATA, 20)
    with pytest.raises(StorageUnavailable):
        owner.write(INDEX, 20)
    faulty.plan = None
    assert owner.layouts == before
    owner.write(DATA, 3)
    assert boots(store, 2)[DATA] == owner.layouts[DATA]


def test_a_batch_counts_whole_or_not_at_all(store: SimulatedStore) -> None:
    places = [("a", None, 0), ("b", "a", 10), ("c", "b", 20)]
    records: list[SystemChange] = []
    for name, before, offset in places:
        records += ChunkAdded(INDEX, name, before, offset), Appended(INDEX, name, 0, 10)
    for number in range(1, 5):
        for when in WHENS:
            left = SimulatedStore(can_append=store.can_append)
            owner = Owner(FaultStore(left), 1).boot()
            owner.write(DATA, 1)
            faulty = owner.store
            assert isinstance(faulty, FaultStore)
            faulty.plan = crash_at(faulty.passed + number, when)  # type: ignore[arg-type]
            with contextlib.suppress(Crashed):
                owner.journal.record(records)
            assert boots(left, 2)[INDEX].chunks in ((), (("a", 10), ("b", 10), ("c", 10)))


# -- snapshots that do not count


class Forgetful(FaultStore):
    """Stores something else than it was given, for the first `times` snapshots: all but a byte, or an old one."""

    times = 0
    old: bytes | None = None

    def put(self, path: str, data: Any) -> None:
        if ".snapshot" in path and "info" not in path and self.times:
            self.times -= 1
            data = bytes(data)[:-1] if self.old is None else self.old
        super().put(path, data)


@pytest.mark.parametrize("is_old", [True, False])
def test_a_snapshot_that_does_not_read_back_does_not_count(store: SimulatedStore, is_old: bool) -> None:
    forgetful = Forgetful(store)
    owner = Owner(forgetful, 1).boot()
    if is_old:
        forgetful.old = store.read(snapshot_name(CONTAINER, 1, 1))
    owner.write(DATA, 10)
    forgetful.times = 2
    info = owner.journal.snapshot()
    assert info == SnapshotInfo(1, 4)
    owner.write(DATA, 10)
    assert boots(store, 2) == owner.layouts


def test_the_journal_goes_on_without_a_snapshot(store: SimulatedStore) -> None:
    forgetful = Forgetful(store)
    owner = Owner(forgetful, 1).boot()
    forgetful.times = 1000
    for _ in range(20):
        owner.do_something()
    assert forgetful.times < 1000
    assert boots(store, 2) == owner.layouts


def test_a_snapshot_whose_info_was_lost_is_used(store: SimulatedStore) -> None:
    owner = Owner(store, 1).boot()
    run(owner)
    owner.journal.snapshot()
    store.delete([snapshot_info_name(CONTAINER)])
    assert boots(store, 2) == owner.layouts


def test_a_snapshot_of_the_original_counts_if_the_info_says_so(store: SimulatedStore) -> None:
    chunks = (ChunkRecord("a", 10),)
    segment = StoredSegmentRecord(DATA, 10, 1, first_chunk="a", last_chunk="a")
    data = encode_snapshot(JournalSnapshot(4, 1, (SegmentSnapshot(segment, chunks),)))
    fields = data[8:-8]
    store.put(snapshot_name(CONTAINER, 4, 1), data[:4] + len(fields).to_bytes(4, "big") + fields)
    store.put(journal_name(CONTAINER, 4, 1), encode_batch([ChunkAdded(DATA, "x", None, 0)]))  # which it covers
    store.put(journal_name(CONTAINER, 4, 2), encode_batch([Appended(DATA, "a", 10, 5)]))
    store.put(journal_name(CONTAINER, 5, 1), encode_batch([ChunkAdded(DATA, "b", "a", 12)]))
    store.put(journal_name(CONTAINER, 5, 7), encode_batch([Appended(DATA, "b", 0, 1)]))
    store.put(snapshot_info_name(CONTAINER), encode_info(SnapshotInfo(4, 1)))
    assert boots(store, 6) == {**EMPTY, DATA: Layout((("a", 12), ("b", 1)))}


# -- damage


def test_what_counts_and_is_missing_or_damaged_is_named(store: SimulatedStore) -> None:
    run(Owner(store, 1).boot())
    files = [found.path for found in store.list("_system/containers/")]
    journal = max(file for file in files if ".file" in file)
    snapshot = max(file for file in files if ".epoch1.container3.snapshot" in file)
    content = store.read(journal)
    store.put(journal, content[:9] + b"\x63" + content[10:])
    with pytest.raises(JournalDamaged, match=r"file\d+"):
        boots(store, 2)
    store.put(journal, content)
    content = store.read(snapshot)
    store.put(snapshot, content[:-1] + b"\0\0")
    with pytest.raises(JournalDamaged, match=r"snapshot\d+"):
        boots(store, 2)
    store.delete([snapshot])
    with pytest.raises(JournalDamaged, match=r"snapshot\d+.*missing"):
        boots(store, 2)
    store.delete([file for file in files if ".snapshot" in file])
    with pytest.raises(JournalDamaged, match="no snapshot"):
        boots(store, 2)


def test_a_file_that_vanishes_while_it_is_booted_is_not_passed_over(store: SimulatedStore) -> None:
    owner = Owner(store, 1).boot()
    owner.write(DATA, 1)

    class Vanishing(FaultStore):
        def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
            if ".file" in path:
                raise ObjectNotFound(path)
            return super().read(path, start, end)

    with pytest.raises(JournalDamaged, match="cannot be read"):
        boots(Vanishing(store), 2)


def test_it_is_booted_before_it_is_used(store: SimulatedStore) -> None:
    with pytest.raises(RuntimeError, match="boot"):
        SystemJournal(store, CONTAINER, 1, StoreGarbageQueue(store, CONTAINER)).record([Appended(DATA, "a", 0, 1)])


# -- with the segment layer


class Container(NamedTuple):
    """A container's storage with its system segments."""

    journal: SystemJournal
    storage: ChunkedSegmentStorage
    collector: GarbageCollector

    @classmethod
    def booted(cls, store: Store, epoch: int, rolling: int = 20) -> Container:
        chunks, metadata, garbage = store, MemoryMetadataStore(), StoreGarbageQueue(store, CONTAINER)
        journal = SystemJournal(store, CONTAINER, epoch, garbage, QUICK._replace(rolling_length=rolling))
        journal.boot(metadata)
        storage = ChunkedSegmentStorage(chunks, metadata, garbage, epoch, journal=journal.record)
        collector = GarbageCollector(chunks, metadata, garbage, is_needed=journal.is_needed, snapshot=journal.snapshot)
        return cls(journal, storage, collector)

    def content(self, segment: str) -> tuple[int, bytes]:
        info = self.storage.info(segment)
        length = info.length - info.start_offset
        return info.start_offset, self.storage.read(segment, info.start_offset, length)


Contents = dict[str, tuple[int, bytes]]


def write_and_truncate(container: Container, contents: Contents, attempted: Contents) -> None:
    """Change the system segments, and note what is there, and what may be."""
    chance = random.Random(1)
    for step in range(12):
        segment = SEGMENTS[step % 2]
        start, data = contents.get(segment, (0, b""))
        if step % 5 == 4:
            offset = start + len(data) * chance.randrange(1, 4) // 3
            attempted[segment] = offset, data[offset - start :]
            container.storage.truncate(segment, offset)
        else:
            attempted[segment] = start, data + bytes([step]) * chance.randrange(1, 60)
            container.storage.write(segment, start + len(data), attempted[segment][1][len(data) :])
        contents[segment] = attempted[segment]
        if step == 7:
            container.collector.run_once(time.time() + 1000)


def test_system_segments_hold_what_was_written(store: SimulatedStore) -> None:
    contents: Contents = {}
    for epoch in range(1, 5):
        container = Container.booted(store, epoch)
        for segment, content in contents.items():
            assert container.content(segment) == content
        write_and_truncate(container, contents, {})
        container.collector.run_once(time.time() + 1000)


def test_a_crash_of_the_segment_layer_at_every_request(store: SimulatedStore) -> None:
    for number in range(1, 1000):
        left = SimulatedStore(can_append=store.can_append)
        faulty = FaultStore(left, crash_at(number, WHENS[number % 3]))  # type: ignore[arg-type]
        contents: Contents = {}
        attempted: Contents = {}
        with contextlib.suppress(Crashed):
            write_and_truncate(Container.booted(faulty, 1), contents, attempted)
        container = Container.booted(left, 2)
        for _ in range(2):
            for segment, content in attempted.items():
                assert container.content(segment) in (content, contents.get(segment, (0, b"")))
            container.collector.run_once(time.time() + 1000)
        if not faulty.crashed:
            break
    assert number > 50


def test_an_overtaken_segment_layer_changes_nothing(store: SimulatedStore) -> None:
    """The old instance goes on to write to chunks and journal; what the new one knows stays."""
    old = Container.booted(store, 1)
    old.storage.write(DATA, 0, b"before")
    new = Container.booted(store, 2)
    old.storage.write(DATA, 6, b" and after")
    assert new.content(DATA) == (0, b"before")
    new.storage.write(DATA, 6, b" that")
    for _ in range(3):
        with contextlib.suppress(StorageNotPrimary):
            old.storage.write(DATA, old.storage.info(DATA).length, b"zombie")
    new.collector.run_once(time.time() + 1000)
    old.collector.run_once(time.time() + 1000)
    assert new.content(DATA) == Container.booted(store, 3).content(DATA) == (0, b"before that")
