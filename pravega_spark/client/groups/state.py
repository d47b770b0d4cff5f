"""The state of a reader group: the segments of each reader with their positions, and the segments that are not readable
yet.

A pure state machine (Pravega: ReaderGroupState): each step returns a new state. A segment belongs to at most one
reader. The order of a routing key is kept across scaling: a segment is readable only when all its predecessors were
completed, by any reader. Successors of the same segments become readable together, so the positions are a stream cut at
any time. Steps are idempotent, so a step whose outcome is unknown can be retried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgpack

from chunkstore.decoding import Natural, check_format, check_known, reader, unpack
from chunkstore.optional_fields import OPTIONAL, OptionalFields, read_optional
from engine.errors import understanding
from pravega_spark.errors import StreamError
from pravega_spark.segment_ids import segment_epoch, segment_label
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Epochs
from pravega_spark.streams.model.readback import readable

MAX_CHECKPOINTS = 16
"""Number of checkpoints that a group keeps, and of silent ones that it keeps or waits for."""

MAX_OUTSTANDING = 3
"""Number of checkpoints that a group waits for, by default (Pravega: maxOutstandingCheckpointRequest)."""

AUTOMATIC = "automatic-"
"""The names of automatic checkpoints begin with it. A group keeps the last of them."""

_FORMAT = 1
RetentionType: TypeAlias = Literal["none", "manual", "automatic"]
"""What holds back retention of the group's streams: nothing, the cuts that the user releases, or the group's positions
(Pravega: StreamDataRetention)."""


class ReaderOffline(StreamError, OSError):
    """The reader has left the group or lost its lease (Pravega: ReaderAlreadyOfflineError)."""

    def __init__(self, reader: str) -> None:
        super().__init__(
            f"reader {reader} is offline: it was set offline, its lease expired, or its group was deleted. Events it "
            "read and did not release are read again by others. Create a new reader"
        )
        self.reader = reader


class ReaderOnline(StreamError, ValueError):
    """The group already has an online reader of this name."""

    def __init__(self, reader: str) -> None:
        super().__init__(
            f"reader {reader} is online already: choose another name, or call the group's "
            f"reader_offline({reader!r}) if its process has ended"
        )
        self.reader = reader


class SegmentNotHeld(StreamError, RuntimeError):
    """The reader does not have the segment that it completes: the group was reset meanwhile, or the segment truncated
    (Pravega: ReaderNotInReaderGroupException)."""

    def __init__(self, reader: str, segment: str) -> None:
        super().__init__(
            f"reader {reader} does not have segment {segment} any more: the group was reset, or the segment was "
            "truncated. It continues with the segments that it has now"
        )
        self.reader = reader
        self.segment = segment


class TooManyCheckpoints(StreamError, RuntimeError):
    """The group waits for as many checkpoints as it may (Pravega: MaxNumberOfCheckpointsExceededException)."""

    def __init__(self, names: Sequence[str], limit: int, waiting: Sequence[str]) -> None:
        super().__init__(
            f"the group waits for {len(names)} checkpoints already ({', '.join(names)}), and may wait for {limit}: "
            f"readers {', '.join(waiting)} have not passed them. Wait, take readers that are gone offline, or call "
            "cancel_outstanding_checkpoints()"
        )
        self.names = tuple(names)
        self.limit = limit
        self.waiting = tuple(waiting)


class CheckpointFailed(StreamError, RuntimeError):
    """A checkpoint has no positions: it was cancelled, or the group was reset before all readers had passed it.
    (Pravega: CheckpointFailedException.)"""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"checkpoint {name} has no positions: it was cancelled, the group was reset before all readers had passed "
            f"it, or {MAX_CHECKPOINTS} later ones have replaced it. Initiate another one"
        )
        self.name = name


class GroupSegment(NamedTuple):
    """A segment that a group reads: its stream ("scope/stream"), its id, and its key range (low, high]."""

    stream: str
    id: int
    low: float
    high: float


class GroupReader(NamedTuple):
    """An online reader.

    token: distinguishes it from other readers of its name. beat: grows with each update by the reader. positions: the
    offset up to which it has read each of its segments.
    """

    token: str
    beat: int
    positions: Mapping[GroupSegment, int]


class SetBack(NamedTuple):
    """A set-back: after a restore the group continued where the restored data of a stream ends (P4). time: ms since the
    epoch; cut: the position before."""

    time: int
    cut: StreamCut


class Outstanding(NamedTuple):
    """A checkpoint that some readers have not passed.

    name: None if it is silent, so that readers get no event for it. waiting: the readers that have not passed it.
    positions: of the segments without a reader when it began, and of those of the readers that passed it.

    A reader that is to pass a checkpoint takes, returns and completes no segment before. So each segment is in the
    positions once, and they are a stream cut of each stream.
    """

    name: str | None
    waiting: frozenset[str]
    positions: Mapping[GroupSegment, int]

    def passed_by(self, reader: str, positions: Mapping[GroupSegment, int]) -> Outstanding:
        """After a reader has passed it at these positions."""
        return self._replace(waiting=self.waiting - {reader}, positions={**self.positions, **positions})


@dataclass(frozen=True)
class GroupState:
    """A reader group.

    streams: "scope/stream" each. lease: seconds without a beat after which a reader may be declared dead. unassigned:
    readable segments without a reader, with the offset up to which they were read. completed: segments that were read
    to their ends, with these, while their successors wait. future: segments that are not readable yet, with the ids of
    their predecessors that are not completed. starts, ends: where the group began, and where reading ends in the
    segments of the ending cuts. interval: seconds between automatic checkpoints. outstanding: by the ids of their runs.
    runs: of the stored checkpoints that readers passed, their runs. silent: the results of silent checkpoints, by their
    runs. optional: what newer versions added that this one need not know (W19).
    """

    streams: tuple[str, ...]
    retention: RetentionType = "none"
    lease: float = 60.0
    readers: Mapping[str, GroupReader] = field(default_factory=dict)
    unassigned: Mapping[GroupSegment, int] = field(default_factory=dict)
    completed: Mapping[GroupSegment, int] = field(default_factory=dict)
    future: Mapping[GroupSegment, frozenset[int]] = field(default_factory=dict)
    checkpoints: Mapping[str, tuple[StreamCut, ...]] = field(default_factory=dict)
    set_back: Mapping[str, SetBack] = field(default_factory=dict)
    """The set-backs, by stream."""
    starts: tuple[StreamCut, ...] = ()
    ends: Mapping[GroupSegment, int] = field(default_factory=dict)
    interval: float | None = None
    max_outstanding: int = MAX_OUTSTANDING
    outstanding: Mapping[str, Outstanding] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, tuple[StreamCut, ...]] = field(default_factory=dict)
    optional: OptionalFields = field(default_factory=OptionalFields)

    # --- readers -----------------------------------------------------------------------------------------------

    def joined(self, name: str, token: str) -> GroupState:
        """With a new reader, which has no segments yet. Raises ReaderOnline."""
        reader = self.readers.get(name)
        if reader is not None and reader.token != token:
            raise ReaderOnline(name)
        return self if reader is not None else self._with_reader(name, GroupReader(token, 0, {}))

    def owned(self, name: str, token: str) -> GroupReader:
        """The reader. Raises ReaderOffline when it is not online."""
        reader = self.readers.get(name)
        if reader is None or reader.token != token:
            raise ReaderOffline(name)
        return reader

    def recorded(
        self, name: str, token: str, positions: Mapping[GroupSegment, int], beat: int | None = None
    ) -> GroupState:
        """Record a beat, by default the next one, and positions of a reader. Positions of segments that it lost are
        ignored.

        Raises ReaderOffline.
        """
        reader = self.owned(name, token)
        beat = reader.beat + 1 if beat is None else beat
        return self._with_reader(name, GroupReader(token, beat, _advanced(reader.positions, positions)))

    def left(
        self, name: str, token: str | None = None, positions: Mapping[GroupSegment, int] | None = None
    ) -> GroupState:
        """Without a reader. Its segments are unassigned, at `positions`, which may lie before or after the recorded
        ones, or else at those. It passes the outstanding checkpoints there.

        token: only if the reader has this token.
        """
        reader = self.readers.get(name)
        if reader is None or token not in (None, reader.token):
            return self
        others = {key: other for key, other in self.readers.items() if key != name}
        returned = {key: (positions or {}).get(key, offset) for key, offset in reader.positions.items()}
        outstanding = {
            run: each.passed_by(name, returned) if name in each.waiting else each
            for run, each in self.outstanding.items()
        }
        left = replace(self, readers=others, unassigned={**self.unassigned, **returned}, outstanding=outstanding)
        return left._with_passed()

    def lapsed(self, name: str, token: str, beat: int) -> GroupState:
        """Without a reader whose beat is still `beat`; unchanged if it has a newer one."""
        reader = self.readers.get(name)
        return self.left(name, token) if reader is not None and reader.beat == beat else self

    def _with_reader(self, name: str, reader: GroupReader) -> GroupState:
        return replace(self, readers={**self.readers, name: reader})

    # --- sharing -----------------------------------------------------------------------------------------------

    def balanced(self, name: str, kept: Collection[GroupSegment] = ()) -> GroupState:
        """With the reader's fair share: it releases surplus segments, except `kept`, or takes unassigned ones.

        A reader has at most ceil(segments / readers). It has one more than other readers only if the number is not
        divisible. A reader that is to pass a checkpoint keeps what it has.
        """
        if self.next_checkpoint(name) is not None:
            return self
        reader = self.readers[name]
        change = self._claim(name)
        if change < 0:
            given = [segment for segment in reader.positions if segment not in kept][change:]
            left = {segment: offset for segment, offset in reader.positions.items() if segment not in given}
            free = {**self.unassigned, **{segment: reader.positions[segment] for segment in given}}
        else:
            taken = list(self.unassigned)[:change]
            left = {**reader.positions, **{segment: self.unassigned[segment] for segment in taken}}
            free = {segment: offset for segment, offset in self.unassigned.items() if segment not in taken}
        if len(left) == len(reader.positions):
            return self
        return replace(self._with_reader(name, reader._replace(positions=left)), unassigned=free)

    def _claim(self, name: str) -> int:
        """Number of segments that a reader may take; negative: that it must release."""
        held = {key: len(reader.positions) for key, reader in self.readers.items()}
        free, mine = len(self.unassigned), held[name]
        fewest, uneven = divmod(sum(held.values()) + free, len(held))
        most = fewest + (uneven > 0)
        if mine > most:
            return most - mine
        wanting = sum(max(fewest - count, 0) for key, count in held.items() if key != name)
        if mine < most:
            wanted = fewest - mine if mine < fewest else 0
            return wanted + (free - wanted > wanting and most > fewest)
        # Readers with one more release it while others have too few, one reader for each missing segment.
        missing = wanting - free - sum(max(count - most, 0) for count in held.values())
        rank = sorted(key for key, count in held.items() if count == most).index(name)
        return -1 if most > fewest and rank < missing else 0

    # --- segments ----------------------------------------------------------------------------------------------

    def ended(
        self, name: str, token: str, segment: GroupSegment, followers: Mapping[GroupSegment, frozenset[int]]
    ) -> GroupState:
        """The reader has read one of its segments to its end. `followers`: see the function of that name; none at the
        end of a sealed stream, and at an end of the group.

        Nothing happens if it was completed before, or if the reader is to pass a checkpoint: it tries again afterwards.
        Raises ReaderOffline, SegmentNotHeld.
        """
        reader = self.owned(name, token)
        if segment not in reader.positions:
            if segment in self.completed or self.positions().keys() & followers.keys():
                return self
            raise SegmentNotHeld(name, f"{segment_label(segment.id)} of {segment.stream}")
        if self.next_checkpoint(name) is not None:
            return self
        left = _without(reader.positions, [segment])
        waiting = {key: self.future.get(key, missing) - {segment.id} for key, missing in followers.items()}
        ready = dict.fromkeys((key for key, missing in waiting.items() if not missing), 0)
        completed = {**self.completed, segment: reader.positions[segment]}
        return replace(
            self._with_reader(name, reader._replace(positions=left)),
            unassigned={**self.unassigned, **ready},
            completed={key: offset for key, offset in completed.items() if not _follows(ready, key)},
            future={key: missing for key, missing in {**self.future, **waiting}.items() if missing},
        )

    def truncated(self, gone: Collection[GroupSegment], head: Mapping[GroupSegment, int]) -> GroupState:
        """Remove segments of a stream that were deleted by a truncation at `head` before they were completed.

        Reading continues at the head, in their successors. All are removed at once: a successor of two of them could
        otherwise be read twice.
        """
        lost = [key for key in self.positions() if key in gone]
        ids = {(key.stream, key.id) for key in gone}
        ended = {key: offset for key, offset in self.ends.items() if _follows([key], *lost)}
        beyond = {key for key in head if _after(key, self.ends)}
        readers = {
            name: reader._replace(positions=_without(reader.positions, gone)) for name, reader in self.readers.items()
        }
        unassigned = {
            **_without(self.unassigned, gone),
            **{
                key: min(offset, self.ends.get(key, offset))
                for key, offset in head.items()
                if _follows([key], *lost) and key not in beyond
            },
        }
        passed = {key: offset for key, offset in ended.items() if _follows(beyond, key)}
        return replace(
            self,
            readers=readers,
            unassigned=unassigned,
            completed={**_without(self.completed, gone), **passed},
            outstanding=self._with_lost(gone),
            future={
                key: missing
                for key, missing in self.future.items()
                # Its predecessors may be gone without having been assigned.
                if key not in unassigned and not any((key.stream, number) in ids for number in missing)
            },
        )

    def _with_lost(self, gone: Collection[GroupSegment]) -> dict[str, Outstanding]:
        """The outstanding checkpoints, with the positions in segments that readers lose before they pass them."""
        found = {}
        for run, each in self.outstanding.items():
            held = (item for name in each.waiting for item in self.readers[name].positions.items())
            lost = {key: offset for key, offset in held if key in gone}
            found[run] = each._replace(positions={**each.positions, **lost})
        return found

    def reset(self, stream: str, positions: Mapping[GroupSegment, int]) -> GroupState:
        """Move to the positions of a cut in a stream. All readers lose their segments of it.

        Outstanding checkpoints are cancelled.
        """
        mine = {key for key in (*self.positions(), *self.future) if key.stream == stream}
        readers = {
            name: reader._replace(positions=_without(reader.positions, mine)) for name, reader in self.readers.items()
        }
        return replace(
            self,
            readers=readers,
            unassigned={**_without(self.unassigned, mine), **positions},
            completed=_without(self.completed, mine),
            future={key: missing for key, missing in self.future.items() if key not in mine},
            outstanding={},
        )

    def restarted(self, other: GroupState) -> GroupState:
        """The readers, in the first state of another configuration. They lose all their segments."""
        readers = {name: each._replace(positions={}) for name, each in self.readers.items()}
        return replace(other, readers=readers, optional=self.optional)

    @property
    def read_completely(self) -> bool:
        """Whether all was read: all streams are sealed, or have an end, and no segment is left."""
        return not self.future and not self.unassigned and not any(each.positions for each in self.readers.values())

    def placed(self, stream: str, positions: Mapping[GroupSegment, int], set_back: SetBack) -> GroupState:
        """Set back in a stream, unless its positions have changed meanwhile."""
        if self.cut(stream) != set_back.cut:
            return self
        return replace(self.reset(stream, positions), set_back={**self.set_back, stream: set_back})

    # --- cuts --------------------------------------------------------------------------------------------------

    def positions(self, stream: str | None = None) -> dict[GroupSegment, int]:
        """The recorded positions of all segments that are not passed yet, of all streams or one."""
        found = {**self.unassigned, **self.completed}
        for each in self.readers.values():
            found.update(each.positions)
        return {key: offset for key, offset in found.items() if stream in (None, key.stream)}

    def cuts(self) -> tuple[StreamCut, ...]:
        """The group's position in each stream."""
        return tuple(map(self.cut, self.streams))

    def cut(self, stream: str) -> StreamCut:
        """The group's position in one stream."""
        return _cut(stream, self.positions(stream))

    # --- checkpoints -------------------------------------------------------------------------------------------

    def checkpointed(self, name: str) -> GroupState:
        """With a checkpoint: the present cuts, under a name. The oldest surplus checkpoint is dropped."""
        return self._with_checkpoint(name, self.cuts(), None)

    def _with_checkpoint(self, name: str, cuts: tuple[StreamCut, ...], run: str | None) -> GroupState:
        same = {name, *(key for key in self.checkpoints if name.startswith(AUTOMATIC) and key.startswith(AUTOMATIC))}
        others = {key: cuts for key, cuts in self.checkpoints.items() if key not in same}
        kept = {**dict(list(others.items())[-(MAX_CHECKPOINTS - 1) :]), name: cuts}
        runs = {**{key: each for key, each in self.runs.items() if key != name}, **({name: run} if run else {})}
        return replace(self, checkpoints=kept, runs={key: each for key, each in runs.items() if key in kept})

    def initiated(self, run: str, name: str | None) -> GroupState:
        """With a checkpoint that all online readers are to pass. If there are none, it is complete.

        run: its id. name: None for a silent one. Unchanged if the run has begun, or the group waits for a checkpoint of
        this name. Raises TooManyCheckpoints.
        """
        if run in (*self.outstanding, *self.runs.values(), *self.silent) or self.run_of(name) is not None:
            return self
        alike = [each for each in self.outstanding.values() if (each.name is None) == (name is None)]
        limit = self.max_outstanding if name is not None else MAX_CHECKPOINTS
        if len(alike) >= limit:
            names = [each.name or "a silent one" for each in alike]
            raise TooManyCheckpoints(names, limit, sorted(frozenset().union(*(each.waiting for each in alike))))
        known = {**self.unassigned, **self.completed}
        begun = Outstanding(name, frozenset(self.readers), known)
        return replace(self, outstanding={**self.outstanding, run: begun})._with_passed()

    def run_of(self, name: str | None) -> str | None:
        """The run of the outstanding checkpoint of this name."""
        found = (run for run, each in self.outstanding.items() if name is not None and each.name == name)
        return next(found, None)

    def next_checkpoint(self, reader: str) -> str | None:
        """The run of the checkpoint that a reader is to pass next."""
        return next((run for run, each in self.outstanding.items() if reader in each.waiting), None)

    def passed(self, name: str, token: str, run: str) -> GroupState:
        """A reader has passed a checkpoint at its recorded positions. Nothing happens if it did before, or if the
        checkpoint was cancelled. Raises ReaderOffline."""
        reader = self.owned(name, token)
        if self.next_checkpoint(name) != run:
            return self
        after = self.outstanding[run].passed_by(name, reader.positions)
        return replace(self, outstanding={**self.outstanding, run: after})._with_passed()

    def _with_passed(self) -> GroupState:
        """With those checkpoints stored that all readers have passed."""
        state = self
        for run, each in self.outstanding.items():
            if each.waiting:
                continue
            cuts = tuple(_cut(stream, _of_stream(each.positions, stream)) for stream in self.streams)
            rest = {key: other for key, other in state.outstanding.items() if key != run}
            state = replace(state, outstanding=rest)
            if each.name is not None:
                state = state._with_checkpoint(each.name, cuts, run)
            else:
                kept = dict(list(state.silent.items())[-(MAX_CHECKPOINTS - 1) :])
                state = replace(state, silent={**kept, run: cuts})
        return state

    def without_outstanding(self) -> GroupState:
        """Without the outstanding checkpoints, except silent ones."""
        return replace(self, outstanding={run: each for run, each in self.outstanding.items() if each.name is None})

    def outcome(self, run: str, name: str) -> tuple[StreamCut, ...] | None:
        """The cuts of a checkpoint; None as long as it is outstanding. name: for the error. Raises
        CheckpointFailed."""
        if run in self.outstanding:
            return None
        if run in self.silent:
            return self.silent[run]
        stored = next((key for key, each in self.runs.items() if each == run), None)
        if stored is None:
            raise CheckpointFailed(name)
        return self.checkpoints[stored]

    def restart_cuts(self) -> tuple[StreamCut, ...]:
        """The cuts of the last checkpoint, or else those where the group began."""
        return list(self.checkpoints.values())[-1] if self.checkpoints else self.starts

    # --- as bytes ----------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The value of the group's table entry. Raises UnreadableRecord."""
        return readable("the state of a reader group", self, GroupState._encoded, GroupState._read_back)

    def _encoded(self) -> bytes:
        number = {stream: index for index, stream in enumerate(self.streams)}

        def plain(entries: Mapping[GroupSegment, Any]) -> list[list[Any]]:
            return [[number[key.stream], key.id, key.low, key.high, value] for key, value in entries.items()]

        fields = {
            "format": _FORMAT,
            "streams": self.streams,
            "retention": self.retention,
            "lease": self.lease,
            "readers": [[name, token, beat, plain(held)] for name, (token, beat, held) in self.readers.items()],
            "unassigned": plain(self.unassigned),
            "completed": plain(self.completed),
            "future": plain({key: sorted(missing) for key, missing in self.future.items()}),
            "checkpoints": [[name, [cut.to_bytes() for cut in cuts]] for name, cuts in self.checkpoints.items()],
            "set_back": [[number[stream], time, cut.to_bytes()] for stream, (time, cut) in self.set_back.items()],
            "starts": [cut.to_bytes() for cut in self.starts],
            "ends": plain(self.ends),
            "interval": self.interval,
            "max_outstanding": self.max_outstanding,
            "outstanding": [
                [run, name, sorted(waiting), plain(positions)]
                for run, (name, waiting, positions) in self.outstanding.items()
            ],
            "runs": list(self.runs.items()),
            "silent": [[run, [cut.to_bytes() for cut in cuts]] for run, cuts in self.silent.items()],
        }
        if self.optional:
            fields[OPTIONAL] = self.optional
        return bytes(msgpack.packb(fields))

    @classmethod
    def decode(cls, data: bytes, group: str) -> GroupState:
        """The inverse of `encode`. Raises DataCorruption for what is not the state of a group."""
        remedy = (
            f"Delete the group and create it again from a stream cut: `pravega-spark group delete {group} --yes`, or "
            "delete_reader_group; all else can be used meanwhile"
        )
        with understanding(f"reader group {group}", remedy):
            return cls._read_back(data)

    @classmethod
    def _read_back(cls, data: bytes) -> GroupState:
        state = cls._decoded(unpack(data))
        state._check()
        return state

    @classmethod
    def _decoded(cls, fields: Mapping[str, Any]) -> GroupState:
        check_format(fields["format"], _FORMAT)
        check_known(fields, _FIELDS)
        streams = reader(tuple[str, ...])(fields["streams"])

        def segments(plain: Any, values: Any = Natural) -> dict[GroupSegment, Any]:
            entries = reader(tuple[tuple[Natural, Natural, float, float, values], ...])(plain)
            return {GroupSegment(streams[number], *place): value for number, *place, value in entries}

        readers = reader(tuple[tuple[str, str, int, list[Any]], ...])(fields["readers"])
        checkpoints = reader(tuple[tuple[str, tuple[bytes, ...]], ...])(fields["checkpoints"])
        future = segments(fields["future"], tuple[Natural, ...])
        set_back = reader(tuple[tuple[Natural, int, bytes], ...])(fields["set_back"])
        outstanding = reader(tuple[tuple[str, str | None, tuple[str, ...], list[Any]], ...])(fields["outstanding"])
        silent = reader(tuple[tuple[str, tuple[bytes, ...]], ...])(fields["silent"])
        return cls(
            streams,
            fields["retention"],
            reader(float)(fields["lease"]),
            {name: GroupReader(token, beat, segments(held)) for name, token, beat, held in readers},
            segments(fields["unassigned"]),
            segments(fields["completed"]),
            {key: frozenset(missing) for key, missing in future.items()},
            {name: tuple(map(StreamCut.from_bytes, cuts)) for name, cuts in checkpoints},
            {streams[number]: SetBack(time, StreamCut.from_bytes(cut)) for number, time, cut in set_back},
            tuple(map(StreamCut.from_bytes, reader(tuple[bytes, ...])(fields["starts"]))),
            segments(fields["ends"]),
            reader(float | None)(fields["interval"]),
            reader(Natural)(fields["max_outstanding"]),
            {run: Outstanding(name, frozenset(names), segments(held)) for run, name, names, held in outstanding},
            dict(reader(tuple[tuple[str, str], ...])(fields["runs"])),
            {run: tuple(map(StreamCut.from_bytes, cuts)) for run, cuts in silent},
            read_optional(fields.get(OPTIONAL, {})),
        )

    def _check(self) -> None:
        """Raise ValueError or TypeError for a state that no sequence of steps can produce."""
        if not self.streams or len(set(self.streams)) < len(self.streams):
            raise ValueError("it has no streams, or one twice")
        if self.retention not in get_args(RetentionType) or not self.lease > 0:
            raise ValueError(f"retention {self.retention!r}, lease {self.lease!r}")
        parts = [self.unassigned, self.completed, *(reader.positions for reader in self.readers.values())]
        if len(set(self.future).union(*parts)) < len(self.future) + sum(map(len, parts)):
            raise ValueError("a segment is there twice")
        if not all(isinstance(offset, int) and offset >= 0 for part in parts for offset in part.values()):
            raise ValueError("a position is not an offset")
        if not all(self.future.values()):
            raise ValueError("a segment waits for nothing")
        if (self.interval is not None and not self.interval > 0) or self.max_outstanding < 1:
            raise ValueError(f"checkpoint interval {self.interval!r}, at most {self.max_outstanding!r} outstanding")
        if not all(each.waiting and each.waiting <= self.readers.keys() for each in self.outstanding.values()):
            raise ValueError("a checkpoint waits for no reader")
        if not self.runs.keys() <= self.checkpoints.keys():
            raise ValueError("a run has no checkpoint")
        self.cuts()  # rejects invalid names, ids and offsets


