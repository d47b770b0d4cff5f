"""A small in-memory model of a container's segments: what a caller may expect, said as plainly as possible.

It knows nothing of logs, frames, extents or flushing: a segment is a `bytes` value. It takes the engine's operations
and raises the engine's errors, so that a test can give both the same transaction and compare what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.errors import (
    BadAttributeUpdate,
    BadKeyVersion,
    BadOffset,
    ChunksExpired,
    Rejected,
    SegmentExists,
    SegmentNotFound,
    SegmentNotSealed,
    SegmentSealed,
    SegmentTransient,
    TableExists,
    TableNotFound,
    WrongKeyLength,
)
from engine.state import operations as ops
from engine.state.index_records import THIS_APPEND, IndexRecords
from engine.state.operations import AttributeUpdate, Operation, Payload, UpdateKind
from engine.state.segments import (
    CREATION_TIME,
    EVENT_COUNT,
    NULL_VALUE,
    TRANSIENT_ATTRIBUTES,
    is_core,
)
from engine.state.tables import METADATA, METADATA_TABLES

if TYPE_CHECKING:
    from engine.containers.container import Container


_NOT_KNOWN = -2
"""The version of an entry whose container has not been asked for it; nothing can be expected to have it."""


class Content(NamedTuple):
    """All that can be seen of a segment. `data` is what can be read: the bytes from `start` on."""

    start: int
    length: int
    sealed: bool
    attributes: dict[bytes, int]
    data: bytes


Contents = tuple[dict[str, Content], dict[str, dict[str, bytes]]]
"""All that can be seen of a container: its segments, and the entries of its tables."""


class ModelSegment(NamedTuple):
    """`data` holds every byte that was ever appended, those before `start` included."""

    data: bytes
    start: int
    sealed: bool
    attributes: Mapping[bytes, int]
    parent: str = ""


class ModelEntry(NamedTuple):
    """A table's entry."""

    value: bytes
    version: int


