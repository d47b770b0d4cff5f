"""Scopes, streams and events on the command line; documents keep the keys that docs/cli.md tells of."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from engine.root import Root
from pravega_spark import StreamCut, StreamManager
from pravega_spark.cli import stream_events
from pravega_spark.cli.completion import SHELLS
from pravega_spark.cli.main import cli
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from tests.archives import CHUNKED, case
from tests.cli.test_cli import SEGMENT, damaged_frame, document, run
from tests.clocks import set_ahead

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
S = "sc/one"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A root with scope `sc`, and in it stream `one` with the events a, b, c."""
    return made(str(tmp_path / "root"))


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Such a root for many tests, none of which changes it."""
    return made(str(tmp_path_factory.mktemp("unchanged") / "root"))


def made(url: str) -> str:
    Root.open(url, containers=2).close()
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        with manager.create_writer("sc", "one") as writer:
            writer.write_events(["a", "b", "c"])
    return url


def written(*arguments: str, root: str, given: str | bytes, code: int = 0) -> Any:
    """`stream write`, of what comes in."""
    result = CliRunner().invoke(cli, ["--root", root, "--json", "stream", "write", *arguments], input=given)
    assert result.exit_code == code, (result.output, result.exception)
    return json.loads(result.stdout) if code == 0 else result.stderr


def texts(root: str, *arguments: str) -> list[str]:
    return run("stream", "read", S, *arguments, root=root).stdout.splitlines()


# --- documents ----------------------------------------------------------------------------------------------------

CUT = {"cut": str, "positions": {str: int}}
HELD = {"stream": str, "id": int, "segment": str, "offset": int}
OPENED = {"stream": str, "transaction": str, "status": str, "began": str, "timeout": str, "bytes": int}
EVENT = {"event": str | None, "base64": str | None, "segment_id": int, "offset": int}
ROW = {"stream": str, "segments": int, "events": int, "bytes": int, "sealed": bool}
COPIED = [{"number": int, "cycle": int, "time": str, "sequence": int, "objects": int, "copied": int, "bytes": int}]
RANGE = {"low": float, "high": float}
ROOT = {
    "place": str,
    "id": str,
    "containers": int,
    "grace_seconds": float,
    "garbage_delay_seconds": float,
    "transient_idle_seconds": float,
    "max_segments": int,
    "log": str | None,
    "signed": str | None,
}
SCHEMAS: dict[str, Mapping[str, Any]] = {
    "root create": {"root": ROOT},
    "root describe": {"root": ROOT},
    "root set": {"root": ROOT},
    "status": {
        "root": str,
        "time": str,
        "streams": [
            {
                "stream": str,
                "sealed": bool,
                "segments": int,
                "events": int,
                "bytes": int,
                "last_event": str | None,
                "events_per_second": float,
                "bytes_per_second": float,
            }
        ],
        "consumers": [
            {
                "kind": str,
                "consumer": str,
                "stream": str,
                "lag": dict | None,
                "problem": str | None,
            }
        ],
        "containers": [
            {
                "number": int,
                "online": bool,
                "reason": str | None,
                "logged_bytes": int | None,
                "flushed": str | None,
                "garbage": int | None,
                "overdue": list,
            }
        ],
        "problems": list,
    },
    "scope create": {"scope": str, "created": bool},
    "scope list": {"scopes": [{"scope": str, "streams": int}]},
    "scope delete": {
        "scope": str,
        "deleted": bool,
        "contents": {"streams": int, "reader_groups": int, "key_value_tables": int},
    },
    "stream create": {"stream": str, "created": bool, "not_applied": list},
    "stream list": {"streams": [ROW]},
    "stream describe": {
        "stream": ROW
        | {
            "epochs": int,
            "created": str,
            "scaling": {"kind": str, "min_segments": int, "target_rate": int, "factor": int},
            "retention": {"kind": str, "limit": int, "maximum": int | None},
            "tags": [str],
            "values": dict | None,
            "head": CUT,
            "tail": CUT,
            "transactions": list,
            "subscribers": dict,
            "unplaced": dict,
            "current": [{"id": int, "segment": str, "name": str, **RANGE}],
        }
    },
    "stream write": {"stream": str, "written": {"events": int, "bytes": int}},
    "stream read": {"stream": str, "events": [EVENT]},
    "stream tail": EVENT,
    "stream retain": {
        "stream": str,
        "dry_run": bool,
        "retained": {"recorded": str | None, "truncated": str | None, "bytes": int, "why": str | None},
        "retention": {"kind": str, "limit": int, "maximum": int | None},
    },
    "stream truncate": {"stream": str, "truncated": {"events": int, "bytes": int}, "head": CUT},
    "stream update": {
        "stream": str,
        "scaling": {"kind": str, "min_segments": int, "target_rate": int, "factor": int},
        "retention": {"kind": str, "limit": int, "maximum": int | None},
        "tags": [str],
        "values": dict | None,
        "segments": int,
    },
    "stream scale": {"stream": str, "sealed": [int], "epoch": int, "current": [{"id": int, "segment": str, **RANGE}]},
    "stream unsubscribe": {"stream": str, "subscriber": str},
    "stream rebuild-index": {"stream": str, "rebuilt": int},
    "stream seal": {"stream": str, "sealed": bool, "before": bool},
    "stream delete": {"stream": str, "deleted": {"events": int, "bytes": int, "segments": int}},
    "stream cuts": {"stream": str, "cuts": [{"at": str, **CUT}]},
    "stream lag": {
        "stream": str,
        "lag": {"bytes": int, "events": int, "seconds": float, "truncated": bool},
        "position": CUT,
    },
    "stream draw": {"stream": str, "file": str},
    "container list": {"containers": list},
    "container describe": {"container": dict},
    "container flush": {"flushed": [{"number": int, "bytes": int, "cycle": int}]},
    "container repair": {"repaired": {"number": int, "address": int, "whole": bool, "transactions": list | None}},
    "container recover": {
        "recovered": {"number": int, "cycle": int, "time": str, "sequence": int, "segments": int, "head": int}
    },
    "segment list": {"segments": [{"name": str, "container": int}]},
    "segment describe": {"segment": dict},
    "segment chunks": {
        "name": str,
        "segment": str,
        "container": int,
        "parts": [{"start": int, "length": int, "place": str, "object": str, "position": int}],
    },
    "verify": {"verify": dict},
    "gc": {
        "gc": {
            "dry_run": bool,
            "examined": int,
            "orphans": int,
            "bytes": int,
            "names": [str],
            "recent": int,
            "unknown": int,
            "unknown_names": [str],
            "nested": list,
            "waiting": int,
            "expired": int,
            "deleted": int,
        }
    },
    "defrag": {
        "defrag": [{"segment": str, "container": int, "merges": int, "chunks": int, "bytes": int, "refused": int}]
    },
    "maintain": {
        "maintain": {
            "dry_run": bool,
            "steps": int,
            "changed": int,
            "failed": int,
            "outcomes": [
                {
                    "scope": str | None,
                    "stream": str | None,
                    "step": str,
                    "changed": bool,
                    "bytes": int,
                    "detail": str,
                    "error": str | None,
                    "events": int,
                    "old_head": str | None,
                }
            ],
        }
    },
    "backup": {"backup": COPIED, "place": str},
    "restore": {"restored": COPIED, "place": str},
    "transaction list": {"transactions": [OPENED]},
    "transaction abort": {"aborted": OPENED},
    "group list": {"groups": [{"group": str}]},
    "group describe": {
        "group": str,
        "streams": [
            {
                "stream": str,
                "lag": {"bytes": int, "events": int, "seconds": float, "truncated": bool},
                **CUT,
                "set_back_time": str | None,
                "set_back_from": str | None,
            }
        ],
        "readers": [
            {"reader": str, "signs_of_life": int, "segments": [HELD]},
        ],
        "unassigned": list,
        "lease": float,
        "outstanding_checkpoints": dict,
    },
    "group delete": {"group": str, "deleted": bool},
    "group reset": {"group": str, "streams": [{"stream": str, "before": str, **CUT}]},
    "group offline": {"group": str, "reader": str, "segments": [HELD]},
    "kvt create": {"table": str, "created": bool},
    "kvt list": {"tables": [{"table": str}]},
    "kvt describe": {
        "table": str,
        "primary_key_length": int,
        "secondary_key_length": int,
        "partition_count": int,
        "rollover_size_bytes": int,
        "created": str,
        "entries": int,
        "stored": int,
        "unflushed": int,
    },
    "kvt put": {"table": str, "version": str},
    "kvt insert": {"table": str, "version": str},
    "kvt replace": {"table": str, "version": str},
    "kvt remove": {"table": str, "removed": bool},
    "kvt get": {
        "table": str,
        "entry": {"base64": list, "primary": str, "secondary": str, "value": str, "version": str},
    },
    "kvt keys": {"table": str, "keys": [{"base64": list, "primary": str, "secondary": str}]},
    "kvt entries": {
        "table": str,
        "entries": [{"base64": list, "primary": str, "secondary": str, "value": str, "version": str}],
    },
    "kvt delete": {"table": str, "deleted": bool},
    "kvt read": {
        "table": str,
        "entries": [{"base64": list, "primary": str, "secondary": str, "value": str}],
    },
    "import": {
        "import": {
            "source": str,
            "streams": [
                {
                    "scope": str,
                    "stream": str,
                    "outcome": str,
                    "segments": int,
                    "chunks": int,
                    "bytes": int,
                    "events": int | None,
                    "transactions": list,
                    "unknown": list,
                    "problem": str | None,
                    "not_imported": list,
                    "recovered": list,
                }
            ],
            "left_out": list,
            "unknown": list,
            "scopes": list,
            "tables": [
                {
                    "scope": str,
                    "table": str,
                    "outcome": str,
                    "entries": int,
                    "bytes": int,
                    "problem": str | None,
                }
            ],
        }
    },
    "header export": {
        "header": {"name": str, "segment": str, "object": str, "chunks": int, "length": int, "sealed": bool}
    },
    "header import": {
        "imported": {"segment": str, "stream": str, "events": int, "bytes": int, "chunks": int, "header": str | None}
    },
    "serve": {"url": str, "root": str, "changes": bool, "maintain": bool},
    "completion": {},
}
"""The document of each command. A list holds the form of all its items, a mapping with `str` for a key that of all its
values; bare `list` and `dict` are looked at elsewhere."""


def assert_form(found: Any, form: Any, where: str = "") -> None:
    if isinstance(form, list):
        assert isinstance(found, list) and found, f"{where}: {found}"
        for item in found:
            assert_form(item, form[0], f"{where}[]")
    elif isinstance(form, Mapping) and list(form) == [str]:
        assert isinstance(found, dict), where
        for key, value in found.items():
            assert_form(value, form[str], f"{where}.{key}")
    elif isinstance(form, Mapping):
        assert list(found) == list(form), where
        for key, value in form.items():
            assert_form(found[key], value, f"{where}.{key}")
    else:
        assert isinstance(found, form) and (form is bool or not isinstance(found, bool)), f"{where}: {found!r}"


def commands(group: click.Group, prefix: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name


def told() -> dict[str, list[str]]:
    """The rows of the table in docs/cli.md: the keys of each command's document, in order."""
    rows = re.findall(r"^\| `([^`]+)` \| .* \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    known = set(SCHEMAS)
    found = {}
    for usage, keys in rows:
        words = usage.split()
        name = words[0] if words[0] in known else " ".join(words[:2])
        found[name] = re.findall(r"`(\w+)`", keys)
    return found


def keys_of(form: Any) -> list[str]:
    """All keys of a form, as the documentation tells of them."""
    if isinstance(form, list):
        return keys_of(form[0])
    if isinstance(form, Mapping) and list(form) != [str]:
        return [name for key, value in form.items() for name in (key, *keys_of(value))]
    return []


def test_every_command_is_documented_with_its_keys() -> None:
    documented = told()
    assert sorted(documented) == sorted(commands(cli)) == sorted(SCHEMAS)
    elsewhere = {"stream describe", "stream read", "gc", "maintain", "container list", "verify", "restore", "import"}
    for name, form in SCHEMAS.items():
        if name in elsewhere:
            assert documented[name][0] == next(iter(form)), name
        else:
            wanted = [key for key in keys_of(form) if key not in ("cut", "positions")]
            assert [key for key in documented[name] if key not in ("cut", "positions")] == wanted, name
    text = DOCS.read_text()
    for name in ("stream describe", "gc", "maintain", "import"):
        section = text.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert set(keys_of(SCHEMAS[name])) - {"stream", "gc", "maintain", "import"} <= set(
            re.findall(r"`(\w+)`", section)
        ), name


def test_every_option_is_documented() -> None:
    rows = {row.split("|")[1].strip(" `"): row for row in DOCS.read_text().splitlines() if row.startswith("| `")}
    for name in commands(cli):
        command: Any = cli
        for word in name.split():
            command = command.commands[word]
        [usage] = [usage for usage in rows if usage.startswith(name + " ") or usage == name]
        shown = (option for option in command.params if isinstance(option, click.Option) and not option.hidden)
        options = {option.opts[-1] for option in shown}
        assert options - set(re.findall(r"--[\w-]+", rows[usage])) == set(), name


def test_every_command_and_option_has_a_help_sentence() -> None:
    for name in commands(cli):
        command: Any = cli
        for word in name.split():
            command = command.commands[word]
        assert command.help, name
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, f"{name} {option.opts}"


def test_every_document_has_its_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One root's life by commands alone."""
    url, seen = str(tmp_path / "new"), set()

    def did(name: str, *arguments: str, root: str = url) -> Any:
        found = document(*name.split(), *arguments, root=root)
        seen.add(name)
        assert_form(found, SCHEMAS[name], name)
        return found

    made = did("root create", "--grace-seconds", "100")
    assert made["root"]["containers"] == 4 and made["root"]["grace_seconds"] == 100
    assert did("root describe") == made
    assert did("root set", "--max-segments", "500", "--yes")["root"]["max_segments"] == 500
    assert did("scope create", "sc")["created"]
    assert not did("scope create", "sc")["created"]
    did("scope create", "empty")
    assert did("scope list")["scopes"] == [{"scope": "empty", "streams": 0}, {"scope": "sc", "streams": 0}]
    deleted = did("scope delete", "empty", "--yes")
    assert (deleted["scope"], deleted["deleted"], set(deleted["contents"].values())) == ("empty", True, {0})
    assert did("stream create", S, "--scale-kib", "5", "--retain-time", "999999999ms", "--tag", "t")["created"]
    lines = tmp_path / "lines"
    lines.write_bytes(b"first\nsecond\n\xff\n")
    assert did("stream write", S, str(lines))["written"] == {"events": 3, "bytes": 12 + 3 * 8}
    described = did("stream describe", S)["stream"]
    assert described["scaling"] == {"kind": "bytes", "min_segments": 1, "target_rate": 5, "factor": 2}
    assert described["retention"] == {"kind": "time", "limit": 999999999, "maximum": None} and described["tags"] == [
        "t"
    ]
    assert described["events"] == 3 and described["bytes"] == 36 and described["tail"]["positions"] == {"0": 36}
    assert did("stream list")["streams"] == [{key: described[key] for key in ROW}]
    assert [event["event"] for event in did("stream read", S)["events"]] == ["first", "second", None]
    assert did("stream lag", S, "--from", "head")["lag"]["events"] == 3
    assert did("stream draw", S, "-o", str(tmp_path / "one.svg"))["file"].endswith("one.svg")
    assert did("stream tail", S, "--from", "head", "--count", "1")["event"] == "first"
    cuts = did("stream cuts", S, "--at", "2001-01-01")["cuts"]
    assert [row["at"] for row in cuts] == ["head", "2001-01-01T00:00:00.000Z", "tail"]
    for name in ("container list", "container flush", "segment list", "verify"):
        did(name)
    did("container describe", "0")
    did("segment describe", SEGMENT)
    did("segment chunks", SEGMENT)
    for _ in range(3):
        did("stream write", S, str(lines))
        did("container flush")
    assert did("defrag")["defrag"][0]["merges"] == 1
    assert did("maintain", "--verify", "--yes")["maintain"]["failed"] == 0
    Path(url, "notes").write_text("mine")
    Path(url, S, "0.#epoch.0.E-1-O-0.00000000-0000-0000-0000-000000000000").write_text("orphan")
    set_ahead(monkeypatch, 10_000)
    gc = did("gc", "--older-than", "9999", "--yes", "--plausible-share", "0.5")["gc"]
    assert gc["orphans"] == 1 and gc["unknown_names"] == ["notes"] and gc["waiting"] > 0 and not gc["dry_run"]
    did("header export", SEGMENT)
    Path(url, "legacy").write_bytes(b"\0\0\0\0\0\0\0\x01x")
    did("header import", "legacy", "sc/copy", "--yes")
    did("backup", str(tmp_path / "copy"))
    did("restore", str(tmp_path / "copy"), root=str(tmp_path / "restored"))
    with StreamManager(url) as manager:
        scope, stream = S.split("/")
        manager.create_reader_group("readers", scope, stream).create_reader("one")
        opened = manager.create_transaction_writer(scope, stream).begin_txn().get_txn_id()
        did("transaction list")
        did("transaction abort", S, str(opened), "--yes")
        did("group describe", "sc/readers")
        did("group offline", "sc/readers", "one", "--yes")
        did("group reset", "sc/readers", "--yes")
    assert did("status")["consumers"][0]["consumer"] == "sc/readers"
    assert did("group list", "sc")["groups"] == [{"group": "sc/readers"}]
    did("group delete", "sc/readers", "--yes")
    archive = case(CHUNKED).laid_out(tmp_path / "lts")
    assert did("kvt list", root=archive)["tables"] == [{"table": "demo/kvt"}]
    did("kvt read", "demo/kvt", root=archive)
    did("kvt create", "sc/prices", "--primary", "4", "--secondary", "2")
    did("kvt insert", "sc/prices", "AAPL", "21.5", "--secondary", "US")
    version = did("kvt put", "sc/prices", "AAPL", "22", "--secondary", "US")["version"]
    did("kvt replace", "sc/prices", "AAPL", "23", "--secondary", "US", "--version", version)
    assert did("kvt get", "sc/prices", "AAPL", "--secondary", "US")["entry"]["value"] == "23"
    did("kvt keys", "sc/prices")
    did("kvt entries", "sc/prices", "--primary", "AAPL", "--from", "DE", "--to", "US")
    assert did("kvt describe", "sc/prices")["entries"] == 1
    did("kvt remove", "sc/prices", "AAPL", "--secondary", "US")
    did("kvt delete", "sc/prices", "--yes")
    imported = did("import", archive, "demo/rides", "demo/kvt", "--yes", root=str(tmp_path / "moved"))
    assert imported["import"]["streams"][0]["outcome"] == "imported"
    assert did("container repair", "0", str(damaged_frame(url, 0)), "--yes")["repaired"]["whole"]
    log = Path(url, "_system/containers", "0")
    for frame in [path for kind in ("wal", "checkpoints") for path in log.glob(f"{kind}/*/*")]:
        frame.unlink()
    did("container recover", "0", "--yes")
    assert did("stream retain", S, "--period", "0", "--yes")["retained"]["recorded"]
    assert did("stream update", S, "--retain-size", "1000000000", "--tag", "a")["tags"] == ["a"]
    assert did("stream truncate", S, "--at", "tail", "--yes")["truncated"] == {"events": 12, "bytes": 4 * 36}
    subscribed(url)
    did("stream unsubscribe", S, "query:job", "--yes")
    assert did("stream rebuild-index", S)["rebuilt"] == 0
    did("stream seal", S, "--yes")
    assert did("stream delete", S, "--yes")["deleted"]["segments"] == 1
    assert seen == set(SCHEMAS) - {"stream scale", "serve", "completion"}


# --- scopes -------------------------------------------------------------------------------------------------------


def test_scopes(folder: str, tmp_path: Path) -> None:
    assert run("scope", "create", "other", root=folder).stdout == "scope other was created\n"
    assert run("scope", "create", "other", root=folder).stdout == "scope other exists already\n"
    assert re.search(r"sc +1\b", run("scope", "list", root=folder).stdout)
    assert "not empty" in run("scope", "delete", "sc", "--yes", root=folder, code=1).stderr
    asked = run("scope", "delete", "other", root=folder, code=1)
    assert asked.stdout == "This would delete scope other, which has no streams.\n" and "give --yes" in asked.stderr
    assert run("scope", "delete", "other", "--yes", root=folder).stdout == "scope other was deleted\n"
    assert "does not exist" in run("scope", "delete", "other", "--yes", root=folder, code=1).stderr
    full = tmp_path / "full"
    with StreamManager(str(full)) as manager:
        manager.create_scope("sc")
        manager.create_stream_with_policy("sc", "one", tags=["red"])
        manager.create_stream("sc", "two")
        manager.create_reader_group("readers", "sc", "one")
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("a")
    assert [row["stream"] for row in document("stream", "list", "--tag", "red", root=full)["streams"]] == ["sc/one"]
    assert "reader groups first: readers" in run("scope", "delete", "sc", root=full, code=1).stderr
    would = run("scope", "delete", "sc", "--force", root=full, code=1).stdout
    assert "with all that it has: 2 streams, 1 reader group, 0 key-value tables." in would
    assert "stream sc/one: 1 event, 9 bytes" in would and "reader group sc/readers" in would
    gone = document("scope", "delete", "sc", "--force", "--yes", root=full)
    assert gone["deleted"] and gone["contents"] == {"streams": 2, "reader_groups": 1, "key_value_tables": 0}
    assert document("scope", "list", root=full) == {"scopes": []}
    new = tmp_path / "new"
    assert "holds no streams" in run("scope", "create", "sc", root=new, code=1).stderr and not new.exists()
    run("scope", "create", "sc", "--new-root", root=new)
    assert document("scope", "list", root=new) == {"scopes": [{"scope": "sc", "streams": 0}]}


# --- roots --------------------------------------------------------------------------------------------------------


def test_roots(tmp_path: Path) -> None:
    url = tmp_path / "root"
    for command in ("scope list", "scope create s", "verify", "root describe", "maintain --yes"):
        assert "root create" in run(*command.split(), root=url, code=1).stderr
    assert not url.exists()
    told = run("--wal", str(tmp_path / "log"), "root", "create", "--containers", "2", root=url).stdout
    assert str(tmp_path / "log") in told and "containers" in told
    assert document("root", "describe", root=url)["root"]["log"] == f"file://{tmp_path}/log"
    assert "is a root already" in run("root", "create", root=url, code=1).stderr
    run("scope", "create", "s", root=url)
    (url / "_system/pravega.json").unlink()
    (url / "notes").write_text("")
    assert "in use already" in run("--wal", str(tmp_path / "log"), "root", "create", root=url, code=1).stderr
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "notes").write_text("")
    run("root", "create", root=beside)
    assert "inside another" in run("root", "create", root=beside / "a", code=1).stderr


