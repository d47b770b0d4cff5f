"""The long-term storage of real servers on the command line: what it lists, describes and reads."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pravega_spark import StreamCut, StreamManager
from pravega_spark.cli.main import cli
from pravega_spark.streams.model.names import segment_name
from tests.archives import ARCHIVES, Case, case, contents, laid_out

STREAMS = ["big", "empty", "rides", "scaled", "sealed", "truncated", "txns"]


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Case, Path]]:
    one = case(request.param)
    folder = laid_out(one.objects, tmp_path_factory.mktemp("lts"))
    yield one, folder
    assert contents(folder) == {name: hashlib.sha256(data).hexdigest() for name, data in one.objects.items()}


def run(root: Path, *words: str) -> Any:
    """The document of a command that is done."""
    result = CliRunner().invoke(cli, ["--root", str(root), "--json", *words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", STREAMS)
def test_every_live_event_is_read(place: tuple[Case, Path], name: str) -> None:
    one, root = place
    there: list[tuple[str, int, int]] = []
    digests = defaultdict[str, Any](hashlib.sha256)
    order = defaultdict[str, list[int]](list)
    for row in run(root, "stream", "read", f"demo/{name}")["events"]:
        data = row["event"].encode() if row["event"] is not None else base64.b64decode(row["base64"])
        segment = segment_name("demo", name, row["segment_id"])
        there.append((segment, row["offset"], len(data)))
        digests[segment].update(hashlib.sha256(data).digest())
        if data[:1] == b"{":
            order[json.loads(data)["key"]].append(json.loads(data)["seq"])
    due = [(r["segName"], r["offset"], r["len"]) for r in one.rows("readback.jsonl") if r["stream"] == name]
    assert sorted(there) == sorted(due)
    expected = {segment: digest for segment, digest in one.digests().items() if segment.startswith(f"demo/{name}/")}
    assert {segment: digest.hexdigest() for segment, digest in digests.items()} == expected
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_what_is_there_is_told(place: tuple[Case, Path]) -> None:
    one, root = place
    cuts = json.loads(one.expected["cuts.json"])
    assert [row["scope"] for row in run(root, "scope", "list")["scopes"]] == ["demo"]
    assert [row["stream"] for row in run(root, "stream", "list", "demo")["streams"]] == [f"demo/{n}" for n in STREAMS]
    assert run(root, "stream", "describe", "demo/scaled")["stream"]["events"] == 2000
    places = {row["at"]: row["cut"] for row in run(root, "stream", "cuts", "demo/rides")["cuts"]}
    assert places == {"head": cuts["rides/0"]["tail"], "tail": cuts["rides/2000"]["tail"]}
    there = run(root, "stream", "read", "demo/scaled", "--from", cuts["scaled/1400-2seg"]["tail"])["events"]
    assert len(there) == 600
    parts = run(root, "segment", "chunks", "demo/rides/0.0")["parts"]
    assert parts and all(part["object"] in one.objects for part in parts)
    assert run(root, "verify", "--deep")["verify"]["errors"] == 0


def test_reader_groups_and_key_value_tables(place: tuple[Case, Path]) -> None:
    one, root = place
    assert (
        run(root, "group", "list")["groups"] == run(root, "group", "list", "demo")["groups"] == [{"group": "demo/rg1"}]
    )
    described = run(root, "group", "describe", "demo/rg1")
    [stream] = described["streams"]
    assert described["readers"] is described["unassigned"] is described["lease"] is None
    due = json.loads(one.expected["cuts.json"])["rides/checkpoint-rg1-cp1"]["tail"]
    assert StreamCut.from_text(stream["cut"]) == StreamCut.from_text(due)
    assert stream["stream"] == "demo/rides" and stream["lag"]["events"] == 0
    rows = sorted((row["pk"], row["sk"], row["value"]) for row in one.rows("kvt.jsonl"))
    assert run(root, "kvt", "list")["tables"] == ([{"table": "demo/kvt"}] if rows else [])
    if rows:
        there = run(root, "kvt", "read", "demo/kvt")
        assert [(row["primary"], row["secondary"], row["value"]) for row in there["entries"]] == rows
        assert not any(row["base64"] for row in there["entries"])
    for words in (["group", "describe", "demo/none"], ["kvt", "read", "demo/none"], ["group", "list", "none"]):
        result = CliRunner().invoke(cli, ["--root", str(root), *words])
        assert result.exit_code == 1 and "none" in result.stderr
    assert CliRunner().invoke(cli, ["--root", str(root), "group", "describe", "demo"]).exit_code == 2
    slips = [(["stream", "describe", "demo/rieds"], "demo/rides"), (["stream", "list", "deom"], "demo")]
    slips += [(["kvt", "read", "demo/kvtt"], "demo/kvt")] if rows else []
    for words, meant in slips:
        result = CliRunner().invoke(cli, ["--root", str(root), *words])
        assert result.exit_code == 1 and f"Did you mean '{meant}'?" in result.stderr


def test_groups_of_a_root_of_ours(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path), create=True) as manager:
        manager.create_scope("demo")
        manager.create_stream("demo", "rides", 1)
        manager.create_reader_group("billing", "demo", "rides")
    assert run(tmp_path, "group", "list")["groups"] == [{"group": "demo/billing"}]
    [stream] = run(tmp_path, "group", "describe", "demo/billing")["streams"]
    assert (stream["stream"], stream["positions"]) == ("demo/rides", {"0": 0})
    assert run(tmp_path, "kvt", "list", "demo")["tables"] == []
