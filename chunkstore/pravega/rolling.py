"""The layout that segments had before chunk metadata: a header file beside the chunks, called RollingStorage.

Segment S is the file `S$header` and its chunks, by default `S$offset.<start>`. The header is text, a row of entries
`key=value&`: `maxsize`, then where each chunk starts. A chunk ends where the next one starts, the last one where its
file ends. `concat=<count>@<offset>` says that the next `count` entries were copied from another header, which began at
0, and belong `offset` further on. A segment without a header is one file, S.

This module owns that format, and the ways between it and the metadata: `LegacySegments` makes records of what is there,
without moving a byte, and writes for old code what the records say.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from chunkstore.errors import (
    InvalidOffset,
    MetadataConflict,
    ObjectNotFound,
    ObjectReadOnly,
    StorageError,
    Unsupported,
)
from chunkstore.metadata.metadata_records import ChunkRecord, RecordStatus, StoredSegmentRecord, segment_key
from chunkstore.metadata.store import MetadataStore
from chunkstore.paths import SYSTEM, place_of
from chunkstore.port import Store
from chunkstore.segments.chunk_list import ChunkList, WrittenChunk
from chunkstore.segments.errors import ConcurrentModification, StoredSegmentNotFound
from chunkstore.segments.storage import NO_ROLLING

_log = logging.getLogger(__name__)

_HEADER = "$header"
_CHUNK = "$offset."
_PAGE = 1000
_DIGITS = 19  # of a number of 64 bits
_FARTHEST = (1 << 62) - 1  # the greatest offset that a record can hold
_ATTEMPTS = 10  # reads of a segment that is being changed

_PLAIN = re.compile(
    r"(?:[^/]+/)*[^/]+/\d+(?:\.#epoch\.\d+)?"
    r"(?:#transaction\.[0-9a-f]{32}|#transient\.[0-9a-f]{32}\.[0-9a-f]{32})?(?:\$attributes\.index|#index)?"
)
"""The names of Pravega's segments: what else lies in a bucket is not taken for a segment without a header."""


class InvalidHeader(StorageError):
    """A legacy header that contradicts itself or the chunks that are there. Nothing was adopted."""


class HeaderChunk(NamedTuple):
    """A chunk in a header: the offset in the segment at which it starts, and the object's name."""

    start: int
    name: str


class Header(NamedTuple):
    """What a header says. `max_length` is the size in bytes at which a chunk is full."""

    max_length: int
    chunks: tuple[HeaderChunk, ...]


def header_name(segment: str) -> str:
    """Where the header of a segment is stored."""
    return segment + _HEADER


def segment_of(header: str) -> str | None:
    """The segment whose header is stored there; None for an object that is no header."""
    return header.removesuffix(_HEADER) if header.endswith(_HEADER) and header != _HEADER else None


def is_plain_segment(name: str) -> bool:
    """Whether an object may be a segment without a header, by its name."""
    return _PLAIN.fullmatch(name) is not None


def chunk_name(segment: str, start: int | Literal[""]) -> str:
    """The name that old code gives to a segment's chunk; without a start what such names begin with."""
    return f"{segment}{_CHUNK}{start}"


def format_header(header: Header) -> bytes:
    """The bytes of a header. Raises InvalidHeader for a chunk name that the format cannot hold."""
    entries = [f"maxsize={header.max_length}&"]
    for chunk in header.chunks:
        if not chunk.name or set(chunk.name) & set("&="):
            raise InvalidHeader(f"chunk {chunk.name!r} cannot be in a legacy header: its name is empty or has & or =")
        entries.append(f"{chunk.start}={chunk.name}&")
    return "".join(entries).encode()


