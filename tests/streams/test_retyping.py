"""Nested columns in other types: the same values, and the row of a null that is forbidden."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pravega_spark.streams.values.codec import MalformedValue
from pravega_spark.streams.values.retyping import retyped

LISTS = pa.list_(pa.field("element", pa.int64(), nullable=False))
STRUCTS = pa.struct([pa.field("x", pa.int64(), nullable=False)])
MAPS = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
DEEP = pa.list_(pa.field("element", pa.struct([pa.field("m", MAPS)])))


@pytest.mark.parametrize(
    ("values", "written", "wanted", "path"),
    [
        ([[1], None, [], [2, 3, None]], pa.list_(pa.int32()), LISTS, "a[]"),
        ([{"x": 1}, None, {"x": 2}, {"x": None}], pa.struct([("x", pa.int32())]), STRUCTS, "a.x"),
        ([[("k", 1)], None, [], [("k", None)]], pa.map_(pa.string(), pa.int32()), MAPS, "a[]"),
        (
            [[{"m": [("k", 1)]}], [None], [], [{"m": None}, {"m": [("k", 1), ("l", None)]}]],
            pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int32()))])),
            DEEP,
            "a[].m[]",
        ),
    ],
    ids=["list", "struct", "map", "deep"],
)
@pytest.mark.parametrize("first", range(4))
def test_a_null_that_is_forbidden_has_the_row_of_its_event(
    values: list[Any], written: pa.DataType, wanted: pa.DataType, path: str, first: int
) -> None:
    """Also in a slice of a column, and behind nulls that are allowed."""
    column, field = pa.array(values, written).slice(first), pa.field("a", wanted)
    with pytest.raises(MalformedValue) as caught:
        retyped(column, field, "a")
    assert caught.value.row == 3 - first
    assert f"field {path!r} is null, which the schema of the read forbids" in str(caught.value)
    good = retyped(column.slice(0, len(column) - 1), field, "a")
    good.validate(full=True)
    assert good.type.equals(wanted) and good.to_pylist() == values[first:-1]


@given(st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3), max_size=9), st.integers(0, 9))
def test_wider_types_have_the_same_values(values: list[Any], first: int) -> None:
    column = pa.array(values, pa.list_(pa.int32())).slice(first)
    found = retyped(column, pa.field("a", pa.list_(pa.int64())), "a")
    found.validate(full=True)
    assert found.to_pylist() == values[first:]


def test_fields_that_were_not_written_are_null() -> None:
    column = pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())]))
    wanted = pa.struct([("y", pa.string()), ("x", pa.int64())])
    assert retyped(column, pa.field("a", wanted), "a").to_pylist() == [{"y": None, "x": 1}, None]
