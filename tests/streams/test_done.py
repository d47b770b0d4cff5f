"""What a call has done when it returns is done for every process, and whoever does the same meanwhile is told so (W17).

Each case is done by two managers at once, as two processes have them; a third one, which opens the root afterwards and
knows nothing but what is stored, must find it done, once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chunkstore.errors import DeclaredError
from engine.root import Root
from pravega_spark import StreamCut, StreamManager

BEFORE = [b"a", b"b", b"c"]

Case = tuple[Callable[[StreamManager], Any], Callable[[StreamManager, int], bool]]


def events(manager: StreamManager, stream: str = "one") -> list[bytes]:
    return [event.data for event in manager.read_events("sc", stream)]


def written(manager: StreamManager) -> None:
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("more")
        writer.flush()


def committed(manager: StreamManager) -> None:
    writer = manager.create_transaction_writer("sc", "one", 1)
    transaction = writer.begin_txn()
    transaction.write_event("more")
    transaction.commit()


def large(manager: StreamManager) -> None:
    with manager.begin_event("sc", "one") as event:
        event.write(b"more")
        event.commit()


def deleted(manager: StreamManager) -> None:
    manager.seal_stream("sc", "one")
    manager.delete_stream("sc", "one")


CASES: dict[str, Case] = {
    "flush of a writer": (written, lambda found, times: events(found) == [*BEFORE, *[b"more"] * times]),
    "commit of a transaction": (
        committed,
        lambda found, times: events(found) == [*BEFORE, *[b"more"] * times],
    ),
    "commit of a large event": (large, lambda found, times: events(found) == [*BEFORE, *[b"more"] * times]),
    "truncate": (
        lambda manager: manager.truncate_stream("sc", "one", StreamCut("sc", "one", {0: 18})),
        lambda found, times: events(found) == [b"c"],
    ),
    "seal": (
        lambda manager: manager.seal_stream("sc", "one"),
        lambda found, times: found.stream_info("sc", "one").sealed,
    ),
    "delete": (deleted, lambda found, times: found.list_stream("sc") == []),
    "scale": (
        lambda manager: manager.scale_stream("sc", "one", [0], [(0.0, 0.5), (0.5, 1.0)]),
        lambda found, times: events(found) == BEFORE,
    ),
    "retain": (
        lambda manager: manager.retain("sc", "one", period=0),
        lambda found, times: events(found) == BEFORE,
    ),
    "create a group": (
        lambda manager: manager.create_reader_group("readers", "sc", "one"),
        lambda found, times: found.list_reader_group("sc") == ["readers"],
    ),
    "create a scope": (lambda manager: manager.create_scope("new"), lambda found, times: "new" in found.list_scope()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_returned_is_done_for_every_process(tmp_path: Path, case: str) -> None:
    call, is_done = CASES[case]
    url = str(tmp_path / "root")
    Root.open(url, containers=1).close()
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        with manager.create_writer("sc", "one") as writer:
            writer.write_events(["a", "b", "c"])

    def done(manager: StreamManager) -> bool:
        try:
            call(manager)
        except DeclaredError:  # the other one was first, and it says so
            return False
        return True

    with StreamManager(url) as one, StreamManager(url) as other, ThreadPoolExecutor(2) as threads:
        times = sum(threads.map(done, (one, other)))
        with StreamManager(url) as third:
            assert times and is_done(third, times)
