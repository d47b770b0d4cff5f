"""Somebody deleted objects by hand: whoever reads what was in them is told which, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chunkstore import StorageRefused
from chunkstore.errors import DeclaredError, fact_of
from engine.root import Root
from pravega_spark import ByteStreamError, DataCorruption, ObjectLost, StreamManager, UnknownFormat
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog

REMEDY = (
    r"though the container's state names it\. Restore the object from a copy\. `pravega-spark (--root \S+ )?verify "
    r"--deep` (tells|lists) all that is damaged or missing: restore it from a backup \(docs/operations\.md, When "
    r"something fails\)\."
)


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[StreamManager]:
    """A manager of a root with two streams, whose data were in chunks that are gone."""
    url = str(tmp_path)
    with StreamManager(url) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "t")
        with manager.create_writer("s", "t") as writer:
            writer.write_events([b"event" * 100] * 100, ["key"] * 100)
        manager.create_stream("s", "bytes")
        with manager.create_byte_stream("s", "bytes") as stream:
            stream.write(b"byte" * 100)
    with Root.open(url) as root:
        for name in ("t", "bytes"):
            Catalog(root).stream("s", name).container.flush()
    for path in (tmp_path / "s").rglob("*"):
        if path.is_file() and "#index" not in path.name:
            path.unlink()
    with StreamManager(url) as manager:
        yield manager


def events(manager: StreamManager) -> object:
    return list(manager.read_events("s", "t"))


def columns(manager: StreamManager) -> object:
    return manager.to_arrow("s", "t")


def raw(manager: StreamManager) -> object:
    return manager.create_byte_stream("s", "bytes").read(10)


def last(manager: StreamManager) -> object:
    return list(manager.last_events("s", "t"))


@pytest.mark.parametrize("read", [events, columns, raw, last])
def test_each_way_of_reading_says_what_is_gone(damaged: StreamManager, read: Callable[[StreamManager], object]) -> None:
    with pytest.raises((ObjectLost, ByteStreamError), match=REMEDY) as caught:
        read(damaged)
    assert "/0.#epoch.0." in str(caught.value)


@pytest.mark.parametrize("read", [events, columns, last])
def test_each_way_of_reading_says_how_to_read_the_rest(
    damaged: StreamManager, tmp_path: Path, read: Callable[[StreamManager], object]
) -> None:
    with pytest.raises(ObjectLost) as caught:
        read(damaged)
    told, command = str(caught.value), f"`pravega-spark --root file://{tmp_path}"
    assert f"{command} verify --deep`" in told and f"{command} stream cuts s/t`" in told
    assert "It was met in stream s/t" in told and "'fail_on_data_loss' does not skip damage" in told


def test_damage_is_not_skipped_by_spark_either(damaged: StreamManager, tmp_path: Path) -> None:
    given = {"controller": str(tmp_path), "scope": "s", "stream": "t", "fail_on_data_loss": "false"}
    reader = BatchReader(SourceOptions.parse(given, {}), None)
    with pytest.raises(ObjectLost, match="'fail_on_data_loss' does not skip damage"):
        [list(reader.read(each)) for each in reader.partitions()]


@pytest.mark.parametrize("kind", ["chunk", "index", "frame", "checkpoint"])
@pytest.mark.parametrize("garbled", [True, False], ids=["garbled", "cut off"])
def test_what_is_not_what_was_written_says_what_to_do(tmp_path: Path, kind: str, garbled: bool) -> None:
    url = str(tmp_path)
    with StreamManager(url) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "t")
        with manager.create_writer("s", "t") as writer:
            writer.write_events([b"event" * 100] * 100, ["key"] * 100)
    with Root.open(url) as root:
        Catalog(root).stream("s", "t").container.flush()
    with StreamManager(url) as manager, manager.create_writer("s", "t") as writer:
        writer.write_event("one more, in a frame")
    pattern = {"chunk": "s/t/*[!x].E-*", "index": "s/t/*#index*", "frame": "_system/containers/*/wal/*/*"}
    for path in tmp_path.glob(pattern.get(kind, "_system/containers/*/checkpoints/*/*")):
        content = path.read_bytes()
        path.write_bytes(bytes(byte ^ 0x5A for byte in content) if garbled else content[: len(content) // 2])
    with StreamManager(url) as manager, pytest.raises(DeclaredError) as caught:
        events(manager)
        last(manager)
        pytest.skip("nothing of it was needed")
    assert "all that is damaged or missing: restore it" in str(caught.value)


def test_a_description_that_is_not_what_was_written_says_what_to_do(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("s")
    (tmp_path / "_system" / "pravega.json").write_text("{")
    with pytest.raises(StorageRefused, match=r"does not describe a root of streams: .*\. Restore it from a copy$"):
        StreamManager(str(tmp_path)).list_scope()


def test_what_to_do_is_told_once() -> None:
    assert str(DataCorruption("a.")) == f"a. {DataCorruption.remedy}" and fact_of(DataCorruption("a.")) == "a."
    assert str(UnknownFormat("a")) == "a. It is undamaged: upgrade this installation to read it."
