"""The operations that change a container, and their encoding in a frame's metadata.

A list of operations is a transaction: all of them take effect, or none does. An operation contains all values that its
writer chose (times, offsets of payload), so every process that replays it computes the same state (W5).
"""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args

import msgpack

from chunkstore.checksums import block_checksums
from chunkstore.decoding import (
    Given,
    InvalidData,
    Natural,
    NewerFormat,
    Reader,
    Size,
    decoding,
    reader,
    unpack,
    validator,
)
from engine.errors import InvalidOperation
from engine.state.index_records import IndexRecords
from engine.state.segments import Extent, FrameRef, StoredRef
from engine.tables.content import TableLayout


class UpdateKind(enum.IntEnum):
    """How an attribute is updated (Pravega: AttributeUpdateType)."""

    NONE = 0  # only when it is not set
    REPLACE = 1
    REPLACE_IF_GREATER = 2
    ACCUMULATE = 3
    REPLACE_IF_EQUALS = 4


AttributeId: TypeAlias = Annotated[bytes, Size(16)]


class AttributeUpdate(NamedTuple):
    """An update of one attribute. attribute: a 16-byte id. comparison: the expected value, for REPLACE_IF_EQUALS."""

    attribute: AttributeId
    kind: UpdateKind
    value: int
    comparison: int = 0


SMALL = 64 << 10
"""The checksum of payload up to this size is computed when the frame is laid out, together with its neighbours."""


class Payload:
    """Bytes to append, with their checksums."""

    __slots__ = ("_checksums", "data")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        """Raises TypeError unless data is bytes or a contiguous buffer."""
        try:
            self.data = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        except TypeError as error:
            raise TypeError(f"data must be bytes, or another buffer, not {reprlib.repr(data)}: {error}") from None
        self._checksums = block_checksums(self.data) if len(self.data) > SMALL else b""

    @property
    def checksums(self) -> bytes:
        """As in `Extent`."""
        return self._checksums or block_checksums(self.data)

    def __len__(self) -> int:
        return len(self.data)


def _given_content(given: Any) -> Any:
    if type(given) is Payload:
        return given
    if type(given) is IndexRecords:
        _GIVEN_NAME(given.segment)
        return given
    return _given_extents(given)


def _given_extents(given: Any) -> tuple[Extent, ...]:
    if not isinstance(given, list | tuple):
        raise InvalidData(f"{reprlib.repr(given)} stands where a Payload, IndexRecords or extents are due")
    return tuple([_given_extent(each) for each in given])


def _given_extent(given: Any) -> Extent:
    if not isinstance(given, Extent):
        raise InvalidData(f"{reprlib.repr(given)} stands where an Extent is due")
    source, position, length, checksums = given
    if isinstance(source, FrameRef):
        source = FrameRef(_GIVEN_OFFSET(source.address), _GIVEN_OFFSET(source.start))
    elif isinstance(source, StoredRef):
        source = StoredRef(_GIVEN_NAME(source.storage))
    else:
        source = _GIVEN_NAME(source)
    return Extent(source, _GIVEN_OFFSET(position), _GIVEN_OFFSET(length), _GIVEN_BYTES(checksums))


def _given_layout(given: Any) -> tuple[Any, ...]:
    return tuple(_GIVEN_LAYOUT(given))


_GIVEN_NAME, _GIVEN_OFFSET, _GIVEN_BYTES = validator(str), validator(Natural), validator(bytes)
_GIVEN_LAYOUT = validator(TableLayout)

Content: TypeAlias = Annotated[Payload | IndexRecords | tuple[Extent, ...], Given(_given_content)]
ExtentList: TypeAlias = Annotated[tuple[Extent, ...], Given(_given_extents)]
ReadContent: TypeAlias = Callable[[Any], Content]
"""Decodes the content of an operation from msgpack values."""


class CreateSegment(NamedTuple):
    """Create an empty segment; with a `parent`, a transient segment that is to be merged into it (PDP-43, see
    Segment)."""

    segment: str
    updates: tuple[AttributeUpdate, ...] = ()
    parent: str = ""


