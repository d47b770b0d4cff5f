"""`stream`: the life of streams, their policies and cuts. Their events: see `events`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from chunkstore.errors import fact_of
from chunkstore.similarity import suggest
from engine.errors import DataCorruption, did_you_mean
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.advice import as_given, why_kept
from pravega_spark.console.arguments import (
    MillisecondsType,
    Moment,
    MomentType,
    PlaceType,
    ScopeType,
    SegmentIdType,
    SizeType,
    StreamName,
    change_options,
    storage_option,
    stream_argument,
)
from pravega_spark.console.jobs import RETENTION, TRUNCATE
from pravega_spark.console.output import Column, Headings, id_column, moment, size_column
from pravega_spark.console.program import Refused
from pravega_spark.errors import StreamNotSealed
from pravega_spark.quantities import counted, duration_text, moment_text, size_text
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut, positions_text
from pravega_spark.streams.reading.stream_position import Place, PlaceLike, cut_at, cut_to_truncate

if TYPE_CHECKING:
    from pravega_spark.client.manager import StreamInfo, StreamManager
    from pravega_spark.streams.maintenance.retention import Retained
    from pravega_spark.streams.model.epochs import StreamSegmentRecord
    from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
    from pravega_spark.streams.model.stream_record import StreamRecord
    from pravega_spark.streams.reading.snapshot import Snapshot
    from pravega_spark.streams.stream import Stream
    from pravega_spark.streams.writing.transactions import OpenTransaction


@click.group()
def stream() -> None:
    """Create, inspect, write, read, scale and delete streams."""


# --- their life ---------------------------------------------------------------------------------------------------


@stream.command()
@stream_argument
@click.option(
    "--segments", type=click.IntRange(min=1), default=1, show_default=True, help="Initial number of segments."
)
@click.option("--scale-kib", type=click.IntRange(min=1), help="Split a segment above this rate, in KiB per second.")
@click.option(
    "--scale-events", type=click.IntRange(min=1), help="Split a segment above this rate, in events per second."
)
@click.option(
    "--scale-factor",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Number of segments that a split makes.",
)
@click.option("--retain-size", type=SizeType(min=1), help="Keep at least this much, such as 10GiB.")
@click.option("--retain-time", type=MillisecondsType(min=1), help="Keep events at least so long, such as 7d.")
@click.option("--tag", "tags", multiple=True, help="Tag of the stream. Repeatable.")
@pass_session
def create(
    session: Session,
    name: StreamName,
    segments: int,
    scale_kib: int | None,
    scale_events: int | None,
    scale_factor: int,
    retain_size: int | None,
    retain_time: int | None,
    tags: tuple[str, ...],
) -> None:
    """Create a stream in an existing scope.

    A stream that exists stays as it is; what would be different is told, and how to change it.
    """
    scaling = _scaling(segments, scale_kib, scale_events, scale_factor)
    retention = _retention(retain_size, retain_time)
    manager = session.manager
    created = manager.create_stream_with_policy(*name, scaling, retention, tags)
    ignored = (
        [] if created else list(_not_applied(name, _the(session, name).snapshot().record, scaling, retention, tags))
    )
    session.output.document({"stream": str(name), "created": created, "not_applied": ignored})
    session.output.line(f"stream {name} was created" if created else f"stream {name} exists already")
    for line in ignored:
        session.output.warning(line)


def _scaling(segments: int, kib: int | None, events: int | None, factor: int) -> ScalingPolicy:
    from pravega_spark.streams.model.policies import ScalingPolicy

    if kib is not None and events is not None:
        raise click.UsageError("Give --scale-kib or --scale-events, not both.")
    if kib is not None:
        return ScalingPolicy.auto_scaling_policy_by_data_rate(kib, factor, segments)
    if events is not None:
        return ScalingPolicy.auto_scaling_policy_by_event_rate(events, factor, segments)
    return ScalingPolicy.fixed_scaling_policy(segments)


def _retention(size: int | None, milliseconds: int | None) -> RetentionPolicy | None:
    from pravega_spark.streams.model.policies import RetentionPolicy

    if size is not None and milliseconds is not None:
        raise click.UsageError("Give --retain-size or --retain-time, not both.")
    if size is not None:
        return RetentionPolicy.by_size(size)
    return RetentionPolicy.by_time(milliseconds) if milliseconds is not None else None


def _not_applied(
    name: StreamName,
    record: StreamRecord,
    scaling: ScalingPolicy,
    retention: RetentionPolicy | None,
    tags: tuple[str, ...],
) -> Iterator[str]:
    """What was asked for of a stream that exists and is otherwise, and how to change it; what was not given is not."""
    context = click.get_current_context()

    def given(*options: str) -> bool:
        return any(context.get_parameter_source(each) is ParameterSource.COMMANDLINE for each in options)

    segments, update = len(record.current.segments), as_given(f"`pravega-spark stream update {name}`")
    if given("segments") and scaling.min_segments != segments:
        how = as_given(f"`pravega-spark stream scale {name} --segments {scaling.min_segments}`")
        yield f"not applied: --segments {scaling.min_segments}. It has {segments}: {how} replaces them"
    if given("scale_kib", "scale_events", "scale_factor") and scaling != record.scaling:
        yield f"not applied: its scaling policy is: {scaling_text(record.scaling)}. {update} changes it"
    if retention is not None and retention != record.retention:
        yield f"not applied: its retention policy is: {retention_text(record.retention)}. {update} changes it"
    if tags and tags != tuple(record.tags):
        yield f"not applied: its tags are: {', '.join(record.tags) or 'none'}. {update} changes them"


@stream.command("list")
@click.argument("scope", type=ScopeType(), required=False)
@pass_session
def list_(session: Session, scope: str | None) -> None:
    """List the streams of SCOPE, or of all scopes."""
    manager = session.manager
    problems: list[DataCorruption] = []
    infos = session.in_scopes(scope, lambda each: manager.stream_infos(each, lambda _, error: problems.append(error)))
    rows = [_row(StreamName(info.scope, info.stream), info) for _, info in infos]
    unreadable = {"unreadable": [fact_of(error) for error in problems]} if problems else {}
    session.output.document({"streams": rows, **unreadable})
    session.output.table(_LISTED, rows)
    for error in problems:
        session.output.warning(fact_of(error))
    if problems:
        raise Refused(f"{counted(len(problems), 'stream')} cannot be listed")


def _row(name: StreamName, info: StreamInfo) -> dict[str, Any]:
    return {
        "stream": str(name),
        "segments": len(info.segments),
        "events": info.events,
        "bytes": info.size,
        "sealed": info.sealed,
    }


@stream.command()
@stream_argument
@pass_session
def describe(session: Session, name: StreamName) -> None:
    """Show everything about a stream."""
    manager = session.manager
    info, record = manager.stream_info(*name), _the(session, name).snapshot().record
    row = _row(name, info) | {
        "epochs": len(info.epochs),
        "created": moment(record.created),
        "scaling": scaling_row(record),
        "retention": retention_row(record.retention),
        "tags": list(record.tags),
        "head": cut_row(info.head),
        "tail": cut_row(info.tail),
        "transactions": [str(each.id) for each in _open_transactions(session, name)],
        "subscribers": {name: behind._asdict() for name, behind in info.subscribers.items()},
        "unplaced": dict(info.unplaced),
        "current": [
            {**_segment_row(segment), "name": _segment_name(name, segment.id), "low": segment.low, "high": segment.high}
            for segment in info.segments
        ],
    }
    if record.unknown:
        row["unknown"] = list(record.unknown)
    session.output.document({"stream": row})
    flat = row | {
        "scaling": scaling_text(record.scaling),
        "retention": retention_text(record.retention),
        "tags": ", ".join(record.tags) or None,
        "created": moment_text(record.created),
    }
    session.output.properties(flat, _DESCRIBED)
    for transaction in row["transactions"]:
        session.output.line(f"open transaction {transaction}")
    for reader, behind in info.subscribers.items():
        session.output.line(f"subscriber {reader}: {behind}")
    for reader, problem in info.unplaced.items():
        session.output.line(f"the position of {reader} does not fit, so retention keeps all events: {problem}")
    for text in record.unknown:
        session.output.line(f"not known: {text}")
    _print_cuts(session, [("head", info.head), ("tail", info.tail)])
    session.output.line("")
    places = [{**each, "tail": info.tail.positions.get(each["id"])} for each in row["current"]]
    session.output.table(_SEGMENTS, places, title="newest segments, all sealed" if info.sealed else "open segments")


def _open_transactions(session: Session, name: StreamName) -> list[OpenTransaction]:
    from pravega_spark.streams.writing.transactions import open_transactions

    return list(open_transactions(_the(session, name).container, f"{name}/"))


def _segment_row(segment: StreamSegmentRecord) -> dict[str, Any]:
    return {"id": segment.id, "segment": segment_label(segment.id)}


def scaling_text(policy: ScalingPolicy) -> str:
    if policy.kind == "fixed":
        return "fixed"
    rate = (
        f"{size_text(policy.target_rate * 1024)}/s"
        if policy.kind == "bytes"
        else f"{counted(policy.target_rate, 'event')}/s"
    )
    return f"segments above {rate} are split into {policy.scale_factor}; at least {policy.min_segments}"


def retention_text(policy: RetentionPolicy | None) -> str:
    if policy is None:
        return "none: everything is kept"
    limits = [f"at least {_limit_text(policy.kind, policy.limit)}"]
    limits += [f"at most {_limit_text(policy.kind, policy.maximum)}"] if policy.maximum is not None else []
    return ", ".join(limits)


def _limit_text(kind: str, limit: int) -> str:
    return size_text(limit) if kind == "size" else duration_text(limit / 1000)


def _the(session: Session, name: StreamName) -> Stream:
    return session.catalog.stream(*name)


def _segment_name(name: StreamName, number: int) -> str:
    from pravega_spark.streams.model.names import segment_name

    return segment_name(*name, number)


def scaling_row(record: StreamRecord) -> dict[str, Any]:
    scaling = record.scaling
    return {
        "kind": scaling.kind,
        "min_segments": scaling.min_segments,
        "target_rate": scaling.target_rate,
        "factor": scaling.scale_factor,
    }


def cut_row(cut: StreamCut) -> dict[str, Any]:
    """A stream cut in a document."""
    return {"cut": cut.as_text(), "positions": {str(number): at for number, at in cut.positions.items()}}


@stream.command()
@stream_argument
@click.argument("subscriber")
@change_options
@pass_session
def unsubscribe(session: Session, name: StreamName, subscriber: str, dry_run: bool, yes: bool) -> None:
    """Remove a subscriber that retention waits for.

    SUBSCRIBER is a query or reader group that runs no more, as `stream describe` names it.
    """
    from pravega_spark.streams.maintenance.subscribers import subscriber_names

    behind: object = "its released cut cannot be understood"
    with suppress(DataCorruption):
        behind = session.manager.stream_info(*name).subscribers.get(subscriber, "its released cut is of another stream")
    there = subscriber_names(_the(session, name))
    if subscriber not in there:
        similar = did_you_mean(suggest(subscriber, there))
        raise Refused(
            f"{subscriber} is no subscriber of stream {name}, which has {', '.join(there) or 'none'}.{similar}"
        )
    session.confirm(
        yes,
        f"This would remove subscriber {subscriber} of stream {name} ({behind}): retention would not wait for it.",
        dry_run=dry_run,
    )
    session.manager.remove_subscriber(*name, subscriber)
    session.output.document({"stream": str(name), "subscriber": subscriber})
    session.output.line(f"{subscriber} was removed from stream {name}")


@stream.command("rebuild-index")
@stream_argument
@pass_session
def rebuild_index(session: Session, name: StreamName) -> None:
    """Make wrong indexes of a stream again from its events.

    For an index that `verify` names: counts of events, cuts by time and split reads are right again. Indexes that are
    right are left as they are. Reads all of the stream. Other processes may use it meanwhile.
    """
    from pravega_spark.streams.maintenance.index_repair import rebuild_indexes

    rebuilt = rebuild_indexes(_the(session, name))
    session.output.document({"stream": str(name), "rebuilt": len(rebuilt)})
    for segment, before, events in rebuilt:
        what = f"{counted(before, 'event')} counted before, {counted(events, 'event')} now"
        session.output.line(f"stream {name}: the index of segment {segment_label(segment)} was made again: {what}")
    if not rebuilt:
        session.output.line(f"stream {name}: all indexes are right")


@stream.command()
@stream_argument
@change_options
@pass_session
def seal(session: Session, name: StreamName, dry_run: bool, yes: bool) -> None:
    """Seal a stream: it can be read, but never written again."""
    manager = session.manager
    info = manager.stream_info(*name)
    if not info.sealed:
        session.confirm(
            yes,
            f"This would seal stream {name} ({counted(info.events, 'event')}) permanently: it could still be read "
            "and deleted, but not written, scaled or truncated.",
            dry_run=dry_run,
        )
        manager.seal_stream(*name)
    session.output.document({"stream": str(name), "sealed": True, "before": info.sealed})
    session.output.line(f"stream {name} was sealed" if not info.sealed else f"stream {name} is sealed already")


@stream.command()
@stream_argument
@change_options
@click.option("--seal", "seal_first", is_flag=True, help="Seal the stream first, if it is not sealed.")
@pass_session
def delete(session: Session, name: StreamName, dry_run: bool, yes: bool, seal_first: bool) -> None:
    """Delete a sealed stream with all its data."""
    manager = session.manager
    if (unreadable := _the(session, name).unreadable()) is not None:
        session.confirm(
            yes,
            f"This would delete stream {name} with all its data, of which what is kept cannot be understood: "
            f"{fact_of(unreadable.error)}",
            dry_run=dry_run,
        )
        manager.delete_stream(*name)
        session.output.document({"stream": str(name), "deleted": {}})
        session.output.line(f"stream {name} was deleted: nobody knows what it held")
        return
    info = manager.stream_info(*name)
    if not (info.sealed or seal_first):
        raise StreamNotSealed(str(name))
    segments = _the(session, name).snapshot().record.segment_ids()
    gone = {"events": info.events, "bytes": info.size, "segments": len(segments)}
    session.confirm(yes, f"This would delete stream {name}: {_counted(gone)}.", dry_run=dry_run)
    if not info.sealed:
        manager.seal_stream(*name)
    manager.delete_stream(*name)
    session.output.document({"stream": str(name), "deleted": gone})
    session.output.line(f"stream {name} was deleted: {_counted(gone)}")


def _counted(gone: dict[str, int]) -> str:
    return ", ".join(
        size_text(count) if what == "bytes" else counted(count, what.removesuffix("s")) for what, count in gone.items()
    )


# --- where they begin, and how they are divided -------------------------------------------------------------------


@stream.command(help=TRUNCATE.help)
@stream_argument
@TRUNCATE.with_options
@change_options
@pass_session
def truncate(session: Session, name: StreamName, at: Place, dry_run: bool, yes: bool) -> None:
    from pravega_spark.streams.maintenance.truncation import truncation

    found = _the(session, name).query(lambda snapshot: truncation(snapshot, cut_to_truncate(at, snapshot)))
    session.confirm(yes, f"This would delete from stream {name}: {found}.", dry_run=dry_run)
    session.manager.truncate_stream(*name, found.cut)
    gone = {"events": found.events, "bytes": found.bytes}
    session.output.document({"stream": str(name), "truncated": gone, "head": cut_row(found.cut)})
    session.output.line(f"stream {name} was truncated: {found}")


@stream.command(help=RETENTION.help)
@stream_argument
@RETENTION.with_options
@change_options
@pass_session
def retain(session: Session, name: StreamName, dry_run: bool, period: float | None, yes: bool) -> None:
    manager = session.manager
    session.root.check_writable()
    policy = _the(session, name).snapshot().record.retention
    figures = [] if policy is None else _the(session, name).query(lambda it: list(_retention_figures(it, policy)))
    done = manager.retain(*name, period=period, dry_run=True)
    if not dry_run and (done.recorded or done.truncated):
        session.confirm(yes, *figures, *_retained(done, "would be"))
        done = manager.retain(*name, period=period)
    row = {
        "recorded": done.recorded.as_text() if done.recorded is not None else None,
        "truncated": done.truncated.as_text() if done.truncated is not None else None,
        "bytes": done.bytes,
        "why": done.why or None,
    }
    session.output.document(
        {"stream": str(name), "dry_run": dry_run, "retained": row, "retention": retention_row(policy)}
    )
    for line in (*figures, *_retained(done, "would be" if dry_run else "was")):
        session.output.line(line)


def _retained(done: Retained, would: str) -> Iterator[str]:
    """What applying a policy did, or would do."""
    what = f"nothing {would} truncated: {why_kept(done)}"
    yield f"{would} truncated: {done.removed}" if done.removed else what
    if done.recorded is not None:
        yield f"a stream cut {would} recorded: {positions_text(done.recorded)}"


def _retention_figures(snapshot: Snapshot, policy: RetentionPolicy) -> Iterator[str]:
    """What retention of a stream is decided by."""
    from pravega_spark.streams.maintenance.recorded_cuts import RecordedCuts
    from pravega_spark.streams.reading.lag import lag

    behind = lag(snapshot, snapshot.head_cut())
    age = f", the oldest {duration_text(round(behind.seconds))} old" if behind.events else ""
    yield f"stream {snapshot.stream.key} has {counted(behind.events, 'event')}, {size_text(behind.bytes)}{age}"
    yield f"it keeps {retention_text(policy)}"
    times = [recorded.time for recorded, _ in RecordedCuts(snapshot).all()]
    if not times:
        yield "no stream cut is recorded now: upkeep and this command record one each period"
    else:
        since = f"from {moment_text(times[0])} to" if len(times) > 1 else "at"
        yield f"{counted(len(times), 'stream cut')} recorded, {since} {moment_text(times[-1])}"


def retention_row(policy: RetentionPolicy | None) -> dict[str, Any] | None:
    return None if policy is None else {"kind": policy.kind, "limit": policy.limit}


@stream.command()
@stream_argument
@click.option(
    "--segments", type=click.IntRange(min=1), help="Replace all segments by this many, with equal key ranges."
)
@click.option(
    "--seal",
    "sealed",
    type=SegmentIdType(),
    multiple=True,
    metavar="SEGMENT",
    help="Segment to replace: 2.1 (segment 2 of epoch 1), or its id. Repeatable.",
)
@click.option(
    "--range",
    "ranges",
    type=(click.FloatRange(0, 1), click.FloatRange(0, 1)),
    multiple=True,
    metavar="LOW HIGH",
    help="Key range (0 to 1) of a new segment. Repeatable.",
)
@pass_session
def scale(
    session: Session,
    name: StreamName,
    segments: int | None,
    sealed: tuple[int, ...],
    ranges: tuple[tuple[float, float], ...],
) -> None:
    """Replace segments by others with the same key ranges.

    Replace all of them with --segments, or those given by --seal with those described by --range.
    """
    from pravega_spark.streams.model.routing import even_ranges
    from pravega_spark.streams.model.stream_record import check_segments

    if (segments is None) == (not (sealed and ranges)) or (segments is not None and (sealed or ranges)):
        raise click.UsageError("Give either --segments, or --seal and --range, each once or more.")
    manager = session.manager
    before = manager.stream_info(*name)
    old = [segment.id for segment in before.segments] if segments is not None else list(sealed)
    check_segments(str(name), segments or len(ranges), session.root.config.max_segments)
    new = even_ranges(segments) if segments is not None else list(ranges)
    manager.scale_stream(*name, old, new)
    now = manager.stream_info(*name)
    rows = [{**_segment_row(segment), "low": segment.low, "high": segment.high} for segment in now.segments]
    session.output.document({"stream": str(name), "sealed": old, "epoch": now.epochs[-1].epoch, "current": rows})
    session.output.line(
        f"stream {name} was scaled from {len(before.segments)} to {counted(len(now.segments), 'segment')}"
    )
    session.output.table({key: column for key, column in _SEGMENTS.items() if key in rows[0]}, rows)


@stream.command()
@stream_argument
@click.option(
    "--at",
    "moments",
    type=MomentType(),
    multiple=True,
    metavar="TIME",
    help="List the cut before the first event written at this time or later. Repeatable.",
)
@pass_session
def cuts(session: Session, name: StreamName, moments: tuple[Moment, ...]) -> None:
    """List the stream cuts of head, tail and given times."""
    manager = session.manager
    info = manager.stream_info(*name)
    found = [(moment(at) or "0", at.ago, manager.stream_cut_at(*name, at)) for at in moments]
    found = [("head", "", info.head), *found, ("tail", "", info.tail)]
    session.output.document({"stream": str(name), "cuts": [{"at": at, **cut_row(cut)} for at, _, cut in found]})
    _print_cuts(session, [(f"{ago} ({at})" if ago else at, cut) for at, ago, cut in found])


def _print_cuts(session: Session, cuts: Sequence[tuple[str, StreamCut]]) -> None:
    """Print cuts to be copied, each once, with all that it is the cut of."""
    names: dict[str, list[str]] = {}
    for name, cut in cuts:
        names.setdefault(f"{positions_text(cut)}\n{cut.as_text()}", []).append(name)
    for told, called in names.items():
        positions, text = told.split("\n")
        session.output.copied(f"{', '.join(called)}: {positions}", text)


@stream.command()
@stream_argument
@click.option("--checkpoint", metavar="DIR", help="The checkpointLocation of a Spark query that reads the stream.")
@click.option("--group", metavar="NAME", help="A reader group, of the stream's scope.")
@click.option("--from", "place", type=PlaceType(), help="Any place instead of a reader.")
@storage_option("--elsewhere", "the checkpoint's")
@pass_session
def lag(
    session: Session,
    name: StreamName,
    checkpoint: str | None,
    group: str | None,
    place: Place | None,
    options: dict[str, object],
) -> None:
    """Show how far a reader is behind the tail.

    The reader is a Spark query, by its checkpoint, or a reader group; --from takes any position instead.
    """
    from pravega_spark.client.groups.positions import group_cuts
    from pravega_spark.source.checkpoint import query_position

    if sum(found is not None for found in (checkpoint, group, place)) != 1:
        raise click.UsageError("Give one of --checkpoint, --group and --from.")
    manager = session.manager
    if checkpoint is not None:
        cut = query_position(checkpoint, *name, options)
    elif place is not None:
        cut = _the(session, name).query(lambda snapshot: cut_at(place, snapshot))
    else:
        cuts = group_cuts(session.root, name.scope, str(group))
        found = [cut for cut in cuts if (cut.scope, cut.stream) == name]
        if not found:
            raise Refused(f"reader group {name.scope}/{group} does not read stream {name}")
        cut = found[0]
    behind = manager.lag(cut)
    session.output.document({"stream": str(name), "lag": behind._asdict(), "position": cut_row(cut)})
    session.output.line(f"stream {name}: {behind}")
    session.output.copied(positions_text(cut), cut.as_text())


@stream.command()
@stream_argument
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False),
    required=True,
    help="File to write: .svg or .html.",
)
@click.option("--at", "moments", type=MomentType(), multiple=True, metavar="TIME", help="Draw a cut too. Repeatable.")
@click.option("--even", is_flag=True, help="Make all epochs equally wide.")
@pass_session
def draw(session: Session, name: StreamName, path: str, moments: tuple[Moment, ...], even: bool) -> None:
    """Draw the segments of a stream over time and keys. A browser shows details of the part under the pointer."""
    from pravega_spark.picture import stream_picture

    manager = session.manager
    cuts = dict(_since(manager, name, at, moments) for at in moments)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise Refused(f"cannot write {path}: folder {folder} does not exist. Create it, or give another with -o")
    try:
        stream_picture(manager, *name, cuts=cuts, even=even).save(path)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}. Give another file with -o") from error
    session.output.document({"stream": str(name), "file": path})
    session.output.line(f"{path} shows stream {name}")


def _since(manager: StreamManager, name: StreamName, at: Moment, moments: Sequence[Moment]) -> tuple[str, PlaceLike]:
    """The cut at a time, and what it is called: with milliseconds if another of the times is in the same second, and
    as it was written if that was relative to now."""
    cut, tail = manager.stream_cut_at(*name, at), manager.stream_info(*name).tail
    shared = sum(each // 1000 == at // 1000 for each in {*moments}) > 1
    time = moment(at) if shared else moment_text(at)
    return f"{'no' if cut == tail else 'first'} event since {f'{at.ago} ({time})' if at.ago else time}", cut


_LISTED: Headings = {
    "stream": "stream",
    "segments": "segments",
    "events": "events",
    "bytes": size_column("size"),
    "sealed": "sealed",
}

_DESCRIBED: Headings = {
    **_LISTED,
    "epochs": "epochs",
    "created": "created",
    "scaling": "scaling",
    "retention": "retention",
    "tags": "tags",
}

_SEGMENTS: Headings = {
    "segment": "segment",
    "id": id_column("id"),
    "low": Column("above key", "{:.6g}".format),
    "high": Column("up to key", "{:.6g}".format),
    "tail": "tail",
    "name": Column("name", wide=True),
}
