"""Names of objects: no two of them meet on any storage, each is understood again, and nothing else is (P5)."""

from __future__ import annotations

import unicodedata
import uuid

import pytest
from hypothesis import assume, example, given, strategies as st

from chunkstore.chunk_names import LONGEST_PART, chunk_name, made_for, name_of, object_name
from chunkstore.port import check_path
from chunkstore.testing.folding import RESERVED, folded

UNIQUE = uuid.UUID(int=7)

users = st.text("abzABZ019.-", min_size=1, max_size=12)
"""What a scope or stream may be called, in few letters, so that much nearly meets."""

anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=200)
parts = (users | anything | st.sampled_from([*RESERVED, "Con", "COM1.x"])).filter(lambda part: part not in (".", ".."))
names = st.lists(parts, min_size=1, max_size=3).map("/".join)


@given(names)
@example("a" * (LONGEST_PART - 1) + ".")
@example("A" + "." * LONGEST_PART * 2)
@example("x" * LONGEST_PART)
@example("x" * (LONGEST_PART + 1))
def test_a_name_is_understood_again_and_fits_every_storage(name: str) -> None:
    stored = object_name(name)
    assert name_of(stored) == name
    assert made_for(chunk_name(name, 1 << 63, 1 << 63, UNIQUE)) == name
    for part in chunk_name(name, 1 << 63, 1 << 63, UNIQUE).split("/"):
        assert len(part) < 256 and part.isascii() and not part.endswith((".", " "))
        assert part.partition(".")[0].lower() not in RESERVED and not set(part) & set('<>:"\\|?*%~')


@given(names, names)
def test_two_names_never_meet(one: str, other: str) -> None:
    assume(one != other)
    assert folded(object_name(one)) != folded(object_name(other))


@given(st.data())
def test_names_that_nearly_meet_do_not(data: st.DataObject) -> None:
    """Names that a folding storage takes for one and the same."""
    name = data.draw(users | anything)
    other = data.draw(
        st.sampled_from([name.swapcase(), name.lower(), name.upper(), name + ".", unicodedata.normalize("NFD", name)])
    )
    assume(name != other and name not in (".", "..") and other not in (".", ".."))
    assert folded(object_name(name)) != folded(object_name(other))


@given(st.text("ab8cf!()./-_A", max_size=20) | names)
def test_what_is_not_a_stored_name_is_not_understood(text: str) -> None:
    found = name_of(text)
    assert found is None or object_name(found) == text


@pytest.mark.parametrize("name", ["examples/rides/0.#epoch.0", "s/t/2.#epoch.1#index", "a.b/c-d/recorded"])
def test_plain_names_stay_as_they_are(name: str) -> None:
    assert object_name(name) == name


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("Orders", "8!orders"),
        ("myStream/x", "2!mystream/x"),
        ("System", "8!system"),
        ("con", "!con"),
        ("AUX.log", "e!aux.log"),
        ("a.", "a.!"),
        ("ä b!", "(c3)(a4)(20)b(21)"),
        ("x" * 161, "x" * 160 + "!!/!x"),
    ],
)
def test_the_form_is_fixed(name: str, stored: str) -> None:
    assert object_name(name) == stored and name_of(stored) == name


def test_the_longest_names_of_a_stream_have_a_path() -> None:
    longest = f"{'A' * 255}/{'bA' * 125}/2147483647.#epoch.2147483647#transient.{'0' * 32}.{'0' * 32}"
    check_path(chunk_name(longest, 1 << 63, 1 << 63, UNIQUE))


@pytest.mark.parametrize("stored", ["80!orders", "0!orders", "!orders", "8!Orders", "Orders", "a.", "(41)", "(C3)(b6)"])
def test_a_form_that_is_never_made_is_refused(stored: str) -> None:
    assert name_of(stored) is None and made_for(f"{stored}.E-1-O-2.{UNIQUE}") is None
