"""The messages that tasks send to the driver, and how the driver merges them into one append.

Both tasks and the driver's processes import this module, so what only the driver needs is imported in functions.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from engine.state.operations import Payload
    from engine.state.segments import Extent
    from pravega_spark.streams.model.stream_record import Routing
    from pravega_spark.streams.writing.digests import Digest
    from pravega_spark.streams.writing.writes import SegmentAppend


class TaskOutput(NamedTuple):
    """A task's output for one segment: framed events or the extents that hold them, index records, number of events."""

    stream: str
    segment_id: int
    content: bytes | tuple[Extent, ...]
    records: np.ndarray
    events: int


class TaskMessage(WriterCommitMessage):
    """A task's message to the driver.

    outputs: in the order of its rows. query_id: that of the streaming query. planned: the routing of each stream's
    rows, as the driver commits in a process that did not plan the job. created_at: the time of its first chunk by the
    storage's clock, None if it wrote none. A commit that comes too late after that is rejected, as garbage collection
    may have deleted the chunk (see `engine.state.attach_fence`). digests: of each stream's rows, None if not needed.
    """

    def __init__(
        self,
        outputs: Sequence[TaskOutput],
        query_id: str | None,
        planned: Mapping[str, Routing],
        created_at: int | None,
        digests: Mapping[str, Digest] | None = None,
    ) -> None:
        self.outputs = tuple(outputs)
        self.query_id = query_id
        self.planned = planned
        self.created_at = created_at
        self.digests = digests

    def chunks(self) -> list[str]:
        """The names of the chunks that the task has written."""
        extents = (output.content for output in self.outputs if isinstance(output.content, tuple))
        return sorted({str(extent.source) for some in extents for extent in some})


Appends = list[tuple["Routing | None", "list[SegmentAppend]"]]


def merged(tasks: Sequence[TaskMessage]) -> dict[str, Appends]:
    """The appends to each stream, in the order of the tasks, with their routing: one for each segment and kind of
    content of consecutive tasks with the same routing."""
    created_at = min((task.created_at for task in tasks if task.created_at is not None), default=0)
    runs: dict[str, list[tuple[Routing, dict[int, list[TaskOutput]]]]] = defaultdict(list)
    for task in tasks:
        for stream in {output.stream: None for output in task.outputs}:
            if not runs[stream] or runs[stream][-1][0] != task.planned[stream]:
                runs[stream].append((task.planned[stream], defaultdict(list)))
        for output in task.outputs:
            runs[output.stream][-1][1][output.segment_id].append(output)
    now = int(time.time() * 1000)
    return {
        stream: [(routing, _parts(by_segment, now, created_at)) for routing, by_segment in some]
        for stream, some in runs.items()
    }


def _parts(by_segment: Mapping[int, Sequence[TaskOutput]], now: int, created_at: int) -> list[SegmentAppend]:
    parts: list[SegmentAppend] = []
    for _, outputs in sorted(by_segment.items()):
        run: list[TaskOutput] = []
        for output in outputs:
            if run and isinstance(run[-1].content, bytes) is not isinstance(output.content, bytes):
                parts.append(_part(run, now, created_at))
                run = []
            run.append(output)
        parts.append(_part(run, now, created_at))
    return parts


def _part(outputs: Sequence[TaskOutput], now: int, created_at: int) -> SegmentAppend:
    """Outputs of one kind as one append, whose index records continue from one output to the next."""
    from engine.state.operations import Payload
    from pravega_spark.streams.writing.writes import SegmentAppend

    records, offset, count = [], 0, 0
    for output in outputs:
        moved = output.records + np.array([offset, count, 0, 0])
        moved[:, 2] = now
        records.append(moved)
        offset, count = int(moved[-1, 0]), int(moved[-1, 1])
    if isinstance(outputs[0].content, bytes):
        content: Payload | tuple[Extent, ...] = Payload(b"".join(output.content for output in outputs))  # type: ignore[misc]
    else:
        content = tuple(extent for output in outputs for extent in output.content)  # type: ignore[misc]
    return SegmentAppend(
        outputs[0].segment_id, content, np.concatenate(records), sum(output.events for output in outputs), created_at
    )
