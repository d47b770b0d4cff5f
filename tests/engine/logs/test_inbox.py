"""What a maker takes in of what others submit to it, each submission once (W18)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from chunkstore.testing import FaultStore, Request, SimulatedStore
from chunkstore.testing.faults import Fault
from engine.errors import BadSignature
from engine.logs.inbox import (
    DELETED_AT_ONCE,
    GATHER_TRIPS,
    GATHERED_SENDERS,
    LONGEST_PAUSE,
    LONGEST_WAIT,
    MOST_AT_FIRST,
    MOST_AT_ONCE,
    MOST_BYTES,
    OWN_WAIT,
    PAUSE_WITHOUT_THREAD,
    WAIT_ROUNDS,
    WAIT_TRIPS,
    Inbox,
)
from engine.logs.log import InlineExecutor
from engine.logs.mailbox import Kind, Message
from engine.logs.submission import Address, encode, inbox_folder, submission_path
from engine.logs.transaction import Transaction
from engine.state.operations import Append, Payload, SealSegment

TRIP = 1.0
ONE, OTHER = b"1" * 16, b"2" * 16


def address(owner: bytes = ONE, number: int = 1, epoch: int = 5) -> Address:
    return Address(epoch, owner, number, b"%08d" % number)


def encoded(of: Address, *data: bytes) -> bytes:
    return encode(0, of, [[Append("s", Payload(each))] for each in data or (b"x",)])


class Maker:
    """The maker of epoch 5, and its inbox."""

    def __init__(self) -> None:
        self.time = 100.0
        self.raw = SimulatedStore()
        self.store = FaultStore(self.raw)
        self.inbox = Inbox(self.store, 0, self._submit, lambda: self.time)
        self.looks: list[object] = []
        self.threads = True

    def _submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if not self.threads:
            raise RuntimeError("no thread")
        return InlineExecutor().submit(call, *arguments)

    def post(self, of: Address, *data: bytes) -> str:
        path = submission_path(0, of)
        self.raw.put(path, encoded(of, *data))
        return path

    def take_in(self, epoch: int = 5) -> list[Transaction]:
        self.inbox.look(epoch, self.looks.append)
        return self.inbox.take_in(TRIP)

    def receive(self, of: Address, sender: str, *data: bytes) -> None:
        self.inbox.receive(Message(Kind.SUBMISSION, encoded(of, *data), sender))

    @property
    def left(self) -> list[str]:
        return [info.path for info in self.raw.list(inbox_folder(0))]


@pytest.fixture
def maker() -> Maker:
    return Maker()


def carried(batch: Sequence[Transaction]) -> list[tuple[bytes, int, int]]:
    """Owners, numbers and places."""
    found = [each.carrying for each in batch]
    return [(each.address.owner, each.address.number, each.place) for each in found if each is not None]


def data_of(batch: Sequence[Transaction]) -> list[bytes]:
    return [bytes(each.appended_payload().data) for each in batch]


def test_submissions_are_taken_in_once_and_those_of_an_owner_in_their_order(maker: Maker) -> None:
    maker.post(address(ONE, 3), b"c")
    maker.post(address(ONE, 2), b"a", b"b")
    maker.post(address(OTHER, 7), b"d")
    maker.post(address(OTHER, 8, epoch=4), b"of another epoch")
    batch = maker.take_in()
    assert data_of(batch) == [b"a", b"b", b"c", b"d"]
    assert carried(batch) == [(ONE, 2, 0), (ONE, 2, 1), (ONE, 3, 0), (OTHER, 7, 0)]
    assert all(each.abandoned for each in batch) and len(maker.looks) == 1
    assert dict(maker.inbox.unsettled) == {address(ONE, 2): 2, address(ONE, 3): 1, address(OTHER, 7): 1}
    assert maker.take_in() == [], "whatever is listed again"
    maker.post(address(ONE, 1), b"older")
    maker.post(address(ONE, 4), b"newer")
    assert data_of(maker.take_in()) == [b"newer"]
    assert maker.take_in(6) == [] and not maker.inbox.unsettled
    assert data_of(maker.take_in(5)) != [], "the same numbers count again in another epoch"


def test_a_listing_of_a_past_epoch_brings_nothing(maker: Maker) -> None:
    maker.post(address(), b"void")
    maker.inbox.look(5, None)
    listing = maker.inbox.listing
    maker.inbox.look(6, None)
    maker.inbox.listing = listing
    assert maker.inbox.take_in(TRIP) == [] and not maker.inbox.unsettled


def test_a_submission_that_cannot_be_decoded_is_passed_over(maker: Maker, caplog: pytest.LogCaptureFixture) -> None:
    damaged = maker.post(address(ONE, 1))
    maker.raw.put(damaged, b"nonsense")
    maker.post(address(OTHER, 1), b"whole")
    with caplog.at_level(logging.WARNING):
        assert data_of(maker.take_in()) == [b"whole"]
    assert damaged in caplog.text
    maker.receive(address(ONE, 1), "sender", b"whole")
    maker.inbox.receive(Message(Kind.SUBMISSION, b"nonsense", "sender"))
    assert maker.inbox.take_received(5) == [], "it came after one with its number"


def test_what_is_settled_is_deleted_in_batches_and_at_the_end(maker: Maker) -> None:
    paths = [maker.post(address(ONE, number), b"x", b"y") for number in range(DELETED_AT_ONCE)]
    batch = []
    for _ in range(3):
        batch += maker.take_in()
    assert len(batch) == 2 * DELETED_AT_ONCE and maker.left == paths
    assert maker.inbox.settled([batch[0], Transaction([SealSegment("own")])]) == set()
    assert maker.inbox.unsettled[address(ONE, 0)] == 1
    maker.inbox.settled(batch[1:-1])
    assert set(maker.inbox.unsettled) == {address(ONE, DELETED_AT_ONCE - 1)}
    maker.take_in()
    assert maker.left == paths, "one too few"
    maker.inbox.settled(batch[-1:])
    assert not maker.inbox.unsettled
    maker.take_in()
    assert maker.left == []
    last = maker.post(address(ONE, DELETED_AT_ONCE))
    maker.inbox.settled(maker.take_in())
    maker.take_in()
    assert maker.left == [last]
    maker.inbox.clear()
    assert maker.left == []


def test_a_storage_that_refuses_delays_the_owners_and_nothing_else(maker: Maker) -> None:
    maker.post(address())
    maker.store.plan = lambda at, request: Fault("before")
    assert maker.take_in() == [] and maker.inbox.listing is None
    maker.store.plan = None
    batch = maker.take_in()
    assert len(batch) == 1
    maker.inbox.settled(batch)
    maker.store.plan = lambda at, request: Fault("before")
    maker.inbox.clear()
    assert len(maker.left) == 1, "it is swept later"


def test_a_listing_for_which_there_is_no_thread_is_tried_later(maker: Maker) -> None:
    maker.post(address())
    maker.threads = False
    maker.inbox.look(5, maker.looks.append)
    maker.threads = True
    assert maker.inbox.listing is None and maker.inbox.next_look == maker.time + PAUSE_WITHOUT_THREAD
    assert len(maker.take_in()) == 1


def test_messages_are_taken_in_like_objects_and_their_senders_answered(maker: Maker) -> None:
    maker.receive(address(ONE, 1), "one", b"a", b"b")
    maker.receive(address(ONE, 1), "one", b"again")
    maker.receive(address(OTHER, 1), "other", b"c")
    maker.receive(address(b"3" * 16, 1, epoch=4), "late", b"void")
    batch = maker.inbox.take_received(5)
    assert data_of(batch) == [b"a", b"b", b"c"]
    path = maker.post(address(ONE, 1), b"again")
    assert maker.take_in() == [], "it came by both ways"
    assert maker.inbox.in_vain(5, True) == {"late"}
    assert maker.inbox.in_vain(5, True) == set()
    assert maker.inbox.settled(batch[:2]) == {"one"}
    maker.inbox.clear()
    assert maker.left == [path], "an object of it need not be there"
    assert maker.inbox.in_vain(5, False) == {"one", "other"}, "another process makes the frames now"
    maker.receive(address(ONE, 2), "one")
    maker.receive(address(OTHER, 2), "")
    assert maker.inbox.in_vain(6, True) == {"one"}
    assert maker.inbox.take_received(6) == []


def test_a_frame_waits_for_those_that_the_last_one_answered(maker: Maker) -> None:
    owners = [bytes([number]) * 16 for number in range(GATHERED_SENDERS)]
    for owner in owners:
        assert not maker.inbox.gathers and maker.inbox.gathers_until(TRIP) == 0.0
        maker.receive(address(owner), owner.hex())
        batch = maker.inbox.take_received(5)
        maker.inbox.settled(batch)
    assert maker.inbox.gathers
    for owner in owners:
        maker.receive(address(owner, 2), owner.hex())
    answered = maker.inbox.settled(maker.inbox.take_received(5))
    assert len(answered) == GATHERED_SENDERS
    maker.time += 0.5
    for owner in owners:
        assert maker.inbox.gathers_until(TRIP) == maker.time - 0.5 + GATHER_TRIPS * TRIP
        maker.receive(address(owner, 3), owner.hex())
    assert maker.inbox.gathers_until(TRIP) == 0.0


def test_own_transactions_wait_for_a_round_in_which_several_submit(maker: Maker) -> None:
    for number in range(1, OWN_WAIT):
        maker.post(address(ONE, number))
    maker.take_in()
    maker.inbox.look(5, None)
    assert not maker.inbox.in_rounds(TRIP), "few come"
    for number in range(OWN_WAIT):
        maker.post(address(OTHER, 1 + number))
    maker.inbox.take_in(TRIP)
    maker.take_in()
    assert not maker.inbox.in_rounds(TRIP), "no listing is under way"
    for number in range(OWN_WAIT):
        maker.post(address(OTHER, 10 + number))
    maker.take_in()
    maker.inbox.look(5, None)
    assert maker.inbox.in_rounds(TRIP)
    maker.time += WAIT_TRIPS * TRIP - 0.01
    assert maker.inbox.in_rounds(TRIP)
    maker.time += 0.01
    assert not maker.inbox.in_rounds(TRIP)
    maker.inbox.take_in(TRIP)
    assert maker.inbox.listing is None


def test_listings_that_bring_nothing_become_rare(maker: Maker) -> None:
    pauses = []
    for _ in range(6):
        maker.take_in()
        pauses.append(maker.inbox.next_look - maker.time)
    assert pauses == [TRIP / 4, TRIP / 2, TRIP, 2 * TRIP, LONGEST_PAUSE * TRIP, LONGEST_PAUSE * TRIP]
    maker.post(address())
    maker.take_in()
    assert maker.inbox.next_look == maker.time, "more may come"


def owner(number: int) -> bytes:
    return number.to_bytes(16, "big")


def owners_of(batch: Sequence[Transaction]) -> list[int]:
    return [int.from_bytes(each[0], "big") for each in carried(batch)]


def test_of_many_submissions_more_are_read_each_time_and_all_owners_get_their_turn(maker: Maker) -> None:
    """The maker's next frame does not wait for those of a thousand owners."""
    total, first = 800, 1
    for number in range(1, total + 1):
        maker.post(address(owner(number)))
    most = MOST_AT_FIRST
    while first <= total:
        batch = maker.take_in()
        again = [1] if first + most > total else []
        assert owners_of(batch) == [*range(first, min(first + most, total + 1)), *again]
        if first == 1:  # it comes again, and waits for those behind it
            maker.post(address(owner(1), 2))
        first, most = first + most, min(2 * most, MOST_AT_ONCE)
    assert maker.take_in() == []
    for number in range(1, total + 1):
        maker.post(address(owner(number), 9, epoch=6))
    assert owners_of(maker.take_in(6))[0] == 2, "behind the one that was read last"
    assert len(maker.take_in(6)) == 2 * MOST_AT_FIRST, "an epoch begins with few"


