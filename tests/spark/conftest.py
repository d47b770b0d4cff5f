"""Streams in a folder of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.folder import Folder


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(spark, tmp_path)
    yield folder
    folder.root.close()
