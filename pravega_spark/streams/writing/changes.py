"""Changes of a stream: the new record, and the operations that commit it in one append (X1).

A change is computed from a snapshot, and committed on the condition that the record's version is unchanged. It makes
no requests, except that a truncation reads the index.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from engine.state.index_records import RECORD_SIZE
from engine.state.operations import CreateSegment, DeleteSegment, Operation, PutEntry, SealSegment, TruncateSegment
from engine.state.segments import parent_in
from engine.state.tables import METADATA
from engine.tables.content import MAX_VALUE
from pravega_spark.errors import InvalidScale, InvalidStreamCut, StreamNotSealed, StreamSealed, TooFewSegments
from pravega_spark.segment_ids import MAX_NUMBER, segment_id, segment_label
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import (
    Comparison,
    EpochRecord,
    StreamSegmentRecord,
    duplicate,
    overlapping,
    replaced,
)
from pravega_spark.streams.model.names import index_segment_name
from pravega_spark.streams.model.routing import even_ranges
from pravega_spark.streams.model.stream_record import (
    Ended,
    Generation,
    Routing,
    StreamRecord,
    StreamUpdate,
    Unchanged,
    check_segments,
    encode_number,
    next_number,
    whole_ends,
)
from pravega_spark.streams.model.system_tables import NUMBERS, OF_STREAMS, STREAMS
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.writing.event_order import StoredOrder

if TYPE_CHECKING:
    from engine.state.state import State
    from pravega_spark.streams.model.policies import ScalingPolicy
    from pravega_spark.streams.reading.location import StreamLocation


class StreamChange(NamedTuple):
    """A stream's record after a change, None if it is unchanged, and the operations on its segments."""

    record: StreamRecord | None
    operations: list[Operation]

    def committed(self, key: str) -> list[Operation]:
        """All operations of the change of the stream `key`."""
        if self.record is None:
            return self.operations
        return [PutEntry(STREAMS, key, self.record.checked(key), self.record.version), *self.operations]


NO_CHANGE = StreamChange(None, [])


def creations(names: Iterable[str]) -> list[Operation]:
    """Create segments and their index segments."""
    return [CreateSegment(each) for name in names for each in (name, index_segment_name(name))]


def _seals(snapshot: Snapshot, segments: Iterable[StreamSegmentRecord]) -> list[Operation]:
    names = (snapshot.segments.name_of(segment.id) for segment in segments)
    return [SealSegment(each) for name in names for each in (name, index_segment_name(name))]


def seal(snapshot: Snapshot) -> StreamChange:
    """Seal the stream."""
    if snapshot.record.sealed:
        return NO_CHANGE
    return StreamChange(snapshot.record.with_changes(sealed=True), _seals(snapshot, snapshot.record.current.segments))


def delete(snapshot: Snapshot) -> list[Operation]:
    """The operations that delete the stream and its data. Raises StreamNotSealed."""
    stream, record = snapshot.stream, snapshot.record
    if not record.sealed:
        raise StreamNotSealed(stream.key)
    return _deletion(
        stream, snapshot.state, record.version, next_number(record.current), segment_names(stream, snapshot.state)
    )


def delete_unreadable(stream: StreamLocation, state: State, version: int) -> list[Operation]:
    """Delete a stream whose record, of that version, is damaged, so that it is unknown whether it was sealed.

    A new stream of its name continues after the highest number of its remaining segments.
    """
    names = segment_names(stream, state)
    numbers = (name.removeprefix(f"{stream.key}/").partition(".")[0] for name in names)
    last = max((int(number) for number in numbers if number.isdecimal()), default=-1)
    return _deletion(stream, state, version, last + 1, names)


def segment_names(stream: StreamLocation, state: State) -> set[str]:
    """All segments of a stream, except that of its producers."""
    below = f"{stream.key}/"
    names = {name for name in state.segments if name.startswith(below)}
    return names | {name for name, _ in stream.container.scan_entries(METADATA, below)}


