"""Metadata stores: the contract, what is read and written below them, the cache's bound, lost answers, takeovers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from chunkstore.errors import MetadataConflict, PutUnknown, StorageError
from chunkstore.metadata.metadata_records import ChunkRecord, IndexBlockRecord, Record
from chunkstore.metadata.store import MemoryMetadataStore, MemoryTable, MetadataStore, WithOperations
from chunkstore.testing.contracts import refused
from tests.support.flaky_metadata import FlakyMetadataStore
from tests.support.metadata_contracts import BLOCK, CHUNKS, RECORDS, MetadataStoreContract, get, put


class TestMemory(MetadataStoreContract):
    @pytest.fixture(params=[100_000, 3, 0], ids=["large cache", "small cache", "no cache"])
    def metadata(self, request: pytest.FixtureRequest) -> MetadataStore:
        return MemoryMetadataStore(cache_size=request.param)


class TestFlakyWithoutFaults(MetadataStoreContract):
    @pytest.fixture
    def metadata(self) -> MetadataStore:
        return FlakyMetadataStore()


class WatchedStore(MemoryMetadataStore):
    """Tells what was loaded and stored, and lets tests act in the midst of it."""

    def __init__(self, table: MemoryTable | None = None, *, cache_size: int = 1000) -> None:
        super().__init__(table, cache_size=cache_size)
        self.loads: list[list[str]] = []
        self.stores: list[tuple[dict[str, Record | None], list[str]]] = []
        self.after_load: Callable[[], object] = lambda: None
        self.after_store: Callable[[], object] = lambda: None

    def _load(self, keys: Collection[str]) -> dict[str, tuple[int, Record | None]]:
        self.loads.append(list(keys))
        loaded = super()._load(keys)
        self.after_load()
        return loaded

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        self.stores.append((dict(changes), sorted(expected)))
        versions = super()._store(changes, expected, with_operations)
        self.after_store()
        return versions


# -- what is read and written below


def test_a_transaction_is_one_write_under_all_its_conditions() -> None:
    metadata = WatchedStore()
    put(metadata, *CHUNKS, BLOCK)
    metadata.stores.clear()
    with metadata.begin("c0", "b0") as transaction:
        transaction.delete("c1")
        transaction.put(CHUNKS[0]._replace(length=1))
        transaction.put(ChunkRecord("new", 5))
        transaction.commit()
    changes = {"c0": CHUNKS[0]._replace(length=1), "c1": None, "new": ChunkRecord("new", 5)}
    assert metadata.stores == [(changes, ["b0", "c0", "c1", "new"])]


def test_keys_are_read_together_and_once() -> None:
    metadata = WatchedStore()
    put(metadata, *RECORDS)
    metadata.evict_all()
    metadata.loads.clear()
    with metadata.begin("c0", "c1", "c0") as transaction:
        assert transaction.chunk("c0") and transaction.chunk("c1")
        transaction.load("b0", "none", "c0")
        assert transaction.get("none") is None and transaction.block("b0")
    with metadata.begin("c1", "b0", "none") as transaction:
        assert transaction.chunk("c0") and transaction.get("none") is None
    assert metadata.loads == [["c0", "c1"], ["b0", "none"]]


def test_what_was_written_is_not_read_again() -> None:
    metadata = WatchedStore()
    put(metadata, *CHUNKS)
    with metadata.begin("c0") as transaction:
        transaction.delete("c0")
        transaction.commit()
    metadata.loads.clear()
    assert get(metadata, "c0") is None
    assert get(metadata, "c1") == CHUNKS[1]
    assert metadata.loads == []


def test_a_new_record_is_not_looked_up() -> None:
    metadata = WatchedStore()
    with metadata.begin() as transaction:
        transaction.put(CHUNKS[0])
        transaction.commit()
    assert metadata.loads == []
    assert metadata.stores == [({"c0": CHUNKS[0]}, ["c0"])]


def test_pinned_records_are_neither_loaded_nor_stored() -> None:
    """They say where the store itself lies: it cannot be asked for them."""
    metadata = WatchedStore()
    put(metadata, *CHUNKS, pinned=True)
    with metadata.begin("c0") as transaction:
        transaction.put(CHUNKS[0]._replace(length=1))
        transaction.delete("c1")
        transaction.put(ChunkRecord("new", 5), pinned=True)
        transaction.commit()
    assert not metadata.loads and not metadata.stores
    assert dict(metadata.records()) == {"c0": CHUNKS[0]._replace(length=1), "new": ChunkRecord("new", 5)}


def test_a_transaction_that_only_reads_is_checked_in_memory() -> None:
    metadata = WatchedStore()
    put(metadata, *CHUNKS)
    metadata.loads.clear()
    metadata.stores.clear()
    with metadata.begin("c0", "c1", read_only=True) as transaction:
        transaction.commit()
    assert not metadata.loads and not metadata.stores


def test_what_was_made_and_deleted_in_one_transaction_is_not_stored() -> None:
    metadata = WatchedStore()
    with metadata.begin() as transaction:
        transaction.put(CHUNKS[0])
        transaction.delete("c0")
        transaction.commit()
    assert metadata.stores == []


def test_a_pinned_record_hides_a_stored_one() -> None:
    metadata = MemoryMetadataStore()
    put(MemoryMetadataStore(metadata.table), CHUNKS[0])
    put(metadata, CHUNKS[0]._replace(length=1), pinned=True)
    assert list(metadata.records()) == [("c0", CHUNKS[0]._replace(length=1))]
    assert get(metadata, "c0") == CHUNKS[0]._replace(length=1)


def test_threads_that_want_the_same_key_load_it_once() -> None:
    metadata = WatchedStore()
    put(metadata, CHUNKS[0])
    metadata.evict_all()
    metadata.loads.clear()
    loading, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        loading.set()
        go_on.wait(5)

    metadata.after_load = wait
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(get, metadata, "c0")
        loading.wait(5)
        second = threads.submit(get, metadata, "c0")
        assert not second.done()
        go_on.set()
        assert first.result(5) == second.result(5) == CHUNKS[0]
    assert metadata.loads == [["c0"]]


def test_a_conflict_that_is_known_costs_nothing() -> None:
    metadata = WatchedStore()
    put(metadata, CHUNKS[0])
    with metadata.begin("c0") as transaction:
        put(metadata, CHUNKS[0])
        metadata.stores.clear()
        transaction.put(CHUNKS[0])
        refused(MetadataConflict, transaction.commit)
    assert metadata.stores == []


# -- the cache


def test_the_cache_is_bounded_by_the_names_in_it() -> None:
    metadata = WatchedStore(cache_size=10)
    chunks = [ChunkRecord(f"c{number}", 5) for number in range(6)]
    put(metadata, *chunks)
    metadata.loads.clear()
    for key in ("c1", "c5", "c2", "c1"):
        assert get(metadata, key)
    assert metadata.loads == []
    assert get(metadata, "c0")  # takes the place of c3, which was not asked for the longest
    for key in ("c4", "c5", "c2", "c1", "c0"):
        assert get(metadata, key)
    assert metadata.loads == [["c0"]]
    assert get(metadata, "c3")
    assert metadata.loads == [["c0"], ["c3"]]
    put(metadata, IndexBlockRecord("b", tuple((number, f"c{number}") for number in range(9))))
    metadata.loads.clear()
    assert get(metadata, "b")
    assert metadata.loads == []
    assert get(metadata, "c3")
    assert metadata.loads == [["c3"]]


def test_what_was_evicted_makes_room() -> None:
    metadata = WatchedStore(cache_size=4)
    put(metadata, *CHUNKS)
    for _ in range(3):
        metadata.evict_all()
        metadata.loads.clear()
        for key in ("c0", "c1", "c0", "c1"):
            assert get(metadata, key)
        assert metadata.loads == [["c0"], ["c1"]]


def test_pinned_records_are_never_evicted() -> None:
    metadata = WatchedStore(cache_size=4)
    pinned = [ChunkRecord(f"p{number}", 5) for number in range(50)]
    put(metadata, *pinned, pinned=True)
    for number in range(50):
        put(metadata, ChunkRecord(f"c{number}", 5))
    metadata.loads.clear()
    assert [get(metadata, record.key) for record in pinned] == pinned
    assert metadata.loads == []


def test_a_slow_load_does_not_hide_a_later_commit() -> None:
    """What was loaded before a commit must not get into the cache after it."""
    metadata = WatchedStore()
    put(metadata, CHUNKS[0])
    for turn in range(3):
        metadata.evict_all()
        loaded, go_on = threading.Event(), threading.Event()

        def wait(loaded: threading.Event = loaded, go_on: threading.Event = go_on) -> None:
            metadata.after_load = lambda: None
            loaded.set()
            go_on.wait(5)

        with ThreadPoolExecutor(2) as threads, metadata.begin() as transaction:
            transaction.load("c0")
            changed = CHUNKS[0]._replace(length=1000 + turn)
            transaction.put(changed)
            metadata.evict_all()
            metadata.after_load = wait
            reading = threads.submit(get, metadata, "c0")
            loaded.wait(5)
            committing = threads.submit(transaction.commit)
            assert not committing.done()
            go_on.set()
            reading.result(5)
            committing.result(5)
        assert get(metadata, "c0") == changed
        metadata.evict_all()
        assert get(metadata, "c0") == changed


def test_of_two_commits_the_later_is_what_stays_in_memory() -> None:
    """The first is stored, and slow to hear of it; the second must not be overwritten in memory by it."""
    metadata = WatchedStore(cache_size=0)
    put(metadata, CHUNKS[0])
    stored, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        metadata.after_store = lambda: None
        stored.set()
        go_on.wait(5)

    def change(length: int) -> None:
        with metadata.begin("c0") as transaction:
            transaction.put(CHUNKS[0]._replace(length=length))
            transaction.commit()

    metadata.after_store = wait
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(change, 1)
        stored.wait(5)
        second = threads.submit(change, 2)
        go_on.set()
        first.result(5)
        second.result(5)
    assert get(metadata, "c0") == CHUNKS[0]._replace(length=2)


def test_an_external_step_that_uses_its_own_keys_is_told_so() -> None:
    metadata = MemoryMetadataStore(cache_size=0)
    put(metadata, *CHUNKS)
    with metadata.begin("c0") as transaction:
        transaction.put(CHUNKS[0]._replace(length=1))
        error = refused(RuntimeError, transaction.commit, lambda: get(metadata, "c0"))
    assert "external step" in str(error)
    assert get(metadata, "c0") == CHUNKS[0]._replace(length=1)


# -- lost answers, and others who write


def test_after_a_lost_answer_what_is_stored_is_read() -> None:
    metadata = FlakyMetadataStore()
    put(metadata, *CHUNKS)
    for length, share in ((1, "fail_before"), (2, "fail_after")):
        before = get(metadata, "c0")
        setattr(metadata, share, 1.0)
        with metadata.begin("c0", "c1") as transaction:
            transaction.put(CHUNKS[0]._replace(length=length))
            transaction.put(ChunkRecord(f"new {length}", 5))
            refused(PutUnknown, transaction.commit)
        setattr(metadata, share, 0.0)
        done = share == "fail_after"
        assert get(metadata, "c0") == (CHUNKS[0]._replace(length=length) if done else before)
        assert (get(metadata, f"new {length}") is not None) == done
        put(metadata, CHUNKS[0])
    assert metadata.faults == 2


def test_faults_are_those_of_the_seed() -> None:
    def outcomes(seed: int) -> list[bool]:
        metadata = FlakyMetadataStore(seed=seed, fail_before=0.3, fail_after=0.3)
        done = []
        for number in range(50):
            try:
                put(metadata, ChunkRecord(f"c{number}", 5))
                done.append(True)
            except PutUnknown:
                done.append(False)
        return done

    assert outcomes(1) == outcomes(1) != outcomes(2)
    assert 0 < sum(outcomes(1)) < 50


class Fenced(StorageError):
    """The log belongs to another owner."""


def test_a_fence_passes_through_and_nothing_is_changed() -> None:
    metadata = FlakyMetadataStore()
    put(metadata, *CHUNKS)
    metadata.fence = Fenced("epoch 5 has taken over")
    with metadata.begin("c0") as transaction:
        transaction.put(CHUNKS[0]._replace(length=1))
        assert refused(Fenced, transaction.commit) is metadata.fence
    assert get(metadata, "c0") == CHUNKS[0]


def test_one_who_was_overtaken_changes_nothing_and_learns_of_it() -> None:
    """Two stores on one table are two processes. The slower has an old record in memory."""
    slower = WatchedStore()
    put(slower, *CHUNKS)
    faster = MemoryMetadataStore(slower.table)
    put(faster, CHUNKS[0]._replace(length=1))
    assert get(slower, "c0") == CHUNKS[0]
    with slower.begin("c0", "c1") as transaction:
        transaction.put(CHUNKS[0]._replace(length=2))
        transaction.put(CHUNKS[1]._replace(length=2))
        assert refused(MetadataConflict, transaction.commit).keys == ("c0",)
    assert [get(slower, key) for key in ("c0", "c1")] == [CHUNKS[0]._replace(length=1), CHUNKS[1]]
    put(slower, CHUNKS[0]._replace(length=3))
    faster.evict_all()
    assert get(faster, "c0") == CHUNKS[0]._replace(length=3)


def test_a_name_that_another_process_has_freed_can_be_used() -> None:
    slower = MemoryMetadataStore()
    put(slower, CHUNKS[0])
    with MemoryMetadataStore(slower.table).begin() as transaction:
        transaction.delete("c0")
        transaction.commit()
    with slower.begin() as transaction:
        transaction.put(CHUNKS[0]._replace(length=1))
        refused(MetadataConflict, transaction.commit)
    with slower.begin() as transaction:
        transaction.put(CHUNKS[0]._replace(length=1))
        transaction.commit()
    assert get(slower, "c0") == CHUNKS[0]._replace(length=1)


def test_racing_processes_lose_no_change() -> None:
    table = MemoryTable()
    put(MemoryMetadataStore(table), ChunkRecord("a", 0))

    def add(number: int) -> None:
        metadata = MemoryMetadataStore(table)
        for _ in range(25):
            while True:
                try:
                    with metadata.begin("a") as transaction:
                        record = transaction.chunk("a")
                        assert record is not None
                        transaction.put(record._replace(length=record.length + 1))
                        transaction.commit()
                    break
                except MetadataConflict:
                    continue

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(4)))
    assert get(MemoryMetadataStore(table), "a") == ChunkRecord("a", 100)


# -- what happens in the same step


class StoreWithCompanions(MemoryMetadataStore):
    """Does what goes with a change, which is to be told, unless the change is refused."""

    def __init__(self, table: MemoryTable | None = None) -> None:
        super().__init__(table)
        self.done: list[str] = []

    def _store(
        self, changes: Mapping[str, Record | None], expected: Mapping[str, int], with_operations: WithOperations
    ) -> dict[str, int]:
        versions = super()._store(changes, expected, ())
        self.done += with_operations
        return versions


def test_companions_happen_with_the_commit() -> None:
    metadata = StoreWithCompanions()
    with metadata.begin(with_operations=["one"]) as transaction:
        transaction.put(CHUNKS[0])
        transaction.with_operations.append("two")
        assert metadata.done == []
        transaction.commit()
    assert metadata.done == ["one", "two"]
    put(metadata, CHUNKS[1])
    assert metadata.done == ["one", "two"], "they go with one transaction, and not with the next one"


def test_companions_of_what_is_refused_or_left_never_happen() -> None:
    table = MemoryTable()
    metadata, other = StoreWithCompanions(table), MemoryMetadataStore(table)
    put(metadata, *CHUNKS)
    with metadata.begin("c0", with_operations=["left"]) as transaction:
        transaction.put(CHUNKS[0]._replace(length=1))
    with metadata.begin("c0", with_operations=["refused"]) as transaction:
        put(other, CHUNKS[0]._replace(length=2))
        transaction.put(CHUNKS[0]._replace(length=3))
        with pytest.raises(MetadataConflict):
            transaction.commit()
    put(metadata, *CHUNKS[1:])
    assert metadata.done == []


def test_companions_happen_though_no_record_changes_and_on_the_same_conditions() -> None:
    table = MemoryTable()
    metadata, other = StoreWithCompanions(table), MemoryMetadataStore(table)
    put(metadata, *CHUNKS)
    with metadata.begin("c0", with_operations=["one"]) as transaction:
        transaction.commit()
    with metadata.begin("c0", with_operations=["two"]) as transaction:
        put(other, CHUNKS[0]._replace(length=2))
        with pytest.raises(MetadataConflict):
            transaction.commit()
    assert metadata.done == ["one"]


def test_a_store_that_knows_of_no_companions_says_so() -> None:
    metadata = MemoryMetadataStore()
    with metadata.begin(with_operations=["one"]) as transaction:
        transaction.put(CHUNKS[0])
        with pytest.raises(ValueError, match="'one'"):
            transaction.commit()
    assert get(metadata, "c0") is None


def test_what_is_to_be_done_without_a_commit_is_done_once_then_only() -> None:
    metadata, done = FlakyMetadataStore(), []
    with metadata.begin() as transaction:
        transaction.unless_committed(lambda: done.append("committed"))
        transaction.put(CHUNKS[0])
        transaction.commit()
    with metadata.begin() as transaction:
        transaction.unless_committed(lambda: done.append("left"))
    metadata.fail_after = 1.0
    with metadata.begin() as transaction:
        transaction.unless_committed(lambda: done.append("unknown"))
        transaction.put(CHUNKS[1])
        with pytest.raises(PutUnknown):
            transaction.commit()
    assert done == ["left", "unknown"]
