"""The events of streams: `stream write`, `stream read` and `stream tail`. An event is a line."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import PositionType, SecondsType, StreamName, stream_argument
from pravega_spark.console.interrupts import until_interrupted
from pravega_spark.console.output import printable
from pravega_spark.console.program import Refused
from pravega_spark.quantities import counted, size_text
from pravega_spark.streams.model.events import HEADER_SIZE
from pravega_spark.streams.reading.stream_position import StreamPosition

if TYPE_CHECKING:
    from pravega_spark.client.event import Event

MAX_LINE = 8 << 20
"""Maximum bytes of a line, the limit of an event."""

_LINES_PER_UPDATE = 1000  # of the progress bar


# --- writing ------------------------------------------------------------------------------------------------------


@click.command()
@stream_argument
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key", help="Routing key of all events.")
@click.option(
    "--key-from", "field", metavar="FIELD", help="Read each line as a JSON object and use this field as routing key."
)
@pass_session
def write(session: Session, name: StreamName, file: BinaryIO, key: str | None, field: str | None) -> None:
    """Write each line of a file, or of stdin, as an event.

    The line end is left out. Lines are written as they are read: if one is rejected, those before it are written.
    """
    if key is not None and field is not None:
        raise click.UsageError("Give --key or --key-from, not both.")
    events = read = 0
    with session.manager.create_writer(*name) as writer, session.output.progress(not file.isatty()) as progress:
        total = _size_of(file)
        progress(f"to {name}", 0, total)
        for number, line in enumerate(_lines(file), start=1):
            if len(line) > MAX_LINE:
                limit = f"{size_text(MAX_LINE)}, the limit of an event"
                raise Refused(f"line {number} is longer than {limit}; {_before(number)}")
            writer.write_event_bytes(line, key if field is None else _key_of(line, field, number))
            events, read = events + 1, read + len(line)
            if number % _LINES_PER_UPDATE == 0:
                progress(f"to {name}", read + events, total)
    size = read + HEADER_SIZE * events  # as all sizes of streams
    session.output.document({"stream": str(name), "written": {"events": events, "bytes": size}})
    were = "was" if events == 1 else "were"
    session.output.line(f"{counted(events, 'event')} ({size_text(size)}) {were} written to stream {name}")


def _size_of(file: BinaryIO) -> int:
    """The bytes of a file, 0 for a pipe."""
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:
        return 0


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines without their ends. A line that is too long is cut, and is still too long."""
    while line := file.readline(MAX_LINE + 2):
        yield line.removesuffix(b"\n")


def _key_of(line: bytes, field: str, number: int) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        raise Refused(f"line {number} is not JSON; {_before(number)}") from None
    value = found.get(field) if isinstance(found, dict) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Refused(f"line {number} has no text or number in field {field!r}; {_before(number)}")
    return str(value)


def _before(number: int) -> str:
    before = f"{counted(number - 1, 'line')} before it {'was' if number == 2 else 'were'} written"
    return "nothing was written" if number == 1 else before


# --- reading ------------------------------------------------------------------------------------------------------


@click.command()
@stream_argument
@click.option("--from", "begin", type=PositionType(), help="Where to start.  [default: head]")
@click.option("--to", "end", type=PositionType(), help="Where to end.  [default: tail]")
@click.option("--count", type=click.IntRange(min=0), help="Maximum number of events.")
@click.option("--last", type=click.IntRange(min=1), help="Print the last events, in the order in which they came.")
@pass_session
def read(
    session: Session,
    name: StreamName,
    begin: StreamPosition | None,
    end: StreamPosition | None,
    count: int | None,
    last: int | None,
) -> None:
    """Print the events between two positions, one per line.

    They come segment by segment, in order within each. A position is head, tail, a time, or a stream cut. With --last
    they come in the order in which they were appended, whatever their segments.
    """
    manager = session.manager
    chosen: Iterable[Event]
    if last is None:
        chosen = islice(manager.read_events(*name, begin, end), count)
    elif (begin, end, count) == (None, None, None):
        chosen = manager.last_events(*name, last)
    else:
        raise click.UsageError("--last is of the whole stream: omit --from, --to and --count.")
    if session.output.as_json:
        _print_document(name, chosen)
    else:
        _print_lines(chosen)


@click.command()
@stream_argument
@click.option("--from", "begin", type=PositionType(), help="Where to start.  [default: tail]")
@click.option("-n", "--last", type=click.IntRange(min=1), help="Start with this many of the last events.")
@click.option("--count", type=click.IntRange(min=0), help="Stop after this many events.")
@click.option(
    "--poll",
    type=SecondsType(0.01),
    default="200ms",
    show_default=True,
    help="Time between polls of a stream that has no new events.",
)
@pass_session
def tail(
    session: Session, name: StreamName, begin: StreamPosition | None, last: int | None, count: int | None, poll: float
) -> None:
    """Print events as they arrive, until Ctrl-C.

    It ends too when the stream is sealed. With --last the last events come first, in the order in which they were
    appended. With --json each line is one document.
    """
    if begin is not None and last is not None:
        raise click.UsageError("Give --from or --last, not both.")
    manager = session.manager
    with until_interrupted() as stop:
        before: Sequence[Event] = ()
        if last is not None:
            found = manager.last_events(*name, last)
            before, begin = found, found.end
        events = chain(before, manager.tail(*name, begin, poll, stop))
        chosen = takewhile(lambda event: not stop.is_set(), islice(events, count))
        if session.output.as_json:
            for event in chosen:
                session.output.record(_row(event))
        else:
            _print_lines(chosen, at_once=True)


def _print_lines(events: Iterable[Event], at_once: bool = False) -> None:
    out = sys.stdout.buffer
    terminal = out.isatty()
    for event in events:
        out.write((for_terminal(event.data) if terminal else event.data) + b"\n")
        if at_once:
            out.flush()
    out.flush()


def for_terminal(data: bytes) -> bytes:
    """Bytes as text without control characters, which a terminal would execute."""
    return printable(data.decode(errors="backslashreplace"), "\t").encode()


def _print_document(name: StreamName, events: Iterable[Event]) -> None:
    """One document. Its events are printed one by one, as there may be any number."""
    click.echo(f'{{"stream": {json.dumps(str(name))}, "events": [', nl=False)
    separator = "\n  "
    for event in events:
        click.echo(separator + json.dumps(_row(event)), nl=False)
        separator = ",\n  "
    click.echo("]}")


def _row(event: Event) -> dict[str, Any]:
    try:
        text, coded = event.data.decode(), None
    except UnicodeDecodeError:
        text, coded = None, base64.b64encode(event.data).decode()
    return {"event": text, "base64": coded, "segment_id": event.segment_id, "offset": event.offset}
