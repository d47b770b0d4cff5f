"""The entrance of the command line: the options that all commands have, and the groups."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import click

from pravega_spark.cli.collection import gc
from pravega_spark.cli.completion import PROGRAM, completion
from pravega_spark.cli.containers import container
from pravega_spark.cli.copies import backup, restore
from pravega_spark.cli.defragmentation import defrag
from pravega_spark.cli.events import stream
from pravega_spark.cli.headers import header
from pravega_spark.cli.maintenance import maintain
from pravega_spark.cli.scopes import scope
from pravega_spark.cli.segments import segment
from pravega_spark.cli.session import Commands, Session, storage_option
from pravega_spark.cli.verification import verify

ROOT_VARIABLE = "PRAVEGA_CONTROLLER_URI"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--root", "url", metavar="URI", envvar=ROOT_VARIABLE, show_envvar=True, help="Root of the streams.")
@click.option("--wal", metavar="URI", help="Where the write-ahead log is, if not where the root says.")
@storage_option("--storage", "the root's")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--traceback", is_flag=True, help="If something fails, show where in the program.")
@click.version_option(package_name="pravega-spark")
@click.pass_context
def cli(
    context: click.Context,
    url: str | None,
    wal: str | None,
    options: dict[str, object],
    as_json: bool,
    traceback: bool,  # see Commands
) -> None:
    """Event streams in a folder or a bucket: make, write and read them, look at them, verify and repair them."""
    context.obj = context.with_resource(Session(url, wal, options, as_json))


COMMANDS = (scope, stream, container, segment, verify, gc, defrag, maintain, backup, restore, header, completion)

for command in COMMANDS:
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave: 0 = done, 1 = refused or failed, 2 = wrong usage."""
    logging.getLogger().addHandler(logging.NullHandler())  # warnings of upkeep are not for this terminal
    cli.main(args=arguments, prog_name=PROGRAM)
