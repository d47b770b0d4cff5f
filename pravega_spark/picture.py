"""A picture of a stream: its segments over time and keys, where they were split and merged, and where cuts lie.

What is drawn is a `Timeline`; only drawing happens here, with matplotlib. `picture_svg` draws without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timezone
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pravega_spark.client.manager import StreamManager
from pravega_spark.parameters import checks
from pravega_spark.picture_layout import (
    CUTS,
    END,
    GONE,
    HATCH,
    MERGE,
    OPEN,
    SEALED,
    SPLIT,
    X,
    apart,
    check_cuts,
    clock,
    evenly,
    free,
    is_exact,
    time_label,
    title,
    unhidden,
)
from pravega_spark.picture_svg import stream_picture
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.reading.stream_position import PositionLike
from pravega_spark.streams.reading.timeline import CutPoint, Timeline

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = ("-", (0, (4, 1.5)), (0, (1, 1)))

_DAY = 86_400_000  # ms

FORMATS = (".svg", ".html", ".png", ".pdf")
"""Ends of the names of files that a picture is written to."""

_SIZE = (10, 4.5)  # inches

_LABEL_POINTS = 8
_LETTER = 0.62  # width of a digit, as part of the font's size; a little much, so that labels keep a distance
_LINE = 1.3
_FEWEST_POINTS = 14  # between two marks of splits and merges, or they would hide each other
_TICK_POINTS = 66
_LEGEND_LETTERS = 120  # of one line
_BELOW = 58  # points from the x axis to the legend: ticks of two lines, and the label

Corners: TypeAlias = list[tuple[float, float]]
"""Of a rectangle on the axes."""


@checks
def draw_segments(
    manager: StreamManager,
    scope_name: str,
    stream_name: str,
    *,
    cuts: Mapping[str, PositionLike] | None = None,
    even: bool = False,
    axes: Axes | None = None,
) -> Axes:
    """Draw a stream as it is now.

    Each segment is a rectangle, from its creation to its sealing, over its key range. Its label `seg 3.2` means segment
    3, created in epoch 2. The right edge is now, by the clock of this machine; a segment that reaches it is open.
    Labels and marks without room are omitted. A cut crosses each segment at the time of the first event after it, or at
    the segment's end if there is none, and one without events where it crosses the others; it is omitted where it is
    before the head. Hatched parts were truncated; the picture starts with the first epoch of which anything is left.

    cuts: additional cuts or other places, at most MOST_CUTS, by their names in the legend. even: make all epochs
    equally wide, for streams that were scaled often in a short time. axes: where to draw, by default in a new figure;
    returned.

    Raises StreamNotFound, InvalidStreamCut, ImportError without matplotlib.
    """
    chosen = dict(cuts or {})
    check_cuts(len(chosen))
    _check_matplotlib()
    if axes is not None and not hasattr(axes, "get_figure"):
        raise TypeError(f"draw_segments: axes must be Axes of matplotlib or None, not {axes!r} ({type(axes).__name__})")
    found = manager.stream_timeline(scope_name, stream_name, chosen)
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=_SIZE, layout="constrained")
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ValueError("axes: they belong to no figure any more; create new ones with matplotlib.pyplot.subplots()")
    _Picture(found, axes, figure, even).draw()
    return axes


@checks
def save_segments(
    path: str,
    manager: StreamManager,
    scope_name: str,
    stream_name: str,
    *,
    cuts: Mapping[str, PositionLike] | None = None,
    even: bool = False,
) -> None:
    """Write a picture to a file whose name's end says which: .svg and .html are those of `stream_picture`, which tell
    what the pointer is on; .png and .pdf are those of `draw_segments`.

    Raises ValueError for another end, OSError if the file cannot be written, and the errors of the two.
    """
    if not path.lower().endswith(FORMATS):
        raise ValueError(f"{path!r} does not end in {', '.join(FORMATS)}: the end says what kind of picture to write")
    if path.lower().endswith((".svg", ".html")):
        stream_picture(manager, scope_name, stream_name, cuts=cuts, even=even).save(path)
        return
    _check_matplotlib()
    from matplotlib.figure import Figure  # not pyplot, which looks for a screen

    figure = Figure(figsize=_SIZE, layout="constrained")
    draw_segments(manager, scope_name, stream_name, cuts=cuts, even=even, axes=figure.subplots())
    figure.savefig(path, dpi=150)


def _check_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'Pictures of streams need matplotlib. Install it with: pip install "pravega-spark[notebooks]"'
        ) from error


class _Picture:
    """One timeline on one pair of axes."""

    def __init__(self, timeline: Timeline, axes: Axes, figure: Figure, even: bool) -> None:
        self._timeline = timeline
        self._axes = axes
        self._figure = figure
        self._even = even
        self._x: X = evenly(timeline) if even else _in_days
        self._legend: list[Artist] = []

    def draw(self) -> None:
        from matplotlib.transforms import offset_copy

        self._frame()
        self._segments()
        self._borders()
        self._cuts()
        below = offset_copy(self._axes.transAxes, self._figure, 0, -_BELOW, units="points")
        self._axes.legend(
            handles=self._legend,
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=below,
            ncols=max(1, min(6, _LEGEND_LETTERS // (8 + max(len(str(each.get_label())) for each in self._legend)))),
            fontsize=_LABEL_POINTS,
            frameon=False,
            borderaxespad=0,
        )
        self._figure.draw_without_rendering()  # only now it is known how large everything is
        self._ticks()
        self._labels()

    # --- around it ---------------------------------------------------------------------------------------------

    def _frame(self) -> None:
        axes, known = self._axes, self._timeline
        left, right = self._x(known.epochs[0][1]), self._x(known.now)
        width = (right - left) or self._x(known.now + 1) - left
        axes.set_xlim(left - width / 100, left + width * 1.01)
        axes.set_ylim(-0.02, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axes.set_ylabel("hash of the routing key")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(title(known), loc="left", fontsize="medium", pad=20)
        axes.set_xlabel(time_label(known, self._even))

    def _ticks(self) -> None:
        """Times below, and the numbers of epochs above, each where its epoch begins."""
        from matplotlib.dates import SECONDLY, AutoDateLocator, DateFormatter

        known, axes = self._timeline, self._axes
        begun = [self._x(created) for _, created in known.epochs]
        if self._even:
            shown, exact = self._apart(begun, _TICK_POINTS), is_exact(known)
            axes.set_xticks([begun[n] for n in shown], ["\n".join(clock(known.epochs[n][1], exact)) for n in shown])
        else:
            locator = AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=7)
            locator.intervald[SECONDLY] = [1, 2, 5, 10, 15, 30]  # by default 5 follows 1
            axes.xaxis.set_major_locator(locator)
            axes.xaxis.set_major_formatter(DateFormatter("%Y-%m-%d\n%H:%M:%S", tz=timezone.utc))
        note = partial(axes.annotate, textcoords="offset points", fontsize=_LABEL_POINTS, color="#444444", va="bottom")
        note("epoch", (0, 1), xycoords="axes fraction", xytext=(-6, 4), ha="right")
        for place in self._apart(begun, 5 + len(str(known.epochs[-1][0])) * _LABEL_POINTS * _LETTER):
            note(str(known.epochs[place][0]), (begun[place], 1.02), xytext=(0, 4), ha="center")

    # --- in it -------------------------------------------------------------------------------------------------

    def _segments(self) -> None:
        """The rectangles, and the truncated parts of those that the head lies in."""
        edge = min(0.8, 40 / len(self._timeline.spans) ** 0.75)
        heads = [place for place in self._timeline.head if place.time > place.begun]
        passed = [self._corners(place.low, place.high, place.begun, place.time) for place in heads]
        self._boxes("takes events", self._spans("open"), facecolor=OPEN, edgecolor="white", linewidth=edge)
        self._boxes("sealed", self._spans("sealed"), facecolor=SEALED, edgecolor="white", linewidth=edge)
        gone = self._spans("gone") + passed
        self._boxes("truncated", gone, facecolor=GONE, edgecolor=HATCH, hatch="////", linewidth=0)

    def _spans(self, state: Literal["open", "sealed", "gone"]) -> list[Corners]:
        spans = (span for span in self._timeline.spans if span.state == state)
        return [self._corners(span.segment.low, span.segment.high, span.begun, span.ended) for span in spans]

    def _corners(self, low: float, high: float, begun: int, ended: int) -> Corners:
        left, right = self._x(begun), self._x(ended)
        return [(left, low), (right, low), (right, high), (left, high)]

    def _boxes(self, name: str, boxes: Sequence[Corners], **look: Any) -> None:
        from matplotlib.collections import PolyCollection
        from matplotlib.patches import Patch

        if boxes:
            self._axes.add_collection(PolyCollection(boxes, **look), autolim=False)
            self._legend.append(Patch(label=name, **look))

    def _borders(self) -> None:
        """A line over the keys of each split and merge, and a triangle that opens where there are more segments."""
        from matplotlib.lines import Line2D

        borders = self._timeline.borders
        places = [self._points(self._x(border.time), (border.low + border.high) / 2) for border in borders]
        marked = {borders[number] for number in unhidden(places, _FEWEST_POINTS)}
        crowded = len(marked) < len(borders) / 2
        line, marked = (0.6, set()) if crowded else (2.2, marked)
        for kind, colour, mark in (("split", SPLIT, "<"), ("merge", MERGE, ">")):
            found = [border for border in borders if border.kind == kind]
            if not found:
                continue
            times = [self._x(border.time) for border in found]
            self._axes.vlines(times, [b.low for b in found], [b.high for b in found], color=colour, linewidth=line)
            shape = partial(
                Line2D, color=colour, marker=mark, markersize=11, markeredgecolor="white", markeredgewidth=1
            )
            marks = [(self._x(b.time), (b.low + b.high) / 2) for b in found if b in marked]
            self._axes.add_line(shape([x for x, _ in marks], [y for _, y in marks], linestyle="", zorder=4))
            self._legend.append(shape([], [], label=kind, linewidth=2.2))

    def _cuts(self) -> None:
        """A line through all keys for each cut."""
        known = self._timeline
        self._cut("head", known.head, END, "-", 7)
        self._cut("tail", known.tail, END, (0, (0.8, 0.5)), 7)
        looks = ((colour, style) for style in _STYLES for colour in CUTS)
        for (name, places), (colour, style) in zip(known.cuts.items(), looks, strict=False):
            self._cut(name, places, colour, style, 2.0)

    def _cut(self, name: str, places: Sequence[CutPoint], colour: str, style: object, width: float) -> None:
        from matplotlib.patheffects import withStroke

        label = name if places else f"{name} (before the head)"
        points: Corners = []
        for place in places:
            if points and points[-1][1] != place.low:  # keys for which it lies before the head
                points.append((nan, nan))
            points += [(self._x(place.time), place.low), (self._x(place.time), place.high)]
        self._legend += self._axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=colour,
            linestyle=style,
            linewidth=width,
            label=label,
            solid_capstyle="butt",
            dash_capstyle="butt",
            zorder=3 if colour == END else 3.5,  # a cut shows on top of the head or tail that it is near to
            clip_on=False,
            path_effects=[] if colour == END else [withStroke(linewidth=width + 2, foreground="white")],
        )

    # --- what fits ---------------------------------------------------------------------------------------------

    def _labels(self) -> None:
        """The segments' numbers and epochs, in what is left of them, where no cut crosses them."""
        known = self._timeline
        left_from = {(place.low, place.begun): place.time for place in known.head}
        lines = [*known.head, *known.tail, *(place for places in known.cuts.values() for place in places)]
        for segment, begun, ended, state in self._timeline.spans:
            label = f"seg {segment_label(segment.id)}"
            left, right = self._x(left_from.get((segment.low, begun), begun)), self._x(ended)
            _, height = self._points(0, segment.high - segment.low)
            crossing = [self._x(p.time) for p in lines if p.low < segment.high and p.high > segment.low]
            width = (len(label) * _LETTER + 1.5) * _LABEL_POINTS / self._points(1, 0)[0]
            middle = free(left, right, crossing, width)
            if middle is not None and height > _LINE * _LABEL_POINTS:
                text = self._axes.text(
                    middle,
                    (segment.low + segment.high) / 2,
                    label,
                    ha="center",
                    va="center",
                    fontsize=_LABEL_POINTS,
                    color="#777777" if state == "gone" else "black",
                    clip_on=True,
                )
                text.set_in_layout(False)

    def _points(self, width: float, height: float) -> tuple[float, float]:
        """A distance on the axes in points."""
        (left, low), (right, high) = self._axes.transData.transform([(0, 0), (width, height)])
        return self._in_points(right - left), self._in_points(high - low)

    def _in_points(self, pixels: float) -> float:
        return float(pixels) * 72 / self._figure.dpi

    def _apart(self, places: Sequence[float], points: float) -> list[int]:
        """The numbers of those places, in ascending order, that are far enough apart; of the first one too."""
        return apart([self._points(place, 0)[0] for place in places], points)


def _in_days(moment: float) -> float:
    """A time as matplotlib has it on date axes."""
    return moment / _DAY
