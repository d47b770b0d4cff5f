"""Events `key/number`: written in Arrow batches, read back, and compared by key."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pravega_spark.source.batch import BatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.task_outputs import TaskMessage, merged
from pravega_spark.streams.writing.writes import SegmentAppend


def options(url: str, stream: str, **more: object) -> SourceOptions:
    texts = {name: str(value) for name, value in more.items()}
    return SourceOptions.parse({"controller": url, "scope": "s", "stream": stream, **texts})


def rows(first: int, end: int, keys: int = 10) -> pa.RecordBatch:
    """Events `key/number`."""
    names = [str(number % keys) for number in range(first, end)]
    events = [f"{key}/{number}" for key, number in zip(names, range(first, end), strict=True)]
    return pa.RecordBatch.from_pydict({"event": events, "routing_key": names})


def events(url: str, stream: str, **more: object) -> list[str]:
    """What a batch read of the stream finds, the events of a segment in order."""
    reader = BatchReader(options(url, stream, **more))
    found: list[str] = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found.extend(event.decode() for event in batch.column("event").to_pylist())
    return found


def parts(tasks: Sequence[TaskMessage]) -> list[SegmentAppend]:
    """What the driver appends for tasks whose rows go to one stream."""
    (routed,) = merged(tasks).values()
    return [part for _, some in routed for part in some]


def by_key(found: list[str]) -> dict[str, list[int]]:
    """The numbers of each key's events, in order."""
    numbers: dict[str, list[int]] = {}
    for event in found:
        key, number = event.split("/")
        numbers.setdefault(key, []).append(int(number))
    return numbers
