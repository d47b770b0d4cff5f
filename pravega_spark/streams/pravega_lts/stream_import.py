"""Importing a stream of a Pravega's long-term storage.

Its record is built from the controller's records, and its segments keep their ids, offsets and order: each stream
cut, bookmark and checkpoint of the original has the same meaning here. One append creates the stream once all data
is copied (X1), and records the import as a producer's write: the same import again changes nothing (X3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chunkstore.decoding import InvalidData
from chunkstore.pravega.archived_segments import ArchivedChunk
from chunkstore.pravega.controller_records import TransactionStatus
from engine.errors import BadKeyVersion, ChunksExpired, OutcomeUnknown, SegmentExists
from engine.root import Root
from engine.state.attach_fence import creation_time
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    StartSegment,
    TruncateSegment,
    UpdateKind,
)
from engine.state.segments import EVENT_COUNT
from engine.state.state import NOT_EXISTS
from pravega_spark.errors import ScopeNotFound, StreamError
from pravega_spark.segment_ids import segment_label, segment_number
from pravega_spark.streams.maintenance.recorded_cuts import recording
from pravega_spark.streams.model.epochs import EpochRecord, Epochs
from pravega_spark.streams.model.names import (
    index_segment_name,
    segment_name,
    validate_scope_name,
    validate_stream_name,
)
from pravega_spark.streams.model.stream_record import (
    Ended,
    Generation,
    StreamRecord,
    check_segments,
    checked_tags,
    decode_number,
    first_number_of,
    whole_ends,
)
from pravega_spark.streams.model.system_tables import NUMBERS, STREAMS
from pravega_spark.streams.pravega_lts.container import PravegaContainer
from pravega_spark.streams.pravega_lts.records import pravega_stream_id, retention_policy, scaling_policy, stream_record
from pravega_spark.streams.pravega_lts.segment_import import SegmentContent, SegmentSource
from pravega_spark.streams.pravega_lts.streams import PravegaStream, PravegaTransaction, RecordedCut
from pravega_spark.streams.pravega_lts.unfinished_imports import Begun, begin, finish
from pravega_spark.streams.scopes import Scope, unless_deleted
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry
from pravega_spark.streams.writing.producer_state import writer_attribute

_SAFE = "It is imported completely or not at all. Importing it again is safe"


class ImportRefused(StreamError):
    """A stream cannot be imported. Nothing of it was."""


class StreamPlan(NamedTuple):
    """A stream that can be imported. identity: distinguishes it from all others, wherever its storage is."""

    scope: str
    stream: str
    identity: str
    record: StreamRecord
    segments: tuple[SegmentSource, ...]
    recorded: tuple[RecordedCut, ...]
    transactions: tuple[PravegaTransaction, ...]
    unknown: tuple[str, ...]
    not_imported: tuple[str, ...]
    recovered: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its name in the root."""
        return f"{self.scope}/{self.stream}"

    @property
    def bytes(self) -> int:
        """Bytes of events to import."""
        return sum(segment.end - segment.start for segment in self.segments)

    @property
    def chunks(self) -> int:
        """Number of chunks that hold them."""
        return sum(len(segment.chunks) for segment in self.segments)


def plan_stream(container: PravegaContainer, key: str, *, events: bool = True) -> StreamPlan:
    """The plan for the stream "scope/stream" of a storage. events: False if it is a byte stream.

    What the container salvages of it is planned, and what it loses is in the plan. Raises ImportRefused if too little
    is known, ArchiveDamaged, and what the store raises.
    """
    found = container.stream(key)
    try:
        validate_scope_name(found.scope)
        validate_stream_name(found.name)
        record = _record(found, container.salvage)
        segments = tuple(_segments(container, found, record, events))
        ends = {segment.id: segment.end for segment in segments}
        return StreamPlan(
            found.scope,
            found.name,
            f"{found.records.id}/{found.records.created}",
            record,
            segments,
            tuple(cut for cut in found.recorded if all(at <= ends.get(n, at) for n, at in cut.positions.items())),
            tuple(each for each in found.transactions if each.status is not TransactionStatus.COMMITTED),
            found.unknown,
            tuple(f"{loss.segment!r}: {loss.fact}" for loss in container.losses if loss.stream == key),
            tuple(f"{each.segment!r}: {each.fact}" for each in container.recovered if each.stream == key),
        )
    except (ValueError, InvalidData) as error:
        raise ImportRefused(f"stream {key} has no valid counterpart: {error}") from error


