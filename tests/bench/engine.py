"""Measurements of the engine: group commit, latency, tail reads, opening, memory."""

from __future__ import annotations

import contextlib
import gc
import queue
import statistics
import subprocess
import sys
import threading
import time
import tracemalloc
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgpack
import pyarrow as pa

from chunkstore import Store, open_store
from chunkstore.metadata.metadata_records import ChunkRecord, encode
from chunkstore.testing.latency import LatencyStore
from engine.containers.container import Container
from engine.logs import checkpoints
from engine.logs.log import checkpoints_folder, frames_folder
from engine.settings import Settings
from engine.state.operations import Append, CreateSegment, Operation, Payload
from engine.state.segment_record import encode_segment
from engine.state.segments import Extents, Segment
from engine.state.tables import METADATA, STORAGE
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from tests.support.rados_gateway import RadosGateway
from tests.support.s3_server import S3Server
from tests.support.servers import ServerMissing

THREADS, APPENDS = 64, 200
ACTIVE, HISTORY, CHUNKS = 25_000, 1_000_000, 100_000
S = "scope/segment"


def measure(folder: str) -> None:
    """Print all of them."""
    group_commit(folder)
    events(folder)
    latency(folder)
    opening()


def _opened(store: Store, **settings: object) -> Container:
    return Container(Stores(store, store), 0, Settings(maintenance=False, **settings))  # type: ignore[arg-type]


def group_commit(folder: str) -> None:
    """64 threads append 1 KB each and wait for it, against the same bytes in the same frame sizes without a log."""
    print(f"\ngroup commit, {THREADS} threads appending 1 KB and waiting for it; shares are of the speed of bare")
    print("put_if_absent of the same sizes, one after the other; 'handing over' is 64 threads that give their bytes to")
    print("one that joins and puts them, with no log at all: what threads that wait for each other leave of it")
    _group_commit("local disk", open_store(f"{folder}/group"))
    for seconds in (0.002, 0.005, 0.02, 0.05):
        store = LatencyStore(open_store(f"memory://{uuid.uuid4()}"), seconds)
        _group_commit(f"{seconds * 1000:.0f} ms a request", store)
    for kind in (S3Server, RadosGateway):
        with contextlib.suppress(ServerMissing), kind() as server:
            _group_commit(kind.__name__, open_store(server.make_bucket(), server.storage_options()))


def _group_commit(name: str, store: Store) -> None:
    with _opened(store) as container:
        container.create_segment(S)
        first = container.head.address
        taken = _from_all_threads(lambda: container.append(S, bytes(1000)))
        frames = container.head.address - first
    sizes = [info.size for info in store.list(frames_folder(0))][-frames:]
    bare = _bare(store, sizes)
    count = THREADS * APPENDS
    print(
        f"  {name:18s} {count / frames:5.1f} operations in a frame, {count / taken / 1000:5.1f} k appends/s, "
        f"share {bare / taken:.2f}; handing over {_share_of_handing_over(store):.2f}"
    )


def _from_all_threads(append: Callable[[], object]) -> float:
    """Seconds that all threads take for all their appends."""

    def appends(_: int) -> None:
        for _ in range(APPENDS):
            append()

    with ThreadPoolExecutor(THREADS) as pool:
        begun = time.perf_counter()
        list(pool.map(appends, range(THREADS)))
        return time.perf_counter() - begun


def _bare(store: Store, sizes: Sequence[int]) -> float:
    """Seconds that objects of these sizes take, one after the other."""
    folder = uuid.uuid4()
    begun = time.perf_counter()
    for number, size in enumerate(sizes):
        store.put_if_absent(f"{folder}/{number}", bytes(size))
    return time.perf_counter() - begun


