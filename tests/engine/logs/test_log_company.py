"""The log by itself: what it knows of other writers (W18), how long it tries, what it depends on, what stops it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from chunkstore import PutUnknown, StorageError, StorageUnavailable, Store
from chunkstore.testing import CountingStore, FaultStore, Request, SimulatedStore
from chunkstore.testing.faults import Fault
from engine.errors import (
    FrameDamaged,
    FrameMissing,
    LogMoved,
    OutcomeUnknown,
    Overtaken,
    RootReplaced,
    UnknownFormat,
)
from engine.identity import AnyIdentity
from engine.logs import frames
from engine.logs.frames import START, Kind, Position
from engine.logs.log import (
    BELLS_AHEAD,
    LEAST_TRIP,
    LONGEST_TRIP,
    MAKER_TRIPS,
    MAX_WINDOW,
    OFTEN_TRIPS,
    OWNER_TRIPS,
    RACE_WINDOW,
    Log,
    checkpoint_path,
    frame_path,
    frames_folder,
)
from tests.support.log_contracts import append, contents, metas, open_log, raised
from tests.support.synced_store import SyncedStore

PUTS = ("put_if_absent",)


class Timed:
    """A log with a clock that a test sets, and that waiting moves on."""

    def __init__(self, store: Store | None = None, **settings: Any) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self.store = store or SimulatedStore()
        self.log: Log = open_log(self.store, clock=lambda: self.now, sleep=self._sleep, **settings)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def put(self, seconds: float) -> None:
        """Append a frame, whose put takes so long."""
        self.log.send(b"meta", [], None)
        self.now += seconds
        self.log.settle()

    def lose(self, seconds: float = 0.001) -> None:
        """Lose a race against another writer, whose frame is read then."""
        other = open_log(self.store)
        other.follow()
        append(other, b"other")
        self.log.send(b"lost", [], None)
        self.now += seconds
        raised(Overtaken, self.log.settle)
        self.log.drop()
        self.log.follow()


# --- signs of other writers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trip", [0.001, 0.3])
def test_a_sign_of_other_writers_counts_for_some_round_trips(trip: float) -> None:
    timed = Timed()
    timed.put(trip)
    assert not timed.log.in_company(1_000_000), "there was none yet"
    timed.log.meet()
    for trips in (OWNER_TRIPS, MAKER_TRIPS):
        met, lasts = timed.now, trips * max(trip, LEAST_TRIP)
        timed.now = met + lasts * 0.999
        assert timed.log.in_company(trips)
        timed.now = met + lasts * 1.001
        assert not timed.log.in_company(trips)
        timed.now = met


def test_frames_are_made_often_if_there_is_one_in_a_few_round_trips() -> None:
    timed = Timed()
    timed.put(0.1)
    since = timed.now
    timed.now = since + 3 * OFTEN_TRIPS * 0.1 * 0.999
    assert timed.log.made_often(3, since)
    timed.now = since + 3 * OFTEN_TRIPS * 0.1 * 1.001
    assert not timed.log.made_often(3, since)
    assert not timed.log.made_often(0, timed.now)


def test_two_races_lost_in_a_short_time_are_a_sign_and_one_is_none() -> None:
    timed = Timed()
    timed.lose()
    assert timed.log.losses == 1 and not timed.log.in_company(MAKER_TRIPS)
    timed.now += MAKER_TRIPS * LEAST_TRIP
    timed.lose()
    assert timed.log.losses == 1 and not timed.log.in_company(MAKER_TRIPS), "that was long ago"
    timed.now += MAKER_TRIPS * LEAST_TRIP / 2
    timed.lose()
    assert timed.log.losses == 2 and timed.log.in_company(MAKER_TRIPS)
    timed.lose()
    assert timed.log.losses == 3


def test_frames_of_others_prolong_the_company_and_do_not_begin_it() -> None:
    timed, other = Timed(), None
    other = open_log(timed.store)
    append(other, b"1")
    timed.log.follow()
    assert not timed.log.in_company(MAKER_TRIPS)
    timed.log.meet()
    timed.now += OWNER_TRIPS * LEAST_TRIP * 0.9
    append(other, b"2")
    timed.log.follow()
    timed.now += OWNER_TRIPS * LEAST_TRIP * 0.9
    assert timed.log.in_company(OWNER_TRIPS)
    timed.now += OWNER_TRIPS * LEAST_TRIP
    append(other, b"3")
    timed.log.follow()
    assert not timed.log.in_company(OWNER_TRIPS)


def test_it_is_known_which_process_makes_the_frames() -> None:
    timed = Timed()
    log = timed.log
    assert not log.makes_frames and not log.made_elsewhere, "there is no frame"
    append(log, b"own")
    assert log.makes_frames and not log.made_elsewhere
    before = log.writer
    log.renew()
    assert log.writer != before
    assert not log.makes_frames and not log.made_elsewhere, "it was this process, as another writer"
    timed.lose()
    assert not log.makes_frames and log.made_elsewhere
    append(log, b"own again")
    assert log.makes_frames and not log.made_elsewhere


# --- bells -----------------------------------------------------------------------------------------------------------


def listed(store: Store) -> list[int]:
    return [int(info.path[-20:]) for info in store.list("_system/containers/0/wal/")]


def test_a_bell_lies_ahead_of_the_end_at_the_first_free_address() -> None:
    timed = Timed()
    append(timed.log, b"0", b"1")
    for rung in range(1, len(BELLS_AHEAD) + 1):
        open_log(timed.store, timed.log.head).ring()
        assert listed(timed.store) == [0, 1, *(2 + ahead for ahead in BELLS_AHEAD[:rung])]
    open_log(timed.store, timed.log.head).ring()
    assert len(listed(timed.store)) == 2 + len(BELLS_AHEAD), "there is nothing more to say"
    open_log(timed.store, timed.log.head).ring([5])
    assert listed(timed.store)[2:] == [6, 7, 10, 18]


def test_a_bell_that_the_storage_refuses_is_no_trouble() -> None:
    puts: list[int] = []

    def plan(at: int, request: Any) -> Fault:
        puts.append(at)
        return Fault("before")

    Timed(FaultStore(SimulatedStore(), plan, verbs=PUTS)).log.ring()
    assert len(puts) == 1


def test_a_bell_is_void_and_tells_others_that_there_is_company() -> None:
    timed = Timed()
    append(timed.log, b"0")
    timed.log.ring([0])
    append_behind(timed, b"1")
    assert not timed.log.in_company(MAKER_TRIPS), "it was its own"
    open_log(timed.store, timed.log.head).ring([0])
    append_behind(timed, b"2")
    assert timed.log.in_company(MAKER_TRIPS)
    assert contents(timed.store) == [b"0", b"1", b"2"]


def append_behind(timed: Timed, meta: bytes) -> None:
    """Append a frame; the race for the first address is lost against a bell."""
    timed.log.send(b"lost", [], None)
    raised(Overtaken, timed.log.settle)
    timed.log.drop()
    assert timed.log.follow() == []
    append(timed.log, meta)


# --- round trips -----------------------------------------------------------------------------------------------------


def test_a_round_trip_is_the_lower_median_of_the_last_puts() -> None:
    timed = Timed()
    expected = {0.2: 0.2, 0.1: 0.1, 0.3: 0.2, 0.00001: 0.1}
    for took, trip in expected.items():
        timed.put(took)
        assert timed.log.round_trip == pytest.approx(trip)
    for _ in range(5):
        timed.put(7.0)
    assert timed.log.round_trip == LONGEST_TRIP
    for _ in range(8):
        timed.put(0.0)
    assert timed.log.round_trip == 0.0005
    for _ in range(4):
        timed.put(0.1)
    assert timed.log.round_trip == 0.0005
    timed.put(0.1)
    assert timed.log.round_trip == pytest.approx(0.1)


def test_a_lost_race_counts_only_if_it_took_longer() -> None:
    """A loser may get its answer before anything is made durable."""
    timed = Timed()
    timed.put(0.1)
    timed.lose(0.01)
    assert timed.log.round_trip == pytest.approx(0.1)
    for _ in range(2):
        timed.lose(0.3)
    assert timed.log.round_trip == pytest.approx(0.3)


def test_before_the_first_frame_other_writes_show_how_long_one_takes() -> None:
    timed = Timed()
    for took, trip in ((0.2, 0.2), (0.1, 0.1), (0.3, 0.2)):
        timed.log.guess_trip(took)
        assert timed.log.round_trip == trip
    for took, trip in ((7.0, LONGEST_TRIP), (0.0, 0.001)):
        fresh = Timed().log
        fresh.guess_trip(took)
        assert fresh.round_trip == trip
    timed.put(0.05)
    timed.log.guess_trip(0.4)
    assert timed.log.round_trip == pytest.approx(0.05)


# --- how long it tries -----------------------------------------------------------------------------------------------

PAUSES = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


def test_an_unknown_outcome_is_settled_with_growing_pauses_until_the_timeout() -> None:
    timed = Timed(FaultStore(SimulatedStore(), lambda at, request: Fault("before"), verbs=PUTS), timeout=4.2)
    timed.log.send(b"meta", [], None)
    assert isinstance(raised(OutcomeUnknown, timed.log.settle).__cause__, PutUnknown)
    assert timed.pauses == pytest.approx(PAUSES)
    assert len(timed.log.flights) == 1, "for its owner to drop"
    [flight] = timed.log.drop()
    assert not timed.log.flights and isinstance(flight.future.exception(), PutUnknown)


class Scripted:
    """An executor by which the first puts fail with these errors; those that come later are carried out."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = [*errors]
        self.waited_for = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        future = Awaited(self)
        if self.errors:
            future.set_exception(self.errors.pop(0))
        else:
            future.set_result(fn(*args))
        return future


