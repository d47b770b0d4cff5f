"""The state of a reader group: who reads which segments from where, and which segments wait for others to be read.

A pure state machine (Pravega: ReaderGroupState): each step makes a new state of one. Every segment belongs to one
reader at most. The order of a routing key is kept across scaling: a segment can be read only when all its predecessors
were completed, whoever read them. Segments that were made of the same ones become readable together, so that the
positions are a stream cut at any time. A step that is carried out twice does no harm, so it may be tried again when it
is not known whether it was stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgpack

from chunkstore.decoding import Natural, check_format, reader, unpack
from engine.errors import understanding
from pravega_spark.errors import StreamError
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Epochs
from pravega_spark.streams.model.readback import readable

MAX_CHECKPOINTS = 16
"""How many checkpoints a group keeps: the last ones."""

_FORMAT = 1

RetentionType: TypeAlias = Literal["none", "manual", "automatic"]
"""What holds back the retention of the group's streams: nothing, the cuts that the user releases, or the group's own
positions (Pravega: StreamDataRetention)."""


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


class GroupSegment(NamedTuple):
    """A segment that a group reads: its stream ("scope/stream"), its id, and its key range (low, high]."""

    stream: str
    id: int
    low: float
    high: float


class GroupReader(NamedTuple):
    """A reader that is online.

    token: tells it from others of its name. beat: grows whenever it is heard of. positions: the offset up to which it
    has read each of its segments.
    """

    token: str
    beat: int
    positions: Mapping[GroupSegment, int]


class SetBack(NamedTuple):
    """That a group was set back to where what was restored of a stream ends (P4). time: ms since the epoch; cut: where
    the group stood before."""

    time: int
    cut: StreamCut


@dataclass(frozen=True)
class GroupState:
    """A reader group.

    streams: "scope/stream" each. lease: seconds after which a reader that is not heard of may be taken for gone.
    unassigned: segments that can be read and have no reader, with the offset up to which they were read. completed:
    segments that were read to their ends, with these, while their successors wait. future: those that wait, with the
    ids of the segments that are still to be completed.
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
    """By stream, if a restore lost events that the group had read."""

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

    def recorded(self, name: str, token: str, positions: Mapping[GroupSegment, int]) -> GroupState:
        """The reader has been heard of, and has read up to these positions. They count for segments that it still has.

        Raises ReaderOffline.
        """
        reader = self.owned(name, token)
        return self._with_reader(name, GroupReader(token, reader.beat + 1, _advanced(reader.positions, positions)))

    def left(
        self, name: str, token: str | None = None, positions: Mapping[GroupSegment, int] | None = None
    ) -> GroupState:
        """Without a reader. Its segments wait for others to read on from `positions`, else from where it was recorded.

        token: only if it is that one.
        """
        reader = self.readers.get(name)
        if reader is None or token not in (None, reader.token):
            return self
        others = {key: other for key, other in self.readers.items() if key != name}
        returned = _advanced(reader.positions, positions or {})
        return replace(self, readers=others, unassigned={**self.unassigned, **returned})

    def lapsed(self, name: str, token: str, beat: int) -> GroupState:
        """Without a reader that has not been heard of since `beat`; unchanged if it has."""
        reader = self.readers.get(name)
        return self.left(name, token) if reader is not None and reader.beat == beat else self

    def _with_reader(self, name: str, reader: GroupReader) -> GroupState:
        return replace(self, readers={**self.readers, name: reader})

    # --- sharing -----------------------------------------------------------------------------------------------

    def balanced(self, name: str, kept: Collection[GroupSegment] = ()) -> GroupState:
        """With the reader's fair share: it gives up what it has too many, but for `kept`, or takes what is free.

        A reader has at most ceil(segments / readers). It has one more than others only if there is no even way.
        """
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
        """How many segments a reader may take; how many it must give up, as a negative number."""
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
        # Those with one more give it up while others have too few, one of them for each segment that is missing.
        missing = wanting - free - sum(max(count - most, 0) for count in held.values())
        rank = sorted(key for key, count in held.items() if count == most).index(name)
        return -1 if most > fewest and rank < missing else 0

    # --- segments ----------------------------------------------------------------------------------------------

    def ended(
        self, name: str, token: str, segment: GroupSegment, followers: Mapping[GroupSegment, frozenset[int]]
    ) -> GroupState:
        """The reader has read one of its segments to its end. `followers`: see the function of that name.

        Nothing happens if the reader does not have the segment any more. Raises ReaderOffline.
        """
        reader = self.owned(name, token)
        if segment not in reader.positions:
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
        """Segments of a stream, all that are gone with a truncation at `head`, were not completed and never will be.

        Reading goes on at the head, in the segments that came after those. All at once: one that came after two of them
        could otherwise be read twice.
        """
        lost = [key for key in self.positions() if key in gone]
        ids = {(key.stream, key.id) for key in gone}
        readers = {
            name: reader._replace(positions=_without(reader.positions, gone)) for name, reader in self.readers.items()
        }
        unassigned = {
            **_without(self.unassigned, gone),
            **{key: offset for key, offset in head.items() if _follows([key], *lost)},
        }
        return replace(
            self,
            readers=readers,
            unassigned=unassigned,
            completed=_without(self.completed, gone),
            future={
                key: missing
                for key, missing in self.future.items()
                # What it waits for may be gone without having been anybody's.
                if key not in unassigned and not any((key.stream, number) in ids for number in missing)
            },
        )

    def reset(self, stream: str, positions: Mapping[GroupSegment, int]) -> GroupState:
        """At other positions in a stream, those of a cut. All readers lose their segments of it."""
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
        )

    def placed(self, stream: str, positions: Mapping[GroupSegment, int], set_back: SetBack) -> GroupState:
        """Set back in a stream, unless it is not where it was any more."""
        if self.cut(stream) != set_back.cut:
            return self
        return replace(self.reset(stream, positions), set_back={**self.set_back, stream: set_back})

    # --- cuts --------------------------------------------------------------------------------------------------

    def positions(self, stream: str | None = None) -> dict[GroupSegment, int]:
        """How far all segments that are not passed yet were read, as far as it was recorded; of all streams, or one."""
        found = {**self.unassigned, **self.completed}
        for each in self.readers.values():
            found.update(each.positions)
        return {key: offset for key, offset in found.items() if stream in (None, key.stream)}

    def cuts(self) -> tuple[StreamCut, ...]:
        """What the group has read of each stream."""
        return tuple(map(self.cut, self.streams))

    def cut(self, stream: str) -> StreamCut:
        """What the group has read of one stream."""
        return _cut(stream, self.positions(stream))

    def checkpointed(self, name: str) -> GroupState:
        """With a checkpoint: the cuts as they are now, under a name. The oldest of too many is forgotten."""
        others = {key: cuts for key, cuts in self.checkpoints.items() if key != name}
        kept = list(others.items())[-(MAX_CHECKPOINTS - 1) :]
        return replace(self, checkpoints={**dict(kept), name: self.cuts()})

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
        }
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
        streams = reader(tuple[str, ...])(fields["streams"])

        def segments(plain: Any, values: Any = Natural) -> dict[GroupSegment, Any]:
            entries = reader(tuple[tuple[Natural, Natural, float, float, values], ...])(plain)
            return {GroupSegment(streams[number], *place): value for number, *place, value in entries}

        readers = reader(tuple[tuple[str, str, int, list[Any]], ...])(fields["readers"])
        checkpoints = reader(tuple[tuple[str, tuple[bytes, ...]], ...])(fields["checkpoints"])
        future = segments(fields["future"], tuple[Natural, ...])
        set_back = reader(tuple[tuple[Natural, int, bytes], ...])(fields["set_back"])
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
        )

    def _check(self) -> None:
        """Raise ValueError or TypeError for a state that no step can make."""
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
        self.cuts()  # refuses names, ids and offsets that no stream has


