"""A read of several streams without a JVM: by names or a pattern, in a batch and in micro-batches."""

from __future__ import annotations

import logging
import pickle
import time
from typing import Any

import pytest

from pravega_spark import InvalidStreamCut, StreamManager
from pravega_spark.errors import ScopeNotFound, StreamDeleted, StreamNotFound, TruncatedData
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.offset import cut_of, cuts_of
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from pravega_spark.streams.model.cuts import StreamCut

Events = dict[str, list[str]]


class Place:
    """Scope sc of a root, in which streams are written and read."""

    def __init__(self, manager: StreamManager, url: str) -> None:
        self.manager = manager
        self._url = url

    def put(self, stream: str, *events: str) -> None:
        self.manager.create_stream("sc", stream)
        with self.manager.create_writer("sc", stream) as writer:
            for event in events:
                writer.write_event(event)

    def delete(self, stream: str) -> None:
        self.manager.seal_stream("sc", stream)
        self.manager.delete_stream("sc", stream)

    def options(self, **more: str) -> SourceOptions:
        given = more if "stream" in more else {"stream_pattern": "a.*", **more}
        return SourceOptions.parse({"controller": self._url, "scope": "sc", **given}, {})

    def reader(self, **more: str) -> MicroBatchReader:
        return MicroBatchReader(self.options(**{"start_stream_cut": "earliest", **more}))

    def batch(self, **more: str) -> Events:
        reader = BatchReader(self.options(**more))
        return events(reader, reader.partitions())


@pytest.fixture
def place(manager: StreamManager, url: str) -> Place:
    place = Place(manager, url)
    place.put("a1", "1", "2", "3")
    place.put("a2", "4")
    place.put("b", "5")
    return place


def events(reader: Any, partitions: Any) -> Events:
    """The events of each stream, as tasks read them."""
    found: Events = {}
    for partition in pickle.loads(pickle.dumps(partitions)):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            for row in batch.to_pylist():
                found.setdefault(row["stream"], []).append(row["event"].decode())
    return found


def step(reader: MicroBatchReader, start: Any, limit: ReadLimit | None = None) -> tuple[Any, Events]:
    end = reader.latestOffset(start, limit or reader.getDefaultReadLimit())
    return end, events(reader, reader.partitions(start, end))


# --- batch -------------------------------------------------------------------------------------------------------


def test_a_batch_of_named_streams_and_of_a_pattern(place: Place) -> None:
    assert place.batch(stream="a1,b") == {"a1": ["1", "2", "3"], "b": ["5"]}
    assert place.batch() == {"a1": ["1", "2", "3"], "a2": ["4"]}
    with pytest.raises(StreamNotFound, match="sc/nosuch"):
        place.batch(stream="a1,nosuch")
    with pytest.raises(ValueError, match=r"no stream of scope 'sc' matches 'a'\. The whole name has to match"):
        place.batch(stream_pattern="a")
    with pytest.raises(ScopeNotFound):
        BatchReader(SourceOptions.parse({**given(place), "scope": "nosuch"}, {})).partitions()


def given(place: Place) -> dict[str, str]:
    return {"controller": place.options().root, "stream_pattern": ".*"}


def test_a_batch_with_a_place_for_each(place: Place) -> None:
    middle = StreamCut("sc", "a1", {0: 18}).as_text()
    assert place.batch(start_stream_cut=f'{{"a1": "{middle}"}}') == {"a1": ["3"], "a2": ["4"]}
    assert place.batch(end_stream_cut=f'{{"a1": "{middle}", "a2": "2020-01-01"}}') == {"a1": ["1", "2"]}


def test_small_streams_share_a_partition(place: Place) -> None:
    for number in range(20):
        place.put(f"c{number}", str(number))
    reader = BatchReader(place.options(stream_pattern="c.*"))
    (partition,) = reader.partitions()
    assert events(reader, [partition]) == {f"c{number}": [str(number)] for number in range(20)}
    large = BatchReader(place.options(stream_pattern="c.*", min_partitions="5"))
    assert len(large.partitions()) >= 5


# --- micro-batches -----------------------------------------------------------------------------------------------


def test_each_stream_has_an_offset(place: Place) -> None:
    reader = place.reader()
    start = reader.initialOffset()
    assert cuts_of(start) == {name: StreamCut("sc", name, {0: 0}) for name in ("a1", "a2")}
    end, read = step(reader, start)
    assert read == {"a1": ["1", "2", "3"], "a2": ["4"]}
    latest = reader.reportLatestOffset()
    assert latest is not None and latest["a1"]["lag"]["events"] == 0
    assert step(reader, end) == (end, {})
    place.put("a2", "6")
    moved, read = step(reader, end)
    assert read == {"a2": ["6"]} and moved["a1"] == end["a1"]


