"""Retention by what groups have read."""

from __future__ import annotations

import pytest

from engine.root import Root
from pravega_spark import InvalidStreamCut, StreamCut, StreamManager
from pravega_spark.client.groups.config import StreamReaderGroupConfig
from pravega_spark.streams.maintenance.subscribers import NotSubscribed, release, subscribe, subscribers
from pravega_spark.streams.stream import Stream
from tests.client.groups.reading import Clock, drained, grouped, halves, write

pytestmark = pytest.mark.usefixtures("no_patience")


def test_a_group_without_retention_subscribes_to_nothing(manager: StreamManager, roots: tuple[Root, Root]) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    assert subscribers(Stream(roots[0], "sc", "one")) == {}
    with pytest.raises(ValueError, match="has retention 'none', not 'manual'"):
        group.update_retention_stream_cut(manager.stream_info("sc", "one").tail)


def test_manual_retention(manager: StreamManager, roots: tuple[Root, Root]) -> None:
    write(manager, "one", ["a", "b"])
    stream = Stream(roots[0], "sc", "one")
    config = StreamReaderGroupConfig(False, "sc", "one", "four", retention="manual")
    group = manager.create_reader_group_with_config("rg", "sc", config)
    start, end = manager.stream_info("sc", "one").head, manager.stream_info("sc", "one").tail
    assert subscribers(stream) == {"rg": start}
    drained(group.create_reader("r"))
    group.checkpoint("c")
    assert subscribers(stream) == {"rg": start}
    group.update_retention_stream_cut(end)
    group.update_retention_stream_cut(end)
    assert subscribers(stream) == {"rg": end}
    manager.create_reader_group_with_config("rg", "sc", config)
    assert subscribers(stream) == {"rg": end}
    with pytest.raises(InvalidStreamCut, match="is before"):
        group.update_retention_stream_cut(start)
    with pytest.raises(InvalidStreamCut, match="does not read sc/other"):
        group.update_retention_stream_cut(StreamCut("sc", "other", {0: 0}))
    assert list(subscribers(Stream(roots[0], "sc", "four"))) == ["rg"]
    manager.delete_reader_group("rg", "sc")
    assert subscribers(stream) == subscribers(Stream(roots[0], "sc", "four")) == {}


def test_automatic_retention(manager: StreamManager, roots: tuple[Root, Root], clock: Clock) -> None:
    write(manager, "one", ["a", "b"])
    stream = Stream(roots[1], "sc", "one")
    start = manager.stream_info("sc", "one").head
    group = grouped(roots[0], clock, retention="automatic")
    reader = group.create_reader("r")
    drained(reader)
    assert subscribers(stream) == {"rg": start}
    clock.now += 30
    drained(reader, 2)
    end = manager.stream_info("sc", "one").tail
    assert subscribers(stream) == {"rg": end}
    group.reset(start)
    assert subscribers(stream) == {"rg": start}
    drained(reader, 2)
    group.checkpoint("c")
    assert subscribers(stream) == {"rg": end}


def test_groups_of_other_scopes_are_other_subscribers(manager: StreamManager, roots: tuple[Root, Root]) -> None:
    manager.create_scope("other")
    config = StreamReaderGroupConfig(False, "sc", "one", retention="manual")
    for scope in ("sc", "other"):
        manager.create_reader_group_with_config("rg", scope, config)
    assert list(subscribers(Stream(roots[0], "sc", "one"))) == ["other/rg", "rg"]
    manager.delete_reader_group("rg", "other")
    assert list(subscribers(Stream(roots[0], "sc", "one"))) == ["rg"]


def test_released_cuts_only_move_forward_across_scaling(manager: StreamManager, roots: tuple[Root, Root]) -> None:
    write(manager, "one", ["a", "b"])
    stream = Stream(roots[0], "sc", "one")
    cuts = [manager.stream_info("sc", "one").head, manager.stream_info("sc", "one").tail]
    halves(manager, "one")
    cuts.append(manager.stream_info("sc", "one").tail)
    with pytest.raises(NotSubscribed, match="stream sc/one has no subscriber s"):
        release(stream, "s", cuts[0])
    subscribe(stream, "s", cuts[0])
    for index, cut in enumerate(cuts):
        release(stream, "s", cut)
        assert subscribers(stream) == {"s": cut}
        for before in cuts[:index]:
            with pytest.raises(InvalidStreamCut):
                release(stream, "s", before)
    subscribe(stream, "s", cuts[0])
    assert subscribers(stream) == {"s": cuts[2]}
    subscribe(stream, "s", cuts[0], restart=True)
    assert subscribers(stream) == {"s": cuts[0]}
    with pytest.raises(InvalidStreamCut):
        release(stream, "s", StreamCut("sc", "one", {7: 0}))
