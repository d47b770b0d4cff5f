"""The legacy layout: its headers with all their oddities, adopted without moving a byte, and written for old code."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from chunkstore import Store, open_store
from chunkstore.garbage_collector import GarbageCollector
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.paths import ROOT
from chunkstore.pravega.rolling import (
    Header,
    HeaderChunk,
    InvalidHeader,
    LegacySegments,
    chunk_name,
    format_header,
    header_name,
    parse_header,
    segment_of,
)
from chunkstore.segments.errors import (
    StoredSegmentExists,
    StoredSegmentNotFound,
    StoredSegmentSealed,
    StoredSegmentTruncated,
)
from chunkstore.segments.storage import NO_ROLLING, ChunkedSegmentStorage
from chunkstore.testing import CountingStore
from tests.support.garbage_queue import StoreGarbageQueue
from tests.support.segment_contracts import take_over

S = "scope/stream/0.#epoch.0"


def chunks(**starts: int) -> tuple[HeaderChunk, ...]:
    return tuple(HeaderChunk(start, name) for name, start in starts.items())


# -- the format


def test_a_header_is_written_as_in_the_original() -> None:
    header = Header(1234, (HeaderChunk(0, "Segment$offset.0"), HeaderChunk(1000, "Segment$offset.1000")))
    text = b"maxsize=1234&0=Segment$offset.0&1000=Segment$offset.1000&"
    assert format_header(header) == text
    assert parse_header(text) == header


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("maxsize=100&", ()),
        ("0=a&maxsize=100&", chunks(a=0)),
        ("MaxSize=100&0=a&", chunks(a=0)),
        ("maxsize=100&&0=a&&", chunks(a=0)),
        ("maxsize=100&0=a&maxsize=7&9=b&", chunks(a=0, b=9)),
        ("maxsize=100&0=a&0=b&5=c&5=d&", chunks(a=0, b=0, c=5, d=5)),
        # concat: the source's header, as it was, behind a marker
        ("maxsize=100&0=t&concat=2@50&maxsize=100&0=s&30=u&", chunks(t=0, s=50, u=80)),
        ("maxsize=100&0=t&CONCAT=1@50&maxsize=1&0=s&60=v&", chunks(t=0, s=50, v=60)),
        ("maxsize=100&concat=1@0&maxsize=100&0=s&7=v&", chunks(s=0, v=7)),
        ("maxsize=100&0=t&concat=0@50&60=v&", chunks(t=0, v=60)),
        (
            "maxsize=100&0=t&concat=1@50&maxsize=1&0=s&concat=2@60&maxsize=1&0=u&5=v&70=w&",
            chunks(t=0, s=50, u=60, v=65, w=70),
        ),
        # a concat within a concatenated header
        (
            "maxsize=100&0=t&concat=4@50&maxsize=1&0=s&concat=2@30&maxsize=1&0=u&5=v&40=w&100=x&",
            chunks(t=0, s=50, u=80, v=85, w=90, x=100),
        ),
        # a concat that failed behind its marker
        ("maxsize=100&0=t&concat=2@50&", chunks(t=0)),
        ("maxsize=100&0=t&concat=2@50&50=v&", chunks(t=0, v=50)),
        ("maxsize=100&0=t&concat=2@50&50=v&70=w&", chunks(t=0, v=50, w=70)),
        ("maxsize=100&0=t&concat=2@50&concat=2@50&maxsize=1&0=s&9=u&60=v&", chunks(t=0, s=50, u=59, v=60)),
        ("maxsize=100&0=t&concat=2@50&concat=1@50&maxsize=1&0=s&60=v&", chunks(t=0, s=50, v=60)),
        ("maxsize=9&0=t&concat=3@50&maxsize=1&0=s&concat=1@30&50=u&60=w&", chunks(t=0, s=50, u=100, w=110)),
        # an entry whose writing failed
        ("maxsize=100&0=t&50=S$off", chunks(t=0)),
        ("maxsize=100&0=t&50", chunks(t=0)),
    ],
)
def test_headers_with_oddities(text: str, expected: tuple[HeaderChunk, ...]) -> None:
    assert parse_header(text.encode()) == Header(9 if "maxsize=9&" in text else 100, expected)


@pytest.mark.parametrize("text", ["", "&", "maxs", "maxsize=10"])
def test_a_header_that_was_never_written_means_no_segment(text: str) -> None:
    assert parse_header(text.encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        "maxsize=100&0=a&9=b&8=c&",  # going backwards
        "maxsize=100&0=t&concat=3@50&maxsize=1&0=s&9=u&concat=3@50&maxsize=1&0=s&9=u&20=v&",  # one that failed half-way
        "0=a&",
        "maxsize=100&0=&",
        "maxsize=100&=a&",
        "maxsize=100&a&",
        "maxsize=x&",
        "maxsize=-1&",
        "maxsize=100&x=a&",
        "maxsize=100&-5=a&",
        "maxsize=100&concat=2&",
        "maxsize=100&concat=@5&",
        "maxsize=100&concat=2@&",
        "maxsize=100&concat=x@5&",
        "maxsize=100&\u0663=a&",
        "maxsize=100&4611686018427387904=a&",  # further than a record can say
        "maxsize=" + "9" * 5000 + "&",
        "maxsize=100&concat=" + "9" * 5000 + "@0&",
    ],
)
def test_headers_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidHeader, match="header"):
        parse_header(text.encode())


def test_headers_within_headers_however_deep_cost_what_they_are_long() -> None:
    """Before, each entry went through all markers that were open: this one took hours."""
    depth = 60_000
    text = "maxsize=1&0=a&" + "".join(f"concat={2 * depth - level}@1&{0}=b&" for level in range(depth))
    header = parse_header((text + "7=c&").encode())
    assert header is not None and len(header.chunks) == depth + 2
    assert header.chunks[1].start == 1 and header.chunks[-2].start == depth and header.chunks[-1].start == depth + 7


def test_a_header_that_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidHeader, match="byte 10"):
        parse_header(b"maxsize=10\xff&")


@pytest.mark.parametrize("name", ["", "a&b", "a=b"])
def test_a_name_that_no_header_can_hold_is_refused(name: str) -> None:
    with pytest.raises(InvalidHeader):
        format_header(Header(1, (HeaderChunk(0, name),)))


NAMES = st.text(st.characters(exclude_characters="&=", exclude_categories=["Cs"]), min_size=1)


@given(st.integers(0, 1 << 62), st.lists(st.tuples(st.integers(0, (1 << 62) - 1), NAMES)))
def test_every_header_is_read_as_it_was_written(max_length: int, entries: list[tuple[int, str]]) -> None:
    header = Header(max_length, tuple(HeaderChunk(*entry) for entry in sorted(entries)))
    assert parse_header(format_header(header)) == header


@given(st.binary())
def test_no_bytes_do_worse_than_being_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidHeader):
        parse_header(b"maxsize=1&" + data)


@pytest.mark.parametrize(
    ("name", "segment"), [(f"{S}$header", S), ("$header", None), (S, None), (f"{S}$header2", None)]
)
def test_headers_are_told_by_their_names(name: str, segment: str | None) -> None:
    assert segment_of(name) == segment


# -- adoption


class OldCode:
    """Writes and reads segments as RollingStorage does, at least what these tests need of it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(self, segment: str, *pieces: bytes, max_length: int = 1000, first: int = 0) -> bytes:
        """A segment with a chunk for each piece."""
        entries, start = [], first
        for piece in pieces:
            entries.append(HeaderChunk(start, chunk_name(segment, start)))
            self.store.put(entries[-1].name, piece)
            start += len(piece)
        self.store.put(header_name(segment), format_header(Header(max_length, tuple(entries))))
        return b"".join(pieces)

    def seal(self, segment: str) -> None:
        self.store.set_read_only(header_name(segment), True)

    def read(self, segment: str) -> tuple[int, bytes]:
        """Where the segment begins, and its bytes."""
        header = parse_header(self.store.read(header_name(segment)))
        assert header is not None
        parts, begin = [], None
        for chunk, following in zip(header.chunks, [*header.chunks, None][1:], strict=True):
            data = self.store.read(chunk.name)
            begin = chunk.start if begin is None else begin
            parts.append(data if following is None else data[: following.start - chunk.start])
        return begin or 0, b"".join(parts)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(open_store(str(tmp_path / "root")))


