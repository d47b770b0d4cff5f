"""Frames: the immutable objects that a write-ahead log is made of, and their binary form.

Keeps W1: a frame names its container, address, epoch, writer and predecessor; the metadata comes first and the payload
after it, each under its own CRC32C, so that a process that follows the log need not read other writers' payload. Keeps
W15: the predecessor is named with the checksum of its header, which covers all of its content. The first 24 bytes
(writer, attempt) are the token by which the storage port recognises the writer's own object at a path. A frame whose
signature does not fit is damaged (W20). What a frame shows about the addresses before it is W21.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple

from chunkstore import Range, Store
from chunkstore.checksums import crc32c, crc32c_of
from chunkstore.decoding import check_format
from chunkstore.paths import generation_of
from engine.errors import BadSignature, FrameDamaged, FrameForged, UnknownFormat, understanding
from engine.settings import MAX_FLIGHTS

MAGIC = b"PSWL"
VERSION = 1
BODY = struct.Struct(">16sQ4sBBHI16sqQ16sqIIQII")
_CRC = struct.Struct(">I")
HEADER = BODY.size + _CRC.size
NOBODY = bytes(16)
_LARGE = 256 << 10


class Kind(enum.IntEnum):
    """What a frame is for."""

    DATA = 0
    BELL = 1  # always void: shows the maker of the frames that other processes want to submit to it (W18)
    REPAIR = 2  # an operator's decision to pass over a damaged frame (W8)


class Position(NamedTuple):
    """A place in a log: the address, writer and epoch of a frame, and its seal, the checksum of its header.

    The header has the checksums of all that follows it, so the seal distinguishes frames of the same writer and
    address: two lives of one memory image make such frames (W15).
    """

    address: int
    writer: bytes
    epoch: int
    seal: int = 0


START = Position(-1, NOBODY, 0)
"""The predecessor of a log's first frame."""


class Frame(NamedTuple):
    """A frame without its payload."""

    position: Position
    kind: Kind
    predecessor: Position  # its epoch is not stored; 0
    meta: bytes
    payload_start: int
    payload_length: int

    def follows(self, head: Position) -> bool:
        """True when this frame is live, given the live frame before it (W1)."""
        if self.kind is Kind.BELL or not self.names(head):
            return False
        step = 0 if self.position.writer == head.writer else 1
        return self.position.epoch == head.epoch + step

    def names(self, other: Position) -> bool:
        """Whether the frame at a position is the predecessor that this one names (W1, W15)."""
        address, writer, _, seal = self.predecessor
        return (address, writer, seal) == (other.address, other.writer, other.seal)

    def shows(self, address: int) -> str:
        """How this frame shows that there was a frame at an earlier address, where no object is now; "" if it does not.

        A writer has a limited number of frames in flight, so what is further behind was made when the frame at the
        address was live. And a writer's first frame names the live frame that the writer has read last (W21).
        """
        if self.kind is not Kind.DATA:  # bells and repairs are made far behind the log's end
            return ""
        own, writer, *_ = self.position
        if own - address >= MAX_FLIGHTS:
            return f"frame {own} is further behind it than a writer has in flight"
        if self.predecessor.address >= address and self.predecessor.writer != writer:
            return f"frame {own} is the first one of a process that had read frame {self.predecessor.address}"
        return ""


def seal_of(data: Sequence[bytes | bytearray | memoryview]) -> int:
    """The seal of a frame, as `encode` made it."""
    return int(_CRC.unpack_from(data[0], BODY.size)[0])


def generation_bytes(container: int) -> bytes:
    """The generation of a container's log, as frames and checkpoints have it: 16 bytes, zeros if it is of no root."""
    return bytes.fromhex(generation_of(container)).rjust(16, b"\0")


