"""W19: what a newer version adds to a record as optional fields is kept, whatever this one does with the record."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chunkstore.decoding import InvalidData, NewerFormat
from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    IndexBlockRecord,
    ReadIndexBlock,
    Record,
    StoredSegmentRecord,
    decode,
    encode,
)
from chunkstore.optional_fields import OptionalFields, with_optional, without_optional
from engine.root import RootConfig
from engine.state.segment_record import decode_segment, encode_segment
from engine.state.segments import Segment
from engine.state.tables import METADATA, STORAGE
from pravega_spark import KeyValueTableConfiguration, ScopeNotEmpty, StreamManager, TableKey
from pravega_spark.streams.model.key_value_table import KeyValueTableRecord
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.model.system_tables import SCOPES, TRANSACTIONS
from pravega_spark.streams.scopes import Scope, ScopeRecord
from pravega_spark.streams.writing.transactions import TransactionRecord
from tests import newer_version
from tests.data import format_1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with all that there is, to whose records a newer version added fields."""
    folder = format_1.unpacked(tmp_path / "root")
    newer_version.add(folder)
    return folder


def _used_by_an_older_version(manager: StreamManager) -> None:
    """All that changes a record."""
    newer_version.touch_all(manager)
    manager.set_tags("Shop", "fixed", ["changed"])
    scaled = list(manager.stream_info("Shop", "Scaled").tail.positions)
    manager.scale_stream("Shop", "Scaled", scaled, [(0.0, 0.3), (0.3, 1.0)])
    manager.truncate_stream("Shop", "attached", manager.stream_info("Shop", "attached").tail)
    writer = manager.create_transaction_writer("Shop", "transactions")
    for container in newer_version.containers(manager):
        for table, key, _ in newer_version.entries(container):
            if table == TRANSACTIONS and writer.get_txn(key.rpartition("/")[2]).is_open():
                writer.get_txn(key.rpartition("/")[2]).ping()
    group = manager.get_reader_group("readers", "Shop")
    group.create_reader("another").reader_offline()
    group.close()
    with manager.create_writer("Shop", "timed") as timed:
        timed.note_time(2**40)
    manager.key_value_table("Shop", "stock").put(TableKey(b"later", b"_A"), b"value")
    manager.root.change(max_segments=9_999)
    with pytest.raises(ScopeNotEmpty):
        manager.delete_scope("Shop")
    newer_version.maintain(manager)


def test_what_a_newer_version_added_is_kept_whatever_this_one_changes(root: Path) -> None:
    before = newer_version.found(root)
    had = {place for place, there in before.items() if there}
    assert {table for table, _ in had} == {"description", *newer_version.TABLES, METADATA, STORAGE}
    with StreamManager(root, create=False, settings=newer_version.ALONE) as manager:
        _used_by_an_older_version(manager)
    after = newer_version.found(root)
    assert len(had & after.keys()) > 40
    assert [place for place in had & after.keys() if not after[place]] == []


def test_a_scope_keeps_it_when_its_deletion_begins_and_is_aborted(root: Path) -> None:
    checks = iter([None, ScopeNotEmpty("lab")])

    def check_empty() -> None:
        if problem := next(checks):
            raise problem

    with StreamManager(root, create=False, settings=newer_version.ALONE) as manager:
        scope = Scope(manager.root, "lab")
        with pytest.raises(ScopeNotEmpty):
            scope.delete(check_empty)
    assert newer_version.found(root)[SCOPES, "lab"]
    with StreamManager(root, create=False, settings=newer_version.ALONE) as manager:
        assert Scope(manager.root, "lab").keep()
    assert newer_version.found(root)[SCOPES, "lab"]


def test_active_segments_keep_it_in_checkpoints(root: Path) -> None:
    with StreamManager(root, create=False, settings=newer_version.ALONE) as manager:
        newer_version.touch_all(manager)
        for container in newer_version.containers(manager):
            container.checkpoint()
    with StreamManager(root, create=False, settings=newer_version.ALONE) as manager:
        states = [container.refresh() for container in newer_version.containers(manager)]
        kept = [segment.later for state in states for segment in state.segments.values()]
    assert kept.count(newer_version.LATER) > 5


def test_events_are_read_and_verify_finds_nothing(root: Path) -> None:
    with StreamManager(root, create=False, settings=newer_version.ALONE) as manager:
        _used_by_an_older_version(manager)
    report = format_1.verified(root)
    assert (report["errors"], report["warnings"]) == (0, 0), report
    lines = [json.loads(line) for line in format_1.lines(format_1.truth(root)).splitlines()]
    frozen = [line for line in format_1.frozen_truth() if line["kind"] == "event" and line["stream"] == "fixed"]
    assert [line for line in lines if line in frozen] == frozen


@pytest.mark.parametrize(
    "record",
    [
        ChunkRecord("chunk", 5),
        ChunkRecord("chunk", 5, "next", checksums=b"abcd"),
        StoredSegmentRecord("segment"),
        IndexBlockRecord("block", ((0, "chunk"),)),
        ReadIndexBlock("key", "chunk", 0),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_of_the_chunk_layer_keeps_later_revisions(record: Record) -> None:
    newer = record._replace(later=newer_version.LATER)
    assert decode(encode(newer)) == newer
    assert encode(newer) != encode(record)


def test_an_entry_of_a_segment_keeps_later_revisions(root: Path) -> None:
    with StreamManager(root, create=False, settings=newer_version.ALONE) as manager:
        segments: list[Segment] = [
            decode_segment(entry.value or b"", 0, name)
            for container in newer_version.containers(manager)
            for name, entry in container.lookups.scan(container.refresh(), METADATA)
        ]
    found = [decode_segment(encode_segment(each), 0, each.name) for each in segments]
    assert [each.later for each in found] == [each.later for each in segments]
    assert newer_version.LATER in [each.later for each in found]


@pytest.mark.parametrize(
    ("fields", "raised", "what"),
    [
        ([1, 2, 3], NewerFormat, "it has 3 fields; this version knows 2: upgrade"),
        ([1, 2, {}, 3], NewerFormat, "it has 4 fields"),
        ([1], InvalidData, "it has 1 fields; 2 are due"),
        ([1, 2, {1: 2}], InvalidData, "optional: 1 stands where str is due"),
    ],
)
def test_what_is_not_optional_is_of_a_newer_version(fields: list[Any], raised: type[Exception], what: str) -> None:
    with pytest.raises(raised, match=what):
        without_optional(fields, 2)


@pytest.mark.parametrize(
    "record",
    [
        RootConfig("0" * 32),
        ScopeRecord(deleting=False),
        KeyValueTableRecord(b"x" * 16, 1, KeyValueTableConfiguration(1, 1, 1)),
        TransactionRecord(Routing(b"x" * 16, 0, ()), 1, 1, 1, 1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_with_optional_fields_is_a_key_as_before(record: Any) -> None:
    added = OptionalFields(newer_version.ADDED)
    newer = replace(record, optional=added) if isinstance(record, RootConfig) else record._replace(optional=added)
    assert len({record, newer, pickle.loads(pickle.dumps(newer))}) == 2


def test_without_optional_fields_a_record_has_the_form_of_format_1() -> None:
    added = OptionalFields(newer_version.ADDED)
    assert with_optional([1, 2], OptionalFields()) == [1, 2]
    assert without_optional(with_optional([1, 2], added), 2) == ([1, 2], added)
