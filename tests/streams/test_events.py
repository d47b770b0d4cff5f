"""Framing of event columns, and finding the events again."""

import pickle
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from chunkstore.errors import fact_of
from pravega_spark.streams.model import events as ev, framing

EVENTS = st.lists(st.binary(max_size=40), max_size=80)
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]
STRING_TYPES = [pa.string(), pa.large_string(), pa.string_view()]


def framed(event: bytes) -> bytes:
    return struct.pack(">ii", 0, len(event)) + event


def payloads(data: pa.Buffer, lanes: list[int]) -> list[bytes]:
    starts, lengths = ev.decode(data, np.array(lanes), data.size if isinstance(data, pa.Buffer) else len(data))
    column = framing.event_column(data, starts, lengths)
    assert column.type == pa.binary()
    column.validate(full=True)
    events: list[bytes] = column.to_pylist()
    return events


def test_the_frame_is_the_originals() -> None:
    result = framing.frame_column(pa.array([b"hello"]), None, 1)
    assert result.data.to_pybytes().hex() == "0000000000000005" + "68656c6c6f"


@settings(deadline=None)
@given(EVENTS, st.integers(1, 300), st.randoms(use_true_random=False), st.sampled_from(BINARY_TYPES))
def test_events_are_grouped_by_segment_in_row_order(
    rows: list[bytes], count: int, random: Random, kind: pa.DataType
) -> None:
    segments = [random.randrange(count) for _ in rows]
    result = framing.frame_column(pa.array(rows, kind), np.array(segments, dtype=np.int64), count)
    assert len(result.event_bounds) == len(result.byte_bounds) == count + 1
    assert result.byte_bounds[-1] == result.data.size
    for segment in range(count):
        own = [row for row, its in zip(rows, segments, strict=True) if its == segment]
        assert result.segment_data(segment).to_pybytes() == b"".join(map(framed, own))
        assert result.segment_lengths(segment).tolist() == [len(row) + 8 for row in own]


def test_segments_share_one_buffer() -> None:
    result = framing.frame_column(pa.array([b"a", b"bb"]), np.array([1, 0]), 2)
    assert result.segment_data(1).address == result.data.address + len(framed(b"bb"))


def test_without_segments_all_rows_are_in_the_first() -> None:
    result = framing.frame_column(pa.array([b"a", b"bb"]), None, 2)
    assert result.segment_data(0).to_pybytes() == framed(b"a") + framed(b"bb")
    assert result.segment_data(1).size == 0
    assert result.event_bounds.tolist() == [0, 2, 2]


@pytest.mark.parametrize("kind", STRING_TYPES, ids=str)
def test_strings_are_framed_as_utf8(kind: pa.DataType) -> None:
    rows = ["grün", "", "a longer string than fits a view"]
    result = framing.frame_column(pa.array(rows, kind), None, 1)
    assert result.data.to_pybytes() == b"".join(framed(row.encode()) for row in rows)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_a_slice_is_framed_as_its_rows(kind: pa.DataType) -> None:
    column = pa.array([b"zero", None, b"two", b"", b"four", b"a five that is long enough"], kind).slice(2, 4)
    result = framing.frame_column(column, np.array([1, 0, 1, 0]), 2)
    assert result.segment_data(0).to_pybytes() == framed(b"") + framed(b"a five that is long enough")
    assert result.segment_data(1).to_pybytes() == framed(b"two") + framed(b"four")


@pytest.mark.parametrize("segments", [None, np.array([], dtype=np.int64)])
def test_no_events(segments: np.ndarray | None) -> None:
    result = framing.frame_column(pa.array([], pa.binary()), segments, 3)
    assert result.data.size == 0
    assert result.byte_bounds.tolist() == [0, 0, 0, 0]
    assert payloads(result.data, []) == []


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.binary_view(), pa.null()], ids=str)
def test_a_null_event_is_refused_by_row(kind: pa.DataType) -> None:
    column = pa.array([None] * 5, kind) if kind == pa.null() else pa.array(["a", "b", "c", None, None], pa.string())
    row = 0 if kind == pa.null() else 2
    with pytest.raises(ValueError, match=f"column event is null in row {row}:"):
        framing.frame_column(column.cast(kind).slice(1), None, 1)


