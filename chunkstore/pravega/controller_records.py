"""The records that Pravega's controller keeps in its tables `_system/_tables/…`, of all versions so far.

Each is in the versioned format; what newer revisions add is read where it is needed, and absent in older records. Keys
and names of the tables are in `controller_tables`.
"""

from __future__ import annotations

import enum
import struct
import uuid
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from chunkstore.decoding import InvalidData, decoding
from chunkstore.metadata.serialization import FieldReader, check_version, open_version, read_revisions, read_version

Record = TypeVar("Record")
Kind = TypeVar("Kind", bound=enum.Enum)

_SEGMENT = 40  # bytes that the record of a segment has at least


class StreamState(enum.Enum):
    """What a stream is doing; the number is that in its record (Pravega: State)."""

    UNKNOWN = 0
    CREATING = 1
    ACTIVE = 2
    UPDATING = 3
    SCALING = 4
    COMMITTING_TXN = 5
    TRUNCATING = 6
    SEALING = 7
    SEALED = 8


class TransactionStatus(enum.Enum):
    """How far a transaction is (Pravega: TxnStatus)."""

    UNKNOWN = 0
    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


class ScaleType(enum.Enum):
    """By what a stream scales."""

    FIXED = 0
    KBYTES_PER_SECOND = 1
    EVENTS_PER_SECOND = 2


class RetentionType(enum.Enum):
    """By what a stream is truncated: its limits are milliseconds or bytes."""

    TIME = 0
    SIZE = 1


class ControllerSegment(NamedTuple):
    """A segment of an epoch: its number, the epoch and time (ms) it was created in, and its keys (low, high]."""

    number: int
    created: int
    creation_epoch: int
    low: float
    high: float

    @property
    def id(self) -> int:
        """Its 64-bit id."""
        return self.creation_epoch << 32 | self.number


class ControllerEpoch(NamedTuple):
    """An epoch of a stream; `reference` is the epoch that it duplicates, or its own number. created: ms."""

    epoch: int
    reference: int
    segments: tuple[ControllerSegment, ...]
    created: int


class Scaling(NamedTuple):
    """A stream's scaling policy; `rate` in KB or events per second."""

    type: ScaleType
    rate: int
    factor: int
    segments: int


class Retention(NamedTuple):
    """A stream's retention policy: keep at least `least`, and at most `most` if that is not None."""

    type: RetentionType
    least: int
    most: int | None


class StreamConfiguration(NamedTuple):
    """What a stream was configured to be. rollover: bytes at which its chunks are full, 0: the server's own."""

    scope: str
    stream: str
    scaling: Scaling | None
    retention: Retention | None
    tags: tuple[str, ...]
    rollover: int


class Truncation(NamedTuple):
    """Where a stream was truncated. cut: offsets by segment ids, empty if it never was. size: bytes before it."""

    cut: dict[int, int]
    deleted: frozenset[int]
    size: int
    updating: bool


class RetentionCut(NamedTuple):
    """A stream cut that retention recorded: when (ms), and how many bytes the stream had had then."""

    recorded: int
    size: int
    cut: dict[int, int]


class ActiveTransaction(NamedTuple):
    """A transaction that is not completed; times in ms."""

    created: int
    lease_expires: int
    status: TransactionStatus


class TableConfiguration(NamedTuple):
    """What a key-value table was configured to be; lengths of keys in bytes, 0 where old servers had none."""

    scope: str
    table: str
    partitions: int
    primary_key: int
    secondary_key: int


def decode_uuid(data: bytes) -> uuid.UUID:
    """The id of a scope, a stream, a table. Raises InvalidData."""
    if len(data) != 16:
        raise InvalidData(f"an id has 16 bytes, not {len(data)}")
    return uuid.UUID(bytes=data)


def decode_int(data: bytes) -> int:
    """An i32 that is not negative. Raises InvalidData."""
    value = int.from_bytes(data, "big", signed=True)
    if len(data) != 4 or value < 0:
        raise InvalidData(f"{data!r} is not a number of 4 bytes from 0 on")
    return value


def decode_long(data: bytes) -> int:
    """An i64. Raises InvalidData."""
    if len(data) != 8:
        raise InvalidData(f"{data!r} is not a number of 8 bytes")
    return int.from_bytes(data, "big", signed=True)


def decode_state(data: bytes) -> StreamState:
    """The state of a stream. Raises InvalidData."""
    return _decoded(data, lambda fields: _choice(StreamState, fields.compact_int()))


def decode_epoch(data: bytes) -> ControllerEpoch:
    """An epoch. Raises InvalidData."""
    return _decoded(data, _read_epoch)


def decode_configuration(data: bytes) -> StreamConfiguration:
    """The configuration of a stream. Raises InvalidData."""
    with decoding():
        version, revisions = read_revisions(FieldReader(data))
        check_version(version, 0, "a configuration")
        fields = revisions[0]
        scope, stream = fields.name(), fields.name()
        scaling, retention = _read_scaling(fields), _read_retention(fields)
        tags = tuple(revisions[2].utf() for _ in range(revisions[2].count(2))) if 2 in revisions else ()
        rollover = revisions[3].long() if 3 in revisions else 0
        return StreamConfiguration(scope, stream, scaling, retention, tuple(sorted(tags)), rollover)


