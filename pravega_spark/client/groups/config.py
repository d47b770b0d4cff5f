"""The configuration of a reader group: the streams that it reads, and its start position in each.

A configuration has a stream, and start and end positions for its own streams only. Others are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pravega_spark.client.groups.state import MAX_OUTSTANDING, RetentionType
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import DurationLike, parse_seconds
from pravega_spark.streams.model.cuts import UNBOUNDED, StreamCut
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name
from pravega_spark.streams.reading.stream_position import (
    CutLike,
    PositionLike,
    StreamPosition,
    parse_cut,
    parse_position,
)

LEAST_LEASE = 1.0
"""Seconds: with less, a slow request could cost a living reader its segments."""


@checks_parameters()
class StreamReaderGroupConfig:
    """What a new reader group reads, and from where.

    scope_name, stream_names: the streams; "scope/stream" of one in another scope. read_from_tail: start at the tails of
    the streams instead of their heads. start: cuts to start at, for some or all of the streams, or one place
    ("earliest", "5 minutes ago", …) for all. end: cuts at which reading ends, for some or all of the streams.
    retention: whether the group holds back retention of the streams: `none`; `manual`, by the cuts given to
    `update_retention_stream_cut`; `automatic`, by its positions. lease: seconds (or "2m") without a sign of life after
    which a reader loses its segments, by default 60, and at least LEAST_LEASE. checkpoint_interval: seconds (or "30s")
    between automatic checkpoints; by default there are none. max_outstanding_checkpoints: how many checkpoints the
    group may wait for, by default 3.

    Configurations are equal if they say the same. Raises ValueError without a stream.
    """

    def __init__(
        self,
        read_from_tail: bool,
        scope_name: str,
        *stream_names: str,
        retention: RetentionType = "none",
        lease: DurationLike | None = None,
        start: PositionLike | Sequence[CutLike] = (),
        end: CutLike | Sequence[CutLike] = (),
        checkpoint_interval: DurationLike | None = None,
        max_outstanding_checkpoints: int = MAX_OUTSTANDING,
    ) -> None:
        if not stream_names:
            raise ValueError(  # at its end the words of `pravega_client`
                "stream_names: give the name of a stream, or of several. (No Pravega Streams present in the "
                "ReaderGroupConfiguration)"
            )
        seconds = None if lease is None else parse_seconds(lease)
        if seconds is not None and seconds < LEAST_LEASE:
            raise ValueError(
                f"lease must be at least {LEAST_LEASE:g} seconds, not {lease!r}: a reader gives a sign of life, "
                "which is an append, three times in a lease"
            )
        interval = None if checkpoint_interval is None else parse_seconds(checkpoint_interval)
        if interval is not None and not interval > 0:
            raise ValueError(f"checkpoint_interval must be above 0, not {checkpoint_interval!r}")
        if max_outstanding_checkpoints < 1:
            raise ValueError(  # at its end Pravega's message
                f"max_outstanding_checkpoints must be at least 1, not {max_outstanding_checkpoints!r} (Outstanding "
                "checkpoint request should be greater than zero)"
            )
        scope = validate_scope_name(scope_name)
        self.read_from_tail = read_from_tail
        self.streams = tuple(dict.fromkeys(_qualified(scope, name) for name in stream_names))
        self.checkpoint_interval = interval
        self.max_outstanding_checkpoints = max_outstanding_checkpoints
        self.retention = retention
        self.lease = seconds
        several = isinstance(start, Sequence) and not isinstance(start, str)
        given = cast("Sequence[CutLike]", start if several else [start])
        places = [parse_position(each) for each in given]
        cuts = [place for place in places if isinstance(place, StreamCut) and place != UNBOUNDED]
        everywhere = [place for place in places if not isinstance(place, StreamCut)]
        self.start: dict[str, StreamPosition] = dict.fromkeys(self.streams, everywhere[0]) if everywhere else {}
        self.start |= {f"{cut.scope}/{cut.stream}": cut for cut in cuts}
        several = isinstance(end, Sequence) and not isinstance(end, str)
        ends = map(parse_cut, cast("Sequence[CutLike]", end if several else [end]))
        self.end = {f"{cut.scope}/{cut.stream}": cut for cut in ends if cut != UNBOUNDED}
        foreign = sorted({*self.start, *self.end} - set(self.streams))
        if foreign:
            raise InvalidStreamCut(f"the stream cut belongs to {foreign[0]}, but the group reads {self.streams}")

        for key, cut in self.end.items():
            first = self.start.get(key)
            if isinstance(first, StreamCut) and not first.precedes(cut):
                raise InvalidStreamCut(f"the end {cut} lies before the start {first}")

    def _key(self) -> tuple[object, ...]:
        """What makes it equal to others."""
        cuts = tuple(frozenset(cuts.items()) for cuts in (self.start, self.end))
        limits = self.lease, self.checkpoint_interval, self.max_outstanding_checkpoints
        return self.read_from_tail, frozenset(self.streams), self.retention, cuts, limits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamReaderGroupConfig) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def to_str(self) -> str:
        """The configuration as text."""
        begin = "tail" if self.read_from_tail else "head"
        return f"ReaderGroupConfig: {', '.join(self.streams)} from {begin}, retention {self.retention}"

    def __repr__(self) -> str:
        return f"StreamReaderGroupConfig({self.to_str()!r})"


def _qualified(scope: str, name: str) -> str:
    """The "scope/stream" of a stream's name, which may have a scope of its own."""
    own, slash, stream = name.rpartition("/")
    return (
        f"{validate_scope_name(own)}/{validate_stream_name(stream)}"
        if slash
        else f"{scope}/{validate_stream_name(name)}"
    )


@checks_parameters()
class StreamCuts:
    """The cut that `get_streamcut` returns; `create_reader_group` takes it. `stream_cut`: the same as a StreamCut."""

    def __init__(self, stream_cut: StreamCut) -> None:
        self.stream_cut = stream_cut

    def get_segment_offset_map(self) -> dict[int, int]:
        """The offset of each segment, by its id."""
        return dict(self.stream_cut.positions)

    def to_str(self) -> str:
        """The cut as text for people."""
        return f"StreamCuts: {self.stream_cut}"

    def __repr__(self) -> str:
        return f"StreamCuts({self.to_str()!r})"