def _deletion(stream: StreamLocation, state: State, version: int, number: int, names: Iterable[str]) -> list[Operation]:
    container, below = stream.container, f"{stream.key}/"
    found = container.activated([stream.writers, *sorted(names)], state)
    entries = [(table, key) for table in OF_STREAMS for key, _ in container.scan_entries(table, below)]
    return [
        PutEntry(STREAMS, stream.key, None, version),
        PutEntry(NUMBERS, stream.key, encode_number(number)),
        *(PutEntry(table, key, None) for table, key in entries),
        *(  # transient segments are deleted with their parents
            DeleteSegment(name) for name, segment in found.items() if segment is not None and parent_in(name) is None
        ),
    ]


def update(snapshot: Snapshot, choose: Callable[[StreamRecord], StreamUpdate]) -> StreamChange:
    """Change policies and tags. A new scaling policy also scales the stream, in the same append, if it does not have
    the fixed number of segments, or has fewer than the minimum (Pravega: UpdateStreamTask).

    choose: decides by what the stream has. Raises StreamSealed, TooManySegments, InvalidScale.
    """
    _require_open(snapshot)
    chosen = choose(snapshot.record)
    change = StreamChange(snapshot.record, [])
    if not isinstance(chosen.scaling, Unchanged):
        check_segments(snapshot.stream.key, chosen.scaling.min_segments, snapshot.stream.root.config.max_segments)
        change = _with_segments_of(snapshot, chosen.scaling)
    assert change.record is not None
    changed = {name: value for name, value in chosen._asdict().items() if not isinstance(value, Unchanged)}
    return StreamChange(change.record.with_changes(**changed), change.operations)


def _with_segments_of(snapshot: Snapshot, policy: ScalingPolicy) -> StreamChange:
    """The stream with a number of segments that a policy allows: all are replaced if it has another one."""
    segments, wanted = snapshot.record.current.segments, policy.min_segments
    if len(segments) == wanted or (policy.kind != "fixed" and len(segments) > wanted):
        return StreamChange(snapshot.record, [])
    return _next_epoch(snapshot, segments, even_ranges(wanted))


def _require_open(snapshot: Snapshot) -> None:
    if snapshot.record.sealed:
        raise StreamSealed(snapshot.stream.key)


# --- scaling -----------------------------------------------------------------------------------------------------


def scale(
    snapshot: Snapshot,
    segments_to_seal: Sequence[int],
    new_key_ranges: Sequence[tuple[float, float]],
    expected_epoch: int | None,
) -> StreamChange:
    """Seal segments and open new ones for their keys, which begins an epoch. Raises StreamSealed, InvalidScale,
    TooManySegments."""
    _require_open(snapshot)
    record = snapshot.record
    problem = _scale_problem(record, segments_to_seal, new_key_ranges, expected_epoch)
    if problem is not None:
        raise InvalidScale(snapshot.stream.key, problem)
    left = len(record.current.segments) - len(segments_to_seal) + len(new_key_ranges)
    if left < record.scaling.min_segments:
        raise TooFewSegments(snapshot.stream.key, left, record.scaling.min_segments)
    sealed = [segment for segment in record.current.segments if segment.id in segments_to_seal]
    return _next_epoch(snapshot, sealed, [(float(low), float(high)) for low, high in new_key_ranges])


