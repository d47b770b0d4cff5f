"""Submissions: their names, their form, and that nothing else is taken for one (W15, W18)."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest

from chunkstore.checksums import crc32c
from chunkstore.decoding import InvalidData, NewerFormat
from chunkstore.paths import ContainerId
from engine.logs.submission import (
    Address,
    Carrying,
    address_in,
    address_of,
    decode,
    encode,
    inbox_folder,
    submission_path,
)
from engine.state.index_records import RECORD_SIZE, IndexRecords
from engine.state.operations import Answer, Append, MergeSegment, Operation, OperationResult, Payload, SealSegment
from engine.state.segments import Extent

OWNER, NONCE = bytes(range(16)), bytes(range(100, 108))
ADDRESS = Address(5, OWNER, 7, NONCE)
HEADER = 89
"""Bytes of the header, with its checksum."""

EXTENT = Extent("chunk", 3, 5, b"1234")
RECORDS = IndexRecords("s/b", bytes(range(RECORD_SIZE)))
TRANSACTIONS: list[list[Operation]] = [
    [Append("s/a", Payload(b"first")), SealSegment("s/a")],
    [],
    [Append("s/b", RECORDS, 5), Append("s/b", Payload(b"")), Append("s/b", (EXTENT,))],
    [MergeSegment("s/a", "s/b", Payload(b"header"))],
]


def encoded(address: Address = ADDRESS, container: int = 3) -> bytes:
    return encode(container, address, TRANSACTIONS)


def plain(operations: list[Operation]) -> list[Any]:
    """Operations in a form that can be compared: what is laid out first has no equality of its own."""
    return [[type(operation), *map(plain_field, operation)] for operation in operations]


def plain_field(field: Any) -> Any:
    if isinstance(field, IndexRecords):
        return field.segment, bytes(field.records)
    return bytes(field.data) if isinstance(field, Payload) else field


def with_header(data: bytes, position: int, new: bytes) -> bytes:
    """The object with other bytes in its header, and the checksum that fits."""
    header = data[:position] + new + data[position + len(new) : HEADER - 4]
    return header + struct.pack(">I", crc32c(header)) + data[HEADER:]


def with_meta(*transactions: Any, payload: bytes = b"0123456789", **changes: int) -> bytes:
    """A submission of what else may stand in it. changes: of the lengths and checksums in its header."""
    meta: bytes = msgpack.packb(list(transactions))
    sums = {"length": len(meta), "meta": crc32c(meta), "size": len(payload), "crc": crc32c(payload), **changes}
    header = encoded()[:65] + struct.pack(">IIQI", *sums.values())
    return header + struct.pack(">I", crc32c(header)) + meta + payload


# --- names -----------------------------------------------------------------------------------------------------------


def test_the_name_of_a_submission_says_whose_it_is() -> None:
    path = submission_path(3, ADDRESS)
    assert path == f"{inbox_folder(3, 5)}{OWNER.hex()}-{7:020d}-{NONCE.hex()}"
    assert inbox_folder(3, 5) == f"{inbox_folder(3)}{5:020d}/" and inbox_folder(3).endswith("/")
    assert address_in(path) == ADDRESS
    assert inbox_folder(3) == "_system/containers/3/inbox/" != inbox_folder(ContainerId(3, "1" * 32))


@pytest.mark.parametrize(
    "name",
    [
        f"{OWNER.hex()}-7",
        f"{OWNER.hex()}-7-{NONCE.hex()}-7",
        f"{OWNER.hex()}-seven-{NONCE.hex()}",
        f"{OWNER[1:].hex()}-7-{NONCE.hex()}",
        f"{OWNER.hex()}-7-{NONCE[1:].hex()}",
        f"{OWNER.hex()}0-7-{NONCE.hex()}",
        "notes.txt",
    ],
)
def test_other_names_in_the_inbox_are_those_of_no_submission(name: str) -> None:
    assert address_in(inbox_folder(3, 5) + name) is None
    assert address_in(f"inbox/five/{OWNER.hex()}-7-{NONCE.hex()}") is None
    assert address_in(f"{OWNER.hex()}-7-{NONCE.hex()}") is None


def test_the_answer_to_a_transaction_names_its_submission_and_place() -> None:
    carrying = Carrying(ADDRESS, 2)
    assert carrying.answer(None) == Answer(OWNER, 7, NONCE, 2, None)
    assert carrying.answer([5, None]).results == (OperationResult.of(5), OperationResult.of(None))
    assert carrying.answer([]).results == ()


# --- their form ------------------------------------------------------------------------------------------------------


def test_a_submission_is_read_back() -> None:
    found = decode(encoded(), 3, ADDRESS)
    assert list(map(plain, found)) == list(map(plain, TRANSACTIONS))
    assert address_of(encoded()) == ADDRESS
    assert decode(encode(3, ADDRESS, []), 3, ADDRESS) == []


def test_the_form_of_a_submission_is_fixed() -> None:
    generation = "0123456789abcdef" * 2
    data = encode(ContainerId(3, generation), ADDRESS, [[Append("s", Payload(b"ab"))], [Append("s", Payload(b"cd"))]])
    assert data[:24] == OWNER + NONCE, "the token by which the storage port recognises it"
    assert data[24:33] == b"PSSB\x01" + bytes([0, 0, 0, 3])
    assert data[33:49] == bytes.fromhex(generation)
    assert data[49:65] == bytes(7) + b"\x05" + bytes(7) + b"\x07"
    meta = data[HEADER:-4]
    assert msgpack.unpackb(meta) == [[[1, "s", [1, 0, 2], None, [], 0]], [[1, "s", [1, 2, 2], None, [], 0]]]
    assert data[65:85] == struct.pack(">IIQI", len(meta), crc32c(meta), 4, crc32c(b"abcd"))
    assert data[85:89] == crc32c(data[:85]).to_bytes(4, "big") and data[-4:] == b"abcd"


def appending(*content: Any) -> Any:
    return [[1, "s", list(content), None, [], 0]]


def test_what_is_appended_lies_within_the_payload() -> None:
    [[first, second, third]] = decode(
        with_meta([*appending(1, 0, 10), *appending(1, 4, 3), *appending(1, 10, 0)]), 3, ADDRESS
    )
    assert [bytes(each.content.data) for each in (first, second, third)] == [b"0123456789", b"456", b""]  # type: ignore[union-attr]
    for content in ((1, 0, 11), (1, 9, 2), (1, -1, 2), (1, 5, -1), (1, 11, 0), (2, 8, 3, "s")):
        with pytest.raises(InvalidData, match="of 10 are appended"):
            decode(with_meta(appending(*content)), 3, ADDRESS)
    for odd in ((1, 0.0, 5), (1, 0), (1, "0", 5), (2, 0, 5), (2, 0, 5, 5), (1, True, 5)):
        with pytest.raises(InvalidData):
            decode(with_meta(appending(*odd)), 3, ADDRESS)


def test_any_changed_bit_and_any_missing_byte_is_found() -> None:
    data = encoded()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(InvalidData):
            decode(bytes(damaged), 3, ADDRESS)
        with pytest.raises(InvalidData):
            decode(data[:position], 3, ADDRESS)
    with pytest.raises(InvalidData):
        decode(data + b"x", 3, ADDRESS)


@pytest.mark.parametrize(
    "changes", [{"length": 0}, {"meta": 5}, {"size": 9}, {"size": 11}, {"crc": 5}], ids=lambda changes: repr(changes)
)
def test_each_checksum_and_length_is_checked(changes: dict[str, Any]) -> None:
    decode(with_meta(appending(1, 0, 10)), 3, ADDRESS)
    with pytest.raises(InvalidData):
        decode(with_meta(appending(1, 0, 10), **changes), 3, ADDRESS)


def test_a_submission_to_another_maker_or_of_another_life_is_not_taken() -> None:
    others = [
        ADDRESS._replace(epoch=6),
        ADDRESS._replace(owner=bytes(16)),
        ADDRESS._replace(number=8),
        ADDRESS._replace(nonce=bytes(8)),
    ]
    for address in others:
        with pytest.raises(InvalidData, match="it is another submission: 7 to epoch 5 of container 3"):
            decode(encoded(), 3, address)
    for container in (4, ContainerId(3, "1" * 32)):
        with pytest.raises(InvalidData, match="another submission"):
            decode(encoded(), container, ADDRESS)


def test_what_is_no_submission_or_of_a_newer_version_is_told_apart() -> None:
    other = with_header(encoded(), 24, b"PSWL")
    with pytest.raises(InvalidData, match="no submission"):
        decode(other, 3, ADDRESS)
    with pytest.raises(InvalidData, match="no submission"):
        address_of(other)
    for data in (b"", encoded()[: HEADER - 5]):
        with pytest.raises(InvalidData):
            address_of(data)
    with pytest.raises(NewerFormat):
        decode(with_header(encoded(), 28, bytes([2])), 3, ADDRESS)
