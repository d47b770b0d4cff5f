"""The servers for tests: what they promise, how they end, and what happens where one is not installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests import backend_table
from tests.backend_table import BEGIN, END, BackendTable, table
from tests.conftest import REQUIRED, running
from tests.support.azurite import Azurite
from tests.support.gcs_server import GcsServer
from tests.support.rados_gateway import RadosGateway
from tests.support.servers import Server, ServerMissing
from tests.support.sftp_server import SftpServer

# -- Google Cloud Storage


def ask(server: GcsServer, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(server.endpoint + path, data=body, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.fixture
def objects(gcs_server: GcsServer) -> str:
    return f"/storage/v1/b/{gcs_server.make_bucket().removeprefix('gs://')}/o"


def generation(server: GcsServer, objects: str, name: str) -> int:
    status, body = ask(server, "GET", f"{objects}/{name}")
    return int(json.loads(body)["generation"]) if status == 200 else 0


def test_gcs_honours_generations(gcs_server: GcsServer, objects: str) -> None:
    upload = f"/upload{objects}?uploadType=media&name=a"
    assert ask(gcs_server, "POST", f"{upload}&ifGenerationMatch=5", b"x")[0] == 412
    assert generation(gcs_server, objects, "a") == 0
    assert ask(gcs_server, "POST", f"{upload}&ifGenerationMatch=0", b"one")[0] == 200
    first = generation(gcs_server, objects, "a")
    assert ask(gcs_server, "POST", f"{upload}&ifGenerationMatch=0", b"x")[0] == 412
    assert ask(gcs_server, "POST", f"{upload}&ifGenerationMatch={first}", b"two")[0] == 200
    second = generation(gcs_server, objects, "a")
    assert second > first
    assert ask(gcs_server, "DELETE", f"{objects}/a?ifGenerationMatch={first}")[0] == 412
    assert ask(gcs_server, "GET", f"{objects}/a?alt=media&ifGenerationNotMatch={second}")[0] == 304
    assert ask(gcs_server, "DELETE", f"{objects}/a?ifGenerationMatch={second}")[0] == 204
    assert generation(gcs_server, objects, "a") == 0


def test_gcs_ranges_and_pages(gcs_server: GcsServer, objects: str) -> None:
    for name in ("a", "b%2Fc", "b%2Fd", "e"):
        ask(gcs_server, "POST", f"/upload{objects}?uploadType=media&name={name}", b"0123456789")
    for wanted, answer in (("2-4", b"234"), ("7-", b"789"), ("-3", b"789"), ("8-20", b"89")):
        assert ask(gcs_server, "GET", f"{objects}/a?alt=media", Range=f"bytes={wanted}") == (206, answer)
    assert ask(gcs_server, "GET", f"{objects}/a?alt=media", Range="bytes=10-")[0] == 416

    def names(query: str) -> tuple[list[str], str]:
        page = json.loads(ask(gcs_server, "GET", f"{objects}?{query}")[1])
        return [item["name"] for item in page["items"]], page.get("nextPageToken", "")

    assert names("") == (["a", "b/c", "b/d", "e"], "")
    assert names("prefix=b/&startOffset=b/d") == (["b/d"], "")
    first, token = names("maxResults=3")
    assert (first, names(f"maxResults=3&pageToken={token}")) == (["a", "b/c", "b/d"], (["e"], ""))


def test_gcs_serves_fsspec(gcs_server: GcsServer) -> None:
    # Not the class that is registered: it asks first, over another protocol, of what kind the bucket is.
    from gcsfs.core import GCSFileSystem

    fs = GCSFileSystem(**gcs_server.storage_options(), skip_instance_cache=True)
    name = gcs_server.make_bucket().removeprefix("gs://") + "/a/b"
    content = b"\r\n\r\n--==0==\nlines\n"
    fs.pipe_file(name, content, mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file(name, b"other", mode="create")
    assert fs.cat_file(name) == content
    fs.close_session(fs.loop, fs._session)


# -- starting and ending


@pytest.mark.processes
def test_a_server_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from tests.support.gcs_server import GcsServer\n"
        "server = GcsServer()\n"
        "print(server._process.pid, flush=True)\n"
        "time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    server = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    while _is_alive(server):  # the test's time is limited
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", [Azurite, RadosGateway, SftpServer])
def test_a_server_that_is_not_installed(kind: type[Server], monkeypatch: Any, tmp_path: Path) -> None:
    """A user's tests are skipped, and CI's fail."""
    monkeypatch.setenv("PRAVEGA_SERVERS", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda *args, **kwargs: None)
    with pytest.raises(ServerMissing, match="make servers"):
        kind()
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="make servers"):
        next(running(kind))
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="make servers"):
        next(running(kind))


# -- the table


def report(suite: str, outcome: str, when: str = "call") -> Any:
    found = pytest.TestReport("test", ("file", 1, "test"), {}, outcome, None, when)  # type: ignore[arg-type]
    found.user_properties = [("suite", ["backend", "server", suite])]
    return found


def test_the_table_tells_the_worst(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    monkeypatch.setattr(backend_table, "PAGE", page)
    collector = BackendTable("write")
    for suite, outcome, when in (
        ("storage port", "passed", "call"),
        ("storage port", "failed", "teardown"),
        ("write-ahead log", "skipped", "setup"),
        ("write-ahead log", "passed", "call"),
        ("race of processes", "passed", "call"),
        ("race of processes", "passed", "setup"),
    ):
        collector.pytest_runtest_logreport(report(suite, outcome, when))
    row = "| backend | server | failed | – | passed | skipped | – |\n"
    assert table(collector.outcomes).endswith(row)

    class Session:
        exitstatus: int = 0

    session: Any = Session()
    collector.pytest_sessionfinish(session)
    assert page.read_text().startswith("before\n") and page.read_text().endswith(f"{row}{END}after\n")
    collector.wanted = "check"
    collector.pytest_sessionfinish(session)
    assert session.exitstatus == 0
    collector.pytest_runtest_logreport(report("race of processes", "failed"))
    collector.pytest_sessionfinish(session)
    assert session.exitstatus == 1
    assert "make backend-table" in capsys.readouterr().out


def test_servers_are_looked_for_where_make_puts_them(monkeypatch: Any) -> None:
    from tests.support import servers

    monkeypatch.delenv("PRAVEGA_SERVERS", raising=False)
    assert servers.servers_folder() == Path(os.getcwd()) / ".servers"
