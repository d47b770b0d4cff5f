"""The micro-batch read. Its offsets are stream cuts (see `offset`), as those of the original connector, so a query
can continue from a checkpoint of it.

A poll that finds nothing new reads one object of each container. It takes one snapshot of each stream, and uses that
throughout. The batch limits hold from the first trigger on. If a stream is deleted, or truncated before the query has
read its events, the query fails with an error that names the stream. Several streams have a position
each, and share the limits. A stream that is created later joins the offset at its head, and is read from the next batch
on. So the checkpoint has the start of each batch, and no truncation goes unnoticed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from engine.errors import SegmentNotFound, SegmentTruncated
from pravega_spark.errors import (
    CutOfDeletedStream,
    InvalidStreamCut,
    PositionLost,
    StreamDeleted,
    StreamNotFound,
    StreamRecreated,
)
from pravega_spark.source.admission import AdmissionControl, Backlog, backlog_of
from pravega_spark.source.failures import for_users
from pravega_spark.source.misplaced_checkpoints import refuse_for_new_query, refuse_for_restarted_query
from pravega_spark.source.offset import cut_of, cuts_of, id_of, progress_of, text_of
from pravega_spark.source.opening import resolve_cut
from pravega_spark.source.option_table import CUT_KEYWORDS
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.partitions import StreamRange, plan_streams, read_partition
from pravega_spark.source.selection import Selection
from pravega_spark.source.spark_api.read_limits import ReadLimit, ReadWholeBacklog, SupportsTriggerAvailableNow
from pravega_spark.source.subscription import Subscription, log_other_queries
from pravega_spark.streams.model.cuts import UNBOUNDED, StreamCut
from pravega_spark.streams.model.epochs import Comparison
from pravega_spark.streams.reading.lag import AT_TAIL, lag
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

    from pravega_spark.streams.model.stream_record import StreamRecord
    from pravega_spark.streams.values.columns import ValueColumns

logger = logging.getLogger(__name__)

T = TypeVar("T")

Snapshots = dict[str, Snapshot]
"""The streams of one poll by name, each as it was when the poll first read it."""


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams for a streaming query. Lives in one process of the driver for the whole query.

    columns: those to read, and whether each may be null; None: those of the options. values: those that are decoded
    from events.
    """

    def __init__(
        self,
        options: SourceOptions,
        columns: Mapping[str, bool] | None = None,
        values: ValueColumns | None = None,
    ) -> None:
        options.streaming_cuts()
        self._options = options
        self._columns = columns
        self._values = values
        self._selection = Selection(options, "follow")
        self._admission = AdmissionControl(options)
        self._first: dict[str, StreamCut] | None = None
        self._pinned: dict[str, StreamCut] | None = None
        self._progress: dict[str, Any] | None = None
        self._ids: dict[str, bytes] = {}  # of the streams in which the query has positions
        self._logged: set[str] = set()
        self._subscription: Subscription | None = None
        self._resumed = False
        if options.subscriber is not None:
            interval = options.release_interval / 1000
            self._subscription = Subscription(options.subscriber, interval, self._selection.stream, self._warn_once)

    @for_users
    def initialOffset(self) -> Any:
        if self._first is None:  # Spark asks twice, and the answers have to be the same
            refuse_for_new_query(self._options)
            self._first = self._retried(lambda snapshots: self._each(snapshots, self._selection.current(), self._begin))
            if self._subscription is not None:
                self._subscription.begin(self._first, anew=True)
        return self._offset({}, self._first)

    @staticmethod
    def _retried(poll: Callable[[Snapshots], T]) -> T:
        """The result of a poll, which is repeated if streams were truncated, and their chunks deleted, meanwhile."""
        before: dict[str, StreamRecord] | None = None
        while True:
            snapshots: Snapshots = {}
            try:
                return poll(snapshots)
            except (SegmentTruncated, SegmentNotFound):
                records = {name: snapshot.record for name, snapshot in snapshots.items()}
                if records == before:
                    raise
                before = records

    def _each(self, snapshots: Snapshots, names: Iterable[str], find: Callable[[str, Snapshot], T]) -> dict[str, T]:
        """The result of `find` for each stream, without the streams that were deleted."""
        found: dict[str, T] = {}
        for name in names:
            try:
                if name not in snapshots:
                    snapshots[name] = self._identified(name, self._selection.stream(name).snapshot(refresh=False))
                found[name] = find(name, snapshots[name])
            except (StreamRecreated, CutOfDeletedStream):
                if not self._options.is_multi_stream or self._options.fail_on_data_loss:
                    raise
                self._deleted(name)  # the new stream of this name joins at its head
            except StreamNotFound:
                self._deleted(name)
        return found

    def _identified(self, name: str, snapshot: Snapshot) -> Snapshot:
        """Raise StreamRecreated if the query's position is in another stream of the same name, or of another root."""
        snapshot.require(self._ids.setdefault(name, snapshot.record.id))
        return snapshot

    def _deleted(self, name: str) -> None:
        """Forget a stream of the query that does not exist any more. Raises StreamDeleted if that is an error."""
        self._ids.pop(name, None)
        key = f"{self._options.scope}/{name}"
        if self._options.fail_on_data_loss:
            raise StreamDeleted(key)
        self._warn_once(
            f"Stream {key} was deleted. The query continues without it, as option 'fail_on_data_loss' is false."
        )

    def _warn_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            logger.warning(text)

    def _begin(self, name: str, snapshot: Snapshot) -> StreamCut:
        """The position at which a new query starts."""
        options = self._selection.options_of(name)
        if options.starting_timestamp is not None:
            cut, start = snapshot.cut_at(options.starting_timestamp), "starting_timestamp"
        else:
            start, _ = options.streaming_cuts()
            cut = resolve_cut(snapshot, start, snapshot.head_cut())
        named = start in (*CUT_KEYWORDS, "starting_timestamp")
        self._log_start(options, snapshot, cut, start if named else "a given cut")
        return cut

    @staticmethod
    def _log_start(options: SourceOptions, snapshot: Snapshot, cut: StreamCut, start: str) -> None:
        """Log where a new query starts and what it skips; as a warning if it skips events only by default."""
        head = snapshot.head_cut()
        if snapshot.record.history.compare(cut.positions, head.positions) is not Comparison.EQUAL_OR_AFTER:
            return  # before the head: the first batch reports what is missing
        events, size = snapshot.events_between(head, cut), snapshot.size_between(head, cut)
        skipped = f"and does not read the {events} events ({size} bytes) before it" if events else "at the first event"
        by_default = options.start_stream_cut is None and options.starting_timestamp is None and events > 0
        advice = " as by default: set option 'start_stream_cut' to 'earliest' to read them too" if by_default else ""
        level = logging.WARNING if by_default else logging.INFO
        text = "A new query on stream %s starts at %s (%s) %s%s."
        logger.log(level, text, snapshot.stream.key, start, cut, skipped, advice)

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._admission.default_limit()

    @for_users
    def latestOffset(self, start: Any, limit: ReadLimit | ReadWholeBacklog) -> Any:
        """The end of the next batch. It is `start` itself if there is nothing to read: Spark compares offsets as text,
        and a cut has several texts."""
        return self._retried(partial(self._poll, start, limit))

    def _poll(self, start: Any, limit: ReadLimit | ReadWholeBacklog, snapshots: Snapshots) -> Any:
        begin = self._cuts(start)
        joining = [name for name in self._selection.current() if name not in begin and self._is_due(name)]
        for name in begin.keys() - (begin if self._pinned is None else self._pinned).keys():
            self._deleted(name)
        heads = self._each(snapshots, joining, lambda _, snapshot: snapshot.head_cut())
        due = list(filter(self._is_due, begin))
        found = self._each(snapshots, due, lambda name, snapshot: self._resume_at(snapshot, begin[name]))
        gone = set(due) - found.keys()
        begin = {name: found.get(name, cut) for name, cut in begin.items() if name not in gone}
        self._subscribe(start, begin, heads)
        backlogs = self._each(
            snapshots,
            filter(self._is_due, begin),
            lambda name, snapshot: backlog_of(
                self._selection.options_of(name),
                snapshot,
                begin[name],
                (self._pinned or {}).get(name),
                whole=isinstance(limit, ReadWholeBacklog),
            ),
        )
        reached = self._admission.admit(backlogs, limit, wait=self._pinned is None)
        if self._subscription is not None and self._pinned is not None and all(b.is_empty for b in backlogs.values()):
            self._subscription.release()  # the query ends here
        self._progress = self._progress_of(backlogs, reached)
        moved = {name: cut for name, cut in reached.items() if cut.positions != begin[name].positions}
        return self._offset(start, moved | heads, gone | (begin.keys() - backlogs.keys()))

    def _subscribe(self, start: Any, begin: Mapping[str, StreamCut], heads: Mapping[str, StreamCut]) -> None:
        """Subscribe to the streams that join, and in the first poll of a restarted query to all."""
        restarted = not self._resumed and self._first is None
        if restarted:
            refuse_for_restarted_query(self._options, start)
        if self._subscription is not None:
            self._subscription.begin(heads if self._resumed else {**begin, **heads}, anew=False, restarted=restarted)
            self._subscription.committed(begin)
        elif restarted:
            for name in begin:
                log_other_queries(self._selection.stream(name), None)
        self._resumed = True

    def _resume_at(self, snapshot: Snapshot, cut: StreamCut) -> StreamCut:
        """A cut of the query's checkpoint. If a restore lost it and the query is to continue all the same, the cut at
        which the restored events end (P4). Raises PositionLost."""
        try:
            snapshot.check(cut)
            return cut
        except PositionLost as lost:
            if self._options.fail_on_data_loss:
                raise
            found = snapshot.restored(cut.positions) or snapshot.head_cut()
            self._warn_once(f"{lost.fact} The query continues at {found}, as option 'fail_on_data_loss' is false.")
            return found

    def _is_due(self, name: str) -> bool:
        """Whether the query reads a stream of this name in this run."""
        return name in self._pinned if self._pinned is not None else self._selection.chooses(name)

    def _progress_of(self, backlogs: Mapping[str, Backlog], reached: Mapping[str, StreamCut]) -> dict[str, Any] | None:
        """What the query's progress shows, by stream if it reads several."""
        found = {}
        for name, each in backlogs.items():
            end = reached.get(name, each.begin)
            behind = AT_TAIL if end.positions == each.tail.positions else lag(each.snapshot, end, each.tail)
            found[name] = progress_of(end, each.tail, behind)
        return found if self._options.is_multi_stream else next(iter(found.values()), None)

    # --- offsets ------------------------------------------------------------------------------------------------

    def _cuts(self, offset: Any) -> dict[str, StreamCut]:
        """The cuts of an offset, without those of streams that the options do not choose any more."""
        if not self._options.is_multi_stream:
            own = offset.get(self._options.stream) if isinstance(offset, Mapping) else offset
            cut = cut_of(own)
            self._check_same_stream(cut)
            return self._with_ids({self._options.stream: cut}, {self._options.stream: own})
        cuts = self._with_ids(cuts_of(offset), offset)
        for name in cuts:
            if not self._selection.chooses(name):
                self._warn_once(
                    f"The query's checkpoint has a position in stream {self._options.scope}/{name}, which its options "
                    "do not choose: the query does not read it any more."
                )
        return {name: cut for name, cut in cuts.items() if self._selection.chooses(name)}

    def _check_same_stream(self, cut: StreamCut) -> None:
        """Raise InvalidStreamCut if a position of the checkpoint is in a stream that the query does not read."""
        mine = f"{self._options.scope}/{self._options.stream}"
        if cut != UNBOUNDED and f"{cut.scope}/{cut.stream}" != mine:
            raise InvalidStreamCut(
                f"the query's checkpoint has a position in stream {cut.scope}/{cut.stream}, but the query reads "
                f"{mine}: give each query a checkpointLocation of its own"
            )

    def _with_ids(self, cuts: dict[str, StreamCut], offset: Any) -> dict[str, StreamCut]:
        """The cuts of an offset, after the ids of their streams were taken from it. Raises StreamRecreated if the name
        was that of another stream in an offset before."""
        for name, text in offset.items() if isinstance(offset, Mapping) else ((each, offset) for each in cuts):
            known = id_of(text)
            if known is not None and self._ids.setdefault(name, known) != known:
                raise StreamRecreated(f"{self._options.scope}/{name}")
        return cuts

    def _offset(self, before: Any, moved: Mapping[str, StreamCut], gone: Set[str] = frozenset()) -> Any:
        """The offset that follows `before`, which is `before` itself if nothing has moved.

        gone: streams that were deleted. The offset drops them, so that one that is created again joins at its head.
        """
        if not self._options.is_multi_stream:
            return next((self._text(name, cut) for name, cut in moved.items()), before)
        texts = dict(before) if isinstance(before, Mapping) else {cut_of(before).stream: before}
        if not moved and not gone:
            return before
        kept = {name: text for name, text in texts.items() if self._selection.chooses(name) and name not in gone}
        return dict(sorted({**kept, **{name: self._text(name, cut) for name, cut in moved.items()}}.items()))

    def _text(self, name: str, cut: StreamCut) -> str:
        return text_of(cut, self._ids[name])

    @for_users
    def prepareForTriggerAvailableNow(self) -> None:
        self._pinned = self._retried(
            lambda snapshots: self._each(snapshots, self._selection.current(), lambda _, snapshot: snapshot.tail_cut())
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the progress shows as the latest offset: Spark has no other place for a lag of a Python source."""
        return self._progress

    @for_users
    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        begin, finish = self._positions(start), self._positions(end)
        ranges = []
        for name, cut in finish.items():
            if name not in begin or cut.positions == begin[name].positions:
                continue
            try:
                snapshot = self._identified(name, self._snapshot_with(self._selection.stream(name), cut))
            except StreamRecreated:
                raise
            except StreamNotFound:
                self._deleted(name)
                continue
            first, last = self._resume_at(snapshot, begin[name]), self._resume_at(snapshot, cut)
            if last != cut:
                first = snapshot.earlier(first, last)
            ranges.append(StreamRange(self._selection.options_of(name), snapshot, first, last))
        return list(plan_streams(ranges, self._columns))

    def _positions(self, offset: Any) -> dict[str, StreamCut]:
        """The cuts of an offset of a planned batch, also of streams that the options do not choose any more."""
        return self._with_ids(cuts_of(offset), offset) if self._options.is_multi_stream else self._cuts(offset)

    @staticmethod
    def _snapshot_with(stream: Stream, end: StreamCut) -> Snapshot:
        """The stream as this process knows it, or as it is now if it is not known up to `end`."""
        try:
            snapshot = stream.snapshot(refresh=False)
        except StreamNotFound:
            return stream.snapshot()
        # a restarted query plans its last batch again before its first poll
        return snapshot if snapshot.has(end) else stream.snapshot()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns, self._values)

    def commit(self, end: Any) -> None:
        """A batch is done: if the query is a subscriber, retention may delete what the batch has read."""
        if self._subscription is not None:
            self._subscription.committed(self._cuts(end))

    def stop(self) -> None:
        """Release what was read. The process ends with the query, so nothing has to be closed."""
        if self._subscription is not None:
            self._subscription.release()
