"""Stream cuts and their forms."""

import base64
import copy
import gzip
import pickle
import zlib
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from chunkstore.metadata.serialization import FieldWriter, with_version
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.segment_ids import segment_id
from pravega_spark.streams.model import cuts
from pravega_spark.streams.model.cuts import UNBOUNDED, StreamCut
from pravega_spark.streams.model.epochs import NOT_REACHED

JDK17_TEXT = "H4sIAAAAAAAA/zOwKk7OL0jVLy4pSk3MtTLQMdQxApJAaGVooGNkoGNsAACIdKRlIwAAAA=="
CONNECTOR_TEXT = "H4sIAAAAAAAAADOwKk7OL0jVLy4pSk3MNbIy1DHSMdAx1jGxMtCBQiDLUsfQAkwAANe6Pt8vAAAA"

NAMES = st.from_regex(r"_?[a-zA-Z0-9.\-]{2,20}", fullmatch=True).filter(lambda name: name != "..")
SEGMENTS = st.builds(segment_id, st.integers(0, 2**31 - 1), st.integers(0, 2**29))
POSITIONS = st.dictionaries(SEGMENTS, st.integers(-1, 2**61 - 1), max_size=30)
CUTS = st.builds(StreamCut, NAMES, NAMES, POSITIONS)


def text_of(plain: str | bytes) -> str:
    # No time of day in it: it is part of the names of parametrized tests, which all workers must agree on.
    return base64.b64encode(gzip.compress(plain if isinstance(plain, bytes) else plain.encode(), mtime=0)).decode()


# --- text ----------------------------------------------------------------------------------------------------------


def test_the_text_is_the_originals() -> None:
    cut = StreamCut("scope", "stream", {0: 10, 1: 20, 2: 30})
    assert cut.as_text() == JDK17_TEXT
    assert StreamCut.from_text(JDK17_TEXT) == cut


def test_a_text_of_the_original_connector_is_read() -> None:
    cut = StreamCut.from_text(CONNECTOR_TEXT)
    assert cut == StreamCut("scope", "stream2", {0: 18, 1: 0, 2: 9, 3: 9, 4: 18})
    assert gzip.decompress(base64.b64decode(cut.as_text())) == b"0:scope/stream2:0,1,2,3,4:0,0,0,0,0:18,0,9,9,18"


@settings(deadline=None)
@given(CUTS)
def test_cuts_round_trip_as_text(cut: StreamCut) -> None:
    text = cut.as_text()
    assert StreamCut.from_text(text) == cut
    packed = base64.b64decode(text)
    assert packed[:10].hex() == "1f8b08000000000000ff"
    assert gzip.decompress(packed).decode().startswith(f"0:{cut.scope}/{cut.stream}:")


@settings(deadline=None)
@given(NAMES, NAMES, POSITIONS, st.randoms(use_true_random=False))
def test_equal_cuts_have_equal_forms(scope: str, stream: str, positions: dict[int, int], random: Random) -> None:
    shuffled = list(positions.items())
    random.shuffle(shuffled)
    one, other = StreamCut(scope, stream, positions), StreamCut(scope, stream, dict(shuffled))
    assert one == other
    assert hash(one) == hash(other)
    assert one.as_text() == other.as_text()
    assert one.to_bytes() == other.to_bytes()
    assert str(one) == str(other)


def test_the_tail_of_a_sealed_stream_round_trips() -> None:
    cut = StreamCut("scope", "stream", {})
    assert gzip.decompress(base64.b64decode(cut.as_text())) == b"0:scope/stream:::"
    assert StreamCut.from_text(cut.as_text()) == cut
    assert StreamCut.from_bytes(cut.to_bytes()) == cut
    assert cut != UNBOUNDED


def test_the_string_form_has_whole_segment_ids() -> None:
    cut = StreamCut("scope", "stream", {segment_id(1, 2): 7, 0: NOT_REACHED})
    assert str(cut) == "scope/stream:0.0=-1, 1.2=7"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "unbounded",
        "not base64!",
        "é",
        "\ud800",
        JDK17_TEXT[:-4],
        JDK17_TEXT[:-1],
        JDK17_TEXT[4:],
        JDK17_TEXT.replace("cut", "x") + "AAAA",
        " " + JDK17_TEXT,
        base64.b64encode(b"0:scope/stream:0:0:0").decode(),
        base64.b64encode(zlib.compress(b"0:scope/stream:0:0:0")).decode(),
        base64.b64encode(base64.b64decode(JDK17_TEXT)[:-8] + b"\0" * 8).decode(),
        base64.b64encode(base64.b64decode(JDK17_TEXT) * 2).decode(),
        text_of(b"0:scope/stream:\xff:0:0"),
    ],
)
def test_what_is_not_compressed_text_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidStreamCut, match=r"is not a stream cut: pass .*begins with H4sI.*\(Invalid base64 input\)"
    ):
        StreamCut.from_text(text)


