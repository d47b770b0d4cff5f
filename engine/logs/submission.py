"""Submissions: transactions that a process hands to the maker of the frames of an epoch (W18), and their form.

An object is named after its epoch, its owner and its number, and begins with what its owner drew for it, so that two
lives of one memory image never take one for the other's (W15). Its operations are as they were submitted: the maker
decides where their payload will lie. A submission is a message and no evidence: no call is acknowledged because of it,
so it need not survive a crash.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgpack

from chunkstore.checksums import crc32c, crc32c_of
from chunkstore.decoding import InvalidData, check_format, decoding, reader, unpack
from chunkstore.paths import generation_folder
from engine.logs.frames import generation_bytes
from engine.state.index_records import IndexRecords
from engine.state.operations import (
    Answer,
    Content,
    Operation,
    OperationResult,
    Payload,
    decode_extents,
    encode_extents,
    plain_operation,
    read_operation,
)
from engine.state.segments import Extent

MAGIC = b"PSSB"
VERSION = 1
_HEADER = struct.Struct(">16s8s4sBI16sQQIIQI")
_CRC = struct.Struct(">I")
_EXTENTS, _PAYLOAD, _INDEX = range(3)

_LIST = reader(list[Any])
_NUMBER, _NAME = reader(int), reader(str)


class Address(NamedTuple):
    """Which submission it is: addressed to the maker of `epoch`, by the process `owner`, the `number`th of it. nonce: 8
    bytes of the system's random numbers."""

    epoch: int
    owner: bytes
    number: int
    nonce: bytes


class Carrying(NamedTuple):
    """Whose transaction it is that this process carries: the one at `place` in a submission."""

    address: Address
    place: int

    def answer(self, results: Sequence[Any] | None) -> Answer:
        """What its frame says of it."""
        owner, number, nonce = self.address[1:]
        outcomes = None if results is None else tuple(map(OperationResult.of, results))
        return Answer(owner, number, nonce, self.place, outcomes)


def inbox_folder(container: int, epoch: int | None = None) -> str:
    """The folder of what was submitted to the maker of an epoch, as a listing's prefix; that of all epochs' folders."""
    folder = generation_folder(container, "inbox")
    return folder if epoch is None else f"{folder}{epoch:020d}/"


def submission_path(container: int, address: Address) -> str:
    """The object of a submission."""
    epoch, owner, number, nonce = address
    return f"{inbox_folder(container, epoch)}{owner.hex()}-{number:020d}-{nonce.hex()}"


def address_in(path: str) -> Address | None:
    """The inverse, of a name that was listed; None if it is no submission's."""
    try:
        epoch, name = path.split("/")[-2:]
        owner, number, nonce = name.split("-")
        address = Address(int(epoch), bytes.fromhex(owner), int(number), bytes.fromhex(nonce))
    except ValueError:
        return None
    return address if (len(address.owner), len(address.nonce)) == (16, 8) else None


def address_of(data: bytes) -> Address:
    """The address that a submission gives itself. Raises InvalidData."""
    with decoding():
        owner, nonce, magic, _, _, _, epoch, number, *_ = _HEADER.unpack(data[: _HEADER.size])
        if magic != MAGIC:
            raise InvalidData("it is no submission")
        return Address(epoch, owner, number, nonce)


def encode(container: int, address: Address, transactions: Sequence[Sequence[Operation]]) -> bytes:
    """The object of a submission, of transactions whose operations were `checked`."""
    buffers: list[Any] = []
    content = partial(_plain_content, buffers=buffers)
    meta = msgpack.packb([[plain_operation(op, content) for op in operations] for operations in transactions])
    epoch, owner, number, nonce = address
    header = _HEADER.pack(
        owner,
        nonce,
        MAGIC,
        VERSION,
        container,
        generation_bytes(container),
        epoch,
        number,
        len(meta),
        crc32c(meta),
        sum(map(len, buffers)),
        crc32c_of(buffers),
    )
    return b"".join([header, _CRC.pack(crc32c(header)), meta, *buffers])


def decode(data: bytes, container: int, address: Address) -> list[list[Operation]]:
    """The inverse of `encode`. Raises InvalidData for what is not the submission of that address."""
    with decoding():
        begin = _HEADER.size + _CRC.size
        header = data[: _HEADER.size]
        owner, nonce, magic, version, number, generation, epoch, count, *rest = _HEADER.unpack(header)
        length, meta_crc, size, crc = rest
        if magic != MAGIC or _CRC.unpack(data[_HEADER.size : begin])[0] != crc32c(header):
            raise InvalidData("it is no submission, or damaged")
        check_format(version, VERSION)
        if (number, generation) != (container, generation_bytes(container)) or (epoch, owner, count, nonce) != address:
            raise InvalidData(f"it is another submission: {count} to epoch {epoch} of container {number}")
        meta, payload = data[begin : begin + length], memoryview(data)[begin + length :]
        if len(payload) != size or crc32c(meta) != meta_crc or crc32c_of([payload]) != crc:
            raise InvalidData("its checksums do not match")
        content = partial(_content, payload=payload)
        return [[read_operation(_LIST(fields), content) for fields in _LIST(each)] for each in _LIST(unpack(meta))]


def _plain_content(content: Content, buffers: list[Any]) -> list[Any]:
    """What an operation appends as msgpack values; bytes go behind them."""
    if isinstance(content, tuple):
        return [_EXTENTS, encode_extents(content)]
    begin = sum(map(len, buffers))
    if isinstance(content, IndexRecords):
        buffers.append(content.records)
        return [_INDEX, begin, len(content), content.segment]
    buffers.append(content.data)
    return [_PAYLOAD, begin, len(content)]


def _content(plain: Any, payload: memoryview) -> Payload | IndexRecords | tuple[Extent, ...]:
    kind, *rest = _LIST(plain)
    if kind == _EXTENTS:
        return decode_extents(rest[0])
    begin, length = _NUMBER(rest[0]), _NUMBER(rest[1])
    if not 0 <= begin <= begin + length <= len(payload):
        raise InvalidData(f"bytes {begin} to {begin + length} of {len(payload)} are appended")
    data = bytes(payload[begin : begin + length])
    return IndexRecords(_NAME(rest[2]), data) if kind == _INDEX else Payload(data)
