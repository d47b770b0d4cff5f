"""The offset of a streaming query: a stream cut's text, as in checkpoints of the original connector. For several
streams it is a JSON object with one cut for each. Also what a query's progress shows beside it.

A cut names a stream by its name only. So the text also has the stream's id, in the comment of its gzip header, which
other readers of such texts skip. By the id a query recognises a position in a stream of another root, or in a deleted
stream (P4).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import BEGINNING, StreamCut
from pravega_spark.streams.reading.lag import Lag

_HEADER = 10  # bytes of a gzip header without a comment
_COMMENT = 0x10  # its flag for one
_ID = re.compile(rb"stream=([0-9a-f]{32})\0")


def text_of(cut: StreamCut, stream_id: bytes) -> str:
    """The text of a cut, with the id of its stream."""
    data = base64.b64decode(cut.as_text())
    header = data[:3] + bytes([_COMMENT]) + data[4:_HEADER]
    return base64.b64encode(header + b"stream=" + stream_id.hex().encode() + b"\0" + data[_HEADER:]).decode()


def id_of(text: str) -> bytes | None:
    """The id of the stream in the text of a cut; None if the text has none."""
    if not text.startswith(BEGINNING):
        return None  # UNBOUNDED
    data = base64.b64decode(text)
    found = _ID.match(data, _HEADER) if data[3] == _COMMENT else None
    return bytes.fromhex(found[1].decode()) if found is not None else None


def cut_of(offset: Any) -> StreamCut:
    """The cut of an offset of one stream. Raises InvalidStreamCut."""
    if not isinstance(offset, str):
        raise InvalidStreamCut(
            "the checkpoint's offset is not that of a stream: give the query the checkpointLocation of a query that "
            "reads it"
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
    """The end of a batch, the end of the stream, and the query's lag after the batch, in plain values."""
    return {
        "reached": _positions(reached),
        "tail": _positions(tail),
        "lag": {"events": lag.events, "bytes": lag.bytes, "seconds": round(lag.seconds, 3)},
        "stream_cut": tail.as_text(),
    }


def _positions(cut: StreamCut) -> dict[str, int]:
    return {segment_label(number): offset for number, offset in cut.positions.items()}
