"""The long-term storage of a real Pravega, read without one: its segments, their bytes, attributes and tables.

`open_archive` finds out where everything is: the newest epoch of each container says where its system segments are, its
storage metadata where all other segments are (`chunked_layout`); segments that it does not know may be in the rolling
layout (`rolling_layout`). So a folder in any of the four modes of PDP-34 is read, one that is half on its way too. The
table `metadata_<container>` has heads, seals and attributes, and which segments were deleted. In the rolling layout a
container may not have flushed any of it; then its segments are what their chunks say.

Nothing is written, and nothing is guessed: what contradicts itself or is missing is an ArchiveDamaged that names the
object, when the archive is opened if everything depends on it, else when the segment is read. What is not known because
it was never flushed is in `findings`.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from chunkstore.decoding import InvalidData, decoding
from chunkstore.paths import CONTAINERS
from chunkstore.port import Store
from chunkstore.pravega.archived_segments import (
    INDEX_SUFFIX,
    ArchivedChunk,
    StoredSegment,
    from_head,
    index_of,
    read_segment,
    removed_of,
    table_of,
)
from chunkstore.pravega.attribute_index import attributes_of
from chunkstore.pravega.chunked_layout import stored_segments, system_segment
from chunkstore.pravega.journal_records import SegmentSnapshot
from chunkstore.pravega.made_chunks import MadeChunk, made_chunk
from chunkstore.pravega.rolling_layout import rolling_segment, rolling_segments
from chunkstore.pravega.segment_infos import SegmentInfo, decode_info
from chunkstore.pravega.source import SALVAGE, ArchiveDamaged, Source
from chunkstore.pravega.system_boot import boot
from chunkstore.pravega.table_entries import TableRows
from chunkstore.pravega.unrecorded import continued
from chunkstore.segments.errors import StoredSegmentNotFound

_CONTAINER = re.compile(re.escape(CONTAINERS) + r"(?:storage_)?metadata_([0-9]{1,9})(?![0-9])")
_NULL = -1 << 63  # the value of an attribute that was removed


@dataclass(frozen=True)
class ArchivedSegment:
    """A segment: its bytes are [start_offset, length), offsets count from its beginning before any truncation.

    chunks: in their order; the first may begin before `start_offset`. attributes: its core attributes; see
    `Archive.attributes` for all. container: None if no container knows it. head_recorded: whether a record says where
    it begins; else only the chunks that are missing do. length_recorded: whether a record says where it ends; else its
    last object's end does. problem: why it cannot be read.
    """

    name: str
    start_offset: int
    length: int
    sealed: bool
    chunks: tuple[ArchivedChunk, ...]
    attributes: Mapping[uuid.UUID, int]
    container: int | None
    is_table: bool
    head_recorded: bool
    length_recorded: bool
    due: int
    problem: ArchiveDamaged | None

    @classmethod
    def absent(cls, name: str) -> ArchivedSegment:
        """A segment of which nothing is there."""
        return cls(name, 0, 0, False, (), {}, None, False, True, True, 0, None)


class _Container(NamedTuple):
    """What a container knows. stored: its segments in the chunked layout. removed: names of deleted segments."""

    infos: dict[str, SegmentInfo]
    stored: dict[str, StoredSegment]
    removed: set[bytes]


@dataclass
class _Contents:
    """All that was found."""

    stored: dict[str, StoredSegment] = field(default_factory=dict)
    infos: dict[str, SegmentInfo] = field(default_factory=dict)
    containers: dict[str, int] = field(default_factory=dict)
    rolling: set[str] = field(default_factory=set)
    unrecorded: set[str] = field(default_factory=set)
    removed: set[bytes] = field(default_factory=set)
    count: int = 0
    findings: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)


def open_archive(store: Store, prefix: str = "", *, salvage: bool = False, instead: str | None = SALVAGE) -> Archive:
    """The long-term storage in the folder `prefix` ("a/b/", "" for all) of a store; it must be at rest.

    It costs a listing, and requests in proportion to the containers' metadata and, in the rolling layout, to the
    segments. salvage: go by what the system journals know where their end may be missing, which is in `left_over` then.
    instead: what errors advise that salvages. Raises ArchiveDamaged, and what the store raises.
    """
    source = Source(store, prefix, None if salvage else instead)
    return Archive(source, _contents(source, salvage))


class Archive:
    """A Pravega's long-term storage.

    where: the folder. containers: how many there are; in the rolling layout, up to the last one of which something is
    there. findings: what is not known, in words. left_over: what is there, and is not used.
    """

    def __init__(self, source: Source, contents: _Contents) -> None:
        self._source = source
        self._contents = contents
        self._segments = {
            name: self._segment(segment)
            for name, segment in sorted(contents.stored.items())
            if not name.endswith(INDEX_SUFFIX)
        }
        self.where = source.where
        self.containers = contents.count
        self.findings = tuple(contents.findings)
        self.left_over = tuple(contents.left_over)

    def damaged(self, fact: str) -> ArchiveDamaged:
        """The error of something in it that is not as it must be."""
        return self._source.damage(fact)

    def segments(self) -> Mapping[str, ArchivedSegment]:
        """All segments by their names, those of tables and Pravega's own among them; not the attribute indexes."""
        return self._segments

    def segment(self, name: str) -> ArchivedSegment:
        """A segment. Raises StoredSegmentNotFound."""
        if name not in self._segments:
            raise StoredSegmentNotFound(name)
        return self._segments[name]

    def read(self, name: str, start: int, end: int) -> bytes:
        """The bytes [start, end) of a segment.

        Raises StoredSegmentNotFound, SegmentTruncated, ArchiveDamaged, StorageError, and ValueError behind its end.
        """
        self.segment(name)
        return read_segment(self._source, self._contents.stored[name], start, end)

    def attributes(self, name: str) -> dict[uuid.UUID, int]:
        """The attributes of a segment that have a value. Raises StoredSegmentNotFound, ArchiveDamaged, StorageError."""
        found = dict(self.segment(name).attributes)
        index = self._contents.stored.get(name + INDEX_SUFFIX)
        if index is not None:
            with decoding(functools.partial(self._source.damaged, index.name)):
                found = attributes_of(index_of(self._source, index)) | found
        return {attribute: value for attribute, value in found.items() if value != _NULL}

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the segments that are tables."""
        return tuple(name for name, segment in self._segments.items() if segment.is_table)

    def table(self, name: str) -> TableRows:
        """The live entries of a table, by their keys. Raises StoredSegmentNotFound, ArchiveDamaged, and the store's."""
        self.segment(name)
        stored = self._contents.stored
        return table_of(self._source, stored[name], stored.get(name + INDEX_SUFFIX), self._contents.infos.get(name))

    def object(self, name: str) -> tuple[int, float] | None:
        """The size of an object, and when it was last changed (seconds since the epoch); None if it is missing."""
        size, modified = self._source.size(name), self._source.modified(name)
        return (size, modified) if size is not None and modified is not None else None

    def from_head(self, segment: ArchivedSegment, start: int) -> ArchivedSegment:
        """A segment that is truncated at `start`: chunks before it may be missing, as a server deletes them."""
        stored = from_head(self._source, self._contents.stored[segment.name], min(start, segment.length))
        if stored.problem is segment.problem:
            return segment
        return replace(segment, start_offset=stored.start, chunks=stored.chunks, problem=stored.problem)

    def continued(
        self, name: str, start: int, is_trusted: Callable[[ArchivedChunk], bool]
    ) -> tuple[ArchivedChunk, ...]:
        """The chunks of a segment from `start` on, as far as objects reach, whatever the metadata counts.

        is_trusted: whether an object is the one that is due at a chunk. Nothing for a segment that its container knows
        to be deleted. Raises ArchiveDamaged, and what the store raises.
        """
        if name.encode() in self._contents.removed or name in self._contents.rolling:
            return ()
        known = self._segments.get(name)
        return continued(
            self._source,
            known.chunks if known is not None else (),
            start,
            self._made.get(name, ()),
            is_trusted,
        )

    def made_for(self, prefix: str) -> Sequence[str]:
        """The names of segments that begin with `prefix`, of which objects are there without a record.

        Without those that are known to be deleted.
        """
        removed = self._contents.removed
        return [name for name in self._made if name.startswith(prefix) and name.encode() not in removed]

    @functools.cached_property
    def _made(self) -> dict[str, list[MadeChunk]]:
        """The objects without a record that were made for a segment, by its name."""
        recorded = {chunk.name for each in self._contents.stored.values() for chunk in each.chunks}
        found: dict[str, list[MadeChunk]] = {}
        for name in self._source.names():
            made = made_chunk(name) if name not in recorded and self._source.size(name) else None
            if made is not None and not made.segment.endswith(INDEX_SUFFIX):
                found.setdefault(made.segment, []).append(made)
        return found

    def may_be_another(self, name: str, length: int) -> bool:
        """Whether an object may have been exchanged with another one, if a chunk of `length` is due there.

        Its size is not that then. And either an object of its size is due where there is none, or the object that is
        due here is where another one is due.
        """
        missing, strays = self._sizes
        size = self._source.size(name)
        return size != length and (size in missing or length in strays)

    @functools.cached_property
    def _sizes(self) -> tuple[set[int], set[int]]:
        """The lengths of chunks whose objects have another size, and the sizes of objects that no record names so."""
        recorded = {chunk.name: chunk.length for each in self._contents.stored.values() for chunk in each.chunks}
        found = {name: self._source.size(name) or 0 for name in self._source.names()}
        missing = {length for name, length in recorded.items() if found.get(name) != length}
        return missing, {size for name, size in found.items() if recorded.get(name) != size}

    def has_twin(self, name: str) -> bool:
        """Whether another object has the size of this one, so that they may have been exchanged unnoticed."""
        return self._counts[self._source.size(name) or 0] > 1

    @functools.cached_property
    def _counts(self) -> Counter[int]:
        """How many objects there are of each size."""
        return Counter(self._source.size(name) or 0 for name in self._source.names())

    def problems(self) -> tuple[ArchiveDamaged, ...]:
        """What is damaged of segments and their attribute indexes, as far as lengths and records show."""
        return tuple(each.problem for each in self._contents.stored.values() if each.problem is not None)

    def _segment(self, stored: StoredSegment) -> ArchivedSegment:
        info = self._contents.infos.get(stored.name)
        return ArchivedSegment(
            stored.name,
            stored.start,
            stored.length,
            stored.sealed,
            stored.chunks,
            info.attributes if info is not None else {},
            self._contents.containers.get(stored.name),
            info is not None and info.is_table,
            stored.name not in self._contents.unrecorded,
            stored.name not in self._contents.rolling,
            max(stored.length, info.length if info is not None and info.start_offset < info.length else 0),
            stored.problem,
        )