class Model:
    """The segments and tables of one container.

    `chunks` are the contents of the chunks that tests attach, and those begun before `min_attach_time` are given up.
    Versions of table entries are the container's choice: `adopt` takes them over.
    """

    def __init__(self, newest_version: int = -1) -> None:
        self._newest_version = newest_version
        self.segments: dict[str, ModelSegment] = {}
        self.tables: dict[str, dict[str, ModelEntry]] = {}
        self.key_lengths: dict[str, int] = {}
        self.chunks: dict[str, bytes] = {}
        self.min_attach_time = 0

    def copy(self) -> Model:
        """An independent copy, but for the chunks, which never change."""
        other = Model(self._newest_version)
        other.segments = dict(self.segments)
        other.tables = {name: dict(entries) for name, entries in self.tables.items()}
        other.key_lengths = dict(self.key_lengths)
        other.chunks = self.chunks
        other.min_attach_time = self.min_attach_time
        return other

    def contents(self) -> Contents:
        """What a container should show (times of creation apart, which it chooses itself)."""
        segments = {
            name: Content(s.start, len(s.data), s.sealed, dict(s.attributes), s.data[s.start :])
            for name, s in self.segments.items()
        }
        tables = {name: {key: e.value for key, e in table.items()} for name, table in self.tables.items() if table}
        return segments, tables

    def commit(self, operations: Sequence[Operation]) -> list[Any]:
        """Carry out all operations, or none and raise the first one's Rejected error. Returns each one's result.

        A table entry's new version is not known here: its result is None.
        """
        after = self.copy()
        results = [after.apply(operation) for operation in operations]
        self.segments, self.tables, self.min_attach_time = after.segments, after.tables, after.min_attach_time
        self.key_lengths = after.key_lengths
        return results

    def apply(self, operation: Operation) -> Any:
        """Carry out one operation. Returns its result; raises its Rejected error, after which this is no model."""
        apply: dict[type[Any], Callable[[Any], Any]] = {
            ops.CreateSegment: self._create,
            ops.StartSegment: self._start,
            ops.Append: self._append,
            ops.SealSegment: self._seal,
            ops.MergeSegment: self._merge,
            ops.TruncateSegment: self._truncate,
            ops.DeleteSegment: self._delete,
            ops.ExpireSegments: self._expire,
            ops.DiscardChunks: self._discard,
            ops.UpdateAttributes: self._update,
            ops.PutEntry: self._put,
            ops.CreateTable: self._create_table,
            ops.DeleteTable: self._delete_table,
        }
        return apply[type(operation)](operation)

    def adopt(self, container: Container) -> None:
        """Take over the versions that the container gave to the entries that were put since the last time."""
        newest = self._newest_version
        for table, entries in self.tables.items():
            for key, entry in entries.items():
                found = container.entry(table, key)
                assert found is not None and found.value == entry.value
                if entry.version == _NOT_KNOWN:
                    assert found.version > self._newest_version, "a version was given twice"
                    entries[key] = ModelEntry(entry.value, found.version)
                    newest = max(newest, found.version)
                else:
                    assert entry.version == found.version, "a version changed by itself"
        self._newest_version = newest

    def version(self, table: str, key: str) -> int:
        """The version of a table's entry; -1 when there is none."""
        entry = self.tables.get(table, {}).get(key)
        return entry.version if entry is not None else -1

    def _find(self, name: str) -> ModelSegment:
        if name not in self.segments:
            raise SegmentNotFound(name)
        return self.segments[name]

    def _create(self, op: ops.CreateSegment) -> None:
        if op.segment in self.segments:
            raise SegmentExists(op.segment)
        made = ModelSegment(b"", 0, False, _updated(op.segment, {}, op.updates), op.parent)
        if op.parent:
            parent = self._find(op.parent)
            if parent.sealed:
                raise SegmentSealed(op.parent)
            if parent.parent:
                raise SegmentTransient(op.parent, "have transient segments")
            _check_few(op.segment, made)
        self.segments[op.segment] = made

    def _start(self, op: ops.StartSegment) -> None:
        found = self._find(op.segment)
        if found.sealed:
            raise SegmentSealed(op.segment)
        found = self._lasting(op.segment, "begin elsewhere than at 0")
        if found.data:
            raise BadOffset(op.segment, 0, len(found.data))
        if op.offset < 0:
            raise BadOffset(op.segment, 0, op.offset)
        self.segments[op.segment] = found._replace(data=bytes(op.offset), start=op.offset)

    def _lasting(self, name: str, refused: str) -> ModelSegment:
        """A segment that is not transient."""
        found = self._find(name)
        if found.parent:
            raise SegmentTransient(name, refused)
        return found

    def _forget(self, name: str) -> None:
        """A segment is gone, and with it those that were made for it."""
        del self.segments[name]
        self.segments = {key: segment for key, segment in self.segments.items() if segment.parent != name}

    def _append(self, op: ops.Append) -> int:
        segment = self._find(op.segment)
        if isinstance(op.content, IndexRecords):
            indexed = self._find(op.content.segment)
            unnumbered = THIS_APPEND.to_bytes(8, "big", signed=True)
            assert unnumbered not in op.content.records, "it knows no numbers of appends"
            data = op.content.counted_from(len(indexed.data), indexed.attributes.get(EVENT_COUNT, 0), 0)
        elif isinstance(op.content, Payload):
            data = bytes(op.content.data)
        else:
            data = b"".join(
                self.chunks[str(extent.source)][extent.position : extent.position + extent.length]
                for extent in op.content
            )
        if segment.sealed:
            raise SegmentSealed(op.segment)
        attributes = _updated(op.segment, segment.attributes, op.updates)
        offset = len(segment.data)
        if op.offset not in (None, offset):
            raise BadOffset(op.segment, offset, op.offset or 0)
        attached = isinstance(op.content, tuple) and op.content  # no chunk is attached twice
        if attached and op.created_at < self.min_attach_time:
            raise ChunksExpired(op.segment, op.created_at, self.min_attach_time)
        after = segment._replace(data=segment.data + data, attributes=attributes)
        if segment.parent and op.updates:
            _check_few(op.segment, after)
        self.segments[op.segment] = after
        return offset

    def _seal(self, op: ops.SealSegment) -> None:
        self.segments[op.segment] = self._lasting(op.segment, "be sealed")._replace(sealed=True)

    def _merge(self, op: ops.MergeSegment) -> int:
        target, source = self._find(op.target), self._find(op.source)
        header = bytes(op.header.data) if isinstance(op.header, Payload) else b""
        if op.target == op.source:
            raise Rejected("a segment cannot be merged into itself")
        if target.sealed:
            raise SegmentSealed(op.target)
        if target.parent:
            raise SegmentTransient(op.target, "be merged into")
        if not source.sealed and not source.parent:
            raise SegmentNotSealed(op.source)
        if source.start:
            raise BadOffset(op.source, 0, source.start)
        attributes = dict(target.attributes)
        if events := source.attributes.get(EVENT_COUNT):
            attributes[EVENT_COUNT] = attributes.get(EVENT_COUNT, 0) + events
        self.segments[op.target] = target._replace(data=target.data + header + source.data, attributes=attributes)
        self._forget(op.source)
        return len(target.data)

    def _truncate(self, op: ops.TruncateSegment) -> None:
        segment = self._lasting(op.segment, "be truncated")
        if not 0 <= op.offset <= len(segment.data):
            raise BadOffset(op.segment, len(segment.data), op.offset)
        self.segments[op.segment] = segment._replace(start=max(segment.start, op.offset))

    def _delete(self, op: ops.DeleteSegment) -> None:
        self._find(op.segment)
        self._forget(op.segment)

    def _expire(self, op: ops.ExpireSegments) -> tuple[str, ...]:
        """Tests choose times before or behind all appends."""
        expired = tuple(name for name in op.segments if name in self.segments and self.segments[name].parent)
        for name in expired if op.before else ():
            self._forget(name)
        return expired if op.before else ()

    def _discard(self, op: ops.DiscardChunks) -> None:
        self.min_attach_time = max(self.min_attach_time, op.min_attach_time)

    def _update(self, op: ops.UpdateAttributes) -> None:
        segment = self._lasting(op.segment, "have attributes updated")
        if segment.sealed and any(not is_core(update.attribute) for update in op.updates):
            raise SegmentSealed(op.segment)
        attributes = _updated(op.segment, segment.attributes, op.updates)
        self.segments[op.segment] = segment._replace(attributes=attributes)

    def _create_table(self, op: ops.CreateTable) -> None:
        if op.table in self.tables:
            raise TableExists(op.table)
        self.key_lengths[op.table] = op.key_length
        self.tables[op.table] = {}

    def _delete_table(self, op: ops.DeleteTable) -> None:
        if self.key_lengths.pop(op.table, None) is None:
            raise TableNotFound(op.table)
        del self.tables[op.table]

    def _put(self, op: ops.PutEntry) -> None:
        if (length := self.key_lengths.get(op.table)) is not None and len(op.key.encode()) != length:
            raise WrongKeyLength(op.table, len(op.key.encode()), length)
        version = self.version(op.table, op.key)
        if op.expected is not None and (op.expected != version or version == _NOT_KNOWN):
            raise BadKeyVersion(op.table, op.key, op.expected or 0, version)
        entries = self.tables.setdefault(op.table, {})
        if op.value is None:
            entries.pop(op.key, None)
        else:
            entries[op.key] = ModelEntry(op.value, _NOT_KNOWN)


