"""The commit queue on one host: submissions and the news of their outcome come by mailboxes (W18)."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkstore import Outcome, Store
from chunkstore.port import Parts
from chunkstore.testing import CountingStore, SimulatedStore
from engine.containers.container import Container
from engine.logs.inbox import GATHERED_SENDERS
from engine.logs.log import LEAST_TRIP, LONGEST_TRIP
from engine.logs.mailbox import LARGEST, Mailbox
from engine.logs.transaction import CommitFuture
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.engine.logs.company import Company, S, appended, carried, processor_of
from tests.engine.logs.stepped import Neighbour
from tests.engine.logs.test_commit_queue_metrics import counts, gained
from tests.support.simulation import Simulation


class Slow(CountingStore):
    """Counts requests. A frame takes much longer than everything else."""

    def __init__(self, inner: Store, simulation: Simulation) -> None:
        super().__init__(inner)
        self._simulation = simulation

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        self._simulation.advance(0.05)
        return super().put_if_absent(path, data)

    def sync(self, prefix: str) -> None:
        self.counts["sync"] += 1
        super().sync(prefix)


class Neighbours(Company):
    """A company on one host. The requests of each are counted."""

    processor = Neighbour

    def __init__(self, others: int = 2) -> None:
        simulation = Simulation(linger=0.0)
        super().__init__(others, simulation=simulation, through=lambda store: Slow(store, simulation))
        self.let_them_meet()
        for store in self.stores:
            store.reset()

    def let_them_meet(self) -> None:
        """All have a mailbox, and know of each other."""
        for container in self.containers[1:]:
            container.submit([appended(b".")])
        self.turn()
        assert self.content == b"." * (len(self.containers) - 1)

    def of(self, place: int) -> Neighbour:
        """The processor of one of them."""
        found = processor_of(self.containers[place])
        assert isinstance(found, Neighbour)
        return found

    def submit(self, place: int, data: bytes) -> CommitFuture:
        """One of them submits, without time passing."""
        future = self.containers[place].submit([appended(data)])
        assert isinstance(future, CommitFuture)
        self.of(place).log.meet()
        self.of(place).step()
        return future

    def steps(self, *places: int, times: int = 3) -> None:
        """These do what there is to do, without time passing."""
        for _ in range(times):
            for place in places:
                self.of(place).log.meet()
                self.of(place).step()


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of mailboxes. pytest makes its own first, so that it is not made in here."""
    tmp_path_factory.getbasetemp()
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as short, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", short)
        yield Path(short)


def test_what_comes_by_the_mailbox_is_one_frame_of_the_maker_and_one_read_of_the_owner() -> None:
    company = Neighbours()
    future = company.submit(1, b"x")
    company.steps(0)
    assert carried(company.simulation.store) == 3
    assert not future.done(), "it learns it from the log only"
    company.steps(1)
    assert future.exception(0) is None
    assert company.content == b"..x"
    assert company.stores[0].counts == {"put_if_absent": 1}
    assert company.stores[1].counts == {"read_ranges": 1}, "no submission, no look at the log's end, and nothing synced"
    assert not company.inbox


def test_messages_are_counted() -> None:
    company = Neighbours()
    before = counts()
    company.submit(1, b"x")
    assert gained(before) == {"submit_message": 1}


def test_an_outcome_is_not_completed_by_a_message_alone() -> None:
    company = Neighbours()
    future = company.submit(1, b"x")
    company.stores[0].reset()
    address = company.of(1).log.head.address
    company.of(0).answer_all(address)  # it says that the log is durable up to there, and has carried nothing
    company.steps(1)
    assert not future.done()
    company.steps(0)
    company.steps(1)
    assert future.exception(0) is None


def test_a_message_that_says_too_much_is_not_believed() -> None:
    company = Neighbours()
    future = company.submit(1, b"x")
    company.of(0).answer_all(company.of(1).log.head.address + 5)
    company.steps(1)
    assert not future.done()
    company.turn()
    assert future.exception(0) is None
    assert company.content == b"..x"


def test_an_owner_whose_maker_died_makes_a_frame_at_once() -> None:
    company = Neighbours()
    company.of(0).die()
    company.dead.add(company.maker)
    future = company.submit(1, b"x")
    company.steps(1)
    assert future.exception(0) is None, "no time has passed"


