"""Transactions as programs use them (Pravega: TransactionalEventStreamWriter; `pravega_client.StreamTxnWriter` and
`StreamTransaction`).

Writes are submitted to the container without waiting; `flush` and `commit` wait. A commit publishes everything that
was written through this object before, and everything that other processes have flushed.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from chunkstore import StorageError
from engine.errors import EngineError, Throttled
from engine.logs.transaction import Receipt
from engine.ownership import Owner
from pravega_spark.client.event_validation import (
    IN_TRANSACTION,
    Column,
    Keys,
    check_key,
    encode_text,
    frame_event,
    row_ranges,
    validated_events,
    validated_keys,
)
from pravega_spark.errors import (
    Interrupted,
    StreamError,
    TransactionClosed,
    TransactionIncomplete,
    TransactionNotFound,
    TransactionTooLong,
)
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import DurationLike, parse_seconds
from pravega_spark.streams.model.framing import frame_column
from pravega_spark.streams.model.key_columns import KeyHashes
from pravega_spark.streams.model.routing import hash_key, segment_for
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.stream_time import LEASE as NOTED_FOR, StreamTime, check_time
from pravega_spark.streams.writing import transactions
from pravega_spark.streams.writing.event_order import Interleaving
from pravega_spark.streams.writing.transactions import ABORTED, COMMITTED, LEASE, OPEN, ColumnOrder, Transaction
from pravega_spark.streams.writing.writes import SegmentAppend, segment_appends

BATCH_BYTES = 4 << 20
"""Maximum bytes of a column in one append."""

MAX_WAITING = 64
"""Maximum number of writes in flight."""

MIN_LEASE = 10.0
"""Minimum lease in seconds (Pravega: Config.MIN_LEASE_VALUE)."""


class _Submitted(NamedTuple):
    """A write in flight. segment: the first one that it appends to. interleaving: of its events, if it has several."""

    future: Future[Receipt]
    segment: int
    interleaving: Interleaving | None


class CompletedTransaction(NamedTuple):
    """A transaction that was committed or aborted. txn_id: as StreamTransaction.get_txn_id. status: "committed" or
    "aborted". ended: ms since the epoch."""

    txn_id: int
    status: str
    ended: int


def completed_transactions(stream: Stream) -> list[CompletedTransaction]:
    """The ended transactions of a stream that have a record, the last one first."""
    found = (
        CompletedTransaction(each.id.int, record.status, record.changed)
        for each, record in transactions.transactions(stream)
        if record.status != OPEN
    )
    return sorted(found, key=lambda each: each.ended, reverse=True)


@checks_parameters(but=("__init__", "write_event", "write_event_bytes", "write_events"))
class StreamTransaction:
    """Events that are committed to a stream together. Made by `StreamTransactionWriter`. For one thread.

    A with statement commits it at the end, or aborts it on an exception, unless it has ended before. Events of one
    routing key keep their order, and so do those without a key, which all go to one segment. Methods raise
    TransactionClosed once it was committed, aborted or has expired, also for a second commit or abort through this
    object, as `pravega_client` does; StreamSealed; StorageError.
    """

    def __init__(
        self,
        transaction: Transaction,
        record: transactions.TransactionRecord,
        check_open: Callable[[], None] = lambda: None,
        writer_id: str = "",
    ) -> None:
        """check_open: raises Closed once the manager is closed. writer_id: whose time is noted by the commit."""
        self._transaction = transaction
        self._time, self._writer_id = StreamTime(transaction.stream, record.routing.id), writer_id
        self._check_manager = check_open
        self._owner = Owner(f"this object of transaction {transaction.key}", "get the transaction by its id there")
        self._segments = record.routing.segments
        self._bounds = [segment.high for segment in self._segments]
        self._key_hashes = KeyHashes()
        self._keyless = hash_key(str(transaction.id))  # one segment takes all events without a key, in their order
        self._waiting: deque[_Submitted] = deque()
        self._columns: list[ColumnOrder] = []
        self._failure: Exception | None = None
        self._ended = ""  # how it ended through this object
        self._pinged(record.lease / 1000)

    def __repr__(self) -> str:
        return f"StreamTransaction({self._transaction.key!r})"

    def to_str(self) -> str:
        """Its stream and id as text for people."""
        return self._transaction.key

    def get_txn_id(self) -> int:
        """Its id; another process can open it by `get_txn`."""
        return self._transaction.id.int

    def is_open(self) -> bool:
        """Whether it can still be written and committed."""
        self._check_manager()
        try:
            return self._transaction.record().status == OPEN
        except TransactionNotFound:
            return False  # its record was deleted some time after it ended

    def write_event(self, event: str, routing_key: str | None = None) -> None:
        """Write a text as UTF-8."""
        self.write_event_bytes(encode_text(event), routing_key)

    def write_event_bytes(self, event: bytes | bytearray | memoryview, routing_key: str | None = None) -> None:
        """Write an event of at most 8 MiB. It is durable after `flush` or `commit`."""
        self._owner.check()
        content = frame_event(event, IN_TRANSACTION)
        if routing_key is not None:
            check_key(routing_key)
        index = bisect_left(self._bounds, self._keyless if routing_key is None else hash_key(routing_key))
        parts = segment_appends([(index, memoryview(content), np.array([len(content)]))], self._segments, 0)
        self._submit([(parts, None)])

    def write_events(
        self,
        events: Column,
        routing_keys: Keys | None = None,
    ) -> None:
        """Write a column of strings or bytes, with a routing key (or null) for each. See `EventWriter.write_events`."""
        self._owner.check()
        column = validated_events(events, IN_TRANSACTION)
        keys = validated_keys(routing_keys, len(column))
        if len(column) == 0:
            return
        hashes = self._key_hashes.find(keys) if keys is not None else np.full(len(column), np.nan)
        segments = segment_for(np.where(np.isnan(hashes), self._keyless, hashes), self._bounds)
        ids = [segment.id for segment in self._segments]
        appends = []
        for start, end in row_ranges(column, BATCH_BYTES):
            indexes = segments[start:end]
            framed = frame_column(column.slice(start, end - start), indexes, len(self._bounds))
            parts = segment_appends(framed.contents(), self._segments, 0)  # they get the time of the commit
            appends.append((parts, Interleaving.of_column(ids, indexes)))
        self._submit(appends)

    def _submit(self, appends: Sequence[tuple[Sequence[SegmentAppend], Interleaving | None]]) -> None:
        """Submit all parts of a write. If only some are submitted, the transaction cannot be committed (W16)."""
        self._check()
        self._keep_open()
        begun = 0
        try:
            for parts, interleaving in appends:
                while len(self._waiting) >= MAX_WAITING:
                    self._settle()
                operations = self._transaction.operations(parts)
                begun += 1
                future = self._transaction.stream.container.submit(operations)
                self._waiting.append(_Submitted(future, parts[0].segment_id, interleaving))
        except BaseException as error:
            if begun > isinstance(error, Throttled) and self._failure is None:
                self._failure = Interrupted(
                    f"a write to transaction {self._transaction.key}",
                    repr(error),
                    "some of its events may be missing, so it cannot be committed. Abort it, and write all of it again",
                )
            raise

    def _settle(self) -> None:
        future, segment, interleaving = self._waiting[0]
        try:
            receipt = self._transaction.answer(future.result)
        except (StreamError, EngineError, StorageError) as error:
            self._failure = error if isinstance(error, StreamError) else self._incomplete(error)
            self._waiting.clear()
            raise
        if interleaving is not None:
            _, offset = receipt.results[:2]  # of the append to the first segment's index, and to that segment
            self._columns.append(ColumnOrder(segment, offset, interleaving))
        self._waiting.popleft()  # not before: an exception of a signal handler is not the outcome

    def _incomplete(self, cause: Exception) -> TransactionIncomplete:
        """What later calls raise: not the cause, which may advise to repeat the call."""
        incomplete = TransactionIncomplete(self._transaction.key, str(cause))
        incomplete.__cause__ = cause
        return incomplete

    def _check(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise self._failure  # some of its events are missing, so it must not be committed

    def _check_open(self) -> None:
        self._owner.check()
        self._check_manager()
        if self._ended:
            raise TransactionClosed(self._transaction.stream.key, self._transaction.id, self._ended)

    def flush(self) -> None:
        """Wait until all that was written is durable."""
        self._check()
        while self._waiting:
            self._settle()

    def ping(self, lease: DurationLike | None = None) -> None:
        """Keep it open for another `lease` (seconds, or "5m"; 10 s at least), by default for as long as the last
        time."""
        self._owner.check()
        self._check_manager()
        seconds = None if lease is None else _lease_seconds(lease)
        self._transaction.ping(seconds)
        self._pinged(seconds or self._lease)

    def _pinged(self, lease: float) -> None:
        self._lease, self._ping_at = lease, self._transaction.stream.container.clock() + lease / 2

    def _keep_open(self) -> None:
        """Ping it once half of its lease is over: a program that writes need not think of it."""
        if self._transaction.stream.container.clock() >= self._ping_at:
            with suppress(TransactionTooLong):  # the rest of its time is less than a lease
                self.ping()

    def commit(self, timestamp: int | None = None) -> None:
        """Commit all events together. Can be repeated after a failure, also by another process. Raises
        TransactionIncomplete if a write failed before.

        timestamp: then note the time of the transaction writer: what it begins to write from now on has this time or a
        later one (see `EventWriter.note_time`). A time before its last one changes nothing. Events get the time of
        the commit, as without it.
        """
        if timestamp is not None:
            check_time(timestamp)
        self.flush()
        self._transaction.commit(self._columns)
        if timestamp is not None:
            self._time.note(self._writer_id, timestamp, NOTED_FOR, strict=False)
        self._ended = COMMITTED

    def commit_timestamp(self, timestamp: int) -> None:
        """Commit, and note the time. The same as `commit(timestamp)`."""
        self.commit(timestamp)

    def abort(self) -> None:
        """Discard all events. Can be repeated after a failure, also by another process."""
        self._check_open()
        self._waiting.clear()
        self._transaction.abort()
        self._ended = ABORTED

    def __enter__(self) -> StreamTransaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._ended or not self._owner.here:  # only the process that created it ends it
            return
        if kind is None:
            self.commit()
        else:
            self.abort()


@checks_parameters(but=("__init__",), hints={"txn_id": "give what get_txn_id() of the transaction returned"})
class StreamTransactionWriter:
    """Begins transactions on a stream. Made by `StreamManager.create_transaction_writer`."""

    def __init__(self, stream: Stream, check_open: Callable[[], None] = lambda: None) -> None:
        """check_open: raises Closed once the manager is closed."""
        stream.snapshot()
        self._stream = stream
        self._check_open = check_open
        self._writer_id = f"transactions:{uuid.uuid4().hex}"

    def __repr__(self) -> str:
        return f"StreamTransactionWriter({self._stream.key!r})"

    def to_str(self) -> str:
        """Its stream as text for people."""
        return self._stream.key

    def begin_txn(self, lease: DurationLike = LEASE) -> StreamTransaction:
        """Begin a transaction, which is aborted if it is neither written to nor pinged for `lease` (seconds, or "5m";
        10 s at least). Raises StreamSealed."""
        self._check_open()
        begun = transactions.begin(self._stream, _lease_seconds(lease))
        return StreamTransaction(*begun, self._check_open, self._writer_id)

    def get_txn(self, txn_id: int | uuid.UUID | str) -> StreamTransaction:
        """A transaction by its id: an integer, as `get_txn_id` returns it, a UUID or its text, as lists show it.

        Raises TransactionNotFound.
        """
        self._check_open()
        transaction = Transaction(self._stream, _parse_id(txn_id))
        return StreamTransaction(transaction, transaction.record(), self._check_open, self._writer_id)

    def abort_txn(self, txn_id: int | uuid.UUID | str) -> None:
        """Abort a transaction by its id. If its record cannot be decoded, the transaction is removed.

        Aborting it again changes nothing. Raises TransactionClosed for one that was committed, TransactionNotFound.
        """
        self._check_open()
        Transaction(self._stream, _parse_id(txn_id)).abort()


def _lease_seconds(lease: DurationLike) -> float:
    seconds = parse_seconds(lease)
    if seconds < MIN_LEASE:
        raise ValueError(
            f"lease must be at least {MIN_LEASE:g} seconds, not {lease!r}: a shorter one could expire in a pause"
        )
    return seconds


def _parse_id(value: int | uuid.UUID | str) -> uuid.UUID:
    if isinstance(value, uuid.UUID):
        return value
    try:
        return uuid.UUID(value) if isinstance(value, str) else uuid.UUID(int=value)
    except ValueError:
        raise ValueError(
            f"get_txn: txn_id must be from 0 to 2**128 - 1, as get_txn_id() returns it, or a UUID, not {value!r}"
        ) from None
