"""The replica: the log of a container as far as this process has read it, and the states that follow from it.

Keeps W5 on the side of the reader (each live frame is applied once, in the order of the log) and of W7 that the log is
opened again from its newest checkpoint when what was read may have been deleted. Owns the confirmed state, which is the
log's, and the optimistic state, which includes the frames in flight. Not thread-safe: callers hold the processor's
log lock; `state` may be read at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from chunkstore import ObjectInfo
from engine.errors import LogMoved, NotPrimary
from engine.logs.commit_queue import CommitQueue
from engine.logs.frames import Frame
from engine.logs.log import CROWD, Log
from engine.logs.observer import LogObserver
from engine.logs.replay import applied, repaired_in
from engine.state.operations import AnswerSubmissions
from engine.state.state import State

AppliedFrame = tuple[Frame, State, AnswerSubmissions | None]
"""A live frame, the state after it, and what its maker says to the processes that submit to it."""


class OpenedLog(NamedTuple):
    """A log as opened, the state after its head, and the checkpoints that the opening listed, oldest first."""

    log: Log
    state: State
    listed: Sequence[ObjectInfo]


class Replica:
    """The log and its states.

    Args:
        opened: the log, and the state after its head.
        queue: of the container's transactions.
        reopen: opens both again from the newest checkpoint.
        on_frames: called with live frames of other processes, once they are applied. on_reopen: called before the log
            is opened again. fail: takes the container offline. check_online: raises the error of a container that is.

    observer: of the log. exclusive: another process must not append. must_catch_up: the log has to be read to its end
    before the next frame. verified_up_to: the number of the newest transaction that was submitted before the log was
    last read to its end.
    """

    def __init__(
        self,
        opened: OpenedLog,
        queue: CommitQueue,
        *,
        reopen: Callable[[], OpenedLog],
        on_frames: Callable[[Sequence[AppliedFrame]], None],
        on_reopen: Callable[[Exception], None],
        fail: Callable[[BaseException], None],
        check_online: Callable[[], None],
    ) -> None:
        self.log = opened.log
        self.state = self.optimistic = opened.state
        self.observer = LogObserver()
        self.exclusive = False
        self.must_catch_up = False
        self.verified_up_to = -1
        self._queue = queue
        self._reopen = reopen
        self._on_frames = on_frames
        self._on_reopen = on_reopen
        self._fail = fail
        self._check_online = check_online
        self._opened_at = self.log.head.address  # of the checkpoint that the state began with

    def read_to_end(self) -> int:
        """Read the log to its end, and apply. The number of live frames. Nothing may be in flight."""
        with self._queue.lock:
            newest = self._queue.newest
        count = self.read(self.log.follow)
        self.verified_up_to = newest
        return count

    def read_some(self, window: int) -> bool:
        """Read at most so many frames, and apply. Whether that is the log's end. Nothing may be in flight."""
        ended = False

        def read() -> list[Frame]:
            nonlocal ended
            live, ended = self.log.follow_some(window)
            return live

        self.read(read)
        return ended

    def read(self, read: Callable[[], list[Frame]]) -> int:
        """Apply the live frames that `read` returns. The number of them. Nothing may be in flight."""
        since = self.log.end_seen
        try:
            live = read()
        except LogMoved:
            self.reopen()
            return self.read(self.log.follow)
        try:
            self._apply(live, since)
            return len(live)
        except BaseException as error:  # the log has gone past frames that the state lacks
            self._fail(error)
            raise

    def _apply(self, live: Sequence[Frame], since: float) -> None:
        """Apply live frames. since: when the log's end was last known before they were read."""
        if not live:
            return
        repaired = repaired_in(live, self.log.container)
        if any(self._opened_at < address < live[0].position.address for address in repaired):
            self.reopen()  # the state has what they pass over
            self.read_to_end()
            return
        state, frames = self.state, []
        for frame in live:
            state, carried = applied(state, frame, self.log.container, repaired.get(frame.position.address))
            frames.append((frame, state, carried))
        self.state = self.optimistic = state
        listening = [carried for *_, carried in frames if carried is not None]
        crowded = any(len(carried.answers) >= CROWD for carried in listening)
        if crowded or self.log.made_often(len(listening), since):
            self.log.meet()  # makers listen: there is company, even if this process wrote nothing for a long time
        self._on_frames(frames)
        if self.exclusive:
            self._fail(NotPrimary(f"frame {live[0].position.address} of the log was written by another process"))
            self._check_online()

    def reopen(self) -> None:
        """What was read may have been deleted meanwhile: open again from the newest checkpoint (W7)."""
        self._on_reopen(LogMoved("the log was read from its newest checkpoint again"))
        self.log, self.state, listed = self._reopen()
        self.optimistic = self.state
        self._opened_at = self.log.head.address
        self.observer.opened(listed)
        if self.exclusive:
            self._fail(NotPrimary("the process was stopped for longer than the grace period of the log allows"))
            self._check_online()
