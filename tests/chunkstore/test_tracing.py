"""Spans: in programs that use OpenTelemetry, and only there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pravega_spark.streams.model.events import HEADER_SIZE

PROGRAM = """
import json, sys
{before}
from pravega_spark import StreamManager, StreamNotFound

with StreamManager(sys.argv[1], create=True) as manager:
    manager.create_scope("sc")
    manager.create_stream("sc", "st")
    with {around}, manager.create_writer("sc", "st") as writer:
        writer.write_event("event")
        writer.flush()
    manager.root.container(0).flush()
    with {reading}:
        assert [event.data for event in manager.read_events("sc", "st")] == [b"event"]
{after}
"""

BEFORE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""
AFTER = """
from chunkstore.metrics import default_metrics

try:
    with default_metrics().layer("container").measure("read"):
        raise KeyError
except KeyError:
    pass
spans = exporter.get_finished_spans()
print(json.dumps([
    {
        "name": each.name, "id": each.context.span_id, "parent": each.parent and each.parent.span_id,
        "seconds": (each.end_time - each.start_time) / 1e9, "bytes": each.attributes.get("pravega.bytes"),
        "error": each.attributes.get("error.type"), "status": each.status.status_code.name,
    }
    for each in spans
]))
"""


def ran(program: str, url: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", program, str(url)], check=True, capture_output=True, text=True, timeout=120
    ).stdout


def test_a_program_that_traces_has_spans_of_what_it_waits_for(tmp_path: Path) -> None:
    around, reading = (f'trace.get_tracer("mine").start_as_current_span("{name}")' for name in ("mine", "reads"))
    program = PROGRAM.format(before=BEFORE, around=around, reading=reading, after=AFTER)
    found: list[Any] = json.loads(ran(program, tmp_path / "root"))
    assert {each["name"] for each in found} == {"mine", "reads", "pravega.commit", "pravega.read", "pravega.flush"}
    ids = {each["name"]: each["id"] for each in found}
    of_events = [each for each in found if each["bytes"] == HEADER_SIZE + len("event")]
    assert [(each["name"], each["parent"]) for each in of_events][-1] == ("pravega.read", ids["reads"])
    assert any(each["name"] == "pravega.commit" and each["parent"] == ids["mine"] and each["bytes"] for each in found)
    assert all(each["seconds"] >= 0 and each["error"] is None and each["status"] == "UNSET" for each in found[:-1])
    failed = found[-1]
    assert (failed["name"], failed["error"], failed["status"]) == ("pravega.read", "KeyError", "ERROR")


def test_without_opentelemetry_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    after = 'print([name for name in sys.modules if name.startswith("opentelemetry")])'
    program = PROGRAM.format(
        before="from contextlib import nullcontext", around="nullcontext()", reading="nullcontext()", after=after
    )
    assert ran(program, tmp_path / "root") == "[]\n"
