"""The Spark versions that the data source needs. Older versions are rejected with a message that says so.

Spark 4.0 introduced data sources in Python.
"""

from __future__ import annotations

import re

OLDEST = (4, 0)


def check_spark_version() -> None:
    """Raise ImportError if PySpark is too old."""
    import pyspark

    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is not None and tuple(map(int, found.groups())) < OLDEST:
        raise ImportError(
            f"format('pravega') needs Spark 4.0 or later, but this is PySpark {pyspark.__version__}: install "
            "'pyspark>=4.0' and use a cluster of that version. StreamManager and the command line work without Spark."
        )
