"""The status of a root as metrics of Prometheus: streams, consumers with their lag, and containers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pravega_spark.status import ConsumerStatus, RootStatus, StreamStatus

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from engine.admin.inspection import ContainerDescription, ContainerStatus
    from pravega_spark.streams.reading.lag import Lag

_OF_CONSUMER = ["kind", "consumer", "scope", "stream"]


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
        yield _gauge("status_problems", "What of the root could not be read", [], [([], len(self._status.problems))])


Samples = Iterable[tuple[list[str], float]]
"""Values, each behind those of its labels."""


def _gauge(name: str, meaning: str, labels: list[str], samples: Samples) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily

    metric = GaugeMetricFamily(f"pravega_{name}", meaning, labels=labels)
    for values, number in samples:
        metric.add_metric(values, number)
    return metric


def _streams(streams: tuple[StreamStatus, ...]) -> Iterator[Metric]:
    def gauge(name: str, meaning: str, value: Callable[[StreamStatus], float | None]) -> Metric:
        found = (([each.scope, each.stream], value(each)) for each in streams)
        samples = ((labels, number) for labels, number in found if number is not None)
        return _gauge(f"stream_{name}", meaning, ["scope", "stream"], samples)

    yield gauge("events", "Readable events", lambda each: each.events)
    yield gauge("bytes", "Readable bytes, event headers included", lambda each: each.bytes)
    yield gauge("open_segments", "Open segments", lambda each: each.segments)
    yield gauge(
        "last_event_timestamp_seconds",
        "Time of the last event",
        lambda each: each.last_event and each.last_event / 1000,
    )


def _consumers(consumers: tuple[ConsumerStatus, ...]) -> Iterator[Metric]:
    def gauge(name: str, meaning: str, value: Callable[[Lag], float]) -> Metric:
        samples = ((_consumer(each), value(each.lag)) for each in consumers if each.lag is not None)
        return _gauge(f"consumer_lag_{name}", meaning, _OF_CONSUMER, samples)

    yield gauge("events", "Events behind the tail", lambda lag: lag.events)
    yield gauge("bytes", "Bytes behind the tail", lambda lag: lag.bytes)
    yield gauge("seconds", "Age of the next event", lambda lag: lag.seconds)
    misplaced = ((_consumer(each), each.lag is None) for each in consumers)
    yield _gauge("consumer_misplaced", "Whether its position does not fit the stream", _OF_CONSUMER, misplaced)


def _consumer(status: ConsumerStatus) -> list[str]:
    """The values of `_OF_CONSUMER`."""
    return [status.kind, status.name, status.scope, status.stream]


def _containers(containers: tuple[ContainerStatus, ...]) -> Iterator[Metric]:
    known = [each.description for each in containers if each.description is not None]

    def gauge(name: str, meaning: str, value: Callable[[ContainerDescription], float]) -> Metric:
        samples = (([str(each.number)], value(each)) for each in known)
        return _gauge(f"container_{name}", meaning, ["container"], samples)

    online = (([str(each.number)], each.online) for each in containers)
    yield _gauge("container_online", "Whether it can be opened", ["container"], online)
    yield gauge("log_bytes", "Bytes in the log and not in LTS", lambda each: each.logged)
    yield gauge("garbage", "Objects to be deleted", lambda each: each.garbage)
    yield gauge("flush_failed", "Whether the last flush cycle failed", lambda each: bool(each.cycle.error))
    due = (([str(each.number), kind], late) for each in known for kind, late in each.due.items())
    yield _gauge("container_overdue", "Whether this maintenance is overdue", ["container", "maintenance"], due)
