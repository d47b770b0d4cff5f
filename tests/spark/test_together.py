"""Everything at the same time on one stream: a writer, retention, truncation, optimiser, garbage collection, two Spark
queries, and readers that fall behind. Nobody ever sees a wrong event or misses one without an error that says which.

PRAVEGA_TOGETHER_SECONDS: how long the long test runs, by default ten minutes.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine.admin.verify import verify
from engine.root import Root
from pravega_spark import StreamManager, StreamRetentionPolicy, StreamScalingPolicy
from pravega_spark.client.event import Event
from pravega_spark.client.reader import read_events
from pravega_spark.errors import TruncatedData
from pravega_spark.jobs import work
from pravega_spark.jobs.maintain import maintain
from pravega_spark.jobs.outcome import JobOutcome
from pravega_spark.segment_ids import parse_segment_id
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.verification import check_events
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.events import HEADER_SIZE
from tests.spark.folder import Folder

SECONDS = int(os.environ.get("PRAVEGA_TOGETHER_SECONDS", "600"))
GRACE = 3.0
"""Seconds: how long this root keeps frames and chunks that are not needed any more."""

PERIOD = 1.0
"""Seconds between two recorded cuts."""

KEYS = 8
SEGMENTS = 3
AT_ONCE = 10
"""Events of each key that are written at once."""

PAUSE = 0.08
SPAWN = multiprocessing.get_context("spawn")

LOST = re.compile(r"Stream s/t, segment (\S+): the data between offsets (\d+) and (\d+) has been truncated")


def content(key: int, number: int) -> bytes:
    """Event `number` of a key."""
    return f"{key}/{number}/{'x' * (number * 7 % 150)}".encode()


class Keys:
    """Holds events against what was written: of each key all from the first that is met, in their order, unchanged."""

    def __init__(self) -> None:
        self.next: dict[int, int] = {}

    def take(self, events: Iterable[bytes]) -> None:
        for event in events:
            key, number = (int(part) for part in event.split(b"/", 2)[:2])
            assert event == content(key, number), event
            assert number == self.next.get(key, number), f"of key {key}, {number} follows {self.next[key] - 1}"
            self.next[key] = number + 1


# --- processes ---------------------------------------------------------------------------------------------------


def write(pipe: Connection, url: str) -> None:
    """Write until the other end says something; tell the number of the next event of each key."""
    number = 0
    with StreamManager(url) as manager, manager.create_writer("s", "t") as writer:
        while not pipe.poll(PAUSE):
            for _ in range(AT_ONCE):
                for key in range(KEYS):
                    writer.write_event_bytes(content(key, number), str(key))
                number += 1
            writer.flush()
    pipe.send(number)


def look_after(pipe: Connection, url: str, keep: float) -> None:
    """The maintenance job again and again, now and then a truncation of what retention keeps; tell what was done."""
    done: Counter[str] = Counter()
    errors: list[str] = []
    next_truncation = time.monotonic() + keep
    with Root.open(url) as root:
        stream = Catalog(root).stream("s", "t")
        while not pipe.poll(PAUSE):
            outcomes = list(maintain(root, period=PERIOD))
            if time.monotonic() > next_truncation:
                next_truncation += keep
                outcomes.append(work.truncate(stream, False, int((time.time() - keep / 2) * 1000)))
            done["rounds"] += 1
            for outcome in outcomes:
                _account(outcome, done)
                errors += [outcome.error] if outcome.error is not None else []
    pipe.send((done, errors))


def _account(outcome: JobOutcome, done: Counter[str]) -> None:
    if outcome.step in ("retention", "truncation"):
        done[outcome.step] += outcome.changed
        done[f"bytes by {outcome.step}"] += outcome.bytes
    numbers = [int(number) for number in re.findall(r"\d+", outcome.detail)]
    if outcome.step == "compaction" and outcome.changed:
        done["chunks merged"] += numbers[0]
    if outcome.step == "garbage" and outcome.changed:
        done["orphans"] += numbers[0]
        done["objects deleted"] += numbers[1]


@contextmanager
def running(do: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=do, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        process.kill()
        process.join()
        here.close()


def ended(pipe: Connection) -> Any:
    """Let a process end; what it tells."""
    pipe.send("end")
    assert pipe.poll(120)
    return pipe.recv()


# --- readers -----------------------------------------------------------------------------------------------------


class Readers:
    """All who read, each in a thread. `failures`: what must not be; `done`: how often each got what."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.stream = folder.stream()
        self.failures: list[BaseException] = []
        self.done: Counter[str] = Counter()
        self.followed = Keys()
        self.end: int | None = None
        self._stop = threading.Event()

    @contextmanager
    def reading(self) -> Iterator[None]:
        work = (self._follow, self._read_again_and_again, self._come_back, self._begin_late)
        threads = [threading.Thread(target=self._guarded, args=(one,)) for one in work]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set() and not self.failures:
                do()
        except BaseException as error:
            self.failures.append(error)

    def arrived(self) -> bool:
        """Whether the continuing query has had the last event that was written."""
        return bool(self.failures) or self.followed.next == dict.fromkeys(range(KEYS), self.end)

    def _follow(self) -> None:
        """A query that goes on and on. If it is too slow, it gets the error, and another one begins at the head."""
        self.followed = keys = Keys()
        source = self.folder.follow(start_stream_cut="earliest")

        def take(frame: DataFrame, batch: int) -> None:
            events = _events(frame)
            keys.take(events)
            self.done["micro-batches"] += bool(events)
            self.done["events of the query"] += len(events)

        checkpoint = self.folder.checkpoint(f"query-{self.done['queries']}")
        self.done["queries"] += 1
        query = source.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        running = query.trigger(processingTime="500 milliseconds").start()
        while running.isActive and not self._stop.wait(0.2):
            pass
        error = running.exception()
        running.stop()
        if error is not None:
            told_lost(error)
            self.done["losses of the query"] += 1

    def _read_again_and_again(self) -> None:
        """All there is, as a batch."""
        try:
            events = _events(self.folder.frame())
        except PySparkException as error:
            told_lost(error)
            self.done["losses of batches"] += 1
            return
        Keys().take(events)
        self.done["batches"] += bool(events)
        self.done["events of batches"] += len(events)

    def _come_back(self) -> None:
        """From a cut that was the tail once, and that lies before the head by now."""
        old = self.stream.snapshot().tail_cut()
        if not self._passed(old):
            return
        before = self.stream.snapshot().head_cut()
        with pytest.raises(TruncatedData) as client:
            list(read_events(self.stream, old))
        with pytest.raises(PySparkException) as spark:
            self.folder.frame(start_stream_cut=old.as_text()).collect()
        after = self.stream.snapshot().head_cut()
        error = client.value
        assert error.stream == "s/t"
        for segment, start, end in ((error.segment_id, error.start, error.end), told_lost(spark.value)):
            assert start == old.positions[segment]
            assert end is not None and before.positions[segment] <= end <= after.positions[segment]
        self.done["came back too late"] += 1

    def _begin_late(self) -> None:
        """Planned while all was there, read when it is truncated and maybe deleted: all of it, or the error."""
        snapshot = self.stream.snapshot()
        head, tail = snapshot.head_cut(), snapshot.tail_cut()
        try:
            events = read_events(self.stream, head, tail)
        except TruncatedData:
            return  # within a moment, which is as it should be
        if not self._passed(tail):
            return
        self._stop.wait(GRACE * (self.done["begun late"] % 3))
        reached, keys = dict(head.positions), Keys()
        try:
            for event in events:
                self._next(event, reached)
                keys.take([event.data])
            assert reached == dict(tail.positions)
            self.done["begun late, all there"] += 1
        except TruncatedData as error:
            assert error.stream == "s/t" and error.end is not None
            assert head.positions[error.segment_id] <= error.start <= reached[error.segment_id] < error.end
            assert error.end <= tail.positions[error.segment_id]
            self.done["begun late, lost"] += 1
        self.done["begun late"] += 1

    @staticmethod
    def _next(event: Event, reached: dict[int, int]) -> None:
        """It lies right behind the one before."""
        assert event.offset == reached[event.segment_id]
        reached[event.segment_id] += HEADER_SIZE + len(event.data)

    def _passed(self, cut: StreamCut) -> bool:
        """Wait until all before a cut is truncated, and more."""
        while not self._stop.wait(0.2):
            head = self.stream.snapshot().head_cut()
            if all(head.positions[segment] > at for segment, at in cut.positions.items()):
                return True
        return False


