"""Processes that know of each other commit together: what is submitted to the maker of an epoch (W18)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
from hypothesis import given, strategies as st

from chunkstore import StorageRefused
from chunkstore.decoding import InvalidData
from chunkstore.wrapping import Request, Result, WrappingStore
from engine.errors import BadOffset, OutcomeUnknown, SegmentNotFound
from engine.logs.frame_settler import LEAD, RING
from engine.logs.log import BELLS_AHEAD, MAKER_TRIPS, address_of, frames_folder
from engine.logs.submission import Address, address_in, decode, encode, inbox_folder, submission_path
from engine.logs.submitter import SUBMITTED_BYTES
from engine.state.index_records import IndexRecords
from engine.state.operations import (
    Append,
    CreateSegment,
    DeleteSegment,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    TruncateSegment,
)
from tests.engine.logs.company import Company, S, appended, carried, processor_of
from tests.support.processes import ByHand


@pytest.fixture
def company() -> Company:
    return Company()


def test_what_is_submitted_is_in_a_frame_of_the_maker(company: Company) -> None:
    owner, maker = company.owner, company.maker
    futures = [owner.submit([appended(b"one")]), owner.submit([appended(b"two"), PutEntry("t", "k", b"v")])]
    epoch, head = owner.log.head.epoch, owner.log.head.address
    processor_of(owner).step()
    assert len(company.inbox) == 1 and not futures[0].done()
    own = maker.submit([appended(b"own")])
    company.turn()
    one, two, ours = (future.result().results[0] for future in (*futures, own))
    content = company.content
    assert [content[at : at + 3] for at in (one, two, ours)] == [b"one", b"two", b"own"]
    assert len(content) == 9 and one < two and len(futures[1].result().results) == 2
    assert {future.result().address for future in futures} <= {head + 1, head + 2}
    assert owner.log.head.epoch == epoch, "nobody lost a race"
    assert futures[0].result().state.segments[S].length >= 3


@pytest.mark.parametrize("with_others", [False, True])
def test_what_the_maker_refuses_is_refused_by_its_owner(company: Company, with_others: bool) -> None:
    company.owner.submit([appended(b"first")])
    company.turn()
    futures = [company.owner.submit([appended(b"there") if with_others else SealSegment("s/none")])]
    wrong, missing = company.owner.submit([appended(b"x", 3)]), company.owner.submit([DeleteSegment("s/none")])
    futures.append(company.owner.submit([appended(b"last")]))
    company.turn()
    company.turn()
    assert isinstance(wrong.exception(), BadOffset) and isinstance(missing.exception(), SegmentNotFound)
    assert futures[1].exception() is None
    assert company.content == (b"firsttherelast" if with_others else b"firstlast")


def test_what_a_higher_epoch_came_without_is_submitted_again(company: Company) -> None:
    future = company.owner.submit([appended(b"once")])
    processor_of(company.owner).step()
    company.now(company.containers[2], appended(b"another "))
    company.turn(company.owner, company.containers[2])
    assert future.result().tries == 2
    company.turn()
    assert company.content == b"another once"


def test_who_is_not_served_makes_a_frame_itself(company: Company) -> None:
    future, later = company.owner.submit([appended(b"once")]), None
    processor_of(company.owner).step()
    epoch = company.owner.log.head.epoch
    for _ in range(200):
        company.simulation.advance(0.01)
        later = later or company.owner.submit([appended(b" later")])
        processor_of(company.owner).step()
    assert later is not None
    assert (future.result().results, later.result().results) == ([0], [4]), "in the order of submission"
    assert company.owner.log.head.epoch == epoch + 1
    company.turn()
    assert company.content == b"once later", "the maker of the old epoch carries it no more"


def test_a_refusal_is_not_told_while_it_may_be_carried(company: Company) -> None:
    """Its owner's own frame, be it empty, makes the submission void first (rules held and empty)."""
    future = company.owner.submit([appended(b"x", 5)])
    processor_of(company.owner).step()
    frames = company.owner.log.head.address
    while not future.done():
        company.simulation.advance(0.01)
        processor_of(company.owner).step()
    assert isinstance(future.exception(), BadOffset)
    assert company.owner.log.head.address == frames + 1
    company.now(company.maker, appended(b"12345"))
    company.turn()
    assert company.content == b"12345"


