"""A backup holds everything that was acknowledged before it began, whole, whoever flushes and backs up meanwhile
(W17)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkstore import Store, open_store
from chunkstore.paths import container_folder, is_log
from chunkstore.port import Parts
from chunkstore.testing import FaultStore, Request, SimulatedStore, WrappingStore
from chunkstore.wrapping import Result
from engine.admin.backups import back_up, copy_container, restore
from engine.admin.orphans import expire_orphans, find_orphans
from engine.errors import DataCorruption
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import BeginCycle
from engine.storage import recovery_points
from engine.storage.object_reads import Stores
from engine.storage.recovery import recover
from tests.support.simulation import Simulation


def copied(folder: Path, name: str) -> list[Path]:
    """The chunks of a segment in a folder."""
    return sorted(folder.glob(f"{name}.*"))


@pytest.mark.parametrize("targets", [("copy", "copy"), ("one copy", "another")], ids=["one target", "two targets"])
def test_backups_of_several_processes_hold_what_was_acknowledged_before_each(
    tmp_path: Path, targets: tuple[str, str]
) -> None:
    """The first try of two at once lost 1,200 of 1,210 events; here are four rounds of each."""
    root, rounds = str(tmp_path / "root"), 4
    Root.open(root, containers=1).close()
    command = [sys.executable, "-m", "tests.support.backups", root]
    processes = [
        subprocess.Popen(
            [*command, f"p{number}", str(rounds), str(tmp_path / target), str(tmp_path / "restored")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, target in enumerate(targets)
    ]
    told = [[json.loads(line) for line in process.communicate(timeout=120)[0].splitlines()] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    for counts in told:
        assert len(counts) == rounds
        assert all(there >= acknowledged for acknowledged, there, _ in counts), counts
        assert sorted(sequence for _, _, sequence in counts) == [sequence for _, _, sequence in counts]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    url = str(tmp_path / "root")
    with Root.open(url, containers=1) as root:
        container = root.container(0)
        for name in ("s/a", "s/b"):
            container.create_segment(name)
            container.append(name, b"data" * 100)
        container.flush()
    return url


def test_a_backup_says_up_to_which_operation_it_holds(folder: str, tmp_path: Path) -> None:
    with Root.open(folder) as root:
        before = root.container(0).refresh().sequence
        [done] = back_up(root, str(tmp_path / "copy")).containers
        assert before <= done.sequence == root.container(0).refresh().cycle.sequence
        assert done.time == root.container(0).state.cycle.time


@pytest.mark.parametrize("damage", ["another byte", "shorter", "longer and another byte", "gone"])
def test_what_is_not_whole_in_an_earlier_backup_is_copied_again(folder: str, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "copy"
    with Root.open(folder) as root:
        [first] = back_up(root, str(copy)).containers
        [again] = back_up(root, str(copy)).containers
        [path] = copied(copy, "s/a")
        whole = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes({"another byte": whole[:-1] + b"?", "shorter": whole[:-1]}.get(damage, b"?" + whole))
        [mended] = back_up(root, str(copy)).containers
    assert path.read_bytes() == whole
    assert mended.copied == again.copied + 1 < first.copied + 2
    restore(str(copy), str(tmp_path / "new"))
    with Root.open(str(tmp_path / "new")) as root:
        assert root.container(0).read("s/a", 0, 400) == b"data" * 100


def number_in(folder: str) -> int:
    """Container 0 of a root, with the generation of its log."""
    with Root.open(folder) as root:
        return root.container_id(0)


def test_a_storage_that_does_not_keep_what_was_copied_is_told(folder: str, tmp_path: Path) -> None:
    class Forgetful(WrappingStore):
        def put(self, path: str, data: Parts) -> None:
            super().put(path, b"" if path.startswith("s/a") else data)

        def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
            return call()

    target = SimulatedStore()
    with pytest.raises(DataCorruption, match="although it was just copied there"):
        copy_container(open_store(folder), Forgetful(target), number_in(folder))
    assert recovery_points.newest(target, number_in(folder)) is None, "a copy that is not whole is not to be found"


def test_an_older_recovery_point_than_what_was_acknowledged_is_refused(folder: str, tmp_path: Path) -> None:
    """The storage lost the newest one, or somebody put an older state of the folder back."""
    store, number = open_store(folder), number_in(folder)
    [old] = store.list(recovery_points.folder(number))
    data = store.read(old.path)
    with Root.open(folder) as root:
        root.container(0).append("s/a", b"more")
        acknowledged = root.container(0).refresh().sequence
        root.container(0).flush()
    [new] = store.list(recovery_points.folder(number))
    store.put(old.path, data)
    copy_container(store, SimulatedStore(), number, acknowledged=acknowledged)
    store.delete([new.path])
    with pytest.raises(DataCorruption, match="its recovery point is gone") as raised:
        copy_container(store, SimulatedStore(), number, acknowledged=acknowledged)
    assert "flush" in str(raised.value.remedy)


def root_of(simulation: Simulation, store: Store) -> Root:
    return Root(
        Stores(store, store),
        RootConfig("simulated", containers=1, grace_seconds=600.0, garbage_delay_seconds=600.0),
        Settings(maintenance=False, threaded=False, timeout=0.2, poll=0.05),
    )


class Late:
    """A source and a target of backups. Before write `at` of a backup, another one brings the target further."""

    def __init__(self, at: int) -> None:
        self.source, self.target = Simulation(), SimulatedStore()
        self.container = self.source.open()
        self.overtaken = False
        self._at = at
        self.container.create_segment("s/a")
        for data in (b"first", b", second"):
            self.container.append("s/a", data)
            self.container.flush()
            if data == b"first":
                copy_container(self.source.store, self.target, 0)

    def meanwhile(self, number: int, request: Request) -> None:
        if number == self._at:
            self.overtaken = True
            [old] = self.source.store.list(recovery_points.folder(0))
            data = self.source.store.read(old.path)
            self.container.append("s/a", b", third")
            self.container.flush()
            copy_container(self.source.store, self.target, 0)
            self.source.store.put(old.path, data)  # it came late, or who replaced it was killed before deleting it


def test_a_backup_that_ends_late_takes_nothing_from_a_newer_one() -> None:
    """Both go to one place. The older one is stopped before each of its writes there, and the newer one is whole by
    then. The older recovery point is still there, so the older backup goes on with it: it puts a shorter object over a
    longer one, and makes it whole again."""
    at, overtaken = 0, True
    while overtaken:
        at += 1
        late = Late(at)
        through = FaultStore(late.target, late.meanwhile, verbs={"put", "delete"})
        done = copy_container(late.source.store, through, 0)
        overtaken = late.overtaken
        newest = recovery_points.newest(late.target, 0)
        assert newest is not None and newest.state.cycle.sequence == late.container.refresh().cycle.sequence
        assert done.sequence <= newest.state.cycle.sequence
        copy = Simulation()
        copy.store.copy_of(late.target)
        assert recovered(copy) == b"first, second" + b", third" * overtaken, f"stopped before write {at}"
    assert at > 4


def recovered(copy: Simulation) -> bytes:
    recover(copy.stores, 0)
    container = copy.open()
    return container.read("s/a", 0, container.info("s/a").length)


def test_orphans_become_garbage_only_when_a_recovery_point_exists() -> None:
    """The clean-up flushes first. Another process overtakes that flush and dies: the clean-up completes one."""
    simulation = Simulation()
    simulation.store.now = time.time() - 1e6
    container = simulation.open()
    container.create_segment("s/a")
    simulation.store.put("s/a.E-1-O-0.00000000-0000-4000-8000-000000000000", b"left")
    simulation.advance(1e6)
    begun: list[int] = []

    def overtake(number: int, request: Request) -> None:
        if not begun:
            begun.append(number)
            container.commit([BeginCycle(container.refresh().cycle.number + 1)])

    with root_of(simulation, FaultStore(simulation.store, overtake, verbs={"put"})) as root:
        sweep = find_orphans(root, lambda segment: 0, 0.0)
        assert len(sweep.orphans) == 1
        expire_orphans(root, sweep, 1.0)
    assert begun and container.refresh().cycle.recovery_point >= 0
    assert recovery_points.newest(simulation.store, 0) is not None
    [garbage] = container.state.garbage.values()
    assert container.state.is_kept_for_recovery(garbage)
    assert any(is_log(info.path) for info in simulation.store.list(f"{container_folder(0)}/"))
