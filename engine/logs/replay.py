"""Replay: applies a live frame to a state, for processes that follow the log and for its verification."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

from chunkstore.decoding import InvalidData, decoding
from engine.errors import DataCorruption, Rejected, UnknownFormat, understanding
from engine.logs.frames import Frame, Kind
from engine.logs.log import frame_path, repair_of
from engine.state.changes.apply import replay
from engine.state.operations import (
    AnswerSubmissions,
    LoggedTransaction,
    decode_transaction,
    decode_transactions,
    plain_transactions,
)
from engine.state.segments import FrameRef
from engine.state.state import State

_PIECE = AnswerSubmissions(())
"""A frame with payload only is a piece of a transaction that its maker sends next (W4), which a race would void."""


def apply_frame(state: State, frame: Frame, container: int, skipped: Collection[int] | None = None) -> State:
    """The state after a live frame of a container's log.

    skipped: transactions that a repair skips, by their places (see `Repair`). Raises DataCorruption for a frame that
    cannot be applied: then the log is not what was written, or was written by a faulty program.
    """
    return applied(state, frame, container, skipped)[0]


def applied(
    state: State, frame: Frame, container: int, skipped: Collection[int] | None = None
) -> tuple[State, AnswerSubmissions | None]:
    """The state after a live frame, and what its maker says to those that submit to it, if it does (W18): that stands
    in the last transaction. Arguments and errors are those of `apply_frame`."""
    path = frame_path(container, frame.position.address)
    if frame.kind is Kind.REPAIR:
        fence = max(state.min_attach_time, repair_of(frame, path).min_attach_time)
        return state._replace(min_attach_time=fence), None
    if skipped is not None:
        return _without(state, frame, skipped, container), carried_in(frame)
    remedy = (
        "Restore the object from a copy, or skip the transactions of it that cannot be applied: `pravega-spark "
        f"container repair {container} {frame.position.address}`, or Root.repair"
    )
    try:
        with understanding(path, remedy):
            transactions = decode_transactions(frame.meta, _own(frame))
            return replay(state, transactions, frame.position.address), _carried(transactions) if frame.meta else _PIECE
    except Rejected as error:
        raise DataCorruption(f"{path}: it cannot be applied: {error}. {remedy}") from error


def carried_in(frame: Frame) -> AnswerSubmissions | None:
    """What the maker of a live frame says to those that submit to it, as `applied` has it."""
    if frame.kind is Kind.DATA:
        if not frame.meta:
            return _PIECE
        for fields in _taken_apart(frame)[-1:]:
            with suppress(InvalidData), decoding():  # a repair skips what cannot be decoded
                return _carried([decode_transaction(fields, _own(frame))])
    return None


def _carried(transactions: Sequence[LoggedTransaction]) -> AnswerSubmissions | None:
    operations = transactions[-1].operations if transactions else ()
    return operations[0] if operations and isinstance(operations[0], AnswerSubmissions) else None


def _own(frame: Frame) -> FrameRef:
    return FrameRef(frame.position.address, frame.payload_start)


def repaired_in(live: Iterable[Frame], container: int) -> dict[int, tuple[int, ...]]:
    """What the repairs among live frames skip: the transactions without effect, by the addresses of their frames."""
    found: dict[int, tuple[int, ...]] = {}
    for frame in live:
        if frame.kind is Kind.REPAIR:
            repair = repair_of(frame, frame_path(container, frame.position.address))
            if repair.skipped is not None:
                found[repair.damaged] = repair.skipped
    return found


def not_applicable(state: State, frame: Frame, container: int) -> tuple[int, ...] | None:
    """The places of those transactions of a frame that cannot be decoded or applied; None if all can.

    Raises UnknownFormat for what a newer version wrote: it is whole, and must not be skipped.
    """
    try:
        apply_frame(state, frame, container)
        return None
    except UnknownFormat:
        raise
    except DataCorruption:
        found = []
    for place, plain in enumerate(_taken_apart(frame)):
        try:
            state = _with(state, frame, plain, container)
        except UnknownFormat:
            raise
        except DataCorruption:
            found.append(place)
            state = _counted(state, plain)
    return tuple(found)


def _without(state: State, frame: Frame, skipped: Collection[int], container: int) -> State:
    """The state after a frame of which some transactions have no effect."""
    for place, plain in enumerate(_taken_apart(frame)):
        state = _counted(state, plain) if place in skipped else _with(state, frame, plain, container)
    return state


def _taken_apart(frame: Frame) -> list[Any]:
    """The transactions of a frame as msgpack values; none of one that is not even msgpack."""
    try:
        return plain_transactions(frame.meta)
    except InvalidData:
        return []


def _with(state: State, frame: Frame, plain: Any, container: int) -> State:
    path = frame_path(container, frame.position.address)
    try:
        with understanding(path, ""):
            return replay(state, [decode_transaction(plain, _own(frame))], frame.position.address)
    except Rejected as error:
        raise DataCorruption(f"{path}: it cannot be applied: {error}") from error


def _counted(state: State, plain: Any) -> State:
    """A state behind a transaction without effect, so that all operations behind it keep their numbers."""
    operations = plain[1] if isinstance(plain, list) and len(plain) == 2 else None
    return state._replace(sequence=state.sequence + (len(operations) if isinstance(operations, list) else 0))
