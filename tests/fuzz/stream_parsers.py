"""The parsers of streams, clients and commands."""

from __future__ import annotations

import base64
import gzip
import json
import random
import uuid
import zlib
from collections.abc import Callable, Sequence

import click
import numpy as np

from engine.errors import DataCorruption
from pravega_spark.client.groups.state import GroupReader, GroupSegment, GroupState, Outstanding
from pravega_spark.console.arguments import PositionType, SecondsType, StreamNameType
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.quantities import parse_seconds, parse_size, parse_time
from pravega_spark.segment_ids import segment_id
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.maintenance.recorded_cuts import decode_recorded, encode_recorded
from pravega_spark.streams.maintenance.subscribers import decode_subscriber
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import EpochRecord, StreamSegmentRecord, duplicate, replaced
from pravega_spark.streams.model.events import InvalidEvent, decode
from pravega_spark.streams.model.framing import event_column
from pravega_spark.streams.model.index import InvalidIndex, decode_records, encode_records
from pravega_spark.streams.model.names import container_of, parse_segment_name
from pravega_spark.streams.model.pointers import EventPointer
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.stream_record import (
    Ended,
    Routing,
    StreamRecord,
    decode_number,
    encode_number,
    first_epoch,
)
from pravega_spark.streams.writing.transactions import TransactionRecord
from tests.fuzz import mutators
from tests.fuzz.harness import Parser

FIRST = first_epoch(ScalingPolicy(min_segments=3), 1_700_000_000_000)
HALVES = [StreamSegmentRecord(segment_id(3 + place, 1), low, low + 1 / 6) for place, low in enumerate((0.0, 1 / 6))]
SECOND = EpochRecord(
    1, 1_700_000_001_000, replaced(FIRST.segments, [HALVES[0], HALVES[1]._replace(high=FIRST.segments[0].high)]), 1
)
EPOCHS = (FIRST, SECOND, duplicate(FIRST, 2, 1_700_000_002_000))
RECORDS = (
    StreamRecord(
        b"i" * 16,
        1_700_000_000_000,
        EPOCHS,
        head={0: 50, 1: 0, 2: 7},
        ended={5: Ended(7, (0, 2))},
        passed=57,
        tags=("a", "b"),
    ),
    StreamRecord(
        b"i" * 16, 1, (FIRST,), ScalingPolicy("events", 3, 10, 2), RetentionPolicy("time", 10, 20), sealed=True
    ),
)
CUT = StreamCut("s", "a", {0: 100, segment_id(4, 1): 7, segment_id(5, 1): -1})
KEY = f"s/a/{uuid.UUID(int=7).hex}"
TRANSACTION = TransactionRecord(
    Routing(b"i" * 16, 0, FIRST.segments), 1_700_000_000_000, 600_000, 1_700_000_000_001, 86_400_000
)
_PLACES = [GroupSegment("s/a", *segment) for segment in FIRST.segments]
GROUP = GroupState(
    ("s/a", "s/b"),
    "automatic",
    readers={"r": GroupReader("token", 7, {_PLACES[0]: 5})},
    unassigned={_PLACES[1]: 0, _PLACES[2]: 9},
    future={GroupSegment("s/b", 7, 0.0, 1.0): frozenset({5, 6})},
    starts=(StreamCut("s", "a", {0: 3}),),
    ends={_PLACES[0]: 10},
    interval=30.0,
    outstanding={"run": Outstanding("d", frozenset({"r"}), {_PLACES[1]: 0})},
    silent={"other": (StreamCut("s", "a", {0: 3}),)},
).checkpointed("c")
POINTER = EventPointer("s", "a", segment_id(4, 1), 100, 20)
EVENTS = b"".join(bytes(4) + len(event).to_bytes(4, "big") + event for event in (b"", b"abc", b"x" * 40, b"yz"))
INDEX = encode_records(np.array([[100, 2, 5, 8], [200, 4, 6, 9]]))
OPTIONS = {
    "controller": "/data", "scope": "s", "stream": "a", "start_stream_cut": "earliest", "max_bytes_per_trigger": "7",
    "ending_timestamp": "2026-01-31T12:00:00Z", "storage.token": '{"a": [1]}', "default_num_segments": "3",
    "default_scale_factor": "2", "default_segment_target_rate_bytes_per_sec": "2048", "fail_on_data_loss": "false",
    "txn_app_id": "a", "txn_version": "7", "default_retention_size_bytes": "10",
}  # fmt: skip


def _text(data: bytes) -> str:
    """As text comes from a command line: what is not UTF-8 becomes surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _stream(data: bytes) -> None:
    record = StreamRecord.decode(data, 7, "s/a")
    record.encode()
    record.routing  # noqa: B018
    history = record.history
    history.problem(record.head_positions())
    for number in record.segment_ids():
        history.successors(number)
        history.predecessors(number)


def _group(data: bytes) -> None:
    state = GroupState.decode(data, "s/g")
    state.encode()
    state.checkpointed("other")


def _cut(cut: StreamCut) -> None:
    assert StreamCut.from_text(cut.as_text()) == cut
    assert StreamCut.from_bytes(cut.to_bytes()) == cut
    str(cut).encode()


def _cut_text(plain: bytes) -> None:
    """A cut's text that unpacks to these bytes."""
    _cut(StreamCut.from_text(base64.b64encode(gzip.compress(plain, mtime=0)).decode()))


