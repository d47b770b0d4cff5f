"""Reading segments: `plan` maps offsets to ranges of objects, and `fetch` reads these and checks their checksums (S1).

`plan` needs the state. `fetch` needs only the stores, so a task in another process reads the objects itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from mmap import mmap
from typing import NamedTuple, TypeAlias, TypeVar

from chunkstore import ObjectNotFound, Range, Store
from chunkstore.checksums import BLOCK, WIDTH, first_bad_block
from chunkstore.metrics import default_metrics
from chunkstore.room import USERS_DATA
from engine.errors import BadOffset, DataCorruption, SegmentTruncated
from engine.logs.log import frame_path
from engine.state.segments import Extent, Extents, FrameRef, Segment, StoredRef
from engine.storage.cache import BlockKey, Cache

_METRICS = default_metrics().layer("container")

GAP = 64 << 10
"""Ranges of an object with gaps of up to this size are read by one request."""


class ObjectRange(NamedTuple):
    """Where bytes of a segment are stored. Plain values, which may be pickled and sent to another process.

    logged: the object is a frame below the log's root, not a chunk. position, length, checksums: of the whole extent in
    the object; the bytes are its part `[skip, skip + taken)`. checksums: empty for a chunk that Pravega wrote.
    """

    logged: bool
    path: str
    position: int
    length: int
    checksums: bytes
    skip: int
    taken: int


StoredRanges: TypeAlias = Callable[[str, int, int], list[ObjectRange]]
"""Finds the object ranges of a range of a segment in LTS, given the segment's name there."""


class Stores(NamedTuple):
    """The stores of a root: of the write-ahead log, and of the chunks."""

    log: Store
    chunks: Store

    def check_room(self, needed: int = 0, part: float = USERS_DATA) -> None:
        """Raise StorageFull if, with `needed` bytes more in long-term storage, less would be free of a storage than
        that part of what is kept for what frees space (P6)."""
        self.chunks.check_room(needed, part)
        if self.log is not self.chunks:
            self.log.check_room(0, part)


def plan(segment: Segment, container: int, start: int, end: int, stored: StoredRanges) -> list[ObjectRange]:
    """The object ranges of `[start, end)` of a segment, in order; `stored` finds those in LTS.

    Raises SegmentTruncated or BadOffset if the segment does not have all of the range.
    """
    if start < segment.start_offset:
        raise SegmentTruncated(segment.name, start, segment.start_offset)
    if not start <= end <= segment.length:
        raise BadOffset(segment.name, f"a range within {segment.start_offset} to {segment.length}", end)
    pieces = []
    if start < min(end, segment.storage_length):
        pieces += stored(segment.storage, start, min(end, segment.storage_length))
    return pieces + plan_extents(segment.extents, container, max(start, segment.storage_length), end, stored)


def plan_extents(
    extents: Extents, container: int, start: int, end: int, stored: StoredRanges | None = None
) -> list[ObjectRange]:
    """The object ranges of `[start, end)` of a list of extents, in order."""
    pieces = []
    for offset, extent in extents.between(start, end):
        skip = max(start - offset, 0)
        taken = min(end - offset, extent.length) - skip
        if isinstance(extent.source, StoredRef):
            assert stored is not None
            pieces += stored(extent.source.storage, skip, skip + taken)
        else:
            pieces.append(_piece(extent, container, skip, taken))
    return pieces


def _piece(extent: Extent, container: int, skip: int, taken: int) -> ObjectRange:
    source, position, length, checksums = extent
    if isinstance(source, FrameRef):
        path = frame_path(container, source.address)
        return ObjectRange(True, path, position + source.start, length, checksums, skip, taken)
    return ObjectRange(False, str(source), position, length, checksums, skip, taken)


Parts = TypeVar("Parts", bound=Sequence[bytes | memoryview])


def measured(read: Callable[[], Parts]) -> Parts:
    """What `read` returns for a program that reads a segment, counted as a read of layer `container`."""
    with _METRICS.measure("read") as measurement:
        parts = read()
        measurement.bytes = sum(map(len, parts))
        return parts


def fetch_through(stores: Stores, pieces: Sequence[ObjectRange], cache: Cache) -> list[bytes | memoryview]:
    """Like `fetch`, through `cache` and in whole blocks: for small reads that are likely to be repeated.

    If several threads read the same block, one of them requests it.
    """
    wanted: dict[BlockKey, ObjectRange] = {}
    for piece in pieces:
        for number in _block_numbers(piece):
            start = number * BLOCK
            key = BlockKey(piece.logged, piece.path, piece.position + start, piece.checksums[number * WIDTH :][:WIDTH])
            wanted[key] = piece._replace(skip=start, taken=min(BLOCK, piece.length - start))
    blocks = cache.find(wanted)
    missing = [key for key in wanted if key not in blocks]
    if missing:
        with cache.lock(missing[0]):
            blocks |= cache.find(missing)
            missing = [key for key in missing if key not in blocks]
            found = fetch(stores, [wanted[key] for key in missing])
            fetched = {key: bytes(data) for key, data in zip(missing, found, strict=True)}
            cache.put(fetched)
        blocks |= fetched
    return [_assembled(piece, blocks) for piece in pieces]


