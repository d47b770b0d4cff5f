"""Format 1 is frozen: this version reads, and goes on with, a root that was written when it was; and a reader in Go,
which shares no code with the project, reads both alike."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack
import pytest

from chunkstore import StorageRefused
from chunkstore.metadata.metadata_records import ChunkRecord, decode
from engine.admin.checks.findings import Severity
from engine.containers.container import Container
from engine.errors import FrameMissing, UnknownFormat
from engine.root import checksum
from engine.signatures import VARIABLE
from engine.state.segments import FrameRef, StoredRef
from engine.state.tables import METADATA, STORAGE, Entry
from engine.tables.btree import MAX_PAGE
from pravega_spark import Insert, KeyValueTableConfiguration, Put, Remove, StreamCut, StreamManager, TableKey
from pravega_spark.checks import verify_root
from pravega_spark.client.groups.entry import GROUPS
from pravega_spark.client.groups.state import GroupReader, GroupSegment, GroupState, Outstanding, SetBack
from pravega_spark.streams.model.system_tables import MARKS, SCOPES, STREAMS, SUBSCRIBERS, TIMES, TRANSACTIONS
from pravega_spark.streams.model.watermarks import decode_marks, decode_watermarks
from pravega_spark.streams.scopes import ScopeRecord
from pravega_spark.streams.writing.transactions import TransactionRecord
from tests import newer_version
from tests.data import format_1
from tests.support import limits
from tests.support.signed import SECRET, described_as, with_signatures

pytestmark = pytest.mark.timeout(600)  # the first build compiles Go's library

READER = Path(__file__).parent / "format_reader"
GO = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
ALONE = {"maintenance": False}

Line = dict[str, Any]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the frozen root."""
    return format_1.unpacked(tmp_path / "root")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the reader in Go on a root; options come before it."""
    if GO is None:
        pytest.skip("go is not installed: the reader in another language cannot be built")
    folder = tmp_path_factory.mktemp("go")
    program = folder / "format_reader"
    quiet = {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"}
    cache = {} if "HOME" in os.environ or "GOCACHE" in os.environ else {"GOCACHE": str(folder / "cache")}
    subprocess.run([GO, "build", "-o", str(program), "."], cwd=READER, env={**os.environ, **quiet, **cache}, check=True)
    return lambda *given: subprocess.run([str(program), *map(str, given)], capture_output=True, text=True, timeout=60)


@functools.cache
def frozen_truth() -> list[Line]:
    return format_1.frozen_truth()


def printed(result: subprocess.CompletedProcess[str]) -> list[Line]:
    """What the reader in Go printed, without an error."""
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def truth(root: Path) -> list[Line]:
    return [json.loads(line) for line in format_1.lines(format_1.truth(root)).splitlines()]


def events(lines: list[Line], stream: str) -> list[Line]:
    return [line for line in lines if line["kind"] == "event" and line["stream"] == stream]


def frames(root: Path, container: int = 1) -> list[Path]:
    """The frames of a container's log behind its newest checkpoint, in their order."""
    folder = root / "_system" / "containers" / str(container)
    newest = max(path.name for path in folder.glob("checkpoints/*/*"))
    return sorted(path for path in folder.glob("wal/*/*") if path.name > newest)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


# --- today's code -----------------------------------------------------------------------------------------------------


def test_the_frozen_root_is_read_as_it_was_written(root: Path) -> None:
    assert truth(root) == frozen_truth()


def test_the_frozen_root_is_sound(root: Path) -> None:
    assert format_1.verified(root) == json.loads((format_1.FROZEN / "verify.json").read_text())
    assert not format_1.verified(root)["findings"]


def test_the_frozen_root_has_all_that_the_format_knows(root: Path) -> None:
    """So the other tests are about all of it."""
    kinds = {line["kind"] for line in frozen_truth()}
    assert kinds == {"stream", "attribute", "event", "bytes", "entry"}
    with StreamManager(root, create=False, settings=ALONE) as manager:
        states = [manager.root.container(number).refresh() for number in range(2)]
        assert manager.list_reader_group("Shop") == ["readers"]
        assert manager.create_transaction_writer("Shop", "transactions").begin_txn().is_open()
    segments = [segment for state in states for segment in state.segments.values()]
    assert any(segment.spilled for segment in segments)
    assert any(segment.parent for segment in segments)
    assert any("#transaction." in segment.name for segment in segments)
    assert any(state.cycle.complete for state in states)
    assert all(state.unsaved for state in states)


