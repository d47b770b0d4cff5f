"""What the steps of a large write and read cost alone, in CPU: what a task of Spark adds to the exchange with Spark.

With these figures and those of part `jobs` it is seen what limits a job: while all cores are busy, each CPU second of a
step is one of the job. A step is measured on 64 MB in one thread, the best of some rounds, and told for 256 MB. The
write of the bytes, and their read, are of plain files, with all that the system does for them.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from chunkstore.checksums import block_checksums
from pravega_spark.streams.model.events import HEADER_SIZE, decode
from pravega_spark.streams.model.framing import event_column, frame_column
from pravega_spark.streams.model.index import sparse_records
from pravega_spark.streams.model.key_columns import KeyHashes
from pravega_spark.streams.model.routing import segment_for
from tests.bench.figures import Figures

SIZES = (100, 1_000, 10_000)
TOTAL = 64_000_000
TOLD = 4
"""How many times as much the figures are for: 256 MB."""

ROUNDS = 5
BATCH_ROWS, BATCH_BYTES = 10_000, 4 << 20  # of a batch from Spark; of one to Spark
PIECE, STEP = 512 << 10, 8 << 20
BOUNDS = [0.25, 0.5, 0.75, 1.0]
KEYS = 10_000


def measure(folder: str, figures: Figures) -> None:
    """Steps of tasks with events of each size."""
    for size in SIZES:
        _write(size, Path(folder), figures)
        _read(size, Path(folder), figures)


def _write(size: int, folder: Path, figures: Figures) -> None:
    batches = _batches(size)
    hashes, random = KeyHashes(), np.random.default_rng(1)
    fractions = [hashes.find(keys) for _, keys in batches]
    targets = [segment_for(found, BOUNDS, random) for found in fractions]
    framed = [frame_column(events, found, len(BOUNDS)) for (events, _), found in zip(batches, targets, strict=True)]
    lengths = [np.concatenate([each.segment_lengths(number) for each in framed]) for number in range(len(BOUNDS))]
    figures.tell(
        "bulk, CPU (ms of 256 MB)",
        f"write, {size} B events",
        keys=_cpu(lambda: [hashes.find(keys) for _, keys in batches]),
        segments=_cpu(lambda: [segment_for(found, BOUNDS, random) for found in fractions]),
        framing=_cpu(lambda: [frame_column(batches[n][0], targets[n], len(BOUNDS)) for n in range(len(batches))]),
        checksums=_cpu(lambda: [block_checksums(memoryview(each.data)) for each in framed]),
        index=_cpu(lambda: [sparse_records(each, 0) for each in lengths]),
        synced_file=_cpu(lambda: _write_file(folder / "bulk", memoryview(framed[0].data))),
    )


def _read(size: int, folder: Path, figures: Figures) -> None:
    count = STEP // (size + HEADER_SIZE)
    one = bytes(4) + size.to_bytes(4, "big") + bytes(size)
    data = memoryview(one * count)
    ends = np.arange(1, count + 1) * len(one)
    lanes = np.unique(np.append(0, ends[np.searchsorted(ends, np.arange(16 << 10, len(data), 16 << 10))]))
    starts, lengths = decode(data, lanes, len(data))
    rows = max(1, BATCH_BYTES // len(one))
    parts = [slice(first, first + rows) for first in range(0, count, rows)]
    steps = range(-(-TOTAL // len(data)))
    figures.tell(
        "bulk, CPU (ms of 256 MB)",
        f"read, {size} B events",
        plain_file=_cpu(lambda: _read_file(folder / "bulk")),
        checksums=_cpu(lambda: [block_checksums(data) for _ in steps]),
        finding=_cpu(lambda: [decode(data, lanes, len(data)) for _ in steps]),
        column=_cpu(lambda: [event_column(data, starts[part], lengths[part]) for _ in steps for part in parts]),
    )


def _batches(size: int) -> list[tuple[pa.Array, pa.Array]]:
    """Events and keys, as many in a batch as Spark gives."""
    random, made, left = np.random.default_rng(1), [], TOTAL // size
    while left:
        count = min(left, BATCH_ROWS)
        bounds = pa.py_buffer((np.arange(count + 1) * size).astype(np.int32))
        events = pa.Array.from_buffers(pa.binary(), count, [None, bounds, pa.py_buffer(random.bytes(count * size))])
        made.append((events, pa.array([f"key-{number}" for number in random.integers(0, KEYS, count)])))
        left -= count
    return made


def _write_file(file: Path, data: memoryview) -> None:
    """64 MB into a new file that is synced, piece by piece."""
    file.unlink(missing_ok=True)
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for _ in range(TOTAL // PIECE):
            os.write(fd, data[:PIECE])
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _read_file(file: Path) -> None:
    room = bytearray(PIECE)
    fd = os.open(file, os.O_RDONLY)
    try:
        while os.readv(fd, [room]):
            pass
    finally:
        os.close(fd)


def _cpu(step: Callable[[], object]) -> float:
    """Milliseconds of CPU that a step takes for 256 MB."""
    return min(_once(step) for _ in range(ROUNDS)) * 1000 * TOLD


def _once(step: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF)
    step()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