def _block_numbers(piece: ObjectRange) -> range:
    return range(piece.skip // BLOCK, -(-(piece.skip + piece.taken) // BLOCK))


def _assembled(piece: ObjectRange, blocks: Mapping[BlockKey, bytes]) -> bytes | memoryview:
    parts = []
    for number in _block_numbers(piece):
        start = number * BLOCK
        key = BlockKey(piece.logged, piece.path, piece.position + start, piece.checksums[number * WIDTH :][:WIDTH])
        data = memoryview(blocks[key])
        parts.append(data[max(piece.skip - start, 0) : piece.skip + piece.taken - start])
    return parts[0] if len(parts) == 1 else b"".join(parts)


def fetch(stores: Stores, pieces: Sequence[ObjectRange], room: bytearray | mmap | None = None) -> list[memoryview]:
    """The bytes of each piece. Whole blocks are read, to verify their checksums.

    room: memory to read into if the bytes fit, for local stores; a caller that reads repeatedly reuses it, because
    allocating memory costs more than reading. Raises ObjectNotFound if an object was deleted (plan the range again),
    DataCorruption (W8).
    """
    wanted = [_blocks(piece) for piece in pieces]
    ranges = _merged(pieces, wanted)
    contents: dict[tuple[bool, str, int], memoryview] = {}
    free = memoryview(b"" if room is None else room)
    for logged, store in ((True, stores.log), (False, stores.chunks)):
        own = [Range(path, start, end) for where, path, start, end in ranges if where is logged]
        size = sum(end - start for where, _, start, end in ranges if where is logged)
        if store.remote or size > len(free):
            found = _read(store, own)
        else:
            found, free = _read_into(store, own, free), free[size:]
        contents |= {(logged, path, start): data for (path, start, _), data in zip(own, found, strict=True)}
    begins = _begins(ranges)
    return [_checked(piece, blocks, begins, contents) for piece, blocks in zip(pieces, wanted, strict=True)]


def _read(store: Store, ranges: Sequence[Range]) -> list[memoryview]:
    found = []
    for wanted, data in zip(ranges, store.read_ranges(ranges) if ranges else (), strict=True):
        if data is None:
            raise ObjectNotFound(f"{store.root}: {wanted.path} does not exist")
        found.append(memoryview(data))
    return found


def _read_into(store: Store, ranges: Sequence[Range], room: memoryview) -> list[memoryview]:
    found = []
    for path, start, end in ranges:
        length = (end or start) - start
        found.append(room[: store.read_into(path, start, room[:length])])
        room = room[length:]
    return found


def _blocks(piece: ObjectRange) -> tuple[int, int]:
    """The part of the extent, in whole blocks, that contains the piece."""
    if not piece.checksums:
        return piece.skip, piece.skip + piece.taken
    first = piece.skip // BLOCK * BLOCK
    last = min(-(-(piece.skip + piece.taken) // BLOCK) * BLOCK, piece.length)
    return first, last


def _merged(pieces: Sequence[ObjectRange], wanted: Sequence[tuple[int, int]]) -> list[tuple[bool, str, int, int]]:
    """The object ranges to read, with neighbours in one object merged, in the order of the pieces: in a room they then
    lie one behind another, and a reader of all of them need not join them."""
    spans = [
        (piece.logged, piece.path, piece.position + first, piece.position + last)
        for piece, (first, last) in zip(pieces, wanted, strict=True)
    ]
    merged: list[tuple[bool, str, int, int]] = []
    places: list[int] = []
    for place in sorted(range(len(spans)), key=spans.__getitem__):
        logged, path, start, end = spans[place]
        if merged and merged[-1][:2] == (logged, path) and start <= merged[-1][3] + GAP:
            merged[-1] = (logged, path, merged[-1][2], max(end, merged[-1][3]))
            places[-1] = min(places[-1], place)
        else:
            merged.append((logged, path, start, end))
            places.append(place)
    return [merged[number] for number in sorted(range(len(merged)), key=places.__getitem__)]


def _begins(ranges: Iterable[tuple[bool, str, int, int]]) -> dict[tuple[bool, str], list[tuple[int, int]]]:
    begins: dict[tuple[bool, str], list[tuple[int, int]]] = {}
    for logged, path, start, end in ranges:
        begins.setdefault((logged, path), []).append((start, end))
    return begins


def _checked(
    piece: ObjectRange,
    blocks: tuple[int, int],
    begins: dict[tuple[bool, str], list[tuple[int, int]]],
    contents: dict[tuple[bool, str, int], memoryview],
) -> memoryview:
    first, last = piece.position + blocks[0], piece.position + blocks[1]
    start = next(start for start, end in begins[piece.logged, piece.path] if start <= first and last <= end)
    data = contents[piece.logged, piece.path, start][first - start : last - start]
    sums = piece.checksums[blocks[0] // BLOCK * WIDTH : -(-blocks[1] // BLOCK) * WIDTH]
    if len(data) != last - first or (piece.checksums and first_bad_block(data, sums) is not None):
        raise DataCorruption(
            f"{piece.path}: bytes {first} to {last} do not match their checksums. Restore the object from a copy; "
            "the data in it cannot be read otherwise"
        )
    return data[piece.skip - blocks[0] : piece.skip - blocks[0] + piece.taken]
