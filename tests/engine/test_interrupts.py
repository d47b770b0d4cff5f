"""Ctrl-C while the main thread does what must not stop half-way."""

from __future__ import annotations

import signal
import threading

import pytest

from engine.interrupts import uninterrupted
from tests.engine.forks import in_child


def strike() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_is_raised_when_the_work_is_done() -> None:
    done: list[str] = []

    def work() -> None:
        uninterrupted(strike)  # within it as well
        done.append("first half")
        done.append("second half")

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert done == ["first half", "second half"]
    with pytest.raises(KeyboardInterrupt):
        strike()


def test_the_second_is_raised_at_once() -> None:
    done: list[str] = []

    def work() -> None:
        strike()
        done.append("once")
        strike()
        done.append("twice")

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert done == ["once"]


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1])
def test_every_signal_is_put_off_and_raised_when_the_work_is_done(number: signal.Signals) -> None:
    """Also if another one strikes meanwhile; each handler hears of its own."""
    heard, done = list[int](), list[str]()

    def handler(number: int, frame: object) -> None:
        heard.append(number)
        raise TimeoutError("the time is over")

    def work() -> None:
        signal.raise_signal(number)
        strike()
        done.append("all")

    usual = signal.signal(number, handler)
    try:
        with pytest.raises((TimeoutError, KeyboardInterrupt)) as raised:
            uninterrupted(work)
        assert done == ["all"] and heard == [number]
        assert {type(raised.value), type(raised.value.__context__)} == {TimeoutError, KeyboardInterrupt}
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, usual)
    with pytest.raises(KeyboardInterrupt):
        strike()


def test_work_that_does_not_end_is_torn_out_by_the_first_one() -> None:
    never, ended = threading.Lock(), list[str]()
    never.acquire()

    def work() -> None:
        strike()
        never.acquire(timeout=30)
        ended.append("by itself")

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert not ended


def test_other_threads_and_other_handlers_are_left_alone() -> None:
    usual = signal.getsignal(signal.SIGINT)
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(uninterrupted(lambda: signal.getsignal(signal.SIGINT))))
    thread.start()
    thread.join()
    assert seen == [usual]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert uninterrupted(lambda: signal.getsignal(signal.SIGINT)) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, usual)
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 // 0)
    assert signal.getsignal(signal.SIGINT) is usual


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_meanwhile_hears_the_first_one() -> None:
    """It is another thread that forks, and its main thread in the fork: nobody is at work there."""
    told: list[object] = []

    def work() -> None:
        thread = threading.Thread(target=lambda: told.append(in_child(strike)))
        thread.start()
        thread.join()

    uninterrupted(work)
    assert isinstance(told[0], KeyboardInterrupt)
