"""Declares each job once, for its command and for `python -m pravega_spark.jobs.…`: its help and its own options.

Importing this loads no job, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import click

from pravega_spark.console.arguments import Command, PositionType, SecondsType, StreamNameType, storage_option


class JobDeclaration(NamedTuple):
    """A job. name: of its module in `pravega_spark.jobs`. example: the options of an example call of this module."""

    name: str
    help: str
    example: str
    options: tuple[Callable[[Any], Any], ...]

    def with_options(self, command: Command) -> Command:
        """Give a command the options of the job. Those without a value are None: the job has their defaults."""
        for option in reversed(self.options):
            command = option(command)
        return command


_PERIOD = click.option("--period", type=SecondsType(), help="Time between two recorded stream cuts.  [default: 30m]")

MAINTAIN = JobDeclaration(
    "maintain",
    """Run routine maintenance on streams and their root.

    Streams: apply retention and scaling policies, and abort transactions whose lease has expired. Root: flush, merge
    small chunks, collect garbage and, with --verify, verify. The root is maintained whatever streams are selected. A
    dry run plans the merges of chunks before the flush, which may add some. If a step fails, the others still run, and
    the command fails at the end. Other processes may use the root meanwhile.
    """,
    "--root /streams --verify --yes",
    (
        _PERIOD,
        click.option(
            "--orphan-age",
            type=SecondsType(),
            help="Minimum age of an orphan. Writers slower than this are rejected at commit.  [default: 1d]",
        ),
        click.option("--verify", "check", is_flag=True, help="Verify the root at the end."),
    ),
)

RETENTION = JobDeclaration(
    "retention",
    """Apply the retention policies of streams now.

    The tail is recorded as a stream cut, once in a --period. The stream is truncated at the newest recorded cut that
    keeps the policy's minimum and what subscribers have not read. Subscribers hold back at most the policy's maximum,
    if it has one. Nothing is done if the last stream cut was recorded less than a --period ago.
    """,
    "--root /streams --scope trips --yes",
    (_PERIOD,),
)

TRUNCATE = JobDeclaration(
    "truncate",
    """Delete the events before a position, which becomes the head.

    A stream cut applies to one stream only. Some events that were written shortly before a given time may remain.
    Truncated events cannot be restored.
    """,
    "--root /streams --at 30d --yes",
    (click.option("--at", type=PositionType(), required=True, help="The new head."),),
)

IMPORT = JobDeclaration(
    "imports",
    """Import streams of a Pravega cluster from its long-term storage.

    Policies, tags, epochs, segment ids, offsets and stream cuts stay the same. The root is created if there is none.
    The source is not changed, neither now nor by later changes of the root.

    Without --copy the data is hard-linked, so the source and the root must be folders on one filesystem. Either way all
    events are checked. If an import is interrupted, repeat it: it continues where it stopped.
    """,
    "--source /mnt/pravega-lts --root /data/streams --spark --yes",
    (
        click.option("--copy", "copied", is_flag=True, help="Copy the data, to any storage, instead of linking it."),
        click.option(
            "--byte-stream",
            "byte_streams",
            metavar="SCOPE/STREAM",
            type=StreamNameType(),
            multiple=True,
            help="This stream is a byte stream: its bytes are not events. Repeatable.",
        ),
        storage_option("--elsewhere", "the source's", "source_options"),
    ),
)
