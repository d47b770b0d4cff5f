"""The outcomes of a job, for each stream. A failure for one stream does not stop the job for the others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from chunkstore import StorageError
from engine.errors import EngineError
from pravega_spark.errors import AdvisedError, StreamError

logger = logging.getLogger(__name__)

_EXPECTED = (StreamError, EngineError, StorageError, ValueError)

NOTE = "note"
"""The step of an outcome that changes nothing, whose detail users must not overlook."""

VERIFY = "verify"
SCALING = "scaling"

_ALWAYS_SHOWN = (NOTE, VERIFY, SCALING)
"""Steps whose detail is shown even if they changed nothing: a verdict, or why a stream is not scaled yet."""


class JobOutcome(NamedTuple):
    """The outcome of one step of a job, for one stream or for the whole root. The root has no scope and no stream.

    changed: whether the step changed something, or would. bytes, events: how many it deleted. error: why it failed.
    old_head: the head of the stream before the step, as the text of a stream cut, if the step changed it.
    """

    scope: str
    stream: str
    step: str
    changed: bool = False
    bytes: int = 0
    detail: str = ""
    error: str | None = None
    events: int = 0
    old_head: str | None = None

    @property
    def shown(self) -> bool:
        """Whether people see this outcome. The others are only counted."""
        return self.changed or self.error is not None or (self.step in _ALWAYS_SHOWN and bool(self.detail))


def failed(scope: str, stream: str, step: str, error: Exception) -> JobOutcome:
    """The outcome of a failed step. An unexpected error is logged with its traceback."""
    if isinstance(error, _EXPECTED):
        return JobOutcome(scope, stream, step, error=error.fact if isinstance(error, AdvisedError) else str(error))
    logger.error("%s of %s/%s failed unexpectedly", step, scope, stream, exc_info=error)
    return JobOutcome(scope, stream, step, error=repr(error))


def failures(outcomes: Sequence[JobOutcome]) -> list[JobOutcome]:
    """The outcomes of failed steps."""
    return [outcome for outcome in outcomes if outcome.error is not None]
