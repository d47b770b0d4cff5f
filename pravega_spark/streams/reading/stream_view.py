"""A stream by name, for reading: whether it exists, and its state at one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engine.errors import SegmentNotFound, SegmentTruncated
from engine.root import Root
from engine.state.state import State
from pravega_spark.errors import StreamNotFound
from pravega_spark.streams.model.stream_record import StreamRecord
from pravega_spark.streams.model.system_tables import SCOPES, STREAMS
from pravega_spark.streams.reading.indexed_segments import PositionCache
from pravega_spark.streams.reading.location import StreamLocation
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.suggestions import has_key, similar_keys

T = TypeVar("T")


class StreamView(StreamLocation):
    """A stream by name, whether it exists or not. Cheap to create; caches only its decoded record and index
    positions.

    suggesting: StreamNotFound says whether the scope is missing, and suggests similar names, which reads all
    containers.
    """

    def __init__(self, root: Root, scope: str, name: str, suggesting: bool = False) -> None:
        super().__init__(root, scope, name)
        self._suggesting = suggesting
        self._known = PositionCache()
        self._decoded: StreamRecord | None = None

    def snapshot(self, refresh: bool = True) -> Snapshot:
        """The stream now; `refresh=False`: by the state known to this process. Raises StreamNotFound."""
        container = self.container
        state = container.refresh() if refresh else container.state
        record = self._record(state)
        if record is None:
            raise self._not_found()
        return Snapshot(self, record, state, self._known)

    def _not_found(self) -> StreamNotFound:
        """The error for a stream that does not exist, and whose scope may not exist either."""
        read_only = self.root.read_only
        if not self._suggesting:
            return StreamNotFound(self.key, read_only=read_only)
        if not has_key(self.root, SCOPES, self.scope):
            similar = similar_keys(self.root, SCOPES, self.scope)
            return StreamNotFound(self.key, similar, without_scope=True, read_only=read_only)
        return StreamNotFound(self.key, similar_keys(self.root, STREAMS, self.key), read_only=read_only)

    def query(self, question: Callable[[Snapshot], T], refresh: bool = True) -> T:
        """The result of `question` for the stream now; `refresh=False`: by the state known to this process.

        Repeated if data that it reads was deleted meanwhile. Raises StreamNotFound.
        """
        while True:
            snapshot = self.snapshot(refresh)
            try:
                return question(snapshot)
            except (SegmentTruncated, SegmentNotFound):
                if self.snapshot().record == snapshot.record:
                    raise

    def exists(self) -> bool:
        """Whether the stream exists now. True without a request if this process knows it."""
        container = self.container
        return self._record(container.state) is not None or self._record(container.refresh()) is not None

    def _record(self, state: State) -> StreamRecord | None:
        entry = self.container.entries(STREAMS, [self.key], state)[self.key]
        if entry is None or not entry.value:
            return None
        known = self._decoded
        if known is None or known.version != entry.version:  # no two entries ever have the same version
            known = self._decoded = StreamRecord.decode(entry.value, entry.version, self.key)
        return known
