"""A program for the Scala connector, in the manner of its Python samples. It knows nothing of this project.

Writes JSON events of some sensors as a batch, reads them with one query, adds a field, and writes them to another
stream with the same query, and reports what is in both as one line of JSON.
"""

import json
import os
from typing import Any

from pyspark.sql import DataFrame, SparkSession

controller = os.environ["PRAVEGA_CONTROLLER_URI"]
scope = os.environ.get("PRAVEGA_SCOPE", "examples")
checkpoints = os.environ["CHECKPOINT_DIR"]
allow_create_scope = "PROJECT_NAME" not in os.environ

spark = SparkSession.builder.appName("sensors").getOrCreate()

(
    spark.range(0, 300)
    .selectExpr("concat('sensor-', id % 10) AS sensor", "id AS reading", "id * 0.5 AS value")
    .selectExpr("to_json(struct(sensor, reading, value)) AS event", "sensor AS routing_key")
    .coalesce(1)
    .write.mode("append")
    .format("pravega")
    .option("allow_create_scope", allow_create_scope)
    .option("controller", controller)
    .option("scope", scope)
    .option("stream", "readings")
    .option("default_num_segments", "4")
    .option("exactly_once", True)
    .option("transaction_timeout_ms", 60000)
    .save()
)

(
    spark.readStream.format("pravega")
    .option("controller", controller)
    .option("allow_create_scope", allow_create_scope)
    .option("scope", scope)
    .option("stream", "readings")
    .option("start_stream_cut", "earliest")
    .option("end_stream_cut", "unbounded")
    .load()
    .selectExpr("from_json(cast(event AS string), 'sensor string, reading long, value double') AS e", "segment_id")
    .selectExpr(
        "to_json(struct(e.sensor, e.reading, e.value > 100 AS high, segment_id)) AS event", "e.sensor AS routing_key"
    )
    .writeStream.trigger(once=True)
    .outputMode("append")
    .format("pravega")
    .option("allow_create_scope", allow_create_scope)
    .option("controller", controller)
    .option("scope", scope)
    .option("stream", "alarms")
    .option("default_num_segments", "2")
    .option("checkpointLocation", checkpoints)
    .start()
    .awaitTermination()
)


def stream(name: str, **options: str) -> DataFrame:
    return (
        spark.read.format("pravega")
        .option("controller", controller)
        .option("allow_create_scope", allow_create_scope)
        .option("scope", scope)
        .option("stream", name)
        .options(**options)
        .load()
    )


(cuts,) = stream("readings", metadata="StreamInfo").collect()
readings = stream("readings", start_stream_cut=cuts.head_stream_cut, end_stream_cut=cuts.tail_stream_cut)
nothing = stream("readings", start_stream_cut=cuts.tail_stream_cut, end_stream_cut="latest")
alarms = stream("alarms", start_stream_cut="earliest", end_stream_cut="latest")


def events(frame: DataFrame) -> list[dict[str, Any]]:
    rows = frame.selectExpr("cast(event AS string) AS event", "scope", "stream", "segment_id", "offset")
    return [row.asDict() for row in rows.sort("segment_id", "offset").collect()]


print(
    json.dumps(
        {
            "streams": sorted(row.stream_name for row in stream("readings", metadata="Streams").collect()),
            "readings": events(readings),
            "nothing": nothing.count(),
            "alarms": events(alarms),
        }
    )
)
