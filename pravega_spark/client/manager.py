"""The entrance to the client: scopes and streams of a root, writers, and reading.

The methods that the PyPI package `pravega` has are called and behave as there, so that a program moves by changing its
import and its URI. Nothing is kept here about streams: every call looks at the root.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine.root import Root
from pravega_spark.client.bytes import ByteStream
from pravega_spark.client.event_file import EventFile
from pravega_spark.client.group import StreamReaderGroup
from pravega_spark.client.group_config import StreamCuts, StreamReaderGroupConfig
from pravega_spark.client.large import LargeEvent
from pravega_spark.client.reader import Event, read_events, tail_events
from pravega_spark.client.transaction import StreamTransactionWriter
from pravega_spark.client.writer import EventWriter
from pravega_spark.errors import ScopeNotEmpty, ScopeNotFound
from pravega_spark.streams import retention, uploads
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.epochs import EpochRecord, SegmentRecord
from pravega_spark.streams.html_table import html_table
from pravega_spark.streams.names import segment_epoch, segment_number
from pravega_spark.streams.pointers import EventPointer
from pravega_spark.streams.records import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.retention import Retained
from pravega_spark.streams.snapshot import Snapshot
from pravega_spark.streams.timeline import Timeline, timeline

logger = logging.getLogger(__name__)

_CELL = 8  # positions of a cut in one cell of a table


class StreamInfo(NamedTuple):
    """A stream at one moment.

    head, tail: the cuts before the first and behind the last event. size: bytes that can be read, with the events'
    headers. events: how many can be read. segments: those that take events now. epochs: the
    generations of segments since the head.
    """

    scope: str
    stream: str
    head: StreamCut
    tail: StreamCut
    size: int
    events: int
    segments: tuple[SegmentRecord, ...]
    epochs: tuple[EpochRecord, ...]
    sealed: bool

    def _repr_html_(self) -> str:
        name, (first, last) = f"{self.scope}/{self.stream}", (self.epochs[0].epoch, self.epochs[-1].epoch)
        facts = {
            "events": f"{self.events:,}",
            "bytes": f"{self.size:,}",
            "epochs": f"{first} to {last}" if first != last else first,
            "sealed": "yes" if self.sealed else "no",
            "head": _in_short(self.head),
            "tail": _in_short(self.tail),
        }
        segments = [(f"{segment_number(s.id)}.{segment_epoch(s.id)}", *s) for s in self.segments]
        taking = "newest segments, all sealed" if self.sealed else "segments that take events"
        return html_table(f"stream {name}", ("", "now"), facts.items()) + html_table(
            f"{taking}: {len(segments)}", ("segment", "segment id", "keys above", "keys up to"), segments
        )


class StreamManager:
    """Streams below a root. Close it, or use it in a with statement: that flushes writers and takes readers offline.

    Args:
        root: a folder or any URL that fsspec knows; made if it is new. `controller_uri` is the original's name for it.
        wal: another root for the write-ahead log. storage_options: for fsspec.
        auth_enabled, tls_enabled, disable_cert_verification: as in the original, for a broker, which is not there. They
            change nothing: who may do what, and how it travels, is up to the storage.

    Every method that names a stream raises StreamNotFound when there is none, and ValueError for names that no scope or
    stream can have. All of them raise StorageError when the storage fails.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "",
        auth_enabled: bool = False,
        tls_enabled: bool = False,
        disable_cert_verification: bool = False,
        *,
        controller_uri: str = "",
        wal: str | None = None,
        **storage_options: Any,
    ) -> None:
        place = os.fspath(root) or controller_uri
        if not place or (root and controller_uri):
            raise TypeError("StreamManager takes one root of the streams: a folder, or a URL such as s3://bucket/streams")
        if auth_enabled or tls_enabled or disable_cert_verification:
            logger.warning("auth_enabled, tls_enabled and disable_cert_verification change nothing: see StreamManager")
        self._begin(Root.open(place, storage_options, wal=wal))

    @classmethod
    def over(cls, root: Root) -> StreamManager:
        """A manager of a root that is open. Closing it closes the root."""
        manager = cls.__new__(cls)
        manager._begin(root)
        return manager

    def _begin(self, root: Root) -> None:
        self._root = root
        self._catalog = Catalog(root)
        self._writers: weakref.WeakSet[EventWriter | LargeEvent | ByteStream | StreamReaderGroup | EventFile]
        self._writers = weakref.WeakSet()

    def close(self) -> None:
        """Close the writers and readers that were made here, then the root. Raises the first failure of one of them."""
        failures = []
        for writer in list(self._writers):
            try:
                writer.close()
            except Exception as error:
                failures.append(error)
        self._root.close()
        if failures:
            raise failures[0]

    def __enter__(self) -> StreamManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"StreamManager({self._root!r})"

    def to_str(self) -> str:
        """The root as text for people, without credentials."""
        return repr(self._root)

    # --- scopes ------------------------------------------------------------------------------------------------

    def create_scope(self, scope_name: str) -> bool:
        """Make a scope. False when it exists already."""
        return self._catalog.create_scope(scope_name)

    def delete_scope(self, scope_name: str) -> bool:
        """Delete an empty scope. False when it does not exist. Raises ScopeNotEmpty, also if it has reader groups, as
        the original does (Pravega: PravegaTablesScope.deleteScope)."""
        groups = StreamReaderGroup.names(self._root, scope_name)
        if groups:
            raise ScopeNotEmpty(scope_name, groups)
        return self._catalog.delete_scope(scope_name)

    def list_reader_groups(self, scope_name: str) -> list[str]:
        """The names of a scope's reader groups, sorted; none when there is no such scope."""
        return StreamReaderGroup.names(self._root, scope_name)

    def list_scope(self) -> list[str]:
        """The names of all scopes, sorted."""
        return self._catalog.scopes()

    # --- streams -----------------------------------------------------------------------------------------------

    def create_stream(self, scope_name: str, stream_name: str, initial_segments: int = 1) -> bool:
        """Make a stream with a fixed number of segments. False when it exists already. Raises ScopeNotFound."""
        return self.create_stream_with_policy(
            scope_name, stream_name, ScalingPolicy.fixed_scaling_policy(initial_segments)
        )

    def create_stream_with_policy(
        self,
        scope_name: str,
        stream_name: str,
        scaling_policy: ScalingPolicy | None = None,
        retention_policy: RetentionPolicy | None = None,
        tags: Sequence[str] | None = None,
    ) -> bool:
        """Make a stream; by default with one segment, without retention. False when it exists already, whatever its
        policies are. Raises ScopeNotFound.
        """
        return self._catalog.create_stream(scope_name, stream_name, scaling_policy, retention_policy, tuple(tags or ()))

    def update_stream_with_policy(
        self,
        scope_name: str,
        stream_name: str,
        scaling_policy: ScalingPolicy | None = None,
        retention_policy: RetentionPolicy | None = None,
        tags: Sequence[str] | None = None,
    ) -> bool:
        """Give a stream these policies and tags instead of those that it has; what is left out is as for a new stream.

        True. Its segments stay as they are. Raises StreamSealed.
        """
        self._catalog.stream(scope_name, stream_name).update(scaling_policy, retention_policy, tuple(tags or ()))
        return True

    def scale_stream(
        self,
        scope_name: str,
        stream_name: str,
        segments_to_seal: Sequence[int],
        new_key_ranges: Sequence[tuple[float, float]],
    ) -> bool:
        """Seal open segments, by their ids, and make new ones with these ranges (low, high] of the same keys.

        True. Readers and writers go on, and the events of each key keep their order. Raises InvalidScale, StreamSealed.
        """
        self._catalog.stream(scope_name, stream_name).scale(segments_to_seal, new_key_ranges)
        return True

    def get_stream_tags(self, scope_name: str, stream_name: str) -> list[str]:
        """The tags of the stream."""
        return list(self._catalog.stream(scope_name, stream_name).snapshot().record.tags)

    def list_stream(self, scope_name: str) -> list[str]:
        """The names of a scope's streams, sorted; none when there is no such scope."""
        return sorted(self._catalog.streams(scope_name))

    def seal_stream(self, scope_name: str, stream_name: str) -> bool:
        """Let the stream take no more events. True, also when it was sealed before."""
        self._catalog.stream(scope_name, stream_name).seal()
        return True

    def delete_stream(self, scope_name: str, stream_name: str) -> bool:
        """Delete a sealed stream and its data. Raises StreamNotSealed."""
        self._catalog.stream(scope_name, stream_name).delete()
        return True

    def stream_info(self, scope_name: str, stream_name: str) -> StreamInfo:
        """What there is to know about a stream now."""
        return self._catalog.stream(scope_name, stream_name).look(_described)

    def stream_infos(self, scope_name: str) -> Iterator[StreamInfo]:
        """The same of each stream of a scope, in the order of their names, looked at together."""
        return self._catalog.look(scope_name, _described)

    def stream_timeline(
        self, scope_name: str, stream_name: str, cuts: Mapping[str, StreamCut] | None = None
    ) -> Timeline:
        """When the stream's segments began and ended, and where its head, its tail and `cuts`, by any names, lie among
        them: what `draw_segments` draws. Raises InvalidStreamCut.
        """
        return self._catalog.stream(scope_name, stream_name).look(lambda snapshot: timeline(snapshot, cuts or {}))

    def truncate_stream(self, scope_name: str, stream_name: str, cut: StreamCut) -> None:
        """Make `cut` the head of the stream; what lies before it is gone. Raises InvalidStreamCut, StreamSealed."""
        self._catalog.stream(scope_name, stream_name).truncate(cut)

    def retain(
        self, scope_name: str, stream_name: str, period: float | None = None, dry_run: bool = False
    ) -> Retained:
        """Let the stream's retention policy truncate it, if its last cut was recorded `period` seconds (by default half
        an hour) ago. dry_run: only tell what would go.
        """
        stream = self._catalog.stream(scope_name, stream_name)
        return retention.retain(stream, period=retention.PERIOD if period is None else period, dry_run=dry_run)

    # --- stream cuts -------------------------------------------------------------------------------------------

    def next_stream_cut(self, scope_name: str, stream_name: str, cut: StreamCut, approx_bytes: int) -> StreamCut:
        """A cut about `approx_bytes` behind `cut`, or the tail. It may lie some 16 KiB further in each segment.

        Raises InvalidStreamCut, and TruncatedData when the stream begins behind `cut`.
        """
        if approx_bytes <= 0:
            raise ValueError(f"approx_bytes must be at least 1, not {approx_bytes}")
        return self._catalog.stream(scope_name, stream_name).look(
            lambda snapshot: _next_cut(snapshot, cut, approx_bytes)
        )

    def stream_cut_at(self, scope_name: str, stream_name: str, timestamp: int) -> StreamCut:
        """The cut before the first events that were written at `timestamp` (ms since the epoch) or later.

        Some events that were written shortly before may lie behind it too.
        """
        return self._catalog.stream(scope_name, stream_name).look(lambda snapshot: snapshot.cut_at(timestamp))

    # --- events ------------------------------------------------------------------------------------------------

    def create_writer(self, scope_name: str, stream_name: str, max_inflight_events: int = 0) -> EventWriter:
        """A writer of events to a stream. `max_inflight_events` has no meaning here. Raises StreamSealed."""
        writer = EventWriter(self._catalog.stream(scope_name, stream_name))
        self._writers.add(writer)
        return writer

    def begin_event(
        self, scope_name: str, stream_name: str, routing_key: str | None = None, *, name: str | None = None
    ) -> LargeEvent:
        """Begin an event of up to 1 GiB, which is written like a file and is in the stream when it is committed.

        name: under it an upload that was cut off can be gone on with by any process, from `tell` on, until nothing was
        written to it for the root's `transient_idle_seconds`; the process that wrote it before hears EventTaken. A
        name that was committed is refused for ever. Raises EventExists, StreamSealed; ValueError for another routing
        key than the upload was begun with.
        """
        event = LargeEvent(uploads.begin(self._catalog.stream(scope_name, stream_name), routing_key, name))
        self._writers.add(event)
        return event

    def create_transaction_writer(
        self, scope_name: str, stream_name: str, writer_id: int = 0
    ) -> StreamTransactionWriter:
        """What begins transactions on a stream. `writer_id` has no meaning here."""
        return StreamTransactionWriter(self._catalog.stream(scope_name, stream_name))

    def create_byte_stream(self, scope_name: str, stream_name: str) -> ByteStream:
        """The bytes of a stream that has one segment and no events. Raises ByteStreamError for others."""
        opened = ByteStream(self._catalog.stream(scope_name, stream_name))
        self._writers.add(opened)
        return opened

    # --- reader groups -----------------------------------------------------------------------------------------

    def create_reader_group(
        self,
        reader_group_name: str,
        scope_name: str,
        stream_name: str,
        read_from_tail: bool = False,
        stream_cut: StreamCut | StreamCuts | None = None,
    ) -> StreamReaderGroup:
        """A reader group for a stream, from its head, its tail or a cut. One that exists goes on where it is.

        Raises ScopeNotFound, InvalidStreamCut, StreamError for a group of that name that reads another stream.
        """
        cut = stream_cut.stream_cut if isinstance(stream_cut, StreamCuts) else stream_cut
        start = [cut] if cut is not None else []
        config = StreamReaderGroupConfig(read_from_tail, scope_name, stream_name, start=start)
        return self.create_reader_group_with_config(reader_group_name, scope_name, config)

    def create_reader_group_with_config(
        self, reader_group_name: str, scope_name: str, rg_config: StreamReaderGroupConfig
    ) -> StreamReaderGroup:
        """The same for the streams of a configuration, which may lie in another scope than the group."""
        if not self._catalog.scope_exists(scope_name):
            raise ScopeNotFound(scope_name)
        group = StreamReaderGroup.create(self._root, scope_name, reader_group_name, rg_config)
        self._writers.add(group)
        return group

    def delete_reader_group(self, reader_group_name: str, scope_name: str) -> None:
        """Delete a reader group; its readers are offline then. Raises GroupNotFound."""
        StreamReaderGroup.delete(self._root, scope_name, reader_group_name)

    # --- reading -----------------------------------------------------------------------------------------------

    def read_events(
        self, scope_name: str, stream_name: str, start: StreamCut | None = None, end: StreamCut | None = None
    ) -> Iterator[Event]:
        """The events between two cuts, by default all there are now: segment after segment, in order within each.

        A segment comes after all of those that it succeeds, so the events of each key come in their order. The range is
        looked up at once. Raises InvalidStreamCut, TruncatedData (while reading too).
        """
        return read_events(self._catalog.stream(scope_name, stream_name), start, end)

    def tail(
        self,
        scope_name: str,
        stream_name: str,
        start: StreamCut | None = None,
        poll_interval: float = 0.2,
        stop: threading.Event | Callable[[], bool] | None = None,
    ) -> Iterator[Event]:
        """Follow a stream from `start`, by default from its tail at this moment.

        poll_interval: seconds between two looks at a stream that has nothing new; such a look reads one object once.
        stop: ends the iteration at the next look, when it is set or returns true. Without it, the iteration ends when
        the stream is sealed and everything was read. Raises as `read_events`.
        """
        return tail_events(self._catalog.stream(scope_name, stream_name), start, poll_interval, stop)

    def open_event(self, pointer: EventPointer | str) -> EventFile:
        """The payload of an event as a binary file that is read piece by piece; see EventFile. For events of any size.

        pointer: as readers, writers and the Spark source give it, or its text. Raises NoSuchEvent when the event was
        truncated, InvalidEventPointer when no event lies there, ValueError for a text that is no pointer.
        """
        opened = EventFile.open(self._root, pointer)
        self._writers.add(opened)
        return opened


def _in_short(cut: StreamCut) -> str:
    positions = [f"{segment_number(n)}.{segment_epoch(n)} at {offset}" for n, offset in cut.positions.items()]
    return ", ".join(positions[:_CELL]) + (f", and {len(positions) - _CELL} more" if len(positions) > _CELL else "")


def _described(snapshot: Snapshot) -> StreamInfo:
    return StreamInfo(
        snapshot.stream.scope,
        snapshot.stream.name,
        snapshot.head_cut(),
        snapshot.tail_cut(),
        snapshot.size(),
        snapshot.events(),
        snapshot.record.current.segments,
        snapshot.record.epochs,
        snapshot.record.sealed,
    )


def _next_cut(snapshot: Snapshot, cut: StreamCut, approx_bytes: int) -> StreamCut:
    tail = snapshot.tail_cut()
    snapshot.available(snapshot.ranges(cut, tail))
    return snapshot.next_cut(cut, tail, max_bytes=approx_bytes)
