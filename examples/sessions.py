"""Sessions with state: clicks of a user become one session after half an hour of event time without a click."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from pravega_spark import StreamManager

GAP_SECONDS = 1800


def sessions(key: tuple[str], clicks: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """The ended sessions of one user. The open session is the state: begin, last click, clicks."""
    begin, last, count = state.get if state.exists else (0, 0, 0)
    ended = []
    for second in sorted(second for frame in clicks for second in frame["second"]):
        if count and second - last > GAP_SECONDS:
            ended.append((key[0], begin, count))
            count = 0
        begin, last, count = (begin if count else second), second, count + 1
    state.update((int(begin), int(last), int(count)))
    yield pd.DataFrame(ended, columns=["user", "begin", "clicks"])


def run(spark: SparkSession, folder: Path) -> list[tuple[str, int, int]]:
    """Find the sessions among some clicks; return (user, begin, clicks) of the ended ones."""
    root = str(folder / "streams")
    with StreamManager(root) as manager:
        manager.create_scope("web")
        manager.create_stream("web", "clicks", 2)
        with manager.create_writer("web", "clicks") as writer:
            for user, second in [("ann", 0), ("ben", 50), ("ann", 600), ("ann", 9000), ("ben", 5000), ("ann", 9100)]:
                writer.write_event(json.dumps({"user": user, "second": second}), routing_key=user)

    clicks = (
        spark.readStream.format("pravega")
        .options(controller=root, scope="web", stream="clicks", start_stream_cut="earliest")
        .load()
        .selectExpr("from_json(cast(event as string), 'user string, second long') as click")
        .select("click.*")
    )
    query = (
        clicks.groupBy("user")
        .applyInPandasWithState(
            sessions,
            outputStructType="user string, begin long, clicks long",
            stateStructType="begin long, last long, clicks long",
            outputMode="append",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
        .writeStream.format("memory")
        .queryName("sessions")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted((row["user"], row["begin"], row["clicks"]) for row in spark.table("sessions").collect())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
