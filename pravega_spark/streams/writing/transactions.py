"""Transactions: events that become part of the stream together, or not at all (Pravega:
TransactionalEventStreamWriter, PersistentStreamBase).

A transaction has a segment for each segment of the epoch it was begun in. Keeps X1: a commit is one append, which
merges all of them; and X2: if the stream was scaled meanwhile, they are merged into the segments that own their keys
now, or the same append adds duplicate epochs that take them.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgpack
import numpy as np

from chunkstore.decoding import Natural, check_format, reader, unpack
from chunkstore.optional_fields import NONE, OptionalFields, with_optional, without_optional
from engine.errors import (
    BadKeyVersion,
    BadOffset,
    DataCorruption,
    OutcomeUnknown,
    SegmentExists,
    SegmentNotFound,
    SegmentSealed,
    UnknownFormat,
    understanding,
)
from engine.logs.transaction import Receipt
from engine.state.index_records import THIS_APPEND
from engine.state.operations import (
    Append,
    CheckEntry,
    DeleteSegment,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
)
from engine.state.segments import Segment
from engine.state.state import NOT_EXISTS
from engine.state.tables import Entry
from pravega_spark.errors import StreamSealed, TransactionClosed, TransactionNotFound, TransactionTooLong
from pravega_spark.streams.model.index import decode_records
from pravega_spark.streams.model.names import index_segment_name, segment_name, transaction_segment_name
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.model.stream_record import FORMAT, REMEDY, Routing
from pravega_spark.streams.model.system_tables import STREAMS, TRANSACTIONS
from pravega_spark.streams.writing import changes
from pravega_spark.streams.writing.event_order import Interleaving, order_operations
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry
from pravega_spark.streams.writing.writable_stream import WritableStream
from pravega_spark.streams.writing.writes import SegmentAppend, append_operations, index_append

if TYPE_CHECKING:
    from pravega_spark.streams.reading.readable import ReadableContainer

logger = logging.getLogger(__name__)

LEASE = 600.0
"""Default lease: seconds without a ping after which a transaction is aborted."""

LEASES = 1000
LONGEST = 86_400.0
"""Maximum number of leases, and of seconds, for which a transaction may be open (Pravega:
StreamTransactionMetadataTasks)."""

REMEMBERED = 86_400.0
"""Seconds for which the record of an ended transaction is kept."""

_SAFE = "Repeating the call is safe; or check the transaction's status"

_REMOVAL = f"{REMEDY}, or abort it: create_transaction_writer(…).abort_txn(id); others of its stream are not affected"

_TOGETHER = 1000  # transactions whose segments are looked up at once

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class TransactionRecord(NamedTuple):
    """The record of a transaction. Times in ms since the epoch; version: of the table entry.

    routing: the stream and its segments when it was begun. lease: ms for which a ping lasts. changed: when it was
    begun, pinged, committed or aborted. longest: maximum ms for which it may be open. optional: what newer versions
    added that this one need not know (W19).
    """

    routing: Routing
    created: int
    lease: int
    changed: int
    longest: int
    status: str = OPEN
    version: int = NOT_EXISTS
    optional: OptionalFields = NONE

    @property
    def timeout(self) -> int:
        """When it expires without a ping (ms since the epoch)."""
        return min(self.changed + self.lease, self.created + self.longest)

    def expired(self, now: int) -> bool:
        """Whether it is open, and its lease or its maximum time has expired."""
        return self.status == OPEN and now > self.timeout

    def encode(self) -> bytes:
        """The table entry's value. Raises UnreadableRecord."""
        return readable(
            "the record of a transaction",
            self,
            lambda record: bytes(msgpack.packb(with_optional([FORMAT, *record[:6]], record.optional))),
            lambda data: self._decoded(data, self.version),
        )

    @classmethod
    def decode(cls, data: bytes, version: int, key: str) -> TransactionRecord:
        """The inverse of `encode`, for the entry of that key. Raises DataCorruption, which names the transaction."""
        with understanding(f"transaction {key}: its record", _REMOVAL):
            transaction_of(key)
            return cls._decoded(data, version)

    @classmethod
    def _decoded(cls, data: bytes, version: int) -> TransactionRecord:
        known, *fields = unpack(data)
        check_format(known, FORMAT)
        plain, optional = without_optional(fields, 6)
        routing, created, lease, changed, longest, status = _RECORD(plain)
        return cls(routing, created, lease, changed, longest, status, version, optional)


_RECORD = reader(tuple[Routing, int, Natural, int, Natural, Literal["open", "committed", "aborted"]])


def transaction_of(key: str) -> tuple[str, str, uuid.UUID]:
    """Scope, stream and id of the transaction with this key. Raises ValueError."""
    scope, stream, number = key.split("/")
    return scope, stream, uuid.UUID(hex=number)


