"""The disk whose power can fail, and what the adapter for folders makes durable on it."""

from itertools import count
from pathlib import Path

import pytest

from chunkstore import ObjectNotFound, open_store
from chunkstore.port import TOKEN
from chunkstore.segments.chunk_list import WrittenChunk
from chunkstore.segments.copying import copy_chunks
from tests.support.power import Disk, Killed

BODY = bytes(range(TOKEN)) + b"content"


def test_only_what_was_synced_is_left(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path / "before"))
    with disk.mounted():
        store = open_store(disk.folder)
        store.put("synced/one", BODY)
        store.put("synced/two", BODY)
        store.delete(["synced/two"])
        disk.mkdir(f"{disk.folder}/folder")
        disk.link(f"{disk.folder}/synced/one", f"{disk.folder}/synced/linked")
        (tmp_path / "before" / "synced" / "written").write_bytes(BODY)
    left = disk.after_power_failure(tmp_path / "after")
    assert [info.path for info in open_store(left.folder).list("")] == ["synced/one"]


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
def test_what_was_seen_and_synced_survives(tmp_path: Path, verb: str) -> None:
    """Whoever made it was killed at each call, folders on the way included."""
    seen = 0
    for point in count(1):
        disk = Disk(str(tmp_path / str(point)))
        with disk.mounted():
            disk.stop_at = point
            try:
                getattr(open_store(disk.folder), verb)("a/b/object", BODY)
                killed = False
            except Killed:
                killed = True
            disk.revive()
            other = open_store(disk.folder)
            visible = bool(other.list("a/b/"))
            other.sync("a/b/")
        left = open_store(disk.after_power_failure(tmp_path / f"{point} after").folder)
        if visible:
            assert left.read("a/b/object") == BODY
            seen += 1
        else:
            with pytest.raises(ObjectNotFound):
                left.read("a/b/object")
        if not killed:
            break
    assert seen > 1


def test_what_is_put_into_folders_of_others_survives(tmp_path: Path) -> None:
    """Whoever made the folders was killed at each call."""
    for point in count(1):
        disk = Disk(str(tmp_path / str(point)))
        with disk.mounted():
            disk.stop_at = point
            try:
                open_store(disk.folder).put("a/b/one", BODY)
                killed = False
            except Killed:
                killed = True
            disk.revive()
            open_store(disk.folder).put("a/b/two", BODY)
        left = open_store(disk.after_power_failure(tmp_path / f"{point} after").folder)
        assert left.read("a/b/two") == BODY
        if not killed:
            break


def test_a_copy_that_was_killed_is_durable_when_it_is_repeated(tmp_path: Path) -> None:
    """What was copied is given up then, so nothing else has its bytes."""
    for point in count(1):
        disk = Disk(str(tmp_path / str(point)))
        chunks = open_store(disk.folder)
        sources = [WrittenChunk("s/a", 3), WrittenChunk("s/b", 3)]
        killed = False
        with disk.mounted():
            for source in sources:
                chunks.put(source.name, b"abc")
            disk.stop_at = disk.calls + point
            try:
                copy_chunks(open_store(disk.folder), "s", sources, "s/copy")
            except Killed:
                killed = True
            disk.revive()
            copy_chunks(open_store(disk.folder), "s", sources, "s/copy")
        left = open_store(disk.after_power_failure(tmp_path / f"{point} after").folder)
        assert left.read("s/copy") == b"abcabc"
        if not killed:
            break
    assert point > 3


def test_what_is_linked_survives_though_its_maker_never_synced_it(tmp_path: Path) -> None:
    """Somebody else's file, as an import finds it, whose bytes and name may be nowhere but in memory."""
    disk = Disk(str(tmp_path / "before"))
    with disk.mounted():
        source, target = open_store(f"{disk.folder}/theirs"), open_store(f"{disk.folder}/ours")
        source.put("made", BODY)
        (tmp_path / "before" / "theirs" / "written").write_bytes(BODY)
        for name in ("made", "written"):
            target.link(f"folder/{name}", source, name)
    left = open_store(disk.after_power_failure(tmp_path / "after").folder)
    for name in ("made", "written"):
        assert left.read(f"ours/folder/{name}") == BODY
