"""Containers on both sides of a fork (W10): a writer id is never used twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chunkstore import StorageFull
from chunkstore.backends.local import LocalStore
from engine.containers.container import Container
from engine.logs.log import frame_path
from engine.logs.transaction import Transaction
from engine.root import Root
from engine.settings import Settings
from engine.state.operations import Checkpoint
from tests.engine.forks import in_child, refusals

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    with Root.open(str(tmp_path), containers=1, settings=Settings(maintenance=False)) as root:
        root.container(0).create_segment("s")
        yield root


def content(container: Container) -> bytes:
    return container.read("s", 0, container.info("s").length)


def test_a_fork_starts_nothing_though_the_storage_is_full(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that is refused starts what frees space, but not in a process that the container does not belong to."""
    container = root.container(0)

    def full(*_: object) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(LocalStore, "check_room", full)
    assert refusals(container.check_room, lambda: container.append("s", b"child")) == [True, True]
    with pytest.raises(StorageFull):
        container.check_room()


def test_a_container_refuses_in_a_fork_and_goes_on_where_it_was_made(root: Root) -> None:
    container = root.container(0)
    container.append("s", b"one ")
    processor, log = container.log.processor, container.log.processor.log
    calls: list[Callable[[], Any]] = [
        lambda: container.append("s", b"child"),
        lambda: container.submit_append("s", b"child"),
        container.refresh,
        lambda: container.info("s"),
        lambda: container.read("s", 0, 1),
        container.flush,
        container.checkpoint,
        container.truncate_log,
        container.collect_garbage,
        container.expire_transients,
        container.wait_for_upkeep,
        lambda: container.repair(0),
        lambda: processor.submit(Transaction([Checkpoint()])),
        processor.refresh,
        processor.claim,
        processor.close,
        lambda: log.send(b"", [], None),
        log.ring,
    ]
    assert refusals(*calls) == [True] * len(calls)
    container.append("s", b"two")
    assert content(container) == b"one two"


def test_closing_a_container_in_a_fork_changes_nothing(root: Root) -> None:
    container = root.container(0)
    future = container.submit_append("s", b"parent")

    def work() -> str:
        with container:
            pass
        root.close()
        return "closed"

    assert in_child(work) == "closed"
    future.result()
    container.append("s", b"'s")
    assert content(container) == b"parent's"


LOCKS = type(threading.Lock()), type(threading.RLock())


def locks_below(place: object) -> list[Any]:
    """The locks of an object of the engine, and of all that it leads to."""
    found: dict[int, Any] = {}
    new: list[Any] = [place]
    while new:
        each = new.pop()
        if id(each) in found:
            continue
        found[id(each)] = each
        if isinstance(each, dict):
            new += each.values()
        elif isinstance(each, threading.Condition) or type(each).__module__.startswith("engine."):
            new += getattr(each, "__dict__", {}).values()
    return [each for each in found.values() if isinstance(each, LOCKS)]


def test_a_fork_while_threads_hold_every_lock(root: Root) -> None:
    """They are held for ever in the child: nothing may ask for one before it looks whose it is."""
    container = root.container(0)
    held, done = threading.Event(), threading.Event()
    locks = locks_below(root)
    assert len(locks) > 6

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait()
        for lock in locks:
            lock.release()

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait()
    try:
        told = refusals(
            lambda: container.append("s", b"x"), container.refresh, container.flush, lambda: container.read("s", 0, 0)
        )
        assert told == [True] * 4

        def closes_and_opens() -> int:
            container.close()
            return root.container(0).append("s", b"child")

        assert in_child(closes_and_opens) == 0
    finally:
        done.set()
        holding.join()
    assert content(container) == b"child"


def test_a_root_opens_its_containers_anew_as_another_writer(root: Root) -> None:
    container = root.container(0)
    container.append("s", b"1")
    writer = container.head.writer

    def work() -> tuple[int, bytes]:
        mine = root.container(0)
        offset = mine.append("s", b"2")
        found = mine.head.writer
        root.close()
        return offset, found

    offset, theirs = in_child(work)
    assert offset == 1 and theirs != writer
    assert container.append("s", b"3") == 2
    assert content(container) == b"123"


def test_forks_of_forks_that_append_at_once(root: Root) -> None:
    """Whoever is the child of whom, each has a writer id of its own, and every byte that was acknowledged is there."""
    container = root.container(0)
    container.append("s", b"0")

    def grandchild() -> bytes:
        root.container(0).append("s", b"2")
        return root.container(0).head.writer

    def child() -> tuple[bytes, bytes]:
        mine = root.container(0)
        mine.append("s", b"1")
        theirs = in_child(grandchild)
        mine.append("s", b"3")
        return mine.head.writer, theirs

    writers = {container.head.writer, *in_child(child)}
    container.append("s", b"4")
    assert len(writers) == 3
    assert content(container) == b"01234"
    assert root.stores.log.read(frame_path(container.number, container.head.address))


def test_a_fork_beside_a_busy_thread_can_open_its_own_containers(root: Root) -> None:
    """What all containers of a process share, such as the numbers that are measured, is free in a child."""
    container, done = root.container(0), threading.Event()
    container.append("s", b"x")

    def work() -> None:
        while not done.is_set():
            container.append("s", b"x")
            container.info("s")

    with ThreadPoolExecutor(2) as threads:
        busy = [threads.submit(work) for _ in range(2)]
        try:
            for _ in range(10):
                assert in_child(lambda: root.container(0).info("s").length) > 0
        finally:
            done.set()
        for future in busy:
            future.result()
