"""Random transactions for property tests: most of them fit the present state, some do not."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from chunkstore import Store
from engine.state.index_records import RECORD_SIZE, IndexRecords
from engine.state.operations import (
    Append,
    AttributeUpdate,
    Content,
    CreateSegment,
    CreateTable,
    DeleteSegment,
    DeleteTable,
    DiscardChunks,
    ExpireSegments,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    StartSegment,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import EVENT_COUNT, MAX_VALUE, NULL_VALUE, Extent, parent_in, transient_name
from engine.storage.chunk_writer import write_chunk
from tests.support.container_model import Model

TRANSIENT = tuple(transient_name("s/a", uuid.UUID(int=1), uuid.UUID(int=number)) for number in (2, 3))
SEGMENTS = ("s/a", "s/b", "s/c", "s/c#index", *TRANSIENT)
ATTRIBUTES = (bytes(15) + b"w", bytes(15) + b"x", EVENT_COUNT)
TABLES, KEYS = ("t", "u", "created"), ("k", "l")
HORIZONS = (1, 2, 3)
"""Moments at which chunks are begun, and before which they are given up."""

ChunkWriter = Callable[[list[bytes]], list[Extent]]
"""Makes a chunk of the parts, and returns an extent for each part."""


def chunk_writer(model: Model, store: Store) -> ChunkWriter:
    """Writes chunks to attach, and tells the model what is in them."""

    def write(parts: list[bytes]) -> list[Extent]:
        name = f"attached/{uuid.uuid4()}"
        model.chunks[name] = b"".join(parts)
        return write_chunk(store, name, [[part] for part in parts])

    return write


@st.composite
def transactions(draw: DrawFn, model: Model, write: ChunkWriter, longest: int) -> list[Operation]:
    """One to three operations on what `model` holds, with at most `longest` bytes of payload each."""
    trial, drawn = model.copy(), []
    for _ in range(draw(st.sampled_from((1, 1, 1, 1, 2, 3)))):
        drawn += draw(_operations(trial, write, longest))
        try:
            trial.commit(drawn[-1:])
        except Exception:  # a transaction may well fail half way
            break
    return drawn


@st.composite
def _operations(draw: DrawFn, model: Model, write: ChunkWriter, longest: int) -> list[Operation]:
    name = draw(st.sampled_from(SEGMENTS))
    present = sorted(model.segments) or [name]
    if name not in model.segments:
        if draw(st.integers(0, 2)):
            return [CreateSegment(name, draw(_updates(model, name)), parent_in(name) or "")]
        if draw(st.booleans()):
            name = draw(st.sampled_from(present))
    other = draw(st.sampled_from(present))
    kind = draw(st.sampled_from((*["append"] * 6, *["attach"] * 2, *["merge"] * 2, *_KINDS)))
    if kind == "append":
        content = draw(_contents(other, longest))
        return [Append(name, content, draw(_offsets(model, name)), draw(_updates(model, name)))]
    if kind == "attach":  # one chunk for two segments
        extents = write([draw(_data(longest)) + b".", draw(_data(longest)) + b";"])
        created = draw(st.sampled_from((HORIZONS[-1], HORIZONS[-1], HORIZONS[0])))
        return [Append(name, (extents[0],), created_at=created), Append(other, (extents[1],), created_at=created)]
    if kind == "merge":
        return [*([SealSegment(other)] if draw(st.integers(0, 3)) else []), MergeSegment(name, other)]
    return [_KINDS[kind](draw, model, name)]


def _truncate(draw: DrawFn, model: Model, name: str) -> Operation:
    length = len(model.segments[name].data) if name in model.segments else 0
    return TruncateSegment(name, draw(st.integers(0, length + 1)))


def _put(draw: DrawFn, model: Model, name: str) -> Operation:
    table, key = draw(st.sampled_from(TABLES)), draw(st.sampled_from(KEYS))
    expected = draw(st.sampled_from((None, model.version(table, key), -1, 1)))
    return PutEntry(table, key, draw(st.none() | st.binary(max_size=3)), expected)


def _expire(draw: DrawFn, model: Model, name: str) -> ExpireSegments:
    return ExpireSegments(tuple(dict.fromkeys((name, *TRANSIENT))), draw(st.sampled_from((0, MAX_VALUE))))


_KINDS: dict[str, Callable[[DrawFn, Model, str], Operation]] = {
    "seal": lambda draw, model, name: SealSegment(name),
    "truncate": _truncate,
    "start": lambda draw, model, name: StartSegment(name, draw(st.integers(0, 9))),
    "delete": lambda draw, model, name: DeleteSegment(name),
    "expire": _expire,
    "sweep": lambda draw, model, name: DiscardChunks((), draw(st.sampled_from(HORIZONS))),
    "update": lambda draw, model, name: UpdateAttributes(name, draw(_updates(model, name))),
    "put": _put,
    "create table": lambda draw, model, name: CreateTable("created", len(KEYS[0])),
    "delete table": lambda draw, model, name: DeleteTable("created"),
}


def _data(longest: int) -> st.SearchStrategy[bytes]:
    """Bytes of any length, told apart by how they begin."""
    return st.builds(
        lambda start, size: bytes((start + i) % 251 for i in range(size)),
        st.integers(0, 250),
        st.one_of(st.integers(0, min(20, longest)), st.integers(0, longest)),
    )


@st.composite
def _contents(draw: DrawFn, other: str, longest: int) -> Content:
    if draw(st.integers(0, 4)):
        return Payload(draw(_data(longest)))
    return IndexRecords(other, bytes(RECORD_SIZE))


@st.composite
def _offsets(draw: DrawFn, model: Model, name: str) -> int | None:
    length = len(model.segments[name].data) if name in model.segments else 0
    return draw(st.sampled_from((None, None, length, length, length + 1)))


@st.composite
def _update(draw: DrawFn, present: Mapping[bytes, int]) -> AttributeUpdate:
    attribute, kind = draw(st.sampled_from(ATTRIBUTES)), draw(st.sampled_from(UpdateKind))
    added, replaced = (0, 1, 2, 1 << 62), (0, 1, 2, 7, -3, NULL_VALUE)
    value = draw(st.sampled_from(added if kind is UpdateKind.ACCUMULATE else replaced))
    return AttributeUpdate(attribute, kind, value, draw(st.sampled_from((present.get(attribute, NULL_VALUE), 1))))


def _updates(model: Model, name: str) -> st.SearchStrategy[tuple[AttributeUpdate, ...]]:
    update = _update(model.segments[name].attributes if name in model.segments else {})
    return st.one_of(st.just(()), st.just(()), st.lists(update, max_size=2).map(tuple))
