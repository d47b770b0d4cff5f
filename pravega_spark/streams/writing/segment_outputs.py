"""What a write has for single segments, and how it becomes one append.

The driver of a Spark job imports this module, so it needs neither Arrow nor the storage.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from engine.state.operations import Payload
    from engine.state.segments import Extent
    from pravega_spark.streams.writing.writes import SegmentAppend


class SegmentOutput(NamedTuple):
    """Some events of one segment: framed, or the extents that hold them, with index records and number of events."""

    stream: str
    segment_id: int
    content: bytes | tuple[Extent, ...]
    records: np.ndarray
    events: int


def appends_of(outputs: Sequence[SegmentOutput], created_at: int) -> list[SegmentAppend]:
    """The appends of outputs of one stream: one for each segment and run of content of one kind, in order.

    created_at: when the upload of the first chunk began (see SegmentAppend).
    """
    by_segment: dict[int, list[SegmentOutput]] = defaultdict(list)
    for output in outputs:
        by_segment[output.segment_id].append(output)
    now = int(time.time() * 1000)
    parts: list[SegmentAppend] = []
    for _, some in sorted(by_segment.items()):
        run: list[SegmentOutput] = []
        for output in some:
            if run and isinstance(run[-1].content, bytes) is not isinstance(output.content, bytes):
                parts.append(_append(run, now, created_at))
                run = []
            run.append(output)
        parts.append(_append(run, now, created_at))
    return parts


def _append(outputs: Sequence[SegmentOutput], now: int, created_at: int) -> SegmentAppend:
    """Outputs of one kind as one append, whose index records continue from one output to the next."""
    from engine.state.operations import Payload
    from pravega_spark.streams.writing.writes import SegmentAppend

    records, offset, count = [], 0, 0
    for output in outputs:
        moved = output.records + np.array([offset, count, 0, 0])
        moved[:, 2] = now
        records.append(moved)
        offset, count = int(moved[-1, 0]), int(moved[-1, 1])
    if isinstance(outputs[0].content, bytes):
        content: Payload | tuple[Extent, ...] = Payload(b"".join(output.content for output in outputs))  # type: ignore[misc]
    else:
        content = tuple(extent for output in outputs for extent in output.content)  # type: ignore[misc]
    return SegmentAppend(
        outputs[0].segment_id, content, np.concatenate(records), sum(output.events for output in outputs), created_at
    )
