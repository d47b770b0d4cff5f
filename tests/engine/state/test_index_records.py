"""Index records are moved to where their append goes, and stored as in the original."""

from __future__ import annotations

import struct

import pytest

from engine.state.index_records import RECORD_SIZE, IndexRecords


def packed(*records: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack(">3q", *record) for record in records)


def test_records_move_to_where_the_append_goes() -> None:
    records = IndexRecords("s", packed((10, 1, 5), (30, 2, 5)))
    assert records.counted_from(1000, 50) == packed((1010, 51, 5), (1030, 52, 5))
    length, events = 1 << 62, 1 << 40
    assert records.counted_from(length, events) == packed((length + 10, events + 1, 5), (length + 30, events + 2, 5))
    assert records.counted_from(0, 0) == records.records and len(records) == 2 * RECORD_SIZE


def test_no_records_are_none() -> None:
    assert IndexRecords("s", b"").counted_from(7, 8) == b""


@pytest.mark.parametrize("size", [1, RECORD_SIZE - 1, RECORD_SIZE + 8])
def test_a_part_of_a_record_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="not whole index records"):
        IndexRecords("s", bytes(size))
