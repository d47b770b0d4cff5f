"""The command line: what it prints for people and for programs, how it fails, and that it never shows credentials."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from chunkstore import open_store
from chunkstore.errors import StorageUnavailable
from chunkstore.paths import is_log
from engine.admin.progress import Progress
from engine.logs.log import frame_path
from engine.root import Root
from pravega_spark import KeyValueTableConfiguration, StreamManager, TableKey
from pravega_spark.cli.main import cli, main
from pravega_spark.console.advice import ROOT_VARIABLE
from pravega_spark.console.output import Output, moment, shown

SEGMENT = "sc/one/0.#epoch.0"

Run = Callable[..., Result]


def run(*arguments: str, root: str | Path | None = None, code: int = 0, **environment: str) -> Result:
    """Run a command; `code` is how it must end."""
    place = ["--root", str(root)] if root is not None else []
    result = CliRunner(env={ROOT_VARIABLE: None, **environment}).invoke(cli, [*place, *arguments])
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    if code == 1:
        assert result.stderr.count("\n") == 1 and result.stderr.startswith("pravega-spark: ")
        assert "Traceback" not in result.output
    if code == 0:
        assert result.stderr == ""
    return result


def document(*arguments: str, root: str | Path, code: int = 0) -> Any:
    """The JSON document that a command prints."""
    return json.loads(run("--json", *arguments, root=root, code=code).stdout)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A root with a stream that was flushed in part."""
    url = str(tmp_path / "root")
    Root.open(url, containers=2).close()
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 2)
        for flushed in (False, True):
            with manager.create_writer("sc", "one") as writer:
                for number in range(40):
                    writer.write_event(f"event {number}", str(number))
            if not flushed:
                manager.root.container(number_of(url)).flush()
    return url


def damaged_frame(url: str, number: int) -> int:
    """Put a frame that fails its checks behind a container's log. Returns its address."""
    with Root.open(url, create=False) as root:
        address = root.container(number).head.address + 1
        path = frame_path(root.container_id(number), address)
    Path(url, path).write_bytes(b"damaged")
    return address


def number_of(url: str) -> int:
    """The number of the container that holds the stream."""
    from pravega_spark.streams.model.names import container_of

    return container_of("sc/one", 2)


