"""Policies and tags are checked where they are made, whoever makes them; what upkeep meets stops nobody."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgpack
import pytest

from engine.errors import DataCorruption
from engine.logs.processor import INLINE_BYTES
from engine.root import Root
from engine.settings import Settings
from pravega_spark import StreamRetentionPolicy, StreamScalingPolicy
from pravega_spark.client.manager import StreamManager
from pravega_spark.jobs import work
from pravega_spark.jobs.outcome import JobOutcome
from pravega_spark.jobs.spread import over_named
from pravega_spark.source.options import SourceOptions
from pravega_spark.streams.maintenance import retention, scaling
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.stream_record import StreamRecord, first_epoch
from pravega_spark.streams.stream import Stream
from tests.support import limits

RATE = ScalingPolicy.auto_scaling_policy_by_event_rate(1, 2, 1)


@pytest.fixture
def root() -> Iterator[Root]:
    settings = Settings(maintenance=False, threaded=False)
    with Root.open(f"memory://{uuid.uuid4()}", settings=settings, containers=2) as opened:
        yield opened


@pytest.fixture
def manager(root: Root) -> StreamManager:
    manager = StreamManager.over(root)
    manager.create_scope("sc")
    manager.create_stream("sc", "st")
    return manager


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("bytes", 1, 0, 2), "target_rate of a scaling policy of kind 'bytes'.* from 1 .* not 0"),
        (("events", 1, 0, 2), "target_rate"),
        (("events", 1, -5, 2), "target_rate.* not -5"),
        (("bytes", 1, 10, 0), "scale_factor.* from 1 .* not 0"),
        (("bytes", 1, 10, -1), "scale_factor"),
        (("events", 1, 1.5, 2), r"target_rate.* whole number .* not 1\.5"),
        (("events", 1, float("nan"), 2), "not nan"),
        (("events", 1, True, 2), "not True"),
        (("events", 1, "5", 2), "not '5'"),
        (("events", 1, 1 << 31, 2), "target_rate"),
        (("events", 0, 5, 2), "min_segments"),
        (("fixed", 0), "min_segments.* from 1 .* not 0"),
        (("fixed", -1), "min_segments"),
        (("fixed", 1, 5, 0), "target_rate of a scaling policy of kind 'fixed' must be 0, not 5"),
        (("rate", 1, 5, 2), "'fixed', 'bytes' or 'events', not 'rate'"),
    ],
)
def test_scaling_policies_that_make_no_sense(fields: tuple[Any, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ScalingPolicy(*fields)
    kind, segments, *rest = fields
    makers: dict[str, Callable[..., ScalingPolicy]] = {
        "bytes": ScalingPolicy.auto_scaling_policy_by_data_rate,
        "events": ScalingPolicy.auto_scaling_policy_by_event_rate,
    }
    if kind in makers:
        parameter = {"target_rate": "target_.*_per_sec", "min_segments": "initial_segments"}
        for field, name in parameter.items():
            told = told.replace(f"{field} of a scaling policy of kind 'bytes'", name).replace(field, name)
        told = told.replace("whole number .* ", ".*")
        with pytest.raises((ValueError, TypeError), match=told):
            makers[kind](*rest, segments)


@pytest.mark.parametrize(
    "fields",
    [("size", -1), ("size", 1.5), ("time", None), ("size", 10, 9), ("size", 1 << 63), ("size", 1, 1 << 63), ("no", 1)],
)
def test_retention_policies_that_make_no_sense(fields: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="retention policy"):
        RetentionPolicy(*fields)


def test_a_policy_says_what_it_was_made_with() -> None:
    made = StreamScalingPolicy.auto_scaling_policy_by_data_rate(100, 3, 2)
    assert (made.kind, made.target_rate, made.scale_factor, made.min_segments) == ("bytes", 100, 3, 2)
    made = StreamScalingPolicy.auto_scaling_policy_by_event_rate(7, 4, 1)
    assert (made.kind, made.target_rate, made.scale_factor, made.min_segments) == ("events", 7, 4, 1)
    assert StreamScalingPolicy.fixed_scaling_policy(5).min_segments == 5
    kept = StreamRetentionPolicy.by_time("1h", "1d")
    assert (kept.kind, kept.limit, kept.maximum) == ("time", 3_600_000, 86_400_000)
    assert StreamRetentionPolicy.by_size(10).maximum is None and StreamRetentionPolicy.none() is None


def test_a_stream_is_created_with_policies_by_name(manager: StreamManager) -> None:
    scaling = StreamScalingPolicy.fixed_scaling_policy(3)
    kept = StreamRetentionPolicy.by_size("1MiB")
    created = manager.create_stream_with_policy(
        scope_name="sc", stream_name="named", scaling_policy=scaling, retention_policy=kept, tags=["a"]
    )
    assert created and len(manager.stream_info("sc", "named").segments) == 3
    assert manager.get_stream_tags("sc", "named") == ["a"]
    record = Stream(manager.root, "sc", "named").snapshot().record
    assert (record.scaling, record.retention) == (scaling, kept)


def test_policies_that_make_no_sense_in_storage() -> None:
    policy = ScalingPolicy.fixed_scaling_policy(1)
    fields = msgpack.unpackb(StreamRecord(b"i" * 16, 1, (first_epoch(policy, 1),)).encode(), strict_map_key=False)
    for scaling_fields in (["events", 1, 0, 2], ["bytes", 1, 5, 0], ["fixed", 0, 0, 0]):
        with pytest.raises(DataCorruption, match=r"stream sc/st: its record.* of a scaling policy"):
            StreamRecord.decode(msgpack.packb(fields | {"scaling": scaling_fields}), 1, "sc/st")


@pytest.mark.parametrize(
    "given",
    [
        {"default_segment_target_rate_bytes_per_sec": "1023"},
        {"default_segment_target_rate_events_per_sec": "0"},
        {"default_segment_target_rate_events_per_sec": "-1"},
        {"default_segment_target_rate_events_per_sec": str(1 << 31)},
        {"default_scale_factor": "0"},
        {"default_num_segments": "0"},
    ],
)
def test_options_that_make_no_sense(given: dict[str, str]) -> None:
    whole = {"controller": "/tmp/x", "scope": "s", "stream": "t"}
    whole |= {"default_num_segments": "1", "default_scale_factor": "2"}
    with pytest.raises(ValueError, match=r"should|needs to|whole number"):
        SourceOptions.parse({**whole, **given}, {})


def test_tags(manager: StreamManager) -> None:
    many, long = [str(number) for number in range(127)], "x" * 255
    manager.create_stream_with_policy("sc", "tagged", tags=many)
    manager.update_stream_with_policy("sc", "tagged", tags=[*many[1:], long])
    assert manager.get_stream_tags("sc", "tagged") == [*many[1:], long]
    manager.set_tags("sc", "tagged", ["b", "a", "b", *many[:125], "a"])
    assert manager.get_stream_tags("sc", "tagged") == ["b", "a", *many[:125]], "each is kept once"
    manager.create_stream_with_policy("sc", "again", tags=["a", "a"])
    assert manager.get_stream_tags("sc", "again") == ["a"]
    manager.set_tags("sc", "tagged", [*many[1:], long])
    too_many, too_long = ([*many, long], "127 tags at most, not 128"), (["x" * 256], "at most 255 characters")
    for tags, told in (too_many, too_long, ([7], "tags must be a Sequence of str")):
        with pytest.raises((TypeError, ValueError), match=told):
            manager.create_stream_with_policy("sc", "another", tags=tags)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match=told):
            manager.update_stream_with_policy("sc", "tagged", tags=tags)  # type: ignore[arg-type]
    assert manager.get_stream_tags("sc", "tagged") == [*many[1:], long]
    assert "another" not in manager.list_stream("sc")


# --- upkeep ------------------------------------------------------------------------------------------------------


def failing(*_: object, **__: object) -> None:
    raise ZeroDivisionError("what nobody has thought of")


def test_what_upkeep_meets_does_not_stop_a_writer(
    manager: StreamManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits.no_pause_between_tasks(monkeypatch)
    monkeypatch.setattr(scaling, "decide", failing)
    monkeypatch.setattr(scaling, "COOL_DOWN", -1)
    manager.update_stream_with_policy("sc", "st", RATE)
    for number in range(3):
        with manager.create_writer("sc", "st") as writer:  # its thread looks after the stream before it ends
            writer.write_event(f"{number}")
    assert manager.stream_info("sc", "st").events == 3
    logged = [record for record in caplog.records if "sc/st: applying its policies failed" in record.getMessage()]
    assert len(logged) == 3
    assert all(record.levelno == logging.ERROR and record.exc_info is not None for record in logged)


def test_whatever_ends_the_thread_of_a_writer_is_told(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not taken for a fork."""
    monkeypatch.setattr(Stream, "write", failing)
    writer = manager.create_writer("sc", "st")
    writer.write_event("a")
    with pytest.raises(Exception, match="what nobody has thought of"):
        writer.flush()

    class Ended(BaseException):
        pass

    def end(*_: object, **__: object) -> None:
        raise Ended("the thread was ended")

    monkeypatch.setattr(Stream, "write", end)
    writer = manager.create_writer("sc", "st")
    writer.write_event("a" * (INLINE_BYTES + 1))  # it is the thread that appends this
    with pytest.raises(Exception, match="the thread was ended"):
        writer.flush()


