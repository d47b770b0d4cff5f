"""What jobs do to one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pravega_spark.jobs.outcome import JobOutcome
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams import retention, scaling, transactions
from pravega_spark.streams.cuts import positions_text
from pravega_spark.streams.epochs import Comparison
from pravega_spark.streams.places import Place, cut_to_truncate
from pravega_spark.streams.stream import Stream


def guarded(stream: Stream, step: str, done: Callable[[], JobOutcome]) -> JobOutcome:
    """An outcome, whatever happens."""
    try:
        return done()
    except Exception as error:
        return JobOutcome.failed(stream.scope, stream.name, step, error)


def retain(stream: Stream, dry_run: bool, period: float) -> Iterator[JobOutcome]:
    """Let its retention policy truncate it."""

    def done() -> JobOutcome:
        found = retention.retain(stream, period=period, dry_run=dry_run, refresh=False)
        detail = f"{_did('truncate', dry_run)} at {positions_text(found.truncated)}" if found.truncated else ""
        if found.recorded is not None and not detail:
            detail = f"recorded {positions_text(found.recorded)}"
        changed = found.truncated is not None
        return JobOutcome(stream.scope, stream.name, "retention", changed, found.bytes, detail)

    yield guarded(stream, "retention", done)


def scale(stream: Stream, dry_run: bool) -> Iterator[JobOutcome]:
    """Let its scaling policy scale it."""

    def done() -> JobOutcome:
        found = scaling.planned(stream) if dry_run else scaling.scale(stream)
        detail = ""
        if found is not None:
            sealed = ", ".join(map(segment_label, found.sealed))
            detail = f"{_did('replace', dry_run)} segments {sealed} by those of keys {_ranges_text(found.ranges)}"
        return JobOutcome(stream.scope, stream.name, "scaling", found is not None, 0, detail)

    yield guarded(stream, "scaling", done)


def _did(verb: str, dry_run: bool) -> str:
    """What was done, or what a dry run would do. verb: its base."""
    return f"would {verb}" if dry_run else f"{verb.removesuffix('e')}ed"


def _ranges_text(ranges: Iterable[tuple[float, float]]) -> str:
    return ", ".join(f"{low:.6g} to {high:.6g}" for low, high in ranges)


def expire(stream: Stream, dry_run: bool) -> Iterator[JobOutcome]:
    """Abort transactions that nobody pinged."""

    def done() -> JobOutcome:
        if dry_run:
            now = int(stream.container.storage_clock.now() * 1000)
            found = [one for one, record in transactions.transactions(stream) if record.expired(now)]
        else:
            found = transactions.expire(stream)
        detail = f"{_did('abort', dry_run)}: {', '.join(str(one.id) for one in found)}" if found else ""
        return JobOutcome(stream.scope, stream.name, "transactions", bool(found), 0, detail)

    yield guarded(stream, "transactions", done)


def truncate(stream: Stream, dry_run: bool, place: Place) -> Iterator[JobOutcome]:
    """Truncate it at a place."""

    def done() -> JobOutcome:
        snapshot = stream.snapshot()
        wanted = cut_to_truncate(place, snapshot)
        snapshot.check(wanted)
        head, history = snapshot.head_cut(), snapshot.record.history
        if wanted == head or history.compare(wanted.positions, head.positions) is not Comparison.EQUAL_OR_AFTER:
            return JobOutcome(stream.scope, stream.name, "truncation", detail="already truncated there")
        size = history.size(head.positions, wanted.positions, snapshot.segments.length)
        if not dry_run:
            stream.truncate(wanted)
        return JobOutcome(
            stream.scope,
            stream.name,
            "truncation",
            True,
            size,
            f"{_did('truncate', dry_run)} at {positions_text(wanted)}",
        )

    yield guarded(stream, "truncation", done)
