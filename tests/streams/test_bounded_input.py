"""Numbers and names that users give, or that lie in a root, have bounds: what is beyond is refused with a message, and
costs neither time nor memory."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkstore import StorageRefused, open_store
from chunkstore.paths import ROOT
from engine import settings
from engine.root import Root, RootConfig, checksum
from pravega_spark import StreamCut, StreamManager
from pravega_spark.errors import InvalidStreamCut, RecordTooLarge, TooManySegments
from pravega_spark.source.opening import open_stream
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.catalog import Catalog
from pravega_spark.streams.maintenance.scaling import Load, decide
from pravega_spark.streams.model import cuts
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.model.stream_record import StreamRecord, check_segments
from pravega_spark.streams.writing.producer_state import ProducerWrite

HUGE = 2**31 - 1
MiB = 1 << 20


def text_of(plain: str) -> str:
    """A cut's text that unpacks to this."""
    return base64.b64encode(gzip.compress(plain.encode(), mtime=0)).decode()


def peak(attempt: Callable[[], object]) -> int:
    """The most memory that was allocated meanwhile, bytes."""
    tracemalloc.start()
    try:
        attempt()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(tmp_path / "root") as manager:
        manager.create_scope("s")
        yield manager


def limited(tmp_path: Path, limit: int) -> StreamManager:
    manager = StreamManager.over(Root.open(str(tmp_path / "limited"), containers=1, max_segments=limit))
    manager.create_scope("s")
    return manager


# --- segments -----------------------------------------------------------------------------------------------------


def test_a_stream_of_too_many_segments_is_refused_at_once(manager: StreamManager) -> None:
    def attempt() -> None:
        with pytest.raises(TooManySegments, match=r"2147483647 segments: the root's limit is 10000"):
            manager.create_stream("s", "a", HUGE)

    assert peak(attempt) < MiB
    assert manager.create_stream("s", "b", 10) is not None
    with pytest.raises(TooManySegments, match="s/b"):
        manager.update_stream_with_policy("s", "b", ScalingPolicy("bytes", 10_001, 10, 2))
    with pytest.raises(TooManySegments, match="s/a"):
        manager.create_stream("s", "a", 10_001)


def test_so_does_the_option_of_the_data_source(tmp_path: Path) -> None:
    given = {"controller": str(tmp_path), "scope": "s", "stream": "a", "default_num_segments": str(HUGE)}
    with pytest.raises(TooManySegments, match=r"s/a .* limit is 10000 .* 'max_segments'"):
        open_stream(SourceOptions.parse(given, {}), "write")


def test_the_limit_is_a_setting_of_the_root_and_holds_for_scaling(tmp_path: Path) -> None:
    with limited(tmp_path, 4) as manager:
        manager.create_stream("s", "a", 4)
        info = manager.stream_info("s", "a")
        first = info.segments[0]
        middle = (first.low + first.high) / 2
        with pytest.raises(TooManySegments, match="s/a cannot have 5 segments: the root's limit is 4"):
            manager.scale_stream("s", "a", [first.id], [(first.low, middle), (middle, first.high)])
        assert manager.stream_info("s", "a").segments == info.segments
        with pytest.raises(TooManySegments):
            manager.create_stream("s", "b", 5)


def test_a_stream_scales_by_itself_up_to_the_limit() -> None:
    policy = ScalingPolicy("events", 1, 1, HUGE)
    hot = StreamRecord(b"i" * 16, 0, (roots_of(3),)).current.segments
    found = [Load(segment, 10**9, (1e9, 1e9, 1e9, 1e9)) for segment in hot]
    scaling = decide(policy, found, most=10)
    assert scaling is not None and 3 - len(scaling.sealed) + len(scaling.ranges) == 10
    assert decide(policy, found, most=3) is None


def roots_of(segments: int) -> Any:
    from pravega_spark.streams.model.stream_record import first_epoch

    return first_epoch(ScalingPolicy(min_segments=segments), 0)


def test_a_record_that_is_too_large_names_its_stream() -> None:
    record = StreamRecord(b"i" * 16, 0, (roots_of(50_000),))
    with pytest.raises(RecordTooLarge, match=r"Stream s/a: its record would have \d+ bytes, more than the limit of"):
        record.checked("s/a")


