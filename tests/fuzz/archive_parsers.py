"""The parsers of what real Pravega servers leave in long-term storage; the samples are theirs."""

from __future__ import annotations

import contextlib
import functools
import itertools

import numpy as np

from chunkstore.checksums import block_checksums
from chunkstore.decoding import InvalidData
from chunkstore.pravega import controller_records
from chunkstore.pravega.archive import open_archive
from chunkstore.pravega.attribute_index import attributes_of, read_index
from chunkstore.pravega.reader_groups import GroupPositions
from chunkstore.pravega.segment_infos import decode_info
from chunkstore.pravega.source import ArchiveDamaged
from chunkstore.pravega.table_entries import entries, live_by_hash, newest
from chunkstore.testing import SimulatedStore
from engine.state.segments import Extent
from pravega_spark.streams.model.events import InvalidEvent
from pravega_spark.streams.model.index import IndexReader, InvalidIndex, decode_records, encode_records
from pravega_spark.streams.model.index_builder import index_events
from pravega_spark.streams.pravega_lts.event_scanner import BrokenEvent, EventScanner, ScannerState
from pravega_spark.streams.pravega_lts.streams import decoded
from pravega_spark.streams.pravega_lts.unfinished_imports import (
    Reached,
    begin,
    decode_begun,
    decode_reached,
    keep,
    sealed,
)
from pravega_spark.streams.reading.rebuilt_index import decode_cached, encode_cached
from tests.archives import CHUNKED, case, retention_cut, retention_set
from tests.fuzz.harness import Parser
from tests.fuzz.mutators import of_msgpack

_ARCHIVE = open_archive(case(CHUNKED).store())


def _table(prefix: str) -> str:
    return next(name for name in _ARCHIVE.tables if name.startswith(f"_system/_tables/{prefix}"))


def _content(name: str) -> bytes:
    segment = _ARCHIVE.segment(name)
    return _ARCHIVE.read(name, segment.start_offset, segment.length)


def _object(prefix: str) -> bytes:
    return next(data for name, data in sorted(case(CHUNKED).objects.items()) if name.startswith(prefix))


def _values(table: str, prefix: bytes) -> list[bytes]:
    return [entry.value or b"" for key, entry in _ARCHIVE.table(table).items() if key.startswith(prefix)]


def _bytes(data: bytes, start: int, end: int) -> bytes:
    return data[start:end]


SCALED, TRUNCATED, EMPTY = (_table(f"demo/{name}/metadata") for name in ("scaled", "truncated", "empty"))
SCOPE = _content(_table("demo/streamsInScope"))
INDEX = _object(f"{SCALED}$attributes.index")
STREAM = b"".join(
    len(data).to_bytes(8, "big") + data
    for _, data in itertools.islice(
        decoded(functools.partial(_ARCHIVE.read, "demo/sealed/1.#epoch.0"), "demo/sealed/1.#epoch.0", 0, 19809, 19809),
        10,
    )
)


def _entries(data: bytes) -> None:
    state = newest(entries(functools.partial(_bytes, data), 0, len(data)))
    list(live_by_hash(state.values(), {}, 0))


