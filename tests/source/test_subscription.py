"""A streaming query that retention waits for: it releases what Spark has committed, and no more."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from engine.root import Root
from pravega_spark.client.manager import StreamManager
from pravega_spark.errors import StreamNotFound
from pravega_spark.roots import open_root
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.sink import BatchWriter
from pravega_spark.source.spark_api.read_limits import ReadAllAvailable
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.retention import retain
from pravega_spark.streams.maintenance.subscribers import subscribers, unsubscribe
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.stream import Stream
from tests.source.keyed import events
from tests.source.test_by_row import tasks
from tests.source.test_sink import ROWS


@pytest.fixture
def root() -> Iterator[Root]:
    root = open_root(f"memory://{uuid.uuid4()}", create=True)
    Catalog(root).create_scope("s")
    yield root
    root.close()


def stream(root: Root, name: str = "t") -> Stream:
    Catalog(root).create_stream("s", name, ScalingPolicy(min_segments=2))
    return Catalog(root).stream("s", name)


def url(root: Root) -> str:
    return root.stores.chunks.root


def put(root: Root, *found: str, name: str = "t") -> None:
    options = SourceOptions.parse({"controller": url(root), "scope": "s", "stream": name})
    writer = BatchWriter(options, ROWS)
    writer.commit(tasks(writer, [(name, event, event) for event in found]))


def started(root: Root, **more: str) -> MicroBatchReader:
    given = {"controller": url(root), "scope": "s", "start_stream_cut": "earliest", "subscriber": "q"}
    given |= {"release_interval": "0", "max_events_per_trigger": "3"}
    if "stream_pattern" not in more:
        given["stream"] = "t"
    return MicroBatchReader(SourceOptions.parse({**given, **more}))


def batch(reader: MicroBatchReader, start: Any, commit: bool = True) -> Any:
    """One micro-batch, as Spark has it done."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.partitions(start, end)
    if commit:
        reader.commit(end)
    return end


def kept(root: Root, name: str = "t") -> int:
    """How many events are there after retention did its work, which keeps nothing but for subscribers."""
    stream = Catalog(root).stream("s", name)
    stream.update(retention=RetentionPolicy("size", 0))
    for hour in (1, 2):
        retain(stream, int((time.time() + 3600 * hour) * 1000), 0.0)
    return len(events(url(root), name))


def test_retention_waits_for_what_a_query_has_committed(root: Root) -> None:
    stream(root)
    put(root, *"abcdefghij")
    reader = started(root)
    start = reader.initialOffset()
    assert kept(root) == 10, "it holds back what it is going to read from where it begins"
    middle = batch(reader, start, commit=False)
    assert kept(root) == 10, "Spark may do the batch again"
    reader.commit(middle)
    assert kept(root) == 7
    batch(reader, middle, commit=False)
    assert kept(root) == 7
    again = started(root)  # a restart: Spark does not ask where a new query begins
    assert kept(root) == 7
    end = batch(again, middle)
    assert kept(root) == 4
    while (new := batch(again, end)) != end:
        end = new
    assert kept(root) == 0
    assert list(subscribers(Catalog(root).stream("s", "t"))) == ["query:q"]
    put(root, "k", "l")
    assert kept(root) == 2, "the query is not there, but its subscription is"
    assert unsubscribe(Catalog(root).stream("s", "t"), "query:q")
    assert kept(root) == 0


def test_a_new_query_of_the_name_begins_anew(root: Root) -> None:
    stream(root)
    put(root, *"abcdef")
    reader = started(root)
    reader.commit(batch(reader, reader.initialOffset()))
    second = started(root)
    second.initialOffset()
    there = Catalog(root).stream("s", "t")
    assert subscribers(there)["query:q"] == there.snapshot().head_cut()
    assert kept(root) == 6


def test_each_stream_of_a_query_waits_also_one_that_comes_later(root: Root) -> None:
    for name in ("a", "b"):
        stream(root, name)
        put(root, "1", "2", name=name)
    reader = started(root, stream_pattern=".*", max_events_per_trigger="100")
    offset = batch(reader, reader.initialOffset())
    assert kept(root, "a") == kept(root, "b") == 0
    stream(root, "c")
    put(root, "1", "2", name="c")
    offset = batch(reader, offset)
    assert kept(root, "c") == 2
    batch(reader, offset)
    assert kept(root, "c") == 0


