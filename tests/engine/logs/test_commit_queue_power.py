"""Power failures of a folder in which several processes commit together (W18), at every call of the system (G3).

Submissions are not synced: a power failure loses them, or leaves them empty. An owner acknowledges by the frames of
another process, which may have been killed before it synced them.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from chunkstore import Store, open_store
from chunkstore.testing import Request, WrappingStore
from chunkstore.wrapping import Result
from engine.containers.container import Container
from tests.engine.logs.company import Company, OnFolder, S, appended, carried
from tests.engine.logs.producers import Producer, check, finish, make_segments, take_turns
from tests.engine.logs.stepped import Neighbour, Stepped
from tests.support.power import Disk
from tests.support.simulation import small_sizes

ROUNDS = 4
SETTINGS: dict[str, Any] = {
    "maintenance": True,
    "checkpoint_frames": 4,
    "flush_frames": 1 << 20,
    "flush_seconds": 1e9,
    "timeout": 0.01,
}

TRANSPORTS = [pytest.param(Stepped, id="objects"), pytest.param(Neighbour, id="mailboxes", marks=pytest.mark.long)]


@pytest.fixture(autouse=True, params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How submissions travel."""
    monkeypatch.setattr(Company, "processor", request.param)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if there is such a thing: the disks here are none."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


class OnDisk(Company):
    """Processes whose folder is on a disk. steps: what the others do after one of them is killed, before the power
    fails."""

    def __init__(self, disk: Disk, steps: int, others: int = 2) -> None:
        self.disk = disk
        self.steps = steps
        super().__init__(others, simulation=OnFolder(disk.folder, **SETTINGS))

    def let(self, container: Container, work: Callable[[], object]) -> None:
        self.steps -= bool(self.dead)
        if self.steps >= 0:
            super().let(container, work)
        if container in self.dead:
            self.disk.revive()


def fails_at(point: int, place: Path, steps: int) -> tuple[bool, int]:
    """Kill a process at a call, let the others make so many steps, and let the power fail. Whether that call was made,
    and how many transactions were carried."""
    disk = Disk(str(place / "before"))
    with disk.mounted():
        company = OnDisk(disk, steps)
        make_segments(company)
        producers = [Producer(name, each) for name, each in zip("mop", company.containers, strict=True)]
        disk.stop_at = disk.calls + point
        take_turns(company, producers, ROUNDS, point)
        reached = bool(company.dead)
        disk.revive()
        carries = carried(open_store(disk.folder))
    left = disk.after_power_failure(place / "after")
    with left.mounted():
        restarted = OnFolder(left.folder, **SETTINGS)
        with restarted.open() as newcomer:
            check(newcomer, producers)
        company.simulation, company.disk = restarted, left
        company.containers, company.dead, company.steps = [], set(), 0
        producers += [Producer(name, company.join()) for name in "xy"]  # they meet what is left of the inboxes
        take_turns(company, producers[-2:], 1, point)
        finish(company, producers[-2:])
        assert all(producer.acknowledged for producer in producers[-2:])
        with restarted.open() as newcomer:
            check(newcomer, producers)
    return reached, carries


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(300)])])
@pytest.mark.parametrize("most_steps", [0, 100])
def test_what_was_acknowledged_in_company_survives_a_power_failure(memory: Path, most_steps: int, every: int) -> None:
    most = 0
    for point in count(1, every):
        place = memory / str(point)
        place.mkdir()
        try:
            reached, carries = fails_at(point, place, random.Random(point).randint(0, most_steps))
        except BaseException as error:
            raise AssertionError(f"killed at call {point}") from error
        most = max(most, carries)
        if not reached:
            break
    print(f"{point} calls, {most} carried")
    assert point > 50 and most > 5, "with mailboxes there are fewer calls than with objects"


def test_an_owner_acknowledges_nothing_that_a_killed_maker_has_not_synced(memory: Path) -> None:
    """The maker is killed at each call, the owner goes on until it knows the outcome, and then the power fails."""
    reached, acknowledged = True, 0
    for point in count(1):
        disk = Disk(str(memory / str(point)))
        with disk.mounted():
            company = OnDisk(disk, steps=1000, others=1)
            future = company.owner.submit([appended(b"once")])
            company.step(company.owner)
            disk.stop_at = disk.calls + point
            company.turn(company.maker)
            reached = bool(company.dead)
            disk.revive()
            for _ in range(100):
                if not future.done():
                    company.turn(company.owner)
                    company.simulation.advance(0.02)
            assert future.exception(0) is None
            acknowledged += future.result(0).tries == 1
        left = disk.after_power_failure(memory / f"{point} after")
        with left.mounted(), OnFolder(left.folder, **SETTINGS).open() as newcomer:
            assert newcomer.read(S, 0, newcomer.info(S).length) == b"once", f"killed at call {point}"
        if not reached:
            break
    assert point > 5 and 1 < acknowledged < point, "some are carried, and some go into a frame of the owner"


class Forgetful(WrappingStore):
    """The server of a folder, whose power fails: a submission is gone, or cut, while all processes go on."""

    def __init__(self, inner: Store, chance: random.Random) -> None:
        super().__init__(inner)
        self._chance = chance

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        result = call()
        if request.verb == "post" and self._chance.random() < 0.5:
            path = request.paths[0]
            keep = self._chance.choice((None, 0, self._chance.randrange(request.sent)))
            whole = self.inner.read(path)
            self.inner.delete([path])
            if keep is not None:
                self.inner.put(path, whole[:keep])
        return result


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.long)])
def test_submissions_that_vanish_or_are_cut_cost_time_only(first: int) -> None:
    for seed in range(first, first + (500 if first else 12)):
        company = Company(3, through=partial(Forgetful, chance=random.Random(seed)))
        make_segments(company)
        producers = [Producer(name, each) for name, each in zip("mopq", company.containers, strict=True)]
        take_turns(company, producers, 4, seed)
        finish(company, producers)
        assert not any(producer.unknown for producer in producers), f"seed {seed}"
        with company.simulation.open() as newcomer:
            check(newcomer, producers)
