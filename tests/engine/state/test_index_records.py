"""Index records are moved to where their append goes, and get its number."""

from __future__ import annotations

import struct

import pytest

from engine.state.index_records import RECORD_SIZE, THIS_APPEND, IndexRecords


def packed(*records: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">4q", *record) for record in records)


def test_records_move_to_where_the_append_goes() -> None:
    records = IndexRecords("s", packed((10, 1, 5, 0), (30, 2, 5, 7)))
    assert records.counted_from(1000, 50, 9) == packed((1010, 51, 5, 0), (1030, 52, 5, 7))
    length, events = 1 << 62, 1 << 40
    moved = packed((length + 10, events + 1, 5, 0), (length + 30, events + 2, 5, 7))
    assert records.counted_from(length, events, 9) == moved
    assert records.counted_from(0, 0, 9) == records.records and len(records) == 2 * RECORD_SIZE


def test_records_that_are_appended_get_the_number_of_their_append() -> None:
    records = IndexRecords("s", packed((10, 1, 5, THIS_APPEND), (30, 2, 5, THIS_APPEND)))
    assert records.counted_from(0, 0, 1 << 60) == packed((10, 1, 5, 1 << 60), (30, 2, 5, 1 << 60))


def test_no_records_are_none() -> None:
    assert IndexRecords("s", b"").counted_from(7, 8, 9) == b""


@pytest.mark.parametrize("size", [1, RECORD_SIZE - 1, RECORD_SIZE + 8])
def test_a_part_of_a_record_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="not whole index records"):
        IndexRecords("s", bytes(size))