class _HandingOver:
    """Appends that share an object as those of a container do, and nothing else: no order, no state, no frame."""

    def __init__(self, store: Store) -> None:
        self.sizes: list[int] = []
        self._store = store
        self._folder = uuid.uuid4()
        self._waiting: queue.SimpleQueue[tuple[bytes, threading.Lock]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def append(self, data: bytes) -> None:
        done = threading.Lock()
        done.acquire()
        self._waiting.put((data, done))
        done.acquire()

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            body = b"".join(data for data, _ in batch)
            self._store.put_if_absent(f"{self._folder}/{len(self.sizes)}", body)
            self.sizes.append(len(body))
            for _, done in batch:
                done.release()


def _share_of_handing_over(store: Store) -> float:
    handing_over = _HandingOver(store)
    taken = _from_all_threads(lambda: handing_over.append(bytes(1000)))
    return _bare(store, handing_over.sizes) / taken


def events(folder: str) -> None:
    """Events of 100 B with routing keys from one thread, one by one and as a column."""
    count = 200_000
    with StreamManager(f"{folder}/events") as manager:
        manager.create_scope("s")
        for name in ("single", "column"):
            manager.create_stream("s", name, 4)
        writer = manager.create_writer("s", "single")
        begun = time.perf_counter()
        for number in range(count):
            writer.write_event_bytes(bytes(100), f"key-{number % 1000}")
        handed_over = time.perf_counter() - begun
        writer.flush()
        single = time.perf_counter() - begun
        writer = manager.create_writer("s", "column")
        column = pa.array([bytes(100)] * count * 5, pa.binary())
        keys = pa.array([f"key-{number % 1000}" for number in range(count * 5)])
        begun = time.perf_counter()
        writer.write_events(column, keys)
        writer.flush()
        batch = (time.perf_counter() - begun) / 5
    print("\nevents of 100 B with routing key, one thread")
    share = handed_over / single
    print(f"  write_event_bytes {count / single / 1000:8.1f} k events/s; {share:.0%} of the time in the caller")
    print(f"  write_events      {count / batch / 1000:8.1f} k events/s, {single / batch:.1f} times that")


_FOLLOWER = """
import sys, time
from chunkstore import open_store
from engine.containers.container import Container
from engine.settings import Settings
from engine.storage.object_reads import Stores
store = open_store(sys.argv[1])
with Container(Stores(store, store), 0, Settings(maintenance=False, poll=float(sys.argv[2]))) as container:
    offset = 0
    print("ready", flush=True)
    while offset < int(sys.argv[3]) * 100:
        segment = container.look(container.settings.poll).segments.get("scope/segment")
        if segment is None or segment.length == offset:
            time.sleep(container.due_in(container.settings.poll))
            continue
        container.read("scope/segment", offset, segment.length)
        for _ in range(offset, segment.length, 100):
            print(time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
        offset = segment.length
"""


def latency(folder: str) -> None:
    """One append after the other, against a bare put_if_absent of the same size; and when another process sees it."""
    count, poll = 200, 0.01
    store = open_store(f"{folder}/latency")
    with _opened(store) as container:
        container.create_segment(S)
        follower = subprocess.Popen(
            [sys.executable, "-c", _FOLLOWER, f"{folder}/latency", str(poll), str(count)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        follower.stdout.readline()
        appended, bare, seen = [], [], []
        for number in range(count):
            begun = time.clock_gettime(time.CLOCK_MONOTONIC)
            container.append(S, bytes(100))
            appended.append(time.clock_gettime(time.CLOCK_MONOTONIC) - begun)
            seen.append(float(follower.stdout.readline()) - begun)
            begun = time.clock_gettime(time.CLOCK_MONOTONIC)
            store.put_if_absent(f"bare/{number}", bytes(300))
            bare.append(time.clock_gettime(time.CLOCK_MONOTONIC) - begun)
        follower.wait()
    floor = statistics.median(bare)
    print("\none append of 100 B at a time, median")
    print(f"  bare put_if_absent {floor * 1000:6.2f} ms")
    taken = statistics.median(appended)
    print(f"  append             {taken * 1000:6.2f} ms, {taken / floor:.2f} times that")
    print(
        f"  seen by a tail read of another process after {statistics.median(seen) * 1000:.2f} ms, "
        f"the poll interval being {poll * 1000:.0f} ms"
    )


def opening() -> None:
    """Opening with as many active segments as may be, and with a long history."""
    store = open_store(f"memory://{uuid.uuid4()}")
    with _opened(store) as container:
        for first in range(0, ACTIVE, 1000):
            operations: list[Operation] = []
            for number in range(first, first + 1000):
                operations += [CreateSegment(f"scope/{number}"), Append(f"scope/{number}", Payload(bytes(50)))]
            container.commit(operations)
        container.flush()
        container.checkpoint()
    floor = min(_seconds(lambda: _unpacked(store)) for _ in range(5))
    taken = min(_seconds(lambda: _opened(store).close()) for _ in range(5))
    print(f"\nopening a container with {ACTIVE} active segments")
    print(f"  reading and unpacking its checkpoint {floor * 1000:8.1f} ms")
    print(f"  opening                              {taken * 1000:8.1f} ms, {taken / floor:.2f} times that")
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    container = _opened(store)
    gc.collect()
    packed = tracemalloc.get_traced_memory()[0] - before
    names = list(container.state.segments.values())
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    container.close()
    print(f"  memory of an active segment {packed / ACTIVE:.0f} B, {used / len(names):.0f} B once it was used")

    with _opened(store) as container:
        for first in range(0, HISTORY, 4000):
            container.put_entries(METADATA, {f"old/{n}": _record(n) for n in range(first, first + 4000)})
        for first in range(0, CHUNKS, 4000):
            records = [ChunkRecord(f"chunk {n}", n, f"chunk {n + 1}") for n in range(first, first + 4000)]
            container.put_entries(STORAGE, {record.name: encode(record) for record in records})
        container.flush()
        container.checkpoint()
    later = min(_seconds(lambda: _opened(store).close()) for _ in range(5))
    print(f"  with {HISTORY} segments in history, {CHUNKS} chunks {later * 1000:.1f} ms: {later / taken:.2f} of that")
    with _opened(store) as container:
        looked_up = _seconds(lambda: container.info("old/777777"))
    print(f"  the first look at one of those {looked_up * 1000:.1f} ms")


def _record(number: int) -> bytes:
    name = f"old/{number}"
    return encode_segment(Segment(name, number, 0, 100, True, 0, 0, {}, Extents(), 100, f"{name}.{number}"))  # type: ignore[arg-type]


def _unpacked(store: Store) -> object:
    data = store.read(store.list(checkpoints_folder(0))[-1].path)
    return msgpack.unpackb(data[checkpoints.HEADER :], strict_map_key=False)


def _seconds(work: object) -> float:
    begun = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - begun
