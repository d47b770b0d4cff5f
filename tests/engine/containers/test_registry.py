"""Containers of one process: failures of one are its own, counted, and carry their cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from chunkstore import StorageUnavailable
from chunkstore.paths import container_folder
from engine.containers.registry import MOST_RESTARTS, ContainerManager
from engine.errors import ContainerOffline, FrameDamaged
from engine.root import Root
from tests.support.simulation import Simulation

S = "scope/segment"


@pytest.fixture
def root_path(tmp_path: Path) -> Path:
    with Root.open(str(tmp_path), containers=3) as root:
        for number in range(3):
            root.container(number).create_segment(S)
    return tmp_path


def test_a_damaged_container_does_not_disturb_the_others(root_path: Path) -> None:
    [frame] = root_path.glob(f"{container_folder(1)}/wal/*/{0:020d}")
    whole = frame.read_bytes()
    frame.write_bytes(whole[:-1])
    with Root.open(str(root_path)) as root:
        for _ in range(MOST_RESTARTS):
            root.container(0).append(S, b"0")
            with pytest.raises(FrameDamaged):
                root.container(1)
            root.container(2).append(S, b"2")
        assert root.containers.online == [0, 2]
        # from then on it is left alone, until somebody says that it is mended
        frame.write_bytes(whole)
        with pytest.raises(ContainerOffline, match=r"failed to start 5 times in a row.*restart\(1\)") as caught:
            root.container(1)
        assert isinstance(caught.value.__cause__, FrameDamaged)
        root.restart(1).append(S, b"1")
        assert root.containers.online == [0, 2, 1]


def test_an_outage_of_the_storage_does_not_count() -> None:
    """However long it lasts: processes that live long go on by themselves when it is over."""
    simulation = Simulation()
    simulation.open().create_segment(S)
    containers = ContainerManager(lambda number: simulation.open(timeout=1.0))
    simulation.store.fail_before = 1.0
    for _ in range(2 * MOST_RESTARTS):
        with pytest.raises(StorageUnavailable):
            containers.container(0)
    simulation.store.fail_before = 0.0
    assert containers.container(0).append(S, b"0") == 0


def test_one_that_goes_offline_is_started_again_at_its_next_use(root_path: Path) -> None:
    with Root.open(str(root_path)) as root:
        container = root.container(0)
        container.log.processor.fail(RuntimeError("by the test"))
        assert root.containers.online == []
        assert str(container.log.processor.failure) == "by the test"
        with pytest.raises(ContainerOffline):
            container.append(S, b"lost")
        root.container(0).append(S, b"kept")
        assert root.container(0).read(S, 0, 4) == b"kept"


def test_stopping(root_path: Path) -> None:
    root = Root.open(str(root_path))
    container = root.container(0)
    future = container.submit_append(S, b"data")
    root.containers.stop(0)
    assert future.result(0).results == [0]
    assert root.containers.online == []
    root.close()
