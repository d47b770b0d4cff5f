"""The offset of a streaming query: a stream cut's text, as the original connector keeps it in checkpoints, or where
several streams are read a JSON object with one for each; and what a query's progress shows beside it for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.lag import Lag


def cut_of(offset: Any) -> StreamCut:
    """The cut of an offset of one stream. Raises InvalidStreamCut."""
    if not isinstance(offset, str):
        raise InvalidStreamCut(
            "the checkpoint's offset is none of a stream: give the query the checkpointLocation of a query on it"
        )
    return StreamCut.from_text(offset)


def cuts_of(offset: Any) -> dict[str, StreamCut]:
    """The cuts of an offset, by the names of their streams. Raises InvalidStreamCut."""
    if not isinstance(offset, Mapping):
        cut = cut_of(offset)
        return {cut.stream: cut}
    cuts = {stream: cut_of(text) for stream, text in offset.items()}
    for stream, cut in cuts.items():
        if cut.stream != stream:
            raise InvalidStreamCut(f"the checkpoint's offset has a cut of stream {cut.stream!r} for stream {stream!r}")
    return cuts


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
