"""The parsers of the engine, raw and with valid checksums around what was changed."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence

from chunkstore import StorageRefused
from chunkstore.checksums import crc32c
from chunkstore.decoding import InvalidData, json_value
from engine.admin.checks.reference_counts import segment_problems, state_problems
from engine.containers.container import Container
from engine.errors import DataCorruption
from engine.logs import checkpoints, frames
from engine.logs.age_evidence import AgeEvidence, Observed, decode as decode_age_evidence, encode as encode_age_evidence
from engine.logs.frames import HEADER, START, Frame, Kind, Position
from engine.logs.log import checkpoints_folder, frame_path, frames_folder, repair_of
from engine.logs.replay import apply_frame
from engine.root import RootConfig, checksum, marker, read_marker
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    CreateTable,
    DeleteSegment,
    DeleteTable,
    MergeSegment,
    Payload,
    PutEntry,
    SealSegment,
    UpdateKind,
)
from engine.state.segment_record import decode_segment, encode_segment
from engine.state.segments import transient_name
from engine.state.state import EMPTY, State
from engine.state.tables import METADATA
from engine.storage import recovery_points
from engine.storage.object_reads import plan_extents
from engine.tables.content import TableContent, TableEntry, empty
from pravega_spark.streams.writing.uploads import OWNER, PLACE
from tests.fuzz import mutators
from tests.fuzz.harness import Parser
from tests.fuzz.mutators import Mutator
from tests.support.container_model import Model
from tests.support.simulation import Simulation, small_sizes
from tests.support.transactions import chunk_writer


def lived() -> Simulation:
    """A root in memory with a container in which all kinds of things have happened."""
    simulation = Simulation(active_segments=2)
    container = simulation.open()
    extents = chunk_writer(Model(), simulation.store)([b"attached-" * 9, b"to both"])
    container.create_segment("s/a")
    container.commit([CreateTable("sorted", 2), PutEntry("sorted", "ab", b"value"), CreateTable("gone", 1)])
    container.create_segment("s/b", [AttributeUpdate(bytes(15) + b"x", UpdateKind.REPLACE, 7)])
    container.append("s/a", b"flushed" * 20)
    container.commit([Append("s/b", (extents[0],)), Append("s/a", (extents[1],))])
    container.put_entries("t", {"k": b"value" * 20})
    container.flush()
    transient = transient_name("s/a", uuid.UUID(int=1), uuid.UUID(int=2))
    known = tuple(AttributeUpdate(each, UpdateKind.REPLACE, 1) for each in (OWNER, PLACE))
    container.commit([CreateSegment(transient, known, "s/a"), Append(transient, Payload(b"large"))])
    container.commit([CreateSegment("s/d"), Append("s/d", Payload(b"d")), PutEntry("t", "l", b"another" * 20)])
    container.commit([SealSegment("s/d"), MergeSegment("s/b", "s/d", Payload(b"header"))])
    container.checkpoint()
    container.truncate("s/a", 30)
    container.append("s/b", b"behind" * 3)
    container.commit([DeleteSegment("s/b"), PutEntry("t", "k", None), DeleteTable("gone")])
    container.flush()
    container.collect_garbage()
    container.append("s/a", b"last")
    return simulation


def _frames(simulation: Simulation) -> tuple[list[bytes], list[tuple[State, Frame]], State]:
    """The objects of the log, its frames each with the state before it, and the last state."""
    objects, applied = list[bytes](), list[tuple[State, Frame]]()
    state, head = EMPTY, START
    for info in simulation.store.list(frames_folder(0)):
        data = simulation.store.read(info.path)
        frame = frames.decode(data, info.path, 0, len(objects), True)
        objects.append(data)
        if frame.follows(head):
            applied.append((state, frame))
            state, head = apply_frame(state, frame, 0), frame.position
    return objects, applied, state


def _segment_entries(container: Container) -> list[bytes]:
    return [entry.value for _, entry in container.scan_entries(METADATA) if entry.value is not None]


with small_sizes():
    _ROOT = lived()
    _SAVED = _segment_entries(_ROOT.open())
_OBJECTS, _APPLIED, _STATE = _frames(_ROOT)
_POSITION = Position(7, bytes(16), 3)
METAS = [bytes([number]) + frame.meta for number, (_, frame) in enumerate(_APPLIED)]


def _use(state: State) -> None:
    """What is done with a state: accounts, reads, another checkpoint, which is understood again."""
    for segment in list(state.segments.values()):
        list(segment_problems(segment))
        plan_extents(segment.extents, 0, segment.storage_length, segment.length, lambda name, low, high: [])
    list(state_problems(state))
    again = checkpoints.decode(checkpoints.encode(0, _POSITION, state), "the checkpoint of what was understood", 0, 7)
    list(again.state.segments.values())


def _frame(data: bytes) -> None:
    address = int.from_bytes(data[41:49], "big") if len(data) >= 49 else 0
    for number in {0, min(address, len(_OBJECTS))}:
        frames.decode(data, frame_path(0, number), 0, number, True)


def _meta(data: bytes) -> None:
    """What a frame says, with a valid checksum, in the state before that frame."""
    before, frame = _APPLIED[data[0] % len(_APPLIED)] if data else _APPLIED[0]
    built = b"".join(frames.encode(0, frame.position, 1, START, data[1:]))
    frame = frames.decode(built, "frame", 0, frame.position.address, True)
    state = apply_frame(before, frame, 0)
    if len(data) % 4 == 0:
        try:
            _use(state)
        except DataCorruption as error:
            raise AssertionError(f"it was understood, and is no state: {error}") from error


def _of_metas(dice: random.Random, samples: Sequence[bytes]) -> bytes:
    number = dice.randrange(len(samples))
    return bytes([number]) + mutators.of_msgpack(dice, [sample[1:] for sample in samples[number : number + 2]])


def _repair(data: bytes) -> None:
    frame = Frame(_POSITION, Kind.REPAIR, START, data, HEADER, 0)
    repair_of(frame, "frame")
    apply_frame(_STATE, frame, 0)


def _sealed_checkpoint(body: bytes) -> bytes:
    """A checkpoint with a checksum that is right, and the head of one that was made."""
    prefix = _CHECKPOINTS[-1][: checkpoints.HEADER - 4]
    return prefix + crc32c(body, crc32c(prefix)).to_bytes(4, "big") + body


def _checkpoint(data: bytes) -> None:
    _use(checkpoints.decode(data, "checkpoint", 0, None).state)


def _segment(data: bytes) -> None:
    encode_segment(decode_segment(data, 5, "s/a"))


def _of_root(data: bytes) -> None:
    RootConfig.from_bytes(data, "memory://root")


def _sealed_root(data: bytes) -> None:
    """A root's description with a checksum that is right."""
    try:
        fields = json_value(data)
        fields.pop("checksum", None)
        fields["checksum"] = checksum(fields)
        sealed = json.dumps(fields).encode()
    except (InvalidData, AttributeError, TypeError, UnicodeError, RecursionError) as error:
        raise StorageRefused("not even an object") from error
    _of_root(sealed)