def _contents(source: Source, salvage: bool) -> _Contents:
    contents = _Contents()
    booted = boot(source, contents.left_over, salvage=salvage)
    removed = contents.removed
    for container in _containers(source, booted, contents):
        known = _container(source, container, booted.get(container), contents)
        contents.containers |= dict.fromkeys((*known.infos, *known.stored), container)
        contents.infos |= known.infos
        contents.stored |= known.stored
        removed |= known.removed
    contents.rolling |= contents.stored.keys() if not booted else set()
    rolling = rolling_segments(source, contents.stored.keys(), contents.infos)
    contents.stored |= rolling
    contents.rolling |= rolling.keys()
    for name in sorted(contents.stored):
        segment = name.removesuffix(INDEX_SUFFIX)
        if segment.encode() in removed:
            del contents.stored[name]
        if name == segment and contents.infos and name not in contents.infos and not name.startswith(CONTAINERS):
            if name.encode() in removed:
                contents.left_over.append(f"{name!r} is in long-term storage, but was deleted")
            else:
                contents.findings.append(
                    f"{name!r} is in long-term storage, but its container's metadata there does not know it yet, or "
                    "was not flushed"
                )
    for name in rolling.keys() & contents.stored.keys():
        info = contents.infos.get(name)
        if contents.stored[name].start > (info.start_offset if info is not None else 0):
            contents.unrecorded.add(name)
            contents.findings.append(
                f"{name!r} begins at {contents.stored[name].start} or later, as far as it is there"
            )
    for name, info in contents.infos.items():
        _merge(source, contents, name, info)
    if not contents.infos:
        contents.findings.append("no container's metadata is there: heads of segments are those of their chunks")
    return contents


