"""Errors as a user of Spark reads them: one sentence that says what is wrong and what to do, with few stack frames.

Spark prints all frames and causes of a Python exception before its message. Errors whose message is complete are raised
without both, which are logged at DEBUG. Unexpected errors keep them. If the remedy depends on how the user got the
error, the message names the Spark option. Modules are imported only when something fails, as every Spark session
imports the data source.
"""

from __future__ import annotations

import functools
import inspect
import logging
import opcode
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pravega_spark.source import worker_log

logger = logging.getLogger(__name__)

Method = TypeVar("Method", bound=Callable[..., Any])

_READ_ONLY = "Metadata table 'Streams' lists the streams of a scope."

_OURS = ("chunkstore", "engine", "pravega_spark")


def for_users(method: Method) -> Method:
    """Decorate a method or generator method that Spark calls, so that it raises such errors, and logs as Spark does."""
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def iterate(*arguments: Any, **named: Any) -> Any:
            worker_log.configure()
            try:
                yield from method(*arguments, **named)
            except Exception as error:
                if not _explains_itself(error):
                    raise
                raise _without_frames(error) from _cause(error)

        return cast("Method", iterate)

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        worker_log.configure()
        try:
            return method(*arguments, **named)
        except Exception as error:
            if not _explains_itself(error):
                raise
            raise _without_frames(error) from _cause(error)

    return cast("Method", call)


def _explains_itself(error: Exception) -> bool:
    """Whether the message is complete: an error of this project, or a ValueError that its code raised."""
    if type(error).__module__.partition(".")[0] in _OURS:
        return True
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or type(error) is not ValueError:
        return False
    frame, step = place.tb_frame, place.tb_frame.f_code.co_code[place.tb_lasti]
    ours = str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OURS
    return ours and step == opcode.opmap["RAISE_VARARGS"]  # else an extension module that it called raised the error


def _without_frames(error: Exception) -> Exception:
    logger.debug("An error that is raised without its frames", exc_info=error)
    text = message_for_users(error)
    if text != str(error):
        error.args = (text,)
    return error.with_traceback(None)


def _cause(error: Exception) -> BaseException | None:
    """The cause that users should see: that of a container that is offline."""
    from engine.errors import ContainerOffline

    return error.__cause__ if isinstance(error, ContainerOffline) else None


def message_for_users(error: Exception) -> str:
    """The message of an error for a user of Spark."""
    from engine.errors import RootNotFound
    from pravega_spark.errors import (
        PositionLost,
        ScopeNotFound,
        StreamDeleted,
        StreamNotFound,
        StreamRecreated,
        TruncatedData,
    )

    match error:
        case ScopeNotFound(read_only=True):
            return f"{error.fact} {_READ_ONLY}"
        case ScopeNotFound():
            return f"{error.fact} Create it first, or set option 'allow_create_scope' to true."
        case StreamDeleted():
            return f"{error.fact} Set option 'fail_on_data_loss' to false to continue without it."
        case StreamRecreated():
            return f"{error.fact} Start the query again with a new checkpoint: it then reads or writes the new stream."
        case StreamNotFound(read_only=True):
            return f"{error.fact} {_READ_ONLY}"
        case StreamNotFound(without_scope=True):
            options = "options 'allow_create_scope' and 'allow_create_stream'"
            return f"{error.fact} Create it first, or set {options} to true."
        case StreamNotFound():
            return f"{error.fact} Create it first, or set option 'allow_create_stream' to true."
        case PositionLost():
            cut = f"that cut, {error.restored}" if error.restored is not None else "another cut, such as earliest"
            return (
                f"{error.fact} Continue from there with a new query that has a new checkpoint and option "
                f"'start_stream_cut' set to {cut}; or set option 'fail_on_data_loss' to false, and this query "
                "continues from there."
            )
        case TruncatedData():
            return (
                f"{error.fact} Set option 'fail_on_data_loss' to false to continue at the head of the stream, or start "
                "from a later cut (a streaming query with a new checkpoint)."
            )
        case RootNotFound(inside=False, content=""):
            return (
                f"{error.fact} Check that the URL is right, and that its storage is mounted. A write creates a root in "
                "an empty folder or bucket; a read never does."
            )
    return str(error)
