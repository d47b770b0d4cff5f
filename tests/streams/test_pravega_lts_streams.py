"""Streams of real servers: their events, cuts, policies and transactions are what the server's own client saw."""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections import defaultdict
from typing import Any

import pytest

from chunkstore.pravega.archive import open_archive
from chunkstore.pravega.controller_records import RetentionType, ScaleType, StreamState, TransactionStatus
from chunkstore.pravega.source import ArchiveDamaged
from pravega_spark.errors import ScopeNotFound, StreamNotFound
from pravega_spark.streams.model.names import container_of, segment_name
from pravega_spark.streams.pravega_lts.streams import PravegaStreams, decoded
from tests.archives import (
    ARCHIVES,
    ROLLING,
    ArchivedEvent,
    Case,
    case,
    live_events,
    stored,
    with_entries,
)

STREAMS = ["big", "empty", "rides", "scaled", "sealed", "truncated", "txns"]


def opened(objects: dict[str, bytes]) -> PravegaStreams:
    return PravegaStreams(open_archive(stored(objects)))


def events_of(streams: PravegaStreams, name: str) -> list[ArchivedEvent]:
    return list(live_events(streams, streams.stream("demo", name)))


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name)
def found(request: pytest.FixtureRequest) -> tuple[Case, PravegaStreams]:
    one = case(request.param)
    return one, opened(one.objects)


def test_scopes_and_streams(found: tuple[Case, PravegaStreams]) -> None:
    _, streams = found
    assert streams.scopes() == ["_system", "demo"]
    assert [name for name in streams.streams("demo") if not name.startswith("_")] == STREAMS
    assert streams.unknown == ()
    with pytest.raises(StreamNotFound):
        streams.stream("demo", "deleted")
    with pytest.raises(ScopeNotFound):
        streams.streams("other")


@pytest.mark.parametrize("name", STREAMS)
def test_every_live_event_is_what_the_server_read(found: tuple[Case, PravegaStreams], name: str) -> None:
    one, streams = found
    due = [(row["segName"], row["offset"], row["len"]) for row in one.rows("readback.jsonl") if row["stream"] == name]
    there = []
    digests = defaultdict[str, Any](hashlib.sha256)
    for event in events_of(streams, name):
        segment = segment_name("demo", name, event.segment)
        there.append((segment, event.offset, len(event.data)))
        digests[segment].update(hashlib.sha256(event.data).digest())
    assert there == due
    expected = {segment: digest for segment, digest in one.digests().items() if segment.startswith(f"demo/{name}/")}
    assert {segment: digest.hexdigest() for segment, digest in digests.items()} == expected


@pytest.mark.parametrize("name", STREAMS)
def test_events_of_a_key_are_in_the_order_in_which_they_were_written(
    found: tuple[Case, PravegaStreams], name: str
) -> None:
    one, streams = found
    written: dict[str, list[int]] = defaultdict(list)
    for row in one.rows("events.jsonl"):
        if row["stream"] == name and row.get("txnState", "committed").lower() == "committed":
            written[row["key"]].append(row["seq"])
    read: dict[str, list[int]] = defaultdict(list)
    for event in events_of(streams, name):
        row = json.loads(event.data)
        read[row["key"]].append(row["seq"])
    if name == "truncated":
        written = {key: [seq for seq in seqs if seq >= 1800] for key, seqs in written.items()}
    assert dict(read) == {key: seqs for key, seqs in written.items() if seqs}


def test_heads_and_tails(found: tuple[Case, PravegaStreams]) -> None:
    _, streams = found
    truncated = streams.stream("demo", "truncated")
    assert truncated.head.positions == {0: 1213707, 1: 601904}
    assert truncated.tail.positions == {0: 2014997, 1: 1013292}
    scaled = streams.stream("demo", "scaled")
    assert scaled.head.positions == {0: 0}
    assert scaled.tail.positions == {2 << 32 | 4: 143570, 2 << 32 | 5: 72304}
    assert streams.stream("demo", "sealed").tail.positions == {}


def test_configuration_state_and_epochs(found: tuple[Case, PravegaStreams]) -> None:
    one, streams = found
    rides, empty = streams.stream("demo", "rides"), streams.stream("demo", "empty")
    assert rides.records.state is StreamState.ACTIVE and rides.records.configuration is not None
    assert rides.records.configuration.tags == (("h5", "rides") if "0.13" in one.name else ())
    assert empty.records.configuration is not None
    scaling, retention = empty.records.configuration.scaling, empty.records.configuration.retention
    assert scaling is not None and scaling == (ScaleType.EVENTS_PER_SECOND, 100, 2, 2)
    assert retention is not None and retention[:2] == (RetentionType.SIZE, 1 << 30)
    assert streams.stream("demo", "sealed").sealed and not rides.sealed
    scaled = streams.stream("demo", "scaled")
    assert [[segment.id for segment in epoch.segments] for epoch in scaled.epochs] == [
        [0],
        [1 << 32 | 1, 1 << 32 | 2, 1 << 32 | 3],
        [2 << 32 | 4, 2 << 32 | 5],
    ]
    assert scaled.records.sealed_sizes[0] == 252300
    for name in STREAMS:
        assert streams.stream("demo", name).unknown == ()


