"""Processes that sleep while the log goes on and is truncated behind their backs (W7): simulated, and real ones.

The tests that leave a rule out must find violations; else those that leave none out would prove nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from chunkstore import Store, open_store, stamps
from chunkstore.testing import Request, WrappingStore
from chunkstore.wrapping import Result
from engine.containers.container import Container
from engine.errors import EngineError
from engine.logs.log import Log
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.support.folder_stamps import FolderStamps
from tests.support.processes import GRACE, World
from tests.support.simulation import Simulation

# -- simulated: two writers with two frames in flight, a reader, a truncator, and stops anywhere


def run(seeds: range, steps: int, grace: float, frozen: bool = False, **faults: Any) -> tuple[int, int]:
    """How many objects were deleted in all, and how often a process had to start over."""
    deleted, restarts = 0, 0
    for seed in seeds:
        world = World(seed, stalls=0.03, grace=grace, frozen=frozen, **faults)
        try:
            world.run(steps)
        except BaseException as error:
            error.args = (f"seed {seed}: {error}",)
            raise
        deleted += world.truncated
        restarts += sum(process.restarts for process in world.processes)
    return deleted, restarts


@pytest.mark.parametrize("faults", [{}, {"fail_after": 0.1}], ids=["calm", "lost responses"])
def test_sleepers_lose_nothing_and_see_no_wrong_frame(faults: dict[str, Any]) -> None:
    deleted, restarts = run(range(40), 80, GRACE, **faults)
    assert deleted > 1000 and restarts > 100


@pytest.mark.parametrize(
    "faults",
    [{}, {"fail_after": 0.1}, {"through": FolderStamps}],
    ids=["calm", "lost responses", "absence carries no time"],
)
def test_hosts_whose_clocks_stand_still_lose_nothing_and_see_no_wrong_frame(faults: dict[str, Any]) -> None:
    """A hypervisor stops them: neither the time of day nor any other clock of theirs goes on, the storage's does."""
    deleted, restarts = run(range(5), 80, GRACE, frozen=True, **faults)
    assert deleted > 100 and restarts > 10


def test_without_the_storages_time_clocks_that_stand_still_are_found_out_too_late() -> None:
    """Proves that the test above can fail."""
    deaf = mock.patch.object(stamps, "note")
    with deaf, pytest.raises((AssertionError, EngineError)):
        run(range(300), 80, GRACE, frozen=True)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("frozen", [False, True], ids=["running clocks", "clocks that stand still"])
@pytest.mark.parametrize(
    "faults",
    [{}, {"fail_after": 0.1, "fail_before": 0.05}, {"through": FolderStamps}],
    ids=["calm", "faults", "absence carries no time"],
)
def test_sleepers_in_many_schedules(faults: dict[str, Any], frozen: bool) -> None:
    run(range(1000, 1200 if frozen else 2000), 100, GRACE, frozen, **faults)


def without_trust(method: str) -> Callable[[], Any]:
    """A patch by which the truncation point is not looked at within a method of Log, in the process that calls it."""
    original, trust = getattr(Log, method), Log._trust

    def trusting(self: Log, *arguments: Any) -> Any:
        vars(self)["trusting"] = True
        try:
            return original(self, *arguments)
        finally:
            del vars(self)["trusting"]

    def maybe(self: Log, address: int, stamp: float | None) -> None:
        if "trusting" not in vars(self):
            trust(self, address, stamp)

    patches: dict[str, Any] = {method: trusting, "_trust": maybe}
    return lambda: mock.patch.multiple(Log, **patches)


def without_any_trust() -> Any:
    return mock.patch.object(Log, "_trust", return_value=None)


@pytest.mark.parametrize(
    ("rule_off", "grace"),
    [
        (without_any_trust, GRACE),
        (without_trust("settle"), GRACE),
        (without_trust("_read_on"), GRACE),
        (nullcontext, -1.0),
    ],
    ids=["none", "acknowledging", "reading", "grace"],
)
def test_without_a_rule_violations_are_found(rule_off: Callable[[], Any], grace: float) -> None:
    with rule_off(), pytest.raises((AssertionError, EngineError)):
        run(range(300), 80, grace)


# -- containers that sleep