@pytest.mark.parametrize(
    "plain",
    [
        "",
        "scope/stream:0:0:0",
        "1:scope/stream:0:0:0",
        "0:scope/stream:0:0",
        "0:scope/stream:0:0:0:0",
        "0:stream:0:0:0",
        "0:scope/stream:0,1:0:0",
        "0:scope/stream:0:0:0,1",
        "0:scope/stream::0:0",
        "0:scope/stream:0,:0,:0,",
        "0:scope/stream:x:0:0",
        "0:scope/stream: 0:0:0",
        "0:scope/stream:1_0:0:0",
        "0:scope/stream:٣:0:0",
        "0:scope/stream:0:0:99999999999999999999",
        "0:scope/stream:-1:0:0",
        "0:scope/stream:0:2147483648:0",
        "0:scope/stream:4294967296:0:0",
        "0:scope/stream:0,0:0,0:1,2",
    ],
)
def test_text_that_is_not_a_cut_is_refused(plain: str) -> None:
    with pytest.raises(
        InvalidStreamCut,
        match=r"not a stream cut.*Invalid|has a segment twice.*\(Invalid string representation of StreamCut",
    ):
        StreamCut.from_text(text_of(plain))


@pytest.mark.parametrize("name", ["../stream", "scope/..", "scope/a/b", "/stream", "scope/", "s_cope/stream"])
def test_names_that_no_stream_has_are_refused(name: str) -> None:
    with pytest.raises(InvalidStreamCut, match=r"^The scope or stream name .*: use a to z"):
        StreamCut.from_text(text_of(f"0:{name}:0:0:0"))


@pytest.mark.parametrize("plain", ["0:scope/stream:0:0:-2", "0:scope/stream:0:0:2305843009213693952"])
def test_offsets_out_of_range_are_refused(plain: str) -> None:
    with pytest.raises(InvalidStreamCut, match="cannot have offset"):
        StreamCut.from_text(text_of(plain))


def test_a_text_that_unpacks_to_too_much_is_refused() -> None:
    bomb = text_of(b"0" * (cuts.LONGEST_PLAIN_TEXT + 1))
    assert len(bomb) < 100_000
    with pytest.raises(InvalidStreamCut, match="unpacks to more than"):
        StreamCut.from_text(bomb)


def test_a_cut_of_many_segments_round_trips() -> None:
    cut = StreamCut("scope", "stream", {segment_id(number, 1): 10**15 + number for number in range(100_000)})
    assert StreamCut.from_text(cut.as_text()) == cut


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_text_is_a_cut_or_refused(plain: bytes) -> None:
    with pytest.raises(InvalidStreamCut):
        StreamCut.from_text(text_of(plain))


# --- bytes ---------------------------------------------------------------------------------------------------------


def test_the_bytes_are_the_originals() -> None:
    cut = StreamCut("scope", "stream", {0: 100, 1: NOT_REACHED})
    expected = "0001" + "01" + "00" + "00000014" + "000c73636f70652f73747265616d" + "02" + "002064" + "0180"
    assert cut.to_bytes().hex() == expected
    assert StreamCut.from_bytes(bytes.fromhex(expected)) == cut


def test_bytes_of_version_0_have_unsigned_offsets() -> None:
    data = bytes.fromhex(
        "0000" + "01" + "00" + "00000015" + "000c73636f70652f73747265616d" + "02" + "004064" + "014020"
    )
    assert StreamCut.from_bytes(data) == StreamCut("scope", "stream", {0: 100, 1: 32})


@settings(deadline=None)
@given(CUTS)
def test_cuts_round_trip_as_bytes(cut: StreamCut) -> None:
    assert StreamCut.from_bytes(cut.to_bytes()) == cut


@settings(deadline=None)
@given(CUTS, st.data())
def test_cut_off_bytes_are_refused(cut: StreamCut, data: st.DataObject) -> None:
    whole = cut.to_bytes()
    with pytest.raises(InvalidStreamCut, match="the data ends"):
        StreamCut.from_bytes(whole[: data.draw(st.integers(1, len(whole) - 1))])


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_are_a_cut_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidStreamCut):
        StreamCut.from_bytes(data)


