"""The limits of a micro-batch: Spark's own classes since 4.2, and the same for versions before.

`ReadWholeBacklog` is ours: what the first poll of a query asks for where Spark does not tell a source its trigger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2
    if not TYPE_CHECKING:
        from dataclasses import dataclass

        class ReadLimit:
            """How much a micro-batch reads."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """As much as there is, whatever the options say."""

        @dataclass
        class ReadMinRows(ReadLimit):
            """All, as soon as there are so many rows."""

            min_rows: int

        @dataclass
        class ReadMaxRows(ReadLimit):
            """So many rows at most."""

            max_rows: int

        @dataclass
        class ReadMaxBytes(ReadLimit):
            """So many bytes at most."""

            max_bytes: int

        class SupportsTriggerAvailableNow:
            """Spark does not look for it in these versions."""


class ReadWholeBacklog:
    """All that there is up to now, in one batch, across scalings."""


__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "ReadWholeBacklog",
    "SupportsTriggerAvailableNow",
]