def test_releases_have_an_interval_and_the_last_comes_at_the_end(root: Root) -> None:
    stream(root)
    put(root, *"abcdefghij")
    reader = started(root, release_interval="1h")
    offset = batch(reader, reader.initialOffset())
    assert kept(root) == 10, "the first is due, which is where it begins"
    offset = batch(reader, offset)
    assert kept(root) == 10
    reader.stop()
    assert kept(root) == 4
    reader.stop()
    batch(reader, offset)
    assert kept(root) == 4
    started(root, release_interval="1h").latestOffset(offset, ReadAllAvailable())
    again = started(root, release_interval="1h")
    again.prepareForTriggerAvailableNow()
    while (end := batch(again, offset)) != offset:
        offset = end
    assert kept(root) == 0, "the end of what was to be read"


def test_who_cannot_release_says_so_once_and_reads_on(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    made = stream(root)
    put(root, *"abcdefghij")
    reader, another = started(root), started(root)
    start = reader.initialOffset()
    another.commit(batch(another, batch(another, start)))
    first = batch(reader, start)
    assert "is before" in caplog.text and "Each query needs a name of its own as option 'subscriber'" in caplog.text
    unsubscribe(made, "query:q")
    second = batch(reader, first)
    batch(reader, batch(reader, second))
    told = [record for record in caplog.records if "has no subscriber query:q" in record.getMessage()]
    assert len(told) == 1 and told[0].levelno == logging.WARNING
    assert kept(root) == 0


def test_without_the_option_nothing_is_held_back(root: Root) -> None:
    made = stream(root)
    put(root, "a")
    given = {"controller": url(root), "scope": "s", "stream": "t"}
    reader = MicroBatchReader(SourceOptions.parse(given))
    reader.commit(reader.initialOffset())
    reader.stop()
    assert subscribers(made) == {}


def test_a_restarted_query_with_another_name_tells_of_those_that_hold_back(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint does not know the name from before."""
    stream(root)
    put(root, *"abcdefghij")
    other = started(root, subscriber="other")
    reader = started(root, subscriber="old")
    other.initialOffset()
    middle = batch(reader, reader.initialOffset())
    again = started(root, subscriber="old")
    end = batch(again, middle)
    assert "unsubscribe" not in caplog.text
    renamed = started(root, subscriber="new")
    batch(renamed, batch(renamed, end))
    (told,) = [each.getMessage() for each in caplog.records if "unsubscribe" in each.getMessage()]
    assert "stream s/t waits for these queries: query:old, query:other; query:new is new" in told
    assert f"pravega-spark --root {url(root)} stream unsubscribe s/t query:old --yes" in told
    assert "remove_subscriber('s', 't', 'query:old')" in told
    caplog.clear()
    batch(started(root, subscriber="new"), end)
    assert "unsubscribe" not in caplog.text, "it is known now"


def test_a_restarted_query_without_its_subscriber_tells_of_those_there_are(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stream(root)
    put(root, *"abcdefghij")
    reader = started(root, subscriber="old")
    end = batch(reader, reader.initialOffset())
    without = {"controller": url(root), "scope": "s", "stream": "t"}
    again = MicroBatchReader(SourceOptions.parse(without))
    again.latestOffset(again.latestOffset(end, ReadAllAvailable()), ReadAllAvailable())
    (told,) = [each for each in caplog.records if "unsubscribe" in each.getMessage()]
    assert told.levelno == logging.INFO and "query:old" in told.getMessage()
    caplog.clear()
    fresh = MicroBatchReader(SourceOptions.parse({**without, "start_stream_cut": "earliest"}))
    fresh.latestOffset(fresh.initialOffset(), ReadAllAvailable())
    assert "unsubscribe" not in caplog.text, "a new query had no name before"


def test_the_subscriber_can_be_removed(root: Root) -> None:
    stream(root)
    started(root).initialOffset()
    with StreamManager(url(root)) as manager:
        assert list(manager.stream_info("s", "t").subscribers) == ["query:q"]
        assert manager.remove_subscriber("s", "t", "query:q")
        assert not manager.remove_subscriber("s", "t", "query:q")
        assert list(manager.stream_info("s", "t").subscribers) == []
        with pytest.raises(StreamNotFound):
            manager.remove_subscriber("s", "none", "query:q")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"subscriber": ""}, r"^Option 'subscriber': "),
        ({"subscriber": "a/b"}, r"^Option 'subscriber': "),
        ({"release_interval": "soon"}, r"^Option 'release_interval' must be a duration"),
        ({"release_interval": "-1"}, r"^Option 'release_interval' must be a duration of 0 ms"),
    ],
)
def test_bad_options(root: Root, more: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        started(root, **more)
