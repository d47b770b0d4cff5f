"""Truncation sweeps the submissions that no process deleted, whatever request it crashes at (W18)."""

from __future__ import annotations

from typing import get_args

import pytest

from chunkstore.testing import CountingStore, Crashed, FaultStore, crash_at
from chunkstore.testing.faults import When
from engine.containers.container import Container
from engine.logs.submission import Address, encode, inbox_folder, submission_path
from engine.logs.truncation import truncate_log
from engine.state.operations import Append, Payload
from tests.support.simulation import Simulation

S = "s/a"
GRACE = 600.0


class Left:
    """A root where truncation deletes frames, a checkpoint and submissions: two of a past epoch, and one of an owner
    that died. A young submission is still wanted."""

    def __init__(self) -> None:
        self.simulation = Simulation(grace=GRACE)
        first = self.simulation.open()
        first.create_segment(S)
        self.post(first.head.epoch, 1)
        self.post(first.head.epoch, 2)
        self.container = self.simulation.open()
        self.container.append(S, b"data")
        self.post(self.container.head.epoch, 3)
        self.container.flush()
        for _ in range(2):
            self.container.append(S, b" more")
            self.container.checkpoint()
        self.simulation.advance(2 * GRACE)
        self.young = self.post(self.container.head.epoch, 4)

    def post(self, epoch: int, number: int) -> str:
        address = Address(epoch, b"o" * 16, number, b"%08d" % number)
        path = submission_path(0, address)
        self.simulation.store.post(path, encode(0, address, [[Append(S, Payload(b"lost"))]]))
        return path

    @property
    def inbox(self) -> list[str]:
        return [info.path for info in self.simulation.store.list(inbox_folder(0))]

    def truncate(self, container: Container) -> int:
        store = container.stores.log
        return truncate_log(store, 0, container.refresh, GRACE, self.simulation.store.now, container.head.address)


def test_a_truncation_costs_one_listing_more() -> None:
    left = Left()
    counting = CountingStore(left.simulation.store)
    container = left.simulation.open(through=counting)
    counting.reset()
    assert left.truncate(container) > 3
    assert left.inbox == [left.young]
    assert counting.count("list", inbox_folder(0)) == 2, "one page, and the end"
    counting.reset()
    left.simulation.store.delete([left.young])
    left.truncate(container)
    assert counting.count("list", inbox_folder(0)) == 1


@pytest.mark.parametrize("when", get_args(When))
def test_a_sweep_that_crashes_at_any_request_is_done_by_the_next_one(when: When) -> None:
    number, crashed = 0, True
    while crashed:
        number, left = number + 1, Left()
        faults = FaultStore(left.simulation.store)
        container = left.simulation.open(through=faults)
        faults.plan = crash_at(faults.passed + number, when)
        try:
            left.truncate(container)
            crashed = False
        except Crashed:
            pass
        assert left.young in left.inbox
        with left.simulation.open() as survivor:
            left.truncate(survivor)
            assert left.inbox == [left.young]
            assert survivor.read(S, 0, survivor.info(S).length) == b"data more more"
    assert number > 5
