"""The offset of a streaming query: a stream cut's text, as the original connector keeps it in checkpoints; and what a
query's progress shows beside it for people."""

from __future__ import annotations

from typing import Any

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.lag import Lag


def cut_of(offset: Any) -> StreamCut:
    """The cut of an offset. Raises InvalidStreamCut."""
    if not isinstance(offset, str):
        raise InvalidStreamCut(
            "the checkpoint's offset is none of a stream: give the query the checkpointLocation of a query on it"
        )
    return StreamCut.from_text(offset)


def progress_of(reached: StreamCut, tail: StreamCut, lag: Lag) -> dict[str, Any]:
    """Where a batch ends, where the stream does, and how far the batch leaves the query behind; in plain values."""
    return {
        "reached": _positions(reached),
        "tail": _positions(tail),
        "lag": {"events": lag.events, "bytes": lag.bytes, "seconds": round(lag.seconds, 3)},
        "stream_cut": tail.as_text(),
    }


def _positions(cut: StreamCut) -> dict[str, int]:
    return {segment_label(number): offset for number, offset in cut.positions.items()}
