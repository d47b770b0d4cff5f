"""The long-term storage of a Pravega as one container that can only be read.

Implements `ReadableContainer`: it presents what is in the storage as stream records, segments with extents, and table
entries, so readers do not distinguish it from a container of this project. Every change raises RootReadOnly.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from chunkstore import ObjectInfo, StorageError
from chunkstore.boot_clock import boot_time
from chunkstore.errors import fact_of
from chunkstore.pravega.archive import ArchivedSegment, open_archive
from chunkstore.pravega.archived_segments import SegmentTruncated as HeadPassed
from chunkstore.pravega.source import SALVAGE
from engine.clocks import StorageClock
from engine.containers.container import Loss
from engine.errors import BadOffset, SegmentNotFound, SegmentTruncated
from engine.logs.frames import START
from engine.settings import Settings
from engine.state.index_records import RECORD_SIZE
from engine.state.segment_map import SegmentMap
from engine.state.segments import Segment
from engine.state.state import EMPTY, State
from engine.state.tables import Entry
from engine.storage.cache import Cache
from engine.storage.lookups import Lookups
from engine.storage.object_reads import ObjectRange, Stores, fetch, plan, plan_extents
from engine.task_runner import TaskRunner
from pravega_spark.errors import ScopeNotFound, StreamNotFound
from pravega_spark.quantities import counted
from pravega_spark.streams.maintenance.recorded_cuts import RECORDED_SEGMENTS, contents, latest_attributes
from pravega_spark.streams.model.index import decode_records
from pravega_spark.streams.model.index_builder import index_events
from pravega_spark.streams.model.names import index_segment_name, indexed_segment_name, parse_segment_name, segment_name
from pravega_spark.streams.model.stream_record import StreamRecord
from pravega_spark.streams.model.system_tables import SCOPES, STREAMS, TRANSACTIONS
from pravega_spark.streams.pravega_lts.read_only import RootReadOnly
from pravega_spark.streams.pravega_lts.records import is_open, stream_record, transaction_record
from pravega_spark.streams.pravega_lts.segment_scan import SegmentScan, Sound, Tail, segment_of
from pravega_spark.streams.pravega_lts.streams import OWN, PravegaStream, PravegaStreams
from pravega_spark.streams.reading.rebuilt_index import CountedSegment, IndexCache, RebuiltIndex, key_of
from pravega_spark.streams.scopes import ScopeRecord

logger = logging.getLogger(__name__)

_UNMERGED = "it was not merged into the stream before the server was stopped, or no metadata records it"


class Recovered(NamedTuple):
    """Bytes [start, end) of a segment that are read although no metadata records them. stream: "scope/stream"."""

    stream: str
    segment: str
    start: int
    end: int
    reason: str

    @property
    def fact(self) -> str:
        """What is read, without the names."""
        return f"bytes {self.start} to {self.end} are read: {self.reason}"

    def __str__(self) -> str:
        return f"stream {self.stream}: {self.segment!r}: {self.fact}"


class _LazyEntry(Entry):
    """An entry whose value is decoded on access."""

    content: Callable[[], bytes]

    @property
    def value(self) -> bytes:
        return self.content()


class PravegaContainer:
    """The streams in a long-term storage, as a container that never changes.

    Methods raise ArchiveDamaged if what they read is damaged, and RootReadOnly for every change.

    salvage: damaged data is left out instead. A segment is read up to where its bytes and events are sound, which is
    determined on first access. What is lost is logged, and listed in `losses`.

    unrecorded: whole events are read that a killed server left in objects and did not record in its metadata; they are
    logged, and listed in `recovered`. Without it they are left out, which is logged and listed in `losses`.

    byte_streams: streams, as "scope/stream", whose bytes are known not to be events. instead: what errors advise that
    salvages.
    """

    def __init__(
        self,
        stores: Stores,
        salvage: bool = False,
        unrecorded: bool = False,
        byte_streams: Collection[str] = (),
        instead: str = SALVAGE,
    ) -> None:
        self.stores = stores
        self.number = 0
        self.settings = Settings(maintenance=False, threaded=False)
        self.clock = boot_time
        self.storage_clock = StorageClock(stores.chunks, time.time, boot_time)
        self.background = TaskRunner("archive", 0, boot_time)
        self.cache = Cache(self.settings.cache_bytes)
        self.lookups = Lookups(stores, 0, self.cache)
        self.streams = PravegaStreams(open_archive(stores.chunks, salvage=salvage, instead=instead), salvage=salvage)
        self.losses: list[Loss] = []
        self.recovered: list[Recovered] = []
        self.archive = self.streams.archive
        self.salvage = salvage
        self.unrecorded = unrecorded
        self._byte_streams = frozenset(byte_streams)
        self._where = stores.chunks.root
        self._cache = IndexCache()
        self._indexes: dict[str, bytes] = {}
        self._segments: dict[str, Segment | None] = {}
        self._streams: dict[str, PravegaStream] = {}
        names: dict[str, list[Any] | Segment] = {name: [name] for name in self.archive.segments()}
        self._state = EMPTY._replace(segments=SegmentMap(names, lambda fields: self.info(fields[0])))

    # --- what it has -------------------------------------------------------------------------------------------

    generation = ""
    head = START
    offline = False
    failures: Mapping[str, str] = MappingProxyType({})

    @property
    def state(self) -> State:
        return self._state

    def refresh(self) -> State:
        return self._state

    def look(self, latency: float) -> State:
        return self._state

    def due_in(self, latency: float) -> float:
        return latency

    def due(self, checkpoints: Sequence[ObjectInfo]) -> dict[str, bool]:
        return {}

    # --- tables ------------------------------------------------------------------------------------------------

    def entry(self, table: str, key: str) -> Entry | None:
        return self.entries(table, [key])[key]

    def entries(self, table: str, keys: Collection[str], state: State | None = None) -> dict[str, Entry | None]:
        return {key: self._entry(table, key) for key in keys}

    def scan_entries(self, table: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        for key in self._keys(table):
            if key.startswith(prefix):
                entry = _LazyEntry(None, 0)
                entry.content = functools.partial(self._value, table, key)
                yield key, entry

    def range_entries(
        self, table: str, start: str = "", end: str | None = None, state: State | None = None, *, whole: bool = True
    ) -> Iterator[tuple[str, Entry]]:
        for key, entry in sorted(self.scan_entries(table), key=lambda found: found[0]):
            if key >= start and (end is None or key < end):
                yield key, entry

    def _keys(self, table: str) -> Iterator[str]:
        scopes = [scope for scope in self.streams.scopes() if not scope.startswith(OWN)]
        if table == SCOPES:
            yield from scopes
        elif table == STREAMS:
            for scope in scopes:
                yield from (f"{scope}/{name}" for name in self.streams.streams(scope) if not name.startswith(OWN))
        elif table == TRANSACTIONS:
            for stream in list(self._keys(STREAMS)):
                for transaction in filter(is_open, self.stream(stream).transactions):
                    yield f"{stream}/{transaction.id.hex}"

    def _entry(self, table: str, key: str) -> Entry | None:
        if table == SCOPES:
            known = key in self.streams.scopes() and not key.startswith(OWN)
        elif table == STREAMS:
            known = self._has_stream(key)
        elif table == TRANSACTIONS:
            known = self._has_stream(key.rpartition("/")[0]) and key in set(self._keys(TRANSACTIONS))
        else:
            known = False
        return Entry(self._value(table, key), 0) if known else None

    def _value(self, table: str, key: str) -> bytes:
        if table == SCOPES:
            return ScopeRecord(deleting=False).encode()
        if table == STREAMS:
            return self._record(key).encode()
        stream, _, number = key.rpartition("/")
        (found,) = (each for each in self.stream(stream).transactions if each.id.hex == number)
        known = self.stream(stream).records.transactions.get(found.id)
        since, until = (known.created, known.lease_expires) if known is not None else (0, 0)
        return transaction_record(self._record(stream), found, since, max(since, until))

    def _has_stream(self, key: str) -> bool:
        scope, _, name = key.partition("/")
        with suppress(ScopeNotFound):
            return not scope.startswith(OWN) and not name.startswith(OWN) and name in self.streams.streams(scope)
        return False

    def stream(self, key: str) -> PravegaStream:
        """The stream "scope/stream". Raises ScopeNotFound, StreamNotFound."""
        if key not in self._streams:
            scope, _, name = key.partition("/")
            self._streams[key] = self.streams.stream(scope, name)
        return self._streams[key]

    @functools.lru_cache(maxsize=256)  # noqa: B019 - it lives as long as the process reads the archive
    def _record(self, key: str) -> StreamRecord:
        return stream_record(self.stream(key))

    # --- segments ----------------------------------------------------------------------------------------------

    def info(self, segment: str) -> Segment:
        found = self.activated([segment])[segment]
        if found is None:
            raise SegmentNotFound(segment)
        return found

    def activated(self, segments: Collection[str], state: State | None = None) -> dict[str, Segment | None]:
        for name in segments:
            if name not in self._segments:
                self._segments[name] = self._found(name)
        return {name: self._segments[name] for name in segments}

    def attributes(self, segment: str, attributes: Collection[bytes] | None = None) -> dict[bytes, int]:
        """The stored attributes. Event counts are not recomputed."""
        found = self.archive.attributes(segment) if segment in self.archive.segments() else {}
        plain = {key.bytes: value for key, value in found.items()}
        return plain if attributes is None else {key: plain[key] for key in attributes if key in plain}

    known_attributes = attributes

    def _found(self, name: str) -> Segment | None:
        there, stream = self.archive.segments().get(name), self._stream_of(name)
        if stream is None:
            segment = self._recorded_part(there) if there is not None else None
            if segment is None:
                return self._index_of(name) or self._recorded(name)
        else:
            number = parse_segment_name(name).segment_id
            start, length = stream.bounds(number)
            chunks = self.archive.from_head(there, start).chunks if there is not None else ()
            sealed = there.sealed if there is not None else self.salvage
            segment = self._readable(stream, number, segment_of(name, start, length, sealed, chunks))
        return CountedSegment.of(segment, functools.partial(self._count, name))

    def _recorded_part(self, there: ArchivedSegment) -> Segment:
        """A segment of no stream, as the metadata has it. Raises ArchiveDamaged."""
        if there.problem is not None:
            raise there.problem
        return segment_of(there.name, there.start_offset, there.length, there.sealed, there.chunks)

    def _stream_of(self, name: str) -> PravegaStream | None:
        """The stream of a segment, by its name."""
        with suppress(ValueError, ScopeNotFound, StreamNotFound):
            found = parse_segment_name(name)
            stream = self.stream(f"{found.scope}/{found.stream}")
            return stream if found.segment_id in stream.segments else None
        return None

    def _readable(self, stream: PravegaStream, number: int, segment: Segment) -> Segment:
        """What is read of a segment. The rest of it is logged, by offsets."""
        name, known = segment.name, self.archive.segments().get(segment.name)
        key = f"{stream.scope}/{stream.name}"
        scan = SegmentScan(self.stores, self.archive, segment, stream.limit(number), key not in self._byte_streams)
        sound = scan.sound() if self.salvage and segment.length > segment.start_offset else Sound(segment.length)
        tail = scan.tail(sound.end) if sound.goes_on else None
        last, lose = sound.end, functools.partial(Loss, key, name)
        if tail is not None and self.unrecorded:
            if tail.end > last:
                self._recover(Recovered(key, name, min(last, tail.base), tail.end, _counted(tail)))
            segment, sound, last = segment._replace(extents=tail.extents), Sound(tail.end), tail.end
        elif tail is not None and tail.end > tail.base:
            sound = sound._replace(end=min(last, tail.base))
            reason = f"{_counted(tail)}; --unrecorded, or option 'unrecorded', reads them"
            self._lose(lose(sound.end, tail.end, reason, there=True))
            last = tail.end
        due = max(segment.length, known.due if known is not None else 0, tail.reach if tail is not None else 0)
        if due > last:
            reasons = (tail.problem if tail is not None else None, sound.problem, known.problem if known else None)
            told = next((fact_of(each) for each in reasons if each is not None), None)
            self._lose(lose(last, due, told or ("its end is missing" if known else "no container knows it")))
        for other, chunks in stream.unmerged(number):
            if not scan.is_merged(chunks, tail):
                end = chunks[-1].offset + chunks[-1].length
                self._lose(Loss(key, other, 0, end, _UNMERGED, there=True))
        if sound.records is not None:
            self._indexes[name] = sound.records
        return segment._replace(length=sound.end, storage_length=sound.end)

    def _lose(self, loss: Loss) -> None:
        logger.warning("%s: %s", self._where, loss)
        self.losses.append(loss)

    def _recover(self, found: Recovered) -> None:
        logger.warning("%s: %s", self._where, found)
        self.recovered.append(found)

    def _index_of(self, name: str) -> Segment | None:
        with suppress(ValueError):
            segment = indexed_segment_name(name)
            if segment in self.archive.segments() or self.archive.made_for(segment):
                return RebuiltIndex.of(
                    name,
                    self._index_key(segment),
                    functools.partial(self._known_index, segment),
                    functools.partial(self._made_index, segment),
                )
            if self._stream_of(segment) is not None:
                return RebuiltIndex.of(name, name, bytes, bytes)  # the segment has no objects
        return None

    def _recorded(self, name: str) -> Segment | None:
        """The segments in which streams of this project have their recorded cuts; None for another name, or without
        cuts."""
        key, separator, last = name.rpartition("/")
        place = RECORDED_SEGMENTS.index(last) if last in RECORDED_SEGMENTS else None
        if not separator or place is None or not self._has_stream(key) or not (cuts := self.stream(key).recorded):
            return None
        content = contents(cuts)[place]
        return RebuiltIndex.of(name, name, lambda: content, lambda: content, latest_attributes(*cuts[-1][:2]))

    def _index_key(self, name: str) -> str:
        segment = self.info(name)
        chunks = ((str(extent.source), offset) for offset, extent in segment.extents)
        objects = ((chunk, offset, *(self.archive.object(chunk) or (-1, 0.0))) for chunk, offset in chunks)
        return key_of(self._where, name, (segment.start_offset, segment.length), objects)

    def _known_index(self, name: str) -> bytes | None:
        """The index of a segment, if this or another process has built it."""
        if name not in self._indexes:
            found = self._cache.load(self._index_key(name))
            if found is None:
                return None
            self._indexes[name] = found
        return self._indexes[name]

    def _made_index(self, name: str) -> bytes:
        """The index of a segment, built if needed. Raises ArchiveDamaged if its events are not sound."""
        known = self._known_index(name)
        if known is None:
            segment = self.info(name)
            read = functools.partial(self.read, name)
            known, end, _, problem = index_events(read, segment.start_offset, segment.length)
            if isinstance(problem, StorageError):
                raise problem
            if problem is not None and end > segment.start_offset:
                raise self.archive.damaged(f"{name!r}: {problem}")
            self._indexes[name] = known
            self._cache.save(self._index_key(name), known)
        return known

    def _count(self, name: str) -> int:
        """Number of events; 0 if it does not begin with an event, as in a byte stream."""
        index = self.info(index_segment_name(name))
        assert isinstance(index, RebuiltIndex)
        last = decode_records(index.content(max(index.length - RECORD_SIZE, 0), index.length))
        return int(last[-1, 1]) if len(last) else 0

    # --- reading -----------------------------------------------------------------------------------------------

    def plan(self, segment: str, start: int, end: int) -> list[ObjectRange]:
        return self.plan_of(self.info(segment), start, end)

    def plan_of(self, segment: Segment, start: int, end: int) -> list[ObjectRange]:
        if isinstance(segment, RebuiltIndex):
            raise ValueError(f"{segment.name!r} lies in no object")
        return plan(segment, 0, start, end, lambda _, low, high: plan_extents(segment.extents, 0, low, high))

    def read(self, segment: str, start: int, end: int) -> bytes:
        found = self.info(segment)
        if isinstance(found, RebuiltIndex):
            return found.content(start, end)
        if start < found.start_offset:
            raise SegmentTruncated(segment, start, found.start_offset)
        if not start <= end <= found.length:
            raise BadOffset(segment, f"a range within {found.start_offset} to {found.length}", end)
        known = self.archive.segments().get(segment)
        if self.salvage or known is None or end > known.length or known.problem is not None:  # whatever records say
            return b"".join(fetch(self.stores, self.plan_of(found, start, end)))
        try:
            return self.archive.read(segment, start, end)
        except HeadPassed as error:
            raise SegmentTruncated(segment, start, error.start_offset) from error

    def lost(self, prefix: str = "") -> Sequence[Loss]:
        """All losses of streams' segments, which are read for this."""
        for key in list(self._keys(STREAMS)):
            if f"{key}/".startswith(prefix):
                stream = self.stream(key)
                self.activated([segment_name(stream.scope, stream.name, number) for number in stream.segments])
        return [loss for loss in self.losses if loss.segment.startswith(prefix)]

    # --- changes -----------------------------------------------------------------------------------------------

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise RootReadOnly(self._where)

    commit = create_segment = append = seal = merge = truncate = delete = update_attributes = put_entries = _refuse
    flush = checkpoint = truncate_log = collect_garbage = expire_transients = repair = fail = _refuse
    submit = submit_append = check_room = _refuse

    def idle_transients(self) -> dict[str, Segment]:
        return {}

    def wait_for_upkeep(self) -> None:
        """Nothing runs in the background."""

    def close(self) -> None:
        """There is nothing to finish."""

    def __enter__(self) -> PravegaContainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _counted(tail: Tail) -> str:
    """What a tail has, in words."""
    what = "bytes" if tail.events is None else counted(tail.events, "whole event")
    return f"{what} that the server wrote, and did not record before it was stopped"