def decode_truncation(data: bytes) -> Truncation:
    """Where a stream was truncated. Raises InvalidData."""
    return _decoded(data, _read_truncation)


def decode_sealed_sizes(data: bytes) -> dict[int, int]:
    """The sizes in bytes of sealed segments, by their ids. Raises InvalidData."""
    return _decoded(data, _read_longs)


def decode_retention_set(data: bytes) -> list[int]:
    """When the cuts of a stream's retention were recorded (ms). Raises InvalidData."""
    return _decoded(data, lambda fields: [_read_reference(fields) for _ in range(fields.count(24))])


def decode_retention_cut(data: bytes) -> RetentionCut:
    """A cut that retention recorded. Raises InvalidData."""
    return _decoded(data, lambda fields: RetentionCut(fields.long(), fields.long(), _read_longs(fields)))


def decode_transaction(data: bytes) -> ActiveTransaction:
    """A transaction that is not completed. Raises InvalidData."""
    return _decoded(data, _read_transaction)


def decode_table_configuration(data: bytes) -> TableConfiguration:
    """The configuration of a key-value table. Raises InvalidData."""

    def read(fields: FieldReader) -> TableConfiguration:
        scope, table, partitions = fields.name(), fields.name(), _int(fields)
        lengths = (_int(fields), _int(fields)) if fields.rest else (0, 0)
        if partitions < 1 or min(lengths) < 0:
            raise InvalidData(f"a key-value table cannot have {partitions} partitions and keys of {lengths} bytes")
        return TableConfiguration(scope, table, partitions, *lengths)

    return _decoded(data, read)


def decode_table_epoch(data: bytes) -> ControllerEpoch:
    """The epoch of a key-value table. Raises InvalidData."""

    def read(fields: FieldReader) -> ControllerEpoch:
        epoch = _int(fields)
        segments = tuple(_read_segment(fields) for _ in range(fields.count(_SEGMENT)))
        return ControllerEpoch(epoch, epoch, segments, fields.long())

    return _decoded(data, read)


def _decoded(data: bytes, read: Callable[[FieldReader], Record]) -> Record:
    with decoding():
        version, fields = open_version(data)
        check_version(version, 0, "a record of the controller")
        return read(fields)


def _int(fields: FieldReader) -> int:
    return int.from_bytes(fields.take(4), "big", signed=True)


def _choice(kind: type[Kind], number: int) -> Kind:
    try:
        return kind(number)
    except ValueError:
        raise InvalidData(f"{number} is no {kind.__name__} that is known here") from None


def _nested(fields: FieldReader) -> FieldReader:
    version, nested = read_version(fields)
    check_version(version, 0, "a part of a record")
    return nested


def _read_epoch(fields: FieldReader) -> ControllerEpoch:
    epoch, reference = _int(fields), _int(fields)
    if not 0 <= reference <= epoch:
        raise InvalidData(f"epoch {epoch} cannot be a duplicate of epoch {reference}")
    segments = tuple(_read_segment(fields) for _ in range(fields.count(_SEGMENT)))
    return ControllerEpoch(epoch, reference, segments, fields.long())


def _read_segment(fields: FieldReader) -> ControllerSegment:
    nested = _nested(fields)
    number, created, epoch = _int(nested), nested.long(), _int(nested)
    low, high = struct.unpack(">dd", nested.take(16))
    if number < 0 or epoch < 0 or not 0 <= low <= high <= 1:
        raise InvalidData(f"there is no segment {number} of epoch {epoch} with keys ({low}, {high}]")
    return ControllerSegment(number, created, epoch, low, high)


def _read_scaling(fields: FieldReader) -> Scaling | None:
    nested = _nested(fields)
    if not nested.boolean():
        return None
    return Scaling(_choice(ScaleType, nested.compact_int()), _int(nested), _int(nested), _int(nested))


def _read_retention(fields: FieldReader) -> Retention | None:
    version, revisions = read_revisions(fields)
    check_version(version, 0, "a retention policy")
    nested = revisions[0]
    if not nested.boolean():
        return None
    kind, least = _choice(RetentionType, nested.compact_int()), nested.long()
    most = revisions[1].long() if 1 in revisions and revisions[1].rest else None
    return Retention(kind, least, most if most != (1 << 63) - 1 else None)


def _read_truncation(fields: FieldReader) -> Truncation:
    cut = _read_longs(fields)
    for _ in range(fields.count(_SEGMENT)):  # which epochs the cut lies in: it follows from the cut
        _read_segment(fields)
        _int(fields)
    deleted = [fields.long() for _ in range(fields.count(8))]
    deleted += [fields.long() for _ in range(fields.count(8))]
    size, updating = fields.long(), fields.boolean()
    if any(segment < 0 or offset < 0 for segment, offset in cut.items()):
        raise InvalidData(f"a stream cannot be truncated at {cut}")
    return Truncation(cut, frozenset(deleted), size, updating)


def _read_longs(fields: FieldReader) -> dict[int, int]:
    return {fields.long(): fields.long() for _ in range(fields.count(16))}


def _read_reference(fields: FieldReader) -> int:
    nested = _nested(fields)
    nested.long()
    return nested.long()


def _read_transaction(fields: FieldReader) -> ActiveTransaction:
    created, expires = fields.long(), fields.long()
    fields.long()
    return ActiveTransaction(created, expires, _choice(TransactionStatus, fields.compact_int()))
