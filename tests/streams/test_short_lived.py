"""A root that only short-lived processes use: each opens it, commits once and ends, and nothing is scheduled (W12)."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import engine.root
from chunkstore import Store, open_store
from chunkstore.paths import ROOT, SystemPlace, is_log, place_of
from chunkstore.testing import CountingStore, SimulatedStore
from engine.containers.container import Container
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.tables import RESIDENT_BYTES
from engine.storage.object_reads import Stores
from engine.storage.recovery import recover
from pravega_spark.client.manager import StreamManager
from pravega_spark.client.writer import WriteFailed
from pravega_spark.streams.model.names import segment_name
from tests.support.rados_gateway import RadosGateway
from tests.support.short_lived import End, Mortal

SEGMENT = segment_name("s", "t", 0)
EVENT = b"%012d"
FRAMED = 8 + len(EVENT % 0)
ENDS = [End.CLOSE, End.KILL]
SECONDS = 5.0
"""Grace period and garbage delay of these roots: what the usual ten minutes are to jobs that come every few seconds."""


class Row(NamedTuple):
    """What lies in a root after some commits; requests and milliseconds of an opening that looks at the stream's tail;
    events that a recovery from LTS alone would lack; commits a second, on which it depends how many are younger than
    the grace period."""

    commits: int
    frames: int
    checkpoints: int
    checkpoint_bytes: int
    tables: int
    recovery_points: int
    chunks: int
    requests: int
    milliseconds: float
    behind: int
    per_second: float


class Roots:
    """A root that is opened again and again, through stores of its processes."""

    def __init__(self, url: str, options: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.settings = Settings(linger=0.0, **settings)
        self.url = url
        self.options = options
        self.store = open_store(url, options)
        self._through: Store = self.store
        self._monkeypatch = monkeypatch
        self._rowed = 0, time.monotonic()
        monkeypatch.setattr(engine.root, "open_store", lambda url, options=None: self._through)
        with StreamManager.over(self.open(self.store, grace_seconds=SECONDS, garbage_delay_seconds=SECONDS)) as manager:
            manager.create_scope("s")
            manager.create_stream("s", "t")

    def open(self, through: Store, **agreed: Any) -> Root:
        self._through = through
        return Root.open(self.url, self.options, settings=self.settings, **({"containers": 1} | agreed))

    def real(self) -> None:
        """From now on each opening makes its own connections."""
        self._monkeypatch.undo()

    def process(self, number: int, end: End) -> None:
        """One process's worth: open, commit, end."""
        mortal = Mortal(self.store)
        manager = StreamManager.over(self.open(mortal))
        writer = manager.create_writer("s", "t")
        writer.write_event_bytes(EVENT % number)
        writer.flush()
        if end is End.KILL:
            mortal.kill()
            with suppress(WriteFailed):  # a dead process has nobody who hears it
                manager.close()
        else:
            manager.close()

    def row(self, commits: int) -> Row:
        rate = (commits - self._rowed[0]) / (time.monotonic() - self._rowed[1])
        listed = self.store.list("")
        kinds = Counter(kind_of(info.path) for info in listed)
        largest = max((info.size for info in listed if kind_of(info.path) == "checkpoints"), default=0)
        requests, seconds = [], []
        for _ in range(5):
            counting = CountingStore(self.store)
            begun = time.perf_counter()
            with StreamManager.over(self.open(counting)) as manager:
                manager.stream_info("s", "t")
            seconds.append(time.perf_counter() - begun)
            requests.append(sum(len(request.paths) for request in counting.requests))
        behind = commits - self.recovered() if kinds["recovery_point"] else commits
        self._rowed = commits, time.monotonic()
        return Row(
            commits,
            kinds["wal"],
            kinds["checkpoints"],
            largest,
            kinds["tables"],
            kinds["recovery_point"],
            kinds["chunks"],
            max(requests),
            round(1000 * statistics.median(seconds), 1),
            behind,
            round(rate, 1),
        )

    def recovered(self) -> int:
        """How many events a recovery from LTS alone finds; they must be the first ones, in order."""
        copy = SimulatedStore(now=time.time())
        for info in self.store.list(""):
            if not is_log(info.path):
                copy.put(info.path, self.store.read(info.path))
        stores, number = Stores(copy, copy), RootConfig.from_bytes(copy.read(ROOT), self.url).container(0)
        recover(stores, number)
        with Container(stores, number, Settings(maintenance=False)) as container:
            data = container.read(SEGMENT, 0, container.info(SEGMENT).length)
        return events_in(data)


