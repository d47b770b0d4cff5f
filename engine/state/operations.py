"""The operations that change a container, and their form in a frame's metadata.

A list of operations is a transaction: all of them take effect or none does. An operation is written with the values
that its writer chose (times, offsets of payload), so that replaying it gives the same state everywhere (W5).
"""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgpack

from chunkstore.checksums import block_checksums
from chunkstore.decoding import InvalidData, Natural, NewerFormat, Reader, Size, decoding, reader, unpack, validator
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
    """An update of one attribute. `attribute` is a 16-byte id, `comparison` is used by REPLACE_IF_EQUALS."""

    attribute: AttributeId
    kind: UpdateKind
    value: int
    comparison: int = 0


SMALL = 64 << 10
"""Payload of up to this size is summed up when it is laid out in a frame, together with what goes there beside it."""


class Payload:
    """Bytes to append, with their checksums."""

    __slots__ = ("_checksums", "data")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        """Raises TypeError for what is not bytes, nor a buffer whose bytes lie one behind the other."""
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


Content: TypeAlias = Payload | IndexRecords | tuple[Extent, ...]
ReadContent: TypeAlias = Callable[[Any], Content]
"""Reads what an operation appends, of msgpack values."""


class CreateSegment(NamedTuple):
    """Make an empty segment; with a `parent` a transient one, which is to be merged (PDP-43, see Segment)."""

    segment: str
    updates: tuple[AttributeUpdate, ...] = ()
    parent: str = ""


class Append(NamedTuple):
    """Append to a segment, at `offset` or wherever it ends. Attribute conditions are checked before the offset.

    `content` is a Payload, or IndexRecords, until the operation is laid out in a frame, then extents. Extents of chunks
    may be given from the start: that attaches them (S3). `created_at` says when the first of these chunks was begun (ms
    since the epoch, see `engine.state.horizon`). Those of which it does not say so are refused once there was a sweep
    (G1).
    """

    segment: str
    content: Content
    offset: Natural | None = None
    updates: tuple[AttributeUpdate, ...] = ()
    created_at: int = 0


class SealSegment(NamedTuple):
    """Take no more data. Sealing a sealed segment changes nothing."""

    segment: str


class MergeSegment(NamedTuple):
    """Append a sealed segment's content to another one, as metadata only, and delete it. Event counts are added.

    A transient segment need not be sealed. `header` goes before that content, in the same step (PDP-43).
    """

    target: str
    source: str
    header: Content = ()


class TruncateSegment(NamedTuple):
    """Forget everything before `offset`. A smaller offset than the present one changes nothing."""

    segment: str
    offset: Natural


class DeleteSegment(NamedTuple):
    """Delete a segment."""

    segment: str


class ExpireSegments(NamedTuple):
    """Delete transient segments, those of them to which nobody has appended at `before` (ms since the epoch) or later.

    Its result is the names of those that were deleted.
    """

    segments: tuple[str, ...]
    before: int


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


class CheckEntry(NamedTuple):
    """Refuse the transaction unless a table's entry has this version; -1: unless it is absent."""

    table: str
    key: str
    expected: int


class MapSegment(NamedTuple):
    """Bring a segment that is not active back from the metadata table (Pravega: StreamSegmentMapOperation).

    `record` is its entry there, of this version. Nothing happens if the segment is active already.
    """

    segment: str
    record: bytes
    version: int


class EvictSegments(NamedTuple):
    """Let segments be active no more. Those that changed since they were saved in the metadata table stay."""

    segments: tuple[str, ...]


class SaveSegments(NamedTuple):
    """Put segments into the metadata table as they were at operation `sequence`: names, ids and records.

    That is also the entries' version. What was deleted since is left out.
    """

    cycle: int
    sequence: int
    records: tuple[tuple[str, int, bytes], ...]


class SpillAttributes(NamedTuple):
    """Move a segment's extended attributes to the table of attributes."""

    segment: str


class LoadAttributes(NamedTuple):
    """Bring attributes of a segment back from the table of attributes; nothing happens to those that are here."""

    segment: str
    values: tuple[tuple[AttributeId, int], ...]


class BeginCycle(NamedTuple):
    """Begin a flush cycle, the number of which must be the next one. The one before ends, if it has not."""

    number: int