def test_one_named_stream_keeps_its_plain_offset_and_the_query_may_get_more(place: Place) -> None:
    one = place.reader(stream="a1")
    start = one.initialOffset()
    assert cut_of(start) == StreamCut("sc", "a1", {0: 0})
    end, _ = step(one, start)
    several = place.reader(stream="a1,b")
    assert events(several, several.partitions(start, end)) == {"a1": ["1", "2", "3"]}, "its last batch again"
    joined, read = step(several, end)
    assert read == {} and cuts_of(joined) == {"a1": cut_of(end), "b": StreamCut("sc", "b", {0: 0})}
    assert step(several, joined)[1] == {"b": ["5"]}
    assert cut_of(place.reader(stream="b").latestOffset(joined, ReadAllAvailable())) == StreamCut("sc", "b", {0: 9})


def test_a_stream_that_comes_later_joins_at_its_head(place: Place) -> None:
    reader = place.reader(start_stream_cut="latest")
    start = reader.initialOffset()
    assert step(reader, start) == (start, {})
    place.put("a3", "6", "7")
    joined, read = step(reader, start)
    assert read == {} and cut_of(joined["a3"]) == StreamCut("sc", "a3", {0: 0})
    place.manager.truncate_stream("sc", "a3", StreamCut("sc", "a3", {0: 9}))
    with pytest.raises(TruncatedData):
        step(reader, joined)
    passing = place.reader(fail_on_data_loss="false")
    assert step(passing, joined)[1] == {"a3": ["7"]}, "what was lost was told, as the offset is known"


def test_a_pattern_may_match_nothing_yet(place: Place) -> None:
    reader = place.reader(stream_pattern="late.*")
    assert reader.initialOffset() == {} == reader.latestOffset({}, ReadAllAvailable())
    place.put("later", "1")
    joined, _ = step(reader, {})
    assert step(reader, joined)[1] == {"later": ["1"]}


@pytest.mark.parametrize("named", [{}, {"stream": "a1,a2"}, {"stream": "a2"}], ids=str)
def test_a_stream_that_is_deleted_under_a_query(
    place: Place, caplog: pytest.LogCaptureFixture, named: dict[str, str]
) -> None:
    strict, lenient = place.reader(**named), place.reader(**named, fail_on_data_loss="false")
    start = strict.initialOffset()
    assert lenient.initialOffset() == start
    end, _ = step(strict, start)
    place.delete("a2")
    with pytest.raises(StreamDeleted, match=r"sc/a2 was deleted .*'fail_on_data_loss' to false to continue without"):
        strict.latestOffset(end, ReadAllAvailable())
    with pytest.raises(StreamDeleted):
        strict.partitions(start, end)
    with caplog.at_level(logging.WARNING, "pravega_spark"):
        left, _ = step(lenient, end)
        assert "a2" not in events(lenient, lenient.partitions(start, end))
        assert step(lenient, left) == (left, {})
    assert caplog.text.count("Stream sc/a2 was deleted. The query continues without it") == 1
    if isinstance(left, dict):
        assert list(left) == ["a1"]
        place.put("a2", "9")
        joined, _ = step(lenient, left)
        assert step(lenient, joined)[1] == {"a2": ["9"]}, "made again"


def test_a_stream_that_was_deleted_before_a_query_came_back(place: Place) -> None:
    start = place.reader().initialOffset()
    place.delete("a2")
    for pinned in (False, True):
        reader, lenient = place.reader(), place.reader(fail_on_data_loss="false")
        if pinned:
            reader.prepareForTriggerAvailableNow()
            lenient.prepareForTriggerAvailableNow()
        with pytest.raises(StreamDeleted):
            step(reader, start)
        end, read = step(lenient, start)
        assert read == {"a1": ["1", "2", "3"]} and list(end) == ["a1"]


