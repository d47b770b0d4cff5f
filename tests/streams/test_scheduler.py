"""Retention and scaling by whoever commits."""

import logging
from pathlib import Path

import pytest

from pravega_spark import StreamManager, StreamRetentionPolicy, StreamScalingPolicy
from pravega_spark.streams.maintenance import retention, scaling
from pravega_spark.streams.stream import Stream
from tests.support import limits


@pytest.fixture
def manager(tmp_path: Path) -> StreamManager:
    manager = StreamManager(str(tmp_path))
    manager.create_scope("sc")
    policy = StreamScalingPolicy.auto_scaling_policy_by_event_rate(1, 2, 1)
    manager.create_stream_with_policy("sc", "st", policy, StreamRetentionPolicy.by_size(30))
    return manager


def write(manager: StreamManager, count: int) -> None:
    """As so many writers, each of whose threads looks after the stream before it ends."""
    for number in range(count):
        with manager.create_writer("sc", "st") as writer:
            writer.write_event(f"{number:02d}")


def test_who_commits_lets_the_policies_act(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.no_pause_between_tasks(monkeypatch)
    monkeypatch.setattr(retention, "PERIOD", 0.0)
    monkeypatch.setattr(retention.due, "__defaults__", (None, 0.0))
    monkeypatch.setattr(retention.retain, "__defaults__", (None, 0.0, False))
    asked: list[str] = []
    monkeypatch.setattr(scaling, "scale", lambda stream: asked.append(stream.key))
    write(manager, 20)
    assert manager.stream_info("sc", "st").size == 30
    assert asked == ["sc/st"] * 20
    manager.close()


def test_it_is_looked_at_once_in_a_while(manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(scaling, "scale", lambda stream: asked.append(stream.key))
    write(manager, 20)
    assert asked == ["sc/st"]
    manager.close()


def test_what_fails_does_not_fail_the_commit(
    manager: StreamManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Stream] = []

    def failing(stream: Stream) -> None:
        seen.append(stream)
        manager.seal_stream("sc", "st")
        manager.delete_stream("sc", "st")
        manager.stream_info("sc", "st")

    monkeypatch.setattr(retention, "retain", failing)
    with caplog.at_level(logging.WARNING):
        write(manager, 1)
    assert "applying its policies failed and will be retried" in caplog.text
    assert "does not exist" in seen[0].container.failures["policies of sc/st"]
    manager.close()
