"""The layout of a picture of a stream, whatever draws it: title, positions of times, colours, columns of events, and
which marks have room.

Colour-blind people can distinguish the colours (Okabe and Ito), and no information is shown by colour alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import hypot
from typing import TypeAlias

import numpy as np

from pravega_spark.quantities import count_text, counted, duration_text, moment_text, size_text
from pravega_spark.streams.reading.activity import Growth
from pravega_spark.streams.reading.timeline import Timeline

MOST_CUTS = 12
"""The number of cuts that can be distinguished in one picture, besides head and tail."""

MOST_CONSUMERS = 12
"""The number of reader groups and subscribers that are marked."""

MOST_COLUMNS = 240
"""The number of bars of a segment that are drawn from the first time to now."""

OPEN, SEALED, GONE, HATCH, EVENTS = "#8CCBF0", "#D3E6F1", "#EFEFEF", "#8C8C8C", "#1B6FA8"
SPLIT, MERGE, END = "#D55E00", "#882255", "#000000"
CUTS = ("#E69F00", "#009E73", "#0072B2", "#CC79A7")

_SHORT_STEPS = (1, 2, 5, 10, 20, 50)
_STEPS: tuple[int, ...] = (100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000)
_STEPS += tuple(60_000 * step for step in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720))
_STEPS += tuple(86_400_000 * step for step in (1, 2, 7, 14, 30, 90, 365, 730, 1825, 3650))

X: TypeAlias = Callable[[float], float]
"""Maps a time (ms since the epoch) to its position on the x axis."""


def check_cuts(count: int) -> None:
    """Raise ValueError for more cuts than can be distinguished."""
    if count > MOST_CUTS:
        raise ValueError(f"cuts: {count} are too many to distinguish in one picture; give at most {MOST_CUTS}")


def columns(timeline: Timeline, even: bool) -> list[float]:
    """The times (ms) at which the columns of events begin, and the end of the last one: round times, or with `even`
    equal parts of each epoch."""
    first, now = timeline.epochs[0][1], timeline.now
    if not even:
        step = _step(first, now, MOST_COLUMNS)
        return [float(moment) for moment in range(first // step * step, now + step, step)]
    times = [*(created for _, created in timeline.epochs), max(now, timeline.epochs[-1][1] + 1)]
    parts = max(MOST_COLUMNS // len(timeline.epochs), 1)
    inner = (begin + (end - begin) * part / parts for begin, end in pairwise(times) for part in range(parts))
    return [*inner, float(times[-1])]


def events_by_column(growths: Sequence[Growth], edges: Sequence[float]) -> np.ndarray:
    """The number of events in each column. Events that came during several columns are spread evenly."""
    rows, found = np.array(growths, np.float64).reshape(-1, 3), np.zeros(len(edges) - 1)
    begun, ended = (np.clip(np.searchsorted(edges, rows[:, n], "right") - 1, 0, len(found) - 1) for n in (0, 1))
    within = begun == ended
    np.add.at(found, begun[within], rows[within, 2])
    for first, last, events in rows[~within]:
        found += np.diff(np.interp(edges, [first, last], [0.0, events]))
    return found


def columns_label(most: float, edges: Sequence[float], even: bool) -> str:
    """The name of the columns of events in the legend. most: the number of events in the highest one."""
    text = f"events: {count_text(round(most))} in the highest column"
    return text if even else f"{text} of {duration_text((edges[1] - edges[0]) / 1000)}"


def head_label(timeline: Timeline) -> str:
    """The name of the head in the legend, with the policy that moves it."""
    policy = timeline.retention
    if policy is None:
        return "head"
    limits = [policy.limit] if policy.maximum is None else [policy.limit, policy.maximum]
    texts = [size_text(limit) if policy.kind == "size" else duration_text(limit / 1000) for limit in limits]
    return f"head (retention keeps {' to '.join(texts)}{'' if policy.maximum is not None else ' or more'})"


def evenly(timeline: Timeline) -> X:
    """A time axis on which each epoch is 1 wide."""
    times = [created for _, created in timeline.epochs]
    times.append(max(timeline.now, times[-1] + 1))

    def place(moment: float) -> float:
        number = min(max(bisect_right(times, moment) - 1, 0), len(times) - 2)
        begin, end = times[number], times[number + 1]
        return number + min(max((moment - begin) / ((end - begin) or 1), 0.0), 1.0)

    return place


def title(timeline: Timeline) -> str:
    """The title: the stream's name, its readable events, its epochs, and the time of sealing if it is sealed."""
    (first, _), (last, _) = timeline.epochs[0], timeline.epochs[-1]
    text = f"{timeline.stream}: {counted(timeline.events, 'event')}, {size_text(timeline.size)}, "
    text += f"epoch {first}" if first == last else f"epochs {first} to {last}"
    if first:
        text += f" (epochs before {first} were truncated)"
    return text if timeline.ended is None else f"{text}, sealed {moment_text(timeline.ended)}"