def _events(data: bytes) -> None:
    starts, lengths = decode(data, np.array([0]), len(data), 0)
    event_column(data, starts, lengths)


def _options(data: bytes) -> None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError("no options") from error
    given = found if isinstance(found, dict) else {}
    SourceOptions.parse({str(key): value if isinstance(value, str) else str(value) for key, value in given.items()}, {})


def _argument(kind: click.ParamType) -> Callable[[bytes], object]:
    return lambda data: kind.convert(_text(data), None, None)


def _segment_name(data: bytes) -> None:
    name = parse_segment_name(_text(data))
    container_of(f"{name.scope}/{name.stream}", 4)


def _of_plain(dice: random.Random, samples: Sequence[bytes]) -> bytes:
    if dice.random() < 0.01:
        return samples[0] + dice.choice((b",", b",0", b":", b"0,")) * 3000
    return mutators.of_bytes(dice, samples)


_CORRUPT = (DataCorruption,)
_PLAIN_CUT = zlib.decompress(base64.b64decode(CUT.as_text()), 31)
_PLACES_OF = [b"head", CUT.as_text().encode(), b"2026-01-31T12:00:00Z", b"1700000000000", b"9999-12-31T23:59:59-10:00"]

PARSERS = [
    Parser("stream-records", _stream, [record.encode() for record in RECORDS], _CORRUPT, mutators.of_msgpack),
    Parser("stream-records-bytes", _stream, [record.encode() for record in RECORDS], _CORRUPT),
    Parser("numbers", lambda data: decode_number(data, "s/a"), [encode_number(7)], _CORRUPT, mutators.of_msgpack),
    Parser(
        "transactions",
        lambda data: TransactionRecord.decode(data, 3, KEY).encode(),
        [TRANSACTION.encode()],
        _CORRUPT,
        mutators.of_msgpack,
    ),
    Parser(
        "transaction-keys",
        lambda data: TransactionRecord.decode(TRANSACTION.encode(), 3, _text(data)),
        [KEY.encode()],
        _CORRUPT,
    ),
    Parser(
        "recorded-cuts",
        lambda data: _cut(decode_recorded(data, "s", "a", "s/a/recorded")),
        [encode_recorded({0: 100, 7: 5})],
        _CORRUPT,
        mutators.of_msgpack,
    ),
    Parser("subscribers", lambda data: decode_subscriber(data, "s/a/g"), [CUT.to_bytes()], _CORRUPT),
    Parser("reader-groups", _group, [GROUP.encode()], _CORRUPT, mutators.of_msgpack),
    Parser("reader-groups-bytes", _group, [GROUP.encode()], _CORRUPT),
    Parser("cuts-bytes", lambda data: _cut(StreamCut.from_bytes(data)), [CUT.to_bytes()], (InvalidStreamCut,)),
    Parser(
        "cuts-text", lambda data: _cut(StreamCut.from_text(_text(data))), [CUT.as_text().encode()], (InvalidStreamCut,)
    ),
    Parser("cuts-plain", _cut_text, [_PLAIN_CUT], (InvalidStreamCut,), _of_plain),
    Parser(
        "pointers-bytes",
        lambda data: EventPointer.from_bytes(data).as_text().encode(),
        [POINTER.to_bytes()],
        (ValueError,),
    ),
    Parser(
        "pointers-text",
        lambda data: EventPointer.from_text(_text(data)).to_bytes(),
        [POINTER.as_text().encode()],
        (ValueError,),
    ),
    Parser("events", _events, [EVENTS], (InvalidEvent,)),
    Parser("index-records", decode_records, [INDEX], (InvalidIndex,)),
    Parser("segment-names", _segment_name, [b"s/a/4.#epoch.1", b"s/a/0#index", b"s/a/0"][::2], (ValueError,)),
    Parser("source-options", _options, [json.dumps(OPTIONS).encode()], (ValueError,), mutators.of_json),
    Parser("arguments-stream", _argument(StreamNameType()), [b"scope/stream"], (click.UsageError,)),
    Parser("arguments-seconds", _argument(SecondsType()), [b"86400", b"inf", b"1e9"][::2], (click.UsageError,)),
    Parser("arguments-place", _argument(PositionType()), _PLACES_OF[:4], (click.UsageError,)),
    Parser(
        "times",
        lambda data: parse_time(_text(data)),
        [*_PLACES_OF[2:], b"2026-01-31T12:00 Europe/Berlin"],
        (ValueError,),
    ),
    Parser("durations", lambda data: parse_seconds(_text(data)), [b"1h30m", b"7 days"], (ValueError,)),
    Parser("sizes", lambda data: parse_size(_text(data)), [b"10MiB", b"1.5 GB"], (ValueError,)),
]
