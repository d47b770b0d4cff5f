"""What somebody at Spark reads of a failure: one sentence that says what is wrong and what to do, under few frames.

Spark prints an exception of Python with all frames and causes in front of its message. Of an error whose message says
everything, both are left out; they are logged at DEBUG. What is a bug keeps them. Where an error's remedy depends on
where one meets it, the remedy is Spark's: an option. Nothing is imported before something fails, as the data source is
imported by every Spark session.
"""

from __future__ import annotations

import functools
import inspect
import logging
import opcode
from collections.abc import Callable
from typing import Any, TypeVar, cast

logger = logging.getLogger(__name__)

Method = TypeVar("Method", bound=Callable[..., Any])

_OURS = ("chunkstore", "engine", "pravega_spark")


def for_users(method: Method) -> Method:
    """Let what Spark calls raise such errors. Also for generator functions."""
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def iterate(*arguments: Any, **named: Any) -> Any:
            try:
                yield from method(*arguments, **named)
            except Exception as error:
                if not _explains_itself(error):
                    raise
                raise _plain(error) from _why(error)

        return cast("Method", iterate)

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Exception as error:
            if not _explains_itself(error):
                raise
            raise _plain(error) from _why(error)

    return cast("Method", call)


def _explains_itself(error: Exception) -> bool:
    """Whether it was raised for a reader: one of our errors, or a ValueError that our own code raised."""
    if type(error).__module__.partition(".")[0] in _OURS:
        return True
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or type(error) is not ValueError:
        return False
    frame, step = place.tb_frame, place.tb_frame.f_code.co_code[place.tb_lasti]
    ours = str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OURS
    return ours and step == opcode.opmap["RAISE_VARARGS"]  # not what an extension module raised below it


def _plain(error: Exception) -> Exception:
    logger.debug("a failure that is shown without its frames", exc_info=error)
    text = told(error)
    if text != str(error):
        error.args = (text,)
    return error.with_traceback(None)


def _why(error: Exception) -> BaseException | None:
    """Its cause, where that belongs to what is told: of a container that is offline."""
    from engine.errors import ContainerOffline

    return error.__cause__ if isinstance(error, ContainerOffline) else None


def told(error: Exception) -> str:
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
        case ScopeNotFound():
            return f"{error.fact} Create it first, or set option 'allow_create_scope' to true."
        case StreamDeleted():
            return f"{error.fact} Set option 'fail_on_data_loss' to false to go on without it."
        case StreamRecreated():
            return f"{error.fact} Start the query again: it reads or writes that one, with a new checkpoint."
        case StreamNotFound(without_scope=True):
            options = "options 'allow_create_scope' and 'allow_create_stream'"
            return f"{error.fact} Create it first, or set {options} to true."
        case StreamNotFound():
            return f"{error.fact} Create it first, or set option 'allow_create_stream' to true."
        case PositionLost():
            there = f"that cut, {error.restored}" if error.restored is not None else "another place, such as earliest"
            return (
                f"{error.fact} Go on there by a query with a new checkpoint and option 'start_stream_cut' set to "
                f"{there}; or let this query go on there, with option 'fail_on_data_loss' set to false."
            )
        case TruncatedData():
            return (
                f"{error.fact} Set option 'fail_on_data_loss' to false to continue at the head of the stream, or start "
                "from a later cut."
            )
        case RootNotFound(inside=False):
            return (
                f"{error.fact} Look whether this is the right place, and whether its storage is mounted. A write makes "
                "a root in an empty place; a read never does."
            )
    return str(error)
