"""Large events with names: once, and gone on with by another process."""

from __future__ import annotations

import pytest

from chunkstore import StorageError
from chunkstore.testing import Fault, FaultStore
from pravega_spark import EventExists, EventTaken, LargeEvent, StreamManager
from pravega_spark.streams.writing import uploads
from tests.client.large_events.simulated import (
    PART,
    collect,
    data_of,
    dying,
    events,
    payload,
    process,
    scaled,
    stream_of,
    transients,
)
from tests.support.simulation import Simulation

pytestmark = pytest.mark.usefixtures("no_threads_are_left")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("scale", [False, True])
def test_an_upload_is_gone_on_with_by_name(simulation: Simulation, scale: bool) -> None:
    data = data_of(10 * PART)
    with dying(simulation) as manager:
        event = manager.begin_event("sc", "one", "key", name="x")
        assert event.tell() == 0
        event.write(data[:200])
        event.flush()
        event.write(data[200:230])
        lost = manager.begin_event("sc", "one", name="unnamed elsewhere")
        lost.write(bytes(3 * PART))
        lost.flush()
    with process(simulation) as manager:
        if scale:
            scaled(manager, (0.0, 0.5), (0.5, 1.0))
        with pytest.raises(ValueError, match="the event 'x' of stream sc/one was begun with another routing key than"):
            manager.begin_event("sc", "one", "other", name="x")
        again = manager.begin_event("sc", "one", *(["key"] if scale else []), name="x")
        assert again.tell() == 200
        again.write(data[200:])
        pointer = again.commit(move=scale)
        assert payload(manager, pointer) == data and events(manager) == [data]
        with pytest.raises(EventExists, match="the event 'x' was committed before"):
            manager.begin_event("sc", "one", "key", name="x")
        with manager.begin_event("sc", "four", name="x") as elsewhere:
            assert elsewhere.tell() == 0


@pytest.mark.usefixtures("small")
def test_who_goes_on_fences_who_wrote_before(manager: StreamManager, url: str) -> None:
    first = manager.begin_event("sc", "one", name="x")
    first.write(b"1" * 3 * PART)
    first.flush()
    with StreamManager(url) as other:
        second = other.begin_event("sc", "one", name="x")
        assert second.tell() == 3 * PART
        first.write(b"1" * PART)
        with pytest.raises(EventTaken, match="another process has taken over or aborted the event 'x'"):
            first.flush()
        assert first.closed
        second.write(b"2" * PART)
        second.commit()
    assert events(manager) == [b"1" * 3 * PART + b"2" * PART]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [10, 3 * PART])
@pytest.mark.parametrize("other_size", [10, 3 * PART])
def test_two_begin_the_same_name(manager: StreamManager, url: str, size: int, other_size: int) -> None:
    """Neither has uploaded anything: who commits first, or uploads first, has it."""
    with StreamManager(url) as other:
        first, second, third = (one.begin_event("sc", "one", name="x") for one in (manager, other, manager))
        second.write(b"2" * other_size)
        if other_size > PART:
            second.flush()
            with pytest.raises(EventTaken, match="another process has taken over or aborted the event 'x'"):
                third.write(b"3" * size)
                third.commit()
            assert third.closed
        second.commit()
        with pytest.raises(EventExists, match="the event 'x' was committed before"):
            first.write(b"1" * size)
            first.commit()
        assert first.closed
        with pytest.raises(EventExists):
            manager.begin_event("sc", "one", name="x")
    assert events(manager) == [b"2" * other_size] and not transients(manager)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("end", ["aborted", "expired"])
def test_a_name_is_free_again(simulation: Simulation, end: str) -> None:
    with dying(simulation) as manager:
        stream = stream_of(manager)
        upload = uploads.begin(stream, "key", "x")
        event = LargeEvent(stream, upload)
        event.write(bytes(3 * PART))
        event.flush()
        if end == "aborted":
            event.abort()
            assert stream_of(manager).container.attributes("sc/one#writers").keys() <= {b"\x80" + bytes(15)}
        else:
            collect(simulation)
    with process(simulation) as manager:
        again = manager.begin_event("sc", "one", "another key", name="x")
        assert again.tell() == 0
        again.write(b"2" * 3 * PART)
        again.flush()
        if end == "expired":
            with pytest.raises(EventTaken, match="'x'"):
                upload.stream = stream_of(manager)  # the process had slept
                event.commit()
        again.commit()
        assert events(manager) == [b"2" * 3 * PART]


@pytest.mark.usefixtures("small")
def test_a_failure_leaves_what_has_a_name(simulation: Simulation) -> None:
    store = FaultStore(simulation.store)
    with process(simulation, store) as manager:
        named, unnamed = manager.begin_event("sc", "one", name="x"), manager.begin_event("sc", "one")
        for event in (named, unnamed):
            event.write(b"1" * 2 * PART)
            event.flush()
        store.plan = lambda at, request: Fault("before") if request.verb == "put" else None
        for event in (named, unnamed):
            with pytest.raises(StorageError, match="injected fault"):
                event.write(b"2" * 10 * PART)
                event.commit()
            assert event.closed
        store.plan = None
        assert len(transients(manager)) == 1
        with manager.begin_event("sc", "one", name="x") as again:
            assert again.tell() == 2 * PART
            again.write(b"2")
            again.commit()
        assert events(manager) == [b"1" * 2 * PART + b"2"]
