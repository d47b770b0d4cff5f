"""What is written of a record can be read back; values for which that is not so are refused (W14)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    IndexBlockRecord,
    ReadIndexBlock,
    Record,
    RecordStatus,
    StoredSegmentRecord,
    TransactionData,
    decode,
    decode_transaction_data,
    encode,
    encode_transaction_data,
)

RECORDS: list[Record] = [
    StoredSegmentRecord("s", 10, 2, 1, first_chunk="a", last_chunk="b", last_chunk_start=5, blocks=((0, "block"),)),
    ChunkRecord("chunk", 5, "next", RecordStatus.SEALED, b"1234"),
    IndexBlockRecord("block", ((0, "a"), (5, "b"))),
    ReadIndexBlock("block", "chunk", 7),
]
ODD: list[Any] = [
    None, True, 0.0, 5.0, np.float64(5), np.int64(5), np.uint8(3), np.True_, -1, 1 << 29, 1 << 30, 1 << 61, 1 << 62,
    1 << 64, "", "text", "\ud800", "\0", "x" * 70_000, np.str_("n"), b"", b"bytes", bytearray(b"b"), Decimal(1), (), [],
    ("a",), ((1.5, "a"),), ((0, b"a"),), ((1, "a"), (2, "b")), {}, object(), 1j,
]  # fmt: skip


def read_back(record: Any) -> None:
    """A record is refused, or what is written of it is the same when it is read."""
    try:
        data = encode(record)
    except (ValueError, TypeError):
        return
    found = decode(data)
    for field, value in record._asdict().items():
        kept = getattr(found, field)
        assert kept == value or (not value and not kept), (field, value, kept)
        assert type(kept) in (int, str, bytes, tuple, RecordStatus, type(None))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize("odd", ODD, ids=lambda value: repr(value)[:20])
def test_a_record_with_an_odd_value_is_refused_or_read_back(record: Record, odd: Any) -> None:
    for field in record._fields:
        read_back(record._replace(**{field: odd}))
    for version, key in ((odd, "key"), (5, odd)):
        try:
            data = encode_transaction_data(TransactionData(version, key, record))
        except (ValueError, TypeError):
            continue
        assert decode_transaction_data(data) == TransactionData(version, key, record)


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(RECORDS),
    st.data(),
    st.one_of(
        st.integers(), st.floats(), st.text(), st.binary(), st.booleans(), st.none(), st.tuples(st.floats(), st.text())
    ),
)
def test_any_value_in_a_record_is_refused_or_read_back(record: Record, data: st.DataObject, value: Any) -> None:
    read_back(record._replace(**{data.draw(st.sampled_from(record._fields)): value}))


@pytest.mark.parametrize("value", [30.0, np.float64(30), True, "30", None, Decimal(30)])
def test_the_error_names_the_value(value: Any) -> None:
    with pytest.raises(ValueError, match="a whole number is due"):
        encode(ChunkRecord("chunk", value))
