"""The status of a root as texts for people: a row for each stream, consumer and container."""

from __future__ import annotations

from typing import NamedTuple

from engine.admin.inspection import ContainerDescription, ContainerStatus
from pravega_spark.quantities import count_text, duration_text, size_text
from pravega_spark.status import ConsumerStatus, RootStatus, StreamStatus

_STREAMS = ("stream", "segments", "events", "size", "events/s", "bytes/s", "last event")
_CONSUMERS = ("consumer", "kind", "stream", "position")
_CONTAINERS = ("container", "state", "in the log", "last flush", "garbage", "due")


class TextTable(NamedTuple):
    """A table of texts."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


def text_tables(status: RootStatus) -> tuple[TextTable, ...]:
    """All of a status but its problems."""
    return (
        TextTable("streams", _STREAMS, [stream_texts(each, status.moment) for each in status.streams]),
        TextTable("consumers", _CONSUMERS, [consumer_texts(each) for each in status.consumers]),
        TextTable("containers", _CONTAINERS, [container_texts(each, status.moment) for each in status.containers]),
    )


def stream_texts(status: StreamStatus, now: float) -> tuple[str, ...]:
    """The cells of a stream, in the order of the headings. `now` is in seconds since 1970."""
    last = "-" if status.last_event is None else _ago(now - status.last_event / 1000)
    return (
        f"{status.scope}/{status.stream}",
        "sealed" if status.sealed else count_text(status.segments),
        count_text(status.events),
        size_text(status.bytes),
        _rate(status.events_per_second),
        size_text(round(status.bytes_per_second)) if status.bytes_per_second else "0",
        last,
    )


def consumer_texts(status: ConsumerStatus) -> tuple[str, ...]:
    """The cells of a consumer."""
    position = f"does not fit: {status.problem}" if status.lag is None else str(status.lag)
    return status.name, status.kind, f"{status.scope}/{status.stream}", position


def container_texts(status: ContainerStatus, now: float) -> tuple[str, ...]:
    """The cells of a container. `now` is in seconds since 1970."""
    found = status.description
    if found is None:
        return str(status.number), f"offline: {status.reason}", "-", "-", "-", "-"
    failures = "; ".join(f"{kind} failed: {error}" for kind, error in found.failures.items())
    return (
        str(status.number),
        failures or "online",
        size_text(found.logged),
        _flush(found, now),
        count_text(found.garbage),
        ", ".join(f"{kind.replace('_', ' ')}{' (overdue)' * late}" for kind, late in found.due.items()) or "nothing",
    )


def _flush(found: ContainerDescription, now: float) -> str:
    cycle = found.cycle
    if not cycle.number:
        return "never"
    end = "" if cycle.complete else ", aborted" if cycle.aborted else ", not complete"
    return f"{_ago(now - cycle.time / 1000)}{end}{f': {cycle.error}' if cycle.error else ''}"


def _ago(seconds: float) -> str:
    return f"{duration_text(max(round(seconds), 0))} ago"


def _rate(rate: float) -> str:
    return count_text(round(rate)) if rate >= 10 or not rate else f"{rate:.2g}"
