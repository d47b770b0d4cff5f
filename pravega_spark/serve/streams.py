"""Requests about streams (Pravega: StreamMetadataResourceImpl), and those of ours: what a stream holds, cuts of times,
truncation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pravega_spark.client.manager import StreamInfo
from pravega_spark.segment_ids import segment_epoch, segment_number
from pravega_spark.serve import policies
from pravega_spark.serve.failures import Refusal
from pravega_spark.serve.replies import Answer, Call, Reply, streamed_list
from pravega_spark.serve.schemas import Unfit
from pravega_spark.serve.service import Service
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import EpochRecord, StreamSegmentRecord, overlapping
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.model.stream_record import UNCHANGED, StreamRecord, Unchanged
from pravega_spark.streams.reading.snapshot import Snapshot


def list_streams(service: Service, call: Call) -> Answer:
    """The streams of a scope, by their names: all, or those with a tag. Pravega's internal streams do not exist."""
    scope, kind, tag = call.path["scopeName"], call.query.get("filter_type"), call.query.get("filter_value")
    service.catalog.check_scope(scope)
    if kind == "showInternalStreams":
        return Reply(200, {"streams": []})

    def found(snapshot: Snapshot) -> dict[str, Any] | None:
        record = snapshot.record
        wanted = kind != "tag" or tag is None or tag in record.tags
        return policies.stream_property(scope, snapshot.stream.name, record) if wanted else None

    def damaged(name: str, error: Exception) -> None:
        """Such a stream is in the status of the root, among its problems."""

    streams = service.catalog.query(scope, found, damaged)
    return streamed_list("streams", (each for each in streams if each is not None))


def create_stream(service: Service, call: Call) -> Reply:
    """Create a stream."""
    scope, name, body = call.path["scopeName"], call.body["streamName"], call.body
    scaling = policies.scaling_of(body["scalingPolicy"]) if "scalingPolicy" in body else None
    retention = policies.retention_of(body["retentionPolicy"]) if "retentionPolicy" in body else None
    if not service.manager.create_stream_with_policy(scope, name, scaling, retention, policies.tags_of(body)):
        raise Refusal(409, "StreamExists", f"Stream exists already: {scope}/{name}")
    return _property(service, scope, name, 201, body)


def get_stream(service: Service, call: Call) -> Reply:
    """The policies and tags of a stream."""
    return _property(service, call.path["scopeName"], call.path["streamName"], 200)


def update_stream(service: Service, call: Call) -> Reply:
    """Give a stream other policies and tags. As in Pravega: without retentionPolicy and streamTags it has none then."""
    (scope, name), body = _names(call), call.body
    manager = service.manager
    scaling: ScalingPolicy | Unchanged = UNCHANGED
    if "scalingPolicy" in body:
        scaling = policies.scaling_of(body["scalingPolicy"])
    retention = policies.retention_of(body["retentionPolicy"]) if "retentionPolicy" in body else None
    manager.update_stream_with_policy(scope, name, scaling, retention, policies.tags_of(body) or ())
    return _property(service, scope, name, 200, body)


def delete_stream(service: Service, call: Call) -> Reply:
    """Delete a sealed stream."""
    service.manager.delete_stream(*_names(call))
    return Reply(204)


def update_state(service: Service, call: Call) -> Reply:
    """Seal a stream."""
    service.manager.seal_stream(*_names(call))
    return Reply(200, {"streamState": call.body["streamState"]})


def scaling_events(service: Service, call: Call) -> Reply:
    """The epochs of a stream that began in a period, after the one that there was at its beginning. `splits` and
    `merges` count the segments of the one before that were split, and the new ones that merge several."""
    begin, end = call.query["from"], call.query["to"]
    if begin > end:
        raise Unfit(f"from must not be after to: {begin} is after {end}")
    record = service.stream(*_names(call)).snapshot().record
    before = [epoch for epoch in record.epochs if epoch.created < begin]
    chosen = [*before[-1:], *(epoch for epoch in record.epochs if begin <= epoch.created <= end)]
    return Reply(200, {"scalingEvents": list(_scalings(record, chosen))})


def stream_info(service: Service, call: Call) -> Reply:
    """What a stream holds: its size, events, head, tail, open segments and subscribers."""
    info = service.manager.stream_info(*_names(call))
    return Reply(200, _info(info))


def cut_at(service: Service, call: Call) -> Reply:
    """The stream cut before the first event that was written at a time, or later."""
    return Reply(200, cut_json(service.manager.stream_cut_at(*_names(call), call.query["time"])))


def next_cut(service: Service, call: Call) -> Reply:
    """A cut about so many bytes behind another."""
    names = _names(call)
    return Reply(200, cut_json(service.manager.next_stream_cut(*names, call.query["from"], call.query["bytes"])))


def truncate(service: Service, call: Call) -> Reply:
    """Delete the events before a cut. Answers with the head of the stream."""
    names = _names(call)
    service.manager.truncate_stream(*names, call.body["streamCut"])
    return Reply(200, cut_json(service.stream(*names).snapshot().head_cut()))


def cut_json(cut: StreamCut) -> dict[str, Any]:
    """A cut: its text, and its positions by segment, as 2.1."""
    return {"streamCut": cut.as_text(), "positions": {str(number): at for number, at in cut.positions.items()}}


def _names(call: Call) -> tuple[str, str]:
    return call.path["scopeName"], call.path["streamName"]


def _property(service: Service, scope: str, name: str, status: int, body: Mapping[str, Any] | None = None) -> Reply:
    """A stream as it is now. body: of the request, of which some members have no effect."""
    ignored = policies.without_effect(body or {})
    warning = {"Warning": f'299 - "without effect here: {", ".join(ignored)}"'} if ignored else {}
    record = service.stream(scope, name).snapshot().record
    return Reply(status, policies.stream_property(scope, name, record), warning)


def _scalings(record: StreamRecord, epochs: Sequence[EpochRecord]) -> Iterator[dict[str, Any]]:
    created = {epoch.epoch: epoch.created for epoch in record.epochs}
    previous: Sequence[StreamSegmentRecord] = ()
    for epoch in epochs:
        yield {
            "timestamp": epoch.created,
            "segmentList": [_segment(each, created) for each in epoch.segments],
            "splits": _overlapped(previous, epoch.segments),
            "merges": _overlapped(epoch.segments, previous),
        }
        previous = epoch.segments


def _overlapped(segments: Sequence[StreamSegmentRecord], others: Sequence[StreamSegmentRecord]) -> int:
    """How many segments overlap several others."""
    return sum(len(overlapping(others, each)) > 1 for each in segments)


def _segment(segment: StreamSegmentRecord, created: Mapping[int, int]) -> dict[str, Any]:
    return {
        "number": segment_number(segment.id),
        "startTime": created.get(segment_epoch(segment.id), 0),
        "keyStart": segment.low,
        "keyEnd": segment.high,
    }


def _info(info: StreamInfo) -> dict[str, Any]:
    created = {epoch.epoch: epoch.created for epoch in info.epochs}
    return {
        "scopeName": info.scope,
        "streamName": info.stream,
        "sealed": info.sealed,
        "bytes": info.size,
        "events": info.events,
        "head": cut_json(info.head),
        "tail": cut_json(info.tail),
        "segments": [] if info.sealed else [_segment(each, created) for each in info.segments],
        "subscribers": {name: found._asdict() for name, found in info.subscribers.items()},
    }