def assert_keys(found: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """It has exactly these keys, and values of these types."""
    assert list(found) == list(schema)
    for key, kind in schema.items():
        assert isinstance(found[key], kind), (key, found[key])


CYCLE = {
    "number": int,
    "time": str | None,
    "sequence": int,
    "complete": bool,
    "aborted": bool,
    "error": str | None,
}
TABLE = {"name": str, "entries": int, "stored_bytes": int, "unflushed": int}
CONTAINER = {
    "number": int,
    "online": bool,
    "reason": str | None,
    "sequence": int,
    "head": int,
    "epoch": int,
    "newest_checkpoint": int,
    "frames_since_checkpoint": int,
    "submissions": int,
    "segments": int,
    "active": int,
    "unsaved": int,
    "logged_bytes": int,
    "cycle": dict,
    "recovery_point": int | None,
    "garbage": int,
    "due": list,
    "tables": list,
}
DESCRIBED = {
    "name": str,
    "id_in_container": int,
    "storage_length": int,
    "durable_length": int,
    "start_offset": int,
    "last_modified": str,
    "sealed": bool,
    "sealed_in_storage": bool,
    "merged_into": str | None,
    "deleted": bool,
    "active": bool,
    "storage": str,
    "attributes": dict,
    "transient_of": str | None,
    "container": int,
}
PART = {"start": int, "length": int, "place": str, "object": str, "position": int}
VERIFIED = {
    "healthy": bool,
    "deep": bool,
    "errors": int,
    "warnings": int,
    "containers": list,
    "balances": list,
    "orphans": dict | None,
    "findings": list,
}
LOOKED_AT = (
    "number", "sequence", "frames", "void_frames", "checkpoints", "segments", "bytes", "chunks", "tables", "entries",
    "recovery_point",
)  # fmt: skip
BALANCE = ("container", "live", "truncated", "tables", "garbage", "recovery_points", "surplus", "total", "log")
ORPHANS = ("number", "bytes", "recent", "names")
FINDING = {"severity": str, "container": int | None, "object": str, "problem": str, "remedy": str}


# --- containers ---------------------------------------------------------------------------------------------------


def test_containers_are_listed_and_described(folder: str) -> None:
    number = number_of(folder)
    listed = document("container", "list", root=folder)
    assert list(listed) == ["containers"]
    assert [row["number"] for row in listed["containers"]] == [0, 1]
    for row in listed["containers"]:
        assert_keys(row, CONTAINER)
        assert_keys(row["cycle"], CYCLE)
        assert row == document("container", "describe", str(row["number"]), root=folder)["container"]
    row = listed["containers"][number]
    assert row["online"] and row["reason"] is None and row["segments"] == 7 == row["active"]
    assert row["logged_bytes"] > 0 and row["unsaved"] > 0 and row["head"] >= 0
    assert row["cycle"]["number"] == row["recovery_point"] == 1 and row["cycle"]["complete"]
    assert row["cycle"]["time"].endswith("Z")
    tables = {table["name"]: table for table in row["tables"]}
    for table in row["tables"]:
        assert_keys(table, TABLE)
    assert tables["_system/streams"]["entries"] == 1 and tables["_system/streams"]["unflushed"] == 0
    assert tables["_system/containers/metadata"]["entries"] == 7


def test_entries_of_tables_are_counted_exactly(folder: str) -> None:
    number = number_of(folder)
    with Root.open(folder) as root:
        container = root.container(number)
        container.put_entries("t", {f"{n:05d}": bytes(1000) for n in range(2500)})
        container.flush()
        container.put_entries("t", {"00001": b"other", "00002": None, "new": b"new", "gone": None})
    row = document("container", "describe", str(number), root=folder)["container"]
    [table] = [table for table in row["tables"] if table["name"] == "t"]
    assert (table["entries"], table["unflushed"]) == (2500, 4) and table["stored_bytes"] > 2_500_000


def test_what_people_see_of_containers(folder: str) -> None:
    text = run("container", "list", root=folder).stdout
    assert "last flush cycle" in text and "\x1b" not in text and "1 at 20" in text
    text = run("container", "describe", str(number_of(folder)), root=folder).stdout
    assert re.search(r"only in the log +[0-9.]+ (bytes|KiB)\n", text) and "_system/streams" in text


def test_a_container_that_is_offline_tells_why(folder: str) -> None:
    number = number_of(folder)
    [frame] = Path(folder, "_system/containers", str(number), "wal").glob(f"*/{2:020d}")
    frame.write_bytes(b"x" * 200)
    for checkpoint in Path(folder, "_system/containers", str(number), "checkpoints").glob("*/*"):
        checkpoint.unlink()
    row = document("container", "describe", str(number), root=folder)["container"]
    assert list(row) == ["number", "online", "reason"] and not row["online"] and frame.name in row["reason"]
    for command in (["list"], ["describe", str(number)]):
        text = run("container", *command, root=folder).stdout
        assert f"container {number} is offline: _system/containers/{number}/wal" in text
    verified = document("verify", root=folder, code=1)["verify"]
    assert not verified["healthy"] and verified["orphans"] is None
    assert frame.name in verified["findings"][0]["object"]


def test_flush(folder: str) -> None:
    number = number_of(folder)
    flushed = document("container", "flush", str(number), root=folder)["flushed"]
    assert flushed == [{"number": number, "bytes": flushed[0]["bytes"], "cycle": 2}] and flushed[0]["bytes"] > 0
    assert [row["number"] for row in document("container", "flush", root=folder)["flushed"]] == [0, 1]
    assert document("container", "describe", str(number), root=folder)["container"]["logged_bytes"] == 0
    assert "flush cycle" in run("container", "flush", root=folder).stdout
    run("container", "flush", "2", root=folder, code=1)


def test_recovery(folder: str) -> None:
    number = str(number_of(folder))
    planned = run("container", "recover", number, "--force", root=folder, code=1)
    assert "the recovery point of flush cycle 1," in planned.stdout and "give --yes" in planned.stderr
    for how in ("--yes", "--dry-run"):
        assert "more data than any" in run("container", "recover", number, how, root=folder, code=1).stderr
    for info in open_store(folder).list(f"_system/containers/{number}/"):
        if is_log(info.path):
            Path(folder, info.path).unlink()
    assert not document("container", "describe", number, root=folder)["container"]["online"]
    done = document("container", "recover", number, "--yes", root=folder)
    assert list(done["recovered"]) == ["number", "cycle", "time", "sequence", "segments", "head"]
    assert done["recovered"]["cycle"] == 1 and done["recovered"]["segments"] == 7
    row = document("container", "describe", number, root=folder)["container"]
    assert row["online"] and row["newest_checkpoint"] == done["recovered"]["head"]
    assert document("verify", "--deep", root=folder)["verify"]["findings"] == []
    assert (
        "recovered as of flush cycle 1" in run("container", "recover", number, "--yes", "--force", root=folder).stdout
    )


def test_recovery_when_the_logs_own_root_is_lost(tmp_path: Path) -> None:
    url, old, new = (str(tmp_path / name) for name in ("root", "wal", "new"))
    Root.open(url, wal=old, containers=2).close()
    with Root.open(url) as root:
        for number in range(2):
            root.container(number).create_segment("s")
            root.container(number).flush()
    Path(old).rename(tmp_path / "lost")
    assert "Make the storage available" in run("verify", root=url, code=1).stderr
    first = ["--wal", new, "container", "recover", "0", "--new-log"]
    assert "nothing was changed" in run(*first, root=url, code=1).stderr and not Path(new).exists()
    assert document(*first, "--yes", root=url)["recovered"]["segments"] == 1
    assert "If it is lost, recover" in run("--wal", new, "container", "describe", "1", root=url).stdout
    run("--wal", new, "container", "recover", "1", "--yes", root=url)
    assert document("--wal", new, "verify", root=url)["verify"]["findings"] == []


def test_what_cannot_be_recovered(folder: str) -> None:
    other = str(1 - number_of(folder))
    assert "there is no recovery point" in run("container", "recover", other, root=folder, code=1).stderr
    run("container", "recover", other, "--yes", root=folder, code=1)
    assert "containers 0 to 1" in run("container", "recover", "2", "--yes", root=folder, code=1).stderr


# --- segments -----------------------------------------------------------------------------------------------------


def test_segments_are_listed_and_described(folder: str) -> None:
    listed = document("segment", "list", root=folder)["segments"]
    assert [row["name"] for row in listed] == sorted(row["name"] for row in listed) and len(listed) == 7
    assert {row["container"] for row in listed} == {number_of(folder)}
    assert [row["name"] for row in document("segment", "list", SEGMENT, root=folder)["segments"]] == [
        SEGMENT,
        f"{SEGMENT}#index",
    ]
    for row in listed:
        segment = document("segment", "describe", row["name"], root=folder)["segment"]
        assert_keys(segment, DESCRIBED)
        assert segment["name"] == row["name"] and segment["container"] == row["container"]
    segment = document("segment", "describe", SEGMENT, root=folder)["segment"]
    assert 0 < segment["storage_length"] < segment["durable_length"]
    assert segment["storage"] == f"{SEGMENT}.{segment['id_in_container']}"
    assert set(segment["attributes"]) == {"event_count", "creation_time"} and segment["attributes"]["event_count"] > 0
    assert not segment["sealed"] and not segment["deleted"] and segment["merged_into"] is None and segment["active"]
    text = run("segment", "describe", SEGMENT, root=folder).stdout
    assert "durable log length" in text and "event_count" in text
    assert SEGMENT in run("segment", "list", root=folder).stdout


def test_where_the_bytes_of_a_segment_lie(folder: str) -> None:
    found = document("segment", "chunks", SEGMENT, root=folder)
    assert list(found) == ["name", "segment", "container", "parts"] and found["segment"] == SEGMENT
    length = document("segment", "describe", SEGMENT, root=folder)["segment"]["durable_length"]
    end, data = 0, b""
    for part in found["parts"]:
        assert_keys(part, PART)
        assert part["start"] == end
        end += part["length"]
        data += Path(folder, part["object"]).read_bytes()[part["position"] :][: part["length"]]
    assert found["parts"][0]["place"] == "chunk" and found["parts"][-1]["place"] == "log"
    with Root.open(folder) as root:
        assert end == length and root.container(number_of(folder)).read(SEGMENT, 0, length) == data
    assert found["parts"][0]["object"] in run("segment", "chunks", SEGMENT, root=folder).stdout


def test_segments_that_were_merged_or_deleted_lately(folder: str) -> None:
    with Root.open(folder) as root:
        container = root.container(1)
        for name in ("target", "merged", "deleted"):
            container.create_segment(name)
            container.append(name, b"bytes of " + name.encode())
        container.flush()
        container.seal("merged")
        container.merge("target", "merged")
        container.delete("deleted")
    merged = document("segment", "describe", "merged", root=folder)["segment"]
    assert_keys(merged, DESCRIBED)
    assert merged["merged_into"] == "target" and merged["deleted"] and merged["storage_length"] == 15
    deleted = document("segment", "describe", "deleted", root=folder)["segment"]
    assert deleted["merged_into"] is None and deleted["deleted"] and not deleted["active"]
    parts = document("segment", "chunks", "target", root=folder)["parts"]
    assert [(part["start"], part["length"], part["place"]) for part in parts] == [(0, 15, "chunk"), (15, 15, "chunk")]
    with Root.open(folder) as root:
        root.container(1).flush()
    for name in ("merged", "deleted"):
        assert repr(name) in run("segment", "describe", name, root=folder, code=1).stderr
    run("segment", "chunks", "deleted", root=folder, code=1)


# --- verification -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
def test_a_healthy_root(folder: str, deep: bool) -> None:
    options = ["--deep"] if deep else []
    found = document("verify", *options, root=folder)
    assert list(found) == ["verify"]
    verified = found["verify"]
    assert_keys(verified, VERIFIED)
    assert verified["healthy"] and verified["deep"] is deep and verified["findings"] == []
    assert [tuple(row) for row in verified["containers"]] == [LOOKED_AT] * 2
    assert [tuple(row) for row in verified["balances"]] == [BALANCE] * 2
    assert tuple(verified["orphans"]) == ORPHANS and verified["orphans"]["number"] == 0
    text = run("verify", *options, root=folder).stdout
    assert "healthy;" in text and ("not read" in text) is not deep


def test_findings_and_orphans(folder: str) -> None:
    chunk = document("segment", "chunks", SEGMENT, root=folder)["parts"][0]
    assert chunk["place"] == "chunk"
    path = Path(folder, chunk["object"])
    data = path.read_bytes()
    Path(folder, "orphan").write_bytes(b"1234567")
    path.write_bytes(data[:-1] + b"\0")
    assert "1 unreferenced object (7 bytes), 1 of them" in run("verify", root=folder).stdout
    result = run("verify", "--deep", root=folder, code=1)
    assert f"error: container {number_of(folder)}: {chunk['object']}: " in result.stdout and "Remedy: " in result.stdout
    assert "1 error and 0 warnings" in result.stderr
    path.unlink()
    verified = document("verify", root=folder, code=1)["verify"]
    assert_keys(verified, VERIFIED)
    assert not verified["healthy"] and verified["errors"] == 1 and verified["orphans"]["names"] == ["orphan"]
    [finding] = verified["findings"]
    assert_keys(finding, FINDING)
    assert finding["severity"] == "error" and finding["object"] == chunk["object"]


@pytest.mark.parametrize(
    ("data", "found"),
    [(b"\0\0\0\x01bad event", "an event has type 1"), (b"\0\0", "runs over the end")],
    ids=["type", "header"],
)
def test_events_are_looked_at(folder: str, data: bytes, found: str) -> None:
    with Root.open(folder) as root:
        root.container(number_of(folder)).append(SEGMENT, data)
    verified = document("verify", "--deep", root=folder, code=1)["verify"]
    problems = {finding["object"]: finding["problem"] for finding in verified["findings"]}
    assert found in problems[SEGMENT] and "its last record is of offset" in problems[f"{SEGMENT}#index"]


def test_verify_reports_progress(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int]] = []

    @contextmanager
    def progress(output: Output) -> Iterator[Progress]:
        yield lambda what, done, total: seen.append((what, done, total))

    monkeypatch.setattr(Output, "progress", progress)
    run("verify", root=folder)
    assert [what for what, _, _ in seen][-1] == "objects" and len(seen) > 4