def _index(data: bytes) -> None:
    index = read_index(functools.partial(_bytes, data), 0, len(data))
    attributes_of(index)
    table = _content(SCALED)
    state = newest(entries(functools.partial(_bytes, table), 0, len(table)))
    for indexed in (len(table), len(table) // 2):
        list(live_by_hash(state.values(), index, indexed))


def _events(data: bytes) -> None:
    for _ in decoded(functools.partial(_bytes, data), "s", 0, len(data), len(data)):
        pass


def _group(data: bytes) -> None:
    positions = GroupPositions()
    positions.apply(GROUP[0])
    positions.apply(data)


def _indexed(data: bytes) -> None:
    records, end, last, problem = index_events(functools.partial(_bytes, data), 0, len(data), 64)
    rows = decode_records(records)
    assert 0 <= last <= end <= len(data) and (len(rows) == 0 or rows[-1, 0] == end)
    assert (problem is None) is (end == len(data))
    if problem is not None:
        raise problem


def _kept(data: bytes) -> None:
    """An object of the cache, and its search as readers do it."""
    records = decode_cached(data)
    if records:
        IndexReader(functools.partial(_bytes, records), 0, len(records)).locate_offset(100)


def _progress(data: bytes) -> None:
    """How far an import is, and going on from there."""
    found = decode_reached(data, 0)
    walk = EventScanner(found.walk)
    with contextlib.suppress(BrokenEvent):
        walk.take(STREAM)
    walk.records(0)
    encode_records(found.records)


def _unfinished() -> tuple[bytes, bytes]:
    """What is kept of an import that was begun, and of one of its segments."""
    store = SimulatedStore()
    begun = begin(store, "demo/rides", b"source")
    chunk = Extent(begun.chunk_name("demo/rides/0.#epoch.0", 0), 0, 100, block_checksums(bytes(100)))
    keep(store, begun, 0, Reached((chunk,), np.array([[90, 3, 7, 0]]), ScannerState(100, 90, 3, bytes(2), 0)), 0)
    place = f"{begun.folder}0-{0:020d}"
    return store.read("_system/imports/demo/rides/begun"), store.read(place)


GROUP = [
    data
    for _, data in decoded(
        functools.partial(_ARCHIVE.read, "demo/_RGrg1/0.#epoch.0"),
        "demo/_RGrg1/0.#epoch.0",
        0,
        _ARCHIVE.segment("demo/_RGrg1/0.#epoch.0").length,
        _ARCHIVE.segment("demo/_RGrg1/0.#epoch.0").length,
    )
]
BEGUN, PROGRESS = _unfinished()
KEPT = encode_records(np.array([[100, 2, 0, 0], [200, 4, 0, 0], [350, 5, 0, 0]]))
SET = retention_set([(1_700_000_000_000, 100)])
CUT = retention_cut(1_700_000_000_000, 100, {1 << 32 | 2: 77})
REFUSED = (InvalidData,)
RECORDS = [
    ("state", controller_records.decode_state, _values(SCALED, b"state")),
    ("epoch", controller_records.decode_epoch, _values(SCALED, b"epochRecord-")),
    ("configuration", controller_records.decode_configuration, _values(EMPTY, b"configuration")),
    ("truncation", controller_records.decode_truncation, _values(TRUNCATED, b"truncation")),
    ("sealed-sizes", controller_records.decode_sealed_sizes, _values(SCALED, b"segmentsSealedSizeMapShard")),
    ("retention-set", controller_records.decode_retention_set, [SET]),
    ("retention-cut", controller_records.decode_retention_cut, [CUT]),
    ("transaction", controller_records.decode_transaction, _values(_table("demo/txns/transactionsInEpoch-0"), b"")),
    ("kvt-configuration", controller_records.decode_table_configuration, _values(_table("demo/kvt/"), b"conf")),
    ("kvt-epoch", controller_records.decode_table_epoch, _values(_table("demo/kvt/"), b"epochRecord")),
]

PARSERS = [
    Parser("archive-table", _entries, [SCOPE, _content(SCALED)], REFUSED),
    Parser("archive-index", _index, [INDEX], REFUSED, cost=4),
    Parser("archive-segment-info", decode_info, _values("_system/containers/metadata_1", b"")[:8], REFUSED),
    Parser("archive-made-index", _indexed, [STREAM], (InvalidEvent,)),
    Parser("archive-reader-group", _group, GROUP, REFUSED),
    Parser("archive-events", _events, [STREAM], (ArchiveDamaged,)),
    Parser("index-cache", _kept, [encode_cached(KEPT)], (InvalidIndex,)),
    Parser("index-cache-records", lambda data: _kept(encode_cached(data)), [KEPT], (InvalidIndex,)),
    Parser("import-begun", lambda data: decode_begun(data, "demo/rides"), [BEGUN], REFUSED),
    Parser("import-begun-fields", lambda data: decode_begun(sealed(data), "demo/rides"), [BEGUN[:-4]], REFUSED),
    Parser("import-progress", _progress, [PROGRESS], REFUSED),
    Parser("import-progress-fields", lambda data: _progress(sealed(data)), [PROGRESS[:-4]], REFUSED, of_msgpack),
    *(Parser(f"controller-{name}", parse, samples, REFUSED) for name, parse, samples in RECORDS),
]