# --- streams ------------------------------------------------------------------------------------------------------


def test_making_streams(folder: str) -> None:
    assert run("stream", "create", "sc/two", "--segments", "3", root=folder).stdout == "stream sc/two was created\n"
    assert run("stream", "create", "sc/two", root=folder).stdout == "stream sc/two exists already\n"
    text = run("stream", "describe", "sc/two", root=folder).stdout
    assert "fixed" in text and re.search(r"2\.0 +2 +0\.666667", text) and "open segments" in text
    policies = ["--scale-events", "10", "--scale-factor", "4", "--retain-size", "5"]
    run("stream", "create", "sc/more", *policies, root=folder)
    text = run("stream", "describe", "sc/more", root=folder).stdout
    assert "segments above 10 events/s are split into 4; at least 1" in text and "at least 5 bytes" in text
    run("scope", "create", "empty", root=folder)
    assert [row["stream"] for row in document("stream", "list", root=folder)["streams"]] == [
        "sc/more", "sc/one", "sc/two",
    ]  # fmt: skip
    assert document("stream", "list", "empty", root=folder) == {"streams": []}
    assert "none" in run("stream", "list", "none", root=folder, code=1).stderr
    assert "none" in run("stream", "create", "none/x", root=folder, code=1).stderr


def test_durations_sizes_and_times_ago(folder: str) -> None:
    run("stream", "create", "sc/week", "--retain-time", "7d", root=folder)
    assert document("stream", "describe", "sc/week", root=folder)["stream"]["retention"]["limit"] == 7 * 86_400_000
    run("stream", "create", "sc/much", "--retain-size", "10MiB", root=folder)
    assert document("stream", "describe", "sc/much", root=folder)["stream"]["retention"]["limit"] == 10 << 20
    assert texts(folder, "--from", "-5m") == texts(folder, "--from", "5 minutes ago") == ["a", "b", "c"]
    assert texts(folder, "--from", "now", "--to", "tail") == texts(folder, "--to", "1h") == []
    assert "Sizes are written as" in run("stream", "create", "sc/x", "--retain-size", "1M", root=folder, code=2).stderr
    assert "'5' has no unit" in run("stream", "create", "sc/x", "--retain-time", "5", root=folder, code=2).stderr
    wrong = run("stream", "create", "sc/x", "--retain-time", "1x", root=folder, code=2)
    assert "Durations are written as" in wrong.stderr
    assert len(document("stream", "cuts", S, "--at", "10m", root=folder)["cuts"]) == 3


