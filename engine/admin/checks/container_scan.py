"""The scan of a container: its segments and tables, in memory and in LTS, and all objects that it names.

A scan reads one state of the container, so what other processes do meanwhile causes no contradiction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from chunkstore import ObjectNotFound
from chunkstore.decoding import InvalidData
from chunkstore.errors import fact_of
from chunkstore.metadata.garbage_queue import GarbageKind
from chunkstore.metadata.metadata_records import (
    ChunkRecord,
    IndexBlockRecord,
    RecordStatus,
    StoredSegmentRecord,
    decode,
)
from chunkstore.paths import container_folder
from engine.admin.batching import batches
from engine.admin.checks.chunk_lists import list_problems
from engine.admin.checks.findings import Problem, Severity
from engine.admin.checks.object_index import Expected, ObjectIndex, ObjectKind
from engine.admin.checks.reference_counts import segment_problems, state_problems
from engine.admin.checks.table_check import BATCH, REMEDY, table_problems
from engine.containers.container import Container
from engine.errors import DataCorruption
from engine.logs.log import frame_path
from engine.state.segment_record import decode_segment
from engine.state.segments import Extents, FrameRef, Segment, StoredRef
from engine.state.state import State
from engine.state.tables import ATTRIBUTE_KEY_LENGTH, ATTRIBUTES, METADATA, STORAGE
from engine.storage import recovery_points

TRIES = 5
"""The most recovery points that are scanned, if each is replaced before its scan is over."""

_ATTRIBUTE = 8  # bytes of an attribute's value


class ContainerScan(NamedTuple):
    """What was scanned. bytes: readable bytes of segments. cycle: the cycle of the last recovery point, 0 if there is
    none."""

    container: int
    sequence: int
    segments: int
    bytes: int
    chunks: int
    tables: int
    entries: int
    cycle: int


class ContainerScanner:
    """Scans a container in one of its states. Iterate over `problems` first, then read `scan`.

    final: a missing object is a problem, and makes `complete` false. Otherwise the state may be outdated, so
    ObjectNotFound is raised. recovery_point: how to call it in reports, if the state is that of a recovery point.
    """

    def __init__(
        self,
        container: Container,
        state: State,
        index: ObjectIndex,
        *,
        final: bool = False,
        recovery_point: str = "",
    ) -> None:
        self.complete = True
        self._container = container
        self._state = state
        self._index = index
        self._final = final
        self._recovery_point = recovery_point
        self._segments = self._chunks = self._entries = self._cycle = self._bytes = 0

    @property
    def scan(self) -> ContainerScan:
        """What was scanned so far."""
        return ContainerScan(
            self._container.number,
            self._state.sequence,
            self._segments,
            self._bytes,
            self._chunks,
            len(self._state.tables),
            self._entries,
            self._cycle,
        )

    def problems(self) -> Iterator[Problem]:
        """All problems. Raises ObjectNotFound unless `final`."""
        yield from state_problems(self._state)
        self._expect_extents()
        for name, table in self._state.tables.items():
            content = self._container.lookups.content(name, table)
            yield from self._guarded(name, table_problems(name, table, content, self._index))
            self._entries += table.layout.entries
        self._index.begin_stored()
        yield from self._active_problems()
        yield from self._guarded(METADATA, self._saved_problems())
        yield from self._guarded(ATTRIBUTES, self._attribute_problems())
        yield from self._guarded(STORAGE, self._stored_problems())
        if not self._recovery_point:
            self._expect_garbage()
            yield from self._balance_problems()
            yield from self._recovery_problems()

    def _guarded(self, name: str, problems: Iterator[Problem]) -> Iterator[Problem]:
        """The problems, up to the first part of the table `name` that cannot be read."""
        try:
            yield from problems
        except DataCorruption as error:
            self.complete = False
            yield Problem(name, fact_of(error), REMEDY)
        except ObjectNotFound as error:
            if not self._final:
                raise
            self.complete = False
            yield Problem(name, f"one of its objects is missing: {fact_of(error)}", REMEDY)

    # --- objects of the state --------------------------------------------------------------------------------------

    def _expect_extents(self) -> None:
        for segment in self._state.segments.values():
            self._index.expect(
                self._of_extents(segment.name, segment.extents, segment.start_offset, ObjectKind.ATTACHED)
            )
        for name, table in self._state.tables.items():
            self._index.expect(self._of_extents(name, table.entries, table.layout.start, ObjectKind.TABLE))
            self._index.expect(self._of_extents(name, table.pages, table.layout.index_start, ObjectKind.TABLE))

    def _of_extents(self, owner: str, extents: Extents, start: int, kind: ObjectKind) -> Iterator[Expected]:
        for offset, (source, position, length, _) in extents:
            live = offset + length - max(offset, start)
            if isinstance(source, FrameRef):
                path = frame_path(self._container.number, source.address)
                yield self._expected(path, ObjectKind.FRAME, owner, source.start + position + length, live)
            elif isinstance(source, str):
                yield self._expected(source, kind, owner, position + length, live)

    def _expected(
        self, path: str, kind: ObjectKind, owner: str, length: int, live: int, required: bool = True
    ) -> Expected:
        if self._recovery_point:
            kind, owner, live = ObjectKind.RECOVERY, self._recovery_point, 0
        return Expected(kind is ObjectKind.FRAME, path, self._container.number, kind, owner, length, live, required)

    def _expect_garbage(self) -> None:
        kinds = (GarbageKind.CHUNK, GarbageKind.NEW_CHUNK)
        self._index.expect(
            self._expected(name, ObjectKind.GARBAGE, "garbage", 0, 0, required=False)
            for name, garbage in self._state.garbage.items()
            if garbage.kind in kinds
        )

    def _balance_problems(self) -> Iterator[Problem]:
        """Checks that each chunk belongs to one segment, and that all chunks together have the segments' bytes."""
        number = self._container.number
        for path, owner, other in self._index.clashes(number):
            yield Problem(path, f"the chunk belongs to {owner!r} and to {other!r}", REMEDY)
        if self.complete and self._index.live(number) != self._bytes:
            yield Problem(
                f"{container_folder(number)}/",
                f"its segments have {self._bytes} bytes, but their objects have {self._index.live(number)}",
                REMEDY,
            )

    # --- segments --------------------------------------------------------------------------------------------------

    def _active_problems(self) -> Iterator[Problem]:
        """Checks the active segments, and adds what they need in LTS to the index."""
        for segment in self._state.segments.values():
            self._add(segment)
        for batch in batches(self._state.segments.values(), BATCH):
            names = [segment.name for segment in batch if segment.saved >= 0]
            yield from self._guarded(METADATA, self._unsaved_problems(names))

    def _unsaved_problems(self, names: Sequence[str]) -> Iterator[Problem]:
        for name, found in self._container.lookups.entries(self._state, METADATA, names).items() if names else ():
            if found is None:
                yield Problem(name, "it was saved in the table of segments, but is not there", REMEDY)

    def _saved_problems(self) -> Iterator[Problem]:
        """Compares the table of segments with the active ones, and adds what the others need in LTS to the index."""
        for name, entry in self._container.lookups.scan(self._state, METADATA):
            assert entry.value is not None
            try:
                saved = decode_segment(entry.value, entry.version, name)
            except DataCorruption as error:
                yield Problem(name, fact_of(error), REMEDY)
                continue
            for problem in self._record_problems(name, saved):
                yield Problem(name, problem, REMEDY)

    def _record_problems(self, name: str, saved: Segment) -> Iterator[str]:
        active = self._state.segments.get(name)
        if saved.name != name:
            yield f"its entry in the table of segments is for {saved.name!r}"
        if active is None:
            self._add(saved)
            yield from segment_problems(saved)
            if saved.length != saved.storage_length:
                yield f"it is not active, but its bytes {saved.storage_length} to {saved.length} are not in LTS"
        elif active.saved < 0:
            yield "it is in the table of segments, but was never saved there"
        elif name not in self._state.unsaved:
            yield from _differences(saved, active)

    def _add(self, segment: Segment) -> None:
        """Count a segment, and add what it needs in LTS to the index."""
        self._segments += 1
        self._bytes += segment.length - segment.start_offset
        if not self._recovery_point:
            self._index.name(self._container.number, segment.name)
        start = segment.start_offset
        if segment.storage:
            self._index.expect_stored(segment.storage, segment.name, segment.storage_length, start)
        for offset, extent in segment.extents:
            if isinstance(extent.source, StoredRef):
                name = extent.source.storage
                self._index.expect_stored(name, segment.name, extent.length, max(start - offset, 0))

    def _attribute_problems(self) -> Iterator[Problem]:
        for key, entry in self._container.lookups.scan(self._state, ATTRIBUTES):
            if len(key) != ATTRIBUTE_KEY_LENGTH or entry.value is None or len(entry.value) != _ATTRIBUTE:
                yield Problem(ATTRIBUTES, f"the entry of key {key!r} is not an attribute", REMEDY)

    # --- segments in LTS ----------------------------------------------------------------------------------------

    def _stored_problems(self) -> Iterator[Problem]:
        """Checks the records of segments and chunks in LTS."""
        for key, entry in self._container.lookups.scan(self._state, STORAGE):
            assert entry.value is not None
            try:
                record = decode(entry.value)
            except InvalidData as error:
                yield Problem(key, f"its record cannot be read: {fact_of(error)}", REMEDY)
                continue
            if record.key != key:
                yield Problem(key, f"it holds the record of {record.key!r}", REMEDY)
            elif isinstance(record, StoredSegmentRecord):
                yield from self._stored_segment_problems(record)
        yield from self._unreachable()
        for storage, owner in self._index.left_stored():
            yield Problem(owner, f"it has bytes in LTS, but there is no record of {storage!r}", REMEDY)

    def _stored_segment_problems(self, record: StoredSegmentRecord) -> Iterator[Problem]:
        expected = self._index.take_stored(record.name)
        active = bool(record.status & RecordStatus.ACTIVE)
        if expected is None:
            unknown = active and self.complete and record.name not in self._state.dropped
            size = record.length - record.start_offset
            if unknown:
                yield Problem(
                    record.name,
                    f"LTS has {size} bytes of a segment that its container does not know",
                    "no data is lost; the space stays in use",
                    Severity.WARNING,
                )
            yield from self._list_problems(record, record.name, ObjectKind.DELETED, record.length)
            return
        owner, length, start = expected
        if not active:
            yield Problem(owner, f"its segment in LTS, {record.name!r}, is deleted there", REMEDY)
        if record.length != length or record.start_offset > start:
            yield Problem(
                owner,
                f"its container counts bytes {start} to {length} in LTS, but the record of {record.name!r} has "
                f"{record.start_offset} to {record.length}",
                REMEDY,
            )
        yield from self._list_problems(record, owner, ObjectKind.CHUNK, start)

    def _list_problems(
        self, record: StoredSegmentRecord, owner: str, kind: ObjectKind, start: int
    ) -> Iterator[Problem]:
        """Checks the chunks of a segment in LTS, which is needed from `start` on."""
        self._index.see([key for _, key in record.blocks])
        for batch in batches(list_problems(self._container.lookups.records(self._state), record), BATCH):
            placed = [found for found in batch if not isinstance(found, str)]
            self._chunks += len(placed)
            self._index.see([place.chunk.key for place in placed])
            self._index.expect(
                self._expected(
                    place.chunk.name,
                    kind,
                    owner,
                    place.chunk.length,
                    max(place.end - max(place.start, start), 0),
                    required=kind is ObjectKind.CHUNK,
                )
                for place in placed
            )
            for found in batch:
                if isinstance(found, str):
                    yield Problem(owner, f"in LTS, {record.name!r}: {found}", REMEDY)

    def _unreachable(self) -> Iterator[Problem]:
        """Records of chunks and index blocks that are not reachable from a segment."""
        for batch in batches(self._container.lookups.scan(self._state, STORAGE), BATCH):
            for key, entry in batch:
                try:
                    record = decode(entry.value or b"")
                except InvalidData:
                    continue  # reported before
                if isinstance(record, ChunkRecord | IndexBlockRecord) and not self._index.was_seen(key):
                    what = "chunk" if isinstance(record, ChunkRecord) else "index block"
                    yield Problem(
                        key,
                        f"LTS has a record of this {what}, which is not reachable from any segment",
                        "if a list of chunks is broken, see there; otherwise no data is lost; the space stays in use",
                        Severity.WARNING,
                    )

    # --- the recovery point ----------------------------------------------------------------------------------------

    def _recovery_problems(self) -> Iterator[Problem]:
        """Checks that the recovery point of the last complete flush cycle exists and is consistent (F3)."""
        if self._state.cycle.recovery_point < 0:
            return
        path, final = recovery_points.folder(self._container.number), False
        for _ in range(TRIES):
            try:
                point = newest_recovery_point(self._container)
            except DataCorruption as error:
                yield Problem(path, fact_of(error), "run `container flush`, which makes a new one")
                return
            if point is None or point.state.cycle.sequence < self._state.cycle.recovery_point:
                found = "there is none" if point is None else f"the newest is that of cycle {point.number}"
                problem = f"the recovery point of the last complete flush cycle is missing: {found}"
                yield Problem(path, problem, "run `container flush`, which makes a new one")
                return
            final = final and point.number == self._cycle
            self._cycle = point.number
            try:
                yield from self._point_problems(point, final)
                return
            except ObjectNotFound:
                newest = newest_recovery_point(self._container)
                final = newest is not None and newest.number == point.number  # its objects must exist then
                self._index.forget_recovery_point(self._container.number)
        problem = f"it was replaced during each of {TRIES} scans, so none of them was complete"
        yield Problem(path, problem, "verify again when less is written", Severity.WARNING)

    def _point_problems(self, point: recovery_points.RecoveryPoint, final: bool) -> Iterator[Problem]:
        name = f"the recovery point of flush cycle {point.number}"
        scanner = ContainerScanner(self._container, point.state, self._index, final=final, recovery_point=name)
        for problem in scanner.problems():
            yield problem._replace(problem=f"in {name}: {problem.problem}")


def newest_recovery_point(container: Container) -> recovery_points.RecoveryPoint | None:
    """The newest recovery point of a container, even if it is replaced meanwhile. Raises DataCorruption."""
    while True:
        with suppress(ObjectNotFound):  # a newer one has taken its place
            return recovery_points.newest(container.stores.chunks, container.number)


def _differences(saved: Segment, active: Segment) -> Iterator[str]:
    """The differences between an active segment and its entry in the table of segments."""
    for field in ("id", "length", "start_offset", "sealed", "storage", "storage_length", "stored_start", "spilled"):
        if getattr(saved, field) != getattr(active, field):
            yield f"its {field} is {getattr(active, field)!r}, but {getattr(saved, field)!r} in the table of segments"
    for attribute, value in saved.attributes.items():
        if active.attributes.get(attribute) != value:
            yield f"its attribute {attribute.hex()} differs from that in the table of segments"
