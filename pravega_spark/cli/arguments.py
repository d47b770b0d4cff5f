"""What commands take: names of streams, moments, and places in a stream. Wrong ones are wrong usage."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.streams.cuts import UNBOUNDED, StreamCut
from pravega_spark.streams.names import validate_scope_name, validate_stream_name

if TYPE_CHECKING:
    from pravega_spark.client.manager import StreamManager

Command = TypeVar("Command", bound=Callable[..., Any])

_ENDS = {"head": "head", "earliest": "head", "tail": "tail", "latest": "tail"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class StreamName(NamedTuple):
    """A stream by the name of its scope and its own."""

    scope: str
    stream: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.stream}"


class StreamNameType(click.ParamType):
    """A stream as SCOPE/STREAM."""

    name = "scope/stream"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StreamName:
        """The parsed name; wrong usage for anything else."""
        scope, slash, stream = str(value).partition("/")
        if not slash:
            self.fail(f"{value!r} is not SCOPE/STREAM", param, ctx)
        try:
            return StreamName(validate_scope_name(scope), validate_stream_name(stream))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ScopeType(click.ParamType):
    """The name of a scope."""

    name = "scope"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; wrong usage for one that no scope can have."""
        try:
            return validate_scope_name(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class MomentType(click.ParamType):
    """A time as ISO 8601, in UTC unless it names another zone, or in ms since the epoch."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds since the epoch."""
        found = parse_moment(str(value))
        if found is None:
            self.fail(f"{value!r} is neither ISO 8601, as 2026-01-31T12:00:00Z, nor ms since the epoch", param, ctx)
        return found


def parse_moment(text: str) -> int | None:
    """Milliseconds since the epoch, None for what is no time."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(re.sub(r"[Zz]\Z", "+00:00", text))
    except ValueError:
        return None
    return (moment.replace(tzinfo=moment.tzinfo or timezone.utc) - _EPOCH) // timedelta(milliseconds=1)


class Place(NamedTuple):
    """A place in a stream, before it is known where that is: "head", "tail", a time in ms, or a cut."""

    value: str | int | StreamCut

    def cut(self, manager: StreamManager, name: StreamName) -> StreamCut:
        """Where it is now. Raises StreamNotFound, InvalidStreamCut."""
        if isinstance(self.value, StreamCut):
            return self.value
        if isinstance(self.value, int):
            return manager.stream_cut_at(*name, self.value)
        info = manager.stream_info(*name)
        return info.head if self.value == "head" else info.tail


class PlaceType(click.ParamType):
    """`head`, `tail`, a time, or a stream cut's text."""

    name = "place"
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """The place; wrong usage for anything else."""
        if isinstance(value, Place):
            return value
        text = str(value).strip()
        if text.lower() in _ENDS:
            return Place(_ENDS[text.lower()])
        moment = parse_moment(text)
        if moment is not None:
            return Place(moment)
        try:
            cut = StreamCut.from_text(text)
        except InvalidStreamCut:
            self.fail(f"{text[:80]!r} is neither head, nor tail, nor a time, nor a stream cut's text", param, ctx)
        if cut == UNBOUNDED:
            self.fail("it must be a place, so give head or tail", param, ctx)
        return Place(cut)


def the_stream(command: Command) -> Command:
    """Gives a command the argument SCOPE/STREAM as `name`."""
    return click.argument("name", metavar="SCOPE/STREAM", type=StreamNameType())(command)


def with_yes(command: Command) -> Command:
    """Gives a command the option --yes, without which it removes nothing."""
    return click.option("--yes", is_flag=True, help="Do it; else it tells what it would do, and fails.")(command)
