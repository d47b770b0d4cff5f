"""A reader's membership in its group: its part of the stored state, and the lease on its segments.

Released positions are recorded within REFRESH, whether the reader is used or not, and when it goes offline. Events that
were delivered and not recorded are delivered again after a crash. The other readers declare a reader dead if it records
nothing for the time of the lease, and share its segments. Such a zombie records and delivers nothing more: when its
lease may have expired, by its own clock and counted from before it last recorded, it reads the group's state before it
delivers another event. While the program works on a slice, the reader still releases segments to readers that joined,
which is no sign of life.

A reader passes a checkpoint of the group when the program has returned all its slices and has been given the
checkpoint's event: at the positions that it has then. Until then it takes, returns and completes no segment.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress

from chunkstore import StorageError
from engine.errors import EngineError
from pravega_spark.client.groups.entry import GroupNotFound, Step
from pravega_spark.client.groups.leases import Leases
from pravega_spark.client.groups.open_group import OpenGroup
from pravega_spark.client.groups.slices import ReaderSegments
from pravega_spark.client.groups.state import AUTOMATIC, GroupSegment, GroupState, ReaderOffline

logger = logging.getLogger(__name__)

REFRESH = 3.0
"""Seconds: how often a reader in use records its positions and reads the state of its group (Pravega:
groupRefreshTimeMillis). With a lease of less than 9 s it is a third of the lease."""


class Member:
    """The membership of one reader, which joins the group on creation. Raises ReaderOnline, GroupNotFound.

    lock: guards `segments`. Methods in the first section require the caller to hold it; the others acquire it.
    """

    def __init__(self, group: OpenGroup, name: str, slice_bytes: int) -> None:
        self.group = group
        self.name = name
        self.token = uuid.uuid4().hex
        self.segments = ReaderSegments(slice_bytes)
        self.lock = threading.Lock()
        self.offline = False
        self._recorded: dict[GroupSegment, int] = {}
        self._leases = Leases()
        self._heard = self._looked = group.clock()
        self._in_background = threading.Event()
        self._delayed = threading.Event()
        self._sharing = threading.Event()
        self._told = ""  # of a failure in the background, which is told once
        joined = group.entry.change(lambda state: state.joined(name, self.token).balanced(name))
        self.checkpoint: tuple[str, str | None] | None = None
        """The run and the name of the checkpoint that it is to pass next; without a name it is silent."""
        self.read_completely = False
        """Whether the group has nothing left to read."""
        self.ends: Mapping[GroupSegment, int] = {}
        self._checkpointed = group.clock()  # when it last came to a checkpoint
        self._adopt(joined, set())

    def __repr__(self) -> str:
        """The reader, for messages."""
        return f"StreamReader({self.to_str()})"

    def to_str(self) -> str:
        """The reader as text for people."""
        return f"Reader: {self.name!r} of {self.group.entry.key!r}"

    def check_online(self) -> None:
        """Raise ReaderOffline if the reader is offline, RuntimeError in a fork."""
        self.group.check_process()
        if self.offline:
            raise ReaderOffline(self.name)

    # --- with the lock held ------------------------------------------------------------------------------------

    def sync_if_due(self) -> None:
        """Read the group's state every few seconds. Raises ReaderOffline."""
        if self.group.clock() - self._looked >= self._refresh:
            self.sync()

    def sync(self) -> None:
        """Record positions, remove readers whose lease has expired, release and acquire segments.

        Raises ReaderOffline.
        """
        now = self.group.clock()
        try:
            state = self.group.entry.state()
            state.owned(self.name, self.token)
        except (GroupNotFound, ReaderOffline):
            self._lose_all()
            raise ReaderOffline(self.name) from None
        self._looked = now
        self._know(state)
        if self._checkpoint_due(state, now):
            run = uuid.uuid4().hex
            self._checkpointed = now
            state = self.record(lambda state: _with_automatic(state, run))
        if (
            now - self._heard >= self._lease / 3
            or (now - self._heard >= self._refresh and self.segments.positions != self._recorded)
            or state.readers[self.name].positions.keys() != self.segments.positions.keys()
            or self._leases.expired(state, now)
            or state.balanced(self.name, self.segments.out) != state
        ):
            state = self.record()
        self.group.subscriptions.release_if_due(state)

    def _checkpoint_due(self, state: GroupState, now: float) -> bool:
        return state.interval is not None and not state.outstanding and now - self._checkpointed >= state.interval

    def look_soon(self) -> None:
        """Read the group's state at the reader's next call. Needs no lock."""
        self._looked = float("-inf")

    def pass_checkpoint(self, run: str) -> None:
        """Pass a checkpoint at the positions that the reader has. Raises ReaderOffline."""
        state = self.record(lambda state: state.passed(self.name, self.token, run))
        if run in state.runs.values():  # this was the last reader
            self.group.subscriptions.release_checkpoint(state)

    def record(self, more: Step = lambda state: state) -> GroupState:
        """Update the group's state: positions, a step, and the fair share. Raises ReaderOffline."""
        begun = self.group.clock()
        kept: set[GroupSegment] = set()

        def step(state: GroupState) -> GroupState:
            for gone in self._leases.expired(state, begun):
                if gone[0] != self.name:
                    state = state.lapsed(*gone)
            state = more(state.recorded(self.name, self.token, self.segments.positions))
            kept.clear()
            kept.update(state.owned(self.name, self.token).positions)
            return state.balanced(self.name, self.segments.out)

        try:
            state = self.group.entry.change(step)
        except (GroupNotFound, ReaderOffline):
            self._lose_all()
            raise ReaderOffline(self.name) from None
        self._heard = begun
        self._told = ""
        self._adopt(state, kept)
        return state

    def _release_surplus(self) -> None:
        """Release segments that other readers are due, except those with an outstanding slice. It is no sign of life.

        Raises ReaderOffline.
        """
        kept: set[GroupSegment] = set()

        def step(state: GroupState) -> GroupState:
            reader = state.owned(self.name, self.token)
            positions = state.recorded(self.name, self.token, self.segments.positions, beat=reader.beat)
            kept.clear()
            kept.update(reader.positions)
            shared = positions.balanced(self.name, self.segments.out)
            fewer = len(shared.readers[self.name].positions) < len(reader.positions)
            return shared if fewer else state

        state = self.group.entry.change(step)
        if state.readers[self.name].positions.keys() < kept:
            self._adopt(state, kept)
        self._know(state)

    def _adopt(self, state: GroupState, kept: set[GroupSegment]) -> None:
        self.segments.adopt(state.readers[self.name].positions, kept)
        self._recorded = dict(self.segments.positions)
        self._know(state)

    def _know(self, state: GroupState) -> None:
        """Keep what the reader needs of the group's state. Slices end if it is to pass a checkpoint."""
        self._lease = state.lease
        self._refresh = min(REFRESH, self._lease / 3)
        self.read_completely = state.read_completely
        self.ends = state.ends
        run = state.next_checkpoint(self.name)
        self.checkpoint = None if run is None else (run, state.outstanding[run].name)
        if self.checkpoint is not None:
            self._checkpointed = self.group.clock()
            self.segments.stop_handed_out()

    def _lose_all(self) -> None:
        self.offline = True
        self.segments.lose_all()

    # --- which acquire the lock -----------------------------------------------------------------------------------

    def leave(self, positions: Mapping[GroupSegment, int] | None = None) -> None:
        """Leave the group, at these positions in segments of the reader instead of its own. Does nothing the second
        time."""
        with self.lock:
            if self.offline:
                return
            self.group.check_process()
            self.segments.take_back_returned()
            with suppress(GroupNotFound):
                left = {**self.segments.positions, **(positions or {})}
                self.group.entry.change(lambda state: state.left(self.name, self.token, left))
            self._lose_all()

    def record_returned(self) -> None:
        """Record the positions of returned slices, if there are any. Raises ReaderOffline."""
        with self.lock:
            if not self.offline:
                self.segments.take_back_returned()
                if self.segments.positions != self._recorded:
                    self.record()

    def keep_lease(self) -> float:
        """Called before each event. Reads the group's state if the lease may have expired; seldom waits. The time by
        the group's clock.

        Raises ReaderOffline.
        """
        self.check_online()
        now = self.group.clock()
        silent = now - self._heard
        if silent >= self._lease * 2 / 3:
            with self.lock:
                self.check_online()
                self.record()
        elif silent >= self._lease / 3:
            self._record_in_background()
        return now

    def share_soon(self) -> None:
        """Schedule the release of surplus segments on another thread, every REFRESH while a slice is outstanding."""
        if not self._sharing.is_set():
            self._sharing.set()
            self.group.later(self._refresh, self._try_to_share)

    def _try_to_share(self) -> None:
        self._sharing.clear()
        try:
            with self.lock:
                if self.offline or not self.segments.out:
                    return
                self._release_surplus()
        except (GroupNotFound, ReaderOffline):
            return  # the next call raises it
        except (EngineError, StorageError) as error:
            self._warn_of(error)
        if self.group.clock() - self._heard < self._lease:
            self.share_soon()

    def record_soon(self) -> None:
        """Schedule recording of returned slices on another thread, REFRESH after the last time. Does not wait."""
        rest = self._refresh - (self.group.clock() - self._heard)
        if rest <= 0:
            self._record_in_background()
        elif not self._delayed.is_set():
            self._delayed.set()
            self.group.later(rest, self._try_to_record_returned)

    def _record_in_background(self) -> None:
        if not self._in_background.is_set():
            self._in_background.set()
            self.group.pool().submit(self._try_to_record)

    def _try_to_record(self) -> None:
        try:
            with self.lock:
                if not self.offline:
                    self.segments.take_back_returned()
                    self.record()
        except (ReaderOffline, EngineError, StorageError) as error:
            self._warn_of(error)
        finally:
            self._in_background.clear()

    def _try_to_record_returned(self) -> None:
        self._delayed.clear()
        try:
            self.record_returned()
        except (ReaderOffline, EngineError, StorageError) as error:
            self._warn_of(error)

    def _warn_of(self, error: Exception) -> None:
        """Tell of a failure in the background, once while it lasts: the next call retries."""
        if (told := str(error)) != self._told:
            self._told = told
            logger.warning("%s could not record its positions: %s", repr(self), told)


def _with_automatic(state: GroupState, run: str) -> GroupState:
    """With an automatic checkpoint, unless another reader was faster."""
    return state if state.outstanding else state.initiated(run, f"{AUTOMATIC}{run[:12]}")
