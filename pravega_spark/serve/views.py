"""What the pages show: values and texts for the templates, from the status of the root and from streams.

A view has parts, which are kept up to date while it is open. Keeps that what cannot be read is a text on the page, and
never hides the rest; and that a page has a bounded number of rows.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from chunkstore.errors import StorageError, fact_of
from engine.errors import DataCorruption, EngineError
from pravega_spark.client.event import Event
from pravega_spark.client.last_events import last_events
from pravega_spark.client.reader import EventRange
from pravega_spark.errors import StreamError
from pravega_spark.picture import stream_picture
from pravega_spark.quantities import count_text, counted, duration_text, moment_text, size_text
from pravega_spark.segment_ids import segment_label
from pravega_spark.serve.events import LARGEST_SHOWN, events_page
from pravega_spark.serve.replies import parse_json
from pravega_spark.serve.service import Service
from pravega_spark.status import ConsumerStatus, RootStatus, StreamStatus
from pravega_spark.status_texts import consumer_texts, container_texts, stream_texts
from pravega_spark.streams.maintenance.lease import MaintenanceRecord, MaintenanceRun, maintenance_record
from pravega_spark.streams.maintenance.retention import Retained
from pravega_spark.streams.model.cuts import StreamCut, positions_text
from pravega_spark.streams.model.policies import retention_text, scaling_text
from pravega_spark.streams.reading.foreign_root import ForeignRoot
from pravega_spark.streams.reading.lag import Lag
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.writing.transactions import open_transactions

FORMATS = ("text", "json", "hex")
"""How a page shows payloads."""

LAST = "last"
"""The place of the newest events, on a page of a stream."""

_MOST_ROWS = 500  # consumers, events or transactions on a page
_LAST = 25  # newest events
_PAGE_BYTES = 32 << 10  # of events on a page, about
_LONGEST = 4000  # characters of a payload on a page
_HEX_LINE = 16

UNREADABLE = (StorageError, EngineError, StreamError)
"""What may keep a part of a page from being read."""


class View(NamedTuple):
    """A page. template: of the page as a whole. parts: names of those that change, each a template of its own.
    collect: its values, from the values of its path and query."""

    template: str
    parts: tuple[str, ...]
    collect: Callable[[Service, Mapping[str, str], Mapping[str, str]], dict[str, Any]]


class StreamRow(NamedTuple):
    """A stream in a table. lost: whether the position of a consumer is lost."""

    name: str
    link: str
    cells: Sequence[str]
    lag: str
    lost: bool


class ConsumerRow(NamedTuple):
    """A consumer in a table. link: to its stream. problem: why it has no lag, "" if it has one."""

    name: str
    kind: str
    stream: str
    link: str
    events: str
    size: str
    age: str
    problem: str


class Heading(NamedTuple):
    """The heading of a column that can be sorted. link: to the page in its order; "" if the page is in it."""

    name: str
    link: str


class EventRow(NamedTuple):
    """An event in a table. whole: the link to its payload."""

    written: str
    segment: str
    offset: str
    size: str
    shown: str
    whole: str


class Cut(NamedTuple):
    """A stream cut: its text, and its positions for people."""

    name: str
    text: str
    positions: str


# --- the root -------------------------------------------------------------------------------------------------------


def overview(service: Service, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, Any]:
    """Scopes and streams, and their consumers."""
    status, wanted = service.status(service.settings.poll_seconds / 2), query.get("filter", "")
    consumers = _by_stream(status.consumers)
    order = query.get("sort", "")
    order = order if order in _ORDERS else "stream"
    found = [each for each in status.streams if wanted in f"{each.scope}/{each.stream}"]
    if order != "stream":
        found.sort(key=lambda each: _ORDERS[order](each, consumers))
    rows = service.settings.page_rows
    pages = max((len(found) + rows - 1) // rows, 1)
    page = min(max(_whole(query.get("page", "1"), 1), 1), pages)
    sort = "" if order == "stream" else order
    chosen = found[(page - 1) * rows : page * rows]
    shown = {f"{each.scope}/{each.stream}" for each in chosen}
    return {
        "title": "Streams",
        "url": status.url,
        "moment": _clock(status),
        "totals": _totals(status),
        "problems": status.problems[:_MOST_ROWS],
        "filter": wanted,
        "sort": sort,
        "headings": [
            Heading(name, "" if name == order else _link("/", filter=wanted, sort="" if name == "stream" else name))
            for name in _ORDERS
        ],
        "rows": [_stream_row(each, status.moment, consumers) for each in chosen],
        "count": counted(len(found), "stream"),
        "pages": [(str(number), _link("/", filter=wanted, sort=sort, page=number)) for number in _around(page, pages)],
        "page": str(page),
        "consumers": list(_consumer_rows(each for key in sorted(shown) for each in consumers[key])),
    }


def root(service: Service, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, Any]:
    """Containers: their log, flush cycles, garbage, and what is due."""
    status = service.status(service.settings.poll_seconds / 2)
    return {
        "title": "Root",
        "url": status.url,
        "moment": _clock(status),
        "totals": _totals(status),
        "problems": status.problems[:_MOST_ROWS],
        "containers": [container_texts(each, status.moment) for each in status.containers],
        "logged": size_text(sum(each.description.logged for each in status.containers if each.description)),
        "garbage": count_text(sum(each.description.garbage for each in status.containers if each.description)),
        "losses": service.manager.losses[:_MOST_ROWS],
        **_maintenance(service),
    }


def _maintenance(service: Service) -> dict[str, Any]:
    """What maintains the root, what it did last, and what verify found then."""
    problems: list[str] = []
    has_record = not isinstance(service.manager.root, ForeignRoot)
    record = _tried(problems, "maintenance", lambda: maintenance_record(service.manager.root)) if has_record else None
    found = record or MaintenanceRecord()
    run, verified = found.run, found.verified
    return {
        "maintenance": [
            ("now", f"under way in {found.holder}" if found.token else "not under way"),
            ("last run", "none is recorded" if run is None else f"{moment_text(run.ended)}, by {run.holder}"),
            *([] if run is None else [("steps", _steps_text(run))]),
            ("verify", "did not run" if verified is None else f"{verified.text} ({moment_text(verified.ended)})"),
        ],
        "wrong": verified is not None and bool(verified.errors),
        "lines": () if run is None else run.lines,
        "unknown": problems,
    }


def _steps_text(run: MaintenanceRun) -> str:
    return f"{run.steps}: {run.changed} changed something, {run.failed} failed"


def _totals(status: RootStatus) -> list[tuple[str, str]]:
    """What the streams have in common."""
    rate = sum(each.events_per_second for each in status.streams)
    return [
        ("streams", count_text(len(status.streams))),
        ("events", count_text(sum(each.events for each in status.streams))),
        ("size", size_text(sum(each.bytes for each in status.streams))),
        ("events per second", f"{rate:,.1f}" if rate else "0"),
        ("consumers", count_text(len(status.consumers))),
        ("containers online", f"{sum(each.online for each in status.containers)} of {len(status.containers)}"),
    ]


def _stream_row(status: StreamStatus, now: float, consumers: Mapping[str, Sequence[ConsumerStatus]]) -> StreamRow:
    name, *cells = stream_texts(status, now)
    reading = consumers.get(name, ())
    lags = [each.lag for each in reading if each.lag is not None]
    lost = len(reading) - len(lags)
    worst = max(lags, key=lambda lag: lag.seconds, default=None)
    text = "" if worst is None else str(worst)
    if lost:
        text = f"{counted(lost, 'position')} lost{f'; {text}' if text else ''}"
    return StreamRow(name, _stream_link(status.scope, status.stream), cells, text or "no consumer", bool(lost))


def _by_stream(consumers: Iterable[ConsumerStatus]) -> Mapping[str, list[ConsumerStatus]]:
    found: dict[str, list[ConsumerStatus]] = defaultdict(list)
    for each in consumers:
        found[f"{each.scope}/{each.stream}"].append(each)
    return found


def _consumer_rows(consumers: Iterable[ConsumerStatus]) -> Iterator[ConsumerRow]:
    for each in islice(consumers, _MOST_ROWS):
        name, kind, stream, position = consumer_texts(each)
        texts = ("", "", "") if each.lag is None else _lag_texts(each.lag)
        yield ConsumerRow(
            name, kind, stream, _stream_link(each.scope, each.stream), *texts, position if each.lag is None else ""
        )


def _lag_texts(lag: Lag) -> tuple[str, str, str]:
    """Events and bytes behind the tail, and the age of the first one."""
    age = duration_text(round(lag.seconds)) if lag.events else "at the tail"
    return (
        count_text(lag.events),
        size_text(lag.bytes),
        f"{age}, and what was truncated" if lag.truncated else age,
    )


def _worst(status: StreamStatus, consumers: Mapping[str, Sequence[ConsumerStatus]]) -> float:
    """The lag of the consumer that is farthest behind, in seconds; a lost position is behind all."""
    reading = consumers.get(f"{status.scope}/{status.stream}", ())
    return max((inf if each.lag is None else each.lag.seconds for each in reading), default=-1.0)


_Order = Callable[[StreamStatus, Mapping[str, Sequence[ConsumerStatus]]], float]
_ORDERS: Mapping[str, _Order] = {
    "stream": lambda each, consumers: 0.0,  # as the status has them
    "segments": lambda each, consumers: -each.segments,
    "events": lambda each, consumers: -each.events,
    "size": lambda each, consumers: -each.bytes,
    "events/s": lambda each, consumers: -each.events_per_second,
    "bytes/s": lambda each, consumers: -each.bytes_per_second,
    "last event": lambda each, consumers: -(each.last_event or 0),
    "consumers": lambda each, consumers: -_worst(each, consumers),
}
"""The columns of the table of streams, and the orders in which they can be seen."""


# --- a stream -------------------------------------------------------------------------------------------------------


def stream(service: Service, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, Any]:
    """A stream: its picture, what it holds, what retention does next, and who reads it. Raises StreamNotFound."""
    scope, name = path["scope"], path["stream"]
    key = f"{scope}/{name}"
    snapshot = service.stream(scope, name).snapshot()
    status = service.status(service.settings.poll_seconds / 2)
    mine = [each for each in status.streams if (each.scope, each.stream) == (scope, name)]
    rates = stream_texts(mine[0], status.moment)[4:] if mine else ("-", "-", "-")
    problems: list[str] = []
    return {
        "title": key,
        "url": status.url,
        "moment": moment_text(round(status.moment * 1000)),
        "scope": scope,
        "stream": name,
        "key": key,
        "link": _stream_link(scope, name),
        "cut_link": f"/v1/scopes/{quote(scope)}/streams/{quote(name)}/stream-cut",
        "facts": [*_facts(snapshot), *zip(("events/s", "bytes/s", "last event"), rates, strict=True)],
        "even": query.get("even", ""),
        "picture": _tried(problems, "picture", lambda: _picture(service, scope, name, bool(query.get("even")))),
        "cuts": [_cut("head", snapshot.head_cut()), _cut("tail", snapshot.tail_cut())],
        "segments": _segments(snapshot),
        "retention": _tried(problems, "retention", lambda: _retention(service, scope, name, snapshot)),
        "transactions": _tried(problems, "transactions", lambda: _transactions(service, scope, name)),
        "consumers": list(_consumer_rows(_by_stream(status.consumers)[key])),
        "problems": problems,
        **_events_values(query),
    }


def events(service: Service, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, Any]:
    """A stream, and its events near a place."""
    found = stream(service, path, query)
    problems: list[str] = []
    rows = _tried(problems, "events", lambda: _events(service, path["scope"], path["stream"], query))
    return {**found, "events": rows[0] if rows else [], "next": rows[1] if rows else "", "refused": problems}


def _events_values(query: Mapping[str, str]) -> dict[str, Any]:
    form = query.get("format", "text")
    return {"at": query.get("at", LAST), "format": form if form in FORMATS else "text", "formats": FORMATS}


def _facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    record = snapshot.record
    return [
        ("state", "sealed" if record.sealed else "open"),
        ("events", count_text(snapshot.events())),
        ("size", size_text(snapshot.size())),
        ("epoch", count_text(record.current.epoch)),
        ("created", moment_text(record.created)),
        ("scaling", scaling_text(record.scaling)),
        ("tags", ", ".join(record.tags) or "none"),
    ]


def _segments(snapshot: Snapshot) -> list[tuple[str, str, str, str]]:
    """The newest segments: label, keys, and where their events are."""
    found, segments = [], snapshot.record.current.segments[:_MOST_ROWS]
    snapshot.segments.load([each.id for each in segments])
    for each in segments:
        start, end = snapshot.segments.segment(each.id).start_offset, snapshot.segments.length(each.id)
        found.append((segment_label(each.id), f"{each.low:.4g} to {each.high:.4g}", f"{start:,}", f"{end:,}"))
    return found


def _picture(service: Service, scope: str, name: str, even: bool) -> str:
    return stream_picture(service.manager, scope, name, even=even).svg


def _retention(service: Service, scope: str, name: str, snapshot: Snapshot) -> list[tuple[str, str]]:
    policy = snapshot.record.retention
    found = [("policy", retention_text(policy))]
    if policy is not None and not snapshot.record.sealed:
        found.append(("next run", _next_run(service.manager.retain(scope, name, dry_run=True))))
    return found


def _next_run(retained: Retained) -> str:
    if retained.truncated is not None:
        return f"deletes {size_text(retained.bytes)}, up to {positions_text(retained.truncated)}"
    return f"deletes nothing: {retained.why}" if retained.why else "deletes nothing"


def _transactions(service: Service, scope: str, name: str) -> list[tuple[str, str, str, str]]:
    container = service.stream(scope, name).container
    container.refresh()
    return [
        (str(each.id), moment_text(each.record.created), moment_text(each.record.timeout), size_text(each.size))
        for each in islice(open_transactions(container, f"{scope}/{name}/"), _MOST_ROWS)
    ]


def _cut(name: str, cut: StreamCut) -> Cut:
    return Cut(name, cut.as_text(), positions_text(cut))


# --- events ---------------------------------------------------------------------------------------------------------


def _events(service: Service, scope: str, name: str, query: Mapping[str, str]) -> tuple[list[EventRow], str]:
    """Events near a place, and the link to those behind them. Raises ValueError for what is no place."""
    values = _events_values(query)
    place, form = values["at"], values["format"]
    if place == LAST:
        last = last_events(service.stream(scope, name), _LAST)
        times = ["" if time is None else moment_text(time) for time in last.times]
        rows = [_event_row(each, time, form) for time, each in zip(times, last, strict=True)]
        behind = last.end
    else:
        page = events_page(service, scope, name, place, "tail", _PAGE_BYTES)
        written = zip(_times(page.events), page.events, strict=True)
        rows = [_event_row(each, time, form) for time, each in islice(written, _MOST_ROWS)]
        behind = page.next
    return rows, _link(_stream_link(scope, name), at=behind.as_text(), format=form) + "#events"


def _times(events: EventRange) -> Iterator[str]:
    """When each of them was written, as far as it is known."""
    for batch in events.to_batches(["timestamp"]):
        for microseconds in batch.column(0).cast("int64").to_pylist():
            yield "" if microseconds is None else moment_text(microseconds // 1000)


def _event_row(event: Event, written: str, form: str) -> EventRow:
    shown = f"({size_text(event.size)}: not shown)"
    if event.size <= LARGEST_SHOWN:
        shown = _cropped(_SHOW[form](event.value))
    pointer = event.pointer.as_text()
    whole = f"/v1/scopes/{quote(event.scope)}/streams/{quote(event.stream)}/event?{urlencode({'pointer': pointer})}"
    return EventRow(
        written, segment_label(event.segment_id), f"{int(event.offset):,}", size_text(event.size), shown, whole
    )


def _cropped(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"


def _as_text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def _as_json(data: bytes) -> str:
    try:
        return json.dumps(parse_json(data), indent=2, ensure_ascii=False).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return f"(no JSON) {_as_text(data)}"


def _as_hex(data: bytes) -> str:
    lines = []
    for start in range(0, min(len(data), _LONGEST // 4), _HEX_LINE):
        line = data[start : start + _HEX_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        lines.append(f"{start:06x}  {line.hex(' '):<{3 * _HEX_LINE}} {text}")
    return "\n".join(lines)


_SHOW: Mapping[str, Callable[[bytes], str]] = {"text": _as_text, "json": _as_json, "hex": _as_hex}


# --- help -----------------------------------------------------------------------------------------------------------


def _tried(problems: list[str], what: str, made: Callable[[], Any]) -> Any:
    """What `made` returns; None, and a text among the problems, if it cannot be read."""
    try:
        return made()
    except (*UNREADABLE, DataCorruption, ValueError) as error:
        problems.append(f"{what}: {fact_of(error)}")
        return None


def _clock(status: RootStatus) -> str:
    return moment_text(round(status.moment * 1000))


def _stream_link(scope: str, name: str) -> str:
    return f"/streams/{quote(scope)}/{quote(name)}"


def _link(path: str, **query: object) -> str:
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def _whole(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else default


def _around(page: int, pages: int) -> list[int]:
    """The numbers of some pages: the first, the last, and those near this one."""
    near = range(max(page - 2, 1), min(page + 2, pages) + 1)
    return sorted({1, pages, *near}) if pages > 1 else []


VIEWS: Mapping[str, View] = {
    "/": View("overview.html", ("totals", "streams", "consumers"), overview),
    "/root": View("root.html", ("totals", "containers", "maintenance"), root),
    "/streams/{scope}/{stream}": View(
        "stream.html", ("facts", "picture", "cuts", "retention", "transactions", "consumers"), events
    ),
}
"""The pages, by their paths."""
