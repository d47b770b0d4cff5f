"""Many processes that write to one stream, and wait for each append: what they reach together, and what it costs.

In a folder, and on an S3 server of the tests that is 20 ms away; there also by processes that exchange messages by the
storage only, as on hosts of their own. Figures are beside those of one writer, and of one
process that makes bare objects of the same size, all of the same run. Each process opens the root itself and writes
from its start on; what counts is a window that all of them share. Then the stream is read back.

WRITERS: how many ("1 2 4 8 16"). WRITERS_SECONDS: of a window (8). WRITERS_CLIENT: of S3 (s3fs). PLOT_WRITERS: where
the picture goes (bench-writers.svg).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import pyarrow.compute as pc

from engine.root import Root
from pravega_spark import StreamManager
from tests.bench.far import Far
from tests.bench.figures import Figures
from tests.bench.writing import HEAD, SCOPE, SIZE, STREAM, UPKEEP, InOrder, Spec, Told
from tests.support.rados_gateway import RadosGateway
from tests.support.s3_server import S3Server
from tests.support.servers import Server, ServerMissing

COUNTS = [int(number) for number in os.environ.get("WRITERS", "1 2 4 8 16").split()]
SECONDS = float(os.environ.get("WRITERS_SECONDS", "8"))
WARM = 2.0
"""Seconds that all of them write before the window begins."""

AWAY = 0.02
BATCHES = (1, 8)
BATCH = 1000
"""How many write batches, and events of a batch."""

PUT_OR_LIST, GET = 5e-6, 0.4e-6
"""USD of a request, by S3's list prices."""

KINDS = ("PUT", "LIST", "GET", "DELETE")


class Place(NamedTuple):
    """Where streams are: as the writers reach it, and as who makes and reads them does. apart: see `Spec`. label: in
    the legend of the picture."""

    name: str
    label: str
    url: str
    options: dict[str, Any]
    near: dict[str, Any]
    apart: bool = False


@dataclass
class Row:
    """What writers did in a window. Milliseconds; of an event the CPU, the requests that commits make and those of
    upkeep, frames put, submissions that became void; USD of a million events, upkeep included."""

    events_s: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    cpu_ms: float
    least_share: float
    PUT: float
    LIST: float
    GET: float
    DELETE: float
    upkeep: float
    frames: float
    void: float
    epochs: int
    usd_per_million: float


def measure(folder: str, figures: Figures) -> None:
    """Tell all of it, and draw it."""
    drawn: dict[str, dict[int, dict[str, float]]] = {}
    with places(folder) as found:
        for place in found:
            trip = _ceiling(place, figures)
            drawn[place.label] = _single_events(place, figures, trip)
            if place.options:
                _batches(place, figures)
    plot(drawn, os.environ.get("PLOT_WRITERS", "bench-writers.svg"))


def _single_events(place: Place, figures: Figures, trip: float) -> dict[int, dict[str, float]]:
    """Of each number of writers its figures, told too."""
    found: dict[int, dict[str, float]] = {}
    one: Row | None = None
    for count in COUNTS:
        row = run(place, count)
        one = one or row
        found[count] = {**asdict(row), **compared(row, one, trip)}
        figures.tell("writers", f"{place.name}, {count} processes", **found[count])
    return found


def compared(row: Row, one: Row, trip: float) -> dict[str, float]:
    """A row beside that of one writer, and in round trips of so many milliseconds."""
    return {
        "rate_times": row.events_s / one.events_s,
        "p50_trips": row.p50_ms / trip,
        "p99_trips": row.p99_ms / trip,
        "cpu_times": row.cpu_ms / one.cpu_ms if one.cpu_ms else 1.0,
    }


def _batches(place: Place, figures: Figures) -> None:
    one = 0.0
    for count in BATCHES:
        row = run(place, count, BATCH)
        rate = row.events_s * SIZE / 1e6
        one = one or rate
        what = f"{place.name}, {count} processes, batches of 1 MB"
        figures.tell(
            "writers, batches", what, MB_s=rate, rate_times=rate / one, p50_ms=row.p50_ms, p99_ms=row.p99_ms,
            least_share=row.least_share, epochs=row.epochs,
        )  # fmt: skip


def _ceiling(place: Place, figures: Figures) -> float:
    """Bare objects made by one process; the milliseconds of one."""
    specs = [Spec(f"{place.url}/bare-{uuid.uuid4()}", place.options, 0, bare=True)]
    row = summary(specs, _written(specs))
    figures.tell("writers, bare objects of 1 KB", place.name, per_s=row.events_s, p50_ms=row.p50_ms, p99_ms=row.p99_ms)
    return row.p50_ms


# --- places ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def places(folder: str) -> Iterator[list[Place]]:
    """A folder, and an S3 server that is far away, if one is installed."""
    with contextlib.ExitStack() as stack:
        found = [Place("folder", "folder", f"{folder}/writers", {}, {})]
        server = _server(stack)
        if server is not None:
            near = {**server.storage_options(), **_client()}
            where = near["client_kwargs"]
            far = Far(where["endpoint_url"], AWAY)
            stack.callback(far.close)
            there = {**near, "client_kwargs": {**where, "endpoint_url": far.url}}
            name = f"{type(server).__name__}, {AWAY * 1000:g} ms away"
            away = f"S3, {AWAY * 1000:g} ms away"
            found.append(Place(name, f"{away}, writers on one host", server.make_bucket(), there, near))
            label = f"{away}, writers apart (as on hosts of their own)"
            found.append(Place(f"{name}, apart", label, server.make_bucket(), there, near, apart=True))
        yield found


