"""The steps of jobs, each for one stream. A step that raises fails (see `spread`)."""

from __future__ import annotations

from pravega_spark.console.advice import why_kept
from pravega_spark.jobs.outcome import SCALING, JobOutcome
from pravega_spark.quantities import counted, duration_text, moment_text, plural
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.maintenance import retention, scaling
from pravega_spark.streams.maintenance.scaling import COOL_DOWN
from pravega_spark.streams.maintenance.truncation import Truncation, truncation
from pravega_spark.streams.model.cuts import positions_text
from pravega_spark.streams.model.epochs import Comparison
from pravega_spark.streams.reading.stream_position import StreamPosition, cut_to_truncate
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import transactions


def retain(stream: Stream, dry_run: bool, period: float) -> JobOutcome:
    """Apply the stream's retention policy."""
    found = retention.retain(stream, period=period, dry_run=dry_run, refresh=False)
    if found.removed is not None:
        return _truncated(stream, "retention", found.removed, dry_run)
    recorded = "would record" if dry_run else "recorded"
    detail = f"{recorded} {positions_text(found.recorded)}; " if found.recorded else ""
    changed = found.recorded is not None
    return JobOutcome(stream.scope, stream.name, "retention", changed, detail=f"{detail}{why_kept(found)}")


def _truncated(stream: Stream, step: str, found: Truncation, dry_run: bool) -> JobOutcome:
    detail, head = f"{_did('truncate', dry_run)} at {positions_text(found.cut)}", found.head.as_text()
    return JobOutcome(stream.scope, stream.name, step, True, found.bytes, detail, events=found.events, old_head=head)


def scale(stream: Stream, dry_run: bool) -> JobOutcome:
    """Apply the stream's scaling policy."""
    found = (scaling.planned if dry_run else scaling.scale)(stream, refresh=False)
    if found is None:
        return JobOutcome(stream.scope, stream.name, SCALING, detail=_too_young(scaling.too_young(stream)))
    sealed = ", ".join(map(segment_label, found.sealed))
    what = f"{_did('replace', dry_run)} {plural('segment', len(found.sealed))}"
    ranges = ", ".join(f"{low:.6g} to {high:.6g}" for low, high in found.ranges)
    detail = f"{what} {sealed} by those of keys {ranges}"
    return JobOutcome(stream.scope, stream.name, SCALING, True, 0, detail)


def _too_young(found: scaling.TooYoung | None) -> str:
    """Which segments are overloaded, and when the policy may split them; "" if there are none."""
    if found is None:
        return ""
    unit = "KiB" if found.policy.kind == "bytes" else "events"
    rates = [
        f"{segment_label(one.segment.id)} ({one.rate:.6g} {unit}/s in the last {counted(one.minutes, 'minute')})"
        for one in found.overloaded
    ]
    return (
        f"overloaded but too young to be split: {plural('segment', len(rates))} {', '.join(rates)}; the target is "
        f"{found.policy.target_rate:,} {unit}/s. Rates are judged when the segments are "
        f"{duration_text(COOL_DOWN / 1000)} old, at {moment_text(found.judged_at)}"
    )


def _did(verb: str, dry_run: bool) -> str:
    """The past tense of a verb, or for a dry run "would" and the verb. verb: such as `truncate` or `abort`."""
    return f"would {verb}" if dry_run else f"{verb.removesuffix('e')}ed"


def expire(stream: Stream, dry_run: bool) -> JobOutcome:
    """Abort transactions whose lease has expired."""
    if dry_run:
        known = list(transactions.transactions(stream, refresh=False))
        now = int(stream.container.storage_clock.reported() * 1000) if known else 0
        found = [one for one, record in known if record.expired(now)]
    else:
        found = transactions.expire(stream, refresh=False)
    detail = f"{_did('abort', dry_run)}: {', '.join(str(one.id) for one in found)}" if found else ""
    return JobOutcome(stream.scope, stream.name, "transactions", bool(found), 0, detail)


def truncate(stream: Stream, dry_run: bool, place: StreamPosition) -> JobOutcome:
    """Truncate the stream at a position."""
    snapshot = stream.snapshot()
    wanted = cut_to_truncate(place, snapshot)
    snapshot.check(wanted)
    head, history = snapshot.head_cut(), snapshot.record.history
    if wanted == head or history.compare(wanted.positions, head.positions) is not Comparison.EQUAL_OR_AFTER:
        detail = f"nothing lies before {positions_text(wanted)}"
        return JobOutcome(stream.scope, stream.name, "truncation", detail=detail)
    found = truncation(snapshot, wanted)
    if not dry_run:
        stream.truncate(wanted)
    return _truncated(stream, "truncation", found, dry_run)