def test_sealing_and_deleting(folder: str) -> None:
    asked = run("stream", "seal", S, root=folder, code=1)
    assert "would seal stream sc/one (3 events)" in asked.stdout
    told = run("stream", "delete", S, "--yes", root=folder, code=1).stderr
    assert "not sealed" in told and f"stream delete {S} --seal --yes" in " ".join(told.split())
    asked = run("stream", "delete", S, "--seal", root=folder, code=1)
    assert asked.stdout == "This would delete stream sc/one: 3 events, 27 bytes, 1 segment.\n"
    assert not document("stream", "describe", S, root=folder)["stream"]["sealed"]
    assert "was sealed" in run("stream", "seal", S, "--yes", root=folder).stdout
    assert "sealed already" in run("stream", "seal", S, root=folder).stdout
    assert document("stream", "seal", S, root=folder)["before"]
    assert "sealed" in run("stream", "truncate", S, "--at", "tail", "--yes", root=folder, code=1).stderr
    assert "27 bytes" in run("stream", "delete", S, "--yes", root=folder).stdout
    assert "does not exist" in run("stream", "describe", S, root=folder, code=1).stderr
    run("stream", "create", S, root=folder)
    run("stream", "delete", S, "--yes", "--seal", root=folder)
    assert document("stream", "list", root=folder)["streams"] == []