def parse_header(data: bytes) -> Header | None:
    """What a header says; None if it says that there is no segment: it is empty, so its creation failed.

    Behind the last "&" there may be part of an entry, whose writing failed; it is passed over. Raises InvalidHeader.
    """
    try:
        *entries, _ = data.decode().split("&")
    except UnicodeDecodeError as error:
        raise InvalidHeader(f"a legacy header is not text: {error.reason} at byte {error.start}") from None
    max_length: int | None = None
    chunks: list[HeaderChunk] = []
    concats = _Concats()
    for entry in filter(None, entries):
        key, separator, value = entry.partition("=")
        if not (key and separator and value):
            raise InvalidHeader(f"a legacy header has the entry {entry[:80]!r}: key=value is due")
        match key.lower():
            case "maxsize":
                if max_length is None:  # later ones came with the headers of concatenated segments
                    max_length = _number(value, entry)
            case "concat":
                count, _, offset = value.partition("@")
                concats.announce(_number(count, entry), _number(offset, entry))
            case _:
                chunk = HeaderChunk(concats.shifted(_number(key, entry)), value)
                if chunk.start > _FARTHEST:
                    raise InvalidHeader(f"a legacy header has chunk {value!r} at offset {chunk.start}: it is too far")
                if chunks and chunk.start < chunks[-1].start:
                    raise InvalidHeader(
                        f"a legacy header has chunk {value!r} at offset {chunk.start}, after one at {chunks[-1].start}"
                    )
                chunks.append(chunk)
    if max_length is None:
        if chunks:
            raise InvalidHeader("a legacy header has chunks, but no maxsize")
        return None
    return Header(max_length, tuple(chunks))


class _Concat(NamedTuple):
    """A marker: how far the entries of the copied header are shifted, and which ones these are, as they are counted."""

    offset: int
    first: int
    end: int


class _Concats:
    """The markers that are open; a copied header may hold markers itself. Each entry costs the same, however deep."""

    def __init__(self) -> None:
        self._open: list[_Concat] = []
        self._entries = 0  # that were read within the outermost marker, or before it

    def announce(self, count: int, offset: int) -> None:
        """A marker was read."""
        self._drop_failed()
        # A header within a header has fewer entries than are to come. Otherwise this is the second try of a concat.
        end = self._entries + count
        if self._open and end <= self._open[-1].end:
            offset += self._open[-1].offset
        else:
            self._open.clear()
        self._open.append(_Concat(offset, self._entries, end))

    def shifted(self, start: int) -> int:
        """Where the chunk starts that a header, copied or not, has at `start`."""
        if start != 0:
            self._drop_failed()
        while self._open and self._open[-1].end == self._entries:
            self._open.pop()
        if not self._open:
            return start
        self._entries += 1
        return start + self._open[-1].offset

    def _drop_failed(self) -> None:
        """A copied header begins at 0. If nothing of it followed, the concat failed behind its marker."""
        if self._open and self._open[-1].first == self._entries:
            self._open.pop()


