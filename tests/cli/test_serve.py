"""`serve`: what it wants before it serves, and that it ends well."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
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
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["serve", "--port", "0", "--maintain"], {"maintain": True, "changes": False}),
        (["maintain", "--watch", "1h", "--yes"], {"seconds": 3600}),
    ],
    ids=["serve", "maintain"],
)
def test_it_maintains_the_root_meanwhile(folder: str, command: list[str], told: dict[str, object]) -> None:
    with StreamManager.over(Root.open(folder, settings=Settings(maintenance=False))) as manager:
        manager.create_stream("sc", "one")
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("waits to be flushed", "k")
    program = [sys.executable, "-m", "pravega_spark.cli", "--root", folder, "--json"]
    with subprocess.Popen([*program, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert told.items() <= started.items()
        root = Root.open(folder, settings=Settings(maintenance=False))
        while maintenance_record(root).run is None:
            time.sleep(0.05)
            root.container(0).refresh()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert sum(root.container(number).refresh().logged_bytes for number in range(root.config.containers)) == 0


def certificate(folder: Path, name: str = "one") -> tuple[Path, Path]:
    """A certificate for localhost that is signed by itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    made, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    wanted = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [openssl, *wanted, *named, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True, timeout=60
    )
    return made, key


@pytest.mark.processes
def test_it_serves_by_tls(folder: str, tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    program = [sys.executable, "-m", "pravega_spark.cli", "--root", folder, "--json", "serve", "--port", "0"]
    more = ["--host", "0.0.0.0", "--token-file", str(tmp_path / "token")]
    with subprocess.Popen(
        [*program, *more, "--tls-certificate", str(made), "--tls-key", str(key)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert started["url"].startswith("https://")
        port = int(started["url"].rpartition(":")[2])
        trusting = ssl.create_default_context(cafile=str(made))
        for headers, status in (({"Authorization": f"Bearer {TOKEN}"}, 200), ({}, 401)):
            with closing(http.client.HTTPSConnection("localhost", port, timeout=60, context=trusting)) as sent:
                sent.request("GET", "/v1/scopes", headers={**headers, "Origin": f"https://localhost:{port}"})
                assert sent.getresponse().status == status
        with (
            closing(http.client.HTTPSConnection("localhost", port, timeout=60)) as distrusting,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            distrusting.request("GET", "/v1/scopes")
        with closing(http.client.HTTPConnection("localhost", port, timeout=60)) as plain:
            plain.request("GET", "/v1/scopes")
            with pytest.raises(ConnectionError):
                plain.getresponse()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_key_of_another_certificate_is_refused(folder: str, tmp_path: Path) -> None:
    made, _ = certificate(tmp_path)
    _, other = certificate(tmp_path, "other")
    given = ["--port", "0", "--tls-certificate", str(made), "--tls-key", str(other)]
    assert "--tls-key" in run("serve", *given, root=folder, code=1).stderr
    (tmp_path / "nonsense").write_text("nonsense")
    given = ["--port", "0", "--tls-certificate", str(tmp_path / "nonsense")]
    assert "--tls-certificate" in run("serve", *given, root=folder, code=1).stderr
