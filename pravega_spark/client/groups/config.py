"""The configuration of a reader group: the streams that it reads, and its start position in each.

A configuration has a stream and one scope, and start positions for its own streams only. Others are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pravega_spark.client.groups.state import RetentionType
from pravega_spark.errors import InvalidStreamCut
from pravega_spark.parameters import checks_parameters
from pravega_spark.quantities import DurationLike, parse_seconds
from pravega_spark.streams.model.cuts import UNBOUNDED, StreamCut
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name
from pravega_spark.streams.reading.stream_position import CutLike, PositionLike, StreamPosition, parse_position

LEAST_LEASE = 1.0
"""Seconds: with less, a slow request could cost a living reader its segments."""


@checks_parameters()
class StreamReaderGroupConfig:
    """What a new reader group reads, and from where.

    read_from_tail: start at the tails of the streams instead of their heads. start: cuts to start at, for some or all
    of the streams, or one place ("earliest", "5 minutes ago", …) for all. retention: whether the group holds back
    retention of the streams: `none`; `manual`, by the cuts given to `update_retention_stream_cut`; `automatic`, by its
    positions. lease: seconds (or "2m") without a sign of life after which a reader loses its segments, by default 60,
    and at least LEAST_LEASE. Raises ValueError without a stream.
    """

    def __init__(
        self,
        read_from_tail: bool,
        scope_name: str,
        *stream_names: str,
        retention: RetentionType = "none",
        lease: DurationLike | None = None,
        start: PositionLike | Sequence[CutLike] = (),
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
        scope = validate_scope_name(scope_name)
        self.read_from_tail = read_from_tail
        self.streams = tuple(dict.fromkeys(f"{scope}/{validate_stream_name(name)}" for name in stream_names))
        self.retention = retention
        self.lease = seconds
        several = isinstance(start, Sequence) and not isinstance(start, str)
        given = cast("Sequence[CutLike]", start if several else [start])
        places = [parse_position(each) for each in given]
        cuts = [place for place in places if isinstance(place, StreamCut) and place != UNBOUNDED]
        everywhere = [place for place in places if not isinstance(place, StreamCut)]
        self.start: dict[str, StreamPosition] = dict.fromkeys(self.streams, everywhere[0]) if everywhere else {}
        self.start |= {f"{cut.scope}/{cut.stream}": cut for cut in cuts}
        foreign = sorted(set(self.start) - set(self.streams))
        if foreign:
            raise InvalidStreamCut(f"the stream cut belongs to {foreign[0]}, but the group reads {self.streams}")

    def to_str(self) -> str:
        """The configuration as text."""
        begin = "tail" if self.read_from_tail else "head"
        return f"ReaderGroupConfig: {', '.join(self.streams)} from {begin}, retention {self.retention}"

    def __repr__(self) -> str:
        return f"StreamReaderGroupConfig({self.to_str()!r})"


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
