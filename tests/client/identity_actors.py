"""What lives on in a process of its own while its root, or its stream, becomes another one (P4).

Each actor is a generator function. It is called with the root's URL and uses the stream sc/st up to its `yield`; there
the test changes what lies in that place. Behind it, the actor goes on with what it holds, and returns what it got: the
events that were acknowledged to it, and those that it read. An error that the actor meets ends it.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from engine.root import Root
from pravega_spark import StreamManager, StreamReaderGroupConfig
from pravega_spark.client.groups.reader import StreamReader
from pravega_spark.source.micro_batch import MicroBatchReader
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.spark_api.read_limits import ReadAllAvailable
from pravega_spark.streams.catalog import Catalog
from tests.support.clones import is_clone

PATIENCE = 6.0
"""Seconds for which an actor waits for events."""


class Done(NamedTuple):
    """What an actor got after its `yield`: events that were acknowledged to it, and events that it read."""

    acknowledged: tuple[str, ...] = ()
    read: tuple[str, ...] | None = None


Actor = Generator[None, None, Done]


def late(kind: str) -> list[str]:
    """Events that an actor writes after the change, the same in no other process."""
    return [f"{kind} {os.getpid()} {number}" for number in range(5)]


def writer(url: str) -> Actor:
    with StreamManager(url) as manager, manager.create_writer("sc", "st") as events:
        events.write_event("before", "key")
        events.flush()
        yield
        acknowledged = []
        for event in late("writer"):
            events.write_event(event, "key")
            events.flush()
            acknowledged.append(event)
            time.sleep(0.05)
        return Done(tuple(acknowledged))


def reader(url: str) -> Actor:
    with StreamManager(url) as manager:
        events = manager.read_events("sc", "st")
        next(events)
        yield
        rest = [event.data.decode() for event in events]
        again = [event.data.decode() for event in manager.read_events("sc", "st")]
        # What it had begun to read may be of the stream that is not there any more; never of both.
        assert set(again) >= set(rest) or not set(again) & set(rest), (rest, again)
        return Done(read=tuple(again))


def follower(url: str) -> Actor:
    with StreamManager(url) as manager:
        ends = math.inf
        events = manager.tail("sc", "st", "earliest", stop=lambda: time.monotonic() > ends)
        seen = [next(events).data.decode()]
        yield
        ends = time.monotonic() + PATIENCE
        return Done(read=(*seen, *(event.data.decode() for event in events)))


def group(url: str) -> Actor:
    with StreamManager(url) as manager:
        readers = manager.create_reader_group_with_config("rg", "sc", StreamReaderGroupConfig(False, "sc", "st"))
        member = readers.create_reader("one")
        seen = _given_out(member, 1.0)
        yield
        return Done(read=(*seen, *_given_out(member, PATIENCE)))


def _given_out(member: StreamReader, seconds: float) -> list[str]:
    """The events that a reader of a group gets, until none came for so long."""

    async def slices() -> list[str]:
        found: list[str] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            part = await member.get_segment_slice_async()
            events = [event.data().decode() for event in part]
            member.release_segment(part)
            if events:
                found += events
                ends = time.monotonic() + seconds
        return found

    return asyncio.run(slices())


def query(url: str) -> Actor:
    options = {"controller": url, "scope": "sc", "stream": "st", "start_stream_cut": "earliest"}
    source = MicroBatchReader(SourceOptions.parse(options))
    start = source.initialOffset()
    reached = source.latestOffset(start, ReadAllAvailable())
    seen = _rows(source, start, reached)
    yield
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        end = source.latestOffset(reached, ReadAllAvailable())
        seen += _rows(source, reached, end)
        reached = end
        time.sleep(0.1)
    return Done(read=tuple(seen))


def _rows(source: MicroBatchReader, start: Any, end: Any) -> list[str]:
    found: list[str] = []
    for partition in source.partitions(start, end) if start != end else ():
        for batch in source.read(pickle.loads(pickle.dumps(partition))):
            found += [event.decode() for event in batch.column("event").to_pylist()]
    return found


def transaction(url: str) -> Actor:
    with StreamManager(url) as manager:
        begun = manager.create_transaction_writer("sc", "st").begin_txn()
        events = late("transaction")
        for event in events:
            begun.write_event(event, "key")
        yield
        begun.commit()
        return Done(tuple(events))


def upload(url: str) -> Actor:
    begin = "upload " + "x" * 100_000
    with StreamManager(url) as manager:
        begun = manager.begin_event("sc", "st", "key")
        begun.write(begin.encode())
        yield
        end = "x" * 100_000 + f" {os.getpid()}"
        begun.write(end.encode())
        begun.commit()
        return Done((begin + end,))


def flush(url: str) -> Actor:
    with Root.open(url) as root:
        container = Catalog(root).stream("sc", "st").container
        container.refresh()
        yield
        container.flush()
        return Done()


def collector(url: str) -> Actor:
    with Root.open(url) as root:
        containers = [root.container(number) for number in range(root.config.containers)]
        for container in containers:
            container.refresh()
        yield
        for container in containers:
            container.collect_garbage()
        return Done()


def job(url: str) -> Actor:
    """A retention job that was planned before: it truncates at a cut that was the tail then."""
    with StreamManager(url) as manager:
        tail = manager.stream_info("sc", "st").tail
        yield
        manager.truncate_stream("sc", "st", tail)
        return Done()


def session(url: str) -> Actor:
    """Somebody at the command line, who goes on with commands; each is a process of its own."""
    yield
    command = [sys.executable, "-m", "pravega_spark.cli", "--root", url, "stream", "read", "sc/st"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Done(read=tuple(done.stdout.splitlines()))


ACTORS: dict[str, Callable[[str], Actor]] = {
    each.__name__: each
    for each in (
        writer,
        reader,
        follower,
        group,
        query,
        transaction,
        upload,
        flush,
        collector,
        job,
        session,
    )
}


def act(name: str, url: str, clones: bool, test: Connection, clone: Connection) -> None:
    """The whole life of an actor's process. clones: it is copied at its `yield`, unnoticed by Python, as a machine is
    with all of its memory; the copy reports through `clone`."""
    life = ACTORS[name](url)
    next(life)
    test.send("ready")
    assert test.recv() == "go on"
    if clones and is_clone():
        _report(life, clone)
        os._exit(0)
    _report(life, test)


def _report(life: Actor, to: Connection) -> None:
    try:
        next(life)
    except StopIteration as end:
        to.send(("done", end.value))
    except BaseException as error:
        to.send(("error", type(error).__name__, str(error), traceback.format_exc()))
    else:
        to.send(("error", "AssertionError", "an actor has one yield", ""))


__all__ = ["ACTORS", "Done", "act"]
