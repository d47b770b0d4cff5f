"""W16: calls of transactions, byte streams, large events, reader groups and managers that an exception ends anywhere.

Afterwards a process that knows nothing finds the stream as it was before the call or as it is behind it; the object
works on, or says why it does not; and another thread can use the manager.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import pytest

from engine.errors import EngineError
from engine.root import Root
from pravega_spark import (
    StreamCut,
    StreamManager,
    StreamReaderGroupConfig,
)
from pravega_spark.errors import StreamError
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from tests.interrupting import KINDS, chosen, struck, within_limit

SAYS = (StreamError, EngineError, ValueError)
"""What an object raises that does not work on: it says that, and why."""

STRIKES = 50
"""So many share a root: each leaves streams behind, and thousands of them take their time to be opened."""

OLD = [f"old {number}" for number in range(8)]
NEW = ["new 1", "new 2"]
MUCH = [f"{number} {'much ' * 30_000}" for number in range(60)]  # of several appends of a transaction: 9 MB
LARGE = b"large " * (9 << 18)  # 13 MiB


class Case(NamedTuple):
    """A call that is struck. begin: what it is made on. again: the object is used on; True if it is as it should be
    then, and all that the call does is done. events: what is there once it is done; None: it changes no event."""

    begin: Callable[[StreamManager, str], Any]
    call: Callable[[Any], object]
    again: Callable[[Any], object]
    events: list[str] | None = None


def transaction(manager: StreamManager, stream: str) -> Any:
    return manager.create_transaction_writer("sc", stream).begin_txn()


def written(manager: StreamManager, stream: str) -> Any:
    found = transaction(manager, stream)
    for event in NEW:
        found.write_event(event, "key")
    return found


def byte_stream(manager: StreamManager, stream: str) -> Any:
    manager.create_stream("sc", f"{stream}-bytes", 1)
    return manager.create_byte_stream("sc", f"{stream}-bytes")


def write_and_flush(stream: Any) -> None:
    stream.write(b"some")
    stream.write(b" more")
    stream.flush()


def bytes_are_whole(stream: Any) -> None:
    """What is flushed is there; what was struck is there once, or not."""
    tail = stream.current_tail_offset()
    stream.write(b"last")
    stream.flush()
    assert stream.current_tail_offset() >= tail + 4
    stream.seek(0)
    found = stream.read(100)
    assert found in (b"last", b"somelast", b"some morelast"), found


def large_event(manager: StreamManager, stream: str) -> Any:
    return manager.begin_event("sc", stream, "key")


def uploaded(manager: StreamManager, stream: str) -> Any:
    found = large_event(manager, stream)
    found.write(LARGE)
    return found


class Group(NamedTuple):
    manager: StreamManager
    stream: str
    group: Any
    readers: list[Any]


def group(manager: StreamManager, stream: str) -> Group:
    made = manager.create_reader_group_with_config(f"g-{stream}", "sc", StreamReaderGroupConfig(False, "sc", stream))
    return Group(manager, stream, made, [])


def reading(manager: StreamManager, stream: str) -> Group:
    found = group(manager, stream)
    found.readers.append(found.group.create_reader("r"))
    return found


def taken(group: Group) -> list[str]:
    """The next events that a reader is given, which it returns."""
    part = asyncio.run(group.readers[0].get_segment_slice_async())
    events = [event.data().decode() for event in part]
    group.readers[0].release_segment(part)
    return events


def sliced(manager: StreamManager, stream: str) -> Group:
    found = reading(manager, stream)
    part = asyncio.run(found.readers[0].get_segment_slice_async())
    assert next(part).data() == b"old 0"
    found.readers.append(part)
    return found


def reads_on(group: Group) -> None:
    """A reader takes what was not taken; whoever is there is taken offline first."""
    group.group.reader_offline("r")
    reader = group.group.create_reader("again")
    events = taken(group._replace(readers=[reader]))
    assert events in (OLD, OLD[1:]), events


def rest_is_read(group: Group) -> None:
    """What the first reader was given and returned is not given again; nothing else is lost."""
    group.group.reader_offline("r")
    assert taken(group._replace(readers=[group.group.create_reader("again")])) in ([], OLD)


class There(NamedTuple):
    manager: StreamManager
    stream: str


def there(manager: StreamManager, stream: str) -> There:
    return There(manager, stream)


def sealed(manager: StreamManager, stream: str) -> There:
    manager.create_stream("sc", f"{stream}-sealed", 2)
    manager.seal_stream("sc", f"{stream}-sealed")
    return There(manager, stream)


def on_stream(name: str, *arguments: Any, suffix: str = "") -> Callable[[There], object]:
    return lambda found: getattr(found.manager, name)("sc", f"{found.stream}{suffix}", *arguments)


def both(name: str, *arguments: Any, suffix: str = "", begin: Any = there) -> Case:
    """A call of a manager that can be made again."""
    call = on_stream(name, *arguments, suffix=suffix)
    return Case(begin, call, call)


def truncate(found: There) -> None:
    events = list(found.manager.read_events("sc", found.stream))
    found.manager.truncate_stream("sc", found.stream, StreamCut("sc", found.stream, {0: events[4].offset}))


def scale(found: There) -> None:
    found.manager.scale_stream("sc", f"{found.stream}", [0], [(0.0, 0.5), (0.5, 1.0)])


CASES: dict[str, Case] = {
    "transaction.write_event": Case(
        transaction, lambda txn: txn.write_event("new 1"), lambda txn: txn.commit(), NEW[:1]
    ),
    "transaction.write_events": Case(transaction, lambda txn: txn.write_events(MUCH), lambda txn: txn.commit(), MUCH),
    "transaction.flush": Case(written, lambda txn: txn.flush(), lambda txn: txn.commit(), NEW),
    "transaction.commit": Case(written, lambda txn: txn.commit(), lambda txn: txn.commit(), NEW),
    "transaction.abort": Case(written, lambda txn: txn.abort(), lambda txn: txn.abort(), []),
    "begin_txn": Case(
        lambda manager, stream: manager.create_transaction_writer("sc", stream),
        lambda writer: writer.begin_txn(),
        lambda writer: writer.begin_txn().abort(),
        [],
    ),
    "byte_stream.write": Case(byte_stream, lambda stream: stream.write(b"some"), bytes_are_whole),
    "byte_stream.flush": Case(byte_stream, write_and_flush, bytes_are_whole),
    "byte_stream.close": Case(byte_stream, lambda stream: (stream.write(b"some"), stream.close()), lambda stream: None),
    "begin_event": Case(there, on_stream("begin_event"), on_stream("begin_event"), []),
    "large_event.write": Case(large_event, lambda event: event.write(LARGE), lambda event: event.commit()),
    "large_event.commit": Case(uploaded, lambda event: event.commit(), lambda event: event.commit()),
    "large_event.abort": Case(uploaded, lambda event: event.abort(), lambda event: event.abort(), []),
    "read_events": Case(
        there, lambda found: list(found.manager.read_events("sc", found.stream)), on_stream("read_events"), []
    ),
    "to_arrow": Case(there, on_stream("to_arrow"), on_stream("to_arrow"), []),
    "last_events": Case(there, on_stream("last_events", 3), on_stream("last_events", 3), []),
    "tail": Case(there, lambda found: next(found.manager.tail("sc", found.stream, "head")), on_stream("to_arrow"), []),
    "create_reader_group": Case(there, lambda found: group(*found), lambda found: reads_on(group(*found)), []),
    "create_reader": Case(group, lambda found: found.group.create_reader("r"), reads_on, []),
    "get_segment_slice": Case(reading, taken, rest_is_read, []),
    "release_segment": Case(sliced, lambda found: found.readers[0].release_segment(found.readers[1]), reads_on, []),
    "reader.reader_offline": Case(reading, lambda found: found.readers[0].reader_offline(), reads_on, []),
    "group.reader_offline": Case(reading, lambda found: found.group.reader_offline("r"), reads_on, []),
    "get_streamcut": Case(reading, lambda found: found.group.get_streamcut(), reads_on, []),
    "reset": Case(reading, lambda found: found.group.reset("earliest"), reads_on, []),
    "create_stream": both("create_stream", 2, suffix="-new"),
    "update_stream": both("update_stream_with_policy", ScalingPolicy.fixed_scaling_policy(2)),
    "set_retention": both("set_retention", RetentionPolicy.by_size(1 << 30)),
    "seal_stream": both("seal_stream", suffix="-sealed", begin=sealed),
    "delete_stream": both("delete_stream", suffix="-sealed", begin=sealed),
    "truncate_stream": Case(there, truncate, lambda found: None),
    "scale_stream": Case(there, scale, lambda found: None),
    "retain": both("retain"),
    "stream_info": both("stream_info"),
    "create_scope": Case(
        there, lambda found: found.manager.create_scope(f"sc-{found.stream}"), lambda found: found.manager.list_scope()
    ),
    "delete_scope": Case(
        lambda manager, stream: (manager.create_scope(f"sc-{stream}"), There(manager, stream))[1],
        lambda found: found.manager.delete_scope(f"sc-{found.stream}"),
        lambda found: found.manager.delete_scope(f"sc-{found.stream}"),
    ),
    "container flush": Case(there, lambda found: flushed(found.manager), lambda found: flushed(found.manager), []),
}

_numbers = itertools.count()


def flushed(manager: StreamManager) -> None:
    from pravega_spark.roots import opened_root

    with opened_root(url_of(manager)) as root:
        root.container(0).flush()


def url_of(manager: StreamManager) -> str:
    return manager.to_str()[6:-2]


@contextmanager
def a_root() -> Iterator[StreamManager]:
    """A root in memory, where each case has streams."""
    with Root.open(f"memory://interrupted-calls-{next(_numbers)}") as root:
        manager = StreamManager.over(root)
        manager.create_scope("sc")
        yield manager
        within_limit(manager.close)  # with what was left behind by a call that failed


@pytest.fixture(scope="module")
def root() -> Iterator[StreamManager]:
    """One for many cases."""
    with a_root() as manager:
        yield manager


def look(manager: StreamManager, stream: str) -> list[str]:
    """All events, by a manager that knows nothing. What is counted is what is there."""
    with StreamManager(url_of(manager)) as fresh:
        found = [event.data.decode() for event in fresh.read_events("sc", stream)]
        table = fresh.read_events("sc", stream).to_arrow(["event", "timestamp"])
        assert table.num_rows == len(found) == fresh.stream_info("sc", stream).events
        return found


def use(manager: StreamManager, stream: str) -> None:
    """What another thread does meanwhile."""
    with manager.create_writer("sc", f"{stream}-other") as writer:
        writer.write_event("other")
    manager.stream_info("sc", f"{stream}-other")


def strike(manager: StreamManager, name: str, at: int | None) -> int:
    case, stream = CASES[name], f"c{next(_numbers)}"
    manager.create_stream("sc", stream, 1)
    manager.create_stream("sc", f"{stream}-other", 1)
    with manager.create_writer("sc", stream) as writer:
        writer.write_events(OLD)
    made = case.begin(manager, stream)
    outcome = struck(lambda: case.call(made), at, KINDS[(at or 0) % 2])
    again = within_limit(lambda: case.again(made)).error
    told = f"{name} at {at}: {outcome.where}: {outcome.error!r}; again: {again!r}"
    assert again is None or isinstance(again, SAYS), told
    other = within_limit(lambda: use(manager, stream)).error
    assert other is None, f"{told}; others: {other!r}"
    found = within_limit(lambda: look(manager, stream))
    assert found.error is None, f"{told}: {found.error!r}"
    if case.events is not None:
        assert found.value in (OLD, OLD + case.events), (told, len(found.value))
        if again is None and case.events and not isinstance(outcome.error, KINDS):
            assert found.value == OLD + case.events, told
    elif name.startswith("large"):
        none = [*OLD, ""]  # an event that was committed without what could not be written
        assert found.value in (OLD, [*OLD, LARGE.decode()], none[: 9 * (name == "large_event.write")]), (
            told,
            len(found.value),
        )
    elif name == "truncate_stream":
        assert found.value in (OLD, OLD[4:]), told
    else:
        assert found.value == OLD, told
    return outcome.points


@pytest.mark.parametrize(
    "most",
    [
        pytest.param(3, id="some points"),
        pytest.param(100, id="many points", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
        pytest.param(10_000, id="every point", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_a_call_that_is_interrupted_is_done_or_not(root: StreamManager, name: str, most: int) -> None:
    points = chosen(strike(root, name, None), most)
    for first in range(0, len(points), STRIKES):
        with a_root() if most > STRIKES else nullcontext(root) as one:
            for at in points[first : first + STRIKES]:
                strike(one, name, at)