def test_a_later_version_is_refused() -> None:
    with pytest.raises(InvalidStreamCut, match="unknown version 2"):
        StreamCut.from_bytes(with_version(2, b""))


@pytest.mark.parametrize("twice", [True, False])
def test_bytes_that_are_not_a_cut_are_refused(twice: bool) -> None:
    fields = FieldWriter()
    fields.utf("scope/stream" if twice else "stream")
    fields.compact_int(2)
    for _ in range(2):
        fields.compact_long(0)
        fields.compact_signed_long(1)
    with pytest.raises(InvalidStreamCut):
        StreamCut.from_bytes(with_version(1, fields.getvalue()))


# --- the cut itself ------------------------------------------------------------------------------------------------


def test_unbounded_has_forms_of_its_own() -> None:
    assert UNBOUNDED.as_text() == str(UNBOUNDED) == repr(UNBOUNDED) == "UNBOUNDED"
    assert UNBOUNDED.to_bytes() == b""
    assert StreamCut.from_text("UNBOUNDED") is UNBOUNDED
    assert StreamCut.from_bytes(b"") is UNBOUNDED


def test_unbounded_stays_the_only_one() -> None:
    assert pickle.loads(pickle.dumps(UNBOUNDED)) is UNBOUNDED
    assert copy.deepcopy(UNBOUNDED) is UNBOUNDED
    assert len({UNBOUNDED, StreamCut("scope", "stream", {})}) == 2


@settings(deadline=None)
@given(CUTS)
def test_cuts_can_be_pickled(cut: StreamCut) -> None:
    assert pickle.loads(pickle.dumps(cut)) == cut


def test_a_cut_does_not_change() -> None:
    positions = {0: 1}
    cut = StreamCut("scope", "stream", positions)
    positions[0] = 2
    assert cut.positions == {0: 1}
    with pytest.raises(TypeError):
        cut.positions[0] = 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("scope", "stream", "positions"),
    [
        ("a/b", "stream", {}),
        ("scope", "..", {}),
        ("", "stream", {}),
        ("scope", "stream", {-1: 0}),
        ("scope", "stream", {2**63: 0}),
        ("scope", "stream", {2**31: 0}),
        ("scope", "stream", {0: -2}),
        ("scope", "stream", {0: 2**61}),
    ],
)
def test_fields_that_no_cut_has_are_refused(scope: str, stream: str, positions: dict[int, int]) -> None:
    with pytest.raises(InvalidStreamCut):
        StreamCut(scope, stream, positions)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({0: 1, 1: 2}, {0: 1, 1: 2}, True),
        ({0: 1, 1: 2}, {0: 1, 1: 3}, True),
        ({0: 1, 1: 4}, {0: 1, 1: 3}, False),
        ({0: 2, 1: 2}, {0: 1, 1: 3}, False),
        ({0: 9, 1: 2}, {1: 3, 2: 0}, True),
        ({0: NOT_REACHED}, {0: 0}, True),
        ({0: 0}, {0: NOT_REACHED}, False),
        ({0: 5}, {1: 0}, True),
        ({}, {0: 0}, True),
    ],
)
def test_a_cut_precedes_another_where_both_have_a_segment(
    one: dict[int, int], other: dict[int, int], expected: bool
) -> None:
    assert StreamCut("scope", "stream", one).precedes(StreamCut("scope", "stream", other)) is expected


def test_cuts_that_cannot_be_compared() -> None:
    cut = StreamCut("scope", "stream", {0: 0})
    for other in (StreamCut("scope", "other", {0: 0}), StreamCut("other", "stream", {0: 0})):
        with pytest.raises(InvalidStreamCut, match="different streams"):
            cut.precedes(other)
    for one, two in ((cut, UNBOUNDED), (UNBOUNDED, cut)):
        with pytest.raises(InvalidStreamCut, match="UNBOUNDED has no positions"):
            one.precedes(two)


@pytest.mark.parametrize("segment", [-1, 1 << 62, (1 << 61) - 1])
def test_segment_ids_that_have_no_binary_form_are_refused(segment: int) -> None:
    with pytest.raises(InvalidStreamCut, match="cannot have segment id"):
        StreamCut("s", "a", {segment: 0})
