"""schemathesis against the server: requests of all kinds that the OpenAPI document describes, and others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.served import TOKEN, Served

pytest.importorskip("schemathesis", reason="needs schemathesis: pip install schemathesis")

LEFT_OUT = ",".join(
    (
        # Numbers that fit the schema and no policy, such as a minimum above the maximum, are refused with 400.
        "positive_data_acceptance",
        # Unknown parameters of a query are ignored, as Pravega's controller does.
        "negative_data_rejection",
    )
)


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_no_request_is_answered_other_than_documented(server: Served, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}"
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]
    options = ["--max-examples", "30", "--exclude-checks", LEFT_OUT, "--header", f"Authorization: Bearer {TOKEN}"]
    done = subprocess.run(
        [*command, f"{url}/openapi.json", *options], cwd=tmp_path, capture_output=True, text=True, timeout=850
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
