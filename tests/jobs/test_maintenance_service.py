"""Maintenance as a service: it costs no write where there is nothing to do, one of several processes does it, and
another one takes over from one that was killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkstore.testing import CountingStore
from engine.errors import UnknownFormat
from engine.root import Root
from engine.settings import Settings
from engine.state.operations import PutEntry
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from pravega_spark.jobs.maintenance_service import Looked, MaintenanceService
from pravega_spark.streams.maintenance.lease import (
    LEASE,
    MOST_LINES,
    MaintenanceLease,
    MaintenanceRecord,
    MaintenanceRun,
    Verification,
    maintenance_record,
)
from pravega_spark.streams.model.system_tables import MAINTENANCE

WRITES = {"put", "post", "put_if_absent", "append", "link", "delete", "set_read_only"}
NEVER = 1e9  # seconds


def written(url: str, events: int = 100) -> None:
    """Write some events."""
    with (
        StreamManager.over(Root.open(url, settings=Settings(maintenance=False))) as manager,
        manager.create_writer("sc", "one") as writer,
    ):
        writer.write_events([f"{number}" for number in range(events)], ["k"] * events)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A root with events that are only in the log."""
    url = str(tmp_path / "root")
    with StreamManager(url, create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
    written(url)
    return url


def opened(url: str) -> Root:
    """The root, without maintenance by commits."""
    return Root.open(url, settings=Settings(maintenance=False))


def until(done: Callable[[], bool]) -> None:
    """Wait for what the timeout of the test bounds."""
    while not done():
        threading.Event().wait(0.01)


def test_a_run_does_what_the_job_does_and_is_recorded(url: str) -> None:
    root = opened(url)
    assert MaintenanceService(root).look() is Looked.RAN
    assert sum(root.container(number).refresh().logged_bytes for number in range(root.config.containers)) == 0
    found = maintenance_record(opened_again(url))
    assert found.run is not None and found.verified is not None and not found.token
    assert (found.run.steps, found.run.failed) == (7, 0) and "flush: 4 containers" in found.run.lines
    assert (found.verified.errors, found.verified.text) == (0, "healthy")


def opened_again(url: str) -> Root:
    """The root as another process sees it, up to date."""
    root = opened(url)
    root.container(0).refresh()
    return root


def test_an_idle_root_costs_no_write_and_as_many_reads_at_each_look(url: str) -> None:
    root = opened(url)
    store = CountingStore(root.stores.log)
    root.stores = Stores(store, store)
    service = MaintenanceService(root)
    assert service.look() is Looked.RAN
    reads = []
    for _ in range(3):
        store.reset()
        assert service.look() is Looked.IDLE
        assert not WRITES & set(store.counts)
        reads.append(store.count())
    assert len(set(reads)) == 1 and reads[0] < 50


def test_a_verification_is_made_once_in_its_time_and_kept_meanwhile(url: str) -> None:
    root = opened(url)
    first = MaintenanceService(root, verify_every=NEVER)
    first.look()
    verified = maintenance_record(root).verified
    written(url)
    assert first.look() is Looked.RAN
    found = maintenance_record(root)
    assert found.verified == verified and found.run is not None and found.run.steps == 6
    written(url)
    MaintenanceService(root, verify_every=0).look()
    again = maintenance_record(root)
    assert again.verified is not None and again.run is not None and again.run.steps == 7


def test_one_of_two_servers_maintains_the_root(url: str) -> None:
    held = MaintenanceLease(opened(url), "the other one", NEVER)
    assert held.take()
    root = opened(url)
    assert MaintenanceService(root, lease_seconds=NEVER).look() is Looked.ELSEWHERE
    assert any(root.container(number).refresh().logged_bytes for number in range(root.config.containers))
    assert maintenance_record(opened_again(url)).holder == "the other one"
    assert held.give_back(MaintenanceRun(1, "the other one", 0, 0, 0, ()), None)
    assert MaintenanceService(root, lease_seconds=NEVER).look() is Looked.RAN


def test_a_lease_with_beats_does_not_expire(url: str) -> None:
    held, other = MaintenanceLease(opened(url), "a", 0.05), MaintenanceLease(opened(url), "b", 0.05)
    assert held.take() and not other.take()
    for _ in range(5):
        assert held.beat()
        threading.Event().wait(0.06)
        assert not other.take()  # it sees this beat for the first time
    until(other.take)
    assert not held.beat() and not held.give_back(MaintenanceRun(1, "a", 0, 0, 0, ()), None)
    assert other.beat()


@pytest.mark.processes
def test_a_process_that_was_killed_is_replaced(url: str) -> None:
    program = (
        "import sys; from engine.root import Root; "
        "from pravega_spark.streams.maintenance.lease import MaintenanceLease; "
        f"print(MaintenanceLease(Root.open({url!r}), 'killed').take(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "True\n"
        process.kill()
    root = opened(url)
    with MaintenanceService(root, every=NEVER, lease_seconds=0.05):
        until(lambda: maintenance_record(opened_again(url)).run is not None)
    assert maintenance_record(opened_again(url)).holder == ""


def test_two_servers_run_until_they_are_stopped(url: str) -> None:
    with MaintenanceService(opened(url), every=0.01), MaintenanceService(opened(url), every=0.01):
        until(lambda: maintenance_record(opened_again(url)).run is not None)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("maintenance")]


def test_a_record_that_is_damaged_is_replaced_and_one_of_a_newer_version_is_not(url: str) -> None:
    root = opened(url)
    root.container(0).commit([PutEntry(MAINTENANCE, LEASE, b"\xc1")])
    assert MaintenanceService(root).look() is Looked.RAN and maintenance_record(root).run is not None
    root.container(0).commit([PutEntry(MAINTENANCE, LEASE, b"\x96\x02\xa0\xa0\x00\xc0\xc0")])
    written(url)
    with pytest.raises(UnknownFormat, match="upgrade"):
        MaintenanceService(root).look()


def test_a_record_is_stored_as_it_is() -> None:
    run = MaintenanceRun(5, "host, process 1", 3, 2, 1, tuple(f"line {number}" for number in range(MOST_LINES)))
    record = MaintenanceRecord("host", "token", 7, run, Verification(6, 1, "1 error"))
    assert MaintenanceRecord.decode(record.encode()) == record
    assert MaintenanceRecord.decode(MaintenanceRecord().encode()) == MaintenanceRecord()
