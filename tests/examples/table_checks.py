"""Checks of a recipe that keeps a stream as a table: what each of them finds, as a value that JSON can hold.

`python -m tests.examples.table_checks RECIPE FOLDER CHECK…` makes them in a Spark session of its own, with the jars of
PYSPARK_SUBMIT_ARGS, and prints the findings as the last line. A recipe is a module of `examples` with `store`, `table`
and `publish`.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from pravega_spark import StreamManager

POSITION = ("scope", "stream", "segment_id", "offset", "event_number", "timestamp")


class Recipe:
    """A recipe at work in a folder. name: of its module."""

    def __init__(self, spark: SparkSession, name: str, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.module: ModuleType = importlib.import_module(f"examples.{name}")

    def write(self, first: int, count: int) -> None:
        """Append orders to the stream."""
        self.module.write_orders(self.folder, first, count)

    def store(self, **options: str) -> None:
        """From the stream into the table."""
        self.module.store(self.spark, self.folder, **options)

    def publish(self) -> None:
        """From the table into the other stream."""
        self.module.publish(self.spark, self.folder)

    def table(self) -> DataFrame:
        """The table as it is now."""
        frame: DataFrame = self.module.table(self.spark, self.folder)
        return frame

    def positions(self) -> int:
        """How many different events the table has."""
        return self.table().select("segment_id", "offset").distinct().count()

    def batches(self) -> int:
        """How many batches the checkpoint of the query that makes the table has."""
        return committed_batches(self.folder)

    def forget_last_commit(self, query: str) -> str:
        """Bring the checkpoint of a query to what it is when the driver dies after the sink's commit of a batch and
        before the checkpoint's. Returns the batch's number."""
        commits = self.folder / "checkpoints" / query / "commits"
        last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
        return last.name

    def committed(self, query: str, batch: str) -> bool:
        """Whether the checkpoint of a query has the commit of a batch."""
        return (self.folder / "checkpoints" / query / "commits" / batch).exists()

    def unlike_stream(self) -> list[str]:
        """What differs between the stream and the table, as two lists of rows with their positions."""
        where = {"controller": str(self.folder / "streams"), "scope": "shop", "stream": "orders"}
        stream = self.spark.read.format("pravega").options(**where, include_metadata="true").load()
        expected = rows(stream.selectExpr(*POSITION, "cast(event AS string) AS event"))
        found = rows(self.table().select(*POSITION, "event"))
        return differences(expected, found)

    def unlike_published(self) -> list[str]:
        """What differs between the table and the stream that is made from it."""
        with StreamManager(str(self.folder / "streams")) as manager:
            found = Counter(bytes(event.data).decode() for event in manager.read_events("shop", "published"))
        return differences(Counter(row.event for row in self.table().select("event").collect()), found)


def committed_batches(folder: Path) -> int:
    """How many batches the query that makes the table has committed."""
    commits = folder / "checkpoints" / "table" / "commits"
    return sum(file.name.isdigit() for file in commits.iterdir()) if commits.exists() else 0


def rows(frame: DataFrame) -> Counter[str]:
    """The rows of a DataFrame, and how often each of them is there."""
    return Counter(str(tuple(row)) for row in frame.collect())


def differences(expected: Counter[str], found: Counter[str]) -> list[str]:
    """Up to 6 of the rows that are missing or there too often."""
    missing, surplus = expected - found, found - expected
    return [f"missing: {row}" for row in list(missing)[:3]] + [f"surplus: {row}" for row in list(surplus)[:3]]


def exactly_once(recipe: Recipe) -> dict[str, Any]:
    """Both directions, with a crash between the sink's commit and the checkpoint's in each, and then new events."""
    recipe.write(0, 300)
    recipe.store()
    batch = recipe.forget_last_commit("table")
    recipe.store()
    found: dict[str, Any] = {"repeated": recipe.committed("table", batch), "unlike stream": recipe.unlike_stream()}
    recipe.publish()
    batch = recipe.forget_last_commit("published")
    recipe.write(300, 100)
    recipe.store()
    recipe.publish()
    found["repeated published"] = recipe.committed("published", batch)
    found["unlike stream, in the end"] = recipe.unlike_stream()
    found["unlike published"] = recipe.unlike_published()
    found["count"] = recipe.table().count()
    numbers = recipe.table().groupBy("segment_id").agg(expr("max(event_number) AS last"), expr("count(*) AS count"))
    found["gaps"] = [tuple(row) for row in numbers.where("last + 1 <> count").collect()]
    return found


def files_without_a_list(recipe: Recipe) -> dict[str, Any]:
    """A crash between the files of a batch and the entry of the table's list (Parquet), as the next run leaves it."""
    recipe.write(400, 50)
    recipe.store()
    entry = recipe.folder / "table" / "_spark_metadata" / recipe.forget_last_commit("table")
    entry.unlink()
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    recipe.store()
    files = sum(parquet.read_metadata(file).num_rows for file in (recipe.folder / "table").rglob("*.parquet"))
    return {"unlike stream": recipe.unlike_stream(), "rows in all files": files}


def expired_snapshots(recipe: Recipe) -> dict[str, Any]:
    """A crash between the table's commit and the checkpoint's, and then the snapshot expires (Iceberg)."""
    recipe.write(400, 50)
    recipe.store()
    recipe.forget_last_commit("table")
    rewrite = "CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
    expire = "CALL lake.system.expire_snapshots(table => 'shop.orders', older_than => {}, retain_last => 1)"
    recipe.spark.sql(rewrite)
    recipe.spark.sql(expire.format("TIMESTAMP '2100-01-01 00:00:00'"))
    recipe.store()
    return {"count": recipe.table().count(), "positions": recipe.positions()}


def another_checkpoint(recipe: Recipe) -> dict[str, Any]:
    """The checkpoint is lost, new events come, and the query starts with a new checkpoint."""
    shutil.move(recipe.folder / "checkpoints" / "table", recipe.folder / "checkpoints" / "lost")
    recipe.write(450, 50)
    before = recipe.table().count()
    recipe.store()
    return {"before": before, "count": recipe.table().count(), "positions": recipe.positions()}


def small_batches(recipe: Recipe) -> dict[str, Any]:
    """All that is in the stream, 20 events in a batch. A program that does so may be killed and begun again."""
    done = -1
    while done < (done := recipe.batches()):
        recipe.store(max_events_per_trigger="20", limit_first_batch="true")
    return {"unlike stream": recipe.unlike_stream(), "batches": done}


CHECKS: dict[str, Callable[[Recipe], dict[str, Any]]] = {
    check.__name__: check
    for check in (exactly_once, files_without_a_list, expired_snapshots, another_checkpoint, small_batches)
}


def found_by(recipe: Recipe, *checks: str) -> dict[str, Any]:
    """What the checks find, made one after the other on the same table."""
    return {check: CHECKS[check](recipe) for check in checks}


def main(name: str, folder: Path, *checks: str) -> None:
    """Make the checks in a session of their own, and print what they find."""
    configured = importlib.import_module(f"examples.{name}").settings(folder)
    spark = SparkSession.builder.config(map=configured).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print(json.dumps(found_by(Recipe(spark, name, folder), *checks)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