@pytest.fixture
def old(store: CountingStore) -> OldCode:
    return OldCode(store)


@pytest.fixture
def metadata() -> MemoryMetadataStore:
    return MemoryMetadataStore()


@pytest.fixture
def legacy(store: CountingStore, metadata: MemoryMetadataStore) -> LegacySegments:
    return LegacySegments(store, metadata, keep_headers=False)


@pytest.fixture
def storage(store: CountingStore, metadata: MemoryMetadataStore, legacy: LegacySegments) -> ChunkedSegmentStorage:
    return ChunkedSegmentStorage(store, metadata, StoreGarbageQueue(store, 0), epoch=3, adopter=legacy.adopt)


def content(storage: ChunkedSegmentStorage, segment: str = S) -> bytes:
    info = storage.info(segment)
    return storage.read(segment, info.start_offset, info.length - info.start_offset)


def test_a_segment_without_metadata_is_adopted_as_it_is_met(
    store: CountingStore, old: OldCode, storage: ChunkedSegmentStorage
) -> None:
    data = old.create(S, b"one", b"twenty", b"three")
    store.reset()
    assert storage.exists(S)
    assert storage.info(S).length == len(data)
    assert content(storage) == data
    assert store.count("put", S) == store.count("append", f"{S}$offset") == store.bytes_written == 0
    assert not storage.info(S).sealed
    take_over(storage, S)
    storage.write(S, len(data), b"more")
    assert content(storage) == data + b"more"
    assert store.read(chunk_name(S, 9)) == b"three", "a chunk of old code was added to"


