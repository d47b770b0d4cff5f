"""The four layout modes, the one way from one to the next, and headers that are kept for old code."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chunkstore import Outcome, StorageRefused, Store, open_store
from chunkstore.garbage_collector import GarbageCollector
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.pravega.layout_mode import LayoutMode, OldLayoutStorage, layout_mode, open_segments, set_layout_mode
from chunkstore.pravega.rolling import LegacySegments, header_name
from chunkstore.segments.storage import ChunkedSegmentStorage
from chunkstore.testing import Crashed, FaultStore, SimulatedStore, crash_at
from tests.support.garbage_queue import StoreGarbageQueue
from tests.support.segment_contracts import take_over

from .test_rolling import OldCode, S, content

NO_UPGRADE, CODE_ONLY, LAYOUT_UPGRADE, INSTALL_NEW = LayoutMode
WAYS = {(NO_UPGRADE, CODE_ONLY), (CODE_ONLY, NO_UPGRADE), (CODE_ONLY, LAYOUT_UPGRADE)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "root"))


def opened(store: Store, metadata: MemoryMetadataStore, epoch: int = 1) -> ChunkedSegmentStorage:
    return open_segments(store, metadata, StoreGarbageQueue(store, 0), epoch)


# -- the setting


def test_a_root_has_no_mode_until_one_is_set(store: Store) -> None:
    assert layout_mode(store) is None
    set_layout_mode(store, CODE_ONLY)
    assert layout_mode(store) is CODE_ONLY
    assert layout_mode(open_store(store.root)) is CODE_ONLY


@pytest.mark.parametrize("first", LayoutMode)
@pytest.mark.parametrize("second", LayoutMode)
def test_there_is_one_way(first: LayoutMode, second: LayoutMode) -> None:
    store = SimulatedStore()
    set_layout_mode(store, first)
    if first is second or (first, second) in WAYS:
        set_layout_mode(store, second)
        assert layout_mode(store) is second
    else:
        with pytest.raises(StorageRefused, match=f"{first.name} cannot become {second.name}"):
            set_layout_mode(store, second)
        assert layout_mode(store) is first


def test_the_new_layout_is_never_left_whoever_changes_the_mode_at_once() -> None:
    for seed in range(20):
        store = SimulatedStore(seed)
        set_layout_mode(store, CODE_ONLY)

        def change(number: int, store: SimulatedStore = store, seed: int = seed) -> None:
            chance = random.Random(f"{seed} {number}")
            for _ in range(5):
                with contextlib.suppress(StorageRefused):
                    set_layout_mode(store, chance.choice([NO_UPGRADE, CODE_ONLY, CODE_ONLY, LAYOUT_UPGRADE]))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(change, range(4)))
        modes = [LayoutMode(store.read(found.path)[24:].decode()) for found in store.list("_system/layout/")]
        assert all(way in WAYS for way in itertools.pairwise(modes))


def test_one_that_lost_the_race_looks_again(store: Store) -> None:
    set_layout_mode(store, CODE_ONLY)

    class Overtaken(FaultStore):
        def put_if_absent(self, path: str, data: bytes) -> Outcome:  # type: ignore[override]
            if not self.passed:
                set_layout_mode(self.inner, LAYOUT_UPGRADE)
            self.passed += 1
            return super().put_if_absent(path, data)

    overtaken = Overtaken(store, verbs=())
    with pytest.raises(StorageRefused, match="cannot be left"):
        set_layout_mode(overtaken, NO_UPGRADE)
    assert layout_mode(store) is LAYOUT_UPGRADE


def test_a_mode_of_a_newer_version_is_refused(store: Store) -> None:
    set_layout_mode(store, CODE_ONLY)
    store.put(f"_system/layout/{2:020d}", bytes(24) + b"holographic")
    with pytest.raises(StorageRefused, match="newer"):
        opened(store, MemoryMetadataStore())


# -- what a mode does


def test_no_upgrade_opens_nothing(store: Store) -> None:
    set_layout_mode(store, NO_UPGRADE)
    with pytest.raises(StorageRefused, match="NO_UPGRADE"):
        opened(store, MemoryMetadataStore())


@pytest.mark.parametrize("mode", [None, INSTALL_NEW])
def test_a_new_root_adopts_nothing(store: Store, mode: LayoutMode | None) -> None:
    if mode:
        set_layout_mode(store, mode)
    OldCode(store).create(S, b"one")
    assert not opened(store, MemoryMetadataStore()).exists(S)


def test_the_layout_upgrade_adopts_and_leaves_no_header(store: Store) -> None:
    set_layout_mode(store, CODE_ONLY)
    set_layout_mode(store, LAYOUT_UPGRADE)
    data = OldCode(store).create(S, b"one", b"two")
    storage = opened(store, MemoryMetadataStore())
    assert content(storage) == data
    storage.write(S, len(data), b"three")
    assert content(storage) == data + b"three"
    assert not [found for found in store.list("scope/") if found.path.endswith("$header")]


def test_code_only_then_layout_upgrade(store: Store) -> None:
    """All the way: old code, this code with the old layout, back to old code, and the new layout at last."""
    old, metadata = OldCode(store), MemoryMetadataStore()
    data = old.create(S, b"one", b"two")
    set_layout_mode(store, CODE_ONLY)
    storage = opened(store, metadata, 1)
    storage.write(S, len(data), b"three")
    data += b"three"
    assert old.read(S) == (0, data)
    set_layout_mode(store, NO_UPGRADE)
    set_layout_mode(store, CODE_ONLY)
    set_layout_mode(store, LAYOUT_UPGRADE)
    storage = opened(store, metadata, 2)
    storage.write(S, len(data), b"four")
    assert content(storage) == data + b"four"
    report = LegacySegments(store, metadata, keep_headers=False).adopt_all()
    assert (report.adopted, report.known, report.refused) == (0, 1, {})
    assert not [found for found in store.list("scope/") if found.path.endswith("$header")]


@pytest.fixture
def kept(store: Store) -> ChunkedSegmentStorage:
    set_layout_mode(store, CODE_ONLY)
    storage = opened(store, MemoryMetadataStore())
    assert isinstance(storage, OldLayoutStorage)
    return storage


def test_old_code_can_read_at_any_time_what_code_only_writes(store: Store, kept: ChunkedSegmentStorage) -> None:
    old, chance = OldCode(store), random.Random(7)
    expected: dict[str, tuple[int, bytes]] = {}
    for _ in range(150):
        action = chance.choice(["create", "write", "write", "write", "truncate", "concat", "delete", "seal"])
        names = list(expected)
        if action == "create" or not names:
            name = f"scope/stream/{len(expected) + chance.randrange(10**6)}"
            kept.create(name, chance.choice([0, 10, 100]))
            expected[name] = (0, b"")
            continue
        name = chance.choice(names)
        start, data = expected[name]
        take_over(kept, name)
        if action == "write":
            more = chance.randbytes(chance.randrange(1, 40))
            kept.write(name, start + len(data), more)
            expected[name] = start, data + more
        elif action == "truncate":
            kept.truncate(name, start + chance.randint(0, len(data)))
        elif action == "delete":
            kept.delete(name)
            del expected[name]
        elif action == "concat" and len(names) > 1:
            source = chance.choice([other for other in names if other != name])
            if kept.info(source).start_offset:
                continue
            kept.seal(source)
            kept.concat(name, start + len(data), source)
            expected[name] = start, data + expected.pop(source)[1]
        elif action == "seal":
            kept.seal(name)
            assert LegacySegments(store, MemoryMetadataStore(), keep_headers=True).adopt(name)
            kept.unseal(name)
        for segment, (_, content_) in expected.items():
            begin, found = old.read(segment)
            info = kept.info(segment)
            assert begin <= info.start_offset
            assert begin + len(found) == info.length
            assert found[info.start_offset - begin :] == content_[info.start_offset :]
    headers = {found.path for found in store.list("scope/") if found.path.endswith("$header")}
    assert headers == {header_name(segment) for segment in expected}


def test_a_header_is_written_only_when_it_changes(store: Store) -> None:
    set_layout_mode(store, CODE_ONLY)
    counting = FaultStore(store, verbs=("put",))
    storage = opened(counting, MemoryMetadataStore())
    storage.create(S)
    storage.write(S, 0, b"x")
    before = counting.passed
    for number in range(1, 10):
        storage.write(S, number, b"x")
    assert counting.passed == before


def test_a_deleted_segment_does_not_come_back_from_its_header(store: Store) -> None:
    set_layout_mode(store, CODE_ONLY)
    metadata = MemoryMetadataStore()
    kept = opened(store, metadata)
    kept.create(S)
    kept.write(S, 0, b"x")
    left = {found.path: store.read(found.path) for found in store.list("scope/")}
    kept.delete(S)
    collector = GarbageCollector(store, metadata, StoreGarbageQueue(store, 0))
    collector.run_once(time.time() + 1000)
    assert not store.list("scope/")
    for path, data in left.items():
        store.put(path, data)  # as if their deletion had been lost
    assert not kept.exists(S)
    kept.create(S)
    assert kept.info(S).length == 0


def test_a_crash_leaves_a_header_that_the_next_owner_makes_good() -> None:
    def run(storage: ChunkedSegmentStorage) -> None:
        storage.create(S, 4)
        storage.write(S, 0, b"123456")
        storage.truncate(S, 5)
        storage.write(S, 6, b"78")

    for number in range(1, 100):
        store = SimulatedStore()
        set_layout_mode(store, CODE_ONLY)
        metadata = MemoryMetadataStore()
        faulty = FaultStore(store)
        storage = opened(faulty, metadata)
        faulty.plan = crash_at(faulty.passed + number, "after" if number % 2 else "before")
        with contextlib.suppress(Crashed):
            run(storage)
        storage = opened(store, metadata, epoch=2)
        if storage.exists(S):
            take_over(storage, S)
            begin, data = OldCode(store).read(S)
            info = storage.info(S)
            assert (begin <= info.start_offset, begin + len(data)) == (True, info.length)
            assert data == b"12345678"[begin : info.length]
        if not faulty.crashed:
            break
    assert number > 10


def test_what_the_collector_leaves_old_code_can_read(store: Store) -> None:
    set_layout_mode(store, CODE_ONLY)
    metadata = MemoryMetadataStore()
    storage = opened(store, metadata)
    storage.create(S, 3)
    storage.write(S, 0, b"abcdefgh")
    storage.truncate(S, 4)
    collector = GarbageCollector(store, metadata, StoreGarbageQueue(store, 0))
    collector.run_once(time.time() + 1000)
    assert OldCode(store).read(S) == (3, b"defgh")
