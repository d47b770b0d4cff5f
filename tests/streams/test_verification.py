"""Segments of streams: broken framing and false index records are told, wherever they are."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest

from engine.admin.checks import segment_content
from engine.admin.checks.findings import Finding
from engine.admin.verify import verify
from engine.root import Root
from engine.state.operations import Append, AttributeUpdate, Payload, UpdateKind
from engine.state.segments import EVENT_COUNT
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.verification import check_events
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.index import encode_records, sparse_records
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend

NAME, INDEX = "sc/st/0.#epoch.0", "sc/st/0.#epoch.0#index"


def framed(*sizes: int) -> bytes:
    return b"".join(struct.pack(">ii", 0, size) + bytes([65 + size % 26]) * size for size in sizes)


def part(*sizes: int, data: bytes | None = None, spacing: int = 50) -> SegmentAppend:
    lengths = np.array(sizes, np.int64) + 8
    return SegmentAppend(
        0, Payload(framed(*sizes) if data is None else data), sparse_records(lengths, 5, spacing), len(sizes)
    )


@pytest.fixture
def root(tmp_path: object, request: pytest.FixtureRequest) -> Iterator[Root]:
    with Root.open(f"memory://{request.node.name}-{id(tmp_path)}", containers=1) as root:
        yield root


@pytest.fixture
def stream(root: Root) -> Stream:
    """A stream of one segment, with events of many sizes."""
    catalog = Catalog(root)
    catalog.create_scope("sc")
    catalog.create_stream("sc", "st")
    stream = catalog.stream("sc", "st")
    for first in range(0, 60, 20):
        stream.write([part(*range(first, first + 20))])
    return stream


@pytest.fixture(params=[3, 64, 1000, 8 << 20], ids=lambda size: f"{size} at a time")
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many bytes are looked at together."""
    monkeypatch.setattr(segment_content, "WINDOW", request.param)


def findings(root: Root, deep: bool = True) -> list[Finding]:
    return list(verify(root, deep=deep, content_checks=[check_events]).findings)


def only(found: list[Finding], name: str, problem: str) -> Finding:
    [finding] = found
    assert finding.object == name and problem in finding.problem and finding.remedy
    return finding


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("deep", [False, True])
def test_a_healthy_stream(root: Root, stream: Stream, flushed: bool, deep: bool) -> None:
    if flushed:
        stream.container.flush()
    assert findings(root, deep) == []
    ends = np.cumsum(np.array(range(60)) + 8)
    for events in (1, 7, 30, 59, 60):
        stream.truncate(StreamCut("sc", "st", {0: int(ends[events - 1])}))
        assert findings(root, deep) == []
    stream.write([part(5)])
    stream.seal()
    assert findings(root, deep) == []


def test_an_empty_stream_and_segments_of_no_stream(root: Root) -> None:
    Catalog(root).create_scope("sc")
    Catalog(root).create_stream("sc", "empty", None)
    root.container(0).create_segment("sc/other/0.#epoch.0")
    root.container(0).append("sc/other/0.#epoch.0", b"bytes, and no index")
    root.container(0).create_segment("free")
    root.container(0).append("free", b"\x00\x01")
    assert findings(root) == []


BROKEN = {
    "type": (framed(3) + struct.pack(">ii", 7, 4) + b"four" + framed(2), "an event has type 7"),
    "length": (framed(3) + struct.pack(">ii", 0, -4) + b"four" + framed(2), "length -4"),
    "too long": (framed(3) + struct.pack(">ii", 0, 900) + b"four" + framed(2), "no event ends"),
}


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("what", BROKEN)
def test_broken_framing(root: Root, stream: Stream, what: str) -> None:
    data, problem = BROKEN[what]
    stream.write([part(3, 4, 2, data=data)])
    stream.write([part(*range(100))])
    assert findings(root, deep=False) == []
    found = findings(root)
    assert any(problem in finding.problem for finding in found)
    start = sum(range(60)) + 60 * 8
    if what != "too long":
        assert only(found, NAME, f"offset {start + 11}: ")


