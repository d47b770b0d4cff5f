"""The sparse index: making records, and searching them with few reads."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine.state.index_records import RECORD_SIZE, THIS_APPEND
from pravega_spark.streams.model import index
from pravega_spark.streams.model.index import IndexReader, IndexRecord, InvalidIndex

LENGTHS = st.lists(st.integers(8, 500), max_size=100)
BLOCK = 65536 // RECORD_SIZE


class Stored:
    """An index segment in memory that notes what is read of it."""

    def __init__(self, data: bytes, first: int = 0) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []
        self.reader = IndexReader(self.read, first * RECORD_SIZE, len(data))

    def read(self, start: int, end: int) -> bytes:
        self.reads.append((start, end))
        return self.data[start:end]


def even_records(count: int, spacing: int = 65536) -> np.ndarray:
    numbers = np.arange(1, count + 1)
    return np.column_stack((numbers * spacing, numbers * 60, 1_700_000_000_000 + numbers * 10, numbers * 7))


def plain_sparse_records(lengths: list[int], spacing: int, time_ms: int) -> list[list[int]]:
    records, end, due = [], 0, spacing
    for count, length in enumerate(lengths, 1):
        end += length
        if end >= due or count == len(lengths):
            records.append([end, count, time_ms, THIS_APPEND])
            due = (end // spacing + 1) * spacing
    return records


def plain_search(values: list[int], target: int) -> int | None:
    return next((number for number, value in enumerate(values) if value >= target), None)


# --- making records ------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 2000))
def test_records_are_at_the_first_event_end_after_every_spacing(lengths: list[int], spacing: int) -> None:
    records = index.sparse_records(np.array(lengths, dtype=np.int64), 77, spacing)
    assert records.dtype == np.int64
    assert records.shape == (len(records), 4)
    assert records.tolist() == plain_sparse_records(lengths, spacing, 77)


def test_an_append_ends_with_a_record() -> None:
    records = index.sparse_records(np.full(1000, 108), 5, 65536)
    assert records.tolist() == [[607 * 108, 607, 5, THIS_APPEND], [1000 * 108, 1000, 5, THIS_APPEND]]
    assert index.sparse_records(np.array([108]), 5).tolist() == [[108, 1, 5, THIS_APPEND]]


def test_no_events_have_no_records() -> None:
    assert index.sparse_records(np.array([], dtype=np.int64), 5).shape == (0, 4)


def test_a_spacing_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        index.sparse_records(np.array([8]), 5, 0)


def test_records_are_stored_as_in_the_original_with_the_number_of_the_append() -> None:
    data = index.encode_records(np.array([[258, 3, 2**40, 5]], dtype=np.int64))
    assert data.hex() == "0000000000000102" + "0000000000000003" + "0000010000000000" + "0000000000000005"


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 4), max_size=20))
def test_stored_records_round_trip(rows: list[tuple[int, int, int, int]]) -> None:
    records = np.array(rows, dtype=np.int64).reshape(-1, 4)
    decoded = index.decode_records(index.encode_records(records))
    assert decoded.dtype == np.int64
    np.testing.assert_array_equal(decoded, records)


def test_rows_that_are_no_records_are_not_stored() -> None:
    with pytest.raises(ValueError, match="have 4 columns"):
        index.encode_records(np.zeros((4, 3), np.int64))


@pytest.mark.parametrize("size", [1, RECORD_SIZE - 1, RECORD_SIZE + 1])
def test_records_that_are_not_whole_are_refused(size: int) -> None:
    with pytest.raises(InvalidIndex, match=f"{size} bytes are not whole index records"):
        index.decode_records(b"\0" * size)


# --- searching -----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_searches_find_the_first_record(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12000))
    first = data.draw(st.integers(0, count))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    # Powers make the spacing anything from even to wild; zeros make runs of equal values.
    steps = (random.random((count, 4)) ** data.draw(st.integers(0, 30)) * 100_000).astype(np.int64)
    records = np.cumsum(steps, axis=0)
    stored = Stored(index.encode_records(records), first)
    searches = (stored.reader.locate_offset, stored.reader.locate_count, stored.reader.locate_time)
    for column, locate in enumerate(searches):
        values = records[first:, column].tolist()
        aims = st.integers(0, int(records[-1, column]) + 2) | st.sampled_from(records[:, column].tolist())
        target = data.draw(aims)
        found = plain_search(values, target)
        expected = None if found is None else IndexRecord(*records[first + found].tolist())
        assert locate(target) == expected
        if column == 0:
            place = plain_search(records[first:, 3].tolist(), target)
            assert stored.reader.position_of_append(target) == (count if place is None else first + place)
            assert stored.reader.position_of(target) == (count if found is None else first + found)


@pytest.mark.parametrize("first", [0, 1, 500_000, 999_999])
def test_an_offset_among_a_million_even_records_takes_three_reads(first: int) -> None:
    records = even_records(1_000_000)
    data = index.encode_records(records)
    offsets = records[:, 0]
    edges = [block * BLOCK + near for block in (200, 300, 366) for near in (-1, 0, 1)]
    targets = [int(offsets[edge]) + near for edge in edges for near in (-1, 0, 1)]
    targets += np.random.default_rng(0).integers(offsets[first], offsets[-1], 200, endpoint=True).tolist()
    for target in [*targets, 0, int(offsets[-1]), int(offsets[-1]) + 1]:
        stored = Stored(data, first)
        number = max(first, int(np.searchsorted(offsets, target)))
        expected = IndexRecord(*records[number].tolist()) if number < len(records) else None
        assert stored.reader.locate_offset(target) == expected
        assert len(stored.reads) <= 3
        assert all(end - start <= 65536 for start, end in stored.reads)


@pytest.mark.parametrize("column", ["count", "time"])
def test_counts_and_times_among_a_million_even_records_take_few_reads(column: str) -> None:
    records = even_records(1_000_000)
    data = index.encode_records(records)
    for number in np.random.default_rng(0).integers(0, 1_000_000, 100).tolist():
        stored = Stored(data)
        if column == "count":
            found = stored.reader.locate_count(int(records[number, 1]))
        else:
            found = stored.reader.locate_time(int(records[number, 2]))
        assert found == IndexRecord(*records[number].tolist())
        assert len(stored.reads) <= (3 if column == "count" else 4)


def test_uneven_records_take_no_more_than_thrice_a_binary_search() -> None:
    # Offsets that double every few thousand records mislead every interpolation.
    offsets = np.cumsum(np.exp2(np.arange(500_000) / 20_000).astype(np.int64))
    records = np.column_stack((offsets, offsets, offsets, offsets))
    data = index.encode_records(records)
    for number in np.random.default_rng(0).integers(0, len(records), 100).tolist():
        stored = Stored(data)
        assert stored.reader.position_of(int(offsets[number])) == number
        assert len(stored.reads) <= 2 + 3 * int(np.ceil(np.log2(len(records) / BLOCK)))


def test_blocks_are_read_once() -> None:
    records = even_records(3 * BLOCK)
    stored = Stored(index.encode_records(records))
    for number in range(0, len(records), 100):
        assert stored.reader.position_of(int(records[number, 0])) == number
    assert len(stored.reads) == len(set(stored.reads)) == 3


def test_few_blocks_are_kept() -> None:
    records = even_records(40 * BLOCK)
    stored = Stored(index.encode_records(records))
    for number in range(0, len(records), BLOCK):
        stored.reader.position_of(int(records[number, 0]))
    before = len(stored.reads)
    stored.reader.position_of(int(records[1, 0]))
    assert len(stored.reads) > before
    last = (39 * BLOCK * RECORD_SIZE, len(stored.data))
    assert stored.reads.count(last) == 1  # every search uses it, so it stays


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_times_out_of_order_find_what_is_promised(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9000))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    times = np.arange(count) * 10 + random.integers(0, data.draw(st.integers(1, 20_000)), count)
    back = int((np.maximum.accumulate(times) - times).max())
    records = np.column_stack((np.arange(1, count + 1), np.arange(1, count + 1), times, np.arange(1, count + 1)))
    target = data.draw(st.integers(0, int(times.max()) + 1))
    found = Stored(index.encode_records(records)).reader.locate_time(target)
    number = count if found is None else found.offset - 1
    assert np.all(times[:number] < target + back)
    assert np.all(times[number + 1 :] >= target - back)
    if found is None:
        assert times[-1] < target
    else:
        assert times[number] >= target
        assert number == 0 or times[number - 1] < target


def test_an_empty_index_finds_nothing() -> None:
    stored = Stored(bytes(2 * RECORD_SIZE), 2)
    assert stored.reader.locate_offset(0) is None
    assert stored.reader.locate_count(0) is None
    assert stored.reader.locate_time(0) is None
    assert stored.reader.position_of(0) == 2
    assert stored.reader.records(2, 2).shape == (0, 4)
    assert all(start == end for start, end in stored.reads)


def test_records_are_numbered_from_the_beginning_of_the_index_segment() -> None:
    records = even_records(10)
    reader = Stored(index.encode_records(records), 4).reader
    np.testing.assert_array_equal(reader.records(5, 8), records[5:8])
    assert reader.position_of(0) == 4
    for numbers in ((3, 5), (5, 11), (6, 5)):
        with pytest.raises(IndexError, match="which has 4 to 10"):
            reader.records(*numbers)


@pytest.mark.parametrize(("start", "end"), [(1, 32), (0, 33), (32, 0), (-32, 32)])
def test_an_index_range_that_is_not_whole_is_refused(start: int, end: int) -> None:
    with pytest.raises(InvalidIndex, match="not whole index records"):
        IndexReader(lambda low, high: b"", start, end)


def test_a_short_read_is_refused() -> None:
    with pytest.raises(InvalidIndex, match="32 bytes were read of the index records 0 to 2"):
        IndexReader(lambda low, high: bytes(RECORD_SIZE), 0, 2 * RECORD_SIZE).locate_offset(1)


def test_a_damaged_index_ends_the_search() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        records = random.integers(0, 1000, (20_000, 4))
        stored = Stored(index.encode_records(records))
        with suppress(InvalidIndex):
            stored.reader.locate_offset(int(random.integers(0, 1000)))
        assert len(stored.reads) <= 8


@pytest.mark.parametrize("value", [-1, 5])
@pytest.mark.parametrize("column", [0, 1, 3])
def test_records_that_cannot_be_right_are_told(value: int, column: int) -> None:
    records = np.array([[10, 1, 0, 6], [20, 2, 0, 7], [30, 3, 0, 8]], np.int64)
    records[2, column] = value if column != 1 or value < 0 else 7
    reader = IndexReader(
        lambda low, high: index.encode_records(records)[low:high], 0, 3 * RECORD_SIZE, "stream a/b, its index", (30, 3)
    )
    with pytest.raises(InvalidIndex, match=r"stream a/b, its index: record 2 cannot be right: .*rebuild-index"):
        reader.locate_offset(15)
