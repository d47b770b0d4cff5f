"""Damaged frames, checkpoints and recovery points, as `verify` finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chunkstore.paths import is_log
from engine.admin.checks.findings import Severity
from engine.admin.verify import verify
from engine.errors import FrameMissing
from engine.logs import checkpoints
from engine.logs.log import checkpoint_path, frame_path
from engine.root import Root
from engine.settings import Settings
from engine.state.tables import Entry
from engine.storage import recovery_points
from engine.storage.object_reads import Stores
from tests.engine.admin.lives import assert_told, flip, lived, told

pytestmark = pytest.mark.usefixtures("small")


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_damaged_frame() -> None:
    life = lived(7)
    address = life.container.head.address
    flip(life.store, frame_path(0, address), 30)
    report = life.verified()
    assert_told(report, frame_path(0, address), "checksum")
    assert report.errors == 1 and report.orphans is None and report.containers == ()


def test_a_damaged_frame_behind_which_there_is_a_checkpoint() -> None:
    life = lived(8)
    flip(life.store, frame_path(0, life.container.state.checkpoint - 1), 30)
    report = life.verified()
    assert report.errors == 0
    assert_told(report, frame_path(0, life.container.state.checkpoint - 1), "checksum", Severity.WARNING)


def test_a_frame_that_was_given_up_is_no_finding() -> None:
    life = lived(7)
    reader = life.simulation.open()
    life.container.create_segment("last")
    flip(life.store, frame_path(0, life.container.head.address), 30)
    reader.repair(life.container.head.address)
    reader.create_segment("s/after")
    assert told(life.verified()) == []


def test_a_missing_frame_that_another_process_has_gone_on_from() -> None:
    life = lived(7)
    other = life.simulation.open()
    for _ in range(2):
        life.container.append("s/1", b"mine")
        other.append("s/1", b"the other's")
    path = frame_path(0, other.head.address - 2)
    life.store.delete([path])
    with pytest.raises(FrameMissing, match=path):
        life.simulation.open()
    assert_told(life.verified(), path, "was in the log")


@pytest.mark.parametrize(("behind", "is_told"), [(3, False), (70, True)])
def test_frames_of_one_process_behind_a_gap(behind: int, is_told: bool) -> None:
    """A few may have been in flight when it died; so many are not."""
    life = lived(3)
    missing = life.container.head.address + 1
    for _ in range(behind + 1):
        life.container.append("s/1", b"mine")
    life.store.delete([frame_path(0, missing)])
    report = life.verified()
    lost = [finding for finding in report.findings if finding.object == frame_path(0, missing)]
    assert len(lost) == is_told


def test_the_last_frames_of_a_log_are_missing_that_a_recovery_point_shows() -> None:
    """No frame is behind them, so the log just looks shorter."""
    life = lived(7)
    life.container.append("s/1", b"x")
    life.container.flush()
    last = life.container.head.address
    first = max(life.container.state.checkpoint + 1, last - 2)
    life.store.delete([frame_path(0, address) for address in range(first, last + 1)])
    report = life.verified()
    assert_told(report, frame_path(0, first), "its last frames are lost")
    assert any("recover 0 --force" in finding.remedy for finding in report.findings)


def test_the_last_frames_of_a_log_are_missing_that_the_age_evidence_shows(tmp_path: Path) -> None:
    """In a folder, where nothing was flushed."""
    with Root.open(str(tmp_path), containers=1, settings=Settings(maintenance=False)) as root:
        container = root.container(0)
        container.create_segment("s/1")
        container.checkpoint()
        for _ in range(3):
            container.append("s/1", b"x")
        container.truncate_log()  # which records what is there
        last = container.head.address
    with Root.open(str(tmp_path)) as root:
        assert not verify(root).errors
        root.stores.log.delete([frame_path(root.container_id(0), last)])
        report = verify(root)
        assert report.errors
        assert_told(report, frame_path(root.container_id(0), last), "its last frames are lost")


def test_frames_that_are_missing_before_the_newest_checkpoint() -> None:
    life = lived(9)
    life.container.flush()
    listed = life.store.list("_system/containers/0/checkpoints/")
    life.container.checkpoint()
    first = int(listed[0].path.rpartition("/")[2])
    life.store.delete([frame_path(0, first + 1)])
    assert_told(life.verified(), frame_path(0, first + 1), "older checkpoint needs them", Severity.WARNING)


def test_a_damaged_checkpoint() -> None:
    life = lived(8)
    paths = [info.path for info in life.store.list("_system/containers/0/checkpoints/")]
    assert len(paths) > 1
    data = life.store.read(paths[0])
    flip(life.store, paths[0])
    assert_told(life.verified(), paths[0], "checksum", Severity.WARNING)
    life.store.put(paths[0], data)
    flip(life.store, paths[-1])
    assert_told(life.verified(), paths[-1], "checksum")


def test_a_checkpoint_that_is_not_what_the_frames_give() -> None:
    life = lived(8)
    path = [info.path for info in life.store.list("_system/containers/0/checkpoints/")][-1]
    address = int(path.rpartition("/")[2])
    head, state = checkpoints.decode(life.store.read(path), path, 0, address)
    tables = state.tables.set("t", state.tables["t"].put("k", Entry(b"other", 1)))
    life.store.put(path, checkpoints.encode(0, head, state._replace(tables=tables)))
    assert_told(life.verified(), path, "produce, in: tables")
    life.store.put(checkpoint_path(0, address + 1), checkpoints.encode(0, head._replace(address=address + 1), state))
    assert_told(life.verified(), checkpoint_path(0, address + 1))


def test_a_recovered_log_is_no_finding() -> None:
    from engine.storage.recovery import recover

    life = lived(7)
    life.container.flush()
    stores = Stores(life.store, life.store)
    recover(stores, 0, force=True)
    life.container = life.simulation.open()
    assert told(life.go_on(3).verified()) == []


def test_a_lost_log() -> None:
    life = lived(7)
    life.store.delete([info.path for info in life.store.list("") if is_log(info.path)])
    report = life.verified()
    assert_told(report, "_system/containers/0/", "write-ahead log")
    assert report.orphans is None


# --- backups ---------------------------------------------------------------------------------------------------------


def test_a_missing_and_a_damaged_recovery_point() -> None:
    life = lived(7)
    [info] = life.store.list(recovery_points.folder(0))
    data = life.store.read(info.path)
    life.store.delete([info.path])
    assert_told(life.verified(), recovery_points.folder(0), "missing: there is none")
    life.store.put(f"{recovery_points.folder(0)}{1:020d}", data.replace(b"", b""))
    assert told(life.verified()) == []  # its number is its name alone
    flip(life.store, f"{recovery_points.folder(0)}{1:020d}")
    assert_told(life.verified(), recovery_points.folder(0), "checksum")


def test_an_older_recovery_point_than_the_last_complete_cycle() -> None:
    life = lived(7)
    [old] = life.store.list(recovery_points.folder(0))
    data = life.store.read(old.path)
    life.go_on(2)
    [new] = life.store.list(recovery_points.folder(0))
    life.store.delete([new.path])
    life.store.put(old.path, data)
    assert_told(life.verified(), recovery_points.folder(0), "the newest is that of cycle")


def test_what_only_the_recovery_point_names_must_be_there() -> None:
    """It is garbage already, which must not be deleted yet (F2)."""
    life = lived(7)
    life.container.flush()
    chunk = life.middle_chunk()
    life.container.delete(life.whole_segment().name.rpartition(".")[0])
    assert told(life.verified()) == []
    life.store.delete([chunk])
    assert_told(life.verified(), chunk, "the recovery point of flush cycle")
