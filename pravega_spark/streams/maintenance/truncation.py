"""The effect of a truncation, computed by the truncation's own steps, so it raises the same errors."""

from __future__ import annotations

from typing import NamedTuple

from pravega_spark.quantities import counted, size_text
from pravega_spark.streams.model.cuts import StreamCut, positions_text
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.writing import changes


class Truncation(NamedTuple):
    """The events between the head of a stream and its new head. bytes: with event headers."""

    head: StreamCut
    cut: StreamCut
    events: int
    bytes: int

    def __str__(self) -> str:
        gone = f"{counted(self.events, 'event')}, {size_text(self.bytes)}"
        return f"{gone}, from {positions_text(self.head)}, up to {positions_text(self.cut)}"


def truncation(snapshot: Snapshot, cut: StreamCut) -> Truncation:
    """The effect of truncating at a cut. Raises InvalidStreamCut and StreamSealed, as truncating does."""
    changes.truncate(snapshot, cut)
    head = snapshot.head_cut()
    return Truncation(head, cut, snapshot.events_between(head, cut), snapshot.size_between(head, cut))