class Awaited(Future[Any]):
    """Counts how often somebody waits for it."""

    def __init__(self, executor: Scripted) -> None:
        super().__init__()
        self._executor = executor

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._executor.waited_for += 1
        return super().exception(timeout)


UNDECLARED, UNAVAILABLE, REFUSED = RuntimeError("no reason"), StorageUnavailable("no answer"), StorageError("refused")


@pytest.mark.parametrize("errors", [[UNDECLARED], [UNAVAILABLE], [PutUnknown("?"), UNDECLARED, UNAVAILABLE]])
def test_a_put_without_an_answer_is_repeated(errors: list[BaseException]) -> None:
    timed = Timed(executor=Scripted(*errors))
    append(timed.log, b"meta")
    assert timed.pauses == PAUSES[: len(errors)] and contents(timed.store) == [b"meta"]


@pytest.mark.parametrize("first", [UNDECLARED, PutUnknown("?")])
def test_what_may_have_been_made_and_is_refused_then_is_unknown_at_once(first: BaseException) -> None:
    timed = Timed(executor=Scripted(first, UNAVAILABLE, REFUSED))
    timed.log.send(b"meta", [], None)
    assert "refused" in str(raised(OutcomeUnknown, timed.log.settle))
    assert timed.pauses == PAUSES[:2]


