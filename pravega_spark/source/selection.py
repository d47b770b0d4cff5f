"""The streams of a read: those that option `stream` names, or all streams of the scope that match `stream_pattern`.

However many streams there are, each poll refreshes each container once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from operator import is_
from typing import TYPE_CHECKING, Any

from pravega_spark.errors import StreamNotFound
from pravega_spark.source.opening import Access, current_snapshot, ensure_scope, open_root_of, open_stream
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    from engine.state.state import State


class Selection:
    """The streams of a read, by name. May be pickled, without the streams that are open."""

    def __init__(self, options: SourceOptions, access: Access) -> None:
        self._options = options
        self._access = access
        self._streams: dict[str, Stream] = {}
        self._scanned: list[State] = []
        self._parsed: dict[str, SourceOptions] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_streams": {}, "_scanned": []}

    def options_of(self, name: str) -> SourceOptions:
        """The options of a read of one of them alone."""
        if name not in self._parsed:
            self._parsed[name] = self._options.of_stream(name) if self._options.is_multi_stream else self._options
        return self._parsed[name]

    def chooses(self, name: str) -> bool:
        """Whether the options choose a stream of this name."""
        pattern = self._options.stream_pattern
        return name in self._options.streams if pattern is None else re.fullmatch(pattern, name) is not None

    def current(self) -> Mapping[str, Stream]:
        """The streams that exist now. The first call creates named streams, if that is allowed.

        Raises RootNotFound, ScopeNotFound, and in the first call StreamNotFound for a name.
        """
        if self._options.stream_pattern is not None:
            self._scan_for_matches()
            return self._streams
        if not self._streams:
            opened = {name: open_stream(self.options_of(name), self._access) for name in self._options.streams}
            self._streams = opened
        for container in {id(stream.container): stream.container for stream in self._streams.values()}.values():
            container.refresh()
        return self._streams

    def _scan_for_matches(self) -> None:
        root = open_root_of(self._options, self._access)
        catalog, scope = Catalog(root), self._options.scope
        if not self._scanned:
            ensure_scope(self._options, self._access)
        found = [root.container(number).refresh() for number in range(root.config.containers)]
        if len(found) == len(self._scanned) and all(map(is_, found, self._scanned)):
            return  # no container has changed, so the tables need not be read
        names = sorted(filter(self.chooses, catalog.streams(scope, refresh=False)))
        self._streams = {name: self.stream(name) for name in names}
        self._scanned = found

    def stream(self, name: str) -> Stream:
        """A stream by name, whether it exists or not. Requests nothing."""
        known = self._streams.get(name)
        return known or Catalog(open_root_of(self._options, self._access)).stream(self._options.scope, name)

    def snapshots(self) -> Iterator[tuple[SourceOptions, Snapshot]]:
        """A snapshot of each stream as it is now, with the options of a read of it alone. Raises ValueError if none
        matches."""
        streams = self.current()
        if not streams:
            raise ValueError(
                f"Option 'stream_pattern': no stream of scope {self._options.scope!r} matches "
                f"{self._options.stream_pattern!r}. The whole name has to match, as with 'prefix.*'."
            )
        for name, stream in streams.items():
            try:
                yield self.options_of(name), stream.snapshot(refresh=False)
            except StreamNotFound:  # it was deleted, which this process has learned by now
                if self._options.stream_pattern is None:
                    yield self.options_of(name), current_snapshot(self.options_of(name), self._access)
