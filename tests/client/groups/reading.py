"""Groups of readers as tests use them: events written, read and released."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.client.groups.config import StreamReaderGroupConfig
from pravega_spark.client.groups.entry import GroupEntry
from pravega_spark.client.groups.group import StreamReaderGroup
from pravega_spark.client.groups.open_group import OpenGroup
from pravega_spark.client.groups.opening import create_group
from pravega_spark.client.groups.reader import StreamReader
from pravega_spark.client.groups.slices import SegmentSlice
from pravega_spark.client.groups.state import GroupState

T = TypeVar("T")


class Clock:
    """A clock that only tests move. groups: those that go by it, and end with it: their leases never expire."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.groups: list[OpenGroup] = []

    def __call__(self) -> float:
        return self.now


def write(manager: StreamManager, stream: str, events: Sequence[str], key: str | None = "key") -> None:
    with manager.create_writer("sc", stream) as writer:
        for event in events:
            writer.write_event(event, key)


def numbered(count: int, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def next_slice(reader: StreamReader) -> SegmentSlice:
    return run(reader.get_segment_slice_async())


def payloads(events: Iterator[Any]) -> list[str]:
    return [event.data().decode() for event in events]


def drained(reader: StreamReader, empty: int = 1) -> list[str]:
    """All that a reader gets until `empty` slices in turn are empty."""

    async def work() -> list[str]:
        found: list[str] = []
        left = empty
        while left:
            part = await reader.get_segment_slice_async()
            events = payloads(part)
            reader.release_segment(part)
            found += events
            left = empty if events else left - 1
        return found

    return run(work())


def segment_of(manager: StreamManager, stream: str, index: int) -> int:
    return manager.stream_info("sc", stream).segments[index].id


def share(*readers: StreamReader) -> None:
    """Let all readers look at the group until each has its share, and has read nothing."""
    members = [reader._member for reader in readers]
    for _ in range(3):
        for member in members:
            member.sync()
    state = members[0].group.entry.state()
    held = {len(reader.positions) for reader in state.readers.values()}
    assert held == {len(state.positions()) // len(readers)}


def stored(root: Root) -> GroupState:
    """The state of the group as it is stored."""
    return GroupEntry(root, "sc/rg").state()


def segments_held(group: StreamReaderGroup) -> dict[str, int]:
    return dict(group.segment_distribution().readers)


def grouped(root: Root, clock: Clock, stream: str = "one", lease: float = 60.0, **config: Any) -> StreamReaderGroup:
    settings = StreamReaderGroupConfig(False, "sc", stream, lease=lease, **config)
    clock.groups.append(create_group(root, "sc", "rg", settings, clock))
    return StreamReaderGroup(clock.groups[-1])


def halves(manager: StreamManager, stream: str) -> None:
    """Split every segment."""
    segments = manager.stream_info("sc", stream).segments
    ranges = [(one.low, (one.low + one.high) / 2) for one in segments]
    ranges += [((one.low + one.high) / 2, one.high) for one in segments]
    manager.scale_stream("sc", stream, [one.id for one in segments], sorted(ranges))
