"""Streams of one segment whose writers know all that was written before: conditional appends, and a mark that is
changed by compare and set (Pravega: RevisionedStreamClientImpl).

A value is an event like any other, so every reader of the stream gets it. An append is conditional on the length of the
segment, which is decided in the log: of several writers that know the same revision, one succeeds. If the stream got
another segment since (it was scaled, or its container restored), the end of the earlier segment and the start of the
later one are the same place.

The mark is an entry of a table of the stream's container (X1), `<scope>/<stream>/mark`: the bytes of a cut. It is
deleted with the stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

import numpy as np

from chunkstore.decoding import InvalidData
from engine.errors import (
    BadKeyVersion,
    BadOffset,
    DataCorruption,
    SegmentNotFound,
    SegmentSealed,
    UnknownFormat,
    understanding,
)
from engine.state.operations import CheckEntry, Operation, Payload, PutEntry
from engine.state.state import NOT_EXISTS
from pravega_spark.errors import InvalidStreamCut, NotOneSegment, StreamSealed
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Comparison
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.model.revisions import Revision, revision_at
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.model.system_tables import MARKS, STREAMS
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend, append_operations

T = TypeVar("T")

_REMEDY = "Restore the root from a copy, or set the mark again: compare_and_set_mark(None, …) replaces it"


def decode_mark(data: bytes, key: str) -> StreamCut:
    """The cut that a stream's mark is at. Raises DataCorruption, which names the mark."""
    scope, _, stream = key.removesuffix("/mark").partition("/")
    with understanding(f"the mark of stream {scope}/{stream}", _REMEDY):
        cut = StreamCut.from_bytes(data)
        if (cut.scope, cut.stream) != (scope, stream) or len(cut.positions) != 1:
            raise InvalidData(f"it is {cut}, not one position of {scope}/{stream}")
        return cut


class _Mark(NamedTuple):
    """A mark as it is stored, and the versions of its entry and of the stream's record."""

    revision: Revision | None
    version: int
    record: int


