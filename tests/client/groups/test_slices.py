"""Slices of segments: what a reader gets, gives back and reads again."""

from __future__ import annotations

import asyncio
import gc
import pickle

import pytest

from engine.root import Root
from pravega_spark import Event, EventData, EventPointer, StreamManager
from pravega_spark.client.groups.slices import span_of
from pravega_spark.client.groups.state import ReaderOffline
from tests.client.groups.reading import Clock, drained, grouped, next_slice, numbered, payloads, run, write
from tests.support import limits

pytestmark = pytest.mark.usefixtures("no_patience")


def test_an_event_tells_where_it_lies(manager: StreamManager) -> None:
    write(manager, "one", ["first", ""])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    first, second = next_slice(reader)
    assert (first.data(), first.scope, first.stream, first.segment_id, first.offset()) == (b"first", "sc", "one", 0, 0)
    assert first.data == first.data() == first.value == b"first" and isinstance(first.data, bytes)
    assert first.offset == first.offset() == 0 and isinstance(second.offset, int) and second.offset + 1 == 14
    assert [first, second] == list(manager.read_events("sc", "one")) == list(manager.last_events("sc", "one"))
    assert {type(event) for event in (first, *manager.read_events("sc", "one"))} == {Event} and EventData is Event
    assert pickle.loads(pickle.dumps(first.data)) == b"first" and first.get_event(limit=5) == b"first"
    assert (second.data(), second.pointer) == (b"", EventPointer("sc", "one", 0, 13, 8))
    assert repr(first) == "Event(offset 0 data :b'first')"
    assert "'r' of 'sc/rg'" in repr(reader)


def test_nothing_to_read_gives_an_empty_slice(manager: StreamManager) -> None:
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    empty = next_slice(reader)
    assert list(empty) == []
    reader.release_segment(empty)
    reader.release_segment(empty)
    write(manager, "one", ["a"])
    assert drained(reader) == ["a"]
    manager.seal_stream("sc", "one")
    assert drained(reader) == []


def test_waits_for_events(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.slice_patience(monkeypatch, 100.0)
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")

    async def work() -> list[str]:
        waiting = asyncio.create_task(reader.get_segment_slice_async())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await asyncio.to_thread(write, manager, "one", ["late"])
        return payloads(await waiting)

    assert run(work()) == ["late"]


def test_while_a_slice_is_out_nothing_more_comes_from_its_segment(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    part = next_slice(reader)
    assert next(part).data() == b"a"
    assert list(next_slice(reader)) == []
    assert next(part).data() == b"b"
    write(manager, "one", ["c"])
    assert payloads(next_slice(reader)) == ["c"]  # all events of the first one were taken


def test_a_dropped_slice_is_returned(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b", "c"])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r")
    part = next_slice(reader)
    assert next(part).data() == b"a"
    del part
    gc.collect()
    assert payloads(next_slice(reader)) == ["b", "c"]


def test_what_was_not_released_is_read_again(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    assert payloads(next_slice(reader)) == ["a", "b"]
    reader.reader_offline()
    reader.reader_offline()
    assert drained(group.create_reader("r")) == ["a", "b"]


def test_an_offline_reader_delivers_and_takes_nothing(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader, other = group.create_reader("r"), group.create_reader("other")
    part = next_slice(reader)
    assert next(part).data() == b"a"
    with pytest.raises(ValueError, match="the slice belongs to"):
        other.release_segment(part)
    reader.reader_offline()
    for call in (lambda: next(part), lambda: reader.release_segment(part), lambda: next_slice(reader)):
        with pytest.raises(OSError, match="reader r is offline") as caught:
            call()
        assert isinstance(caught.value, ReaderOffline)
    assert drained(other, 2) == ["a", "b"]


def test_slices_of_a_backlog_come_in_turn_from_all_segments(
    manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.slice_bytes(monkeypatch, 20_000)
    write(manager, "four", ["x" * 100] * 4000, key=None)
    reader = manager.create_reader_group("rg", "sc", "four").create_reader("r")

    async def work() -> list[int]:
        return [next(await reader.get_segment_slice_async()).segment_id for _ in range(8)]

    found = run(work())
    assert sorted(found[:4]) == [0, 1, 2, 3]
    assert found[4:] == found[:4]


# --- bounds --------------------------------------------------------------------------------------------------------


def test_a_slice_holds_no_more_events_than_the_reader_allows(manager: StreamManager) -> None:
    write(manager, "one", numbered(25))
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r", slice_events=10)
    sizes = []
    for _ in range(3):
        part = next_slice(reader)
        sizes.append(len(payloads(part)))
        reader.release_segment(part)
    assert sizes == [10, 10, 5]


def test_a_slice_holds_about_as_many_bytes_as_the_reader_allows(manager: StreamManager) -> None:
    write(manager, "one", [str(number).rjust(1000) for number in range(200)])
    reader = manager.create_reader_group("rg", "sc", "one").create_reader("r", slice_bytes="32KiB")
    part = next_slice(reader)
    assert 32 <= len(payloads(part)) <= 60


def test_a_slice_ends_after_some_time_and_the_next_one_goes_on(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    """Each event takes a second. A killed reader costs its slice: what was released was recorded."""
    write(manager, "one", numbered(30))
    reader = grouped(roots[0], clock).create_reader("r", slice_time=5)
    found: list[list[str]] = []
    for _ in range(3):
        part = next_slice(reader)
        found.append([])
        for event in part:
            found[-1].append(event.data.decode())
            clock.now += 1
        reader.release_segment(part)
    assert found == [numbered(5), numbered(5, 5), numbered(5, 10)]
    next(next_slice(reader))  # and now it is gone
    reader.record()
    other = grouped(roots[1], clock).create_reader("other")
    assert list(next_slice(other)) == []
    clock.now += 60
    assert drained(other, 2) == numbered(15, 15)


def test_slices_that_end_by_time_hold_less_until_one_is_read_to_its_end(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    """So that a slow reader does not read the same bytes again and again."""
    write(manager, "one", [str(number).rjust(1000) for number in range(1000)])
    reader = grouped(roots[0], clock).create_reader("r", slice_time=10)
    sizes = []
    for slow in (True, False, False):
        part = next_slice(reader)
        sizes.append(span_of(part).end - span_of(part).start)
        next(part)
        clock.now += 10 * slow
        list(part)
        reader.release_segment(part)
    assert sizes[0] == 1008 * 1000 and sizes[1] < 90_000 < sizes[2] < 200_000


@pytest.mark.parametrize("bound", ["slice_bytes", "slice_events", "slice_time"])
def test_a_bound_is_above_nothing(manager: StreamManager, bound: str) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    with pytest.raises(ValueError, match=f"create_reader: {bound} must be above 0, not 0"):
        group.create_reader("r", **{bound: 0})
    assert group.online_readers() == []
