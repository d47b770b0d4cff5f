"""Events in Protobuf, by Spark's own functions, with the descriptors of the messages.

The jar of spark-protobuf has to be on the class path (docs/payloads.md). A project gets its descriptors from
`protoc --include_imports --descriptor_set_out=orders.desc orders.proto`. Here Protobuf's Python package makes them.
"""

import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from pyspark.sql import SparkSession
from pyspark.sql.functions import struct
from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf

from pravega_spark import StreamManager

MESSAGE = "Order"


def descriptors() -> bytes:
    """What protoc makes of `syntax = "proto3"; message Order { int64 order = 1; string customer = 2; }`."""
    file = FileDescriptorProto(name="orders.proto", syntax="proto3")
    message = file.message_type.add(name=MESSAGE)
    kinds = {"order": FieldDescriptorProto.TYPE_INT64, "customer": FieldDescriptorProto.TYPE_STRING}
    for number, (name, kind) in enumerate(kinds.items(), start=1):
        message.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    return FileDescriptorSet(file=[file]).SerializeToString()


def run(spark: SparkSession, folder: Path) -> tuple[list[tuple[int, str]], int]:
    """Write orders and read them; return them, and how many events are no such messages."""
    (folder / "orders.desc").write_bytes(descriptors())
    file = str(folder / "orders.desc")  # the driver reads it
    root = str(folder / "streams")
    where = {"controller": root, "scope": "shop", "stream": "orders"}
    orders = spark.createDataFrame([(1, "ann"), (2, "ben")], "order BIGINT, customer STRING")
    message = to_protobuf(struct("order", "customer"), MESSAGE, file)
    (
        orders.select(message.alias("event"), orders["customer"].alias("routing_key"))
        .write.format("pravega")
        .options(**where)
        .mode("append")
        .save()
    )
    with StreamManager(root) as manager, manager.create_writer("shop", "orders") as writer:
        writer.write_event_bytes(b"\xff", routing_key="ann")

    events = spark.read.format("pravega").options(**where).load()
    # PERMISSIVE: an event that is no such message becomes null, and fails no query.
    rows = events.select("event", from_protobuf("event", MESSAGE, file, {"mode": "PERMISSIVE"}).alias("row"))
    found = rows.where("row IS NOT NULL").select("row.*").orderBy("order")
    return [tuple(one) for one in found.collect()], rows.where("row IS NULL").count()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(run(SparkSession.builder.getOrCreate(), Path(temporary)))