def test_the_frozen_root_is_gone_on_with(root: Path) -> None:
    _go_on(root)
    found = truth(root)
    for stream in ("fixed", "con", "members", "transactions", "together"):
        old = events(frozen_truth(), stream)
        assert [line for line in events(found, stream) if line in old] == old
    assert len(events(found, "fixed")) == len(events(frozen_truth(), "fixed")) + 10
    report = format_1.verified(root)
    assert (report["errors"], report["warnings"]) == (0, 0), report


def _go_on(root: Path) -> None:
    """Append, scale, commit, flush, collect."""
    with StreamManager(root, create=False, settings={"attach_bytes": "8KiB", "active_segments": 10}) as manager:
        with manager.create_writer("Shop", "fixed") as writer:
            writer.write_events([f"later {i}" for i in range(10)], [f"key-{i}" for i in range(10)])
        with manager.create_writer("Shop", "attached") as writer:
            for i in range(3):
                writer.write_events([f"later {i} {j} " + "x" * 1500 for j in range(10)], ["key"] * 10)
        with manager.create_transaction_writer("Shop", "transactions").begin_txn() as transaction:
            transaction.write_event("later", "key")
            transaction.commit()
        last = manager.stream_info("Shop", "Scaled").tail.positions
        manager.scale_stream("Shop", "Scaled", list(last), [(0.0, 0.1), (0.1, 1.0)])
        manager.key_value_table("Shop", "stock").put(TableKey(b"later", b"_A"), b"value")
        for number in range(manager.root.config.containers):
            container = manager.root.container(number)
            container.flush()
            container.expire_transients()
            container.collect_garbage()
            container.checkpoint()
            container.truncate_log()
        with manager.create_writer("Shop", "con") as writer:
            writer.write_event("only in the log")


# --- a reader in another language -------------------------------------------------------------------------------------


def test_the_other_reader_prints_the_truth_about_the_frozen_root(root: Path, read: Any) -> None:
    assert printed(read(root)) == frozen_truth()


def test_the_other_reader_reads_what_was_just_written(root: Path, read: Any) -> None:
    _go_on(root)
    assert printed(read(root)) == truth(root)


def test_the_other_reader_reads_a_checkpoint_in_parts(root: Path, read: Any) -> None:
    random_bytes = random.Random(1).randbytes
    with StreamManager(root, create=False, settings={**ALONE, "checkpoint_part": "1MiB"}) as manager:
        manager.create_key_value_table("lab", "big", KeyValueTableConfiguration(1, 2, 0))
        for i in range(3):
            manager.key_value_table("lab", "big").put(b"%02d" % i, random_bytes(900_000))
        for number in range(2):
            manager.root.container(number).checkpoint()
    assert list(root.glob("_system/containers/*/checkpoint-parts/*/*"))
    assert printed(read(root)) == truth(root)


def test_the_other_reader_reads_appends_that_span_frames(root: Path, read: Any) -> None:
    before = {path.name for path in frames(root)}
    with (
        StreamManager(root, create=False, settings={**ALONE, "attach_bytes": "64MiB"}) as manager,
        manager.create_writer("Shop", "together") as writer,
    ):
        writer.write_events([f"{i}".encode() + bytes(3_000_000) for i in range(4)], routing_key="key", atomic=True)
    assert len({path.name for path in frames(root)} - before) > 1
    assert printed(read(root)) == truth(root)


def test_the_other_reader_follows_a_recovered_log(root: Path, read: Any) -> None:
    with StreamManager(root, create=False, settings=ALONE) as manager:
        for number in range(2):
            manager.root.container(number).flush()
        expected = truth(root)
    shutil.rmtree(root / "_system/containers/1/wal")
    shutil.rmtree(root / "_system/containers/1/checkpoints")
    with StreamManager(root, create=False, settings=ALONE) as manager:
        manager.root.recover(1)
        assert len(manager.root.config.recovered) == 1
    assert printed(read(root)) == truth(root) == expected


def test_the_other_reader_passes_over_what_a_repair_skips(root: Path, read: Any) -> None:
    last = [frame for frame in frames(root) if any(frame.read_bytes()[100:108])][-1]  # the last one with payload
    flip(last, 130)
    _refuses(read(root), last.name)
    with StreamManager(root, create=False, settings=ALONE) as manager:
        manager.root.repair(1, int(last.name))
    found = printed(read(root))
    assert found == truth(root)
    assert found != frozen_truth()


