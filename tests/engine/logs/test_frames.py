"""The binary form of frames, and which frame follows which (W1)."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, strategies as st

from chunkstore.paths import ContainerId
from chunkstore.port import TOKEN
from chunkstore.testing import SimulatedStore
from engine.errors import FrameDamaged, FrameForged, UnknownFormat
from engine.logs import frames
from engine.logs.frames import HEADER, NOBODY, START, Frame, Kind, Position
from engine.signed_store import SignedStore
from tests.support.signed import KEY

ME, OTHER = b"m" * 16, b"o" * 16
PATH = "_system/containers/3/wal/00000000000000000007"
HERE = Position(7, ME, 5)
BEFORE = Position(6, OTHER, 4, 0xCAFE)


def encoded(meta: bytes = b"meta", payload: tuple[bytes, ...] = (b"pay", b"load"), **changes: Any) -> bytes:
    fields: dict[str, Any] = {"container": 3, "position": HERE, "attempt": 9, "predecessor": BEFORE, **changes}
    return b"".join(frames.encode(**fields, meta=meta, payload=payload))


def decoded(data: bytes, whole: bool = True) -> Frame:
    return frames.decode(data, PATH, 3, 7, whole)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(min_size=16, max_size=16),
    st.sampled_from(Kind),
    st.binary(max_size=300),
    st.lists(st.binary(max_size=300), max_size=3),
)
def test_what_is_encoded_is_decoded(
    container: int, address: int, attempt: int, writer: bytes, kind: Kind, meta: bytes, payload: list[bytes]
) -> None:
    position, predecessor = (
        Position(address, writer, attempt % 1000),
        Position(address - 1, writer[::-1], 3, attempt % 2**32),
    )
    views = [memoryview(part) for part in payload]
    data = b"".join(frames.encode(container, position, attempt, predecessor, meta, views, kind))
    whole = frames.decode(data, PATH, container, address, whole=True)
    body = b"".join(payload)
    sealed = position._replace(seal=frames.seal_of([data]))
    assert whole == Frame(sealed, kind, predecessor._replace(epoch=0), meta, HEADER + len(meta), len(body))
    assert data[whole.payload_start :] == body
    for end in (whole.payload_start, len(data)):
        assert frames.decode(data[:end], PATH, container, address, whole=False) == whole
    assert frames.meta_end(data, PATH, address) == whole.payload_start


def test_the_format_is_fixed() -> None:
    """Frames that were written by one version are read by all others of this format."""
    assert (
        encoded().hex()
        == (
            "6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d" + "0000000000000009"  # writer, attempt
            "5053574c" + "01" + "00" + "0000" + "00000003"  # magic, version, kind, reserved, container
            "00000000000000000000000000000000"  # generation
            "0000000000000007" + "0000000000000005"  # address, epoch
            "6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f" + "0000000000000006"  # the predecessor's writer and address
            "00000004" + "CRC-OF-META" + "0000000000000007" + "CRC-OF-PAYLOAD"
            "0000cafe"  # the predecessor's seal
        )
        .replace("CRC-OF-META", crc32c(b"meta").to_bytes(4, "big").hex())
        .replace("CRC-OF-PAYLOAD", crc32c(b"payload").to_bytes(4, "big").hex())
        + crc32c(encoded()[: HEADER - 4]).to_bytes(4, "big").hex()
        + b"metapayload".hex()
    )


def test_the_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_the_token_is_writer_and_attempt() -> None:
    assert encoded()[:TOKEN] == ME + (9).to_bytes(8, "big")
    assert encoded()[:TOKEN] != encoded(attempt=10)[:TOKEN]


def test_any_changed_byte_of_header_or_metadata_is_damage() -> None:
    data = encoded()
    for index in range(HEADER + len(b"meta")):
        for bit in (1, 128):
            damaged = bytearray(data)
            damaged[index] ^= bit
            with pytest.raises(FrameDamaged):
                decoded(bytes(damaged))


def test_any_other_length_is_damage() -> None:
    data = encoded()
    for length in range(len(data)):
        with pytest.raises(FrameDamaged):
            decoded(data[:length])
    with pytest.raises(FrameDamaged, match="8 bytes, 7 are expected"):
        decoded(data + b"x")


def test_a_frame_is_valid_at_its_own_place_only() -> None:
    data = encoded()
    for container, address in ((4, 7), (3, 8)):
        with pytest.raises(FrameDamaged, match="holds frame 7 of container 3"):
            frames.decode(data, PATH, container, address, whole=True)


def test_a_frame_of_another_root_or_an_earlier_log_is_damage() -> None:
    """They may lie in the same place, with the same numbers of containers and frames."""
    mine, other = ContainerId(3, "1f" * 16), ContainerId(3, "2f" * 16)
    for container, readers in ((mine, (3, other)), (3, (mine,))):
        data = encoded(container=container)
        assert frames.decode(data, PATH, container, 7, whole=True) == decoded(encoded())._replace(
            position=HERE._replace(seal=frames.seal_of([data]))
        )
        for reader in readers:
            with pytest.raises(FrameDamaged, match="a frame of another root or earlier log"):
                frames.decode(data, PATH, reader, 7, whole=True)


def test_a_frame_may_have_no_metadata_and_no_payload() -> None:
    data = encoded(b"", ())
    assert len(data) == HEADER
    frame = decoded(data)
    assert (frame.meta, frame.payload_start, frame.payload_length) == (b"", HEADER, 0)
    assert decoded(encoded()[:-7], whole=False).payload_length == 7, "it need not be read"


def signed_frames() -> tuple[SignedStore, SimulatedStore]:
    """A signed store with the frames 5, 6 and 8, and what it lies in."""
    raw = SimulatedStore()
    store = SignedStore(raw, KEY, lambda path: True)
    for address in (5, 6, 8):
        store.put(f"{address}", encoded(position=HERE._replace(address=address)))
    return store, raw


def test_a_forged_frame_is_reported_in_its_place_among_others() -> None:
    store, raw = signed_frames()
    addresses = [5, 6, 7, 8]
    paths = [f"{address}" for address in addresses]
    whole = [encoded(position=HERE._replace(address=address)) for address in addresses]
    assert frames.read_beginnings(store, paths, addresses, 20) == [whole[0][:20], whole[1][:20], None, whole[3][:20]]
    raw.put("6", raw.read("6")[:-1] + b"?")
    first, forged, absent, last = frames.read_beginnings(store, paths, addresses, 999)
    assert (first, absent, last) == (whole[0], None, whole[3])
    assert isinstance(forged, FrameForged) and (forged.path, forged.address) == ("6", 6)
    both = frames.read_beginnings(store, paths[:2], addresses[:2], 999)
    assert both[0] == whole[0] and isinstance(both[1], FrameForged) and len(both) == 2
    (alone,) = frames.read_beginnings(store, paths[1:2], addresses[1:2], 999)
    assert isinstance(alone, FrameForged) and (alone.path, alone.address) == ("6", 6)


def test_the_rest_of_a_frame_is_read_behind_its_beginning() -> None:
    store, raw = signed_frames()
    whole = store.read("6")
    assert frames.read_rest(store, "6", 6, whole[:20], HEADER + 4) == whole[: HEADER + 4]
    raw.put("6", raw.read("6")[:-1] + b"?")
    with pytest.raises(FrameForged) as raised:
        frames.read_rest(store, "6", 6, whole[:20], HEADER + 4)
    assert (raised.value.path, raised.value.address) == ("6", 6)


def with_header_byte(place: int, value: int) -> bytes:
    """A frame with another byte in its header, whose checksum is right."""
    data = bytearray(encoded())
    data[place] = value
    data[HEADER - 4 : HEADER] = crc32c(bytes(data[: HEADER - 4])).to_bytes(4, "big")
    return bytes(data)


def test_a_frame_of_a_newer_version_is_no_damage() -> None:
    """What is damaged may be given up by a repair; what is newer must not be."""
    with pytest.raises(UnknownFormat, match=f"{PATH}: it has kind 77, .* upgrade this program"):
        decoded(encoded(kind=77))
    with pytest.raises(UnknownFormat, match=f"{PATH}: it has format 2; this version reads format 1: upgrade"):
        decoded(with_header_byte(TOKEN + 4, 2))
    assert not issubclass(UnknownFormat, FrameDamaged)


def test_what_is_no_frame_is_damage() -> None:
    with pytest.raises(FrameDamaged, match="the object is no frame"):
        decoded(with_header_byte(TOKEN, ord("?")))


def test_damage_names_the_object_and_the_way_out() -> None:
    with pytest.raises(FrameDamaged) as raised:
        decoded(b"")
    assert PATH in str(raised.value) and "repair(container, 7)" in str(raised.value)
    assert (raised.value.path, raised.value.address) == (PATH, 7)


@pytest.mark.parametrize(
    ("writer", "epoch", "names", "live"),
    [
        (OTHER, 4, (6, OTHER, 0, 0xCAFE), True),  # the same writer goes on
        (OTHER, 5, (6, OTHER, 0, 0xCAFE), False),
        (OTHER, 3, (6, OTHER, 0, 0xCAFE), False),
        (ME, 5, (6, OTHER, 0, 0xCAFE), True),  # another one takes over
        (ME, 4, (6, OTHER, 0, 0xCAFE), False),
        (ME, 6, (6, OTHER, 0, 0xCAFE), False),
        (ME, 5, (5, OTHER, 0, 0xCAFE), False),  # names another frame as its predecessor
        (ME, 5, (6, ME, 0, 0xCAFE), False),
        (OTHER, 4, (6, OTHER, 0, 0xCAFF), False),  # another life of the same writer made that one
        (OTHER, 4, (-1, NOBODY, 0, 0), False),
    ],
)
def test_succession(writer: bytes, epoch: int, names: tuple[int, bytes, int, int], live: bool) -> None:
    frame = Frame(Position(7, writer, epoch), Kind.DATA, Position(*names), b"", HEADER, 0)
    assert frame.follows(BEFORE) is live
    assert frame._replace(kind=Kind.REPAIR).follows(BEFORE) is live
    assert not frame._replace(kind=Kind.BELL).follows(BEFORE)


def test_the_first_frame_follows_the_start() -> None:
    first = Frame(Position(0, ME, 1), Kind.DATA, Position(-1, NOBODY, 0), b"", HEADER, 0)
    assert first.follows(START)
    assert not first._replace(position=Position(0, ME, 2)).follows(START)
