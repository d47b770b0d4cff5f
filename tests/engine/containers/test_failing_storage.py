"""A container on storage that fails."""

import contextlib
from collections import Counter
from unittest import mock

import pytest

from chunkstore import StorageError
from engine.errors import OutcomeUnknown
from tests.engine.containers.segments import content
from tests.support.simulation import Simulation, audit


def test_when_the_storage_is_silent_for_too_long_the_caller_is_told_and_the_container_goes_on() -> None:
    simulation = Simulation()
    container = simulation.open(timeout=5.0)
    container.create_segment("s/a")
    simulation.store.fail_before = 1.0
    with pytest.raises(OutcomeUnknown, match=r"wal/0{19}1: the storage gave no answer"):
        container.append("s/a", b"unknown")
    with pytest.raises(StorageError):
        container.refresh()
    simulation.store.fail_before = 0.0
    assert not container.offline
    assert container.append("s/a", b"known") == 0
    assert content(simulation.open(), "s/a") == b"known"


def test_ctrl_c_while_the_storage_is_silent_is_no_error_of_the_container(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation()
    container = simulation.open()
    container.create_segment("s/a")
    silent = mock.patch.object(simulation.store, "read_ranges", side_effect=KeyboardInterrupt)
    with silent, pytest.raises(KeyboardInterrupt):
        container.refresh()
    [logged] = caplog.records
    assert logged.levelname == "WARNING"
    assert logged.getMessage() == (
        "container 0: the container went offline: KeyboardInterrupt ended its work on the log half-way; open it again"
    )
    assert container.offline
    assert simulation.open().append("s/a", b"known") == 0


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 30))])
def test_on_bad_storage_every_append_is_there_once_or_was_reported(seed: int) -> None:
    """Requests get lost, responses get lost, and lost requests arrive late, for two processes at once."""
    simulation = Simulation(seed, timeout=2.0)
    simulation.open().create_segment("s/a")
    containers = [simulation.open(), simulation.open()]
    store = simulation.store
    store.fail_before = store.fail_after = store.conflict = store.late = 0.15
    acknowledged: dict[int, bytes] = {}
    unknown, refused = set(), set()
    for number in range(60):
        event, container = b"<%02d>" % number, containers[number % 2]
        try:
            acknowledged[container.append("s/a", event)] = event
        except OutcomeUnknown:
            unknown.add(event)
        except StorageError:
            refused.add(event)
        with contextlib.suppress(OutcomeUnknown, StorageError):
            if number % 10 == 0:
                container.flush()
            elif number % 10 == 5:
                container.checkpoint()
    store.fail_before = store.fail_after = store.conflict = store.late = 0.0
    store.arrive()
    data = content(simulation.open(), "s/a")
    found = Counter(data[start : start + 4] for start in range(0, len(data), 4))
    assert set(found.values()) == {1}
    assert all(data[offset : offset + 4] == event for offset, event in acknowledged.items())
    assert not refused & set(found)
    assert set(found) <= {*acknowledged.values(), *unknown}
    assert len(acknowledged) > 30
    for container in containers:
        assert content(container, "s/a") == data
        audit(container.state)
