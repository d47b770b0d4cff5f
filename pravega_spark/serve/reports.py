"""Requests about the root as a whole: its status, and metrics."""

from __future__ import annotations

from pravega_spark.serve.replies import PROMETHEUS, Call, Reply, Text
from pravega_spark.serve.service import Service
from pravega_spark.status_document import status_document
from pravega_spark.status_metrics import StatusMetrics


def get_root_status(service: Service, call: Call) -> Reply:
    """Streams, consumers and containers at a glance."""
    return Reply(200, status_document(service.status()))


def metrics(service: Service, call: Call) -> Text:
    """What this process did, and the status of the root, for Prometheus."""
    from prometheus_client import generate_latest

    from chunkstore.metrics import default_metrics

    own = generate_latest(default_metrics().registry).decode()
    return Text(own + StatusMetrics(service.status()).text(), PROMETHEUS)
