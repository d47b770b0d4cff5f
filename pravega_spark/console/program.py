"""How a program ends: failures, usage errors, exit codes.

Keeps that a failure is one line on stderr and exit code 1, wrong usage one line and exit code 2, and that no storage
option's value is ever shown.
"""

from __future__ import annotations

from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from pravega_spark.console.advice import user_message, with_root_options
from pravega_spark.console.output import printable


class Refused(click.ClickException):
    """A command was refused or failed: one line on stderr, exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(with_root_options(printable(" ".join(message.split()))))

    def show(self, file: Any = None) -> None:
        """Print it."""
        click.echo(f"{click.style('pravega-spark:', fg='red')} {self.message}", err=True)


class NothingChanged(Refused):
    """A command without --yes printed the changes that it would make."""

    def __init__(self) -> None:
        super().__init__("nothing was changed: give --yes to apply the change")


class WrongUsage(click.ClickException):
    """A usage error: one line on stderr, exit code 2."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        command = error.ctx.command_path if error.ctx is not None else "pravega-spark"
        message = " ".join(error.format_message().split()).rstrip(".")
        super().__init__(f"{message}; see {command} --help")


class Commands(click.Group):
    """The commands, whose failures become `Refused` or `WrongUsage`."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Parse the options before the command."""
        try:
            return super().make_context(*arguments, **extra)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise WrongUsage(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise WrongUsage(error) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("traceback"):
                raise
            raise Refused(_message(error)) from error


def _message(error: Exception) -> str:
    """The error's message; for an unexpected error, with its type."""
    ours = type(error).__module__.partition(".")[0] in ("chunkstore", "engine", "pravega_spark")
    if str(error) and (ours or isinstance(error, ValueError)):
        return user_message(error)
    return f"unexpected {type(error).__name__}: {error}; run again with --traceback and report it"
