"""Crashes and faults at every request of a large event."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from chunkstore import StorageError
from chunkstore.testing import Crashed, Fault, FaultStore, Request, crash_at, fail_at
from chunkstore.testing.faults import When
from engine.errors import BadOffset
from engine.state.operations import Payload
from pravega_spark import EventExists, EventPointer, EventTaken, StreamError, StreamManager
from pravega_spark.streams.writing import uploads
from pravega_spark.streams.writing.uploads import Upload
from tests.client.large_events.simulated import (
    PART,
    SimulatedRoot,
    collect,
    data_of,
    events,
    payload,
    process,
    scaled,
    stream_of,
    transients,
    uploaded,
)
from tests.support.simulation import Simulation

pytestmark = pytest.mark.usefixtures("no_threads_are_left")

GIVEN_UP = 1
"""Requests after which a process without timeout gives a frame up."""

# --- crashes and faults ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("size", [50, 5 * PART + 20])
@pytest.mark.parametrize("scale", [False, True])
def test_a_crash_at_every_request_of_the_commit(simulation: Simulation, when: When, size: int, scale: bool) -> None:
    """It is there whole or not at all; with a name another process goes on, without it goes after the idle time."""
    number, crashed, found_whole = 0, True, set()
    while crashed:
        number += 1
        for name in ("x", None):
            own = Simulation()
            with StreamManager.over(SimulatedRoot(own)) as manager:
                manager.create_scope("sc")
                manager.create_stream("sc", "one", 1)
            through = FaultStore(own.store)
            doomed = process(own, through)
            event = uploaded(doomed, name, size)
            if size > PART:
                event.flush()
            if scale:
                scaled(process(own), (0.0, 0.3), (0.3, 1.0))
            start = through.passed
            through.plan = crash_at(start + number, when)
            try:
                event.commit(move=True)
                crashed = False
            except Crashed:
                pass
            with process(own) as manager:
                whole = events(manager) == [data_of(size)]
                assert whole or events(manager) == []
                found_whole.add(whole)
                if name is not None and whole:
                    with pytest.raises(EventExists):
                        manager.begin_event("sc", "one", name=name)
                elif name is not None:
                    again = manager.begin_event("sc", "one", name=name)
                    assert again.tell() == (size if size > PART else 0)
                    again.write(data_of(size)[again.tell() :])
                    again.commit(move=True)
                    assert events(manager) == [data_of(size)]
            collect(own)
            with process(own) as manager:
                assert not transients(manager)
                assert events(manager) in ([], [data_of(size)])
                kept = sum(segment.length for segment in stream_of(manager).container.state.segments.values())
            assert sum(info.size for info in own.store.list("sc/")) == kept, "nothing else is left"
    assert True in found_whole and (False in found_whole or when == "after") and number > 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", [None, "x"])
def test_a_fault_at_every_request(simulation: Simulation, when: When, name: str | None) -> None:
    """Overcome, or heard of; in either case the event is there whole or not at all, and once."""
    number, heard, more = 0, 0, True
    while more:
        number += 1
        own = Simulation()
        with StreamManager.over(SimulatedRoot(own)) as manager:
            manager.create_scope("sc")
            manager.create_stream("sc", "one", 1)
        through = FaultStore(own.store)
        with process(own, through) as manager:
            stream_of(manager).snapshot()
            last = through.passed + number
            through.plan = fail_at(last, when)
            try:
                event = uploaded(manager, name, 4 * PART + 20)
                pointer = event.commit()
                more, through.plan = through.passed >= last, None
                assert payload(manager, pointer) == data_of(4 * PART + 20)
                assert len(events(manager)) == 1
            except StorageError:
                heard += 1
                through.plan = None
                assert events(manager) == []
    print(f"{number - 1} faults, {heard} heard of")
    assert heard < number and number > 8


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [50, 5 * PART])
@pytest.mark.parametrize("committed", [False, True])
def test_an_unknown_outcome_of_the_commit_is_settled(
    size: int, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frame was, or was not, written before the process gave up: the pointer is told all the same."""
    sought: list[object] = []
    find = Upload._found

    def found(self: Upload, *arguments: Any) -> EventPointer | None:
        sought.append(find(self, *arguments))
        return sought[-1]  # type: ignore[return-value]

    monkeypatch.setattr(Upload, "_found", found)
    own = Simulation(timeout=0.0)
    with StreamManager.over(SimulatedRoot(own)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
    through = FaultStore(own.store, verbs=("put_if_absent",))
    with process(own, through) as manager:
        event = uploaded(manager, "x", size)
        if size > PART:
            event.flush()
        with process(own) as other, other.create_writer("sc", "one") as writer:
            writer.write_event("of others")
        stream_of(manager).snapshot()
        start, when = through.passed, "after" if committed else "before"
        through.plan = lambda at, request: Fault(when) if at <= start + GIVEN_UP else None  # type: ignore[arg-type]
        pointer = event.commit()
        assert payload(manager, pointer) == data_of(size)
        assert events(manager) == [b"of others", data_of(size)]
        assert sought == ([pointer] if committed else []), "the process has given up"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [None, "x"])
