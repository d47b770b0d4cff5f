"""The subscribers of a stream: the reader groups and queries whose released cuts hold back its retention (PDP-47).

Each has an entry in a table of the stream's container (X1), `<scope>/<stream>/<subscriber>`: the bytes of the last cut
that it released. It only moves forward.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from chunkstore.decoding import InvalidData
from engine.errors import BadKeyVersion, understanding
from engine.state.operations import PutEntry
from engine.state.state import NOT_EXISTS
from pravega_spark.errors import InvalidStreamCut, StreamError
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Comparison
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.model.stream_record import removal
from pravega_spark.streams.model.system_tables import SUBSCRIBERS
from pravega_spark.streams.reading.location import StreamLocation
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream


class NotSubscribed(StreamError):
    """The stream has no subscriber of that name."""

    def __init__(self, stream: str, name: str) -> None:
        super().__init__(
            f"stream {stream} has no subscriber {name}: create the reader group with retention 'manual' or "
            "'automatic', or start a query with option 'subscriber'"
        )
        self.stream = stream
        self.name = name


def query_subscriber(name: str) -> str:
    """The subscriber name of a streaming query. Reader groups cannot have it."""
    return f"query:{name}"


def decode_subscriber(data: bytes, key: str) -> StreamCut:
    """The cut that a subscriber has released. Raises DataCorruption, which names the subscriber."""
    scope, stream, *name = key.split("/", 2)
    command = f"pravega-spark stream unsubscribe {scope}/{stream} {''.join(name)} --yes"
    with understanding(f"subscriber {key}: its released cut", removal(command)):
        cut = StreamCut.from_bytes(data)
        if key.split("/")[:2] != [cut.scope, cut.stream]:
            raise InvalidData(f"it is a cut of {cut.scope}/{cut.stream}")
        return cut


def subscribers(stream: StreamLocation, refresh: bool = True) -> dict[str, StreamCut]:
    """The last released cut of each subscriber of a stream, by the subscriber's name.

    `refresh=False`: by the state known to this process.
    """
    container, prefix = stream.container, f"{stream.key}/"
    if refresh:
        container.refresh()
    return {
        key.removeprefix(prefix): decode_subscriber(entry.value, key)
        for key, entry in sorted(container.scan_entries(SUBSCRIBERS, prefix))
        if entry.value is not None
    }


class SubscriberPosition(NamedTuple):
    """The position of a subscriber: retention keeps all events after a cut.

    problem: why the released cut does not fit the stream, else empty. Then `cut` is the head, because the position
    is unknown until the subscriber is removed or releases a cut that fits (P4).
    """

    cut: StreamCut
    problem: str


def positions(snapshot: Snapshot, refresh: bool = True) -> dict[str, SubscriberPosition]:
    """The position of each subscriber of a stream, by the subscriber's name. refresh: see `subscribers`."""
    return {name: _position(snapshot, cut) for name, cut in subscribers(snapshot.stream, refresh).items()}


def _position(snapshot: Snapshot, released: StreamCut) -> SubscriberPosition:
    try:
        snapshot.check(released)
        return SubscriberPosition(released, "")
    except InvalidStreamCut as error:
        return SubscriberPosition(snapshot.head_cut(), str(error))


def subscriber_names(stream: StreamLocation) -> list[str]:
    """The names of all subscribers of a stream, with any cuts, sorted."""
    container, prefix = stream.container, f"{stream.key}/"
    container.refresh()
    return sorted(key.removeprefix(prefix) for key, _ in container.scan_entries(SUBSCRIBERS, prefix))


def subscribe(stream: Stream, name: str, cut: StreamCut, *, restart: bool = False) -> None:
    """Subscribe at a cut. An existing subscriber keeps its cut, unless `restart` is set."""
    with suppress(BadKeyVersion):
        expected = None if restart else NOT_EXISTS
        stream.container.commit([_put(stream, name, cut, expected)])


def unsubscribe(stream: Stream, name: str) -> bool:
    """Remove a subscriber. False if there is none of this name."""
    while (stored := _stored(stream, name)) is not None:
        with suppress(BadKeyVersion):
            stream.container.commit([PutEntry(SUBSCRIBERS, _key(stream, name), None, stored[1])])
            return True
    return False


def release(stream: Stream, name: str, cut: StreamCut) -> None:
    """Release the events before a cut (Pravega: updateSubscriberStreamCut).

    A last cut that does not fit the stream, for example of a deleted stream of the same name, is replaced. Raises
    NotSubscribed, StreamNotFound, and InvalidStreamCut for a cut that is before the last one in any segment, or
    within an event.
    """
    snapshot = stream.snapshot()
    cut = snapshot.resolved(cut)
    snapshot.check(cut)
    snapshot.check_boundaries(cut)  # retention may truncate there
    while True:
        stored = _stored(stream, name)
        if stored is None:
            raise NotSubscribed(stream.key, name)
        last, version = decode_subscriber(stored[0], _key(stream, name)), stored[1]
        if cut == last:
            return
        fits = not _position(snapshot, last).problem
        if fits and snapshot.record.history.compare(cut.positions, last.positions) is not Comparison.EQUAL_OR_AFTER:
            raise InvalidStreamCut(f"stream cut {cut} is before {last}, which subscriber {name} has released already")
        with suppress(BadKeyVersion):
            stream.container.commit([_put(stream, name, cut, version)])
            return


def _key(stream: StreamLocation, name: str) -> str:
    return f"{stream.key}/{name}"


def _put(stream: StreamLocation, name: str, cut: StreamCut, expected: int | None) -> PutEntry:
    """The operation that stores a subscriber's cut. Raises UnreadableRecord."""
    key = _key(stream, name)
    what = f"the released cut of subscriber {key}"
    data = readable(what, cut, StreamCut.to_bytes, lambda written: decode_subscriber(written, key))
    return PutEntry(SUBSCRIBERS, key, data, expected)


def _stored(stream: StreamLocation, name: str) -> tuple[bytes, int] | None:
    """The released cut of a subscriber as it is stored, and the version of its entry; None if there is none."""
    container, key = stream.container, _key(stream, name)
    entry = container.entries(SUBSCRIBERS, [key], container.refresh())[key]
    return (entry.value, entry.version) if entry is not None and entry.value is not None else None
