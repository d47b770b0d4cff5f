"""Arguments that commands share: stream names, times, durations, sizes, positions in a stream, options. Bad values are
usage errors."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import click

from engine.settings import MAX_SECONDS
from pravega_spark.console.advice import ROOT_VARIABLE
from pravega_spark.quantities import (
    DURATIONS,
    SIZES,
    TIMES,
    duration_text,
    parse_milliseconds,
    parse_seconds,
    parse_size,
    parse_time,
)
from pravega_spark.segment_ids import parse_segment_id
from pravega_spark.streams.model.cuts import UNBOUNDED
from pravega_spark.streams.model.names import segment_name, validate_scope_name, validate_stream_name
from pravega_spark.streams.reading.stream_position import POSITION_FORMS, StreamPosition, parse_position

Command = TypeVar("Command", bound=Callable[..., Any])


class StreamName(NamedTuple):
    """The name of a stream."""

    scope: str
    stream: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.stream}"


_KINDS = {"group": "reader group", "table": "key-value table"}
_LISTS = {"stream": "stream", "reader group": "group", "key-value table": "kvt"}


class _ParsedType(click.ParamType, abc.ABC):
    """A type whose `parse` raises ValueError for a bad value, which becomes a usage error.

    limits: of the parsed number, None for none. A separate type, as help shows those of the type itself.
    """

    limits: click.ParamType | None = None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value; a usage error for anything else."""
        try:
            found = self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return found if self.limits is None else self.limits.convert(found, param, ctx)

    @abc.abstractmethod
    def parse(self, value: Any) -> Any:
        """The value. Raises ValueError."""


class StreamNameType(_ParsedType):
    """A stream as SCOPE/STREAM, or something else that is named so. form: for the help."""

    name = "scope/stream"

    def __init__(self, form: str = "SCOPE/STREAM") -> None:
        self.written = form
        kind = form.partition("/")[2].lower()
        self._what = _KINDS.get(kind, kind)  # for errors

    def parse(self, value: Any) -> StreamName:
        """The parsed name."""
        scope, slash, stream = str(value).partition("/")
        if not slash:
            listed = f"pravega-spark {_LISTS[self._what]} list"
            raise ValueError(f"{value!r} is not {self.written}: its scope is missing; `{listed}` shows what there is")
        return StreamName(validate_scope_name(scope), validate_stream_name(stream, self._what))


class ScopeType(_ParsedType):
    """The name of a scope."""

    name = "scope"

    def parse(self, value: Any) -> str:
        """The name. Raises ValueError for one that no scope can have."""
        return validate_scope_name(str(value))


class Moment(int):
    """A time in ms since the epoch. ago: how it was written, if that is relative to now, as `1h`; else empty."""

    ago = ""


class MomentType(_ParsedType):
    """A time: ISO 8601, a time ago, or ms since the epoch (see `quantities`)."""

    name = "time"
    form = TIMES

    def parse(self, value: Any) -> Moment:
        """Milliseconds since the epoch."""
        moment = Moment(parse_time(value))
        moment.ago = value.strip() if parse_time(value, 0) != parse_time(value, 1) else ""
        return moment


class SecondsType(_ParsedType):
    """A duration in seconds: `1h30m`, or a number of seconds."""

    name = "duration"
    form = f"{DURATIONS}, or as a number of seconds"

    def __init__(self, least: float = 0, *, min_open: bool = False) -> None:
        self.limits = click.FloatRange(least, MAX_SECONDS, min_open=min_open)

    def parse(self, value: Any) -> float:
        """The number of seconds."""
        return parse_seconds(value)


def seconds_option(
    flag: str, default: float | None, text: str, name: str | None = None, *, min_open: bool = False
) -> Callable[[Command], Command]:
    """An option of a duration in seconds. text: its help. name: of the parameter, if it is not that of the flag."""
    names = (flag,) if name is None else (flag, name)
    kind = SecondsType(min_open=min_open)
    told = None if default is None else duration_text(default)
    return click.option(*names, type=kind, default=told, show_default=True, help=text)


class MillisecondsType(_ParsedType):
    """A duration in milliseconds, written with its unit: `7d`."""

    name = "duration"
    form = DURATIONS

    def __init__(self, min: int = 0) -> None:
        self.limits = click.IntRange(min)

    def parse(self, value: Any) -> int:
        """The number of milliseconds."""
        return parse_milliseconds(value, unit=True)


class SizeType(_ParsedType):
    """A size in bytes: `10MiB`, or a number of bytes."""

    name = "size"
    form = SIZES

    def __init__(self, min: int = 0) -> None:
        self.limits = click.IntRange(min)

    def parse(self, value: Any) -> int:
        """The number of bytes."""
        return parse_size(value)


class SegmentIdType(_ParsedType):
    """A segment of a stream: `2.1`, segment 2 of epoch 1, or its id."""

    name = "segment"

    def parse(self, value: Any) -> int:
        """The segment's id."""
        return parse_segment_id(value)


