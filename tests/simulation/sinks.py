"""A query that writes micro-batches as Spark's sink does, below Spark: tasks in any process that collect rows, and a
driver that commits all of them in one append, with attempts that are repeated and others that come back too late."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from pravega_spark.errors import StreamError
from pravega_spark.source.task_outputs import TaskMessage, merged
from pravega_spark.streams.model.stream_record import Routing
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing.collector import Collector
from pravega_spark.streams.writing.digests import Digest
from pravega_spark.streams.writing.producer_state import ProducerWrite
from pravega_spark.streams.writing.route_targets import RouteTargets
from pravega_spark.streams.writing.writes import StreamWrite, write_together
from tests.simulation.history import History, Process
from tests.simulation.ledger import Outcome
from tests.simulation.streams import SCOPE, STREAM, StreamActor, Written

TRIES, TASK_SECONDS = 4, 5.0
"""How often a task is begun, and for how long it is waited for."""


class Query(StreamActor):
    """Writes each batch until it is committed. Some batches have a second driver, of which the first does not know, and
    tasks that are done twice. Another process continues a query whose process was killed, with the same batch."""

    def __init__(self, history: History, process: Process, name: str) -> None:
        super().__init__(history, process, name)
        self._batch = 0
        self._rows: list[Written] = []

    def successor(self, process: Process) -> Query:
        follower = Query(self.history, process, self.name)
        follower.inherit(self._batch, self._rows)
        return follower

    def inherit(self, batch: int, rows: list[Written]) -> None:
        """Continue what another one did."""
        self._batch, self._rows = batch, rows

    def act(self) -> None:
        if not self._rows:
            self._batch += 1
            self._rows = [self.events.begin(self.name, self.key()) for _ in range(self.random.randint(1, 6))]
            self.events.together.append(self._rows)
        while True:
            if self.random.random() < 0.3:
                self._begin_another()
            outcome, _ = self.attempt(
                f"write batch {self._batch}", lambda: self._write(self.process, self._batch, self._rows)
            )
            if outcome is Outcome.DONE:
                break
            self.history.world.sleep(0.3)
        self.events.end(self._rows, Outcome.DONE)
        self._rows = []

    def _begin_another(self) -> None:
        """Another driver writes the same batch, in some process, now or later."""
        process, rows, batch = self._some_process(), list(self._rows), self._batch
        delay = self.random.choice((0.0, 0.1, 1.0, 10.0)) * self.random.random()
        self.history.world.spawn(
            process.host,
            f"{self.name} again",
            lambda: self.attempt(f"write batch {batch} too", lambda: self._write(process, batch, rows)),
            delay,
        )

    def _some_process(self) -> Process:
        living = [process for process in self.history.processes if not process.host.dead]
        return self.random.choice(living) if living else self.process

    # --- the driver ------------------------------------------------------------------------------------------------

    def _write(self, process: Process, batch: int, rows: Sequence[Written]) -> None:
        """Plan a batch, run its tasks, and commit them. Raises what these raise."""
        stream = Stream(process.root, SCOPE, STREAM)
        planned = stream.snapshot().record.routing
        middle = self.random.randint(0, len(rows))
        messages = [self._task(planned, part) for part in (rows[:middle], rows[middle:]) if part]
        digest = Digest.total(task.digests[STREAM] for task in messages if task.digests)
        producer = ProducerWrite(f"query:{self.name}", batch, digest, "fail")
        [(_, parts)] = merged(messages).items()
        write = StreamWrite(stream, parts, producer)
        write_together([write])
        self.note(f"batch {batch} is {'new' if write.new else 'a replay'}")
        if not write.new:
            stream.discard([chunk for message in messages for chunk in message.chunks()])

    def _task(self, planned: Routing, rows: Sequence[Written]) -> TaskMessage:
        """Run a task in some process; again in another one if it fails, or its process is killed. Some attempts are
        made twice, and the result of the later one is ignored."""
        world, found = self.history.world, list[tuple[Outcome, Any]]()

        def attempt(process: Process) -> None:
            found.append(self.attempt("run a task", lambda: self._collect(process, planned, rows)))

        for _ in range(TRIES):
            for process in (self._some_process(), self._some_process())[: 1 + (self.random.random() < 0.2)]:
                world.spawn(process.host, f"{self.name} task", partial(attempt, process))
            until = world.now + TASK_SECONDS
            while world.now < until and not any(outcome is Outcome.DONE for outcome, _ in found):
                world.sleep(0.05)
            for outcome, message in found:
                if outcome is Outcome.DONE:
                    done: TaskMessage = message
                    return done
        raise StreamError("a task failed too often")

    def _collect(self, process: Process, planned: Routing, rows: Sequence[Written]) -> TaskMessage:
        """What a task does: it collects its rows, and writes chunks if it has more than it may send to the driver."""
        routes = RouteTargets()
        routes.add(STREAM, planned, 0)
        keys = pa.array([row.key for row in rows], pa.string())
        collector = Collector(process.root.stores.chunks, SCOPE, routes, digested=True)
        try:
            collector.add(pa.array([row.data for row in rows], pa.binary()), routes.find_in_one(keys, len(rows)))
            outputs = collector.finish(inline_bytes=100)
            digests = dict(collector.digests) if collector.digests is not None else None
            return TaskMessage(outputs, self.name, {STREAM: planned}, collector.created_at(), digests)
        except BaseException:
            collector.drop()
            raise
