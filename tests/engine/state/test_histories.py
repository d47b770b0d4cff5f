"""A container's state is a pure function of its log (W5), and a checkpoint is all of it (W6): random histories."""

import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from engine.errors import FlushOvertaken, Rejected, SegmentNotFound
from engine.state.changes.apply import apply
from engine.state.operations import (
    Checkpoint,
    DequeueGarbage,
    EvictSegments,
    Operation,
    SpillAttributes,
    decode_transactions,
)
from engine.state.segments import Extent, Extents, FrameRef
from engine.state.state import State
from tests.engine.state.writer import HEADER, Writer, assert_equal, assert_recovered, placed, through_checkpoint
from tests.support.container_model import Model
from tests.support.simulation import audit, small_sizes
from tests.support.transactions import chunk_writer, transactions


def replayed(state: State, frames: list[bytes], start: int) -> State:
    """The state after the frames from address `start` on."""
    for address in range(start, len(frames)):
        own = FrameRef(address, HEADER)
        for transaction in decode_transactions(frames[address], own):
            state, _ = apply(state, transaction, address)
    return state


# --- random histories ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_any_history_fits_the_model_and_replays_to_the_same_state_from_any_checkpoint(data: st.DataObject) -> None:
    """Flush cycles go on, or are given up, between any two transactions."""
    with small_sizes():
        model, writer = Model(), Writer()
        write, cycle = chunk_writer(model, writer.store), Cycling(writer)
        for _ in range(data.draw(st.integers(1, 20))):
            match data.draw(st.sampled_from(("commit", "commit", "step", "begin", "flush", "other"))):
                case "commit":
                    for _ in range(data.draw(st.integers(1, 3))):
                        commit(writer, model, data.draw(transactions(model, write, 40)))
                case "step":
                    cycle.step(data.draw(st.integers(1, 12)))
                case "begin":
                    cycle.begin(data.draw(st.integers(0, 3)))
                case "flush":
                    writer.flush(data.draw(st.booleans()))
                case "other":
                    writer.commit(*upkeep(data, writer))
            audit(writer.state)
            assert writer.contents(writer.state) == model.contents()
        if writer.recovery_point is not None:
            assert_recovered(writer, writer.recovery_point.contents)
        for address, state in enumerate(writer.states):
            again = through_checkpoint(state, address)
            assert_equal(again, state)
            after = writer.states[min(address + 1, len(writer.frames))]
            assert_equal(replayed(again, writer.frames[: address + 1], address), after)
        for start in (0, data.draw(st.integers(0, len(writer.frames)))):
            assert_equal(replayed(through_checkpoint(writer.states[start], start), writer.frames, start), writer.state)


class Cycling:
    """A flush cycle that goes on between other operations, until something is in its way."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._steps: Iterator[str] = iter(())

    def begin(self, merged: int) -> None:
        """Begin another one; the one before is given up where it is."""
        self._steps = self._writer.cycle(merged)
        self.step(1)

    def step(self, count: int) -> None:
        """Go on by some steps."""
        try:
            for _ in range(count):
                next(self._steps, None)
        except (FlushOvertaken, SegmentNotFound):
            self._steps = iter(())


def commit(writer: Writer, model: Model, drawn: list[Operation]) -> None:
    """Give both the same transaction: the same becomes of it."""
    before = writer.state
    try:
        expected = model.commit(drawn)
    except Rejected as error:
        with pytest.raises(type(error)):
            writer.commit(*drawn)
        assert writer.state is before
        return
    for result, wanted in zip(writer.commit(*drawn), expected, strict=True):
        assert wanted is None or result == wanted
    model.adopt(writer)  # type: ignore[arg-type]


def upkeep(data: st.DataObject, writer: Writer) -> list[Operation]:
    """What else a container puts into the log by itself."""
    names = sorted(writer.state.segments)
    chosen: list[Operation] = [Checkpoint()] if data.draw(st.booleans()) else []
    if data.draw(st.booleans()):
        chosen.append(DequeueGarbage(tuple(sorted(writer.state.garbage))))
    if data.draw(st.booleans()):
        chosen.append(EvictSegments(tuple(names)))
    elif names and data.draw(st.sampled_from([False, True])):
        chosen.append(SpillAttributes(data.draw(st.sampled_from(names))))
    return chosen


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_versions_of_a_state_do_not_disturb_each_other(data: st.DataObject) -> None:
    """Versions of a list of extents share memory. Whatever is made of one, the others keep what they had."""
    versions: list[tuple[Extents, list[tuple[int, Extent]]]] = [(Extents(), [])]
    for number in range(data.draw(st.integers(1, 25))):
        extents, pairs = versions[data.draw(st.integers(0, len(versions) - 1))]
        end = pairs[-1][0] + pairs[-1][1].length if pairs else 0
        what = data.draw(st.sampled_from(("append", "append", "truncate", "replace")))
        if what == "append":
            added = [Extent(FrameRef(number), i, length, b"") for i, length in enumerate(data.draw(st.lists(lengths)))]
            versions.append((extents.appended(end, added), pairs + placed(end, added)))
        elif what == "truncate":
            offset = data.draw(st.integers(0, end))
            left, dropped = extents.truncated(offset)
            kept = [pair for pair in pairs if pair[0] + pair[1].length > offset]
            assert dropped == [extent for _, extent in pairs[: len(pairs) - len(kept)]]
            versions.append((left, kept))
        elif pairs:
            first = data.draw(st.integers(0, len(pairs) - 1))
            last = data.draw(st.integers(first + 1, len(pairs)))
            length = sum(extent.length for _, extent in pairs[first:last])
            new = [Extent(f"chunk{number}", 0, length, b"")]
            result = extents.replaced(pairs[first][0], new)
            assert result is not None
            assert result[1] == [extent for _, extent in pairs[first:last]]
            versions.append((result[0], pairs[:first] + placed(pairs[first][0], new) + pairs[last:]))
        for kept_extents, kept_pairs in versions:
            assert list(kept_extents) == kept_pairs
            assert len(kept_extents) == len(kept_pairs)


class Chunk(str):
    """A chunk's name that a weak reference can follow."""


def test_a_list_that_is_cut_and_grows_holds_at_most_twice_what_is_in_it() -> None:
    """Truncation copies what is left once that is less than half: so it is cheap, and memory is given back."""
    extents, alive = Extents(), weakref.WeakSet[Chunk]()
    for number in range(100):
        chunk = Chunk(number)
        alive.add(chunk)
        extents = extents.appended(number, [Extent(chunk, 0, 1, b"")])
        extents, _ = extents.truncated(number - 9)
        assert len(extents) == min(number + 1, 10)
        assert len(alive) <= 2 * len(extents) + 2


lengths = st.integers(0, 3)
