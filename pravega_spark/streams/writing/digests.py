"""Digests: short summaries of the data of a write, to distinguish a replay from other data (X3).

A digest does not depend on the order of tasks and rows, nor on the segments: these may differ when a query is run
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chunkstore.checksums import crc32c_of
from engine.state.segments import Extent
from pravega_spark.streams.model.events import HEADER_SIZE

if TYPE_CHECKING:
    from pravega_spark.streams.model.framing import Framed

_WORD = 8
_FACTORS = np.array(
    [
        0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93,
        0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3,
    ],
    np.uint64,
)  # fmt: skip
_HALF = np.uint64(32)
_BLOCK = 8192  # events whose arrays stay in the CPU cache
_MASK = (1 << 64) - 1

_CHECK_BITS = 24
_MOST_EVENTS = (1 << 63 - _CHECK_BITS) - 1


class Digest(NamedTuple):
    """Number of events, bytes with their headers, and a checksum of their contents."""

    events: int = 0
    size: int = 0
    check: int = 0

    def __str__(self) -> str:
        return f"{self.events} events with {self.size} bytes (check {self.check >> 64 - _CHECK_BITS:06x})"

    @classmethod
    def total(cls, digests: Iterable[Digest]) -> Digest:
        """The digest of all data of several digests, in any order."""
        events = size = check = 0
        for digest in digests:
            events, size, check = events + digest.events, size + digest.size, check + digest.check
        return cls(events, size, check & _MASK)

    @classmethod
    def of_framed(cls, framed: Framed) -> Digest:
        """The digest of small events."""
        return cls(len(framed.lengths), framed.data.size, _checked(framed))

    @classmethod
    def of_large(cls, extents: Iterable[Extent]) -> Digest:
        """The digest of one event in its own chunks, from their checksums."""
        known = list(extents)
        check = crc32c_of([extent.checksums for extent in known]) * int(_FACTORS[0]) & _MASK
        return cls(1, sum(extent.length for extent in known), check)

    def kept(self) -> Digest:
        """The part that is stored: `decode` of `encode`."""
        return self.decode(*self.encode())

    def encode(self) -> tuple[int, int]:
        """Two numbers of 63 bits."""
        return self.size, min(self.events, _MOST_EVENTS) << _CHECK_BITS | self.check >> 64 - _CHECK_BITS

    @classmethod
    def decode(cls, size: int, rest: int) -> Digest:
        """The inverse of `encode`, for the stored part."""
        return cls(rest >> _CHECK_BITS, size, (rest & (1 << _CHECK_BITS) - 1) << 64 - _CHECK_BITS)


def _checked(framed: Framed) -> int:
    """The sum of the hashes of framed events. A hash covers eight words of the payload, from the first to the last.

    So all bytes of an event of up to 64 bytes count, and the cost does not grow with larger events.
    """
    if not len(framed.lengths):
        return 0
    data = np.frombuffer(framed.data, np.uint8)
    words: np.ndarray = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))  # one at each byte
    ends, total = np.cumsum(framed.lengths), 0
    for block in range(0, len(ends), _BLOCK):
        lengths, end = framed.lengths[block : block + _BLOCK], ends[block : block + _BLOCK]
        place, first = end - _WORD, end - np.maximum(lengths - HEADER_SIZE, _WORD)
        step = -((first - place) // (len(_FACTORS) - 1))
        hashes = lengths.astype(np.uint64)
        for factor in _FACTORS:
            hashes ^= words[place]
            hashes *= factor
            hashes ^= hashes >> _HALF
            np.maximum(place - step, first, out=place)
        total += int(hashes.sum())
    return total & _MASK
