"""Event pointers."""

import pytest
from hypothesis import given, settings, strategies as st

from pravega_spark.segment_ids import segment_id
from pravega_spark.streams.model.pointers import EventPointer

NAMES = st.from_regex(r"[a-z0-9.\-]{2,20}", fullmatch=True).filter(lambda name: name != "..")
POINTERS = st.builds(
    EventPointer,
    NAMES,
    NAMES,
    st.builds(segment_id, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**62 - 1),
    st.integers(8, 2**30 - 1),
)


def test_the_forms_are_the_originals() -> None:
    pointer = EventPointer("scope", "stream", 0, 100, 42)
    assert pointer.as_text() == str(pointer) == "scope/stream/0.#epoch.0:100-42"
    name = "0017" + b"scope/stream/0.#epoch.0".hex()
    assert pointer.to_bytes().hex() == "0000" + "01" + "00" + "0000001c" + name + "4064" + "2a"


@settings(deadline=None)
@given(POINTERS)
def test_pointers_round_trip(pointer: EventPointer) -> None:
    assert EventPointer.from_text(pointer.as_text()) == pointer
    assert EventPointer.from_bytes(pointer.to_bytes()) == pointer


def test_a_very_large_event_has_a_pointer_as_text_only() -> None:
    pointer = EventPointer("scope", "stream", 0, 0, 2**30 + 8)
    assert EventPointer.from_text(pointer.as_text()) == pointer
    with pytest.raises(ValueError, match="does not fit"):
        pointer.to_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "scope/stream/0.#epoch.0",
        "scope/stream/0.#epoch.0:1",
        "scope/stream/0.#epoch.0:-1-42",
        "scope/stream/0.#epoch.0:1-42\n",
        "scope/stream/0.#epoch.0:1-7",
        "scope/stream/0.#epoch.0:9999999999999999999-42",
        "stream/0.#epoch.0:1-42",
        "../stream/0.#epoch.0:1-42",
        "scope/stream:1-42",
        "scope/stream/0.#epoch.0:1_0-42",
    ],
)
def test_what_is_not_a_pointer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"event pointer|segment name|stream name|at least 8 bytes"):
        EventPointer.from_text(text)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_bytes_that_are_not_a_pointer_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"unknown format|bytes"):
        EventPointer.from_bytes(data)


@settings(deadline=None)
@given(POINTERS, st.data())
def test_cut_off_bytes_are_refused(pointer: EventPointer, data: st.DataObject) -> None:
    whole = pointer.to_bytes()
    with pytest.raises(ValueError, match="the data ends"):
        EventPointer.from_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_a_later_version_is_refused() -> None:
    data = bytearray(EventPointer("scope", "stream", 0, 100, 42).to_bytes())
    data[1] = 1
    with pytest.raises(ValueError, match="unknown version 1"):
        EventPointer.from_bytes(bytes(data))


@pytest.mark.parametrize(
    "fields",
    [("a/b", "s", 0, 0, 8), ("s", "..", 0, 0, 8), ("s", "s", -1, 0, 8), ("s", "s", 0, -1, 8), ("s", "s", 0, 0, 7)],
)
def test_fields_that_no_event_has_are_refused(fields: tuple[str, str, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"stream name|an event"):
        EventPointer(*fields)