class ColumnOrder(NamedTuple):
    """The order of a column's events, which one append wrote to several segments of a transaction.

    segment, offset: where the events of one of the segments begin. interleaving: by the segments of the stream.
    """

    segment: int
    offset: int
    interleaving: Interleaving


class Transaction:
    """A transaction of a stream by its id, whether it exists or not. Caches nothing.

    Any process may write to it, ping, commit or abort it.
    """

    def __init__(self, stream: WritableStream, number: uuid.UUID) -> None:
        self.stream = stream
        self.id = number
        self.key = f"{stream.key}/{number.hex}"

    def __repr__(self) -> str:
        return f"Transaction({self.key!r})"

    def record(self) -> TransactionRecord:
        """Its present record. Raises TransactionNotFound."""
        container = self.stream.container
        entry = container.entries(TRANSACTIONS, [self.key], container.refresh())[self.key]
        if entry is None or entry.value is None:
            raise TransactionNotFound(self.stream.key, self.id)
        return TransactionRecord.decode(entry.value, entry.version, self.key)

    def segment(self, number: int) -> str:
        """The name of its segment for a segment of the stream."""
        stream = self.stream
        return transaction_segment_name(stream.scope, stream.name, number, self.id)

    # --- writing -----------------------------------------------------------------------------------------------

    def write(self, parts: Sequence[SegmentAppend]) -> None:
        """Append to its segments, durable on return. Raises TransactionClosed, OutcomeUnknown, StorageError."""
        self.answer(self.stream.container.submit(self.operations(parts)).result)

    def operations(self, parts: Sequence[SegmentAppend]) -> list[Operation]:
        """The operations of one write. Raises StorageFull."""
        self.stream.container.check_room()
        return [operation for part in parts for operation in append_operations(self.segment(part.segment_id), part)]

    def answer(self, result: Callable[[], Receipt]) -> Receipt:
        """Wait for a write. Raises TransactionClosed if its segments are gone."""
        try:
            return result()
        except (SegmentNotFound, SegmentSealed) as error:
            raise self._closed(self.record()) from error

    def ping(self, lease: float | None = None) -> None:
        """Keep it open for another `lease` seconds, by default for as long as the last time. Raises
        TransactionClosed, and TransactionTooLong where that would be longer than it may be open."""

        def pinged(record: TransactionRecord) -> list[Operation]:
            length, now = record.lease if lease is None else _milliseconds(lease), _now(self.stream)
            if now + length > record.created + record.longest:
                left = max(record.created + record.longest - now, 0)
                raise TransactionTooLong(self.stream.key, self.id, record.longest / 1000, left / 1000)
            return [self._put(record._replace(changed=now, lease=length))]

        self._commit_change(pinged)

    # --- its end -----------------------------------------------------------------------------------------------

    def commit(self, columns: Sequence[ColumnOrder] = ()) -> None:
        """Merge all events into the stream, in one append. Committing it again changes nothing.

        columns: the order of events that one append wrote to several segments, as far as the caller wrote them.

        Raises TransactionClosed if it was aborted, TransactionNotFound, StreamSealed, StorageError; and
        OutcomeUnknown after retrying for some minutes.
        """
        self._commit_change(partial(self._commit, columns=columns), COMMITTED)

    def abort(self) -> None:
        """Delete all events. Aborting it again changes nothing. A transaction with a damaged record is removed.
        Raises TransactionClosed, TransactionNotFound."""
        while True:
            try:
                self._commit_change(self._abort, ABORTED)
                return
            except UnknownFormat:
                raise
            except DataCorruption:
                if not self._is_unreadable():
                    raise
            with suppress(BadKeyVersion):
                self.stream.container.commit(self._removal())
                return

    def _is_unreadable(self) -> bool:
        try:
            self.record()
            return False
        except DataCorruption:
            return True

    def _removal(self) -> list[Operation]:
        """The operations that remove a transaction with a damaged record, and the segments named after it."""
        container = self.stream.container
        state = container.refresh()
        entry = container.entries(TRANSACTIONS, [self.key], state)[self.key]
        own = [name for name in changes.segment_names(self.stream, state) if f"#transaction.{self.id.hex}" in name]
        there = [name for name, segment in container.activated(sorted(own), state).items() if segment is not None]
        version = entry.version if entry is not None else NOT_EXISTS
        return [PutEntry(TRANSACTIONS, self.key, None, version), *map(DeleteSegment, there)]

    def _commit_change(self, change: Callable[[TransactionRecord], list[Operation]], aim: str = "") -> None:
        """Commit a change of the record, and retry if another process changed it. Done if its status is `aim`."""
        what = f"transaction {self.key}: it is unknown whether it is {aim or 'pinged'}"
        retry = OutcomeRetry(self.stream.container, what, _SAFE)
        while (record := self.record()).status != aim:
            if record.status != OPEN:
                raise self._closed(record)
            try:
                self.stream.container.commit(change(record))
                return
            except (BadKeyVersion, BadOffset, SegmentExists):
                continue
            except SegmentNotFound:
                if self.record().version == record.version:  # else it ended meanwhile, which deletes its segments
                    raise
            except OutcomeUnknown as error:
                retry.wait_or_raise(error)

    def expire(self, record: TransactionRecord) -> bool:
        """Abort it if its record is unchanged. False if it was pinged, or has ended, meanwhile."""
        try:
            self.stream.container.commit(self._abort(record))
            return True
        except BadKeyVersion:
            return False

    def _abort(self, record: TransactionRecord) -> list[Operation]:
        names = [name for segment in record.routing.segments for name in self._names(segment.id)]
        return [self._put(record._replace(status=ABORTED, changed=_now(self.stream))), *map(DeleteSegment, names)]

    def _commit(self, record: TransactionRecord, columns: Sequence[ColumnOrder] = ()) -> list[Operation]:
        self.stream.begin_generation()
        snapshot = self.stream.snapshot(refresh=False)
        numbers = [segment.id for segment in record.routing.segments]
        known = self.stream.container.activated([name for number in numbers for name in self._names(number)])
        used = [number for number in numbers if (written := known[self.segment(number)]) and written.length]
        (targets,), before, after = changes.reroute(snapshot, [(record.routing, used)])
        operations: list[Operation] = [
            self._put(record._replace(status=COMMITTED, changed=_now(self.stream))),
            *(before or [CheckEntry(STREAMS, self.stream.key, snapshot.record.version)]),
        ]
        records = {number: self._records(number, known) for number in used}
        for number in numbers:
            operations += self._merge(number, targets.get(number), known, records.get(number))
        interleaving = _interleaving(targets, records, columns) if len(used) > 1 else None
        return operations + order_operations(self.stream.container, self.stream.key, interleaving) + after

    def _records(self, number: int, known: Mapping[str, Segment | None]) -> np.ndarray:
        """The index records of one of its segments."""
        index = self._names(number)[1]
        indexed = known[index]
        if indexed is None:
            raise SegmentNotFound(index)
        return decode_records(self.stream.container.read(index, 0, indexed.length))

    def _merge(
        self, number: int, into: int | None, known: Mapping[str, Segment | None], records: np.ndarray | None
    ) -> list[Operation]:
        """The operations that merge one of its segments into one of the stream. records: of its index."""
        name, index = self._names(number)
        written = known[name]
        if written is None:
            raise SegmentNotFound(name)
        if records is None or into is None:
            return [_unchanged(written), DeleteSegment(name), DeleteSegment(index)]
        target = segment_name(self.stream.scope, self.stream.name, into)
        return [
            _unchanged(written),
            index_append(target, _dated(records)),
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


def begin(stream: WritableStream, lease: float = LEASE) -> tuple[Transaction, TransactionRecord]:
    """Begin a transaction that is aborted without a ping for `lease` seconds, and after 1,000 leases or a day.

    Raises StreamSealed, StorageFull.
    """
    stream.container.check_room()
    while True:
        snapshot = stream.snapshot()
        if snapshot.record.sealed:
            raise StreamSealed(stream.key)
        routing, now = snapshot.record.routing, _now(stream)
        transaction = Transaction(stream, _new_id(snapshot.record.current.epoch))
        length = _milliseconds(lease)
        record = TransactionRecord(routing, now, length, now, min(LEASES * length, int(1000 * LONGEST)))
        operations: list[Operation] = [
            CheckEntry(STREAMS, stream.key, snapshot.record.version),
            PutEntry(TRANSACTIONS, transaction.key, record.encode(), NOT_EXISTS),
        ]
        operations += changes.creations(transaction.segment(segment.id) for segment in routing.segments)
        with suppress(BadKeyVersion):  # the stream was changed meanwhile
            stream.container.commit(operations)
            return transaction, record


def transactions(stream: WritableStream, *, refresh: bool = True) -> Iterator[tuple[Transaction, TransactionRecord]]:
    """All transactions of a stream that have a record, in order of their ids. refresh: False for those that are known
    here."""
    container = stream.container
    if refresh:
        container.refresh()
    for key, record in _readable(sorted(container.scan_entries(TRANSACTIONS, f"{stream.key}/"))):
        yield Transaction(stream, transaction_of(key)[2]), record


def _readable(entries: Iterable[tuple[str, Entry]]) -> Iterator[tuple[str, TransactionRecord]]:
    """Decode the records of entries, by their keys. The error of a damaged one is raised after all others. Raises
    DataCorruption."""
    unreadable: DataCorruption | None = None
    for key, entry in list(entries):  # the caller may change them
        if entry.value is not None:
            try:
                record = TransactionRecord.decode(entry.value, entry.version, key)
            except DataCorruption as error:
                unreadable = unreadable or error
                continue
            yield key, record
    if unreadable is not None:
        raise unreadable


class OpenTransaction(NamedTuple):
    """An open transaction, and the bytes written to it, event headers included."""

    scope: str
    stream: str
    id: uuid.UUID
    record: TransactionRecord
    size: int

    def segments(self) -> list[str]:
        """The names of the segments that its events are in."""
        numbers = [segment.id for segment in self.record.routing.segments]
        return [transaction_segment_name(self.scope, self.stream, number, self.id) for number in numbers]


def open_transactions(container: ReadableContainer, prefix: str = "") -> Iterator[OpenTransaction]:
    """The open transactions of a container's streams, as this process knows them, in order of stream and id.

    prefix: what "scope/stream/" has to begin with. Their segments are looked up together. Damaged records are logged.
    """
    found = []
    try:
        for key, record in _readable(sorted(container.scan_entries(TRANSACTIONS, prefix))):
            if record.status == OPEN:
                found.append(OpenTransaction(*transaction_of(key), record, 0))
    except DataCorruption as error:
        logger.warning("%s", str(error))
    for first in range(0, len(found), _TOGETHER):
        page = [(each, each.segments()) for each in found[first : first + _TOGETHER]]
        known = container.activated([name for _, names in page for name in names])
        for each, names in page:
            segments = (known[name] for name in names)
            yield each._replace(size=sum(segment.length for segment in segments if segment is not None))


def expire(stream: WritableStream, now: int | None = None, *, refresh: bool = True) -> list[Transaction]:
    """Abort transactions with an expired lease, and delete records of those that ended long ago. Returns the
    aborted.

    now: ms since the epoch, by default the storage's time (W13: ClocksDisagree if the host's differs). refresh: False
    to send no request if this process knows of no transactions of the stream. A transaction that is pinged or committed
    meanwhile is not aborted. Raises OutcomeUnknown: the call can be repeated.
    """
    if not refresh and not any(transactions(stream, refresh=False)):
        return []
    if now is None:
        now = int(stream.container.storage_clock.agreed("no transaction is aborted") * 1000)
    aborted = []
    for transaction, record in transactions(stream):
        if record.expired(now):
            if transaction.expire(record):
                aborted.append(transaction)
        elif record.status != OPEN and now > record.changed + 1000 * REMEMBERED:
            with suppress(BadKeyVersion):
                stream.container.commit([PutEntry(TRANSACTIONS, transaction.key, None, record.version)])
    return aborted


def _interleaving(
    targets: Mapping[int, int], records: Mapping[int, np.ndarray], columns: Iterable[ColumnOrder]
) -> Interleaving:
    """The order of all events. targets: the segments of the stream that take those of the transaction's segments, whose
    index records are given."""
    known: dict[int, Interleaving] = {}
    for number, offset, column in columns:
        row = np.searchsorted(records[number][:, 0], offset, side="right")
        segments = tuple(targets[each] for each in column.segments)
        known[int(records[number][row, 3])] = Interleaving(segments, column.places)
    return Interleaving.of_appends([targets[number] for number in records], list(records.values()), known)


def _unchanged(segment: Segment) -> Append:
    """Rejects the whole append unless the segment has this length."""
    return Append(segment.name, Payload(b""), segment.length)


def _dated(records: np.ndarray) -> np.ndarray:
    """Index records with the time and the number of the commit's append."""
    dated: np.ndarray = records.copy()
    dated[:, 2:] = int(time.time() * 1000), THIS_APPEND
    return dated


def _new_id(epoch: int) -> uuid.UUID:
    """An id as the original's: its first 32 bits are the epoch."""
    return uuid.UUID(int=epoch << 96 | uuid.uuid4().int & ((1 << 96) - 1))


def _milliseconds(seconds: float) -> int:
    if not 0 < seconds <= LONGEST:
        raise ValueError(
            f"the lease must be above 0 and at most {LONGEST:g} seconds, the longest a transaction may be open, "
            f"not {seconds!r}"
        )
    return int(seconds * 1000)


def _now(stream: WritableStream) -> int:
    """The storage's time, by which all processes decide whether a lease has expired (W13)."""
    return int(stream.container.storage_clock.now() * 1000)


__all__ = ["TRANSACTIONS", "Transaction", "TransactionRecord", "begin", "expire", "transactions"]
