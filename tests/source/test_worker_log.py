"""What Spark's Python workers print, where nobody has configured logging."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.root import Root
from pravega_spark.streams.catalog import Catalog

READ = """
from pyspark.sql.types import StructType
from pravega_spark.source.provider import PravegaDataSource

schema = StructType().add("event", "binary")
source = PravegaDataSource({"controller": %r, "scope": "s", "stream": "clicks"})
for _ in range(2):
    source.streamReader(schema).initialOffset()
"""

CONFIGURED = "import logging; logging.basicConfig(format='mine: %(message)s')"


def printed(root: Path, before: str = "") -> list[str]:
    """What a process prints to stderr in which Spark reads a stream that does not exist. before: what it does first."""
    Root.open(str(root)).close()
    with Root.open(str(root)) as opened:
        Catalog(opened).create_scope("s")
    code = "\n".join([before, READ % str(root)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    return [line for line in done.stderr.splitlines() if "clicks" in line]


@pytest.mark.processes
def test_warnings_have_time_level_and_name(tmp_path: Path) -> None:
    (line,) = [each for each in printed(tmp_path / "root") if "created" in each]
    assert re.fullmatch(
        r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING pravega_spark\.streams\.catalog: stream s/clicks did not exist: .*",
        line,
    )


@pytest.mark.processes
def test_a_users_own_logging_is_left_alone(tmp_path: Path) -> None:
    (line,) = [each for each in printed(tmp_path / "root", CONFIGURED) if "created" in each]
    assert line.startswith("mine: stream s/clicks did not exist")
