"""What a reader group holds back of the retention of its streams: its subscriptions (PDP-47).

A group subscribes to each of its streams with a cut, before which retention may truncate it. The cut only moves
forward, but for a reset, and never beyond what the group has recorded or, with manual retention, what it was told.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from engine.root import Root
from pravega_spark.client.groups.state import GroupState
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.streams.maintenance.subscribers import release, subscribe, unsubscribe
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.system_tables import SUBSCRIBERS
from pravega_spark.streams.stream import Stream

RELEASE_INTERVAL = 30.0
"""Seconds between two releases of a group with automatic retention (Pravega: automaticCheckpointIntervalMillis)."""


class Subscriptions:
    """The subscriptions of a group. `clock`: seconds, by which automatic releases are due."""

    def __init__(self, root: Root, scope: str, group: str, clock: Callable[[], float]) -> None:
        self._root = root
        self._scope = scope
        self._group = group
        self._clock = clock
        self._released = clock()

    def begin(self, state: GroupState, *, anew: bool = False) -> None:
        """Subscribe with what the group has read; goes on with what is there already, unless it is to begin `anew`."""
        for cut in state.cuts():
            subscribe(self._stream(cut), self._name(cut), cut, anew=anew)

    def end(self, state: GroupState) -> None:
        """Hold back nothing any more."""
        for cut in state.cuts():
            unsubscribe(self._stream(cut), self._name(cut))

    def end_everywhere(self) -> None:
        """The same for a group of which nobody knows the streams."""
        for container in (self._root.container(number) for number in range(self._root.config.containers)):
            container.refresh()
            for key, _ in list(container.scan_entries(SUBSCRIBERS)):
                scope, stream, name = key.split("/", 2)
                if name == (self._group if scope == self._scope else f"{self._scope}/{self._group}"):
                    unsubscribe(Stream(self._root, scope, stream), name)

    def release(self, cut: StreamCut) -> None:
        """Let one stream go up to a cut. Raises InvalidStreamCut for one that lies before the last, NotSubscribed."""
        release(self._stream(cut), self._name(cut), cut)

    def release_read(self, state: GroupState) -> None:
        """Let all streams go up to what the group has recorded."""
        for cut in state.cuts():
            with suppress(InvalidStreamCut):  # another reader has released more meanwhile
                self.release(cut)

    def release_if_due(self, state: GroupState) -> None:
        """With automatic retention, release from time to time what the group has recorded."""
        if state.retention == "automatic" and self._clock() - self._released >= RELEASE_INTERVAL:
            self._released = self._clock()
            self.release_read(state)

    def _stream(self, cut: StreamCut) -> Stream:
        return Stream(self._root, cut.scope, cut.stream)

    def _name(self, cut: StreamCut) -> str:
        """What the group is called among the subscribers of a stream: with its scope where that is another one."""
        return self._group if cut.scope == self._scope else f"{self._scope}/{self._group}"
