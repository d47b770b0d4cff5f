"""Objects that are missing, short, damaged or of nobody, as `verify` finds them."""

from __future__ import annotations

import pytest

from chunkstore.metadata.metadata_records import ChunkRecord
from engine.admin.checks.findings import Severity
from tests.engine.admin.lives import assert_told, flip, lived, told

pytestmark = pytest.mark.usefixtures("small")


def test_a_missing_chunk() -> None:
    life = lived(7)
    path = life.middle_chunk()
    life.store.delete([path])
    report = life.verified()
    assert_told(report, path, "missing")
    assert report.errors == 1 and f"'{life.whole_segment().name.rpartition('.')[0]}'" in told(report)[0].problem
    assert_told(life.verified(deep=True), path, "missing")


def test_every_missing_chunk_is_told() -> None:
    life = lived(7)
    paths = {str(key) for key, record in life.records(ChunkRecord).items()}
    segment = life.container.info("s/1")
    chunks = {part.path for part in life.container.plan_of(segment, 0, segment.length) if not part.logged} & paths
    assert len(chunks) > 3
    life.store.delete(sorted(chunks))
    assert {finding.object for finding in life.verified().findings} == chunks


def test_a_short_chunk() -> None:
    life = lived(7)
    path = life.middle_chunk()
    life.store.put(path, life.store.read(path)[:-1])
    assert_told(life.verified(), path, "needs")


def test_a_longer_chunk_is_surplus_and_no_damage() -> None:
    life = lived(7)
    life.store.put(life.middle_chunk(), life.store.read(life.middle_chunk()) + b"late")
    report = life.verified(deep=True)
    assert told(report) == [] and report.balances[0].surplus == 4


def test_flipped_bits_of_data_are_found_by_reading_it() -> None:
    life = lived(7)
    path = life.middle_chunk()
    flip(life.store, path)
    assert told(life.verified()) == []
    assert_told(life.verified(deep=True), path, "do not match their checksums")


def test_flipped_bits_in_two_chunks_of_a_segment_are_both_found() -> None:
    life = lived(7)
    first = str(life.whole_segment().first_chunk)
    for path in (first, life.middle_chunk()):
        flip(life.store, path)
    report = life.verified(deep=True)
    assert {finding.object for finding in report.findings} == {first, life.middle_chunk()}


def test_a_missing_and_a_damaged_frame_that_a_segment_needs() -> None:
    life = lived(8)
    life.container.checkpoint()
    needed = [
        (piece.path, segment)
        for segment in life.container.state.logged()
        for piece in life.container.plan_of(segment, segment.start_offset, segment.length)
        if piece.logged
    ]
    path = needed[0][0]
    flip(life.store, path)
    assert told(life.verified(), Severity.ERROR) == []
    assert_told(life.verified(deep=True), path)
    life.store.delete([path])
    assert_told(life.verified(), path, "missing")


def test_a_missing_attached_chunk() -> None:
    life = lived(8)
    attached = [path for path in life.container.state.chunks if path.startswith("attached/")]
    life.store.delete(attached[:1])
    assert_told(life.verified(), attached[0], "missing")


def test_an_orphan() -> None:
    life = lived(7)
    life.store.put("s/1.E-1-O-0.orphan", b"twelve bytes")
    life.store.put("zebra/late", b"x")
    report = life.verified()
    assert told(report) == []
    assert report.orphans == (2, 13, 2, ("s/1.E-1-O-0.orphan", "zebra/late"))
    life.simulation.advance(100_000)
    orphans = life.verified().orphans
    assert orphans is not None and orphans.recent == 0 and orphans.number == 2
