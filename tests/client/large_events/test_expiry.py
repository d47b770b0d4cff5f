"""Large events that nobody commits: they expire, and clean-ups give them up."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path

import pytest

from engine.admin.orphans import expire_orphans, find_orphans
from engine.root import Root
from engine.settings import Settings
from pravega_spark import EventClosed, EventExpired, LargeEvent, StreamManager
from pravega_spark.jobs import maintain
from pravega_spark.jobs.outcome import failures
from pravega_spark.jobs.spread import Target
from pravega_spark.streams.writing import uploads
from pravega_spark.streams.writing.uploads import Upload
from tests.cli.test_cli import document, run
from tests.client.large_events.simulated import (
    IDLE,
    PART,
    SimulatedRoot,
    collect,
    data_of,
    events,
    payload,
    process,
    stream_of,
    transients,
)
from tests.support.simulation import Simulation

pytestmark = pytest.mark.usefixtures("no_threads_are_left")


def sweep(simulation: Simulation) -> int:
    """A clean-up that leaves nothing alone, and all that comes of it; how many objects it gave up."""
    simulation.advance(1)
    root = SimulatedRoot(simulation)
    found = find_orphans(root, lambda segment: 0, 0)
    expire_orphans(root, found, 1)
    simulation.advance(700)
    root.container(0).flush()
    root.container(0).collect_garbage()
    left = {info.path for info in simulation.store.list("sc/")} | set(root.container(0).state.garbage)
    assert not left & {orphan.path for orphan in found.orphans}
    return len(found.orphans)


# --- expiry ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("use", ["commit", "write", "flush"])
def test_a_commit_after_expiry(simulation: Simulation, use: str) -> None:
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one")
        event.write(bytes(5 * PART))
        event.flush()
        simulation.advance(1.1 * IDLE)
        assert simulation.open(transient_idle=IDLE).expire_transients()
        with pytest.raises(EventExpired, match=r"nothing was written to it for 1000 seconds, .*\. Begin it again"):
            if use == "commit":
                event.commit()
            event.write(bytes(5 * PART if use == "write" else 10))
            event.flush()
        assert event.closed and events(manager) == []
        with pytest.raises(EventClosed, match="aborted, because writing it had failed"):
            event.commit()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("use", ["write", "flush"])
def test_an_upload_that_still_writes_never_expires(simulation: Simulation, use: str) -> None:
    """However little it writes, as long as it is used more often than the idle time is long."""
    with process(simulation) as manager:
        event = manager.begin_event("sc", "one")
        event.write(bytes(2 * PART))
        event.flush()
        (name,) = transients(manager)
        for _ in range(20):
            simulation.advance(0.45 * IDLE)
            if use == "write":
                event.write(b"1")
            else:
                event.flush()
            simulation.advance(0.45 * IDLE)
            assert simulation.open(transient_idle=IDLE).expire_transients() == ()
        assert transients(manager) == [name]
        event.commit()
        assert events(manager) == [bytes(2 * PART) + b"1" * 20 * (use == "write")]


@pytest.mark.usefixtures("small")
def test_operators_collect_idle_uploads(tmp_path: Path) -> None:
    url, kept = str(tmp_path / "root"), str(tmp_path / "kept")
    with StreamManager(kept) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        manager.begin_event("sc", "one").write(bytes(5 * PART))
        assert document("gc", "--yes", root=kept)["gc"]["expired"] == 0
    settings = Settings(maintenance=False)
    with Root.open(url, containers=1, transient_idle_seconds=0.001, settings=settings) as root:
        manager = StreamManager.over(root)
        manager.create_scope("sc")
        manager.create_stream("sc", "one")

        def left() -> str:
            event = manager.begin_event("sc", "one")
            event.write(bytes(5 * PART))
            event.flush()
            (name,) = transients(manager)
            return name

        name = left()
        assert document("segment", "describe", name, root=url)["segment"]["transient_of"] == "sc/one/0.#epoch.0"
        assert name not in str(document("stream", "describe", "sc/one", root=url))
        assert document("gc", "--dry-run", root=url)["gc"]["expired"] == 1
        refused = run("gc", root=url, code=1)
        assert "1 idle upload of large events would be aborted" in refused.stdout and transients(manager) == [name]
        assert document("gc", "--yes", root=url)["gc"]["expired"] == 1
        assert not transients(manager)
        name = left()
        (told,) = (one for one in maintain.run(Target(url), dry_run=True) if one.step == "garbage")
        assert told.changed and "1 idle upload of large events would be aborted" in told.detail
        assert transients(manager) == [name]
        assert not failures(maintain.run(Target(url), check=True))
        assert not transients(manager)


# --- clean-ups -------------------------------------------------------------------------------------------------------


def begun(manager: StreamManager, name: str | None = None) -> tuple[LargeEvent, Upload]:
    """An event as `begin_event` makes it, and its upload."""
    stream = stream_of(manager)
    upload = uploads.begin(stream, name=name)
    return LargeEvent(stream, upload), upload


def held_back(event: LargeEvent, upload: Upload, data: bytes) -> None:
    """Write what is uploaded and not attached, as by a program that sleeps then."""
    attached = upload.length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "ready", lambda: False)
        event.write(data)
        wait([extents for _, extents in event._uploads._sent])
        event.write(b"")
    assert upload.length == attached < event.tell()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [None, "name"])
@pytest.mark.parametrize("attached", [0, 3], ids=["the first part", "a later part"])
@pytest.mark.parametrize("use", ["commit", "flush", "write"])
def test_parts_that_were_given_up(simulation: Simulation, name: str | None, attached: int, use: str) -> None:
    """Nothing of the event comes into the stream. Under a name it goes on behind what was attached, however old."""
    data = data_of(10 * PART)
    with process(simulation) as manager:
        event, upload = begun(manager, name)
        if attached:
            event.write(data[: attached * PART])
            event.flush()
        held_back(event, upload, data[attached * PART : 6 * PART + 1])
        assert sweep(simulation) > 1
        with pytest.raises(
            EventExpired, match=r"its chunks were created at .* garbage collection has deleted .*\. Begin it again"
        ):
            if use == "write":
                event.write(data[6 * PART + 1 : 9 * PART])
            elif use == "flush":
                event.flush()
            event.commit()
        assert event.closed and events(manager) == []
        assert len(transients(manager)) == bool(name and attached)
        again = manager.begin_event("sc", "one", name=name)
        assert again.tell() == (attached * PART if name else 0)
        again.write(data[again.tell() :])
        pointer = again.commit()
        assert payload(manager, pointer) == data and events(manager) == [data]
    collect(simulation)
    with process(simulation) as manager:
        assert payload(manager, pointer) == data and not transients(manager)


@pytest.mark.usefixtures("small")
def test_parts_are_as_old_as_the_first_of_them(simulation: Simulation) -> None:
    """They are attached together, and what was uploaded after a clean-up does not hide what that gave up."""
    data = data_of(5 * PART)
    with process(simulation) as manager:
        event, upload = begun(manager)
        held_back(event, upload, data[: PART + 1])
        assert sweep(simulation) == 1
        held_back(event, upload, data[PART + 1 :])
        with pytest.raises(EventExpired):
            event.commit()
        assert events(manager) == [] and not transients(manager)


@pytest.mark.usefixtures("small")
def test_parts_that_a_clean_up_does_not_concern(simulation: Simulation) -> None:
    """Those that are attached, and those that are younger, whatever it gives up beside them."""
    data = data_of(10 * PART)
    with process(simulation) as manager:
        (event, upload), (died, upload_of_died) = begun(manager), begun(manager)
        event.write(data[: 4 * PART])
        event.flush()
        held_back(died, upload_of_died, data)
        assert sweep(simulation) > 5
        held_back(event, upload, data[4 * PART : 9 * PART])
        assert len(find_orphans(manager.root, lambda segment: 0).orphans) == 0
        event.write(data[9 * PART :])
        pointer = event.commit()
        assert payload(manager, pointer) == data and events(manager) == [data]
        with pytest.raises(EventExpired):
            died.commit()
    assert simulation.open().state.min_attach_time > 0
