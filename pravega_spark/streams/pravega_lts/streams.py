"""The streams in the long-term storage of a Pravega: their epochs, head, tail and segments.

A stream has the segments of its epochs from its truncation on, in the order of their ids, so that each key's events
are in order. Uncommitted transactions and deleted data are not part of it. If the controller's tables are missing,
segments' names are used, and `unknown` lists what they do not contain. Missing data raises ArchiveDamaged when it is
read.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

from chunkstore.decoding import decoding
from chunkstore.errors import fact_of
from chunkstore.paths import CONTAINERS
from chunkstore.pravega.archive import Archive, ArchivedSegment
from chunkstore.pravega.archived_segments import ArchivedChunk
from chunkstore.pravega.controller_records import ControllerEpoch, StreamState, TransactionStatus
from chunkstore.pravega.controller_tables import ControllerTables, Ids, StreamRecords, TableRecords
from chunkstore.pravega.reader_groups import GroupPositions
from chunkstore.pravega.source import ArchiveDamaged
from pravega_spark.errors import ScopeNotFound, StreamNotFound
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Comparison, EpochRecord, Epochs, StreamSegmentRecord
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.model.key_value_table import KeyValueTableEntry, Version
from pravega_spark.streams.model.names import container_of, parse_segment_name, segment_name
from pravega_spark.streams.reading.suggestions import similar_names

Value = TypeVar("Value")

_HEADER = struct.Struct(">ii")
_WINDOW = 4 << 20  # bytes that are read at once
_TRANSACTION = "#transaction."
_TRANSIENT = "#transient."
_TABLE = "_kvtable"
OWN = "_"
"""The prefix of the names of Pravega's own scopes and streams, which are not shown."""

_GROUP = "_RG"  # prefix of the stream with a reader group's state


class PravegaTransaction(NamedTuple):
    """An open transaction. segments: bytes in its flushed segments.

    status: UNKNOWN if the controller's table of it is missing.
    """

    id: uuid.UUID
    status: TransactionStatus
    segments: dict[str, int]


class RecordedCut(NamedTuple):
    """A cut recorded by retention: time (ms), bytes of the stream before it, and positions."""

    time: int
    size: int
    positions: dict[int, int]


