"""The micro-batch reader without a JVM: what it says of where a new query starts."""

from __future__ import annotations

import base64
import gzip
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from pravega_spark import InvalidStreamCut, StreamCut, StreamManager, StreamRecreated
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.offset import cut_of, id_of, text_of
from pravega_spark.source.options import SourceOptions


@pytest.fixture
def place(manager: StreamManager, url: str) -> str:
    """The URL of a root with three events in stream sc/one."""
    with manager.create_writer("sc", "one") as writer:
        for text in "abc":
            writer.write_event(text)
    return url


def started(url: str, caplog: pytest.LogCaptureFixture, stream: str = "one", **more: str) -> tuple[str, str]:
    """What is logged of the start of a new query."""
    options = SourceOptions.parse({"controller": url, "scope": "sc", "stream": stream, **more}, {})
    caplog.clear()
    with caplog.at_level(logging.INFO, "pravega_spark"):
        reader = MicroBatchReader(options)
        assert reader.initialOffset() == reader.initialOffset()
    (record,) = [record for record in caplog.records if "new query" in record.getMessage()]
    return record.levelname, record.getMessage()


def test_a_query_that_starts_at_the_tail_without_being_asked_says_what_it_leaves_out(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    level, told = started(place, caplog)
    assert level == "WARNING"
    assert told == (
        "A new query on stream sc/one starts at latest (sc/one:0.0=27) and does not read the 3 events (27 bytes) "
        "before it as by default: set option 'start_stream_cut' to 'earliest' to read them too."
    )


def test_where_a_query_starts_that_was_told(
    manager: StreamManager, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    nothing = "starts at earliest (sc/one:0.0=0) at the first event."
    assert started(place, caplog, start_stream_cut="earliest") == ("INFO", f"A new query on stream sc/one {nothing}")
    tail = manager.stream_info("sc", "one").tail.as_text()
    for more in ({"start_stream_cut": "latest"}, {"start_stream_cut": tail}, {"starting_timestamp": "2100-01-01"}):
        level, told = started(place, caplog, **more)
        assert level == "INFO" and told.endswith("and does not read the 3 events (27 bytes) before it.")
    assert started(place, caplog, "four")[0] == "INFO", "nothing is left out of an empty stream"


def test_a_query_that_starts_in_front_of_the_head_hears_of_it_when_it_reads(
    manager: StreamManager, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    head, tail = manager.stream_info("sc", "one").head, manager.stream_info("sc", "one").tail
    manager.truncate_stream("sc", "one", tail)
    options = {"controller": place, "scope": "sc", "stream": "one", "start_stream_cut": head.as_text()}
    with caplog.at_level(logging.INFO, "pravega_spark"):
        assert cut_of(MicroBatchReader(SourceOptions.parse(options, {})).initialOffset()) == head
    assert "new query" not in caplog.text


def test_a_range_that_goes_while_it_is_read_is_told(
    manager: StreamManager, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The message names the loss, and not the option that is set already."""
    told = {"controller": place, "scope": "sc", "stream": "one", "start_stream_cut": "earliest"}
    reader = MicroBatchReader(SourceOptions.parse({**told, "fail_on_data_loss": "false"}, {}))
    start = reader.initialOffset()
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.partitions(start, end)
    (lost,) = [record.getMessage() for record in caplog.records if "truncated" in record.getMessage()]
    assert lost == (
        "Stream sc/one, segment 0.0: the data between offsets 0 and 27 has been truncated and cannot be read any more. "
        "It is skipped, as option 'fail_on_data_loss' is false."
    )


def test_progress_can_be_read_by_people_and_says_how_far_the_query_is_behind(
    manager: StreamManager, place: str
) -> None:
    options = {"controller": place, "scope": "sc", "stream": "one", "start_stream_cut": "earliest"}
    reader = MicroBatchReader(SourceOptions.parse({**options, "max_events_per_trigger": "2"}, {}))
    tail, start = manager.stream_info("sc", "one").tail, reader.initialOffset()
    assert reader.reportLatestOffset() is None
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    latest = reader.reportLatestOffset()
    assert latest is not None and (latest["reached"], latest["tail"]) == ({"0.0": 18}, {"0.0": 27})
    assert latest["stream_cut"] == tail.as_text()
    assert (latest["lag"]["events"], latest["lag"]["bytes"]) == (1, 9) and 0 < latest["lag"]["seconds"] < 1000
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())
    latest = reader.reportLatestOffset()
    assert cut_of(end) == tail and latest is not None
    assert latest["lag"] == {"events": 0, "bytes": 0, "seconds": 0.0}


def test_an_offset_that_brings_nothing_new_stays_as_it_is(manager: StreamManager, place: str) -> None:
    """Spark runs a batch whenever an offset's text changes, and each Java compresses a cut's text in its own way."""
    reader = MicroBatchReader(SourceOptions.parse({"controller": place, "scope": "sc", "stream": "one"}, {}))
    tail = manager.stream_info("sc", "one").tail
    text = base64.b64encode(gzip.compress(gzip.decompress(base64.b64decode(tail.as_text())), 1)).decode()
    assert text != tail.as_text() and cut_of(text) == tail
    assert reader.latestOffset(text, reader.getDefaultReadLimit()) == text


@pytest.mark.parametrize("offset", [{}, {"clicks": {"0": 5}}, None, 7])
def test_offsets_of_other_sources(offset: Any) -> None:
    with pytest.raises(InvalidStreamCut, match="give the query the checkpointLocation"):
        cut_of(offset)


# --- whose position it is -------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_root_is_refused(tmp_path: Path) -> None:
    """The root is deleted and created anew, and the query's checkpoint is not."""
    options = {"controller": str(tmp_path / "root"), "scope": "sc", "stream": "one", "start_stream_cut": "earliest"}

    def create(events: int) -> None:
        with StreamManager(str(tmp_path / "root")) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "one", 1)
            with manager.create_writer("sc", "one") as writer:
                writer.write_events([b"event"] * events)

    create(10)
    first = MicroBatchReader(SourceOptions.parse(options, {}))
    begin = first.initialOffset()
    end = first.latestOffset(begin, first.getDefaultReadLimit())
    assert id_of(begin) == id_of(end) is not None
    shutil.rmtree(tmp_path / "root")
    create(30)
    again = MicroBatchReader(SourceOptions.parse(options, {}))
    with pytest.raises(StreamRecreated, match="sc/one"):
        again.latestOffset(end, again.getDefaultReadLimit())
    with pytest.raises(StreamRecreated, match="sc/one"):
        MicroBatchReader(SourceOptions.parse(options, {})).partitions(begin, end)


def test_an_offset_with_the_id_of_its_stream_is_a_cut_to_every_reader() -> None:
    cut = StreamCut("sc", "one", {0: 30})
    text = text_of(cut, bytes(range(16)))
    assert StreamCut.from_text(text) == cut_of(text) == cut
    assert gzip.decompress(base64.b64decode(text)) == gzip.decompress(base64.b64decode(cut.as_text()))
    assert id_of(text) == bytes(range(16)) and id_of(cut.as_text()) is None


def test_a_checkpoint_of_a_query_on_another_stream_is_named_as_that(manager: StreamManager, place: str) -> None:
    """Nothing was deleted, so nothing of a deletion is said."""
    manager.create_stream("sc", "two", 1)
    options = {"controller": place, "scope": "sc", "start_stream_cut": "earliest"}
    first = MicroBatchReader(SourceOptions.parse({**options, "stream": "one"}, {}))
    second = MicroBatchReader(SourceOptions.parse({**options, "stream": "two"}, {}))
    start = first.initialOffset()
    told = "the query's checkpoint has a position in stream sc/one, but the query reads sc/two: give each query a check"
    for call in (
        lambda: second.latestOffset(start, second.getDefaultReadLimit()),
        lambda: second.partitions(start, start),
    ):
        with pytest.raises(InvalidStreamCut, match=told):
            call()


def test_a_batch_read_that_begins_in_the_future_says_so(place: str, caplog: pytest.LogCaptureFixture) -> None:
    given = {"controller": place, "scope": "sc", "stream": "one", "starting_timestamp": "2100-01-01"}
    with caplog.at_level(logging.WARNING, "pravega_spark"):
        assert BatchReader(SourceOptions.parse(given, {})).partitions() == []
    assert "Option 'starting_timestamp' (2100-01-01T00:00:00.000+00:00) is in the future, so nothing" in caplog.text