def test_what_was_not_made_and_is_refused_then_is_refused() -> None:
    timed = Timed(executor=Scripted(UNAVAILABLE, REFUSED))
    timed.log.send(b"meta", [], None)
    assert raised(StorageError, timed.log.settle) is REFUSED
    assert timed.pauses == PAUSES[:1]


def test_an_interruption_is_raised_as_it_is() -> None:
    timed = Timed(executor=Scripted(KeyboardInterrupt()))
    timed.log.send(b"meta", [], None)
    raised(KeyboardInterrupt, timed.log.settle)
    assert timed.pauses == [] and len(timed.log.flights) == 1


def test_frames_are_dropped_once_no_request_for_them_is_under_way() -> None:
    executor = Scripted(REFUSED)
    timed = Timed(executor=executor)
    for drop in (timed.log.drop, timed.log.renew):
        executor.waited_for, before = 0, timed.log.writer
        for number in range(3):
            timed.log.send(b"%d" % number, [], number)
        dropped = drop()
        assert [flight.body for flight in dropped] == [0, 1, 2] and executor.waited_for == 3
        assert not timed.log.flights and timed.log.drop() == []
        assert (timed.log.writer == before) == (drop == timed.log.drop)
        assert all(isinstance(flight.future.exception(), PutUnknown) for flight in dropped), "nothing holds its error"