def test_open_transactions_are_listed(found: tuple[Case, PravegaStreams]) -> None:
    _, streams = found
    [transaction] = streams.stream("demo", "txns").transactions
    assert transaction.id.int == 3
    assert transaction.status is TransactionStatus.OPEN
    assert sorted(transaction.segments.values()) == [18124, 34481]


def test_the_key_value_table(found: tuple[Case, PravegaStreams]) -> None:
    one, streams = found
    due = sorted((row["pk"], row["sk"], row["value"], row["version"]) for row in one.rows("kvt.jsonl"))
    assert streams.key_value_tables("demo") == (["kvt"] if due else [])
    if due:
        there = streams.key_value_table("demo", "kvt").entries()
        assert len(due) == 900
        assert due == sorted(
            (e.primary.decode(), e.secondary.decode(), e.value.decode(), "{}:{}".format(*e.version)) for e in there
        )


def test_without_the_controller_names_of_segments_tell() -> None:
    """As where its tables were never flushed: what is not known is said."""
    one = case(ROLLING)
    lost = ("_system/_tables/scopes", "_system/_tables/demo/streamsInScope", "_system/_tables/demo/scaled/")
    streams = opened({name: data for name, data in one.objects.items() if not name.startswith(lost)})
    assert "demo" in streams.scopes()
    assert [name for name in streams.streams("demo") if name in STREAMS] == STREAMS
    assert any("scope 'demo'" in text or "scopes" in text for text in streams.unknown)
    scaled = streams.stream("demo", "scaled")
    assert any("epochs are not known" in text for text in scaled.unknown)
    assert scaled.sealed is None
    assert events_of(streams, "scaled") == events_of(opened(one.objects), "scaled")


def test_a_segment_of_the_stream_that_is_not_there_is_an_error() -> None:
    one = case(ROLLING)
    objects = {name: data for name, data in one.objects.items() if not name.startswith("demo/scaled/2.#epoch.1")}
    objects = {name: data for name, data in objects.items() if "containers/metadata" not in name}
    with pytest.raises(ArchiveDamaged, match=r"demo/scaled/2\.#epoch\.1"):
        events_of(opened(objects), "scaled")


def test_a_first_chunk_that_is_not_truncated_must_be_there() -> None:
    objects = dict(case(ROLLING).objects)
    del objects["demo/rides/0.#epoch.0$offset.0"]
    with pytest.raises(ArchiveDamaged, match=r"demo/rides/0\.#epoch\.0.*missing"):
        events_of(opened(objects), "rides")


def test_a_sealed_segment_that_lost_its_end_is_an_error() -> None:
    objects = dict(case(ROLLING).objects)
    name = "demo/scaled/1.#epoch.1$offset.0"
    objects[name] = objects[name][:-10]
    with pytest.raises(ArchiveDamaged, match="sealed"):
        events_of(opened(objects), "scaled")


# --- what was not flushed --------------------------------------------------------------------------------------------


def all_events(streams: PravegaStreams) -> dict[str, list[ArchivedEvent]]:
    return {name: events_of(streams, name) for name in STREAMS}


def without(objects: dict[str, bytes], *starts: str) -> dict[str, bytes]:
    return {name: data for name, data in objects.items() if not name.startswith(starts)}


def in_containers(objects: dict[str, bytes], count: int) -> dict[str, bytes]:
    """The objects of a rolling layout, as if there had been so many containers."""
    archive, tables = open_archive(stored(objects)), defaultdict[int, bytes](bytes)
    for number in range(archive.containers):
        for key, entry in archive.table(f"_system/containers/metadata_{number}").items():
            assert entry.value is not None
            row = struct.pack(">Biiq", 0, len(key), len(entry.value), -1 << 63) + key + entry.value
            tables[container_of(key.decode(), count)] += row
    found = without(objects, "_system/containers/metadata_")
    for number, table in tables.items():
        name = f"_system/containers/metadata_{number}"
        found |= {
            f"{name}$header": f"maxsize=9223372036854775807&0={name}$offset.0&".encode(),
            f"{name}$offset.0": table,
        }
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_any_number_of_containers(count: int) -> None:
    one = case(ROLLING)
    streams = opened(in_containers(one.objects, count))
    assert streams.archive.containers == count and streams.unknown == ()
    assert all_events(streams) == all_events(opened(one.objects))