def _of_marker(data: bytes) -> None:
    from chunkstore.paths import ROOT
    from chunkstore.testing import SimulatedStore

    store = SimulatedStore()
    store.put(ROOT, data)
    read_marker(store)


# --- tables -------------------------------------------------------------------------------------------------------

_ENTRIES = [TableEntry(f"key{number}".encode(), b"value" * number, number) for number in range(30)]
_FLUSH = TableContent(empty(), lambda ranges: [], lambda ranges: [], name="t", max_page=200).flush(_ENTRIES)


def _table(entries: bytes, pages: bytes) -> None:
    layout = _FLUSH.layout
    reads = [lambda ranges, data=data: [data[at : at + length] for at, length in ranges] for data in (entries, pages)]
    content = TableContent(layout, reads[0], reads[1], name="t")
    content.get([b"key3", b"key29", b"nothing"])
    list(content.scan())
    list(content.changes(0))


def _sealed_age_evidence(body: bytes) -> None:
    decode_age_evidence(crc32c(body).to_bytes(4, "big") + body)


_ROOTS = [RootConfig("0" * 32).to_bytes(), RootConfig("1" * 32, 2, wal="memory://log").to_bytes()]
_CHECKPOINTS = [
    _ROOT.store.read(info.path) for folder in (checkpoints_folder(0), recovery_points.folder(0))
    for info in _ROOT.store.list(folder)
] + [checkpoints.encode(0, _POSITION, _STATE)]  # fmt: skip
_BODIES = [data[checkpoints.HEADER :] for data in _CHECKPOINTS]
_SEGMENTS = _SAVED + [encode_segment(segment) for segment in _STATE.segments.values()]
_CORRUPT = (DataCorruption,)
_STRUCTURE: Mutator = mutators.of_msgpack

_AGE_EVIDENCE = encode_age_evidence(
    [AgeEvidence("a boot", 12.5, Observed(7, 70)), AgeEvidence("a boot", 700.5, Observed(9, 80))]
)

PARSERS = [
    Parser("frames", _frame, _OBJECTS[:1], _CORRUPT),
    Parser("operations", _meta, METAS, _CORRUPT, _of_metas),
    Parser("operations-bytes", _meta, METAS, _CORRUPT),
    Parser("repairs", _repair, [b"\x93\x05\x07\xc0", b"\x93\x05\x07\x92\x00\x02"], _CORRUPT, _STRUCTURE),
    Parser("checkpoints", _checkpoint, _CHECKPOINTS, _CORRUPT),
    Parser("checkpoints-sealed", lambda body: _checkpoint(_sealed_checkpoint(body)), _BODIES, _CORRUPT, _STRUCTURE),
    Parser("age-evidence", decode_age_evidence, [_AGE_EVIDENCE], (InvalidData,)),
    Parser("age-evidence-sealed", _sealed_age_evidence, [_AGE_EVIDENCE[4:]], (InvalidData,), _STRUCTURE),
    Parser("segment-entries", _segment, _SEGMENTS, _CORRUPT),
    Parser("root-description", _of_root, _ROOTS, (StorageRefused,), mutators.of_json),
    Parser("root-description-sealed", _sealed_root, _ROOTS, (StorageRefused,), mutators.of_json),
    Parser("log-marker", _of_marker, [marker("0" * 32, "memory://root")], (StorageRefused,), mutators.of_json),
    Parser("table-entries", lambda data: _table(data, _FLUSH.pages), [_FLUSH.entries], _CORRUPT),
    Parser("table-index", lambda data: _table(_FLUSH.entries, data), [_FLUSH.pages], _CORRUPT),
]
