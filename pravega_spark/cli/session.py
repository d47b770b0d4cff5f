"""What one call of the command line works with: the root, and how failures end it.

Owns that a failure is one line on stderr and exit code 1, that wrong usage is one line too and exit code 2, and that no
storage option's value is ever shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.exceptions import NoArgsIsHelpError

from engine.root import Root
from pravega_spark.cli.output import Output

if TYPE_CHECKING:
    from pravega_spark.client.manager import StreamManager


Command = TypeVar("Command", bound=Callable[..., Any])


class Refused(click.ClickException):
    """A command was refused or failed: one line on stderr, exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: Any = None) -> None:
        """Print it."""
        click.echo(f"{click.style('pravega-spark:', fg='red')} {self.message}", err=True)


class WrongUsage(click.ClickException):
    """A command that cannot be understood: one line on stderr, exit code 2."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        command = error.ctx.command_path if error.ctx is not None else "pravega-spark"
        message = " ".join(error.format_message().split()).rstrip(".")
        super().__init__(f"{message}; see {command} --help")


class Commands(click.Group):
    """The commands, whose failures become `Refused` or `WrongUsage`."""

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Understand the options before the command."""
        try:
            return super().make_context(*arguments, **extra)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise WrongUsage(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
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
        self.new_root = False  # whether the root is made if there is none
        self._url = url
        self._wal = wal
        self._options = options
        self._root: Root | None = None

    @property
    def root(self) -> Root:
        """The root that was named. Raises UsageError if none was, StorageRefused."""
        if self._root is None:
            self._root = Root.open(
                self.url, self._options, wal=self._wal, create=self.new_root, new_log=self.new_log
            )
        return self._root

    @property
    def url(self) -> str:
        """What was named as the root. Raises UsageError if nothing was."""
        if not self._url:
            raise click.UsageError("Give the root of the streams with --root, before the command.")
        return self._url

    @property
    def wal(self) -> str | None:
        """What was named as the place of the log."""
        return self._wal

    @property
    def options(self) -> dict[str, object]:
        """The options of the root's filesystem. They are not to be shown."""
        return self._options

    @property
    def manager(self) -> StreamManager:
        """The streams of the root. It is closed with the session."""
        from pravega_spark.client.manager import StreamManager  # takes longer to load than all other commands need

        return StreamManager.over(self.root)

    def insist(self, yes: bool, *lines: str) -> None:
        """Go on if that is wanted; else tell what would be done, and refuse to do it."""
        if not yes:
            for line in lines:
                self.output.warning(line)
            raise Refused("nothing was done: give --yes to do it")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._root is not None:
            self._root.close()


pass_session = click.make_pass_decorator(Session)
"""Gives a command the session as its first argument."""


def storage_option(flag: str, filesystem: str) -> Callable[[Command], Command]:
    """Gives a command the options of a filesystem as `options`; "whose" filesystem is for the help."""
    text = f"Option of {filesystem} filesystem; JSON if it is. May be given several times."
    return click.option(flag, "options", metavar="NAME=VALUE", multiple=True, callback=_parsed, help=text)


def _parsed(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, object]:
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
