"""A home of Spark whose Python workers start in a third of the time.

The JVM puts `python/lib/pyspark.zip` of its home in front of the path of each Python process that it starts. There is
no bytecode in it, so each of them compiles pyspark first, for more than a second. Without the file they import the same
code from where pip has put it, with its bytecode.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

VARIABLE = "SPARK_HOME"
"""The environment variable that names it."""


def make_spark_home(folder: Path) -> None:
    """Link into an empty folder what the JVM needs of the Spark that pip has installed."""
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None, "pyspark is not installed"
    installed = Path(found.origin).parent
    for name in ("bin", "jars", "sbin"):
        (folder / name).symlink_to(installed / name)
