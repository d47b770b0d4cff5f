"""The micro-batch read: offsets are stream cuts (see `offset`), so that a checkpoint of the original's can be read on.

A poll that finds nothing new reads one object of each container. Limits by bytes or events are kept from the first
trigger on; data that was truncated under the query, or a stream that was deleted, is an error that names it. Of several
streams each is followed by itself (see `ahead`); they share the limits. One that comes later joins the offset at its
head, and is read from the next batch on: so where a batch begins stands in the checkpoint, and no truncation goes
unnoticed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pravega_spark.errors import CutOfDeletedStream, PositionLost, StreamDeleted, StreamNotFound, StreamRecreated
from pravega_spark.source.ahead import Ahead, amount, fair_shares, look_ahead
from pravega_spark.source.failures import for_users
from pravega_spark.source.offset import cut_of, cuts_of, id_of, progress_of, text_of
from pravega_spark.source.opening import resolve_cut
from pravega_spark.source.option_table import CUT_KEYWORDS
from pravega_spark.source.options import SourceOptions
from pravega_spark.source.partitions import StreamRange, plan_streams, read_partition
from pravega_spark.source.selection import Selection
from pravega_spark.source.subscription import Subscription, tell_other_queries
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.epochs import Comparison
from pravega_spark.streams.reading.lag import AT_TAIL, lag
from pravega_spark.streams.reading.snapshot import Snapshot
from pravega_spark.streams.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

T = TypeVar("T")


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams for a streaming query. Lives in one process of the driver for the whole query.

    columns: those to read, and whether each may be null; None: all that the options say.
    """

    def __init__(self, options: SourceOptions, columns: Mapping[str, bool] | None = None) -> None:
        options.streaming_cuts()
        self._options = options
        self._columns = columns
        self._selection = Selection(options, "follow")
        self._first: dict[str, StreamCut] | None = None
        self._pinned: dict[str, StreamCut] | None = None
        self._newest: dict[str, Any] | None = None
        self._ids: dict[str, bytes] = {}  # of the streams that the offsets are positions in
        self._told: set[str] = set()
        self._turn = 0
        self._waiting_since: float | None = None
        self._subscription: Subscription | None = None
        self._resumed = False
        if options.subscriber is not None:
            interval = options.release_interval / 1000
            self._subscription = Subscription(options.subscriber, interval, self._selection.stream)

    @for_users
    def initialOffset(self) -> Any:
        if self._first is None:  # Spark asks twice, and has to get the same answer
            self._first = self._of_each(self._selection.look(), self._begin)
            if self._subscription is not None:
                self._subscription.begin(self._first, anew=True)
        return self._offset({}, self._first)

    def _of_each(self, streams: Mapping[str, Stream], question: Callable[[str, Snapshot], T]) -> dict[str, T]:
        """What `question` finds in each stream as it was when it was looked at, without those that were deleted."""

        def asked(name: str, snapshot: Snapshot) -> T:
            self._identify(name, snapshot)
            return question(name, snapshot)

        found: dict[str, T] = {}
        for name, stream in streams.items():
            try:
                found[name] = stream.query(partial(asked, name), refresh=False)
            except (StreamRecreated, CutOfDeletedStream):
                if not self._options.several or self._options.fail_on_data_loss:
                    raise
                self._deleted(name)  # the one of now joins at its head
            except StreamNotFound:
                self._deleted(name)
        return found

    def _identify(self, name: str, snapshot: Snapshot) -> None:
        """Raise StreamRecreated if the query's position is in another stream of the same name, or of another root."""
        snapshot.require(self._ids.setdefault(name, snapshot.record.id))

    def _deleted(self, name: str) -> None:
        """A stream that the query read is not there any more."""
        self._ids.pop(name, None)
        key = f"{self._options.scope}/{name}"
        if self._options.fail_on_data_loss:
            raise StreamDeleted(key)
        self._tell(f"Stream {key} was deleted. The query goes on without it, as option 'fail_on_data_loss' is false.")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            logger.warning(text)

    def _begin(self, name: str, snapshot: Snapshot) -> StreamCut:
        """Where a new query starts."""
        options = self._selection.options_of(name)
        if options.starting_timestamp is not None:
            cut, place = snapshot.cut_at(options.starting_timestamp), "starting_timestamp"
        else:
            place, _ = options.streaming_cuts()
            cut = resolve_cut(snapshot, place, snapshot.head_cut())
        self._tell_start(
            options, snapshot, cut, place if place in (*CUT_KEYWORDS, "starting_timestamp") else "a given cut"
        )
        return cut

    @staticmethod
    def _tell_start(options: SourceOptions, snapshot: Snapshot, cut: StreamCut, place: str) -> None:
        """Log where a new query starts and what lies before that; as a warning where nobody asked to leave it out."""
        head = snapshot.head_cut()
        if snapshot.record.history.compare(cut.positions, head.positions) is not Comparison.EQUAL_OR_AFTER:
            return  # in front of the head: what is missing is told when it is to be read
        events, size = snapshot.events_between(head, cut), snapshot.size_between(head, cut)
        left_out = f"and does not read the {events} events ({size} bytes) before it" if events else "at the first event"
        unasked = options.start_stream_cut is None and options.starting_timestamp is None and events > 0
        how = " as by default: set option 'start_stream_cut' to 'earliest' to read them too" if unasked else ""
        level = logging.WARNING if unasked else logging.INFO
        told = "A new query on stream %s starts at %s (%s) %s%s."
        logger.log(level, told, snapshot.stream.key, place, cut, left_out, how)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return self._second_limit()

    def _second_limit(self) -> ReadLimit:
        """The limit by events; Spark knows of one limit only, so it is kept here when there is one by bytes too."""
        if self._options.max_events_per_trigger is not None:
            return ReadMaxRows(self._options.max_events_per_trigger)
        if self._options.min_events_per_trigger is not None or self._options.min_bytes_per_trigger is not None:
            return ReadMinRows(self._options.min_events_per_trigger or 1)
        return ReadAllAvailable()

    @for_users
    def latestOffset(self, start: Any, limit: ReadLimit) -> Any:
        """`start` itself where nothing is new: Spark compares offsets as text, and a cut has several."""
        begin = self._cuts(start)
        streams = self._selection.look()
        joining = {name: stream for name, stream in streams.items() if name not in begin and self._is_due(name)}
        for name in begin.keys() - (begin if self._pinned is None else self._pinned).keys():
            self._deleted(name)
        heads = self._of_each(joining, lambda _, snapshot: snapshot.head_cut())
        restarted = not self._resumed and self._first is None
        due = self._due(begin)
        found = self._of_each(due, lambda name, snapshot: self._found(snapshot, begin[name]))
        gone = due.keys() - found.keys()
        begin = {name: cut for name, cut in (begin | found).items() if name not in gone}
        if self._subscription is not None:
            self._subscription.begin(heads if self._resumed else {**begin, **heads}, anew=False, restarted=restarted)
            self._subscription.committed(begin)
        elif restarted:
            for name in begin:
                tell_other_queries(self._selection.stream(name), None)
        self._resumed = True
        ahead = self._of_each(self._due(begin), lambda name, snapshot: self._look_ahead(name, snapshot, begin[name]))
        new = {name: each for name, each in ahead.items() if each.is_new}
        reached = {} if self._waits(new, limit) else self._limited(new, limit)
        if self._subscription is not None and self._pinned is not None and not new:
            self._subscription.release()  # the query ends here
        self._newest = self._progress(ahead, reached)
        moved = {name: cut for name, cut in reached.items() if cut.positions != begin[name].positions}
        return self._offset(start, moved | heads, gone | (begin.keys() - ahead.keys()))

    def _due(self, names: Iterable[str]) -> dict[str, Stream]:
        return {name: self._selection.stream(name) for name in names if self._is_due(name)}

    def _found(self, snapshot: Snapshot, cut: StreamCut) -> StreamCut:
        """A cut of the query's checkpoint; where it was lost in a restore, and the query goes on all the same, where
        what was restored ends (P4). Raises PositionLost."""
        try:
            snapshot.check(cut)
            return cut
        except PositionLost as lost:
            if self._options.fail_on_data_loss:
                raise
            found = snapshot.restored(cut.positions) or snapshot.head_cut()
            self._tell(f"{lost.fact} The query goes on at {found}, as option 'fail_on_data_loss' is false.")
            return found

    def _is_due(self, name: str) -> bool:
        """Whether a stream is to be read now, and not left out for good or until the query is started again."""
        return name in self._pinned if self._pinned is not None else self._selection.chooses(name)

    def _look_ahead(self, name: str, snapshot: Snapshot, begin: StreamCut) -> Ahead:
        pinned = self._pinned[name] if self._pinned is not None else None
        return look_ahead(self._selection.options_of(name), snapshot, begin, pinned)

    def _waits(self, ahead: Mapping[str, Ahead], limit: ReadLimit) -> bool:
        """Whether less is there than a batch is to have at least, and not for too long.

        Never where Spark wants all that is available, whatever the options say, as for a trigger that comes once.
        """
        least = {True: self._options.min_events_per_trigger, False: self._options.min_bytes_per_trigger}
        if not ahead or self._pinned is not None or isinstance(limit, ReadAllAvailable):
            self._waiting_since = None
            return False
        now = time.monotonic()
        self._waiting_since = since = now if self._waiting_since is None else self._waiting_since
        waits = (now - since) * 1000 < self._options.max_trigger_delay and any(
            wanted is not None and self._there(ahead, by_events=by_events) < wanted
            for by_events, wanted in least.items()
        )
        if not waits:
            self._waiting_since = None
        return waits

    def _there(self, ahead: Mapping[str, Ahead], *, by_events: bool) -> int:
        """How much there is to read in all streams, in this batch or later ones."""
        found = self._asked(ahead, lambda each, found: amount(found, each.begin, each.tail, by_events=by_events))
        return sum(found.values())

    def _limited(self, ahead: dict[str, Ahead], limit: ReadLimit) -> dict[str, StreamCut]:
        """Where the next batch ends in each stream that has something new."""
        if isinstance(limit, ReadMaxBytes):
            ahead = self._shared(ahead, limit.max_bytes, by_events=False)
            limit = self._second_limit()
        if isinstance(limit, ReadMaxRows):
            ahead = self._shared(ahead, limit.max_rows, by_events=True)
        return {name: each.reached for name, each in ahead.items()}

    def _shared(self, ahead: dict[str, Ahead], limit: int, *, by_events: bool) -> dict[str, Ahead]:
        """The same, each no further than its share of a limit lets it go."""
        shares = dict.fromkeys(ahead, limit)
        if len(ahead) > 1:
            left = self._asked(ahead, lambda each, found: amount(found, each.begin, each.reached, by_events=by_events))
            shares = fair_shares(left, limit, self._turn)
            self._turn += 1
            ahead = {name: each for name, each in ahead.items() if shares[name] or not left[name]}
            shares = {name: share for name, share in shares.items() if share < left[name]}
        which = "max_events" if by_events else "max_bytes"
        ends = self._asked(
            {name: ahead[name] for name in shares if name in ahead},
            lambda each, found: each._replace(
                reached=found.next_cut(each.begin, each.reached, **{which: shares[found.stream.name]})
            ),
        )
        return ahead | ends

    def _asked(self, ahead: Mapping[str, Ahead], question: Callable[[Ahead, Snapshot], T]) -> dict[str, T]:
        streams = {name: self._selection.stream(name) for name in ahead}
        return self._of_each(streams, lambda name, snapshot: question(ahead[name], snapshot))

    def _progress(self, ahead: Mapping[str, Ahead], reached: Mapping[str, StreamCut]) -> dict[str, Any] | None:
        """What the progress shows, of one stream or by stream."""

        def one(each: Ahead, snapshot: Snapshot) -> dict[str, Any]:
            end = reached.get(snapshot.stream.name, each.begin)
            behind = AT_TAIL if end.positions == each.tail.positions else lag(snapshot, end, each.tail)
            return progress_of(end, each.tail, behind)

        found = self._asked(ahead, one)
        return found if self._options.several else next(iter(found.values()), None)

    # --- offsets ------------------------------------------------------------------------------------------------

    def _cuts(self, offset: Any) -> dict[str, StreamCut]:
        """The cuts of an offset, without those of streams that the query is not to read any more."""
        if not self._options.several:
            mine = offset.get(self._options.stream) if isinstance(offset, Mapping) else offset
            return self._remembered({self._options.stream: cut_of(mine)}, {self._options.stream: mine})
        cuts = self._remembered(cuts_of(offset), offset)
        for name in cuts:
            if not self._selection.chooses(name):
                self._tell(
                    f"The query's checkpoint has a position in stream {self._options.scope}/{name}, which its options "
                    "do not choose: it is read no more."
                )
        return {name: cut for name, cut in cuts.items() if self._selection.chooses(name)}

    def _remembered(self, cuts: dict[str, StreamCut], offset: Any) -> dict[str, StreamCut]:
        """The cuts of an offset, after the ids of their streams were taken from it. Raises StreamRecreated if another
        stream had the name in the offset before."""
        for name, text in offset.items() if isinstance(offset, Mapping) else ((each, offset) for each in cuts):
            known = id_of(text)
            if known is not None and self._ids.setdefault(name, known) != known:
                raise StreamRecreated(f"{self._options.scope}/{name}")
        return cuts

    def _offset(self, before: Any, moved: Mapping[str, StreamCut], gone: Set[str] = frozenset()) -> Any:
        """The offset after another one, which it is itself where nothing has moved.

        gone: streams that were deleted. They are forgotten, so that one that is made again joins at its head.
        """
        if not self._options.several:
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
        self._pinned = self._of_each(self._selection.look(), lambda _, snapshot: snapshot.tail_cut())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the progress shows as the latest offset: Spark has no other place for a lag of a Python source."""
        return self._newest

    @for_users
    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        begin, finish = self._positions(start), self._positions(end)
        moved = [name for name, cut in finish.items() if name in begin and cut.positions != begin[name].positions]
        ranges = []
        for name in moved:
            try:
                snapshot = self._snapshot_with(self._selection.stream(name), finish[name])
                self._identify(name, snapshot)
            except StreamRecreated:
                raise
            except StreamNotFound:
                self._deleted(name)
                continue
            start, end = self._found(snapshot, begin[name]), self._found(snapshot, finish[name])
            if end != finish[name]:
                start = snapshot.earlier(start, end)
            ranges.append(StreamRange(self._selection.options_of(name), snapshot, start, end))
        return list(plan_streams(ranges, self._columns))

    def _positions(self, offset: Any) -> dict[str, StreamCut]:
        """The cuts of an offset of a batch, whatever the options choose by now."""
        return self._remembered(cuts_of(offset), offset) if self._options.several else self._cuts(offset)

    @staticmethod
    def _snapshot_with(stream: Stream, end: StreamCut) -> Snapshot:
        """The stream as it was when it was looked at, or as it is if it did not reach up to the end then."""
        try:
            snapshot = stream.snapshot(refresh=False)
        except StreamNotFound:
            return stream.snapshot()
        # a restarted query plans its last batch again before it looks for news
        return snapshot if snapshot.has(end) else stream.snapshot()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns)

    def commit(self, end: Any) -> None:
        """A batch is done: what it has read is held back from retention no more, if this query is a subscriber."""
        if self._subscription is not None:
            self._subscription.committed(self._cuts(end))

    def stop(self) -> None:
        """The process ends with the query, and nothing needs to be closed."""
        if self._subscription is not None:
            self._subscription.release()
