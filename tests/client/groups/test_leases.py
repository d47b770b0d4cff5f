"""Leases: zombies, slow readers, killed ones, and forked processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from chunkstore import StorageUnavailable
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.client.groups.config import StreamReaderGroupConfig
from pravega_spark.client.groups.member import Member
from pravega_spark.client.groups.state import ReaderOffline
from tests.client.groups.reading import Clock, drained, grouped, next_slice, numbered, payloads, run, stored, write
from tests.support import limits

pytestmark = pytest.mark.usefixtures("no_patience")


def test_a_zombie_delivers_nothing_after_its_segments_were_taken(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "one", ["a", "b", "c"])
    zombie = grouped(roots[0], clock).create_reader("zombie")
    part = next_slice(zombie)
    assert next(part).data() == b"a"
    other = grouped(roots[1], clock).create_reader("other")
    assert list(next_slice(other)) == []  # from now on it knows the last beat of the zombie
    clock.now += 59.9
    assert list(next_slice(other)) == []
    clock.now += 0.1
    assert drained(other, 2) == ["a", "b", "c"]
    for _ in range(2):
        with pytest.raises(ReaderOffline):
            next(part)
    with pytest.raises(ReaderOffline):
        zombie.release_segment(part)
    with pytest.raises(ReaderOffline):
        next_slice(zombie)
    zombie.reader_offline()
    other.reader_offline()
    assert grouped(roots[0], clock).stream_cuts()["sc/one"] == manager.stream_info("sc", "one").tail


def test_what_was_released_is_recorded_soon_although_the_reader_rests(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "one", numbered(9))
    reader = grouped(roots[0], clock).create_reader("r")
    part = next_slice(reader)
    assert payloads(part) == numbered(9)
    clock.now += 2.9
    reader.release_segment(part)  # so soon after the last record that it is left for later
    tail, end = manager.stream_info("sc", "one").tail, time.monotonic() + 30
    while grouped(roots[1], clock).stream_cuts()["sc/one"] != tail:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_who_is_slow_but_alive_keeps_its_segments(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "one", numbered(9))
    slow = grouped(roots[0], clock).create_reader("slow", slice_time="1h")
    other = grouped(roots[1], clock).create_reader("other")
    part, found = next_slice(slow), []
    for event in part:
        found.append(event.data().decode())
        clock.now += 45  # more than two thirds of the lease
        assert list(next_slice(other)) == []
    assert found == numbered(9)
    slow.release_segment(part)
    slow.reader_offline()


def test_who_waits_for_events_keeps_its_segments(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    idle = grouped(roots[0], clock).create_reader("idle")
    other = grouped(roots[1], clock).create_reader("other")
    for _ in range(9):
        clock.now += 30  # half of the lease
        assert list(next_slice(idle)) == list(next_slice(other)) == []
    write(manager, "one", ["a"])
    assert (drained(other), drained(idle)) == ([], ["a"])


def test_a_lease_is_kept_in_the_background(manager: StreamManager, roots: tuple[Root, Root], clock: Clock) -> None:
    write(manager, "one", numbered(3))
    slow = grouped(roots[0], clock)
    reader = slow.create_reader("slow")
    beat = stored(roots[0]).readers["slow"].beat
    part = next_slice(reader)
    clock.now += 20  # a third of the lease
    next(part)
    clock.groups[0].pool().shutdown()
    assert stored(roots[0]).readers["slow"].beat == beat + 1


def test_released_positions_are_recorded_within_seconds(
    manager: StreamManager, roots: tuple[Root, Root], clock: Clock
) -> None:
    write(manager, "one", ["a", "b"])
    group = grouped(roots[0], clock)
    reader = group.create_reader("r")
    part = next_slice(reader)
    next(part)
    reader.release_segment(part)
    assert list(stored(roots[0]).positions().values()) == [0]
    clock.now += 3
    assert next(next_slice(reader)).data() == b"b"
    assert list(stored(roots[0]).positions().values()) == [9]
    write(manager, "one", ["c"])
    part = next_slice(reader)
    assert payloads(part) == ["c"]
    clock.now += 3
    reader.release_segment(part)  # long after the last time: at once, by a thread
    clock.groups[0].pool().shutdown()
    assert list(stored(roots[0]).positions().values()) == [27]


def test_a_failure_in_the_background_is_told_once_while_it_lasts(
    manager: StreamManager,
    roots: tuple[Root, Root],
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grouped(roots[0], clock)
    [group] = clock.groups
    member = Member(group, "r", 1000)
    tried = threading.Semaphore(0)

    def fails(step: object) -> None:
        tried.release()
        raise StorageUnavailable("an outage")

    monkeypatch.setattr(group.entry, "change", fails)
    clock.now += 3
    for _ in range(4):
        while not tried.acquire(timeout=0.02):
            member.record_soon()
    group.end_threads()
    [told] = [each for each in caplog.messages if "could not record its positions" in each]
    assert "an outage" in told


def test_an_operator_takes_a_reader_offline(manager: StreamManager, roots: tuple[Root, Root], clock: Clock) -> None:
    write(manager, "one", ["a", "b"])
    gone = grouped(roots[0], clock).create_reader("gone")
    part = next_slice(gone)
    next(part)
    group = grouped(roots[1], clock)
    group.reader_offline("gone")
    assert drained(group.create_reader("r")) == ["a", "b"]
    clock.now += 3
    with pytest.raises(ReaderOffline):
        next_slice(gone)
    with pytest.raises(ReaderOffline):
        next(part)


def follow(url: str, name: str, report: Connection, count: int) -> None:
    """Read, and report each event, its slice's release, and that it goes on; until killed or everything is read."""

    async def work() -> None:
        manager = StreamManager(url)
        config = StreamReaderGroupConfig(False, "sc", "st", lease=1.0)
        reader = manager.create_reader_group_with_config("rg", "sc", config).create_reader(name)
        report.send(("online", name))
        while True:
            part = await reader.get_segment_slice_async()
            report.send(("events", payloads(part)))
            reader.release_segment(part)

    run(work())


