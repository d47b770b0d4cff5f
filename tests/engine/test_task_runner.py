"""Work that nobody waits for: done by threads or later, its failures kept, and an end in bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from chunkstore import StorageUnavailable
from engine.errors import ContainerOffline
from engine.task_runner import TaskRunner


@pytest.fixture
def threads() -> Iterator[TaskRunner]:
    background = TaskRunner("container 7", 2, time.monotonic)
    yield background
    background.close()


def test_nobody_waits_for_it(threads: TaskRunner) -> None:
    gate, done = threading.Event(), threading.Event()

    def work(name: str) -> None:
        assert name == "flush" and gate.wait(60)
        done.set()

    threads.start("flush", work, "flush")
    assert not threads.wait(0.0) and not done.is_set()
    gate.set()
    assert threads.wait() and done.is_set() and threads.failures == {}


def test_without_threads_it_is_done_when_somebody_says_so_and_so_is_what_it_sets_off() -> None:
    background, done = TaskRunner("container 7", 0, time.monotonic), list[str]()

    def first() -> None:
        background.start("second", done.append, "second")
        background.do_deferred()  # one at a time: this does nothing
        done.append("first")

    background.start("first", first)
    assert done == [] and background.wait()
    background.do_deferred()
    assert done == ["first", "second"] and not background.deferred


@pytest.mark.parametrize(
    ("error", "told"),
    [(StorageUnavailable("no answer"), "no answer"), (ValueError(), "ValueError()"), (ContainerOffline("closed"), "")],
)
def test_a_failure_is_kept_until_the_same_kind_succeeds(threads: TaskRunner, error: Exception, told: str) -> None:
    def fails() -> None:
        raise error

    threads.start("flush", fails)
    threads.start("checkpoint", bool)
    threads.wait()
    assert threads.failures == ({"flush": told} if told else {})
    threads.do("flush", bool)
    assert threads.failures == {}


def test_at_the_end_it_waits_for_so_long_and_then_says_that_time_is_over(threads: TaskRunner) -> None:
    assert threads.finish(0.0) and not threads.closing
    gate, steps = threading.Event(), []

    def work() -> None:
        gate.wait(60)
        while not threads.closing:
            steps.append("another step")

    threads.start("flush", work)
    assert not threads.finish(0.01) and threads.closing
    gate.set()
    threads.close()
    assert steps == []