def test_a_lost_submission_costs_time_only() -> None:
    company = Neighbours()
    future = company.submit(1, b"x")
    company.of(0).lose_messages()
    company.steps(0, 1)
    assert not future.done()
    company.simulation.advance(10)
    company.turn()
    assert future.exception(0) is None
    assert company.content == b"..x"


def test_a_lost_answer_costs_time_only() -> None:
    company = Neighbours()
    future = company.submit(1, b"x")
    company.steps(0)
    company.of(1).lose_messages()
    company.steps(1)
    assert not future.done()
    company.simulation.advance(10)
    company.steps(1)
    assert future.exception(0) is None
    assert company.content == b"..x"


def test_a_maker_that_lost_its_epoch_says_so_to_its_owners() -> None:
    company = Neighbours()
    company.of(1).log.round_trip = LONGEST_TRIP  # it is patient
    future = company.submit(1, b"x")  # to the first one, which does not see it yet
    company.now(company.containers[2], appended(b"2"))  # begins another epoch
    company.maker.submit([appended(b"0")])
    company.steps(0)  # it loses the race, and is an owner itself now
    company.steps(1)
    assert not company.of(1).outbox.active or company.of(1).log.head == company.containers[2].log.head, "it has looked"
    company.steps(2, 0, 1, times=4)
    assert future.exception(0) is None, "no time has passed"
    assert sorted(company.content) == sorted(b"..20x")


def test_what_comes_to_a_former_maker_is_answered() -> None:
    company = Neighbours()
    company.now(company.containers[2], appended(b"2"))
    company.maker.refresh()
    company.steps(0)
    company.of(1).lose_messages()
    future = company.submit(1, b"x")  # which does not know of the new epoch
    company.steps(0)
    company.steps(1, 2, 1, times=4)
    assert future.exception(0) is None, "no time has passed"


def test_a_message_to_another_epoch_is_not_carried() -> None:
    company = Neighbours()
    company.now(company.containers[2], appended(b"2"))
    company.now(company.maker, appended(b"0"))  # it makes the frames again, of a higher epoch
    company.of(1).lose_messages()
    future = company.submit(1, b"x")  # for the epoch that it knows
    before = carried(company.simulation.store)
    company.steps(0)
    assert carried(company.simulation.store) == before
    company.steps(1, 0, times=9)
    assert future.exception(0) is None, "its owner has looked, and no time has passed"
    assert company.content.count(b"x") == 1


def test_a_message_that_comes_twice_is_carried_once() -> None:
    company = Neighbours()
    future = company.submit(1, b"x")
    company.of(0).double_messages()
    company.steps(0, 1)
    assert future.exception(0) is None
    assert company.content == b"..x"


def test_the_next_frame_waits_for_those_that_the_last_one_answered() -> None:
    company = Neighbours(GATHERED_SENDERS + 1)
    owners = range(1, GATHERED_SENDERS + 2)
    for owner in owners:
        company.submit(owner, b"a")
    company.steps(0)
    company.steps(*owners)
    frames = company.of(0).log.head.address
    own = company.maker.submit([appended(b"own")])
    futures = [company.submit(owner, b"b") for owner in list(owners)[1:]]
    company.steps(0)
    assert company.of(0).log.head.address == frames, "one of them is missing"
    futures.append(company.submit(1, b"b"))
    company.steps(0)
    assert company.of(0).log.head.address == frames + 1
    company.steps(*owners)
    assert all(future.exception(0) is None for future in [own, *futures])


def test_one_frame_is_in_flight_while_neighbours_commit_and_several_when_they_are_gone() -> None:
    company = Neighbours(GATHERED_SENDERS)
    alone = company.simulation.open().settings.flights
    assert company.of(0).most_flights == 1 < alone
    company.simulation.advance(10)
    assert company.of(0).most_flights == alone


def test_nobody_waits_long_for_an_owner_that_does_not_come_back() -> None:
    company = Neighbours(GATHERED_SENDERS + 1)
    owners = range(1, GATHERED_SENDERS + 2)
    for owner in owners:
        company.submit(owner, b"a")
    company.steps(0)
    company.steps(*owners)
    own = company.maker.submit([appended(b"own")])
    company.steps(0)
    assert not own.done()
    company.simulation.advance(5 * max(company.of(0).log.round_trip, LEAST_TRIP))
    company.steps(0)
    assert own.exception(0) is None


