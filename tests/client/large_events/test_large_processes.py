"""Large events written by real processes: they are killed, and their memory is measured from outside (L1)."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from chunkstore import ObjectNotFound, Store, open_store
from chunkstore.testing import Request, WrappingStore
from chunkstore.wrapping import Result
from engine.admin import orphans
from engine.admin.verify import verify
from engine.logs import frames
from engine.logs.log import address_of
from engine.root import Root
from engine.state.operations import ExpireSegments, MergeSegment, decode_transactions
from engine.state.segments import FrameRef
from engine.storage.object_reads import Stores
from pravega_spark import EventExists, EventPointer, StreamManager
from pravega_spark.streams.maintenance.verification import check_events
from pravega_spark.streams.model.names import owner_of
from pravega_spark.streams.stream import Stream
from tests.clocks import moved_on
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.processes

MIB = 1 << 20
GIB = 1 << 30
SPAWN = multiprocessing.get_context("spawn")
FORKS = multiprocessing.get_context("forkserver")
"""Forks processes from one that has imported all this and has no threads, which takes milliseconds."""
FORKS.set_forkserver_preload([__name__, "s3fs"])

Place = tuple[str, Mapping[str, Any]]
"""A root's URL, and the storage options for it."""


@pytest.fixture(
    params=["local", pytest.param("s3", marks=[pytest.mark.long, pytest.mark.server, pytest.mark.timeout(600)])]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return str(tmp_path / "root"), {}
    server: S3Server = request.getfixturevalue("s3_server")
    return server.make_bucket(), server.storage_options()


@lru_cache(2 * 24)
def block(seed: int, number: int) -> bytes:
    """One MiB of an event."""
    return random.Random(seed << 20 | number).randbytes(MIB)


def pieces(seed: int, start: int, end: int) -> Iterator[bytes]:
    """What an event has between two offsets, piece by piece."""
    for number in range(start // MIB, -(-end // MIB)):
        yield block(seed, number)[max(start - number * MIB, 0) : end - number * MIB]


@lru_cache
def digest(seed: int, size: int) -> str:
    """The hash of an event."""
    found = hashlib.sha256()
    for piece in pieces(seed, 0, size):
        found.update(piece)
    return found.hexdigest()


def told_of(event: Any) -> str:
    """What a reader has got: the text of a small event, or the hash of a large one."""
    data = event.data
    assert event.size == len(data)
    return hashlib.sha256(data).hexdigest() if event.size > MIB else data.decode()


@contextmanager
def running(work: Callable[..., None], *arguments: Any, context: Any = FORKS) -> Iterator[tuple[Any, Connection]]:
    """A process that does `work`, and what it tells. It is killed at the end."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(sender, *arguments), daemon=True)
    process.start()
    sender.close()
    try:
        yield process, receiver
    finally:
        process.kill()
        process.join()
        receiver.close()


def told(receiver: Connection) -> Any:
    assert receiver.poll(120)
    return receiver.recv()


def told_to_the_end(receiver: Connection) -> Iterator[Any]:
    """What a process tells until it is dead."""
    while True:
        try:
            yield told(receiver)
        except EOFError:
            return


@contextmanager
def opened(place: Place) -> Iterator[tuple[Root, StreamManager]]:
    """A new root with scope sc, of which nothing is left in the end: the server has its objects in memory."""
    root = Root.open(*place, containers=1, garbage_delay_seconds=1.0)
    with root, StreamManager.over(root) as manager:
        manager.create_scope("sc")
        yield root, manager
    store = open_store(*place)
    store.delete([info.path for info in store.list("")])
    store.close()


def another_process(place: Place) -> StreamManager:
    """A manager of that root as another process has it."""
    return StreamManager(place[0], **place[1])


def write_small(manager: StreamManager, stream: str, text: str) -> None:
    with manager.create_writer("sc", stream) as writer:
        writer.write_event(text, "key")


def collect_what_is_left(root: Root) -> set[str]:
    """As is done when the idle time and the delay of garbage are over; then there is nothing but what segments have.

    Returns the objects that no segment has ever had.
    """
    container = root.container(0)
    moved_on(root.stores.chunks)
    idle = int((time.time() + root.config.transient_idle_seconds) * 1000)
    container.commit([ExpireSegments(tuple(container.refresh().transients), idle)])
    assert not container.state.transients
    sweep = orphans.find_orphans(root, partial(owner_of, count=1), age=0)
    orphans.expire_orphans(root, sweep, share=1)
    container.flush()  # there may be no garbage, and what is in the log is no object
    deadline = time.monotonic() + 30
    while container.refresh().garbage and time.monotonic() < deadline:
        container.flush()
        container.collect_garbage()
        time.sleep(root.config.garbage_delay_seconds / 4)
    kept = sum(segment.length for segment in container.state.segments.values())
    there = root.stores.chunks.list("sc/")
    assert sum(info.size for info in there) == kept, [info.path for info in there]
    return {orphan.path for orphan in sweep.orphans}


def check_all(root: Root) -> None:
    report = verify(root, deep=True, content_checks=[check_events])
    assert not report.errors, list(report.findings)


# --- killed at any point ---------------------------------------------------------------------------------------------

EVENT = 24 * MIB

POINTS = [*(("written", after * MIB, 0.0) for after in (1, 7, 8, 9, 10, 11, 15, 16, 17, 19, 20, 22, 24)),
          ("open", 0, 0.0), *(("committing", 0, delay) for delay in (0.0, 0.05, 0.1, 0.3, 0.6, 0.9))]  # fmt: skip
"""When a writer is killed: after which message, and how much later, in the time that a commit takes."""


def upload(tell: Connection, place: Place, seed: int, name: str | None) -> None:
    """Write an event, and tell of each step."""
    manager = another_process(place)
    event = manager.begin_event("sc", "st", "key", name=name)
    tell.send(("open", event.tell()))
    for number, piece in enumerate(pieces(seed, 0, EVENT)):
        event.write(piece)
        tell.send(("written", event.tell()))
        if number % 10 == 9:
            event.flush()
            tell.send(("durable", event.tell()))
    tell.send(("committing", 0))
    tell.send(("committed", event.commit().as_text()))
    time.sleep(1000)


def seconds_of_a_commit(place: Place) -> float:
    with running(upload, place, len(POINTS), None) as (_, receiver):
        while told(receiver)[0] != "committing":
            pass
        begun = time.perf_counter()
        assert told(receiver)[0] == "committed"
        return time.perf_counter() - begun


@contextmanager
def following(place: Place) -> Iterator[Future[list[str]]]:
    """What another process reads of a new stream all the time, until it is sealed."""
    stop = threading.Event()
    with another_process(place) as other, ThreadPoolExecutor(1) as pool:
        other.create_stream("sc", "st")
        events = other.tail("sc", "st", poll_interval=0.02, stop=stop)
        try:
            yield pool.submit(lambda: [told_of(event) for event in events])
        finally:
            stop.set()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_writer_is_killed_at_any_point(place: Place) -> None:
    """At 20 points: the event is there whole or not at all; half of them have a name, and are gone on with."""
    hashes = [digest(seed, EVENT) for seed in range(len(POINTS) + 1)]
    small, expected, maybe = "of others", {len(POINTS)}, set()
    with opened(place) as (root, manager), following(place) as followed:
        commit = seconds_of_a_commit(place)
        print(f"a commit takes {commit:.3f} s")
        for seed, (message, argument, delay) in enumerate(POINTS):
            name = f"event {seed}" if seed % 2 else None
            durable = 0
            with running(upload, place, seed, name) as (process, receiver):
                while (found := told(receiver))[0] != message or (message == "written" and found[1] < argument):
                    durable = found[1] if found[0] == "durable" else durable
                time.sleep(delay * commit)
                process.kill()
                process.join()
                if any(found[0] == "committed" for found in told_to_the_end(receiver)):
                    expected.add(seed)
            write_small(manager, "st", small)
            if message == "committing":
                maybe.add(seed)
            if name is not None:
                try:
                    with manager.begin_event("sc", "st", "key", name=name) as event:
                        assert durable <= event.tell() <= EVENT and event.tell() % MIB == 0
                        for piece in pieces(seed, event.tell(), EVENT):
                            event.write(piece)
                        event.commit()
                except EventExists:
                    assert message == "committing"
                expected.add(seed)
            with another_process(place) as reader:
                sizes = [event.size for event in reader.read_events("sc", "st")]
            assert sizes.count(len(small)) == seed + 1
            assert len(expected) <= sizes.count(EVENT) == len(sizes) - seed - 1 <= len(expected | maybe)
        assert root.container(0).refresh().transients
        check_all(root)
        collect_what_is_left(root)
        check_all(root)
        texts = [told_of(event) for event in manager.read_events("sc", "st")]
        seeds = [hashes.index(text) for text in texts if text != small]
        assert seeds == [len(POINTS), *sorted(set(seeds) - {len(POINTS)})]
        assert expected <= set(seeds) <= expected | maybe
        manager.seal_stream("sc", "st")
        assert followed.result(60) == texts


# --- killed at every request of the commit ---------------------------------------------------------------------------


class Commit(NamedTuple):
    """What a commit finds: how many bytes of its event are durable, how many there are, and whether the stream was
    scaled meanwhile. Of what is not durable one part is being uploaded, and one is still being filled."""

    durable: int
    size: int
    scaled: bool = False


COMMITS = {
    "nothing attached": Commit(0, 9 * MIB),
    "some attached": Commit(8 * MIB, 17 * MIB),
    "the rest in the log": Commit(8 * MIB, 16 * MIB + 1000),
    "all attached": Commit(17 * MIB, 17 * MIB),
    "scaled": Commit(8 * MIB, 17 * MIB, scaled=True),
}

When = Literal["before", "after"]
"""A request is not sent any more, or has taken effect, and nobody hears of it."""

MAKES_A_FRAME, PUTS_A_PART = "put_if_absent wal", "put O-"

Point = tuple[str, int]
"""A request of a commit: what it is for, and how many there were for that by then. Those for different things may be
under way at the same time, so this tells it and its number does not."""


class DeadlyStore(WrappingStore):
    """Kills its process at one request of a commit. Tells of each request of it before it is sent."""

    def __init__(self, inner: Store, tell: Connection, fatal: Point | None, when: When) -> None:
        super().__init__(inner)
        self._tell, self._fatal, self._when = tell, fatal, when
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._counting = False
        self._may_put = threading.Event()
        self._may_put.set()

    def hold_parts(self) -> None:
        """Let parts wait until the commit begins: then its requests are the same each time."""
        self._may_put.clear()

    @contextmanager
    def committing(self) -> Iterator[None]:
        self._counting = True
        self._may_put.set()
        yield
        self._counting = False

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb == "put":
            self._may_put.wait()
        fatal = self._counting and self._is_fatal(request.verb, request.paths[0])
        if fatal and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = call()
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def _is_fatal(self, verb: str, path: str) -> bool:
        found = re.search(r"O-\d+|wal|checkpoints|$", path)
        assert found is not None
        purpose = f"{verb} {found[0]}"
        with self._lock:
            self._counts[purpose] += 1
            point = purpose, self._counts[purpose]
            self._tell.send((point, path))
            return point == self._fatal


class Doomed(NamedTuple):
    """A process that commits the event of a seed to a stream, and at which request it dies, if at any."""

    place: Place
    stream: str
    name: str | None
    seed: int
    way: Commit
    fatal: Point | None
    when: When


def commit_and_die(tell: Connection, doomed: Doomed) -> None:
    """All that is told are the requests of the commit, and its end."""
    way = doomed.way
    root = Root.open(*doomed.place, create=False)
    store = DeadlyStore(root.stores.chunks, tell, doomed.fatal, doomed.when)
    manager = StreamManager.over(Root(Stores(store, store), root.config, root.settings, described=True))
    event = manager.begin_event("sc", doomed.stream, "key", name=doomed.name)
    for piece in pieces(doomed.seed, 0, way.durable):
        event.write(piece)
    event.flush()
    store.hold_parts()
    for piece in pieces(doomed.seed, way.durable, way.size):
        event.write(piece)
    if way.scaled:
        with another_process(doomed.place) as other:
            other.scale_stream("sc", doomed.stream, [0], [(0.0, 0.5), (0.5, 1.0)])
    with store.committing():
        pointer = event.commit(move=way.scaled)
    tell.send(("committed", pointer.as_text()))
    time.sleep(1000)


def requests_of(doomed: Doomed) -> tuple[dict[Point, str], bool]:
    """The requests that its commit began, with their objects, and whether it came through."""
    requests: dict[Point, str] = {}
    with running(commit_and_die, doomed) as (process, receiver):
        for found, what in told_to_the_end(receiver):
            if found == "committed":
                return requests, True
            requests[found] = what
        process.join()
        assert process.exitcode == -signal.SIGKILL and doomed.fatal in requests
        return requests, False


def letting_in(root: Root, requests: Mapping[Point, str]) -> list[Point]:
    """Those of the requests that have made a frame of the log with a merge of a transient segment."""
    found = []
    for point, path in requests.items():
        if point[0] == MAKES_A_FRAME:
            with suppress(ObjectNotFound):
                data, number = root.stores.log.read(path), root.container_id(0)
                frame = frames.decode(data, path, number, address_of(path), whole=True)
                transactions = decode_transactions(frame.meta, FrameRef(address_of(path)))
                if any(isinstance(operation, MergeSegment) for made in transactions for operation in made.operations):
                    found.append(point)
    return found


CASES = [(found, name, when) for found in COMMITS for name in ("x", None) for when in ("before", "after")]
SAMPLE = [("some attached", "x", "after"), ("all attached", None, "before")]


@pytest.mark.parametrize(
    ("found", "name", "when"),
    [pytest.param(*case, marks=[] if case in SAMPLE else [pytest.mark.long]) for case in CASES],
)
def test_a_writer_is_killed_at_every_request_of_the_commit(
    place: Place, found: str, name: str | None, when: When
) -> None:
    """The event is there, and whole, if the request that lets it in was made, and otherwise it is not there at all.

    With a name another process goes on, and it comes once; without one its remains go after the idle time.
    """
    way = COMMITS[found]
    points: list[Point | None] = [None]
    merging, expected, parts = list[Point](), list[list[str]](), set[str]()
    with opened(place) as (root, manager):
        for seed, point in enumerate(points):  # more are found meanwhile
            stream, event = f"st-{seed}", digest(seed, way.size)
            manager.create_stream("sc", stream)
            write_small(manager, stream, "before")
            requests, survived = requests_of(Doomed(place, stream, name, seed, way, point, when))
            points += [request for request in requests if request not in points]
            parts |= {path for request, path in requests.items() if request[0].startswith(PUTS_A_PART)}
            write_small(manager, stream, "after")  # from now on nothing that was on its way can land in the log
            made = letting_in(root, requests)
            if point is None:
                merging = made
                assert survived and len(merging) == 1
            elif point[0].startswith(PUTS_A_PART) or point[0] == MAKES_A_FRAME:
                assert not survived and made == (merging if when == "after" and [point] == merging else []), point
            else:  # of upkeep, beside all else, and not in each commit
                assert made == merging or not (survived or made), point
            texts = ["before", *([event] if made else []), "after"]
            with another_process(place) as other:
                assert read(other, stream) == texts
            if name is not None and not made:
                with manager.begin_event("sc", stream, "key", name=name) as again:
                    assert way.durable <= again.tell() <= way.size
                    for piece in pieces(seed, again.tell(), way.size):
                        again.write(piece)
                    again.commit(move=way.scaled)
                texts.append(event)
            if name is not None:
                with pytest.raises(EventExists):
                    manager.begin_event("sc", stream, "key", name=name)
            expected.append(texts)
        assert points[1:]
        assert bool(root.container(0).refresh().transients) == any(len(texts) == 2 for texts in expected)
        assert collect_what_is_left(root) <= parts, "of others, the transient segments knew"
        assert [read(manager, f"st-{seed}") for seed in range(len(points))] == expected
        check_all(root)


def read(manager: StreamManager, stream: str) -> list[str]:
    """The texts of all events of a stream, and the hashes of the large ones."""
    return [told_of(event) for event in manager.read_events("sc", stream)]


# --- memory ------------------------------------------------------------------------------------------------------


def copy_to_event(tell: Connection, place: Place, source: str) -> None:
    """Idle first, then write a file as an event when the parent has looked."""
    with StreamManager(place[0], **place[1]) as manager, manager.create_writer("sc", "st") as writer:
        writer.write_event("before")
        writer.flush()
        tell.send("idle")
        while not os.path.exists(f"{source}.go"):
            time.sleep(0.01)
        with open(source, "rb") as file, writer.begin_event("key") as event:
            shutil.copyfileobj(file, event)
            tell.send(event.commit().as_text())
        time.sleep(1000)


def resident(pid: int, field: str) -> int:
    """What the kernel tells of a process's memory, bytes."""
    with open(f"/proc/{pid}/status") as file:
        (line,) = (line for line in file if line.startswith(field))
    return int(line.split()[1]) << 10


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells the memory of another process")
def test_a_writer_of_1_gib_needs_64_mib(place: Place, tmp_path: Path, record_property: Callable[..., None]) -> None:
    source, expected = tmp_path / "source", hashlib.sha256()
    with open(source, "wb") as file:
        for number in range(GIB // (16 * MIB)):
            piece = (block(number, 0) * 17)[number : number + 16 * MIB]
            file.write(piece)
            expected.update(piece)
    with StreamManager(place[0], **place[1]) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
        with running(copy_to_event, place, str(source), context=SPAWN) as (process, receiver):
            assert told(receiver) == "idle"
            time.sleep(0.5)
            idle = resident(process.pid, "VmRSS:")
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak is counted from now on
            Path(f"{source}.go").touch()
            assert receiver.poll(500)
            pointer = EventPointer.from_text(receiver.recv())
            peak = resident(process.pid, "VmHWM:")
        above = (peak - idle) / MIB
        record_property("MiB above idle", above)
        print(f"{above:.1f} MiB above {idle / MIB:.0f} MiB")
        container = Stream(manager.root, "sc", "st").container
        found = hashlib.sha256()
        for start in range(pointer.offset + 8, pointer.offset + pointer.length, 16 * MIB):
            found.update(container.read(pointer.segment, start, min(start + 16 * MIB, pointer.offset + pointer.length)))
        assert found.digest() == expected.digest()
        assert above <= 64
