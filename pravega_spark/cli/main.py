"""The entry point of the command line: the options that all commands have, and the groups."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import click

from pravega_spark.cli.collection import gc
from pravega_spark.cli.completion import PROGRAM, completion
from pravega_spark.cli.containers import container
from pravega_spark.cli.copies import backup, restore
from pravega_spark.cli.defragmentation import defrag
from pravega_spark.cli.examples import EXAMPLES
from pravega_spark.cli.groups import group
from pravega_spark.cli.headers import header
from pravega_spark.cli.imports import import_
from pravega_spark.cli.key_value_tables import kvt
from pravega_spark.cli.maintenance import maintain
from pravega_spark.cli.policies import stream
from pravega_spark.cli.roots import root
from pravega_spark.cli.scopes import scope
from pravega_spark.cli.segments import segment
from pravega_spark.cli.session import Session
from pravega_spark.cli.verification import verify
from pravega_spark.console.arguments import forms, root_options
from pravega_spark.console.program import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@root_options(required=False)
@click.option("--salvage", is_flag=True, help="Of a Pravega's storage that is damaged, read what is sound.")
@click.version_option(package_name="pravega-spark")
@click.pass_context
def cli(
    context: click.Context,
    url: str | None,
    wal: str | None,
    storage: dict[str, object],
    as_json: bool,
    wide: bool,
    traceback: bool,  # see Commands
    salvage: bool,
) -> None:
    """Event streams in a folder or a bucket: create, write, read and inspect them; verify and maintain their root.

    The options below may be given before or after the command.
    """
    context.obj = context.with_resource(Session(url, wal, storage, as_json, wide))
    context.obj.salvage = salvage


COMMANDS = (
    root,
    scope,
    stream,
    group,
    kvt,
    container,
    segment,
    verify,
    gc,
    defrag,
    maintain,
    backup,
    restore,
    import_,
    header,
    completion,
)

for command in COMMANDS:
    cli.add_command(command)


_GLOBAL = ("url", "wal", "storage", "as_json", "wide", "salvage", "traceback")


def walk(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command and group below a group, with its words."""
    for name, command in group.commands.items():
        yield prefix + name, command
        if isinstance(command, click.Group):
            yield from walk(command, f"{prefix}{name} ")


def _after(option: click.Option) -> click.Option:
    """A global option as it may be given after a command. It does not crowd the command's help."""
    found = copy(option)
    found.hidden, found.expose_value, found.envvar = True, False, None
    parse = option.callback

    def take(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        value = parse(context, parameter, value) if parse is not None else value
        if not value:
            return
        if parameter.name in ("traceback", "url", "wal"):  # see Commands, advice
            context.find_root().params[parameter.name] = value
        if parameter.name != "traceback":
            session = context.find_object(Session)
            assert session is not None
            session.take(str(parameter.name), value)

    found.callback = take
    return found


def _complete(words: str, command: click.Command) -> None:
    """Give a command what all have: the global options, and an example in its help."""
    options = (option for option in cli.params if isinstance(option, click.Option))
    command.params += [_after(option) for option in options if option.name in _GLOBAL]
    told = list(forms(command.params))
    if words in EXAMPLES:
        told.append(f"\b\nExample:\n  pravega-spark {EXAMPLES[words]}")
    command.epilog = "\n\n".join(told) or None


for words, command in walk(cli):
    _complete(words, command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 = done, 1 = refused or failed, 2 = usage error."""
    logging.getLogger().addHandler(logging.NullHandler())  # warnings of upkeep are not for this terminal
    cli.main(args=arguments, prog_name=PROGRAM)
