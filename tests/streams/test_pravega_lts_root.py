"""What a Pravega left, as a root: our readers get what the server's own client did, and nothing is changed."""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunkstore import Store
from chunkstore.port import TOKEN
from chunkstore.pravega.source import ArchiveDamaged
from chunkstore.testing import CountingStore, SimulatedStore
from chunkstore.wrapping import WRITES
from engine.containers.container import Container
from pravega_spark import StreamManager
from pravega_spark.checks import verify_root
from pravega_spark.client.bytes import ByteStreamError
from pravega_spark.client.event import LazyEvent
from pravega_spark.client.groups.entry import GroupNotFound
from pravega_spark.errors import InvalidStreamCut, KeyValueTableNotFound, TruncatedData
from pravega_spark.roots import opened_root
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.recorded_cuts import RecordedCuts, with_recorded_cuts
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import HEADER_SIZE, InvalidEvent, event_header
from pravega_spark.streams.model.index import WIDEST_GAP, decode_records
from pravega_spark.streams.model.index_builder import index_events
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.pravega_lts.container import PravegaContainer
from pravega_spark.streams.pravega_lts.read_only import ReadOnlyStore, RootReadOnly
from pravega_spark.streams.pravega_lts.root import PravegaRoot
from pravega_spark.streams.reading.rebuilt_index import CACHE_VARIABLE, IndexCache
from pravega_spark.streams.reading.slices import ScanSlice, plan_slices
from pravega_spark.streams.reading.unindexed import UnindexedEvents
from pravega_spark.streams.writing.transactions import open_transactions
from tests.archives import ARCHIVES, CHUNKED, ROLLING, Case, case, retained, stored, with_entries

STREAMS = ["big", "empty", "rides", "scaled", "sealed", "truncated", "txns"]
RIDES = "demo/rides/0.#epoch.0"


def contents(store: Store) -> dict[str, bytes]:
    return {info.path: store.read(info.path) for info in store.list("")}


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name)
def found(request: pytest.FixtureRequest) -> Iterator[tuple[Case, StreamManager]]:
    """An archive with a manager of it; when all tests are done, it is as it was."""
    one = case(request.param)
    store = one.store()
    yield one, StreamManager.over(PravegaRoot(store))
    assert contents(store) == one.objects


def payload(manager: StreamManager, event: object) -> bytes:
    if isinstance(event, LazyEvent):
        with manager.open_event(event.pointer) as file:
            return bytes(file.read())
    return bytes(event.data)  # type: ignore[attr-defined]


def events(
    manager: StreamManager, name: str, start: StreamCut | None = None, end: StreamCut | None = None
) -> list[tuple[int, int, bytes]]:
    return [(e.segment_id, e.offset, payload(manager, e)) for e in manager.read_events("demo", name, start, end)]


def test_scopes_and_streams_are_those_of_users(found: tuple[Case, StreamManager]) -> None:
    _, manager = found
    assert manager.list_scope() == ["demo"]
    assert manager.list_stream("demo") == STREAMS
    assert manager.get_stream_tags("demo", "rides") == (["h5", "rides"] if "0.13" in found[0].name else [])


@pytest.mark.parametrize("name", STREAMS)
def test_every_live_event_is_read(found: tuple[Case, StreamManager], name: str) -> None:
    one, manager = found
    due = sorted(
        (row["segName"], row["offset"], row["len"]) for row in one.rows("readback.jsonl") if row["stream"] == name
    )
    there: list[tuple[str, int, int]] = []
    digests = defaultdict[str, Any](hashlib.sha256)
    order = defaultdict[str | None, list[int]](list)
    for number, offset, data in events(manager, name):
        segment = segment_name("demo", name, number)
        there.append((segment, offset, len(data)))
        digests[segment].update(hashlib.sha256(data).digest())
        row: dict[str, Any] = json.loads(data) if data[:1] == b"{" else {"key": None, "seq": 0}
        order[row["key"]].append(row["seq"])
    assert sorted(there) == due
    expected = {segment: digest for segment, digest in one.digests().items() if segment.startswith(f"demo/{name}/")}
    assert {segment: digest.hexdigest() for segment, digest in digests.items()} == expected
    assert all(numbers == sorted(numbers) for numbers in order.values())
    info = manager.stream_info("demo", name)
    assert info.events == len(due) and info.size == sum(length + HEADER_SIZE for _, _, length in due)