def test_the_errors_can_be_pickled() -> None:
    for error in (TooManySegments("s/a", 7, 5), RecordTooLarge("s/a", 7, 5)):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_the_most_that_a_root_may_allow_is_what_a_cut_can_name() -> None:
    assert settings.MAX_SEGMENTS == cuts.MAX_SEGMENTS
    check_segments("s/a", 5, 5)


# --- cuts ---------------------------------------------------------------------------------------------------------


def test_a_short_text_of_a_cut_costs_little() -> None:
    """Before, 39 KB of text made lists of five million numbers: 944 MB."""
    many = ",".join(["0"] * 5_000_000)
    bombs = [text_of(f"0:s/a:{many}:{many}:{many}"), text_of(f"0:s/a:{many}:0:0"), text_of("0:s/a:" + "," * 3_000_000)]

    def attempt() -> None:
        for bomb in bombs:
            assert len(bomb) < 60_000
            with pytest.raises(InvalidStreamCut):
                StreamCut.from_text(bomb)

    assert peak(attempt) < 32 * MiB


def test_a_cut_of_more_segments_than_there_can_be_is_refused_before_it_is_made() -> None:
    numbers = ",".join(["1"] * (cuts.MAX_SEGMENTS + 1))
    with pytest.raises(InvalidStreamCut, match=r"The stream cut has 100001 segments; the limit is 100000"):
        StreamCut.from_text(text_of(f"0:s/a:{numbers}:{numbers}:{numbers}"))
    with pytest.raises(InvalidStreamCut, match="characters"):
        StreamCut.from_text("A" * (cuts.LONGEST_TEXT + 1))


# --- what a root says of itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("containers", 10**9), ("containers", 0), ("containers", True), ("containers", 4.0), ("max_segments", 10**6),
        ("max_segments", None), ("grace_seconds", 0), ("grace_seconds", 1e300), ("grace_seconds", "600"),
        ("garbage_delay_seconds", -1), ("transient_idle_seconds", True), ("wal", 7), ("id", 7),
    ],
)  # fmt: skip
def test_a_root_with_numbers_that_cannot_be_is_refused(tmp_path: Path, name: str, value: object) -> None:
    with Root.open(str(tmp_path)):
        pass
    store = open_store(str(tmp_path))
    fields = json.loads(store.read(ROOT))
    fields[name] = value
    del fields["checksum"]
    store.put(ROOT, json.dumps({**fields, "checksum": checksum(fields)}).encode())
    with pytest.raises(StorageRefused, match=rf"{ROOT} does not describe a root of streams: .*{name}="):
        Root.open(str(tmp_path))


def test_deep_json_and_constants_are_no_description() -> None:
    for data in (b"[" * 100_000, b'{"a":' * 100_000, b'{"format": NaN}', b"\xff", b"7"):
        with pytest.raises(StorageRefused, match="does not describe a root of streams"):
            RootConfig.from_bytes(data, "memory://root")


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300])
def test_times_that_do_not_end_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"grace_seconds=.* is not a number of seconds"):
        RootConfig("0", grace_seconds=seconds)


# --- names --------------------------------------------------------------------------------------------------------

HALF = "a\ud800"


def test_half_of_a_surrogate_pair_is_refused_by_name_and_stops_nothing(manager: StreamManager) -> None:
    manager.create_stream("s", "a")
    container = Catalog(manager.root).stream("s", "a").container
    group = manager.create_reader_group("g", "s", "a")
    attempts: dict[str, Callable[[], object]] = {
        "CreateSegment: segment:": lambda: container.create_segment(f"s/{HALF}"),
        "PutEntry: table:": lambda: container.put_entries(HALF, {"a": b""}),
        "PutEntry: key:": lambda: container.put_entries("t", {HALF: b""}),
        "tag": lambda: manager.create_stream_with_policy("s", "b", tags=[HALF]),
        "reader": lambda: group.create_reader(HALF),
        "checkpoint": lambda: group.checkpoint(HALF),
        "writer": lambda: Catalog(manager.root).stream("s", "a").write([], ProducerWrite(HALF, 1)),
    }
    for what, attempt in attempts.items():
        with pytest.raises(ValueError, match=rf"^(\w+: )*{what} '(s/)?a\\ud800' is not valid Unicode text"):
            attempt()
    with manager.create_writer("s", "a") as writer:
        writer.write_event("still alive")
