"""What the server costs: many clients at once, a root with very many streams, and a body that it does not want.

Each part starts `pravega-spark serve` as a process of its own, as users do.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pravega_spark import StreamManager
from tests.bench.figures import Figures

CLIENTS, EACH = 200, 25
STREAMS, VIEWERS = 10_000, 8
BODY = 1 << 30
PATHS = (
    "/v1/scopes",
    "/v1/scopes/s/streams/one",
    "/v1/scopes/s/streams/one/info",
    "/v1/scopes/s/streams/one/last-events?n=10",
    "/",
)
"""What the clients ask for in turn."""

LISTS = ("/v1/scopes/s/streams", "/", "/?sort=events&page=100", "/v1/status", "/metrics")
"""What has all streams in it."""


class Process(NamedTuple):
    """A server, and where it listens."""

    pid: int
    port: int

    def memory(self, what: str) -> int:
        """Bytes that are resident now (VmRSS), or that were at most (VmHWM)."""
        lines = Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


def measure(folder: str, figures: Figures, parts: list[str]) -> None:
    """Print all of them, or those that are named."""
    found = {"clients": clients, "lists": lists, "body": body}
    for name, part in found.items():
        if not parts or name in parts:
            part(folder, figures)


@contextmanager
def served(url: str) -> Iterator[Process]:
    """A server of a root."""
    program = [sys.executable, "-m", "pravega_spark.cli", "--root", url, "--json", "serve", "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        yield Process(process.pid, port)
        process.terminate()


async def _answered(port: int, paths: list[str]) -> list[tuple[int, float, int]]:
    """Status, seconds and bytes of answers that one client gets one after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for path in paths:
        begun = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = 0
        if b"transfer-encoding: chunked" in head:
            while length := int(await reader.readline(), 16):
                size += len(await reader.readexactly(length + 2)) - 2
            await reader.readline()
        else:
            length = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
            size = len(await reader.readexactly(length))
        found.append((int(head.split()[1]), time.perf_counter() - begun, size))
    writer.close()
    return found


async def _together(port: int, paths: list[list[str]]) -> list[tuple[int, float, int]]:
    found = await asyncio.gather(*(_answered(port, each) for each in paths))
    return [one for each in found for one in each]


def clients(folder: str, figures: Figures) -> None:
    """Many clients at once, each with a connection that it keeps."""
    url = f"{folder}/served"
    with StreamManager(url, create=True) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "one", 2)
        with manager.create_writer("s", "one") as writer:
            writer.write_events(["an event"] * 1000, [f"{number}" for number in range(1000)])
        manager.create_reader_group("g", "s", "one")
    with served(url) as process:
        asked = [[PATHS[(number + place) % len(PATHS)] for place in range(EACH)] for number in range(CLIENTS)]
        asyncio.run(_together(process.port, asked[:1]))
        begun = time.perf_counter()
        found = asyncio.run(_together(process.port, asked))
        took = time.perf_counter() - begun
        times = sorted(seconds for _, seconds, _ in found)
        figures.tell(
            "serve",
            f"{CLIENTS} clients at once",
            requests=len(found),
            errors=sum(status != 200 for status, _, _ in found),
            median_ms=statistics.median(times) * 1000,
            p99_ms=times[len(times) * 99 // 100] * 1000,
            requests_s=len(found) / took,
            peak_MB=process.memory("VmHWM") / 1e6,
        )


def lists(folder: str, figures: Figures) -> None:
    """Answers and pages with very many streams, for several clients at once."""
    url = f"{folder}/many"
    with StreamManager(url, create=True) as manager:
        manager.create_scope("s")
        with ThreadPoolExecutor(32) as threads:
            list(threads.map(lambda number: manager.create_stream("s", f"stream-{number}"), range(STREAMS)))
    for path in LISTS:
        with served(url) as process:
            asyncio.run(_together(process.port, [["/v1/scopes"]]))
            before = process.memory("VmRSS")
            begun = time.perf_counter()
            found = asyncio.run(_together(process.port, [[path]] * VIEWERS))
            figures.tell(
                "serve",
                f"{STREAMS} streams, {VIEWERS} clients: GET {path}",
                errors=sum(status != 200 for status, _, _ in found),
                slowest_s=time.perf_counter() - begun,
                answer_KB=found[0][2] / 1000,
                before_MB=before / 1e6,
                peak_MB=process.memory("VmHWM") / 1e6,
            )


def body(folder: str, figures: Figures) -> None:
    """A client that sends a gigabyte, as a change and to a server that allows none."""
    url = f"{folder}/refusing"
    with StreamManager(url, create=True) as manager:
        manager.create_scope("s")
    with served(url) as process:
        asyncio.run(_together(process.port, [["/v1/scopes"]]))
        before = process.memory("VmRSS")
        sent, status = asyncio.run(_refused(process.port))
        figures.tell(
            "serve",
            "a body of 1 GiB",
            status=status,
            sent_KB=sent / 1000,
            grown_MB=(process.memory("VmHWM") - before) / 1e6,
        )


async def _refused(port: int) -> tuple[int, int]:
    """How many bytes of the body were taken until the server ended the connection, and the status of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/scopes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {BODY}\r\n\r\n".encode())
    answer = asyncio.create_task(reader.readline())
    piece, sent = os.urandom(1 << 16), 0
    try:
        while sent < BODY and not answer.done():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    except ConnectionError:
        pass
    line = await answer
    return sent, int(line.split()[1])
