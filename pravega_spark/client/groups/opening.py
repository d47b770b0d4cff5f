"""Creating, opening and deleting reader groups, and the state that a group begins with.

A group that is opened again keeps its positions. Those that a restore has lost are set back to the end of the restored
data (P4), before any reader reads from them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from chunkstore.boot_clock import boot_time
from engine.root import Root
from pravega_spark.client.groups.config import StreamReaderGroupConfig
from pravega_spark.client.groups.entry import GroupConfigMismatch
from pravega_spark.client.groups.open_group import OpenGroup
from pravega_spark.client.groups.state import MAX_OUTSTANDING, GroupSegment, GroupState, SetBack, places
from pravega_spark.errors import InvalidStreamCut, PositionLost, StreamNotFound
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.reading.stream_position import cut_at

logger = logging.getLogger(__name__)


def create_group(
    root: Root, scope: str, name: str, config: StreamReaderGroupConfig, clock: Callable[[], float] = boot_time
) -> OpenGroup:
    """Create a group, or open the existing one of this name, which keeps its positions.

    Raises StreamNotFound, InvalidStreamCut for a start that is not a cut of its stream, and StreamError if the group
    exists with other streams, or another retention or lease.
    """
    group = stored_group(root, scope, name, clock)
    state = group.entry.read()[0] or group.entry.create(first_state(group, config))
    ends = {(key.stream, key.id): offset for key, offset in state.ends.items()}
    given = {
        (key, number): offset
        for key, cut in config.end.items()
        for number, offset in group.stream(key).snapshot().resolved(cut).positions.items()
    }
    if (
        set(state.streams) != set(config.streams)
        or config.retention not in ("none", state.retention)
        or config.lease not in (None, state.lease)
        or config.checkpoint_interval not in (None, state.interval)
        or config.max_outstanding_checkpoints not in (MAX_OUTSTANDING, state.max_outstanding)
        or (given and given != ends)
    ):
        raise GroupConfigMismatch(group.entry.key, _configuration(state))
    state = _placed(group, state)
    if state.retention != "none":
        group.subscriptions.begin(state)
    return group


def open_group(root: Root, scope: str, name: str, clock: Callable[[], float] = boot_time) -> OpenGroup:
    """An existing group. Raises GroupNotFound."""
    group = stored_group(root, scope, name, clock)
    _placed(group, group.entry.state())
    return group


def delete_group(root: Root, scope: str, name: str) -> None:
    """Delete a group and take its readers offline. A state that cannot be decoded is deleted too. Raises
    GroupNotFound."""
    group = stored_group(root, scope, name)
    state = group.entry.delete()
    if state is not None:
        group.subscriptions.end(state)
    else:
        group.subscriptions.end_everywhere()


def first_state(group: OpenGroup, config: StreamReaderGroupConfig) -> GroupState:
    """The state of a new group: no readers, and all segments of the starting cuts unassigned."""
    state = GroupState(config.streams, config.retention)
    if config.lease is not None:
        state = replace(state, lease=float(config.lease))
    interval = None if config.checkpoint_interval is None else float(config.checkpoint_interval)
    state = replace(state, interval=interval, max_outstanding=config.max_outstanding_checkpoints)
    for key in config.streams:
        snapshot = group.stream(key).snapshot()
        cut = cut_at(config.start.get(key, "tail" if config.read_from_tail else "head"), snapshot)
        state = state.reset(key, start_places(snapshot, cut))
        if key in config.end:
            end = snapshot.resolved(config.end[key])
            snapshot.ranges(cut, end)  # raises InvalidStreamCut unless it lies after the start
            state = replace(state, ends={**state.ends, **start_places(snapshot, end)})
    return replace(state, starts=state.cuts())


def start_places(snapshot: Snapshot, cut: StreamCut) -> dict[GroupSegment, int]:
    """The start position of a group at a cut. Raises InvalidStreamCut."""
    snapshot.check(cut)
    gone = snapshot.record.history.gone(cut.positions)
    if gone:
        raise InvalidStreamCut(
            f"stream cut {cut}: segment {segment_label(gone[0])} of {snapshot.stream.key} was truncated; start at the "
            "head"
        )
    for number, offset in cut.positions.items():
        if offset > snapshot.segments.segment(number).start_offset and not snapshot.segments.is_boundary(
            number, offset
        ):
            raise InvalidStreamCut(
                f"stream cut {cut}: no event of segment {segment_label(number)} begins at offset {offset}"
            )
    return places(snapshot.record.history, cut)


def stored_group(root: Root, scope: str, name: str, clock: Callable[[], float] = boot_time) -> OpenGroup:
    """A group as it is stored, whether it exists or not: positions that a restore has lost stay."""
    return OpenGroup(root, validate_scope_name(scope), validate_stream_name(name, "reader group"), clock)


def _placed(group: OpenGroup, state: GroupState) -> GroupState:
    """The state, with positions that were lost in a restore set back to the end of the restored data (P4).

    If that position cannot be determined, the group is unchanged and its readers raise an error.
    """
    for key in state.streams:
        cut = state.cut(key)
        with suppress(StreamNotFound, InvalidStreamCut):  # the stream is gone: its readers raise that
            snapshot = group.stream(key).snapshot()
            try:
                snapshot.check(cut)
            except PositionLost as lost:
                found = snapshot.restored(cut.positions)
                if found is None:
                    continue
                set_back = SetBack(int(time.time() * 1000), cut)
                positions = places(snapshot.record.history, found)
                state = group.entry.change(partial(_set_back, key, positions, set_back))
                logger.warning("Reader group %s continues at %s. %s", group.entry.key, found, lost.fact)
    return state


def _set_back(stream: str, positions: Mapping[GroupSegment, int], set_back: SetBack, state: GroupState) -> GroupState:
    return state.placed(stream, positions, set_back)


def _configuration(state: GroupState) -> str:
    """The configuration of a group, in words."""
    interval = f"an interval of {state.interval} s" if state.interval is not None else "no interval"
    return (
        f"streams {', '.join(state.streams)}, retention {state.retention!r}, a lease of {state.lease} s, {interval} of "
        f"checkpoints, at most {state.max_outstanding} of them outstanding, and {'ends' if state.ends else 'no ends'}"
    )
