"""What the objects of a segment have beyond its metadata (chunked layout).

A server writes to an object first and records it afterwards, and the record reaches long-term storage later still. So
a server that was killed leaves objects that are longer than their records, and objects without a record. The bytes at
an offset of a segment never change once they are acknowledged. So what continues a segment is found by offsets: the
end of the last recorded object, then objects that were made for the offset where the one before ends.

Bytes that objects have twice must be the same; behind bytes that differ nothing is used. Nor is anything behind a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chunkstore.pravega.archived_segments import ArchivedChunk
from chunkstore.pravega.made_chunks import MadeChunk
from chunkstore.pravega.source import Source


def continued(
    source: Source,
    recorded: Sequence[ArchivedChunk],
    start: int,
    others: Iterable[MadeChunk],
    is_trusted: Callable[[ArchivedChunk], bool],
) -> tuple[ArchivedChunk, ...]:
    """The chunks of a segment from `start` on, each where the one before ends, as far as their objects reach.

    recorded: the chunks by the metadata. others: objects that were made for the segment, and have no record.
    is_trusted: whether an object is the one that is due at a chunk. Raises ArchiveDamaged, and what the store raises.
    """
    found = [chunk for chunk in recorded if chunk.offset + chunk.length > start]
    chain, end = _recorded(source, found, start, is_trusted)
    following = [chunk for chunk in found[len(chain) :] if source.size(chunk.name) == chunk.length]
    following += [
        ArchivedChunk(made.name, made.offset, size)
        for made in sorted(others, key=lambda made: (made.offset, -made.epoch))
        if (size := source.size(made.name))
    ]
    if chain and is_trusted(chain[-1]):
        chain[-1] = chain[-1]._replace(length=max(source.size(chain[-1].name) or 0, chain[-1].length))
    elif not chain and (first := _covering(following, start)) is not None:
        chain = [first]
    while chain and (chunk := _next(following, chain[-1], end)) is not None:
        following.remove(chunk)
        last = chain[-1]
        shared = min(last.offset + last.length, chunk.offset + chunk.length) - chunk.offset
        if not _same(source, last, chunk, shared):
            chain[-1] = last._replace(length=chunk.offset - last.offset)
            break
        if shared < chunk.length:
            chain[-1] = last._replace(length=chunk.offset - last.offset)
            chain.append(chunk)
    return tuple(chunk for chunk in chain if chunk.length)


def _recorded(
    source: Source, chunks: Sequence[ArchivedChunk], start: int, is_trusted: Callable[[ArchivedChunk], bool]
) -> tuple[list[ArchivedChunk], int]:
    """The recorded chunks that are there, up to a gap, and where they end."""
    chain: list[ArchivedChunk] = []
    end = start
    for chunk in chunks:
        size = source.size(chunk.name) or 0
        if chunk.offset > end or not size or not is_trusted(chunk):
            break
        chain.append(chunk._replace(length=min(size, chunk.length)))
        end = chunk.offset + chain[-1].length
        if size < chunk.length:
            break
    return chain, end


def _covering(chunks: Iterable[ArchivedChunk], start: int) -> ArchivedChunk | None:
    """The chunk that has the byte at `start`; the last one that was made for an offset not behind it."""
    covering = [chunk for chunk in chunks if chunk.offset <= start < chunk.offset + chunk.length]
    return max(covering, key=lambda chunk: (chunk.offset, chunk.length), default=None)


def _next(chunks: Iterable[ArchivedChunk], last: ArchivedChunk, end: int) -> ArchivedChunk | None:
    """The chunk that begins first behind the recorded `end`, and not behind the end of the last one."""
    possible = [
        chunk
        for chunk in chunks
        if chunk.offset >= end and last.offset < chunk.offset <= last.offset + last.length and chunk.name != last.name
    ]
    return min(possible, key=lambda chunk: chunk.offset, default=None)


def _same(source: Source, last: ArchivedChunk, chunk: ArchivedChunk, shared: int) -> bool:
    """Whether two chunks agree on the `shared` bytes from the second one's offset on."""
    at = chunk.offset - last.offset
    return shared <= 0 or source.read(last.name, at, at + shared) == source.read(chunk.name, 0, shared)
