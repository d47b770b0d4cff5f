"""Inspection: descriptions of containers and segments, as plain values.

Each description is of one state, and nothing is written. Sizes are in bytes, times in ms since the epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from chunkstore.errors import MetadataConflict, ObjectNotFound
from chunkstore.metadata.metadata_records import RecordStatus, StoredSegmentRecord, segment_key
from chunkstore.metadata.store import MetadataTransaction
from chunkstore.numbered import list_numbered
from chunkstore.segments.chunk_list import ChunkList
from engine.containers.container import Container
from engine.errors import DataCorruption, EngineError, SegmentNotFound
from engine.logs.log import address_of, checkpoints_folder, frame_path
from engine.logs.submission import inbox_folder
from engine.root import Root
from engine.state.segments import CREATION_TIME, EVENT_COUNT, FrameRef, Segment, StoredRef
from engine.state.state import Cycle, State
from engine.state.tables import METADATA, Table
from engine.storage import recovery_points

CORE_ATTRIBUTES = {EVENT_COUNT: "event_count", CREATION_TIME: "creation_time"}
"""The names of core attributes; others are shown in hexadecimal."""

_BATCH = 1000


class TableDescription(NamedTuple):
    """A table. stored: bytes in LTS of entries and index, superseded ones included. unflushed: entries and removals
    that are only in the log."""

    name: str
    entries: int
    stored: int
    unflushed: int


class ContainerDescription(NamedTuple):
    """A container (Pravega: Segment Container Metadata).

    sequence: number of the last operation. head, epoch: address and epoch of the last frame. newest_checkpoint: address
    of the newest checkpoint object, -1 if there is none. frames: how many frames came after it. submissions: objects in
    the inboxes. segments: all segments. active: those in memory. unsaved: those with changes that LTS does not have.
    logged: bytes in the log and not in LTS. cycle: the last flush cycle. recovery_point: the cycle of the newest
    recovery point, or None. garbage: objects that wait to be deleted. due: the maintenance that is due, by its kind,
    and whether it is overdue. failures: the last error of this process's maintenance, by its kind.
    """

    number: int
    sequence: int
    head: int
    epoch: int
    newest_checkpoint: int
    frames: int
    submissions: int
    segments: int
    active: int
    unsaved: int
    logged: int
    cycle: Cycle
    recovery_point: int | None
    garbage: int
    tables: tuple[TableDescription, ...]
    due: Mapping[str, bool]
    failures: Mapping[str, str]


class ContainerStatus(NamedTuple):
    """A container of a root. reason: why it cannot be opened; empty if it could be, and then it has a description."""

    number: int
    reason: str
    description: ContainerDescription | None

    @property
    def online(self) -> bool:
        """Whether it could be opened."""
        return self.description is not None


class SegmentDescription(NamedTuple):
    """A segment (Pravega: the per-segment metadata of a container).

    storage_length: the end of the content in LTS. durable_length: the end of the acknowledged content. storage: its
    name in LTS, empty if it is not there. merged_into: the segment that has its content now. deleted: it no longer
    exists. Both are known only until the next flush cycle. active: it is in memory. transient_of: the parent of a
    transient segment.
    """

    name: str
    id: int
    storage_length: int
    durable_length: int
    start_offset: int
    last_modified: int
    sealed: bool
    sealed_in_storage: bool
    merged_into: str | None
    deleted: bool
    active: bool
    storage: str
    attributes: Mapping[str, int]
    transient_of: str | None = None


class SegmentPart(NamedTuple):
    """The `length` bytes of a segment from `start` on, stored in `object` from `position` on.

    place: "chunk" (in LTS), "attached" (a chunk that LTS has not taken over yet), or "log" (a frame).
    """

    start: int
    length: int
    place: str
    object: str
    position: int


def list_containers(root: Root) -> list[ContainerStatus]:
    """All containers of a root, those that cannot be opened included."""
    return [container_status(root, number) for number in range(root.config.containers)]


def container_status(root: Root, number: int) -> ContainerStatus:
    """A container, described if it can be opened. Raises StorageError, ValueError."""
    try:
        with root.open_private(number) as container:
            return ContainerStatus(number, "", describe_container(container))
    except EngineError as error:
        return ContainerStatus(number, str(error), None)


def describe_container(container: Container) -> ContainerDescription:
    """A container as it is now. Raises DataCorruption, StorageError."""
    state, head = container.refresh(), container.head
    listed = list_numbered(container.stores.log, checkpoints_folder(container.number))
    newest_checkpoint = address_of(listed[-1].path) if listed else -1
    recovery_point = recovery_points.newest(container.stores.chunks, container.number)
    tables = tuple(_described_table(container, state, name, table) for name, table in sorted(state.tables.items()))
    saved = next((table.entries for table in tables if table.name == METADATA), 0)
    return ContainerDescription(
        number=container.number,
        sequence=state.sequence,
        head=head.address,
        epoch=head.epoch,
        newest_checkpoint=newest_checkpoint,
        frames=max(head.address - newest_checkpoint, 0),
        submissions=len(container.stores.log.list(inbox_folder(container.number))),
        segments=saved + sum(segment.saved < 0 for segment in state.segments.values()),
        active=len(state.segments),
        unsaved=len(state.unsaved),
        logged=state.logged_bytes,
        cycle=state.cycle,
        recovery_point=recovery_point.number if recovery_point is not None else None,
        garbage=len(state.garbage),
        tables=tables,
        due=container.due(listed),
        failures=container.failures,
    )


def describe_table(container: Container, state: State, name: str) -> TableDescription:
    """A table that `state` has. Raises DataCorruption, ObjectNotFound, StorageError."""
    return _described_table(container, state, name, state.tables[name])


def _described_table(container: Container, state: State, name: str, table: Table) -> TableDescription:
    dirty = table.dirty(state.sequence)
    entries = table.layout.entries
    for start in range(0, len(dirty), _BATCH):
        batch = dirty[start : start + _BATCH]
        before = container.lookups.content(name, table).versions([key.encode() for key, _ in batch])
        entries += sum(entry.value is not None for _, entry in batch) - len(before)
    layout = table.layout
    stored = layout.length - layout.start + layout.index_length - layout.index_start
    return TableDescription(name, entries, stored, len(dirty))


def list_segments(container: Container) -> Iterator[str]:
    """The names of all segments, active or not, in no order. Raises DataCorruption, StorageError."""
    state = container.refresh()
    yield from state.segments
    for name, _ in container.lookups.scan(state, METADATA):
        if name not in state.segments:
            yield name


def describe_segment(container: Container, name: str) -> SegmentDescription:
    """A segment as it is now, or as it was if it was merged or deleted since the last flush cycle. Raises
    SegmentNotFound."""
    state = container.refresh()
    segment = container.activated([name], state)[name]
    if segment is None:
        return _former_segment(container, state, name)
    attributes = container.known_attributes(name)
    return SegmentDescription(
        name=name,
        id=segment.id,
        storage_length=segment.storage_length,
        durable_length=segment.length,
        start_offset=segment.start_offset,
        last_modified=segment.modified,
        sealed=segment.sealed,
        sealed_in_storage=segment.stored_sealed,
        merged_into=None,
        deleted=False,
        active=name in state.segments,
        storage=segment.storage,
        attributes={CORE_ATTRIBUTES.get(key, key.hex()): value for key, value in sorted(attributes.items())},
        transient_of=segment.parent or None,
    )


def _former_segment(container: Container, state: State, name: str) -> SegmentDescription:
    """A segment that was merged or deleted, which LTS still has."""
    own = re.compile(re.escape(name) + r"\.(\d+)(?:\.\d+)?")  # see segments.storage_name
    merged = {
        extent.source.storage: target.name
        for target in state.logged()
        for _, extent in target.extents
        if isinstance(extent.source, StoredRef)
    }
    for storage in (*merged, *state.dropped):
        if match := own.fullmatch(storage):
            record = _record(container, state, storage)
            return SegmentDescription(
                name=name,
                id=int(match[1]),
                storage_length=record.length if record is not None else 0,
                durable_length=record.length if record is not None else 0,
                start_offset=record.start_offset if record is not None else 0,
                last_modified=record.last_modified if record is not None else 0,
                sealed=True,
                sealed_in_storage=record is not None and bool(record.status & RecordStatus.SEALED),
                merged_into=merged.get(storage),
                deleted=True,
                active=False,
                storage=storage,
                attributes={},
            )
    raise SegmentNotFound(name)


def _record(container: Container, state: State, storage: str) -> StoredSegmentRecord | None:
    with container.lookups.records(state).begin(read_only=True) as transaction:
        return transaction.segment(storage)


def segment_chunks(container: Container, name: str) -> Iterator[SegmentPart]:
    """Where the content of a segment is stored: its chunks in LTS, then what is not flushed yet.

    Raises SegmentNotFound, DataCorruption, and ObjectNotFound if flush cycles replace the state while it is read.
    """
    state = container.refresh()
    segment = container.activated([name], state)[name]
    if segment is None:
        raise SegmentNotFound(name)
    return (part for _, part in _parts(container, state, [segment]))


def all_chunks(container: Container, prefix: str = "") -> Iterator[tuple[str, SegmentPart]]:
    """The parts of all segments whose names begin with `prefix`, in the order of their names.

    Each segment is described as of one moment. Records in LTS are read for many segments at once. Raises
    DataCorruption, StorageError.
    """
    names = sorted(name for name in list_segments(container) if name.startswith(prefix))
    for start in range(0, len(names), _BATCH):
        yield from _chunks_of(container, names[start : start + _BATCH])


def _chunks_of(container: Container, names: Sequence[str]) -> list[tuple[str, SegmentPart]]:
    while True:
        state = container.state
        try:
            found = container.activated(names, state)
            return list(_parts(container, state, [segment for segment in found.values() if segment is not None]))
        except (ObjectNotFound, MetadataConflict, DataCorruption):
            if container.refresh().sequence == state.sequence:
                raise  # the state was not outdated


def _parts(container: Container, state: State, segments: Sequence[Segment]) -> Iterator[tuple[str, SegmentPart]]:
    """Where the content of segments is stored, each part with the segment's name."""
    with container.lookups.records(state).begin(read_only=True) as transaction:
        _load_together(transaction, segments)
        for segment in segments:
            if segment.storage:
                for part in _stored_parts(transaction, segment.storage, 0, segment.storage_length):
                    yield segment.name, part
            for offset, (source, position, length, _) in segment.extents:
                if isinstance(source, StoredRef):
                    for part in _stored_parts(transaction, source.storage, offset, length):
                        yield segment.name, part
                elif isinstance(source, FrameRef):
                    path = frame_path(container.number, source.address)
                    yield segment.name, SegmentPart(offset, length, "log", path, source.start + position)
                else:
                    place = (
                        "chunk" if offset < segment.storage_length else "attached"
                    )  # a "chunk" only in a Pravega's storage
                    yield segment.name, SegmentPart(offset, length, place, source, position)


def _load_together(transaction: MetadataTransaction, segments: Sequence[Segment]) -> None:
    """Read the records of segments in LTS, of their first chunks and of their first index blocks, each kind at once."""
    stored = [segment.storage for segment in segments if segment.storage]
    stored += [
        extent.source.storage
        for segment in segments
        for _, extent in segment.extents
        if isinstance(extent.source, StoredRef)
    ]
    transaction.load(*map(segment_key, stored))
    records = [record for record in map(transaction.segment, stored) if record is not None]
    first = [record.first_chunk for record in records if record.first_chunk is not None]
    several = [record for record in records if record.first_chunk != record.last_chunk]
    transaction.load(*first, *(key for record in several for _, key in record.blocks[:1]))


def _stored_parts(transaction: MetadataTransaction, storage: str, base: int, end: int) -> Iterator[SegmentPart]:
    record = transaction.segment(storage)
    if record is None:
        raise DataCorruption(f"LTS has no record of segment {storage!r}")
    chunks = ChunkList(transaction, record)
    for start, chunk in chunks.walk(record.first_chunk_start, record.first_chunk, min(record.length, end)):
        yield SegmentPart(base + start, chunk.length, "chunk", chunk.name, 0)
