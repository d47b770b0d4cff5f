"""`stream draw`: a picture of the segments of a stream."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import Moment, MomentType, StreamName, stream_argument
from pravega_spark.console.output import moment
from pravega_spark.console.program import Refused
from pravega_spark.quantities import moment_text

if TYPE_CHECKING:
    from pravega_spark.client.manager import StreamManager


@click.command()
@stream_argument
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False),
    required=True,
    help="File to write: .svg or .html.",
)
@click.option(
    "--at", "moments", type=MomentType(), multiple=True, metavar="TIME", help="Draw a line at this time. Repeatable."
)
@click.option("--even", is_flag=True, help="Make all epochs equally wide.")
@pass_session
def draw(session: Session, name: StreamName, path: str, moments: tuple[Moment, ...], even: bool) -> None:
    """Draw the segments of a stream over time and keys. A browser shows details of the part under the pointer."""
    from pravega_spark.picture import stream_picture

    manager = session.manager
    cuts = {_since(manager, name, at, moments): at for at in moments}
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise Refused(f"cannot write {path}: folder {folder} does not exist. Create it, or give another with -o")
    try:
        stream_picture(manager, *name, cuts=cuts, even=even).save(path)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}. Give another file with -o") from error
    session.output.document({"stream": str(name), "file": path})
    session.output.line(f"{path} shows stream {name}")


def _since(manager: StreamManager, name: StreamName, at: Moment, moments: Sequence[Moment]) -> str:
    """The label of a time: with milliseconds if another of the times is in the same second, and as it was written if
    that was relative to now."""
    cut, tail = manager.stream_cut_at(*name, at), manager.stream_info(*name).tail
    shared = sum(each // 1000 == at // 1000 for each in {*moments}) > 1
    time = moment(at) if shared else moment_text(at)
    return f"{'no' if cut == tail else 'first'} event since {f'{at.ago} ({time})' if at.ago else time}"
