"""What a job did, stream by stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "scope string, stream string, action string, changed boolean, bytes bigint, detail string, error string"


class Outcome(NamedTuple):
    """What one action did to one stream, or to the whole root, which has no scope and no stream.

    changed: whether something was done, or would be done. bytes: how many went. error: why it failed.
    """

    scope: str
    stream: str
    action: str
    changed: bool = False
    bytes: int = 0
    detail: str = ""
    error: str | None = None


def as_frame(spark: SparkSession, outcomes: Iterable[Outcome]) -> DataFrame:
    """The outcomes as a DataFrame."""
    return spark.createDataFrame([tuple(outcome) for outcome in outcomes], SCHEMA)


def failures(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that failed."""
    return [outcome for outcome in outcomes if outcome.error is not None]