@pytest.mark.parametrize("what", ["", "$header", "$offset."])
@pytest.mark.parametrize("lost", [[0], [3], [2, 3], [0, 1, 2], [0, 1, 2, 3]], ids=str)
def test_containers_that_never_flushed_their_metadata(lost: list[int], what: str) -> None:
    """Their indexes may have been flushed all the same. Of containers at the end only segments that none knows tell."""
    one, names = case(ROLLING), [f"_system/containers/metadata_{number}" for number in lost]
    gone = [name + what for name in names] if not what else [f"{name}{end}" for name in names for end in ("$h", "$o")]
    streams = opened(without(one.objects, *gone))
    assert all_events(streams) == all_events(opened(one.objects))
    told = (*streams.archive.findings, *streams.unknown)
    for number, name in zip(lost, names, strict=True):
        is_told = any(name in text and "never flushed" in text for text in told)
        assert is_told is (bool(what) or number < max({0, 1, 2, 3} - set(lost), default=0))
    assert any("does not know it yet, or was not flushed" in text for text in told) or len(lost) == 4
    assert "deleted" not in streams.streams("demo")
    [transaction] = streams.stream("demo", "txns").transactions
    assert sorted(transaction.segments.values()) == [18124, 34481]


def test_a_truncated_stream_of_which_nobody_knows_the_head_begins_where_its_objects_do() -> None:
    lost = ("_system/containers/metadata_", "_system/_tables/demo/truncated/metadata")
    streams = opened(without(case(ROLLING).objects, *lost))
    truncated = streams.stream("demo", "truncated")
    assert truncated.head.positions == {0: 1048576, 1: 524288}
    assert any("demo/truncated/0.#epoch.0' begins at 1048576 or later" in text for text in streams.archive.findings)


def test_a_scope_without_streams_is_one_and_that_it_has_none_is_known_by_its_table_only() -> None:
    number = uuid.UUID(int=7)
    objects = with_entries(case(ROLLING).objects, "scopes", {"quiet": number.bytes})
    streams = opened(objects)
    assert streams.scopes() == ["_system", "demo", "quiet"]
    assert streams.streams("quiet") == streams.key_value_tables("quiet") == streams.reader_groups("quiet") == []
    assert [text for text in streams.unknown if "'quiet'" in text]
    table = f"_system/_tables/quiet/streamsInScope.#.{number}$header"
    assert opened({**objects, table: b"maxsize=16777216&"}).unknown == ()
    named = {**objects, table: b"maxsize=16777216&", "quiet/s/0.#epoch.0": bytes(8)}
    assert opened(named).streams("quiet") == ["s"] and opened(named).unknown
    assert opened(without(objects, "_system/_tables/scopes")).scopes() == ["_system", "demo"]


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_tables_that_were_not_flushed_as_far_as_their_indexes(step: int) -> None:
    """Each of a stream's tables ends before each of its entries: its events are the same, or its head is not known. In
    `make test-slow` before the last one and every fifth before it."""
    one, refused = case(ROLLING), set()
    whole = opened(one.objects)
    due = all_events(whole)
    for name in [each for each in whole.archive.tables if each.startswith("_system/_tables/demo/")]:
        table = f"{name}$offset.0"
        ends = sorted(entry.offset for entry in whole.archive.table(name).values()) if table in one.objects else []
        for end in ends[::-step]:
            streams = opened({**one.objects, table: one.objects[table][:end]})
            assert set(STREAMS) <= set(streams.streams("demo"))
            for stream in STREAMS:
                try:
                    assert events_of(streams, stream) == due[stream], (name, end)
                except ArchiveDamaged as error:
                    assert f"/{stream}/metadata" in name
                    assert "'truncation'" in str(error) or "no record says that it is truncated" in str(error)
                    refused.add(stream)
    assert refused == set(STREAMS)


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"", []),
        (bytes(8), [(0, b"")]),
        (b"\0\0\0\0\0\0\0\2ab" + bytes(8), [(0, b"ab"), (10, b"")]),
        (b"\0\0\0\0\0\0\0\2a", None),
        (b"\0\0\0\1\0\0\0\0", None),
        (b"\0\0\0\0\xff\0\0\0", None),
        (bytes(8) + b"\0\0\0", None),
    ],
)
def test_decoded(data: bytes, events: list[tuple[int, bytes]] | None) -> None:
    def read(start: int, end: int) -> bytes:
        return data[start:end]

    if events is None:
        with pytest.raises(ArchiveDamaged, match="'s'"):
            list(decoded(read, "s", 0, len(data), len(data)))
    else:
        assert list(decoded(read, "s", 0, len(data), len(data))) == events