_FIELDS = frozenset(
    [
        "format",
        "streams",
        "retention",
        "lease",
        "readers",
        "unassigned",
        "completed",
        "future",
        "checkpoints",
        "set_back",
        "starts",
        "ends",
        "interval",
        "max_outstanding",
        "outstanding",
        "runs",
        "silent",
        OPTIONAL,
    ]
)
"""The stored fields."""


def _of_stream(positions: Mapping[GroupSegment, int], stream: str) -> dict[GroupSegment, int]:
    return {key: offset for key, offset in positions.items() if key.stream == stream}


def _after(segment: GroupSegment, ends: Iterable[GroupSegment]) -> bool:
    """Whether a segment comes after one in which reading ends."""
    return any(
        end != segment and segment_epoch(end.id) < segment_epoch(segment.id) for end in ends if _follows([segment], end)
    )


def _cut(stream: str, positions: Mapping[GroupSegment, int]) -> StreamCut:
    scope, _, name = stream.partition("/")
    return StreamCut(scope, name, {key.id: offset for key, offset in positions.items()})


def _advanced(positions: Mapping[GroupSegment, int], newer: Mapping[GroupSegment, int]) -> dict[GroupSegment, int]:
    """Positions, advanced to newer ones where given."""
    return {key: max(offset, newer.get(key, 0)) for key, offset in positions.items()}


