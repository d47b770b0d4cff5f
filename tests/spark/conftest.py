"""Streams in a folder of each test's own, and a standalone cluster for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.cluster import Cluster, build_wheel
from tests.spark.folder import Folder


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(spark, tmp_path)
    yield folder
    folder.root.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), build_wheel(tmp_path_factory.mktemp("built")))
    yield cluster
    cluster.close()
