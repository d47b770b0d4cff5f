"""The simulation, in a process of its own: threads of other tests, as those of Spark, would be part of histories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("cases.py")


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_the_cases_of_the_simulation() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", "--timeout", "500", str(CASES)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