def test_a_frame_is_put_on_this_thread_if_that_is_wanted_or_no_other_can_be_had(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoThread:
        asked = 0

        def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
            self.asked += 1
            raise RuntimeError("no thread")

    executor = NoThread()
    log = open_log(SimulatedStore(), executor=executor)
    log.send(b"inline", [], None, inline=True)
    assert executor.asked == 0 and contents(log.store) == [b"inline"]
    log.send(b"no thread", [], None)
    assert executor.asked == 1 and contents(log.store) == [b"inline", b"no thread"]
    assert "without a thread" in caplog.text


def test_a_loser_reads_several_frames_at_once() -> None:
    store = SimulatedStore()
    counting = CountingStore(store)
    log = open_log(counting)
    append(open_log(store), *(b"%d" % number for number in range(3)))
    log.send(b"lost", [], None)
    raised(Overtaken, log.settle)
    log.drop()
    counting.reset()
    assert len(log.follow()) == 3
    assert next(len(each.paths) for each in counting.requests if each.verb == "read_ranges") == RACE_WINDOW
    counting.reset()
    log.follow()
    assert [len(each.paths) for each in counting.requests if each.verb == "read_ranges"] == [1]


def test_a_read_is_repeated_with_growing_pauses_until_the_timeout() -> None:
    timed = Timed(FaultStore(SimulatedStore(), lambda at, request: Fault("before")), timeout=4.2)
    raised(StorageUnavailable, timed.log.follow)
    assert timed.pauses == pytest.approx(PAUSES)


# --- reading as far as is known to be durable ------------------------------------------------------------------------


def test_a_log_is_not_read_beyond_what_is_known_to_be_durable() -> None:
    store = SimulatedStore()
    append(open_log(store), *(b"%d" % number for number in range(MAX_WINDOW + 10)))
    counting = CountingStore(store)
    log = open_log(counting)
    assert metas(log.follow_durable(2)) == [b"0", b"1", b"2"]
    assert log.follow_durable(2) == log.follow_durable(0) == []
    assert len(log.follow_durable(MAX_WINDOW + 5)) == MAX_WINDOW + 3
    assert [len(request.paths) for request in counting.requests if request.verb == "read_ranges"] == [3, MAX_WINDOW, 3]
    assert log.head.address == MAX_WINDOW + 5
    assert len(log.follow_durable(MAX_WINDOW + 6)) == 1
    assert len(log.follow_durable(MAX_WINDOW + 50)) == 3, "as far as there are frames"


def test_a_window_of_the_log_is_read_and_whether_it_ends_there() -> None:
    store = SimulatedStore()
    append(open_log(store), *(b"%d" % number for number in range(3)))
    log = open_log(store)
    live, ended = log.follow_some(2)
    assert (metas(live), ended) == ([b"0", b"1"], False)
    live, ended = log.follow_some(2)
    assert (metas(live), ended) == ([b"2"], True)
    assert log.follow_some(1) == ([], True)


def test_the_position_of_the_next_frame_counts_from_those_in_flight() -> None:
    log = open_log(SimulatedStore())
    assert log.upcoming() == Position(0, log.writer, 1)
    log.send(b"", [], None)
    assert log.upcoming() == Position(1, log.writer, 1)
    log.settle()
    assert log.upcoming() == Position(1, log.writer, 1)
    log.renew()
    assert log.upcoming() == Position(1, log.writer, 2)
    log.send(b"", [], None)
    assert log.upcoming() == Position(2, log.writer, 2)


def test_void_frames_between_the_head_and_the_end_are_gone_past() -> None:
    log = open_log(SimulatedStore())
    append(log, b"0")
    log.store.put(frame_path(0, 1), b"".join(frames.encode(0, Position(1, b"o" * 16, 9), 1, START, b"", (), Kind.BELL)))
    log.follow()
    assert (log.head.address, log.upcoming().address) == (0, 2)


# --- what it depends on ----------------------------------------------------------------------------------------------


def test_frames_of_others_are_made_durable_before_anything_depends_on_them() -> None:
    """G3: their makers may have died before that."""
    store = SyncedStore()
    append(open_log(store), b"0", b"1")
    log = open_log(store)
    store.synced.clear()
    assert len(log.follow()) == 2 and frames_folder(0) in store.synced
    store.synced.clear()
    assert log.follow() == [] and not store.synced


class Doubtful(AnyIdentity):
    """An identity that is to be checked, once a test says so."""

    doubts = False

    def check(self) -> bool:
        return self.doubts


def in_a_copy(*, is_older: bool) -> tuple[Log, Doubtful]:
    """A log of three frames in whose place another copy of it is now."""
    identity, store = Doubtful(), SimulatedStore()
    log = open_log(store, identity=identity)
    append(log, b"0", b"1", b"2")
    if is_older:
        store.delete([frame_path(0, 2)])
    else:
        store.put(frame_path(0, 2), b"z" * 200)
    return log, identity


@pytest.mark.parametrize("is_older", [True, False])
def test_a_log_is_recognised_by_the_last_frame_that_was_applied(is_older: bool) -> None:
    """P4: whatever is read or made in an older copy must not be taken for the log."""
    uses: list[Callable[[Log], object]] = [
        Log.follow,
        lambda log: log.follow_some(1),
        lambda log: log.follow_durable(3),
        lambda log: append(log, b"3"),
    ]
    for use in uses:
        log, identity = in_a_copy(is_older=is_older)
        identity.doubts = True
        raised(RootReplaced, use, log)
        log, identity = in_a_copy(is_older=is_older)
        use(log)
        log, identity = in_a_copy(is_older=is_older)
        identity.doubts = True
        log.store.put(checkpoint_path(0, 2), bytes(24))
        use(log)


def test_a_log_that_is_still_there_is_recognised() -> None:
    identity, counting = Doubtful(), CountingStore(SimulatedStore())
    log = open_log(counting, identity=identity)
    identity.doubts = True
    assert log.follow() == [], "there is no frame to recognise it by"
    append(log, b"0")
    counting.reset()
    assert log.follow() == []
    assert counting.counts == {"read_ranges": 2} and counting.requests[1].paths == (frame_path(0, 0),)


# --- what stops it ---------------------------------------------------------------------------------------------------


def with_a_gap(store: SimulatedStore) -> bytes:
    """Frames 0 to 2, of which the last one's maker had read frame 1, which is missing. Returns what was there."""
    append(open_log(store), b"0", b"1")
    other = open_log(store)
    other.follow()
    append(other, b"2")
    missing = store.read(frame_path(0, 1))
    store.delete([frame_path(0, 1)])
    return missing


def test_a_frame_that_others_had_read_is_missing_until_it_is_back() -> None:
    """W21."""
    store = SimulatedStore()
    missing = with_a_gap(store)
    log = open_log(store)
    for _ in range(2):
        assert frame_path(0, 1) in str(raised(FrameMissing, log.follow))
    store.put(frame_path(0, 1), missing)
    assert metas(log.follow()) == [b"0", b"1", b"2"], "what was read before the error is not lost"


@pytest.mark.parametrize("meanwhile", ["it is made", "it is truncated"])
def test_a_frame_that_comes_or_is_truncated_while_it_is_looked_for_is_not_missing(meanwhile: str) -> None:
    store = SimulatedStore(remote=True)
    missing = with_a_gap(store)
    lists: list[int] = []

    def plan(at: int, request: Request) -> None:
        if request.verb == "list" and not lists:
            lists.append(at)
            if meanwhile == "it is made":
                store.put(frame_path(0, 1), missing)
            else:
                store.put(checkpoint_path(0, 2), bytes(24))

    log = open_log(FaultStore(store, plan))
    if meanwhile == "it is made":
        assert log.follow() + log.follow() == open_log(store).follow()
    else:
        raised(LogMoved, log.follow)
    assert len(lists) == 1


def test_what_others_left_behind_the_end_shows_nothing_if_nobody_had_read_a_frame_there() -> None:
    store = SimulatedStore()
    append(open_log(store), b"0", b"1", b"2")
    store.delete([frame_path(0, 1)])  # it never landed, and its maker died
    store.put(frame_path(0, 3), b"damaged")
    log = open_log(store)
    assert metas(log.follow()) == [b"0"] and log.follow() == []


def test_a_frame_of_a_newer_version_stops_the_log_and_is_not_damaged() -> None:
    store = SimulatedStore()
    append(open_log(store), b"0")
    head = open_log(store).follow()[0].position
    position = head._replace(address=1)
    newer = frames.encode(0, position, 1, head, b"1", (), 9)  # type: ignore[arg-type]
    store.put(frame_path(0, 1), b"".join(newer))
    log = open_log(store)
    for _ in range(2):
        raised(UnknownFormat, log.follow)
    raised(ValueError, log.repair, 1)
    assert log.upcoming().address == 1


def test_damage_between_a_damaged_frame_and_its_repair_is_gone_past() -> None:
    store = SimulatedStore()
    append(open_log(store), b"0", b"1", b"2", b"3")
    for address in (1, 2):
        store.put(frame_path(0, address), b"x" * 200)
    log = open_log(store)
    assert raised(FrameDamaged, log.follow).address == 1
    log.repair(1)
    for reader in (log, open_log(store)):
        assert [frame.position.address for frame in reader.follow()] == [0, 4]
        assert reader.upcoming().address == 5


def test_a_process_whose_memory_was_cloned_continues_as_another_writer(caplog: pytest.LogCaptureFixture) -> None:
    """W15: both would take the other one's frames for their own."""
    writers = iter([b"a" * 16, b"b" * 16])
    log = open_log(SimulatedStore(), new_writer=lambda: next(writers))
    clone = open_log(log.store, new_writer=lambda: b"a" * 16)
    append(clone, b"0")
    assert metas(log.follow()) == [b"0"]
    assert log.writer == b"b" * 16 and log.upcoming() == Position(1, b"b" * 16, 2)
    assert "clone" in caplog.text
    append(log, b"1")
    assert metas(clone.follow()) == [b"1"] and clone.writer == b"a" * 16
