"""Groups that end: at ending cuts, and with sealed streams. What they read when positions are given back."""

from __future__ import annotations

import pickle

import pytest

from engine.root import Root
from pravega_spark import InvalidStreamCut, Position, StreamCut, StreamManager, StreamRecreated
from pravega_spark.client.groups.config import StreamReaderGroupConfig
from pravega_spark.errors import StreamError
from tests.client.groups.reading import Clock, drained, grouped, halves, next_slice, numbered, payloads, run, write

pytestmark = pytest.mark.usefixtures("no_patience")


# --- sealed streams --------------------------------------------------------------------------------------------------


def test_a_sealed_stream_ends_for_all_readers(manager: StreamManager) -> None:
    write(manager, "four", numbered(40), key=None)
    group = manager.create_reader_group("rg", "sc", "four")
    readers = [group.create_reader(name) for name in "ab"]
    found = drained(readers[0]) + drained(readers[1])
    assert not next_slice(readers[0]).is_read_completed
    halves(manager, "four")
    write(manager, "four", numbered(40, 40), key=None)
    manager.seal_stream("sc", "four")
    for _ in range(6):
        found += drained(readers[0], 2) + drained(readers[1], 2)
    assert sorted(map(int, found)) == list(range(80))
    for reader in readers:
        part = next_slice(reader)
        assert part.is_read_completed and not part.is_checkpoint and list(part) == []
        read = reader.read_next_event(0)
        assert read.is_read_completed and read.event is None and "completely" in repr(read)
    assert group.segment_distribution() == ({"a": 0, "b": 0}, 0) and group.unread_bytes() == 0
    group.reset("earliest")
    assert len(drained(readers[0], 3) + drained(readers[1], 3) + drained(readers[0], 3)) == 80


def test_one_reader_knows_the_end_only_when_the_other_has_read_its_part(manager: StreamManager) -> None:
    manager.create_stream("sc", "two", 2)
    write(manager, "two", numbered(40), key=None)
    manager.seal_stream("sc", "two")
    group = manager.create_reader_group("rg", "sc", "two")
    fast, slow = group.create_reader("fast"), group.create_reader("slow")
    fast.record()
    slow.record()
    next_slice(fast)
    held = next_slice(slow) if group.segment_distribution().readers["slow"] else None
    for _ in range(3):
        part = next_slice(fast)
        payloads(part)
    if held is not None:
        assert not next_slice(fast).is_read_completed
        payloads(held)
    drained(slow, 2)
    assert next_slice(slow).is_read_completed and next_slice(fast).is_read_completed