def test_nothing_is_adopted_where_nothing_is(storage: ChunkedSegmentStorage, store: CountingStore) -> None:
    store.put(header_name(S), b"")
    assert not storage.exists(S)
    with pytest.raises(StoredSegmentNotFound):
        storage.info("other/stream/0")
    storage.create(S)


def test_a_legacy_segment_is_not_created_over(old: OldCode, storage: ChunkedSegmentStorage) -> None:
    old.create(S)
    with pytest.raises(StoredSegmentExists):
        storage.create(S)
    assert storage.info(S).length == 0


def test_the_first_write_rolls_at_the_old_length(old: OldCode, storage: ChunkedSegmentStorage) -> None:
    old.create(S, b"12345", max_length=5)
    storage.write(S, 5, b"x" * 12)
    assert [placed.chunk.length for placed in storage.layout(S)] == [5, 5, 5, 2]


def test_a_truncated_segment_begins_at_its_first_chunk(
    store: CountingStore, old: OldCode, storage: ChunkedSegmentStorage
) -> None:
    data = old.create(S, b"one", b"two", b"three")
    store.delete([chunk_name(S, 0), chunk_name(S, 3)])
    assert storage.info(S).start_offset == 6
    assert content(storage) == data[6:]
    with pytest.raises(StoredSegmentTruncated):
        storage.read(S, 5, 1)


def test_a_segment_whose_last_chunk_is_empty(old: OldCode, storage: ChunkedSegmentStorage) -> None:
    old.create(S, b"", first=100)
    assert (storage.info(S).start_offset, storage.info(S).length) == (100, 100)
    storage.write(S, 100, b"x")
    assert content(storage) == b"x"


def test_empty_chunks_in_the_midst(old: OldCode, storage: ChunkedSegmentStorage, store: CountingStore) -> None:
    store.put(f"{S}$offset.0", b"abc")
    store.put("empty", b"")
    store.put("rest", b"defg")
    store.put(header_name(S), f"maxsize=9&0={S}$offset.0&3=empty&3=rest&".encode())
    assert content(storage) == b"abcdefg"


def test_bytes_behind_a_chunk_that_was_rolled_over_do_not_count(
    old: OldCode, storage: ChunkedSegmentStorage, store: CountingStore
) -> None:
    data = old.create(S, b"one", b"two")
    store.put(chunk_name(S, 0), b"one and more")
    assert content(storage) == data


def test_a_concatenated_segment(old: OldCode, storage: ChunkedSegmentStorage, store: CountingStore) -> None:
    target, source = f"{S}", "scope/stream/1.#epoch.0#transaction.0123456789abcdef0123456789abcdef"
    data = old.create(target, b"target") + old.create(source, b"source", b"goes on")
    marker = b"concat=2@6&"
    store.put(header_name(target), store.read(header_name(target)) + marker + store.read(header_name(source)))
    store.delete([header_name(source)])
    assert content(storage, target) == data
    assert not storage.exists(source)