def _next_epoch(
    snapshot: Snapshot, sealed: Sequence[StreamSegmentRecord], ranges: Sequence[tuple[float, float]]
) -> StreamChange:
    """Seal segments and open new ones with these key ranges, as an epoch.

    The first epoch of a generation also replaces all other segments, by segments with the same key ranges.
    """
    record, segments = snapshot.record, snapshot.record.current.segments
    epoch, first = record.current.epoch + 1, next_number(record.current)
    generations = record.generations
    if generation_is_over(snapshot):
        ranges = [*ranges, *((segment.low, segment.high) for segment in segments if segment not in sealed)]
        sealed, first = segments, after_gap(snapshot.stream.key, first, len(ranges))
        generations = (*generations, Generation(snapshot.stream.container.generation, epoch))
    new = [StreamSegmentRecord(segment_id(first + place, epoch), low, high) for place, (low, high) in enumerate(ranges)]
    created = max(int(time.time() * 1000), record.current.created + 1)
    following = EpochRecord(epoch, created, replaced(segments, new), epoch)
    return StreamChange(
        _with_epochs(snapshot, following).with_changes(generations=generations),
        [*creations(snapshot.segments.name_of(segment.id) for segment in new), *_seals(snapshot, sealed)],
    )


# --- generations -------------------------------------------------------------------------------------------------

LEAST_GAP, MOST_GAP = 1 << 17, 1 << 20
"""Minimum and maximum gap in segment numbers. The minimum exceeds the number of segments of any epoch."""


def generation_is_over(snapshot: Snapshot) -> bool:
    """Whether the container got a new log (restored, recovered) since the current segments were opened."""
    return not snapshot.record.sealed and snapshot.record.generation.name != snapshot.stream.container.generation


def begin_generation(snapshot: Snapshot) -> StreamChange:
    """Seal all current segments and open segments with the same key ranges, before events of a new generation (P4).

    Lost events had positions after the ends of these segments, or in successors of them. The ends never change, and
    the new segments' numbers follow a random gap. So the position of a lost event is never the position of an event
    written after the restore.
    """
    return _next_epoch(snapshot, (), ()) if generation_is_over(snapshot) else NO_CHANGE


def after_gap(stream: str, number: int, count: int) -> int:
    """The first of `count` segment numbers after a random gap. Raises InvalidScale if none are left."""
    first = number + LEAST_GAP + int.from_bytes(os.urandom(4), "big") % (MOST_GAP - LEAST_GAP)
    if first + count > MAX_NUMBER:
        raise InvalidScale(stream, f"its segment numbers, up to {MAX_NUMBER}, are used up. Write to another stream")
    return first


def _with_epochs(snapshot: Snapshot, *epochs: EpochRecord) -> StreamRecord:
    """The record with more epochs. Raises InvalidScale if it has no room for them."""
    record = snapshot.record.with_changes(epochs=(*snapshot.record.epochs, *epochs))
    limit = snapshot.stream.root.config.max_segments
    check_segments(snapshot.stream.key, max(len(epoch.segments) for epoch in epochs), limit)
    if len(record.encode()) > MAX_VALUE:
        raise InvalidScale(
            snapshot.stream.key,
            f"its record is full with the {len(snapshot.record.epochs)} epochs since its head. Truncate the stream, "
            "which drops the epochs before its head",
        )
    return record


_NAMED = 8
"""Number of open segments that an error lists."""


def _scale_problem(
    record: StreamRecord, sealed: Sequence[int], ranges: Sequence[tuple[float, float]], expected_epoch: int | None
) -> str | None:
    """The error of a scale request; None if it is valid."""
    current = {segment.id: segment for segment in record.current.segments}
    if expected_epoch not in (None, record.current.epoch):
        return f"the current epoch is {record.current.epoch}, not {expected_epoch}. Get its segments and try again"
    if not sealed or not ranges:
        return "give at least one segment to seal and one new key range"
    if len(set(sealed)) < len(sealed):
        return f"{', '.join(map(segment_label, sealed))} contains a segment twice"
    unknown = [number for number in sealed if number not in current]
    if unknown:
        labels = ", ".join(map(segment_label, sorted(current)[:_NAMED]))
        more = f" and {len(current) - _NAMED} more" if len(current) > _NAMED else ""
        return f"segment {segment_label(unknown[0])} is not open; the open segments are {labels}{more}"
    for low, high in ranges:
        if not 0.0 <= low < high <= 1.0:
            return f"({low}, {high}) is not a key range: 0 <= low < high <= 1 must hold"
    ordered = sorted(ranges)
    for one, other in pairwise(ordered):
        if other[0] < one[1]:
            return f"the new key ranges {one} and {other} overlap"
    before, after = joined_ranges((current[n].low, current[n].high) for n in sealed), joined_ranges(ordered)
    if before != after:
        return f"the new key ranges cover {after}, but the segments to seal cover {before}"
    return None


