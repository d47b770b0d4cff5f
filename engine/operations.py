"""The operations that change a container, and their form in a frame's metadata.

A list of operations is a transaction: all of them take effect or none does. An operation is written with the values
that its writer chose (times, offsets of payload), so that replaying it gives the same state everywhere (W5).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgpack

from engine.checksums import block_checksums
from engine.segments import Extent, FrameRef

if TYPE_CHECKING:
    from engine.segments import Segment


class UpdateKind(enum.IntEnum):
    """How an attribute is updated (Pravega: AttributeUpdateType)."""

    NONE = 0  # only when it is not set
    REPLACE = 1
    REPLACE_IF_GREATER = 2
    ACCUMULATE = 3
    REPLACE_IF_EQUALS = 4


class AttributeUpdate(NamedTuple):
    """An update of one attribute. `attribute` is a 16-byte id, `comparison` is used by REPLACE_IF_EQUALS."""

    attribute: bytes
    kind: UpdateKind
    value: int
    comparison: int = 0


class Payload:
    """Bytes to append, with their checksums."""

    __slots__ = ("checksums", "data")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        self.checksums = block_checksums(self.data)

    def __len__(self) -> int:
        return len(self.data)


class Derived:
    """Bytes to append that depend on the state they are appended to: made when the operation is validated.

    `make` gets a function that looks a segment up, and returns at most `size` bytes.
    """

    __slots__ = ("make", "size")

    def __init__(self, size: int, make: Callable[[Callable[[str], Segment]], bytes]) -> None:
        self.size = size
        self.make = make

    def __len__(self) -> int:
        return self.size


Content: TypeAlias = "Payload | Derived | tuple[Extent, ...]"


class CreateSegment(NamedTuple):
    """Make an empty segment."""

    segment: str
    updates: tuple[AttributeUpdate, ...] = ()


class Append(NamedTuple):
    """Append to a segment, at `offset` or wherever it ends. Attribute conditions are checked before the offset.

    `content` is a Payload or Derived until the operation is laid out in a frame, then extents. Extents of chunks may be
    given from the start: that attaches them (S3).
    """

    segment: str
    content: Content
    offset: int | None = None
    updates: tuple[AttributeUpdate, ...] = ()


class SealSegment(NamedTuple):
    """Take no more data. Sealing a sealed segment changes nothing."""

    segment: str


class MergeSegment(NamedTuple):
    """Append a sealed segment's content to another one, as metadata only, and delete it. Event counts are added."""

    target: str
    source: str


class TruncateSegment(NamedTuple):
    """Forget everything before `offset`. A smaller offset than the present one changes nothing."""

    segment: str
    offset: int


class DeleteSegment(NamedTuple):
    """Delete a segment."""

    segment: str


class UpdateAttributes(NamedTuple):
    """Update attributes of a segment, all or none."""

    segment: str
    updates: tuple[AttributeUpdate, ...]


class PutEntry(NamedTuple):
    """Put a table's entry, or remove it (value None). `expected` is its version: None = any, -1 = must be absent."""

    table: str
    key: str
    value: bytes | None
    expected: int | None = None


class Checkpoint(NamedTuple):
    """Marks a frame after which an object with the container's whole state is made (W6)."""


class Flushed(NamedTuple):
    """The bytes from `offset` on are in tier 2 now: these extents replace the ones in the log."""

    segment: str
    offset: int
    extents: tuple[Extent, ...]


class Discard(NamedTuple):
    """Give up chunks that were to be attached. Those that a segment holds stay; the others are garbage from now on.

    Being in the log, it settles a doubt: what was not attached before can never be attached after it.
    """

    chunks: tuple[str, ...]


class Collected(NamedTuple):
    """These garbage chunks are deleted (G1)."""

    chunks: tuple[str, ...]


