"""What a container makes of listings: one that failed is none (P2), and foreign names are passed over and told (P1)."""

from __future__ import annotations

import json
import os
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from chunkstore import StorageError, open_store
from chunkstore.paths import ROOT, is_log
from engine.admin.inspection import describe_container
from engine.admin.orphans import find_orphans
from engine.admin.verify import Severity, verify
from engine.containers.container import Container
from engine.logs.truncation import truncate_log
from engine.root import Root
from engine.settings import Settings
from engine.storage.object_reads import Stores

SETTINGS = Settings(grace=0.5, maintenance=False, threaded=False)


class Shaky(MemoryFileSystem):
    """A filesystem without an adapter of its own, whose listings fail when a test asks for it."""

    protocol = "shaky"
    one = threading.Lock()
    find = fsspec.AbstractFileSystem.find  # as most have it: what cannot be listed is left out
    failures: ClassVar[list[Exception | None]] = []

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        return super().ls(path, detail=detail, **kwargs)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.one:
            super().pipe_file(path, value, mode=mode, **kwargs)


fsspec.register_implementation(Shaky.protocol, Shaky, clobber=True)


@pytest.mark.parametrize("failure", [ConnectionResetError, TimeoutError, PermissionError, OSError, FileNotFoundError])
def test_a_container_whose_listing_failed_is_not_opened_empty(failure: type[Exception]) -> None:
    """Its log begins at a checkpoint: to take the listing for empty is to begin another log, and to lose all."""
    store = open_store(f"shaky://{uuid.uuid4()}")
    stores = Stores(store, store)
    with Container(stores, 0, SETTINGS) as container:
        container.create_segment("s/a")
        container.append("s/a", b"acknowledged")
        container.truncate("s/a", 12)
        container.checkpoint()
        assert truncate_log(store, 0, container.refresh, -1000.0, store.clock(), 10**9), (
            "frames outlive the truncation point"
        )
    for calls_before in range(6):
        Shaky.failures[:] = [*[None] * calls_before, failure()]
        try:
            with Container(stores, 0, SETTINGS) as container:
                assert container.info("s/a").length == 12
        except StorageError:
            continue  # not known is not empty
        finally:
            Shaky.failures.clear()
    with Container(stores, 0, SETTINGS) as container:
        container.append("s/a", b".")
        assert container.info("s/a").length == 13


# -- what is not ours


def foreign_files(root: Path) -> dict[str, bytes]:
    """Put into a root what is not ours: beside, before and behind what is. Returns their paths, and what is in them."""
    container = "_system/containers/0"
    generation = json.loads((root / ROOT).read_bytes())["id"]
    folders = [f"{kind}/{generation}" for kind in ("wal", "checkpoints", "recovery-points")]
    number, later = "0" * 19 + "1", "9" * 19
    names = [
        f"{container}/{folder}/{name}"
        for folder in folders
        for name in (
            "zzz",
            ".DS_Store",
            "!before all",
            later,
            f"{number} (conflicted copy)",
            f"{number}.tmp",
            f"{later}1/deeper",
            "folder/file",
            "٠" * 20,
            "-0000000000000000001",
        )
    ]
    names += ["_system/README", "_system/containers/x", f"{container}/E-1-S-1.copy", f"{container}/witness~"]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"precious")
    for folder in [*folders, ""]:
        place = os.fsencode(root / container / folder)
        Path(os.fsdecode(place + b"/not \xff utf-8")).write_bytes(b"precious")
        Path(os.fsdecode(place + b"/loop")).symlink_to(root)
        names += [f"{container}/{folder}/not \udcff utf-8".replace("//", "/")]
    return {name: (root / name).read_bytes() for name in names}


def test_foreign_files_are_passed_over_told_and_kept(tmp_path: Path) -> None:
    settings = replace(SETTINGS, grace=0.001, garbage_delay=0.0)
    with Root.open(
        str(tmp_path), settings=settings, containers=1, grace_seconds=0.001, garbage_delay_seconds=0.0
    ) as root:
        container = root.container(0)
        container.create_segment("s/a")
        container.append("s/a", b"before")
        container.flush()
        container.checkpoint()
    foreign = foreign_files(tmp_path)
    for number in range(3):
        with Root.open(str(tmp_path), settings=settings) as root:
            container = root.container(0)
            container.append("s/a", b"%d" % number)
            container.flush()
            container.checkpoint()
            container.truncate_log()
            container.collect_garbage()
            assert container.read("s/a", 0, 7 + number) == b"before012"[: 7 + number]
            assert describe_container(container).newest_checkpoint >= 0
            assert not find_orphans(root, lambda segment: 0, age=0.0).orphans
    with Root.open(str(tmp_path), settings=settings) as root:
        report = verify(root)
        told = {finding.object for finding in report.findings if finding.severity is Severity.FOREIGN}
        assert not report.errors + report.warnings, list(report.findings)
        assert {name.encode(errors="backslashreplace").decode() for name in foreign} <= told
        assert sum(name.endswith("/loop") for name in told) == 4
        assert len(told) == len(foreign) + 4
    assert {name: (tmp_path / name).read_bytes() for name in foreign} == foreign


def test_a_container_is_recovered_beside_foreign_files(tmp_path: Path) -> None:
    with Root.open(str(tmp_path), containers=1, settings=SETTINGS) as root:
        root.container(0).create_segment("s/a")
        root.container(0).append("s/a", b"x")
        root.container(0).flush()
        store = root.stores.log
        store.delete([info.path for info in store.list("") if is_log(info.path)])
    foreign_files(tmp_path)
    with Root.open(str(tmp_path), settings=SETTINGS) as root:
        root.recover(0)
        assert root.container(0).read("s/a", 0, 1) == b"x"
