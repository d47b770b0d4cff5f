"""A stream that is scaled while programs write to it and Spark reads it, in batches and as a query."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row

from pravega_spark import StreamManager
from tests.client.test_scaling import SPAWN, WRITERS, report, scale_to, write
from tests.spark.folder import Folder


def by_key(rows: Iterable[Row]) -> dict[str, list[int]]:
    """The numbers of each key's events, in the order of epochs and offsets."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.segment_id, row.offset)):
        key, number, _ = bytes(row.event).decode().split(":")
        found[key].append(int(number))
    return found


class Seen:
    """What a query has delivered so far: in each key's order, or the test fails."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        for key, numbers in by_key(frame.select("event", "segment_id", "offset").collect()).items():
            self.numbers[key] += numbers

    def events(self) -> int:
        return sum(map(len, self.numbers.values()))


def scale_in_steps(manager: StreamManager, count: int) -> None:
    """1 -> 4 -> 2 -> 6 segments, while the events come."""
    for step, segments in enumerate((4, 2, 6), 1):
        while manager.stream_info("sc", "st").events < WRITERS * count * step // 5:
            threading.Event().wait(0.005)
        scale_to(manager, segments, "st")


@pytest.mark.processes
@pytest.mark.long
@pytest.mark.timeout(900)
def test_three_write_while_the_stream_is_scaled_and_read(folder: Folder) -> None:
    """3 x 50,000 events: a query delivers all of them once, each batch read a beginning of each key's events."""
    count = 50_000
    options: dict[str, Any] = {"controller": folder.url, "scope": "sc", "stream": "st"}
    expected = {f"{name}.{key}": list(range(key, count, 20)) for name in range(WRITERS) for key in range(20)}
    seen, reads = Seen(), 0
    with StreamManager(folder.url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 1)
        reports, together = SPAWN.Queue(), SPAWN.Barrier(WRITERS + 1)
        roles = [("writer", write, folder.url, name, count, together) for name in range(WRITERS)]
        processes = [SPAWN.Process(target=report, args=(reports, *role), daemon=True) for role in roles]
        source = folder.spark.readStream.format("pravega").options(**options, start_stream_cut="earliest").load()
        query = source.writeStream.foreachBatch(seen).option("checkpointLocation", folder.checkpoint()).start()
        scaling = threading.Thread(target=scale_in_steps, args=(manager, count), daemon=True)
        try:
            for process in processes:
                process.start()
            together.wait(60)
            scaling.start()
            while scaling.is_alive() or any(process.is_alive() for process in processes) or reads < 3:
                rows = folder.spark.read.format("pravega").options(**options).load()
                for key, numbers in by_key(rows.select("event", "segment_id", "offset").collect()).items():
                    assert numbers == expected[key][: len(numbers)], key
                reads += 1
            assert [reports.get(timeout=500) for _ in range(WRITERS)] == [("writer", count)] * WRITERS
            query.processAllAvailable()
        finally:
            query.stop()
            for process in processes:
                process.kill()
                process.join()
        assert len(manager.stream_info("sc", "st").epochs) == 4
    rows = folder.spark.read.format("pravega").options(**options).load()
    assert by_key(rows.select("event", "segment_id", "offset").collect()) == expected
    assert seen.numbers == expected and seen.events() == WRITERS * count