class Append(NamedTuple):
    """Append to a segment, at its end or only if it ends at `offset`. Attribute conditions are checked before the
    offset.

    content: a Payload or IndexRecords until the operation is laid out in a frame, extents afterwards. Extents of chunks
    may be given by the caller, which attaches the chunks (S3). created_at: when the first of these chunks was created
    (ms since the epoch, see `engine.state.attach_fence`). With 0, chunks are refused once the container has a fence
    (G1).
    """

    segment: str
    content: Content
    offset: Natural | None = None
    updates: tuple[AttributeUpdate, ...] = ()
    created_at: int = 0


class SealSegment(NamedTuple):
    """Seal a segment, which then takes no more data. Sealing a sealed segment changes nothing."""

    segment: str


class MergeSegment(NamedTuple):
    """Append the content of a sealed segment to another one, without a copy, and delete the source. Event counts add
    up.

    A transient segment need not be sealed. header: is appended before that content (PDP-43).
    """

    target: str
    source: str
    header: Content = ()


class TruncateSegment(NamedTuple):
    """Delete everything before `offset`. An offset below the present start changes nothing."""

    segment: str
    offset: Natural


class DeleteSegment(NamedTuple):
    """Delete a segment."""

    segment: str


class ExpireSegments(NamedTuple):
    """Delete those of the transient segments whose last append was before `before` (ms since the epoch).

    The result is their names.
    """

    segments: tuple[str, ...]
    before: int


class UpdateAttributes(NamedTuple):
    """Update attributes of a segment, all or none."""

    segment: str
    updates: tuple[AttributeUpdate, ...]


class PutEntry(NamedTuple):
    """Put a table's entry, or remove it (value None). expected: its present version; None = any, -1 = absent."""

    table: str
    key: str
    value: bytes | None
    expected: int | None = None


class Checkpoint(NamedTuple):
    """Mark the frame after which a checkpoint object with the container's whole state is written (W6)."""


class CheckEntry(NamedTuple):
    """Reject the transaction unless a table's entry has this version; -1: unless it is absent."""

    table: str
    key: str
    expected: int


class ActivateSegment(NamedTuple):
    """Load a segment that is not active from the metadata table (Pravega: StreamSegmentMapOperation).

    record, version: its entry there. If the segment is active already, nothing changes.
    """

    segment: str
    record: bytes
    version: int


class EvictSegments(NamedTuple):
    """Evict segments from memory. Those that changed since they were saved in the metadata table stay."""

    segments: tuple[str, ...]


class SaveSegments(NamedTuple):
    """Put segments into the metadata table as they were at operation `sequence`: names, ids and records.

    `sequence` is also the version of the entries. Segments that were deleted since are skipped.
    """

    cycle: int
    sequence: int
    records: tuple[tuple[str, int, bytes], ...]


class SpillAttributes(NamedTuple):
    """Move a segment's extended attributes to the table of attributes."""

    segment: str


class LoadAttributes(NamedTuple):
    """Load attributes of a segment from the table of attributes. Those that are in memory stay as they are."""

    segment: str
    values: tuple[tuple[AttributeId, int], ...]


class BeginCycle(NamedTuple):
    """Begin the next flush cycle, which has this number. If the previous cycle has not ended, this ends it."""

    number: int


class EndCycle(NamedTuple):
    """Complete the flush cycle: from LTS alone, the container can be recovered as it was when the cycle began (F3)."""

    number: int


class AbortCycle(NamedTuple):
    """Abort the flush cycle, so that the next one may begin at once. The steps that it did keep their effect.

    error: why it failed; empty if the process just ends.
    """

    number: int
    error: str = ""


class RecordFlush(NamedTuple):
    """Record that the bytes `[offset, end)` are in LTS, in the segment `storage` (Pravega: StorageMetadataCheckpoint).

    moved: chunks and merged segments that LTS took over without a copy.
    """

    cycle: int
    segment: str
    storage: str
    offset: Natural
    end: Natural
    moved: tuple[str, ...] = ()


class RecordStoredBounds(NamedTuple):
    """Record the start offset and the seal that LTS has of a segment."""

    cycle: int
    segment: str
    storage: str
    start_offset: Natural
    sealed: bool


class RecordDeletion(NamedTuple):
    """Record that segments are deleted in LTS, by their names there."""

    cycle: int
    storages: tuple[str, ...]


