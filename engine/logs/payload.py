"""The layout of payload in frames: where each append's bytes lie, and in which frame of a spanning operation (W4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chunkstore.checksums import BLOCK, WIDTH, block_checksums
from engine.state.index_records import IndexRecords
from engine.state.operations import Append, Content, MergeSegment, Operation, Payload
from engine.state.segments import EVENT_COUNT, Extent, FrameRef, Segment

MAX_PAYLOAD = 8 << 20
"""The most payload of one frame, bytes."""


class Layout:
    """Collects the payload of a frame that will be at `address`.

    When it is full, `spill` sends what was collected as a frame of its own and returns the next address: so operations
    with more payload than a frame holds span consecutive frames of one writer.
    """

    def __init__(self, address: int, spill: Callable[[Layout], int] | None = None, limit: int = MAX_PAYLOAD) -> None:
        self.frame = FrameRef(address)
        self.buffers: list[bytes | memoryview] = []
        self.size = 0
        self._limit = limit
        self._spill = spill

    def mark(self) -> tuple[int, int]:
        """What `rewind` goes back to."""
        return len(self.buffers), self.size

    def rewind(self, mark: tuple[int, int]) -> None:
        """Take back what was added since `mark`, for an operation that was rejected."""
        count, self.size = mark
        del self.buffers[count:]

    def bind(self, operation: Operation, lookup: Callable[[str], Segment], number: int) -> Operation:
        """The operation with its content laid out as extents; number: of the append that it belongs to."""
        if isinstance(operation, Append) and not isinstance(operation.content, tuple):
            return operation._replace(content=self._extents(operation.content, lookup, number))
        if isinstance(operation, MergeSegment) and not isinstance(operation.header, tuple):
            return operation._replace(header=self._extents(operation.header, lookup, number))
        return operation

    def together(self, payloads: Sequence[Payload]) -> tuple[Extent, ...]:
        """Payloads that go into the present frame, one behind the other, as one extent."""
        contents = [payload.data for payload in payloads if len(payload.data)]
        length = sum(map(len, contents))
        if not length:
            return ()
        extent = Extent(self.frame, self.size, length, block_checksums(*contents))
        self.buffers += contents
        self.size += length
        return (extent,)

    def _extents(self, content: Content, lookup: Callable[[str], Segment], number: int) -> tuple[Extent, ...]:
        if isinstance(content, IndexRecords):
            indexed = lookup(content.segment)
            content = Payload(content.counted_from(indexed.length, indexed.attributes.get(EVENT_COUNT, 0), number))
        assert isinstance(content, Payload)
        length = len(content.data)
        if 0 < length <= self._limit - self.size:
            extent = Extent(self.frame, self.size, length, content.checksums)
            self.buffers.append(content.data)
            self.size += length
            return (extent,)
        return self._pieces(content)

    def _pieces(self, payload: Payload) -> tuple[Extent, ...]:
        """A payload that the present frame has no room for."""
        view, checksums = memoryview(payload.data), payload.checksums
        extents: list[Extent] = []
        while len(view):
            taken = self._room(len(view))
            blocks = -(-taken // BLOCK)
            extents.append(Extent(self.frame, self.size, taken, checksums[: blocks * WIDTH]))
            self.buffers.append(view[:taken])
            self.size += taken
            view, checksums = view[taken:], checksums[blocks * WIDTH :]
        return tuple(extents)

    def _room(self, wanted: int) -> int:
        """How much of `wanted` goes into the present frame: all, or whole blocks so that the checksums can be cut."""
        room = self._limit - self.size
        if wanted <= room or self._spill is None:
            return wanted
        if room < BLOCK:
            self.frame = FrameRef(self._spill(self))
            self.buffers, self.size = [], 0
            room = self._limit
        return min(wanted, room // BLOCK * BLOCK)