class EndCycle(NamedTuple):
    """The flush cycle is complete: LTS alone holds what the container held at its beginning (F3)."""

    number: int


class GiveUpCycle(NamedTuple):
    """Whoever runs the flush cycle stops, and the next one may begin at once. All that it did stays.

    trouble: what went wrong, for people to read; empty if the process just ends.
    """

    number: int
    trouble: str = ""


class Flushed(NamedTuple):
    """The bytes `[offset, end)` are in LTS now, in the segment `storage` (Pravega: StorageMetadataCheckpoint).

    `moved`: chunks that were attached to the segment and belong to LTS now.
    """

    cycle: int
    segment: str
    storage: str
    offset: Natural
    end: Natural
    moved: tuple[str, ...] = ()


class Stored(NamedTuple):
    """LTS knows that the segment begins at `start_offset`, and whether it is sealed."""

    cycle: int
    segment: str
    storage: str
    start_offset: Natural
    sealed: bool


class Forgotten(NamedTuple):
    """LTS has deleted, or marked as deleted, these segments (by their names there)."""

    cycle: int
    storages: tuple[str, ...]


class FlushedTable(NamedTuple):
    """What a flush did to one table: see TablesFlushed.

    upto: entries with versions up to it are in LTS. layout: the fields of the TableLayout after it. entries, pages:
    extents that were appended to both byte spaces. merged_entries, merged_pages: an offset each, and the extents that
    take the place of smaller ones from there. keep: entries that are in LTS stay in memory.
    """

    table: str
    upto: int
    layout: tuple[Any, ...]
    entries: tuple[Extent, ...]
    pages: tuple[Extent, ...]
    merged_entries: tuple[int, tuple[Extent, ...]] = (0, ())
    merged_pages: tuple[int, tuple[Extent, ...]] = (0, ())
    keep: bool = True


class TablesFlushed(NamedTuple):
    """Entries of tables are in LTS now, and their index."""

    cycle: int
    tables: tuple[FlushedTable, ...]


class QueueGarbage(NamedTuple):
    """Chunks, or records of deleted segments, that are garbage if no metadata names them: name, kind and segment.

    Kinds are those of `chunkstore.garbage_collector`.
    """

    tasks: tuple[tuple[str, int, str], ...]


class Discard(NamedTuple):
    """Give up chunks that were to be attached. Those that a segment holds stay; the others are garbage from now on.

    Being in the log, it settles a doubt: what was not attached before can never be attached after it. The names are
    forgotten once the chunks are deleted. What a sweep found is refused for ever by `before` (ms since the epoch, 0 for
    what was not found so): all chunks that were begun earlier and that nothing names are given up with it.
    """

    chunks: tuple[str, ...]
    before: int = 0


class Collected(NamedTuple):
    """This garbage is dealt with: deleted, or found to be in use (G1)."""

    chunks: tuple[str, ...]


class OperationResult(NamedTuple):
    """The result of an operation: a number or names, or neither (see `engine.state.changes.change.apply`)."""

    number: int | None
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, result: int | tuple[str, ...] | None) -> OperationResult:
        """Of what an operation gave."""
        return cls(None, result) if isinstance(result, tuple) else cls(result, None)

    @property
    def value(self) -> int | tuple[str, ...] | None:
        """What it gave."""
        return self.number if self.names is None else self.names


class Answer(NamedTuple):
    """What became of one transaction of a submission (see `engine.logs.submission`): the transaction at `place` in the
    submission `number` of the process `owner`, which drew `nonce` for it.

    results: of its operations, as their frame was made; None if it is not in the frame, because it was refused or could
    not be judged. That is its owner's to decide then.
    """

    owner: Annotated[bytes, Size(16)]
    number: Natural
    nonce: Annotated[bytes, Size(8)]
    place: Natural
    results: tuple[OperationResult, ...] | None


class Carried(NamedTuple):
    """The maker of this frame listens for what other processes submit (W18), and these transactions of theirs are in
    the frame. It changes nothing by itself. leaving: the maker closes, and carries nobody any more."""

    answers: tuple[Answer, ...]
    leaving: bool = False


class StartSegment(NamedTuple):
    """Let a segment that is empty begin at `offset`, as if all before it had been appended and truncated.

    So a segment that was made elsewhere keeps its offsets here.
    """

    segment: str
    offset: Natural


