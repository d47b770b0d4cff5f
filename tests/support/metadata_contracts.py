"""What every metadata store must do, as test methods: subclass it and give it a `metadata` fixture of an empty store.

class TestMyStore(MetadataStoreContract):
    @pytest.fixture
    def metadata(self): return MyMetadataStore(…)
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from chunkstore.errors import InvalidRecord, MetadataConflict
from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    IndexBlockRecord,
    Record,
    RecordStatus,
    StoredSegmentRecord,
    segment_key,
)
from chunkstore.metadata.store import MetadataStore
from chunkstore.testing.contracts import refused

SEGMENT = StoredSegmentRecord(
    "scope/stream/0.#epoch.0",
    length=300,
    chunk_count=2,
    status=RecordStatus.ACTIVE | RecordStatus.ATOMIC_WRITES,
    max_rolling_length=2**27,
    first_chunk="c0",
    last_chunk="c1",
    last_chunk_start=200,
    owner_epoch=1,
    blocks=((0, "b0"),),
)
CHUNKS = (ChunkRecord("c0", 200, "c1"), ChunkRecord("c1", 100))
BLOCK = IndexBlockRecord("b0", ((0, "c0"), (200, "c1")))
RECORDS: tuple[Record, ...] = (SEGMENT, *CHUNKS, BLOCK)


def put(metadata: MetadataStore, *records: Record, pinned: bool = False) -> None:
    """Commit records, new or changed, in one transaction."""
    with metadata.begin(*(() if pinned else (record.key for record in records))) as transaction:
        for record in records:
            transaction.put(record, pinned=pinned)
        transaction.commit()


def get(metadata: MetadataStore, key: str) -> Record | None:
    """A record, read in a transaction of its own."""
    with metadata.begin(read_only=True) as transaction:
        return transaction.get(key)


class MetadataStoreContract:
    """The contract. What is read "anew" is read after `evict_all`, so from where the records lie."""

    # -- one transaction

    def test_nothing_is_there(self, metadata: MetadataStore) -> None:
        assert get(metadata, "c0") is None
        assert list(metadata.keys()) == []
        assert list(metadata.records()) == []

    def test_what_is_committed_is_read(self, metadata: MetadataStore) -> None:
        put(metadata, *RECORDS)
        for _ in ("from memory", "anew"):
            with metadata.begin(read_only=True) as transaction:
                assert transaction.segment(SEGMENT.name) == SEGMENT
                assert transaction.chunk("c0") == CHUNKS[0]
                assert transaction.chunk("c1") == CHUNKS[1]
                assert transaction.block("b0") == BLOCK
                assert transaction.get(segment_key(SEGMENT.name)) == SEGMENT
                for look_up in (transaction.segment, transaction.chunk, transaction.block):
                    assert look_up("none") is None
            metadata.evict_all()

    def test_a_segment_and_a_chunk_may_have_one_name(self, metadata: MetadataStore) -> None:
        segment = StoredSegmentRecord("same", 5, 1, first_chunk="same", last_chunk="same")
        put(metadata, segment, ChunkRecord("same", 5))
        metadata.evict_all()
        with metadata.begin() as transaction:
            assert transaction.segment("same") == segment
            assert transaction.chunk("same") == ChunkRecord("same", 5)

    def test_a_transaction_sees_its_own_changes(self, metadata: MetadataStore) -> None:
        put(metadata, *CHUNKS)
        with metadata.begin() as transaction:
            transaction.put(CHUNKS[0]._replace(length=1))
            transaction.delete("c1")
            transaction.put(ChunkRecord("c2", 5))
            assert transaction.chunk("c0") == CHUNKS[0]._replace(length=1)
            assert transaction.chunk("c1") is None
            assert transaction.chunk("c2") == ChunkRecord("c2", 5)
        assert get(metadata, "c0") == CHUNKS[0]

    def test_leaving_without_commit_changes_nothing(self, metadata: MetadataStore) -> None:
        put(metadata, *CHUNKS)
        with metadata.begin("c0") as transaction:
            transaction.put(CHUNKS[0]._replace(length=1))
            transaction.delete("c1")
            transaction.put(ChunkRecord("c2", 5))
        for _ in ("from memory", "anew"):
            assert [get(metadata, key) for key in ("c0", "c1", "c2")] == [*CHUNKS, None]
            metadata.evict_all()

    def test_an_error_in_the_transaction_changes_nothing(self, metadata: MetadataStore) -> None:
        def fail() -> None:
            with metadata.begin() as transaction:
                transaction.put(CHUNKS[0])
                raise KeyError

        refused(KeyError, fail)
        assert get(metadata, "c0") is None

    def test_deleting(self, metadata: MetadataStore) -> None:
        put(metadata, *RECORDS)
        with metadata.begin("c0") as transaction:
            transaction.delete("c0")
            transaction.delete("b0")
            transaction.delete("none")
            assert transaction.get("c0") is None
            transaction.commit()
        for _ in ("from memory", "anew"):
            assert get(metadata, "c0") is get(metadata, "b0") is None
            assert sorted(metadata.keys()) == sorted(["c1", SEGMENT.key])
            metadata.evict_all()
        put(metadata, CHUNKS[0]._replace(length=7))
        metadata.evict_all()
        assert get(metadata, "c0") == CHUNKS[0]._replace(length=7)

    def test_deleting_what_is_new(self, metadata: MetadataStore) -> None:
        for pinned in (False, True):
            with metadata.begin() as transaction:
                transaction.put(CHUNKS[0], pinned)
                transaction.put(CHUNKS[1], pinned)
                transaction.delete("c0")
                transaction.delete("c0")
                assert transaction.chunk("c0") is None
                transaction.commit()
            assert list(metadata.records()) == [("c1", CHUNKS[1])]
            with metadata.begin() as transaction:
                transaction.delete("c1")
                transaction.commit()

    def test_a_transaction_ends_once(self, metadata: MetadataStore) -> None:
        with metadata.begin() as transaction:
            transaction.put(CHUNKS[0])
            transaction.commit()
            refused(RuntimeError, transaction.commit)
            refused(RuntimeError, transaction.get, "c0")
            refused(RuntimeError, transaction.put, CHUNKS[0])
        refused(RuntimeError, transaction.delete, "c0")

    def test_a_transaction_for_reading_changes_nothing(self, metadata: MetadataStore) -> None:
        with metadata.begin(read_only=True) as transaction:
            refused(RuntimeError, transaction.put, CHUNKS[0])
            refused(RuntimeError, transaction.delete, "c0")
            transaction.commit()

    def test_a_record_of_another_kind(self, metadata: MetadataStore) -> None:
        put(metadata, *RECORDS)
        with metadata.begin() as transaction:
            assert refused(InvalidRecord, transaction.chunk, "b0").field == "type"
            assert "'c0' is a ChunkRecord" in str(refused(InvalidRecord, transaction.block, "c0"))

    # -- several transactions

    def test_of_two_changes_of_one_record_the_second_fails(self, metadata: MetadataStore) -> None:
        put(metadata, *CHUNKS)
        for anew in (False, True):
            with metadata.begin("c0") as first, metadata.begin("c0", "c1") as second:
                first.put(CHUNKS[0]._replace(length=11))
                second.put(CHUNKS[0]._replace(length=12))
                second.put(CHUNKS[1]._replace(length=12))
                first.commit()
                if anew:
                    metadata.evict_all()
                assert refused(MetadataConflict, second.commit).keys == ("c0",)
            assert [get(metadata, key) for key in ("c0", "c1")] == [CHUNKS[0]._replace(length=11), CHUNKS[1]]

    def test_what_was_only_read_is_checked_too(self, metadata: MetadataStore) -> None:
        put(metadata, *CHUNKS)
        for anew in (False, True):
            for change in (False, True):
                with metadata.begin() as reader:
                    assert reader.chunk("c0") == CHUNKS[0]
                    if change:
                        reader.load("c1")
                        reader.put(CHUNKS[1]._replace(length=5))
                    put(metadata, CHUNKS[0])
                    if anew:
                        metadata.evict_all()
                    assert refused(MetadataConflict, reader.commit).keys == ("c0",)
                assert get(metadata, "c1") == CHUNKS[1]

    def test_that_nothing_was_there_is_checked_too(self, metadata: MetadataStore) -> None:
        for anew in (False, True):
            key = f"new {anew}"
            with metadata.begin() as reader:
                assert reader.get(key) is None
                reader.put(ChunkRecord(f"other {anew}", 5))
                put(metadata, ChunkRecord(key, 5))
                if anew:
                    metadata.evict_all()
                refused(MetadataConflict, reader.commit)
            assert get(metadata, f"other {anew}") is None

    def test_a_record_deleted_and_made_again_is_another(self, metadata: MetadataStore) -> None:
        put(metadata, CHUNKS[0])
        for anew in (False, True):
            with metadata.begin("c0") as reader:
                with metadata.begin() as transaction:
                    transaction.delete("c0")
                    transaction.commit()
                put(metadata, CHUNKS[0])
                if anew:
                    metadata.evict_all()
                refused(MetadataConflict, reader.commit)

    def test_what_was_not_read_is_put_as_new(self, metadata: MetadataStore) -> None:
        put(metadata, CHUNKS[0])
        for anew in (False, True):
            if anew:
                metadata.evict_all()
            with metadata.begin() as transaction:
                transaction.put(CHUNKS[0]._replace(length=5))
                transaction.put(CHUNKS[1])
                refused(MetadataConflict, transaction.commit)
            assert get(metadata, "c0") == CHUNKS[0]
            assert get(metadata, "c1") is None

    def test_changes_of_different_records_do_not_meet(self, metadata: MetadataStore) -> None:
        put(metadata, *CHUNKS)
        with metadata.begin("c0") as first, metadata.begin("c1") as second:
            first.put(CHUNKS[0]._replace(length=1))
            second.put(CHUNKS[1]._replace(length=2))
            second.commit()
            first.commit()
        metadata.evict_all()
        assert [get(metadata, key) for key in ("c0", "c1")] == [
            CHUNKS[0]._replace(length=1),
            CHUNKS[1]._replace(length=2),
        ]

    def test_after_a_conflict_it_can_be_done_again(self, metadata: MetadataStore) -> None:
        put(metadata, CHUNKS[0])
        with metadata.begin("c0") as transaction:
            put(metadata, CHUNKS[0]._replace(length=1))
            transaction.put(CHUNKS[0]._replace(length=2))
            refused(MetadataConflict, transaction.commit)
        put(metadata, CHUNKS[0]._replace(length=3))
        metadata.evict_all()
        assert get(metadata, "c0") == CHUNKS[0]._replace(length=3)

    def test_threads_lose_no_change(self, metadata: MetadataStore) -> None:
        put(metadata, ChunkRecord("a", 0), ChunkRecord("b", 0))
        done = threading.Event()

        def add_one(key: str) -> None:
            while True:
                try:
                    with metadata.begin("a", "b") as transaction:
                        record = transaction.chunk(key)
                        assert record is not None
                        transaction.put(record._replace(length=record.length + 1))
                        transaction.commit()
                        return
                except MetadataConflict:
                    continue

        def evict() -> None:
            while not done.wait(0.0005):
                metadata.evict_all()

        with ThreadPoolExecutor(5) as threads:
            threads.submit(evict)
            list(threads.map(add_one, ["a", "b"] * 50))
            done.set()
        for _ in ("from memory", "anew"):
            assert [get(metadata, key) for key in ("a", "b")] == [ChunkRecord("a", 50), ChunkRecord("b", 50)]
            metadata.evict_all()

    # -- what is checked

    def test_a_segment_that_contradicts_itself_is_refused(self, metadata: MetadataStore) -> None:
        with metadata.begin() as transaction:
            transaction.put(CHUNKS[0])
            transaction.put(SEGMENT._replace(start_offset=301))
            error = refused(InvalidRecord, transaction.commit)
        assert error.field == "start_offset" and SEGMENT.name in str(error)
        assert get(metadata, "c0") is get(metadata, SEGMENT.key) is None

    # -- the external step

    def test_the_external_step_comes_before_anybody_sees_it(self, metadata: MetadataStore) -> None:
        seen: list[object] = []
        with metadata.begin("c0") as transaction:
            transaction.put(CHUNKS[0], pinned=True)
            transaction.commit(lambda: seen.append(dict(metadata.records())))
        assert seen == [{}]
        assert get(metadata, "c0") == CHUNKS[0]

    def test_pinned_records_stay_as_they_are_if_the_external_step_fails(self, metadata: MetadataStore) -> None:
        put(metadata, CHUNKS[0], pinned=True)

        def fail() -> None:
            raise KeyError

        with metadata.begin("c0") as transaction:
            transaction.put(CHUNKS[0]._replace(length=1))
            transaction.put(CHUNKS[1], pinned=True)
            refused(KeyError, transaction.commit, fail)
        assert [get(metadata, key) for key in ("c0", "c1")] == [CHUNKS[0], None]

    def test_stored_records_are_stored_if_the_external_step_fails(self, metadata: MetadataStore) -> None:
        put(metadata, *CHUNKS)

        def fail() -> None:
            raise KeyError

        with metadata.begin("c0") as transaction:
            transaction.put(CHUNKS[0]._replace(length=1))
            refused(KeyError, transaction.commit, fail)
        assert get(metadata, "c0") == CHUNKS[0]._replace(length=1)
        put(metadata, CHUNKS[0]._replace(length=2))

    # -- pinned records

    def test_pinned_records_are_only_in_memory(self, metadata: MetadataStore) -> None:
        put(metadata, CHUNKS[1])
        put(metadata, CHUNKS[0], pinned=True)
        metadata.evict_all()
        assert [key for key, _ in metadata._scan("")] == ["c1"]
        assert sorted(metadata.records()) == [("c0", CHUNKS[0]), ("c1", CHUNKS[1])]
        with metadata.begin("c0", "c1") as transaction:
            transaction.put(CHUNKS[0]._replace(length=1))
            transaction.put(CHUNKS[1]._replace(length=2))
            transaction.commit()
        metadata.evict_all()
        assert list(metadata._scan("")) == [("c1", CHUNKS[1]._replace(length=2))]
        assert get(metadata, "c0") == CHUNKS[0]._replace(length=1)
        with metadata.begin("c0") as transaction:
            transaction.delete("c0")
            transaction.commit()
        assert get(metadata, "c0") is None
        assert list(metadata.keys()) == ["c1"]

    def test_changes_of_pinned_records_meet(self, metadata: MetadataStore) -> None:
        put(metadata, CHUNKS[0], pinned=True)
        for change in (CHUNKS[0], None):
            with metadata.begin("c0") as first, metadata.begin("c0") as second, metadata.begin("c0") as third:
                if change:
                    first.put(change)
                else:
                    first.delete("c0")
                first.commit()
                second.put(CHUNKS[0]._replace(length=2), pinned=True)
                refused(MetadataConflict, second.commit)
                third.put(CHUNKS[0]._replace(length=3))
                refused(MetadataConflict, third.commit)
            assert get(metadata, "c0") == change

    def test_a_new_pinned_record_is_new(self, metadata: MetadataStore) -> None:
        put(metadata, CHUNKS[0], pinned=True)
        refused(MetadataConflict, lambda: put(metadata, CHUNKS[0]._replace(length=5), pinned=True))
        put(metadata, CHUNKS[1])
        with metadata.begin("c1") as transaction:
            refused(ValueError, transaction.put, CHUNKS[1], True)

    # -- all records

    def test_records_by_prefix(self, metadata: MetadataStore) -> None:
        names = ["a/1", "a/2", "a", "ab", "b/1", "é/1"]
        put(metadata, *(ChunkRecord(name, 5) for name in names))
        put(metadata, ChunkRecord("a/pinned", 5), pinned=True)
        for _ in ("from memory", "anew"):
            assert sorted(metadata.keys("a/")) == ["a/1", "a/2", "a/pinned"]
            assert sorted(metadata.keys("a")) == ["a", "a/1", "a/2", "a/pinned", "ab"]
            assert dict(metadata.records("é")) == {"é/1": ChunkRecord("é/1", 5)}
            assert sorted(metadata.keys()) == sorted([*names, "a/pinned"])
            assert list(metadata.keys("c")) == []
            metadata.evict_all()

    def test_many_records_in_one_transaction(self, metadata: MetadataStore) -> None:
        chunks = [ChunkRecord(f"chunk {number:04}", number, f"chunk {number + 1:04}") for number in range(1500)]
        put(metadata, *chunks)
        metadata.evict_all()
        assert sorted(record for _, record in metadata.records("chunk ")) == chunks
        with metadata.begin(*(chunk.key for chunk in chunks), read_only=True) as transaction:
            assert [transaction.get(chunk.key) for chunk in chunks] == chunks