def kind_of(path: str) -> str:
    """What an object is; of the log its folder, as in `_system/containers/<number>/<kind>/…`."""
    found = place_of(path)
    if found is None:
        return "chunks"
    return found[0].value if found[0] is not SystemPlace.LOG else path.split("/")[3]


def events_in(data: bytes) -> int:
    """How many events these are, which must be those from 0 on."""
    events = [data[at + 8 : at + FRAMED] for at in range(0, len(data), FRAMED)]
    assert events == [EVENT % number for number in range(len(events))]
    return len(events)


def mixed(number: int) -> End:
    """Two of three are killed."""
    return ENDS[number % 3 > 0]


def in_turn(roots: Roots, processes: int, step: int, end: Callable[[int], End]) -> list[Row]:
    """Processes one after the other; a row after each `step` of them. Once there is a recovery point, one is there."""
    rows, recoverable = [], False
    for number in range(processes):
        roots.process(number, end(number))
        if number % 20 == 0:
            found = bool(roots.store.list("_system/containers/0/recovery-points/", limit=1))
            assert found or not recoverable, f"no recovery point after commit {number}"
            recoverable = found
        if (number + 1) % step == 0:
            rows.append(roots.row(number + 1))
            print(*rows[-1], flush=True)
    return rows


def check_flat(rows: list[Row], early: int) -> None:
    """Nothing but the chunks with the events grows from the first `early` rows on."""
    assert all(row.recovery_points == 1 for row in rows if row.commits > 2200), "overdue after 2,000 frames"
    first, last = rows[:early], rows[early:]
    for field, slack in (("checkpoint_bytes", RESIDENT_BYTES), ("requests", 8)):
        before, after = (max(getattr(row, field) for row in some) for some in (first, last))
        assert after <= 2 * before + slack, (field, before, after)  # a small table is in the checkpoint whole
    for row in rows:
        young = 4 * SECONDS * row.per_second  # the grace period, twice that of the witness, and until somebody looks
        assert row.checkpoints <= 16 + young / 8, row
        silent = SECONDS * row.per_second  # who was killed in a flush cycle is waited for
        assert row.frames <= 2400 + 1.5 * (young + silent), row
        assert row.behind <= 2400 + 1.5 * silent, row
    assert max(row.tables for row in rows) <= 40


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("end", [*ENDS, End.MIXED])
def test_twenty_thousand_on_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: End) -> None:
    processes = int(os.environ.get("SHORT_LIVED", "20000"))
    roots = Roots(str(tmp_path / "root"), {}, monkeypatch)
    rows = in_turn(roots, processes, processes // 20, mixed if end is End.MIXED else lambda number: end)
    check_flat(rows, 4)


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_twenty_thousand_on_s3(rados_gateway: RadosGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = int(os.environ.get("SHORT_LIVED", "20000"))
    url = f"{rados_gateway.make_bucket()}/root"
    roots = Roots(url, rados_gateway.storage_options(), monkeypatch, flush_frames=processes // 20)
    rows = in_turn(roots, processes, processes // 20, mixed)
    check_flat(rows, 4)


@pytest.mark.processes
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_six_hundred_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third closes, a third calls `os._exit`, a third is killed by a signal, each right after its commit.

    A machine may be so fast that nothing is older than the grace period when 400 have run, and all of it has to
    stay: the frames are counted some time later, after the last 200.
    """
    roots = Roots(str(tmp_path / "root"), {}, monkeypatch)
    roots.real()
    rows = []
    for number in range(600):
        if number == 400:
            time.sleep(4 * SECONDS)
        child = os.fork()
        if child == 0:
            commit_and_end(str(tmp_path / "root"), number)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == (0, 0, -signal.SIGKILL)[number % 3]
        if (number + 1) % 50 == 0:
            rows.append(roots.row(number + 1))
            print(*rows[-1], flush=True)
    last = rows[-1]
    assert last.frames <= 350 and last.checkpoints <= 60, last
    assert last.recovery_points == 1 and last.behind <= 250, last
    with StreamManager(str(tmp_path / "root")) as manager, manager.create_writer("s", "t") as writer:
        writer.write_event_bytes(EVENT % 600)
    container = Root.open(str(tmp_path / "root")).container(0)
    data = container.read(SEGMENT, 0, container.info(SEGMENT).length)
    assert events_in(data) == 601


def commit_and_end(url: str, number: int) -> None:
    """What the process does. It never returns."""
    try:
        settings = Settings(linger=0.0, flush_frames=100)
        manager = StreamManager.over(Root.open(url, settings=settings))
        writer = manager.create_writer("s", "t")
        writer.write_event_bytes(EVENT % number)
        writer.flush()
        if number % 3 == 0:
            manager.close()
        elif number % 3 == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    finally:
        os._exit(1)
