"""The status of a root as metrics of Prometheus: streams, consumers with their lag, and containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pravega_spark.status import ConsumerStatus, RootStatus, StreamStatus

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from engine.admin.inspection import ContainerStatus

_OF_STREAM = ["scope", "stream"]
_OF_CONSUMER = ["kind", "consumer", "scope", "stream"]
_OF_CONTAINER = ["container"]


class StatusMetrics:
    """A collector of prometheus_client over one status: any of its registries takes it."""

    def __init__(self, status: RootStatus) -> None:
        self._status = status

    def text(self) -> str:
        """In the text form that Prometheus scrapes, also from a file (node_exporter's textfile collector)."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()

    def collect(self) -> Iterator[Metric]:
        """The metrics, as prometheus_client has them."""
        yield from _streams(self._status.streams)
        yield from _consumers(self._status.consumers)
        yield from _containers(self._status.containers)
        from prometheus_client.metrics_core import GaugeMetricFamily

        problems = GaugeMetricFamily("pravega_status_problems", "What of the root could not be read")
        problems.add_metric([], len(self._status.problems))
        yield problems


def _streams(streams: tuple[StreamStatus, ...]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    events = GaugeMetricFamily("pravega_stream_events", "Readable events", labels=_OF_STREAM)
    size = GaugeMetricFamily("pravega_stream_bytes", "Readable bytes, event headers included", labels=_OF_STREAM)
    segments = GaugeMetricFamily("pravega_stream_open_segments", "Open segments", labels=_OF_STREAM)
    last = GaugeMetricFamily("pravega_stream_last_event_timestamp_seconds", "Time of the last event", labels=_OF_STREAM)
    for each in streams:
        labels = [each.scope, each.stream]
        events.add_metric(labels, each.events)
        size.add_metric(labels, each.bytes)
        segments.add_metric(labels, each.segments)
        if each.last_event is not None:
            last.add_metric(labels, each.last_event / 1000)
    yield from (events, size, segments, last)


def _consumers(consumers: tuple[ConsumerStatus, ...]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    events = GaugeMetricFamily("pravega_consumer_lag_events", "Events behind the tail", labels=_OF_CONSUMER)
    size = GaugeMetricFamily("pravega_consumer_lag_bytes", "Bytes behind the tail", labels=_OF_CONSUMER)
    seconds = GaugeMetricFamily("pravega_consumer_lag_seconds", "Age of the next event", labels=_OF_CONSUMER)
    lost = GaugeMetricFamily(
        "pravega_consumer_misplaced", "Whether its position does not fit the stream", labels=_OF_CONSUMER
    )
    for each in consumers:
        labels = [each.kind, each.name, each.scope, each.stream]
        lost.add_metric(labels, each.lag is None)
        if each.lag is not None:
            events.add_metric(labels, each.lag.events)
            size.add_metric(labels, each.lag.bytes)
            seconds.add_metric(labels, each.lag.seconds)
    yield from (events, size, seconds, lost)


def _containers(containers: tuple[ContainerStatus, ...]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    online = GaugeMetricFamily("pravega_container_online", "Whether it can be opened", labels=_OF_CONTAINER)
    logged = GaugeMetricFamily("pravega_container_log_bytes", "Bytes in the log and not in LTS", labels=_OF_CONTAINER)
    garbage = GaugeMetricFamily("pravega_container_garbage", "Objects to be deleted", labels=_OF_CONTAINER)
    failed = GaugeMetricFamily(
        "pravega_container_flush_failed", "Whether the last flush cycle failed", labels=_OF_CONTAINER
    )
    overdue = GaugeMetricFamily(
        "pravega_container_overdue", "Whether this maintenance is overdue", labels=[*_OF_CONTAINER, "maintenance"]
    )
    for each in containers:
        labels = [str(each.number)]
        online.add_metric(labels, each.online)
        if each.description is not None:
            logged.add_metric(labels, each.description.logged)
            garbage.add_metric(labels, each.description.garbage)
            failed.add_metric(labels, bool(each.description.cycle.error))
            for kind, late in each.description.due.items():
                overdue.add_metric([*labels, kind], late)
    yield from (online, logged, garbage, failed, overdue)