def subscribed(root: str) -> None:
    """A query that retention is to wait for has read nothing yet of the stream."""
    with StreamManager(root) as manager:
        options = {"controller": root, "scope": "sc", "stream": "one", "subscriber": "job"}
        MicroBatchReader(SourceOptions.parse({**options, "start_stream_cut": "earliest"})).initialOffset()
        assert list(manager.stream_info("sc", "one").subscribers) == ["query:job"]


def test_a_subscriber_that_is_not_there_any_more(folder: str) -> None:
    subscribed(folder)
    slip = run("stream", "unsubscribe", S, "query:jib", "--yes", root=folder, code=1).stderr
    assert "query:jib is no subscriber of stream sc/one, which has query:job. Did you mean 'query:job'?" in slip
    asked = run("stream", "unsubscribe", S, "query:job", root=folder, code=1)
    assert "would remove subscriber query:job of stream sc/one (3 events, 27 bytes" in asked.stdout
    assert document("stream", "unsubscribe", S, "query:job", "--yes", root=folder)["subscriber"] == "query:job"
    again = run("stream", "unsubscribe", S, "query:job", "--yes", root=folder, code=1).stderr
    assert "query:job is no subscriber of stream sc/one, which has none." in again
    assert document("stream", "describe", S, root=folder)["stream"]["subscribers"] == {}


