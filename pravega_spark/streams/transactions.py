"""Transactions: events that are written aside and come into the stream together, or not at all (Pravega:
TransactionalEventStreamWriter, PersistentStreamBase).

A transaction has a segment of its own for each segment of the epoch it was begun in. Keeps X1: committing is one
append, which merges all of them; and X2: where the stream was scaled meanwhile, they go where their keys go now, or the
same append adds duplicate epochs that take them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgpack
import numpy as np

from engine.container import Container
from engine.errors import BadKeyVersion, BadOffset, OutcomeUnknown, SegmentNotFound, SegmentSealed
from engine.operations import (
    Append,
    CheckEntry,
    DeleteSegment,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
)
from engine.pending import Receipt
from engine.segments import Segment
from engine.state import NOT_EXISTS
from pravega_spark.errors import StreamSealed, TransactionClosed, TransactionNotFound
from pravega_spark.streams import changes
from pravega_spark.streams.changes import STREAMS, TRANSACTIONS
from pravega_spark.streams.epochs import SegmentRecord
from pravega_spark.streams.index import decode_records
from pravega_spark.streams.names import index_segment_name, segment_name, transaction_segment_name
from pravega_spark.streams.records import Routing
from pravega_spark.streams.stream import Part, Stream, append_operations, index_content

LEASE = 600.0
"""Seconds after which a transaction that nobody pinged is aborted."""

REMEMBERED = 86_400.0
"""Seconds for which it is known of a transaction how it ended."""

_TOGETHER = 1000  # transactions whose segments are looked up at once

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class TransactionRecord(NamedTuple):
    """What is known of a transaction. Times in ms since the epoch; version: the table entry's.

    routing: the stream and its segments as they were when it was begun. lease: ms for which a ping lasts.
    changed: when it was begun, pinged, committed or aborted.
    """

    routing: Routing
    created: int
    lease: int
    changed: int
    status: str = OPEN
    version: int = NOT_EXISTS

    def expired(self, now: int) -> bool:
        """Whether it is open, and nobody has pinged it in time."""
        return self.status == OPEN and now > self.changed + self.lease

    def encode(self) -> bytes:
        """The table entry's value."""
        return bytes(msgpack.packb(self[:-1]))

    @classmethod
    def decode(cls, data: bytes, version: int) -> TransactionRecord:
        """The inverse of `encode`."""
        (stream, reference, segments), created, lease, changed, status = msgpack.unpackb(data)
        known = tuple(SegmentRecord(*segment) for segment in segments)
        return cls(Routing(stream, reference, known), created, lease, changed, status, version)


