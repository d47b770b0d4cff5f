"""Backups know which generation of which root they hold; a restored or recovered root is another generation (P4)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from chunkstore import StorageRefused, open_store
from chunkstore.paths import BACKUP, ROOT
from chunkstore.testing import Crashed, FaultStore, crash_at
from chunkstore.testing.faults import Plan, When
from engine.admin.backups import back_up, restore
from engine.admin.orphans import expire_orphans, find_orphans
from engine.admin.verify import verify
from engine.errors import BadKeyVersion, LogLost, OutcomeUnknown, RootReplaced
from engine.logs.log import checkpoints_folder, frames_folder
from engine.root import Root
from engine.settings import Settings
from engine.storage import recovery_points
from engine.storage.object_reads import Stores

S, TABLE = "s/a", "_system/t"


def opened(folder: Path) -> Root:
    return Root.open(str(folder), containers=2, settings=Settings(threaded=False, maintenance=False))


@pytest.fixture
def production(tmp_path: Path) -> Path:
    folder = tmp_path / "production"
    with opened(folder) as root:
        for number in range(2):
            root.container(number).create_segment(S)
            root.container(number).append(S, b"production")
    return folder


def restored(folder: Path, copy: Path) -> Path:
    """A root from the backup `copy`."""
    restore(str(copy), str(folder))
    return folder


def backed_up(folder: Path, copy: Path) -> Path:
    with opened(folder) as root:
        back_up(root, str(copy))
    return copy


def test_a_staging_copy_cannot_back_up_over_productions_backup(production: Path, tmp_path: Path) -> None:
    copy = backed_up(production, tmp_path / "copy")
    staging = restored(tmp_path / "staging", copy)
    with opened(staging) as root:
        root.container(0).append(S, b", staging")
        root.container(0).flush()
        with pytest.raises(StorageRefused, match="another root, the one that this root was restored from"):
            back_up(root, str(copy))
        back_up(root, str(tmp_path / "stagings"))
    with opened(production) as root:
        root.container(0).append(S, b", more")
        with pytest.raises(StorageRefused, match="holds the backup of another root: give an empty folder"):
            back_up(root, str(tmp_path / "stagings"))
        back_up(root, str(copy))
    with opened(restored(tmp_path / "again", copy)) as root:
        assert root.container(0).read(S, 0, 16) == b"production, more"


def test_two_roots_that_begin_a_backup_in_one_place_are_not_mixed(production: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with opened(other) as root:
        root.container(0).create_segment(S)
    with opened(production) as root:
        open_store(str(tmp_path / "copy")).put_if_absent(BACKUP, open_store(str(other)).read(ROOT))
        with pytest.raises(StorageRefused, match="another root"):
            back_up(root, str(tmp_path / "copy"))


def test_a_backup_from_before_a_recovery_is_kept(production: Path, tmp_path: Path) -> None:
    copy = backed_up(production, tmp_path / "copy")
    with opened(production) as root:
        root.recover(0, force=True)
    with opened(production) as root, pytest.raises(StorageRefused, match="from before a container was recovered"):
        back_up(root, str(copy))
    with opened(restored(tmp_path / "again", copy)) as root:
        assert root.container(1).read(S, 0, 10) == b"production"


def test_a_backup_during_which_the_root_is_replaced_fails(production: Path, tmp_path: Path) -> None:
    with opened(production) as root:
        for number in range(2):
            root.container(number).flush()
        config = root.config

        def replaced(what: str, done: int, total: int) -> None:
            root.stores.chunks.put(ROOT, config.with_recovered(1, "f" * 32).to_bytes())

        with pytest.raises((RootReplaced, OutcomeUnknown), match="recovered"):
            back_up(root, str(tmp_path / "copy"), progress=replaced)


def test_a_restored_root_has_an_identity_of_its_own(production: Path, tmp_path: Path) -> None:
    copy = backed_up(production, tmp_path / "copy")
    configs = []
    for folder in (production, restored(tmp_path / "a", copy), restored(tmp_path / "b", copy)):
        with opened(folder) as root:
            configs.append(root.config)
            assert root.container(0).read(S, 0, 10) == b"production"
            assert not verify(root).findings
    assert len({config.id for config in configs}) == 3
    assert [config.origin for config in configs] == [None, configs[0].id, configs[0].id]


@pytest.mark.parametrize("again", ["restored in place", "recovered"])
def test_a_process_that_was_overlooked_ends(production: Path, tmp_path: Path, again: str) -> None:
    """A writer that nobody stopped went on acknowledging into the restored root."""
    copy = backed_up(production, tmp_path / "copy")
    with opened(production) as old:
        container = old.container(0)
        container.append(S, b" lost")
        if again == "recovered":
            with opened(production) as root:
                root.recover(0, force=True)
        else:
            shutil.rmtree(production)
            restored(production, copy)
        for _ in range(3):
            with pytest.raises((OutcomeUnknown, RootReplaced), match="restored or recovered"):
                container.append(S, b" never")
        with pytest.raises(RootReplaced):
            old.container(1)
    with opened(production) as root:
        assert root.container(0).info(S).length == 10
        assert root.container(0).append(S, b"!") == 10


@pytest.mark.parametrize("how", ["restored", "recovered"])
def test_versions_from_before_never_fit_again(production: Path, tmp_path: Path, how: str) -> None:
    with opened(production) as root:
        for number in range(2):
            root.container(number).put_entries(TABLE, {"kept": b"1"})
        kept = root.container(0).put_entries(TABLE, {"kept": b"2"})["kept"]
        copy = tmp_path / "copy"
        back_up(root, str(copy))
        late = [root.container(0).put_entries(TABLE, {"late": str(n).encode()})["late"] for n in range(20)]
    if how == "recovered":
        with opened(production) as root:
            root.recover(0, force=True)
        folder = production
    else:
        folder = restored(tmp_path / "new", copy)
    with opened(folder) as root:
        container = root.container(0)
        for number in range(40):
            version = container.put_entries(TABLE, {"late": str(number).encode()})["late"]
            assert version not in late
            for each in late:
                with pytest.raises(BadKeyVersion):
                    container.put_entries(TABLE, {"late": b"wrong"}, {"late": each})
        container.put_entries(TABLE, {"kept": b"3"}, {"kept": kept})


def test_a_log_that_is_lost_again_is_recovered_again(production: Path) -> None:
    """The recovery point belongs to the new generation too: before its first flush, nothing begins from nothing."""
    with opened(production) as root:
        root.container(0).flush()
    for round in range(3):
        with opened(production) as root:
            number = root.container_id(0)
            store = root.stores.log
            store.delete([i.path for f in (frames_folder, checkpoints_folder) for i in store.list(f(number))])
            with pytest.raises(LogLost):
                root.container(0)
            root.recover(0)
            assert root.container(0).read(S, 0, 10) == b"production", round
            assert not verify(root).findings


def test_a_log_that_was_given_up_is_told_and_swept(production: Path) -> None:
    with opened(production) as root:
        root.container(0).flush()
        before = root.container_id(0)
        root.recover(0, force=True)
        left = len(root.stores.log.list(frames_folder(before)))
        assert left
        (finding,) = verify(root).findings
        assert finding.object == "_system/containers/0/" and "earlier log" in finding.problem
        sweep = find_orphans(root, lambda name: None, age=0)
        assert len(sweep.earlier) >= left and not sweep.orphans
        assert not find_orphans(root, lambda name: None).earlier, "for a day"
        expire_orphans(root, sweep)
        assert not verify(root).findings
        assert root.container(0).read(S, 0, 10) == b"production"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_recovery_that_is_interrupted_can_be_repeated(production: Path, when: When, tmp_path: Path) -> None:
    """Whichever request it ended at, the container is as before, or as recovered; never empty."""
    with opened(production) as root:
        root.container(0).flush()
        root.container(0).append(S, b" logged")
    at, crashed = 1, True
    while crashed:
        folder = tmp_path / f"{at}"
        shutil.copytree(production, folder)
        crashed = _is_interrupted(folder, crash_at(at, when))
        with opened(folder) as root:
            content = root.container(0).read(S, 0, root.container(0).info(S).length)
            assert content in (b"production", b"production logged")
            root.recover(0, force=True)
            assert root.container(0).read(S, 0, 10) == b"production"
        at += 1
    assert at > 5


def _is_interrupted(folder: Path, plan: Plan) -> bool:
    """Whether a recovery was cut off by what `plan` says."""
    with opened(folder) as whole:
        store = FaultStore(whole.stores.chunks, plan)
        root = Root(Stores(store, store), whole.config, whole.settings, described=True)
        try:
            root.recover(0, force=True)
        except Crashed:
            return True
        return False


def test_a_restore_that_is_interrupted_goes_on_with_the_same_identity(production: Path, tmp_path: Path) -> None:
    copy, folder = backed_up(production, tmp_path / "copy"), tmp_path / "new"

    class Stop(Exception):
        pass

    def stop(what: str, done: int, total: int) -> None:
        if what.startswith("container 1"):
            raise Stop

    with pytest.raises(Stop):
        restore(str(copy), str(folder), progress=stop)
    restore(str(copy), str(folder))
    with opened(folder) as root:
        assert root.container(1).read(S, 0, 10) == b"production"
        assert not verify(root).findings
        for number in range(2):
            assert recovery_points.newest(root.stores.chunks, root.container_id(number)) is not None