def test_truncating(folder: str) -> None:
    places = {row["at"]: row["cut"] for row in document("stream", "cuts", S, root=folder)["cuts"]}
    middle = StreamCut("sc", "one", {0: 18}).as_text()
    asked = run("stream", "truncate", S, "--at", middle, root=folder, code=1)
    assert asked.stdout == "This would delete from stream sc/one: 2 events, 18 bytes, from 0.0 at 0, up to 0.0 at 18.\n"
    assert texts(folder) == ["a", "b", "c"]
    assert "2 events, 18 bytes" in run("stream", "truncate", S, "--at", middle, "--yes", root=folder).stdout
    assert texts(folder) == ["c"]
    assert "0 events" in run("stream", "truncate", S, "--at", "head", "--yes", root=folder).stdout
    for place in (places["head"], StreamCut("sc", "one", {0: 20}).as_text(), StreamCut("sc", "two", {0: 0}).as_text()):
        for how in ("--yes", "--dry-run"):
            run("stream", "truncate", S, "--at", place, how, root=folder, code=1)
    assert texts(folder) == ["c"]
    for how in ("--yes", "--dry-run"):
        future = run("stream", "truncate", S, "--at", "2100-01-01", how, root=folder, code=1).stderr
        assert "2100-01-01 00:00:00 UTC is in the future" in future and "tail" in future
    assert "1 event, 9 bytes" in run("stream", "truncate", S, "--at", "now", "--yes", root=folder).stdout