def joined_ranges(ranges: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Ranges in order, with adjacent ones joined."""
    joined: list[tuple[float, float]] = []
    for low, high in sorted(ranges):
        if joined and joined[-1][1] == low:
            low = joined.pop()[0]
        joined.append((low, high))
    return joined


# --- truncating --------------------------------------------------------------------------------------------------


def truncate(snapshot: Snapshot, cut: StreamCut) -> StreamChange:
    """Make `cut` the head: delete segments before it, and truncate those in it, with their indexes.

    Raises InvalidStreamCut, StreamSealed.
    """
    _require_open(snapshot)
    snapshot.check(cut)
    record, history = snapshot.record, snapshot.record.history
    head = record.head_positions()
    if history.gone(cut.positions) or history.compare(cut.positions, head) is not Comparison.EQUAL_OR_AFTER:
        raise InvalidStreamCut(  # Pravega's message
            f"Supplied streamcut is behind previous truncation point: {cut} of {snapshot.stream.key}, "
            f"whose head is {snapshot.head_cut()}"
        )
    if cut.positions == head:
        return NO_CHANGE
    snapshot.check_boundaries(cut)
    passed = history.before(cut.positions)
    operations: list[Operation] = []
    for number in passed:
        name = snapshot.segments.name_of(number)
        operations += [DeleteSegment(name), DeleteSegment(index_segment_name(name))]
    for number, offset in cut.positions.items():
        operations += _truncation(snapshot, number, offset)
    operations += _order_truncation(snapshot, cut)
    first = history.first_epoch(cut.positions) - record.epochs[0].epoch
    changed = record.with_changes(
        head=dict(cut.positions),
        epochs=record.epochs[first:],
        ended=_ended(snapshot, cut, passed),
        passed=snapshot.bytes_before(cut.positions),
        generations=_generations(record, record.epochs[first].epoch),
    )
    return StreamChange(changed, operations)


def _generations(record: StreamRecord, epoch: int) -> tuple[Generation, ...]:
    """The generations that have an epoch from this one on."""
    behind = [following.epoch for following in record.generations[1:]]
    return tuple(each for each, end in zip_longest(record.generations, behind) if end is None or end > epoch)


def _truncation(snapshot: Snapshot, number: int, offset: int) -> list[Operation]:
    if offset == snapshot.segments.segment(number).start_offset:
        return []
    name = snapshot.segments.name_of(number)
    records = snapshot.segments.index_position(number, offset)
    return [TruncateSegment(name, offset), TruncateSegment(index_segment_name(name), records * RECORD_SIZE)]


def _order_truncation(snapshot: Snapshot, cut: StreamCut) -> list[Operation]:
    """The operations that delete the stored order of appends that have no event after the cut."""
    order = StoredOrder(snapshot)
    if not order.has_entries:
        return []
    segments, history = snapshot.segments, snapshot.record.history
    first: list[int] = []
    positions = dict(cut.positions)
    while positions:
        number, offset = positions.popitem()
        record = segments.index(number).locate_offset(offset + 1)
        if record is not None:
            first.append(record.append)
        elif offset == segments.length(number):  # its successors have later appends
            positions |= {each.id: 0 for each in history.successors(number)}
    return order.truncation(min(first, default=None))


def _ended(snapshot: Snapshot, cut: StreamCut, passed: Sequence[int]) -> dict[int, Ended]:
    """The deleted segments between whose ends and the new head no event is lost, including those deleted before."""
    record, history = snapshot.record, snapshot.record.history
    snapshot.segments.load(passed)
    deleted = {n: Ended(snapshot.segments.length(n), tuple(s.id for s in history.successors(n))) for n in passed}
    return whole_ends(record.ended | deleted, cut.positions)


# --- rerouting after a scale --------------------------------------------------------------------


class Rerouted(NamedTuple):
    """The segments that take events routed by an earlier epoch, and the operations for that.

    targets: for each routing, the new segment of each old one. before, after: operations before and after the
    appends, in the same commit.
    """

    targets: list[dict[int, int]]
    before: list[Operation]
    after: list[Operation]


def reroute(snapshot: Snapshot, planned: Iterable[tuple[Routing, Iterable[int]]]) -> Rerouted:
    """Reroute events of earlier epochs. planned: routings, with the segments that have events.

    If one current segment owns all keys of an old one, it takes its place. Otherwise the append also adds epochs, as
    a rolling transaction does (Pravega: duplicate epochs): a duplicate of the old epoch, sealed in the same append,
    followed by a duplicate of the current one. So no event has to be parsed. All routings after such an epoch get
    their own epoch too, so keys keep their order. Raises StreamSealed; StreamRecreated if another stream has the
    name now.
    """
    record = snapshot.record
    targets: list[dict[int, int]] = []
    rolled: list[int] = []
    routings: list[Routing] = []
    for routing, used in planned:
        snapshot.require(routing.id)
        segments = {segment.id: segment for segment in routing.segments}
        places = {number: overlapping(record.current.segments, segments[number]) for number in used}
        if rolled or any(len(place) != 1 for place in places.values()):  # later routings come after it
            rolled.append(len(targets))
            routings.append(routing)
        targets.append({number: place[0].id for number, place in places.items() if place})
    _require_open(snapshot)
    if not rolled:
        return Rerouted(targets, [], [])
    return _rolled(snapshot, routings, targets, rolled)


def _repeated(snapshot: Snapshot, epoch: EpochRecord, before: Sequence[EpochRecord], created: int) -> EpochRecord:
    """The epoch after `before`, with the key ranges of another one.

    It reuses that epoch's segment numbers, unless that epoch or one of those before is of an earlier generation, in
    which lost positions may have them (P4).
    """
    number, begun = before[-1].epoch + 1, snapshot.record.generation.epoch
    if epoch.epoch >= begun and all(each.reference != each.epoch for each in before[1:]):
        return duplicate(epoch, number, created)
    first = max(map(next_number, before))
    segments = (
        StreamSegmentRecord(segment_id(first + place, number), segment.low, segment.high)
        for place, segment in enumerate(epoch.segments)
    )
    return EpochRecord(number, created, tuple(segments), number)


def _rolled(
    snapshot: Snapshot, routings: Sequence[Routing], targets: list[dict[int, int]], rolled: Sequence[int]
) -> Rerouted:
    """The same with duplicate epochs. rolled: the indexes of the targets that get one."""
    current, now = snapshot.record.current, int(time.time() * 1000)
    created = max(now, current.created + 1)
    again: list[EpochRecord] = []
    for place, routing in zip(rolled, routings, strict=True):
        past = EpochRecord(routing.reference, 0, routing.segments, routing.reference)
        again.append(_repeated(snapshot, past, [current, *again], created + len(again)))
        ids = [segment.id for segment in again[-1].segments]
        targets[place] = dict(zip((segment.id for segment in routing.segments), ids, strict=True))
    following = _repeated(snapshot, current, [current, *again], created + len(again))
    passing = [segment for epoch in again for segment in epoch.segments]
    change = StreamChange(
        _with_epochs(snapshot, *again, following),
        creations(snapshot.segments.name_of(segment.id) for segment in passing),
    )
    return Rerouted(
        targets,
        change.committed(snapshot.stream.key),
        [
            *_seals(snapshot, [*current.segments, *passing]),
            *creations(snapshot.segments.name_of(segment.id) for segment in following.segments),
        ],
    )
