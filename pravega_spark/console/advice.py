"""Remedies of errors, for users of the command line: the commands to run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from chunkstore import StorageRefused, Store
from chunkstore.urls import redact
from engine.errors import RootNotFound, root_command
from pravega_spark.errors import (
    AdvisedError,
    KeyValueTableNotFound,
    ScopeNotFound,
    StreamNotFound,
    StreamNotSealed,
    StreamRecreated,
    TooFewSegments,
)
from pravega_spark.storage_options import open_checked

if TYPE_CHECKING:
    from pravega_spark.streams.maintenance.retention import Retained

ROOT_VARIABLE = "PRAVEGA_CONTROLLER_URI"
"""The environment variable with the root of a command without --root."""

_COMMAND = re.compile(r"`pravega-spark ((?:--root (?:'[^']*'|[^\s'`])+ )?)")


def with_root_options(text: str) -> str:
    """The text with the --root and --wal of this invocation added to the commands in backticks.

    Otherwise they would use another root, or none. A root from the environment is not added.
    """
    context = click.get_current_context(silent=True)
    given = context.find_root().params if context is not None else {}
    root, wal = (_option(flag, given.get(name)) for flag, name in (("--root", "url"), ("--wal", "wal")))
    if given.get("url") == os.environ.get(ROOT_VARIABLE):
        root = ""
    return _COMMAND.sub(lambda found: f"`pravega-spark {found[1] or root}{wal}", text)


def _option(flag: str, value: str | None) -> str:
    return f"{flag} {shlex.quote(value)} " if value and redact(value) == value else ""


@contextmanager
def elsewhere(url: str, options: Mapping[str, Any] | None) -> Iterator[Store]:
    """Open a storage other than the root's: a backup's, a checkpoint's, or the source of an import.

    Its options are those of --elsewhere, so errors about it name this option where they would name --storage.
    """
    root = None
    try:
        store = open_checked(url, options)
        root = store.root
        yield store
    except StorageRefused as error:
        text = str(error)
        if root is None or text.startswith(f"{root}:"):
            error.args = (text.replace("--storage ", "--elsewhere "), *error.args[1:])
        raise


def why_kept(found: Retained) -> str:
    """Why retention truncated nothing, and how to change that."""
    return f"{found.why}: give a shorter --period to record one now" if found.early else found.why


def user_message(error: Exception) -> str:
    """The message of an error, for users of the command line."""
    match error:
        case StreamRecreated():
            return f"{error.fact} {error.remedy}"
        case ScopeNotFound(read_only=True) | StreamNotFound(read_only=True, without_scope=True):
            return f"{error.fact} `pravega-spark scope list` shows what there is."
        case StreamNotFound(read_only=True):
            return f"{error.fact} `pravega-spark stream list` shows what there is."
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
        case KeyValueTableNotFound(without_scope=True):
            scope = error.table.partition("/")[0]
            return (
                f"{error.fact} `pravega-spark scope list` shows what there is, and `pravega-spark scope create "
                f"{scope}` makes it."
            )
        case KeyValueTableNotFound():
            return (
                f"{error.fact} `pravega-spark kvt list` shows what there is, and `pravega-spark kvt create` makes it."
            )
        case StreamNotFound():
            return (
                f"{error.fact} `pravega-spark stream list` shows what there is, and `pravega-spark stream create "
                f"{error.stream}` makes it."
            )
        case RootNotFound(inside=False, content=""):
            return (
                f"{error.fact} Look whether this is the right place, and whether its storage is mounted. Create a root "
                f"there: `{root_command(error.root)}`."
            )
        case TooFewSegments():
            update = f"pravega-spark stream update {error.stream} --min-segments {error.left}"
            return f"{error.fact} Lower the minimum first: `{update}`."
        case StreamNotSealed():
            return f"{error.fact} Seal it too: `pravega-spark stream delete {error.stream} --seal --yes`."
        case AdvisedError():
            return f"{error.fact} {error.remedy}".strip()
    return str(error)
