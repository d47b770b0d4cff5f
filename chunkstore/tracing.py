"""Spans of OpenTelemetry, if the program uses it: what a caller waits for, as children of the caller's spans.

Nothing is imported here: a program that traces has imported `opentelemetry.trace` itself. It chooses by its tracer
provider where spans go; without one they go nowhere.
"""

from __future__ import annotations

import sys
import time

TRACED = frozenset({("container", "commit"), ("container", "flush"), ("container", "read")})
"""The layers and operations of which each is a span (see `chunkstore.metrics`)."""

_TRACER = "pravega_spark"


def record_span(layer: str, operation: str, seconds: float, moved: int, failure: str | None) -> None:
    """Record an operation that ends now, if it is traced. failure: the name of the error that ended it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or (layer, operation) not in TRACED:
        return
    end = time.time_ns()
    attributes = {"pravega.bytes": moved} if failure is None else {"pravega.bytes": moved, "error.type": failure}
    span = trace.get_tracer(_TRACER).start_span(
        f"pravega.{operation}", attributes=attributes, start_time=end - round(seconds * 1e9)
    )
    if failure is not None:
        span.set_status(trace.StatusCode.ERROR)
    span.end(end)
