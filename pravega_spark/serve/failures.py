"""Errors as answers: which status each has, and what a client is told of it.

Keeps that no traceback, and no text of an error that is not ours, leaves the server: messages of ours never have
credentials in them, others may.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from chunkstore.errors import DeclaredError, ObjectReadOnly, StorageError, StorageFull, StorageRefused
from engine.errors import ContainerOffline, DataCorruption, OutcomeUnknown, Rejected, RootNotFound, Throttled
from pravega_spark.client.groups.entry import GroupNotFound
from pravega_spark.errors import (
    ConditionalTableUpdateFailed,
    EventTooLarge,
    KeyValueTableNotFound,
    KeyValueTableRecreated,
    NoSuchEvent,
    ReplayChanged,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
    TransactionNotFound,
    TruncatedData,
    WritesLost,
)
from pravega_spark.serve.replies import Reply
from pravega_spark.serve.schemas import Unfit

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1
"""After which a client that was turned away may come again."""

_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (ScopeNotFound, 404),
    (StreamNotFound, 404),
    (GroupNotFound, 404),
    (KeyValueTableNotFound, 404),
    (TransactionNotFound, 404),
    (NoSuchEvent, 404),
    (ScopeNotEmpty, 412),
    (StreamNotSealed, 412),
    (ConditionalTableUpdateFailed, 412),
    (KeyValueTableRecreated, 409),
    (StreamSealed, 409),
    (ReplayChanged, 409),
    (WritesLost, 409),
    (TruncatedData, 410),
    (EventTooLarge, 413),
    (RootNotFound, 503),
    (StorageRefused, 503),  # the root has disappeared, or the server has no rights to read it
    (ObjectReadOnly, 403),
    (Unfit, 400),
    (StorageFull, 507),
    (Throttled, 503),
    (ContainerOffline, 503),
    (OutcomeUnknown, 500),
    (DataCorruption, 500),
    (StorageError, 503),
    (Rejected, 409),
)
"""By the class of an error; of several that fit, the first. ValueErrors of ours come from arguments: they are 400."""


class Refusal(Exception):
    """A request that is refused before any work. headers: of the answer."""

    def __init__(self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.error, self.headers = status, error, dict(headers or {})


def busy(message: str) -> Refusal:
    """The refusal of a request that may come again soon."""
    return Refusal(503, "Busy", message, {"Retry-After": str(RETRY_SECONDS)})


def failure(error: BaseException, changing: bool = False) -> Reply:
    """The answer to a request that failed. changing: it was to change something."""
    if isinstance(error, Refusal):
        return _reply(error.status, error.error, str(error), error.headers)
    if changing and isinstance(error, StorageRefused):  # the root is only read, or the server has no rights to write
        return _reply(403, type(error).__name__, str(error))
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
            return _reply(status, type(error).__name__, str(error), headers)
    if isinstance(error, ValueError) and (isinstance(error, DeclaredError) or _is_ours(error)):
        return _reply(400, type(error).__name__, str(error))
    if isinstance(error, DeclaredError):
        return _reply(500, type(error).__name__, str(error))
    logger.error("unexpected %s", type(error).__name__, exc_info=(type(error), error, error.__traceback__))
    return _reply(500, "Unexpected", f"unexpected {type(error).__name__}: the server's log has more; please report it")


def _is_ours(error: BaseException) -> bool:
    """Whether an error was raised by a module of ours, rather than by a library below."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    name = "" if frame is None else str(frame.tb_frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in ("chunkstore", "engine", "pravega_spark")


def _reply(status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, {"status": status, "error": error, "message": " ".join(message.split())}, headers or {})
