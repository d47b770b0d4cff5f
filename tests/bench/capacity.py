"""What many hosts reach and cost: bounds that follow from latencies and CPU, beside the engine in simulated time.

Hosts that wait for each event are a closed system, and two things bound it: with few hosts the way of an event, with
many the CPU of the maker, which reads the submissions of all others. `Bounds` has both. Nothing in it is fitted to what
it is compared with: the simulation on a storage like S3, and processes on an S3 server behind a proxy that delays.

CAPACITY: numbers of hosts ("1 2 4 10 30 100 300 1000"). CAPACITY_MEASURED: numbers of processes ("1 2 4"; empty: none).
PLOT_CAPACITY: where the picture goes (bench-capacity.svg).
"""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from unittest import mock

from chunkstore import open_store
from tests.bench import virtual_time
from tests.bench.figures import Figures
from tests.bench.simulated_writers import SECONDS, SEED, WARM, Company, told
from tests.bench.writers import Place, places, run
from tests.bench.writing import SIZE

HOSTS = [int(number) for number in os.environ.get("CAPACITY", "1 2 4 10 30 100 300 1000").split()]
MEASURED = [int(number) for number in os.environ.get("CAPACITY_MEASURED", "1 2 4").split()]
CONTAINERS = 1, 4, 16
BATCHES = 1, 10, 100, 1000
PROBES = 40

PRICES = {
    "S3": {"PUT": 5.0, "LIST": 5.0, "GET": 0.4, "DELETE": 0.0},
    "GCS": {"PUT": 5.0, "LIST": 5.0, "GET": 0.4, "DELETE": 0.0},
    "Azure": {"PUT": 6.5, "LIST": 6.5, "GET": 0.5, "DELETE": 0.0},
}
"""USD of a million requests: list prices of the usual class of storage in one region. Yours differ."""


class Bounds(NamedTuple):
    """What hosts cannot beat that each wait for an event before the next. Mean seconds of a request; cpu: of the
    maker's for an event of another host, which it reads."""

    put: float
    listing: float
    get: float
    cpu: float

    @classmethod
    def of(cls, mean: Callable[[str], float]) -> Bounds:
        """Those of a storage. mean: the mean seconds of a request of a kind."""
        return cls(mean("PUT"), mean("LIST"), mean("GET"), virtual_time.CPU)

    @property
    def carried(self) -> float:
        """The time of an event that another host's frame carries, if nobody waits for anybody: the submission, the
        maker's list and read of it, the frame, and the owner's read of the frame."""
        return self.put + self.listing + self.get + self.put + self.get

    def latency(self, hosts: int) -> float:
        """The least time of an event of most hosts."""
        return self.put if hosts == 1 else max(self.carried, hosts * self.cpu)

    def rate(self, hosts: int) -> float:
        """The most events of a second: the maker's own, and those of the others, as far as its CPU reads them."""
        return min(1 / self.put + (hosts - 1) / self.carried, 1 / self.cpu)


def usd(requests: Mapping[str, float], prices: Mapping[str, float], batch: int) -> float:
    """What a million events cost in appends of so many. requests: of an append."""
    return sum(requests.get(kind, 0.0) * price for kind, price in prices.items()) / batch


def measure(folder: str, figures: Figures) -> None:
    """Tell all of it, and draw it."""
    if MEASURED:
        _check(folder, figures)
    bounds = Bounds.of(virtual_time.mean_latency)
    simulated = {}
    for hosts in HOSTS:
        found = told(Company(hosts, SEED).run(WARM, SECONDS), hosts, SECONDS)
        simulated[hosts] = found
        costs = {
            f"usd {cloud} {batch}": usd(found, prices, batch) for cloud, prices in PRICES.items() for batch in BATCHES
        }
        figures.tell(
            "capacity", f"{hosts} hosts, simulated S3", events_s=found["events_s"], bound_s=bounds.rate(hosts),
            p50_ms=found["p50_ms"], p99_ms=found["p99_ms"], bound_ms=bounds.latency(hosts) * 1000,
            of_limit=found["of_limit"], **{kind: found[kind] for kind in ("PUT", "LIST", "GET")}, **costs,
        )  # fmt: skip
    plot(simulated, bounds, os.environ.get("PLOT_CAPACITY", "bench-capacity.svg"))