class Sleepy(WrappingStore):
    """Calls `meanwhile`, once, before the next request whose path begins with `prefix`."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.prefix = ""
        self.meanwhile: Callable[[], object] | None = None

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if self.meanwhile and request.paths and request.paths[0].startswith(self.prefix):
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return call()


def others_go_on(simulation: Simulation, flush: bool = True) -> None:
    """Another process appends, makes a checkpoint, truncates, and appends some more."""
    with simulation.open() as other:
        other.append("s", b"behind the boundary ")
        if flush:
            other.flush()
        other.checkpoint()
        other.append("s", b"after it ")
        simulation.advance(GRACE + 1)
        other.truncate_log()


def read_all(container: Container) -> bytes:
    return container.read("s", 0, container.info("s").length)


def test_who_wakes_up_sees_everything_at_once() -> None:
    simulation = Simulation(grace=GRACE)
    sleeper = simulation.open()
    sleeper.create_segment("s")
    others_go_on(simulation)
    assert read_all(sleeper) == b"behind the boundary after it "
    assert sleeper.append("s", b"awake") == sleeper.info("s").length - 5


@pytest.mark.parametrize("pause", [0.1, 0.3, 0.4, 0.6, 1.2])
def test_a_writer_that_pauses_beside_busy_ones_knows_what_became_of_its_appends(pause: float) -> None:
    """Whatever share of the grace period its pause is: it was not stopped in the middle of anything."""
    simulation = Simulation(grace=GRACE)
    writer, busy = simulation.open(), simulation.open()
    writer.create_segment("s")
    busy.refresh()
    for number in range(4):
        for _ in range(20):
            busy.append("s", b".")
        busy.checkpoint()
        simulation.advance(pause * GRACE)
        busy.append("s", b".")
        assert writer.append("s", b"w") == 22 * (number + 1) - 1


def test_a_truncator_that_slept_keeps_what_is_not_flushed() -> None:
    """It slept between learning which frames hold data and learning which truncation point is old enough."""
    simulation = Simulation(grace=GRACE)
    sleepy = Sleepy(simulation.store)
    truncator = simulation.open(through=sleepy)
    truncator.create_segment("s")
    sleepy.prefix, sleepy.meanwhile = "_system/containers/0/checkpoints/", lambda: others_go_on(simulation, flush=False)
    truncator.truncate_log()
    assert sleepy.meanwhile is None
    with simulation.open() as newcomer:
        assert read_all(newcomer) == b"behind the boundary after it "


# -- real


class Sleeper:
    """A process that stops in the middle of an append (see tests.support.sleeper). Ends with the with statement."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.sleeper", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout

    def stop(self) -> str:
        """Stop it at the put of a frame; the frame's path."""
        path = self._from.readline().strip()
        os.kill(self._process.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(self._process.pid, os.WUNTRACED)[1])
        self._to.write("go on\n")
        self._to.flush()
        return path

    def wake(self) -> list[int | str]:
        """Let it go on; what became of its two appends."""
        os.kill(self._process.pid, signal.SIGCONT)
        outcomes: list[int | str] = json.loads(self._from.readline())
        assert self._process.wait(30) == 0
        return outcomes

    def __enter__(self) -> Sleeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._to.close()
        self._from.close()


def sleep_through_a_truncation(root: Path, *mode: str) -> tuple[list[int | str], bytes]:
    """What a process hears of its two appends that is stopped at the put of the first, while another one appends, makes
    a checkpoint and truncates until the frame's address is free; and what the segment holds in the end."""
    grace = 1.0
    store = open_store(str(root))
    stores, settings = Stores(store, store), Settings(grace=grace, maintenance=False)
    with Container(stores, 0, settings) as other, ExitStack() as stack:
        other.create_segment("s")
        other.append("s", b"first ")
        sleeper = stack.enter_context(Sleeper(root, grace, *mode))
        path = sleeper.stop()
        for _ in range(3):
            other.append("s", b"other ")
        assert store.stat(path), "somebody's frame is where the sleeper's is to go"
        other.flush()
        other.checkpoint()
        while path in [info.path for info in store.list(path.rpartition("/")[0] + "/")]:
            time.sleep(0.1)
            other.truncate_log()
        outcomes = sleeper.wake()
        content = other.read("s", 0, other.info("s").length)
        with Container(stores, 0, settings) as newcomer:
            assert newcomer.read("s", 0, newcomer.info("s").length) == content
    return outcomes, content


@pytest.mark.processes
def test_a_process_stopped_before_its_put_acknowledges_nothing_that_is_lost(tmp_path: Path) -> None:
    outcomes, content = sleep_through_a_truncation(tmp_path, "before")
    assert content == b"first other other other sleeper"
    assert outcomes == ["OutcomeUnknown", content.index(b"sleeper")]


@pytest.mark.processes
def test_a_process_stopped_after_its_put_is_in_doubt(tmp_path: Path) -> None:
    outcomes, content = sleep_through_a_truncation(tmp_path, "after")
    assert content == b"first sleeperother other other sleeper"
    assert outcomes == ["OutcomeUnknown", content.rindex(b"sleeper")]


@pytest.mark.processes
def test_without_the_check_a_stopped_process_acknowledges_what_is_lost(tmp_path: Path) -> None:
    """Proves that the tests above can fail."""
    outcomes, content = sleep_through_a_truncation(tmp_path, "before", "trusting")
    assert outcomes[0] == len(b"first ") and not content[len(b"first ") :].startswith(b"sleeper")
