"""Pictures of streams, and the tables in which notebooks show values."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pravega_spark import (
    UNBOUNDED,
    InvalidStreamCut,
    StreamCut,
    StreamManager,
    StreamNotFound,
    StreamPicture,
    StreamReaderGroupConfig,
    StreamRetentionPolicy,
    stream_picture,
)
from pravega_spark.picture_layout import (
    SPLIT,
    apart,
    even_ticks,
    evenly,
    events_by_column,
    free,
    nearest_free,
    ticks,
    unhidden,
)
from pravega_spark.segment_ids import segment_epoch, segment_number
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.model.html_table import html_table
from pravega_spark.streams.model.routing import hash_key
from pravega_spark.streams.reading.activity import Growth
from pravega_spark.streams.reading.timeline import Timeline, timeline
from pravega_spark.streams.stream import Stream


def stream_of(manager: StreamManager) -> Stream:
    return Catalog(manager.root).stream("sc", "one")


def write(manager: StreamManager, stream: str, count: int = 40) -> StreamCut:
    """Some events of many keys; the tail after them."""
    with manager.create_writer("sc", stream) as writer:
        for number in range(count):
            writer.write_event(f"{number:04}", str(number))
    return manager.stream_info("sc", stream).tail


def scale_to(manager: StreamManager, stream: str, *bounds: float) -> None:
    """Exchange all segments for those between these bounds, besides 0 and 1."""
    sealed = [segment.id for segment in manager.stream_info("sc", stream).segments]
    manager.scale_stream("sc", stream, sealed, list(pairwise([0.0, *bounds, 1.0])))


def quarter_keys() -> list[str]:
    """A routing key in each quarter of the keys."""
    found = {int(hash_key(str(number)) * 4): str(number) for number in range(100)}
    return [found[quarter] for quarter in range(4)]


QUARTERS = quarter_keys()


def write_to(manager: StreamManager, stream: str, *quarters: int) -> None:
    """An event with a key in each of these quarters of the keys, one after the other."""
    for quarter in quarters:
        with manager.create_writer("sc", stream) as writer:
            writer.write_event("an event", QUARTERS[quarter])


def later() -> int:
    """A time after all that has happened, and before all that will."""
    first = int(time.time() * 1000)
    while (now := int(time.time() * 1000)) < first + 2:
        pass
    while int(time.time() * 1000) == now:
        pass
    return now


# --- what is told ------------------------------------------------------------------------------------------------


def test_timeline_of_a_stream_that_is_scaled(manager: StreamManager) -> None:
    early = write(manager, "one")
    scale_to(manager, "one", 0.3, 0.6)
    write(manager, "one")
    scale_to(manager, "one", 0.6)
    write(manager, "one")
    info = manager.stream_info("sc", "one")
    found = manager.stream_timeline("sc", "one", {"early": early})
    created = [epoch.created for epoch in info.epochs]
    assert found.epochs == tuple(enumerate(created)) and found.now >= created[-1] and found.ended is None
    spans = {f"{segment_number(s.segment.id)}.{segment_epoch(s.segment.id)}": s for s in found.spans}
    assert list(spans) == ["0.0", "1.1", "2.1", "3.1", "4.2", "5.2"]
    assert [spans[name].state for name in spans] == ["sealed"] * 4 + ["open"] * 2
    assert [(spans[name].begun, spans[name].ended) for name in ("0.0", "2.1", "5.2")] == [
        (created[0], created[1]),
        (created[1], created[2]),
        (created[2], found.now),
    ]
    assert {(b.kind, b.time, b.low, b.high) for b in found.borders} == {
        ("split", created[1], 0.0, 1.0),
        ("merge", created[2], 0.0, 0.6),
    }
    assert [(p.low, p.high, p.time) for p in found.head] == [(0.0, 1.0, created[0])]
    assert [(p.low, p.high, p.time) for p in found.tail] == [(0.0, 0.6, found.now), (0.6, 1.0, found.now)]
    assert [(p.low, p.high, p.time) for p in found.cuts["early"]] == [(0.0, 1.0, created[1])]  # nothing follows in it


def test_a_cut_lies_where_the_first_event_behind_it_was_written(manager: StreamManager) -> None:
    first = write(manager, "one")
    second = write(manager, "one")
    stream = stream_of(manager)
    snapshot = stream.snapshot()
    found = timeline(snapshot, {"first": first, "second": second}, now=2 * 10**12)
    written = [
        record[2]
        for record in snapshot.segments.index(0).records(0, snapshot.segments.index(0).position_of(1 << 60)).tolist()
    ]
    moment = found.cuts["first"][0].time
    assert moment in written and moment >= snapshot.record.created
    assert manager.stream_cut_at("sc", "one", moment).positions[0] <= first.positions[0]
    assert found.cuts["second"][0].time == found.tail[0].time == found.now == 2 * 10**12


def test_what_lies_before_the_head_is_left_out(manager: StreamManager) -> None:
    early = write(manager, "one")
    middle = write(manager, "one")
    scale_to(manager, "one", 0.5)
    write(manager, "one")
    manager.truncate_stream("sc", "one", middle)
    found = manager.stream_timeline("sc", "one", {"early": early, "middle": middle})
    assert found.cuts["early"] == () and found.cuts["middle"] == found.head != ()
    late = manager.stream_info("sc", "one").tail
    manager.truncate_stream("sc", "one", late)
    found = manager.stream_timeline("sc", "one", {"middle": middle})
    assert [number for number, _ in found.epochs] == [1] and found.cuts["middle"] == ()


def test_segments_that_are_gone_and_still_named(manager: StreamManager) -> None:
    write(manager, "four")
    manager.scale_stream("sc", "four", [0, 3], [(0.0, 0.1), (0.1, 0.25), (0.75, 0.9), (0.9, 1.0)])
    write(manager, "four")
    first, second = (segment.id for segment in manager.stream_info("sc", "four").segments[:2])
    manager.truncate_stream("sc", "four", StreamCut("sc", "four", {first: 0, second: 0, 1: 0, 2: 0, 3: 0}))
    found = manager.stream_timeline("sc", "four")
    assert [number for number, _ in found.epochs] == [0, 1]
    assert {span.segment.id: span.state for span in found.spans if span.state != "open"} == {0: "gone", 3: "sealed"}
    titles = Drawn(stream_picture(manager, "sc", "four", even=True)).titles
    (gone,) = [text for text in titles if "truncated as a whole" in text]
    assert gone.startswith("segment 0.0 ") and "keys above 0, up to 0.25" in gone


def test_a_sealed_stream_ends_when_it_was_sealed(manager: StreamManager) -> None:
    write(manager, "one")
    manager.seal_stream("sc", "one")
    later = 2 * 10**12
    found = timeline(stream_of(manager).snapshot(), {}, now=later)
    assert found.ended is not None and found.epochs[0][1] <= found.ended < found.now == later
    assert [(span.state, span.ended) for span in found.spans] == [("sealed", found.ended)]
    assert found.tail[0].time == found.ended
    texts = Drawn(stream_picture(manager, "sc", "one")).texts
    assert any(", sealed 20" in text for text in texts) and "takes events" not in texts


def test_a_segment_of_this_millisecond_has_a_width(manager: StreamManager) -> None:
    """Else it has no label, as often as a stream is drawn as soon as it is made."""
    snapshot = stream_of(manager).snapshot()
    (span,) = timeline(snapshot, {}, now=snapshot.record.created).spans
    assert span.ended == span.begun + 1


def test_a_cut_at_the_beginning_of_a_segment_lies_at_its_first_event(manager: StreamManager) -> None:
    """Not where the segment was made, which may be long before."""
    stream = stream_of(manager)
    begin = manager.stream_info("sc", "one").head
    empty = timeline(stream.snapshot(), {"begin": begin}, now=2 * 10**12)
    assert empty.cuts["begin"][0].time == empty.head[0].time == empty.epochs[0][1]
    write(manager, "one")
    snapshot = stream.snapshot()
    found = timeline(snapshot, {"begin": begin}, now=2 * 10**12)
    first = snapshot.segments.index(0).locate_offset(1)
    assert first is not None and found.cuts["begin"][0].time == first.time_ms
    assert (found.events, found.size) == (40, 40 * 12)


def test_a_cut_crosses_a_segment_without_events_where_it_crosses_the_others(manager: StreamManager) -> None:
    """There it is at the head and at the tail; drawn at one of them, its line would leap."""
    head = manager.stream_info("sc", "four").head
    with manager.create_writer("sc", "four") as writer:
        writer.write_event("an event", "one key")
    first = manager.stream_info("sc", "four").tail
    found = manager.stream_timeline("sc", "four", {"head": head, "tail": first})
    created = manager.stream_info("sc", "four").epochs[0].created
    (written,) = {point.time for point in found.cuts["head"]}
    assert created <= written <= found.now
    assert sorted(point.kind for point in found.cuts["head"]) == ["end", "end", "end", "event"]
    assert {(point.time, point.kind) for point in found.cuts["tail"]} == {(found.now, "end")}
    assert {(point.time, point.kind) for point in found.head} == {(created, "begin")}
    picture = stream_picture(manager, "sc", "four", cuts={"at the tail": first}).svg
    assert picture.count("<title>at the tail: no event follows in this segment\nkeys above") == 4, (
        "no time: that of now tells nothing"
    )
    assert picture.count("<title>tail: no event follows in this segment\n") == 4
    assert picture.count("<title>head: the segment&#x27;s beginning, 20") == 4


def test_the_head_lies_at_the_end_of_an_epoch_that_was_truncated_as_a_whole(manager: StreamManager) -> None:
    """Its segments are still named by the head, and nothing of them is left."""
    end = write(manager, "four")
    numbers = [segment.id for segment in manager.stream_info("sc", "four").segments]
    manager.scale_stream("sc", "four", numbers, [(eighth / 8, (eighth + 1) / 8) for eighth in range(8)])
    write(manager, "four")
    manager.truncate_stream("sc", "four", end)
    found = manager.stream_timeline("sc", "four", {"end": end})
    scaled = found.epochs[1][1]
    assert {(point.time, point.kind) for point in found.head} == {(scaled, "end")} and len(found.head) == 4
    assert found.cuts["end"] == found.head
    assert {span.state for span in found.spans if span.ended == scaled} == {"gone"}
    titles = Drawn(stream_picture(manager, "sc", "four", even=True)).titles
    assert sum("truncated as a whole" in text for text in titles) == 4
    assert not any(text.startswith("segment") and text.endswith("sealed") for text in titles)


def test_an_idle_segment_of_a_truncated_epoch_lies_before_the_head_too(manager: StreamManager) -> None:
    write_to(manager, "four", 1)
    end = manager.stream_info("sc", "four").tail
    manager.scale_stream("sc", "four", [0, 1, 2], [(0.0, 0.125), (0.125, 0.375), (0.375, 0.75)])
    manager.truncate_stream("sc", "four", end)
    found = manager.stream_timeline("sc", "four")
    assert {point.time for point in found.head} == {found.epochs[1][1]}
    assert {span.segment.id: span.state for span in found.spans}[0] == "gone"


def test_a_cut_of_a_time_is_a_straight_line_at_that_time(manager: StreamManager) -> None:
    """Also where segments are idle, were sealed, or have events of other times next to it."""
    write_to(manager, "four", 0, 1, 2)
    moment = later()
    write_to(manager, "four", 1)
    manager.scale_stream("sc", "four", [0], [(0.0, 0.125), (0.125, 0.25)])
    write_to(manager, "four", 2)
    found = manager.stream_timeline("sc", "four", {"then": moment, "long ago": 1, "soon": moment + 10**9})
    assert {(point.time, point.kind) for point in found.cuts["then"]} == {(moment, "time")}
    assert [(point.low, point.high) for point in found.cuts["then"]] == [
        (low / 4, (low + 1) / 4) for low in range(4)
    ], "of the segments that took events then"
    assert {point.time for point in found.cuts["long ago"]} == {found.epochs[0][1]}
    assert {point.time for point in found.cuts["soon"]} == {found.now} and len(found.cuts["soon"]) == 5


def test_a_cut_is_as_straight_as_the_events_beside_it_allow(manager: StreamManager) -> None:
    """Idle segments have no event after it: there it lies anywhere after the last one."""
    write_to(manager, "four", 0, 1, 2)
    cut = manager.stream_info("sc", "four").tail
    later()
    write_to(manager, "four", 1)
    (next_event,) = {point.time for point in manager.stream_timeline("sc", "four", {"cut": cut}).cuts["cut"]}
    later()
    write_to(manager, "four", 2)
    found = manager.stream_timeline("sc", "four", {"cut": cut})
    assert {point.time for point in found.cuts["cut"]} == {next_event}, "before the later event of segment 2, too"
    assert sorted(point.kind for point in found.cuts["cut"]) == ["end", "end", "event", "event"]
    manager.truncate_stream("sc", "four", cut)
    assert {point.time for point in manager.stream_timeline("sc", "four").head} == {next_event}


# --- what came when ----------------------------------------------------------------------------------------------


def test_events_are_counted_when_they_came(manager: StreamManager) -> None:
    before = later()
    write_to(manager, "four", 0, 0, 2)
    middle = later()
    write_to(manager, "four", 2)
    found = manager.stream_timeline("sc", "four")
    assert {number: sum(growth.events for growth in rows) for number, rows in found.activity.items()} == {0: 2, 2: 2}
    assert all(before <= row.begun <= row.ended <= middle for row in found.activity[0])
    assert sum(row.events for row in found.activity[2] if row.begun >= middle) == 1
    manager.truncate_stream("sc", "four", middle)
    found = manager.stream_timeline("sc", "four")
    assert {number: sum(growth.events for growth in rows) for number, rows in found.activity.items()} == {2: 1}


# --- tables ------------------------------------------------------------------------------------------------------


def test_tables_are_escaped_and_small() -> None:
    table = html_table("<a>", ("x & y",), [["<script>"], *([number] for number in range(30))])
    assert "<script>" not in table and "&lt;script&gt;" in table and "&lt;a&gt;" in table and "x &amp; y" in table
    assert table.count("<tr>") == 1 + 20 + 1 and "and 11 more" in table


def test_stream_info_and_cuts_as_tables(manager: StreamManager) -> None:
    scale_to(manager, "one", 0.5)
    cut = write(manager, "one")
    info = manager.stream_info("sc", "one")
    table = info._repr_html_()
    assert table.count("<table>") == 2 and ">40<" in table and ">epochs<" in table and "0 to 1" in table
    assert ">epoch<" in manager.stream_info("sc", "four")._repr_html_(), "0 epochs would look like none"
    for segment in info.segments:
        assert f"{segment_number(segment.id)}.1 at {cut.positions[segment.id]}" in table and f">{segment.id}<" in table
    of_cut = cut._repr_html_()
    assert "cut of sc/one" in of_cut and all(f">{n}<" in of_cut for pair in cut.positions.items() for n in pair)
    assert UNBOUNDED._repr_html_() == "UNBOUNDED"
    assert repr(cut).startswith("StreamCut(scope='sc'") and repr(info).startswith("StreamInfo(scope='sc'")


# --- the picture -------------------------------------------------------------------------------------------------


class Drawn:
    """The contents of a picture: its texts, its titles, and the rectangles of segments as (x, y, width, height)."""

    def __init__(self, picture: StreamPicture) -> None:
        tree = ElementTree.fromstring(picture.svg)
        self.texts = [each.text or "" for each in tree.iter(f"{SVG}text")]
        self.titles = [each.text or "" for each in tree.iter(f"{SVG}title")]
        self.labels = [(float(each.attrib["x"]), each.text) for each in tree.iter(f"{SVG}text") if is_label(each)]
        found = [each for each in tree.iter(f"{SVG}rect") if each.get("class") == "segment"]
        sides = ("x", "y", "width", "height")
        self.boxes = [tuple(float(each.attrib[side]) for side in sides) for each in found]


SVG = "{http://www.w3.org/2000/svg}"


def is_label(text: ElementTree.Element) -> bool:
    return (text.text or "").startswith("seg ")


def test_picture_of_one_segment(manager: StreamManager) -> None:
    drawn = Drawn(stream_picture(manager, "sc", "one"))
    assert {"takes events", "head", "tail", "seg 0.0"} <= {*drawn.texts} and not {"split", "merge"} & {*drawn.texts}
    assert "sc/one: 0 events, 0 bytes, epoch 0" in drawn.texts
    ((_, _, width, height),) = drawn.boxes
    assert width > 800 and height == 320


@pytest.mark.parametrize("even", [False, True])
def test_picture_of_splits_merges_and_cuts(manager: StreamManager, even: bool) -> None:
    cut = write(manager, "one")
    scale_to(manager, "one", 0.3, 0.6)
    scale_to(manager, "one", 0.6)
    write(manager, "one")
    cuts = {"</text><script>": cut, "near": manager.stream_info("sc", "one").tail}
    picture = stream_picture(manager, "sc", "one", cuts=cuts, even=even)
    drawn = Drawn(picture)
    legend = {"takes events", "sealed", "split", "merge", "head", "tail", *cuts}
    epochs = {"0", "1", "2"} if even else {"0"}  # those that soon follow another one have no room
    assert {*legend, *epochs, "epoch", "hash of the routing key"} <= {*drawn.texts}
    assert "<script>" not in picture.svg
    segments = [text.splitlines()[0] for text in drawn.titles if text.startswith("segment ")]
    assert segments == [
        f"segment {n}.{e} (id {e << 32 | n})" for n, e in ((0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2))
    ]
    assert sum(text.startswith("split at 20") for text in drawn.titles) >= 1
    assert sum(text.startswith("merge at 20") for text in drawn.titles) == 2, "its line, and its mark"
    assert sum(text.startswith("</text><script>: no event follows in this segment") for text in drawn.titles) == 1
    assert any(text.startswith("tail: no event follows") and "keys above 0.6, up to 1" in text for text in drawn.titles)
    if even:
        assert len({x for x, *_ in drawn.boxes}) == 3, "all epochs are equally wide"
        assert len({round(width) for _, _, width, _ in drawn.boxes}) == 1
        assert [text for _, text in drawn.labels] == [f"seg {n}" for n in ("0.0", "1.1", "2.1", "3.1", "4.2", "5.2")]


@pytest.mark.parametrize("even", [False, True])
def test_times_have_one_format_with_the_whole_date(manager: StreamManager, even: bool) -> None:
    texts = Drawn(stream_picture(manager, "sc", "one", even=even)).texts
    days = [place for place, text in enumerate(texts) if re.fullmatch(r"20\d\d-\d\d-\d\d", text)]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d(\.\d{3})?", texts[place + 1]) for place in days)
    assert days or not even
    assert any(re.search(r"now, 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$", text) for text in texts)


def test_a_cut_at_the_tail_is_drawn_on_top_of_it_and_thinner(manager: StreamManager) -> None:
    tail = write(manager, "one")
    svg = stream_picture(manager, "sc", "one", cuts={"mark": tail}).svg
    lines = [line for line in svg.splitlines() if line.startswith('<g class="cut">')]
    (mark,) = [place for place, line in enumerate(lines) if "<title>mark:" in line]
    (end,) = [place for place, line in enumerate(lines) if "<title>tail:" in line]
    assert mark > end
    widths = [int(re.findall(r'stroke-width="(\d+)"', lines[place])[-1]) for place in (mark, end)]
    assert widths[0] < widths[1]


def test_picture_of_hundreds_of_epochs(manager: StreamManager) -> None:
    for number in range(220):
        scale_to(manager, "one", *((0.25, 0.5, 0.75) if number % 2 else ()))
    drawn = Drawn(stream_picture(manager, "sc", "one", even=True))
    assert len(drawn.boxes) == 1 + 110 * 5
    assert len(drawn.labels) < 100
    epochs = [int(text) for text in drawn.texts if text.isdigit()]
    assert epochs[0] == 0 and 10 < len(epochs) < 60


def test_keys_before_the_head_break_a_line(manager: StreamManager) -> None:
    marked = write(manager, "four")
    tail = write(manager, "four")
    mixed = {number: (tail if number in (1, 2) else marked).positions[number] for number in range(4)}
    manager.truncate_stream("sc", "four", StreamCut("sc", "four", mixed))
    titles = Drawn(stream_picture(manager, "sc", "four", cuts={"mark": marked})).titles
    keys = [text.splitlines()[1] for text in titles if text.startswith("mark:")]
    assert keys == ["keys above 0, up to 0.25", "keys above 0.75, up to 1"]
    manager.truncate_stream("sc", "four", tail)
    write(manager, "four")
    assert "mark (before the head)" in Drawn(stream_picture(manager, "sc", "four", cuts={"mark": marked})).texts


def test_bad_input(manager: StreamManager) -> None:
    with pytest.raises(StreamNotFound, match="sc/none"):
        stream_picture(manager, "sc", "none")
    with pytest.raises(InvalidStreamCut, match="sc/one"):
        stream_picture(manager, "sc", "one", cuts={"mark": manager.stream_info("sc", "four").tail})
    head = manager.stream_info("sc", "one").head
    with pytest.raises(ValueError, match="at most 12"):
        stream_picture(manager, "sc", "one", cuts={str(number): head for number in range(13)})


def test_notebooks_show_a_picture_and_files_hold_it(manager: StreamManager, tmp_path: Path) -> None:
    write(manager, "one")
    picture = stream_picture(manager, "sc", "one")
    page = picture._repr_html_()
    assert page.startswith('<div class="pravega-page">') and page.endswith(f"{picture.svg}</div>")
    assert picture._repr_svg_() == picture.svg
    for name in ("a.svg", "a.HTML"):
        picture.save(tmp_path / name)
    assert (tmp_path / "a.svg").read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    page = (tmp_path / "a.HTML").read_text()
    assert page.startswith("<!DOCTYPE html>") and "<svg" in page
    with pytest.raises(ValueError, match=r"unsupported file extension '\.gif': use \.svg or \.html"):
        picture.save("a.gif")


def test_every_renderer_knows_the_size_of_a_picture(manager: StreamManager) -> None:
    """Renderers without a page read attributes: `height: auto` of a style sheet makes a blank picture there."""
    svg = stream_picture(manager, "sc", "four").svg
    root = ElementTree.fromstring(svg)
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {width} {height}" and width > 0 and height > 0
    assert {"font-family", "font-size"} <= {*root.attrib}
    (style,) = root.iter(f"{SVG}style")
    assert not re.search(r"auto|height|width|font|fill", style.text or ""), "only what a pointer needs"


def test_columns_show_when_events_came(manager: StreamManager) -> None:
    assert not any(
        "events: " in text and "column" in text for text in Drawn(stream_picture(manager, "sc", "one")).texts
    )
    write(manager, "one")
    picture = stream_picture(manager, "sc", "one")
    (path,) = [each for each in ElementTree.fromstring(picture.svg).iter(f"{SVG}path") if each.get("class") == "events"]
    assert re.fullmatch(r"(M[\d.]+ [\d.]+V[\d.]+H[\d.]+V[\d.]+Z)+", path.attrib["d"])
    assert sum(
        re.fullmatch(r"events: \d+ in the highest column of .+", text) is not None for text in Drawn(picture).texts
    )
    even = stream_picture(manager, "sc", "one", even=True)
    assert any(re.fullmatch(r"events: \d+ in the highest column", text) for text in Drawn(even).texts)


def columns_of(path: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """The left edge, the right edge, the top and the bottom of each column that a path draws."""
    found = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)V", path.attrib["d"])
    return [(float(left), float(right), float(top), float(low)) for left, low, top, right in found]


def test_no_line_and_no_mark_covers_the_events(manager: StreamManager) -> None:
    cut = write(manager, "one")
    later()
    write(manager, "one")
    scale_to(manager, "one", 0.5)
    write(manager, "one")
    for number in range(12):  # so many that some have their places where events are
        manager.create_reader_group(f"group-{number:02}", "sc", "one", stream_cut=cut)
    svg = stream_picture(manager, "sc", "one", cuts={"mark": cut}, even=True).svg
    drawn = svg.splitlines()
    events = [place for place, line in enumerate(drawn) if line.startswith('<path class="events"')]
    others = [place for place, line in enumerate(drawn) if "<title>" in line]
    assert len(events) == 3 and max(others) < min(events)
    assert {"cut", "cut consumer"} <= {*re.findall(r'<g class="([^"]+)"', svg)} and "<title>split at" in svg

    tree = ElementTree.fromstring(svg)
    columns = [each for path in tree.iter(f"{SVG}path") if path.get("class") == "events" for each in columns_of(path)]
    letters = [group.find(f"{SVG}circle") for group in tree.iter(f"{SVG}g") if group.get("class") == "cut consumer"]
    assert len(letters) == 12
    for circle in letters:
        assert circle is not None
        x, y, radius = (float(circle.attrib[name]) for name in ("cx", "cy", "r"))
        beside = [(top, low) for left, right, top, low in columns if left < x + radius and right > x - radius]
        assert beside and all(y + radius <= top + 0.1 or y - radius >= low - 0.1 for top, low in beside)


def test_a_mark_moves_to_the_nearest_free_place() -> None:
    assert nearest_free(50, 0, 100, [], 5) == 50
    assert nearest_free(50, 0, 100, [(48, 60)], 5) == 43 and nearest_free(50, 0, 100, [(0, 60)], 5) == 65
    assert nearest_free(50, 0, 100, [(48, 60), (36, 44)], 5) == 65
    assert nearest_free(50, 40, 60, [(48, 60)], 5) is None and nearest_free(2, 0, 4, [], 5) is None


def test_what_is_close_to_the_head_is_wide_enough_to_be_seen() -> None:
    """As when a stream was written and truncated within a second, long ago."""
    with MuchLater("memory://narrow", create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        head = write(manager, "one")
        later()
        write(manager, "one")
        manager.truncate_stream("sc", "one", head)
        for even in (False, True):
            svg = stream_picture(manager, "sc", "one", even=even).svg
            tree = ElementTree.fromstring(svg)
            (gone,) = [
                each
                for each in tree.iter(f"{SVG}rect")
                if each.get("class") == "segment" and "gone" in each.attrib["fill"]
            ]
            left, width = float(gone.attrib["x"]), float(gone.attrib["width"])
            assert left == 62 and width >= 12
            (path,) = [each for each in tree.iter(f"{SVG}path") if each.get("class") == "events"]
            bars = columns_of(path)
            assert bars and all(begin >= left + width - 0.1 and end - begin > 2 for begin, end, *_ in bars)


def test_a_picture_of_one_epoch_has_many_times_on_its_axis(manager: StreamManager) -> None:
    """However young the stream is, and with `even` too."""
    later()
    for even in (False, True):
        texts = Drawn(stream_picture(manager, "sc", "one", even=even)).texts
        assert sum(re.fullmatch(r"20\d\d-\d\d-\d\d", text) is not None for text in texts) >= 2


def test_epochs_that_are_wide_have_times_within_them() -> None:
    with StreamManager("memory://even-ticks", create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        found = manager.stream_timeline("sc", "one")
    hour = 3_600_000
    known = found._replace(epochs=((0, hour + 1), (1, 2 * hour + 2)), now=2 * hour + 100)
    place = evenly(known)
    times = even_ticks(known, lambda moment: 300 * place(moment), 90)
    assert times[0] == hour + 1 and 2 * hour + 2 in times and times == sorted(times)
    assert times[1] % 60_000 == 0 and len(times) >= 4
    assert all(300 * (place(after) - place(before)) >= 90 for before, after in pairwise(times))
    assert even_ticks(known, lambda moment: 100 * place(moment), 90) == [hour + 1, 2 * hour + 2]


def test_events_fall_into_the_columns_of_their_times() -> None:
    edges = [0.0, 10.0, 20.0, 30.0]
    rows = [Growth(0, 0, 1), Growth(9, 9, 1), Growth(10, 10, 4), Growth(30, 30, 2), Growth(5, 25, 20)]
    assert events_by_column(rows, edges).tolist() == [2 + 5, 4 + 10, 2 + 5]


def test_consumers_are_marked_with_letters(manager: StreamManager) -> None:
    write_to(manager, "four", 0, 1, 2, 3)
    cut = manager.stream_info("sc", "four").tail
    manager.create_reader_group("billing", "sc", "four", stream_cut=cut)
    manager.create_reader_group("of-another-stream", "sc", "one")
    later()
    write_to(manager, "four", 0)
    audit = StreamReaderGroupConfig(False, "sc", "four", retention="automatic")
    manager.create_reader_group_with_config("audit", "sc", audit)
    manager.update_stream_with_policy("sc", "four", retention_policy=StreamRetentionPolicy.by_time("2h", "7d"))
    found = manager.stream_timeline("sc", "four", {"cut": cut})
    assert list(found.consumers) == ["reader group audit", "reader group billing"], (
        "a subscriber at the same place, once"
    )
    assert found.consumers["reader group billing"] == found.cuts["cut"]
    drawn = Drawn(stream_picture(manager, "sc", "four"))
    assert drawn.texts.count("A") == drawn.texts.count("B") == 4 + 1
    assert {"reader group audit", "reader group billing", "head (retention keeps 2 h to 7 d)"} <= {*drawn.texts}
    assert sum(text.startswith("reader group billing: ") for text in drawn.titles) == 4
    manager.truncate_stream("sc", "four", "tail")
    assert "reader group audit (before the head)" in Drawn(stream_picture(manager, "sc", "four")).texts


def test_a_picture_marks_so_many_consumers_and_counts_the_others(manager: StreamManager) -> None:
    for number in range(14):
        manager.create_reader_group(f"group-{number:02}", "sc", "one")
    texts = Drawn(stream_picture(manager, "sc", "one")).texts
    assert "reader group group-11" in texts and "reader group group-12" not in texts and "2 consumers more" in texts


def test_a_subscriber_whose_stream_was_recreated_is_left_out(manager: StreamManager) -> None:
    manager.create_reader_group("billing", "sc", "one")
    manager.seal_stream("sc", "one")
    manager.delete_stream("sc", "one")
    manager.create_stream("sc", "one", 1)
    assert manager.stream_timeline("sc", "one").consumers == {}


def test_truncated_parts_are_marked(manager: StreamManager) -> None:
    early = write(manager, "one")
    manager.truncate_stream("sc", "one", early)
    write(manager, "one")
    scale_to(manager, "one", 0.5)
    manager.truncate_stream("sc", "one", early)
    drawn = Drawn(stream_picture(manager, "sc", "one", cuts={"begin": StreamCut("sc", "one", {0: 0})}))
    assert "truncated" in drawn.texts and "begin (before the head)" in drawn.texts
    assert any("truncated up to 20" in text for text in drawn.titles)


def test_labels_keep_away_from_cuts_and_ticks_are_round() -> None:
    assert free(0, 100, [40], 30) == 70 and free(0, 100, [40], 61) is None and free(0, 100, [], 100) == 50
    minute = 60_000
    assert ticks(90_001, 90_000 + 7 * minute, 7) == [n * minute for n in range(2, 9)]
    for span in (700, 7000, 10 * minute, 86_400_000, 400 * 86_400_000, 10**12):
        assert 2 <= len(ticks(1_700_000_000_000, 1_700_000_000_000 + span, 7)) <= 7
    assert apart([0, 1, 5, 9, 10], 4) == [0, 2, 3]


class MuchLater(StreamManager):
    """Draws streams as they are after a long time, in which all that was done to them is less than a pixel wide."""

    def stream_timeline(self, *stream: Any, **more: Any) -> Timeline:
        found = super().stream_timeline(*stream, **more)
        return found._replace(now=found.now + 10**7)


def test_marks_do_not_hide_each_other_and_those_of_other_keys_are_shown() -> None:
    """However soon one split follows another; of many that lie together none is marked."""
    assert unhidden([(0, 0), (3, 0), (3, 9), (20, 0), (25, 4)], 8) == [0, 2, 3]
    with MuchLater("memory://marks", create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 2)
        manager.scale_stream("sc", "one", [0], [(0.0, 0.25), (0.25, 0.5)])
        manager.scale_stream("sc", "one", [1], [(0.5, 0.75), (0.75, 1.0)])
        picture = stream_picture(manager, "sc", "one")
    assert picture.svg.count(f'fill="{SPLIT}" stroke="white"><title>split at') == 2


def test_labels_are_not_crossed_by_cuts(manager: StreamManager) -> None:
    write(manager, "one")
    cut = write(manager, "one")
    write(manager, "one")
    picture = stream_picture(manager, "sc", "one", cuts={"mark": cut}, even=True)
    (line,) = [line for line in picture.svg.splitlines() if "<title>mark:" in line]
    (at,) = {float(x) for x in re.findall(r'd="M([\d.]+) ', line)}
    drawn = Drawn(picture)
    assert drawn.labels and all(abs(x - at) > len(str(text)) * 6.2 / 2 for x, text in drawn.labels)
