"""Large events and metadata columns, from DataFrame to DataFrame."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, sha2, udf
from pyspark.sql.pandas.functions import pandas_udf

from pravega_spark import fetch_event, fetch_event_to_file, fetch_events
from tests.spark.folder import Folder, read_all

LARGE = 9 << 20


def rows(folder: Folder) -> DataFrame:
    """Small, large, small, larger, small: each its place, three keys."""
    return folder.spark.range(0, 7, 1, 1).selectExpr(
        f"repeat(cast(id AS string), CASE id WHEN 2 THEN {LARGE} WHEN 5 THEN {LARGE + 1000} ELSE 1 END) AS event",
        "concat('key-', id % 3) AS routing_key",
    )


def digests(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.select(sha2(col("event"), 256)).collect())


def expected() -> list[str]:
    sizes = {2: LARGE, 5: LARGE + 1000}
    return sorted(hashlib.sha256(str(n).encode() * sizes.get(n, 1)).hexdigest() for n in range(7))


def test_written_and_read(folder: Folder) -> None:
    """By a batch job, by a query, inline, by reference and with the pointers used in UDFs of three kinds."""
    folder.append(rows(folder), default_num_segments=2)
    assert digests(folder.frame()) == expected()
    limits: dict[str, Any] = {"large_events": "reference", "max_event_bytes": 1000}
    source = folder.follow(start_stream_cut="earliest", large_events="inline", max_events_per_trigger=3)
    copy = source.select("event").writeStream.format("pravega").options(**folder.options("sink"))
    read_all(copy.option("checkpointLocation", folder.checkpoint()))
    assert digests(folder.frame("sink", large_events="inline", max_event_bytes=1)) == expected()
    with pytest.raises(PythonException) as caught:
        folder.frame(max_event_bytes=LARGE + 999).collect()
    for part in ("Stream s/t, segment ", f"an event of {LARGE + 1000} bytes", "option 'max_event_bytes'", ".#epoch.0:"):
        assert part in str(caught.value)

    found = folder.frame(**limits)
    assert found.schema.simpleString() == (
        "struct<event:binary,scope:string,stream:string,segment_id:bigint,offset:bigint,event_pointer:string>"
    )
    left_out = found.where("event IS NULL").cache()
    assert left_out.count() == 2 and found.where("event IS NOT NULL AND event_pointer IS NULL").count() == 5
    url, path = folder.url, str(folder.path)

    @udf("string", useArrow=False)
    def start(pointer: str) -> str:
        return fetch_event(pointer, url, LARGE - 3, LARGE).decode()

    @udf("long", useArrow=False)
    def copied(pointer: str) -> int:
        return fetch_event_to_file(pointer, url, f"{path}/{hashlib.md5(pointer.encode()).hexdigest()}")

    @pandas_udf("binary")  # type: ignore[call-overload, untyped-decorator]
    def some(pointers: pd.Series) -> pd.Series:
        return fetch_events(pointers, url, 0, 2)

    def whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([fetch_events(batch.column("event_pointer"), url)], ["event"])

    taken = left_out.select(start("event_pointer"), copied("event_pointer"), some("event_pointer")).collect()
    assert sorted((row[0], row[1], bytes(row[2])) for row in taken) == [
        ("222", LARGE, b"22"),
        ("555", LARGE + 1000, b"55"),
    ]
    fetched = left_out.mapInArrow(whole, "event binary")
    assert digests(fetched.union(found.where("event IS NOT NULL").select("event"))) == expected()
    query = folder.follow(start_stream_cut="earliest", **limits).writeStream.format("memory").queryName("references")
    read_all(query.option("checkpointLocation", folder.checkpoint("c2")))
    assert folder.spark.table("references").where("event IS NULL AND event_pointer IS NOT NULL").count() == 2


def test_metadata_columns(folder: Folder) -> None:
    """The same in a batch read, a micro-batch read and a table of the catalog."""
    folder.put(*[str(number) for number in range(20)], default_num_segments=2)
    folder.put(*[str(number) for number in range(20, 30)])
    read = folder.frame(include_metadata="true")
    assert read.schema.simpleString().endswith(
        "offset:bigint,timestamp:timestamp,event_pointer:string,event_number:bigint>"
    )
    query = folder.follow(start_stream_cut="earliest", include_metadata=True, max_events_per_trigger=7).writeStream
    query = query.format("memory").queryName("numbered").option("checkpointLocation", folder.checkpoint())
    read_all(query)
    followed = folder.spark.table("numbered")
    columns = ["segment_id", "event_number", "offset", "timestamp", "event_pointer", "event"]
    batch = sorted(map(tuple, read.select(*columns).collect()))
    assert sorted(map(tuple, followed.select(*columns).collect())) == batch
    numbers = {segment: [row[1] for row in batch if row[0] == segment] for segment in (0, 1)}
    assert numbers == {segment: list(range(len(found))) for segment, found in numbers.items()}
    assert sum(map(len, numbers.values())) == 30 and all(numbers.values())
    assert all(fetch_event(row[4], folder.url) == bytes(row[5]) for row in batch)
    places = folder.options(include_metadata="true")
    given = ", ".join(f"{name} '{value}'" for name, value in places.items())
    folder.spark.sql(f"CREATE TABLE with_metadata USING pravega OPTIONS ({given})")
    try:
        assert sorted(map(tuple, folder.spark.table("with_metadata").select(*columns).collect())) == batch
    finally:
        folder.spark.sql("DROP TABLE with_metadata")
