"""Checkpoint objects: what is checked of one, which one an opening reads, and what a write makes (W6, W8, W14)."""

from __future__ import annotations

import struct
from typing import Any

import immutables
import msgpack
import pytest

from chunkstore.checksums import crc32c
from chunkstore.paths import ContainerId
from chunkstore.testing import FaultStore, Request, SimulatedStore
from engine.errors import DataCorruption, UnknownFormat
from engine.logs import checkpoints
from engine.logs.checkpoints import HEADER, Opening
from engine.logs.frames import START, Position
from engine.logs.log import checkpoint_path, checkpoints_folder
from engine.state.operations import CreateTable, PutEntry
from engine.state.segment_map import SegmentMap
from engine.state.state import EMPTY, State
from tests.engine.state.writer import append, assert_equal, with_segments
from tests.support.synced_store import SyncedStore

PATH = "the/path"
HEAD = Position(5, b"w" * 16, 3, 0xCAFE)
MAGIC_AT, VERSION_AT, GENERATION_AT = 24, 28, 33
"""Where these begin in the object, behind the token of 24 bytes."""


def lived() -> State:
    writer = with_segments("a")
    writer.commit(append("a", b"data"), PutEntry("t", "k", b"v"))
    writer.commit(CreateTable("created", 4))
    writer.commit(PutEntry("created", "k" * 4, b"value"))
    return writer.state


def encoded(state: State | None = None, container: int = 7) -> bytes:
    return checkpoints.encode(container, HEAD, state or lived())


def changed(data: bytes, position: int, new: bytes) -> bytes:
    """The object with other bytes in its header, and the checksum that fits."""
    prefix = data[:position] + new + data[position + len(new) : HEADER - 4]
    return with_checksum(prefix, data[HEADER:])


def with_checksum(prefix: bytes, body: bytes) -> bytes:
    prefix = prefix[: HEADER - 4]
    return prefix + struct.pack(">I", crc32c(body, crc32c(prefix))) + body


def with_body(change: Any) -> bytes:
    """The object of another head, state and parts, as a function makes them of what they are."""
    data = encoded()
    return with_checksum(data, msgpack.packb(change(*msgpack.unpackb(data[HEADER:], strict_map_key=False))))


def decoded(data: bytes, container: int = 7, address: int | None = 5) -> Opening:
    return checkpoints.decode(data, PATH, container, address)


# --- what is checked -------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_read_back_with_its_head() -> None:
    state = lived()._replace(dropped=immutables.Map({"s/gone": True}))
    assert state.table_bytes > 0
    for address in (5, None):
        found = decoded(encoded(state), address=address)
        assert found.head == HEAD
        assert_equal(found.state, state)
        assert (found.state.dropped, found.state.unsaved) == (state.dropped, state.unsaved)
        assert found.state.table_bytes == state.table_bytes, "of tables that were created, and of no others"


def test_the_form_of_the_header_is_fixed() -> None:
    generation = "0123456789abcdef" * 2
    data = encoded(EMPTY, ContainerId(7, generation))
    assert data[16:24] == bytes(8), "the attempt, as the token is drawn anew for each object"
    assert data[24 : HEADER - 4] == b"PSCP\x01" + bytes([0, 0, 0, 7]) + bytes.fromhex(generation) + bytes(7) + b"\x05"
    assert encoded(EMPTY)[:16] != encoded(EMPTY)[:16]
    assert data[HEADER - 4 : HEADER] == crc32c(data[HEADER:], crc32c(data[: HEADER - 4])).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "only 0 bytes"),
        (encoded()[: HEADER - 1], f"only {HEADER - 1} bytes"),
        (encoded()[:HEADER], "checksum"),
        (encoded()[:-1], "checksum"),
        (changed(encoded(), MAGIC_AT, b"PSWL"), "not a checkpoint"),
        (changed(encoded(), GENERATION_AT, b"\1" * 16), "another root or earlier log: 0101"),
        (with_body(lambda head, plain, parts: [head, None, parts]), "in parts, where it cannot be"),
        (with_body(lambda head, plain, parts: [head, plain]), "cannot be understood"),
        (with_body(lambda head, plain, parts: [head[:3], plain, parts]), "cannot be understood"),
        (with_body(lambda head, plain, parts: [[5.0, *head[1:]], plain, parts]), "cannot be understood"),
        (with_body(lambda head, plain, parts: [head, plain[:-1], parts]), "cannot be understood"),
        (with_body(lambda head, plain, parts: [head, plain, [["path", "size", 5]]]), "cannot be understood"),
    ],
    ids=lambda value: value if isinstance(value, str) else "object",  # objects have random bytes
)
def test_a_checkpoint_that_fails_a_check_is_damaged_and_named(data: bytes, problem: str) -> None:
    with pytest.raises(DataCorruption, match=f"{PATH}: .*{problem}") as raised:
        decoded(data)
    assert "Restore the object from a copy" in str(raised.value)


def test_a_checkpoint_of_another_container_frame_or_generation_is_not_taken() -> None:
    for container, address in ((6, 5), (7, 4), (6, None)):
        with pytest.raises(DataCorruption, match="it holds checkpoint 5 of container 7"):
            decoded(encoded(), container, address)
    ours, others = ContainerId(7, "1" * 32), ContainerId(7, "2" * 32)
    assert decoded(encoded(container=ours), ours).head == HEAD
    with pytest.raises(DataCorruption, match=f"another root or earlier log: {'1' * 32}"):
        decoded(encoded(container=ours), others)


