"""Large events whose stream is scaled, sealed, truncated or deleted while they are written."""

from __future__ import annotations

import pytest

from pravega_spark import EventExpired, EventSegmentSealed, StreamManager, StreamNotFound, StreamSealed
from tests.client.large_events.simulated import PART, data_of, events, payload, scaled, stream_of, transients

pytestmark = pytest.mark.usefixtures("no_threads_are_left")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("merge", [False, True])
def test_a_scale_during_an_upload(manager: StreamManager, merge: bool) -> None:
    """It fails, and says so; on request the event goes where its key is now, and no byte is uploaded again."""
    if merge:
        scaled(manager, (0.0, 0.5), (0.5, 1.0))
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("before", "key")
    event = manager.begin_event("sc", "one", "key")
    data = data_of(5 * PART)
    event.write(data[:200])
    event.flush()
    scaled(manager, *([(0.0, 1.0)] if merge else [(0.0, 0.1), (0.1, 0.9), (0.9, 1.0)]))
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("between", "key")
    event.write(data[200:])
    before = len(manager.root.stores.chunks.list("sc/"))
    for _ in range(2):
        with pytest.raises(
            EventSegmentSealed,
            match=r"its segment sc/one/\d\.#epoch\.\d was sealed because the stream was scaled\. Nothing is lost",
        ):
            event.commit()
        assert len(events(manager)) == 2 and not event.closed
    pointer = event.commit(move=True)
    assert pointer.segment_id in {segment.id for segment in manager.stream_info("sc", "one").segments}
    assert payload(manager, pointer) == data
    assert len(manager.root.stores.chunks.list("sc/")) <= before + 2
    container = stream_of(manager).container
    assert container.read(pointer.segment, pointer.offset - 7, pointer.offset) == b"between"
    assert events(manager) == [b"before", b"between", data] and not transients(manager)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [10, 3 * PART])
def test_a_scale_before_anything_is_uploaded_changes_nothing(manager: StreamManager, size: int) -> None:
    event = manager.begin_event("sc", "one", "key")
    event.write(bytes(10))
    scaled(manager, (0.0, 0.5), (0.5, 1.0))
    event.write(bytes(size - 10))
    pointer = event.commit()
    assert pointer.segment_id != 0 and events(manager) == [bytes(size)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [10, 3 * PART])
def test_a_stream_that_is_sealed_or_gone(manager: StreamManager, size: int) -> None:
    sealed, gone = manager.begin_event("sc", "one"), manager.begin_event("sc", "four")
    for event in (sealed, gone):
        event.write(bytes(size))
        if size > PART:
            event.flush()
    manager.seal_stream("sc", "one")
    with pytest.raises(StreamSealed, match="sc/one"):
        sealed.commit(move=True)
    with pytest.raises(StreamSealed, match="sc/one"):
        manager.begin_event("sc", "one")
    manager.seal_stream("sc", "four")
    manager.delete_stream("sc", "four")
    assert not transients(manager, "four"), "they go with the stream"
    with pytest.raises(StreamNotFound, match="sc/four"):
        manager.begin_event("sc", "four")
    manager.create_stream("sc", "four")
    with pytest.raises(StreamNotFound, match="sc/four"):
        gone.commit()
    assert events(manager, "four") == events(manager) == []
    assert not transients(manager)


@pytest.mark.usefixtures("small")
def test_a_truncation_behind_its_segment(manager: StreamManager) -> None:
    event = manager.begin_event("sc", "one")
    event.write(bytes(5 * PART))
    event.flush()
    scaled(manager, (0.0, 0.5), (0.5, 1.0))
    with manager.create_writer("sc", "one") as writer:
        writer.write_event("after")
    manager.truncate_stream("sc", "one", manager.stream_info("sc", "one").tail)
    assert not transients(manager)
    with pytest.raises(EventExpired, match="the stream was truncated behind its segment, so its upload was"):
        event.commit(move=True)
