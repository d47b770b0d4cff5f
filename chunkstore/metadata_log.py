"""The metadata of a segment store that stands by itself: records of segments, and garbage tasks, in a log (PDP-34).

An entry of the log is one commit: records and tasks that change together. All of them are in memory, too. Opening
replays the log, which is compacted when most of it is superseded. The log is a segment (`chunkstore.log_segment`),
which keeps the promise on which this rests: what was acknowledged is what the next owner finds (S4).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import crc32c
import msgpack

from chunkstore.decoding import InvalidData, check_format, decoding, reader, unpack
from chunkstore.errors import StorageError
from chunkstore.log_segment import LOG, LogSegment
from chunkstore.metadata.garbage_queue import GarbageKind, GarbageTask, MemoryGarbageQueue
from chunkstore.metadata.metadata_records import (
    Record,
    TransactionData,
    decode,
    decode_transaction_data,
    encode,
    encode_transaction_data,
)
from chunkstore.metadata.store import MemoryMetadataStore, MetadataTransaction, WithOperations
from chunkstore.segments.errors import SegmentDamaged, StorageNotPrimary

_FORMAT = 1
_FRAME = struct.Struct(">II")  # before each entry: how many bytes it has, and their checksum
_LEAST_SUPERSEDED = 1000  # records and tasks, before the log is compacted


class MetadataEntry(NamedTuple):
    """A commit: records as Pravega's table has them, tasks that were queued, and the names of those that are done."""

    format: int
    rows: tuple[bytes, ...] = ()
    tasks: tuple[GarbageTask, ...] = ()
    settled: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """How many records and tasks it changes."""
        return len(self.rows) + len(self.tasks) + len(self.settled)


_READ_ENTRY = reader(MetadataEntry)


class MetadataLog(MemoryMetadataStore):
    """The records and garbage tasks in the log `segment`. May be used by many threads.

    After a commit whose outcome is unknown nothing more is committed: `check` raises why. Raises SegmentDamaged for a
    log that is not what was written, and what the segment raises.
    """

    def __init__(self, segment: LogSegment) -> None:
        super().__init__()
        self.tasks: dict[str, GarbageTask] = {}
        self._segment = segment
        self._process = os.getpid()
        self._failure: BaseException | None = None
        self._weight = 0  # of all entries in the log
        self._replay()

    def check(self) -> None:
        """Raise StorageNotPrimary if another process took over, StorageError after an unknown outcome or a fork."""
        if isinstance(self._failure, StorageNotPrimary):
            raise StorageNotPrimary(LOG, self._failure.owner_epoch, self._failure.epoch)
        if self._failure is not None:
            raise StorageError(f"an earlier change may or may not be durable ({self._failure}): open the store again")
        if os.getpid() != self._process:  # two processes in one epoch would overwrite each other's journal
            raise StorageError("the store was opened before a fork: open it in the process that uses it")

    def commit_tasks(self, tasks: Sequence[GarbageTask], settled: Sequence[str]) -> None:
        """Commit a change of the garbage queue alone."""
        with self.table.lock:
            self._commit_entry(MetadataEntry(_FORMAT, (), tuple(tasks), tuple(settled)))

    def _persist(self, changes: Mapping[str, Record | None], with_operations: WithOperations) -> None:
        self._commit_entry(MetadataEntry(_FORMAT, _rows(changes.items()), tuple(with_operations)))
        self._drop_named(changes)

    def _commit_entry(self, entry: MetadataEntry) -> None:
        self.check()
        try:
            if self._weight > _LEAST_SUPERSEDED + 2 * (len(self.table.rows) + len(self.tasks)):
                self._compact()
            self._write(entry)
        except BaseException as error:
            self._failure = error
            raise
        self._apply_tasks(entry)

    def _write(self, entry: MetadataEntry) -> None:
        self._segment.append(encode_entry(entry))
        self._weight += entry.weight

    def _compact(self) -> None:
        """Begin the log with an entry that holds everything; what is before it is truncated."""
        start, self._weight = self._segment.end, 0
        records = ((key, decode(data)) for key, (_, data) in self.table.rows.items())
        self._write(MetadataEntry(_FORMAT, _rows(records), tuple(self.tasks.values())))
        self._segment.truncate(start)

    def _replay(self) -> None:
        data = self._segment.read()
        with decoding(lambda problem: SegmentDamaged(f"the metadata log: {problem}", LOG)):
            for entry in decode_entries(data):
                changes = {row.key: row.record for row in map(decode_transaction_data, entry.rows)}
                for key, record in changes.items():
                    self.table.put(key, record and encode(record))
                self._drop_named(changes)
                self._apply_tasks(entry)
                self._weight += entry.weight

    def _drop_named(self, changes: Mapping[str, Record | None]) -> None:
        """Forget the tasks of new chunks that this commit names: they are no garbage."""
        for key, record in changes.items():
            if record is not None and key in self.tasks and self.tasks[key].kind is GarbageKind.NEW_CHUNK:
                del self.tasks[key]

    def _apply_tasks(self, entry: MetadataEntry) -> None:
        self.tasks.update({task.name: task for task in entry.tasks})
        for name in entry.settled:
            self.tasks.pop(name, None)


def _rows(records: Iterable[tuple[str, Record | None]]) -> tuple[bytes, ...]:
    return tuple(encode_transaction_data(TransactionData(0, key, record)) for key, record in records)


def encode_entry(entry: MetadataEntry) -> Sequence[bytes]:
    """An entry as it lies in the log, in two pieces."""
    body = msgpack.packb(entry)
    return _FRAME.pack(len(body), crc32c.crc32c(body)), body


def decode_entries(data: bytes) -> Iterator[MetadataEntry]:
    """The entries of a log, whole and in order. Raises InvalidData, in `decoding`."""
    view, place = memoryview(data), 0
    while place < len(data):
        length, checksum = _FRAME.unpack_from(data, place)
        place += _FRAME.size
        body = bytes(view[place : place + length])
        if len(body) < length or crc32c.crc32c(body) != checksum:
            raise InvalidData(f"the entry of {length} bytes at {place} is cut off, or fails its checksum")
        plain: Any = unpack(body)
        check_format(plain[0], _FORMAT)
        yield _READ_ENTRY(plain)
        place += length


class LogGarbageQueue(MemoryGarbageQueue):
    """The garbage queue whose tasks are in a `MetadataLog`: what a commit takes out is queued by that commit."""

    def __init__(self, log: MetadataLog) -> None:
        self.tasks = log.tasks
        self._log = log

    def add(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction | None = None) -> None:
        if transaction is None or any(task.kind is GarbageKind.NEW_CHUNK for task in tasks):
            self._change(tasks)  # before a new chunk is made
        else:
            transaction.with_operations.extend(tasks)

    def claim(self, tasks: Sequence[GarbageTask], transaction: MetadataTransaction) -> None:
        transaction.with_operations.extend(tasks)

    def waits(self, name: str) -> bool:
        task = self.tasks.get(name)
        return task is not None and task.kind is GarbageKind.NEW_CHUNK

    def _change(self, tasks: Sequence[GarbageTask], settled: Sequence[str] = ()) -> None:
        if tasks or settled:
            self._log.commit_tasks(tasks, settled)
