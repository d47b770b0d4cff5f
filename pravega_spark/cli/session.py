"""What one call of the command line works with: the root, and how failures end it.

Owns that a failure is one line on stderr and exit code 1, and that no storage option's value is ever shown.
"""

from __future__ import annotations

import json
from typing import Any

import click

from engine.root import Root
from pravega_spark.cli.output import Output


class Refused(click.ClickException):
    """A command was refused or failed: one line on stderr, exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: Any = None) -> None:
        """Print it."""
        click.echo(f"pravega-spark: {self.message}", err=True)


class Commands(click.Group):
    """The commands, whose failures become `Refused`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("traceback"):
                raise
            raise Refused(_told(error)) from error


def _told(error: Exception) -> str:
    """The error's message; of one that nobody has worded, its kind too."""
    ours = type(error).__module__.partition(".")[0] in ("chunkstore", "engine", "pravega_spark")
    if str(error) and (ours or isinstance(error, ValueError)):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}; run it again with --traceback and report it"


class Session:
    """One call. The root is opened when a command asks for it, and closed when the call ends."""

    def __init__(self, url: str | None, wal: str | None, options: dict[str, object], as_json: bool) -> None:
        self.output = Output(as_json)
        self.new_log = False  # whether an empty log takes the place of one that is lost
        self._url = url
        self._wal = wal
        self._options = options
        self._root: Root | None = None

    @property
    def root(self) -> Root:
        """The root that was named; it is never made here. Raises UsageError if none was, StorageRefused."""
        if self._root is None:
            if not self._url:
                raise click.UsageError("Give the root of the streams with --root, before the command.")
            self._root = Root.open(
                self._url, self._options, wal=self._wal, create=False, new_log=self.new_log
            )
        return self._root

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._root is not None:
            self._root.close()


pass_session = click.make_pass_decorator(Session)
"""Gives a command the session as its first argument."""


def storage_options(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, object]:
    """The values of --storage. Errors do not show them: they may be credentials."""
    options: dict[str, object] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter("it must be a name, '=', and a value", context, parameter)
        if name in options:
            raise click.BadParameter(f"{name!r} is given twice", context, parameter)
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options
