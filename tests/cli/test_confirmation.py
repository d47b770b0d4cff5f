"""Commands that want --yes: without it each shows what would go, changes nothing and fails; a dry run succeeds."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from chunkstore import open_store
from chunkstore.pravega.rolling import Header, HeaderChunk, format_header
from engine.root import Root
from pravega_spark import KeyValueTableConfiguration, StreamManager
from pravega_spark.cli.commands import all_commands
from pravega_spark.cli.main import cli
from pravega_spark.client.groups.entry import GroupEntry
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from tests.archives import CHUNKED, case, laid_out
from tests.cli.test_cli import damaged_frame, document, number_of, run
from tests.cli.test_upkeep import framed

S = "sc/one"

CALLS = {
    "scope delete": (["empty"], "This would delete scope empty, which has no streams."),
    "stream unsubscribe": ([S, "query:job"], "would remove subscriber query:job of stream sc/one (3 events, 27 bytes"),
    "stream seal": ([S], "This would seal stream sc/one (3 events) permanently"),
    "stream delete": ([S, "--seal"], "This would delete stream sc/one: 3 events, 27 bytes, 1 segment."),
    "stream truncate": (
        [S, "--at", "tail"],
        "This would delete from stream sc/one: 3 events, 27 bytes, from 0.0 at 0, up to 0.0 at 27.",
    ),
    "stream retain": (
        ["sc/kept", "--period", "0"],
        "would be truncated: 2 events, 18 bytes, from 0.0 at 0, up to 0.0 at 18",
    ),
    "group delete": (["sc/readers"], "would delete reader group sc/readers, which stands at: sc/one at 0.0 at 0."),
    "group reset": (
        ["sc/readers", "--to", "tail"],
        "would move reader group sc/readers: sc/one from 0.0 at 0 to 0.0 at",
    ),
    "group offline": (
        ["sc/readers", "reader"],
        "would take reader reader of reader group sc/readers offline, with seg",
    ),
    "transaction abort": ([S, "TRANSACTION"], "This would abort transaction "),
    "root set": (["--max-segments", "7"], "This would change root "),
    "kvt delete": (["sc/prices"], "would delete key-value table sc/prices with all of its entries."),
    "container repair": (["NUMBER", "ADDRESS"], "of container NUMBER: all of it, and the frames that depend on it."),
    "container recover": (["NUMBER", "--force"], "from the recovery point of flush cycle 1, begun "),
    "gc": (["--older-than", "0", "--plausible-share", "1"], "1 unreferenced object (4 bytes) would be marked"),
    "maintain": ([], "This would do to the root and its streams:"),
    "import": (["SOURCE", "demo/rides"], "1 stream would be imported into "),
    "header import": (
        ["old", "sc/new"],
        "would make stream sc/new of the 2 events of old, 18 bytes, which old code",
    ),
}

UNASKED = {
    "root create": "makes what was not there",
    "scope create": "makes what was not there",
    "stream create": "makes what was not there",
    "stream write": "appends",
    "stream update": "what is set can be set again, and nothing is deleted by it",
    "stream scale": "keeps all events, and can be undone by another scale",
    "kvt create": "makes what was not there",
    "kvt put": "changes the one entry that is named",
    "kvt insert": "makes what was not there",
    "kvt replace": "changes the one entry that is named, of which the version is given",
    "kvt remove": "removes the one entry that is named",
    "stream rebuild-index": "makes indexes again from the events, and changes no event",
    "container flush": "keeps all that was acknowledged",
    "defrag": "keeps all bytes, in fewer objects",
    "backup": "writes elsewhere, to a place that is empty or its own",
    "restore": "makes a root where none is",
    "header export": "writes an object beside the segment's, by which old code reads it",
}
"""Commands that change what is stored without --yes, and why they may: nothing that users have is lost by them."""

READING = {
    "status": [],
    "serve": ["--help"],  # which changes: tests/serve
    "root describe": [],
    "scope list": [],
    "stream list": [],
    "stream describe": [S],
    "stream read": [S],
    "stream tail": [S, "--from", "head", "--count", "1"],
    "stream cuts": [S],
    "stream lag": [S, "--from", "head"],
    "stream draw": [S, "-o", "PICTURE"],
    "transaction list": [],
    "group list": [],
    "group describe": ["sc/readers"],
    "kvt list": [],
    "kvt describe": ["sc/prices"],
    "kvt get": ["sc/prices", "AAPL"],
    "kvt keys": ["sc/prices"],
    "kvt entries": ["sc/prices"],
    "kvt read": ["sc/none"],
    "container list": [],
    "container describe": ["0"],
    "segment list": [],
    "segment describe": [f"{S}/0.0"],
    "segment chunks": [f"{S}/0.0"],
    "verify": ["--deep"],
    "completion": ["bash"],
}
"""All others, and what is given to them."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A root in which each of them has something to do."""
    url = str(tmp_path_factory.mktemp("confirmation") / "root")
    with StreamManager(url, create=True) as manager:
        for scope in ("sc", "empty"):
            manager.create_scope(scope)
        manager.create_stream("sc", "one")
        manager.create_reader_group("readers", "sc", "one")
        entry = GroupEntry(manager.root, "sc/readers")
        entry.change(lambda state: state.joined("reader", "token"))  # of a process that was killed
        manager.create_key_value_table("sc", "prices", KeyValueTableConfiguration(1, 4))
        manager.create_transaction_writer("sc", "one").begin_txn("1h")
        with manager.create_writer("sc", "one") as writer:
            writer.write_events(["a", "b", "c"])
    run("stream", "create", "sc/kept", "--retain-size", "10", root=url)
    with StreamManager(url) as manager, manager.create_writer("sc", "kept") as writer:
        writer.write_events(["a", "b"])
        writer.flush()
        manager.retain("sc", "kept", period=0)  # records the cut
        writer.write_events(["c", "d"])
    options = {"controller": url, "scope": "sc", "stream": "one", "subscriber": "job", "start_stream_cut": "earliest"}
    MicroBatchReader(SourceOptions.parse(options)).initialOffset()
    with Root.open(url) as opened:
        opened.container(number_of(url)).flush()
    open_store(url).put(f"{S}/0.E-1-O-0.{uuid.uuid4()}", b"left")
    open_store(url).put("old", framed(b"a", b"b"))
    open_store(url).put("old$header", format_header(Header(100, (HeaderChunk(0, "old"),))))
    return url


