"""Ids of segments: a 64-bit number for programs, and a label for people.

The label `2.1` is segment 2 of epoch 1, in the order of segment names (`scope/stream/2.#epoch.1`). The number has the
epoch in its upper half (Pravega: NameUtils.computeSegmentId). Public calls accept both.
"""

from __future__ import annotations

import re

from pravega_spark.parameters import as_number

MAX_NUMBER = 0x7FFFFFFF
"""The greatest number that a segment, or an epoch, may have."""

_LABEL = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})")


def segment_id(number: int, epoch: int) -> int:
    """The 64-bit id of segment `number`, created in `epoch`; both must fit a non-negative int32 (else ValueError)."""
    for what, value in (("number", number), ("epoch", epoch)):
        if not 0 <= value <= MAX_NUMBER:
            raise ValueError(f"segment {what} must be between 0 and {MAX_NUMBER}, not {value}")
    return epoch << 32 | number


def segment_number(segment: int) -> int:
    """The number part of a segment id."""
    return segment & 0xFFFFFFFF


def segment_epoch(segment: int) -> int:
    """The epoch part of a segment id: the epoch the segment was created in."""
    return segment >> 32


def segment_label(segment: int) -> str:
    """The label of a segment: `2.1` is segment 2 of epoch 1."""
    return f"{segment_number(segment)}.{segment_epoch(segment)}"


def parse_segment_id(segment: str | int) -> int:
    """The id of a segment, given as the id (a number or its text) or as a label. ValueError for anything else."""
    segment = as_number(segment)
    if isinstance(segment, int) and not isinstance(segment, bool):
        return segment
    text = segment if isinstance(segment, str) else ""
    if re.fullmatch(r"[0-9]{1,19}", text):
        return int(text)
    if (match := _LABEL.fullmatch(text)) is None:
        raise ValueError(f"{segment!r} is not a segment: give 2.1 (segment 2 of epoch 1), or its id")
    return segment_id(int(match[1]), int(match[2]))
