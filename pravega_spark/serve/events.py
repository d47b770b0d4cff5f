"""Requests about events: some from a cut on, the last ones, one by its pointer, and writes.

Keeps that one request reads about as many bytes as it asks for, and answers piece by piece.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from pravega_spark.client.event import Event
from pravega_spark.client.last_events import last_events
from pravega_spark.client.reader import EventRange, read_events
from pravega_spark.segment_ids import segment_label
from pravega_spark.serve.replies import BYTES, Call, Reply, Streamed, json_bytes, parse_json, streamed_list
from pravega_spark.serve.schemas import Unfit
from pravega_spark.serve.service import Service
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_position import StreamPosition, cut_at, parse_position

LARGEST_SHOWN = 64 << 10
"""Bytes of an event, above which a list has only its pointer."""

_BLOCK = 256 << 10  # bytes of a payload that are sent together


class EventsPage(NamedTuple):
    """The events between two cuts, and whether there are no more behind them now."""

    events: EventRange
    next: StreamCut
    at_end: bool


def events_page(service: Service, scope: str, name: str, start: str, end: str, max_bytes: int) -> EventsPage:
    """The events from one position on, up to another, and up to about `max_bytes`: a segment may add some 16 KiB.

    Raises ValueError for what is no position, InvalidStreamCut, TruncatedData.
    """
    begin, finish = parse_position(start), parse_position(end)
    stream = service.stream(scope, name)
    first, behind, at_end = stream.query(lambda snapshot: _bounded(snapshot, begin, finish, max_bytes))
    return EventsPage(read_events(stream, first, behind), behind, at_end)


def _bounded(
    snapshot: Snapshot, begin: StreamPosition, finish: StreamPosition, max_bytes: int
) -> tuple[StreamCut, StreamCut, bool]:
    """Two cuts with about so many bytes between them, and whether the second one is as far as was asked for."""
    start, end = cut_at(begin, snapshot, "head"), cut_at(finish, snapshot, "tail")
    ranges, _ = snapshot.available(snapshot.ranges(start, end))
    if sum(high - low for low, high in ranges.values()) <= max_bytes:
        return start, end, True
    behind = snapshot.next_cut(start, end, max_bytes=max_bytes)
    return start, behind, behind == end


def list_events(service: Service, call: Call) -> Streamed:
    """Some events, segment by segment; those of each key in the order of writing."""
    query, size = call.query, min(call.query["maxBytes"], service.settings.max_page_bytes)
    page = events_page(service, call.path["scopeName"], call.path["streamName"], query["from"], query["to"], size)
    rest = {"next": page.next.as_text(), "atEnd": page.at_end}
    return streamed_list("events", _shown(page.events, query["format"]), rest)


def list_last_events(service: Service, call: Call) -> Streamed:
    """The last events in the order in which they were appended, oldest first."""
    found = last_events(service.stream(call.path["scopeName"], call.path["streamName"]), call.query["n"])
    rest = {"next": found.end.as_text()}
    return streamed_list("events", _shown(found, call.query["format"]), rest)


def get_event(service: Service, call: Call) -> Streamed:
    """The payload of an event of any size."""
    pointer = EventPointer.from_text(call.query["pointer"])
    if (pointer.scope, pointer.stream) != (call.path["scopeName"], call.path["streamName"]):
        raise Unfit(f"pointer is one of {pointer.scope}/{pointer.stream}: ask for it there")
    file = service.manager.open_event(pointer)

    def pieces() -> Iterator[bytes]:
        with closing(file):
            while piece := file.read(_BLOCK):
                yield piece

    # A browser never shows what a stream holds as a page.
    return Streamed(pieces(), BYTES, {"Content-Disposition": "attachment"})


def write_events(service: Service, call: Call) -> Reply:
    """Write events in one atomic step. With txnAppId and txnVersion, a request that is sent again writes nothing."""
    import pyarrow as pa

    body = call.body
    if ("txnAppId" in body) != ("txnVersion" in body):
        raise Unfit("txnAppId and txnVersion belong together: give both, or neither")
    events, decode = body["events"], _DECODERS[body.get("format", "text")]
    if not events:
        raise Unfit("body.events is empty: give at least one event")
    payloads = [_decoded(decode, each["data"], place) for place, each in enumerate(events)]
    table = pa.table(
        {
            "event": pa.array(payloads, pa.binary()),
            "routing_key": pa.array([each.get("routingKey") for each in events], pa.string()),
        }
    )
    written = service.manager.write_events(
        call.path["scopeName"],
        call.path["streamName"],
        table,
        txn_app_id=body.get("txnAppId"),
        txn_version=body.get("txnVersion"),
    )
    return Reply(201, {"written": len(events) if written else 0})


def _shown(events: Iterable[Event], form: str) -> Iterator[dict[str, Any]]:
    encode = _ENCODERS[form]
    for event in events:
        small = event.size <= LARGEST_SHOWN
        yield {
            "segment": segment_label(event.segment_id),
            "offset": int(event.offset),
            "size": event.size,
            "pointer": event.pointer.as_text(),
            "data": encode(event.value) if small else None,
        }


def _decoded(decode: Callable[[Any], bytes], data: Any, place: int) -> bytes:
    try:
        return decode(data)
    except (ValueError, TypeError, AttributeError, binascii.Error):
        raise Unfit(f"body.events[{place}].data is not of the format of the request: see `format`") from None


def _json_value(data: bytes) -> Any:
    try:
        value = parse_json(data)
        json_bytes([[[[value]]]])  # as deep as it is in an answer
        return value
    except (ValueError, RecursionError):
        return None


_ENCODERS: Mapping[str, Callable[[bytes], Any]] = {
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "hex": bytes.hex,
    "text": lambda data: data.decode("utf-8", "replace"),
    "json": _json_value,
}
_DECODERS: Mapping[str, Callable[[Any], bytes]] = {
    "base64": lambda text: base64.b64decode(text, validate=True),
    "hex": bytes.fromhex,
    "text": lambda text: text.encode("utf-8"),
    "json": json_bytes,
}