def content(root: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def test_each_command_that_wants_yes_is_here_and_has_a_dry_run() -> None:
    found = {words: {option for each in command.params for option in each.opts} for words, command in all_commands(cli)}
    wanting = {words: options for words, options in found.items() if "--yes" in options}
    assert wanting.keys() == CALLS.keys()
    assert all("--dry-run" in options for options in wanting.values())


def test_each_command_that_changes_what_is_stored_wants_yes_or_has_a_reason(root: str, tmp_path: Path) -> None:
    found = {words: command for words, command in all_commands(cli) if not isinstance(command, click.Group)}
    unasked = {words for words, command in found.items() if all("--yes" not in each.opts for each in command.params)}
    assert unasked == UNASKED.keys() | READING.keys()
    before = content(root)
    for words, given in READING.items():
        named = [str(tmp_path / "picture.svg") if word == "PICTURE" else word for word in given]
        done = CliRunner().invoke(cli, ["--root", root, *words.split(), *named])
        assert done.exit_code == (words == "kvt read"), (words, done.output)
        assert content(root) == before, f"{words} changes what is stored: give it --yes, or a reason in UNASKED"


@pytest.mark.parametrize("words", CALLS)
def test_what_would_go_is_shown(root: str, tmp_path: Path, words: str) -> None:
    given, told = CALLS[words]
    named = {"NUMBER": str(number_of(root))}
    if "TRANSACTION" in given:
        (opened,) = document("transaction", "list", root=root)["transactions"]
        named["TRANSACTION"] = opened["transaction"]
    if "SOURCE" in given:
        named["SOURCE"] = str(laid_out(case(CHUNKED).objects, tmp_path))
    if "ADDRESS" in given:
        root = str(shutil.copytree(root, tmp_path / "damaged"))
        named["ADDRESS"] = str(damaged_frame(root, number_of(root)))
        told = told.replace("NUMBER", named["NUMBER"])
    call = [*words.split(), *(named.get(word, word) for word in given)]
    before = content(root)
    refused = run(*call, root=root, code=1)
    assert told in refused.stdout
    assert refused.stderr == "pravega-spark: nothing was changed: give --yes to apply the change\n"
    as_document = document(*call, root=root, code=1)
    if words != "import":  # which has its report
        assert not as_document["dry_run"] and any(told in line for line in as_document["would"])
    for also in ([], ["--yes"]):
        dry = CliRunner().invoke(cli, ["--root", root, "--json", *call, "--dry-run", *also])
        assert dry.exit_code == 0 and json.loads(dry.stdout)
    assert content(root) == before
