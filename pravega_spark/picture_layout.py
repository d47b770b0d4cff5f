"""The layout of a picture of a stream, whatever draws it: title, positions of times, colours, and which marks have
room.

Colour-blind people can distinguish the colours (Okabe and Ito), and no information is shown by colour alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import hypot
from typing import TypeAlias

from pravega_spark.quantities import counted, moment_text, size_text
from pravega_spark.streams.reading.timeline import Timeline

MOST_CUTS = 12
"""The number of cuts that can be distinguished in one picture, besides head and tail."""

OPEN, SEALED, GONE, HATCH = "#56B4E9", "#C2DDEC", "#EFEFEF", "#8C8C8C"
SPLIT, MERGE, END = "#D55E00", "#882255", "#000000"
CUTS = ("#E69F00", "#009E73", "#0072B2", "#CC79A7")

_STEPS: tuple[int, ...] = (100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000)
_STEPS += tuple(60_000 * step for step in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720))
_STEPS += tuple(86_400_000 * step for step in (1, 2, 7, 14, 30, 90, 365, 730, 1825, 3650))

X: TypeAlias = Callable[[float], float]
"""Maps a time (ms since the epoch) to its position on the x axis."""


def check_cuts(count: int) -> None:
    """Raise ValueError for more cuts than can be distinguished."""
    if count > MOST_CUTS:
        raise ValueError(f"cuts: {count} are too many to distinguish in one picture; give at most {MOST_CUTS}")


def evenly(timeline: Timeline) -> X:
    """A time axis on which every epoch has the width 1."""
    times = [created for _, created in timeline.epochs]
    times.append(max(timeline.now, times[-1] + 1))

    def place(moment: float) -> float:
        number = min(max(bisect_right(times, moment) - 1, 0), len(times) - 2)
        begin, end = times[number], times[number + 1]
        return number + min(max((moment - begin) / ((end - begin) or 1), 0.0), 1.0)

    return place


def title(timeline: Timeline) -> str:
    """The title: the stream, its readable events, its epochs, and when it was sealed."""
    (first, _), (last, _) = timeline.epochs[0], timeline.epochs[-1]
    text = f"{timeline.stream}: {counted(timeline.events, 'event')}, {size_text(timeline.size)}, "
    text += f"epoch {first}" if first == last else f"epochs {first} to {last}"
    if first:
        text += f" (earlier epochs than {first} were truncated)"
    return text if timeline.ended is None else f"{text}, sealed {moment_text(timeline.ended)}"


def time_label(timeline: Timeline, even: bool) -> str:
    """The label of the x axis."""
    scale = ", all epochs equally wide" if even else ""
    return f"time{scale}; the right edge is now, {moment_text(timeline.now)}"


def clock(moment: int, exact: bool) -> tuple[str, str]:
    """The label of a time below the axis: its date, and its time of day. exact: with milliseconds."""
    day, time, _ = moment_text(moment).split()
    return day, f"{time}.{moment % 1000:03d}" if exact else time


def is_exact(timeline: Timeline) -> bool:
    """Whether epochs are so short that only milliseconds distinguish them."""
    return timeline.now - timeline.epochs[0][1] < 2000 * len(timeline.epochs)


def ticks(first: int, last: int, most: int) -> list[int]:
    """Round times (ms) from `first` to `last`, at most so many."""
    step = next((step for step in _STEPS if (last - first) // step < most), _STEPS[-1])
    return list(range(-(-first // step) * step, last + 1, step))


def apart(places: Sequence[float], distance: float) -> list[int]:
    """The indices of the positions, in ascending order, that are far enough apart; the first one included."""
    shown: list[int] = []
    for number, place in enumerate(places):
        if not shown or place - places[shown[-1]] >= distance:
            shown.append(number)
    return shown


def unhidden(places: Sequence[tuple[float, float]], distance: float) -> list[int]:
    """The indices of the positions (x, y) whose marks do not hide each other: none is nearer than `distance` to
    another."""
    cells: dict[tuple[int, int], list[tuple[float, float]]] = {}
    shown: list[int] = []
    for number, (x, y) in enumerate(places):
        column, row = int(x // distance), int(y // distance)
        near = (cells.get((column + right, row + up), ()) for right in (-1, 0, 1) for up in (-1, 0, 1))
        if all(hypot(x - other, y - above) >= distance for cell in near for other, above in cell):
            cells.setdefault((column, row), []).append((x, y))
            shown.append(number)
    return shown


def free(begin: float, end: float, taken: Sequence[float], width: float) -> float | None:
    """The middle of the widest free part of a range; None if it is narrower than `width`."""
    bounds = [begin, *sorted(place for place in taken if begin < place < end), end]
    left, right = max(pairwise(bounds), key=lambda part: part[1] - part[0])
    return (left + right) / 2 if right - left >= width else None