class TableFlush(NamedTuple):
    """The flush of one table: see RecordTableFlush.

    upto: LTS has all entries with versions up to it. layout: the fields of the TableLayout after the flush. entries,
    pages: extents that were appended to the two byte spaces. merged_entries, merged_pages: an offset, and the extents
    that replace smaller ones from there on. keep: entries that are in LTS stay in memory.
    """

    table: str
    upto: int
    layout: Annotated[tuple[Any, ...], Given(_given_layout)]
    entries: ExtentList
    pages: ExtentList
    merged_entries: tuple[Natural, ExtentList] = (0, ())
    merged_pages: tuple[Natural, ExtentList] = (0, ())
    keep: bool = True


class RecordTableFlush(NamedTuple):
    """Record that entries of tables, and their index, are in LTS."""

    cycle: int
    tables: tuple[TableFlush, ...]


class QueueGarbage(NamedTuple):
    """Queue chunks, or deleted segments in LTS, as garbage: name, kind and segment. They are deleted unless metadata
    names them.

    Kinds are those of `chunkstore.garbage_collector`.
    """

    tasks: tuple[tuple[str, int, str], ...]


class DiscardChunks(NamedTuple):
    """Make chunks garbage unless a segment holds them, so that they can never be attached afterwards.

    This settles an append whose outcome is unknown: chunks that it did not attach before, it cannot attach after. For
    orphans found by a sweep, min_attach_time (ms since the epoch, otherwise 0) raises the container's fence. It refuses
    their attachment even after they are deleted and no longer known as garbage.
    """

    chunks: tuple[str, ...]
    min_attach_time: int = 0


class DequeueGarbage(NamedTuple):
    """Remove garbage from the queue after it was deleted, or found to be in use (G1)."""

    chunks: tuple[str, ...]


class OperationResult(NamedTuple):
    """The result of an operation: a number, names, or neither (see `engine.state.changes.apply.apply`)."""

    number: int | None
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, result: int | tuple[str, ...] | None) -> OperationResult:
        """From the value that an operation returned."""
        return cls(None, result) if isinstance(result, tuple) else cls(result, None)

    @property
    def value(self) -> int | tuple[str, ...] | None:
        """The value that the operation returned."""
        return self.number if self.names is None else self.names


class Answer(NamedTuple):
    """The outcome of one transaction of a submission (see `engine.logs.submission`): the transaction at `place` in the
    submission `number` of the process `owner`, which drew `nonce` for it.

    results: of its operations, from when the frame was laid out. None if the frame does not contain the transaction,
    because it was rejected or could not be validated; then its owner validates it itself.
    """

    owner: Annotated[bytes, Size(16)]
    number: Natural
    nonce: Annotated[bytes, Size(8)]
    place: Natural
    results: tuple[OperationResult, ...] | None


class AnswerSubmissions(NamedTuple):
    """Announce that the maker of this frame accepts submissions (W18), and answer those of other processes. It does not
    change the state. leaving: the maker closes, and accepts no more."""

    answers: tuple[Answer, ...]
    leaving: bool = False


class StartSegment(NamedTuple):
    """Set the start of an empty segment to `offset`, as if everything before it had been appended and truncated.

    So an imported segment keeps its offsets.
    """

    segment: str
    offset: Natural


class CreateTable(NamedTuple):
    """Create a table whose keys all have this length (bytes of their UTF-8 form) and can be read in their order.

    Other tables begin with their first entry.
    """

    table: str
    key_length: Natural


class DeleteTable(NamedTuple):
    """Delete a table that CreateTable created, with all of its entries."""

    table: str


Operation: TypeAlias = (
    Append
    | SealSegment
    | MergeSegment
    | CreateSegment
    | PutEntry
    | UpdateAttributes
    | TruncateSegment
    | Checkpoint
    | RecordFlush
    | DeleteSegment
    | DequeueGarbage
    | DiscardChunks
    | CheckEntry
    | ActivateSegment
    | EvictSegments
    | SaveSegments
    | SpillAttributes
    | LoadAttributes
    | BeginCycle
    | EndCycle
    | RecordStoredBounds
    | RecordDeletion
    | RecordTableFlush
    | QueueGarbage
    | ExpireSegments
    | AbortCycle
    | StartSegment
    | AnswerSubmissions
    | CreateTable
    | DeleteTable
)
"""In the order of their numbers in the format, which begin at 1: a new one comes last."""