def test_an_event_that_is_too_large_is_refused_by_row() -> None:
    column = pa.array([b"skipped", b"12345", b"123456"]).slice(1)
    with pytest.raises(
        ValueError, match=r"^The event in row 1 has 6 bytes, more .* 5: .*\(Write size too large: 14\)$"
    ):
        framing.frame_column(column, np.array([1, 0]), 2, max_event_size=5)
    assert framing.frame_column(column, None, 1, max_event_size=6).data.size == 27


def test_the_limit_is_eight_mebibytes_of_payload() -> None:
    assert framing.frame_column(pa.array([b"x" * 8388608]), None, 1).data.size == 8388616
    with pytest.raises(ValueError, match=r"\(Write size too large: 8388617\)$"):
        framing.frame_column(pa.array([b"x" * 8388609]), None, 1)


def test_other_columns_are_refused() -> None:
    with pytest.raises(TypeError, match="column event must hold strings or binary, not int64"):
        framing.frame_column(pa.array([1]), None, 1)


@pytest.mark.parametrize("segments", [[0, 2], [-1, 0], [0]])
def test_segments_that_do_not_fit_are_refused(segments: list[int]) -> None:
    with pytest.raises(ValueError, match="segment"):
        framing.frame_column(pa.array([b"a", b"b"]), np.array(segments), 2)


@settings(deadline=None)
@given(EVENTS, st.data())
def test_what_is_framed_is_found_again(rows: list[bytes], data: st.DataObject) -> None:
    buffer = framing.frame_column(pa.array(rows, pa.binary()), None, 1).data
    bounds = np.concatenate(([0], np.cumsum([len(row) + 8 for row in rows])))[:-1].astype(np.int64)
    known = data.draw(st.lists(st.sampled_from(bounds.tolist()), unique=True)) if rows else []
    starts, lengths = ev.decode(buffer, np.array(sorted({0, *known})), buffer.size)
    assert starts.dtype == lengths.dtype == np.int64
    assert starts.tolist() == bounds.tolist()
    assert lengths.tolist() == [len(row) for row in rows]
    assert framing.event_column(buffer, starts, lengths).to_pylist() == rows


@pytest.mark.parametrize("lanes", [1, 2, 48, 49, 300, 1000])
def test_any_number_of_lanes_finds_the_same(lanes: int) -> None:
    # From nothing to many events in a lane, so that lanes end at different steps.
    rows = [b"%d" % number * (number % 17) for number in range(3000)]
    buffer = framing.frame_column(pa.array(rows), None, 1).data
    bounds = np.concatenate(([0], np.cumsum([len(row) + 8 for row in rows])))[:-1]
    chosen = np.sort(np.random.default_rng(lanes).choice(len(rows) - 1, lanes - 1, replace=False) + 1)
    assert payloads(buffer, [0, *bounds[chosen].tolist()]) == rows


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_kind_of_buffer_is_read(wrap: Callable[[bytes], Any]) -> None:
    buffer = wrap(framed(b"") + framed(b"abc") + b"rest")
    starts, lengths = ev.decode(buffer, np.array([0]), 19)
    assert (starts.tolist(), lengths.tolist()) == ([0, 8], [0, 3])
    assert framing.event_column(buffer, starts, lengths).to_pylist() == [b"", b"abc"]


def broken_buffers() -> list[tuple[str, bytes, str]]:
    return [
        ("wrong type", struct.pack(">ii", 1, 3) + b"abc", "Event was of wrong type: 1 "),
        ("negative type", struct.pack(">ii", -7, 3) + b"abc", "Event was of wrong type: -7 "),
        ("negative length", struct.pack(">ii", 0, -1) + b"abc", "Event of invalid length: -1 "),
        ("too long", struct.pack(">ii", 0, 4) + b"abc", "Event of length 4 runs over the end at offset "),
        ("far too long", struct.pack(">ii", 0, 2**31 - 1) + b"abc", "Event of length 2147483647 runs over the end"),
        ("cut header", b"\0\0\0\0\0\0\0", "Event header runs over the end at offset "),
        ("cut after a byte", b"\0", "Event header runs over the end at offset "),
    ]


