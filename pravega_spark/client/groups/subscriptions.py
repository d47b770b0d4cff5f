"""Subscriptions: the cuts at which a reader group holds back retention of its streams (PDP-47).

Retention truncates a stream no further than the subscribed cut. The cut only moves forward, except on a reset, and
never beyond the group's recorded position or, with manual retention, the cut that the user released.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
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
    """The subscriptions of a group. `clock`: seconds, for automatic releases."""

    def __init__(self, root: Root, scope: str, group: str, clock: Callable[[], float]) -> None:
        self._root = root
        self._scope = scope
        self._group = group
        self._clock = clock
        self._released = clock()

    def begin(self, state: GroupState, *, restart: bool = False) -> None:
        """Subscribe at the group's positions. Existing subscriptions are kept, unless `restart` is set."""
        for cut in state.cuts():
            subscribe(self._stream(cut), self._name(cut), cut, restart=restart)

    def end(self, state: GroupState) -> None:
        """Remove all subscriptions."""
        for cut in state.cuts():
            unsubscribe(self._stream(cut), self._name(cut))

    def end_everywhere(self, but: Collection[str] = ()) -> None:
        """The same for a group whose streams are unknown, except in streams that it reads."""
        for container in (self._root.container(number) for number in range(self._root.config.containers)):
            container.refresh()
            for key, _ in list(container.scan_entries(SUBSCRIBERS)):
                scope, stream, name = key.split("/", 2)
                mine = self._group if scope == self._scope else f"{self._scope}/{self._group}"
                if name == mine and f"{scope}/{stream}" not in but:
                    unsubscribe(Stream(self._root, scope, stream), name)

    def release(self, cut: StreamCut) -> None:
        """Release one stream up to a cut. Raises InvalidStreamCut for a cut before the last one, NotSubscribed."""
        release(self._stream(cut), self._name(cut), cut)

    def release_read(self, state: GroupState) -> None:
        """Release all streams up to the recorded positions."""
        self._release_all(state.cuts())

    def _release_all(self, cuts: Iterable[StreamCut]) -> None:
        for cut in cuts:
            with suppress(InvalidStreamCut):  # another reader has released more meanwhile
                self.release(cut)

    def release_checkpoint(self, state: GroupState) -> None:
        """With automatic retention, release what lies before the last checkpoint."""
        if state.retention == "automatic":
            self._release_all(state.restart_cuts())

    def release_if_due(self, state: GroupState) -> None:
        """With automatic retention, release the recorded positions periodically; with automatic checkpoints, what lies
        before the last one, as the group may be reset to it."""
        if state.retention == "automatic" and self._clock() - self._released >= RELEASE_INTERVAL:
            self._released = self._clock()
            self._release_all(state.cuts() if state.interval is None else state.restart_cuts())

    def _stream(self, cut: StreamCut) -> Stream:
        return Stream(self._root, cut.scope, cut.stream)

    def _name(self, cut: StreamCut) -> str:
        """The group's subscriber name in a stream: with its scope if that differs from the stream's."""
        return self._group if cut.scope == self._scope else f"{self._scope}/{self._group}"
