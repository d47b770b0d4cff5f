"""The one place where nonsense becomes a declared error: formats, types, lengths."""

from __future__ import annotations

import tracemalloc
from typing import Any, NamedTuple

import msgpack
import pytest

from chunkstore.decoding import InvalidData, Natural, NewerFormat, check_format, decoding, encoded, reader, unpack


class Record(NamedTuple):
    name: str
    size: Natural
    rest: tuple[bytes, ...] | None


def test_a_record_is_read_by_its_annotations() -> None:
    read = reader(Record)
    assert read(["a", 1, [b"x"]]) == Record("a", 1, (b"x",))
    assert read(["a", 0, None]) == Record("a", 0, None)
    for wrong in (["a", 1], ["a", 1, None, 2], ["a", -1, None], [b"a", 1, None], ["a", True, None], ["a", 1, ["x"]], 7):
        with pytest.raises(InvalidData):
            read(wrong)


def test_a_list_that_is_read_later_is_not_walked() -> None:
    """A checkpoint has one for each segment: opening must not cost for each of their fields."""
    plain = [1, "a", [None]]
    assert reader(list[Any])(plain) is plain and reader(list[Any])((1, 2)) == [1, 2]
    with pytest.raises(InvalidData):
        reader(list[Any])("abc")


def test_a_field_more_is_of_another_version() -> None:
    with pytest.raises(NewerFormat, match="Record has 4 fields; this version knows 3"):
        reader(Record)(["a", 1, None, "new"])
    with pytest.raises(InvalidData, match="Record has 2 fields; this version knows 3") as fewer:
        reader(Record)(["a", 1])
    assert not isinstance(fewer.value, NewerFormat)


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 1.0, "1", None, True])
def test_a_number_has_64_bits(value: object) -> None:
    with pytest.raises(InvalidData):
        reader(int)(value)


def test_a_format_number_comes_first() -> None:
    check_format(1, 1)
    with pytest.raises(NewerFormat, match="it has format 2; this version reads format 1: upgrade this program"):
        check_format(2, 1)
    odd: list[object] = ["1", None, True, 1.0, []]
    for none in odd:
        with pytest.raises(InvalidData, match="which is no number"):
            check_format(none, 1)


@pytest.mark.parametrize(
    "error", [KeyError("a"), TypeError("a"), IndexError(), RecursionError(), OverflowError(), UnicodeError(),
              ZeroDivisionError(), AttributeError(), msgpack.OutOfData(), AssertionError()],
)  # fmt: skip
def test_whatever_goes_wrong_is_declared(error: Exception) -> None:
    class Declared(Exception):
        pass

    with pytest.raises(InvalidData, match=type(error).__name__), decoding():
        raise error
    with pytest.raises(Declared), decoding(lambda problem: Declared(str(problem))):
        raise error


def test_what_says_nothing_of_the_data_passes() -> None:
    for error in (MemoryError(), OSError(), KeyboardInterrupt()):
        with pytest.raises(type(error)), decoding():
            raise error


def test_lengths_that_are_claimed_cost_nothing() -> None:
    """Lists that claim to have as many elements as there are bytes, one in the other."""
    claims = (b"\xdd" + (400_000).to_bytes(4, "big")) * 80_000
    tracemalloc.start()
    with pytest.raises(InvalidData):
        unpack(claims)
    assert tracemalloc.get_traced_memory()[1] < 4 * len(claims)
    tracemalloc.stop()


def test_text_that_is_given_is_unicode() -> None:
    assert encoded("\u00e4", "name") == b"\xc3\xa4"
    with pytest.raises(ValueError, match=r"name '\\udcff' is not valid Unicode text"):
        encoded("\udcff", "name")
