"""Structured rows of any library, written as events by a format of values and read back."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pravega_spark import StreamManager, ValueFormat

DDL = "id bigint, name string, price decimal(8,2), at timestamp, tags array<string>"
JSON = ValueFormat("json", DDL)
AVRO = ValueFormat(
    "avro",
    json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "name", "type": ["null", "string"]},
                {
                    "name": "price",
                    "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}],
                },
                {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
                {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
            ],
        }
    ),
)
AT = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "ä", "price": Decimal("1.50"), "at": AT, "tags": ["x", None]},
    {"id": 2, "name": None, "price": None, "at": None, "tags": []},
]


def table() -> pa.Table:
    return pa.Table.from_pylist(ROWS, JSON.fields())


def read(manager: StreamManager, format: ValueFormat) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manager.to_arrow("sc", "one", value_format=format).select([*ROWS[0]]).to_pylist()
    return found


@pytest.mark.parametrize("format", [JSON, AVRO], ids=["json", "avro"])
@pytest.mark.parametrize("kind", ["pyarrow", "polars", "pandas"])
def test_rows_come_back_as_they_were(manager: StreamManager, format: ValueFormat, kind: str) -> None:
    data: Any = table()
    if kind != "pyarrow":
        data = pl.from_arrow(data) if kind == "polars" else data.to_pandas(types_mapper=pd.ArrowDtype)
    assert manager.write_events("sc", "one", data, value_format=format)
    assert read(manager, format) == ROWS


def test_the_routing_key_is_no_field(manager: StreamManager) -> None:
    keyed = table().append_column("routing_key", pa.array(["k", "k"]))
    assert manager.write_events("sc", "four", keyed, value_format=JSON)
    events = list(manager.read_events("sc", "four"))
    assert [json.loads(bytes(event.data))["id"] for event in events] == [1, 2]
    assert "routing_key" not in json.loads(bytes(events[0].data))
    assert len({event.segment_id for event in events}) == 1


def test_what_was_read_is_written_to_another_stream_without_its_position(manager: StreamManager) -> None:
    manager.write_events("sc", "four", table(), value_format=JSON)
    manager.write_events("sc", "one", manager.to_arrow("sc", "four", value_format=JSON), value_format=JSON)
    assert sorted(read(manager, JSON), key=lambda row: row["id"]) == ROWS
    assert {*json.loads(bytes(next(manager.read_events("sc", "one").__iter__()).data))} <= {*ROWS[0]}


def test_categories_and_narrower_numbers_fit(manager: StreamManager) -> None:
    frame = pl.DataFrame({"id": pl.Series([7], dtype=pl.Int16), "name": pl.Series(["a"], dtype=pl.Categorical)})
    assert manager.write_events("sc", "one", frame, value_format=JSON)
    assert read(manager, JSON)[0] | {"id": 7, "name": "a"} == read(manager, JSON)[0]


def test_a_reader_of_many_rows_is_one_append_of_all(manager: StreamManager) -> None:
    wide = pa.table({"id": range(100_000), "name": ["x" * 200] * 100_000})
    assert manager.write_events("sc", "one", wide.to_reader(100_000), value_format=JSON)
    found = manager.to_arrow("sc", "one", value_format=JSON)["id"].to_pylist()
    assert found == list(range(100_000))


def test_the_format_that_the_stream_keeps_is_the_one_that_is_written(manager: StreamManager) -> None:
    manager.set_value_format("sc", "one", JSON)
    kept = manager.value_format("sc", "one")
    assert manager.write_events("sc", "one", table(), value_format=kept)
    assert manager.write_events("sc", "one", table(), value_format=ValueFormat("json", f"{DDL}"))
    for other in (AVRO, ValueFormat("json", "id string")):
        with pytest.raises(ValueError, match=r"stream sc/one keeps its values as json of id .*manager\.value_for"):
            manager.write_events("sc", "one", pa.table({"id": ["1"]}), value_format=other)
    assert len(read(manager, JSON)) == 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"id": [1], "more": [2]},
            "do not fit the schema of value_format, .* column 'more' .* is not in it",
        ),
        ({"id": ["1"]}, "column 'id' is string instead of bigint"),
        ({"id": [1], "offset": [2]}, "column 'offset' of data has the name of a column of a stream"),
        ({"id": [1], "event": ["x"]}, "column 'event' of data has the name of a column of a stream"),
        ({"routing_key": ["k"]}, "data has no columns to put into an event"),
        (
            {"id": [1], "at": pa.array([1], pa.timestamp("ns", tz="UTC"))},
            r"column 'at' of data has a value that timestamp\[us, tz=UTC\] cannot hold",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    manager: StreamManager, data: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        manager.write_events("sc", "one", pa.table(data), value_format=JSON)
    assert list(manager.read_events("sc", "one")) == []


def test_a_null_that_the_schema_forbids_is_refused(manager: StreamManager) -> None:
    with pytest.raises(ValueError, match="column 'id' is null in a row"):
        manager.write_events("sc", "one", pa.table({"id": pa.array([1, None], pa.int64())}), value_format=AVRO)
    assert list(manager.read_events("sc", "one")) == []