def test_no_more_bytes_are_read_at_once_than_are_allowed(maker: Maker) -> None:
    head = len(encoded(address(), bytes(MOST_BYTES))) - MOST_BYTES
    sizes = ((MOST_BYTES // 2 - head, [2, 1]), (MOST_BYTES // 2, [1, 1, 1]), (MOST_BYTES, [1, 1, 1]))
    for place, (size, read) in enumerate(sizes, 1):
        for number in range(3):
            maker.post(address(owner(number), place), bytes(size))
        assert [len(maker.take_in()) for _ in read] == read, "one in any case"
        assert maker.take_in() == []


def test_a_submission_with_a_forged_signature_costs_no_other_one_and_is_read_once(maker: Maker) -> None:
    good = [maker.post(address(owner(number)), b"%d" % number) for number in (1, 3)]
    forged = maker.post(address(owner(2)), b"2")
    reads: list[Sequence[str]] = []

    def check(_: int, request: Request) -> None:
        if request.verb == "read_ranges":
            reads.append(request.paths)
            if forged in request.paths:
                raise BadSignature(forged, "forged")

    maker.store.plan = check
    assert data_of(maker.take_in()) == [b"1", b"3"]
    assert sorted(path for each in reads[1:] for path in each) == sorted([*good, forged]), "one by one"
    reads.clear()
    assert maker.take_in() == [] and not reads


def test_own_transactions_wait_for_twice_what_the_last_round_took(maker: Maker) -> None:
    """But not for ever: the storage may have hung."""
    for first, took, waits in ((1, 0.9, WAIT_ROUNDS * 0.9), (10, 60.0, LONGEST_WAIT)):
        for number in range(OWN_WAIT):
            maker.post(address(OTHER, first + number))
        maker.inbox.look(5, None)
        maker.time += took
        maker.inbox.take_in(0.1)
        maker.inbox.look(5, None)
        maker.time += waits - 0.01
        assert maker.inbox.in_rounds(0.1)
        maker.time += 0.02
        assert not maker.inbox.in_rounds(0.1)
        maker.inbox.take_in(0.1)