class PravegaStreams:
    """The scopes, streams and key-value tables of a storage. Names that begin with `_` are Pravega's own.

    `unknown`: information that the controller's tables do not contain, in words. salvage: a damaged table of the
    controller counts as missing, and is reported; streams may have missing or damaged segments, see PravegaStream.
    All methods raise ArchiveDamaged, and what the store raises.
    """

    def __init__(self, archive: Archive, *, salvage: bool = False) -> None:
        self.archive = archive
        self._salvage = salvage
        self._damages: list[str] = []
        self._tables = ControllerTables(archive)
        known = self._salvaged(self._tables.scopes)
        self._scopes: dict[str, uuid.UUID] = known or {}
        self._all_scopes = known is not None and known.whole
        self._named: dict[str, dict[str, list[str]]] = {}
        for name in archive.segments():
            self._add_named(name)
        self._not_there = (*self._containers(), *self._unknown())

    @property
    def unknown(self) -> tuple[str, ...]:
        return (*self._not_there, *dict.fromkeys(self._damages))

    def _salvaged(self, read: Callable[[], Value]) -> Value | None:
        """The result of `read`; None if the data is damaged and is to be skipped."""
        try:
            return read()
        except ArchiveDamaged as error:
            if not self._salvage:
                raise
            self._damages.append(fact_of(error))
            return None

    def scopes(self) -> list[str]:
        """The scopes."""
        return sorted(self._scopes.keys() | (self._named.keys() if not self._all_scopes else ()))

    def streams(self, scope: str) -> list[str]:
        """The streams of a scope. Raises ScopeNotFound."""
        known = self._ids(scope, self._tables.streams)
        return sorted({*known, *(self._names(scope) if not known.whole else ())})

    def stream(self, scope: str, name: str) -> PravegaStream:
        """A stream. Raises ScopeNotFound, StreamNotFound."""
        known = self._ids(scope, self._tables.streams)
        number = known.get(name)
        if number is None and (known.whole or name not in self._names(scope)):
            key = f"{scope}/{name}"
            similar = similar_names((f"{scope}/{each}" for each in self.streams(scope)), key)
            raise StreamNotFound(key, similar, read_only=True)
        number = number if number is not None else self._tables.stream_id(scope, name)
        if number is not None:
            records = self._stream_records(scope, name, number)
        else:
            records = StreamRecords(scope, name, unknown=[f"scope {scope!r}: which streams it has is not known"])
        return PravegaStream(self.archive, records, self._named.get(scope, {}).get(name, []), self._salvage)

    def _stream_records(self, scope: str, name: str, number: uuid.UUID) -> StreamRecords:
        try:
            return self._tables.stream(scope, name, number)
        except ArchiveDamaged as error:
            if not self._salvage:
                raise
            return StreamRecords(scope, name, unknown=[fact_of(error)])

    def key_value_tables(self, scope: str) -> list[str]:
        """The key-value tables of a scope. Raises ScopeNotFound."""
        known = self._ids(scope, self._tables.key_value_tables)
        named = self._named.get(scope, {}) if not known.whole else ()
        return sorted({*known, *(name.removesuffix(_TABLE) for name in named if name.endswith(_TABLE))})

    def key_value_table(self, scope: str, name: str) -> PravegaTable:
        """A key-value table. Raises ScopeNotFound, StreamNotFound."""
        if name not in self.key_value_tables(scope):
            raise StreamNotFound(f"{scope}/{name}", read_only=True)
        known = self._ids(scope, self._tables.key_value_tables)
        records = self._tables.key_value_table(scope, name, known[name]) if name in known else None
        return PravegaTable(self.archive, scope, name, records, self._named.get(scope, {}).get(name + _TABLE, []))

    def reader_groups(self, scope: str) -> list[str]:
        """The reader groups of a scope whose state was flushed. Raises ScopeNotFound."""
        self._ids(scope, self._tables.reader_groups)
        return sorted(name.removeprefix(_GROUP) for name in self._named.get(scope, {}) if name.startswith(_GROUP))

    def reader_group_cuts(self, scope: str, group: str) -> list[StreamCut]:
        """The last flushed position of a reader group: a cut of each of its streams.

        Events that were read since are read again. Raises ScopeNotFound, StreamNotFound for a group that does not
        exist, ArchiveDamaged.
        """
        if group not in self.reader_groups(scope):
            raise StreamNotFound(f"{scope}/{_GROUP}{group}", read_only=True)
        state, name = GroupPositions(), segment_name(scope, _GROUP + group, 0)
        segment = self.archive.segment(name)
        read = partial(self.archive.read, name)
        for offset, data in decoded(read, name, segment.start_offset, segment.length, segment.length):
            with decoding(partial(self._damaged_event, name, offset)):
                state.apply(data)
        cuts: dict[tuple[str, str], dict[int, int]] = {}
        for each, offset in state.segments.items():
            with decoding(lambda problem: self.archive.damaged(f"{name!r}: {problem}")):
                found = parse_segment_name(each)
            cuts.setdefault((found.scope, found.stream), {})[found.segment_id] = offset
        return [StreamCut(*key, positions) for key, positions in sorted(cuts.items())]

    def _damaged_event(self, name: str, offset: int, problem: object) -> ArchiveDamaged:
        return self.archive.damaged(f"{name!r}: the event at {offset}: {problem}")

    def _ids(self, scope: str, read: Callable[[str, uuid.UUID], Ids | None]) -> Ids:
        if scope not in self.scopes():
            raise ScopeNotFound(scope, similar_names(self.scopes(), scope), read_only=True)
        found = self._salvaged(lambda: read(scope, self._scopes[scope])) if scope in self._scopes else None
        return found if found is not None else Ids.unknown()

    def _names(self, scope: str) -> list[str]:
        return [name for name in self._named.get(scope, {}) if not name.endswith(_TABLE)]

    def _containers(self) -> Iterator[str]:
        """Missing information about containers. The container of a segment follows from its name: if it is in
        another one, containers are missing. Raises ArchiveDamaged."""
        count, there = self.archive.containers, set()
        for name, segment in self.archive.segments().items():
            there.add(segment.container)
            known = segment.container is not None and not name.startswith(CONTAINERS)
            if known and (due := container_of(name, count)) != segment.container:
                raise self.archive.damaged(
                    f"{name!r} is in container {segment.container}, but belongs into {due} of "
                    f"{count}: the metadata of those that follow them are missing"
                )
        for number in sorted(set(range(count)) - there):
            yield (
                f"'{CONTAINERS}metadata_{number}' is not there: it was never flushed, or is lost. Heads, seals and "
                f"attributes of the segments in container {number} are not known"
            )

    def _add_named(self, name: str) -> None:
        try:
            found = parse_segment_name(name.partition("#transaction.")[0])
        except ValueError:
            return  # of a table, or of a container
        self._named.setdefault(found.scope, {}).setdefault(found.stream, []).append(name)

    def _unknown(self) -> Iterator[str]:
        if not self._all_scopes:
            yield "the controller's table of scopes or its end is missing: other scopes are known by names of segments"
        for scope, number in self._scopes.items():
            if scope.startswith(OWN):
                continue
            known = self._salvaged(partial(self._tables.streams, scope, number))
            if known is None:
                yield f"the controller's table of the streams in scope {scope!r} is missing: names of segments are used"
            elif known.whole:
                for name in sorted(self._named.get(scope, {}).keys() - known.keys()):
                    if not name.startswith(OWN) and not name.endswith(_TABLE):
                        yield (
                            f"stream {scope}/{name} is not in the controller's table of streams: it was deleted, or "
                            "made after the table was flushed. Its segments are not read"
                        )
            elif not (known.is_empty and known.keys() >= set(self._names(scope))):
                yield (
                    f"the controller's table of the streams in scope {scope!r} was not flushed to its end, or lost it: "
                    "other streams are known by names of segments"
                )


