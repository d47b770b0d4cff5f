"""The program of docs/managed-platforms.md that shows whether a platform has what the source needs, in a folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "managed-platforms.md"


def test_the_program_prints_what_the_page_says(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "s3://bucket/" in program
    exec(program.replace("s3://bucket/", f"{tmp_path}/"), {"spark": spark})
    (counts,) = re.findall(r"It prints the version and `(.*?)`", text)
    assert f"{spark.version} {counts}\n" in capfd.readouterr().out