def encode(
    container: int,
    position: Position,
    attempt: int,
    predecessor: Position,
    meta: bytes,
    payload: Sequence[bytes | bytearray | memoryview] = (),
    kind: Kind = Kind.DATA,
) -> list[bytes | bytearray | memoryview]:
    """The object of a frame: header and metadata, then the payload (the concatenation of the given buffers).

    Much payload is left in its pieces, as copying it costs more than all else; little makes one piece.
    """
    length = sum(map(len, payload))
    body = BODY.pack(
        position.writer,
        attempt,
        MAGIC,
        VERSION,
        kind,
        0,
        container,
        generation_bytes(container),
        position.address,
        position.epoch,
        predecessor.writer,
        predecessor.address,
        len(meta),
        crc32c(meta),
        length,
        crc32c_of(payload),
        predecessor.seal,
    )
    head = b"".join([body, _CRC.pack(crc32c(body)), meta])
    return [b"".join([head, *payload])] if length < _LARGE else [head, *payload]


def meta_end(prefix: bytes, path: str, address: int) -> int:
    """How many bytes of the object hold header and metadata, read off (and checked by) its header."""
    if len(prefix) < HEADER:
        raise FrameDamaged(path, address, f"the frame has {len(prefix)} bytes, its header alone needs {HEADER}")
    if _CRC.unpack_from(prefix, BODY.size)[0] != crc32c(prefix[: BODY.size]):
        raise FrameDamaged(path, address, "the header's checksum does not match")
    return HEADER + int(BODY.unpack_from(prefix)[12])


def decode(prefix: bytes, path: str, container: int, address: int, whole: bool) -> Frame:
    """The frame whose object begins with `prefix` (header and metadata at least); `whole`: that is all there is of it.

    Raises FrameDamaged when any check fails, or when the frame belongs to another container or address, and
    UnknownFormat for a frame that a newer version wrote: the header's form is the same in all of them.
    """
    end = meta_end(prefix, path, address)
    (writer, _, magic, version, kind, _, number, generation, own, epoch, *rest) = BODY.unpack_from(prefix)
    pred_writer, pred_address, _, meta_crc, length, _, pred_seal = rest
    if magic != MAGIC:
        raise FrameDamaged(path, address, "the object is no frame")
    with understanding(path, ""):  # its header is as it was written: nothing is damaged, and nothing may be repaired
        check_format(version, VERSION)
    if number != container or own != address:
        raise FrameDamaged(path, address, f"the object holds frame {own} of container {number}")
    if generation != generation_bytes(container):
        raise FrameDamaged(path, address, f"it holds a frame of another root or earlier log: {generation.hex()}")
    meta = prefix[HEADER:end]
    if len(meta) != end - HEADER or crc32c(meta) != meta_crc:
        raise FrameDamaged(path, address, "the metadata's checksum does not match")
    if whole and len(prefix) != end + length:
        raise FrameDamaged(path, address, f"the payload has {len(prefix) - end} bytes, {length} are expected")
    if kind not in Kind.__members__.values():
        raise UnknownFormat(f"{path}: it has kind {kind}, which this version does not know: upgrade this program")
    position = Position(own, writer, epoch, seal_of([prefix]))
    return Frame(position, Kind(kind), Position(pred_address, pred_writer, 0, pred_seal), meta, end, length)


def read_beginnings(
    store: Store, paths: Sequence[str], addresses: Sequence[int], size: int
) -> list[bytes | FrameForged | None]:
    """The first `size` bytes of the frames at some addresses. None: there is no object.

    A frame whose signature does not fit has its error in its place, as others may lie before it. Raises StorageError.
    """
    ranges = [Range(path, 0, size) for path in paths]
    try:
        return [*store.read_ranges(ranges)]
    except BadSignature as error:
        if len(ranges) > 1:
            return [
                each
                for path, address in zip(paths, addresses, strict=True)
                for each in read_beginnings(store, [path], [address], size)
            ]
        return [_forged(error, paths[0], addresses[0])]


def read_rest(store: Store, path: str, address: int, prefix: bytes, end: int) -> bytes:
    """A frame up to `end`, of which the prefix was read. Raises ObjectNotFound, FrameForged, StorageError."""
    try:
        return prefix + store.read(path, len(prefix), end)
    except BadSignature as error:
        raise _forged(error, path, address) from None


def _forged(error: BadSignature, path: str, address: int) -> FrameForged:
    """The error for the frame whose signature does not fit."""
    return FrameForged(path, address, error.problem)