Operation: TypeAlias = (
    CreateSegment
    | Append
    | SealSegment
    | MergeSegment
    | TruncateSegment
    | DeleteSegment
    | UpdateAttributes
    | PutEntry
    | Checkpoint
    | Flushed
    | Discard
    | Collected
)

_CODES: dict[type[Any], int] = {
    Append: 1,
    SealSegment: 2,
    MergeSegment: 3,
    CreateSegment: 4,
    PutEntry: 5,
    UpdateAttributes: 6,
    TruncateSegment: 7,
    Checkpoint: 8,
    Flushed: 9,
    DeleteSegment: 10,
    Collected: 11,
    Discard: 12,
}
_TYPES = {code: kind for kind, code in _CODES.items()}


class Transaction(NamedTuple):
    """Operations that take effect together, and the writer's time in milliseconds since the epoch."""

    time: int
    operations: tuple[Operation, ...]


def encode_transactions(transactions: Sequence[Transaction], own: FrameRef) -> bytes:
    """The metadata of the frame `own` that carries these transactions."""
    return bytes(
        msgpack.packb(
            [[time, [[_CODES[type(op)], *_plain(op, own)] for op in operations]] for time, operations in transactions]
        )
    )


def decode_transactions(meta: bytes, own: FrameRef) -> list[Transaction]:
    """The transactions in the metadata of the frame `own`."""
    return [
        Transaction(time, tuple(_operation(fields, own) for fields in operations))
        for time, operations in (msgpack.unpackb(meta) if meta else [])
    ]


def _plain(operation: Operation, own: FrameRef) -> list[Any]:
    """The fields of an operation as msgpack values."""
    if isinstance(operation, Append):
        extents = encode_extents(operation.content, own)  # type: ignore[arg-type]
        return [operation.segment, extents, operation.offset, operation.updates]
    if isinstance(operation, Flushed):
        return [operation.segment, operation.offset, encode_extents(operation.extents, own)]
    return list(operation)


def _operation(fields: list[Any], own: FrameRef) -> Operation:
    kind = _TYPES[fields[0]]
    if kind is Append:
        _, segment, extents, offset, updates = fields
        return Append(segment, decode_extents(extents, own), offset, _updates(updates))
    if kind is Flushed:
        _, segment, offset, extents = fields
        return Flushed(segment, offset, decode_extents(extents, own))
    if kind in (CreateSegment, UpdateAttributes):
        return kind(fields[1], _updates(fields[2]))  # type: ignore[no-any-return]
    if kind in (Collected, Discard):
        return kind(tuple(fields[1]))  # type: ignore[no-any-return]
    return kind(*fields[1:])  # type: ignore[no-any-return]


def _updates(fields: list[Any]) -> tuple[AttributeUpdate, ...]:
    return tuple(
        AttributeUpdate(attribute, UpdateKind(kind), value, comparison) for attribute, kind, value, comparison in fields
    )


def encode_extents(extents: Sequence[Extent], own: FrameRef | None = None) -> list[list[Any]]:
    """Extents as msgpack values: the object is a chunk's name, [address, start] of a frame, or nil for frame `own`."""
    plain: list[list[Any]] = []
    for source, position, length, checksums in extents:
        if isinstance(source, FrameRef):
            where = None if source is own else [source.address, source.start]
            plain.append([where, position, length, checksums])
        else:
            plain.append([source, position, length, checksums])
    return plain


def decode_extents(plain: Sequence[Sequence[Any]], own: FrameRef | None = None) -> tuple[Extent, ...]:
    """The inverse of `encode_extents`. Extents of one other frame share one reference."""
    others: dict[int, FrameRef] = {}
    extents = []
    for where, position, length, checksums in plain:
        source: FrameRef | str
        if where is None:
            assert own is not None
            source = own
        elif isinstance(where, str):
            source = where
        else:
            source = others.setdefault(where[0], FrameRef(*where))
        extents.append(Extent(source, position, length, checksums))
    return tuple(extents)