Operation: TypeAlias = (
    CreateSegment
    | StartSegment
    | Append
    | SealSegment
    | MergeSegment
    | TruncateSegment
    | DeleteSegment
    | ExpireSegments
    | UpdateAttributes
    | PutEntry
    | CheckEntry
    | MapSegment
    | EvictSegments
    | SaveSegments
    | SpillAttributes
    | LoadAttributes
    | Checkpoint
    | BeginCycle
    | EndCycle
    | GiveUpCycle
    | Flushed
    | Stored
    | Forgotten
    | TablesFlushed
    | QueueGarbage
    | Discard
    | Collected
    | Carried
)

_TYPES: dict[int, type[Any]] = dict(
    enumerate(
        (
            Append,
            SealSegment,
            MergeSegment,
            CreateSegment,
            PutEntry,
            UpdateAttributes,
            TruncateSegment,
            Checkpoint,
            Flushed,
            DeleteSegment,
            Collected,
            Discard,
            CheckEntry,
            MapSegment,
            EvictSegments,
            SaveSegments,
            SpillAttributes,
            LoadAttributes,
            BeginCycle,
            EndCycle,
            Stored,
            Forgotten,
            TablesFlushed,
            QueueGarbage,
            ExpireSegments,
            GiveUpCycle,
            StartSegment,
            Carried,
        ),
        start=1,
    )
)
_CODES = {kind: code for code, kind in _TYPES.items()}


class LoggedTransaction(NamedTuple):
    """Operations that take effect together, and the writer's time in milliseconds since the epoch."""

    time: int
    operations: tuple[Operation, ...]


def checked(operation: Operation) -> Operation:
    """An operation as a frame would give it back, before it is queued; its payload need not be laid out yet (W14).

    Raises InvalidOperation, which names the operation, the field and the value, for what no frame could hold.
    """
    if type(operation) is Append and _is_exact(operation):
        return operation
    read = _JUDGES.get(type(operation))
    if read is None:
        raise InvalidOperation(f"{reprlib.repr(operation)} is no operation of a container")
    try:
        with decoding():
            judged: Operation = read(operation)
            return judged
    except InvalidData as problem:
        raise InvalidOperation(f"{type(operation).__name__}: {problem}. Nothing was done") from None


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
    """An operation as msgpack values; content: makes them of what it appends."""
    code = _CODES[type(operation)]
    if isinstance(operation, Append):
        segment, appended, offset, updates, created_at = operation
        return [code, segment, content(appended), offset, updates, created_at]
    if isinstance(operation, MergeSegment):
        return [code, operation.target, operation.source, content(operation.header)]
    if isinstance(operation, TablesFlushed):
        return [code, operation.cycle, [_plain_table(table) for table in operation.tables]]
    return [code, *operation]


def _plain_table(flushed: FlushedTable) -> list[Any]:
    table, upto, layout, entries, pages, (entries_at, merged_entries), (pages_at, merged_pages), keep = flushed
    merged = [entries_at, encode_extents(merged_entries), pages_at, encode_extents(merged_pages)]
    return [table, upto, layout, encode_extents(entries), encode_extents(pages), *merged, keep]


