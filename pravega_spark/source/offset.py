"""The offset of a streaming query: a stream cut, as a checkpoint of Spark keeps it and a query's progress shows it.

It is a JSON object of the cut's text, which counts, and its positions for people: {"stream_cut": "H4sI…", "positions":
{"2.1": 16}}. The original connector's offset is the text alone, and is understood too. Equal cuts make equal offsets.
"""

from __future__ import annotations

from typing import Any

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.cuts import StreamCut
from pravega_spark.streams.lag import Lag

_CUT = "stream_cut"


def offset_of(cut: StreamCut) -> dict[str, Any]:
    """The offset that says that a query has come to a cut."""
    return {_CUT: cut.as_text(), "positions": {segment_label(number): at for number, at in cut.positions.items()}}


def offset_with_lag(cut: StreamCut, lag: Lag) -> dict[str, Any]:
    """The offset of the tail, with how far a batch that is about to run leaves the query behind it."""
    behind = {"events": lag.events, "bytes": lag.bytes, "seconds": round(lag.seconds, 3)}
    return {**offset_of(cut), "lag": behind}


def cut_of(offset: Any) -> StreamCut:
    """The cut of an offset, ours or the original's. Raises InvalidStreamCut."""
    text = offset.get(_CUT) if isinstance(offset, dict) else offset
    if not isinstance(text, str):
        raise InvalidStreamCut(
            "the checkpoint's offset is none of a stream: give the query the checkpointLocation of a query on it"
        )
    return StreamCut.from_text(text)
