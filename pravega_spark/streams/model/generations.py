"""Positions that were lost in a restore, and where the restored events before them end (P4).

A restored root, and a recovered container, continue from an earlier moment. A later position has an offset after the
end of a segment, or a segment that the stream does not have. The stream begins an epoch before the first event after
a restore, so both stay true, and the restored events end where the segments before that epoch end.
"""

from __future__ import annotations

from collections.abc import Callable

from pravega_spark.segment_ids import segment_epoch
from pravega_spark.streams.model.epochs import EpochRecord, Positions, overlapping
from pravega_spark.streams.model.stream_record import StreamRecord


def restored(record: StreamRecord, generation: str, positions: Positions, length: Callable[[int], int]) -> Positions:
    """The end of the existing events before these `positions`; empty if unknown.

    generation: the present one of the stream's container. length: returns the length of a segment.
    """
    history = record.history
    known = {n: min(at, length(n)) for n, at in positions.items() if n in history.segments}
    unknown = history.unknown(positions)
    if unknown:
        last = _last_epoch(
            record, generation, max(map(segment_epoch, known), default=-1), min(map(segment_epoch, unknown))
        )
        front = sorted((history.segments[n] for n in known), key=lambda segment: segment.low)
        for segment in last.segments if last is not None else ():
            if segment.id in history.segments and not overlapping(front, segment):
                known[segment.id] = length(segment.id)
    known = dict(sorted(known.items()))
    return known if known and history.problem(known) is None else {}


def _last_epoch(record: StreamRecord, generation: str, known: int, unknown: int) -> EpochRecord | None:
    """The last restored epoch, for a position in known and unknown segments. If several are possible the first, so
    that no event is skipped."""
    begun = [each.epoch for each in record.generations]
    if record.generation.name != generation:
        begun.append(record.current.epoch + 1)
    first = record.epochs[0].epoch
    return next((record.history.epoch(n - 1) for n in begun if known < n <= unknown and first < n), None)
