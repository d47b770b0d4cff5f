"""Streams of real servers, imported: all that their own client read is here, and goes on being written."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chunkstore import StorageRefused, open_store
from chunkstore.port import Parts, pieces_of
from chunkstore.pravega.archive import open_archive
from chunkstore.testing import CountingStore, Crashed, FaultStore, SimulatedStore, crash_at
from chunkstore.wrapping import Request, Result, WrappingStore
from engine.admin import root_gc
from engine.admin.verify import verify
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from pravega_spark import KeyValueTableConfiguration, StreamCut, StreamManager, StreamRetentionPolicy
from pravega_spark.checks import CONTENT_CHECKS, ENTRY_CHECKS
from pravega_spark.errors import PositionLost, ScopeNotFound, StreamNotFound, TruncatedData
from pravega_spark.jobs import maintain
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.chunk_ownership import ChunkOwnership
from pravega_spark.streams.model.cuts import UNBOUNDED
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.pravega_lts.imports import Import, ImportIncomplete, ImportReport
from pravega_spark.streams.pravega_lts.root import PravegaRoot
from pravega_spark.streams.pravega_lts.segment_import import Sizes
from pravega_spark.streams.pravega_lts.streams import PravegaStreams
from tests.archives import ARCHIVES, CHUNKED, ROLLING, Case, case, contents, laid_out, stored, with_entries
from tests.restored import recovered

STREAMS = ["big", "empty", "rides", "scaled", "sealed", "truncated", "txns"]
SMALL = Sizes(part=40_000, kept=90_000, logged=48)


class Place(NamedTuple):
    """An imported archive: its folder, what it holds, the root, and what was told."""

    one: Case
    source: Path
    root: str
    report: ImportReport


WAYS = [
    pytest.param(
        (path, copied),
        id=f"{path.name}-{'copied' if copied else 'linked'}",
        marks=pytest.mark.long if (path, copied) in [(CHUNKED, False), (ROLLING, True)] else (),
    )
    for path in ARCHIVES
    for copied in (True, False)
]
"""In `make test-slow` each archive and each way is among them once."""


@pytest.fixture(scope="module", params=WAYS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    path, copied = request.param
    one, folder = case(path), tmp_path_factory.mktemp("import")
    source, root = laid_out(one.objects, folder / "lts"), str(folder / "root")
    with StreamManager(root, create=True) as manager:
        report = manager.import_streams(source, copy=copied)
    return Place(one, source, root, report)


@pytest.fixture
def imported(place: Place) -> Iterator[StreamManager]:
    with StreamManager(place.root, create=False) as manager:
        yield manager


def sound(manager_root: str) -> None:
    """The root, and all that is in it, is as it must be."""
    with Root.open(manager_root, create=False) as root:
        report = verify(root, deep=True, content_checks=CONTENT_CHECKS, entry_checks=ENTRY_CHECKS)
        assert list(report.findings) == []


def rows_of(
    manager: StreamManager, name: str, start: StreamCut | None = None, end: StreamCut | None = None
) -> list[tuple[str, int, int, str]]:
    return [
        (segment_name("demo", name, event.segment_id), event.offset, event.size, hashlib.sha256(event.data).hexdigest())
        for event in manager.read_events("demo", name, start, end)
    ]


def test_what_is_told(place: Place) -> None:
    assert [each.stream for each in place.report.streams] == STREAMS
    assert {each.outcome for each in place.report.streams} == {"imported"}
    [transactions] = [each for each in place.report.streams if each.transactions]
    assert (transactions.stream, transactions.transactions) == ("txns", ("00000000-0000-0000-0000-000000000003",))
    [group] = [line for line in place.report.left_out if "rg1" in line]
    assert group.endswith(
        "demo/rides at " + json.loads(place.one.expected["cuts.json"])["rides/checkpoint-rg1-cp1"]["tail"]
    )


def test_key_value_tables_are_copied(place: Place) -> None:
    due = sorted((row["pk"].encode(), row["sk"].encode(), row["value"].encode()) for row in place.one.rows("kvt.jsonl"))
    tables = [(each.table, each.outcome, each.entries) for each in place.report.tables]
    assert tables == ([("kvt", "imported", len(due))] if due else [])
    with StreamManager(place.root) as manager:
        assert manager.list_key_value_table("demo") == (["kvt"] if due else [])
        if due:
            table = manager.key_value_table("demo", "kvt")
            assert [entry[:3] for entry in table.entries()] == due
            assert table.configuration == KeyValueTableConfiguration(2, 8, 4)
            again = manager.import_streams(place.source, ["demo/kvt"], copy=True)
            assert [each.outcome for each in again.tables] == ["present"] and not again.streams


def test_a_position_in_an_import_that_a_recovery_lost_is_none_of_the_stream_imported_again(tmp_path: Path) -> None:
    """It has the same segments, and events were written behind what was imported."""
    source, root = laid_out(case(CHUNKED).objects, tmp_path / "lts"), tmp_path / "root"
    Root.open(str(root), containers=1).close()
    with Root.open(str(root)) as opened:
        opened.container(0).flush()
    cuts = []
    for _ in range(2):
        with StreamManager(str(root)) as manager:
            manager.import_streams(source, copy=True)
            for _ in range(3):
                with manager.create_writer("demo", "rides") as writer:
                    writer.write_events([str(number) for number in range(20)], [str(number) for number in range(20)])
                cuts.append(manager.stream_info("demo", "rides").tail)
        if len(cuts) == 3:
            recovered(root, 0)
    with StreamManager(str(root)) as manager:
        for cut in cuts[:3]:
            with pytest.raises(PositionLost):
                manager.read_events("demo", "rides", cut)
        assert len(list(manager.read_events("demo", "rides", cuts[3]))) == 40


def test_the_source_is_as_it_was_and_the_root_is_sound(place: Place) -> None:
    assert contents(place.source) == {
        name: hashlib.sha256(data).hexdigest() for name, data in place.one.objects.items()
    }
    sound(place.root)


@pytest.mark.parametrize("name", STREAMS)
def test_every_live_event_is_what_the_server_read(place: Place, imported: StreamManager, name: str) -> None:
    due = [
        (row["segName"], row["offset"], row["len"]) for row in place.one.rows("readback.jsonl") if row["stream"] == name
    ]
    there = rows_of(imported, name)
    assert sorted(row[:3] for row in there) == sorted(due)
    digests = defaultdict[str, Any](hashlib.sha256)
    for segment, _, _, digest in sorted(there):
        digests[segment].update(bytes.fromhex(digest))
    expected = {
        segment: digest for segment, digest in place.one.digests().items() if segment.startswith(f"demo/{name}/")
    }
    assert {segment: digest.hexdigest() for segment, digest in digests.items()} == expected
    assert imported.stream_info("demo", name).events == len(due)


@pytest.mark.parametrize("name", STREAMS)
def test_events_of_a_key_are_in_the_order_in_which_they_were_written(
    place: Place, imported: StreamManager, name: str
) -> None:
    written: dict[str, list[int]] = defaultdict(list)
    read: dict[str, list[int]] = defaultdict(list)
    for row in place.one.rows("events.jsonl"):
        if row["stream"] == name and row.get("txnState", "committed").lower() == "committed":
            written[row["key"]].append(row["seq"])
    for event in imported.read_events("demo", name):
        row = json.loads(event.data)
        read[row["key"]].append(row["seq"])
    if name == "truncated":
        written = {key: [seq for seq in seqs if seq >= 1800] for key, seqs in written.items()}
    assert dict(read) == {key: seqs for key, seqs in written.items() if seqs}


def test_every_cut_splits_its_stream_as_the_server_said(place: Place, imported: StreamManager) -> None:
    archived, tried = StreamManager.over(PravegaRoot.at(str(place.source))), 0
    for label, row in json.loads(place.one.expected["cuts.json"]).items():
        name = label.partition("/")[0]
        for text in (row["head"], row["tail"]) if name in STREAMS else ():
            cut = StreamCut.from_text(text) if text else UNBOUNDED
            if not cut.positions:
                continue
            tried += 1
            head = archived.stream_info("demo", name).head.positions
            if any(at < head.get(number, 0) for number, at in cut.positions.items()):
                with pytest.raises(TruncatedData):
                    rows_of(imported, name, start=cut)
                continue
            for start, end in ((cut, None), (None, cut)):
                assert rows_of(imported, name, start, end) == rows_of(archived, name, start, end)
    assert tried > 10


def test_policies_tags_epochs_and_cuts_are_the_same(place: Place, imported: StreamManager) -> None:
    archived = PravegaStreams(open_archive(open_store(str(place.source))))
    for name in STREAMS:
        original, info = archived.stream("demo", name), imported.stream_info("demo", name)
        assert info.head == original.head
        assert info.sealed is original.sealed
        if not info.sealed:
            assert info.tail == original.tail
        assert [(e.epoch, [s.id for s in e.segments]) for e in info.epochs] == [
            (e.epoch, [s.id for s in sorted(e.segments, key=lambda s: s.low)]) for e in original.epochs
        ]
        assert original.records.configuration is not None
        assert tuple(imported.get_stream_tags("demo", name)) == original.records.configuration.tags
    with Root.open(place.root, create=False) as root:
        record = Catalog(root).stream("demo", "empty").snapshot().record
    assert (
        record.scaling.kind,
        record.scaling.min_segments,
        record.scaling.target_rate,
        record.scaling.scale_factor,
    ) == ("events", 2, 100, 2)
    assert record.retention is not None and (record.retention.kind, record.retention.limit) == ("size", 1 << 30)


def test_the_same_import_again_changes_nothing(place: Place) -> None:
    with StreamManager(place.root, create=False) as manager:
        again = manager.import_streams(place.source, copy=True)
    assert {each.outcome for each in again.streams} == {"present"}


# --- and then --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_an_imported_stream_is_written_scaled_truncated_and_deleted(tmp_path: Path, way: tuple[Path, bool]) -> None:
    path, copied = way
    one = case(path)
    source, url = laid_out(one.objects, tmp_path / "lts"), str(tmp_path / "root")
    Root.open(url, garbage_delay_seconds=0).close()
    cut = StreamCut.from_text(json.loads(one.expected["cuts.json"])["truncated/1800"]["tail"])
    with StreamManager(url, create=False) as manager:
        manager.import_streams(source, copy=copied)
        old = rows_of(manager, "truncated")
        with manager.create_writer("demo", "truncated") as writer:
            for number in range(50):
                writer.write_event(f"new {number}", routing_key=str(number))
        transactions = manager.create_transaction_writer("demo", "txns", 7)
        transaction = transactions.begin_txn()
        transaction.write_event("in a transaction", routing_key="a")
        transaction.commit()
        assert manager.stream_info("demo", "txns").events == 601
        manager.scale_stream("demo", "truncated", [0], [(0.0, 0.25), (0.25, 0.5)])
        with manager.create_writer("demo", "truncated") as writer:
            for number in range(50):
                writer.write_event(f"newer {number}", routing_key=str(number))
        there = rows_of(manager, "truncated")
        assert len(there) == len(old) + 100 and set(old) <= set(there)
        assert rows_of(manager, "truncated", start=cut) == there
        middle = manager.next_stream_cut("demo", "truncated", cut, 600_000)
        behind = rows_of(manager, "truncated", start=middle)
        manager.truncate_stream("demo", "truncated", middle)
        assert 0 < len(behind) < len(there)
        assert rows_of(manager, "truncated") == behind
    sound(url)
    flushed(url)
    with StreamManager(url, create=False) as manager:
        assert rows_of(manager, "truncated") == behind
        others = {name: rows_of(manager, name) for name in STREAMS if name != "scaled"}
        manager.set_retention("demo", "scaled", StreamRetentionPolicy.by_size(20))
        for number in range(3):  # what was there at the first time goes, as soon as so much came after it
            manager.retain("demo", "scaled", period=0)
            with manager.create_writer("demo", "scaled") as writer:
                writer.write_event(f"newest {number}", routing_key="a")
        manager.retain("demo", "scaled", period=0)
    assert maintained(url)
    with StreamManager(url, create=False) as manager:
        newest = [event.data for event in manager.read_events("demo", "scaled")]
        assert newest and newest == [b"newest 0", b"newest 1", b"newest 2"][-len(newest) :]
        assert {name: rows_of(manager, name) for name in others} == others
        rides = others["rides"]
        for name in STREAMS:
            if name != "rides":
                manager.seal_stream("demo", name)
                manager.delete_stream("demo", name)
    assert maintained(url)
    sound(url)
    with StreamManager(url, create=False) as manager:
        assert rows_of(manager, "rides") == rides
        with pytest.raises(ImportIncomplete, match="was deleted in this root, and had segments up to 1"):
            manager.import_streams(source, ["demo/sealed"])
    assert contents(source) == {name: hashlib.sha256(data).hexdigest() for name, data in one.objects.items()}
    left = [name for name in contents(Path(url)) if name.startswith("demo/") and not name.startswith("demo/rides/")]
    assert left == []


def maintained(url: str) -> set[str]:
    """Maintain the root until nothing goes any more; the objects of streams that have gone."""
    before = there = streams_objects(url)
    for cycle in range(12):
        with Root.open(url, create=False) as root:
            outcomes = list(maintain.maintain(root, orphan_age=0, check=True))
        assert [each for each in outcomes if each.error] == []
        last, there = there, streams_objects(url)
        if cycle > 2 and last == there:  # what goes is marked first, and carried out by a later cycle
            return before - there
    raise AssertionError("there is always more garbage")


def streams_objects(url: str) -> set[str]:
    return {str(file) for file in Path(url, "demo").rglob("*") if file.is_file()}


def flushed(url: str) -> None:
    """Let all be flushed, and all garbage be collected."""
    with Root.open(url, create=False) as root:
        for _ in range(2):
            for number in range(root.config.containers):
                root.container(number).flush()
            root_gc.collect_garbage(root, root_gc.find_garbage(root, ChunkOwnership(root), 0))


# --- interrupted -----------------------------------------------------------------------------------------------------


def simulated_root(store: object) -> Root:
    return Root(Stores(store, store), RootConfig("root", 2), Settings(threaded=False, maintenance=False))  # type: ignore[arg-type]


def archive_store(path: Path) -> SimulatedStore:
    store = SimulatedStore()
    for name, data in case(path).objects.items():
        store.put(name, data)
    return store


NAMES = ["demo/txns", "demo/truncated", "demo/empty"]


@pytest.mark.parametrize(
    ("when", "copied", "step"),
    [
        pytest.param("before", True, 5, id="before-copied"),
        pytest.param("before", True, 1, id="every-before-copied", marks=pytest.mark.long),
        pytest.param("after", True, 1, id="every-after-copied", marks=pytest.mark.long),
        pytest.param("before", False, 1, id="every-before-linked", marks=pytest.mark.long),
        pytest.param("after", False, 3, id="after-linked"),
        pytest.param("after", False, 1, id="every-after-linked", marks=pytest.mark.long),
    ],
)
def test_a_crash_at_every_request_and_then_the_same_again(copied: bool, when: str, step: int) -> None:
    """At some of the requests in `make test-slow`, at every one in `make test-long`."""
    source = archive_store(CHUNKED)

    def run(store: object) -> ImportReport:
        return Import(source, NAMES, copied=copied, sizes=SMALL).run(simulated_root(store))

    whole = FaultStore(SimulatedStore(1))
    run(whole)
    due = told(whole.inner)
    resumed = 0
    tried = range(1, whole.passed + 1, step)
    for number in tried:
        inner = SimulatedStore(2)
        with pytest.raises(Crashed):
            run(FaultStore(inner, crash_at(number, when)))  # type: ignore[arg-type]
        before = {info.path for info in inner.list("demo/")}
        for stream in list(Catalog(simulated_root(inner)).streams("demo")):
            assert told(inner, [stream])[stream] == due[stream], "a stream is there as a whole, or not at all"
        report = run(inner)
        assert {each.outcome for each in report.streams} <= {"imported", "present"}
        assert told(inner) == due
        assert inner.list("_system/imports/") == []
        resumed += before <= {info.path for info in inner.list("demo/")}
    assert resumed == len(tried), "what was brought is used, not brought again under other names"


@pytest.mark.parametrize("path", [CHUNKED, ROLLING], ids=lambda path: path.name)
def test_requests_go_by_chunks_and_segments(path: Path) -> None:
    """Each chunk of the source is read once; each segment is some objects of the root, and each stream some looks."""
    source, target = CountingStore(archive_store(path)), CountingStore(SimulatedStore(1))
    names = [f"demo/{name}" for name in ("rides", "scaled", "truncated", "big", "txns", "sealed", "empty")]
    found = Import(source, names, copied=True)
    assert source.count("read", "demo/") + source.count("read_ranges", "demo/") <= 2  # where a reader group stood
    source.reset()
    report = found.run(simulated_root(target))
    segments = sum(each.segments for each in report.streams)
    assert source.count() == sum(each.chunks for each in report.streams)
    assert target.count("put") + target.count("put_if_absent") <= 2 * segments
    assert target.count() <= 7 * segments + 3 * len(report.streams)


def told(store: object, names: list[str] | None = None) -> dict[str, object]:
    """All that can be read of the streams."""
    root = simulated_root(store)
    manager = StreamManager.over(root)
    found: dict[str, object] = {}
    for name in names or [each.partition("/")[2] for each in NAMES]:
        info = manager.stream_info("demo", name)
        found[name] = rows_of(manager, name), info.head, info.tail, info.events, info.epochs
    return found


def test_progress_is_used_after_a_kill_and_damaged_progress_is_not() -> None:
    source, inner = archive_store(CHUNKED), SimulatedStore(3)

    def run(store: object) -> ImportReport:
        return Import(source, ["demo/truncated"], copied=True, sizes=SMALL).run(simulated_root(store))

    whole = FaultStore(SimulatedStore(1), verbs=["put"])
    run(whole)
    with pytest.raises(Crashed):
        run(FaultStore(inner, crash_at(whole.passed - 1), verbs=["put"]))
    kept = [info.path for info in inner.list("_system/imports/") if not info.path.endswith("/begun")]
    assert len(kept) > 3
    rest = FaultStore(inner, verbs=["put"])
    for path in kept[1::3]:  # what was kept before it is used
        data = inner.read(path)
        at = data.rindex(b".E-0-O-") + 7  # in the name of a chunk, which is another then
        inner.put(path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    run(rest)
    assert 0 < rest.passed < whole.passed
    assert told(inner, ["truncated"]) == told(whole.inner, ["truncated"])


def test_an_import_of_another_source_or_way_begins_anew() -> None:
    source, store = archive_store(CHUNKED), SimulatedStore(3)
    with pytest.raises(Crashed):
        Import(source, ["demo/sealed"], copied=True).run(simulated_root(FaultStore(store, crash_at(2), verbs=["put"])))
    first = {info.path for info in store.list("demo/")}
    Import(source, ["demo/sealed"], copied=False).run(simulated_root(store))
    assert first and first.isdisjoint(info.path for info in store.list("demo/") if info.path not in first)
    assert len(rows_of(StreamManager.over(simulated_root(store)), "sealed")) == 200


def test_what_is_interrupted_ends_at_once_and_goes_on_later(tmp_path: Path) -> None:
    source = laid_out(case(CHUNKED).objects, tmp_path / "lts")

    def interrupted(what: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with StreamManager(tmp_path / "root", create=True) as manager:
        with pytest.raises(KeyboardInterrupt):
            manager.import_streams(source, progress=interrupted)
        assert not [each.name for each in threading.enumerate() if each.name.startswith(("segments", "import"))]
        assert {each.outcome for each in manager.import_streams(source).streams} <= {"imported", "present"}
        assert manager.list_stream("demo") == STREAMS


def test_a_clean_up_leaves_an_unfinished_import_alone_however_long_it_takes() -> None:
    source, store = archive_store(CHUNKED), SimulatedStore(3, now=time.time() - 5 * 24 * 3600)

    def run(target: object) -> ImportReport:
        return Import(source, ["demo/truncated"], copied=True, sizes=SMALL).run(simulated_root(target))

    with pytest.raises(Crashed):
        run(FaultStore(store, crash_at(20), verbs=["put"]))
    brought = {info.path for info in store.list("demo/")}
    store.now = time.time()
    root = simulated_root(store)
    found = root_gc.find_garbage(root, ChunkOwnership(root), 3600)
    root_gc.collect_garbage(root, found)
    assert found.sweep.unknown == len(brought)
    assert len(brought) > 10 and brought == {info.path for info in store.list("demo/")}
    assert [each.outcome for each in run(store).streams] == ["imported"]


def _objects(url: str) -> int:
    """How many objects a root has, by which a process shows how far it came."""
    return sum(len(names) for _, _, names in os.walk(url))


@pytest.mark.parametrize(
    ("way", "parts"),
    [
        pytest.param([], (0.2, 0.5, 0.8), id="linked"),
        pytest.param([], (0.2, 0.4, 0.5, 0.6, 0.7, 0.8), id="linked, often", marks=pytest.mark.long),
        pytest.param(["--copy"], (0.2, 0.4, 0.5, 0.6, 0.7, 0.8), id="copied, often", marks=pytest.mark.long),
    ],
)
def test_processes_that_are_killed_leave_what_the_next_one_goes_on_with(
    tmp_path: Path, way: list[str], parts: Sequence[float]
) -> None:
    """Each process is killed when the root has this part of the objects that it has in the end."""
    one = case(CHUNKED)
    source, url = laid_out(one.objects, tmp_path / "lts"), str(tmp_path / "root")
    command = [sys.executable, "-m", "pravega_spark.cli", "--root", url, "import", str(source), *way, "--yes"]
    with StreamManager(tmp_path / "whole", create=True) as manager:
        manager.import_streams(source, copy=bool(way))
    whole, killed = _objects(str(tmp_path / "whole")), 0
    for part in parts:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and _objects(url) < part * whole:
            time.sleep(0.001)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    assert killed > len(parts) / 2
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with StreamManager(url, create=False) as manager:
        for name in STREAMS:
            due = [(r["segName"], r["offset"], r["len"]) for r in one.rows("readback.jsonl") if r["stream"] == name]
            assert sorted(row[:3] for row in rows_of(manager, name)) == sorted(due)
    sound(url)


# --- what was not flushed --------------------------------------------------------------------------------------------


def test_a_scope_without_streams_is_imported(tmp_path: Path) -> None:
    objects = with_entries(case(ROLLING).objects, "scopes", {"quiet": uuid.UUID(int=7).bytes})
    with StreamManager(tmp_path / "root", create=True) as manager:
        told = manager.import_streams(laid_out(objects, tmp_path / "lts"), dry_run=True)
        assert (told.scopes, told.empty_scopes) == (("demo", "quiet"), ["quiet"])
        assert any("streams in scope 'quiet' is missing" in text for text in told.unknown)
        manager.import_streams(tmp_path / "lts", ["quiet"])
        assert sorted(manager.list_scope()) == ["quiet"]
        manager.import_streams(tmp_path / "lts")
        assert sorted(manager.list_scope()) == ["demo", "quiet"] and manager.list_stream("quiet") == []


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "linked"])
def test_streams_come_without_the_metadata_of_their_containers(copied: bool) -> None:
    objects, found = case(ROLLING).objects, []
    lost = {name: data for name, data in objects.items() if not name.startswith("_system/containers/")}
    for there in (objects, lost):
        store = SimulatedStore(1)
        report = Import(stored(there), copied=copied).run(simulated_root(store))
        assert {each.outcome for each in report.streams} == {"imported"}
        manager = StreamManager.over(simulated_root(store))
        found.append({name: rows_of(manager, name) for name in STREAMS})
    assert found[0] == found[1] and sum(map(len, found[0].values())) > 5000


# --- refused ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_imported_is_refused_with_a_reason(tmp_path: Path) -> None:
    one = case(CHUNKED)
    source, url = laid_out(one.objects, tmp_path / "lts"), str(tmp_path / "root")
    with StreamManager(url, create=True) as manager:
        manager.create_scope("demo")
        manager.create_stream("demo", "rides", 1)
        with pytest.raises(ImportIncomplete, match="demo/rides exists already, and is not of this import") as failure:
            manager.import_streams(source, ["demo/rides", "demo/sealed"])
        assert [each.outcome for each in failure.value.report.streams] == ["refused", "imported"]
        with pytest.raises(ScopeNotFound):
            manager.import_streams(source, ["none"])
        with pytest.raises(StreamNotFound):
            manager.import_streams(source, ["demo/deleted"])
        with pytest.raises(StreamNotFound):
            manager.import_streams(source, ["demo/sealed"], byte_streams=["demo/none"])
        with StreamManager(f"memory://{tmp_path.name}", create=True) as elsewhere:
            with pytest.raises(ImportIncomplete, match=r"cannot be linked here.*: copy"):
                elsewhere.import_streams(source, ["demo/sealed"])
            elsewhere.import_streams(source, ["demo/sealed"], copy=True)
            assert len(rows_of(elsewhere, "sealed")) == 200
        with pytest.raises(StorageRefused, match="is a root or a backup"):
            manager.import_streams(url)
        with pytest.raises(StorageRefused, match="is not the long-term storage of a Pravega"):
            manager.import_streams(tmp_path / "nothing")
    with (
        StreamManager(str(source / "root"), create=True) as manager,
        pytest.raises(StorageRefused, match="one lies in"),
    ):
        manager.import_streams(source)
    (source / "linked root").mkdir()
    (tmp_path / "link").symlink_to(source / "linked root")
    with StreamManager(tmp_path / "link", create=True) as manager, pytest.raises(StorageRefused, match="one lies in"):
        manager.import_streams(source)


def test_damage_is_an_error_that_names_the_object_and_the_others_come(tmp_path: Path) -> None:
    one = case(CHUNKED)
    source = laid_out(one.objects, tmp_path / "lts")
    chunks = sorted(file for file in (source / "demo" / "sealed").iterdir() if "$" not in file.name)
    chunks[0].write_bytes(chunks[0].read_bytes()[:-1])
    broken = min(file for file in (source / "demo" / "rides").iterdir() if "$" not in file.name)
    broken.write_bytes(b"\x01" + broken.read_bytes()[1:])
    for copied in (True, False):
        with StreamManager(str(tmp_path / f"root {copied}"), create=True) as manager:
            with pytest.raises(ImportIncomplete) as failure:
                manager.import_streams(source, copy=copied)
            outcomes = {each.stream: each for each in failure.value.report.streams}
            assert [name for name, each in outcomes.items() if each.outcome == "imported"] == [
                "big",
                "empty",
                "scaled",
                "truncated",
                "txns",
            ]
            assert chunks[0].name in str(outcomes["sealed"].problem)
            assert "demo/rides/" in str(outcomes["rides"].problem) and "offset 0" in str(outcomes["rides"].problem)
            assert manager.list_stream("demo") == ["big", "empty", "scaled", "truncated", "txns"]
    assert not [each.name for each in threading.enumerate() if each.name.startswith(("segments", "import"))]


class Flipping(WrappingStore):
    """A storage that keeps other bytes of chunks than it was given."""

    def put(self, path: str, data: Parts) -> None:
        stored = bytearray(b"".join(pieces_of(data)))
        if path.startswith("demo/"):
            stored[len(stored) // 2] ^= 1
        self.inner.put(path, stored)

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        return call()


def test_a_copy_that_is_not_what_was_read_does_not_appear() -> None:
    store = SimulatedStore(3)
    report = Import(archive_store(CHUNKED), ["demo/sealed"], copied=True).run(simulated_root(Flipping(store)))
    [stream] = report.streams
    assert stream.outcome == "failed" and "demo/sealed/" in str(stream.problem)
    assert list(Catalog(simulated_root(store)).streams("demo")) == []


class Short(WrappingStore):
    """A storage that gives less of chunks than was asked for."""

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        data = super().read(path, start, end)
        return data[:-1] if path.startswith("demo/") and "$" not in path else data

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        return call()


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "linked"])
def test_a_source_that_gives_less_than_was_asked_for_is_told(copied: bool) -> None:
    store = SimulatedStore(3)
    report = Import(Short(archive_store(CHUNKED)), ["demo/sealed"], copied=copied).run(simulated_root(store))
    [stream] = report.streams
    assert stream.outcome == "failed" and "bytes were read at" in str(stream.problem)
    assert list(Catalog(simulated_root(store)).streams("demo")) == []


def test_a_byte_stream_comes_as_its_bytes(tmp_path: Path) -> None:
    source, store = archive_store(CHUNKED), SimulatedStore(3)
    root = simulated_root(store)
    report = Import(source, ["demo/sealed"], byte_streams=["demo/sealed"], copied=True, sizes=SMALL).run(root)
    assert [(each.outcome, each.events) for each in report.streams] == [("imported", 0)]
    original = PravegaStreams(open_archive(source))
    snapshot = Catalog(root).stream("demo", "sealed").snapshot()
    for number, (start, end) in original.stream("demo", "sealed").ranges().items():
        name = snapshot.segments.name_of(number)
        assert snapshot.stream.container.read(name, start, end) == original.archive.read(name, start, end)


def test_a_dry_run_changes_nothing_and_needs_no_root(tmp_path: Path) -> None:
    source = laid_out(case(CHUNKED).objects, tmp_path / "lts")
    with StreamManager(tmp_path / "root") as manager:
        report = manager.import_streams(source, dry_run=True)
    assert [(each.stream, each.outcome) for each in report.streams] == [(name, "new") for name in STREAMS]
    assert sum(each.bytes for each in report.streams) == 14_701_905
    assert not (tmp_path / "root").exists()