def test_what_fails_for_one_stream_does_not_keep_a_job_from_the_others(
    manager: StreamManager, root: Root, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    retain = retention.retain

    def some_fail(stream: Stream, **more: Any) -> object:
        if stream.name == "b":
            failing()
        return retain(stream, **more)

    monkeypatch.setattr(retention, "retain", some_fail)
    for name in "abc":
        manager.create_stream_with_policy("sc", name, None, RetentionPolicy.by_size(0))
    found = list(
        over_named(
            root, [("sc", name) for name in "abc"], {"retention": partial(work.retain, dry_run=False, period=0.0)}
        )
    )
    assert [(done.stream, done.error is None) for done in found] == [("a", True), ("b", False), ("c", True)]
    assert (found[1].step, found[1].error) == ("retention", "ZeroDivisionError('what nobody has thought of')")
    assert "failed unexpectedly" in caplog.text


def test_a_stream_that_is_deleted_under_a_job_fails_it_only_where_it_was_named(
    manager: StreamManager, root: Root
) -> None:
    for name in "ab":
        manager.create_stream("sc", name)

    def deleting(stream: Stream) -> JobOutcome:
        if stream.name == "a":
            stream.seal()
            stream.delete()
        return work.scale(stream, dry_run=False)

    found = [("sc", name) for name in "ab"]
    assert [done.stream for done in over_named(root, found, {"scaling": deleting})] == ["b"]
    [failed] = over_named(root, found[:1], {"scaling": deleting}, missing=True)
    assert failed.step == "scaling" and "does not exist" in str(failed.error)