def test_a_submission_that_is_too_large_for_a_message_is_an_object() -> None:
    company = Neighbours()
    large = b"x" * (LARGEST // 2)
    futures = [company.containers[1].submit([appended(large)]) for _ in range(3)]
    company.steps(1)
    assert company.stores[1].counts["post"] == 1
    company.turn()
    assert all(future.exception(0) is None for future in futures)
    company.close_maker()
    assert not company.inbox, "it was deleted like that of an owner without a mailbox"


def test_a_host_without_mailboxes_is_asked_once() -> None:
    asked: list[bytes] = []

    class Without(Neighbour):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self.open_mailboxes_with(asked.append)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Neighbours, "processor", Without)
        company = Neighbours()
        for _ in range(3):
            company.submit(1, b"x")
            company.turn()
    assert company.content == b"..xxx"
    assert len(asked) == len(set(asked)) == len(company.containers)


def test_the_log_is_looked_at_whole_when_the_last_look_was_long_ago() -> None:
    company = Neighbours()
    company.simulation.advance(company.simulation.open().settings.grace / 3)
    company.of(0).log.meet()
    company.now(company.maker, appended(b"m"))
    company.containers[1].refresh()
    company.simulation.advance(company.containers[1].settings.grace / 3)
    company.of(1).log.meet()
    company.of(0).log.meet()
    company.stores[1].reset()
    future = company.submit(1, b"x")
    company.steps(0)
    company.steps(1)
    assert future.exception(0) is None
    assert company.stores[1].counts["read_ranges"] >= 2, "to its end, which proves that nothing was deleted (W7)"


def test_a_maker_that_closes_answers_what_came_too_late() -> None:
    company = Neighbours()
    future = company.submit(1, b"x")
    company.of(0).finishes = True
    company.maker.close()
    company.dead.add(company.maker)
    head = company.of(1).log.head
    company.steps(1, times=1)
    assert company.of(1).log.head != head, "it looks at once, and learns that its maker has closed"
    company.simulation.advance(10 * LEAST_TRIP)
    company.steps(1)
    assert future.exception(0) is None
    assert company.content == b"..x"


def test_a_maker_that_failed_carries_nothing_more() -> None:
    company = Neighbours()
    future = company.submit(1, b"x")
    company.of(0).fail(RuntimeError("something that nobody has reckoned with"))
    company.dead = {company.containers[2]}
    frames = company.of(1).log.head.address
    company.steps(0)
    company.containers[1].refresh()
    assert company.of(1).log.head.address == frames
    company.simulation.advance(10)
    company.turn()
    assert future.exception(0) is None, "its owner makes a frame itself"
    assert not company.submit(1, b"y").done(), "nobody has the mailbox of the failed one"


def test_a_thread_that_waits_for_a_mailbox_goes_on_when_another_takes_its_place(tmp_path: Path) -> None:
    """As when the process becomes another writer, in a caller's thread."""
    mailbox = Mailbox(bytes(16))
    waits = threading.Thread(target=mailbox.wait, args=(None,))
    waits.start()
    mailbox.wake()
    mailbox.close()
    waits.join(60)
    assert not waits.is_alive()


@pytest.mark.parametrize("remote", [False, True])
def test_processes_of_one_host_use_mailboxes_wherever_the_log_lies(remote: bool) -> None:
    store, before, each = SimulatedStore(0, remote=remote), counts(), 20
    with Container(Stores(store, store), 0, Settings(maintenance=False)) as made:
        made.create_segment(S)

    def write(letter: bytes) -> None:
        with Container(Stores(store, store), 0, Settings(maintenance=False)) as container:
            for _ in range(each):
                container.log.processor.log.meet()
                container.append(S, letter)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with Container(Stores(store, store), 0, Settings(maintenance=False)) as reader:
        content = reader.read(S, 0, reader.info(S).length)
    assert sorted(content) == sorted(b"abc" * each)
    assert gained(before).get("submit_message")
