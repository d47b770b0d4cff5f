"""What a job did, stream by stream. What fails for one of them, whatever it is, keeps it from no other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from chunkstore import StorageError
from engine.errors import EngineError
from pravega_spark.errors import AdvisedError, StreamError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_EXPECTED = (StreamError, EngineError, StorageError, ValueError)

SCHEMA = (
    "scope string, stream string, step string, changed boolean, bytes bigint, detail string, error string, "
    "events bigint, old_head string"
)


NOTE = "note"
"""The step of an outcome that does nothing, and tells in its detail what people must not overlook."""


class JobOutcome(NamedTuple):
    """What one step of a job did to one stream, or to the whole root, which has no scope and no stream.

    changed: whether something was done, or would be done. bytes, events: how many went. error: why it failed. old_head:
    where the stream began before, as the text of a stream cut, if that changed.
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

    @classmethod
    def failed(cls, scope: str, stream: str, step: str, error: Exception) -> JobOutcome:
        """That of a step that failed. What nobody expected is logged with its traceback."""
        if isinstance(error, _EXPECTED):
            return cls(scope, stream, step, error=error.fact if isinstance(error, AdvisedError) else str(error))
        logger.error("%s of %s/%s failed unexpectedly", step, scope, stream, exc_info=error)
        return cls(scope, stream, step, error=repr(error))


def as_frame(spark: SparkSession, outcomes: Iterable[JobOutcome]) -> DataFrame:
    """The outcomes as a DataFrame."""
    return spark.createDataFrame([tuple(outcome) for outcome in outcomes], SCHEMA)


def failures(outcomes: Sequence[JobOutcome]) -> list[JobOutcome]:
    """Those that failed."""
    return [outcome for outcome in outcomes if outcome.error is not None]