class PravegaStream:
    """A stream. `records`: of the controller. Segments are given by their ids, offsets in bytes.

    salvage: missing or damaged segments are no error: they have their last known length. Readers find out what
    exists.
    """

    def __init__(self, archive: Archive, records: StreamRecords, names: list[str], salvage: bool = False) -> None:
        self._archive = archive
        self._salvage = salvage
        self.records = records
        self.scope, self.name = records.scope, records.stream
        self._stored = {parse_segment_name(name).segment_id: name for name in names if _TRANSACTION not in name}
        self._transactions = [name for name in names if _TRANSACTION in name]

    def damaged(self, problem: str) -> ArchiveDamaged:
        """The error of something in its records that cannot be right."""
        return self._archive.damaged(f"stream {self.scope}/{self.name}: {problem}")

    @property
    def unknown(self) -> tuple[str, ...]:
        """Missing information about the stream, in words."""
        more = []
        if self._epochs is None:
            more.append("its epochs are not known: segments are in the order of their ids, keys' ranges unknown")
        elif self._later:
            later = ", ".join(map(segment_label, self._later))
            more.append(f"segments {later} are of epochs that were not flushed: their keys' ranges are unknown")
        absent = [
            number
            for number in self.segments
            if number not in self._stored and number not in self._made and self.is_absent(number)
        ]
        if absent:
            labels = ", ".join(map(segment_label, absent))
            more.append(f"nothing of segments {labels} is there: they were empty, or nothing of them was flushed")
        if self._epochs is None and (left := sorted(self._made.difference(self.segments))):
            labels = ", ".join(map(segment_label, left))
            more.append(
                f"objects of segments {labels} are there, and no metadata has these segments: they were deleted, or "
                "made after it was flushed. They are not read"
            )
        return (*self.records.unknown, *more)

    @property
    def sealed(self) -> bool | None:
        """Whether it is sealed; None if unknown."""
        return None if self.records.state is None else self.records.state is StreamState.SEALED

    @property
    def epochs(self) -> tuple[ControllerEpoch, ...]:
        """Its epochs, from the first one on; empty if they are not known."""
        return self.records.epochs

    @property
    def history(self) -> Epochs | None:
        """Its segments from the head on, and their order; None if not all of its epochs are known.

        A scaling of which there is nothing but new segments without data was not finished, and does not count.
        """
        if self._later and (self._has_data(self._later) or any(map(self.is_sealed, self._current))):
            return None
        return self._epochs

    @property
    def _current(self) -> list[int]:
        """The segments of the newest known epoch."""
        return [segment.id for segment in self.epochs[-1].segments] if self.epochs else []

    def _has_data(self, numbers: Iterable[int]) -> bool:
        return any(
            number in self._made
            or (number in self._stored and ((found := self._segment(number)).due or found.problem is not None))
            for number in numbers
        )

    @cached_property
    def segments(self) -> tuple[int, ...]:
        """The segments from the head on, by their ids. Raises ArchiveDamaged if one of them is missing."""
        known = list(self._epochs.segments) if self._epochs is not None else self._all_ids
        for number in known if not self._salvage else ():
            self._segment(number)
        return (*known, *self._later) if self._epochs is not None else tuple(known)

    @cached_property
    def head(self) -> StreamCut:
        """Its head."""
        if self._epochs is not None:
            return self._cut({number: self._start(number, at) for number, at in self._truncated.items()})
        first = min((number >> 32 for number in self.segments), default=0)
        return self._cut({number: self._start(number, 0) for number in self.segments if number >> 32 == first})

    @cached_property
    def tail(self) -> StreamCut:
        """Its tail; without positions if it is sealed. If its epochs are not known: of its last segments."""
        if self.sealed:
            return self._cut({})
        if self._epochs is not None and not self._later:
            return self._cut({segment.id: self._length(segment.id) for segment in self.epochs[-1].segments})
        last = max((number >> 32 for number in self.segments), default=0)
        return self._cut({number: self._length(number) for number in self.segments if number >> 32 == last})

    @property
    def transactions(self) -> list[PravegaTransaction]:
        """The open transactions, whose events are not delivered."""
        found = {
            number: PravegaTransaction(number, record.status, {})
            for number, record in self.records.transactions.items()
        }
        for name in self._transactions:
            number = uuid.UUID(name.rpartition(_TRANSACTION)[2])
            entry = found.setdefault(number, PravegaTransaction(number, TransactionStatus.UNKNOWN, {}))
            entry.segments[name] = self._archive.segment(name).length
        return sorted(found.values())

    def unmerged(self, number: int) -> Iterator[tuple[str, tuple[ArchivedChunk, ...]]]:
        """What the metadata does not have merged into a segment, with its chunks: segments of committed transactions,
        and of large events."""
        parent = segment_name(self.scope, self.name, number)
        for name in sorted({*self._transactions, *self._archive.made_for(parent)}):
            if not name.startswith((parent + _TRANSACTION, parent + _TRANSIENT)):
                continue
            is_due = _TRANSIENT in name or self._is_committed(name)
            if is_due and (chunks := self._archive.continued(name, 0, lambda _: True)):
                yield name, chunks

    def _is_committed(self, name: str) -> bool:
        known = self.records.transactions.get(uuid.UUID(name.rpartition(_TRANSACTION)[2]))
        return known is not None and known.status is TransactionStatus.COMMITTED

    @cached_property
    def recorded(self) -> tuple[RecordedCut, ...]:
        """The cuts recorded by retention that are not before the head, in the order of their times and sizes; none
        if not all epochs are known."""
        return tuple(self._recorded(self.history)) if self.history is not None else ()

    def _recorded(self, history: Epochs) -> Iterator[RecordedCut]:
        head, size = self.head.positions, 0
        for cut in sorted(self.records.retention):
            there = bool(cut.cut) and history.segments.keys() >= cut.cut.keys() and history.problem(cut.cut) is None
            if there and history.compare(cut.cut, head) is Comparison.EQUAL_OR_AFTER and cut.size >= size:
                size = cut.size
                yield RecordedCut(cut.recorded, cut.size, dict(cut.cut))

    def is_sealed(self, number: int) -> bool:
        """Whether a segment is sealed, as far as its container knows."""
        if self._salvage and number not in self._stored:
            return number in self.records.sealed_sizes
        return self._segment(number).sealed

    def is_absent(self, number: int) -> bool:
        """Whether the metadata has nothing of a segment, and nothing of it can be lost: no record says that it had
        data, or its objects have all of it."""
        if number in self._stored:
            return False
        sealed, start = self.records.sealed_sizes.get(number, 0), self._truncated.get(number, 0)
        return not (sealed or start) or (bool(sealed) and self._reaches(number, sealed))

    def limit(self, number: int) -> int | None:
        """Where a segment ended when it was sealed; None if that is not known."""
        return self.records.sealed_sizes.get(number)

    def chunks(self, number: int) -> tuple[ArchivedChunk, ...]:
        """The chunks of a segment."""
        return self._segment(number).chunks

    def ranges(self) -> dict[int, tuple[int, int]]:
        """The live range of each segment, in the order of ids. Raises ArchiveDamaged."""
        return {number: self.bounds(number) for number in self.segments}

    def bounds(self, number: int) -> tuple[int, int]:
        """Start and end of a segment. Raises ArchiveDamaged."""
        length = self._length(number)
        start = self._start(number, self._truncated.get(number, 0))
        return start, max(start, length)

    @cached_property
    def _truncated(self) -> Mapping[int, int]:
        """The head positions in the controller's records."""
        if self.records.truncation is not None and self.records.truncation.cut:
            return self.records.truncation.cut
        return {segment.id: 0 for segment in self.epochs[0].segments} if self.epochs else {}

    @cached_property
    def _epochs(self) -> Epochs | None:
        if not self.epochs:
            return None
        records = [
            EpochRecord(
                epoch.epoch,
                epoch.created,
                tuple(sorted((StreamSegmentRecord(s.id, s.low, s.high) for s in epoch.segments), key=lambda s: s.low)),
                epoch.reference,
            )
            for epoch in self.epochs
        ]
        named = {segment.id for epoch in records for segment in epoch.segments}
        if strange := self._truncated.keys() - named:
            raise self._archive.damaged(
                f"stream {self.scope}/{self.name} is truncated in segment "
                f"{segment_label(min(strange))}, which no epoch of it has"
            )
        return Epochs(records, self._truncated)

    @cached_property
    def _later(self) -> list[int]:
        """Existing segments whose epochs were not flushed."""
        newest = self.epochs[-1].epoch if self.epochs else -1
        return [number for number in self._all_ids if self.epochs and number >> 32 > newest]

    @cached_property
    def _made(self) -> set[int]:
        """The segments of which objects are there without a record."""
        found = set()
        for name in self._archive.made_for(f"{self.scope}/{self.name}/"):
            with suppress(ValueError):  # of a transaction, or a large event
                found.add(parse_segment_name(name).segment_id)
        return found

    @cached_property
    def _all_ids(self) -> list[int]:
        """The segments that containers know, and later ones of which objects are there: earlier ones were deleted."""
        newest = max(self._stored, default=-1)
        return sorted({*self._stored, *(number for number in self._made if number > newest)})

    def _segment(self, number: int) -> ArchivedSegment:
        if number in self._stored:
            segment = self._archive.segment(self._stored[number])
            return self._archive.from_head(segment, self._truncated.get(number, 0))
        name = segment_name(self.scope, self.name, number)
        if not self.is_absent(number):
            raise self._archive.damaged(f"segment {name!r} is missing: the stream has it, and no container knows it")
        return ArchivedSegment.absent(name)

    def _start(self, number: int, least: int) -> int:
        """The start of a segment: `least` by the records, later if a further truncation was not flushed."""
        if self._salvage:
            found = self._archive.segments().get(self._stored.get(number, ""))
            return max(found.start_offset if found is not None and found.head_recorded else 0, least)
        segment = self._segment(number)
        untold = segment.container is None and self.records.truncation is None
        if segment.problem is None and segment.start_offset > least and not (segment.head_recorded or untold):
            raise self._archive.damaged(
                f"{segment.name!r}: the bytes [{least}, {segment.start_offset}) are missing: "
                f"its first chunk is {segment.chunks[0].name!r}, and no record says that it is truncated there"
            )
        if segment.problem is None and least > segment.length and not self._goes_on(number, least):
            raise self._archive.damaged(
                f"{segment.name!r} ends at {segment.length}, and the stream is truncated at "
                f"{least} of it: its end is missing"
            )
        return max(segment.start_offset, least)

    def _goes_on(self, number: int, least: int) -> bool:
        """Whether objects have what is behind an offset: then the metadata alone is behind the truncation."""
        return bool(self._chain(number, least))

    def _reaches(self, number: int, end: int) -> bool:
        """Whether objects have all up to an offset: then the metadata alone is behind the sealing."""
        chain = self._chain(number, self._truncated.get(number, 0))
        return bool(chain) and chain[-1].offset + chain[-1].length == end

    def _chain(self, number: int, start: int) -> tuple[ArchivedChunk, ...]:
        """The chunks of a segment as far as its objects reach."""
        name = segment_name(self.scope, self.name, number)
        return self._archive.continued(name, start, lambda _: True)

    def _length(self, number: int) -> int:
        """The length of a segment. Raises ArchiveDamaged if it is sealed, and had another length then."""
        if self._salvage:
            found = self._archive.segments().get(self._stored.get(number, ""))
            known = self.records.sealed_sizes.get(number, 0)
            return max(found.length if found is not None else 0, known, self._truncated.get(number, 0))
        segment = self._segment(number)
        if segment.problem is not None:
            raise segment.problem
        sealed = self.records.sealed_sizes.get(number, segment.length)
        if sealed != segment.length and not self._reaches(number, sealed):
            raise self._archive.damaged(
                f"{segment.name!r} has {segment.length} bytes, but had {sealed} when it was sealed"
            )
        return segment.length

    def _cut(self, positions: Mapping[int, int]) -> StreamCut:
        return StreamCut(self.scope, self.name, positions)