def _record(found: PravegaStream, salvage: bool) -> StreamRecord:
    """The stream's record in a root. salvage: epochs that are not known are those by which it is read in place."""
    history = found.history
    if history is None and salvage:
        read = stream_record(found)
        is_whole = read.head == {segment.id: 0 for segment in read.epochs[0].segments}
        return read.with_changes(unknown=(), head={} if is_whole else read.head)
    if history is None:
        raise ImportRefused(f"stream {found.scope}/{found.name} cannot be imported: {'; '.join(found.unknown)}")
    head, configuration = dict(found.head.positions), found.records.configuration
    epochs = [history.epoch(each.epoch) for each in found.epochs]
    kept = tuple(epochs[history.first_epoch(head) - epochs[0].epoch :])
    is_whole = head == {segment.id: 0 for segment in kept[0].segments}
    truncation = found.records.truncation
    record = StreamRecord(
        pravega_stream_id(found),
        found.records.created if found.records.created is not None else kept[0].created,
        kept,
        scaling_policy(configuration.scaling if configuration is not None else None, len(kept[-1].segments)),
        retention_policy(configuration.retention if configuration is not None else None),
        checked_tags(configuration.tags if configuration is not None else ()),
        _is_sealed(found, kept[-1]),
        {} if is_whole else head,
        _ended(found, epochs, history, head),
        truncation.size if truncation is not None and truncation.cut else 0,
        first_number=first_number_of(epochs),
    )
    if StreamRecord.decode(record.encode(), record.version, f"{found.scope}/{found.name}") != record:
        raise InvalidData("its epochs are not those of a stream that was scaled")
    return record


def _is_sealed(found: PravegaStream, current: EpochRecord) -> bool:
    """Whether it accepts no more events: it is sealed, or was about to be, and all of its segments are."""
    return bool(found.sealed) or all(found.is_sealed(segment.id) for segment in current.segments)


def _ended(
    found: PravegaStream, epochs: Sequence[EpochRecord], history: Epochs, head: dict[int, int]
) -> dict[int, Ended]:
    """The segments before the head after which nothing is lost, as a truncation here would record them."""
    everything = Epochs(epochs, {segment.id: 0 for segment in epochs[0].segments})
    deleted = {
        number: Ended(size, tuple(segment.id for segment in everything.successors(number)))
        for number, size in found.records.sealed_sizes.items()
        if number in everything.segments and number not in history.segments
    }
    return whole_ends(deleted, head)


def _segments(
    container: PravegaContainer, found: PravegaStream, record: StreamRecord, events: bool
) -> Iterator[SegmentSource]:
    taking = {segment.id for segment in record.current.segments} if not record.sealed else set()
    known = set(record.segment_ids())
    for number in sorted(known.intersection(found.segments)):
        name = segment_name(found.scope, found.name, number)
        there = container.info(name)
        start, end = there.start_offset, there.length
        chunks = [
            ArchivedChunk(str(extent.source), offset, min(extent.length, end - offset))
            for offset, extent in there.extents
            if offset < end and offset + extent.length > start
        ]
        yield SegmentSource(number, name, start, end, tuple(chunks), events, number in taking)