def _number(text: str, entry: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise InvalidHeader(f"a legacy header has the entry {entry[:80]!r}, in which {text[:80]!r} is not a number")
    return int(text)


@dataclass
class AdoptionReport:
    """What `adopt_all` met: segments adopted now, those that had metadata, those refused and why."""

    adopted: int = 0
    known: int = 0
    refused: dict[str, str] = field(default_factory=dict)


class _Found(NamedTuple):
    """What old code left of a segment, which begins at `start`: `chunks` are those with bytes."""

    max_length: int
    sealed: bool
    start: int
    chunks: list[WrittenChunk]


class LegacySegments:
    """The segments in `chunks` that have the old layout, and their records in `metadata`.

    A segment is adopted once, and not from a header that was exported: a mark stays in the metadata, so that deleting a
    segment does not let it come back from what is left of its old layout. With `keep_headers` headers stay for old
    code; otherwise they go once adopted.
    """

    def __init__(self, chunks: Store, metadata: MetadataStore, *, keep_headers: bool) -> None:
        self._chunks = chunks
        self._metadata = metadata
        self._keep_headers = keep_headers

    def adopt(self, segment: str) -> bool:
        """Make metadata for a segment that has none, of what old code left; False if there is no such segment.

        It is the `adopter` of a `ChunkedSegmentStorage`. From then on bytes that old code adds do not count. Raises
        InvalidHeader, and what storage and metadata raise.
        """
        mark = _mark(segment)
        with self._metadata.begin(segment_key(segment), mark.key, segment) as transaction:
            record = transaction.segment(segment)
            if record is not None:
                return bool(record.status & RecordStatus.ACTIVE)
            if transaction.chunk(mark.key) is not None or transaction.chunk(segment) is not None:
                return False  # it was adopted, and is deleted or part of another segment now
            found = self._find(segment)
            if found is None:
                return self._is_active(segment)  # another process may have adopted it just now
            chunks = ChunkList(transaction, _empty_segment(segment, found))
            chunks.extend(found.chunks)
            chunks.save()
            transaction.put(mark)
            try:
                transaction.commit()
            except MetadataConflict:  # another process adopts it too
                return self._is_active(segment)
        _log.info("segment %r is adopted with its %d chunks", segment, len(found.chunks))
        if not self._keep_headers:
            self.delete_header(segment)
        return True

    def adopt_all(self, prefix: str = "") -> AdoptionReport:
        """Adopt every legacy segment in the folder `prefix` ("a/b/", "" for all)."""
        report = AdoptionReport()
        for segment in self._segments(prefix):
            known = self._is_active(segment)
            try:
                if known:
                    report.known += 1
                    if not self._keep_headers:
                        self.delete_header(segment)
                else:
                    report.adopted += self.adopt(segment)
            except (StorageError, ValueError) as error:
                report.refused[segment] = str(error)
        return report

    def export_header(self, segment: str) -> bytes:
        """Write the header that lets old code read the segment; returns its bytes. Raises StoredSegmentNotFound.

        Old code takes the length of the last chunk's file for the end of the segment. If there are bytes that do not
        count, the header gets an empty chunk behind them.
        """
        record, chunks = self._marked(segment)
        chunks += self._end_of(record)
        data = format_header(Header(record.max_rolling_length or NO_ROLLING, tuple(chunks)))
        name = header_name(segment)
        self._chunks.put(name, data)
        self._set_sealed(name, bool(record.status & RecordStatus.SEALED))
        return data

    def delete_header(self, segment: str) -> None:
        """Delete a segment's header, if there is one."""
        self._chunks.delete([header_name(segment)])

    # -- export

    def _marked(self, segment: str) -> tuple[StoredSegmentRecord, list[HeaderChunk]]:
        """The segment's record and its chunks as they are at one moment, when it is marked, too."""
        for _ in range(_ATTEMPTS):
            try:
                return self._try_to_mark(segment)
            except MetadataConflict:
                self._metadata.evict_all()
        raise ConcurrentModification(segment)

    def _try_to_mark(self, segment: str) -> tuple[StoredSegmentRecord, list[HeaderChunk]]:
        mark = _mark(segment)
        with self._metadata.begin(segment_key(segment), mark.key) as transaction:
            record = transaction.segment(segment)
            if record is None or not record.status & RecordStatus.ACTIVE:
                raise StoredSegmentNotFound(segment)
            if transaction.chunk(mark.key) is None:
                transaction.put(mark)
            walk = ChunkList(transaction, record).walk(record.first_chunk_start, record.first_chunk, record.length)
            chunks = [HeaderChunk(placed.start, placed.chunk.name) for placed in walk]
            transaction.commit()
        return record, chunks

    # -- import

    def _find(self, segment: str) -> _Found | None:
        """What old code left of the segment; None if there is no such segment."""
        name = header_name(segment)
        header = self._read_header(name)
        if header is None:
            size = self._size(segment, {})
            if size is None:
                return None
            only = [WrittenChunk(segment, size)] if size else []
            return _Found(NO_ROLLING, self._is_sealed(segment), 0, only)
        placed = self._existing(segment, header)
        if header.chunks and not placed:
            return None  # its deletion failed before the header was gone
        chunks = [WrittenChunk(chunk.name, length) for chunk, length in placed if length]
        for chunk, _ in placed:
            if place_of(chunk.name) is not None:
                raise InvalidHeader(f"segment {segment!r}: its header has {chunk.name!r}, which is part of the root")
        if len({chunk.name for chunk in chunks}) < len(chunks):
            raise InvalidHeader(f"segment {segment!r}: its header has a chunk twice")
        return _Found(header.max_length, self._is_sealed(name), placed[0][0].start if placed else 0, chunks)

    def _read_header(self, name: str) -> Header | None:
        try:
            return parse_header(self._chunks.read(name))
        except ObjectNotFound:
            return None
        except InvalidHeader as error:
            raise InvalidHeader(f"{self._chunks.root}: {name!r}: {error}: repair or remove it") from None

    def _existing(self, segment: str, header: Header) -> list[tuple[HeaderChunk, int]]:
        """The chunks in the header and their lengths, without those gone from its front: they were truncated."""
        placed: list[tuple[HeaderChunk, int]] = []
        sizes = self._sizes(segment)
        for chunk, following in zip(header.chunks, [*header.chunks, None][1:], strict=True):
            size = self._size(chunk.name, sizes)
            if size is None and not placed:
                continue
            length = size if following is None else following.start - chunk.start
            if length is None or length > (size or 0):
                found = "is missing" if size is None else f"has {size} bytes, but {length} by the header"
                raise InvalidHeader(f"segment {segment!r}: chunk {chunk.name!r} at {chunk.start} {found}")
            placed.append((chunk, length))
        return placed

    def _size(self, chunk: str, sizes: dict[str, int]) -> int | None:
        if chunk in sizes:
            return sizes[chunk]
        try:
            return self._chunks.stat(chunk).size
        except ObjectNotFound:
            return None

    def _sizes(self, segment: str) -> dict[str, int]:
        """The sizes of the chunks that are named after the segment, from one listing."""
        folder, _, _ = segment.rpartition("/")
        prefix = segment + _CHUNK
        sizes: dict[str, int] = {}
        last = prefix
        while page := self._chunks.list(folder and f"{folder}/", last, _PAGE):
            sizes |= {found.path: found.size for found in page if found.path.startswith(prefix)}
            last = page[-1].path
            if not last.startswith(prefix):
                break
        return sizes

    def _segments(self, prefix: str) -> Iterator[str]:
        """Names of what may be legacy segments."""
        last = ""
        while page := self._chunks.list(prefix, last, _PAGE):
            for found in page:
                segment = segment_of(found.path)
                if segment is not None:
                    yield segment
                elif is_plain_segment(found.path) and not found.path.startswith(SYSTEM):
                    yield found.path
            last = page[-1].path

    def _is_active(self, segment: str) -> bool:
        with self._metadata.begin(read_only=True) as transaction:
            record = transaction.segment(segment)
        return record is not None and bool(record.status & RecordStatus.ACTIVE)

    # -- seals: old code marks its file read-only

    def _is_sealed(self, name: str) -> bool:
        try:
            self._chunks.append(name, self._chunks.stat(name).size, b"")
        except ObjectReadOnly:
            return True
        except (InvalidOffset, ObjectNotFound, Unsupported):  # it has grown, or was adopted; or it cannot be known
            return False
        return False

    def _set_sealed(self, name: str, sealed: bool) -> None:
        try:
            self._chunks.set_read_only(name, sealed)
        except Unsupported:
            if sealed:
                _log.warning("%s: the storage has no read-only objects, so old code will not see it sealed", name)

    def _end_of(self, record: StoredSegmentRecord) -> list[HeaderChunk]:
        """What must stand behind the last chunk so that old code finds the segment's end."""
        if record.last_chunk is not None:
            if self._chunks.stat(record.last_chunk).size == record.length - record.last_chunk_start:
                return []
        elif not record.length:
            return []
        name = chunk_name(record.name, record.length)
        self._chunks.put(name, b"")
        return [HeaderChunk(record.length, name)]


def _mark(segment: str) -> ChunkRecord:
    """The record that says that a segment is known, whatever lies there in the old layout."""
    return ChunkRecord(header_name(segment), 0, status=RecordStatus(0))


def _empty_segment(segment: str, found: _Found) -> StoredSegmentRecord:
    return StoredSegmentRecord(
        segment,
        length=found.start,
        start_offset=found.start,
        status=RecordStatus.ACTIVE
        | RecordStatus.ATOMIC_WRITES
        | (RecordStatus.SEALED if found.sealed else RecordStatus(0)),
        max_rolling_length=found.max_length,
        first_chunk_start=found.start,
        last_chunk_start=found.start,
    )
