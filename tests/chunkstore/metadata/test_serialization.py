"""The versioned binary format."""

import pytest
from hypothesis import given, settings, strategies as st

from chunkstore.decoding import InvalidData
from chunkstore.metadata.serialization import (
    FieldReader,
    FieldWriter,
    open_version,
    read_type,
    read_version,
    with_type,
    with_version,
)


@pytest.mark.parametrize(
    ("kind", "value", "encoded"),
    [
        ("compact_int", 0, "00"),
        ("compact_int", 0x7F, "7f"),
        ("compact_int", 0x80, "8080"),
        ("compact_int", 0x3FFF, "bfff"),
        ("compact_int", 0x4000, "c0004000"),
        ("compact_int", 2**30 - 1, "ffffffff"),
        ("compact_long", 0x3F, "3f"),
        ("compact_long", 0x40, "4040"),
        ("compact_long", 100, "4064"),
        ("compact_long", 0x3FFF, "7fff"),
        ("compact_long", 0x4000, "80004000"),
        ("compact_long", 0x3FFFFFFF, "bfffffff"),
        ("compact_long", 0x40000000, "c000000040000000"),
        ("compact_long", 2**62 - 1, "ff" * 8),
        ("compact_signed_long", 0x1F, "1f"),
        ("compact_signed_long", 0x20, "2020"),
        ("compact_signed_long", 100, "2064"),
        ("compact_signed_long", 0x1FFF, "3fff"),
        ("compact_signed_long", 0x2000, "40002000"),
        ("compact_signed_long", 0x1FFFFFFF, "5fffffff"),
        ("compact_signed_long", 0x20000000, "6000000020000000"),
        ("compact_signed_long", 2**61 - 1, "7f" + "ff" * 7),
        ("compact_signed_long", -1, "80"),
        ("compact_signed_long", -0x20, "9f"),
        ("compact_signed_long", -0x21, "a020"),
        ("compact_signed_long", -(2**61), "ff" * 8),
        ("utf", "scope/stream", "000c" + b"scope/stream".hex()),
        ("utf", "\0", "0002c080"),
        ("utf", "é漢", "0005c3a9e6bca2"),
        ("utf", "😀", "0006eda0bdedb880"),
        ("utf", "\ud83d", "0003eda0bd"),
    ],
)
def test_fields_are_written_as_in_the_original(kind: str, value: int | str, encoded: str) -> None:
    fields = FieldWriter()
    getattr(fields, kind)(value)
    assert fields.getvalue().hex() == encoded
    assert getattr(FieldReader(bytes.fromhex(encoded) + b"more"), kind)() == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("compact_int", -1),
        ("compact_int", 2**30),
        ("compact_long", -1),
        ("compact_long", 2**62),
        ("compact_signed_long", 2**61),
        ("compact_signed_long", -(2**61) - 1),
    ],
)
def test_numbers_that_do_not_fit_are_refused(kind: str, value: int) -> None:
    with pytest.raises(ValueError, match="does not fit a compact integer"):
        getattr(FieldWriter(), kind)(value)


def test_a_string_has_a_longest_length() -> None:
    FieldWriter().utf("é" * 32767)
    with pytest.raises(ValueError, match="65536 bytes is too long"):
        FieldWriter().utf("é" * 32768)


@settings(deadline=None)
@given(
    st.integers(0, 2**30 - 1),
    st.integers(0, 2**62 - 1),
    st.integers(-(2**61), 2**61 - 1),
    st.text(st.characters(exclude_categories=[])),
)
def test_fields_round_trip(small: int, large: int, signed: int, text: str) -> None:
    fields = FieldWriter()
    fields.compact_int(small)
    fields.compact_long(large)
    fields.compact_signed_long(signed)
    fields.utf(text)
    version, reader = open_version(with_version(3, fields.getvalue()))
    # Two lone surrogates that happen to make a pair are one character afterwards, as they are in Java.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert (version, reader.compact_int(), reader.compact_long()) == (3, small, large)
    assert (reader.compact_signed_long(), reader.utf()) == (signed, joined)


@pytest.mark.parametrize("encoded", ["0001ff", "0004f09f9880", "0001c3", "00036162"])
def test_strings_that_are_not_modified_utf8_are_refused(encoded: str) -> None:
    with pytest.raises(InvalidData, match=r"not modified UTF-8|the data ends"):
        FieldReader(bytes.fromhex(encoded)).utf()


@pytest.mark.parametrize("encoded", ["", "80", "c0", "c00000"])
def test_numbers_that_end_early_are_refused(encoded: str) -> None:
    with pytest.raises(InvalidData, match="the data ends"):
        FieldReader(bytes.fromhex(encoded)).compact_int()


def test_later_revisions_and_unread_fields_are_skipped() -> None:
    known = FieldWriter()
    known.compact_int(5)
    fields = known.getvalue() + b"a field of the future"
    later = bytes([0, 1, 2, 0]) + len(fields).to_bytes(4, "big") + fields + bytes([1, 0, 0, 0, 1, 9]) + b"trailing"
    version, reader = open_version(later)
    assert (version, reader.compact_int()) == (1, 5)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "the data ends"),
        ("0000", "the data ends"),
        ("01000100000000", "unknown format 1"),
        ("000000", "has no revision"),
        ("0000010100000000", "the first revision is 1"),
        ("000001000000000500", "the data ends"),
        ("00000100ffffffff00", "the data ends"),
    ],
)
def test_what_is_not_a_versioned_value_is_refused(data: str, problem: str) -> None:
    with pytest.raises(InvalidData, match=problem):
        open_version(bytes.fromhex(data))


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.binary(max_size=9))
def test_plain_fields_round_trip(number: int, truth: bool, rest: bytes) -> None:
    fields = FieldWriter()
    fields.long(number)
    fields.boolean(truth)
    fields.raw(rest)
    reader = FieldReader(fields.getvalue())
    assert (reader.long(), reader.boolean(), reader.rest) == (number, truth, len(rest))
    assert reader.take(reader.rest) == rest


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**63])
def test_a_long_that_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        FieldWriter().long(value)


def test_a_value_of_one_of_several_types() -> None:
    data = with_type(7, 2, b"zero", b"one", b"two")
    assert data == b"\0\7\2\3" + b"\0\0\0\0\4zero" + b"\1\0\0\0\3one" + b"\2\0\0\0\3two"
    reader = FieldReader(data + b"what follows")
    kind, version, revisions = read_type(reader)
    assert (kind, version) == (7, 2)
    found = {number: fields.take(fields.rest) for number, fields in revisions.items()}
    assert found == {0: b"zero", 1: b"one", 2: b"two"}
    assert reader.take(reader.rest) == b"what follows"


def test_values_one_behind_the_other() -> None:
    reader = FieldReader(with_version(0, b"\x05") + with_version(1, b"\x06"))
    assert [(version, fields.compact_int()) for version, fields in (read_version(reader), read_version(reader))] == [
        (0, 5),
        (1, 6),
    ]
    assert reader.rest == 0
