"""Metadata records: Pravega's bytes, newer and damaged bytes, invariants, finding an offset."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given, settings, strategies as st

from chunkstore.decoding import InvalidData
from chunkstore.errors import InvalidRecord
from chunkstore.metadata.metadata_records import (
    BLOCK_CHUNKS,
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
    segment_key,
)

NAME = "scope/stream/0.#epoch.0"
CHUNK = ChunkRecord("c0", 200, "c1")
SEGMENT = StoredSegmentRecord(
    NAME,
    length=300,
    chunk_count=2,
    status=RecordStatus.ACTIVE | RecordStatus.ATOMIC_WRITES,
    max_rolling_length=128 * 2**20,
    first_chunk="c0",
    last_chunk="c1",
    last_chunk_start=200,
    owner_epoch=1,
)
BLOCK = IndexBlockRecord("b", ((0, "c0"), (200, "c1")))

GOLDEN: list[tuple[Record, str]] = [
    (CHUNK, "00 02 00 01 00 0000000b 0002 6330 40c8 0002 6331 01"),
    (ChunkRecord("c0", 200, None, RecordStatus(0)), "00 02 00 01 00 00000009 0002 6330 40c8 0000 00"),
    (
        SEGMENT,
        f"00 03 00 01 00 0000002f 0017 {NAME.encode().hex()} 412c 02 00 05 88000000 00026330 00026331 00 00 40c8 01",
    ),
    (ReadIndexBlock("s.B-0", "c0", 0), "00 04 00 01 00 0000000d 0005 732e422d30 0002 6330 00 01"),
]
OURS: list[tuple[Record, str]] = [
    (
        SEGMENT._replace(blocks=((0, "b"), (200, "d"))),
        f"00 03 00 02 00 0000002f 0017 {NAME.encode().hex()} 412c 02 00 05 88000000 00026330 00026331 00 00 40c8 01"
        "01 0000000a 02 00 0001 62 40c8 0001 64",
    ),
    (BLOCK, "00 20 00 01 00 0000000f 0001 62 02 00 0002 6330 40c8 0002 6331"),
]


@pytest.mark.parametrize(("record", "encoded"), GOLDEN + OURS)
def test_bytes_of_records(record: Record, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode(record) == data
    decoded = decode(data)
    assert decoded == record and type(decoded) is type(record)


def test_bytes_of_a_table_value() -> None:
    golden = "00 00 01 00 00000021 0000000000000007 0002 6330 01 00020001000000000b0002633040c80002633101"
    value = TransactionData(7, "c0", CHUNK)
    assert encode_transaction_data(value) == bytes.fromhex(golden)
    assert decode_transaction_data(bytes.fromhex(golden)) == value
    deletion = TransactionData(-(2**63), "c0", None)
    assert encode_transaction_data(deletion) == bytes.fromhex("00 00 01 00 0000000d 8000000000000000 0002 6330 00")
    assert decode_transaction_data(encode_transaction_data(deletion)) == deletion


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LONGS = st.integers(0, 2**62 - 1)
STATUSES = st.integers(0, 0x1F).map(RecordStatus)
ENTRIES = st.lists(st.tuples(LONGS, NAMES), max_size=5).map(tuple)
OR_NONE = st.none() | NAMES.filter(bool)
LATER = st.dictionaries(st.integers(2, 255), st.binary(max_size=5), max_size=3).map(
    lambda found: (*sorted(found.items()),)
)
ANY = st.one_of(
    st.builds(ChunkRecord, NAMES, LONGS, OR_NONE, STATUSES, later=LATER),
    st.builds(ReadIndexBlock, NAMES, NAMES, LONGS, STATUSES, later=LATER),
    st.builds(IndexBlockRecord, NAMES, ENTRIES, later=LATER),
    st.builds(
        StoredSegmentRecord, NAMES, LONGS, st.integers(0, 2**30 - 1), LONGS, STATUSES, LONGS, OR_NONE, OR_NONE,
        LONGS, LONGS, LONGS, LONGS, ENTRIES, LATER,
    ),
)  # fmt: skip


@settings(deadline=None)
@given(ANY, st.integers(-(2**63), 2**63 - 1))
def test_records_round_trip(record: Record, version: int) -> None:
    decoded = decode(encode(record))
    assert decoded == record and type(decoded) is type(record)
    value = TransactionData(version, record.key, record)
    assert decode_transaction_data(encode_transaction_data(value)) == value
    assert pickle.loads(pickle.dumps(record)) == record


@pytest.mark.parametrize(("record", "encoded"), GOLDEN + OURS)
def test_what_newer_writers_add_is_skipped(record: Record, encoded: str) -> None:
    data = bytearray.fromhex(encoded)
    data[3] += 1
    data += bytes([9]) + (4).to_bytes(4, "big") + b"more"
    assert decode(bytes(data)) == record._replace(later=((9, b"more"),))
    old_length = int.from_bytes(data[5:9], "big")
    data[5:9] = (old_length + 5).to_bytes(4, "big")
    data[9 + old_length : 9 + old_length] = b"field"
    assert decode(bytes(data))._replace(later=()) == record


def test_status_bits_of_newer_writers_are_kept() -> None:
    record = decode(bytes.fromhex("00 02 00 01 00 0000000b 0002 6330 40c8 0002 6331 61"))
    assert isinstance(record, ChunkRecord)
    assert RecordStatus.ACTIVE in record.status
    assert encode(record).hex().endswith("61")


@pytest.mark.parametrize("number", range(len(GOLDEN + OURS)))
def test_bytes_that_end_early_are_refused(number: int) -> None:
    data = bytes.fromhex((GOLDEN + OURS)[number][1])
    for size in range(len(data)):
        with pytest.raises(InvalidData):
            decode(data[:size])


@pytest.mark.parametrize(
    ("encoded", "problem"),
    [
        ("00 05 00 01 00 00000000", "type of record 5"),
        ("00 02 01 01 00 00000000", "version 1"),
        ("01 02 00 01 00 00000000", "format 1"),
        ("00 02 00 00", "no revision"),
        ("00 02 00 01 01 00000000", "first revision is 1"),
    ],
)
def test_records_that_are_not_known(encoded: str, problem: str) -> None:
    with pytest.raises(InvalidData, match=problem):
        decode(bytes.fromhex(encoded))


def test_a_table_value_that_is_not_known() -> None:
    with pytest.raises(InvalidData, match="version 1"):
        decode_transaction_data(bytes.fromhex("00 01 01 00 00000000"))


@pytest.mark.parametrize(
    "record",
    [
        ChunkRecord("c", -1),
        ChunkRecord("c", 2**62),
        ChunkRecord("c" * 65536, 1),
        SEGMENT._replace(chunk_count=2**30),
        IndexBlockRecord("b", ((-1, "c"),)),
    ],
)
def test_values_that_do_not_fit(record: Record) -> None:
    with pytest.raises(ValueError, match=r"does not fit|too long"):
        encode(record)


def test_keys() -> None:
    assert [record.key for record in (CHUNK, BLOCK, ReadIndexBlock("k", "c", 0))] == ["c0", "b", "k"]
    assert SEGMENT.key == segment_key(NAME) != NAME


# -- invariants

EMPTY = StoredSegmentRecord("s", length=10, start_offset=10, first_chunk_start=10, last_chunk_start=10)
ONE = StoredSegmentRecord("s", 10, 1, 5, first_chunk="c", last_chunk="c", first_chunk_start=3, last_chunk_start=3)
TWO = StoredSegmentRecord(
    "s", 10, 2, 5, first_chunk="c", last_chunk="d", first_chunk_start=3, last_chunk_start=7, blocks=((0, "b"), (7, "e"))
)


@pytest.mark.parametrize(
    "record",
    [
        SEGMENT,
        StoredSegmentRecord("s"),
        EMPTY,
        ONE,
        ONE._replace(start_offset=3),
        ONE._replace(start_offset=10),
        ONE._replace(first_chunk_start=0, last_chunk_start=0),
        TWO,
        TWO._replace(last_chunk_start=10),
        TWO._replace(last_chunk_start=3),
        TWO._replace(chunk_count=5),
        TWO._replace(blocks=((10, "b"),)),
    ],
)
def test_segments_that_are_right(record: StoredSegmentRecord) -> None:
    record.check_invariants()


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (ONE._replace(length=-1), "length"),
        (ONE._replace(chunk_count=-1), "chunk_count"),
        (ONE._replace(start_offset=-1), "start_offset"),
        (ONE._replace(max_rolling_length=-1), "max_rolling_length"),
        (ONE._replace(last_modified=-1), "last_modified"),
        (ONE._replace(first_chunk_start=-1), "first_chunk_start"),
        (ONE._replace(last_chunk_start=-1), "last_chunk_start"),
        (ONE._replace(owner_epoch=-1), "owner_epoch"),
        (ONE._replace(start_offset=11), "start_offset"),
        (ONE._replace(first_chunk_start=6, last_chunk_start=6), "first_chunk_start"),
        (TWO._replace(last_chunk_start=2), "last_chunk_start"),
        (TWO._replace(last_chunk_start=11), "last_chunk_start"),
        (ONE._replace(first_chunk=None), "last_chunk"),
        (ONE._replace(last_chunk=None), "last_chunk"),
        (EMPTY._replace(chunk_count=1), "chunk_count"),
        (EMPTY._replace(first_chunk_start=9), "first_chunk_start"),
        (EMPTY._replace(first_chunk_start=9, last_chunk_start=9, start_offset=9), "first_chunk_start"),
        (EMPTY._replace(length=11), "first_chunk_start"),
        (EMPTY._replace(length=11, first_chunk_start=10, start_offset=11, last_chunk_start=11), "first_chunk_start"),
        (ONE._replace(chunk_count=2), "chunk_count"),
        (ONE._replace(chunk_count=0), "chunk_count"),
        (ONE._replace(last_chunk_start=4), "last_chunk_start"),
        (TWO._replace(chunk_count=1), "chunk_count"),
        (TWO._replace(blocks=((0, "b"), (0, "e"))), "blocks"),
        (TWO._replace(blocks=((5, "b"), (0, "e"))), "blocks"),
        (TWO._replace(blocks=((0, "b"), (11, "e"))), "blocks"),
        (TWO._replace(blocks=((-1, "b"),)), "blocks"),
    ],
)
def test_segments_that_contradict_themselves(record: StoredSegmentRecord, field: str) -> None:
    with pytest.raises(InvalidRecord, match=f"segment 's': {field} ") as raised:
        record.check_invariants()
    assert raised.value.field == field
    assert pickle.loads(pickle.dumps(raised.value)).field == field


# -- finding an offset


def test_the_block_and_the_chunk_of_an_offset() -> None:
    assert StoredSegmentRecord("s").block_of(0) is None
    assert [TWO.block_of(offset) for offset in (0, 6, 7, 9)] == [(0, "b"), (0, "b"), (7, "e"), (7, "e")]
    assert IndexBlockRecord("b", ()).chunk_at(5) is None
    block = IndexBlockRecord("b", ((3, "c"), (5, "d"), (5, "e"), (9, "f")))
    assert [block.chunk_at(offset) for offset in (2, 3, 4, 5, 8, 9, 2**50)] == [
        None, (3, "c"), (3, "c"), (5, "e"), (5, "e"), (9, "f"), (9, "f"),
    ]  # fmt: skip


def test_any_of_100_000_chunks_is_found_through_one_block() -> None:
    random.seed(7)
    starts = [0]
    for _ in range(99_999):
        starts.append(starts[-1] + random.randint(1, 2**20))
    length = starts[-1] + 5
    blocks = {}
    heads = []
    for first in range(0, len(starts), BLOCK_CHUNKS):
        run = starts[first : first + BLOCK_CHUNKS]
        key = f"s.B-{run[0]}"
        heads.append((run[0], key))
        entries = tuple((start - run[0], f"chunk {start}") for start in run)
        blocks[key] = decode(encode(IndexBlockRecord(key, entries)))
    segment = StoredSegmentRecord(
        "s", length, len(starts), first_chunk="chunk 0", last_chunk=f"chunk {starts[-1]}", last_chunk_start=starts[-1],
        blocks=tuple(heads),
    )  # fmt: skip
    segment.check_invariants()
    segment = decode(encode(segment))  # type: ignore[assignment]
    for place in (0, 1, 999, 1000, 1001, 50_000, 99_999):
        end = starts[place + 1] if place + 1 < len(starts) else length
        for offset in (starts[place], end - 1):
            head = segment.block_of(offset)
            assert head is not None
            block = blocks[head[1]]
            assert isinstance(block, IndexBlockRecord)
            found = block.chunk_at(offset - head[0])
            assert found == (starts[place] - head[0], f"chunk {starts[place]}")
