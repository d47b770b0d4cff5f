"""The shell commands of the tutorial do what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
CUT = "TEXT OF THE CUT"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_commands_of_the_tutorial(tmp_path: Path) -> None:
    place = {"PRAVEGA_CONTROLLER_URI": str(tmp_path / "streams")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(command: str) -> str:
        environment = {**os.environ, **place, "PATH": path}
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    lines = re.findall(r"^    ((?:pravega-spark|printf) .+)$", TUTORIAL.read_text("utf-8"), re.MULTILINE)
    assert len(lines) > 8
    cut, read = "", []
    for line in lines:
        if "stream tail" in line:  # follows until the stream is sealed
            continue
        told = run(line.replace(CUT, cut))
        if "stream read" in line:
            read.append(told)
        if line.endswith("stream cuts taxi/rides"):
            cut = json.loads(run("pravega-spark --json stream cuts taxi/rides"))["cuts"][-1]["cut"]
    assert ['"car": "d"' in told and '"car": "a"' not in told for told in read] == [True]
    assert "car" not in run("pravega-spark stream read taxi/rides --to head")