def _without(positions: Mapping[GroupSegment, int], gone: Collection[GroupSegment]) -> dict[GroupSegment, int]:
    return {key: offset for key, offset in positions.items() if key not in gone}


def _follows(segments: Iterable[GroupSegment], *others: GroupSegment) -> bool:
    """Whether some later segments share keys with others."""
    return any(
        one.stream == other.stream and one.low < other.high and other.low < one.high
        for one in segments
        for other in others
    )


def followers(history: Epochs, stream: str, segment: int) -> dict[GroupSegment, frozenset[int]]:
    """The successors that become readable when a sealed segment is completed.

    Predecessors are given by their ids. An open segment has no successors.
    """
    sealed: set[int] = set()
    entered: dict[int, GroupSegment] = {}
    rest = [segment]
    while rest:
        number = rest.pop()
        sealed.add(number)
        for one in history.successors(number):
            entered[one.id] = GroupSegment(stream, *one)
            rest += [before.id for before in history.predecessors(one.id) if before.id not in sealed]
    return dict.fromkeys(entered.values(), frozenset(sealed))


def places(history: Epochs, cut: StreamCut) -> dict[GroupSegment, int]:
    """The positions of a cut, by segments with their ranges. No segment of it may be gone."""
    stream = f"{cut.scope}/{cut.stream}"
    return {GroupSegment(stream, *history.segments[number]): offset for number, offset in cut.positions.items()}
