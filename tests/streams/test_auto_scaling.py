"""Automatic scaling: what is decided about given loads, and what that makes of a stream."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from chunkstore.testing import SimulatedStore
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark.streams.maintenance.scaling import WINDOWS, Load, Scaling, decide, loads, scale
from pravega_spark.streams.model.epochs import StreamSegmentRecord
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.writes import SegmentAppend
from tests.streams.test_stream import beforehand

MINUTE = 60_000
POLICY = ScalingPolicy.auto_scaling_policy_by_event_rate(100, 4, 1)


def load(low: float, high: float, number: int, age: float, *rates: float) -> Load:
    """Rates over the last 2, 5, 10 and 20 minutes; one is for all."""
    return Load(StreamSegmentRecord(number, low, high), int(age * MINUTE), rates * 4 if len(rates) == 1 else rates)


@pytest.mark.parametrize(
    ("age", "rates", "parts"),
    [
        pytest.param(11, (501, 0, 0, 0), 4, id="over 5 times for 2 minutes"),
        pytest.param(11, (500, 0, 0, 0), 1, id="not over 5 times"),
        pytest.param(11, (0, 201, 0, 0), 2, id="over twice for 5 minutes"),
        pytest.param(11, (0, 200, 0, 0), 1, id="not over twice"),
        pytest.param(11, (0, 0, 101, 0), 2, id="over for 10 minutes"),
        pytest.param(11, (0, 0, 100, 0), 1, id="not over"),
        pytest.param(11, (0, 0, 0, 9999), 1, id="20 minutes do not count"),
        pytest.param(10, (9999, 9999, 9999, 9999), 1, id="cooling down"),
        pytest.param(11, (0, 350, 0, 0), 3, id="three times"),
        pytest.param(11, (90_000, 0, 0, 0), 4, id="no more than the factor"),
    ],
)
def test_splits(age: float, rates: tuple[float, ...], parts: int) -> None:
    found = decide(POLICY, [load(0.0, 1.0, 7, age, *rates)])
    if parts == 1:
        assert found is None
        return
    assert found is not None and found.sealed == (7,)
    assert len(found.ranges) == parts and found.ranges[0][0] == 0.0 and found.ranges[-1][1] == 1.0
    assert all(one[1] == other[0] for one, other in zip(found.ranges[:-1], found.ranges[1:], strict=True))


@pytest.mark.parametrize(
    ("found", "least", "expected"),
    [
        pytest.param([load(0.0, 0.5, 1, 21, 1), load(0.5, 1.0, 2, 21, 1)], 1, Scaling((1, 2), ((0.0, 1.0),)), id="two"),
        pytest.param([load(0.0, 0.5, 1, 21, 1), load(0.5, 1.0, 2, 21, 1)], 2, None, id="no fewer than the minimum"),
        pytest.param([load(0.0, 0.5, 1, 20, 1), load(0.5, 1.0, 2, 21, 1)], 1, None, id="too young"),
        pytest.param([load(0.0, 0.5, 1, 21, 1, 1, 1, 50), load(0.5, 1.0, 2, 21, 1)], 1, None, id="20 minutes: half"),
        pytest.param(
            [load(n / 5, (n + 1) / 5, n, 30, 0) for n in range(5)],
            1,
            Scaling((0, 1, 2, 3, 4), ((0.0, 3 / 5), (3 / 5, 1.0))),
            id="three at most",
        ),
        pytest.param(
            [load(n / 5, (n + 1) / 5, n, 30, 0) for n in range(5)],
            4,
            Scaling((0, 1), ((0.0, 2 / 5),)),
            id="as many as may go",
        ),
        pytest.param(
            [load(0.0, 0.2, 0, 30, 0), load(0.2, 0.4, 1, 30, 300), load(0.4, 0.7, 2, 30, 0), load(0.7, 1.0, 3, 30, 0)],
            1,
            Scaling((1, 2, 3), ((0.2, 0.2 + (0.4 - 0.2) / 3), (0.2 + (0.4 - 0.2) / 3, 0.2 + 2 * ((0.4 - 0.2) / 3)),
                                (0.2 + 2 * ((0.4 - 0.2) / 3), 0.4), (0.4, 1.0))),
            id="hot and cold ones together",
        ),
    ],
)  # fmt: skip
def test_merges(found: Sequence[Load], least: int, expected: Scaling | None) -> None:
    assert decide(ScalingPolicy.auto_scaling_policy_by_event_rate(100, 4, least), found) == expected


@pytest.mark.parametrize("rate", [101, 301, 90_000])
def test_the_parts_of_a_segment_end_exactly_where_it_does(rate: int) -> None:
    """Whatever rounding does: else the scale would be refused, as it left out some keys."""
    for number in range(169):
        low, high = number / 169, (number + 1) / 169
        found = decide(POLICY, [load(low, high, 7, 11, rate)])
        assert found is not None and (found.ranges[0][0], found.ranges[-1][1]) == (low, high)


def test_a_fixed_number_of_segments_stays() -> None:
    assert decide(ScalingPolicy(), [load(0.0, 1.0, 0, 100, 99999)]) is None


def stream_with(policy: ScalingPolicy) -> Stream:
    store = SimulatedStore(0)
    root = Root(Stores(store, store), RootConfig("root", containers=1), Settings(maintenance=False, threaded=False))
    stream = Stream(root, "sc", "st")
    stream.create(policy)
    return stream


def write(stream: Stream, segment: int, events: int, moment: int) -> None:
    framed = frame_column(pa.array([b"." * 1016] * events, pa.binary()), None, 1)
    records = sparse_records(framed.lengths, moment)
    stream.write([SegmentAppend(segment, Payload(framed.data.to_pybytes()), records, events)])


@pytest.mark.parametrize("kind", ["events", "bytes"])
def test_a_stream_is_scaled_by_what_was_written(kind: str) -> None:
    by_events = kind == "events"
    policy = (
        ScalingPolicy.auto_scaling_policy_by_event_rate(1, 8, 2)
        if by_events
        else ScalingPolicy.auto_scaling_policy_by_data_rate(1, 8, 2)
    )
    stream = stream_with(policy)
    record = stream.snapshot().record
    begun, (low, high) = record.current.created, record.current.segments
    for minute in range(1, 12):  # 3 events of 1 KiB per second to the one, none to the other
        write(stream, low.id, 180, begun + minute * MINUTE)
    now = begun + 11 * MINUTE
    found = loads(stream.snapshot(), now)
    assert found[0].over(2) == pytest.approx(3 * 3 / 2) and found[0].over(5) == pytest.approx(3 * 6 / 5)
    assert found[1].rates == (0.0,) * len(WINDOWS)
    assert scale(stream, begun + 10 * MINUTE) is None
    done = scale(stream, now)
    assert done is not None and done.sealed == (low.id,) and len(done.ranges) == 4
    current = stream.snapshot().record.current
    assert len(current.segments) == 5 and current.segments[-1] == high
    later = current.created + 31 * MINUTE
    merged = scale(stream, later)
    assert merged is not None and len(stream.snapshot().record.current.segments) == 2
    assert scale(stream, later) is None


def test_loads_of_an_epoch_that_is_over_scale_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has scaled, though another segment, since they were looked at."""
    stream = stream_with(ScalingPolicy.auto_scaling_policy_by_event_rate(1, 8, 2))
    other = Stream(
        Root(stream.root.stores, stream.root.config, Settings(maintenance=False, threaded=False)), "sc", "st"
    )
    start = stream.snapshot().record.current.created
    for minute in range(12):
        write(stream, 0, 1000, start + minute * MINUTE)
    beforehand(stream, monkeypatch, lambda: other.scale([1], [(0.5, 0.75), (0.75, 1.0)]))
    assert scale(stream, start + 12 * MINUTE) is None
    assert stream.snapshot().record.current.epoch == 1
