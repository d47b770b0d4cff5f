"""Whether the log of a container produces the states in its checkpoints, and ends where it should (W1, W6, W8, W21).

The frames are followed by a separate implementation of the rules, not by `engine.logs.log`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from chunkstore import ObjectInfo, ObjectNotFound
from chunkstore.errors import fact_of
from chunkstore.numbered import list_numbered
from engine.admin.checks.findings import Problem, Severity
from engine.errors import BadSignature, DataCorruption, FrameDamaged, FrameForged, UnknownFormat
from engine.logs import age_evidence, checkpoints, frames
from engine.logs.frames import START, Frame, Kind, Position
from engine.logs.log import (
    FOLLOW_BYTES,
    address_of,
    age_evidence_path,
    checkpoint_path,
    checkpoints_folder,
    frame_path,
    frames_folder,
    repair_of,
)
from engine.logs.replay import apply_frame, repaired_in
from engine.state.state import EMPTY, State
from engine.storage import recovery_points
from engine.storage.object_reads import Stores


class _Seen(NamedTuple):
    """The object `path` shows that the log had a frame at `address`, and operations with numbers below `sequence`."""

    path: str
    address: int
    sequence: int


WINDOW = 64
"""Frames that are read together, and that are looked at behind the log's end."""


class LogCounts(NamedTuple):
    """What was checked: live and void frames from the oldest checkpoint on, and checkpoints."""

    live: int
    void: int
    checkpoints: int


