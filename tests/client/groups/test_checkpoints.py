"""Checkpoints that all readers pass: their events, their positions, their limit, and what ends them."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from engine.root import Root
from pravega_spark import CheckpointFailed, Closed, StreamCut, StreamManager, TooManyCheckpoints
from pravega_spark.client.groups.config import StreamReaderGroupConfig
from pravega_spark.client.groups.reader import StreamReader
from tests.client.groups.reading import (
    Clock,
    drained,
    grouped,
    halves,
    next_slice,
    numbered,
    payloads,
    run,
    share,
    stored,
    write,
)

pytestmark = pytest.mark.usefixtures("no_patience")

Cuts = dict[str, StreamCut]


def behind(manager: StreamManager, cut: StreamCut) -> list[str]:
    """The events after a cut."""
    return [event.data.decode() for event in manager.read_events(cut.scope, cut.stream, cut)]


def passed(reader: StreamReader, name: str) -> None:
    """The next slice is the event of a checkpoint, which the reader passes by the call after it."""
    part = next_slice(reader)
    assert (part.checkpoint_name, part.is_checkpoint, list(part)) == (name, True, [])


def done(future: Future[Cuts]) -> Cuts:
    return future.result(timeout=60)


# --- by call ---------------------------------------------------------------------------------------------------------


def test_all_readers_pass_a_checkpoint_and_its_positions_are_those_of_the_event(manager: StreamManager) -> None:
    write(manager, "four", numbered(40), key=None)
    group = manager.create_reader_group("rg", "sc", "four")
    readers = [group.create_reader(name) for name in "ab"]
    share(*readers)
    parts = [next_slice(reader) for reader in readers]
    taken = [next(part).data().decode() for part in parts]
    future = group.initiate_checkpoint("c")
    assert group.outstanding_checkpoints() == {"c": ["a", "b"]}
    for reader, part in zip(readers, parts, strict=True):
        assert not next_slice(reader).is_checkpoint  # the program has a slice
        assert list(part) == []  # which ends
        passed(reader, "c")
    assert not future.done() and group.outstanding_checkpoints() == {"c": ["a", "b"]}
    taken += payloads(next_slice(readers[0]))  # the call after it passes it
    assert group.outstanding_checkpoints() == {"c": ["b"]}
    after = payloads(next_slice(readers[1]))
    cut = done(future)["sc/four"]
    assert group.checkpoints() == {"c": {"sc/four": cut}}
    before = set(numbered(40)) - set(behind(manager, cut))
    assert before == set(taken[:2])
    rest = [*taken[2:], *after, *drained(readers[0]), *drained(readers[1])]
    assert sorted(rest) == sorted(behind(manager, cut))


def test_the_event_comes_between_events_that_are_read_one_by_one(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b", "c"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    first = reader.read_next_event(0)
    assert first.event is not None and first.event.data == b"a"
    future = group.initiate_checkpoint("c")
    reader.record()  # which looks at the group
    read = reader.read_next_event(0)
    assert (read.event, read.checkpoint_name, read.is_checkpoint, read.is_read_completed) == (None, "c", True, False)
    assert read.position == first.position
    second = reader.read_next_event(0)
    assert second.event is not None and second.event.data == b"b" and not second.is_checkpoint
    assert done(future)["sc/one"].positions == {0: 9}
    assert first.position.offsets == {("sc/one", 0): 9} and second.position.offsets == {("sc/one", 0): 18}
    assert "checkpoint 'c'" in repr(read) and "b'b'" in repr(second)


def test_in_an_event_loop_the_future_is_awaited(manager: StreamManager) -> None:
    write(manager, "one", numbered(9))
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")

    async def work() -> tuple[list[str], Cuts]:
        waiting = asyncio.wrap_future(group.initiate_checkpoint("c"))
        found: list[str] = []
        while not waiting.done():
            part = await reader.get_segment_slice_async()
            found.append(part.checkpoint_name or "")
            reader.release_segment(part)
        return [name for name in found if name], await waiting

    names, cuts = run(work())
    assert names == ["c"] and cuts == group.checkpoints()["c"]


def test_a_call_that_was_cancelled_does_not_pass_a_checkpoint(manager: StreamManager) -> None:
    """The event is given to the next call, as the program has not got it."""
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    group.initiate_checkpoint("c")

    async def work() -> str | None:
        for _ in range(50):
            task = asyncio.create_task(reader.get_segment_slice_async())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert group.outstanding_checkpoints() == {"c": ["r"]}
        return (await reader.get_segment_slice_async()).checkpoint_name

    assert run(work()) == "c"


def test_without_readers_a_checkpoint_is_complete(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    future = group.initiate_checkpoint("c")
    assert future.done() and done(future) == group.stream_cuts() == group.checkpoints()["c"]


def test_a_reader_that_leaves_or_dies_passes_where_it_was(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "four", numbered(40), key=None)
    groups = [grouped(root, clock, "four") for root in roots]
    leaves, dies, lives = (groups[number].create_reader(name) for name, number in (("l", 0), ("d", 0), ("x", 1)))
    for reader in (leaves, dies, lives, leaves):
        reader.record()
        next_slice(reader)
    future = groups[1].initiate_checkpoint("c")
    leaves.reader_offline()
    assert groups[1].outstanding_checkpoints() == {"c": ["d", "x"]}
    passed(lives, "c")
    next_slice(lives)
    assert groups[1].outstanding_checkpoints() == {"c": ["d"]}
    clock.now += 57
    next_slice(lives)
    assert not future.done()
    clock.now += 3
    next_slice(lives)
    cut = done(future)["sc/four"]
    assert groups[1].online_readers() == ["x"] and sorted(cut.positions) == [0, 1, 2, 3]


def test_until_it_has_passed_a_reader_takes_and_completes_nothing(manager: StreamManager) -> None:
    write(manager, "one", ["a"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    halves(manager, "one")
    future = group.initiate_checkpoint("c")
    part = next_slice(reader)
    assert part.is_checkpoint
    assert payloads(next_slice(reader)) == ["a"]
    assert done(future)["sc/one"].positions == {0: 0}
    second = group.initiate_checkpoint("d")
    passed(reader, "d")
    assert [one.id for one in stored(manager.root).readers["r"].positions] == [0]
    next_slice(reader)
    assert done(second)["sc/one"].positions == {0: 9}
    next_slice(reader)
    assert len(stored(manager.root).readers["r"].positions) == 2


def test_a_reader_that_joins_has_nothing_to_do_with_it(manager: StreamManager) -> None:
    write(manager, "four", numbered(40), key=None)
    group = manager.create_reader_group("rg", "sc", "four")
    first = group.create_reader("a")
    future = group.initiate_checkpoint("c")
    second = group.create_reader("b")
    assert not next_slice(second).is_checkpoint
    assert group.segment_distribution() == ({"a": 4, "b": 0}, 0)
    passed(first, "c")
    parts = [next_slice(first)]
    assert all(offset == 0 for offset in done(future)["sc/four"].positions.values())
    found = [event for part in parts for event in payloads(part)]
    for _ in range(3):
        found += drained(second) + drained(first)
    assert sorted(map(int, found)) == list(range(40))


# --- several, cancelled, refused -------------------------------------------------------------------------------------


def test_checkpoints_are_passed_in_their_order_silent_ones_without_an_event(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    assert payloads(next_slice(reader)) == ["a", "b"]
    silent = group.generate_stream_cuts()
    first, again, other = (group.initiate_checkpoint(name) for name in ("c", "c", "d"))
    passed(reader, "c")
    assert done(silent) == {"sc/one": manager.stream_info("sc", "one").tail}
    passed(reader, "d")
    assert done(first) == done(again)
    next_slice(reader)
    assert done(other) == done(first) and list(group.checkpoints()) == ["c", "d"]
    assert stored(manager.root).outstanding == {}


def test_a_group_waits_for_three_checkpoints_or_as_many_as_its_configuration_says(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    group.create_reader("r")
    for name in "abc":
        group.initiate_checkpoint(name)
    with pytest.raises(TooManyCheckpoints, match=r"waits for 3 checkpoints already \(a, b, c\).*: readers r have not"):
        group.initiate_checkpoint("d")
    group.generate_stream_cuts()
    group.initiate_checkpoint("c")
    config = StreamReaderGroupConfig(False, "sc", "one", max_outstanding_checkpoints=1)
    other = manager.create_reader_group_with_config("other", "sc", config)
    other.create_reader("r")
    other.initiate_checkpoint("a")
    with pytest.raises(TooManyCheckpoints):
        other.initiate_checkpoint("b")


def test_what_is_cancelled_fails_and_is_passed_by_nobody(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    futures = [group.initiate_checkpoint(name) for name in "ab"]
    silent = group.generate_stream_cuts()
    passed(reader, "a")
    group.cancel_outstanding_checkpoints()
    assert not next_slice(reader).is_checkpoint
    for future in futures:
        with pytest.raises(CheckpointFailed, match="has no positions: it was cancelled"):
            done(future)
    assert group.checkpoints() == {} and sorted(done(silent)) == ["sc/one"]


@pytest.mark.parametrize("how", ["reset", "closed"])
def test_a_reset_or_a_close_ends_the_wait(manager: StreamManager, how: str) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    group.create_reader("r")
    future = group.initiate_checkpoint("a")
    if how == "reset":
        group.reset("earliest")
    else:
        group.close()
    with pytest.raises(CheckpointFailed if how == "reset" else Closed):
        done(future)


# --- automatic ones --------------------------------------------------------------------------------------------------


def test_automatic_checkpoints(manager: StreamManager, roots: tuple[Root, Root], clock: Clock) -> None:
    write(manager, "four", numbered(40), key=None)
    groups = [grouped(root, clock, "four", checkpoint_interval="30s") for root in roots]
    readers = [group.create_reader("ab"[number]) for number, group in enumerate(groups)]
    groups[0].checkpoint("mine")
    names = set()
    for _ in range(40):
        clock.now += 5
        for reader in readers:
            part = next_slice(reader)
            names |= {part.checkpoint_name} - {None}
            payloads(part)
    kept = groups[0].checkpoints()
    assert 4 <= len(names) <= 7 and all(str(name).startswith("automatic-") for name in names)
    assert len(kept) == 2 and "mine" in kept and set(kept) - {"mine"} < names
    assert list(kept.values())[-1] == {"sc/four": manager.stream_info("sc", "four").tail}


def test_retention_waits_at_the_last_automatic_checkpoint(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "one", ["a", "b"])
    group = grouped(roots[0], clock, checkpoint_interval="90s", retention="automatic", lease=900.0)
    reader = group.create_reader("r")
    assert drained(reader) == ["a", "b"]
    clock.now += 60  # long after positions would be released
    next_slice(reader)
    assert manager.stream_info("sc", "one").subscribers["rg"].bytes == 18
    clock.now += 30
    assert next_slice(reader).is_checkpoint
    next_slice(reader)
    assert manager.stream_info("sc", "one").subscribers["rg"].bytes == 0


# --- resets ----------------------------------------------------------------------------------------------------------


def test_a_reset_goes_to_the_last_checkpoint_or_to_the_start(manager: StreamManager) -> None:
    write(manager, "one", ["a"])
    start = manager.stream_info("sc", "one").tail
    write(manager, "one", ["b"])
    group = manager.create_reader_group("rg", "sc", "one", stream_cut=start)
    reader = group.create_reader("r")
    assert drained(reader) == ["b"]
    group.reset()
    assert drained(reader) == ["b"]
    future = group.initiate_checkpoint("c")
    passed(reader, "c")
    next_slice(reader)
    write(manager, "one", ["c", "d"])
    assert drained(reader) == ["c", "d"]
    group.generate_stream_cuts()
    next_slice(reader)
    group.reset()
    assert group.stream_cuts() == done(future)
    assert drained(reader) == ["c", "d"]


def test_another_configuration(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    write(manager, "four", numbered(40), key=None)
    group = manager.create_reader_group_with_config(
        "rg", "sc", StreamReaderGroupConfig(False, "sc", "one", retention="automatic")
    )
    reader = group.create_reader("r")
    part = next_slice(reader)
    assert next(part).data == b"a"
    group.checkpoint("c")
    config = StreamReaderGroupConfig(False, "sc", "four", retention="automatic", lease=30.0)
    group.reset_reader_group(config)
    assert sorted(map(int, drained(reader))) == list(range(40))
    assert list(part) == [] and group.checkpoints() == {} and group.online_readers() == ["r"]
    assert stored(manager.root).lease == 30.0 and list(group.stream_cuts()) == ["sc/four"]
    assert manager.stream_info("sc", "one").subscribers == {}
    assert list(manager.stream_info("sc", "four").subscribers) == ["rg"]
    manager.create_reader_group_with_config("rg", "sc", config)
    group.reset_reader_group(StreamReaderGroupConfig(True, "sc", "one"))
    assert manager.stream_info("sc", "four").subscribers == {}
    assert drained(reader) == []


def test_several_scopes(manager: StreamManager) -> None:
    manager.create_scope("other")
    manager.create_stream("other", "one", 1)
    write(manager, "one", ["a"])
    with manager.create_writer("other", "one") as writer:
        writer.write_event("b")
    config = StreamReaderGroupConfig(False, "sc", "one", "other/one")
    assert config.streams == ("sc/one", "other/one")
    group = manager.create_reader_group_with_config("rg", "sc", config)
    reader = group.create_reader("r")
    assert sorted(drained(reader)) == ["a", "b"]
    cuts = group.checkpoint("c")
    assert sorted(cuts) == ["other/one", "sc/one"] and all(cut.positions == {0: 9} for cut in cuts.values())
    group.reset({"other/one": "earliest"})
    assert drained(reader) == ["b"]