def test_what_was_submitted_before_a_checkpoint_was_opened_again_is_unknown(company: Company) -> None:
    """Rule moved: and when it is carried all the same, nobody is told again."""
    future = company.owner.submit([appended(b"x")])
    processor = processor_of(company.owner)
    processor.step()
    processor.start_over()
    assert isinstance(future.exception(), OutcomeUnknown)
    company.turn()
    assert company.content == b"x"
    again = company.owner.submit([appended(b"y")])
    company.turn()
    assert again.result().results == [1]


def test_a_submission_of_another_life_is_not_ones_own(company: Company) -> None:
    """A clone of the memory submits under the same owner and number: what it drew for it differs (rule nonce)."""
    one, other = company.owner, company.containers[2]
    processor_of(other).have_the_memory_of(processor_of(one))
    futures = [one.submit([appended(b"one")]), other.submit([appended(b"other")])]
    for container in (one, other):
        processor_of(container).step()
    assert len(company.inbox) == 2
    for _ in range(60):
        company.turn()
        company.simulation.advance(0.02)
    offsets = [future.result().results[0] for future in futures]
    content = company.content
    assert [content[offset:][: len(data)] for offset, data in zip(offsets, (b"one", b"other"), strict=True)] == [
        b"one",
        b"other",
    ]
    assert len(content) == 8
    owners = {processor_of(container).outbox.new_address(0).owner for container in (one, other)}
    assert len(owners) == 2, "one of them has noticed"


def test_a_maker_that_does_not_listen_is_rung_for(company: Company) -> None:
    future = company.owner.submit([appended(b"once")])
    owner, maker = processor_of(company.owner), processor_of(company.maker)
    company.simulation.advance(60)
    for number in range(RING):
        company.now(company.maker, appended(b"%d" % number))
        assert not maker.log.in_company(MAKER_TRIPS) and not future.done()
        owner.step()  # it sends, and has lost the race
        owner.step()
    assert company.inbox == [] and not future.done()
    head = company.maker.log.head.address
    found = [address_of(info.path) for info in company.simulation.store.list(frames_folder(0))]
    assert [address for address in found if address > head] == [head + 1 + BELLS_AHEAD[0]], "one bell"
    for _ in range(BELLS_AHEAD[0] + 1):
        company.now(company.maker, appended(b"more"))
    assert maker.log.in_company(1), "it ran into the bell"
    company.turn()
    assert future.done() and maker.log.makes_frames, "it was carried"
    assert company.content.count(b"once") == 1


@pytest.mark.parametrize("frames", range(LEAD - 1, LEAD + 2))
def test_a_maker_at_full_speed_is_rung_for_after_one_lost_race(company: Company, frames: int) -> None:
    """It would win the next races too. One frame may be of a process that commits now and then."""
    owner, maker = processor_of(company.owner), processor_of(company.maker)
    company.simulation.advance(60)
    company.owner.refresh()
    for number in range(frames):
        company.now(company.maker, appended(b"%d" % number))
    company.dead = {*company.containers}  # they do nothing while one waits
    future = company.owner.submit([appended(b"once")])
    owner.step()  # it sends
    owner.step()  # and has lost the race
    company.dead = set()
    found = [address_of(info.path) for info in company.simulation.store.list(frames_folder(0))]
    ahead = [address - company.maker.log.head.address for address in found]
    assert [each for each in ahead if each > 0] == [1 + BELLS_AHEAD[0]] * (frames >= LEAD)
    for _ in range((BELLS_AHEAD[0] + 1) * (frames >= LEAD)):
        company.now(company.maker, appended(b"more"))
    assert maker.log.in_company(1) == (frames >= LEAD), "it ran into the bell"
    company.turn()
    assert future.exception(0) is None


def test_nobody_is_rung_for_where_several_race(company: Company) -> None:
    """They know of each other, or soon will; a bell would be in the way of all of them."""
    owner = processor_of(company.owner)
    company.simulation.advance(60)
    company.owner.refresh()
    for maker in (company.containers[2], company.maker):  # each begins an epoch
        company.now(maker, appended(b"m"))
    head = company.maker.log.head
    company.dead = {*company.containers}  # they do nothing while one waits
    company.owner.submit([appended(b"once")])
    owner.step()  # it sends
    owner.step()  # and has lost the race
    assert owner.log.head == head and owner.outbox.listening != head.epoch
    names = [info.path for info in company.simulation.store.list(frames_folder(0))]
    assert address_of(names[-1]) == head.address, "nothing lies ahead"


