"""The streaming queries of a Spark session as metrics of Prometheus, from the progress that Spark reports.

Spark plans, reads and writes in processes of its own, which end when it likes. Only the driver program lives as long as
its queries, and a listener there hears of each batch. So that is where a query's metrics are kept.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pravega_spark.errors import InvalidStreamCut
from pravega_spark.streams.model.cuts import StreamCut

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener


MOST_QUERIES = 1000
"""Queries that are kept, at most: of more, the ones that ended first are forgotten."""


@dataclass(slots=True)
class _Query:
    """What is known of a query. seconds: of all its batches, by phase. lags: those after its last batch, by stream."""

    batches: int = 0
    rows: int = 0
    seconds: Counter[str] = field(default_factory=Counter)
    last_batch: float = 0.0
    running: bool = True
    failures: int = 0
    lags: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Queries:
    """What is known of the queries of a session, as the listener reports it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._names: dict[str, str] = {}

    def started(self, id: str, name: str | None) -> None:
        """A query was started, perhaps again."""
        with self._lock:
            self._names[id] = name or id
            self._queries.setdefault(name or id, _Query()).running = True
            self._forget()

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """A batch ended. progress: Spark's, as JSON."""
        with self._lock:
            query = self._queries.setdefault(progress.get("name") or progress["id"], _Query())
            query.batches += 1
            query.rows += sum(source["numInputRows"] for source in progress["sources"])
            for phase, milliseconds in progress["durationMs"].items():
                query.seconds[phase] += milliseconds / 1000
            query.last_batch = progress["durationMs"].get("triggerExecution", 0) / 1000
            query.lags = {name: lag for source in progress["sources"] for name, lag in _lags(source)}

    def terminated(self, id: str, failed: bool) -> None:
        """A query ended."""
        with self._lock:
            name = self._names.pop(id, id)
            query = self._queries[name] = self._queries.pop(name, _Query())  # the last one that has ended
            query.running = False
            query.failures += failed

    def _forget(self) -> None:
        """Forget ended queries beyond MOST_QUERIES: a program may start queries without a name for ever."""
        ended = [name for name, query in self._queries.items() if not query.running]
        for name in ended[: max(len(self._queries) - MOST_QUERIES, 0)]:
            del self._queries[name]

    def collect(self) -> Iterator[Metric]:
        """The metrics, as prometheus_client has them."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        running = GaugeMetricFamily("pravega_query_running", "Whether the query runs", labels=["query"])
        batches = CounterMetricFamily("pravega_query_batches", "Batches that ended", labels=["query"])
        rows = CounterMetricFamily("pravega_query_rows", "Rows that were read", labels=["query"])
        failures = CounterMetricFamily("pravega_query_failures", "How often it ended with an error", labels=["query"])
        last = GaugeMetricFamily("pravega_query_last_batch_seconds", "Duration of the last batch", labels=["query"])
        phases = CounterMetricFamily("pravega_query_seconds", "Time taken, by Spark's phase", labels=["query", "phase"])
        lags = {
            kind: GaugeMetricFamily(
                f"pravega_query_lag_{kind}", f"{kind} that the last batch left".capitalize(), labels=["query", "stream"]
            )
            for kind in ("events", "bytes", "seconds")
        }
        with self._lock:
            for name, query in sorted(self._queries.items()):
                running.add_metric([name], query.running)
                batches.add_metric([name], query.batches)
                rows.add_metric([name], query.rows)
                failures.add_metric([name], query.failures)
                last.add_metric([name], query.last_batch)
                for phase, seconds in sorted(query.seconds.items()):
                    phases.add_metric([name, phase], seconds)
                for stream, lag in sorted(query.lags.items()):
                    for kind, family in lags.items():
                        family.add_metric([name, stream], lag[kind])
        yield from (running, batches, rows, failures, last, phases, *lags.values())


class QueryMetrics:
    """The queries of a session, from now on, by their names (or ids, for those without a name). Close it.

    A collector of prometheus_client: any of its registries takes it. Thread-safe.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._queries = Queries()
        self._streams = spark.streams
        self._listener = _listener(self._queries)
        self._streams.addListener(self._listener)

    def close(self) -> None:
        """Hear no more of queries. What was heard stays."""
        self._streams.removeListener(self._listener)

    def __enter__(self) -> QueryMetrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def registry(self) -> CollectorRegistry:
        """A new registry of prometheus_client with nothing but these metrics."""
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def text(self) -> str:
        """In the text form that Prometheus scrapes."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry()).decode()

    def collect(self) -> Iterator[Metric]:
        """The metrics, as prometheus_client has them."""
        return self._queries.collect()


def _lags(source: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, float]]]:
    """The lag of each stream of a source of ours; nothing of others, and nothing where Spark reports none."""
    reported = source.get("latestOffset")
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return
    if not isinstance(reported, Mapping):
        return
    for each in [reported] if "lag" in reported else reported.values():
        if isinstance(each, Mapping) and {"lag", "stream_cut"} <= each.keys():
            try:
                cut = StreamCut.from_text(each["stream_cut"])
            except InvalidStreamCut:
                continue
            yield f"{cut.scope}/{cut.stream}", each["lag"]


def _listener(queries: Queries) -> StreamingQueryListener:
    """A listener of Spark, whose class can be derived only where Spark is loaded."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            queries.started(str(event.id), event.name)

        def onQueryProgress(self, event: Any) -> None:
            queries.progressed(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            queries.terminated(str(event.id), event.exception is not None)

    return Listener()
