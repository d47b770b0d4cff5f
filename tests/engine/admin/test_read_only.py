"""A root that this process may only read (a folder that is mounted read-only): it is verified and backed up all the
same."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkstore import StorageRefused, open_store
from chunkstore.testing import Request, WrappingStore
from chunkstore.wrapping import WRITES, Result
from engine.admin.backups import back_up, restore
from engine.admin.verify import verify
from engine.root import Root
from engine.state.operations import PutEntry
from engine.state.state import NOT_EXISTS
from engine.storage.object_reads import Stores


class ReadOnlyStore(WrappingStore):
    """Refuses writes, and its clock, as a folder on a read-only filesystem does: reading it stamps a file."""

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        if request.verb in WRITES or request.verb == "clock":
            raise StorageRefused(f"{self.root}: {request.verb}: the filesystem is read-only")
        return call()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A root that was flushed."""
    url = str(tmp_path / "root")
    with Root.open(url, containers=1) as root:
        root.container(0).create_segment("s/a")
        root.container(0).append("s/a", b"data" * 100)
        root.container(0).flush()
    return url


def read_only(url: str) -> Root:
    """The root, opened by a process that may not write."""
    store = ReadOnlyStore(open_store(url))
    with Root.open(url, create=False) as root:
        return Root(Stores(store, store), root.config, root.settings, described=True)


def test_a_root_that_can_only_be_read_is_verified(folder: str) -> None:
    """The host's time tells which orphans are young, as nothing is deleted by it."""
    orphan = Path(folder, "s/a.E-1-O-0.00000000-0000-4000-8000-000000000000")
    orphan.write_bytes(b"orphan")
    with read_only(folder) as root:
        report = verify(root, deep=True)
    assert report.errors == 0
    assert report.orphans is not None and (report.orphans.number, report.orphans.recent) == (1, 1)


def test_a_flushed_root_that_can_only_be_read_is_backed_up(folder: str, tmp_path: Path) -> None:
    with read_only(folder) as root:
        [done] = back_up(root, str(tmp_path / "copy")).containers
        assert done.cycle == root.container(0).refresh().cycle.number == 1
    restore(str(tmp_path / "copy"), str(tmp_path / "new"))
    with Root.open(str(tmp_path / "new")) as root:
        assert root.container(0).read("s/a", 0, 400) == b"data" * 100


def _append(root: Root) -> None:
    root.container(0).append("s/a", b"more")


def _create(root: Root) -> None:
    root.container(0).create_segment("s/b")


def _delete(root: Root) -> None:
    root.container(0).delete("s/a")


def _put(root: Root) -> None:
    root.container(0).commit([PutEntry("t", "key", b"value", NOT_EXISTS)])


@pytest.mark.parametrize("change", [_append, _create, _delete, _put], ids=["append", "create", "delete", "entry"])
def test_a_backup_of_a_root_that_cannot_be_flushed_is_refused(
    folder: str, tmp_path: Path, change: Callable[[Root], None]
) -> None:
    """A backup holds what was acknowledged before it began (W17)."""
    with Root.open(folder) as root:
        change(root)
    with read_only(folder) as root, pytest.raises(StorageRefused, match=r"no recovery point covers.*container flush"):
        back_up(root, str(tmp_path / "copy"))


def test_a_root_that_was_never_flushed_is_not_backed_up(tmp_path: Path) -> None:
    with Root.open(str(tmp_path / "root"), containers=1):
        pass
    with read_only(str(tmp_path / "root")) as root, pytest.raises(StorageRefused, match="no recovery point covers"):
        back_up(root, str(tmp_path / "copy"))


def test_commands_work_on_a_folder_that_is_mounted_read_only(folder: str, tmp_path: Path) -> None:
    """In a mount namespace of its own."""
    mount = f"mount --bind {shlex.quote(folder)} {shlex.quote(folder)}"
    namespace = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "sh", "-ec"]
    remount = f"{mount}\n{mount.replace('--bind', '-o remount,ro,bind')}"
    try:
        tried = subprocess.run([*namespace, remount], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if tried.returncode:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.decode(errors='replace')}")
    command = f"{shlex.quote(sys.executable)} -m pravega_spark.cli --root {shlex.quote(folder)}"
    calls = ["verify --deep", "stream list", "root describe", "container describe 0", "segment describe s/a"]
    script = [remount, f"! touch {shlex.quote(folder)}/x", *(f"{command} {call}" for call in calls)]
    script.append(f"{command} backup {shlex.quote(str(tmp_path / 'copy'))}")
    done = subprocess.run([*namespace, "\n".join(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
