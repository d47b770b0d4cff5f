"""Groups on streams that are scaled, truncated or deleted."""

from __future__ import annotations

import asyncio

import pytest

from pravega_spark import StreamManager, StreamNotFound, StreamRecreated, StreamScalingPolicy, TruncatedData
from pravega_spark.client.groups.reader import StreamReader
from pravega_spark.streams.model.index import IndexReader, IndexRecord
from tests.client.groups.reading import drained, halves, next_slice, numbered, payloads, run, share, write
from tests.support import limits

pytestmark = pytest.mark.usefixtures("no_patience")


def whole(manager: StreamManager, stream: str) -> None:
    """Merge all segments into one."""
    manager.scale_stream("sc", stream, [one.id for one in manager.stream_info("sc", stream).segments], [(0.0, 1.0)])


def create_two(manager: StreamManager) -> None:
    """A stream of two segments that may be merged."""
    manager.create_stream("sc", "two", 2)
    manager.set_scaling("sc", "two", StreamScalingPolicy.auto_scaling_policy_by_event_rate(10**6, 2, 1))


def write_keyed(manager: StreamManager, stream: str, start: int, count: int) -> None:
    with manager.create_writer("sc", stream) as writer:
        for number in range(start, start + count):
            writer.write_event(f"{number % 10}:{number}", str(number % 10))


def test_keys_keep_their_order_across_scaling_and_readers(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    readers = [group.create_reader(name) for name in "abc"]
    expected = 600
    found: list[str] = []

    async def read(reader: StreamReader) -> None:
        while len(found) < expected:
            part = await reader.get_segment_slice_async()
            found.extend(payloads(part))
            reader.release_segment(part)

    def work() -> None:
        for step, change in enumerate((halves, halves, whole, halves, whole, None)):
            write_keyed(manager, "one", step * 100, 100)
            if change is not None:
                change(manager, "one")

    async def everybody() -> None:
        await asyncio.gather(asyncio.to_thread(work), *map(read, readers))

    run(everybody())
    assert len(found) == expected
    for key in range(10):
        numbers = [int(text.split(":")[1]) for text in found if text.startswith(f"{key}:")]
        assert numbers == list(range(key, expected, 10))
    for reader in readers:
        reader.reader_offline()
    assert group.stream_cuts()["sc/one"] == manager.stream_info("sc", "one").tail
    assert group.unread_bytes() == 0


def test_a_merged_segment_waits_for_the_slower_reader(manager: StreamManager) -> None:
    create_two(manager)
    write(manager, "two", numbered(40), key=None)
    group = manager.create_reader_group("rg", "sc", "two")
    fast, slow = group.create_reader("fast"), group.create_reader("slow")
    share(fast, slow)
    late = next_slice(slow)
    whole(manager, "two")
    write(manager, "two", ["after"])
    early = drained(fast, 3)
    cut = group.stream_cuts()["sc/two"]
    behind = [event.data.decode() for event in manager.read_events("sc", "two", cut)]
    assert behind[-1] == "after"
    assert sorted(map(int, early + behind[:-1])) == list(range(40))
    assert sum(len(text) + 8 for text in behind) == group.unread_bytes()
    assert payloads(late) == behind[:-1]
    slow.release_segment(late)
    assert drained(slow, 2) + drained(fast, 2) == ["after"]


def test_what_was_truncated_is_an_error_once(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    part = next_slice(reader)
    next(part)
    reader.release_segment(part)
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    write(manager, "one", ["c"])
    with pytest.raises(TruncatedData, match=r"sc/one, segment 0\.0: the data between offsets 9 and 18"):
        next_slice(reader)
    assert drained(reader) == ["c"]


def test_the_index_may_be_truncated_while_a_reader_looks_for_the_end_of_a_slice(
    manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.slice_bytes(monkeypatch, 1000)
    for number in range(0, 100, 10):
        write(manager, "one", [f"{each:0500}" for each in range(number, number + 10)])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    tail = manager.stream_info("sc", "one").tail
    write(manager, "one", ["last"])
    locate = IndexReader.locate_offset

    def truncated(index: IndexReader, offset: int) -> IndexRecord | None:
        monkeypatch.setattr(IndexReader, "locate_offset", locate)  # truncation looks too
        manager.truncate_stream("sc", "one", tail)
        return locate(index, offset)

    monkeypatch.setattr(IndexReader, "locate_offset", truncated)
    with pytest.raises(TruncatedData, match="has been truncated"):
        next_slice(reader)
    assert drained(reader) == ["last"]


def test_whole_segments_may_be_truncated(manager: StreamManager) -> None:
    create_two(manager)
    write(manager, "two", numbered(40), key=None)
    group = manager.create_reader_group("rg", "sc", "two")
    readers = group.create_reader("a"), group.create_reader("b")
    share(*readers)
    whole(manager, "two")
    halves(manager, "two")
    write(manager, "two", ["lost"])
    tail = manager.stream_info("sc", "two").tail
    write(manager, "two", numbered(40, 100), key=None)
    manager.truncate_stream("sc", "two", tail)
    losses = []
    for _ in range(2):
        with pytest.raises(TruncatedData, match="the data from offset 0 on has been truncated") as caught:
            next_slice(readers[0])  # tells of both, one after the other
        losses.append((caught.value.segment_id, caught.value.start))
    assert losses == [(0, 0), (1, 0)]
    found = drained(readers[0], 2) + drained(readers[1], 2) + drained(readers[0], 2)
    assert sorted(map(int, found)) == list(range(100, 140))
    assert group.unread_bytes() == 0


def test_nothing_is_lost_for_who_had_read_everything(manager: StreamManager) -> None:
    write(manager, "one", ["a"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    assert drained(reader) == ["a"]
    halves(manager, "one")
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    write(manager, "one", ["b"])
    assert drained(reader) == ["b"]


def test_a_deleted_stream(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    manager.seal_stream("sc", "one")
    manager.delete_stream("sc", "one")
    with pytest.raises(StreamNotFound, match="sc/one"):
        next_slice(reader)
    manager.create_stream("sc", "one", 1)
    write(manager, "one", ["new"])
    for _ in range(2):
        with pytest.raises(StreamRecreated, match="reset the reader group"):
            next_slice(reader)
    group.reset("head")
    assert drained(reader, 2) == ["new"]
