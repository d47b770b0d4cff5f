"""Handles of the client on both sides of a fork (W10): what waits in one is written by the process that wrote it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkstore.backends.local import LocalStore
from pravega_spark import StreamManager
from pravega_spark.streams.pravega_lts.root import PravegaRoot
from tests.client.synchronized_sets import SetText, text_of
from tests.engine.forks import in_child, refusals

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(tmp_path) as manager:
        manager.create_scope("sc")
        for stream in ("one", "bytes"):
            manager.create_stream("sc", stream)
        yield manager


def events(manager: StreamManager) -> list[str]:
    return [event.data.decode() for event in manager.read_events("sc", "one")]


def test_an_event_writer_refuses_in_a_fork(manager: StreamManager) -> None:
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("before")
        calls: list[Callable[[], Any]] = [
            lambda: writer.write_event("child"),
            lambda: writer.write_event_bytes(b"child"),
            lambda: writer.write_events(["child"]),
            lambda: writer.write_events([]),
            lambda: writer.begin_event(),
            writer.flush,
        ]
        assert refusals(*calls) == [True] * len(calls)
        writer.write_event("after")
    assert events(manager) == ["before", "after"]


def test_a_transaction_refuses_in_a_fork(manager: StreamManager) -> None:
    transaction = manager.create_transaction_writer("sc", "one").begin_txn()
    transaction.write_event("before")
    calls: list[Callable[[], Any]] = [
        lambda: transaction.write_event("child"),
        lambda: transaction.write_events(["child"]),
        transaction.flush,
        transaction.ping,
        transaction.commit,
        transaction.abort,
    ]
    assert refusals(*calls) == [True] * len(calls)
    transaction.commit()
    assert events(manager) == ["before"]


def test_a_large_event_refuses_in_a_fork(manager: StreamManager) -> None:
    event = manager.begin_event("sc", "one")
    event.write(b"x" * (9 << 20))
    calls: list[Callable[[], Any]] = [lambda: event.write(b"child"), event.flush, event.commit, event.abort]
    assert refusals(*calls) == [True] * len(calls)
    pointer = event.commit()
    with manager.open_event(str(pointer)) as file:
        assert len(file.read()) == 9 << 20
        assert refusals(lambda: file.read(1), lambda: file.seek(0)) == [True] * 2
        file.seek(0)
        assert file.read(3) == b"xxx"


def test_a_byte_stream_refuses_to_write_in_a_fork(manager: StreamManager) -> None:
    with manager.create_byte_stream("sc", "bytes") as stream:
        stream.write(b"before")
        stream.flush()
        calls: list[Callable[[], Any]] = [lambda: stream.write(b"child"), stream.flush, lambda: stream.truncate(1)]
        assert refusals(*calls) == [True] * len(calls)
        assert in_child(lambda: stream.read(6)) == b"before", "reading opens the container anew"
        stream.write(b" after")
        stream.flush()
        assert stream.read(12) == b"before after"


def test_a_reader_group_refuses_in_a_fork(manager: StreamManager) -> None:
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    calls: list[Callable[[], Any]] = [lambda: group.create_reader("x"), reader.reader_offline, group.stream_cuts]
    assert refusals(*calls) == [True] * len(calls)
    assert group.online_readers() == ["r"]


def test_a_manager_opens_its_containers_anew_in_a_fork(manager: StreamManager) -> None:
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("parent")
        writer.flush()

        def work() -> list[str]:
            with manager.create_writer("sc", "one") as own:
                own.write_event("child")
            manager.create_stream("sc", "more")
            return events(manager)

        assert in_child(work) == ["parent", "child"]
        writer.write_event("parent again")
    assert events(manager) == ["parent", "child", "parent again"]
    assert not manager.create_stream("sc", "more")


class Held:
    """Keeps threads of this process in calls of some methods. Those of a child are not kept."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, *methods: str) -> None:
        self._entered, self._gate, self._process = threading.Event(), threading.Event(), os.getpid()
        self._gate.set()
        for method in methods:
            patch.setattr(owner, method, self._kept(getattr(owner, method)))

    def _kept(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def kept(*arguments: Any, **others: Any) -> Any:
            if os.getpid() == self._process:
                self._entered.set()
                self._gate.wait()
            return usual(*arguments, **others)

        return kept

    def during(self, call: Callable[[], object], work: Callable[[], object]) -> object:
        """What `work` returns in a child that forks while another thread is kept in `call`."""
        self._entered.clear()
        self._gate.clear()
        thread = threading.Thread(target=call)
        thread.start()
        try:
            assert self._entered.wait(30)
            return in_child(work)
        finally:
            self._gate.set()
            thread.join()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Threads are kept at requests to a folder."""
    return Held(monkeypatch, LocalStore, "read", "read_ranges", "list")


def test_a_child_uses_the_root_that_a_thread_of_its_parent_looks_at(manager: StreamManager, held: Held) -> None:
    root = manager.root

    def work() -> list[str]:
        root.verify()
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("child")
        return events(manager)

    assert held.during(root.verify, work) == ["child"]


def test_a_child_opens_the_root_that_a_thread_of_its_parent_opens(held: Held, tmp_path: Path) -> None:
    with StreamManager(tmp_path / "root") as manager:
        found = held.during(lambda: manager.create_scope("parent"), lambda: manager.create_scope("child"))
        assert found is True
        assert [manager.create_scope(name) for name in ("child", "parent")] == [False, False]


def test_a_child_changes_a_state_that_a_thread_of_its_parent_applies_an_update_to(
    manager: StreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = text_of(manager)
    state.initialize(SetText("first"))
    text_of(manager).update_state_unconditionally(SetText("second"))

    def known() -> str:
        state.fetch_updates()
        text = state.get_state()
        assert text is not None
        return text.value

    def work() -> str:
        state.update_state_unconditionally(SetText("of the child"))
        return known()

    assert Held(monkeypatch, SetText, "apply_to").during(state.fetch_updates, work) == "of the child"
    assert known() == "of the child"


def test_a_child_reads_what_a_thread_of_its_parent_reads_of_a_pravega(held: Held, tmp_path: Path) -> None:
    root = PravegaRoot.at(str(tmp_path))
    assert held.during(lambda: root.archived, lambda: list(root.archived.state.segments)) == []


PROGRAM = """
import gc, os, sys, threading
from chunkstore.wrapping import WrappingStore
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager

opened = threading.Event()
opened.set()

class Gate(WrappingStore):
    def _carry_out(self, request, call):
        opened.wait()
        return call()

manager = StreamManager(sys.argv[1])
root = manager.root
root.stores = Stores(*map(Gate, root.stores))
writer, stream = manager.create_writer("sc", "one"), manager.create_byte_stream("sc", "bytes")
transaction, event = manager.create_transaction_writer("sc", "one").begin_txn(), manager.begin_event("sc", "one")
event.write(b"x" * (8 << 20) + b"large")
opened.clear()  # all that is written now waits while it forks
for number in range(3):
    writer.write_event(f"event {number}")
    stream.write(b"%d" % number)
    transaction.write_event(f"in transaction {number}")
handles = [writer, stream, event, transaction]
for leave in (
    "for handle in handles[:3]: handle.close()",
    "for handle in handles: handle.__exit__(None, None, None)",
    "for handle in handles: handle.__exit__(SystemExit, SystemExit(), None)",
    "manager.close()",
    "handles.clear(); del handle, writer, stream, transaction, event; gc.collect()",
    "pass",
):
    child = os.fork()
    if child == 0:
        handle = None
        exec(leave)
        sys.exit()  # with whatever is done at the end of a process
    assert os.waitpid(child, 0)[1] == 0, leave
opened.set()
writer.flush()
transaction.commit()
event.commit()
manager.close()
"""


def test_what_a_fork_lets_go_of_is_written_once_by_the_process_that_has_it(
    manager: StreamManager, tmp_path: Path
) -> None:
    """However a child gets rid of what it has inherited, nothing of it is written, waited for, or ended there."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = events(manager)
    assert found[:6] == [*(f"event {number}" for number in range(3)), *(f"in transaction {n}" for n in range(3))]
    assert found[6:] == ["x" * (8 << 20) + "large"]
    with manager.create_byte_stream("sc", "bytes") as stream:
        assert stream.read(100) == b"012"