class PravegaTable:
    """A key-value table. `records`: of the controller, None if there are none."""

    def __init__(
        self, archive: Archive, scope: str, name: str, records: TableRecords | None, segments: list[str]
    ) -> None:
        self._archive = archive
        self.scope, self.name = scope, name
        self.records = records
        self._segments = sorted(segments)

    def entries(self) -> Iterator[KeyValueTableEntry]:
        """The live entries. If the lengths of keys are not known, the whole key is the primary key.

        Raises ArchiveDamaged, and what the store raises.
        """
        configuration = self.records.configuration if self.records is not None else None
        length = configuration.primary_key if configuration is not None and configuration.primary_key else None
        for name in self._names():
            partition = parse_segment_name(name).segment_id & 0xFFFFFFFF
            for key, entry in self._archive.table(name).items():
                cut = length if length is not None else len(key)
                yield KeyValueTableEntry(key[:cut], key[cut:], entry.value or b"", Version(partition, entry.version))

    def _names(self) -> list[str]:
        epoch = self.records.epoch if self.records is not None else None
        due = [segment_name(self.scope, self.name + _TABLE, s.id) for s in epoch.segments] if epoch is not None else []
        for name in due:
            if name not in self._segments:
                raise self._archive.damaged(f"{name!r} is missing: the key-value table has it")
        return due or self._segments


