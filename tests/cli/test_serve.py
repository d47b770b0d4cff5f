"""`serve`: what it wants before it serves, and that it ends well."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine.root import Root
from engine.settings import Settings
from pravega_spark import StreamManager
from pravega_spark.streams.maintenance.lease import maintenance_record
from tests.cli.test_cli import run

TOKEN = "a-token-for-tests-only"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A root with a scope."""
    url = str(tmp_path / "root")
    with StreamManager(url, create=True) as manager:
        manager.create_scope("sc")
    return url


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--allow-changes"], "--allow-changes needs a token"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0 needs a token"),
        (["--tls-key", "KEY"], "--tls-certificate"),
        (["--maintain-every", "1h"], "--maintain"),
        (["--token-file", "none"], "does not exist"),
        (["--port", "70000"], "70000"),
    ],
)
def test_it_does_not_serve_without_what_makes_it_safe(
    folder: str, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    (tmp_path / "key").write_text("key")
    given = [str(tmp_path / "key") if each == "KEY" else each for each in arguments]
    assert problem in run("serve", *given, root=folder, code=2).stderr


def test_a_short_token_and_a_port_that_is_taken(folder: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame\n")
    refused = run("serve", "--allow-changes", "--token-file", str(tmp_path / "token"), root=folder, code=1)
    assert "at least 16 characters" in refused.stderr and "sesame" not in refused.stderr
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        assert "--port" in run("serve", "--port", port, root=folder, code=1).stderr
    assert "holds no streams" in run("serve", "--port", "0", root=tmp_path / "none", code=1).stderr


@pytest.mark.processes
@pytest.mark.parametrize("from_file", [False, True])
def test_it_serves_until_interrupted_and_shows_no_token(folder: str, tmp_path: Path, from_file: bool) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    how = ["--token-file", str(tmp_path / "token")] if from_file else []
    environment = {**os.environ, "PRAVEGA_SERVE_TOKEN": "" if from_file else TOKEN}
    program = [sys.executable, "-m", "pravega_spark.cli", "--root", folder, "--json", "serve", "--port", "0"]
    with subprocess.Popen(
        [*program, "--allow-changes", *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        started = json.loads(process.stdout.readline())
        assert started["changes"] is True and started["url"].startswith("http://127.0.0.1:")
        with closing(
            http.client.HTTPConnection("127.0.0.1", int(started["url"].rpartition(":")[2]), timeout=60)
        ) as sent:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
            sent.request("POST", "/v1/scopes", b'{"scopeName": "new"}', headers)
            assert sent.getresponse().status == 201
        process.send_signal(signal.SIGINT)
        shown = process.stdout.read() + process.stderr.read()
        assert process.wait(60) == 0 and TOKEN not in shown and "Traceback" not in shown
    with StreamManager(folder) as manager:
        assert manager.list_scope() == ["new", "sc"]


@pytest.mark.processes
def test_it_maintains_the_root_meanwhile(folder: str) -> None:
    with StreamManager.over(Root.open(folder, settings=Settings(maintenance=False))) as manager:
        manager.create_stream("sc", "one")
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("waits to be flushed", "k")
    program = [sys.executable, "-m", "pravega_spark.cli", "--root", folder, "--json", "serve", "--port", "0"]
    with subprocess.Popen([*program, "--maintain"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert started["maintain"] is True and started["changes"] is False
        root = Root.open(folder, settings=Settings(maintenance=False))
        while maintenance_record(root).run is None:
            time.sleep(0.05)
            root.container(0).refresh()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert sum(root.container(number).refresh().logged_bytes for number in range(root.config.containers)) == 0
