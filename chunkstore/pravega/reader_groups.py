"""Where the reader groups of a Pravega stood: the positions in their state, as far as it was flushed.

The state of a group is a stream of its own (`_RG<group>`) with one segment: events that each hold an initial state, or
updates of it, in their order from the newest compacted state on. Only positions are followed here.
"""

from __future__ import annotations

from chunkstore.decoding import InvalidData, decoding
from chunkstore.metadata.serialization import FieldReader, check_version, read_type

_INITIAL, _UPDATES = 1, 2
"""What an event holds: its first four bytes."""

_INIT, _COMPACT, _REMOVE_READER, _RELEASE, _DISTANCE, _COMPLETED, _CHECKPOINT = 0, 1, 3, 4, 6, 7, 8
_OTHERS = frozenset({2, 5, 9, 10, 11, 12, 13})
"""Updates that move no position: readers that come, segments that are acquired, checkpoints that begin and end."""

_RANGE = 16


class GroupPositions:
    """The positions of a reader group: `segments` by their full names, offsets up to which their events were read.

    future: segments that wait until those with these ids are read to their ends.
    """

    def __init__(self) -> None:
        self.segments: dict[str, int] = {}
        self._future: dict[str, set[int]] = {}

    def apply(self, event: bytes) -> None:
        """Take an event of the group's state. Raises InvalidData."""
        with decoding():
            fields = FieldReader(event)
            kind = int.from_bytes(fields.take(4), "big")
            if kind == _INITIAL:
                self._update(fields)
            elif kind == _UPDATES:
                while fields.rest:
                    self._update(FieldReader(fields.take(int.from_bytes(fields.take(4), "big"))))
            else:
                raise InvalidData(f"it begins with {kind}, which is no kind of event")

    def _update(self, fields: FieldReader) -> None:
        kind, version, revisions = read_type(fields)
        check_version(version, 0, "an update of a reader group")
        first, second = revisions[0], revisions.get(1)
        if kind == _INIT:
            _array(first)
            self.segments, self._future = _positions(first), {}
        elif kind == _COMPACT:
            self._compacted(first, second)
        elif kind == _REMOVE_READER:
            first.utf()
            self._move(_positions(first))
        elif kind == _RELEASE:
            first.utf()
            self._move({first.utf(): first.long()})
        elif kind == _DISTANCE and second is not None:
            self._move(_positions(second, _RANGE))
        elif kind == _COMPLETED:
            self._complete(first)
        elif kind == _CHECKPOINT:
            first.utf()
            first.utf()
            self._move(_positions(first))
        elif kind not in _OTHERS and kind != _DISTANCE:
            raise InvalidData(f"{kind} is no type of update")

    def _compacted(self, first: FieldReader, second: FieldReader | None) -> None:
        _array(first)
        _array(first)
        for _ in range(first.count(10)):
            first.utf()
            first.long()
        self._future = {first.utf(): _longs(first) for _ in range(first.count(3))}
        self.segments = {}
        for _ in range(first.count(3)):
            first.utf()
            self.segments |= _positions(first)
        self.segments |= _positions(first)
        if second is not None:
            self._move(_positions(second))

    def _move(self, positions: dict[str, int]) -> None:
        """Advance to these positions, where they are known and not behind."""
        for name, offset in positions.items():
            if name in self.segments:
                self.segments[name] = max(self.segments[name], offset)

    def _complete(self, fields: FieldReader) -> None:
        fields.utf()
        done = fields.utf()
        self.segments.pop(done, None)
        for _ in range(fields.count(3)):
            name, needed = fields.utf(), _longs(fields)
            self._future.setdefault(name, needed)
        number = _id(done)
        for name in list(self._future):
            self._future[name].discard(number)
            if not self._future[name]:
                del self._future[name]
                self.segments.setdefault(name, 0)


def _array(fields: FieldReader) -> bytes:
    return fields.take(fields.compact_int())


def _longs(fields: FieldReader) -> set[int]:
    return {fields.long() for _ in range(fields.count(8))}


def _positions(fields: FieldReader, between: int = 0) -> dict[str, int]:
    found = {}
    for _ in range(fields.count(10)):
        name = fields.utf()
        fields.take(between)
        found[name] = fields.long()
    return found


def _id(name: str) -> int:
    """The id of a segment by its full name `scope/stream/<number>.#epoch.<epoch>`."""
    number, mark, epoch = name.rpartition("/")[2].partition(".#epoch.")
    if not number.isdecimal() or (mark and not epoch.isdecimal()):
        raise InvalidData(f"{name!r} is not the name of a segment")
    return int(epoch or 0) << 32 | int(number)
