"""The Spark versions that the data source needs. Older versions are rejected with a message that says so.

Spark 4.0 introduced data sources in Python, 4.1 writers of Arrow batches in streaming queries, and 4.2 the start offset
and limit of a micro-batch, without which a restarted query would not know what it has read.
"""

from __future__ import annotations

import re

OLDEST = (4, 2)


def check_spark_version() -> None:
    """Raise ImportError if PySpark is too old."""
    import pyspark

    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is not None and tuple(map(int, found.groups())) < OLDEST:
        raise ImportError(
            f"format('pravega') needs Spark 4.2 or later, but this is PySpark {pyspark.__version__}: install "
            "'pyspark>=4.2' and use a cluster of that version. StreamManager and the command line work without Spark."
        )
