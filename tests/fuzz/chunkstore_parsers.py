"""The parsers of the chunk layer."""

from __future__ import annotations

import json

import msgpack

from chunkstore import StorageError
from chunkstore.decoding import InvalidData, decoding, json_value, unpack
from chunkstore.errors import InvalidRecord, StorageRefused
from chunkstore.metadata.garbage_queue import GarbageTask
from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    IndexBlockRecord,
    ReadIndexBlock,
    RecordStatus,
    StoredSegmentRecord,
    TransactionData,
    decode,
    decode_transaction_data,
    encode,
    encode_transaction_data,
)
from chunkstore.metadata.store import MemoryMetadataStore
from chunkstore.metadata_log import MetadataEntry, decode_entries, encode_entry
from chunkstore.port import TOKEN
from chunkstore.pravega.journal import JournalConfig, SystemJournal, SystemLayouts
from chunkstore.pravega.journal_records import (
    JournalRecord,
    JournalSnapshot,
    SegmentSnapshot,
    SnapshotInfo,
    decode_batches,
    decode_info,
    decode_snapshot,
    encode_batch,
    encode_info,
    encode_snapshot,
    journal_name,
    snapshot_info_name,
    snapshot_name,
)
from chunkstore.pravega.layout_mode import LayoutMode, layout_mode
from chunkstore.pravega.rolling import Header, HeaderChunk, InvalidHeader, format_header, parse_header
from chunkstore.segments.system_changes import Appended, ChunkAdded, Truncated
from chunkstore.testing import SimulatedStore
from tests.fuzz import mutators
from tests.fuzz.harness import Parser
from tests.support.garbage_queue import StoreGarbageQueue

CHUNKS = (ChunkRecord("s/a.1", 50, "s/a.2", checksums=b"abcd"), ChunkRecord("s/a.2", 50, checksums=b"efgh"))
SEGMENT = StoredSegmentRecord(
    "s/a", 100, 2, 0, RecordStatus.ACTIVE, 1000, "s/a.1", "s/a.2", 1_700_000_000_000, 0, 50, 3, ((0, "s/a$block"),)
)
RECORDS = (
    SEGMENT,
    StoredSegmentRecord("sc\u00f6pe/\U0001f600"),
    *CHUNKS,
    IndexBlockRecord("s/a$block", ((0, "s/a.1"), (50, "s/a.2"))),
    ReadIndexBlock("k.1", "s/a.1", 0),
)
SYSTEM = SegmentSnapshot(SEGMENT._replace(blocks=()), CHUNKS)
SNAPSHOT = JournalSnapshot(2, 1, (SYSTEM,))
BATCHES: tuple[list[JournalRecord], ...] = (
    [ChunkAdded("s/a", "s/a.3", "s/a.2", 100), Appended("s/a", "s/a.3", 0, 7)],
    [Truncated("s/a", 60, "s/a.2", 50)],
    [SNAPSHOT, SYSTEM],
)


def _record(data: bytes) -> None:
    record = decode(data)
    encode(record)
    record.key.encode()
    if isinstance(record, StoredSegmentRecord):
        try:
            record.check_invariants()
        except InvalidRecord:
            return


def _journal(data: bytes) -> None:
    layouts = SystemLayouts()
    layouts.apply(SNAPSHOT, 100)
    for batch in decode_batches(data):
        for record in batch:
            layouts.apply(record, 100)


def _booted(name: str, data: bytes) -> None:
    """Boot a journal of which one object has these bytes."""
    store = SimulatedStore()
    store.put(snapshot_info_name(0), encode_info(SnapshotInfo(2, 1)))
    store.put(snapshot_name(0, 2, 1), encode_snapshot(SNAPSHOT))
    store.put(journal_name(0, 2, 2), b"".join(encode_batch(batch) for batch in BATCHES[:2]))
    store.put(name, data)
    config = JournalConfig(attempts=1, pause=0)
    garbage = StoreGarbageQueue(store, 0)
    SystemJournal(store, 0, 5, garbage, config, lambda: store.now).boot(MemoryMetadataStore())


def _log_entries(data: bytes) -> None:
    with decoding():
        for entry in decode_entries(data):
            for row in entry.rows:
                decode_transaction_data(row)


def _layout_mode(data: bytes) -> None:
    store = SimulatedStore()
    store.put(f"_system/layout/{1:020d}", data)
    layout_mode(store)


PLAIN = [1, "s/a", b"\0" * 16, {"k": [1, None, [True, 2.5]], "l": {}}, [[1, 2], [3, 4]]]
HEADERS = (
    format_header(Header(1 << 20, (HeaderChunk(0, "s/a$offset.0"), HeaderChunk(50, "s/a$offset.50")))),
    b"maxsize=100&0=a&concat=2@10&maxsize=5&0=b&5=c&20=d&",
    b"maxsize=100&concat=3@10&maxsize=5&0=b&concat=1@5&maxsize=9&0=c&",
)
JSON = json.dumps({"a": [1, "b", None, {"c": 0.5}]}).encode()
INFO = encode_info(SnapshotInfo(2, 1))
BATCH_SAMPLES = [encode_batch(batch) for batch in BATCHES] + [b"".join([encode_batch(batch) for batch in BATCHES])]
SNAPSHOTS = [encode_snapshot(SNAPSHOT)]
STORED = (StorageError,)
ROWS = tuple(encode_transaction_data(TransactionData(0, record.key, record)) for record in RECORDS)
LOG_ENTRIES = [
    b"".join(encode_entry(MetadataEntry(1, ROWS))),
    b"".join(encode_entry(MetadataEntry(1, (), (GarbageTask("s/a.1", 1.5, segment="s/a"),), ("s/a.2",)))),
]

PARSERS = [
    Parser("msgpack", unpack, [bytes(msgpack.packb(PLAIN))], (InvalidData,)),
    Parser("json", json_value, [JSON], (InvalidData,), mutators.of_json),
    Parser("records", _record, [encode(record) for record in RECORDS], (InvalidData,)),
    Parser(
        "metadata-values",
        decode_transaction_data,
        [encode_transaction_data(TransactionData(7, "s/a.1", record)) for record in (CHUNKS[0], SEGMENT, None)],
        (InvalidData,),
    ),
    Parser("metadata-log", lambda data: _log_entries(data), LOG_ENTRIES, (InvalidData,)),
    Parser("journal", _journal, BATCH_SAMPLES, (InvalidData,)),
    Parser("journal-snapshot", decode_snapshot, [encode_snapshot(SNAPSHOT)], (InvalidData,)),
    Parser("journal-info", decode_info, [INFO], (InvalidData,)),
    Parser("legacy-header", lambda data: parse_header(data), HEADERS, (InvalidHeader,)),
    Parser(
        "layout-mode",
        _layout_mode,
        [bytes(TOKEN) + mode.value.encode() for mode in LayoutMode],
        (StorageRefused,),
    ),
    Parser("boot-journal", lambda data: _booted(journal_name(0, 2, 2), data), BATCH_SAMPLES[:2], STORED, cost=10),
    Parser("boot-info", lambda data: _booted(snapshot_info_name(0), data), [INFO], STORED, cost=10),
    Parser("boot-snapshot", lambda data: _booted(snapshot_name(0, 2, 1), data), SNAPSHOTS, STORED, cost=10),
]