# --- how it fails -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["container", "list"],
        ["--root"],
        ["nothing"],
        ["container", "describe", "one"],
        ["container", "describe", "-1"],
        ["container", "describe"],
        ["--storage", "secret-without-a-name", "container", "list"],
        ["--storage", "=secret", "container", "list"],
        ["--storage", "a=secret", "--storage", "a=secret", "container", "list"],
        ["verify", "--shallow"],
        ["segment", "describe"],
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments: list[str]) -> None:
    result = run(*arguments, code=2)
    assert "Error: " in result.stderr and "secret" not in result.stderr and result.stdout == ""


def test_help_needs_no_root() -> None:
    for command in ([], ["container"], ["container", "recover"], ["segment"], ["verify"]):
        assert "Usage: " in run(*command, "--help").stdout


def test_the_root_may_come_from_the_environment(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, folder)
    assert CliRunner().invoke(cli, ["container", "list"]).stdout.count("yes") == 2


def test_a_root_that_is_none_is_not_made(tmp_path: Path) -> None:
    assert "holds no streams" in run("container", "list", root=tmp_path / "none", code=1).stderr
    assert "no broker" in run("verify", root="tcp://localhost:9090", code=1).stderr
    assert not (tmp_path / "none").exists()


def test_a_log_elsewhere(tmp_path: Path) -> None:
    url, wal = str(tmp_path / "root"), str(tmp_path / "wal")
    Root.open(url, wal=wal, containers=1).close()
    with Root.open(url) as root:
        root.container(0).create_segment("s")
        root.container(0).append("s", b"only in the log")
    for options in ([], ["--wal", wal]):
        verified = document(*options, "verify", "--deep", root=url)["verify"]
        assert verified["findings"] == [] and verified["balances"][0]["log"] > 0 and verified["orphans"]["number"] == 0
    assert "option 'wal'" in run("--wal", str(tmp_path), "verify", root=url, code=1).stderr


