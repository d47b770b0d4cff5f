"""Indexes that do not tell the truth of their events, and are made again from those."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest
from click.testing import CliRunner

from engine.errors import DataCorruption
from engine.root import Root
from engine.state.operations import Append, AttributeUpdate, Payload, UpdateKind
from engine.state.segments import EVENT_COUNT
from pravega_spark import StreamManager
from pravega_spark.checks import verify_root
from pravega_spark.cli.main import cli
from pravega_spark.errors import StreamError
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.index_repair import rebuild_indexes
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.index import encode_records
from pravega_spark.streams.stream import Stream

NAME, INDEX = "sc/st/0.#epoch.0", "sc/st/0.#epoch.0#index"
SOUND = [f"sound {number}" for number in range(50)]
HALF = [f"half {number}" for number in range(10)]
BEHIND = [f"behind {number}" for number in range(20)]


@pytest.fixture
def root(url: str) -> Iterator[Root]:
    with Root.open(url, containers=1) as root:
        yield root


@pytest.fixture
def manager(root: Root) -> StreamManager:
    """A stream in which an append has the bytes of ten events and the index records of five, and events behind it."""
    manager = StreamManager.over(root)
    manager.create_scope("sc")
    manager.create_stream("sc", "st", 1)
    write(manager, SOUND)
    framed = b"".join(struct.pack(">ii", 0, len(event)) + event.encode() for event in HALF)
    segments = Catalog(root).stream("sc", "st").snapshot().segments
    length, count = segments.length(0) + len(framed) // 2, len(SOUND) + 5
    five = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 5)
    records = np.array([[length, count, 1000, root.container(0).refresh().sequence]], np.int64)
    root.container(0).commit(
        [
            Append(INDEX, Payload(encode_records(records))),
            Append(NAME, Payload(framed), None, (five,)),
        ]
    )
    write(manager, BEHIND)
    return manager


def write(manager: StreamManager, events: list[str]) -> None:
    with manager.create_writer("sc", "st") as writer:
        writer.write_events(events)


def stream_of(root: Root) -> Stream:
    return Catalog(root).stream("sc", "st")


def check(manager: StreamManager, root: Root, events: list[str]) -> None:
    """The stream is as if nothing had ever been wrong, also to who has it open for long."""
    found = manager.read_events("sc", "st")
    assert [event.data.decode() for event in found] == events
    assert manager.stream_info("sc", "st").events == len(events)
    table = manager.read_events("sc", "st").to_arrow(["event", "timestamp", "event_number"])
    numbers = table["event_number"].to_pylist()
    assert numbers == list(range(numbers[0], numbers[0] + len(events)))
    assert not list(verify_root(root, deep=True).findings)


def test_what_verify_names_is_healed_by_the_command_that_it_tells(root: Root, manager: StreamManager, url: str) -> None:
    findings = list(verify_root(root, deep=True).findings)
    assert {finding.object for finding in findings} == {INDEX}
    assert "`pravega-spark stream rebuild-index`" in findings[0].remedy
    command = ["--root", url, "stream", "rebuild-index", "sc/st"]
    healed = CliRunner().invoke(cli, command)
    assert healed.exit_code == 0 and "75 events counted before, 80 events now" in healed.output
    check(manager, root, SOUND + HALF + BEHIND)
    head = root.container(0).refresh()
    again = CliRunner().invoke(cli, command)
    assert again.exit_code == 0 and "all indexes are right" in again.output
    assert root.container(0).refresh().segments[NAME] == head.segments[NAME]
    write(manager, ["more"])
    check(manager, root, [*SOUND, *HALF, *BEHIND, "more"])


def test_a_healed_stream_is_the_same_after_a_flush_and_an_opening(root: Root, manager: StreamManager, url: str) -> None:
    root.container(0).flush()
    manager.seal_stream("sc", "st")
    [changed] = rebuild_indexes(stream_of(root))
    assert (changed.before, changed.events) == (75, 80)
    root.container(0).flush()
    with Root.open(url) as other:
        check(StreamManager.over(other), other, SOUND + HALF + BEHIND)
        assert rebuild_indexes(stream_of(other)) == []


def test_a_truncated_stream_keeps_the_numbers_of_its_events(root: Root, manager: StreamManager) -> None:
    events = list(manager.read_events("sc", "st"))
    manager.truncate_stream("sc", "st", StreamCut("sc", "st", {0: events[30].offset}))
    rebuild_indexes(stream_of(root))
    rest = (SOUND + HALF + BEHIND)[30:]
    assert [event.data.decode() for event in manager.read_events("sc", "st")] == rest
    assert not list(verify_root(root, deep=True).findings)
    assert rebuild_indexes(stream_of(root)) == []


def test_who_writes_and_reads_meanwhile_goes_on(root: Root, manager: StreamManager) -> None:
    """A writer and a reader that knew the old index."""
    tail = manager.tail("sc", "st", "head", poll_interval=0.01)
    seen = [next(tail).data.decode() for _ in range(3)]
    with manager.create_writer("sc", "st") as writer:
        writer.write_event("before")
        writer.flush()
        rebuild_indexes(stream_of(root))
        writer.write_event("after")
        writer.flush()
    everything = [*SOUND, *HALF, *BEHIND, "before", "after"]
    seen += [next(tail).data.decode() for _ in range(len(everything) - 3)]
    assert seen == everything
    check(manager, root, everything)


def test_places_in_an_index_are_looked_up_again_once_it_was_made_again(root: Root, manager: StreamManager) -> None:
    held = stream_of(root)
    end = held.snapshot().segments.tail(0)  # kept as a position from which reading goes on
    rebuild_indexes(stream_of(root))
    write(manager, BEHIND)
    places = [each.snapshot().segments.index_position(0, end) for each in (held, stream_of(root))]
    assert places == [1, 1]  # three records before


def test_a_right_index_is_left_as_it_is(root: Root) -> None:
    manager = StreamManager.over(root)
    manager.create_scope("sc")
    manager.create_stream("sc", "st", 1)
    assert rebuild_indexes(stream_of(root)) == []
    for _ in range(30):
        write(manager, SOUND)
    with manager.begin_event("sc", "st") as event:
        event.write(bytes(9 << 20))
        event.commit()
    write(manager, SOUND)
    assert rebuild_indexes(stream_of(root)) == []


def test_large_events_are_found_by_an_index_that_was_made_again(root: Root, manager: StreamManager) -> None:
    with manager.begin_event("sc", "st") as event:
        event.write(bytes(20 << 20))
        event.commit()
    write(manager, ["last"])
    rebuild_indexes(stream_of(root))
    sizes = [event.size for event in manager.read_events("sc", "st")]
    assert sizes[-2:] == [20 << 20, 4] and len(sizes) == 82
    assert not list(verify_root(root, deep=True).findings)
    assert rebuild_indexes(stream_of(root)) == []


def test_bytes_that_are_no_events_get_no_index(root: Root, manager: StreamManager) -> None:
    end = stream_of(root).snapshot().segments.length(0)
    root.container(0).append(NAME, b"no event at all")
    with pytest.raises(DataCorruption, match=rf"stream sc/st, segment 0\.0, offset {end}: "):
        rebuild_indexes(stream_of(root))
    manager.create_stream("sc", "bytes", 1)
    with manager.create_byte_stream("sc", "bytes") as stream:
        stream.write(b"bytes")
    with pytest.raises(StreamError, match="sc/bytes is a byte stream"):
        rebuild_indexes(Catalog(root).stream("sc", "bytes"))
