"""What the commit queue costs in requests: nothing alone, and a bounded number for each owner and the maker (W18)."""

from __future__ import annotations

from chunkstore.testing import CountingStore
from engine.containers.container import Container
from engine.logs.log import LEAST_TRIP, MAKER_TRIPS
from engine.logs.submission import inbox_folder
from engine.state.operations import Append, Operation, Payload
from tests.engine.containers.segments import counted
from tests.engine.logs.company import Company, S, processor_of

ROUNDS = 100


class Counted(Company):
    """A maker and owners, each of whose requests are counted."""

    def __init__(self, owners: int) -> None:
        super().__init__(owners, through=CountingStore)
        for store in self.stores:
            store.reset()

    def now(self, container: Container, *operations: Operation) -> None:
        """Let a container commit by itself; that takes time."""
        future = container.submit(operations)
        self.pass_time(10)
        assert future.exception() is None

    @property
    def owners(self) -> list[Container]:
        """All but the maker."""
        return self.containers[1:]

    def pass_time(self, steps: int) -> None:
        """Let every process do what there is to do."""
        for _ in range(steps):
            for container in self.containers:
                processor_of(container).step()
            self.simulation.advance(LEAST_TRIP / 4)

    def append(self, container: Container) -> None:
        container.submit([Append(S, Payload(b"x"))]).result(0)


def test_a_single_writer_makes_one_request_a_commit_and_never_lists() -> None:
    simulation, counting, container = counted()
    for number in range(1, ROUNDS + 1):
        container.append(S, b"x")
        simulation.advance(1)
        assert counting.counts == {"put_if_absent": number}


def test_each_commit_of_an_owner_is_one_message_and_few_reads() -> None:
    company = Counted(3)
    for _ in range(ROUNDS):
        futures = [owner.submit([Append(S, Payload(b"x"))]) for owner in company.owners]
        for _ in range(40):
            if all(future.done() for future in futures):
                break
            company.pass_time(1)
        assert all(future.done() and not future.exception() for future in futures)
    for store in company.stores[1:]:
        assert store.counts["post"] == ROUNDS
        assert store.counts["put_if_absent"] == store.counts["list"] == store.counts["delete"] == 0
        assert store.counts["read_ranges"] <= 6 * ROUNDS, store.counts
        assert set(store.counts) <= {"post", "read_ranges", "sync", "list", "put_if_absent", "delete"}
    maker = company.stores[0]
    assert maker.counts["put_if_absent"] <= ROUNDS, "a frame for all of a round"
    assert maker.counts["post"] == 0
    assert maker.counts["list"] <= 4 * ROUNDS, maker.counts
    assert maker.count("read_ranges", inbox_folder(0)) <= 2 * ROUNDS
    read = [path for request in maker.requests if request.verb == "read_ranges" for path in request.paths]
    assert sum(path.startswith(inbox_folder(0)) for path in read) == len(company.owners) * ROUNDS, "each of them once"
    assert maker.counts["delete"] <= len(company.owners) * ROUNDS // 64 + 1, "many of them at once"


def test_an_owner_that_is_far_behind_reads_ever_more_frames_at_once() -> None:
    """With one frame a request it would never catch up with a maker that makes more of them."""
    company = Counted(1)
    owner, maker = company.owners[0], company.maker
    owner.submit([Append(S, Payload(b"x"))])
    processor_of(owner).step()
    assert processor_of(owner).outbox.waiting
    processor_of(maker).listens = False
    for _ in range(ROUNDS):
        future = maker.submit([Append(S, Payload(b"x"))])
        while not future.done():
            processor_of(maker).step()
        processor_of(maker).log.meet()
    company.stores[1].reset()
    processor_of(owner).look()
    assert owner.log.head == maker.log.head
    assert company.stores[1].counts["read_ranges"] <= 12
    assert sum(len(request.paths) for request in company.stores[1].requests) <= 2 * ROUNDS


def test_a_maker_whose_company_is_gone_stops_listing() -> None:
    company = Counted(1)
    future = company.owners[0].submit([Append(S, Payload(b"x"))])
    company.pass_time(40)
    assert future.exception() is None
    company.simulation.advance(2 * MAKER_TRIPS * LEAST_TRIP)
    for store in company.stores:
        store.reset()
    company.pass_time(400)
    assert [store.count() for store in company.stores] == [0, 0]
    last = company.maker.submit([Append(S, Payload(b"x"))])
    company.pass_time(4)
    assert last.exception() is None
    assert company.stores[0].counts == {"put_if_absent": 1}


def test_a_maker_that_nothing_comes_to_lists_ever_more_rarely() -> None:
    company = Counted(0)
    processor_of(company.maker).log.meet()
    company.pass_time(8 * MAKER_TRIPS)
    assert 1 <= company.stores[0].counts["list"] <= MAKER_TRIPS
    assert set(company.stores[0].counts) == {"list"}
