"""pandas: write a DataFrame to a stream as one commit, and read a stream in chunks that fit in memory."""

import json
import tempfile
from collections import Counter

import pandas as pd

from pravega_spark import StreamManager


def run(root: str) -> list[tuple[str, int]]:
    """Write 30,000 orders, and sum up the amounts of each user."""
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "orders", 2)

        orders = pd.DataFrame(
            {"user": [f"user-{n % 3}" for n in range(30_000)], "amount": [n % 10 for n in range(30_000)]}
        )
        events = pd.DataFrame({"event": map(json.dumps, orders.to_dict("records")), "routing_key": orders["user"]})
        manager.write_events("examples", "orders", events)  # all of them, or none

        amounts: Counter[str] = Counter()
        for batch in manager.read_events("examples", "orders").to_batches(["event"]):
            chunk = pd.DataFrame.from_records(batch.to_pandas()["event"].map(json.loads))
            amounts.update(chunk.groupby("user")["amount"].sum().to_dict())
        return sorted(amounts.items())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(run(folder))
