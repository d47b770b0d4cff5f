"""What clean-ups let go of, beside other roots, backups, copies of sync tools and files of users (P1, G1)."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from chunkstore import open_store
from chunkstore.paths import BACKUP
from engine.admin.orphans import Sweep, expire_orphans, find_orphans
from engine.admin.verify import Severity, verify
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.jobs.maintain import maintain
from pravega_spark.streams.maintenance.chunk_ownership import ChunkOwnership
from tests.cli.test_cli import run
from tests.clocks import moved_on

CHUNK = f"0.#epoch.0.E-1-O-0.{uuid.uuid4()}"


def made(url: Path) -> None:
    Root.open(str(url), containers=1, garbage_delay_seconds=0).close()
    with StreamManager(str(url)) as manager:
        manager.create_scope("sc")
        for stream in ("one", "gone"):
            manager.create_stream("sc", stream)
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("kept")
        manager.seal_stream("sc", "gone")
        manager.delete_stream("sc", "gone")
        manager.root.container(0).flush()


def put(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"data")


def files(folder: Path) -> dict[str, bytes]:
    store = open_store(str(folder))
    return {info.path: store.read(info.path) for info in store.list("")}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    made(tmp_path / "root")
    with Root.open(str(tmp_path / "root")) as root:
        yield root


def swept(root: Root) -> Sweep:
    """A clean-up that leaves nothing alone for its age, and all that comes of it."""
    moved_on(root.stores.chunks)
    sweep = find_orphans(root, ChunkOwnership(root), 0)
    expire_orphans(root, sweep, 1)
    for _ in range(3):
        root.container(0).flush()
        moved_on(root.stores.chunks)
        root.container(0).collect_garbage()
    return sweep


def test_only_chunks_of_streams_that_are_known_are_let_go(root: Root, tmp_path: Path) -> None:
    ours = [f"sc/one/{CHUNK}", f"sc/gone/{CHUNK}", f"_system/containers/0/E-1-S-1.{uuid.uuid4()}"]
    strange = [
        CHUNK,  # a user's own file
        f"sc/{CHUNK}",
        f"sc/one/notes/{CHUNK}",
        f"sc/other/{CHUNK}",  # no such stream
        f"sc (copy)/one/{CHUNK}",  # what a sync tool made
        f"sc/one/{CHUNK} (conflicted copy)",
        f"backup/sc/one/{CHUNK}",
        f"_system/sc/one/{CHUNK}",
    ]
    put(tmp_path / "root", *ours, *strange)
    sweep = swept(root)
    assert {orphan.path for orphan in sweep.orphans} == set(ours) and sweep.unknown == len(strange)
    left = files(tmp_path / "root")
    assert not set(ours) & set(left) and set(strange) <= set(left)


@pytest.mark.parametrize("kind", ["root", "backup"])
def test_a_sweep_does_not_enter_another_root_or_a_backup(root: Root, tmp_path: Path, kind: str) -> None:
    """However it came there: it cannot be made there, but it can be moved there, or be older than the rule."""
    other = tmp_path / "other"
    made(other)
    if kind == "backup":
        run("backup", str(tmp_path / "copy"), root=other)
        other = tmp_path / "copy"
        assert (other / BACKUP).exists()
    # Its chunks look as if they were of the stream sc/one of the outer root, whose folder it lies in.
    for inside in ("Inner", "sc/one/0"):
        shutil.copytree(other, tmp_path / "root" / inside)
        put(tmp_path / "root" / inside, CHUNK)
    before = {path: data for path, data in files(tmp_path / "root").items() if path.startswith(("Inner", "sc/one/0/"))}
    (tmp_path / "root" / "sc/one" / CHUNK).write_bytes(b"an orphan")
    sweep = swept(root)
    assert [orphan.path for orphan in sweep.orphans] == [f"sc/one/{CHUNK}"]
    assert sweep.nested == ("Inner/", "sc/one/0/")
    assert before.items() <= files(tmp_path / "root").items()
    done = {outcome.step: outcome for outcome in maintain(root, orphan_age=0)}
    assert "left alone: Inner/, sc/one/0/" in done["garbage"].detail
    assert before.items() <= files(tmp_path / "root").items()
    report = verify(root)
    told = {finding.object: finding for finding in report.findings}
    assert set(told) == {"Inner/", "sc/one/0/"} and {one.severity for one in told.values()} == {Severity.WARNING}
    assert report.orphans is not None and report.orphans.number == 0


def test_a_chunk_below_a_stream_that_a_marker_claims_is_not_ours(root: Root, tmp_path: Path) -> None:
    """Even where the name leaves no doubt: a folder that is a root by itself begins at its marker."""
    put(tmp_path / "root", f"sc/one/{CHUNK}")
    shutil.copytree(tmp_path / "root/_system", tmp_path / "root/sc/_system")
    sweep = swept(root)
    assert sweep.orphans == () and sweep.nested == ("sc/",) and sweep.unknown > 0
    assert f"sc/one/{CHUNK}" in files(tmp_path / "root")


def test_a_log_in_its_root_is_not_told(tmp_path: Path) -> None:
    with Root.open(str(tmp_path / "root"), wal=str(tmp_path / "root/log"), containers=1) as root:
        root.container(0).create_segment("s/a")
        root.container(0).flush()
        assert swept(root).nested == () and list(verify(root).findings) == []


def test_backups_are_made_and_restored_outside_of_roots_and_backups(tmp_path: Path) -> None:
    one, two, copy = (tmp_path / name for name in ("one", "two", "copy"))
    made(one)
    made(two)
    run("backup", str(copy), root=one)
    before = {place: files(place) for place in (one, two, copy)}
    for place in (one / "copy", one / "sc/one/copy", two / "copy", copy / "copy"):
        assert "inside another" in run("backup", str(place), root=one, code=1).stderr
        assert "inside another" in run("restore", str(copy), root=place, code=1).stderr
    assert "neither empty" in run("backup", str(tmp_path), root=one, code=1).stderr
    assert "not empty" in run("restore", str(copy), root=tmp_path, code=1).stderr
    assert {place: files(place) for place in (two, copy)} == {place: before[place] for place in (two, copy)}
    assert not (one / "copy").exists() and not (one / "sc/one/copy").exists()