class Transaction:
    """A transaction of a stream by its id, whether it exists or not. Knows nothing that could get stale.

    Any process may write to it, ping, commit or abort it.
    """

    def __init__(self, stream: Stream, number: uuid.UUID) -> None:
        self.stream = stream
        self.id = number
        self.key = f"{stream.key}/{number.hex}"

    def __repr__(self) -> str:
        return f"Transaction({self.key!r})"

    def record(self) -> TransactionRecord:
        """What is known of it now. Raises TransactionNotFound."""
        container = self.stream.container
        entry = container.entries(TRANSACTIONS, [self.key], container.refresh())[self.key]
        if entry is None or entry.value is None:
            raise TransactionNotFound(self.stream.key, self.id)
        return TransactionRecord.decode(entry.value, entry.version)

    def segment(self, number: int) -> str:
        """The name of its segment that goes with a segment of the stream."""
        stream = self.stream
        return transaction_segment_name(stream.scope, stream.name, number, self.id)

    # --- writing -----------------------------------------------------------------------------------------------

    def write(self, parts: Sequence[Part]) -> None:
        """Append to its segments, durable on return. Raises TransactionClosed, OutcomeUnknown, StorageError."""
        self.answer(self.stream.container.submit(self.operations(parts)).result)

    def operations(self, parts: Sequence[Part]) -> list[Operation]:
        """The operations of one write."""
        return [operation for part in parts for operation in append_operations(self.segment(part.segment_id), part)]

    def answer(self, result: Callable[[], Receipt]) -> Receipt:
        """What became of a write. Raises TransactionClosed where its segments have gone."""
        try:
            return result()
        except (SegmentNotFound, SegmentSealed) as error:
            raise self._closed(self.record()) from error

    def ping(self, lease: float | None = None) -> None:
        """Keep it open for another `lease` seconds, by default for as long as the last time. Raises
        TransactionClosed."""

        def pinged(record: TransactionRecord) -> list[Operation]:
            length = record.lease if lease is None else _milliseconds(lease)
            return [self._put(record._replace(changed=_now(), lease=length))]

        self._insist(pinged)

    # --- its end -----------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Let all events into the stream, in one append. Committing it again changes nothing.

        Raises TransactionClosed for one that was aborted, TransactionNotFound, StreamSealed, StorageError.
        """
        self._insist(self._commit, COMMITTED)

    def abort(self) -> None:
        """Forget all events. Aborting it again changes nothing. Raises TransactionClosed, TransactionNotFound."""
        self._insist(self._abort, ABORTED)

    def _insist(self, change: Callable[[TransactionRecord], list[Operation]], aim: str = "") -> None:
        """Carry out a change; when somebody else was faster, again on what it is then. Done if its status is `aim`."""
        while (record := self.record()).status != aim:
            if record.status != OPEN:
                raise self._closed(record)
            with suppress(BadKeyVersion, BadOffset, OutcomeUnknown):
                self.stream.container.commit(change(record))
                return

    def _abort(self, record: TransactionRecord) -> list[Operation]:
        names = [name for segment in record.routing.segments for name in self._names(segment.id)]
        return [self._put(record._replace(status=ABORTED, changed=_now())), *map(DeleteSegment, names)]

    def _commit(self, record: TransactionRecord) -> list[Operation]:
        snapshot = self.stream.snapshot(refresh=False)
        numbers = [segment.id for segment in record.routing.segments]
        known = self.stream.container.activated([name for number in numbers for name in self._names(number)])
        used = [number for number in numbers if (written := known[self.segment(number)]) and written.length]
        targets, before, after = changes.reroute(snapshot, record.routing, used)
        operations: list[Operation] = [
            self._put(record._replace(status=COMMITTED, changed=_now())),
            *(before or [CheckEntry(STREAMS, self.stream.key, snapshot.record.version)]),
        ]
        for number in numbers:
            operations += self._merge(number, targets.get(number), known)
        return operations + after

    def _merge(self, number: int, into: int | None, known: Mapping[str, Segment | None]) -> list[Operation]:
        """What lets the events of one of its segments into one of the stream."""
        name, index = self._names(number)
        written, indexed = known[name], known[index]
        if written is None or indexed is None:
            raise SegmentNotFound(name)
        if not written.length or into is None:
            return [_unchanged(written), DeleteSegment(name), DeleteSegment(index)]
        records = decode_records(self.stream.container.read(index, 0, indexed.length))
        target = segment_name(self.stream.scope, self.stream.name, into)
        return [
            _unchanged(written),
            Append(index_segment_name(target), index_content(target, _dated(records))),
            SealSegment(name),
            MergeSegment(target, name),
            DeleteSegment(index),
        ]

    def _names(self, number: int) -> tuple[str, str]:
        name = self.segment(number)
        return name, index_segment_name(name)

    def _put(self, record: TransactionRecord) -> PutEntry:
        return PutEntry(TRANSACTIONS, self.key, record.encode(), record.version)

    def _closed(self, record: TransactionRecord) -> Exception:
        return TransactionClosed(self.stream.key, self.id, record.status)


def begin(stream: Stream, lease: float = LEASE) -> tuple[Transaction, TransactionRecord]:
    """Begin a transaction that is aborted when nobody pings it for `lease` seconds. Raises StreamSealed."""
    while True:
        snapshot = stream.snapshot()
        if snapshot.record.sealed:
            raise StreamSealed(stream.key)
        routing, now = snapshot.record.routing, _now()
        transaction = Transaction(stream, _new_id(snapshot.record.current.epoch))
        record = TransactionRecord(routing, now, _milliseconds(lease), now)
        operations: list[Operation] = [
            CheckEntry(STREAMS, stream.key, snapshot.record.version),
            PutEntry(TRANSACTIONS, transaction.key, record.encode(), NOT_EXISTS),
        ]
        operations += changes.creations(transaction.segment(segment.id) for segment in routing.segments)
        with suppress(BadKeyVersion):  # the stream was changed meanwhile
            stream.container.commit(operations)
            return transaction, record


def transactions(stream: Stream) -> Iterator[tuple[Transaction, TransactionRecord]]:
    """All transactions of a stream that are open, or whose end is remembered, in order of their ids."""
    container = stream.container
    container.refresh()
    for key, entry in container.scan_entries(TRANSACTIONS, f"{stream.key}/"):
        if entry.value is not None:
            number = uuid.UUID(key.rpartition("/")[2])
            yield Transaction(stream, number), TransactionRecord.decode(entry.value, entry.version)


class OpenTransaction(NamedTuple):
    """A transaction that is open, and the bytes that were written to it, event headers included."""

    scope: str
    stream: str
    id: uuid.UUID
    record: TransactionRecord
    size: int

    def segments(self) -> list[str]:
        """The names of the segments that its events are in."""
        numbers = [segment.id for segment in self.record.routing.segments]
        return [transaction_segment_name(self.scope, self.stream, number, self.id) for number in numbers]


def open_transactions(container: Container, prefix: str = "") -> Iterator[OpenTransaction]:
    """The open transactions of a container's streams, as this process knows them, in order of stream and id.

    prefix: what "scope/stream/" has to begin with. Their segments are looked up together.
    """
    found = []
    for key, entry in sorted(container.scan_entries(TRANSACTIONS, prefix)):
        record = TransactionRecord.decode(entry.value or b"", entry.version)
        if record.status == OPEN:
            scope, stream, number = key.split("/")
            found.append(OpenTransaction(scope, stream, uuid.UUID(number), record, 0))
    for first in range(0, len(found), _TOGETHER):
        page = {each: each.segments() for each in found[first : first + _TOGETHER]}
        known = container.activated([name for names in page.values() for name in names])
        for each, names in page.items():
            segments = (known[name] for name in names)
            yield each._replace(size=sum(segment.length for segment in segments if segment is not None))


def expire(stream: Stream, now: int | None = None) -> list[Transaction]:
    """Abort the transactions whose lease has run out, and forget those that ended long ago. Returns the aborted."""
    now, aborted = _now() if now is None else now, []
    for transaction, record in list(transactions(stream)):
        with suppress(TransactionClosed, TransactionNotFound, BadKeyVersion):
            if record.expired(now):
                transaction.abort()
                aborted.append(transaction)
            elif record.status != OPEN and now > record.changed + 1000 * REMEMBERED:
                stream.container.commit([PutEntry(TRANSACTIONS, transaction.key, None, record.version)])
    return aborted


def _unchanged(segment: Segment) -> Append:
    """Refuses everything unless the segment has still the length that it had."""
    return Append(segment.name, Payload(b""), segment.length)


def _dated(records: np.ndarray) -> np.ndarray:
    """Index records with the time at which their events come into the stream."""
    dated = records.copy()
    dated[:, 2] = _now()
    return dated


def _new_id(epoch: int) -> uuid.UUID:
    """An id as the original's: its first 32 bits are the epoch."""
    return uuid.UUID(int=epoch << 96 | uuid.uuid4().int & ((1 << 96) - 1))


def _milliseconds(seconds: float) -> int:
    if not 0 < seconds <= 30 * 86_400:
        raise ValueError(f"a lease of {seconds!r} seconds: give more than 0, and 30 days at most")
    return int(seconds * 1000)


def _now() -> int:
    return int(time.time() * 1000)


__all__ = ["TRANSACTIONS", "Transaction", "TransactionRecord", "begin", "expire", "transactions"]
