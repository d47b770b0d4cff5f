"""Four hold one container exclusively in turns, each taking it from whoever has it: what they hear is linearizable.

Processes on a local root, stopped at random (SIGSTOP), and in the end killed; and threads on a root in memory, which
also share the container for once.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from chunkstore import open_store
from chunkstore.testing.latency import LatencyStore
from engine.containers.container import Container
from engine.errors import ContainerOffline, OutcomeUnknown, Rejected, SegmentSealed
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.support.linearizability import Append, Event, Invocation, Ok, Recorder, Refused, Response, check, load

SPAWN = multiprocessing.get_context("spawn")
SEGMENT = "s"
NAMES = ("a", "b", "c", "d")
GRACE = 1.0
"""Seconds; so short that some sleep longer."""
FENCED = 20
"""How many calls must have heard NotPrimary in all."""
PROGRESS = 20
"""How many calls of each process must have succeeded."""

Opening = Callable[[], Container]


# --- what the four do --------------------------------------------------------------------------------------------


def hold(name: str, path: Path, opening: Opening, chance: random.Random, going: Callable[[], bool]) -> None:
    """Take the container, use it from two threads, and take it again when it was taken away or the burst is over."""
    payloads = map("{}{}.".format, itertools.repeat(name), itertools.count())
    with ThreadPoolExecutor(2) as threads:
        for turn in itertools.count():
            if not going():
                return
            with take(opening) as container, Recorder(container, SEGMENT, f"{name}{turn}", path) as recorder:
                seeds = chance.random(), chance.random()
                for done in [threads.submit(burst, recorder, payloads, random.Random(seed)) for seed in seeds]:
                    done.result()


def take(opening: Opening) -> Container:
    """The container. Who is stopped for long while it takes hold does not learn whether it did, and tries again."""
    while True:
        with suppress(OutcomeUnknown):
            return opening()


def burst(recorder: Recorder, payloads: Iterator[str], chance: random.Random) -> None:
    """A random number of calls, until one hears that the container was taken away."""
    with suppress(ContainerOffline, OutcomeUnknown):
        for _ in range(chance.randint(1, 60)):
            with suppress(Rejected):
                call(recorder, next(payloads).encode(), chance)
            if chance.random() < 0.1:
                time.sleep(chance.random() * 0.02)


def call(recorder: Recorder, payload: bytes, chance: random.Random) -> None:
    """Append, most often; sometimes only at the offset that is thought to be the end; or look at the segment."""
    known = recorder.container.state.segment(SEGMENT).length
    kind = chance.random()
    if kind < 0.8:
        recorder.append(payload)
    elif kind < 0.9:
        recorder.append(payload, known)
    elif kind < 0.95:
        recorder.info()
    else:
        recorder.read(max(known - 200, 0), known)


def hold_in_process(url: str, name: str, path: Path, seed: int) -> None:
    """Hold the container until killed."""
    with Root.open(url, create=False) as root:
        hold(name, path, lambda: exclusive(root.stores), random.Random(seed), lambda: True)


def exclusive(stores: Stores) -> Container:
    """The container, taken from whoever has it; upkeep is frequent, so that it goes on meanwhile."""
    settings = Settings(grace=GRACE, garbage_delay=GRACE, flush_frames=50)
    return Container(stores, 0, settings, exclusive=True)


# --- what must be true of it -------------------------------------------------------------------------------------


def enough(paths: Sequence[Path]) -> bool:
    """Whether all four have made progress and have been fenced often, as their files tell."""
    texts = [path.read_bytes() if path.exists() else b"" for path in paths]
    fenced = sum(text.count(b'"NotPrimary"') for text in texts)
    return fenced >= FENCED and all(text.count(b'"ok"') >= PROGRESS for text in texts)


def verify(stores: Stores, paths: Sequence[Path], last: Path) -> None:
    """Nothing that was acknowledged is lost or doubled; all that the four heard, and a last look, is linearizable."""
    with Container(stores, 0) as container, Recorder(container, SEGMENT, "last", last) as recorder:
        length = recorder.info().length
        content = recorder.read(0, length)
    found = Counter(content.decode().split(".")[:-1])
    assert max(found.values()) == 1
    assert acknowledged(load(*paths)) <= found.keys()
    check(load(*paths, last))
    turns = [text[0] for text in found]
    assert sum(one != other for one, other in pairwise(turns)) >= FENCED // 2


def acknowledged(history: Sequence[Event]) -> set[str]:
    """What was appended for sure."""
    heard = {event[:2] for event in history if isinstance(event, Response) and isinstance(event.outcome, Ok)}
    done = [event.operation for event in history if isinstance(event, Invocation) and event[:2] in heard]
    return {operation.data.decode()[:-1] for operation in done if isinstance(operation, Append)}


# --- processes ---------------------------------------------------------------------------------------------------


def disturb(processes: Sequence[BaseProcess], chance: random.Random) -> None:
    """Stop one of the processes for a while, now and then for longer than half the grace period."""
    victim = chance.choice(processes)
    assert victim.is_alive() and victim.pid, f"{victim.name} has failed; its output tells why"
    os.kill(victim.pid, signal.SIGSTOP)
    time.sleep(chance.choice((0.02, 0.1, 0.3, 1.2 * GRACE)))
    os.kill(victim.pid, signal.SIGCONT)
    time.sleep(chance.random() * 0.3)


@pytest.mark.processes
@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(300)])])
def test_four_processes_that_fence_each_other(seconds: int, tmp_path: Path) -> None:
    chance = random.Random(seconds)
    paths = [tmp_path / f"{name}.jsonl" for name in NAMES]
    with Root.open(str(tmp_path / "root"), containers=1) as root:
        stores = root.stores
        with exclusive(stores) as container:
            container.create_segment(SEGMENT)
    places = zip(NAMES, paths, range(len(NAMES)), strict=True)
    processes = [
        SPAWN.Process(target=hold_in_process, args=(str(tmp_path / "root"), *place), name=place[0]) for place in places
    ]
    try:
        for process in processes:
            process.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end or not enough(paths):
            disturb(processes, chance)
    finally:
        for process in processes:
            process.kill()
            process.join()
    verify(stores, paths, tmp_path / "last.jsonl")


# --- threads -----------------------------------------------------------------------------------------------------


def test_four_threads_that_fence_each_other_in_memory(tmp_path: Path) -> None:
    store = open_store(f"memory://exclusive-{uuid.uuid4()}")
    stores = Stores(store, store)
    with exclusive(stores) as container:
        container.create_segment(SEGMENT)
    paths = [tmp_path / f"{name}.jsonl" for name in NAMES]
    over, end = threading.Event(), time.monotonic() + 2
    with ThreadPoolExecutor(len(NAMES)) as threads:
        futures = [
            threads.submit(hold, name, path, lambda: exclusive(stores), random.Random(seed), lambda: not over.is_set())
            for seed, (name, path) in enumerate(zip(NAMES, paths, strict=True))
        ]
        try:
            while (time.monotonic() < end or not enough(paths)) and not any(future.done() for future in futures):
                time.sleep(0.1)
        finally:
            over.set()
        for future in futures:
            future.result()
    verify(stores, paths, tmp_path / "last.jsonl")


def share(stores: Stores, name: str, seed: int) -> list[Event]:
    """Use the container together with others: append, look, truncate, and in the end seal the segment."""
    chance = random.Random(seed)
    with Container(stores, 0) as container, Recorder(container, SEGMENT, name) as recorder:
        for number in range(150):
            with suppress(Rejected):
                if chance.random() < 0.1:
                    recorder.truncate(chance.randint(0, recorder.info().length + 1))
                else:
                    call(recorder, f"{name}{number}.".encode(), chance)
        recorder.seal()
        with pytest.raises(SegmentSealed):
            recorder.append(b"too late")
        return recorder.events


@pytest.mark.parametrize(("seed", "remote"), [(1, False), (2, True)], ids=["callers' threads", "threads of its own"])
def test_four_threads_that_share_it_in_memory(seed: int, remote: bool) -> None:
    store = LatencyStore(open_store(f"memory://shared-{uuid.uuid4()}"), 0.0005)
    store.remote = remote
    stores = Stores(store, store)
    with Container(stores, 0) as container:
        container.create_segment(SEGMENT)
    with ThreadPoolExecutor(len(NAMES)) as threads:
        futures = [threads.submit(share, stores, name, seed + 10 * n) for n, name in enumerate(NAMES)]
        history = [event for future in futures for event in future.result()]
    check(history)
    outcomes = [event.outcome for event in history if isinstance(event, Response)]
    refusals = {outcome.error for outcome in outcomes if isinstance(outcome, Refused)}
    assert refusals >= {"BadOffset", "SegmentTruncated", "SegmentSealed"}
