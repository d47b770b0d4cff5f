"""Records of this project's form for streams of a Pravega, from its controller's tables.

Missing information is listed in the record's `unknown`. Required fields get the weakest value: epochs that were not
flushed follow each other in the order of their segments' ids, with even key ranges, so that no segment is read
before a possible predecessor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from chunkstore.pravega.controller_records import (
    ControllerEpoch,
    Retention,
    RetentionType,
    ScaleType,
    Scaling,
    StreamConfiguration,
    TransactionStatus,
)
from pravega_spark.segment_ids import segment_epoch
from pravega_spark.streams.model.epochs import EpochRecord, StreamSegmentRecord, replaced
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from pravega_spark.streams.model.routing import even_ranges
from pravega_spark.streams.model.stream_record import ID_SIZE, Routing, StreamRecord, first_number_of
from pravega_spark.streams.pravega_lts.streams import PravegaStream, PravegaTransaction
from pravega_spark.streams.writing.transactions import TransactionRecord

_CLOSE = 1e-4
"""Maximum deviation between the key ranges of an epoch (Pravega: the precision with which it compares them)."""

_KINDS: dict[ScaleType, Literal["bytes", "events"]] = {
    ScaleType.KBYTES_PER_SECOND: "bytes",
    ScaleType.EVENTS_PER_SECOND: "events",
}


def stream_record(stream: PravegaStream) -> StreamRecord:
    """The record of a stream. Raises ArchiveDamaged if the controller's records contradict each other."""
    unknown = list(stream.unknown)
    known, head = stream.records, stream.head.positions
    epochs = [*map(_epoch, _checked_ranges(stream))]
    epochs += _by_names(epochs, [number for number in stream.segments if segment_epoch(number) > _newest(epochs)])
    if not epochs:
        raise stream.damaged("it has no epochs and no segments")
    first = min((segment_epoch(number) for number in head), default=epochs[0].epoch)
    configuration = known.configuration
    scaling, retention = _policies(configuration, len(epochs[-1].segments), unknown)
    return StreamRecord(
        pravega_stream_id(stream),
        known.created or epochs[0].created,
        tuple(epoch for epoch in epochs if epoch.epoch >= first),
        scaling,
        retention,
        tuple(configuration.tags) if configuration is not None else (),
        bool(stream.sealed),
        dict(head),
        passed=known.truncation.size if known.truncation is not None else 0,
        unknown=tuple(unknown),
        first_number=first_number_of(epochs),
    )


def transaction_record(stream: StreamRecord, transaction: PravegaTransaction, since: int, until: int) -> bytes:
    """The stored record of an open transaction. since, until: begin, and end of its lease (ms)."""
    epoch = transaction.id.int >> 96
    there = next((each for each in stream.epochs if each.epoch == epoch), stream.current)
    routing = Routing(stream.id, there.reference, there.segments)
    lease = max(until - since, 0)
    return TransactionRecord(routing, since, lease, since, max(lease, 0)).encode()


def pravega_stream_id(stream: PravegaStream) -> bytes:
    """The id of a stream of a Pravega, in its storage and where it is imported, from its controller's records."""
    records = stream.records
    known = f"{stream.scope}/{stream.name}/{records.id}/{records.created}"
    return hashlib.sha256(known.encode()).digest()[:ID_SIZE]


def is_open(transaction: PravegaTransaction) -> bool:
    """Whether a transaction is neither committed nor aborted, as far as known."""
    return transaction.status not in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)


def _newest(epochs: Sequence[EpochRecord]) -> int:
    return epochs[-1].epoch if epochs else -1


def _epoch(epoch: ControllerEpoch) -> EpochRecord:
    segments = sorted((StreamSegmentRecord(s.id, s.low, s.high) for s in epoch.segments), key=lambda s: s.low)
    fitted, reached = [], 0.0
    for place, segment in enumerate(segments):
        following = segments[place + 1].low if place + 1 < len(segments) else 1.0
        high = following if abs(following - segment.high) < _CLOSE else segment.high
        fitted.append(StreamSegmentRecord(segment.id, reached, high))
        reached = high
    return EpochRecord(epoch.epoch, epoch.created, tuple(fitted), epoch.reference)


def _checked_ranges(stream: PravegaStream) -> Iterator[ControllerEpoch]:
    for epoch in stream.epochs:
        reached = 0.0
        for segment in sorted(epoch.segments, key=lambda segment: segment.low):
            if abs(segment.low - reached) >= _CLOSE or segment.high <= segment.low:
                break
            reached = segment.high
        if abs(reached - 1.0) >= _CLOSE:
            raise stream.damaged(
                f"the segments of epoch {epoch.epoch} in its controller's table do not have all keys once"
            )
        yield epoch


def _by_names(epochs: Sequence[EpochRecord], numbers: Sequence[int]) -> Iterator[EpochRecord]:
    """Epochs of segments of which only the ids are known: each replaces all earlier ones."""
    newest = _newest(epochs)
    current = epochs[-1].segments if epochs else ()
    created = epochs[-1].created if epochs else 0
    for epoch, segments in groupby(sorted(numbers), segment_epoch):
        for between in range(newest + 1, epoch) if current else ():
            yield EpochRecord(between, created, current, between)
        ids = list(segments)
        made = [StreamSegmentRecord(n, low, high) for n, (low, high) in zip(ids, even_ranges(len(ids)), strict=True)]
        current, newest = replaced(current, made), epoch
        yield EpochRecord(epoch, created, current, epoch)


def scaling_policy(scaling: Scaling | None, segments: int) -> ScalingPolicy:
    """A stream's scaling policy; a fixed one if it has none. Raises ValueError if it has no counterpart."""
    if scaling is None or scaling.type is ScaleType.FIXED:
        return ScalingPolicy("fixed", scaling.segments if scaling is not None else segments)
    return ScalingPolicy(_KINDS[scaling.type], scaling.segments, scaling.rate, scaling.factor)


def retention_policy(retention: Retention | None) -> RetentionPolicy | None:
    """A stream's retention policy. Raises ValueError if it has no counterpart."""
    if retention is None:
        return None
    kind: Literal["time", "size"] = "time" if retention.type is RetentionType.TIME else "size"
    return RetentionPolicy(kind, retention.least, retention.most)


def _policies(
    configuration: StreamConfiguration | None, segments: int, unknown: list[str]
) -> tuple[ScalingPolicy, RetentionPolicy | None]:
    """A stream's policies, as far as they have a counterpart; the others go to `unknown`."""
    if configuration is None:
        unknown.append("its policies and tags are not known")
        return ScalingPolicy(), None
    scaling, retention = scaling_policy(None, segments), None
    try:
        scaling = scaling_policy(configuration.scaling, segments)
    except ValueError as error:
        unknown.append(f"its scaling policy has no counterpart: {error}")
    try:
        retention = retention_policy(configuration.retention)
    except ValueError as error:
        unknown.append(f"its retention policy has no counterpart: {error}")
    return scaling, retention
