"""Where roots may be made: never over what is ours, never inside each other (P1)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkstore import StorageError, StorageRefused, open_store
from chunkstore.chunk_names import new_chunk_name
from chunkstore.paths import BACKUP, RESTORING, ROOT, SELF_TESTS, is_log
from engine.admin import backups
from engine.errors import OutcomeUnknown, RootNotFound
from engine.logs.frames import START
from engine.logs.log import checkpoint_path, frame_path
from engine.root import Root
from engine.root_placement import is_misspelling
from engine.settings import Settings


def objects(folder: Path) -> dict[str, bytes]:
    store = open_store(str(folder))
    return {info.path: store.read(info.path) for info in store.list("")}


def used(folder: Path, wal: Path | None = None) -> None:
    with Root.open(str(folder), wal=str(wal) if wal else None, containers=2) as root:
        root.container(1).create_segment("s/a")
        root.container(1).append("s/a", b"data")
        root.container(1).flush()


def test_a_root_whose_description_is_missing_is_not_made_anew(tmp_path: Path) -> None:
    used(tmp_path / "root")
    (tmp_path / "root" / ROOT).unlink()
    kinds: dict[str, Callable[[str], bool]] = {
        "all": lambda path: True,
        "log": is_log,
        "chunks": lambda path: path.startswith("s/"),
        "recovery points": lambda path: "/recovery-points/" in path,
    }
    for kind, kept in kinds.items():
        place = tmp_path / kind
        shutil.copytree(tmp_path / "root", place)
        for path in objects(place):
            if not kept(path):
                (place / path).unlink()
        before = objects(place)
        assert before
        for create in (False, True):
            with pytest.raises(StorageRefused, match="restore the object from") as error:
                Root.open(str(place), create=create)
            assert not isinstance(error.value, RootNotFound)
            assert any(repr(path) in str(error.value) for path in before) and ROOT in str(error.value)
        assert objects(place) == before


@pytest.mark.parametrize("path", [frame_path(0, 3), checkpoint_path(0, 3), BACKUP, RESTORING, "_system/layout/1"])
def test_what_is_ours_is_found_behind_much_that_is_not(tmp_path: Path, path: str) -> None:
    store = open_store(str(tmp_path))
    for number in range(30):
        store.put(f"A/{number}", b"")
    store.put(path, b"")
    with pytest.raises(StorageRefused, match=path):
        Root.open(str(tmp_path))


def test_beside_what_others_have_a_root_is_made_by_who_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not ours")
    with pytest.raises(StorageRefused, match=r"not empty: 'notes\.txt' is there"):
        Root.open(str(tmp_path), empty=True)
    with pytest.raises(
        RootNotFound, match=r"no _system/pravega\.json, only other data, such as 'notes\.txt'"
    ) as missing:
        Root.open(str(tmp_path), create=False)
    assert "root create" not in str(missing.value)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    used(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "not ours"


TABLES = {
    "_delta_log/00000000000000000000.json": "a Delta table",
    "metadata/00000-6e3f.metadata.json": "an Iceberg table",
    ".hoodie/hoodie.properties": "a Hudi table",
    "_spark_metadata/0": "the output of a streaming query",
    "offsets/0": "the checkpoint of a streaming query",
}


@pytest.mark.parametrize(("path", "what"), TABLES.items(), ids=TABLES.values())
@pytest.mark.parametrize("root", ["lake/table", "lake/table/part=1", "lake/table/a/b/c", "lake"])
@pytest.mark.parametrize("url", ["{}", "memory://{}"], ids=["folder", "bucket"])
def test_no_root_is_created_in_or_above_the_data_of_another_program(
    tmp_path: Path, url: str, root: str, path: str, what: str
) -> None:
    lake = open_store(url.format(tmp_path / "lake"))
    for name in (path, "part=1/part-0.parquet"):
        lake.put(f"table/{name}", b"not ours")
    before = [info.path for info in lake.list("")]
    for empty in (False, True):
        with pytest.raises(StorageRefused, match=f"{what} .*it has .*{path}.* of its own"):
            Root.open(url.format(tmp_path / root), empty=empty)
    assert [info.path for info in lake.list("")] == before


@pytest.mark.parametrize(("path", "what"), TABLES.items(), ids=TABLES.values())
@pytest.mark.parametrize("url", ["{}", "memory://{}"], ids=["folder", "bucket"])
def test_a_read_of_the_data_of_another_program_names_it_and_advises_no_root(
    tmp_path: Path, url: str, path: str, what: str
) -> None:
    lake = open_store(url.format(tmp_path / "lake"))
    for name in (path, "A/part-0.parquet"):
        lake.put(f"table/{name}", b"not ours")
    for place, relation in (("lake/table", f"is {what}"), ("lake", f"contains {what}, in 'table'")):
        with pytest.raises(RootNotFound) as missing:
            Root.open(url.format(tmp_path / place), create=False)
        assert f"holds no streams: it {relation} (it has " in missing.value.fact and path in missing.value.fact
        assert "create" not in str(missing.value) and "an empty folder or bucket of its own" in str(missing.value)


@pytest.mark.parametrize("place", ["table", "table/part"])
def test_no_log_and_no_backup_is_created_in_the_data_of_another_program(tmp_path: Path, place: str) -> None:
    open_store(str(tmp_path / "table")).put("_delta_log/0.json", b"not ours")
    with pytest.raises(StorageRefused, match=r"a Delta table .*a log is not created"):
        Root.open(str(tmp_path / "root"), wal=str(tmp_path / place))
    with (
        Root.open(str(tmp_path / "root")) as root,
        pytest.raises(StorageRefused, match=r"a Delta table .*a backup is not created"),
    ):
        backups.back_up(root, str(tmp_path / place))
    assert objects(tmp_path / "table") == {"_delta_log/0.json": b"not ours"}


@pytest.mark.parametrize("path", ["notes/_delta_log.txt", "metadata/notes.json", "offsets/readme", "part-0.parquet"])
def test_what_only_looks_like_the_data_of_another_program_is_in_nobodys_way(tmp_path: Path, path: str) -> None:
    open_store(str(tmp_path)).put(path, b"")
    Root.open(str(tmp_path)).close()


@pytest.mark.parametrize("name", ["race-00", f"names/{new_chunk_name('!con', 1, 2)}"], ids=["race", "names"])
def test_a_self_test_that_runs_or_was_killed_is_in_nobodys_way(tmp_path: Path, name: str) -> None:
    for folder in ("root", "log"):
        open_store(str(tmp_path / folder)).put(f"{SELF_TESTS}1/{name}", b"")
    Root.open(str(tmp_path / "root"), wal=str(tmp_path / "log"), empty=True).close()


@pytest.mark.parametrize("lost", ["description", "mark of the log"])
def test_no_container_begins_from_nothing_where_the_storage_is_gone(tmp_path: Path, lost: str) -> None:
    """A process that lives long opens containers late, and again after failures."""
    wal = tmp_path / "log" if lost.startswith("mark") else None
    used(tmp_path / "root", wal)
    with Root.open(str(tmp_path / "root")) as root:
        assert root.container(1).read("s/a", 0, 4) == b"data"
        ((wal or tmp_path / "root") / ROOT).unlink()
        before = objects(tmp_path)
        with pytest.raises(
            StorageRefused, match=r"no _system/pravega\.json|description _system/pravega\.json has disappeared"
        ):
            root.container(0)
        assert objects(tmp_path) == before


def test_a_new_container_begins_where_the_description_is(tmp_path: Path) -> None:
    used(tmp_path)
    with Root.open(str(tmp_path)) as root:
        assert root.container(0).head == START


def test_appends_end_where_the_folder_is_gone(tmp_path: Path) -> None:
    """A file system that is not mounted any more is an empty folder: what is appended there is lost."""
    store = open_store(str(tmp_path / "root"))
    store.put("s/a", b"1")
    shutil.rmtree(tmp_path / "root")
    (tmp_path / "root").mkdir()
    for verb in (store.put, store.put_if_absent):
        with pytest.raises(StorageError, match="mounted"):
            verb("s/b", b"x" * 24)
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize("wal", [None, "log"])
def test_whoever_has_only_read_appends_no_further_either(tmp_path: Path, wal: str | None) -> None:
    """What it knows of the place is what it has read there."""
    log = str(tmp_path / wal) if wal else None
    used(tmp_path / "root", tmp_path / wal if wal else None)
    gone = tmp_path / (wal or "root")
    with Root.open(str(tmp_path / "root"), wal=log, settings=Settings(timeout=0.1)) as root:
        assert root.container(1).read("s/a", 0, 4) == b"data"
        shutil.rmtree(gone)
        gone.mkdir()
        with pytest.raises((StorageError, OutcomeUnknown), match="mounted"):
            root.container(1).append("s/a", b"lost")
    assert list(gone.iterdir()) == []


# --- inside each other ------------------------------------------------------------------------------------------


def test_no_root_is_made_inside_another(tmp_path: Path) -> None:
    used(tmp_path / "outer")
    (tmp_path / "link").symlink_to(tmp_path / "outer")
    before = objects(tmp_path / "outer")
    for inner in ("outer/inner", "outer/a/b/c/inner", "outer/_system/inner", "link/inner"):
        with pytest.raises(StorageRefused, match="inside another"):
            Root.open(str(tmp_path / inner))
    with pytest.raises(StorageRefused, match="inside another"):
        Root.open(str(tmp_path / "new"), wal=str(tmp_path / "outer/a/inner"))
    used(tmp_path / "other", tmp_path / "log")
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(StorageRefused, match="inside another"):
        Root.open(str(tmp_path / "other"), wal=str(tmp_path / "outer/a/inner"), new_log=True)
    assert objects(tmp_path / "outer") == before and not (tmp_path / "new" / ROOT).exists()


@pytest.mark.parametrize("outer", ["", "memory://bucket-of-scopes"])
def test_who_names_a_scope_of_a_root_as_the_root_is_told_both(tmp_path: Path, outer: str) -> None:
    """Whether the scope has chunks there or not; and no root is made there."""
    outer = outer or str(tmp_path)
    with Root.open(f"{outer}/root", containers=2) as root:
        root.container(1).create_segment("full/a")
        root.container(1).append("full/a", b"data")
        root.container(1).flush()
        named = root.stores.chunks.root if outer.startswith("memory") else f"{outer}/root"
    for inner, scope in (
        ("empty", ", scope 'empty'"),
        ("full", ", scope 'full'"),
        ("full/a", ", scope 'full', stream 'a'"),
        ("full/a/b", ""),
        ("_system", ""),
    ):
        with pytest.raises(RootNotFound) as found:
            Root.open(f"{outer}/root/{inner}", create=False)
        assert f"Did you mean root '{named}'{scope}?" in found.value.fact
        with pytest.raises(StorageRefused, match="inside another") as refused:
            Root.open(f"{outer}/root/{inner}")
        assert f"Did you mean root '{named}'{scope}?" in str(refused.value)


def test_no_root_is_made_around_another(tmp_path: Path) -> None:
    Root.open(str(tmp_path / "new/a/b/inner")).close()
    with pytest.raises(StorageRefused, match="holds another root or a backup"):
        Root.open(str(tmp_path / "new"))
    assert not (tmp_path / "new" / ROOT).exists()


def test_a_log_may_lie_in_its_root_and_no_root_in_its_log(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match="use a location beside the root"):
        Root.open(str(tmp_path / "a/root"), wal=str(tmp_path / "a"))
    assert not objects(tmp_path)
    used(tmp_path / "b", tmp_path / "b/log")
    (tmp_path / "b" / ROOT).unlink()  # as if its maker had been killed before it was made
    shutil.rmtree(tmp_path / "b/log/_system/containers")
    shutil.rmtree(tmp_path / "b/_system")
    shutil.rmtree(tmp_path / "b/s")
    Root.open(str(tmp_path / "b"), wal=str(tmp_path / "b/log"), empty=True).close()
    with pytest.raises(StorageRefused, match="holds another root"):
        (tmp_path / "b" / ROOT).unlink()
        Root.open(str(tmp_path / "b"))


def test_a_log_is_not_begun_over_another_that_lost_its_mark(tmp_path: Path) -> None:
    used(tmp_path / "one", tmp_path / "log")
    (tmp_path / "log" / ROOT).unlink()
    before = objects(tmp_path / "log")
    with pytest.raises(StorageRefused, match="in use already"):
        Root.open(str(tmp_path / "two"), wal=str(tmp_path / "log"))
    with pytest.raises(StorageRefused, match="in use already"):
        Root.open(str(tmp_path / "one"), new_log=True)
    assert objects(tmp_path / "log") == before


def test_a_neighbour_whose_name_begins_alike_is_not_inside(tmp_path: Path) -> None:
    Root.open(str(tmp_path / "root")).close()
    Root.open(str(tmp_path / "root2"), wal=str(tmp_path / "root2-log")).close()
    Root.open(str(tmp_path / "roo")).close()


def test_buckets_are_looked_at_too(tmp_path: Path) -> None:
    Root.open("memory://bucket-of-places/outer").close()
    with pytest.raises(StorageRefused, match="inside another"):
        Root.open("memory://bucket-of-places/outer/a/inner")
    with pytest.raises(StorageRefused, match="holds another root"):
        Root.open("memory://bucket-of-places")


def test_a_chunk_that_nothing_describes_is_in_the_way(tmp_path: Path) -> None:
    """Such as the long-term storage of a real Pravega: a sweep would take all of it for garbage."""
    name = new_chunk_name("scope/stream/0.#epoch.0", 1, 0)
    open_store(str(tmp_path)).put(name, b"data")
    with pytest.raises(StorageRefused, match="a chunk of a stream"):
        Root.open(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "other", "slip"),
    [
        ("shpo", "shop", True),
        ("streems", "streams", True),
        ("streams-2", "streams", False),
        ("2026-01", "2026-10", False),
        ("home", "shop", False),
    ],
)
def test_what_is_a_slip_in_a_new_name(name: str, other: str, slip: bool) -> None:
    assert is_misspelling(name, other) is slip
