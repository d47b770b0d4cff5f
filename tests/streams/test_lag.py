"""How far a cut is behind the tail: bytes, events and time, across scales and after a truncation."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_spark import InvalidStreamCut, Lag, StreamCut, StreamManager, StreamReaderGroupConfig
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.reading.lag import lag


def written(manager: StreamManager, count: int) -> None:
    with manager.create_writer("sc", "st") as writer:
        for number in range(count):
            writer.write_event("12345678", str(number))


def test_lag_across_scales(tmp_path: Path) -> None:
    with StreamManager(tmp_path / "root") as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 2)
        begin = manager.stream_info("sc", "st").head
        assert manager.lag(begin) == Lag(0, 0, 0.0, False) and str(manager.lag(begin)) == "at the tail"
        written(manager, 10)
        middle = manager.stream_info("sc", "st").tail
        manager.scale_stream("sc", "st", ["0.0"], [(0.0, 0.2), (0.2, 0.5)])
        written(manager, 5)
        stream = Catalog(manager.root).stream("sc", "st")
        first = stream.query(lambda snapshot: snapshot.segments.index(0).locate_offset(1))
        assert first is not None
        found = stream.query(lambda snapshot: lag(snapshot, begin, now=first.time_ms / 1000 + 90))
        assert found[:2] == (15 * 16, 15) and found.seconds >= 90 and not found.truncated
        assert manager.lag(middle)[:2] == (5 * 16, 5)
        assert manager.lag(manager.stream_info("sc", "st").tail).events == 0
        manager.truncate_stream("sc", "st", middle)
        behind = manager.lag(begin)
        assert (behind.events, behind.truncated) == (5, True) and "and what was truncated" in str(behind)
        with pytest.raises(InvalidStreamCut):
            manager.lag(StreamCut("sc", "st", {7: 0}))
        group = manager.create_reader_group("rg", "sc", "st")
        group.close()
        assert manager.group_lag("rg", "sc")["sc/st"][:2] == (5 * 16, 5)


def test_the_subscribers_of_a_stream_are_told_with_their_lag(tmp_path: Path) -> None:
    with StreamManager(tmp_path / "root") as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 2)
        assert manager.stream_info("sc", "st").subscribers == {}
        config = StreamReaderGroupConfig(False, "sc", "st", retention="manual")
        manager.create_reader_group_with_config("slow", "sc", config)
        written(manager, 10)
        info = manager.stream_info("sc", "st")
        assert info.subscribers["slow"][:2] == (160, 10)
        assert "subscriber slow" in info._repr_html_() and "10 events, 160 bytes, " in info._repr_html_()
        assert [found.subscribers.keys() for found in manager.stream_infos("sc")] == [{"slow"}]