@pytest.mark.parametrize(
    ("broken", "message"), [case[1:] for case in broken_buffers()], ids=[c[0] for c in broken_buffers()]
)
@pytest.mark.parametrize("before", [0, 1, 100])
@pytest.mark.parametrize("every", [1, 1000])
def test_broken_events_at_the_end_are_refused(before: int, every: int, broken: bytes, message: str) -> None:
    good = framed(b"good") * before
    lanes = np.array([*range(0, len(good), 12 * every), len(good)] if every == 1 else [0])
    with pytest.raises(ev.InvalidEvent, match=message) as caught:
        ev.decode(good + broken, lanes, len(good + broken), base=5000)
    assert caught.value.offset == 5000 + len(good)
    assert f"(event at offset {5000 + len(good)})" in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "message"), [case[1:] for case in broken_buffers()], ids=[c[0] for c in broken_buffers()]
)
@pytest.mark.parametrize("lanes_before", [0, 100])
def test_broken_events_before_a_boundary_are_refused(lanes_before: int, broken: bytes, message: str) -> None:
    good = framed(b"good")
    data = good * lanes_before + broken + good * 100
    at = len(good) * lanes_before
    lanes = [*range(0, at, len(good)), at, *range(at + len(broken), len(data), len(good))]
    with pytest.raises(ev.InvalidEvent, match=message) as caught:
        ev.decode(data, np.array(lanes), len(data))
    assert caught.value.offset == at


def test_an_event_that_runs_over_a_boundary_is_refused() -> None:
    data = framed(b"abc") + framed(b"d")
    with pytest.raises(ev.InvalidEvent, match="Event of length 3 runs over the end at offset 10"):
        ev.decode(data, np.array([0, 10]), len(data))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 60), st.lists(st.integers(0, 400), max_size=100))
def test_damage_is_refused_or_decodes_to_whole_events(damage: bytes, place: int, lanes: list[int]) -> None:
    good = bytearray(framed(b"good") * 60)
    good[place * 12 : place * 12 + len(damage)] = damage
    bounds = sorted({0, *(lane * 12 for lane in lanes if lane * 12 < len(good))})
    try:
        starts, lengths = ev.decode(good, np.array(bounds), len(good))
    except ev.InvalidEvent as error:
        assert 0 <= error.offset < len(good)
        return
    rows = framing.event_column(good, starts, lengths).to_pylist()
    assert b"".join(map(framed, rows)) == good
    assert set(bounds) <= set(starts.tolist())


@pytest.mark.parametrize("lanes", [[], [12], [0, 0], [0, 24, 12], [0, 36], [-12, 0]])
def test_boundaries_that_make_no_sense_are_refused(lanes: list[int]) -> None:
    with pytest.raises(ValueError, match="known event boundaries"):
        ev.decode(framed(b"good") * 3, np.array(lanes, dtype=np.int64), 36)


@pytest.mark.parametrize("end", [-1, 13])
def test_an_end_outside_of_the_buffer_is_refused(end: int) -> None:
    with pytest.raises(ValueError, match="outside of the buffer of 12 bytes"):
        ev.decode(framed(b"good"), np.array([0]), end)


def test_some_of_the_events_make_a_column() -> None:
    rows = [b"%d" % number for number in range(20)]
    buffer = framing.frame_column(pa.array(rows), None, 1).data
    starts, lengths = ev.decode(buffer, np.array([0]), buffer.size)
    assert framing.event_column(buffer, starts[3::4], lengths[3::4]).to_pylist() == rows[3::4]
    assert framing.event_column(buffer, starts[:0], lengths[:0]).to_pylist() == []


@pytest.mark.parametrize(("starts", "lengths"), [([0], [5]), ([-8], [8]), ([12, 0], [4, 4]), ([0, 12], [4, -1])])
def test_events_outside_of_the_buffer_make_no_column(starts: list[int], lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="ascending order and inside the buffer"):
        framing.event_column((framed(b"good") * 2)[: 12 * len(starts)], np.array(starts), np.array(lengths))


def test_invalid_events_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(ev.InvalidEvent("Event was of wrong type: 1", 7)))
    assert (type(error), fact_of(error), error.offset) == (
        ev.InvalidEvent,
        "Event was of wrong type: 1 (event at offset 7)",
        7,
    )
