"""What is used after it was closed says so, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pravega_spark import ReaderOffline, Serializer, StreamManager
from pravega_spark.errors import Closed, EventClosed, StreamError


def used(manager: StreamManager) -> dict[str, Callable[[], Any]]:
    """A call of each thing that a manager makes."""
    manager.create_scope("sc")
    for name in ("one", "bytes", "state"):
        manager.create_stream("sc", name)
    writer = manager.create_writer("sc", "one")
    for text in ("first", "second"):
        writer.write_event(text)
    writer.flush()
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("reader")
    transactions = manager.create_transaction_writer("sc", "one")
    transaction = transactions.begin_txn()
    stream = manager.create_byte_stream("sc", "bytes")
    file = manager.open_event(next(manager.read_events("sc", "one")).pointer)
    large = manager.begin_event("sc", "one")
    tail = manager.tail("sc", "one", "earliest")
    events = manager.read_events("sc", "one")
    revisions = manager.create_revisioned_stream_client("sc", "state")
    state = manager.create_state_synchronizer("sc", "state", Serializer(bytes, bytes), Serializer(bytes, bytes))
    return {
        "manager": manager.list_scope,
        "manager again": lambda: manager.create_writer("sc", "one"),
        "manager with": lambda: manager.__enter__(),
        "writer": lambda: writer.write_event("text"),
        "writer's time": lambda: writer.note_time(1),
        "time window": lambda: manager.time_window("sc", "one", "tail"),
        "writer of columns": lambda: writer.write_events(["text"]),
        "writer's flush": writer.flush,
        "group": lambda: group.create_reader("another"),
        "group's cut": group.get_streamcut,
        "reader": lambda: asyncio.run(reader.get_segment_slice_async()),
        "transactions": transactions.begin_txn,
        "transaction": transaction.commit,
        "bytes": lambda: stream.write(b"bytes"),
        "file": lambda: file.read(1),
        "large event": lambda: large.write(b"bytes"),
        "transaction's state": transaction.is_open,
        "transaction's lease": transaction.ping,
        "transaction by id": lambda: transactions.get_txn(transaction.get_txn_id()),
        "tail": lambda: next(tail),
        "events": lambda: next(events),
        "revisions": revisions.fetch_latest_revision,
        "state": state.fetch_updates,
        "picture": lambda: manager.stream_timeline("sc", "one"),
    }


def test_what_is_used_after_the_end_of_its_manager(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path)) as manager:
        calls = used(manager)
    told = {}
    for name, call in calls.items():
        with pytest.raises((StreamError, Closed)) as caught:
            call()
        told[name] = caught.value
    for name, error in told.items():
        assert isinstance(error, Closed | ReaderOffline | EventClosed), f"{name}: {error!r}"
        assert any(word in str(error) for word in ("closed", "offline", "aborted")), f"{name}: {error}"
    assert str(told["manager"]) == (
        f"this manager of Root('file://{tmp_path}') is closed, by close() or by the end of its with block: create a "
        "new one"
    )
    manager.close()


def test_a_handle_that_was_closed_itself(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path)) as manager:
        used(manager)
        with manager.create_writer("sc", "one") as writer:
            pass
        with pytest.raises(Closed, match=r"this writer of stream sc/one is closed, by close\(\) or by the end"):
            writer.write_event("text")
        group = manager.create_reader_group("rg", "sc", "one")
        group.close()
        with pytest.raises(Closed, match=r"reader group sc/rg is closed.*: open the group again"):
            group.checkpoint("c")
        with manager.create_byte_stream("sc", "bytes") as stream:
            pass
        with pytest.raises(Closed, match="byte stream sc/bytes is closed"):
            stream.tell()
