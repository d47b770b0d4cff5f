"""Stream positions as users give them: a cut, its text, an end of the stream, or a time.

One syntax for the command line and Python. A position is resolved with the snapshot that is used, so the stream
cannot change in between.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.quantities import moment_text, parse_time
from pravega_spark.streams.model.cuts import UNBOUNDED, StreamCut

if TYPE_CHECKING:
    from pravega_spark.streams.reading.snapshot import Snapshot

End: TypeAlias = Literal["head", "tail"]

StreamPosition: TypeAlias = "StreamCut | End | int"
"""A cut, an end of the stream, or a time in ms since the epoch."""

POSITION_FORMS = (
    "earliest (head), latest (tail), a stream cut or its text, or a time, as 2026-01-31T12:00:00Z, '5 minutes ago', "
    "5m, now, or ms since the epoch"
)
"""The syntax of a position, for errors and help."""

CLOCKS_MAY_DIFFER = 60_000
"""Milliseconds by which a time may be ahead of this host's clock without counting as in the future."""

_ENDS: dict[str, End] = {"head": "head", "earliest": "head", "tail": "tail", "latest": "tail"}


def parse_position(value: StreamCut | str | int | datetime) -> StreamPosition:
    """A position, not resolved yet. ValueError if it is not one; UNBOUNDED is one, as a cut."""
    if isinstance(value, StreamCut):
        return value
    text = value.strip() if isinstance(value, str) else None
    if text is not None and text.lower() in _ENDS:
        return _ENDS[text.lower()]
    if isinstance(value, datetime):
        return parse_time(value)  # its error says what is missing
    with suppress(ValueError):
        return parse_time(value if text is None else text)
    with suppress(InvalidStreamCut):
        if text is not None:
            return UNBOUNDED if text.lower() == "unbounded" else StreamCut.from_text(text)
    raise InvalidStreamCut(f"{_quoted(value)} is no place in a stream: give {POSITION_FORMS}")


def parse_cut(value: StreamCut | str) -> StreamCut:
    """A cut, which names its stream. InvalidStreamCut for anything else, other positions included."""
    place = parse_position(value)
    if not isinstance(place, StreamCut):
        raise InvalidStreamCut(f"{_quoted(value)} does not say of which stream: give a stream cut, or its text")
    return place


def cut_at(place: StreamPosition, snapshot: Snapshot, unbounded: End | None = None) -> StreamCut:
    """The cut of a position now. unbounded: the end that UNBOUNDED stands for. Raises InvalidStreamCut."""
    if place == UNBOUNDED:
        if unbounded is None:
            raise InvalidStreamCut("an unbounded cut is no position: give head or tail")
        place = unbounded
    if isinstance(place, StreamCut):
        return snapshot.resolved(place)
    if isinstance(place, int):
        return snapshot.cut_at(place)
    return snapshot.head_cut() if place == "head" else snapshot.tail_cut()


def cut_to_truncate(place: StreamPosition, snapshot: Snapshot) -> StreamCut:
    """The cut of a position for a truncation. Raises InvalidStreamCut, also for a time in the future, which is
    probably a mistake that would delete all events."""
    now = int(time.time() * 1000)
    if isinstance(place, int) and place > now + CLOCKS_MAY_DIFFER:
        raise InvalidStreamCut(
            f"Stream {snapshot.stream.key} is not truncated: {moment_text(place)} is in the future, as it is "
            f"{moment_text(now)} now: all events would be deleted. Give a time that has passed, or a stream cut; to "
            "delete all events, 'tail'"
        )
    return cut_at(place, snapshot)


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


PositionLike: TypeAlias = Annotated["StreamCut | str | int | datetime", parse_position]
"""A position as programs give it."""

CutLike: TypeAlias = Annotated["StreamCut | str", parse_cut]
"""A stream cut, or its text."""
