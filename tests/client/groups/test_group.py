"""Reader groups as the original's own tests use them; made, deleted, damaged."""

from __future__ import annotations

import pickle
import threading

import pytest

from engine.errors import DataCorruption
from engine.state.operations import PutEntry
from pravega_spark import InvalidStreamCut, StreamCut, StreamManager, StreamNotFound
from pravega_spark.client.groups.config import StreamCuts, StreamReaderGroupConfig
from pravega_spark.client.groups.entry import GROUPS, GroupConfigMismatch, GroupNotFound
from pravega_spark.client.groups.group import StreamReaderGroup
from pravega_spark.client.groups.opening import open_group
from pravega_spark.client.groups.state import ReaderOffline, ReaderOnline
from pravega_spark.errors import ScopeNotFound, StreamError
from pravega_spark.streams.maintenance.subscribers import NotSubscribed
from pravega_spark.streams.model.names import container_of
from tests.client.groups.reading import drained, next_slice, numbered, payloads, run, write
from tests.support import limits

pytestmark = pytest.mark.usefixtures("no_patience")


# --- as the original's own tests do ----------------------------------------------------------------------------------


def test_write_and_read(manager: StreamManager) -> None:
    write(manager, "one", ["test event", "test event"])
    config = StreamReaderGroupConfig(False, "sc", "one")
    reader = manager.create_reader_group_with_config("rg", "sc", config).create_reader("reader-1")
    assert payloads(next_slice(reader)) == ["test event"] * 2


def test_read_from_the_tail(manager: StreamManager) -> None:
    write(manager, "one", ["test event", "test event"])
    config = StreamReaderGroupConfig(True, "sc", "one")
    group = manager.create_reader_group_with_config("rg", "sc", config)
    reader = group.create_reader("reader-1")
    write(manager, "one", ["at the tail", "at the tail"])
    assert payloads(next_slice(reader)) == ["at the tail"] * 2
    group.reader_offline("reader-1")
    group.reader_offline("reader-1")
    manager.delete_reader_group("rg", "sc")


def test_multiple_readers(manager: StreamManager) -> None:
    manager.create_stream("sc", "two", 2)
    write(manager, "two", ["data"] * 100, key=None)
    group = manager.create_reader_group("rg", "sc", "two")
    first = group.create_reader("r1")
    part = next_slice(first)
    count = len(payloads(part))
    first.release_segment(part)
    first.reader_offline()
    count += len(payloads(next_slice(group.create_reader("r2"))))
    assert count == 100


def test_multiple_readers_and_a_slice_read_in_part(manager: StreamManager) -> None:
    manager.create_stream("sc", "two", 2)
    write(manager, "two", numbered(100), key=None)
    group = manager.create_reader_group("rg", "sc", "two")
    first = group.create_reader("r1")
    part = next_slice(first)
    found = [next(part).data().decode()]
    first.release_segment(part)
    assert list(part) == []
    first.reader_offline()
    second = group.create_reader("r2")
    found += payloads(next_slice(second))
    found += payloads(next_slice(second))
    assert sorted(map(int, found)) == list(range(100))


