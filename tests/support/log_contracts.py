"""What a write-ahead log must do on every store, as test methods (W1, W2, W3, W7, W8).

Subclass `LogContract` and give it a `store` fixture of an empty store:

class TestMyStore(LogContract):
    @pytest.fixture
    def store(self): return MyStore(…)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chunkstore import Outcome, Store
from chunkstore.boot_clock import boot_time
from chunkstore.testing import CountingStore, FaultStore, Request, WrappingStore, fail_at
from chunkstore.wrapping import Result
from engine.errors import FrameDamaged, LogMoved, OutcomeUnknown, Overtaken
from engine.logs.frames import START, Frame, Kind, Position
from engine.logs.log import InlineExecutor, Log, checkpoint_path, frame_path

MIB = 1 << 20


def open_log(store: Store, head: Position = START, **settings: Any) -> Log:
    """The log of container 0 with requests carried out at once, as a process sees it that knows it up to `head`."""
    clock, plain = settings.get("clock", boot_time), store
    while isinstance(plain, WrappingStore):
        plain = plain.inner  # which no test counts the requests of
    known = {"stamp": plain.clock(), "wall": clock}
    settings = {"grace": 600.0, "timeout": 5.0, "executor": InlineExecutor(), **known, **settings}
    return Log(store, 0, head, clock(), **settings)


def append(log: Log, *metas: bytes) -> None:
    """Send a frame for each of `metas`, all in flight together, and settle them."""
    for meta in metas:
        log.send(meta, [], None)
    while log.flights:
        log.settle()


def append_in_turn(log: Log, meta: bytes) -> int:
    """Append as often as it takes; the number of races that were lost."""
    for losses in itertools.count():
        try:
            append(log, meta)
            return losses
        except Overtaken:
            log.drop()
            log.follow()
    raise AssertionError


def metas(live: list[Frame]) -> list[bytes]:
    """The metadata of frames."""
    return [frame.meta for frame in live]


def contents(store: Store) -> list[bytes]:
    """The metadata of the live frames, as somebody sees them who reads from scratch."""
    return metas(open_log(store).follow())


def raised(error: type[BaseException], function: Callable[..., object], *arguments: object) -> Any:
    """The error, which must be of this type, that calling `function` raises."""
    try:
        result = function(*arguments)
    except error as found:
        return found
    raise AssertionError(f"{function} with {arguments!r} returned {result!r} and did not raise {error.__name__}")


class LogContract:
    """The contract of the log on a store."""

    # -- W1: succession

    def test_a_new_log_is_empty(self, store: Store) -> None:
        log = open_log(store)
        assert log.follow() == []
        assert log.upcoming().address == 0

    def test_frames_are_followed_in_order(self, store: Store) -> None:
        writer, reader = open_log(store), open_log(store)
        append(writer, b"a")
        append(writer, b"b", b"c")
        live = reader.follow()
        assert metas(live) == [b"a", b"b", b"c"]
        assert [frame.position.address for frame in live] == [0, 1, 2]
        assert {(frame.position.writer, frame.position.epoch) for frame in live} == {(writer.head.writer, 1)}
        assert [frame.predecessor[:2] for frame in live[1:]] == [frame.position[:2] for frame in live[:2]]
        assert reader.head == writer.head
        assert reader.follow() == []
        append(writer, b"d")
        assert metas(reader.follow()) == [b"d"]

    def test_the_log_passes_from_writer_to_writer(self, store: Store) -> None:
        one, other = open_log(store), open_log(store)
        append(one, b"1")
        raised(Overtaken, append, other, b"lost")
        other.drop()
        assert metas(other.follow()) == [b"1"]
        append(other, b"2")
        raised(Overtaken, append, one, b"lost")
        one.drop()
        assert metas(one.follow()) == [b"2"]
        append(one, b"3")
        live = open_log(store).follow()
        assert metas(live) == [b"1", b"2", b"3"]
        assert [frame.position.epoch for frame in live] == [1, 2, 3]

    def test_frames_behind_a_lost_race_are_void_for_all(self, store: Store) -> None:
        winner, loser = open_log(store), open_log(store)
        append(winner, b"won")
        raised(Overtaken, append, loser, b"lost", b"void", b"void")
        loser.drop()
        readers = [open_log(store), winner, loser]
        seen = [metas(reader.follow()) for reader in readers]
        assert seen == [[b"won"], [], [b"won"]]
        assert {reader.upcoming().address for reader in readers} == {3}
        append(winner, b"next")
        assert metas(loser.follow()) == [b"next"]
        assert contents(store) == [b"won", b"next"]

    def test_objects_beyond_a_gap_are_not_part_of_the_log(self, store: Store) -> None:
        writer, reader = open_log(store), open_log(store)
        append(writer, b"a", b"b", b"c")
        last = store.read(frame_path(0, 2))
        missing = store.read(frame_path(0, 1))
        store.delete([frame_path(0, 1)])
        assert metas(reader.follow()) == [b"a"]
        assert reader.follow() == []
        store.put_if_absent(frame_path(0, 1), missing)
        assert metas(reader.follow()) == [b"b", b"c"]
        assert store.read(frame_path(0, 2)) == last

    def test_who_follows_reads_metadata_only(self, store: Store) -> None:
        writer, counting = open_log(store), CountingStore(store)
        payload = bytes(8 * MIB)
        for number in range(3):
            writer.send(b"meta %d" % number, [payload], None)
            writer.settle()
        live = open_log(counting).follow()
        assert metas(live) == [b"meta 0", b"meta 1", b"meta 2"]
        assert [frame.payload_length for frame in live] == [8 * MIB] * 3
        assert counting.bytes_read <= 3 * 64 * 1024

    def test_metadata_of_any_size_is_read_whole(self, store: Store) -> None:
        writer, large = open_log(store), bytes(range(256)) * 1000
        writer.send(large, [b"payload" * 1000], None)
        writer.settle()
        append(writer, b"small")
        assert contents(store) == [large, b"small"]

    # -- W2 and W3: several writers, frames in flight, unknown outcomes

    def test_frames_in_flight_settle_in_order(self, store: Store) -> None:
        with ThreadPoolExecutor(4) as pool:
            log = open_log(store, executor=pool)
            for number in range(12):
                if len(log.flights) == 4:
                    log.settle()
                log.send(b"%d" % number, [bytes(number * 1000)], number)
            settled = [log.settle().body for _ in range(4)]
        assert settled == [8, 9, 10, 11]
        assert contents(store) == [b"%d" % number for number in range(12)]

    def test_racing_writers_lose_nothing(self, store: Store) -> None:
        def write(name: int) -> list[bytes]:
            log, mine = open_log(store), [b"%d-%d" % (name, number) for number in range(6)]
            for meta in mine:
                append_in_turn(log, meta)
            return mine

        with ThreadPoolExecutor(3) as pool:
            written = list(pool.map(write, range(3)))
        found = contents(store)
        assert sorted(found) == sorted(itertools.chain(*written))
        for mine in written:
            assert [meta for meta in found if meta in mine] == mine

    def test_a_lost_request_and_a_lost_response_are_settled(self, store: Store) -> None:
        for when in ("before", "after"):
            log = open_log(FaultStore(store, fail_at(1, when), verbs=("put_if_absent",)))
            log.follow()
            append(log, when.encode())
        assert contents(store) == [b"before", b"after"]

    def test_what_is_given_up_may_be_in_the_log_once(self, store: Store) -> None:
        failing = FaultStore(store, fail_at(1, "after", forever=True), verbs=("put_if_absent",))
        log = open_log(failing, timeout=0.0)
        log.send(b"given up", [], None)
        raised(OutcomeUnknown, log.settle)
        log.renew()
        failing.plan = None
        assert metas(log.follow()) == [b"given up"]
        append(log, b"next")
        assert contents(store) == [b"given up", b"next"]

    def test_repeating_a_put_changes_nothing(self, store: Store) -> None:
        log = open_log(store)
        flight = log.send(b"once", [], None)
        log.settle()
        assert store.put_if_absent(frame_path(0, 0), flight.data) is Outcome.MINE
        assert contents(store) == [b"once"]

    # -- W7: addresses are deleted

    def test_a_truncation_point_covers_what_a_sleeper_sees(self, store: Store) -> None:
        now = 0.0
        sleeper = open_log(store, grace=10.0, clock=lambda: now)
        writer = open_log(store)
        append(writer, b"0", b"1", b"2")
        store.put_if_absent(checkpoint_path(0, 2), bytes(24))
        store.delete([frame_path(0, 0), frame_path(0, 1)])
        now = 5.1
        assert "now starts at 2" in str(raised(LogMoved, sleeper.follow))
        raised(LogMoved, append, sleeper, b"nobody will see this")
        assert sleeper.head == START
        newcomer = open_log(store, writer.head, grace=10.0, clock=lambda: now)
        append(newcomer, b"3")
        assert metas(writer.follow()) == [b"3"]

    def test_a_truncation_point_covers_what_a_message_points_a_sleeper_to(self, store: Store) -> None:
        """It sleeps while it reads what another process says to be durable."""
        now = 0.0

        class Sleepy(WrappingStore):
            def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
                nonlocal now
                now = 5.1
                return call()

        sleeper = open_log(Sleepy(store), grace=10.0, clock=lambda: now)
        append(open_log(store), b"0", b"1", b"2")
        store.put_if_absent(checkpoint_path(0, 2), bytes(24))
        assert "now starts at 2" in str(raised(LogMoved, sleeper.follow_durable, 2))
        assert sleeper.head == START

    # -- W8: damage

    def test_damage_stops_the_log_and_names_the_object(self, store: Store) -> None:
        append(open_log(store), b"a", b"b", b"c")
        path = frame_path(0, 1)
        whole = store.read(path)
        flipped = bytearray(whole)
        flipped[-1] ^= 1
        for damaged in (b"", whole[:50], whole[:-1], bytes(flipped), store.read(frame_path(0, 0)), whole + b"x"):
            store.put(path, damaged)
            reader = open_log(store)
            for _ in range(2):
                damage = raised(FrameDamaged, reader.follow)
                assert path in str(damage) and damage.address == 1
            assert reader.head.address == 0
        store.put(path, whole)
        assert metas(reader.follow()) == [b"a", b"b", b"c"], "what was read before the damage is not lost"

    def test_a_repair_is_in_the_log_and_all_agree(self, store: Store) -> None:
        append(open_log(store), b"a", b"damaged", b"hangs on it")
        store.put(frame_path(0, 1), b"x" * 200)
        operator, witness = open_log(store), open_log(store)
        raised(FrameDamaged, operator.follow)
        raised(FrameDamaged, witness.follow)
        raised(ValueError, operator.repair, 2)
        operator.repair(1)
        live = operator.follow()
        assert [frame.kind for frame in live] == [Kind.DATA, Kind.REPAIR]
        append(operator, b"after")
        assert metas(witness.follow())[0::2] == [b"a", b"after"]
        assert operator.head == witness.head
        newcomer = open_log(store)
        assert metas(newcomer.follow())[0::2] == [b"a", b"after"]
        append_in_turn(witness, b"more")
        assert contents(store)[2:] == [b"after", b"more"]
        raised(ValueError, newcomer.repair, 1)