def test_a_checkpoint_of_a_newer_version_is_not_damaged() -> None:
    with pytest.raises(UnknownFormat, match=PATH):
        decoded(changed(encoded(), VERSION_AT, bytes([2])))


# --- its segments ----------------------------------------------------------------------------------------------------

LATER = ((77, b"what a newer version knows"), (78, b""))


def with_segment(change: Any) -> bytes:
    """The object with other fields of its only segment."""

    def changed_state(head: list[Any], plain: list[Any], parts: list[Any]) -> list[Any]:
        plain[4] = {name: change(fields) for name, fields in plain[4].items()}
        return [head, plain, parts]

    return with_body(changed_state)


def test_what_a_newer_version_added_to_a_segment_is_kept() -> None:
    """W19: also by a process that does not know it."""
    plain, later = lived().segments["a"], lived().segments["a"]._replace(later=LATER)
    state = lived()._replace(segments=SegmentMap({"a": later}))
    again = decoded(encoded(state)).state
    assert again.segments["a"] == later
    assert decoded(encoded(again)).state.segments["a"] == later
    assert decoded(encoded()).state.segments["a"] == plain


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields[:-1],
        lambda fields: fields[:9],
        lambda fields: fields[:6],
        lambda fields: [*fields, 5],
        lambda fields: [*fields[:7], {"k": 5}, *fields[8:]],
        lambda fields: [True, *fields[1:]],
        lambda fields: [*fields[:-1], 5],
    ],
)
def test_a_damaged_segment_is_found_at_its_first_use(change: Any) -> None:
    state = decoded(with_segment(change)).state
    with pytest.raises(DataCorruption, match=PATH):
        state.segments["a"]


def test_a_segment_with_more_fields_than_this_version_knows_is_of_a_newer_one() -> None:
    state = decoded(with_segment(lambda fields: [*fields, [], 5])).state
    with pytest.raises(UnknownFormat, match="upgrade"):
        state.segments["a"]


# --- which one is read, and what is written --------------------------------------------------------------------------


def write(store: SimulatedStore, address: int, sequence: int, largest: int = 1 << 20) -> int:
    head = HEAD._replace(address=address)
    return checkpoints.write(store, 0, head, EMPTY._replace(sequence=sequence), largest)


def test_a_new_log_begins_with_the_empty_state() -> None:
    assert checkpoints.read_newest(SimulatedStore(), 0) == (Opening(START, EMPTY), [])


def test_an_opening_reads_the_newest_checkpoint_and_makes_it_durable() -> None:
    """G3: its maker may have died before that, and what the opening process appends depends on it."""
    store = SyncedStore()
    for address in (5, 9, 70):
        write(store, address, address * 10)
    (head, state), listed = checkpoints.read_newest(store, 0)
    assert (head.address, state.sequence) == (70, 700)
    assert [info.path for info in listed] == [checkpoint_path(0, address) for address in (5, 9, 70)]
    assert store.synced == [checkpoints_folder(0)]


def test_an_opening_lists_again_if_a_newer_checkpoint_replaces_the_newest_one() -> None:
    store = SimulatedStore()
    write(store, 5, 50)
    replaced: list[int] = []

    def meanwhile(_: int, request: Request) -> None:
        if request.verb == "read" and not replaced:
            replaced.append(5)
            write(store, 9, 90)
            store.delete([checkpoint_path(0, 5)])

    (head, state), listed = checkpoints.read_newest(FaultStore(store, meanwhile), 0)
    assert (head.address, state.sequence, len(listed), replaced) == (9, 90, 1, [5])


def test_a_write_makes_parts_only_of_what_does_not_fit_and_returns_the_size() -> None:
    store = SimulatedStore()
    content = len(msgpack.packb(msgpack.unpackb(checkpoints.encode(0, HEAD, EMPTY)[HEADER:])[1]))
    size = write(store, 5, 1, largest=content)
    assert size == store.stat(checkpoint_path(0, 5)).size > content
    assert len(store.list("")) == 1
    assert write(store, 9, 1, largest=content - 1) == max(content, store.stat(checkpoint_path(0, 9)).size)
    assert len(store.list("")) == 2 + 2
    writer = with_segments(*(f"segment-{number}" for number in range(50)))
    size = checkpoints.write(store, 0, HEAD._replace(address=11), writer.state, 1 << 20)
    assert checkpoints.write(store, 0, HEAD._replace(address=12), writer.state, size // 2) > size - 200
    assert store.stat(checkpoint_path(0, 12)).size < 500


def test_a_state_that_could_not_be_read_back_is_not_written() -> None:
    store = SimulatedStore()
    for head, state in ((HEAD, EMPTY._replace(sequence=5.0)), (HEAD._replace(epoch=None), EMPTY)):  # type: ignore[arg-type]
        with pytest.raises(DataCorruption, match=rf"{checkpoint_path(0, 5)} is not written.*Nothing was written"):
            checkpoints.write(store, 0, head, state)
    assert store.list("") == []