def test_cuts(folder: str) -> None:
    found = document("stream", "cuts", S, "--at", "0", "--at", "2100-01-01T00:00+01:00", root=folder)["cuts"]
    assert [row["at"] for row in found] == ["head", "0", "2099-12-31T23:00:00.000Z", "tail"]
    assert [row["positions"]["0"] for row in found] == [0, 0, 27, 27]
    assert {StreamCut.from_text(row["cut"]).positions[0] for row in found} == {0, 27}
    assert re.search(r"^tail: 0\.0 at 27\nH4sI\S+$", run("stream", "cuts", S, root=folder).stdout, re.MULTILINE)
    times = ("2001-01-01", "2002-02-02", "2100-01-01")
    told = run("stream", "cuts", S, *(word for time in times for word in ("--at", time)), root=folder).stdout
    first, last = "2001-01-01T00:00:00.000Z, 2002-02-02T00:00:00.000Z", "2100-01-01T00:00:00.000Z"
    pattern = rf"head, {first}: 0\.0 at 0\n(H4sI\S+)\n{last}, tail: 0\.0 at 27\n(H4sI\S+)\n"
    printed = re.fullmatch(pattern, told)
    assert printed is not None, told
    for cut, count in zip(printed.groups(), (3, 0), strict=True):
        assert run("stream", "read", S, "--from", cut, root=folder).stdout.count("\n") == count


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["--segments", "2"], ([0], [(0.0, 0.5), (0.5, 1.0)])),
        (["--seal", "0", "--range", "0", "0.3", "--range", "0.3", "1"], ([0], [(0.0, 0.3), (0.3, 1.0)])),
    ],
    ids=["even", "named"],
)
def test_scaling(folder: str, arguments: list[str], given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = getattr(StreamManager, "scale_stream", lambda *_: None)

    def scale(manager: StreamManager, scope: str, stream: str, segments: Any, ranges: Any) -> None:
        asked.append((scope, stream, list(segments), list(ranges)))
        real(manager, scope, stream, segments, ranges)

    monkeypatch.setattr(StreamManager, "scale_stream", scale, raising=False)
    found = document("stream", "scale", S, *arguments, root=folder)
    assert_form(found, SCHEMAS["stream scale"])
    assert asked == [("sc", "one", *given)] and found["sealed"] == [0]
    assert "sc/one was scaled" in run("stream", "scale", S, "--segments", "3", root=folder).stdout


# --- events -------------------------------------------------------------------------------------------------------


def test_lines_are_events(folder: str, tmp_path: Path) -> None:
    for given, events_written in ((b"", 0), (b"no end", 1), (b"\n\n", 2), ("ümläut\r\n".encode(), 1)):
        assert written(S, root=folder, given=given)["written"]["events"] == events_written
    result = run("stream", "read", S, root=folder)
    assert result.stdout_bytes == "a\nb\nc\nno end\n\n\nümläut\r\n".encode()
    path = tmp_path / "file"
    path.write_bytes(b"from a file\n")
    text = run("stream", "write", S, str(path), root=folder).stdout
    assert text == "1 event (19 bytes) was written to stream sc/one\n"
    assert texts(folder)[-1] == "from a file"


def test_routing_keys(folder: str) -> None:
    run("stream", "create", "sc/four", "--segments", "4", root=folder)
    lines = "".join(json.dumps({"k": number % 5, "n": number}) + "\n" for number in range(100))
    assert written("sc/four", "--key-from", "k", root=folder, given=lines)["written"]["events"] == 100
    places: dict[int, set[int]] = {}
    for event in document("stream", "read", "sc/four", root=folder)["events"]:
        places.setdefault(json.loads(event["event"])["k"], set()).add(event["segment_id"])
    assert len(places) == 5 and all(len(segments) == 1 for segments in places.values())
    assert len(set().union(*places.values())) > 1
    with StreamManager(folder) as manager, manager.create_writer("sc", "four") as writer:
        writer.write_event("other", "key")
    written("sc/four", "--key", "key", root=folder, given="x\ny\n")
    found = document("stream", "read", "sc/four", root=folder)["events"]
    assert len({event["segment_id"] for event in found if event["event"] in ("other", "x", "y")}) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("no json", "is not JSON"),
        ('{"x": 1}', "has no text or number in field 'k'"),
        ("[1]", "has no text or number in field 'k'"),
        ('{"k": null}', "has no text or number in field 'k'"),
        ('{"k": true}', "has no text or number in field 'k'"),
        ('{"k": {}}', "has no text or number in field 'k'"),
    ],
)
def test_lines_without_a_key(folder: str, line: str, problem: str) -> None:
    told = written(S, "--key-from", "k", root=folder, given=f'{{"k": "ok"}}\n{line}\n{{"k": "late"}}\n', code=1)
    assert told.startswith(f"pravega-spark: line 2 {problem}") and told.endswith("1 line before it was written\n")
    assert texts(folder) == ["a", "b", "c", '{"k": "ok"}']
    assert "nothing was written" in written(S, "--key-from", "k", root=folder, given=line, code=1)