def test_a_segment_without_a_header(old: OldCode, storage: ChunkedSegmentStorage, store: CountingStore) -> None:
    store.put(S, b"plain")
    assert content(storage) == b"plain"
    storage.write(S, 5, b" and more")
    assert content(storage) == b"plain and more"
    assert store.read(S) == b"plain"


@pytest.mark.parametrize("has_header", [True, False])
def test_a_sealed_segment_stays_sealed(
    old: OldCode, storage: ChunkedSegmentStorage, store: CountingStore, has_header: bool
) -> None:
    if has_header:
        old.create(S, b"one")
        old.seal(S)
    else:
        store.put(S, b"one")
        store.set_read_only(S, True)
    assert storage.info(S).sealed
    with pytest.raises(StoredSegmentSealed):
        storage.write(S, 3, b"x")


@pytest.mark.parametrize("has_header", [True, False])
def test_a_deleted_segment_does_not_come_back(
    store: CountingStore,
    metadata: MemoryMetadataStore,
    old: OldCode,
    storage: ChunkedSegmentStorage,
    legacy: LegacySegments,
    has_header: bool,
) -> None:
    if has_header:
        old.create(S, b"one", b"two")
    else:
        store.put(S, b"onetwo")
    assert storage.exists(S)
    header = format_header(Header(9, (HeaderChunk(0, chunk_name(S, 0)),)))
    store.put(header_name(S), header)  # its deletion was lost
    storage.delete(S)
    assert not storage.exists(S)
    queue = StoreGarbageQueue(store, 0)
    collector = GarbageCollector(store, metadata, queue)
    for days in range(1, 4):
        collector.run_once(time.time() + days * 86400)
        assert not storage.exists(S)
        assert legacy.adopt_all().adopted == 0
    assert [found.path for found in store.list("scope/")] == [header_name(S)]
    storage.create(S)
    assert storage.info(S).length == 0


def test_a_segment_without_a_header_that_was_merged_does_not_come_back(
    store: CountingStore, storage: ChunkedSegmentStorage
) -> None:
    source = "scope/stream/1"
    store.put(source, b"plain")
    storage.seal(source)
    storage.create(S)
    storage.concat(S, 0, source)
    assert not storage.exists(source)
    storage.truncate(S, 5)
    assert not storage.exists(source)


def test_two_that_adopt_at_once(old: OldCode, legacy: LegacySegments, storage: ChunkedSegmentStorage) -> None:
    data = old.create(S, *[b"x"] * 20)
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(legacy.adopt(S))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert content(storage) == data


def test_what_contradicts_the_header_is_refused(
    store: CountingStore, old: OldCode, storage: ChunkedSegmentStorage, legacy: LegacySegments
) -> None:
    old.create(S, b"one", b"two", b"three")
    store.put(chunk_name(S, 3), b"t")
    with pytest.raises(InvalidHeader, match=r"offset\.3' at 3 has 1 bytes, but 3"):
        storage.exists(S)
    store.delete([chunk_name(S, 3)])
    with pytest.raises(InvalidHeader, match=r"offset\.3' at 3 is missing"):
        storage.exists(S)
    store.put(header_name(S), b"maxsize=1&5=a&4=b&")
    with pytest.raises(InvalidHeader, match=r"0\.#epoch\.0\$header"):
        storage.exists(S)
    assert legacy.adopt_all().refused.keys() == {S}
    store.put(ROOT, b"{}")
    store.put(header_name(S), f"maxsize=1&0={ROOT}&".encode())
    with pytest.raises(InvalidHeader, match="part of the root"):
        storage.exists(S)


def test_a_segment_whose_deletion_failed_does_not_exist(
    store: CountingStore, old: OldCode, storage: ChunkedSegmentStorage
) -> None:
    old.create(S, b"one", b"two")
    store.delete([chunk_name(S, 0), chunk_name(S, 3)])
    assert not storage.exists(S)