_TYPES: dict[int, type[Any]] = dict(enumerate(get_args(Operation), start=1))
_CODES = {kind: code for code, kind in _TYPES.items()}
_CHECKS: dict[Any, Reader] = {kind: validator(kind) for kind in get_args(Operation)}


class LoggedTransaction(NamedTuple):
    """Operations that take effect together, and the writer's time in milliseconds since the epoch."""

    time: int
    operations: tuple[Operation, ...]


def checked(operation: Operation) -> Operation:
    """An operation as it would be decoded from a frame, before it is queued (W14). Its payload need not be laid out
    yet.

    Raises InvalidOperation, which names the operation, the field and the value, if it could not be encoded.
    """
    if type(operation) is Append and _is_exact(operation):
        return operation
    read = _CHECKS.get(type(operation))
    if read is None:
        raise InvalidOperation(f"{reprlib.repr(operation)} is not an operation of a container")
    try:
        with decoding():
            valid: Operation = read(operation)
            return valid
    except InvalidData as problem:
        raise InvalidOperation(f"{type(operation).__name__}: {problem}. Nothing was done: correct the value") from None


def encode_transactions(transactions: Sequence[LoggedTransaction], own: FrameRef) -> bytes:
    """The metadata of the frame `own` that carries these transactions, whose operations were `checked`."""
    content = partial(encode_extents, own=own)
    return bytes(
        msgpack.packb(
            [[time, [plain_operation(op, content) for op in operations]] for time, operations in transactions]
        )
    )


def decode_transactions(meta: bytes, own: FrameRef) -> list[LoggedTransaction]:
    """The transactions in the metadata of the frame `own`. Raises InvalidData."""
    return [decode_transaction(fields, own) for fields in plain_transactions(meta)]


def plain_transactions(meta: bytes) -> list[Any]:
    """The transactions in a frame's metadata, as msgpack values. Raises InvalidData."""
    return _LIST(unpack(meta)) if meta else []


def decode_transaction(fields: Any, own: FrameRef) -> LoggedTransaction:
    """One of them. Raises InvalidData."""
    time, operations = fields
    content = partial(decode_extents, own=own)
    return LoggedTransaction(_TIME(time), tuple([read_operation(each, content) for each in operations]))


def plain_operation(operation: Operation, content: Callable[[Any], Any]) -> list[Any]:
    """An operation as msgpack values. content: encodes what it appends."""
    code = _CODES[type(operation)]
    if isinstance(operation, Append):
        segment, appended, offset, updates, created_at = operation
        return [code, segment, content(appended), offset, updates, created_at]
    if isinstance(operation, MergeSegment):
        return [code, operation.target, operation.source, content(operation.header)]
    if isinstance(operation, RecordTableFlush):
        return [code, operation.cycle, [_plain_table(table) for table in operation.tables]]
    return [code, *operation]


def _plain_table(flushed: TableFlush) -> list[Any]:
    table, upto, layout, entries, pages, (entries_at, merged_entries), (pages_at, merged_pages), keep = flushed
    merged = [entries_at, encode_extents(merged_entries), pages_at, encode_extents(merged_pages)]
    return [table, upto, layout, encode_extents(entries), encode_extents(pages), *merged, keep]


def _table(fields: list[Any]) -> TableFlush:
    table, upto, layout, entries, pages, entries_at, merged_entries, pages_at, merged_pages, keep = fields
    return TableFlush(
        _NAME(table),
        _TIME(upto),
        _LAYOUT(layout),
        decode_extents(entries),
        decode_extents(pages),
        (_OFFSET(entries_at), decode_extents(merged_entries)),
        (_OFFSET(pages_at), decode_extents(merged_pages)),
        _FLAG(keep),
    )


def read_operation(fields: Any, content: ReadContent) -> Operation:
    """The inverse of `plain_operation`. Raises InvalidData."""
    read = _READERS.get(fields[0])
    if read is None:
        raise NewerFormat(f"it has operation {fields[0]!r}, which this version does not know: upgrade this program")
    return read(fields[1:], content)


def _read_append(fields: list[Any], content: ReadContent) -> Append:
    segment, appended, offset, updates, created_at = fields
    return Append(
        _NAME(segment),
        content(appended),
        _MAYBE_OFFSET(offset),
        _UPDATES(updates) if updates else (),
        _TIME(created_at),
    )


def _read_merge(fields: list[Any], content: ReadContent) -> MergeSegment:
    target, source, header = fields
    return MergeSegment(_NAME(target), _NAME(source), content(header))