def test_lines_that_are_too_long(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream_events.MAX_LINE == 8 << 20
    monkeypatch.setattr(stream_events, "MAX_LINE", 5)
    assert written(S, root=folder, given="12345\n12345")["written"]["events"] == 2
    for line in ("123456\n", "123456", "1234567\n1", "12345678"):
        assert "line 2 is longer than 5 bytes" in written(S, root=folder, given=f"fine\n{line}", code=1)
    assert texts(folder) == ["a", "b", "c", "12345", "12345", *["fine"] * 4]


def test_reading_a_part(folder: str) -> None:
    middle = StreamCut("sc", "one", {0: 9}).as_text()
    assert texts(folder, "--from", middle) == ["b", "c"]
    assert texts(folder, "--to", middle) == ["a"]
    assert texts(folder, "--from", "latest") == texts(folder, "--count", "0") == []
    assert texts(folder, "--from", "2001-01-01T00:00:00Z", "--to", "tail", "--count", "2") == ["a", "b"]
    assert "start" in run("stream", "read", S, "--from", "tail", "--to", "head", root=folder, code=1).stderr
    run("stream", "truncate", S, "--at", middle, "--yes", root=folder)
    gone = StreamCut("sc", "one", {0: 0}).as_text()
    assert "truncated" in run("stream", "read", S, "--from", gone, root=folder, code=1).stderr


def test_the_last_events(folder: str) -> None:
    """Of all segments, in the order in which they came; -n of tail follows behind them."""
    run("stream", "create", "sc/many", "--segments", "4", root=folder)
    numbers = [str(number) for number in range(40)]
    given = "".join(f'{{"k": "{number}"}}\n' for number in numbers)
    written("sc/many", "--key-from", "k", root=folder, given=given)
    found = document("stream", "read", "sc/many", "--last", "15", root=folder)["events"]
    assert [json.loads(each["event"])["k"] for each in found] == numbers[-15:]
    assert len({each["segment_id"] for each in found}) == 4
    lines = run("stream", "read", "sc/many", "--last", "2", root=folder).stdout.splitlines()
    assert [json.loads(line)["k"] for line in lines] == ["38", "39"]
    for more in ("--from", "--to"):
        told = run("stream", "read", "sc/many", "--last", "2", more, "head", root=folder, code=2).stderr
        assert "omit --from, --to and --count" in told
    run("stream", "seal", "sc/many", "--yes", root=folder)
    lines = run("stream", "tail", "sc/many", "-n", "3", root=folder).stdout.splitlines()
    assert [json.loads(line)["k"] for line in lines] == ["37", "38", "39"]
    assert "--from or --last" in run("stream", "tail", S, "-n", "3", "--from", "head", root=folder, code=2).stderr


def followed(folder: str, options: list[str], events: list[str]) -> str:
    """What `stream tail` prints while events are written, one by one, and the stream is sealed."""
    with ThreadPoolExecutor() as pool, StreamManager(folder) as manager:
        arguments = ["--root", folder, "stream", "tail", S, *options, "--poll", "0.01"]
        following = pool.submit(CliRunner().invoke, cli, arguments)
        for event in events:
            with manager.create_writer("sc", "one") as writer:
                writer.write_event(event)
        manager.seal_stream("sc", "one")
        result = following.result()
    assert result.exit_code == 0
    return result.stdout


def test_following_behind_the_last_events(folder: str) -> None:
    """What is appended between the two is neither left out nor printed twice."""
    found = followed(folder, ["-n", "2"], ["d", "e"])
    assert found in ("b\nc\nd\ne\n", "c\nd\ne\n", "d\ne\n")


def test_events_as_documents(folder: str) -> None:
    written(S, root=folder, given=b"\xff\xfe\n")
    assert document("stream", "read", S, "--from", "tail", root=folder) == {"stream": S, "events": []}
    found = document("stream", "read", S, root=folder)["events"]
    assert found[0] == {"event": "a", "base64": None, "segment_id": 0, "offset": 0}
    assert found[3] == {"event": None, "base64": "//4=", "segment_id": 0, "offset": 27}


def test_a_terminal_is_shown_no_control_characters() -> None:
    assert stream_events.for_terminal(b"\x1b[31mred\ttab \x07\xff") == b"\\x1b[31mred\ttab \\x07\\xff"
    assert stream_events.for_terminal("ümläut …".encode()) == "ümläut …".encode()


def test_following(folder: str) -> None:
    """Events that come while somebody looks, until so many are there, and until the stream is sealed."""
    lines = run("--json", "stream", "tail", S, "--from", "head", "--count", "2", root=folder).stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["a", "b"]
    assert run("stream", "tail", S, "--from", "head", "--count", "3", root=folder).stdout == "a\nb\nc\n"
    assert followed(folder, ["--from", "head"], ["late"]) == "a\nb\nc\nlate\n"


# --- what is wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["scope", "create"],
        ["scope", "create", "a/b"],
        ["scope", "create", ".."],
        ["scope", "create", "_system"],
        ["scope", "delete", "", "--yes"],
        ["scope", "list", "extra"],
        ["stream", "create", "no-slash"],
        ["stream", "create", "a/b/c"],
        ["stream", "create", "/b"],
        ["stream", "create", "a/"],
        ["stream", "create", S, "--segments", "0"],
        ["stream", "create", S, "--segments", "many"],
        ["stream", "create", S, "--scale-kib", "1", "--scale-events", "1"],
        ["stream", "create", S, "--scale-factor", "1"],
        ["stream", "create", S, "--retain-size", "1", "--retain-time", "1s"],
        ["stream", "list", "a b"],
        ["stream", "write", S, "/nowhere/at/all"],
        ["stream", "write", S, "--key", "a", "--key-from", "b"],
        ["stream", "read", S, "--from", "nowhere"],
        ["stream", "read", S, "--from", ""],
        ["stream", "read", S, "--to", "UNBOUNDED"],
        ["stream", "read", S, "--to", "2026-13-01"],
        ["stream", "read", S, "--count", "-1"],
        ["stream", "tail", S, "--poll", "0"],
        ["stream", "truncate", S],
        ["stream", "truncate", S, "--at", "H4sIAAAAAAAA"],
        ["stream", "scale", S],
        ["stream", "scale", S, "--segments", "2", "--seal", "0"],
        ["stream", "scale", S, "--seal", "0"],
        ["stream", "scale", S, "--range", "0", "1"],
        ["stream", "scale", S, "--seal", "0", "--range", "0", "1.5"],
        ["stream", "scale", S, "--seal", "0", "--range", "0"],
        ["stream", "cuts", S, "--at", "yesterday"],
        ["stream", "retain", S, "--period", "x"],
        ["gc", "--older-than", "-1"],
        ["gc", "--older-than", "inf"],
        ["gc", "--older-than", "nan"],
        ["gc", "--older-than", "1e300"],
        ["gc", "--older-than", "1e10"],
        ["gc", "--older-than", "9999w"],
        ["gc", "--plausible-share", "2"],
        ["defrag", "--target", "1"],
        ["backup"],
        ["restore"],
        ["header", "export"],
        ["header", "import", "x"],
        ["header", "import", "x", "y"],
        ["completion", "tcsh"],
        ["completion"],
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments: list[str]) -> None:
    result = run(*arguments, root="/nowhere/at/all", code=2)
    assert result.stdout == "" and result.stderr.count("\n") == 1 and result.stderr.startswith("Error: ")
    assert "--help" in result.stderr and len(result.stderr) < 300


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["stream", "describe", "sc/none"], "sc/none"),
        (["stream", "describe", "none/one"], "none/one"),
        (["stream", "write", "sc/none"], "sc/none"),
        (["stream", "read", "sc/none"], "sc/none"),
        (["stream", "tail", "sc/none"], "sc/none"),
        (["stream", "truncate", "sc/none", "--at", "head", "--yes"], "sc/none"),
        (["stream", "scale", "sc/none", "--segments", "2"], "sc/none"),
        (["stream", "seal", "sc/none", "--yes"], "sc/none"),
        (["stream", "delete", "sc/none", "--yes"], "sc/none"),
        (["stream", "cuts", "sc/none"], "sc/none"),
        (["stream", "read", S, "--from", StreamCut("sc", "two", {0: 0}).as_text()], "another stream"),
        (["stream", "read", S, "--from", StreamCut("sc", "one", {0: 99}).as_text()], "offsets 0 to 27"),
        (["stream", "read", S, "--from", StreamCut("sc", "one", {7: 0}).as_text()], "does not fit the segments"),
        (["header", "export", "sc/none/0.#epoch.0"], "sc/none/0.#epoch.0"),
        (["header", "import", "sc/none", "sc/new"], "sc/none"),
        (["restore", "/nowhere/at/all"], "is a root already"),
        (["backup", "tcp://localhost"], "no broker"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_what_is_refused(unchanged: str, arguments: list[str], told: str) -> None:
    result = run(*arguments, root=unchanged, code=1)
    assert told in result.stderr and result.stdout == "" and len(result.stderr) < 400


def test_what_is_not_made_yet_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    """Also by `tail`, which could wait for it; each command that is told brings one a step further."""
    url = str(tmp_path / "root")
    for _ in range(3):
        told = run("stream", "tail", "sc/later", "--from", "head", "--count", "1", root=url, code=1).stderr
        advised = [words for words in re.findall(r"`pravega-spark --root \S+ ([^`]+)`", told) if "create" in words]
        assert len(advised) == 1, told
        run(*advised[0].split(), root=url)
    run("stream", "write", "sc/later", "-", root=url)
    assert run("stream", "tail", "sc/later", "--from", "head", "--count", "0", root=url).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["stream", "truncate", S, "--at", "tail"],
            "This would delete from stream sc/one: 3 events, 27 bytes, from 0.0 at 0, up to 0.0",
        ),
        (["stream", "seal", S], "This would seal stream sc/one (3 events) permanently"),
        (["stream", "delete", S, "--seal"], "This would delete stream sc/one: 3 events, 27 bytes, 1 segment."),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_what_would_change_is_shown_with_a_dry_run_or_without_yes(
    unchanged: str, arguments: list[str], told: str
) -> None:
    """A dry run succeeds; with --yes beside it nothing is changed either."""
    for given in (["--dry-run"], ["--dry-run", "--yes"]):
        assert told in run(*arguments, *given, root=unchanged).stdout
        (line,) = document(*arguments, *given, root=unchanged)["would"]
        assert told in line
    refused = run(*arguments, root=unchanged, code=1)
    assert told in refused.stdout and "nothing was changed: give --yes" in refused.stderr