def _table(fields: list[Any]) -> FlushedTable:
    table, upto, layout, entries, pages, entries_at, merged_entries, pages_at, merged_pages, keep = fields
    return FlushedTable(
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


def _read_tables(fields: list[Any], content: ReadContent) -> TablesFlushed:
    cycle, tables = fields
    return TablesFlushed(_TIME(cycle), tuple([_table(table) for table in tables]))


def _reader_of(kind: Any) -> Callable[[list[Any], ReadContent], Operation]:
    """What reads operations of which the annotations say everything."""
    read = reader(kind)
    return lambda fields, content: read(fields)


_NAME, _TIME, _FLAG, _LIST = reader(str), reader(int), reader(bool), reader(list[Any])
_OFFSET, _MAYBE_OFFSET = reader(Natural), reader(Natural | None)
_UPDATES = reader(tuple[AttributeUpdate, ...])
_LAYOUT = reader(TableLayout)
_SPECIAL: dict[type[Any], Callable[[list[Any], ReadContent], Operation]] = {
    Append: _read_append,
    MergeSegment: _read_merge,
    TablesFlushed: _read_tables,
}
_READERS: dict[int, Callable[[list[Any], ReadContent], Operation]] = {
    code: _SPECIAL.get(kind) or _reader_of(kind) for code, kind in _TYPES.items()
}


_GIVEN_NAME, _GIVEN_TIME, _GIVEN_BYTES, _GIVEN_OFFSET = (
    validator(str),
    validator(int),
    validator(bytes),
    validator(Natural),
)
_GIVEN_UPDATES, _GIVEN_LAYOUT, _GIVEN_FLAG = (
    validator(tuple[AttributeUpdate, ...]),
    validator(TableLayout),
    validator(bool),
)


def _judge_append(given: Append) -> Append:
    segment, content, offset, updates, created_at = given
    return Append(
        _named(_GIVEN_NAME, "segment", segment),
        _judge_content("content", content),
        None if offset is None else _named(_GIVEN_OFFSET, "offset", offset),
        _named(_GIVEN_UPDATES, "updates", updates),
        _named(_GIVEN_TIME, "created_at", created_at),
    )


def _is_exact(append: Append) -> bool:
    """Whether an append is what a frame would give back, as nearly all are: events come with each of them, and to check
    it field by field takes three times as long."""
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


def _judge_merge(given: MergeSegment) -> MergeSegment:
    return MergeSegment(
        _named(_GIVEN_NAME, "target", given.target),
        _named(_GIVEN_NAME, "source", given.source),
        _judge_content("header", given.header),
    )


def _judge_tables(given: TablesFlushed) -> TablesFlushed:
    if not isinstance(given.tables, list | tuple):
        raise InvalidData(f"tables: {reprlib.repr(given.tables)} stands where a list is due")
    return TablesFlushed(_GIVEN_TIME(given.cycle), tuple([_judge_table(table) for table in given.tables]))


def _judge_table(given: Any) -> FlushedTable:
    if not isinstance(given, FlushedTable):
        raise InvalidData(f"{reprlib.repr(given)} stands where a FlushedTable is due")
    return FlushedTable(
        _GIVEN_NAME(given.table),
        _GIVEN_TIME(given.upto),
        tuple(_GIVEN_LAYOUT(given.layout)),
        _judge_extents(given.entries),
        _judge_extents(given.pages),
        (_GIVEN_OFFSET(given.merged_entries[0]), _judge_extents(given.merged_entries[1])),
        (_GIVEN_OFFSET(given.merged_pages[0]), _judge_extents(given.merged_pages[1])),
        _GIVEN_FLAG(given.keep),
    )


def _named(read: Reader, field: str, value: Any) -> Any:
    try:
        return read(value)
    except InvalidData as problem:
        raise InvalidData(f"{field}: {problem}") from None


def _judge_content(field: str, content: Content) -> Content:
    if type(content) is Payload:
        return content
    if type(content) is IndexRecords:
        _named(_GIVEN_NAME, f"{field} of index records: segment", content.segment)
        return content
    extents: tuple[Extent, ...] = _named(_judge_extents, field, content)
    return extents


def _judge_extents(given: Any) -> tuple[Extent, ...]:
    if not isinstance(given, list | tuple):
        raise InvalidData(f"{reprlib.repr(given)} stands where a Payload, IndexRecords or extents are due")
    return tuple([_judge_extent(each) for each in given])


def _judge_extent(given: Any) -> Extent:
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


_SPECIAL_JUDGES: dict[type[Any], Callable[[Any], Any]] = {
    Append: _judge_append,
    MergeSegment: _judge_merge,
    TablesFlushed: _judge_tables,
}
_KINDS: tuple[Any, ...] = tuple(_TYPES.values())
_JUDGES: dict[Any, Callable[[Any], Any]] = {kind: _SPECIAL_JUDGES.get(kind) or validator(kind) for kind in _KINDS}


def encode_extents(extents: Sequence[Extent], own: FrameRef | None = None) -> list[list[Any]]:
    """Extents as msgpack values.

    The object is a chunk's name, [address, start] of a frame, [name] of a merged segment, or nil for frame `own`.
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
    """The inverse of `encode_extents`. Extents of one other frame share one reference. Raises InvalidData."""
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
"""The least and the greatest number; the greatest is also that of offsets and lengths."""
