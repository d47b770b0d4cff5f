"""Many followers of one stream in a folder: what they request, and when they have an event, while nothing is written
and while another process writes 20 events a second.

In one process and divided over some. FOLLOWERS: how many, and of how many processes ("1/1 10/1 100/1 10/10 100/10").
FOLLOWERS_SECONDS: of each window (3).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from engine.root import Root
from pravega_spark import StreamManager
from tests.bench.figures import Figures
from tests.bench.following import Followed, Spec
from tests.bench.writers import quantile
from tests.bench.writing import SCOPE, STREAM

CASES = os.environ.get("FOLLOWERS", "1/1 10/1 100/1 10/10 100/10").split()
SECONDS = float(os.environ.get("FOLLOWERS_SECONDS", "3"))
WARM = 0.5
"""Seconds between the start of a load and its window."""

LATENCY = 0.2
"""Seconds between two looks of a follower at most, the default."""

RATE = 20
"""Events a second."""


def measure(folder: str, figures: Figures) -> None:
    """Tell all of it."""
    for case in CASES:
        followers, processes = map(int, case.split("/"))
        url = f"{folder}/followers-{uuid.uuid4()}"
        with StreamManager.over(Root.open(url, containers=1)) as manager:
            manager.create_scope(SCOPE)
            manager.create_stream(SCOPE, STREAM, 1)
            idle, busy = _followed(manager, [Spec(url, followers // processes, LATENCY)] * processes)
        where = f"{followers} followers, {processes} processes"
        figures.tell("followers", f"{where}, idle", **_load(idle))
        times = [each for one in busy for each in one.times]
        gets = sum(one.gets for one in busy)
        figures.tell(
            "followers", f"{where}, {RATE} events/s", **_load(busy), GET_per_delivery=gets / max(len(times), 1),
            p50_ms=quantile(times, 0.5) * 1000, p99_ms=quantile(times, 0.99) * 1000, deliveries_s=len(times) / SECONDS,
        )  # fmt: skip


def _load(found: Sequence[Followed]) -> dict[str, float]:
    return {
        "GET_s": sum(one.gets for one in found) / SECONDS,
        "cpu_share": sum(one.cpu for one in found) / SECONDS,
    }


def _followed(manager: StreamManager, specs: Sequence[Spec]) -> list[list[Followed]]:
    """What processes tell of a window without, and of one with events."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(_started(spec)) for spec in specs]
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"a follower did not begin: {process.args!r}")
        writer = manager.create_writer(SCOPE, STREAM)
        found = []
        for rate in (0, RATE):
            begin = time.monotonic() + WARM
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{begin} {begin + SECONDS}\n")
                process.stdin.flush()
            for number in range(int(rate * (WARM + SECONDS))):
                time.sleep(max(begin - WARM + number / rate - time.monotonic(), 0.0))
                writer.write_event(repr(time.monotonic()))
                writer.flush()
            found.append([Followed(**json.loads(process.stdout.readline())) for process in processes if process.stdout])
        writer.close()
        return found


@contextlib.contextmanager
def _started(spec: Spec) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-m", "tests.bench.following", json.dumps(asdict(spec))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
            process.wait(60)
        finally:
            process.kill()  # it has ended, or something failed
