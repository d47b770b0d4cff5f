"""The page on structured events: its code runs, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs/structured-events.md"


@pytest.mark.timeout(600)
def test_the_code_of_the_page_runs(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"spark": spark, "root": str(tmp_path / "root")}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        exec(block, names)
    shown = capsys.readouterr().out
    assert shown.count("21.5") >= 2
    assert '"sensor":"a","floor":3,"celsius":21.5' in PAGE.read_text("utf-8")