def test_every_cut_splits_its_stream(found: tuple[Case, StreamManager]) -> None:
    """As of streams of ours one before the head is refused: as a start, for what follows it is lost; as an end."""
    one, manager = found
    passed = 0
    for label, row in json.loads(one.expected["cuts.json"]).items():
        name, _, text = label.partition("/")
        for which in ("head", "tail"):
            if name not in STREAMS or not row[which]:
                continue
            cut, head = StreamCut.from_text(row[which]), manager.stream_info("demo", name).head
            all_of_it = {place[:2] for place in events(manager, name)}
            if any(at < head.positions.get(number, 0) for number, at in cut.positions.items()):
                with pytest.raises(TruncatedData, match="truncated"):
                    events(manager, name, start=cut)
                with pytest.raises(InvalidStreamCut, match="should be <="):
                    events(manager, name, end=cut)
                passed += 1
                continue
            before = {place[:2] for place in events(manager, name, end=cut)}
            behind = {place[:2] for place in events(manager, name, start=cut)}
            assert before | behind == all_of_it and not before & behind
            if which == "tail" and text.partition("-")[0].isdigit():
                count = int(text.partition("-")[0]) - (1800 if name == "truncated" else 0)
                assert len(before) == count, label
    assert passed == 2


def test_chunks_are_those_of_the_server(found: tuple[Case, StreamManager]) -> None:
    one, _ = found
    container = PravegaRoot(one.store()).archived
    for row in one.rows("segments.jsonl"):
        if "chunks" not in row or row["segment"] not in container.archive.segments() or "/_RG" in row["segment"]:
            continue
        segment = container.archive.segment(row["segment"])
        assert [(chunk.name, chunk.length) for chunk in segment.chunks] == [
            (chunk["name"], chunk["length"]) for chunk in row["chunks"]
        ]


def test_key_value_tables_and_open_transactions(found: tuple[Case, StreamManager]) -> None:
    one, manager = found
    due = sorted((row["pk"], row["sk"], row["value"]) for row in one.rows("kvt.jsonl"))
    assert manager.list_key_value_table("demo") == (["kvt"] if due else [])
    if due:
        there = manager.read_key_value_table("demo", "kvt")
        assert due == sorted((e.primary.decode(), e.secondary.decode(), e.value.decode()) for e in there)
    with pytest.raises(KeyValueTableNotFound):
        list(manager.read_key_value_table("demo", "other"))
    [transaction] = open_transactions(PravegaRoot(one.store()).archived, "demo/txns/")
    assert transaction.id == uuid.UUID(int=3) and transaction.size == 18124 + 34481


def test_every_change_is_refused_and_says_how_to_import(found: tuple[Case, StreamManager]) -> None:
    _, manager = found
    changes = (
        lambda: manager.create_scope("other"),
        lambda: manager.create_stream("demo", "other", 1),
        lambda: manager.seal_stream("demo", "rides"),
        lambda: manager.truncate_stream("demo", "rides", manager.stream_info("demo", "rides").tail),
        lambda: manager.scale_stream("demo", "empty", [0], [(0.0, 0.25), (0.25, 0.5)]),
        lambda: manager.delete_stream("demo", "sealed"),
        lambda: manager.create_reader_group("group", "demo", "rides"),
        lambda: manager.create_transaction_writer("demo", "rides", 1).begin_txn(),
        lambda: manager.create_writer("demo", "rides"),
    )
    for change in changes:
        with pytest.raises(RootReadOnly, match=r"never changed.*pravega-spark --root ROOT import"):
            change()


def test_every_method_of_a_container_is_implemented_or_refused() -> None:
    public = {name for name, _ in inspect.getmembers(Container) if not name.startswith("_")}
    assert public <= set(vars(PravegaContainer))
    assert not issubclass(PravegaContainer, Container)


def test_every_change_of_a_store_is_refused_before_a_request() -> None:
    inner = CountingStore(SimulatedStore())
    store = ReadOnlyStore(inner)
    changes: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("a", b""),
        "post": lambda: store.post("a", b""),
        "put_if_absent": lambda: store.put_if_absent("a", bytes(TOKEN)),
        "append": lambda: store.append("a", 0, b""),
        "link": lambda: store.link("a", inner, "b"),
        "set_read_only": lambda: store.set_read_only("a", True),
        "delete": lambda: store.delete(["a"]),
    }
    assert changes.keys() == WRITES
    for change in changes.values():
        with pytest.raises(RootReadOnly):
            change()
    store.sync("")
    store.clock()
    assert not inner.requests and not store.can_append


