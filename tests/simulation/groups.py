"""The actors that read by a reader group, in several processes: readers that leave, stop or are killed, checkpoints,
resets to them, and retention that waits for the group; and what must be true of the events that the group got."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from engine.containers.container import Container
from engine.errors import Rejected
from pravega_spark import (
    Event,
    StreamCut,
    StreamReader,
    StreamReaderGroup,
    StreamReaderGroupConfig,
    StreamRetentionPolicy,
    StreamScalingPolicy,
)
from pravega_spark.errors import InvalidStreamCut, StreamError, TruncatedData
from tests.simulation import streams
from tests.simulation.actors import Actor, Collector, Flusher, begin_actors
from tests.simulation.history import History, Process
from tests.simulation.ledger import Outcome, require
from tests.simulation.streams import SCOPE, STREAM, Events, StreamActor, seen

GROUP = "group"

LEASES = (3.0, 10.0)
"""Seconds, of which a group has one."""

TRIES = 8
"""How often a reader tries to leave at its end before it is left to its lease."""


class Membership:
    """A reader from when it joined. clean: it left, or is online, and gave back all slices. taken: the events that it
    took, with their times. checkpoints: how many it had taken when it got the event of each checkpoint, and passed it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.clean = True
        self.taken: list[tuple[float, bytes]] = []
        self.checkpoints: dict[str, int] = {}


class Reset:
    """A reset of the group to a checkpoint. begun, ended: when."""

    def __init__(self, checkpoint: str, cut: StreamCut, begun: float) -> None:
        self.checkpoint = checkpoint
        self.cut = cut
        self.begun = begun
        self.ended = float("inf")
        self.outcome = Outcome.PENDING


class GroupEvents(Events):
    """All events, and how the group got them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.members: list[Membership] = []
        self.resets: list[Reset] = []
        self.cuts: dict[str, StreamCut] = {}
        self.retained = False
        self._now = clock
        self._delivered: dict[bytes, list[tuple[float, Membership]]] = defaultdict(list)
        self._latest: dict[tuple[str, str], int] = {}

    def take(self, member: Membership, event: Event) -> None:
        """A reader took an event: one that was written, from where it always is; events of a writer and a key in order,
        those aside that the group got before."""
        [read] = seen([event])
        written = self.written.get(read.data)
        require(written is not None, f"{member.name}: {read} was never written")
        assert written is not None
        require(written.outcome is not Outcome.REFUSED, f"{member.name} read {written}, which was not written")
        place = self.places.setdefault(read.data, (read.segment, read.offset))
        require(place == (read.segment, read.offset), f"{member.name} read {written} at {read}, and it was at {place}")
        before = self._delivered[read.data]
        if not before:
            latest = self._latest.get((written.writer, written.key), 0)
            require(latest < written.number, f"{member.name} got {written} after number {latest} of its key")
            self._latest[written.writer, written.key] = written.number
        if not self.resets:
            twice = [other.name for _, other in before if other is member]
            require(not twice, f"{member.name} got {written} twice")
        before.append((self._now(), member))
        member.taken.append((self._now(), read.data))

    def check_deliveries(self) -> None:
        """All that was acknowledged was delivered; nothing twice, unless a reader had died or the group was reset."""
        lost = sorted(str(self.written[data]) for data in self.acknowledged if not self._delivered[data])
        require(not lost, f"acknowledged, and the group never got them: {lost}")
        for data, deliveries in self._delivered.items():
            for place, (when, member) in enumerate(deliveries[1:], 1):
                again = any(reset.begun < when for reset in self.resets)
                sound = [other.name for _, other in deliveries[:place] if other.clean]
                require(again or not sound, f"{member.name} got {self.written[data]}, which {sound} had and gave back")

    def check_checkpoint(self, name: str, before: set[bytes]) -> None:
        """A checkpoint, before which there are these events, divides what each reader got that passed it."""
        undelivered = [data for data in before if not self._delivered[data]]
        require(not undelivered, f"before checkpoint {name} there are {undelivered}, which the group never got")
        if self.resets:
            return
        for member in self.members:
            if member.clean and name in member.checkpoints:
                taken = [data for _, data in member.taken]
                first, rest = taken[: member.checkpoints[name]], taken[member.checkpoints[name] :]
                behind = [data for data in first if data not in before]
                require(not behind, f"{member.name} got {behind} before checkpoint {name}, and they are behind it")
                ahead = [data for data in rest if data in before]
                require(not ahead, f"{member.name} got {ahead} after checkpoint {name}, and they are before it")

    def check_reset(self, there: set[bytes], before: Callable[[StreamCut], set[bytes] | None]) -> None:
        """What is behind the cut of the last reset was delivered after it. there: events that there are in the end."""
        done = [reset for reset in self.resets if reset.outcome is Outcome.DONE]
        last = done[-1] if done else None
        if last is None or any(each is not last and each.ended > last.begun for each in self.resets):
            return
        earlier = before(last.cut)
        if earlier is None:
            return
        missing = [
            data for data in sorted(there - earlier) if not any(when >= last.begun for when, _ in self._delivered[data])
        ]
        require(not missing, f"the group was reset to {last.checkpoint}, and never got {missing} again")


class GroupActor(StreamActor):
    """An actor that uses the group."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._group: StreamReaderGroup | None = None

    @property
    def events(self) -> GroupEvents:
        """The events of the history."""
        events: GroupEvents = self.history.shared
        return events

    def group(self) -> StreamReaderGroup:
        """The group, as this actor has opened it."""
        while self._group is None:
            outcome, found = self.attempt("open the group", lambda: self.manager.get_reader_group(GROUP, SCOPE))
            if outcome is Outcome.DONE:
                self._group = found
            else:
                self.history.world.sleep(0.3)
        return self._group

    def run(self) -> None:
        super().run()
        self.finish()
        if self._group is not None:
            self.attempt("close the group", self._group.close)

    def finish(self) -> None:
        """What it does last."""