def test_a_stream_of_the_name_of_one_that_was_read_completely_is_an_error(manager: StreamManager) -> None:
    write(manager, "one", ["a"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    manager.seal_stream("sc", "one")
    assert drained(reader, 2) == ["a"] and next_slice(reader).is_read_completed
    manager.delete_stream("sc", "one")
    assert next_slice(reader).is_read_completed
    manager.create_stream("sc", "one", 1)
    with pytest.raises(StreamRecreated, match="reset the reader group"):
        next_slice(reader)


# --- ending cuts -----------------------------------------------------------------------------------------------------


def ended(manager: StreamManager, end: StreamCut | str, stream: str = "one") -> StreamReaderGroupConfig:
    return StreamReaderGroupConfig(False, "sc", stream, end=end)


def test_readers_stop_at_the_ending_cut(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    halves(manager, "one")
    write(manager, "one", ["c", "d"])
    end = manager.stream_info("sc", "one").tail
    write(manager, "one", ["e"])
    halves(manager, "one")
    write(manager, "one", ["f"])
    group = manager.create_reader_group_with_config("rg", "sc", ended(manager, end.as_text()))
    readers = [group.create_reader(name) for name in "xy"]
    assert group.unread_bytes() == 36
    found = [event for _ in range(3) for reader in readers for event in drained(reader)]
    assert sorted(found) == ["a", "b", "c", "d"]
    assert all(next_slice(reader).is_read_completed for reader in readers)
    assert group.stream_cuts() == {"sc/one": end} and group.unread_bytes() == 0
    with pytest.raises(InvalidStreamCut):
        group.reset(manager.stream_info("sc", "one").tail)
    group.reset("earliest")
    assert sorted(event for _ in range(4) for reader in readers for event in drained(reader)) == ["a", "b", "c", "d"]
    with pytest.raises(StreamError, match=r"exists already, .* and ends"):
        manager.create_reader_group_with_config("rg", "sc", ended(manager, manager.stream_info("sc", "one").tail))
    manager.create_reader_group_with_config("rg", "sc", ended(manager, end))


def test_what_is_no_end_is_refused(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    for end in ({0: 5}, {0: 27}, {7: 0}):
        with pytest.raises(InvalidStreamCut):
            manager.create_reader_group_with_config("rg", "sc", ended(manager, StreamCut("sc", "one", end)))
    with pytest.raises(InvalidStreamCut, match="the stream cut belongs to sc/four"):
        ended(manager, StreamCut("sc", "four", {0: 0}))
    with pytest.raises(InvalidStreamCut, match="does not say of which stream"):
        ended(manager, "tail")
    with pytest.raises(InvalidStreamCut, match="lies before the start"):
        StreamReaderGroupConfig(
            False, "sc", "one", start=StreamCut("sc", "one", {0: 18}), end=StreamCut("sc", "one", {0: 9})
        )
    assert manager.list_reader_group("sc") == []


@pytest.mark.parametrize("gone", ["a part of the end's segment", "beyond the end"])
def test_truncation_beyond_the_end_ends_the_group_too(manager: StreamManager, gone: str) -> None:
    write(manager, "one", ["a", "b"])
    end = manager.stream_info("sc", "one").tail
    write(manager, "one", ["c", "d"])
    group = manager.create_reader_group_with_config("rg", "sc", ended(manager, end))
    reader = group.create_reader("r")
    if gone == "beyond the end":
        halves(manager, "one")
        write(manager, "one", ["e"])
        manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    else:
        manager.truncate_stream("sc", "one", StreamCut("sc", "one", {0: 27}))
    with pytest.raises(StreamError, match=r"sc/one, segment 0\.0"):
        next_slice(reader)
    assert drained(reader, 2) == [] and next_slice(reader).is_read_completed
    assert group.unread_bytes() == 0


# --- configurations --------------------------------------------------------------------------------------------------


def test_configurations_are_equal_if_they_say_the_same() -> None:
    cut = StreamCut("sc", "one", {0: 9})

    def config(*streams: str, **options: object) -> StreamReaderGroupConfig:
        return StreamReaderGroupConfig(False, "sc", *streams, **options)  # type: ignore[arg-type]

    assert config("one", "two") == config("two", "one", "two") and hash(config("one")) == hash(config("sc/one"))
    others: list[dict[str, object]] = [
        {}, {"retention": "manual"}, {"lease": 5}, {"start": cut}, {"start": "latest"}, {"end": cut},
        {"checkpoint_interval": 5}, {"max_outstanding_checkpoints": 5},
    ]  # fmt: skip
    assert len({config("one", **each) for each in others}) == len(others)
    assert config("one") != config("one", "two") and config("one") != StreamReaderGroupConfig(True, "sc", "one")
    assert config("one") != "one"


@pytest.mark.parametrize(
    ("option", "value"), [("checkpoint_interval", 0), ("checkpoint_interval", -1), ("max_outstanding_checkpoints", 0)]
)
def test_limits_of_checkpoints(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=option):
        StreamReaderGroupConfig(False, "sc", "one", **{option: value})  # type: ignore[arg-type]


# --- positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close_at", "offline here", "offline elsewhere"])
@pytest.mark.parametrize("which", ["before", "after"])
def test_others_continue_at_the_position_that_is_given(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock, how: str, which: str
) -> None:
    write(manager, "one", ["a", "b", "c", "d"])
    group, other = (grouped(root, clock) for root in roots)
    reader = group.create_reader("r")
    reads = [reader.read_next_event(0) for _ in range(3)]
    if which == "before":
        part = next_slice(reader)
        reader.record()  # which may have recorded more, once the slice is finished
        del part
    position = Position.from_bytes(reads[0 if which == "before" else 2].position.to_bytes())
    assert position == pickle.loads(pickle.dumps(position)) == reads[0 if which == "before" else 2].position
    if how == "close_at":
        reader.close_at(position)
        reader.close_at(position)
        assert reader.offline
    else:
        (group if how == "offline here" else other).reader_offline("r", position)
    assert other.online_readers() == []
    assert drained(other.create_reader("n")) == (["b", "c", "d"] if which == "before" else ["d"])


def test_a_position_may_lie_before_what_was_recorded(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b", "c"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    first = reader.read_next_event(0).position
    while reader.read_next_event(0).event is not None:
        pass
    reader.record()
    assert group.unread_bytes() == 0 and reader.position().offsets == {("sc/one", 0): 27}
    reader.close_at(first)
    assert group.unread_bytes() == 18 and drained(group.create_reader("r")) == ["b", "c"]


@pytest.mark.parametrize("offset", [5, 10, 1000])
def test_a_position_within_an_event_is_refused(manager: StreamManager, offset: int) -> None:
    write(manager, "one", ["a", "b"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    for call in (reader.close_at, lambda position: group.reader_offline("r", position)):
        with pytest.raises(InvalidStreamCut, match=rf"no event of segment 0\.0 of sc/one begins at offset {offset}"):
            call(Position({("sc/one", 0): offset}))
    assert not reader.offline
    reader.close_at(Position({("sc/one", 7): 5, ("sc/none", 0): 5}))  # what it does not have does not matter
    assert drained(group.create_reader("r")) == ["a", "b"]


@pytest.mark.parametrize("data", [b"", b"x", b"\x92\x02\x90", b"\x92\x01\x91\x93\xa1a\xff\x00"])
def test_what_is_no_position_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidStreamCut, match="no position of a reader"):
        Position.from_bytes(data)


# --- one event after the other ---------------------------------------------------------------------------------------


def test_events_one_after_the_other(manager: StreamManager) -> None:
    write(manager, "four", numbered(100), key=None)
    group = manager.create_reader_group("rg", "sc", "four")
    reader = group.create_reader("r", slice_events=7)
    found = []
    while (read := reader.read_next_event(0)).event is not None:
        found.append(int(read.event.data))
        assert read.event.pointer.segment_id == read.event.segment_id
    assert sorted(found) == list(range(100)) and not read.is_checkpoint and not read.is_read_completed
    assert repr(read) == "EventRead(None)"
    reader.record()
    assert group.unread_bytes() == 0
    piece = reader.get_segment_slice(0)
    assert list(piece) == [] and piece.segment is None
    reader.release_segment(piece)
    write(manager, "four", ["last"])
    piece = reader.get_segment_slice("5s")
    assert payloads(piece) == ["last"] and piece.segment is not None and piece.segment.stream == "sc/four"
    reader.release_segment(piece)

    async def work() -> list[str]:
        return payloads(await reader.get_segment_slice_async())

    assert run(work()) == []