# --- against a server that is far away --------------------------------------------------------------------------------


def _check(folder: str, figures: Figures) -> None:
    """Tell of processes apart on the delayed server, the simulation with that server's latencies, and the bounds."""
    with places(folder) as there:
        place = next((each for each in there if each.apart), None)
        if place is None:
            return
        taken = _taken(place)
        latencies = {kind: (statistics.median(times), max(times)) for kind, times in taken.items()}
        bounds = Bounds.of(lambda kind: statistics.fmean(taken[kind]))
        for hosts in MEASURED:
            row = run(place, hosts)
            with mock.patch.dict(virtual_time.LATENCIES, {**latencies, "DELETE": latencies["PUT"]}):
                same = told(Company(hosts, SEED).run(WARM, SECONDS), hosts, SECONDS)
            figures.tell(
                "capacity", f"{hosts} processes, {place.name}", measured_s=row.events_s, simulated_s=same["events_s"],
                bound_s=bounds.rate(hosts), measured_p50_ms=row.p50_ms, simulated_p50_ms=same["p50_ms"],
                bound_ms=bounds.latency(hosts) * 1000, measured_PUT=row.PUT, simulated_PUT=same["PUT"],
                measured_GET=row.GET, simulated_GET=same["GET"], measured_LIST=row.LIST, simulated_LIST=same["LIST"],
            )  # fmt: skip


def _taken(place: Place) -> dict[str, list[float]]:
    """The seconds of a few requests of each kind, one after the other."""
    store = open_store(f"{place.url}/probe-{uuid.uuid4()}", place.options)
    data = bytes(SIZE)
    taken: dict[str, list[float]] = {"PUT": [], "LIST": [], "GET": []}
    for number in range(PROBES):
        path = f"folder/{number:03}"
        for kind, call in (
            ("PUT", lambda path=path: store.put_if_absent(path, data)),
            ("LIST", lambda: store.list("folder/", limit=10)),
            ("GET", lambda path=path: store.read(path)),
        ):
            begun = time.perf_counter()
            call()
            taken[kind].append(time.perf_counter() - begun)
    return taken


# --- the picture ------------------------------------------------------------------------------------------------------


def plot(simulated: Mapping[int, Mapping[str, float]], bounds: Bounds, file: str) -> None:
    """Three panels: rates of a root by hosts and containers, times of an event, and costs by batch."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # texts as texts: a small file
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter

    figure, (rates, times, costs) = pyplot.subplots(1, 3, figsize=(10, 4), layout="constrained")
    hosts = sorted(simulated)
    for count in CONTAINERS:
        spread = [(each * count, simulated[each]["events_s"] * count) for each in hosts]
        rates.plot(*zip(*spread, strict=True), marker="o", markersize=3, linewidth=1, label=_containers(count))
    rates.plot(hosts, [bounds.rate(each) for each in hosts], "k--", linewidth=1, label="bound of a container")
    times.plot(hosts, [simulated[each]["p50_ms"] for each in hosts], marker="o", markersize=3, linewidth=1, label="p50")
    times.plot(hosts, [simulated[each]["p99_ms"] for each in hosts], marker="o", markersize=3, linewidth=1, label="p99")
    times.plot(hosts, [bounds.latency(each) * 1000 for each in hosts], "k--", linewidth=1, label="bound")
    for each in _some(hosts):
        by_batch = [usd(simulated[each], PRICES["S3"], batch) for batch in BATCHES]
        costs.plot(BATCHES, by_batch, marker="o", markersize=3, linewidth=1, label=f"{each:,} host{'s' * (each > 1)}")
    for axes, title, across in (
        (rates, "events of a second", "hosts"),
        (times, "ms until an event is durable", "hosts of a container"),
        (costs, "USD for a million events, S3", "events of an append"),
    ):
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(across, fontsize=8)
        axes.tick_params(which="both", labelsize=7)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7, ncols=2, frameon=True)
    figure.savefig(file, metadata={"Date": None} if file.endswith(".svg") else None)
    pyplot.close(figure)


def _containers(count: int) -> str:
    return f"{count} container{'s' * (count > 1)}"


def _some(hosts: Sequence[int]) -> list[int]:
    """The first, the last, and one between."""
    return list(dict.fromkeys((hosts[0], hosts[len(hosts) // 2], hosts[-1])))