class SegmentNameType(click.ParamType):
    """The name of a segment; one of a stream also as `scope/stream/2.1`."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The full name."""
        stream, _, label = str(value).rpartition("/")
        scope, _, name = stream.rpartition("/")
        with suppress(ValueError):
            return segment_name(scope, name, parse_segment_id(label)) if scope and "." in label else str(value)
        return str(value)


class PositionType(_ParsedType):
    """A position in a stream: an end, a time, or a stream cut's text (see `stream_position`)."""

    name = "position"
    form = f"{POSITION_FORMS}; 'pravega-spark stream cuts' prints cuts"

    def parse(self, value: Any) -> StreamPosition:
        """The position, not resolved yet."""
        place = parse_position(value)
        if place == UNBOUNDED:
            raise ValueError("an unbounded cut is no position: give head or tail")
        return place


def forms(parameters: Iterable[click.Parameter]) -> Iterator[str]:
    """The syntax of parameter values, a paragraph of the help for each kind."""
    kinds = {}
    for parameter in parameters:
        if (form := getattr(parameter.type, "form", "")) and not getattr(parameter, "hidden", False):
            kinds[parameter.type.name.upper()] = form
    for name, form in kinds.items():
        yield f"{name}: {form}."


def root_options(*, required: bool) -> Callable[[Command], Command]:
    """Give a program the options that all have: the root, its storage, and the form of the output."""
    options = (
        click.option(
            "--root",
            "url",
            metavar="URI",
            envvar=ROOT_VARIABLE,
            show_envvar=True,
            required=required,
            help="Root of the streams: a folder or an fsspec URL.",
        ),
        click.option(
            "--wal", metavar="URI", help="Root of the write-ahead log, if it is not the one that the root names."
        ),
        storage_option("--storage", "the root's", "storage"),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables."),
        click.option("--wide", is_flag=True, help="Show all columns of tables, however wide."),
        click.option("--traceback", is_flag=True, help="Show the Python traceback of a failure."),
    )

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def selection_options(command: Command) -> Command:
    """Give a command --scope and --stream, which select streams (see `selected`)."""
    stream = click.option("--stream", metavar="SCOPE/STREAM", help="Only this stream; a name alone with --scope.")
    return click.option("--scope", metavar="NAME", help="Only streams of this scope.")(stream(command))


def stream_argument(command: Command) -> Command:
    """Add the argument SCOPE/STREAM as `name`."""
    return click.argument("name", metavar="SCOPE/STREAM", type=StreamNameType())(command)


def selected(scope: str | None, stream: str | None) -> tuple[str | None, str | None]:
    """The scope and the stream that --scope and --stream select. Raises a usage error for invalid names, for a stream
    without its scope, and for one of another scope."""
    if scope is not None:
        ScopeType().convert(scope, None, None)
    if stream is None:
        return scope, None
    if "/" not in stream and scope is None:
        raise click.UsageError(f"--stream {stream} is not SCOPE/STREAM: give the scope of the stream, or --scope.")
    name: StreamName = StreamNameType().convert(stream if "/" in stream else f"{scope}/{stream}", None, None)
    if scope not in (None, name.scope):
        raise click.UsageError(f"--stream {stream} is not in scope {scope}: leave --scope out.")
    return name


def yes_option(command: Command) -> Command:
    """Add the option --yes, without which a command changes nothing."""
    return click.option(
        "--yes", is_flag=True, help="Apply the change. Without --yes, show what would change and exit 1."
    )(command)


def change_options(command: Command) -> Command:
    """Add --yes, without which a command changes nothing, and --dry-run, which makes that a success."""
    return dry_run_option(yes_option(command))


def dry_run_option(command: Command) -> Command:
    """Add --dry-run, for a command that needs no --yes."""
    return click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")(command)


def settings_option(command: Command) -> Command:
    """Add --setting, for settings of the process and of a new root, as `settings`."""

    def parsed(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, object]:
        from pravega_spark.settings import parse_settings

        try:
            return parse_settings(",".join(given), "--setting")
        except ValueError as error:
            raise click.BadParameter(str(error).removeprefix("--setting: "), context, parameter) from None

    text = "Setting of this process, or of a new root, as cache_bytes=256MiB. Repeatable."
    return click.option("--setting", "settings", metavar="NAME=VALUE", multiple=True, callback=parsed, help=text)(
        command
    )


def storage_option(flag: str, filesystem: str, name: str = "options") -> Callable[[Command], Command]:
    """Add the options of a filesystem as `name`. filesystem: for the help."""
    text = f"Option of {filesystem} filesystem; the value is JSON or text. Repeatable."
    return click.option(flag, name, metavar="NAME=VALUE", multiple=True, callback=_parsed, help=text)


def _parsed(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, object]:
    """The values of --storage. Errors never show them, as they may be credentials."""
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
