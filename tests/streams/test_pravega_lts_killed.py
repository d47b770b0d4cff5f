"""What a server left that was killed: what is whole is delivered, in order, and what is not is named.

Its metadata reach long-term storage after the objects that they describe, so they are behind: here those of good
archives are set back, and objects are added to and cut.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import struct
from collections import defaultdict
from pathlib import Path

import pytest

from chunkstore.metadata.metadata_records import ChunkRecord
from chunkstore.pravega.archived_segments import read_segment
from chunkstore.pravega.chunked_layout import system_segment
from chunkstore.pravega.journal_records import (
    JournalSnapshot,
    SegmentSnapshot,
    encode_snapshot,
    journal_name,
    parse_name,
    snapshot_name,
)
from chunkstore.pravega.source import ArchiveDamaged, Source
from chunkstore.pravega.system_boot import boot
from chunkstore.pravega.table_entries import entries
from pravega_spark import StreamManager
from pravega_spark.checks import verify_root
from pravega_spark.errors import StreamNotFound
from pravega_spark.streams.model.events import HEADER_SIZE, event_header
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.pravega_lts.imports import ImportedStream, ImportIncomplete
from pravega_spark.streams.pravega_lts.root import PravegaRoot
from tests.archives import CHUNKED, KILLED, case, contents, laid_out, stored
from tests.support import limits

RIDES = "demo/rides/0.#epoch.0"
UUID = "00000000-0000-4000-8000-000000000000"
MODES = [{}, {"unrecorded": True}, {"salvage": True}, {"salvage": True, "unrecorded": True}]

Events = dict[int, list[tuple[int, bytes]]]
"""Events by segments: offset and data."""


def events(manager: StreamManager, scope: str, name: str) -> Events:
    found: Events = defaultdict(list)
    for event in manager.read_events(scope, name):
        found[event.segment_id].append((event.offset, bytes(event.data)))
    return dict(found)


def last_object(objects: dict[str, bytes], segment: str) -> tuple[str, int]:
    """The last object of a segment, and the offset where it begins."""
    names = [name for name in objects if name.startswith(f"{segment}.E-")]
    offset, name = max((int(name.rpartition("-O-")[2].partition(".")[0]), name) for name in names)
    return name, offset


def event(number: int) -> bytes:
    data = f"unrecorded {number}".encode()
    return event_header(len(data)) + data


def read(objects: dict[str, bytes], **how: bool) -> tuple[Events, PravegaRoot]:
    root = PravegaRoot(stored(objects), **how)
    return events(StreamManager.over(root), "demo", "rides"), root


@pytest.fixture(scope="module")
def right() -> Events:
    return read(case(CHUNKED).objects)[0]


def grown(tail: bytes) -> tuple[dict[str, bytes], int]:
    """The archive, in which the last object of a segment has more than the metadata count, and where that begins."""
    objects = dict(case(CHUNKED).objects)
    name, offset = last_object(objects, RIDES)
    end = offset + len(objects[name])
    return {**objects, name: objects[name] + tail}, end


@pytest.mark.parametrize("salvage", [False, True])
def test_whole_events_behind_the_metadata_are_left_out_and_counted_or_read(right: Events, salvage: bool) -> None:
    tail = event(1) + event(2)
    objects, end = grown(tail + event(3)[:-1])
    found, root = read(objects, salvage=salvage)
    assert found == right
    left, torn = root.archived.losses
    assert (left.segment, left.start, left.end, left.there) == (RIDES, end, end + len(tail), True)
    assert "2 whole events" in left.reason and "--unrecorded" in left.reason
    assert (torn.start, torn.end, torn.there) == (end + len(tail), end + len(tail) + len(event(3)) - 1, False)
    assert root.recovered == ()
    found, root = read(objects, salvage=salvage, unrecorded=True)
    assert found[0] == [*right[0], (end, b"unrecorded 1"), (end + len(event(1)), b"unrecorded 2")]
    assert {number: found[number] for number in (1, 2)} == {number: right[number] for number in (1, 2)}
    assert [(loss.start, loss.end) for loss in root.archived.losses] == [(torn.start, torn.end)]
    assert len(root.recovered) == 1 and f"bytes {end} to {end + len(tail)}" in root.recovered[0]


def test_verify_reports_what_is_behind_the_metadata() -> None:
    objects, end = grown(event(1))
    report = verify_root(PravegaRoot(stored(objects)))
    [finding] = [each for each in report.findings if each.object == RIDES]
    assert f"bytes {end} to" in finding.problem and "1 whole event " in finding.problem
    assert finding.severity.value == "warning" and "never flushed" not in finding.remedy
    report = verify_root(PravegaRoot(stored(objects), unrecorded=True))
    assert any("are read: 1 whole event" in each.problem for each in report.findings)


def test_objects_without_a_record_continue_a_segment_where_it_ends(right: Events) -> None:
    """The rest of an event may be in the next one. One that was written twice, by two owners, counts once."""
    first, second = event(1), event(2)
    objects, end = grown(first + second[:5])
    at = end + len(first) + 5
    objects[f"{RIDES}.E-2-O-{at}.{UUID}"] = second[5:] + event(3)
    objects[f"{RIDES}.E-3-O-{end}.{UUID}"] = first
    objects[f"{RIDES}.E-3-O-{at + 1000}.{UUID}"] = event(9)  # behind a gap
    found, root = read(objects, unrecorded=True)
    assert [data for _, data in found[0][len(right[0]) :]] == [b"unrecorded 1", b"unrecorded 2", b"unrecorded 3"]
    assert root.losses == ()


def test_objects_that_contradict_each_other_are_not_used(right: Events) -> None:
    objects, end = grown(event(1) + event(2))
    objects[f"{RIDES}.E-3-O-{end + len(event(1))}.{UUID}"] = event(7) + event(8)
    found, _ = read(objects, unrecorded=True)
    assert [data for _, data in found[0][len(right[0]) :]] == [b"unrecorded 1"]


def test_a_chunk_that_grew_to_the_size_of_others_is_not_taken_for_another(right: Events) -> None:
    objects, _ = grown(b"")
    name, _ = last_object(objects, RIDES)
    size = next(len(data) for each, data in sorted(objects.items()) if each.startswith("demo/") and len(data) > 400_000)
    fill = size - len(objects[name]) - HEADER_SIZE
    assert fill > 0
    objects[name] += event_header(fill) + bytes(fill)
    # A chunk of this size is missing elsewhere, so it may be the one that is here.
    lost = next(each for each, data in objects.items() if len(data) == size and each != name)
    del objects[lost]
    found, root = read(objects, salvage=True)
    assert found[0] == right[0] and any(loss.there and loss.segment == RIDES for loss in root.archived.losses)


def behind(objects: dict[str, bytes], dice: random.Random, container: int) -> dict[str, bytes]:
    """The objects as if the metadata of long-term storage of a container had been flushed up to some entry only."""
    source = Source(stored(objects))
    files = [found for found in map(parse_name, objects) if found is not None and found[0] == container]
    epoch = max(file.epoch for _, _, file in files)
    journal = max(file.number for _, is_snapshot, file in files if not is_snapshot and file.epoch == epoch)
    snapshot = max((file.number for _, is_snapshot, file in files if is_snapshot and file.epoch == epoch), default=0)
    segments, changed = [], dict(objects)
    for name, found in boot(source, [])[container].items():
        segment, chunks = found
        if name.endswith("$attributes.index"):  # without an index a table is what its entries say
            none = segment._replace(length=0, chunk_count=0, start_offset=0, first_chunk_start=0, last_chunk_start=0)
            segments.append(SegmentSnapshot(none._replace(first_chunk=None, last_chunk=None), ()))
            kept: list[ChunkRecord] = []
        elif "storage_metadata" in name:
            there = system_segment(source, found)
            places = [each.offset for each in entries(functools.partial(read_segment, source, there), 0, there.length)]
            end, kept, at = dice.choice(places[len(places) // 2 :]), [], 0
            for chunk in chunks:
                if at < end:
                    kept.append(chunk._replace(length=min(chunk.length, end - at)))
                    start, at = at, at + kept[-1].length
            kept[-1] = kept[-1]._replace(next_chunk=None)
            now = segment._replace(length=end, chunk_count=len(kept), last_chunk=kept[-1].name, last_chunk_start=start)
            segments.append(SegmentSnapshot(now, tuple(kept)))
        else:
            segments.append(found)
            kept = list(chunks)
        lengths = {chunk.name: chunk.length for chunk in kept}
        for each in [each for each in changed if each.startswith(f"{name}.E-")]:
            if each in lengths:
                changed[each] = changed[each][: lengths[each]]
            else:
                del changed[each]
    changed[snapshot_name(container, epoch, snapshot + 1)] = encode_snapshot(
        JournalSnapshot(epoch, journal, tuple(segments))
    )
    changed[journal_name(container, epoch, journal + 1)] = b""
    return changed


def check_behind(seed: int) -> None:
    one, dice = case(CHUNKED), random.Random(seed)
    whole = StreamManager.over(PravegaRoot(one.store()))
    objects = behind(one.objects, dice, dice.randrange(4))
    for how in MODES:
        root = PravegaRoot(stored(objects), **how)
        manager = StreamManager.over(root)
        for name in ("rides", "scaled", "sealed", "txns"):
            try:
                found = events(manager, "demo", name)
            except (ArchiveDamaged, StreamNotFound):
                continue
            due = events(whole, "demo", name)
            for number, there in found.items():
                assert there == due[number][: len(there)], f"{seed}, {how}: {name} has what is not due"
            lost = [number for number in due if found.get(number, []) != due[number]]
            told = " ".join((*root.losses, *unknown_of(root, name)))
            for number in lost:
                assert segment_name("demo", name, number) in told or "not known" in told, f"{seed}, {how}: {name}"


def unknown_of(root: PravegaRoot, name: str) -> tuple[str, ...]:
    return root.archived.stream(f"demo/{name}").unknown


@pytest.mark.parametrize("seed", range(2))
def test_metadata_that_are_behind_give_no_wrong_event_and_each_loss_is_named(seed: int) -> None:
    check_behind(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 40))
def test_metadata_that_are_behind_give_no_wrong_event_often(seed: int) -> None:
    check_behind(seed)


@pytest.mark.parametrize("window", [1 << 20, 1000, 1012])
def test_what_was_committed_and_not_merged_is_named(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """A large event that is there, and that no metadata merged: its objects have it. However much is read at once."""
    limits.archive_window(monkeypatch, window)
    large = event_header(3016) + b"large " * 502 + b"end!"
    objects = dict(case(CHUNKED).objects)
    name = f"{RIDES}#transient.{'0' * 32}.{'1' * 32}"
    objects[f"{name}.E-2-O-0.{UUID}"] = large
    _, root = read(objects)
    [loss] = root.archived.losses
    assert (loss.segment, loss.start, loss.end, loss.there) == (name, 0, len(large), True)
    merged, _ = grown(large)
    merged[f"{name}.E-2-O-0.{UUID}"] = large
    _, root = read(merged, unrecorded=True)
    assert root.losses == ()
    merged[f"{name}.E-2-O-0.{UUID}"] = large[:-1] + b"?"
    _, root = read(merged, unrecorded=True)
    assert [loss.segment for loss in root.archived.losses] == [name]


def test_an_import_takes_what_is_sound_and_reports_the_rest(tmp_path: Path) -> None:
    objects, end = grown(event(1))
    name = min(each for each in objects if each.startswith("demo/scaled/2.#epoch.1.E-"))
    objects[name] = objects[name][:-1]
    source = laid_out(objects, tmp_path / "lts")
    before = contents(source)
    with StreamManager(str(tmp_path / "strict"), create=True) as manager:
        with pytest.raises(ImportIncomplete) as raised:
            manager.import_streams(source, ["demo"])
        [failed] = raised.value.report.failed
        assert isinstance(failed, ImportedStream) and failed.stream == "scaled" and name in str(failed.problem)
    with StreamManager(str(tmp_path / "root"), create=True) as manager:
        report = manager.import_streams(source, ["demo"], salvage=True, unrecorded=True)
        outcomes = {each.stream: each for each in report.streams}
        assert {each.outcome for each in report.streams} == {"imported"}
        [lost] = outcomes["scaled"].not_imported
        assert "demo/scaled/2.#epoch.1" in lost and "are lost" in lost
        [more] = outcomes["rides"].recovered
        assert f"bytes {end} to {end + len(event(1))} are read: 1 whole event" in more
        there = PravegaRoot(stored(objects), salvage=True, unrecorded=True)
        for stream in ("rides", "scaled"):
            assert events(manager, "demo", stream) == events(StreamManager.over(there), "demo", stream)
        assert verify_root(manager.root, deep=True).errors == 0
    assert contents(source) == before


def test_errors_advise_what_is_possible(tmp_path: Path) -> None:
    """The storage, not the root that is to be made; salvaging only where that is not done already; no creation."""
    objects = dict(case(CHUNKED).objects)
    del objects[min(name for name in objects if name.startswith("_system/containers/metadata_1.E-"))]
    source = laid_out(objects, tmp_path / "lts")
    with StreamManager(str(tmp_path / "root")) as manager:
        with pytest.raises(ArchiveDamaged) as raised:
            manager.import_streams(source, dry_run=True)
        assert f"--root file://{source} verify" in str(raised.value) and "import what is sound" in str(raised.value)
        with pytest.raises(ArchiveDamaged) as raised:
            manager.import_streams(source, dry_run=True, salvage=True)
        assert "--salvage" not in str(raised.value)
    with pytest.raises(ArchiveDamaged, match="read what is sound with --salvage"):
        _ = PravegaRoot(stored(objects)).archived
    with pytest.raises(ArchiveDamaged) as raised:
        _ = PravegaRoot(stored(objects), salvage=True).archived
    assert "salvage" not in str(raised.value)
    manager = StreamManager.over(PravegaRoot(case(CHUNKED).store()))
    with pytest.raises(StreamNotFound) as missing:
        list(manager.read_events("demo", "none"))
    assert "list_stream" in str(missing.value) and "create" not in str(missing.value).lower()


# --- archives of real servers ----------------------------------------------------------------------------------------


def whole(data: bytes) -> list[bytes]:
    """The whole events at the beginning of some bytes."""
    found, at = [], 0
    while at + HEADER_SIZE <= len(data):
        kind, size = struct.unpack_from(">ii", data, at)
        if kind or size < 0 or at + HEADER_SIZE + size > len(data):
            break
        found.append(data[at + HEADER_SIZE : at + HEADER_SIZE + size])
        at += HEADER_SIZE + size
    return found


@pytest.mark.skipif(not KILLED, reason="no archive of a killed server in PRAVEGA_LTS")
@pytest.mark.parametrize("path", KILLED, ids=lambda path: path.name)
@pytest.mark.parametrize("how", MODES, ids=str)
def test_an_archive_of_a_killed_server(path: Path, how: dict[str, bool]) -> None:
    one = case(path)
    lines = [line for line in one.expected["sent.jsonl"].splitlines() if line.endswith(b"}")]
    sent = {(row["stream"], row["sha256"]): row for row in map(json.loads, lines)}
    root = PravegaRoot(one.store(), **how)
    manager = StreamManager.over(root)
    for scope in manager.list_scope():
        for name in manager.list_stream(scope):
            found = events(manager, scope, name)
            for number, there in found.items():
                last: dict[str, int] = {}
                for _, data in there:
                    row = sent.get((f"{scope}/{name}", hashlib.sha256(data).hexdigest()))
                    if row is None:
                        continue  # of the tail, which the writer had not noted yet
                    assert row.get("txnState", "committed") == "committed"
                    assert last.get(row["key"], -1) < row["seq"]
                    last[row["key"]] = row["seq"]
                objects = [each for each in one.objects if each.startswith(segment_name(scope, name, number) + ".E-")]
                if how.get("unrecorded") and objects:
                    order = sorted(objects, key=lambda each: int(each.rpartition("-O-")[2].partition(".")[0]))
                    assert [data for _, data in there] == whole(b"".join(one.objects[each] for each in order))
    if not how.get("unrecorded"):
        assert root.losses and all(" whole events " in loss for loss in root.losses)
    assert verify_root(PravegaRoot(one.store(), **how)).errors == 0