def test_an_owner_that_rang_reads_until_the_maker_listens(company: Company) -> None:
    """It makes no frame meanwhile: the maker makes one each round trip, and would win."""
    owner, maker = processor_of(company.owner), processor_of(company.maker)
    company.simulation.advance(60)
    company.owner.refresh()
    for _ in range(LEAD):
        company.now(company.maker, appended(b"m"))

    @contextmanager
    def appending() -> Iterator[None]:
        company.now(company.maker, appended(b"m"))
        yield

    company.others_work = appending
    company.dead = {*company.containers}  # they do nothing else while one waits
    future = company.owner.submit([appended(b"once")])
    owner.step()
    owner.step()
    company.others_work, company.dead = nullcontext, set()
    assert owner.outbox.listening == maker.log.head.epoch
    owner.step()
    assert owner.outbox.waiting and not owner.log.flights, "it was submitted"
    company.turn()
    assert future.result(0).tries == 2 and maker.log.makes_frames


def test_a_maker_that_runs_into_a_bell_rings_for_nobody(company: Company) -> None:
    """The frames behind it are its own, and void."""
    executor = ByHand()
    company.maker = company.join(executor=executor)
    executor.inline = True
    company.maker.refresh()
    company.now(company.maker, appended(b"m"))
    company.owner.refresh()
    executor.inline = False
    maker = processor_of(company.maker)
    maker.one_transaction_a_frame()
    futures = [company.maker.submit([appended(b"%d" % number)]) for number in range(4)]
    for _ in futures:
        maker.step()
    assert len(maker.log.flights) == len(futures)
    processor_of(company.owner).log.ring([1])
    for _ in futures:
        executor.land()
    executor.inline = True
    while not all(future.done() for future in futures):
        maker.step()
    names = [info.path for info in company.simulation.store.list(frames_folder(0))]
    assert address_of(names[-1]) == maker.log.head.address, "nothing lies ahead"
    assert company.content == b"m0123"


def test_a_maker_that_closes_says_so(company: Company) -> None:
    future = company.owner.submit([appended(b"once")])
    before = company.owner.log.head
    processor = processor_of(company.maker)
    company.close_maker()
    processor_of(company.owner).step()
    assert processor.failure is None
    company.simulation.advance(0.01)
    for _ in range(30):
        processor_of(company.owner).step()
        company.simulation.advance(0.001)
    assert future.result().address <= before.address + 3
    assert company.content == b"once"


def test_the_inbox_is_emptied_by_its_maker() -> None:
    company = Company(others=3)
    for number in range(40):
        futures = [each.submit([appended(b"%d" % number)]) for each in company.containers[1:]]
        company.turn()
        assert all(future.exception() is None for future in futures)
    assert len(company.inbox) < 3 * 40, "in batches"
    company.close_maker()
    assert company.inbox == []


class Undeletable(WrappingStore):
    """A store that the process may not delete from."""

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb == "delete":
            raise StorageRefused("no permission")
        return call()


def test_a_maker_that_may_not_delete_carries_submissions_all_the_same() -> None:
    """Truncation sweeps what it leaves."""
    company = Company(others=3, through=Undeletable)
    for number in range(60):
        futures = [each.submit([appended(b"%d" % number)]) for each in company.containers[1:]]
        company.turn()
        assert all(future.exception() is None for future in futures)
    assert carried(company.simulation.store) == 3 * 60
    assert len(company.inbox) == 3 * 60


def test_what_is_large_goes_to_a_chunk_or_into_an_own_frame(company: Company) -> None:
    large = company.owner.submit([appended(b"x" * (SUBMITTED_BYTES + 1))])
    company.turn()
    assert large.result().tries == 1 and len(company.content) == SUBMITTED_BYTES + 1
    header = Payload(b"h" * (SUBMITTED_BYTES + 1))
    company.now(company.maker, CreateSegment("s/b"), SealSegment("s/b"))
    company.owner.refresh()
    merged = company.owner.submit([MergeSegment(S, "s/b", header)])
    company.turn()
    company.turn()
    assert merged.result().results == [SUBMITTED_BYTES + 1]


