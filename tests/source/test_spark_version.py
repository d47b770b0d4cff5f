"""A Spark that is too old is told so, in a process that believes to have it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, pyspark
pyspark.__version__ = sys.argv[1]
if sys.argv[1].startswith("3"):
    sys.modules["pyspark.sql.datasource"] = None
import pyspark_pravega
if sys.argv[2] == "use":
    pyspark_pravega.DefaultSource({"controller": "memory://x", "scope": "s", "stream": "t"}).schema()
"""


def program(version: str, what: str) -> tuple[int, str]:
    """How a program ends that imports what every session does, or uses it; and the last line that it says."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, version, what], capture_output=True, text=True, check=False)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.2.0.dev1", "5.0.0", "10.0.0"])
def test_versions_that_do(version: str) -> None:
    assert program(version, "use") == (0, "")


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0", "4.1.3.dev0"])
def test_an_old_one_is_told_when_the_format_is_used(version: str) -> None:
    """Every session imports it, so those that do not use it go on."""
    assert program(version, "import") == (0, "")
    code, told = program(version, "use")
    assert code == 1
    assert told.startswith(f"ImportError: format('pravega') needs Spark 4.2 or later, but this is PySpark {version}: ")


def test_one_that_has_no_sources_in_python_is_told_at_the_import() -> None:
    code, told = program("3.5.4", "import")
    assert code == 1 and "needs Spark 4.2 or later, but this is PySpark 3.5.4" in told