class RevisionedStream:
    """One life of a stream: a later one of its name raises StreamRecreated. Raises NotOneSegment, StreamNotFound."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._key = f"{stream.key}/mark"
        record = stream.snapshot().record
        if record.sealed:
            raise StreamSealed(stream.key)
        self._id = record.id
        self.query(lambda _: None)

    def query(self, question: Callable[[Snapshot], T], refresh: bool = True) -> T:
        """The result of `question` for the stream now (see `Stream.query`)."""
        return self.stream.query(lambda snapshot: question(self.checked(snapshot)), refresh)

    def checked(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot. Raises StreamRecreated; NotOneSegment if the stream has several segments at a time."""
        snapshot.require(self._id)
        most = max(len(epoch.segments) for epoch in snapshot.record.epochs)
        if most > 1:
            raise NotOneSegment(self.stream.key, most)
        return snapshot

    # --- appends -----------------------------------------------------------------------------------------------

    def append_at(self, revision: Revision, framed: bytes) -> Revision | None:
        """Append an event, with its header, if the revision is the end of the stream. Returns the revision after it,
        None if it is not the end.

        Raises StreamSealed, StreamRecreated, InvalidStreamCut, PositionLost.
        """
        self.stream.begin_generation()
        refresh = self.stream.snapshot(refresh=False).record.current.segments[0].id != revision.segment_id
        while True:
            at = self.query(lambda snapshot: _end_at(snapshot, revision), refresh)
            if at is None:
                return None
            name = segment_name(self.stream.scope, self.stream.name, at.segment_id)
            try:
                self.stream.container.commit(append_operations(name, _part(at.segment_id, framed), at.offset))
                return at._replace(offset=at.offset + len(framed))
            except BadOffset:
                return None
            except (SegmentSealed, SegmentNotFound):
                refresh = True

    def append(self, framed: bytes) -> None:
        """Append an event, with its header, at the end. Raises StreamSealed, StreamRecreated."""
        routing = self.query(_open_routing, refresh=False)
        self.stream.write([_part(routing.segments[0].id, framed)], planned=routing)

    # --- head --------------------------------------------------------------------------------------------------

    def truncate(self, revision: Revision) -> None:
        """Truncate the stream at a revision, unless it is truncated there already. Raises InvalidStreamCut,
        StreamSealed."""
        cut = revision.cut
        if self.query(lambda snapshot: _is_truncated(snapshot, cut)):
            return
        try:
            self.stream.truncate(cut)
        except InvalidStreamCut:  # unless another process has truncated further meanwhile
            if not self.query(lambda snapshot: _is_truncated(snapshot, cut)):
                raise

    # --- mark --------------------------------------------------------------------------------------------------

    def mark(self) -> Revision | None:
        """The mark, None if it is not set."""
        return self.query(self._stored).revision

    def compare_and_set_mark(self, expected: Revision | None, new: Revision | None) -> bool:
        """Set the mark if it is the expected one; None: that it is not set, or damaged. Raises InvalidStreamCut."""
        while True:
            stored = self.query(lambda snapshot: self._to_replace(snapshot, new, expected is None))
            if stored.revision != (expected and expected._replace(event_at_offset=0)):
                return False
            operations: list[Operation] = [
                CheckEntry(STREAMS, self.stream.key, stored.record),
                PutEntry(MARKS, self._key, self._encoded(new), stored.version),
            ]
            with suppress(BadKeyVersion):  # another process set it, or changed the stream
                self.stream.container.commit(operations)
                return True

    def _stored(self, snapshot: Snapshot, damaged: bool = False) -> _Mark:
        """The stored mark. damaged: one that cannot be decoded counts as none."""
        entry = self.stream.container.entries(MARKS, [self._key], snapshot.state)[self._key]
        if entry is None or entry.value is None:
            return _Mark(None, NOT_EXISTS, snapshot.record.version)
        try:
            mark = revision_at(decode_mark(entry.value, self._key))
        except UnknownFormat:
            raise
        except DataCorruption:
            if not damaged:
                raise
            mark = None
        return _Mark(mark, entry.version, snapshot.record.version)

    def _to_replace(self, snapshot: Snapshot, new: Revision | None, damaged: bool) -> _Mark:
        """The stored mark, after a check that the new one is a position of the stream."""
        if new is not None:
            snapshot.check(new.cut)
        return self._stored(snapshot, damaged)

    def _encoded(self, revision: Revision | None) -> bytes | None:
        if revision is None:
            return None
        what = f"the mark of stream {self.stream.key}"
        return readable(what, revision.cut, StreamCut.to_bytes, lambda written: decode_mark(written, self._key))


def _part(segment: int, framed: bytes) -> SegmentAppend:
    records = sparse_records(np.array([len(framed)], np.int64), int(time.time() * 1000))
    return SegmentAppend(segment, Payload(framed), records, 1)


def _open_routing(snapshot: Snapshot) -> Routing:
    """The present routing. Raises StreamSealed."""
    if snapshot.record.sealed:
        raise StreamSealed(snapshot.stream.key)
    return snapshot.record.routing


def _end_at(snapshot: Snapshot, revision: Revision) -> Revision | None:
    """The place in the open segment for an append at a revision; None if the revision is known not to be the end."""
    _open_routing(snapshot)
    stream, current, cut = snapshot.stream, snapshot.record.current.segments[0].id, revision.cut
    if revision.segment_id == current and (cut.scope, cut.stream) == (stream.scope, stream.name):
        return revision._replace(event_at_offset=0)
    start = StreamCut(stream.scope, stream.name, {current: 0})
    if any(low != high for low, high in snapshot.ranges(cut, start).values()):
        return None
    return revision_at(start)


def _is_truncated(snapshot: Snapshot, cut: StreamCut) -> bool:
    """Whether the head of the stream is at a cut or behind it. Raises InvalidStreamCut."""
    snapshot.check(cut)
    history, head = snapshot.record.history, snapshot.record.head_positions()
    return bool(history.gone(cut.positions)) or history.compare(head, cut.positions) is Comparison.EQUAL_OR_AFTER
