"""Revisions: places in a stream of one segment, in the text form of the original (Pravega: Revision, RevisionImpl)."""

from __future__ import annotations

import reprlib
from typing import NamedTuple

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.parameters import checks_parameters
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.names import parse_segment_name, segment_name


class _Fields(NamedTuple):
    scope: str
    stream: str
    segment_id: int
    offset: int
    event_at_offset: int = 0


@checks_parameters()
class Revision(_Fields):
    """A place between two values of a stream of one segment: the offset after a value, in bytes, in its segment.

    event_at_offset: of an update among those that were written as one value (see StateSynchronizer); 0 otherwise.
    Revisions of one stream are ordered as their places. A plain value, which can be pickled.
    """

    __slots__ = ()

    def as_text(self) -> str:
        """The revision as text, as the original writes it: `scope/stream/0.#epoch.0:offset:event_at_offset`."""
        return f"{segment_name(self.scope, self.stream, self.segment_id)}:{self.offset}:{self.event_at_offset}"

    def __str__(self) -> str:
        return self.as_text()

    @staticmethod
    def from_text(text: str) -> Revision:
        """Parse what `as_text` returned. Raises ValueError for anything else."""
        name, _, numbers = text.partition(":")
        offset, _, event = numbers.partition(":")
        if not (offset.isdecimal() and event.isdecimal() and len(offset) <= 19 and len(event) <= 10):
            raise ValueError(
                f"{reprlib.repr(text)} is not a revision: give the text of one, as scope/stream/0.#epoch.0:1024:0"
            )
        segment = parse_segment_name(name)
        cut = StreamCut(segment.scope, segment.stream, {segment.segment_id: int(offset)})  # checks names and numbers
        return Revision(cut.scope, cut.stream, segment.segment_id, int(offset), int(event))

    @property
    def cut(self) -> StreamCut:
        """The stream cut at this place. Raises InvalidStreamCut for a place that no stream has."""
        if isinstance(self.offset, int) and self.offset < 0:
            raise InvalidStreamCut(f"a revision of {self.scope}/{self.stream} cannot have offset {self.offset}")
        return StreamCut(self.scope, self.stream, {self.segment_id: self.offset})


def revision_at(cut: StreamCut) -> Revision:
    """The revision of a cut with one segment."""
    [(segment, offset)] = cut.positions.items()
    return Revision(cut.scope, cut.stream, segment, offset)
