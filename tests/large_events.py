"""Streams with large events among small ones, for tests: appended as their writers do, without those."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence

import numpy as np

from engine.state.operations import Payload
from engine.storage.chunk_writer import write_chunk
from pravega_spark.streams.model.events import HEADER_SIZE, event_header
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend

MiB = 1 << 20

_BLOCK = bytes((number + number // 256) % 256 for number in range(251 * 256))


def content(size: int, seed: int = 0) -> bytes:
    """Bytes of which no two places within 251 * 256 look alike."""
    block = _BLOCK.translate(bytes((seed + number) % 256 for number in range(256)))
    return (block * (size // len(block) + 1))[:size]


def put_small(stream: Stream, *payloads: bytes, segment: int = 0, time: int = 1) -> None:
    """Append events together."""
    data = b"".join(event_header(len(payload)) + payload for payload in payloads)
    records = sparse_records(np.array([HEADER_SIZE + len(payload) for payload in payloads]), time)
    stream.write([SegmentAppend(segment, Payload(data), records, len(payloads))])


def put_large(stream: Stream, *pieces: bytes, segment: int = 0, time: int = 1, header: bytes | None = None) -> str:
    """Append one event made of the pieces, each a chunk, the first with the header. Returns the event's pointer."""
    size = sum(map(len, pieces))
    groups: list[Sequence[bytes]] = [[piece] for piece in pieces]
    groups[0] = [event_header(size) if header is None else header, *groups[0]]
    extents = []
    for group in groups:
        name = f"{stream.key}/{uuid.uuid4()}"
        extents += write_chunk(stream.root.stores.chunks, name, [group])
    start = stream.snapshot().segments.segment(segment).length
    records = sparse_records(np.array([HEADER_SIZE + size]), time)
    stream.write([SegmentAppend(segment, tuple(extents), records, 1)])
    return f"{stream.snapshot().segments.name_of(segment)}:{start}-{HEADER_SIZE + size}"


def put_many(stream: Stream, folder: str, small: int, large: int, size: int) -> None:
    """Append `small` events of 100 bytes and, spread among them, `large` ones of `size` bytes each.

    For a root in a local folder: the large ones are made of links to one file, so that they cost nothing to write.
    """
    store = stream.root.stores.chunks
    part = f"{stream.key}/{uuid.uuid4()}"
    (extent,) = write_chunk(store, part, [[content(min(size, 32 * MiB))]])
    framed = (event_header(100) + b"x" * 100) * (small // (large + 1))
    records = sparse_records(np.full(small // (large + 1), HEADER_SIZE + 100), 1)
    for number in range(large + 1):
        stream.write([SegmentAppend(0, Payload(framed), records, small // (large + 1))])
        if number < large:
            extents = write_chunk(store, f"{stream.key}/{uuid.uuid4()}", [[event_header(size)]])
            for start in range(0, size, extent.length):
                name = f"{stream.key}/{uuid.uuid4()}"
                os.link(f"{folder}/{part}", f"{folder}/{name}")
                extents.append(extent._replace(source=name, length=min(extent.length, size - start)))
            stream.write([SegmentAppend(0, tuple(extents), sparse_records(np.array([HEADER_SIZE + size]), 1), 1)])