@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_an_unknown_outcome_of_an_upload_is_settled(name: str | None, attached: bool, written: bool) -> None:
    """Of the append that makes the transient segment, or of a later one; the stream is scaled before it is known."""
    own = Simulation(timeout=0.0)
    with StreamManager.over(SimulatedRoot(own)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
    through = FaultStore(own.store, verbs=("put_if_absent",))
    with process(own, through) as manager:
        event = manager.begin_event("sc", "one", "key", name=name)
        data = data_of(4 * PART)
        if attached:
            event.write(data[: 2 * PART])
            event.flush()
        start, when = through.passed, "after" if written else "before"
        failed: list[int] = []

        def plan(at: int, request: Request) -> Fault | None:
            if at > start + GIVEN_UP:
                if not failed and not attached:
                    failed.append(at)
                    scaled(process(own), (0.0, 0.5), (0.5, 1.0))
                return None
            return Fault(when)  # type: ignore[arg-type]

        through.plan = plan
        event.write(data[event.tell() :])
        event.flush()
        assert through.passed > start + GIVEN_UP or written
        assert len(transients(manager)) == 1
        through.plan = None
        pointer = event.commit(move=True)
        assert payload(manager, pointer) == data
        assert events(manager) == [data] and not transients(manager)


@pytest.mark.usefixtures("small")
def test_what_was_moved_since_was_not_committed_before() -> None:
    """The outcome of a commit is unknown, then its segment is found sealed, then another process has the name."""
    own = Simulation(timeout=0.0)
    with StreamManager.over(SimulatedRoot(own)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
    through = FaultStore(own.store, verbs=("put_if_absent",))
    with process(own, through) as manager, process(own) as other:
        event = uploaded(manager, "x", 5 * PART)
        event.flush()
        start = through.passed

        def plan(at: int, request: Request) -> Fault | None:
            if at == start + GIVEN_UP + 1:
                scaled(other, (0.0, 0.5), (0.5, 1.0))
            if at == start + GIVEN_UP + 2:
                assert other.begin_event("sc", "one", name="x").tell() == 5 * PART
            return Fault("before") if at <= start + GIVEN_UP else None

        through.plan = plan
        with pytest.raises(EventTaken):
            event.commit(move=True)
        assert through.passed >= start + GIVEN_UP + 2
        assert events(manager) == []


def test_an_event_that_is_longer_than_its_writer_knows_does_not_come() -> None:
    """A second life of the process (a clone of its memory) went on with the same upload: its header would be wrong."""
    own = Simulation()
    with StreamManager.over(SimulatedRoot(own)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        upload = uploads.begin(stream_of(manager))
        upload.attach(Payload(b"begun"))
        clone = copy(upload)
        clone.attach(Payload(b"more"))
        clone.settle()
        with pytest.raises(StreamError):
            upload.commit(move=False)
        assert events(manager) == []
        clone.commit(move=False)
        assert events(manager) == [b"begunmore"]


def test_a_part_is_not_taken_for_there_because_another_one_is() -> None:
    """The outcome of an append is unknown, and when it is tried again its place holds what a clone has written."""
    own = Simulation(timeout=0.0)
    through = FaultStore(own.store, verbs=("put_if_absent",))
    with process(own, through) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one", 1)
        upload = uploads.begin(stream_of(manager))
        upload.attach(Payload(b"begun"))
        clone, start = copy(upload), through.passed
        through.plan = lambda at, request: Fault("before") if at <= start + GIVEN_UP else None
        upload.attach(Payload(b"mine"))
        clone.attach(Payload(b"another"))
        clone.settle()
        with pytest.raises(BadOffset):
            upload.settle()