def _updated(segment: str, attributes: Mapping[bytes, int], updates: Sequence[AttributeUpdate]) -> dict[bytes, int]:
    """The attributes after `updates`, which see each other's effects in their order."""
    after = dict(attributes)
    for attribute, kind, value, comparison in updates:
        present = after.get(attribute, NULL_VALUE)
        allowed = {
            UpdateKind.NONE: present == NULL_VALUE,
            UpdateKind.REPLACE: True,
            UpdateKind.REPLACE_IF_GREATER: value > present or present == NULL_VALUE,
            UpdateKind.ACCUMULATE: True,
            UpdateKind.REPLACE_IF_EQUALS: present == comparison,
        }[kind]
        if not allowed:
            raise BadAttributeUpdate(segment, attribute, after.get(attribute), "the condition does not hold")
        if kind is UpdateKind.ACCUMULATE and present != NULL_VALUE:
            value += present
        if abs(2 * value + 1) >= 1 << 64:
            raise BadAttributeUpdate(segment, attribute, after.get(attribute), "the value is too large")
        after[attribute] = value
        if value == NULL_VALUE:
            del after[attribute]
    return after


def _check_few(name: str, segment: ModelSegment) -> None:
    if sum(not is_core(attribute) for attribute in segment.attributes) > TRANSIENT_ATTRIBUTES:
        raise SegmentTransient(name, "have more extended attributes")


def contents_of(container: Container) -> Contents:
    """What a container shows: every segment with all of its data as read from storage, and every table's entries."""
    container.refresh()
    return known_to(container)


def known_to(container: Container) -> Contents:
    """What a container shows without looking at the log."""
    segments = {
        name: Content(
            segment.start_offset,
            segment.length,
            segment.sealed,
            {key: value for key, value in container.known_attributes(name).items() if key != CREATION_TIME},
            container.read(name, segment.start_offset, segment.length),
        )
        for name, segment in container.activated(names_of(container)).items()
        if segment is not None
    }
    tables = {
        name: {key: entry.value for key, entry in container.scan_entries(name) if entry.value is not None}
        for name in container.state.tables
        if name not in METADATA_TABLES
    }
    return segments, {name: entries for name, entries in tables.items() if entries}


def names_of(container: Container) -> set[str]:
    """The names of all segments, active or not."""
    return {*container.state.segments, *(name for name, _ in container.scan_entries(METADATA))}