def _read_tables(fields: list[Any], content: ReadContent) -> RecordTableFlush:
    cycle, tables = fields
    return RecordTableFlush(_TIME(cycle), tuple([_table(table) for table in tables]))


def _reader_of(kind: Any) -> Callable[[list[Any], ReadContent], Operation]:
    """A decoder that is derived from the annotations alone."""
    read = reader(kind)
    return lambda fields, content: read(fields)


_NAME, _TIME, _FLAG, _LIST = reader(str), reader(int), reader(bool), reader(list[Any])
_OFFSET, _MAYBE_OFFSET = reader(Natural), reader(Natural | None)
_UPDATES = reader(tuple[AttributeUpdate, ...])
_LAYOUT = reader(TableLayout)
_SPECIAL: dict[type[Any], Callable[[list[Any], ReadContent], Operation]] = {
    Append: _read_append,
    MergeSegment: _read_merge,
    RecordTableFlush: _read_tables,
}
_READERS: dict[int, Callable[[list[Any], ReadContent], Operation]] = {
    code: _SPECIAL.get(kind) or _reader_of(kind) for code, kind in _TYPES.items()
}


def _is_exact(append: Append) -> bool:
    """Whether an append equals its decoded form, as nearly all do. Checking it field by field takes three times as
    long, and each write of events is an append."""
    segment, content, offset, updates, created_at = append
    if not (type(segment) is str and segment.isascii() and type(updates) is tuple and type(created_at) is int):
        return False
    if not (offset is None or (type(offset) is int and 0 <= offset <= _MOST)) or not _LEAST <= created_at <= _MOST:
        return False
    if type(content) is IndexRecords:
        if not (type(content.segment) is str and content.segment.isascii()):
            return False
    elif type(content) is not Payload and not _are_exact_extents(content):
        return False
    for update in updates:
        if type(update) is not AttributeUpdate:
            return False
        attribute, kind, value, comparison = update
        if not (type(attribute) is bytes and len(attribute) == 16 and type(kind) is UpdateKind):
            return False
        if not (type(value) is int and type(comparison) is int and _LEAST <= value <= _MOST >= comparison >= _LEAST):
            return False
    return True


def _are_exact_extents(content: Any) -> bool:
    if type(content) is not tuple:
        return False
    for extent in content:
        if type(extent) is not Extent:
            return False
        source, position, length, checksums = extent
        if not (type(source) is str and source.isascii() and type(checksums) is bytes):
            return False
        if not (type(position) is int and type(length) is int and 0 <= position <= _MOST >= length >= 0):
            return False
    return True


def encode_extents(extents: Sequence[Extent], own: FrameRef | None = None) -> list[list[Any]]:
    """Extents as msgpack values.

    The object is a chunk's name, [address, start] of a frame, [name] of a merged segment, or nil for the frame `own`.
    """
    plain: list[list[Any]] = []
    for source, position, length, checksums in extents:
        where: Any = source
        if isinstance(source, FrameRef):
            where = None if source is own else [source.address, source.start]
        elif isinstance(source, StoredRef):
            where = [source.storage]
        plain.append([where, position, length, checksums])
    return plain


def decode_extents(plain: Sequence[Sequence[Any]], own: FrameRef | None = None) -> tuple[Extent, ...]:
    """The inverse of `encode_extents`. Extents of the same frame share one reference. Raises InvalidData."""
    others: dict[int, FrameRef] = {}
    extents = []
    for where, position, length, checksums in plain:
        source: FrameRef | StoredRef | str
        if where is None and own is not None:
            source = own
        elif type(where) is str:
            source = where
        elif len(where) == 1:
            source = StoredRef(_NAME(where[0]))
        else:
            address, start = where
            source = others.setdefault(_OFFSET(address), FrameRef(address, _OFFSET(start)))
        if type(position) is not int or type(length) is not int or type(checksums) is not bytes:
            raise InvalidData(f"an extent has position {position!r} and length {length!r}")
        if not (0 <= position <= _MOST and 0 <= length <= _MOST):
            raise InvalidData(f"an extent has position {position} and length {length}")
        extents.append(Extent(source, position, length, checksums))
    return tuple(extents)


_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""The least and the greatest number. _MOST is also the limit of offsets and lengths."""