@pytest.mark.usefixtures("window")
def test_two_broken_places_are_both_told(root: Root, stream: Stream) -> None:
    for _ in range(2):
        stream.write([part(3, 4, 2, data=BROKEN["type"][0])])
        stream.write([part(*range(20))])
    assert [finding.object for finding in findings(root)] == [NAME, NAME]


@pytest.mark.usefixtures("window")
def test_an_event_that_runs_over_the_end(root: Root, stream: Stream) -> None:
    stream.write([part(9, data=framed(90)[:17])])
    assert "runs over the end" in " ".join(finding.problem for finding in findings(root))


@pytest.mark.usefixtures("window")
def test_a_header_that_is_cut_off(root: Root, stream: Stream) -> None:
    stream.container.commit([Append(NAME, Payload(b"\0\0\0"))])
    found = {finding.object: finding.problem for finding in findings(root)}
    assert "runs over the end" in found[NAME] and "but the segment ends at" in found[INDEX]


def add(stream: Stream, records: list[tuple[int, int, int]], data: bytes = b"", events: int = 0) -> None:
    update = AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, events)
    encoded = encode_records(np.array([(*record, LATER) for record in records], np.int64).reshape(-1, 4))
    stream.container.commit([Append(INDEX, Payload(encoded)), Append(NAME, Payload(data), None, (update,))])


LATER = 1 << 40
LENGTH, EVENTS = sum(range(60)) + 60 * 8, 60
WRONG = {
    "descending offset": ([(5, 61, 5), (LENGTH + 10, 61, 5)], f"its offset is 5, but must be at least {LENGTH}", False),
    "descending count": ([(LENGTH + 10, 3, 5)], "its event count is 3, but must be at least 60", False),
    "wrong count": ([(LENGTH + 10, 70, 5)], "its last record counts 70 events, but the segment 61", False),
    "beyond the end": ([(LENGTH + 99, 61, 5)], f"its last record is of offset {LENGTH + 99}", False),
    "no record": ([], f"its last record is of offset {LENGTH}", False),
    "within an event": ([(LENGTH + 4, 60, 5), (LENGTH + 10, 61, 5)], f"no event ends at offset {LENGTH + 4}", True),
    "wrong count within": ([(LENGTH, 61, 5), (LENGTH + 10, 61, 5)], f"counts 61 events up to offset {LENGTH}", True),
}


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("what", WRONG)
def test_index_records_that_are_false(root: Root, stream: Stream, what: str) -> None:
    records, problem, needs_deep = WRONG[what]
    add(stream, records, framed(2), 1)
    found = findings(root, deep=needs_deep)
    assert any(finding.object == INDEX and problem in finding.problem for finding in found), found
    if needs_deep:
        assert findings(root, deep=False) == []


def test_an_index_that_is_not_whole_records(root: Root, stream: Stream) -> None:
    stream.container.append(INDEX, b"odd")
    only(findings(root), INDEX, "are not whole records")


def test_an_index_that_is_lost(root: Root, stream: Stream) -> None:
    stream.container.truncate(INDEX, stream.container.info(INDEX).length)
    only(findings(root), INDEX, "it has no records")


@pytest.mark.usefixtures("window")
def test_events_behind_what_cannot_be_read_are_looked_at(root: Root, stream: Stream) -> None:
    container = stream.container
    container.flush()
    stream.write([part(2000)])
    stream.write([part(3, 4, 2, data=BROKEN["type"][0])])
    [piece] = container.plan(NAME, 0, LENGTH)
    store = root.stores.chunks
    store.put(piece.path, b"\1" + store.read(piece.path)[1:])
    [damage, *others] = sorted(findings(root), key=lambda finding: finding.object == NAME)
    assert damage.object == piece.path
    whole = segment_content.WINDOW > LENGTH  # then nothing of the segment can be read
    assert [finding.object for finding in others] == ([] if whole else [NAME])
