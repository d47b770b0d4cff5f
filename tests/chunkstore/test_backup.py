"""Backups of segment metadata: complete, restored as they were, and anything damaged is found."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chunkstore import Store, open_store
from chunkstore.backup import BackupRefused, back_up, restore, verify, verify_backup
from chunkstore.chunks import ChunkStorage
from chunkstore.garbage import GarbageCollector, StoreGarbageQueue
from chunkstore.metadata_store import MemoryMetadataStore
from chunkstore.records import Record, SegmentRecord, decode, encode, segment_key
from chunkstore.segments import ChunkedSegmentStorage
from chunkstore.testing import Crashed, FaultStore, SimulatedStore, crash_at

FOLDER = "backups/monday/"
Contents = dict[str, tuple[int, bytes, bool]]


def opened(store: Store, metadata: MemoryMetadataStore, epoch: int = 1) -> ChunkedSegmentStorage:
    return ChunkedSegmentStorage(ChunkStorage(store), metadata, StoreGarbageQueue(store, 0), epoch)


def contents(storage: ChunkedSegmentStorage) -> Contents:
    found = {}
    for info in storage.list():
        data = storage.read(storage.open_read(info.name), info.start_offset, info.length - info.start_offset)
        found[info.name] = info.start_offset, data, info.sealed
    return found


def fill(storage: ChunkedSegmentStorage, seed: int = 0) -> None:
    """Segments that were written, truncated, merged, sealed and deleted."""
    chance = random.Random(seed)
    for number in range(12):
        handle = storage.create(f"scope/stream/{number}.#epoch.0", chance.choice([0, 10, 64]))
        for _ in range(chance.randrange(8)):
            storage.write(handle, storage.info(handle.segment).length, chance.randbytes(chance.randrange(1, 50)))
        if number % 3 == 0:
            storage.truncate(handle, chance.randint(0, storage.info(handle.segment).length))
    for number in (1, 2):
        storage.seal(storage.open_write(f"scope/stream/{number}.#epoch.0"))
    target = storage.open_write("scope/stream/4.#epoch.0")
    storage.concat(target, storage.info(target.segment).length, "scope/stream/1.#epoch.0")
    storage.delete(storage.open_write("scope/stream/5.#epoch.0"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "root"))


@pytest.fixture
def metadata() -> MemoryMetadataStore:
    return MemoryMetadataStore()


@pytest.fixture
def filled(store: Store, metadata: MemoryMetadataStore) -> ChunkedSegmentStorage:
    storage = opened(store, metadata, epoch=7)
    fill(storage)
    return storage


def test_what_is_restored_is_what_was_backed_up(
    store: Store, metadata: MemoryMetadataStore, filled: ChunkedSegmentStorage
) -> None:
    report = back_up(metadata, store, FOLDER)
    assert (report.segments, report.chunks) == (10, sum(len(list(filled.layout(info.name))) for info in filled.list()))
    assert verify_backup(store, FOLDER) == report
    fresh = MemoryMetadataStore()
    assert restore(store, FOLDER, fresh) == report
    storage = opened(store, fresh, epoch=1)
    assert contents(storage) == contents(filled)
    for info in filled.list():
        before, after = list(filled.layout(info.name)), list(storage.layout(info.name))
        assert [(placed.start, placed.chunk.name) for placed in before] == [(at.start, at.chunk.name) for at in after]
    handle = storage.open_write("scope/stream/4.#epoch.0")
    storage.write(handle, storage.info(handle.segment).length, b"goes on in an epoch that is lower than the old one")
    assert not verify(fresh, ChunkStorage(store)).problems


def test_into_another_root_with_a_copy_of_the_chunks(
    tmp_path: Path, store: Store, metadata: MemoryMetadataStore, filled: ChunkedSegmentStorage
) -> None:
    other = open_store(str(tmp_path / "other"))
    back_up(metadata, other, FOLDER)
    for found in store.list(""):
        other.put(found.path, store.read(found.path))
    fresh = MemoryMetadataStore()
    restore(other, FOLDER, fresh)
    assert contents(opened(other, fresh)) == contents(filled)


def test_many_chunks(store: Store, metadata: MemoryMetadataStore) -> None:
    storage = opened(store, metadata)
    handle = storage.create("scope/stream/0", 1)
    storage.write(handle, 0, bytes(range(256)) * 10)
    storage.truncate(handle, 1234)
    back_up(metadata, store, FOLDER)
    fresh = MemoryMetadataStore()
    restore(store, FOLDER, fresh)
    assert contents(opened(store, fresh)) == contents(storage)
    fresh.evict_all()
    assert opened(store, fresh).read(handle, 2000, 5) == (bytes(range(256)) * 10)[2000:2005]


@pytest.mark.parametrize("first", ["source", "target"])
@pytest.mark.parametrize("collected", [True, False])
def test_a_segment_is_merged_while_it_is_backed_up(
    store: Store, metadata: MemoryMetadataStore, first: str, collected: bool
) -> None:
    """Whichever of the two is looked at first: its bytes are in the backup, once."""
    storage = opened(store, metadata)
    for name in ("source", "target"):
        handle = storage.create(f"{name}/stream/0", 3)
        storage.write(handle, 0, name.encode())
    storage.seal(storage.open_write("source/stream/0"))

    class Busy(MemoryMetadataStore):
        def records(self, prefix: str = "") -> Iterator[tuple[str, Record]]:
            listed = sorted(super().records(prefix), key=lambda found: not found[0].startswith(first))
            segments = [found for found in listed if isinstance(found[1], SegmentRecord)]
            yield segments[0]
            storage.concat(storage.open_write("target/stream/0"), 6, "source/stream/0")
            if collected:
                GarbageCollector(ChunkStorage(store), metadata, StoreGarbageQueue(store, 0)).run_once(1e12)
            self.evict_all()
            yield segments[1]

    back_up(Busy(metadata.table), store, FOLDER)
    fresh = MemoryMetadataStore()
    restore(store, FOLDER, fresh)
    assert not verify(fresh, ChunkStorage(store)).problems
    found = {segment: data for segment, (_, data, _) in contents(opened(store, fresh)).items()}
    if first == "source":
        assert found == {"target/stream/0": b"targetsource"}
    else:
        assert found == {"target/stream/0": b"target", "source/stream/0": b"source"}


def test_a_segment_is_deleted_while_it_is_backed_up(store: Store, metadata: MemoryMetadataStore) -> None:
    storage = opened(store, metadata)
    storage.write(storage.create("scope/stream/0"), 0, b"gone")

    class Busy(MemoryMetadataStore):
        def records(self, prefix: str = "") -> Iterator[tuple[str, Record]]:
            listed = list(super().records(prefix))
            storage.delete(storage.open_write("scope/stream/0"))
            GarbageCollector(ChunkStorage(store), metadata, StoreGarbageQueue(store, 0)).run_once(1e12)
            self.evict_all()
            yield from listed

    assert back_up(Busy(metadata.table), store, FOLDER).segments == 0


def test_segments_are_changed_while_they_are_backed_up(store: Store, metadata: MemoryMetadataStore) -> None:
    """No chunk is in two segments of the backup, and every segment is as it was at one moment."""
    storage = opened(store, metadata)
    stop = threading.Event()
    problems: list[BaseException] = []

    def change() -> None:
        chance = random.Random(1)
        target = storage.create("target/stream/0")
        try:
            number = 0
            while not stop.is_set():
                number += 1
                source = storage.create(f"source/stream/{number}")
                storage.write(source, 0, b"%08d" % number)
                storage.seal(source)
                storage.concat(target, storage.info(target.segment).length, source.segment)
                if chance.random() < 0.1:
                    storage.truncate(target, storage.info(target.segment).length)
        except BaseException as error:
            problems.append(error)

    writer = threading.Thread(target=change)
    writer.start()
    for number in range(15):
        back_up(metadata, store, f"backups/{number}/")
        fresh = MemoryMetadataStore()
        restore(store, f"backups/{number}/", fresh)
        for segment, (start, data, _) in contents(opened(store, fresh)).items():
            assert start % 8 == len(data) % 8 == 0
            numbers = [int(data[at : at + 8]) for at in range(0, len(data), 8)]
            assert numbers == sorted(numbers)
            assert segment == "target/stream/0" or numbers == [int(segment.rpartition("/")[2])] or not numbers
    stop.set()
    writer.join()
    assert not problems


def test_a_backup_without_its_manifest_is_none(store: Store, metadata: MemoryMetadataStore) -> None:
    simulated = SimulatedStore()
    fill(opened(simulated, metadata))
    counting = FaultStore(simulated, verbs=("put",))
    back_up(metadata, counting, FOLDER)
    for number in range(1, counting.passed + 1):
        left = SimulatedStore()
        with pytest.raises(Crashed):
            back_up(metadata, FaultStore(left, crash_at(number), verbs=("put",)), FOLDER)
        with pytest.raises(BackupRefused, match="no complete backup"):
            verify_backup(left, FOLDER)
        with pytest.raises(BackupRefused, match="no complete backup"):
            restore(left, FOLDER, MemoryMetadataStore())


def test_a_restore_that_was_stopped_is_repeated(store: Store, metadata: MemoryMetadataStore) -> None:
    simulated = SimulatedStore()
    storage = opened(simulated, metadata)
    fill(storage)
    back_up(metadata, simulated, FOLDER)
    for number in range(2, 12):
        fresh = MemoryMetadataStore()
        with pytest.raises(Crashed):
            restore(FaultStore(simulated, crash_at(number)), FOLDER, fresh)
        restore(simulated, FOLDER, fresh)
        assert contents(opened(simulated, fresh)) == contents(storage)


def test_it_is_restored_into_an_empty_root_only(
    store: Store, metadata: MemoryMetadataStore, filled: ChunkedSegmentStorage
) -> None:
    back_up(metadata, store, FOLDER)
    fresh = MemoryMetadataStore()
    opened(store, fresh).create("another/segment/0")
    with pytest.raises(BackupRefused, match=r"another/segment/0.*empty root"):
        restore(store, FOLDER, fresh)
    with pytest.raises(BackupRefused, match="not empty"):
        back_up(metadata, store, FOLDER)


def test_every_damaged_byte_of_a_backup_is_found(store: Store, metadata: MemoryMetadataStore) -> None:
    storage = opened(store, metadata)
    handle = storage.create("scope/stream/0", 5)
    storage.write(handle, 0, b"eleven bytes")
    back_up(metadata, store, FOLDER)
    files = [found.path for found in store.list(FOLDER)]
    assert len(files) == 2
    for file in files:
        good = store.read(file)
        for place in range(len(good)):
            store.put(file, good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            with pytest.raises(BackupRefused, match=r"manifest|metadata"):
                verify_backup(store, FOLDER)
        for end in range(0, len(good), 7):
            store.put(file, good[:end])
            with pytest.raises(BackupRefused):
                verify_backup(store, FOLDER)
        store.put(file, good)
    store.delete([file for file in files if "manifest" not in file])
    with pytest.raises(BackupRefused, match="missing"):
        verify_backup(store, FOLDER)


# -- verify


def test_good_metadata_has_no_problems(
    store: Store, metadata: MemoryMetadataStore, filled: ChunkedSegmentStorage
) -> None:
    report = verify(metadata, ChunkStorage(store))
    assert not report.problems
    assert report.segments == 10
    assert report.bytes >= sum(len(data) for _, data, _ in contents(filled).values())
    GarbageCollector(ChunkStorage(store), metadata, StoreGarbageQueue(store, 0)).run_once(filled._now() / 1000 + 1000)
    assert verify(metadata, ChunkStorage(store)) == report


SEGMENT = "scope/stream/9"


def altered(metadata: MemoryMetadataStore, key: str, change: Callable[[SegmentRecord], SegmentRecord]) -> None:
    """Change a segment's record past all checks."""
    version, data = metadata.table.rows[key]
    record = decode(data)
    assert isinstance(record, SegmentRecord)
    metadata.table.rows[key] = version, encode(change(record))
    metadata.evict_all()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("missing", "is missing"),
        ("short", "has 2 bytes, but 5"),
        ("count", "chunk_count"),
        ("length", "length"),
        ("last", "last_chunk"),
        ("start", "start_offset"),
        ("unlinked", "no longer in the list"),
        ("shared", "belongs to segment"),
    ],
)
def test_what_is_wrong_is_named(store: Store, metadata: MemoryMetadataStore, damage: str, problem: str) -> None:
    storage = opened(store, metadata)
    storage.create("scope/stream/8")
    storage.write(storage.create(SEGMENT, 5), 0, b"more than ten")
    _, second, third = (placed.chunk for placed in storage.layout(SEGMENT))
    key = segment_key(SEGMENT)
    match damage:
        case "missing":
            store.delete([second.name])
        case "short":
            store.put(second.name, b"xx")
        case "count":
            altered(metadata, key, lambda record: record._replace(chunk_count=7))
        case "length":
            altered(metadata, key, lambda record: record._replace(length=12))
        case "last":
            altered(metadata, key, lambda record: record._replace(last_chunk=second.name))
        case "start":
            altered(metadata, key, lambda record: record._replace(start_offset=99))
        case "unlinked":
            with metadata.begin(second.key) as transaction:
                transaction.delete(second.key)
                transaction.commit()
        case "shared":
            other = SegmentRecord("scope/stream/8", 3, 1, first_chunk=third.name, last_chunk=third.name)
            altered(metadata, segment_key(other.name), lambda _: other)
    report = verify(metadata, ChunkStorage(store))
    assert sum(map(len, report.problems.values())) == 1
    [[text]] = report.problems.values()
    assert problem in text
    assert "scope/stream/" in text or "chunk" in text


def test_a_chunk_that_was_replaced_meanwhile_is_no_problem(store: Store, metadata: MemoryMetadataStore) -> None:
    storage = opened(store, metadata)
    handle = storage.create(SEGMENT, 5)
    storage.write(handle, 0, b"more than ten")
    old = [placed.chunk.name for placed in storage.layout(SEGMENT)]

    class Busy(ChunkStorage):
        def list(self, prefix: str, after: str = "", limit: int | None = None):  # type: ignore[no-untyped-def]
            if not after:
                new = storage.track_new_chunk(SEGMENT, 0)
                self.create_with_content(new.name, b"more than ten")
                storage.replace_chunks(handle, 0, old, 0, new, 13)
                self.store.delete(old)
            return super().list(prefix, after, limit)

    assert not verify(metadata, Busy(store)).problems
