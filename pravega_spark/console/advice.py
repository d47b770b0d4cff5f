"""What somebody at the command line can do about an error whose remedy depends on where one meets it."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

import click

from chunkstore.urls import redact
from engine.errors import RootNotFound, root_command
from pravega_spark.errors import AdvisedError, ScopeNotFound, StreamNotFound, StreamNotSealed, StreamRecreated

if TYPE_CHECKING:
    from pravega_spark.streams.maintenance.retention import Retained

ROOT_VARIABLE = "PRAVEGA_CONTROLLER_URI"
"""Where the root of a command is taken from that names none."""

_COMMAND = re.compile(r"`pravega-spark ((?:--root (?:'[^']*'|[^\s'`])+ )?)")


def with_root_options(text: str) -> str:
    """A text in which the commands between backticks go to the root, and the log, that this call was given.

    Else they would go to another root, or to none, unless it came from the environment.
    """
    context = click.get_current_context(silent=True)
    given = context.find_root().params if context is not None else {}
    root, wal = (_option(flag, given.get(name)) for flag, name in (("--root", "url"), ("--wal", "wal")))
    if given.get("url") == os.environ.get(ROOT_VARIABLE):
        root = ""
    return _COMMAND.sub(lambda found: f"`pravega-spark {found[1] or root}{wal}", text)


def _option(flag: str, value: str | None) -> str:
    return f"{flag} {shlex.quote(value)} " if value and redact(value) == value else ""


def why_kept(found: Retained) -> str:
    """Why retention truncated nothing, and what lets it."""
    return f"{found.why}: give a shorter --period to record one now" if found.early else found.why


def user_message(error: Exception) -> str:
    """The message of an error for a user of the command line."""
    match error:
        case ScopeNotFound():
            return (
                f"{error.fact} `pravega-spark scope list` shows what there is, and `pravega-spark scope create "
                f"{error.scope}` makes it."
            )
        case StreamNotFound(without_scope=True):
            scope = error.stream.partition("/")[0]
            return (
                f"{error.fact} `pravega-spark scope list` shows what there is, and `pravega-spark scope create "
                f"{scope}` makes it."
            )
        case StreamRecreated():
            return f"{error.fact} {error.remedy}"
        case StreamNotFound():
            return (
                f"{error.fact} `pravega-spark stream list` shows what there is, and `pravega-spark stream create "
                f"{error.stream}` makes it."
            )
        case RootNotFound(inside=False):
            return (
                f"{error.fact} Look whether this is the right place, and whether its storage is mounted. Create a root "
                f"there: `{root_command(error.root)}`."
            )
        case StreamNotSealed():
            return f"{error.fact} Seal it first: `pravega-spark stream seal {error.stream}`."
        case AdvisedError():
            return f"{error.fact} {error.remedy}".strip()
    return str(error)
