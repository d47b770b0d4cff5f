"""A root with content that nobody understands, under valid checksums: `verify` goes on, tells of it, and never dies."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import msgpack
import pytest

from chunkstore import Store
from chunkstore.checksums import crc32c
from chunkstore.testing import SimulatedStore
from engine.admin.verify import Report, Severity, verify
from engine.errors import DataCorruption, EngineError, UnknownFormat
from engine.logs import checkpoints, frames
from engine.logs.log import checkpoint_path, frame_path
from engine.root import Root, RootConfig
from engine.state.operations import PutEntry
from engine.state.tables import METADATA, STORAGE
from pravega_spark.checks import CONTENT_CHECKS, ENTRY_CHECKS
from pravega_spark.client.manager import StreamManager
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.system_tables import STREAMS, TRANSACTIONS
from tests.fuzz import mutators
from tests.fuzz.engine_parsers import lived
from tests.support.simulation import Simulation, small_sizes

USUAL, LONG = 25, 5_000


def root_of(store: Store) -> Root:
    from engine.settings import Settings
    from engine.storage.object_reads import Stores

    return Root(Stores(store, store), RootConfig("0" * 32, containers=1), Settings(maintenance=False, threaded=False))


def verified(store: Store) -> Report:
    with root_of(store) as root:
        return verify(root, deep=True, content_checks=CONTENT_CHECKS, entry_checks=ENTRY_CHECKS)


def told(report: Report, what: str) -> list[str]:
    return [finding.problem for finding in report.findings if what in f"{finding.object}: {finding.problem}"]


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


def resealed(path: str, data: bytes, dice: random.Random) -> bytes:
    """The object with other content, under checksums that are right."""
    if "/wal/" in path:
        end = frames.meta_end(data, path, 0)
        meta = mutators.of_msgpack(dice, [data[frames.HEADER : end]])
        fields = list(frames.BODY.unpack_from(data))
        fields[11:13] = len(meta), crc32c(meta)
        body = frames.BODY.pack(*fields)
        return body + struct.pack(">I", crc32c(body)) + meta + data[end:]
    body = mutators.of_msgpack(dice, [data[checkpoints.HEADER :]])
    prefix = data[: checkpoints.HEADER - 4]
    return prefix + crc32c(body, crc32c(prefix)).to_bytes(4, "big") + body


def survived(count: int, seed: int) -> None:
    """Give `count` objects of a log other content, one at a time: a verification ends, and so does an opening."""
    simulation, dice = lived(), random.Random(seed)
    store, clean = simulation.store, verified(simulation.store)
    assert not clean.errors
    paths = [info.path for info in store.list("") if "/wal/" in info.path or "/checkpoints/" in info.path]
    wrong = 0
    for _ in range(count):
        path = dice.choice(paths)
        data = store.read(path)
        store.put(path, resealed(path, data, dice))
        report = verified(store)
        wrong += bool(report.errors)
        try:
            container = simulation.open()
            container.refresh()
            list(container.state.segments.values())
        except EngineError as error:
            assert isinstance(error, DataCorruption) or error.__cause__ is not None
            assert report.errors, f"{path}: {error}"
        store.put(path, data)
    assert wrong > count // 4


def test_content_of_the_log_that_nobody_understands_is_told() -> None:
    survived(USUAL, 0)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_content_of_the_log_that_nobody_understands_is_told_at_length() -> None:
    survived(LONG, 1)


def test_a_segment_in_a_checkpoint_that_nobody_understands_is_told() -> None:
    """It is looked at when it is asked for: everybody who does hears of it, and the verification goes on."""
    simulation = lived()
    simulation.open().checkpoint()  # no frame comes behind it, so that nothing has to be applied to what is broken
    path = [info.path for info in simulation.store.list("") if "/checkpoints/" in info.path][-1]
    data = simulation.store.read(path)
    head, plain, parts = msgpack.unpackb(data[checkpoints.HEADER :], strict_map_key=False)
    for name, fields in plain[4].items():
        length, fields[3] = fields[3], "long"
        body, prefix = msgpack.packb([head, plain, parts]), data[: checkpoints.HEADER - 4]
        simulation.store.put(path, prefix + crc32c(body, crc32c(prefix)).to_bytes(4, "big") + body)
        fields[3] = length
        with pytest.raises(DataCorruption, match=f"{path}: it cannot be understood: 'long' stands where"):
            simulation.open().info(name)
        report = verified(simulation.store)
        assert told(report, "'long' stands where") and report.containers, "it was opened, and not looked at"


def newer(store: SimulatedStore, path: str) -> None:
    """Let an object of the log be one of format 2, its checksums right."""
    data = bytearray(store.read(path))
    data[28] = 2
    if "/wal/" in path:
        body = frames.BODY.size
        data[body : body + 4] = crc32c(bytes(data[:body])).to_bytes(4, "big")
    else:
        prefix = checkpoints.HEADER - 4
        sealed = crc32c(bytes(data[checkpoints.HEADER :]), crc32c(bytes(data[:prefix])))
        data[prefix : checkpoints.HEADER] = sealed.to_bytes(4, "big")
    store.put(path, bytes(data))


def test_a_frame_and_a_checkpoint_of_a_newer_version_say_so() -> None:
    for kind in ("frame", "checkpoint"):
        simulation = lived()
        container = simulation.open()
        head, at = container.head.address, container.state.checkpoint
        target = frame_path(0, head) if kind == "frame" else checkpoint_path(0, at)
        newer(simulation.store, target)
        with pytest.raises(EngineError) as raised:
            simulation.open().refresh()
        cause = raised.value if isinstance(raised.value, UnknownFormat) else raised.value.__cause__
        assert isinstance(cause, UnknownFormat) and target in str(cause) and "upgrade" in str(cause)
        assert told(verified(simulation.store), "format 2; this version reads format 1: upgrade")


def test_an_operation_of_a_newer_version_stops_whoever_follows_and_loses_nothing() -> None:
    """Whoever met it hears of it again and again, never a state that lacks it."""
    simulation = Simulation()
    container = simulation.open()
    container.create_segment("s/a")
    other = simulation.open()
    position = container.log.processor.log.upcoming()
    meta = bytes(msgpack.packb([[7, [[77, "s/a"]]]]))
    data = b"".join(frames.encode(0, position, 1, container.head, meta))
    simulation.store.put(frame_path(0, position.address), data)
    for _ in range(3):
        with pytest.raises(EngineError, match=r"operation 77, which this version does not know: upgrade"):
            other.refresh()
    report = verified(simulation.store)
    assert told(report, frame_path(0, position.address)) and told(report, "operation 77")


NONSENSE = (b"", b"\xc1", b"\x80", b"\x91\x02", bytes(msgpack.packb({"format": 2})), bytes(msgpack.packb([2, 3])))


@pytest.mark.parametrize("table", [*ENTRY_CHECKS, METADATA, STORAGE])
def test_entries_that_nobody_understands_are_told(table: str) -> None:
    simulation = lived()
    container = simulation.open()
    keys = [f"s/x{number}/{number}" for number in range(len(NONSENSE))]
    container.commit([PutEntry(table, key, data) for key, data in zip(keys, NONSENSE, strict=True)])
    container.flush()
    report = verified(simulation.store)
    for key in keys:
        assert told(report, key), key


def test_a_record_of_a_newer_version_is_told_by_name(tmp_path: object) -> None:
    """By everybody who uses the stream, not as nonsense but as what it is."""
    with StreamManager(f"memory://{id(tmp_path)}") as manager:
        manager.create_scope("s")
        manager.create_stream("s", "a")
        stream = Catalog(manager.root).stream("s", "a")
        record = {**msgpack.unpackb(stream.snapshot().record.encode(), strict_map_key=False), "format": 2}
        stream.container.commit([PutEntry(STREAMS, "s/a", msgpack.packb(record))])
        for use in (lambda: manager.stream_info("s", "a"), lambda: manager.create_writer("s", "a")):
            with pytest.raises(UnknownFormat, match=r"stream s/a: .* format 2; this version reads format 1: upgrade"):
                use()
        manager.create_stream("s", "b")
        other = Catalog(manager.root).stream("s", "b")
        other.container.commit([PutEntry(TRANSACTIONS, "s/b/" + "0" * 32, msgpack.packb([2, "new"]))])
        report = verify(manager.root, content_checks=CONTENT_CHECKS, entry_checks=ENTRY_CHECKS)
        assert {finding.severity for finding in report.findings} == {Severity.ERROR}
        assert told(report, "stream s/a: its record") and told(report, "transaction s/b/" + "0" * 32)