def test_all_segments_are_adopted_at_once(
    store: CountingStore, old: OldCode, storage: ChunkedSegmentStorage, legacy: LegacySegments
) -> None:
    expected = {}
    for number in range(5):
        segment = f"scope/s{number}/0.#epoch.0"
        expected[segment] = old.create(segment, b"a" * number, b"b")
    plain = "scope/plain/3#transaction.0123456789abcdef0123456789abcdef"
    store.put(plain, b"plain")
    expected[plain] = b"plain"
    store.put("scope/notes.txt", b"not a segment")
    store.put("scope/0.#epoch.0$attributes", b"not one either")
    store.put("_system/containers/0/wal/00000000000000000001", b"nor this")
    store.put("_system/layout/00000000000000000001", b"nor this")
    storage.create("scope/new/0.#epoch.0")
    storage.write("scope/new/0.#epoch.0", 0, b"new")
    report = legacy.adopt_all()
    assert (report.adopted, report.known, report.refused) == (6, 0, {})
    assert {info.name for info in storage.list()} == {*expected, "scope/new/0.#epoch.0"}
    for segment, data in expected.items():
        assert content(storage, segment) == data
    report = legacy.adopt_all()
    assert (report.adopted, report.known, report.refused) == (0, 1, {}), "a plain file stays; the headers are gone"


def test_many_chunks_are_found_with_few_requests(
    store: CountingStore, old: OldCode, storage: ChunkedSegmentStorage
) -> None:
    data = old.create(S, *[b"chunk"] * 1500)
    store.reset()
    assert storage.info(S).length == len(data)
    assert sum(store.counts.values()) < 15


# -- export


def test_old_code_reads_what_was_exported(old: OldCode, storage: ChunkedSegmentStorage, legacy: LegacySegments) -> None:
    storage.create(S, 5)
    storage.write(S, 0, b"twelve bytes")
    storage.write(S, 12, b"and more")
    legacy.export_header(S)
    assert old.read(S) == (0, b"twelve bytesand more")
    storage.truncate(S, 7)
    legacy.export_header(S)
    assert old.read(S) == (5, b"twelve bytesand more"[5:])
    storage.seal(S)
    legacy.export_header(S)
    again = LegacySegments(old.store, MemoryMetadataStore(), keep_headers=True)
    assert again.adopt(S)


def test_what_was_exported_is_adopted_as_it_was(
    store: CountingStore, storage: ChunkedSegmentStorage, legacy: LegacySegments
) -> None:
    storage.create(S, 5)
    storage.write(S, 0, b"twelve bytes")
    storage.seal(S)
    legacy.export_header(S)
    metadata = MemoryMetadataStore()
    other = LegacySegments(store, metadata, keep_headers=True)
    copy = ChunkedSegmentStorage(store, metadata, StoreGarbageQueue(store, 1), 9, adopter=other.adopt)
    assert content(copy) == b"twelve bytes"
    assert copy.info(S).sealed
    assert [placed[1].length for placed in copy.layout(S)] == [5, 5, 2]
    storage.unseal(S)
    legacy.export_header(S)
    metadata.table.rows.clear()
    metadata.evict_all()
    assert not copy.info(S).sealed


def test_bytes_that_do_not_count_are_not_shown_to_old_code(
    store: CountingStore, old: OldCode, storage: ChunkedSegmentStorage, legacy: LegacySegments
) -> None:
    storage.create(S)
    storage.write(S, 0, b"counts")
    [placed] = storage.layout(S)
    store.append(placed.chunk.name, 6, b"does not")
    legacy.export_header(S)
    assert old.read(S) == (0, b"counts")
    storage.truncate(S, 6)
    legacy.export_header(S)
    assert old.read(S) == (6, b"")


def test_a_segment_that_is_changed_meanwhile_is_exported_as_it_is(
    old: OldCode, storage: ChunkedSegmentStorage, metadata: MemoryMetadataStore
) -> None:
    storage.create(S, 5)
    storage.write(S, 0, b"one")

    class Busy(MemoryMetadataStore):
        left = 3

        def _load(self, keys):  # type: ignore[no-untyped-def]
            loaded = super()._load(keys)
            if self.left and any(".E-" in key for key in keys):
                self.left -= 1
                storage.write(S, storage.info(S).length, b"and more")
            return loaded

    LegacySegments(old.store, Busy(metadata.table), keep_headers=True).export_header(S)
    assert old.read(S) == (0, b"oneand moreand moreand more")


def test_only_what_exists_is_exported(storage: ChunkedSegmentStorage, legacy: LegacySegments) -> None:
    with pytest.raises(StoredSegmentNotFound):
        legacy.export_header(S)
    storage.create(S)
    assert legacy.export_header(S) == f"maxsize={NO_ROLLING}&".encode()
    storage.delete(S)
    with pytest.raises(StoredSegmentNotFound):
        legacy.export_header(S)
