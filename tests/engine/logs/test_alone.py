"""Who commits while nobody else is at work does it all; who waits in company is woken, whoever leaves."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from chunkstore import open_store
from chunkstore.wrapping import Request, Result, WrappingStore
from engine.containers.container import Container
from engine.errors import BadOffset, OutcomeUnknown
from engine.logs.transaction import Transaction, wake_next
from engine.settings import Settings
from engine.state.operations import Append, Payload
from engine.storage.object_reads import Stores

S = "s"


class Putting(WrappingStore):
    """Calls `meanwhile` before each frame is put, and notes in which threads they are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(str(folder)))
        self.threads: list[str] = []
        self.meanwhile: Callable[[], object] | None = None

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb == "put_if_absent" and "/wal/" in request.paths[0]:
            self.threads.append(threading.current_thread().name)
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
        return call()


def opened(store: Putting, **settings: float) -> Container:
    return Container(Stores(store, store), 0, Settings(maintenance=False, **settings))  # type: ignore[arg-type]


def test_frames_are_put_by_who_commits(tmp_path: Path) -> None:
    store = Putting(tmp_path)
    with opened(store) as container:
        container.create_segment(S)
        for _ in range(5):
            container.append(S, b"x")
    assert set(store.threads) == {threading.current_thread().name} and len(store.threads) == 6


def test_frames_of_a_remote_storage_are_put_by_other_threads(tmp_path: Path) -> None:
    store = Putting(tmp_path)
    store.remote = True
    with opened(store) as container:
        container.create_segment(S)
    assert threading.current_thread().name not in store.threads


def test_who_is_called_back_may_ask_the_future_for_its_outcome(tmp_path: Path) -> None:
    """Callbacks come before those who wait are let go: one that waited would wait for itself."""
    told: list[object] = []
    with opened(Putting(tmp_path)) as container:
        container.create_segment(S)
        for offset in (0, 7):  # the second one is refused
            future = container.submit([Append(S, Payload(b"x"), offset)])
            future.add_done_callback(lambda done: told.append(done.exception() or done.result().results))
            wait([future], 30)
        container.append(S, b"y")
    assert told[0] == [0] and isinstance(told[1], BadOffset)


def test_what_comes_meanwhile_leaves_when_it_is_done(tmp_path: Path) -> None:
    """Though who was alone does not make the frames of others."""
    store = Putting(tmp_path)
    with opened(store) as container, ThreadPoolExecutor(8) as pool:
        container.create_segment(S)
        futures: list[Future[int]] = []

        def others() -> None:
            futures.extend(pool.submit(container.append, S, b"y") for _ in range(8))
            while len(container.log.processor.pending()) < 9:
                time.sleep(0.001)

        store.meanwhile = others
        container.append(S, b"x")
        assert sorted(future.result(30) for future in futures) == list(range(1, 9))
        assert container.info(S).length == 9


def test_ctrl_c_leaves_the_container_as_it_is(tmp_path: Path) -> None:
    store = Putting(tmp_path)
    with opened(store) as container:
        container.create_segment(S)
        store.meanwhile = lambda: signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            container.append(S, b"x")
        assert not container.offline and container.append(S, b"y") == 1


def test_closing_waits_for_who_is_at_work(tmp_path: Path) -> None:
    store = Putting(tmp_path)
    container = opened(store)
    container.create_segment(S)
    begun, go = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go.wait(30)

    with ThreadPoolExecutor(2) as pool:
        store.meanwhile = hold
        appended = pool.submit(container.append, S, b"x")
        assert begun.wait(30)
        closed = pool.submit(container.close)
        time.sleep(0.05)
        assert not closed.done()
        go.set()
        assert appended.result(30) == 0
        closed.result(30)
    with opened(Putting(tmp_path)) as fresh:
        assert fresh.info(S).length == 1


def test_who_wants_to_read_is_not_kept_out_by_who_commits_one_after_the_other(tmp_path: Path) -> None:
    """Between two commits the log is free for an instant only: nobody else would be awake in time to take it."""
    store = Putting(tmp_path)
    with opened(store) as container, ThreadPoolExecutor(1) as pool:
        container.create_segment(S)
        readers, refreshed = container.log.processor.readers, []

        def read() -> None:
            refreshed.append(pool.submit(container.refresh))
            while not readers:
                time.sleep(0.001)

        store.meanwhile = read
        container.append(S, b"x")
        assert refreshed[0].result(30).segments[S].length == 1 and not readers
        readers.append(None)  # another one, which the system does not wake in time
        container.append(S, b"y")
        readers.pop()
        container.append(S, b"z")
    mine = threading.current_thread().name
    assert [name == mine for name in store.threads] == [True, True, False, True]


# --- waking ------------------------------------------------------------------------------------------------------


class Striking(deque[Transaction]):
    """Ctrl-C strikes as one is taken out, before anything is done with it."""

    struck = False

    def popleft(self) -> Transaction:
        pending = super().popleft()
        if not self.struck:
            self.struck = True
            signal.raise_signal(signal.SIGINT)
        return pending


def test_ctrl_c_while_others_are_woken_leaves_nobody_asleep() -> None:
    together = Striking()
    mine, *others = [Transaction([]) for _ in range(3)]
    for pending in (mine, *others):
        pending.complete(OutcomeUnknown("of all of them"), together)
    deque.popleft(together).release()
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(pending.result) for pending in others]
        try:
            with pytest.raises(KeyboardInterrupt):
                mine.result()
            mine.abandon()  # as `commit` does then
            wait(waiting, 5)
            assert all(future.done() for future in waiting)
        finally:
            for pending in others:
                pending.release()


def test_those_who_left_do_not_break_the_chain() -> None:
    told = OutcomeUnknown("of all of them")
    for leaving in range(1 << 4):
        together: deque[Transaction] = deque()
        all_of_them = [Transaction([]) for _ in range(4)]
        left = [pending for number, pending in enumerate(all_of_them) if leaving >> number & 1]
        for pending in left[::2]:
            pending.abandon()  # before they are told
        for pending in all_of_them:
            pending.complete(told, together)
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(pending.result) for pending in all_of_them if pending not in left]
            wake_next(together)
            for pending in left[1::2]:
                pending.abandon()  # and after that
            assert all(future.exception(30) is told for future in waiting)