def _server(stack: contextlib.ExitStack) -> Server | None:
    for kind in (RadosGateway, S3Server):
        with contextlib.suppress(ServerMissing):
            return stack.enter_context(kind())
    return None


def _client() -> dict[str, str]:
    client = os.environ.get("WRITERS_CLIENT", "")
    return {"client": client} if client else {}


# --- a run -----------------------------------------------------------------------------------------------------------


def run(place: Place, count: int, events: int = 1) -> Row:
    """So many processes write to a new stream, appends of so many events."""
    url = f"{place.url}/{uuid.uuid4()}"
    with StreamManager.over(Root.open(url, place.near, containers=1)) as manager:
        manager.create_scope(SCOPE)
        manager.create_stream(SCOPE, STREAM, 1)
    specs = [Spec(url, place.options, writer, events, apart=place.apart) for writer in range(count)]
    told = _written(specs)
    with StreamManager.over(Root.open(url, place.near, create=False)) as manager:
        check(manager, [one.acknowledged * events for one in told])
    return summary(specs, told)


def _written(specs: Sequence[Spec]) -> list[Told]:
    """What processes tell that write at the same time."""
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(_started(spec)) for spec in specs]
        for writer in writers:
            assert writer.stdout is not None
            if writer.stdout.readline() != "ready\n":
                raise RuntimeError(f"a writer did not begin: {writer.args!r}")
        begin = time.monotonic() + WARM
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(f"{begin} {begin + SECONDS}\n")
            writer.stdin.flush()
        return [Told(**json.loads(writer.communicate()[0])) for writer in writers]


@contextlib.contextmanager
def _started(spec: Spec) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-m", "tests.bench.writing", json.dumps(asdict(spec))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # it has ended, or another one did not begin


def summary(specs: Sequence[Spec], told: Sequence[Told], seconds: float = SECONDS) -> Row:
    """The figures of writers that shared a window of so many seconds."""
    events = [one.ended * spec.events for spec, one in zip(specs, told, strict=True)]
    all_events = max(sum(events), 1)
    times = [each for one in told for each in one.times]
    kinds = [*KINDS, *(UPKEEP + kind for kind in KINDS)]
    requests = {kind: sum(one.requests.get(kind, 0) for one in told) / all_events for kind in kinds}
    counts = {
        name: sum(one.counts.get(name, 0) for one in told) for name in ("begin_epoch", "void_submission", "put_frame")
    }
    return Row(
        events_s=sum(events) / seconds,
        p50_ms=quantile(times, 0.5) * 1000,
        p99_ms=quantile(times, 0.99) * 1000,
        longest_ms=max(times, default=0.0) * 1000,
        cpu_ms=sum(one.cpu for one in told) / all_events * 1000,
        least_share=min(events) / statistics.mean(events) if sum(events) else 0.0,
        **{kind: requests[kind] for kind in KINDS},
        upkeep=sum(requests[UPKEEP + kind] for kind in KINDS),
        frames=counts["put_frame"] / all_events,
        void=counts["void_submission"] / all_events,
        epochs=counts["begin_epoch"],
        usd_per_million=usd(requests) * 1e6,
    )


def usd(requests: Mapping[str, float]) -> float:
    """What they cost, those of upkeep included."""
    prices = {"PUT": PUT_OR_LIST, "LIST": PUT_OR_LIST, "GET": GET}
    return sum(number * prices.get(kind.removeprefix(UPKEEP), 0.0) for kind, number in requests.items())


def quantile(times: Iterable[float], share: float) -> float:
    """The time that so large a share of them does not exceed."""
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def check(manager: StreamManager, acknowledged: Sequence[int]) -> None:
    """Each event that was acknowledged is there once, those of each writer in order, and nothing else."""
    order = InOrder(len(acknowledged))
    for batch in manager.read_events(SCOPE, STREAM).to_batches(["event"]):
        for head in pc.binary_slice(batch.column(0), 0, HEAD).to_pylist():
            order.note(head)
    if order.seen != list(acknowledged):
        raise RuntimeError(f"events that are there, by writer: {order.seen}; acknowledged: {acknowledged}")


# --- the picture -----------------------------------------------------------------------------------------------------

PANELS = {
    "events_s": "events a second, all together",
    "rate_times": "the same, relative to one writer",
    "p99_trips": "p99 latency, in round trips",
    "cpu_times": "CPU of an event, relative to one writer",
    "requests": "PUT, LIST and GET of an event",
    "least_share": "slowest writer, relative to the mean",
}


def plot(found: Mapping[str, Mapping[int, Mapping[str, float]]], file: str) -> None:
    """A small picture with a panel for each figure; a line for each place, over the number of writers. The legend is
    below the panels, where it covers no line."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # texts as texts: a small file
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, panels = pyplot.subplots(2, 3, figsize=(9, 4.9), sharex=True, layout="constrained")
    for axes, (name, title) in zip(panels.flat, PANELS.items(), strict=True):
        for place, rows in found.items():
            values = [_value(row, name) for row in rows.values()]
            axes.plot(list(rows), values, linewidth=1, marker="o", markersize=3, label=place)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if name in ("events_s", "requests"):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    for axes in panels[1]:
        axes.set_xlabel("writers", fontsize=8)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(found), fontsize=8)
    figure.savefig(file, metadata={"Date": None} if file.endswith(".svg") else None)
    pyplot.close(figure)


def _value(row: Mapping[str, float], name: str) -> float:
    return sum(row[kind] for kind in ("PUT", "LIST", "GET")) if name == "requests" else row[name]