# --- the form of submissions -----------------------------------------------------------------------------------------

contents = st.one_of(
    st.builds(Payload, st.binary(max_size=300)),
    st.builds(
        lambda segment, number: IndexRecords(segment, bytes(32 * number)), st.text(max_size=5), st.integers(0, 3)
    ),
    st.just(()),
)
operations = st.one_of(
    st.builds(Append, st.text(max_size=5), contents, st.none() | st.integers(0, 99), st.just(()), st.integers(0, 99)),
    st.builds(MergeSegment, st.text(max_size=5), st.text(max_size=5), contents),
    st.builds(TruncateSegment, st.text(max_size=5), st.integers(0, 1 << 62)),
    st.builds(PutEntry, st.text(max_size=5), st.text(max_size=5), st.none() | st.binary(max_size=5), st.none()),
)


def plain(operation: Operation) -> list[object]:
    return [
        (part.records, part.segment) if isinstance(part, IndexRecords) else bytes(part.data)
        for part in operation
        if isinstance(part, IndexRecords | Payload)
    ] + [part for part in operation if not isinstance(part, IndexRecords | Payload)]


@given(st.lists(st.lists(operations, max_size=4), max_size=4), st.integers(0, 1 << 40))
def test_a_submission_is_read_as_it_was_written(transactions: list[list[Operation]], number: int) -> None:
    address = Address(7, os.urandom(16), number, os.urandom(8))
    assert address_in(submission_path(3, address)) == address
    data = encode(3, address, transactions)
    found = decode(data, 3, address)
    assert [[plain(op) for op in each] for each in found] == [[plain(op) for op in each] for each in transactions]


def test_a_damaged_or_misplaced_submission_is_told_from_a_good_one() -> None:
    address = Address(7, os.urandom(16), 2, os.urandom(8))
    data = encode(3, address, [[appended(b"data")]])
    others = [address._replace(epoch=8), address._replace(number=1), address._replace(nonce=bytes(8))]
    for wrong in others:
        with pytest.raises(InvalidData):
            decode(data, 3, wrong)
    with pytest.raises(InvalidData):
        decode(data, 4, address)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidData):
            decode(bytes(damaged), 3, address)
    for length in range(len(data)):
        with pytest.raises(InvalidData):
            decode(data[:length], 3, address)


def test_names_that_are_no_submissions_are_passed_over(company: Company) -> None:
    epoch = company.maker.log.head.epoch
    for name in ("x", "a-b-c", f"{'0' * 32}-00000000000000000001-{'0' * 16}", f"{'0' * 32}-x-{'0' * 16}"):
        company.simulation.store.put(f"{inbox_folder(0, epoch)}{name}", b"nonsense")
    future = company.owner.submit([appended(b"data")])
    company.turn()
    assert future.result().results == [0]
    assert company.content == b"data"


def posted(company: Company, number: int, data: bytes) -> None:
    """Some owner's submission arrives at the maker's inbox."""
    address = Address(company.maker.log.head.epoch, b"o" * 16, number, b"%08d" % number)
    company.simulation.store.put(submission_path(0, address), encode(0, address, [[appended(data)]]))


def test_an_older_submission_of_an_owner_is_not_carried_after_a_newer_one(company: Company) -> None:
    """Rule mono: its owner has told that its outcome is unknown, and gone on."""
    posted(company, 2, b"new")
    company.turn()
    posted(company, 1, b"old")
    company.turn()
    assert company.content == b"new"


def test_a_submission_is_carried_once_however_often_it_is_listed(company: Company) -> None:
    """Rule ahead: its object may come again after it was deleted."""
    for _ in range(3):
        posted(company, 1, b"once")
        company.turn()
    assert company.content == b"once"


def test_what_was_taken_in_is_not_carried_in_another_epoch(company: Company) -> None:
    """Rule epoch: a maker that lost its race lets go what it had taken in."""
    posted(company, 1, b"void")
    maker = processor_of(company.maker)
    for _ in range(30):
        if maker.queued:
            break
        maker.step()
    company.now(company.owner, appended(b"another"))
    company.now(company.maker, appended(b" more"))
    company.turn(company.maker)
    assert company.content == b"another more"