def decoded(
    read: Callable[[int, int], bytes], name: str, start: int, end: int, length: int
) -> Iterator[tuple[int, bytes]]:
    """The events that begin in [start, end) of a segment of `length` bytes, each with the offset of its header.

    Raises ArchiveDamaged for bytes that are not a whole event, and what `read` raises.
    """
    data, first = b"", start
    place = start
    while place < end:
        at = place - first
        if len(data) - at < HEADER_SIZE and first + len(data) < length:
            data, first = read(place, min(length, max(end, place + HEADER_SIZE), place + _WINDOW)), place
            continue
        if len(data) - at < HEADER_SIZE:
            raise ArchiveDamaged(f"{name!r}: the {length - place} bytes at its end, from {place} on, are no event")
        kind, size = _HEADER.unpack_from(data, at)
        behind = place + HEADER_SIZE + size
        if kind != 0 or size < 0 or behind > length:
            raise ArchiveDamaged(
                f"{name!r}: there is no event at offset {place}: type {kind}, {size} bytes of {length - place} there"
            )
        if behind > first + len(data):
            data, first = read(place, min(length, max(behind, min(end, place + _WINDOW)))), place
            continue
        yield place, bytes(data[at + HEADER_SIZE : at + HEADER_SIZE + size])
        place = behind
