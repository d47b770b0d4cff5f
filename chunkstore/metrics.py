"""How often something was done, how long it took, how many bytes it moved, and how often it failed, for Prometheus.

A `Metrics` holds one registry; a `Layer` of it (chunks, log, cache, …) is what one part of the program measures:

    pravega_<layer>_seconds            histogram, by operation: its count is how often, failures included
    pravega_<layer>_bytes_total        by operation
    pravega_<layer>_failures_total     by operation and error (the name of its type)

`default_metrics()` is what everything in a process uses that was given no other. To be scraped, start
`prometheus_client.start_http_server(port, registry=default_metrics().registry)`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(slots=True)
class Measurement:
    """One operation under way: who carries it out sets the bytes that it moved."""

    bytes: int = 0


class Metrics:
    """The layers that are measured into one registry: `registry`, or one of its own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        # Imported here because it takes longer than the rest of this package.
        from prometheus_client import CollectorRegistry

        self.registry = CollectorRegistry() if registry is None else registry
        self._layers: dict[str, Layer] = {}
        self._lock = threading.Lock()

    def layer(self, name: str) -> Layer:
        """The layer with this name (lower-case letters and underscores), always the same one."""
        with self._lock:
            if name not in self._layers:
                self._layers[name] = Layer(name, self.registry)
            return self._layers[name]


class Layer:
    """The operations of one part of the program. Made by `Metrics.layer`."""

    def __init__(self, name: str, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Histogram

        base = f"pravega_{name}"
        self._seconds: Histogram = Histogram(
            f"{base}_seconds", f"Time taken by {name}", ["operation"], registry=registry, buckets=_BUCKETS
        )
        self._bytes: Counter = Counter(f"{base}_bytes", f"Bytes moved by {name}", ["operation"], registry=registry)
        self._failures: Counter = Counter(
            f"{base}_failures", f"Failures of {name}", ["operation", "error"], registry=registry
        )

    @contextlib.contextmanager
    def measure(self, operation: str) -> Iterator[Measurement]:
        """Measure what happens in the with statement; an error passes, and counts as a failure."""
        measurement = Measurement()
        started = time.perf_counter()
        try:
            yield measurement
        except BaseException as error:
            self._failures.labels(operation, type(error).__name__).inc()
            raise
        finally:
            self._seconds.labels(operation).observe(time.perf_counter() - started)
            if measurement.bytes:
                self._bytes.labels(operation).inc(measurement.bytes)


def default_metrics() -> Metrics:
    """The metrics of this process."""
    with _making:  # two threads must not get two of them
        return _made_once()


_making = threading.Lock()
_made_once = functools.cache(Metrics)