class LogCheck:
    """Follows the log of one container from its oldest checkpoint. Iterate over `problems` first, then read
    `counts`."""

    def __init__(self, stores: Stores, container: int) -> None:
        self._store = stores.log
        self._chunks = stores.chunks
        self._container = container
        self._ended = False  # whether the log's end was reached, and nothing behind it shows that there was more
        self._head, self._state = START, EMPTY
        self._known = False  # whether state and head match the log so far
        self._live = self._void = self._compared = 0

    @property
    def counts(self) -> LogCounts:
        """What was checked so far."""
        return LogCounts(self._live, self._void, self._compared)

    def problems(self) -> Iterator[Problem]:
        """The problems of the log. Objects that are deleted meanwhile are none."""
        seen = list(self._seen())  # first, as the log may grow meanwhile
        listed = self._checkpoints()
        waiting = [address_of(info.path) for info in listed]
        if not waiting:
            self._known = True
        while waiting or self._known:
            if not self._known:
                yield from self._begin(waiting.pop(0), is_newest=not waiting)
                continue
            yield from self._follow(waiting)
            self._known = False
            if waiting:
                yield from self._unreached(waiting, listed)
        if self._ended:
            yield from self._behind(seen)

    def _checkpoints(self) -> list[ObjectInfo]:
        return list_numbered(self._store, checkpoints_folder(self._container))

    def _begin(self, address: int, is_newest: bool) -> Iterator[Problem]:
        """Start from a checkpoint."""
        opening = yield from self._read_checkpoint(address, Severity.ERROR if is_newest else Severity.WARNING)
        if opening is not None:
            self._head, self._state, self._known = opening.head, opening.state, True

    def _read_checkpoint(
        self, address: int, severity: Severity = Severity.ERROR
    ) -> Generator[Problem, None, checkpoints.Opening | None]:
        """A checkpoint; None if it is damaged, which is a problem, or was deleted after a newer one was written."""
        path = checkpoint_path(self._container, address)
        try:
            opening = checkpoints.read(self._store, path, self._container, address)
        except ObjectNotFound:
            return None
        except BadSignature as error:
            yield Problem(path, fact_of(error), "restore the object from a copy")
            return None
        except DataCorruption as error:
            yield Problem(path, fact_of(error), "restore the object from a copy", severity)
            return None
        self._compared += 1
        return opening

    def _follow(self, waiting: list[int]) -> Iterator[Problem]:
        """Apply the live frames up to the first absent address, and compare the state with the checkpoints on the
        way."""
        address = self._head.address + 1
        while True:
            found = self._read(address, WINDOW)
            for prefix in found:
                while waiting and waiting[0] < address:
                    yield self._without_frame(waiting.pop(0))
                if prefix is None:
                    yield from self._end(address)
                    return
                try:
                    frame = self._parse(address, prefix)
                    if frame is None:
                        return
                except FrameDamaged as damage:
                    frame = self._repair_of(address)
                    if frame is None:
                        yield from self._if_needed(address, damage)
                        return
                except UnknownFormat as newer:
                    yield Problem(frame_path(self._container, address), str(newer), "upgrade")
                    return
                try:
                    self._apply(frame)
                except DataCorruption as error:
                    path = frame_path(self._container, frame.position.address)
                    unknown = isinstance(error, UnknownFormat)
                    remedy = "upgrade" if unknown else f"see the message; `{self._command(frame)}` shows what it costs"
                    yield Problem(path, fact_of(error), remedy)
                    return
                if frame.position.address != address:
                    address = frame.position.address + 1
                    break  # the other frames that were read lie before the repair
                if waiting and waiting[0] == address and self._head.address == address:
                    yield from self._compare(waiting.pop(0))
                address += 1

    def _apply(self, frame: Frame) -> None:
        if frame.follows(self._head):
            try:
                self._state = apply_frame(self._state, frame, self._container)
            except UnknownFormat:
                raise
            except DataCorruption:
                skipped = self._skipped_by_repair(frame)
                if skipped is None:
                    raise
                self._state = apply_frame(self._state, frame, self._container, skipped)
            self._head = frame.position
            self._live += 1
        else:
            self._void += 1

    def _command(self, frame: Frame) -> str:
        return f"pravega-spark container repair {self._container} {frame.position.address}"

    def _skipped_by_repair(self, frame: Frame) -> tuple[int, ...] | None:
        """The transactions of a live frame that a repair skips, or None. The repair is a live frame behind it."""
        head = frame.position
        for following in self._frames_behind(frame.position.address):
            if following.follows(head):
                head = following.position
                skipped = repaired_in([following], self._container).get(frame.position.address)
                if skipped is not None:
                    return skipped
        return None

    def _frames_behind(self, address: int) -> Iterator[Frame]:
        """The frames behind an address, up to the first absent one. Those that cannot be decoded are passed over."""
        while True:
            address += 1
            [prefix] = self._read(address, 1)
            if prefix is None:
                return
            try:
                frame = self._parse(address, prefix)
            except DataCorruption:
                continue
            if frame is not None:
                yield frame

    def _read(self, address: int, count: int) -> Sequence[bytes | FrameForged | None]:
        addresses = range(address, address + count)
        paths = [frame_path(self._container, each) for each in addresses]
        return frames.read_beginnings(self._store, paths, addresses, FOLLOW_BYTES)

    def _parse(self, address: int, prefix: bytes | FrameForged) -> Frame | None:
        """The frame; None if it was deleted meanwhile. Raises FrameDamaged."""
        if isinstance(prefix, FrameForged):
            raise prefix
        path = frame_path(self._container, address)
        whole = len(prefix) < FOLLOW_BYTES
        end = frames.meta_end(prefix, path, address)
        if end > len(prefix) and not whole:
            try:
                prefix = frames.read_rest(self._store, path, address, prefix, end)
            except ObjectNotFound:
                return None
        return frames.decode(prefix, path, self._container, address, whole)

    def _repair_of(self, damaged: int) -> Frame | None:
        """The repair frame by which an operator skipped the damaged one (W8); None if there is none."""
        for frame in self._frames_behind(damaged):
            if frame.kind is Kind.REPAIR and frame.follows(self._head):
                repair = repair_of(frame, frame_path(self._container, frame.position.address))
                if (repair.damaged, repair.skipped) == (damaged, None):
                    return frame
        return None

    def _if_needed(self, address: int, damage: FrameDamaged) -> Iterator[Problem]:
        """A damaged frame. It is only a warning if a later checkpoint makes the frame unnecessary, unless it was
        tampered with."""
        newest = max((address_of(info.path) for info in self._checkpoints()), default=-1)
        forged = isinstance(damage, FrameForged)
        severity = Severity.WARNING if address <= newest and not forged else Severity.ERROR
        yield Problem(damage.path, fact_of(damage), "restore the object from a copy", severity)

    def _compare(self, address: int) -> Iterator[Problem]:
        """Compare a checkpoint with the state that the frames before it produce."""
        opening = yield from self._read_checkpoint(address)
        if opening is None:
            return
        path = checkpoint_path(self._container, address)
        try:
            yield from list(_differences(path, self._head, self._state, opening))
        except DataCorruption as error:  # of a segment in one of the two
            yield Problem(path, fact_of(error), "restore the object from a copy")

    def _without_frame(self, address: int) -> Problem:
        return Problem(
            checkpoint_path(self._container, address),
            f"it is a checkpoint of frame {address}, which is not a live frame of the log",
            "remove it if an older checkpoint and all frames after that exist; otherwise keep it and ask for help",
        )

    def _unreached(self, waiting: Sequence[int], listed: Sequence[ObjectInfo]) -> Iterator[Problem]:
        """The log ended before the next checkpoint: it was truncated or recovered meanwhile, or frames are missing."""
        [own] = self._read(waiting[0], 1)
        if own is None:
            return  # a recovered log begins with a checkpoint without a frame
        oldest = [info.path for info in self._checkpoints()][:1]
        if oldest == [listed[0].path]:
            yield Problem(
                frame_path(self._container, self._head.address + 1),
                f"frames from here to {waiting[0]} are missing or damaged, though an older checkpoint needs them",
                f"no data is lost by this alone, as there is a checkpoint at {waiting[0]}; find out what deleted them",
                Severity.WARNING,
            )

    def _end(self, address: int) -> Iterator[Problem]:
        """The log ends at its first absent address. Check whether that frame existed before."""
        after = frame_path(self._container, address)
        listed = list_numbered(self._store, frames_folder(self._container), after, WINDOW)
        shown_by = self._shown(address, [address_of(info.path) for info in listed])
        if not shown_by or self._read(address, 1)[0] is not None or self._log_start() > address:
            self._ended = True
            return
        yield Problem(
            after,
            f"the frame is missing, but was in the log: {shown_by}. The frames behind it cannot be read without it",
            "restore the object from a copy; "
            f"`pravega-spark container repair {self._container} {address}` gives up the frames behind it",
        )

    def _seen(self) -> Iterator[_Seen]:
        """What other objects say that the log had, as a process wrote them after it had read or written that."""
        with suppress(DataCorruption, ObjectNotFound):  # which is reported elsewhere
            point = recovery_points.newest(self._chunks, self._container)
            if point is not None:
                path = f"{recovery_points.folder(self._container)}{point.number:020d}"
                yield _Seen(path, point.head.address, point.state.sequence)
        with suppress(DataCorruption):
            for each in age_evidence.read(self._store, self._container):
                yield _Seen(age_evidence_path(self._container), each.observed.address, each.observed.sequence)

    def _behind(self, seen: Sequence[_Seen]) -> Iterator[Problem]:
        """The log has less than was seen of it: its last frames are gone, and no frame behind them shows that."""
        for path, address, sequence in seen:
            if self._head == START and path.startswith(recovery_points.folder(self._container)):
                return  # opening it says so (LogLost)
            if address > self._head.address or sequence > self._state.sequence:
                yield Problem(
                    frame_path(self._container, self._head.address + 1),
                    f"the log ends before this frame, with operation {self._state.sequence - 1}, but {path!r} shows "
                    f"that it had frame {address} and operation {sequence - 1}: its last frames are lost",
                    "stop writers and restore the frames from a copy; without one, `pravega-spark container recover "
                    f"{self._container} --force` goes back to the last complete flush cycle",
                )
                return

    def _shown(self, address: int, behind: Sequence[int]) -> str:
        """What shows that there was a frame at an address, where no object is now; "" if nothing does."""
        for each in behind:
            [prefix] = self._read(each, 1)
            try:
                frame = self._parse(each, prefix) if prefix is not None else None
            except DataCorruption:
                continue
            if frame is not None and (shown := frame.shows(address)):
                return shown
        return ""

    def _log_start(self) -> int:
        listed = self._checkpoints()
        return address_of(listed[-1].path) if listed else -1


def _differences(path: str, head: Position, state: State, opening: checkpoints.Opening) -> Iterator[Problem]:
    different = [field for field in State._fields if getattr(state, field) != getattr(opening.state, field)]
    if head != opening.head:
        different.append("head")
    if different:
        yield Problem(
            path,
            f"it differs from the state that the frames before it produce, in: {', '.join(different)}",
            "stop writers, keep a copy of the log, and remove this checkpoint if an older one and all frames exist",
        )