def test_commands_without_a_root() -> None:
    for name in commands(cli):
        arguments = {"scope create": ["x"], "scope delete": ["x"], "segment describe": ["x"], "segment chunks": ["x"]}
        extra = arguments.get(name) or {
            "root set": ["--max-segments", "5"],
            "stream truncate": [S, "--at", "head"],
            "stream scale": [S, "--segments", "1"],
            "stream update": [S, "--no-tags"],
            "stream unsubscribe": [S, "query:job"],
            "stream draw": [S, "-o", "x.svg"],
            "stream lag": [S, "--from", "head"],
            "container describe": ["0"],
            "container repair": ["0", "7"],
            "container recover": ["0"],
            "backup": ["x"],
            "restore": ["x"],
            "import": ["x"],
            "transaction abort": [S, "0"],
            "group describe": ["sc/readers"],
            "group delete": ["sc/readers"],
            "group reset": ["sc/readers"],
            "group offline": ["sc/readers", "one"],
            "kvt create": ["sc/table", "--primary", "4"],
            "kvt put": ["sc/table", "key", "value"],
            "kvt insert": ["sc/table", "key", "value"],
            "kvt replace": ["sc/table", "key", "value", "--version", "0:1"],
            "kvt remove": ["sc/table", "key"],
            "kvt get": ["sc/table", "key"],
            **{f"kvt {name}": ["sc/table"] for name in ("describe", "keys", "entries", "read", "delete")},
            "header export": ["x"],
            "header import": ["x", S],
        }.get(name, [S] if name.startswith("stream ") and name != "stream list" else [])
        if name == "completion":
            continue
        result = run(*name.split(), *extra, code=2)
        assert "Give the root of the streams with --root" in result.stderr, name
        assert "Usage: " in run(*name.split(), "--help").stdout


# --- small things -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_completion(shell: str) -> None:
    script = run("completion", shell).stdout
    assert "_PRAVEGA_SPARK_COMPLETE" in script and "pravega-spark" in script
    asked = {"_PRAVEGA_SPARK_COMPLETE": f"{shell}_complete", "COMP_WORDS": "pravega-spark stream tr", "COMP_CWORD": "2"}
    if shell == "fish":
        asked["COMP_CWORD"] = "tr"
    result = CliRunner(env=asked).invoke(cli, [], prog_name="pravega-spark")
    assert "truncate" in result.stdout and "tail" not in result.stdout


def test_a_reader_of_the_output_may_stop(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `head` does: nothing is told, and there is no traceback."""

    class Closed(io.BytesIO):
        def write(self, data: Any) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(stream_events, "_print_lines", lambda *_, **__: Closed().write(b""))
    result = CliRunner().invoke(cli, ["--root", folder, "stream", "read", S])
    assert result.exit_code == 1 and result.output == ""