class GroupReader(GroupActor):
    """Reads slices or single events, and leaves and joins again now and then."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._reader: StreamReader | None = None
        self._member = Membership(name)
        self._passing: str | None = None
        self._joined = 0
        self._alive = 0.0

    def successor(self, process: Process) -> GroupReader | None:
        """Some are started again, under their name; of the others the group learns by their leases."""
        self._member.clean = False
        if self.random.random() < 0.5:
            return None
        return GroupReader(self.history, process, f"{self.name}'")

    def act(self) -> None:
        if self._reader is None and not self._join():
            return
        drawn = self.random.random()
        if drawn < 0.12:
            self._leave()
        elif drawn < 0.4:
            self._read_events(self.random.randint(1, 4))
        else:
            self._read_slice()

    def finish(self) -> None:
        for _ in range(TRIES):
            if self._reader is not None:
                self._leave()

    def _join(self) -> bool:
        group = self.group()
        self._joined += 1
        name = f"{self.name.replace(' ', '-')}.{self._joined}"
        slices = self.random.choice((None, 1, 3))
        outcome, reader = self.attempt(f"join as {name}", lambda: group.create_reader(name, slice_events=slices))
        if outcome is Outcome.DONE:
            self._reader, self._member, self._passing = reader, Membership(name), None
            self.events.members.append(self._member)
        return outcome is Outcome.DONE

    def _leave(self) -> None:
        assert self._reader is not None
        outcome, _ = self.attempt("leave", self._reader.reader_offline)
        self._left(outcome)

    def _left(self, outcome: Outcome) -> None:
        """It has left, or tried to. If it was silent for too long before, it had lost its segments, and is not told."""
        if outcome is Outcome.DONE and self.history.world.now - self._alive < LEASES[0] / 3:
            self._reader = None
        elif outcome is not Outcome.REFUSED:
            self._lost()

    def _lost(self) -> None:
        """It is offline, or may be: others may read again what it read."""
        self._member.clean = False
        self._reader = None

    def _called(self, begun: float) -> None:
        """A call on the reader was done: it has passed the checkpoint whose event it had."""
        self._alive = begun
        if self._passing is not None:
            self._member.checkpoints[self._passing] = len(self._member.taken)
            self._passing = None

    def _failed(self, error: BaseException) -> None:
        """After a failed call: nobody knows whether a checkpoint was passed."""
        if isinstance(error, TruncatedData):
            require(self.events.retained and self.events.resets, f"{self.name}: {error}")
        elif isinstance(error, StreamError | Rejected):
            self._lost()

    def _read_slice(self) -> None:
        assert self._reader is not None
        reader, wanted = self._reader, self.random.choice((1, 3, 100))
        begun = self.history.world.now
        outcome, piece = self.attempt("get a slice", lambda: reader.get_segment_slice(0.3))
        if outcome is not Outcome.DONE:
            self._failed(piece)
            return
        self._called(begun)
        if piece.is_checkpoint:
            self._passing = piece.checkpoint_name
            return
        if self.random.random() < 0.2:
            self.pause()
        if (
            self._take(lambda: next(piece, None), wanted)
            and self.attempt("release", lambda: reader.release_segment(piece))[0] is not Outcome.DONE
        ):
            self._lost()
        if self._reader is not None and self.random.random() < 0.3:
            outcome, error = self.attempt("record", reader.record)
            if outcome is Outcome.UNKNOWN:
                self._failed(error)

    def _take(self, following: Callable[[], Event | None], most: int) -> bool:
        """Take events, at most so many. Whether the reader is online still."""
        for _ in range(most):
            outcome, event = self.attempt("take", following)
            if outcome is not Outcome.DONE:
                self._failed(event)
                return self._reader is not None
            if event is None:
                break
            self.events.take(self._member, event)
            self.note(f"took {bytes(event.data)!r}")
        return True

    def _read_events(self, most: int) -> None:
        """Read single events, and leave at the position behind the last one."""
        assert self._reader is not None
        reader, position = self._reader, None
        for _ in range(most):
            begun = self.history.world.now
            outcome, read = self.attempt("read an event", lambda: reader.read_next_event(0.3))
            if outcome is not Outcome.DONE:
                self._failed(read)
                break
            self._called(begun)
            if read.is_checkpoint:
                self._passing = read.checkpoint_name
            if read.event is None:
                break
            self.events.take(self._member, read.event)
            self.note(f"took {bytes(read.event.data)!r}")
            position = read.position
        if self._reader is None or position is None:
            return
        outcome, _ = self.attempt("leave at the position", lambda: reader.close_at(position))
        self._left(Outcome.UNKNOWN if outcome is Outcome.REFUSED or self.events.resets else outcome)


class Checkpointer(GroupActor):
    """Has the readers pass checkpoints."""

    def act(self) -> None:
        group, name = self.group(), f"{self.name}.{self.begun}"
        outcome, future = self.attempt(f"initiate {name}", lambda: group.initiate_checkpoint(name))
        if outcome is not Outcome.DONE:
            return

        def wait() -> Any:
            try:
                return future.result(self.history.plan.pause * 4 + 5)
            except TimeoutError:
                return None

        outcome, cuts = self.attempt(f"wait for {name}", wait)
        if outcome is Outcome.DONE and cuts is not None:
            self.note(f"{name} is at {cuts}")
            self.events.cuts[name] = cuts[f"{SCOPE}/{STREAM}"]


class Resetter(GroupActor):
    """Resets the group to a checkpoint; with retention to the last one only."""

    def act(self) -> None:
        if self.begun % 3 or (self.events.retained and self.history.plan.seed % 2):
            return
        group = self.group()
        outcome, checkpoints = self.attempt("look at the checkpoints", group.checkpoints)
        if outcome is not Outcome.DONE or not checkpoints:
            return
        names = list(checkpoints)
        name = names[-1] if self.events.retained else self.random.choice(names)
        reset = Reset(name, checkpoints[name][f"{SCOPE}/{STREAM}"], self.history.world.now)
        self.events.resets.append(reset)
        reset.outcome, error = self.attempt(f"reset to {name}", lambda: group.reset(checkpoints[name]))
        if isinstance(error, StreamError):
            require(self.events.retained and isinstance(error, InvalidStreamCut | TruncatedData), f"{name}: {error!r}")
        reset.ended = self.history.world.now if reset.outcome is not Outcome.UNKNOWN else float("inf")


class Retainer(StreamActor):
    """Applies the retention policy. The head only moves forward, and not beyond what the group has released."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._head: dict[int, int] = {}

    def act(self) -> None:
        self.attempt("retain", lambda: self.manager.retain(SCOPE, STREAM, 0))
        outcome, info = self.attempt("look at the stream", lambda: self.manager.stream_info(SCOPE, STREAM))
        if outcome is not Outcome.DONE:
            return
        head = dict(info.head.positions)
        back = [number for number in head.keys() & self._head.keys() if head[number] < self._head[number]]
        require(not back, f"the head went back from {self._head} to {head}")
        gone = self._head.keys() - head.keys()
        require(not gone or max(head) >= max(gone), f"the head went back from {self._head} to {head}")
        self._head = head
        events: GroupEvents = self.history.shared
        problems = {name: behind for name, behind in info.subscribers.items() if behind.truncated}
        require(events.resets or not problems, f"truncated at {head}, and subscribers need more: {problems}")
        require(not info.unplaced, f"{info.unplaced}")