def _events(frame: DataFrame) -> list[bytes]:
    """Those of each segment in their order."""
    rows = frame.select("event", "segment_id", "offset").toArrow()
    events: list[bytes] = rows.sort_by([("segment_id", "ascending"), ("offset", "ascending")])["event"].to_pylist()
    return events


def told_lost(error: BaseException) -> tuple[int, int, int]:
    """The segment and the range that an error names; there must be one, and what to do."""
    found = LOST.search(str(error))
    assert found is not None and "Set option 'fail_on_data_loss' to false" in str(error), str(error)
    segment, start, end = parse_segment_id(found[1]), int(found[2]), int(found[3])
    assert start < end
    return segment, start, end


def wait(seconds: float, reason: Callable[[], bool]) -> None:
    """Until there is a reason to go on, or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not reason():
        time.sleep(0.2)


@pytest.mark.processes
@pytest.mark.long
@pytest.mark.parametrize(
    ("seconds", "keep"),
    [
        pytest.param(20, 10, id="20 seconds", marks=pytest.mark.timeout(400)),
        pytest.param(SECONDS, 30, id="10 minutes", marks=pytest.mark.timeout(SECONDS + 600)),
    ],
)
def test_all_together(spark: SparkSession, tmp_path: Path, seconds: int, keep: float) -> None:
    folder = Folder(spark, tmp_path, grace_seconds=GRACE, garbage_delay_seconds=GRACE)
    catalog = Catalog(folder.root)
    catalog.create_scope("s")
    retention = StreamRetentionPolicy.by_time(int(keep * 1000))
    catalog.create_stream("s", "t", StreamScalingPolicy.fixed_scaling_policy(SEGMENTS), retention)
    readers = Readers(folder)
    with running(write, folder.url) as writer, running(look_after, folder.url, keep) as upkeep, readers.reading():
        wait(120, lambda: bool(readers.failures or (readers.done["micro-batches"] and readers.done["batches"])))
        wait(seconds, lambda: bool(readers.failures))
        kept, errors = ended(upkeep)
        readers.end = ended(writer)
        wait(120, readers.arrived)
    print(f"\n{seconds} s: {readers.end * KEYS:,} events written; {dict(kept)}; {dict(readers.done)}")
    assert not readers.failures, readers.failures
    assert not errors
    assert readers.followed.next == dict.fromkeys(range(KEYS), readers.end)
    for what in ("retention", "truncation", "chunks merged", "objects deleted"):
        assert kept[what], what
    for what in ("micro-batches", "batches", "came back too late", "begun late"):
        assert readers.done[what], what
    report = verify(folder.root, content_checks=[check_events])
    assert not report.findings, report.findings
    folder.root.close()
