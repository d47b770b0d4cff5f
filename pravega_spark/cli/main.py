"""The entry point of the command line: the options that all commands have, and the groups."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import click

from pravega_spark.cli.collection import gc
from pravega_spark.cli.completion import PROGRAM, completion
from pravega_spark.cli.containers import container
from pravega_spark.cli.copies import backup, restore
from pravega_spark.cli.defragmentation import defrag
from pravega_spark.cli.headers import header
from pravega_spark.cli.maintenance import maintain
from pravega_spark.cli.policies import stream
from pravega_spark.cli.roots import root
from pravega_spark.cli.scopes import scope
from pravega_spark.cli.segments import segment
from pravega_spark.cli.session import Session
from pravega_spark.cli.verification import verify
from pravega_spark.console.arguments import storage_option
from pravega_spark.console.program import Commands

ROOT_VARIABLE = "PRAVEGA_CONTROLLER_URI"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--root",
    "url",
    metavar="URI",
    envvar=ROOT_VARIABLE,
    show_envvar=True,
    help="Root of the streams: a folder or an fsspec URL.",
)
@click.option("--wal", metavar="URI", help="Root of the write-ahead log, if it is not the one that the root names.")
@storage_option("--storage", "the root's")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--traceback", is_flag=True, help="Show the Python traceback of a failure.")
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
    """Event streams in a folder or a bucket: create, write, read and inspect them; verify and maintain their root."""
    context.obj = context.with_resource(Session(url, wal, options, as_json))


COMMANDS = (root, scope, stream, container, segment, verify, gc, defrag, maintain, backup, restore, header, completion)

for command in COMMANDS:
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 = done, 1 = refused or failed, 2 = usage error."""
    logging.getLogger().addHandler(logging.NullHandler())  # warnings of upkeep are not for this terminal
    cli.main(args=arguments, prog_name=PROGRAM)