KINDS: dict[str, tuple[type[Actor], int]] = {
    "group-reader": (GroupReader, 3),
    "writer": (streams.Writer, 5),
    "producer": (streams.Producer, 2),
    "transactor": (streams.Transactor, 1),
    "scaler": (streams.Scaler, 3),
    "checkpointer": (Checkpointer, 4),
    "resetter": (Resetter, 2),
    "retainer": (Retainer, 2),
    "flusher": (Flusher, 1),
    "collector": (Collector, 1),
}
"""The actors, and how likely each is."""


def prepare(history: History) -> None:
    """A stream, a group that reads it, and the actors of the plan."""
    history.shared = GroupEvents(lambda: history.world.now)
    seed, manager = history.plan.seed, history.sound.manager
    history.shared.retained = seed % 5 < 2
    policy = (StreamRetentionPolicy.by_size(100), StreamRetentionPolicy.by_time(1))[seed % 5] if seed % 5 < 2 else None
    manager.create_scope(SCOPE)
    scaling = StreamScalingPolicy.fixed_scaling_policy(history.plan.segments)
    manager.create_stream_with_policy(SCOPE, STREAM, scaling, policy)
    config = StreamReaderGroupConfig(
        False,
        SCOPE,
        STREAM,
        lease=LEASES[seed // 3 % 2],
        retention="automatic" if history.shared.retained else "none",
        checkpoint_interval=(None, None, 2.0)[seed // 7 % 3],
    )
    manager.create_reader_group_with_config(GROUP, SCOPE, config)
    begin_actors(history, KINDS)
    for number, process in enumerate(history.processes[:2]):
        history.actors.append(GroupReader(history, process, f"reader {number}"))
    history.actors.append(streams.Producer(history, history.processes[-1], "filler"))
    history.actors.append(_Last(history, history.sound, "last"))


class _Last(GroupActor):
    """Reads the rest as the only reader of the group, and then the stream."""

    def run(self) -> None:
        pass

    def check(self, container: Container) -> None:
        events, group = self.events, self.group()
        for member in events.members:
            if member.name in group.online_readers():
                member.clean = False
                group.reader_offline(member.name)
        self._read_rest()
        there = seen(self.manager.read_events(SCOPE, STREAM))
        events.check(there)
        events.check_deliveries()
        for name, cuts in group.checkpoints().items():
            cut = cuts[f"{SCOPE}/{STREAM}"]
            before = self._before(cut)
            if before is not None:
                events.check_checkpoint(name, before)
            expected = events.cuts.get(name, cut)
            require(expected == cut, f"checkpoint {name} was at {expected}, and is at {cut}")
        events.check_reset({each.data for each in there}, self._before)
        group.close()

    def _before(self, cut: StreamCut) -> set[bytes] | None:
        """The events before a cut; None if some of them may be truncated."""
        if self.events.retained:
            return None
        return {each.data for each in seen(self.manager.read_events(SCOPE, STREAM, end=cut))}

    def _read_rest(self) -> None:
        group, member = self.group(), Membership("last")
        reader, empty = group.create_reader("last"), 0
        self.events.members.append(member)
        while empty < 2 or group.unread_bytes():
            require(empty < 50, f"the last reader gets nothing, and there are {group.unread_bytes()} bytes")
            try:
                piece = reader.get_segment_slice(0.5)
            except TruncatedData as error:
                require(self.events.retained and self.events.resets, f"the last reader: {error}")
                continue
            events = list(piece)
            for event in events:
                self.events.take(member, event)
            empty = 0 if events or piece.is_checkpoint else empty + 1
        reader.reader_offline()