def _containers(source: Source, booted: Mapping[int, object], contents: _Contents) -> list[int]:
    """The containers of which something is there. Each makes its system journal when it begins; without journals those
    are not there that flushed nothing yet."""
    found = {int(match[1]) for match in map(_CONTAINER.match, source.names(CONTAINERS)) if match}
    for container in sorted(found - booted.keys()) if booted else ():
        raise source.damaged(f"{CONTAINERS}metadata_{container}", "no system journal of its container is there")
    found |= booted.keys()
    contents.count = max(found, default=-1) + 1
    return sorted(found)


def _container(
    source: Source, container: int, snapshots: Mapping[str, SegmentSnapshot] | None, contents: _Contents
) -> _Container:
    system: dict[str, StoredSegment] = {}
    if snapshots is not None:
        system = {name: system_segment(source, snapshot) for name, snapshot in snapshots.items()}
    infos: dict[str, SegmentInfo] = {}
    own = f"{CONTAINERS}metadata_{container}"
    for name in (own, own + INDEX_SUFFIX):
        if name not in system and (segment := rolling_segment(source, name, None)) is not None:
            system[name] = segment
    if own not in system:
        return _Container(infos, system, set())
    for entry in _table(source, system, own, infos, contents).values():
        with decoding(functools.partial(source.damaged, f"{own}: the entry at offset {entry.offset}")):
            info = decode_info(entry.value or b"")
            if info.name.encode() != entry.key:
                raise InvalidData(f"its key is {entry.key!r}, and its value names segment {info.name!r}")
            infos[info.name] = info
    records = f"{CONTAINERS}storage_metadata_{container}"
    removed = removed_of(source, system[own])
    if snapshots is None:
        return _Container(infos, system, removed)
    stored = stored_segments(source, records, _table(source, system, records, infos, contents)) | system
    return _Container(infos, stored, removed)


def _table(
    source: Source,
    system: Mapping[str, StoredSegment],
    name: str,
    infos: Mapping[str, SegmentInfo],
    contents: _Contents,
) -> TableRows:
    if name not in system:
        return TableRows({})
    rows = table_of(source, system[name], system.get(name + INDEX_SUFFIX), infos.get(name))
    if rows.ahead:
        contents.findings.append(f"{name!r}: its last {len(rows.ahead)} changes were not flushed, or are lost")
    return rows


def _merge(source: Source, contents: _Contents, name: str, info: SegmentInfo) -> None:
    """Add to what the layout says what the container knows, which is older or newer, but never less truncated."""
    stored = contents.stored.get(name)
    if stored is None:
        stored = StoredSegment(name, info.start_offset, info.start_offset, info.sealed, ())
    if info.length > stored.length and info.start_offset < info.length:
        contents.findings.append(
            f"{name!r} had {info.length} bytes; the metadata of long-term storage has {stored.length} of them"
        )
    start = max(stored.start, min(info.start_offset, stored.length))
    contents.stored[name] = from_head(source, stored, start)._replace(sealed=stored.sealed or info.sealed)