def _cut(stream: str, positions: Mapping[GroupSegment, int]) -> StreamCut:
    scope, _, name = stream.partition("/")
    return StreamCut(scope, name, {key.id: offset for key, offset in positions.items()})


def _advanced(positions: Mapping[GroupSegment, int], newer: Mapping[GroupSegment, int]) -> dict[GroupSegment, int]:
    """Positions, moved forward to newer ones where there are some."""
    return {key: max(offset, newer.get(key, 0)) for key, offset in positions.items()}


def _without(positions: Mapping[GroupSegment, int], gone: Collection[GroupSegment]) -> dict[GroupSegment, int]:
    return {key: offset for key, offset in positions.items() if key not in gone}


def _follows(segments: Iterable[GroupSegment], *others: GroupSegment) -> bool:
    """Whether some of the segments, which came later, have keys of some others."""
    return any(
        one.stream == other.stream and one.low < other.high and other.low < one.high
        for one in segments
        for other in others
    )


def followers(history: Epochs, stream: str, segment: int) -> dict[GroupSegment, frozenset[int]]:
    """The segments that become readable when a sealed one is completed, and with it all that their keys came from.

    Those are given by their ids. Nothing follows a segment that takes events still.
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
    """The positions of a cut of which nothing is gone, by segments with their ranges."""
    stream = f"{cut.scope}/{cut.stream}"
    return {GroupSegment(stream, *history.segments[number]): offset for number, offset in cut.positions.items()}