def test_a_folder_is_recognised(tmp_path: Path) -> None:
    for archive in (CHUNKED, ROLLING):
        place = tmp_path / archive.stem
        for name, data in case(archive).objects.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        for create in (False, True):
            root = opened_root(str(place), create=create)
            assert isinstance(root, PravegaRoot)
        with StreamManager(str(place)) as manager:
            assert len(list(manager.read_events("demo", "sealed"))) == 200
            with pytest.raises(RootReadOnly):
                manager.create_scope("other")
        there = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
        assert there == case(archive).objects


def test_where_reader_groups_stood(found: tuple[Case, StreamManager]) -> None:
    one, manager = found
    assert manager.list_reader_group("demo") == ["rg1"]
    [cut] = manager.reader_group_cuts("rg1", "demo")
    due = json.loads(one.expected["cuts.json"])["rides/checkpoint-rg1-cp1"]["tail"]
    assert cut == StreamCut.from_text(due)
    assert manager.group_lag("rg1", "demo")["demo/rides"].events == 0
    with pytest.raises(GroupNotFound):
        manager.reader_group_cuts("other", "demo")


def test_a_byte_stream_is_read_and_not_written(found: tuple[Case, StreamManager]) -> None:
    """Nothing tells it from a stream of events, which is bytes too; its bytes are not looked at first."""
    one, manager = found
    archive = PravegaRoot(one.store()).archived.archive
    due = archive.read("demo/big/0.#epoch.0", 0, archive.segment("demo/big/0.#epoch.0").length)
    store = CountingStore(one.store())
    with StreamManager.over(PravegaRoot(store)) as counted:
        counted.stream_info("demo", "empty")
        store.reset()
        counted.create_byte_stream("demo", "big")
        assert store.count("read", "demo/") == store.count("read_ranges", "demo/") == 0
    with manager.create_byte_stream("demo", "big") as file:
        assert (file.current_head_offset(), file.current_tail_offset()) == (0, len(due))
        assert b"".join(iter(lambda: file.read(1 << 20), b"")) == due
        file.seek(len(due) // 2)
        assert file.read(100) == due[len(due) // 2 :][:100]
        with pytest.raises(RootReadOnly):
            file.write(b"more")
    with pytest.raises(ByteStreamError, match="3 segments"):
        manager.create_byte_stream("demo", "rides")


# --- planning --------------------------------------------------------------------------------------------------------


def test_planning_reads_no_event_and_opening_what_the_metadata_are() -> None:
    store = CountingStore(case(CHUNKED).store())
    root = PravegaRoot(store)
    snapshot = Catalog(root).stream("demo", "rides").snapshot()
    store.reset()
    ranges = snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut())
    slices = plan_slices(snapshot, ranges, 1 << 10)
    assert store.count() == 0
    assert [part.indexed for part in slices] == [False] * 3


def grown(objects: dict[str, bytes], size: int) -> dict[str, bytes]:
    """The objects of a rolling layout, in which a segment's last chunk has so many bytes of events more."""
    [*_, name] = sorted(name for name in objects if name.startswith("demo/rides/0.#epoch.0$offset."))
    return {**objects, name: objects[name] + (event_header(1000) + bytes(1000)) * (size // (1000 + HEADER_SIZE))}


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_requests_go_by_objects_not_by_bytes(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open: those of the containers' and the controller's own. An index: the chunks of its stream, once."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    one = case(archive)
    store = CountingStore(one.store())
    root = PravegaRoot(store)
    manager = StreamManager.over(root)
    manager.list_stream("demo")
    own = sum("/containers/" in name or "InScope" in name or "_tables/scopes" in name for name in one.objects)
    assert store.count("list") == 2 and store.count("read_ranges") <= 1
    assert store.count("read", "demo/") == 0 and store.count("read") <= own
    headers = [path for request in store.requests if request.verb == "read_ranges" for path in request.paths]
    assert len(headers) == len(set(headers)) and all(path.endswith("$header") for path in headers)
    store.reset()
    manager.stream_info("demo", "rides")
    chunks = sum(len(root.archived.stream("demo/rides").chunks(number)) for number in range(3))
    assert 0 < store.count("read", "demo/") <= chunks and store.count("read_ranges") == 0
    assert store.count() <= chunks + sum(name.startswith("_system/_tables/demo/rides/") for name in one.objects)
    store.reset()
    manager.stream_info("demo", "rides")
    assert store.count() == 0
    again = StreamManager.over(PravegaRoot(store))
    assert again.stream_info("demo", "rides") == manager.stream_info("demo", "rides")
    assert store.count("read", "demo/") == 0, "the index is kept"


def test_who_plans_a_stream_of_ten_times_the_bytes_asks_for_no_more() -> None:
    def planned(objects: dict[str, bytes]) -> tuple[Counter[str], int, int]:
        store = CountingStore(stored(objects))
        snapshot = Catalog(PravegaRoot(store)).stream("demo", "rides").snapshot()
        ranges = snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut())
        assert plan_slices(snapshot, ranges, 1 << 10)
        return store.counts, store.bytes_read, sum(end - start for start, end in ranges.values())

    objects = case(ROLLING).objects
    few, many = planned(objects), planned(grown(objects, 20 << 20))
    assert few[:2] == many[:2] and many[2] > 10 * few[2]


def test_an_index_is_made_once_and_kept_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    one = case(CHUNKED)

    def read() -> tuple[CountingStore, list[bool], list[tuple[int, int, bytes]]]:
        store = CountingStore(inner)
        root = PravegaRoot(store)
        manager, snapshot = StreamManager.over(root), Catalog(root).stream("demo", "rides").snapshot()
        known = [snapshot.segments.is_indexed(number) for number in range(3)]
        return store, known, events(manager, "rides")

    inner = one.store()
    _, known, first = read()
    assert known == [False] * 3
    StreamManager.over(PravegaRoot(inner)).stream_info("demo", "rides")  # counts events
    _, known, again = read()
    assert known == [True] * 3 and again == first
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    _, known, again = read()
    assert known == [False] * 3 and again == first
    inner.put(inner.list("demo/rides/")[0].path, one.objects[inner.list("demo/rides/")[0].path])  # a newer object
    assert read()[2] == first


def test_a_cut_between_events_that_is_none_is_refused() -> None:
    manager = StreamManager.over(PravegaRoot(case(CHUNKED).store()))
    cut = manager.stream_info("demo", "rides").tail
    behind = StreamCut("demo", "rides", {n: at + 1 for n, at in cut.positions.items()})
    with pytest.raises(InvalidStreamCut):
        events(manager, "rides", end=behind)
    with pytest.raises(InvalidStreamCut, match="not known"):
        manager.stream_cut_at("demo", "rides", 1)


def test_cuts_that_are_none_of_the_stream_are_refused() -> None:
    snapshot = Catalog(PravegaRoot(case(CHUNKED).store())).stream("demo", "scaled").snapshot()
    for positions in ({7: 0}, {0: 252301}, {1 << 32 | 1: 0}, {0: 5, 2 << 32 | 4: 0}):
        with pytest.raises(InvalidStreamCut):
            snapshot.ranges(StreamCut("demo", "scaled", positions), snapshot.tail_cut())
    with pytest.raises(InvalidStreamCut):
        snapshot.ranges(StreamCut("demo", "rides", {0: 0}), snapshot.tail_cut())
    assert snapshot.ranges(snapshot.head_cut(), snapshot.tail_cut())[0] == (0, 252300)


def test_without_the_controller_a_cut_within_an_epoch_splits_a_stream_all_the_same() -> None:
    """Epochs are then those that the names of segments tell, in which a reader leaves all segments of one together."""
    one = case(ROLLING)
    lost = ("_system/_tables/scopes", "_system/_tables/demo/streamsInScope", "_system/_tables/demo/scaled/")
    objects = {name: data for name, data in one.objects.items() if not name.startswith(lost)}
    scaled, whole = (StreamManager.over(PravegaRoot(stored(each))) for each in (objects, one.objects))
    middle = StreamCut("demo", "scaled", {1 << 32 | 1: 0, 1 << 32 | 2: 0, 1 << 32 | 3: 0})
    assert events(scaled, "scaled", start=middle) == events(whole, "scaled", start=middle)
    with pytest.raises(InvalidStreamCut):
        events(scaled, "scaled", start=StreamCut("demo", "scaled", {1 << 32 | 1: 0, 2 << 32 | 5: 0}))


# --- finding events in bytes -----------------------------------------------------------------------------------------


def framed(sizes: list[int]) -> bytes:
    return b"".join(event_header(size) + bytes([place % 251]) * size for place, size in enumerate(sizes))


@pytest.mark.parametrize("wanted", [None, 1 << 20])
def test_events_are_found_wherever_the_bytes_are_cut(wanted: int | None) -> None:
    dice = random.Random(1)
    for large in (False, True):
        sizes = [dice.choice([0, 1, 7, 100, 5000]) for _ in range(200)]
        if large:
            sizes[50] = sizes[199] = WIDEST_GAP + 5
        data = framed(sizes)
        for _ in range(3):
            parser = UnindexedEvents(ScanSlice(0, 100, 100 + len(data), (), (), indexed=False), wanted)
            found, at = [], 0
            while at < len(data):
                end = min(at + dice.choice([1, 3, 50, 4096, 3 << 20] if not large else [4 << 20]), len(data))
                for part in parser.events(memoryview(data)[at:end], 100 + end):
                    for start, length in zip(part.starts.tolist(), part.lengths.tolist(), strict=True):
                        taken = part.data[start + HEADER_SIZE : start + HEADER_SIZE + length]
                        kept = wanted is None or length <= WIDEST_GAP - HEADER_SIZE
                        assert bytes(taken) == (
                            data[part.offset - 100 + start + HEADER_SIZE :][:length] if kept else b""
                        )
                        found.append(length)
                at = end
            assert found == sizes and not parser.rest()


def test_an_index_has_the_places_of_all_events() -> None:
    dice = random.Random(2)
    sizes = [dice.choice([0, 10, 3000, 40_000]) for _ in range(500)]
    data = framed(sizes)
    for window in (64, 1000, 1 << 20):
        records, end, _, problem = index_events(lambda low, high: data[low:high], 0, len(data), window)
        assert problem is None and end == len(data)
        rows = decode_records(records)
        ends = np.cumsum(np.array(sizes) + HEADER_SIZE)
        assert rows[-1].tolist()[:2] == [len(data), len(sizes)]
        assert all(ends[count - 1] == offset for offset, count, _, _ in rows.tolist())
    broken = bytearray(data)
    place = int(ends[250])
    broken[place] = 1
    _, end, _, problem = index_events(lambda low, high: bytes(broken[low:high]), 0, len(data), 1000)
    assert end == place and isinstance(problem, InvalidEvent)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = IndexCache(str(tmp_path / "file" / "below"))
    cache.save("0" * 64, b"")
    assert cache.load("0" * 64) is None
    assert IndexCache("").load("0" * 64) is None


# --- what the controller knew ----------------------------------------------------------------------------------------


def test_what_was_flushed_of_a_table_before_its_index_counts() -> None:
    one = case(ROLLING)
    sealed = PravegaRoot(one.store()).archived.archive
    table = next(name for name in sealed.tables if name.startswith("_system/_tables/demo/sealed/metadata"))
    state = sealed.table(table)[b"state"].value
    objects = with_entries(one.objects, "demo/rides/metadata", {"state": state, "retention": None})
    manager = StreamManager.over(PravegaRoot(stored(objects)))
    assert manager.stream_info("demo", "rides").sealed
    assert events(manager, "rides") == events(StreamManager.over(PravegaRoot(one.store())), "rides")


def test_cuts_that_retention_recorded_are_told() -> None:
    objects, head, tail = retained()
    root = PravegaRoot(stored(objects))
    found = list(RecordedCuts(Catalog(root).stream("demo", "truncated").snapshot()).all())
    assert [cut for _, cut in found] == [head, tail]
    assert found[-1][0] == (1, 1_700_000_200_000, sum(tail.positions.values()))
    assert RecordedCuts(Catalog(root).stream("demo", "truncated").snapshot()).latest() == found[-1][0]
    assert with_recorded_cuts(root.archived, [f"demo/{name}" for name in STREAMS]) == ["demo/truncated"]
    assert RecordedCuts(Catalog(root).stream("demo", "rides").snapshot()).latest() is None


# --- what is damaged, or not known -----------------------------------------------------------------------------------


@pytest.mark.parametrize("archive", [CHUNKED, ROLLING], ids=lambda path: path.name)
def test_what_is_sound_of_a_damaged_stream_is_read_on_request(archive: Path) -> None:
    one = case(archive)
    chunks = sorted(name for name in one.objects if name.startswith((RIDES + ".E-", RIDES + "$offset.")))
    whole = events(StreamManager.over(PravegaRoot(one.store())), "rides")
    name = chunks[0]
    cut = {**one.objects, name: one.objects[name][:-1]}
    with pytest.raises(ArchiveDamaged, match="demo/rides/0"):
        events(StreamManager.over(PravegaRoot(stored(cut))), "rides")
    root = PravegaRoot(stored(cut), salvage=True)
    there = events(StreamManager.over(root), "rides")
    assert 0 < len(there) < len(whole) and set(there) < set(whole)
    assert [place for place in there if place[0]] == [place for place in whole if place[0]]
    [loss] = root.archived.losses
    first = [place for place in there if not place[0]]
    assert loss.start == first[-1][1] + len(first[-1][2]) + HEADER_SIZE
    assert loss.stream == "demo/rides" and loss.segment == RIDES and loss.end >= loss.start
    report = verify_root(PravegaRoot(stored(cut)))
    assert report.errors and any(RIDES in finding.object + finding.problem for finding in report.findings)


@pytest.mark.parametrize("table", ["scopes", "demo/streamsInScope"])
def test_a_table_that_was_flushed_after_its_index_is_completed_by_names(table: str) -> None:
    """Or it lost its end: only its index tells, without which a scope or a stream would be gone unnoticed."""
    objects = dict(case(ROLLING).objects)
    [name] = (n for n in objects if n.startswith(f"_system/_tables/{table}") and "$attributes" not in n and "$off" in n)
    whole = PravegaRoot(stored(objects)).archived.archive.table(name.partition("$offset.")[0])
    objects[name] = objects[name][: max(entry.offset for entry in whole.values())]
    root = PravegaRoot(stored(objects))
    assert StreamManager.over(root).list_stream("demo") == STREAMS
    what = "table of scopes" if table == "scopes" else "the streams in scope 'demo'"
    assert any(what in text for text in root.archived.streams.unknown)
    assert any(what in finding.problem for finding in verify_root(root).findings)


def test_a_stream_whose_table_was_not_flushed_is_read_by_names_and_says_so() -> None:
    one = case(CHUNKED)
    objects = {
        name: data for name, data in one.objects.items() if not name.startswith("_system/_tables/demo/scaled/metadata")
    }
    with pytest.raises(ArchiveDamaged, match="scaled/metadata"):
        StreamManager.over(PravegaRoot(stored(objects))).stream_info("demo", "scaled")
    root = PravegaRoot(stored(objects), salvage=True)
    manager = StreamManager.over(root)
    due = events(StreamManager.over(PravegaRoot(one.store())), "scaled")
    assert sorted(events(manager, "scaled")) == sorted(due)
    unknown = Catalog(root).stream("demo", "scaled").snapshot().record.unknown
    assert any("epochs are not known" in text for text in unknown)
    assert any("epochs are not known" in finding.problem for finding in verify_root(root).findings)


@pytest.mark.parametrize("salvage", [False, True])
def test_streams_of_containers_that_never_flushed_their_metadata(salvage: bool) -> None:
    """All that there is of them is read, an empty segment of which there is nothing too, and it is no error."""
    one = case(ROLLING)
    lost = {name: data for name, data in one.objects.items() if not name.startswith("_system/containers/")}
    root, whole = PravegaRoot(stored(lost), salvage=salvage), StreamManager.over(PravegaRoot(one.store()))
    manager = StreamManager.over(root)
    assert manager.list_stream("demo") == STREAMS
    for name in STREAMS:
        assert events(manager, name) == events(whole, name)
        assert manager.stream_info("demo", name).events == whole.stream_info("demo", name).events
    assert root.losses == () and verify_root(root, deep=True).errors == 0
    unknown = Catalog(root).stream("demo", "empty").snapshot().record.unknown
    assert unknown == ("nothing of segments 0.0, 1.0 is there: they were empty, or nothing of them was flushed",)


@pytest.mark.parametrize("archive", [CHUNKED, ROLLING], ids=lambda path: path.name)
def test_a_sound_archive_has_no_errors(archive: Path) -> None:
    assert verify_root(PravegaRoot(case(archive).store()), deep=True).errors == 0