@pytest.mark.processes
def test_a_killed_reader_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = multiprocessing.get_context("spawn")
    limits.slice_bytes(monkeypatch, 2000)
    url, count = str(tmp_path), 2000
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 4)
        write(manager, "st", numbered(count // 2), key=None)
        mine, theirs = spawn.Pipe(duplex=False)
        victim = spawn.Process(target=follow, args=(url, "victim", theirs, count), daemon=True)
        victim.start()
        theirs.close()
        try:
            assert mine.poll(60)
            assert mine.recv() == ("online", "victim")
            config = StreamReaderGroupConfig(False, "sc", "st", lease=1.0)
            group = manager.create_reader_group_with_config("rg", "sc", config)
            reader = group.create_reader("mine")
            found = Counter[str]()

            def hear() -> None:
                while mine.poll():
                    found.update(mine.recv()[1])

            while sum(found.values()) < count // 4:
                hear()
                found.update(drained(reader))
            victim.kill()  # while it may have a slice, and released ones that it has not recorded
            victim.join()
            with suppress(EOFError):
                hear()
            write(manager, "st", numbered(count - count // 2, count // 2), key=None)
            while len(found) < count:
                found.update(drained(reader))
        finally:
            victim.kill()
            victim.join()
        assert set(found) == set(numbered(count))
        assert group.online_readers() == ["mine"]
        assert group.unread_bytes() == 0


@pytest.mark.processes
def test_a_forked_process_refuses(manager: StreamManager) -> None:
    write(manager, "one", ["a", "b"])
    group = manager.create_reader_group("rg", "sc", "one")
    reader = group.create_reader("r")
    part = next_slice(reader)
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)

    def work() -> None:
        told = []
        calls = (
            lambda: next(part),
            lambda: next_slice(reader),
            lambda: reader.release_segment(part),
            reader.reader_offline,
            lambda: group.create_reader("x"),
            group.stream_cuts,
        )
        for call in calls:
            try:
                call()
            except RuntimeError as error:
                told.append("before the process forked" in str(error))
        group.close()
        theirs.send(told)
        os._exit(0)

    process = context.Process(target=work)
    process.start()
    assert mine.poll(60)
    assert mine.recv() == [True] * 6
    process.join()
    assert payloads(part) == ["a", "b"]
