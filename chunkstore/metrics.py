"""How often something was done, how long it took, how many bytes it moved, and how often it failed, for Prometheus.

A `Metrics` has layers (chunks, log, container), each what one part of the program measures:

    pravega_<layer>_seconds            histogram, by operation: its count is how often, failures included
    pravega_<layer>_bytes_total        by operation
    pravega_<layer>_failures_total     by operation and error (the name of its type)

`default_metrics()` is what everything in a process uses that was given no other. To be scraped, start
`prometheus_client.start_http_server(port, registry=default_metrics().registry)`, or register `default_metrics()` with
another registry. The numbers are kept here and exported at a scrape: importing the library takes longer than a short
program runs.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chunkstore.tracing import record_span

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


_lock = threading.Lock()  # guards all numbers; free in a fork, whichever thread forks
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Measurement:
    """One operation in progress, in a with statement. The caller sets how many bytes it moved.

    A class and no generator: each append is measured, and this costs it half.
    """

    __slots__ = ("_layer", "_operation", "_started", "bytes")

    def __init__(self, layer: Layer, operation: str) -> None:
        self.bytes = 0
        self._layer = layer
        self._operation = operation

    def __enter__(self) -> Measurement:
        self._started = time.perf_counter()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        seconds = time.perf_counter() - self._started
        error = failure.__name__ if failure is not None else None
        self._layer.add(self._operation, seconds, self.bytes, error)
        record_span(self._layer.name, self._operation, seconds, self.bytes, error)


class Metrics:
    """The layers that are measured together. A collector of prometheus_client: any of its registries takes it."""

    def __init__(self) -> None:
        self._layers: dict[str, Layer] = {}

    def layer(self, name: str) -> Layer:
        """The layer with this name (lower-case letters and underscores), always the same one."""
        with _lock:
            return self._layers.setdefault(name, Layer(name))

    @functools.cached_property
    def registry(self) -> CollectorRegistry:
        """A registry of prometheus_client with nothing but these metrics."""
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def collect(self) -> Iterator[Metric]:
        """The metrics of all layers, for prometheus_client at each scrape."""
        with _lock:
            layers = list(self._layers.values())
        for layer in layers:
            yield from layer.collect()


@dataclass(slots=True)
class _Numbers:
    """Of one operation: how many took up to each of the buckets' seconds, all seconds, bytes, failures by error."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS) + 1))
    seconds: float = 0.0
    bytes: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class Layer:
    """The operations of one part of the program. Made by `Metrics.layer`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._numbers: dict[str, _Numbers] = {}

    def measure(self, operation: str) -> Measurement:
        """Measure what happens in the with statement; an error passes, and counts as a failure."""
        return Measurement(self, operation)

    def add(self, operation: str, seconds: float, moved: int, failure: str | None) -> None:
        """One more operation: its seconds, the bytes that it moved, and the name of the error that ended it."""
        with _lock:
            numbers = self._numbers.get(operation)
            if numbers is None:
                numbers = self._numbers[operation] = _Numbers()
            numbers.counts[bisect.bisect_left(_BUCKETS, seconds)] += 1
            numbers.seconds += seconds
            numbers.bytes += moved
            if failure is not None:
                numbers.failures[failure] += 1

    def collect(self) -> Iterator[Metric]:
        """The metrics of this layer, as prometheus_client has them."""
        from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily

        base = f"pravega_{self.name}"
        taken = HistogramMetricFamily(f"{base}_seconds", f"Time taken by {self.name}", labels=["operation"])
        moved = CounterMetricFamily(f"{base}_bytes", f"Bytes moved by {self.name}", labels=["operation"])
        failed = CounterMetricFamily(f"{base}_failures", f"Failures of {self.name}", labels=["operation", "error"])
        bounds = [*map(str, _BUCKETS), "+Inf"]
        with _lock:
            for operation, numbers in sorted(self._numbers.items()):
                buckets = list(zip(bounds, itertools.accumulate(numbers.counts), strict=True))
                taken.add_metric([operation], buckets, numbers.seconds)
                if numbers.bytes:
                    moved.add_metric([operation], numbers.bytes)
                for error, count in sorted(numbers.failures.items()):
                    failed.add_metric([operation, error], count)
        yield from (taken, moved, failed)


_default = Metrics()


def default_metrics() -> Metrics:
    """The metrics of this process."""
    return _default
