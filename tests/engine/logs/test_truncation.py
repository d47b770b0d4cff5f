"""What a truncation of the log deletes, and what it leaves (W7, W18)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise

import pytest

from chunkstore import ObjectInfo
from chunkstore.paths import checkpoint_parts_folder
from chunkstore.testing import SimulatedStore
from engine.logs.log import address_of, checkpoint_path, checkpoints_folder, frame_path, frames_folder
from engine.logs.submission import Address, inbox_folder, submission_path
from engine.logs.truncation import KEPT_BYTES, OPENING, POINTS, needed_from, superseded, truncate_log
from engine.state.operations import Append, BeginCycle, CreateSegment, RecordFlush
from engine.state.segments import Extent
from engine.state.state import EMPTY, State
from tests.engine.state.writer import Writer, append, with_segments
from tests.support import limits

CONTAINER = 7
GRACE = 100.0
FRAMES = 12
CHECKPOINTS = {3: 1000.0, 6: 1100.0, 9: 1200.0}
"""Addresses, and when they were made."""


class Recording(SimulatedStore):
    """Keeps in order what is made durable or deleted."""

    def __init__(self) -> None:
        super().__init__(now=1000.0)
        self.steps: list[str] = []

    def sync(self, prefix: str) -> None:
        self.steps.append(f"sync {prefix}")
        super().sync(prefix)

    def delete(self, paths: Sequence[str]) -> None:
        self.steps += [f"delete {path}" for path in paths]
        super().delete(paths)

    def make(self, path: str, time: float) -> None:
        self.now = time
        self.put(path, b"")


def root() -> Recording:
    """A log of 12 frames with three checkpoints."""
    store = Recording()
    for address in range(FRAMES):
        store.make(frame_path(CONTAINER, address), 1000.0)
    for address, time in CHECKPOINTS.items():
        store.make(checkpoint_path(CONTAINER, address), time)
    return store


def in_log(address: int) -> State:
    """A state whose only payload is in the frame at an address."""
    writer = with_segments("s")
    while len(writer.frames) < address:
        writer.commit()
    writer.commit(append("s", b"data"))
    return writer.state


def truncate(store: Recording, now: float, covered: int = 99, state: State = EMPTY) -> int:
    return truncate_log(store, CONTAINER, lambda: state, GRACE, now, covered)


def left(store: Recording) -> tuple[list[int], int]:
    """The addresses of the checkpoints, and of the first frame; all frames behind it must be there."""
    checkpoints = [address_of(info.path) for info in store.list(checkpoints_folder(CONTAINER))]
    frames = [address_of(info.path) for info in store.list(frames_folder(CONTAINER))]
    assert frames == list(range(frames[0], FRAMES))
    return checkpoints, frames[0]


@pytest.mark.parametrize(
    ("now", "covered", "state", "checkpoints", "first"),
    [
        (1100.0, 99, EMPTY, [3, 6, 9], 0),  # the first one is as old as the grace period, and not older
        (1100.5, 99, EMPTY, [3, 6, 9], 3),
        (1200.5, 99, EMPTY, [6, 9], 6),
        (1300.5, 99, EMPTY, [9], 9),
        (1300.5, 9, EMPTY, [9], 9),
        (1300.5, 8, EMPTY, [6, 9], 6),  # the last one is not so old by another clock
        (1300.5, 2, EMPTY, [3, 6, 9], 0),
        (1300.5, 99, in_log(4), [9], 4),
        (1300.5, 99, in_log(9), [9], 9),
        (1300.5, 99, in_log(11), [9], 9),
        (9999.0, 99, in_log(1), [9], 1),
    ],
)
def test_a_truncation_keeps_what_an_opening_or_a_segment_needs(
    now: float, covered: int, state: State, checkpoints: list[int], first: int
) -> None:
    store = root()
    assert truncate(store, now, covered, state) == len(CHECKPOINTS) - len(checkpoints) + first
    assert left(store) == (checkpoints, first)
    assert truncate(store, now, covered, state) == 0


def test_a_checkpoint_is_durable_before_anything_that_it_replaces_is_deleted() -> None:
    store = root()
    truncate(store, 1300.5)
    assert store.steps[0] == f"sync {checkpoints_folder(CONTAINER)}"
    assert len(store.steps) == 1 + 2 + 9
    store = root()
    truncate(store, 1100.0)
    assert store.steps == [], "without an old checkpoint nothing is done"


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 9])
def test_many_frames_and_submissions_are_deleted_by_several_requests(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.truncated_at_a_time(monkeypatch, batch)
    store = root()
    old = [submission_path(CONTAINER, Address(1, b"o" * 16, number, bytes(8))) for number in range(9)]
    for path in old[::2]:
        store.make(path, 1200.0)
    young = old[1::2]
    for path in young:
        store.make(path, 1200.5)
    assert truncate(store, 1300.5) == 2 + 9 + 5
    assert left(store) == ([9], 9)
    assert [info.path for info in store.list(inbox_folder(CONTAINER))] == young


def test_parts_of_checkpoints_that_are_gone_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    limits.truncated_at_a_time(monkeypatch, 2)
    store = root()
    folder = checkpoint_parts_folder(CONTAINER)
    parts = {f"{folder}{address:020d}-{'0' * 32}-{number:05d}": address for address in (3, 8, 9) for number in (0, 1)}
    for path in parts:
        store.make(path, 1200.0)
    young, foreign = f"{folder}{3:020d}-{'1' * 32}-00000", f"{folder}notes.txt"
    store.make(young, 1200.5)
    store.make(foreign, 1000.0)
    assert truncate(store, 1300.5) == 2 + 4 + 9
    kept = {info.path for info in store.list(folder)}
    assert kept == {young, foreign, *(path for path, address in parts.items() if address == 9)}


def test_the_first_frame_that_is_needed_is_that_of_the_oldest_payload() -> None:
    """Chunks and what is in long-term storage need no frame."""
    writer = Writer()
    assert needed_from(writer.state) is None
    writer.commit(CreateSegment("late"), CreateSegment("early"), CreateSegment("chunk"))
    writer.commit(Append("chunk", (Extent("chunk", 0, 5, b""),)))
    assert needed_from(writer.state) is None
    writer.commit(append("early", b"1"))
    writer.commit(append("late", b"2"))
    writer.commit(append("early", b"3"))
    assert needed_from(writer.state) == 2
    writer.commit(BeginCycle(1), RecordFlush(1, "early", "early.2", 0, 1))
    assert needed_from(writer.state) == 3
    writer.commit(RecordFlush(1, "late", "late.1", 0, 1), RecordFlush(1, "early", "early.2", 1, 2))
    assert needed_from(writer.state) is None


ALL = 1 << 40
SPACING = 5.0
"""Seconds between checkpoints that are kept, where each is `Large`."""


class Large(Recording):
    """Its listings say that the objects are large."""

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        size = int(KEPT_BYTES * SPACING / GRACE)
        return [dataclasses.replace(info, size=size) for info in super().list(prefix, after, limit)]


def many(store: Recording, count: int, every: float, start: float = 2000.0) -> None:
    """Checkpoints behind those of `root`, one each so many seconds."""
    for number in range(count):
        store.make(checkpoint_path(CONTAINER, 100 + number), start + number * every)


def times(store: Recording) -> list[float]:
    return [info.modified for info in store.list(checkpoints_folder(CONTAINER))]


def test_of_checkpoints_that_come_fast_only_some_are_kept() -> None:
    """P6: few, however many there were: the truncation point, some for later truncations, and those of the last
    seconds."""
    store = Large()
    many(store, 1000, 0.25)
    now = store.now
    before = times(store)
    assert truncate(store, now, covered=ALL) > 900
    kept = times(store)
    behind = [time for time in kept if time < now - OPENING]
    assert behind[0] == max(time for time in before if time < now - GRACE), "the truncation point"
    assert kept[-1] == before[-1] and [time for time in before if time >= now - OPENING] == kept[len(behind) :]
    assert all(SPACING <= later - earlier <= SPACING + 0.25 for earlier, later in pairwise(behind))
    assert truncate(store, now, covered=ALL) == 0, "those that are kept stay"


def test_the_truncation_point_moves_on_though_checkpoints_come_fast() -> None:
    store, points = Large(), []
    for round in range(12):
        for number in range(200):
            store.make(checkpoint_path(CONTAINER, 1000 * round + number), 2000.0 + 50 * round + number * 0.25)
        truncate(store, store.now, covered=ALL)
        points.append(store.now - times(store)[0])
    assert all(GRACE < age <= GRACE + SPACING + 1 for age in points[4:]), points


def test_without_an_old_checkpoint_the_first_one_is_kept() -> None:
    store = Large()
    many(store, 100, 0.25)
    deleted = truncate(store, store.now, covered=-1)
    assert deleted > 0 and len(times(store)) == 100 - deleted
    assert times(store)[0] == 2000.0 and times(store)[-1] == store.now
    assert store.steps[0] == f"sync {checkpoints_folder(CONTAINER)}"


def test_checkpoints_from_before_a_clock_was_set_back_do_not_replace_later_ones() -> None:
    store = Large()
    many(store, 10, 1.0, 50_000.0)
    for number in range(400):
        store.make(checkpoint_path(CONTAINER, 500 + number), 2000.0 + number * 0.25)
    truncate(store, store.now + OPENING, covered=-1)
    behind = [time for time in times(store) if time < 10_000.0]
    assert len(behind) >= 100 / SPACING - 1


@pytest.mark.parametrize(("size", "kept"), [(16 << 10, 1000), (1 << 20, 16), (64 << 20, POINTS)])
def test_the_larger_checkpoints_are_the_fewer_are_kept(size: int, kept: int) -> None:
    """Small ones stay, as each lets a truncation delete more frames."""
    infos = [ObjectInfo(checkpoint_path(CONTAINER, number), size, number * 0.1) for number in range(1000)]
    left = len(infos) - len(superseded(infos, GRACE, 1000.0))
    assert kept <= left <= kept + 2


def listed(*modified: float, sizes: Sequence[int] = (64 << 20,)) -> list[ObjectInfo]:
    """Checkpoints that were made at these times; the last size is that of all others."""
    filled = [*sizes, *[sizes[-1]] * (len(modified) - len(sizes))]
    return [ObjectInfo(str(number), filled[number], time) for number, time in enumerate(modified)]


def paths(found: Sequence[ObjectInfo]) -> list[int]:
    return [int(info.path) for info in found]


def test_of_few_checkpoints_all_are_kept_and_of_more_the_first_and_the_newest_one() -> None:
    close = [number * 0.1 for number in range(POINTS)]
    assert superseded(listed(*close[1:]), GRACE, 1000.0) == [] == superseded([], GRACE, 1000.0)
    assert paths(superseded(listed(*close), GRACE, 1000.0)) == list(range(1, POINTS - 1))
    assert paths(superseded(listed(*close), GRACE, close[3])) == [1, 2]


def test_checkpoints_that_are_a_spacing_apart_are_kept() -> None:
    spacing = GRACE / POINTS
    assert superseded(listed(*(number * spacing for number in range(20))), GRACE, 1000.0) == []
    assert paths(superseded(listed(*(number * spacing / 2 for number in range(9))), GRACE, 1000.0)) == [1, 3, 5, 7]


def test_how_many_checkpoints_are_kept_depends_on_the_size_of_the_newest_one() -> None:
    times = [number * 0.2 for number in range(20)]
    newest_small = listed(*times, sizes=[64 << 20] * 19 + [1])
    newest_large = listed(*times, sizes=[1] * 19 + [64 << 20])
    assert superseded(newest_small, GRACE, 1000.0) == [] == superseded(listed(*times, sizes=[0]), GRACE, 1000.0)
    assert paths(superseded(newest_large, GRACE, 1000.0)) == list(range(1, 19))
