"""A stream by name, as far as it is read: whether it exists, and its state at one moment."""

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
    """A stream by name, whether it exists or not. Cheap to make; knows nothing that could get stale but positions.

    suggesting: whether StreamNotFound says if the scope is missing, and which names are similar, which takes a look at
    all containers.
    """

    def __init__(self, root: Root, scope: str, name: str, suggesting: bool = False) -> None:
        super().__init__(root, scope, name)
        self._suggesting = suggesting
        self._known = PositionCache()
        self._decoded: StreamRecord | None = None

    def snapshot(self, refresh: bool = True) -> Snapshot:
        """The stream as it is now; `refresh=False`: as it was when this process last looked. Raises StreamNotFound."""
        container = self.container
        state = container.refresh() if refresh else container.state
        record = self._record(state)
        if record is None:
            raise self._not_found()
        return Snapshot(self, record, state, self._known)

    def _not_found(self) -> StreamNotFound:
        """The error for a stream that does not exist, and of which maybe the scope does not either."""
        if not self._suggesting:
            return StreamNotFound(self.key)
        if not has_key(self.root, SCOPES, self.scope):
            return StreamNotFound(self.key, similar_keys(self.root, SCOPES, self.scope), without_scope=True)
        return StreamNotFound(self.key, similar_keys(self.root, STREAMS, self.key))

    def query(self, question: Callable[[Snapshot], T], refresh: bool = True) -> T:
        """What `question` finds in the stream as it is now; `refresh=False`: as it was when this process last looked.

        Asked again when what it reads was deleted meanwhile. Raises StreamNotFound.
        """
        while True:
            snapshot = self.snapshot(refresh)
            try:
                return question(snapshot)
            except (SegmentTruncated, SegmentNotFound):
                if self.snapshot().record == snapshot.record:
                    raise

    def exists(self) -> bool:
        """Whether the stream exists now, or did when this process last looked: then nothing is requested."""
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
