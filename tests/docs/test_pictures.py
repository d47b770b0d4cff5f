"""The pictures of the pages can be read: texts lie within their boxes, ticks have one size, legends cover no line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib import font_manager
from matplotlib.textpath import TextPath

from tests.bench import capacity, micro_batches, writers
from tests.source.fast_motion import Row

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
PLOTS = {"many-writers.svg": 6, "micro-batches.svg": 6, "capacity.svg": 3}
"""The plots, and how many panels each has."""

PADDING = 6
"""Pixels between a text and the border of its box, by a wide font."""


def width(text: str, size: float, bold: bool) -> float:
    font = font_manager.FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=size)
    return float(TextPath((0, 0), text, prop=font).get_extents().width)


def texts(element: ElementTree.Element, given: dict[str, str]) -> Iterator[tuple[float, float, float]]:
    """The left edge, the right edge and the base line of each text. given: attributes of the elements around it."""
    known = {**given, **element.attrib}
    if element.tag == f"{SVG}text":
        long = width(element.text or "", float(known["font-size"]), known.get("font-weight") == "bold")
        left = float(known["x"]) - (long / 2 if known.get("text-anchor") == "middle" else 0)
        yield left, left + long, float(known["y"])
    for each in element:
        yield from texts(each, {name: known[name] for name in known if name.startswith(("font-", "text-"))})


def test_texts_do_not_touch_the_borders_of_their_boxes() -> None:
    tree = ElementTree.parse(DOCS / "picture.svg").getroot()
    boxes = [
        tuple(float(each.get(side, 0)) for side in ("x", "y", "width", "height")) for each in tree.iter(f"{SVG}rect")
    ]
    found = [*texts(tree, {})]
    assert len(found) > 15 and len(boxes) > 10
    for left, right, base in found:
        for x, y, wide, high in boxes:
            middle = (left + right) / 2
            if x < middle < x + wide and y < base < y + high:
                assert left >= x + PADDING and right <= x + wide - PADDING, f"at {middle:.0f}, {base:.0f}"


def places(path: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.attrib["d"])]


def assert_can_be_read(file: Path, count: int) -> None:
    """The labels of the axes have one size, and the legend lies outside of all panels."""
    tree = ElementTree.parse(file).getroot()
    groups = {each.get("id", ""): each for each in tree.iter(f"{SVG}g")}
    ticks = [groups[name] for name in groups if re.match(r"[xy]tick_", name)]
    sizes = {found for tick in ticks for found in re.findall(r"font-size: ?([\d.]+)", str(ElementTree.tostring(tick)))}
    assert len(sizes) == 1, sizes
    panels = [next(groups[name].iter(f"{SVG}path")) for name in groups if name.startswith("axes_")]
    assert len(panels) == count
    for legend in (groups[name] for name in groups if name.startswith("legend")):
        top = min(y for _, y in places(next(legend.iter(f"{SVG}path"))))
        assert all(y < top for panel in panels for _, y in places(panel))


@pytest.mark.parametrize("name", PLOTS)
def test_plots_of_the_pages(name: str) -> None:
    assert_can_be_read(DOCS / name, PLOTS[name])


def test_plots_of_new_figures(tmp_path: Path) -> None:
    figures = dict.fromkeys([*writers.PANELS, "PUT", "LIST", "GET"], 0.7)
    rows = {count: {**figures, "events_s": 21.0 * count} for count in (1, 2, 4, 8, 16)}
    writers.plot({"folder": rows, "S3": rows}, str(tmp_path / "writers.svg"))
    assert_can_be_read(tmp_path / "writers.svg", 6)
    batches = [Row(number, *[100 + number] * (len(Row._fields) - 1)) for number in range(1, 30)]
    micro_batches.plot(batches, str(tmp_path / "batches.svg"))
    assert_can_be_read(tmp_path / "batches.svg", 6)
    hosts = {count: {"events_s": 20.0 * count, "p50_ms": 100.0, "p99_ms": 300.0, **figures} for count in (1, 10, 100)}
    capacity.plot(hosts, capacity.Bounds(0.03, 0.03, 0.02, 0.0015), str(tmp_path / "capacity.svg"))
    assert_can_be_read(tmp_path / "capacity.svg", 3)
