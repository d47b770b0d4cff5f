"""What a reader returns for one event: the event, or a checkpoint, with the reader's position after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from chunkstore.decoding import Natural, decoding, reader, unpack
from pravega_spark.client.event import Event
from pravega_spark.client.groups.state import GroupSegment
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.parameters import checks_parameters
from pravega_spark.segment_ids import segment_label

_FORMAT = 1


@checks_parameters(but=("__init__",))
class Position:
    """The position of a reader: the offset up to which it has read each of its segments (Pravega: Position).

    A program that stores its results keeps it with them. `reader.close_at` and the group's `reader_offline` take it:
    other readers continue there. `offsets` maps ("scope/stream", segment id) to an offset in bytes.
    """

    __slots__ = ("offsets",)

    def __init__(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.offsets = dict(offsets)

    def to_bytes(self) -> bytes:
        """The position as bytes, for a file or a database."""
        return bytes(msgpack.packb([_FORMAT, [[*key, offset] for key, offset in sorted(self.offsets.items())]]))

    @staticmethod
    def from_bytes(data: bytes) -> Position:
        """The inverse of `to_bytes`. Raises ValueError for anything else."""
        try:
            with decoding():
                known, rows = reader(tuple[int, tuple[tuple[str, Natural, Natural], ...]])(unpack(data))
                if known == _FORMAT:
                    return Position({(stream, segment): offset for stream, segment, offset in rows})
        except ValueError:
            pass
        raise InvalidStreamCut("these bytes are no position of a reader: give what Position.to_bytes returned")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self.offsets == other.offsets

    def __hash__(self) -> int:
        return hash(frozenset(self.offsets.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Position, (self.offsets,)

    def __repr__(self) -> str:
        offsets = (f"{stream}/{segment_label(segment)}={offset}" for (stream, segment), offset in self.offsets.items())
        return f"Position({', '.join(offsets)})"


def position_of(held: Mapping[GroupSegment, int]) -> Position:
    """The position of a reader with these segments."""
    return Position({(key.stream, key.id): offset for key, offset in held.items()})


class EventRead:
    """One result of `read_next_event` (Pravega: EventRead).

    event: None for a checkpoint, if there was no event in time, and at the end. checkpoint_name: of the checkpoint that
    the reader has come to. is_read_completed: whether the group has read all its streams to their ends.
    """

    __slots__ = ("_at", "_held", "checkpoint_name", "event", "is_read_completed")

    def __init__(
        self,
        event: Event | None,
        held: Mapping[GroupSegment, int],
        at: tuple[GroupSegment, int] | None = None,
        checkpoint_name: str | None = None,
        is_read_completed: bool = False,
    ) -> None:
        self.event = event
        self.checkpoint_name = checkpoint_name
        self.is_read_completed = is_read_completed
        self._held = held
        self._at = at

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a checkpoint. Its name is in `checkpoint_name`."""
        return self.checkpoint_name is not None

    @property
    def position(self) -> Position:
        """The reader's position after the event."""
        return position_of({**self._held, **dict([self._at] if self._at is not None else [])})

    def __repr__(self) -> str:
        if self.is_checkpoint:
            return f"EventRead(checkpoint {self.checkpoint_name!r})"
        return f"EventRead({'read completely' if self.is_read_completed else repr(self.event)})"