def test_the_other_reader_goes_on_behind_a_repair_in_the_place_of_a_missing_frame(root: Path, read: Any) -> None:
    for _ in range(3):  # processes: the first frame of each shows that those before it were there
        with StreamManager(root, create=False, settings=ALONE) as manager:
            for stream in ("fixed", "attached", "con"):
                with manager.create_writer("Shop", stream) as writer:
                    writer.write_event("more", "key")
    writers = [(frame, frame.read_bytes()[:16]) for frame in frames(root)]
    first = [frame for (frame, writer), (_, following) in pairwise(writers) if writer != following][-1]
    first.unlink()
    with StreamManager(root, create=False, settings=ALONE) as manager:
        with pytest.raises(FrameMissing, match=f"{first.name}: the frame is missing"):
            manager.root.container(1)
        manager.root.repair(1, int(first.name))
    found = printed(read(root))
    assert found == truth(root)
    assert found != frozen_truth()


def test_the_other_reader_passes_over_optional_fields(root: Path, read: Any) -> None:
    newer_version.add(root)
    with StreamManager(root, create=False, settings=newer_version.ALONE) as manager:
        newer_version.touch_all(manager)  # which also has them in the checkpoints
        for container in newer_version.containers(manager):
            container.checkpoint()
    assert printed(read(root)) == truth(root)


@pytest.mark.parametrize("part", ["header", "metadata", "payload"])
def test_a_damaged_frame_is_an_error_of_the_other_reader(root: Path, read: Any, part: str) -> None:
    frame = max(frames(root), key=lambda path: path.stat().st_size)
    size = frame.stat().st_size
    flip(frame, {"header": 60, "metadata": 125, "payload": size - 1}[part])
    _refuses(read(root), frame.name)


