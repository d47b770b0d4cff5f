"""Arguments that commands share: stream names, times, positions in a stream, options. Bad values are usage errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from engine.root import MAX_SECONDS
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
        """The parsed name; a usage error for anything else."""
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
        """The name; a usage error for one that no scope can have."""
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
        return (moment.replace(tzinfo=moment.tzinfo or timezone.utc) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):  # the first and last days of the calendar overflow in another zone
        return None


class SecondsType(click.FloatRange):
    """A number of seconds: a finite one."""

    name = "seconds"

    def __init__(self, least: float = 0) -> None:
        super().__init__(least, MAX_SECONDS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; a usage error for anything else."""
        found = float(super().convert(value, param, ctx))
        if found != found:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return found


class StreamPosition(NamedTuple):
    """A position in a stream, not resolved yet: "head", "tail", a time (ms since the epoch), or a cut."""

    value: str | int | StreamCut

    def cut(self, manager: StreamManager, name: StreamName) -> StreamCut:
        """The stream cut of the position now. Raises StreamNotFound, InvalidStreamCut."""
        if isinstance(self.value, StreamCut):
            return self.value
        if isinstance(self.value, int):
            return manager.stream_cut_at(*name, self.value)
        info = manager.stream_info(*name)
        return info.head if self.value == "head" else info.tail


class StreamPositionType(click.ParamType):
    """`head`, `tail`, a time, or a stream cut's text."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StreamPosition:
        """The position; a usage error for anything else."""
        if isinstance(value, StreamPosition):
            return value
        text = str(value).strip()
        if text.lower() in _ENDS:
            return StreamPosition(_ENDS[text.lower()])
        moment = parse_moment(text)
        if moment is not None:
            return StreamPosition(moment)
        try:
            cut = StreamCut.from_text(text)
        except InvalidStreamCut:
            self.fail(f"{text[:80]!r} is neither head, nor tail, nor a time, nor a stream cut's text", param, ctx)
        if cut == UNBOUNDED:
            self.fail("an unbounded cut is not a position; give head or tail", param, ctx)
        return StreamPosition(cut)


def stream_argument(command: Command) -> Command:
    """Give a command the argument SCOPE/STREAM as `name`."""
    return click.argument("name", metavar="SCOPE/STREAM", type=StreamNameType())(command)


def yes_option(command: Command) -> Command:
    """Give a command the option --yes, without which it changes nothing."""
    return click.option(
        "--yes", is_flag=True, help="Apply the change. Without --yes, show what would change and exit 1."
    )(command)


def storage_option(flag: str, filesystem: str) -> Callable[[Command], Command]:
    """Give a command the options of a filesystem as `options`. filesystem: whose it is, for the help."""
    text = f"Option of {filesystem} filesystem; the value is JSON or text. Repeatable."
    return click.option(flag, "options", metavar="NAME=VALUE", multiple=True, callback=_parsed, help=text)


def _parsed(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, object]:
    """The values of --storage. Errors do not show them: they may be credentials."""
    options: dict[str, object] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter("must be NAME=VALUE", context, parameter)
        if name in options:
            raise click.BadParameter(f"{name!r} is given twice", context, parameter)
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options
