"""One of the writers of `tests.bench.writers`: a process of its own, which appends and waits, one after the other.

`python -m tests.bench.writing SPEC`: SPEC is JSON (`Spec`). It says "ready" after its first event and goes on writing.
It reads a line with the begin and the end of the common window (`time.monotonic()`), and after that end tells in
JSON (`Told`) what it did within.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest import mock

import pyarrow as pa

from chunkstore import Store, open_store
from chunkstore.metrics import default_metrics
from chunkstore.wrapping import Request, Result, WrappingStore
from engine.logs import durable_log
from engine.logs.mailbox import no_mailbox
from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager

SCOPE, STREAM = "bench", "writers"
SIZE = 1000
HEAD = 24
"""Bytes of an event, and those in front that say whose it is, and its number."""

PAGE = 1000
"""Objects that one request lists or deletes at most."""

UPKEEP = "upkeep "
"""Before the kind of a request that a background thread makes: flushes and checkpoints, which nobody waits for."""

_ONE = {
    "put": "PUT",
    "post": "PUT",
    "put_if_absent": "PUT",
    "clock": "PUT",
    "read": "GET",
    "read_into": "GET",
    "stat": "GET",
}


@dataclass
class Spec:
    """What a writer does.

    events: of an append. bare: it makes objects of that size, and no streams. apart: it exchanges messages with others
    by the storage only, as on a host of its own.
    """

    url: str
    options: dict[str, Any]
    writer: int
    events: int = 1
    bare: bool = False
    apart: bool = False


@dataclass
class Told:
    """What a writer did: `times` of the appends that began in the window, seconds; `acknowledged` from first to last;
    `requests` by kind (see `Billed`); `counts` of the log's metrics."""

    acknowledged: int = 0
    ended: int = 0
    cpu: float = 0.0
    times: list[float] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class Billed(WrappingStore):
    """Counts requests as S3 bills them."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()

    def counted(self) -> Counter[str]:
        """So many until now, by kind; those of upkeep have names of their own."""
        with self._lock:
            return Counter(self._requests)

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        kind, number = billed(request)
        if "background" in threading.current_thread().name:
            kind = UPKEEP + kind
        with self._lock:
            self._requests[kind] += number
        return call()


def billed(request: Request) -> tuple[str, int]:
    """As what a call is billed, and how often."""
    number = len(request.paths)
    if request.verb == "read_ranges":
        return "GET", number
    if request.verb == "list":
        return "LIST", 1
    if request.verb == "delete":
        return "DELETE", -(-number // PAGE)
    return _ONE.get(request.verb, "other"), 1


def log_counts() -> dict[str, int]:
    """What the log's metrics count in this process: epochs begun, submissions that became void, events carried."""
    found = {}
    for operation in ("begin_epoch", "void_submission", "carried", "put_frame"):
        value = default_metrics().registry.get_sample_value("pravega_log_seconds_count", {"operation": operation})
        found[operation] = int(value or 0)
    return found


def event(writer: int, number: int) -> bytes:
    """The event, which tells whose it is."""
    return (b"%010d %012d;" % (writer, number)).ljust(SIZE, b"x")


class InOrder:
    """Checks, as a stream is read, that each writer's events are there once and in order. seen: how many, by writer."""

    def __init__(self, writers: int) -> None:
        self.seen = [0] * writers

    def note(self, head: bytes) -> None:
        """The first HEAD bytes of the next event. Raises RuntimeError."""
        writer, number = map(int, head.rstrip(b";").split())
        if number != self.seen[writer]:
            raise RuntimeError(f"writer {writer}: event {number} is where {self.seen[writer]} was to be")
        self.seen[writer] += 1


class Window:
    """The common time of all writers: what was counted at its begin and at its end."""

    def __init__(self, counted: Callable[[], Mapping[str, Mapping[str, float]]]) -> None:
        self.begin = self.end = float("inf")
        self.over = threading.Event()
        self._counted = counted
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def counted(self) -> dict[str, dict[str, int]]:
        """What came in it."""
        self._thread.join()
        return {
            kind: {name: int(value - self._before[kind].get(name, 0)) for name, value in counts.items()}
            for kind, counts in self._after.items()
        }

    def _run(self) -> None:
        self.begin, self.end = map(float, sys.stdin.readline().split())
        time.sleep(max(self.begin - time.monotonic(), 0.0))
        self._before = self._take()
        time.sleep(max(self.end - time.monotonic(), 0.0))
        self._after = self._take()
        self.over.set()

    def _take(self) -> dict[str, dict[str, float]]:
        counted = {kind: dict(counts) for kind, counts in self._counted().items()}
        return counted | {"cpu": {"microseconds": time.process_time() * 1e6}}


def write(append: Callable[[int], None], window: Window) -> Told:
    """Append one after the other until the window is over; `append` is given what it is, from 0 on."""
    told, kept = Told(), []
    append(0)
    print("ready", flush=True)
    number = 1
    while not window.over.is_set():
        begun = time.monotonic()
        append(number)
        kept.append((begun, time.monotonic()))
        number += 1
    counted = window.counted()
    told.acknowledged = number
    told.times = [ended - begun for begun, ended in kept if window.begin <= begun < window.end]
    told.ended = sum(window.begin <= ended < window.end for _, ended in kept)
    told.cpu = counted["cpu"]["microseconds"] / 1e6
    told.requests, told.counts = counted["requests"], counted["log"]
    return told


def _bare(spec: Spec) -> Told:
    store = Billed(open_store(spec.url, spec.options))
    body = bytes(SIZE * spec.events - 24)

    def append(number: int) -> None:
        store.put_if_absent(f"bare/{spec.writer}-{number:020d}", uuid.uuid4().bytes + bytes(8) + body)

    return write(append, Window(lambda: {"requests": store.counted(), "log": {}}))


def _stream(spec: Spec) -> Told:
    if spec.apart:
        mock.patch.object(durable_log, "open_mailbox", no_mailbox).start()
    root = Root.open(spec.url, spec.options, create=False)
    store = Billed(root.stores.log)
    root.stores = Stores(store, store)
    with StreamManager.over(root) as manager:
        writer = manager.create_writer(SCOPE, STREAM)

        def append(number: int) -> None:
            if spec.events == 1:
                writer.write_event_bytes(event(spec.writer, number), "key")
            else:
                first = number * spec.events
                writer.write_events(pa.array([event(spec.writer, first + each) for each in range(spec.events)]), keys)
            writer.flush()

        keys = pa.array(["key"] * spec.events)
        return write(append, Window(lambda: {"requests": store.counted(), "log": log_counts()}))


def main(spec: Spec) -> None:
    told = _bare(spec) if spec.bare else _stream(spec)
    print(json.dumps(asdict(told)), flush=True)


if __name__ == "__main__":
    main(Spec(**json.loads(sys.argv[1])))