def test_failures_are_one_line(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> Callable[..., Any]:
        def failing(*_: object, **__: object) -> Any:
            raise error

        return failing

    monkeypatch.setattr(Root, "open", fail(StorageUnavailable("the store\ndoes not answer")))
    assert run("verify", root=folder, code=1).stderr == "pravega-spark: the store does not answer\n"
    monkeypatch.setattr(Root, "open", fail(KeyError("surprise")))
    assert "unexpected KeyError: 'surprise'" in run("verify", root=folder, code=1).stderr
    result = CliRunner().invoke(cli, ["--root", folder, "--traceback", "verify"])
    assert isinstance(result.exception, KeyError)


def test_storage_options_reach_the_filesystem_and_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def failing(url: str, options: Any, **others: Any) -> NoReturn:
        given.append((options, others))
        raise ZeroDivisionError

    monkeypatch.setattr(Root, "open", failing)
    arguments = ["--storage", "key=topsecret", "--storage", 'client_kwargs={"retries": 3}', "--storage", "anon=false"]
    result = run(*arguments, "--wal", "elsewhere", "container", "list", root="s3://bucket", code=1)
    assert given == [
        (
            {"key": "topsecret", "client_kwargs": {"retries": 3}, "anon": False},
            {"settings": {}, "wal": "elsewhere", "create": False, "new_log": False, "dry_run": False},
        )
    ]
    assert "topsecret" not in result.output + result.stderr


def test_main_ends_the_process(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["container", "list"], 0), (["container", "describe", "9"], 1), (["oops"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(["--root", folder, *arguments])
        assert ended.value.code == code
    assert "containers 0 to 1" in capsys.readouterr().err


@pytest.mark.processes
def test_a_real_process(folder: str) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pravega_spark.cli", "--root", folder, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)

    done = call("--json", "verify", "--deep")
    assert done.returncode == 0 and done.stderr == "" and json.loads(done.stdout)["verify"]["healthy"]
    failed = call("segment", "describe", "none")
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1 and failed.stdout == ""
    assert call("segment").returncode == 2


@pytest.mark.processes
def test_importing_the_package_needs_neither_click_nor_rich() -> None:
    code = "import sys, pravega_spark, pravega_spark.client.manager; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"click", "rich"} & set(loaded.stdout.split())


# --- what is printed ----------------------------------------------------------------------------------------------


def test_values_as_people_read_them() -> None:
    assert [shown(value) for value in (None, True, False, 5, "[red]text")] == ["-", "yes", "no", "5", "[red]text"]
    assert moment(None) is None and moment(0) is None and moment(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a[bold]name" + "x" * 300
    Output(False).table({"n": "name", "v": "[value]"}, [{"n": name, "v": 7}, {"n": ":smile:", "v": None}])
    text = capsys.readouterr().out
    assert name in text and "[value]" in text and ":smile:" in text
    Output(True).table({"n": "name"}, [{"n": 1}])
    Output(True).line("for people")
    Output(False).document({"for": "programs"})
    assert capsys.readouterr().out == ""


EVIL = "\x1b]0;owned\x07\x1b[2J"
"""What a terminal executes: it sets the title, and clears the screen."""


def test_names_and_values_of_other_writers_cannot_control_a_terminal(tmp_path: Path) -> None:
    """Keys, values and tags are any text. Documents have them as they are, in JSON, which escapes them."""
    url = str(tmp_path / "root")
    Root.open(url, containers=1).close()
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream_with_policy("sc", "st", tags=[EVIL])
        manager.create_key_value_table("sc", "kv", KeyValueTableConfiguration(1, len(EVIL)))
        manager.key_value_table("sc", "kv").put(TableKey(EVIL.encode()), EVIL.encode() * 9)
    for command in (["stream", "describe", "sc/st"], ["kvt", "entries", "sc/kv"], ["kvt", "get", "sc/kv", EVIL]):
        for width in ("80", "500"):
            printed = run(*command, root=url, COLUMNS=width).stdout
            assert "owned" in printed
            assert not set(printed) & set("\x1b\x07")
        assert "owned" in run("--json", *command, root=url).stdout
    assert "\x1b" not in run("kvt", "get", f"sc/{EVIL}", "key", root=url, code=2).stderr
