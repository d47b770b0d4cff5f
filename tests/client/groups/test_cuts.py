"""Groups that begin at stream cuts, checkpoints and resets."""

from __future__ import annotations

import pytest

from pravega_spark import InvalidStreamCut, StreamCut, StreamManager
from tests.client.groups.reading import drained, halves, next_slice, numbered, payloads, write

pytestmark = pytest.mark.usefixtures("no_patience")


def test_checkpoints_and_resets(url: str, manager: StreamManager) -> None:
    write(manager, "four", numbered(30), key=None)
    group = manager.create_reader_group("rg", "sc", "four")
    reader = group.create_reader("r")
    first = payloads(next_slice(reader))
    reader.release_segment(next_slice(reader))
    cuts = group.checkpoint("then")
    rest = drained(reader)
    assert sorted(map(int, first + rest)) == list(range(30))
    assert group.unread_bytes() == 0
    with StreamManager(url) as other:
        again = other.create_reader_group("rg", "sc", "four")
        assert again.checkpoints() == {"then": cuts}
        held = next_slice(reader)
        again.reset(again.checkpoints()["then"])
        assert again.stream_cuts() == cuts
        assert again.unread_bytes() == sum(len(text) + 8 for text in rest)
    assert list(held) == []
    assert sorted(drained(reader, 2)) == sorted(rest)
    group.reset(manager.stream_info("sc", "four").tail)
    assert drained(reader, 2) == []


def test_slices_of_before_a_reset_end(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b", "c"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    start = group.stream_cuts()["sc/one"]
    part = next_slice(reader)
    assert next(part).data() == b"a"
    group.reset(start)
    next_slice(reader)  # looks at the group, as there is nothing else to read
    assert list(part) == []
    reader.release_segment(part)
    assert drained(reader) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("positions", "problem"),
    [
        ({0: 5}, "no event of segment 0.0 begins at offset 5"),
        ({0: 1000}, "has offsets 0 to 18, not 1000"),
        ({1: 0}, "stream cut sc/one:1.0=0"),
        ({}, "no segment covers the keys"),
    ],
    ids=["inside an event", "behind the end", "another segment", "nothing"],
)
def test_a_group_begins_at_cuts_only(manager: StreamManager, positions: dict[int, int], problem: str) -> None:
    write(manager, "one", ["a", "b"])
    cut = StreamCut("sc", "one", positions)
    with pytest.raises(InvalidStreamCut, match=problem):
        manager.create_reader_group("rg", "sc", "one", stream_cut=cut)
    group = manager.create_reader_group("rg", "sc", "one")
    with pytest.raises(InvalidStreamCut, match=problem):
        group.reset(cut)
    with pytest.raises(InvalidStreamCut, match="does not read sc/four"):
        group.reset(manager.stream_info("sc", "four").head)


def test_a_group_does_not_begin_before_the_head(manager: StreamManager) -> None:
    write(manager, "one", ["a"])
    head = manager.stream_info("sc", "one").head
    halves(manager, "one")
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    with pytest.raises(InvalidStreamCut, match=r"segment 0\.0 of sc/one was truncated; start at the head"):
        manager.create_reader_group("rg", "sc", "one", stream_cut=head)