class StreamImport:
    """The import of a stream into a root. copied: whether chunks are copied, or linked."""

    def __init__(self, root: Root, plan: StreamPlan, copied: bool) -> None:
        self.plan = plan
        self.copied = copied
        self._stream = Stream(root, plan.scope, plan.stream)
        self._mark = writer_attribute(f"import of {plan.identity}")
        self._store = root.stores.chunks

    def is_done(self) -> bool:
        """Whether it was imported completely before. Raises ImportRefused if it cannot be, and StorageError."""
        container, plan = self._stream.container, self.plan
        state = container.refresh()
        known = container.entries(STREAMS, [plan.key], state)[plan.key]
        if known is not None and known.value:
            if self._mark in container.known_attributes(self._stream.writers, [self._mark]):
                return True
            raise ImportRefused(
                f"stream {plan.key} exists already, and is not of this import: delete it, or import into another root"
            )
        self._numbers()
        check_segments(
            plan.key, max(len(each.segments) for each in plan.record.epochs), self._stream.root.config.max_segments
        )
        return False

    def _numbers(self) -> PutEntry:
        """The operation that keeps the first segment number of a deleted stream of this name unchanged."""
        container, key = self._stream.container, self.plan.key
        entry = container.entries(NUMBERS, [key], container.state)[key]
        if entry is None or not entry.value:
            return PutEntry(NUMBERS, key, None, entry.version if entry is not None else NOT_EXISTS)
        least = decode_number(entry.value, key)
        for segment in self.plan.segments:
            if segment_number(segment.id) < least:
                raise ImportRefused(
                    f"stream {key} was deleted in this root, and had segments up to {least - 1}: cuts of it would be "
                    f"taken for those of the imported one, which has segment {segment_label(segment.id)}. Import it "
                    "into another root"
                )
        return PutEntry(NUMBERS, key, entry.value, entry.version)

    def begin(self) -> Begun:
        """Begin it, or continue saved progress. Raises StorageError."""
        source = hashlib.sha256(repr((self.plan.identity, self.copied, self.plan.segments)).encode()).digest()
        return begin(self._store, self.plan.key, source)

    def commit(self, begun: Begun, contents: Sequence[SegmentContent]) -> None:
        """Create the stream. Raises ImportRefused, ScopeNotFound, StorageError, EngineError."""
        container = self._stream.container
        retry = OutcomeRetry(container, f"stream {self.plan.key}: it is unknown whether it was imported", _SAFE)
        while not self.is_done():
            scope = Scope(self._stream.root, self._stream.scope)
            condition = unless_deleted(container, container.state)
            if not scope.keep():
                raise ScopeNotFound(scope.name)
            numbers = self._numbers()
            # gc never deletes chunks of a stream that never existed, whatever their age.
            created = begun.created if numbers.value else creation_time(self._store.clock())
            try:
                container.commit([condition, numbers, *self._operations(contents, created)])
                return
            except OutcomeUnknown as error:
                retry.wait_or_raise(error)
            except (BadKeyVersion, SegmentExists):
                continue  # another process was faster
            except ChunksExpired as error:
                self.finish()
                raise ImportRefused(f"{error}. Import stream {self.plan.key} again: it starts over") from error

    def finish(self) -> None:
        """Delete its saved progress. Raises StorageError."""
        finish(self._store, self.plan.key)

    def _operations(self, contents: Sequence[SegmentContent], created: int) -> Iterator[Operation]:
        plan, stream = self.plan, self._stream
        # Where a restore may have lost this stream with the same segments, the first write begins a generation (P4).
        generation = "" if stream.continues_a_copy else stream.container.generation
        record = plan.record.with_changes(generations=(Generation(generation, 0),))
        yield PutEntry(STREAMS, plan.key, record.checked(plan.key), NOT_EXISTS)
        yield CreateSegment(self._stream.writers, (AttributeUpdate(self._mark, UpdateKind.NONE, 1),))
        for segment, content in zip(plan.segments, contents, strict=True):
            yield from _attached(segment, content, created)
        yield from recording(plan.key, plan.recorded)


def _attached(segment: SegmentSource, content: SegmentContent, created: int) -> Iterator[Operation]:
    """The operations that create a segment from the imported data."""
    name, index = segment.name, index_segment_name(segment.name)
    yield from changes.creations([name])
    if content.begins:
        yield StartSegment(name, content.begins)
    if content.extents:
        records = Payload(content.records) if isinstance(content.records, bytes) else content.records
        count = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, content.events)
        yield Append(index, records, None, (), created)
        yield Append(name, content.extents, None, (count,) if segment.events else (), created)
    if segment.start > content.begins:
        yield TruncateSegment(name, segment.start)
    if not segment.open:
        yield SealSegment(name)
        yield SealSegment(index)
