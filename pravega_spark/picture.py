"""Renders a picture of a stream as SVG: its segments over time and keys, where they were split and merged, when events
came, and where cuts and consumers are. Notebooks and browsers show it, with details of the part under the pointer.

The picture needs no style sheet: its size, fonts and colours are attributes, which all renderers of SVG know. Its axis
of time is an attribute too, by which the pages of `serve` find the time at a place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

from pravega_spark.client.manager import StreamManager
from pravega_spark.parameters import checks
from pravega_spark.picture_layout import (
    CUTS,
    END,
    EVENTS,
    GONE,
    HATCH,
    MERGE,
    MOST_CONSUMERS,
    OPEN,
    SEALED,
    SPLIT,
    X,
    apart,
    check_cuts,
    clock,
    columns,
    columns_label,
    even_ticks,
    evenly,
    events_by_column,
    free,
    head_label,
    is_exact,
    nearest_free,
    ticks,
    time_label,
    title,
    unhidden,
)
from pravega_spark.quantities import counted
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.reading.stream_position import PositionLike
from pravega_spark.streams.reading.timeline import CutPoint, SegmentSpan, Timeline

_WIDTH, _LEFT, _RIGHT = 960, 62, 20
_TOP, _HEIGHT = 62, 320
_BELOW, _LEGEND_LINE = 74, 20
_LETTER, _LINE = 6.2, 15  # of a label's font, 11 px
_STYLES = ("", "8 3", "2 2")  # dashes of cuts, when the colours are used up

_MARK, _NEAR = 7.5, 16  # radius of a consumer's mark; width of the columns in which it is compared with events
_LEAST_GONE, _LEAST_BAR = 12, 2.5  # the least width of a truncated part and of a column of events, and its least height
_GAP = 1.5  # between a column of events and a line behind it

STYLE = """\
.pravega-picture .segment:hover, .pravega-picture .cut:hover {filter: brightness(0.85)}
.pravega-picture text, .pravega-picture .events, .pravega-picture .gap {pointer-events: none}"""
"""The style inside each picture: pages that forbid others allow this one."""

_FITTING = "<style>.pravega-page svg {max-width: 100%; height: auto}</style>"
"""For pages: the picture shrinks with its page. Renderers other than browsers do not understand it."""


class StreamPicture:
    """A picture of a stream as it was when the picture was made. Notebooks show it; `save` writes it to a file.

    svg: the picture as SVG. Its parts have titles, which browsers show for the part under the pointer.
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_html_(self) -> str:
        return f'<div class="pravega-page">{_FITTING}{self.svg}</div>'  # an image would have no titles

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the picture to a file: SVG if its name ends in .svg, a page if in .html.

        Raises ValueError for another file extension, OSError if the file cannot be written.
        """
        suffix = Path(path).suffix
        if suffix.lower() not in (".svg", ".html"):
            raise ValueError(f"unsupported file extension {suffix!r}: use .svg or .html")
        page = f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>Segments of a stream</title>\n{self._repr_html_()}\n'
        Path(path).write_text(page if suffix.lower() == ".html" else self.svg, "utf-8")


@checks
def stream_picture(
    manager: StreamManager,
    scope_name: str,
    stream_name: str,
    *,
    cuts: Mapping[str, PositionLike] | None = None,
    even: bool = False,
) -> StreamPicture:
    """A picture of a stream as it is now.

    Each segment is a rectangle, from its creation to its sealing, over its key range. Its label `seg 3.2` means segment
    3, created in epoch 2. The right edge is now, by the clock of this machine; a segment that reaches it is open.
    Labels and marks without room are omitted; the titles of all parts have ids, keys and times. The columns in a
    segment are its readable events by time; they cover the lines of cuts. Hatched parts were truncated; the picture
    starts with the first epoch of which anything is left. Columns and truncated parts that would be too narrow to see
    are drawn wider.

    A cut crosses each segment between the event before it and the event after it, and is as straight as these allow.
    A time is a straight line at that time. Letters mark the positions of the first MOST_CONSUMERS of the scope's
    reader groups and the stream's subscribers. Positions before the head are omitted.

    cuts: additional cuts or other positions, at most MOST_CUTS, by their names in the legend. even: make all epochs
    equally wide, for streams that were scaled often in a short time.

    The cost does not depend on the size of the stream: at most 64 reads of its index find when events came, and in a
    longer stream events between these reads are spread evenly.

    Raises StreamNotFound, InvalidStreamCut, ValueError for more than MOST_CUTS cuts.
    """
    chosen = dict(cuts or {})
    check_cuts(len(chosen))
    return StreamPicture(_Drawing(manager.stream_timeline(scope_name, stream_name, chosen), even).svg())


class _Key(NamedTuple):
    """An entry of the legend: its symbol in SVG, and its name."""

    symbol: str
    name: str


class _Bar(NamedTuple):
    """A column of events: its left and right edge, its top and its bottom."""

    begin: float
    end: float
    high: float
    low: float


class _Drawing:
    """One timeline as SVG."""

    def __init__(self, timeline: Timeline, even: bool) -> None:
        self._timeline = timeline
        self._even = even
        self._legend: list[_Key] = []
        self._head = {(place.low, place.begun): place.time for place in timeline.head}
        self._left = float(_LEFT)  # of all that is not truncated
        self._x = self._axis()
        created = timeline.epochs[0][1]
        gone = [self._x(self._truncated_to(span)) for span in timeline.spans if span.begun == created]
        if any(_LEFT < end < _LEFT + _LEAST_GONE for end in gone):
            self._left += _LEAST_GONE
            self._x = self._axis()
        self._bars = self._columns()
        marked = (*timeline.cuts.values(), *timeline.consumers.values())
        self._points = (*timeline.head, *timeline.tail, *(point for points in marked for point in points))

    def _axis(self) -> X:
        """The x of times. What is later than the first epoch's creation lies to the right of `_left`."""
        known, left = self._timeline, self._left
        place: X = evenly(known) if self._even else float
        first, last = place(known.epochs[0][1]), place(known.now)
        scale = (_WIDTH - left - _RIGHT) / ((last - first) or 1)
        return lambda moment: left + (place(moment) - first) * scale if place(moment) > first else float(_LEFT)

    def _truncated_to(self, span: SegmentSpan) -> int:
        """The time up to which a segment is truncated; that of its beginning if it is not."""
        return span.ended if span.state == "gone" else self._head.get((span.segment.low, span.begun), span.begun)

    def svg(self) -> str:
        segments, (below, marks) = [*self._segments()], self._borders()
        lines = [*below, *self._cuts(), *self._consumers(), *marks]
        events = self._events()  # on top of all lines: a line is seen above them, but they are not seen below it
        parts = [*segments, *lines, *events, *self._labels(), *self._frame(), *self._keys()]
        height = _TOP + _HEIGHT + _BELOW + _LEGEND_LINE * self._lines
        name = escape(title(self._timeline))
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="pravega-picture" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}" data-axis="{self._knots()}" font-family="sans-serif" font-size="11" '
            f'role="img" aria-label="{name}"><style>{STYLE}</style>'
            f'<rect width="{_WIDTH}" height="{height}" fill="white"/>{_HATCHES}'
        )
        return "\n".join([opening, *parts, "</svg>"])

    def _knots(self) -> str:
        """Where epochs begin and the picture ends, as `x:ms:epoch`: between these, time is linear in x."""
        epochs = self._timeline.epochs
        knots = [f"{self._x(created):.1f}:{created}:{number}" for number, created in epochs]
        return " ".join([*knots, f"{self._x(self._timeline.now):.1f}:{self._timeline.now}:{epochs[-1][0]}"])

    # --- around it ---------------------------------------------------------------------------------------------

    def _frame(self) -> Iterator[str]:
        """Title, epochs above, times below, keys at the left."""
        known, bottom = self._timeline, _TOP + _HEIGHT
        yield _text(_LEFT, 20, title(known), size=14)
        begun = [self._x(created) for _, created in known.epochs]
        yield _text(_LEFT - 10, _TOP - 10, "epoch", anchor="end")
        for number in apart(begun, 8 + len(str(known.epochs[-1][0])) * _LETTER):
            yield _text(begun[number], _TOP - 10, str(known.epochs[number][0]), anchor="middle")
        moments = even_ticks(known, self._x, 90) if self._even else ticks(known.epochs[0][1], known.now, 7)
        places, begins = [self._x(moment) for moment in moments], {created for _, created in known.epochs}
        exact = any(moment % 1000 for moment in moments if not self._even or moment not in begins)
        exact = exact or (self._even and is_exact(known))
        for number in apart(places, 90):
            x = places[number]
            yield f'<path d="M{x:.1f} {bottom}v5" stroke="black"/>'
            at_edge = x > _WIDTH - 6 * _LETTER
            for line, text in enumerate(clock(moments[number], exact)):
                place, anchor = (_WIDTH - 2, "end") if at_edge else (x, "middle")
                yield _text(place, bottom + 18 + line * _LINE, text, anchor=anchor)
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        yield _text(middle, bottom + 18 + 2.4 * _LINE, time_label(known, self._even), anchor="middle")
        for key in (0, 0.25, 0.5, 0.75, 1):
            yield f'<path d="M{_LEFT} {_y(key):.1f}h-5" stroke="black"/>'
            yield _text(_LEFT - 8, _y(key) + 4, f"{key:.2f}", anchor="end")
        yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="black"/>'
        yield (
            f'<text transform="translate(14 {_TOP + _HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
            "hash of the routing key</text>"
        )

    def _keys(self) -> Iterator[str]:
        """The legend, below all."""
        x, y = float(_LEFT), _TOP + _HEIGHT + _BELOW
        for symbol, name in self._legend:
            width = 34 + len(name) * _LETTER + 16
            if x > _LEFT and x + width > _WIDTH:
                x, y = _LEFT, y + _LEGEND_LINE
            yield f'<g transform="translate({x:.1f} {y})">{symbol}</g>'
            yield _text(x + 32, y + 4, name)
            x += width
        self._bottom = y

    @property
    def _lines(self) -> int:
        """How many lines the legend has."""
        return int(self._bottom - (_TOP + _HEIGHT + _BELOW)) // _LEGEND_LINE + 1

    # --- in it -------------------------------------------------------------------------------------------------

    def _segments(self) -> Iterator[str]:
        found = set()
        for span in self._timeline.spans:
            left, right, reached = self._x(span.begun), self._x(span.ended), self._truncated_to(span)
            fill = _FILL.get(span.state, "url(#pravega-gone)")
            yield self._box(left, right, span, fill)
            found.add(span.state)
            if span.state != "gone" and reached > span.begun:
                end = self._x(reached)
                begin = max(min(left, end - _LEAST_GONE), _LEFT)  # what is before a truncated segment is truncated too
                yield self._box(begin, end, span, "url(#pravega-gone)", f"truncated up to {_exact(reached)}")
                found.add("gone")
        for state, fill, name in (
            ("open", OPEN, "takes events"),
            ("sealed", SEALED, "sealed"),
            ("gone", "url(#pravega-gone)", "truncated"),
        ):
            if state in found:
                self._legend.append(_Key(f'<rect y="-7" width="26" height="14" fill="{fill}"/>', name))

    def _columns(self) -> dict[int, list[_Bar]]:
        """The events of each segment by time, as columns of one scale in the lower part of the segment."""
        edges = columns(self._timeline, self._even)
        spans = {span.segment.id: span for span in self._timeline.spans}
        found = {number: events_by_column(rows, edges) for number, rows in self._timeline.activity.items()}
        self._most = max((float(counts.max()) for counts in found.values()), default=0.0)
        self._columns_label = columns_label(self._most, edges, self._even)
        places = [self._x(edge) for edge in edges]
        bars: dict[int, list[_Bar]] = {}
        for number, counts in found.items():
            span = spans[number]
            left, right = max(self._x(self._truncated_to(span)), self._left), self._x(span.ended)
            low = _y(span.segment.low)
            height = _bars_height(low - _y(span.segment.high))
            bars[number] = []
            for column in counts.nonzero()[0].tolist():
                begin = max(min(places[column], right - _LEAST_BAR), left)
                end = max(min(places[column + 1], right), begin + _LEAST_BAR)
                high = low - max(height * float(counts[column]) / self._most, _LEAST_BAR)
                bars[number].append(_Bar(begin, end, high, low))
        return bars

    def _events(self) -> Iterator[str]:
        """The columns of events, with a gap of the segment's colour between them and the lines behind them."""
        spans = {span.segment.id: span for span in self._timeline.spans}
        for number, bars in self._bars.items():
            around = "".join(
                f"M{begin - _GAP:.1f} {low:.1f}V{high - _GAP:.1f}H{end + _GAP:.1f}V{low:.1f}Z"
                for begin, end, high, low in bars
            )
            shape = "".join(f"M{begin:.1f} {low:.1f}V{high:.1f}H{end:.1f}V{low:.1f}Z" for begin, end, high, low in bars)
            yield f'<path class="gap" d="{around}" fill="{_FILL[spans[number].state]}"/>'
            yield f'<path class="events" d="{shape}" fill="{EVENTS}"/>'
        if self._most:
            look = "".join(
                f'<rect x="{x}" y="{7 - high}" width="7" height="{high}" fill="{EVENTS}"/>' for x, high in _COLUMNS
            )
            self._legend.append(_Key(look, self._columns_label))

    def _box(self, left: float, right: float, span: SegmentSpan, fill: str, more: str = "") -> str:
        segment = span.segment
        until = "takes events" if span.state == "open" else f"until {_exact(span.ended)}"
        state = {"open": "", "sealed": "sealed", "gone": "truncated as a whole"}[span.state]
        lines = [
            f"segment {segment_label(segment.id)} (id {segment.id})",
            f"keys above {segment.low:.6g}, up to {segment.high:.6g}",
            f"from {_exact(span.begun)}, {until}",
            "" if span.offsets is None else f"offsets {span.offsets[0]:,} to {span.offsets[1]:,}",
            more or state,
        ]
        return (
            f'<rect class="segment" x="{left:.1f}" y="{_y(segment.high):.1f}" width="{right - left:.1f}" '
            f'height="{_y(segment.low) - _y(segment.high):.1f}" fill="{fill}" stroke="white">{_title(*lines)}</rect>'
        )

    def _borders(self) -> tuple[list[str], list[str]]:
        """A line over the keys of each split and merge, and a triangle that opens where there are more segments."""
        lines, marks, borders = [], [], self._timeline.borders
        heights: dict[tuple[int, float], float] = {}  # of the segments at the upper end of a border
        for span in self._timeline.spans:
            high = span.segment.high
            for time in (span.begun, span.ended):
                height = _y(span.segment.low) - _y(high)
                heights[time, high] = min(height, heights.get((time, high), height))
        places = [(self._x(border.time), _y(border.high) + heights[border.time, border.high] / 4) for border in borders]
        marked = {borders[number]: places[number] for number in unhidden(places, 14)}
        if len(marked) < len(borders) / 2:
            marked = {}
        looks = {"split": (SPLIT, "M-7 0L7 -7V7Z"), "merge": (MERGE, "M7 0L-7 -7V7Z")}
        for border in borders:
            kind, time, low, high = border
            (colour, triangle), x = looks[kind], self._x(time)
            details = _title(f"{kind} at {_exact(time)}", f"keys above {low:.6g}, up to {high:.6g}")
            path = f'd="M{x:.1f} {_y(low):.1f}V{_y(high):.1f}"'
            lines.append(f'<path {path} stroke="{colour}" stroke-width="3">{details}</path>')
            if border in marked:
                place = f'transform="translate({x:.1f} {marked[border][1]:.1f})"'
                marks.append(f'<path d="{triangle}" {place} fill="{colour}" stroke="white">{details}</path>')
        for name, (colour, triangle) in looks.items():
            if any(border.kind == name for border in borders):
                look = f'<path d="M0 0H26" stroke="{colour}" stroke-width="3"/>'
                look += f'<path d="{triangle}" transform="translate(13 0)" fill="{colour}" stroke="white"/>'
                self._legend.append(_Key(look, name))
        return lines, marks

    def _cuts(self) -> Iterator[str]:
        """A line through all keys for each cut; other cuts lie on top of head and tail, and are thinner."""
        known = self._timeline
        yield from self._cut("head", known.head, END, "", 7, head_label(known))
        yield from self._cut("tail", known.tail, END, "8 3", 7)
        looks = ((colour, style) for style in _STYLES for colour in CUTS)
        for (name, points), (colour, style) in zip(known.cuts.items(), looks, strict=False):
            yield from self._cut(name, points, colour, style, 3)

    def _cut(
        self, name: str, points: tuple[CutPoint, ...], colour: str, dashes: str, width: int, label: str = ""
    ) -> Iterator[str]:
        look = f'stroke="{colour}" stroke-width="{width}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")
        before: CutPoint | None = None
        for point in points:
            low, high, _, time, _ = point
            joined = before is not None and before.high == low  # else it lies before the head for the keys between
            begin = f"M{self._x(before.time if before and joined else time):.1f} {_y(low):.1f}"
            line, before = f'd="{begin}H{self._x(time):.1f}V{_y(high):.1f}" fill="none"', point
            below = f'<path {line} stroke="white" stroke-width="{width + 2}"/>' if colour != END else ""
            details = _title(f"{name}: {_location(point)}", f"keys above {low:.6g}, up to {high:.6g}")
            yield f'<g class="cut">{below}<path {line} {look}/>{details}</g>'
        shown = (label or name) if points else f"{name} (before the head)"
        self._legend.append(_Key(f'<path d="M0 0H26" {look}/>', shown))

    def _consumers(self) -> Iterator[str]:
        """A letter in each segment in which a consumer is, with a thin line over its keys: where no events and no other
        letters are, if there is such a place."""
        bars: dict[int, list[_Bar]] = {}
        for bar in (bar for found in self._bars.values() for bar in found):
            for column in range(int((bar.begin - _MARK - _GAP) // _NEAR), int((bar.end + _MARK + _GAP) // _NEAR) + 1):
                bars.setdefault(column, []).append(bar)
        letters: list[tuple[float, float]] = []
        beyond = _MARK + _GAP
        known = list(self._timeline.consumers.items())
        shown = known[:MOST_CONSUMERS]
        for number, (name, points) in enumerate(shown):
            letter = chr(ord("A") + number)
            for point in points:
                low, high, x = _y(point.low), _y(point.high), self._x(point.time)
                wanted = high + (low - high) * (number + 1) / (len(shown) + 1)
                near = bars.get(int(x // _NEAR), ())
                events = [(bar.high - _GAP, bar.low) for bar in near if bar.begin - beyond < x < bar.end + beyond]
                beside = [(other - _MARK, other + _MARK) for place, other in letters if abs(place - x) < 2 * _MARK]
                places = (nearest_free(wanted, high, low, taken, _MARK) for taken in ([*events, *beside], events))
                y = next((place for place in places if place is not None), wanted)
                letters.append((x, y))
                details = _title(f"{name}: {_location(point)}", f"keys above {point.low:.6g}, up to {point.high:.6g}")
                line = f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="black" stroke-dasharray="1 3"/>'
                yield f'<g class="cut consumer">{line}{_letter(letter, x, y)}{details}</g>'
            self._legend.append(_Key(_letter(letter, 13, 0), name if points else f"{name} (before the head)"))
        if len(known) > len(shown):
            self._legend.append(_Key("", f"{counted(len(known) - len(shown), 'consumer')} more"))

    def _labels(self) -> Iterator[str]:
        """The segments' labels, where no line crosses them; none without room."""
        lines = [(point.low, point.high, self._x(point.time)) for point in self._points]
        for span in self._timeline.spans:
            segment = span.segment
            label = f"seg {segment_label(segment.id)}"
            crossing = [x for low, high, x in lines if low < segment.high and high > segment.low]
            left = self._x(self._head.get((segment.low, span.begun), span.begun))
            middle = free(left, self._x(span.ended), crossing, len(label) * _LETTER + 14)
            if middle is not None and _y(segment.low) - _y(segment.high) > _LINE:
                yield _text(middle, (_y(segment.low) + _y(segment.high)) / 2 + 4, label, anchor="middle")


_HATCHES = (
    '<defs><pattern id="pravega-gone" width="8" height="8" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate(45)"><rect width="8" height="8" fill="{GONE}"/>'
    f'<path d="M0 0V8" stroke="{HATCH}" stroke-width="2"/></pattern></defs>'
)


def _bars_height(height: float) -> float:
    """The height of the highest column of events in a segment of a height: they end below its label."""
    return height / 2 - _LINE / 2 if height > 2 * _LINE else height / 2


_FILL = {"open": OPEN, "sealed": SEALED}
_COLUMNS = ((1, 6), (9, 14), (17, 9))  # of the legend: x and height


def _y(key: float) -> float:
    return _TOP + (1 - key) * _HEIGHT


def _location(point: CutPoint) -> str:
    """What a cut lies at; only an event has a time of its own."""
    if point.kind == "end":
        return "no event follows in this segment"
    return f"the segment's beginning, {_exact(point.time)}" if point.kind == "begin" else _exact(point.time)


def _letter(letter: str, x: float, y: float) -> str:
    """The mark of a consumer."""
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_MARK}" fill="white" stroke="black"/>'
    return circle + _text(x, y + 4, letter, anchor="middle")


def _exact(moment: int) -> str:
    day, time = clock(moment, exact=True)
    return f"{day} {time} UTC"


def _title(*lines: str) -> str:
    return f"<title>{escape(chr(10).join(line for line in lines if line))}</title>"


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