def test_streams_that_are_chosen_no_more_are_told_and_left(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    start = place.reader(stream="a1,b").initialOffset()
    reader = place.reader(stream="a1,a2")
    with caplog.at_level(logging.WARNING, "pravega_spark"):
        end, read = step(reader, start)
    assert read == {"a1": ["1", "2", "3"]} and sorted(end) == ["a1", "a2"]
    assert "has a position in stream sc/b, which its options do not choose: the query does not" in caplog.text


def test_available_now_reads_what_is_there(place: Place) -> None:
    reader = place.reader()
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    place.put("a1", "6")
    place.put("a9", "7")
    end, read = step(reader, start)
    assert read == {"a1": ["1", "2", "3"], "a2": ["4"]}
    assert step(reader, end) == (end, {})


@pytest.mark.parametrize("limit", [ReadMaxRows(2), ReadMaxBytes(20)])
def test_streams_share_a_limit_and_none_starves(place: Place, limit: ReadLimit) -> None:
    for number in range(30):
        place.put("a1", str(number))
    reader = place.reader()
    offset, read = step(reader, reader.initialOffset(), limit)
    assert read["a2"] == ["4"] and 1 <= len(read["a1"]) <= 3, "by bytes up to an index record"
    place.put("a3", *"abcdef")
    seen: Events = {}
    last = None
    while offset != last:
        last, (offset, read) = offset, step(reader, offset, limit)
        assert isinstance(limit, ReadMaxBytes) or sum(map(len, read.values())) <= 2
        for name, some in read.items():
            seen.setdefault(name, []).extend(some)
        if read.get("a3") and seen["a3"][-1] == "f":
            assert len(seen["a1"]) < 12, "they go on side by side"
    assert seen["a3"] == list("abcdef") and len(seen["a1"]) >= 30


def test_the_smallest_limit_goes_round(place: Place) -> None:
    reader = place.reader()
    offset, order = reader.initialOffset(), []
    for _ in range(4):
        offset, read = step(reader, offset, ReadMaxRows(1))
        ((name, _),) = read.items()
        order.append(name)
    assert sorted(order[:2]) == ["a1", "a2"] and order[2:] == ["a1", "a1"]


def test_a_batch_waits_for_the_least_that_it_is_to_have(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for least in ({"min_events_per_trigger": "6"}, {"min_bytes_per_trigger": "54"}):
        place.put("a1", "1")
        reader = place.reader(**least, start_stream_cut="latest", max_trigger_delay="1m")
        limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
        assert isinstance(limit, ReadMinRows)
        place.put("a1", "1", "2", "3")
        place.put("a2", "4")
        assert step(reader, start) == (start, {}), "four of all streams"
        latest = reader.reportLatestOffset()
        assert latest is not None and latest["a1"]["lag"]["events"] == 3
        place.put("a2", "5", "6")
        end, read = step(reader, start)
        assert read == {"a1": ["1", "2", "3"], "a2": ["4", "5", "6"]}
        place.put("a1", "7")
        assert step(reader, end) == (end, {})
        clock[0] += 59
        assert step(reader, end) == (end, {})
        clock[0] += 1
        end, read = step(reader, end)
        assert read == {"a1": ["7"]}, "waited long enough"
        place.put("a1", "8")
        assert step(reader, end) == (end, {}), "the next wait is as long"
        assert step(reader, end, ReadAllAvailable())[1] == {"a1": ["8"]}, "a trigger that comes once"
        reader.prepareForTriggerAvailableNow()
        assert step(reader, end)[1] == {"a1": ["8"]}


def test_the_least_and_the_most_of_a_batch(place: Place) -> None:
    reader = place.reader(min_events_per_trigger="2", max_events_per_trigger="2")
    offset, sizes = reader.initialOffset(), []
    for _ in range(4):
        offset, read = step(reader, offset)
        sizes.append(sum(map(len, read.values())))
    assert sizes == [2, 2, 0, 0]
    place.put("a2", "8")
    assert step(reader, offset) == (offset, {})


def test_a_scaled_stream_among_others_goes_on(place: Place) -> None:
    """Between two epochs nothing is to be read, which needs no share of a limit."""
    place.manager.scale_stream("sc", "a1", [0], [(0.0, 0.5), (0.5, 1.0)])
    place.put("a1", "6", "7")
    reader = place.reader()
    offset, seen = reader.initialOffset(), []
    for _ in range(8):
        offset, read = step(reader, offset, ReadMaxRows(2))
        seen += [event for some in read.values() for event in some]
    assert sorted(seen) == ["1", "2", "3", "4", "6", "7"]


def test_offsets_of_other_streams_are_refused(place: Place) -> None:
    text = StreamCut("sc", "b", {0: 0}).as_text()
    with pytest.raises(InvalidStreamCut, match="has a cut of stream 'b' for stream 'a1'"):
        place.reader().latestOffset({"a1": text}, ReadAllAvailable())
