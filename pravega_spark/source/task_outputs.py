"""The messages that tasks send to the driver, and how the driver merges them into one append.

Both tasks and the driver's processes import this module, so what only the driver needs is imported in functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from pravega_spark.streams.writing.segment_outputs import SegmentOutput, appends_of

if TYPE_CHECKING:
    from pravega_spark.streams.model.stream_record import Routing
    from pravega_spark.streams.writing.digests import Digest
    from pravega_spark.streams.writing.writes import SegmentAppend


class TaskMessage(WriterCommitMessage):
    """A task's message to the driver.

    outputs: in the order of its rows. query_id: that of the streaming query. planned: the routing of each stream's
    rows, as the driver commits in a process that did not plan the job. created_at: the time of its first chunk by the
    storage's clock, None if it wrote none. A commit that comes too late after that is rejected, as garbage collection
    may have deleted the chunk (see `engine.state.attach_fence`). digests: of each stream's rows, None if not needed.
    """

    def __init__(
        self,
        outputs: Sequence[SegmentOutput],
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
    runs: dict[str, list[tuple[Routing, list[SegmentOutput]]]] = defaultdict(list)
    for task in tasks:
        for stream in {output.stream: None for output in task.outputs}:
            if not runs[stream] or runs[stream][-1][0] != task.planned[stream]:
                runs[stream].append((task.planned[stream], []))
        for output in task.outputs:
            runs[output.stream][-1][1].append(output)
    return {
        stream: [(routing, appends_of(outputs, created_at)) for routing, outputs in some]
        for stream, some in runs.items()
    }
