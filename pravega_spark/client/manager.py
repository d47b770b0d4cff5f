"""The entrance to the client: scopes and streams of a root, writers, and reading.

The methods that the PyPI package `pravega` has are called and behave as there, so that a program moves by changing its
import and its URI. Nothing is kept here about streams: every call looks at the root.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from engine.root import Root
from pravega_spark.client.bytes import ByteStream
from pravega_spark.client.group import StreamCuts, StreamReaderGroup, StreamReaderGroupConfig
from pravega_spark.client.reader import Event, read_events, tail_events
from pravega_spark.client.transaction import StreamTransactionWriter
from pravega_spark.client.writer import EventWriter
from pravega_spark.errors import ScopeNotFound
from pravega_spark.streams import retention
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.epochs import EpochRecord, SegmentRecord
from pravega_spark.streams.records import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.retention import Retained
from pravega_spark.streams.snapshot import Snapshot


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


class StreamManager:
    """Streams below a root. Close it, or use it in a with statement: that flushes writers and takes readers offline.

    Args:
        root: a folder or any URL that fsspec knows; made if it is new.
        wal: another root for the write-ahead log. storage_options: for fsspec.

    Every method that names a stream raises StreamNotFound when there is none, and ValueError for names that no scope or
    stream can have. All of them raise StorageError when the storage fails.
    """

    def __init__(self, root: str | os.PathLike[str], *, wal: str | None = None, **storage_options: Any) -> None:
        self._begin(Root.open(os.fspath(root), storage_options, wal=wal))

    @classmethod
    def over(cls, root: Root) -> StreamManager:
        """A manager of a root that is open. Closing it closes the root."""
        manager = cls.__new__(cls)
        manager._begin(root)
        return manager

    def _begin(self, root: Root) -> None:
        self._root = root
        self._catalog = Catalog(root)
        self._writers: weakref.WeakSet[EventWriter | ByteStream | StreamReaderGroup] = weakref.WeakSet()

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

    # --- scopes ------------------------------------------------------------------------------------------------

    def create_scope(self, scope_name: str) -> bool:
        """Make a scope. False when it exists already."""
        return self._catalog.create_scope(scope_name)

    def delete_scope(self, scope_name: str) -> bool:
        """Delete an empty scope. False when it does not exist. Raises ScopeNotEmpty."""
        return self._catalog.delete_scope(scope_name)

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
