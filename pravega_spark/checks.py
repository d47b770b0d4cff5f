"""Verifies a root with its streams: adds the checks of streams' table entries and segments to `engine.admin.verify`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.admin.checks.findings import Problem, Severity
from engine.admin.checks.segment_content import ContentCheck
from engine.admin.progress import Progress, no_progress
from engine.admin.verify import EntryCheck, Report, verify
from engine.errors import DataCorruption
from engine.root import Root
from pravega_spark.client.groups.entry import GROUPS
from pravega_spark.client.groups.state import GroupState
from pravega_spark.streams.maintenance.lease import MaintenanceRecord
from pravega_spark.streams.maintenance.subscribers import decode_subscriber
from pravega_spark.streams.maintenance.verification import check_events, check_order, check_recorded, check_uploads
from pravega_spark.streams.model.key_value_table import KeyValueTableRecord
from pravega_spark.streams.model.stream_record import StreamRecord, decode_number, former_segments
from pravega_spark.streams.model.system_tables import (
    KEY_VALUE_TABLES,
    MAINTENANCE,
    MARKS,
    NUMBERS,
    SCOPES,
    STREAMS,
    SUBSCRIBERS,
    TIMES,
    TRANSACTIONS,
)
from pravega_spark.streams.reading.foreign_root import ForeignRoot
from pravega_spark.streams.revisions import decode_mark
from pravega_spark.streams.scopes import ScopeRecord
from pravega_spark.streams.stream_time import decode_time
from pravega_spark.streams.writing.transactions import TransactionRecord

if TYPE_CHECKING:
    from engine.containers.container import Container

CONTENT_CHECKS: Sequence[ContentCheck] = (check_events, check_recorded, check_order, check_uploads)


ENTRY_CHECKS: Mapping[str, EntryCheck] = {
    SCOPES: lambda container, key, value, version: _decoded(ScopeRecord.decode(value, key)),
    STREAMS: lambda container, key, value, version: _decoded(StreamRecord.decode(value, version, key)),
    NUMBERS: lambda container, key, value, version: _decoded(decode_number(value, key)),
    TRANSACTIONS: lambda container, key, value, version: _decoded(TransactionRecord.decode(value, version, key)),
    SUBSCRIBERS: lambda container, key, value, version: _check_subscriber(container, key, value),
    TIMES: lambda container, key, value, version: _decoded(decode_time(value, key)),
    MARKS: lambda container, key, value, version: _decoded(decode_mark(value, key)),
    KEY_VALUE_TABLES: lambda container, key, value, version: _check_table(container, key, value),
    MAINTENANCE: lambda container, key, value, version: _decoded(MaintenanceRecord.decode(value, key)),
    GROUPS: lambda container, key, value, version: _decoded(GroupState.decode(value, key)),
}


def verify_root(root: Root, progress: Progress = no_progress, deep: bool = False) -> Report:
    """Look at everything in a root, one of ours or the long-term storage of a Pravega. Raises StorageError."""
    if isinstance(root, ForeignRoot):
        return root.verify_storage(progress, deep)
    return verify(root, progress, deep, CONTENT_CHECKS, entry_checks=ENTRY_CHECKS)


def _decoded(value: object) -> None:
    """No problem: the value could be decoded."""


def _check_table(container: Container, key: str, value: bytes) -> Problem | None:
    """The problem of a key-value table whose import was interrupted, or whose entries are not there (see
    `key_value_table`)."""
    record = KeyValueTableRecord.decode(value, key)
    if record.ready and record.engine_table(key) in container.state.tables:
        return None
    problem = "its entries were deleted" if record.ready else "its import was not completed"
    remedy = f"repeat the import, or delete it: `pravega-spark kvt delete {key} --yes`"
    return Problem(f"key-value table {key}", f"{problem}: it does not exist", remedy, Severity.WARNING)


def _check_subscriber(container: Container, key: str, value: bytes) -> Problem | None:
    """The problem of a subscriber whose position does not fit its stream: retention keeps all events (P4)."""
    cut = decode_subscriber(value, key)
    stream = f"{cut.scope}/{cut.stream}"
    name = key.removeprefix(f"{stream}/")
    entry = container.entries(STREAMS, [stream], container.state)[stream]
    try:
        record = StreamRecord.decode(entry.value, entry.version, stream) if entry is not None and entry.value else None
    except DataCorruption:
        return None  # the check of the stream's entry reports that
    problem = _problem(record, cut.positions) if record is not None else "its stream does not exist"
    if problem is None:
        return None
    remedy = (
        "retention keeps all events of the stream until the subscriber releases a valid position, or is removed: "
        f"`pravega-spark stream unsubscribe {stream} {shlex.quote(name)} --yes`"
    )
    return Problem(f"subscriber {key}", f"its position {cut} does not fit: {problem}", remedy, Severity.WARNING)


def _problem(record: StreamRecord, positions: Mapping[int, int]) -> str | None:
    if former_segments(record, positions):
        return "it belongs to a stream that was deleted, and another one has its name"
    return record.history.problem(positions)
