"""Ranges of events as columns of Arrow and pandas, and the last events of a stream."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pravega_spark import Closed, StreamCut, StreamManager, TruncatedData
from pravega_spark.streams.reading import event_columns

MIB = 1 << 20


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 2)
        yield manager


def write(manager: StreamManager, texts: list[str], stream: str = "st") -> None:
    with manager.create_writer("sc", stream) as writer:
        writer.write_events(texts, [text[-1:] for text in texts])


def test_a_range_is_a_table_a_data_frame_and_an_iterator(manager: StreamManager) -> None:
    write(manager, [f"event {number}" for number in range(30_000)])
    middle = manager.next_stream_cut("sc", "st", "earliest", "100KiB")
    manager.scale_stream("sc", "st", [0, 1], [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])
    write(manager, [f"later {number}" for number in range(100)])
    whole = manager.read_events("sc", "st")
    table = manager.to_arrow("sc", "st")
    assert table.schema.names == ["event", "scope", "stream", "segment_id", "offset"]
    listed = [(event.data, event.scope, event.stream, event.segment_id, event.offset) for event in whole]
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == listed
    assert len(listed) == 30_100 == manager.stream_info("sc", "st").events
    frame = whole.to_pandas(["event", "segment_id"])  # it was iterated before, and reads all of it
    assert list(frame.columns) == ["event", "segment_id"]
    assert frame["event"].tolist() == [event[0] for event in listed]
    parts = [manager.to_arrow("sc", "st", end=middle), manager.to_arrow("sc", "st", middle)]
    assert sorted(pa.concat_tables(parts)["event"].to_pylist()) == sorted(table["event"].to_pylist())
    assert manager.to_arrow("sc", "st", "latest").num_rows == 0
    assert manager.to_arrow("sc", "st", "latest").schema == table.schema


def test_what_is_known_of_events_beside_their_payload(manager: StreamManager) -> None:
    write(manager, ["first", "second"])
    columns = ["timestamp", "event_pointer", "event_number", "event"]
    table = manager.to_arrow("sc", "st", columns=columns)
    assert table.schema.names == columns
    for pointer, event in zip(table["event_pointer"].to_pylist(), table["event"].to_pylist(), strict=True):
        assert manager.open_event(pointer).read() == event
    assert all(abs(when.timestamp() - time.time()) < 60 for when in table["timestamp"].to_pylist())
    with pytest.raises(ValueError, match="'events' is no column of a stream: choose among event, scope, stream"):
        manager.to_arrow("sc", "st", columns=["events"])


def test_batches_are_bounded_and_read_as_they_are_asked_for(manager: StreamManager) -> None:
    manager.create_stream("sc", "much")
    with manager.create_writer("sc", "much") as writer:
        for _ in range(40):
            writer.write_event_bytes(bytes(MIB))
    cut = manager.next_stream_cut("sc", "much", "earliest", "20MiB")
    batches = manager.read_events("sc", "much").to_batches()
    first = batches.read_next_batch()
    assert first.nbytes <= event_columns.BATCH_BYTES + 2 * MIB
    manager.truncate_stream("sc", "much", cut)
    rest = [batch.num_rows for batch in batches]
    assert first.num_rows + sum(rest) == 40 and len(rest) >= 9  # the objects are still there for running readers
    with pytest.raises(TruncatedData):
        manager.to_arrow("sc", "much", StreamCut("sc", "much", {0: 0}))


def test_large_events_are_whole_in_columns(manager: StreamManager) -> None:
    manager.create_stream("sc", "large")
    payload = b"0123456789abcdef" * (10 * MIB // 16)
    with manager.create_writer("sc", "large") as writer:
        writer.write_event("before")
        with writer.begin_event() as event:
            event.write(payload)
            event.commit()
        writer.write_event("after")
    assert manager.to_arrow("sc", "large")["event"].to_pylist() == [b"before", payload, b"after"]
    last = manager.last_events("sc", "large")
    assert [event.size for event in last] == [6, len(payload), 5]
    assert "(10 MiB)" in repr(last)


def test_columns_after_the_end_of_the_manager(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        events = manager.read_events("sc", "st")
    with pytest.raises(Closed):
        events.to_arrow()


# --- the last events ------------------------------------------------------------------------------------------------


def test_the_last_events_of_a_stream(manager: StreamManager) -> None:
    assert len(manager.last_events("sc", "st")) == 0
    write(manager, [f"old {number}" for number in range(5000)])
    manager.scale_stream("sc", "st", [0, 1], [(0.0, 0.5), (0.5, 1.0)])
    time.sleep(0.01)
    for number in range(7):
        write(manager, [f"new {number}"])
        time.sleep(0.005)
    last = manager.last_events("sc", "st", 5)
    assert [event.data for event in last] == [f"new {number}".encode() for number in range(2, 7)]
    assert last[0].data == b"new 2" and [event.data for event in last[-2:]] == [b"new 5", b"new 6"]
    more = manager.last_events("sc", "st", 10)
    assert len(more) == 10 and sum(event.data.startswith(b"old") for event in more) == 3
    assert all(one is not None and abs(one / 1000 - time.time()) < 60 for one in more.times)
    assert more.times == sorted(more.times, key=lambda one: one or 0)
    with pytest.raises(ValueError, match="n must be at least 1, not 0"):
        manager.last_events("sc", "st", 0)


def test_notebooks_show_the_last_events_and_obey_none_of_them(manager: StreamManager) -> None:
    manager.create_stream("sc", "any")
    with manager.create_writer("sc", "any") as writer:
        writer.write_event("<script>alert(1)</script>")
        writer.write_event("a\x1b[31mb\n")
        writer.write_event_bytes(b"\xff\x00")
        writer.write_event("ä" * 500)
    shown = manager.last_events("sc", "any")._repr_html_()
    assert "<caption>the last 4 events of sc/any</caption>" in shown
    assert "&lt;script&gt;" in shown and "<script" not in shown
    assert r"a\x1b[31mb\n" in shown and r"b&#x27;\xff\x00&#x27;" in shown
    assert "ä" * 100 + "…" in shown and "ä" * 101 not in shown
    assert len(re.findall("<tr>", shown)) == 5
    assert "UTC" in repr(manager.last_events("sc", "any"))