def time_label(timeline: Timeline, even: bool) -> str:
    """The label of the x axis."""
    scale = " (all epochs equally wide)" if even else ""
    return f"time{scale}; right edge: now, {moment_text(timeline.now)}"


def clock(moment: int, exact: bool) -> tuple[str, str]:
    """The two lines below the axis for a time: date and time of day. exact: with milliseconds."""
    day, time, _ = moment_text(moment).split()
    return day, f"{time}.{moment % 1000:03d}" if exact else time


def is_exact(timeline: Timeline) -> bool:
    """Whether times need milliseconds, because the average epoch is shorter than two seconds."""
    return timeline.now - timeline.epochs[0][1] < 2000 * len(timeline.epochs)


def ticks(first: int, last: int, most: int) -> list[int]:
    """Round times (ms) from `first` to `last`; at most `most` of them."""
    step = _step(first, last, most, (*_SHORT_STEPS, *_STEPS))
    return list(range(-(-first // step) * step, last + 1, step))


def even_ticks(timeline: Timeline, x: X, distance: float) -> list[int]:
    """The times (ms) at which epochs begin, and round times within epochs where there is room for them.

    x: the axis, on which these times are so far from each other.
    """
    begins = [created for _, created in timeline.epochs]
    if len(begins) == 1:
        return ticks(begins[0], timeline.now, 7)
    found: list[int] = []
    for begin, end in pairwise([*begins, max(timeline.now, begins[-1] + 1)]):
        room = int((x(end) - x(begin)) // distance)
        within = ticks(begin, end, room) if room > 1 else []
        far = (moment for moment in within if min(x(moment) - x(begin), x(end) - x(moment)) >= distance)
        found += [begin, *far]
    return found


def _step(first: int, last: int, most: int, steps: Sequence[int] = _STEPS) -> int:
    """The shortest round duration (ms) of which fewer than `most` fit between two times."""
    return next((step for step in steps if (last - first) // step < most), steps[-1])


def apart(places: Sequence[float], distance: float) -> list[int]:
    """The indices of positions to label: the first one, and each at least `distance` after the one labelled before.

    places: in ascending order.
    """
    shown: list[int] = []
    for number, place in enumerate(places):
        if not shown or place - places[shown[-1]] >= distance:
            shown.append(number)
    return shown


def unhidden(places: Sequence[tuple[float, float]], distance: float) -> list[int]:
    """The indices of positions (x, y) to mark, such that no two marks are nearer to each other than `distance`."""
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


def nearest_free(
    wanted: float, begin: float, end: float, taken: Sequence[tuple[float, float]], radius: float
) -> float | None:
    """The place in a range that is nearest to the wanted one, such that a mark of this radius lies in the range and
    meets none of the taken ranges; None if there is none."""
    places = [wanted, begin + radius, end - radius, *(low - radius for low, _ in taken)]
    places += [high + radius for _, high in taken]
    for place in sorted(places, key=lambda place: abs(place - wanted)):
        inside = begin + radius <= place <= end - radius
        if inside and all(place + radius <= low or place - radius >= high for low, high in taken):
            return place
    return None
