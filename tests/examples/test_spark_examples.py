"""The examples with Spark run, and do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import backfill, change_feed, exactly_once_copy, join_streams, sessions

pytestmark = pytest.mark.timeout(600)


def test_change_feed(spark: SparkSession, tmp_path: Path) -> None:
    assert change_feed.run(spark, tmp_path) == {"alice": 12, "bob": 20, "carol": 5}


def test_exactly_once_copy(spark: SparkSession, tmp_path: Path) -> None:
    assert exactly_once_copy.run(spark, tmp_path) == (600, 600)


@pytest.mark.long
def test_join_streams(spark: SparkSession, tmp_path: Path) -> None:
    assert join_streams.run(spark, tmp_path) == {"a": 10, "c": 30}


@pytest.mark.long
def test_sessions(spark: SparkSession, tmp_path: Path) -> None:
    assert sessions.run(spark, tmp_path) == [("ann", 0, 2), ("ben", 50, 1)]


def test_backfill(spark: SparkSession, tmp_path: Path) -> None:
    assert backfill.run(spark, tmp_path) == ["tuesday: 24"]