def test_a_damaged_checkpoint_is_an_error_of_the_other_reader(root: Path, read: Any) -> None:
    checkpoint = max((root / "_system/containers/1/checkpoints").glob("*/*"))
    flip(checkpoint, checkpoint.stat().st_size // 2)
    _refuses(read(root), checkpoint.name)


def test_a_damaged_chunk_is_an_error_of_the_other_reader(root: Path, read: Any) -> None:
    for chunk in _chunks_in_use(root):
        flip(chunk, 0)
        _refuses(read(root), chunk.name)
        flip(chunk, 0)
    assert printed(read(root)) == frozen_truth()


def test_a_missing_chunk_is_an_error_of_the_other_reader(root: Path, read: Any) -> None:
    chunk = next(_chunks_in_use(root))
    chunk.unlink()
    _refuses(read(root), chunk.name)


def test_another_root_format_is_an_error_of_the_other_reader(root: Path, read: Any) -> None:
    path = root / "_system/pravega.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    _refuses(read(root), "format 1")
    path.write_text(path.read_text().replace('"format": 2', '"format": 1').replace("10000", "10001"))
    _refuses(read(root), "checksum")


def _chunks_in_use(root: Path) -> Iterator[Path]:
    """Some chunks whose first byte is part of a live event: those that Shop/con and Shop/frames begin with."""
    yield from sorted((root / "8!shop" / "!con").glob("0.#epoch.0.*E-1-O-0*"))
    yield from sorted((root / "8!shop" / "sealed").glob("0.#epoch.0.*E-1-O-0*"))


def _refuses(result: subprocess.CompletedProcess[str], named: str) -> None:
    """The error names the object; all that was printed before it is true."""
    assert result.returncode == 1
    assert named in result.stderr
    true = [json.dumps(line, sort_keys=True) for line in frozen_truth()]
    assert {json.dumps(json.loads(line), sort_keys=True) for line in result.stdout.splitlines()} <= set(true)


# --- signed roots (W20) -----------------------------------------------------------------------------------------------


@pytest.fixture
def signed(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The frozen root, signed; the environment has its key."""
    with_signatures(root)
    monkeypatch.setenv(VARIABLE, SECRET.hex())
    return root


def test_a_signed_root_is_gone_on_with_and_read_by_the_other_reader(
    signed: Path, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert truth(signed) == printed(read(signed)) == frozen_truth()
    _go_on(signed)
    report = format_1.verified(signed)
    assert (report["errors"], report["warnings"]) == (0, 0), report
    expected = truth(signed)
    assert printed(read(signed)) == expected
    monkeypatch.delenv(VARIABLE)
    assert printed(read(signed)) == expected, "it skips signatures"
    with pytest.raises(StorageRefused, match="this process has none"):
        StreamManager(signed, create=False)


@pytest.mark.parametrize("part", ["signature", "metadata"])
def test_a_signature_that_does_not_fit_is_an_error_of_the_other_reader(signed: Path, read: Any, part: str) -> None:
    frame = max(frames(signed), key=lambda path: path.stat().st_size)
    flip(frame, {"signature": -1, "metadata": 125}[part])
    _refuses(read(signed), "signature does not fit")
    flip(frame, {"signature": -1, "metadata": 125}[part])
    path = signed / "_system/pravega.json"
    path.write_bytes(described_as(path.read_bytes(), max_segments=5))
    _refuses(read(signed), "signature does not fit")
    path.write_bytes(described_as(path.read_bytes(), signed=None, signature=None))
    _refuses(read(signed), "not signed with this key")


# --- what the frozen root does not prove ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root of the present version, with its log elsewhere. No test changes it."""
    folder = tmp_path_factory.mktemp("present")
    with pytest.MonkeyPatch.context() as patch:
        limits.resident_bytes(patch, 0)
        settings = {**ALONE, "containers": 1, "active_segments": 1}
        with StreamManager(folder / "root", wal=str(folder / "log"), create=True, settings=settings) as manager:
            _write_present(manager)
    return folder / "root"


def _write_present(manager: StreamManager) -> None:
    container, random_bytes = manager.root.container(0), random.Random(1).randbytes
    manager.create_scope("lab")
    manager.create_key_value_table("lab", "wide", KeyValueTableConfiguration(1, 128, 128))
    table = manager.key_value_table("lab", "wide")
    keys = [[TableKey(b"%0128d" % i, b"%0128d" % (7919 * j % 1000)) for j in range(60)] for i in range(6)]
    for some in keys:
        table.update([Insert(each, each.secondary[-9:]) for each in some])
    for i in range(12):
        manager.create_stream("lab", f"many-{i}", 16)
        with manager.create_writer("lab", f"many-{i}") as writer:
            writer.write_events([f"event {j}" for j in range(40)], [f"key-{j}" for j in range(40)])
    manager.create_stream("lab", "blocks", 1)
    with manager.create_writer("lab", "blocks") as writer:
        writer.write_events([random_bytes(3 << 19) for _ in range(2)], routing_key="key")
    container.flush()
    table.update([Remove(each) for each in keys[3][:20]])
    table.update([Put(each, b"later") for each in keys[2][10:40]])
    manager.create_stream("lab", "rolled", 1)
    with manager.create_transaction_writer("lab", "rolled").begin_txn() as transaction:
        transaction.write_events([f"rolled {i}" for i in range(9)], [f"key-{i}" for i in range(9)])
        transaction.flush()
        container.flush()
        manager.scale_stream("lab", "rolled", [0], [(0.0, 0.3), (0.3, 1.0)])
        with manager.create_writer("lab", "rolled") as writer:
            writer.write_events([f"meanwhile {i}" for i in range(9)], [f"key-{i}" for i in range(9)])
        transaction.commit()
    with manager.create_writer("lab", "blocks") as writer:
        writer.write_events([random_bytes(5 << 19) for _ in range(2)], routing_key="key", atomic=True)
    container.checkpoint()
    with manager.create_writer("lab", "rolled") as writer:
        writer.write_event("after all", "key")


def test_the_present_root_has_what_the_frozen_one_lacks(present: Path) -> None:
    assert (present.parent / "log/_system/containers/0/wal").is_dir()
    assert not (present / "_system/containers/0/wal").exists()
    with StreamManager(present, create=False, settings=ALONE) as manager:
        container = manager.root.container(0)
        state = container.refresh()
        wide = next(name for name in state.tables if name.startswith("_kvt/"))
        for name, levels in ((METADATA, 2), (STORAGE, 2), (wide, 3)):
            table = state.tables[name]
            page = MAX_PAGE // ((table.layout.key_length or 16) + 8)  # entries
            assert table.dropped and table.layout.entries > page ** (levels - 1)
            assert len(table.recent) < table.layout.entries // 10
        extents = [extent for segment in state.segments.values() for _, extent in segment.extents]
        assert any(isinstance(extent.source, StoredRef) for extent in extents)
        entry = container.entry(STREAMS, "lab/rolled")
        assert entry is not None and [3, 0, None] in [[3, *each[1:]] for each in _plain(entry)["epochs"]]
        chunks = [decode(entry.value or b"") for _, entry in container.lookups.scan(state, STORAGE)]
        assert any(isinstance(chunk, ChunkRecord) and len(chunk.checksums) > 4 for chunk in chunks)
        assert any(isinstance(extent.source, FrameRef) and len(extent.checksums) > 4 for extent in extents)


def _plain(entry: Entry) -> Any:
    return msgpack.unpackb(entry.value or b"", strict_map_key=False)


def test_the_other_reader_reads_large_tables_merged_segments_and_a_log_of_its_own(present: Path, read: Any) -> None:
    assert printed(read(present)) == truth(present)


def test_the_other_reader_reads_a_restored_root(root: Path, tmp_path: Path, read: Any) -> None:
    with StreamManager(root, create=False, settings=ALONE) as manager:
        manager.backup(tmp_path / "backup")
    restored = tmp_path / "restored"
    StreamManager.restore(tmp_path / "backup", restored)
    assert events(printed(read(restored)), "fixed") == events(frozen_truth(), "fixed")
    with StreamManager(restored, create=False, settings=ALONE) as manager:
        last = manager.stream_info("Shop", "fixed").tail.positions
        manager.scale_stream("Shop", "fixed", list(last), [(0.0, 0.4), (0.4, 1.0)])
        with manager.create_writer("Shop", "fixed") as writer:
            writer.write_event("in the new generation", "key")
            writer.flush()
            writer.write_events([bytes([i]) * (5 << 19) for i in range(2)], routing_key="key", atomic=True)
    attached = [path for path in (restored / "8!shop/fixed").rglob("*") if path.stat().st_size > 5 << 20]
    assert len(attached) == 1  # a chunk with several blocks
    assert printed(read(restored)) == truth(restored)


def test_the_other_reader_prints_the_other_records(root: Path, read: Any) -> None:
    with StreamManager(root, create=False, settings=ALONE) as manager:
        container = manager.root.container(1)
        container.put_entries(GROUPS, {"lab/all": _group_with_all().encode()})
        ends = (-1, 0, 31, 32, 8191, 8192, (1 << 29) - 1, 1 << 29, (1 << 61) - 1)  # of the sizes of an offset
        cut = StreamCut("lab", "any", {number << 40: offset for number, offset in enumerate(ends)})
        container.put_entries(SUBSCRIBERS, {"lab/any/Shop/readers": cut.to_bytes()})
        expected = json.loads(json.dumps(list(_other_records(manager))))
    assert {line["kind"] for line in expected} == {
        *("scope", "transaction", "group", "subscriber", "mark", "times", "watermarks")
    }
    assert printed(read("-records", root)) == expected


def _group_with_all() -> GroupState:
    """A group of which no field is empty."""
    one, two, three, four = (
        GroupSegment(f"lab/{name}", 5 << 32 | n, n / 8, n / 8 + 0.1) for n, name in enumerate("xxyy")
    )
    cuts = StreamCut("lab", "x", {one.id: 70}), StreamCut("lab", "y", {three.id: 9000, four.id: -1})
    return GroupState(
        ("lab/x", "lab/y"),
        "automatic",
        12.5,
        {"reader": GroupReader("token", 3, {one: 10})},
        {two: 8192},
        {three: 1 << 40},
        {four: frozenset({three.id, 7})},
        {"first": cuts, "second": cuts},
        {"lab/y": SetBack(1_790_000_000_000, cuts[1])},
        cuts,
        {two: 99_999},
        2.5,
        2,
        {
            "run": Outstanding("third", frozenset({"reader"}), {two: 7}),
            "silent": Outstanding(None, frozenset({"reader"}), {}),
        },
        {"first": "earlier run"},
        {"silent run": cuts},
    )


def _other_records(manager: StreamManager) -> Iterator[Line]:
    """What the Python code decodes of the other records, in the form and order of the reader in Go."""
    for table, decoded in _DECODED.items():
        found: dict[str, Entry] = {}
        for number in range(manager.root.config.containers):
            found.update(manager.root.container(number).scan_entries(table))
        yield from (decoded(key, found[key]) for key in sorted(found))


def _cut(cut: StreamCut) -> Line:
    return {"stream": f"{cut.scope}/{cut.stream}", "positions": list(cut.positions.items())}


def _transaction(key: str, entry: Entry) -> Line:
    record = TransactionRecord.decode(entry.value or b"", entry.version, key)._asdict()
    stream_id, reference, segments = record.pop("routing")
    del record["version"], record["optional"]
    return {
        "kind": "transaction",
        "key": key,
        "stream_id": stream_id.hex(),
        "reference": reference,
        "segments": segments,
        **record,
    }


def _group(key: str, entry: Entry) -> Line:
    state = GroupState.decode(entry.value or b"", key)

    def positions(found: Mapping[GroupSegment, Any]) -> list[Any]:
        return [[*segment, value] for segment, value in found.items()]

    def stored(found: Mapping[str, tuple[StreamCut, ...]]) -> list[Any]:
        return [[name, list(map(_cut, cuts))] for name, cuts in found.items()]

    return {
        "kind": "group",
        "key": key,
        "streams": state.streams,
        "retention": state.retention,
        "lease": state.lease,
        "interval": state.interval,
        "max_outstanding": state.max_outstanding,
        "runs": list(state.runs.items()),
        "unassigned": positions(state.unassigned),
        "completed": positions(state.completed),
        "future": positions({each: sorted(missing) for each, missing in state.future.items()}),
        "ends": positions(state.ends),
        "starts": list(map(_cut, state.starts)),
        "checkpoints": stored(state.checkpoints),
        "silent": stored(state.silent),
        "readers": [[name, token, beat, positions(held)] for name, (token, beat, held) in state.readers.items()],
        "set_back": [[stream, time, _cut(cut)] for stream, (time, cut) in state.set_back.items()],
        "outstanding": [
            [run, name, sorted(waiting), positions(held)] for run, (name, waiting, held) in state.outstanding.items()
        ],
    }


def _times(key: str, entry: Entry) -> Line:
    if key.endswith("/watermarks"):
        scope, stream, _ = key.split("/")
        marks = [
            [lower, upper, _cut(StreamCut(scope, stream, positions))]
            for lower, upper, positions in decode_watermarks(entry.value or b"")
        ]
        return {"kind": "watermarks", "key": key, "watermarks": marks}
    noted = decode_marks(entry.value or b"")
    return {"kind": "times", "key": key, "highest": noted.highest, "writers": noted.writers}


_DECODED: dict[str, Callable[[str, Entry], Line]] = {
    SCOPES: lambda key, entry: {
        "kind": "scope",
        "key": key,
        "deleting": ScopeRecord.decode(entry.value or b"", key).deleting,
    },
    TRANSACTIONS: _transaction,
    GROUPS: _group,
    SUBSCRIBERS: lambda key, entry: {
        "kind": "subscriber",
        "key": key,
        "cut": _cut(StreamCut.from_bytes(entry.value or b"")),
    },
    MARKS: lambda key, entry: {"kind": "mark", "key": key, "cut": _cut(StreamCut.from_bytes(entry.value or b""))},
    TIMES: _times,
}


# --- what a newer version may add -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "key"), [(STREAMS, "Shop/fixed"), (GROUPS, "Shop/readers")])
def test_a_record_with_a_field_more_is_of_a_newer_version_and_stays_as_it_is(root: Path, table: str, key: str) -> None:
    """It is no damage: the remedy is an upgrade, and nothing may be deleted. And it is not read without the field, as
    the next change would lose it."""
    with StreamManager(root, create=False, settings=ALONE) as manager:
        container, entry = next(_found(manager, table, key))
        newer = msgpack.packb({**msgpack.unpackb(entry.value, strict_map_key=False), "newer": 1})
        container.put_entries(table, {key: newer})
    with StreamManager(root, create=False, settings=ALONE) as manager:
        with pytest.raises(UnknownFormat, match=r"'newer', which this version does not know: upgrade"):
            if table == STREAMS:
                manager.create_writer("Shop", "fixed")
            else:
                manager.get_reader_group("readers", "Shop").close()
        assert next(_found(manager, table, key))[1].value == newer
        assert len(list(manager.read_events("Shop", "con"))) > 0
        [finding] = [it for it in verify_root(manager.root).findings if it.severity is Severity.ERROR]
        assert "newer" in str(finding)


def _found(manager: StreamManager, table: str, key: str) -> Iterator[tuple[Container, Entry]]:
    for number in range(manager.root.config.containers):
        container = manager.root.container(number)
        entry = container.entry(table, key)
        if entry is not None:
            yield container, entry


def test_a_description_with_a_field_more_is_of_a_newer_version(root: Path) -> None:
    path = root / "_system/pravega.json"
    fields = {**json.loads(path.read_text()), "newer": 1}
    fields["checksum"] = checksum({name: value for name, value in fields.items() if name != "checksum"})
    path.write_text(json.dumps(fields))
    with pytest.raises(
        StorageRefused, match=r"pravega\.json: it has 'newer', which this version does not know: upgrade"
    ):
        StreamManager(root, create=False)
