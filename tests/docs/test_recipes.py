"""The pages of the recipes name the jars that their tests run with, and each example."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.jars import AVRO, DELTA, ICEBERG, JARS, PROTOBUF

PROJECT = Path(__file__).resolve().parents[2]
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
NONE = "none found"


def tables_of_jars(page: str) -> dict[str, list[str]]:
    """The rows of the tables whose first column is a version of Spark."""
    rows = re.findall(r"(?m)^\| (\d\.\d) \| (.*) \|$", (PROJECT / "docs" / page).read_text("utf-8"))
    return {version: [cell.strip("`") for cell in cells.split(" | ")] for version, cells in rows}


def test_jars_of_tables() -> None:
    expected = {version: [JARS[what].get(version, NONE) for what in (DELTA, ICEBERG)] for version in VERSIONS}
    assert tables_of_jars("lakehouse.md") == expected


def test_jars_of_payloads() -> None:
    assert tables_of_jars("payloads.md") == {version: [JARS[AVRO].get(version, NONE)] for version in VERSIONS}
    assert not JARS[PROTOBUF], "docs/payloads.md has no column for it"
