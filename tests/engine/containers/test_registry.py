"""Containers of one process: failures of one are its own, counted, and carry their cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from chunkstore.paths import container_folder
from engine.containers.registry import MOST_RESTARTS, Condition
from engine.errors import ContainerOffline, FrameDamaged
from engine.root import Root

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
        statuses = root.containers.start([0, 1, 2])
        assert [status.condition for status in statuses.values()] == [
            Condition.ONLINE,
            Condition.OFFLINE,
            Condition.ONLINE,
        ]
        assert isinstance(statuses[1].cause, FrameDamaged)
        root.container(0).append(S, b"0")
        root.container(2).append(S, b"2")
        for failures in range(1, MOST_RESTARTS):
            assert root.containers.status(1).failures == failures
            with pytest.raises(FrameDamaged):
                root.container(1)
        # from then on it is left alone, until somebody says that it is mended
        frame.write_bytes(whole)
        with pytest.raises(ContainerOffline, match=r"failed to start 5 times in a row.*restart\(1\)") as caught:
            root.container(1)
        assert isinstance(caught.value.__cause__, FrameDamaged)
        assert root.containers.status(1).condition is Condition.POISONED
        root.restart(1).append(S, b"1")
        assert root.containers.status(1) == (Condition.ONLINE, 0, None)


def test_one_that_goes_offline_is_started_again_at_its_next_use(root_path: Path) -> None:
    with Root.open(str(root_path)) as root:
        container = root.container(0)
        container.fail(RuntimeError("by the test"))
        status = root.containers.status(0)
        assert status.condition is Condition.OFFLINE
        assert str(status.cause) == "by the test"
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
    assert root.containers.status(0).condition is Condition.STOPPED
    root.close()