def test_large_events(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.slice_bytes(monkeypatch, 300_000)
    events = [str(number) * 50_000 for number in range(10, 40)]
    write(manager, "one", events)
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("reader-1")

    async def work() -> list[list[str]]:
        slices: list[list[str]] = []
        while sum(map(len, slices)) < len(events):
            part = await reader.get_segment_slice_async()
            slices.append(payloads(part))
            reader.release_segment(part)
        return slices

    slices = run(work())
    assert [event for part in slices for event in part] == events
    assert len(slices) > 6
    assert all(1 < len(part) < 5 for part in slices[:-1])


def test_streamcut_of_a_group(manager: StreamManager) -> None:
    write(manager, "one", ["event1", "event2"])
    cut = manager.create_reader_group("rg", "sc", "one", True).get_streamcut()
    assert cut.get_segment_offset_map() == {0: 28}
    assert cut.to_str() == "StreamCuts: sc/one:0.0=28"
    assert "StreamCuts: sc/one:0.0=28" in repr(cut)
    write(manager, "one", ["event3", "event4", "event5"])
    expected = ["event3", "event4", "event5"]
    again = manager.create_reader_group("rg", "sc", "one", False, cut)  # goes on where it is
    assert payloads(next_slice(again.create_reader("reader-1"))) == expected
    other = manager.create_reader_group("other", "sc", "one", False, cut)
    assert drained(other.create_reader("reader-1")) == expected
    third = manager.create_reader_group("third", "sc", "one", stream_cut=cut.stream_cut)
    assert drained(third.create_reader("reader-1")) == expected
    assert isinstance(cut, StreamCuts)


# --- groups ----------------------------------------------------------------------------------------------------------


def test_groups_are_made_once_and_deleted(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    with pytest.raises(GroupConfigMismatch, match="reader group sc/rg exists already, with streams sc/one"):
        manager.create_reader_group("rg", "sc", "four")
    for config in (
        StreamReaderGroupConfig(False, "sc", "one", retention="manual"),
        StreamReaderGroupConfig(False, "sc", "one", lease=1.0),
    ):
        with pytest.raises(StreamError, match="exists already"):
            manager.create_reader_group_with_config("rg", "sc", config)
    manager.delete_reader_group("rg", "sc")
    with pytest.raises(ReaderOffline):
        next_slice(reader)
    calls = (
        lambda: manager.delete_reader_group("rg", "sc"),
        lambda: group.create_reader("x"),
        lambda: group.reader_offline("r"),
        group.stream_cuts,
    )
    for call in calls:
        with pytest.raises(GroupNotFound, match="Reader group does not exist: sc/rg"):
            call()
    manager.create_reader_group("rg", "sc", "four").create_reader("r")


def test_a_group_knows_its_name_and_who_has_its_segments(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "four")
    assert (group.scope, group.name) == ("sc", "rg")
    assert group.segment_distribution().unassigned == 4 and group.segment_distribution().readers == {}
    reader = group.create_reader("a")
    assert group.segment_distribution().unassigned == 0 and group.segment_distribution().readers == {"a": 4}
    reader.reader_offline()
    assert group.segment_distribution().unassigned == 4
    opened = manager.get_reader_group("rg", "sc")
    assert (opened.scope, opened.name) == ("sc", "rg")


def test_what_cannot_be_a_group(manager: StreamManager) -> None:
    with pytest.raises(ValueError, match="No Pravega Streams present in the ReaderGroupConfiguration"):
        StreamReaderGroupConfig(False, "sc")
    with pytest.raises(ValueError, match=r"lease must be at least 1 seconds, not 0\.9: a reader gives a sign"):
        StreamReaderGroupConfig(False, "sc", "one", lease=0.9)
    with pytest.raises(ValueError, match="retention must be"):
        StreamReaderGroupConfig(False, "sc", "one", retention="all")  # type: ignore[arg-type]
    with pytest.raises(InvalidStreamCut, match="the stream cut belongs to sc/four"):
        StreamReaderGroupConfig(False, "sc", "one", start=[StreamCut("sc", "four", {0: 0})])
    with pytest.raises(ValueError, match="The reader group name 'a b' has the character ' '"):
        manager.create_reader_group("a b", "sc", "one")
    with pytest.raises(ScopeNotFound):
        manager.create_reader_group("rg", "none", "one")
    with pytest.raises(StreamNotFound):
        manager.create_reader_group("rg", "sc", "none")
    config = StreamReaderGroupConfig(True, "sc", "one", "four")
    assert config.to_str() == "ReaderGroupConfig: sc/one, sc/four from tail, retention none"
    assert config.to_str() in repr(config)


def test_a_damaged_state_is_an_error(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    container = manager.root.container(container_of("sc/rg", manager.root.config.containers))
    container.commit([PutEntry(GROUPS, "sc/rg", b"\x00")])
    with pytest.raises(DataCorruption, match="reader group sc/rg: it cannot be understood"):
        next_slice(reader)
    with pytest.raises(DataCorruption):
        manager.create_reader_group("rg", "sc", "one")
    container.commit([PutEntry(GROUPS, "sc/rg", None)])


@pytest.mark.parametrize(
    "error",
    [ReaderOffline("r"), ReaderOnline("r"), GroupNotFound("sc/rg"), NotSubscribed("sc/st", "rg")],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_closed_group_schedules_nothing(manager: StreamManager) -> None:
    manager.create_reader_group("rg", "sc", "one")
    opened = open_group(manager.root, "sc", "rg")
    StreamReaderGroup(opened).close()
    opened.later(60, lambda: None)
    assert not [each for each in threading.enumerate() if isinstance(each, threading.Timer) and each.is_alive()]
