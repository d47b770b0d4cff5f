"""polars: write a DataFrame to a stream as one commit, and scan a stream lazily."""

import tempfile
from collections.abc import Iterator

import polars as pl
from polars.io.plugins import register_io_source

from pravega_spark import StreamManager


def scan_stream(manager: StreamManager, scope: str, stream: str) -> pl.LazyFrame:
    """The events of a stream up to now. A query reads only the columns that it needs, and stops when it has enough."""
    events = manager.read_events(scope, stream)

    def batches(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None
    ) -> Iterator[pl.DataFrame]:
        for batch in events.to_batches(columns):
            frame = pl.DataFrame(batch)
            if rows is not None:
                frame = frame.head(rows)
                rows -= len(frame)
            yield frame if predicate is None else frame.filter(predicate)
            if rows == 0:
                return

    return register_io_source(batches, schema=pl.DataFrame(events.to_batches().schema.empty_table()).schema)


def run(root: str) -> list[tuple[str, int]]:
    """Write 100,000 orders, and sum up the amounts of each user."""
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "orders", 2)

        orders = pl.LazyFrame({"number": range(100_000)}).select(
            routing_key=pl.format("user-{}", pl.col("number") % 3), amount=pl.col("number") % 10
        )
        events = orders.select("routing_key", event=pl.struct(user="routing_key", amount="amount").struct.json_encode())
        manager.write_events("examples", "orders", events.collect())  # all of them, or none

        order = pl.Struct({"user": pl.String, "amount": pl.Int64})
        return (
            scan_stream(manager, "examples", "orders")
            .select(pl.col("event").cast(pl.String).str.json_decode(order).struct.unnest())
            .group_by("user")
            .agg(pl.col("amount").sum())
            .sort("user")
            .collect()
            .rows()
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(run(folder))
