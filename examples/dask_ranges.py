"""Dask: processes read the ranges of a stream's segments in parallel, as one dataframe."""

import json
import tempfile
from functools import cache

import dask.dataframe as dd
import pandas as pd

from pravega_spark import SegmentRange, StreamManager


@cache
def manager_of(root: str) -> StreamManager:
    """The manager of this process. Credentials come from the process's environment, not from the driver."""
    return StreamManager(root)


def read(part: SegmentRange, root: str) -> pd.DataFrame:
    """The orders of a range."""
    events = manager_of(root).read_segment(part).to_pandas(["event"])["event"]
    orders = pd.DataFrame.from_records(events.map(json.loads), columns=["user", "amount"])
    return orders.astype({"user": str, "amount": "int64"})


def run(root: str) -> list[tuple[str, int]]:
    """Write 30,000 orders, and sum up the amounts of each user."""
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "orders", 2)
        orders = [{"user": f"user-{n % 3}", "amount": n % 10} for n in range(30_000)]
        events = pd.DataFrame({"event": map(json.dumps, orders), "routing_key": [each["user"] for each in orders]})
        manager.write_events("examples", "orders", events)  # all of them, or none

        parts = manager.segment_ranges("examples", "orders", max_bytes="500KiB")
        meta = pd.DataFrame({"user": pd.Series(dtype=str), "amount": pd.Series(dtype="int64")})
        amounts = dd.from_map(read, parts, root=root, meta=meta).groupby("user")["amount"].sum()
        return sorted(amounts.compute(scheduler="processes").items())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(run(folder))
