"""The active segments of a state, by name: a persistent map that is built lazily from a checkpoint.

Segments stay as the checkpoint has them, as msgpack values, until their first use; most are never used. All versions of
the map share these values, and differ only in the changes since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import immutables

from engine.state.segments import Segment

Fields: TypeAlias = list[Any]
"""A segment as msgpack values."""


class SegmentMap(Mapping[str, Segment]):
    """Segments by name. packed: their values in a checkpoint. build: makes a segment from such values."""

    __slots__ = ("_base", "_build", "_changed", "_length")

    def __init__(
        self, packed: dict[str, Fields | Segment] | None = None, build: Callable[[Fields], Segment] | None = None
    ) -> None:
        self._base = packed if packed is not None else {}
        self._build = build
        self._changed: immutables.Map[str, Segment | None] = immutables.Map()
        self._length = len(self._base)

    def __getitem__(self, name: str) -> Segment:
        segment = self._changed.get(name, self)  # no key has the map itself for a value
        if segment is self:
            segment = self._built(name)
        if segment is None:
            raise KeyError(name)
        return segment  # type: ignore[return-value]

    def get(self, name: str, default: Any = None) -> Any:
        """The segment, or `default`."""
        try:
            return self[name]
        except KeyError:
            return default

    def _built(self, name: str) -> Segment | None:
        segment = self._base.get(name)
        if isinstance(segment, list):
            assert self._build is not None
            segment = self._base[name] = self._build(segment)  # the same value for every version
        return segment

    def __contains__(self, name: object) -> bool:
        found = self._changed.get(name, self)  # type: ignore[call-overload]
        return name in self._base if found is self else found is not None

    def __iter__(self) -> Iterator[str]:
        for name in list(self._base):
            if self._changed.get(name, self) is not None:
                yield name
        for name in self._changed:
            if name not in self._base:  # no name is noted as deleted but those of the checkpoint
                yield name

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SegmentMap) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def packed(self, pack: Callable[[Segment], Fields]) -> dict[str, Fields]:
        """All segments as msgpack values; those that were never used are returned as they were read."""
        packed: dict[str, Fields] = {}
        for name in self:
            segment = self._changed.get(name) or self._base[name]
            packed[name] = segment if isinstance(segment, list) else pack(segment)
        return packed

    def mutate(self) -> SegmentMutation:
        """A mutable copy."""
        return SegmentMutation(self, self._changed.mutate(), self._length)

    def _version(self, changed: immutables.Map[str, Segment | None], length: int) -> SegmentMap:
        version = SegmentMap.__new__(SegmentMap)
        version._base, version._build, version._changed, version._length = self._base, self._build, changed, length
        return version


class SegmentMutation:
    """A mutable copy of a SegmentMap. `finish` makes a new version from it."""

    def __init__(self, origin: SegmentMap, changed: Any, length: int) -> None:
        self._origin = origin
        self._changed = changed
        self._length = length

    def get(self, name: str) -> Segment | None:
        """The segment, or None."""
        found: Segment | None = self._changed.get(name, self)
        return self._origin._built(name) if found is self else found  # type: ignore[comparison-overlap]

    def __contains__(self, name: str) -> bool:
        found = self._changed.get(name, self)
        return name in self._origin._base if found is self else found is not None

    def put(self, name: str, segment: Segment) -> Segment | None:
        """Store a segment. Returns the one that it replaces."""
        before = self.get(name)
        if before is None:
            self._length += 1
        self._changed[name] = segment
        return before

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._length -= 1
        if name in self._origin._base:
            self._changed[name] = None
        else:
            del self._changed[name]

    def finish(self) -> SegmentMap:
        """The new version."""
        return self._origin._version(self._changed.finish(), self._length)
