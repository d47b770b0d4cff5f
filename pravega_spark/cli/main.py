"""The entry point of the command line, and the options that all commands have."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from typing import Any

import click

from pravega_spark.cli.commands import EXAMPLES, add_to, all_commands
from pravega_spark.cli.completion import PROGRAM
from pravega_spark.cli.session import Session
from pravega_spark.console.arguments import forms, root_options, settings_option
from pravega_spark.console.program import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@root_options(required=False)
@settings_option
@click.option("--salvage", is_flag=True, help="Read the sound part of a damaged Pravega storage.")
@click.option("--unrecorded", is_flag=True, help="Also read events that a killed Pravega server did not record.")
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
    settings: dict[str, object],
    salvage: bool,
    unrecorded: bool,
) -> None:
    """Event streams in a folder or a bucket: create, write, read and inspect them; verify and maintain their root.

    The options below may be given before or after the command.
    """
    context.obj = context.with_resource(Session(url, wal, storage, as_json, wide))
    context.obj.salvage, context.obj.unrecorded, context.obj.settings = salvage, unrecorded, settings


add_to(cli)

_GLOBAL = ("url", "wal", "storage", "settings", "as_json", "wide", "salvage", "unrecorded", "traceback")


def _after(option: click.Option) -> click.Option:
    """A global option as it may be given after a command, hidden from the command's help."""
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
    """Add the global options to a command, and an example to its help."""
    options = (option for option in cli.params if isinstance(option, click.Option))
    command.params += [_after(option) for option in options if option.name in _GLOBAL]
    notes = list(forms(command.params))
    if words in EXAMPLES:
        notes.append(f"\b\nExample:\n  pravega-spark {EXAMPLES[words]}")
    command.epilog = "\n\n".join(notes) or None


for words, command in all_commands(cli):
    _complete(words, command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 = done, 1 = refused or failed, 2 = usage error."""
    logging.getLogger().addHandler(logging.NullHandler())  # background maintenance does not warn on this terminal
    cli.main(args=arguments, prog_name=PROGRAM)
