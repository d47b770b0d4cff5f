"""gc, defrag, backup, restore and header on the command line: what they change, what they leave, what they refuse."""

from __future__ import annotations

import itertools
import random
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from chunkstore import Store, open_store
from chunkstore.compaction import CompactionTask, CopyTasks, copy_task
from chunkstore.errors import ObjectNotFound
from chunkstore.paths import BACKUP, RESTORING, ROOT, is_log
from chunkstore.pravega.rolling import Header, HeaderChunk, InvalidHeader, format_header, parse_header
from chunkstore.segments.chunk_list import DELETED
from chunkstore.testing import Crashed, FaultStore, crash_at
from engine.admin import backups, rolling_segments
from engine.admin.rolling_segments import creation_time_of
from engine.admin.verify import verify
from engine.containers.container import Container
from engine.errors import DataCorruption
from engine.logs.age_evidence import EVERYTHING
from engine.root import Root
from engine.state.tables import STORAGE
from engine.storage import recovery_points
from engine.storage.object_reads import ObjectRange
from engine.writer.compaction import compact_segments
from engine.writer.container_gc import collect_garbage
from pravega_spark import StreamManager
from pravega_spark.streams.maintenance.verification import check_events
from pravega_spark.streams.pravega_lts import rolling_import
from tests.cli.test_cli import SEGMENT, document, number_of, run
from tests.clocks import set_ahead
from tests.support import limits

S = "sc/one"
CHUNK = f"{S}/0.E-1-O-0.{uuid.uuid4()}"


def wrote(url: str, events: list[str], flush: bool = True) -> None:
    with StreamManager(url) as manager:
        with manager.create_writer("sc", "one") as writer:
            writer.write_events(events)
        if flush:
            manager.root.container(number_of(url)).flush()


def made(url: str, **agreed: Any) -> str:
    """A root with stream sc/one."""
    Root.open(url, containers=2, **agreed).close()
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
    return url


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A root with a stream that lies in several chunks, and in the log."""
    url = made(str(tmp_path / "root"))
    for number in range(4):
        wrote(url, [f"event {number}"] * 10)
    wrote(url, ["only in the log"], flush=False)
    return url


def content(url: str) -> list[bytes]:
    with StreamManager(url) as manager:
        return [event.data for event in manager.read_events("sc", "one")]


def assert_healthy(url: str) -> None:
    with Root.open(url, create=False) as root:
        report = verify(root, deep=True, content_checks=[check_events])
    assert list(report.findings) == []


def objects(url: str) -> set[str]:
    return {info.path for info in open_store(url).list("") if not is_log(info.path)}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage's clock is two days ahead, so that everything is old."""
    set_ahead(monkeypatch, 2 * 86_400)


# --- gc -----------------------------------------------------------------------------------------------------------


def test_orphans_are_let_go_and_deleted_later(tmp_path: Path, later: None) -> None:
    url = made(str(tmp_path / "root"), garbage_delay_seconds=0)
    for number in range(4):
        wrote(url, [f"event {number}"] * 10)
    before, kept = content(url), objects(url)
    Path(url, CHUNK).write_bytes(b"orphan")
    Path(url, "notes").write_bytes(b"mine")
    dry = document("gc", "--dry-run", root=url)["gc"]
    assert dry["dry_run"] and dry["names"] == [CHUNK] and (dry["orphans"], dry["bytes"], dry["deleted"]) == (1, 6, 0)
    text = run("gc", "--dry-run", root=url).stdout
    assert f"1 unreferenced object (6 bytes) would be marked as garbage:\n  {CHUNK}\n" in text
    asked = run("gc", root=url, code=1)
    assert CHUNK in asked.stdout and "would be deleted" in asked.stdout and "give --yes" in asked.stderr
    assert objects(url) == kept | {CHUNK, "notes"}
    assert "marked as garbage; they are deleted after 0 s or later" in run("gc", "--yes", root=url).stdout
    found = document("gc", "--yes", root=url)["gc"]
    assert (found["orphans"], found["unknown_names"]) == (0, ["notes"])
    assert CHUNK not in objects(url) and "notes" in objects(url)
    assert content(url) == before
    assert_healthy(url)


def test_the_young_and_the_many_stay(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [Path(folder, f"{S}/0.E-1-O-{number}.{uuid.uuid4()}") for number in range(25)]
    for path in paths:
        path.write_bytes(b"")
    young = document("gc", "--yes", root=folder)["gc"]
    assert (young["orphans"], young["recent"]) == (0, 25)
    set_ahead(monkeypatch, 1000)
    assert document("gc", "--dry-run", "--older-than", "2000", root=folder)["gc"]["orphans"] == 0
    old = ["gc", "--older-than", "500"]
    text = run(*old, "--dry-run", root=folder, code=1).stdout
    assert "and 5 more; --json lists all" in text
    for consent in ([], ["--yes"], ["--dry-run"]):
        stopped = run(*old, *consent, root=folder, code=1)
        assert "at most 20% are plausible" in stopped.stderr and "verify" in stopped.stderr
    assert document(*old, "--dry-run", root=folder, code=1)["gc"]["orphans"] == 25
    assert document(*old, "--yes", "--plausible-share", "1", root=folder)["gc"]["waiting"] >= 25
    assert all(path.exists() for path in paths)


def test_nothing_to_collect_needs_no_consent(tmp_path: Path) -> None:
    text = run("gc", root=made(str(tmp_path / "root"))).stdout
    assert "orphans" in text and "deleted after" not in text


# --- defrag -------------------------------------------------------------------------------------------------------


def chunks_of(url: str, name: str = SEGMENT) -> list[dict[str, Any]]:
    parts = document("segment", "chunks", name, root=url)["parts"]
    return [part for part in parts if part["place"] == "chunk"]


def test_small_chunks_become_one(folder: str) -> None:
    before, old = content(folder), chunks_of(folder)
    assert len(old) == 4
    text = run("defrag", "sc/one/0.#epoch.0.", root=folder).stdout
    assert "merged 4 chunks into 1" in text  # all but the last, which may be growing
    new = chunks_of(folder)
    assert [part["length"] for part in new] == [sum(part["length"] for part in old), 23]
    assert content(folder) == before
    assert_healthy(folder)
    replaced = {part["object"] for part in old}
    assert replaced <= objects(folder)  # for readers that are under way, and for the recovery point
    with Root.open(folder) as root:
        container = root.container(number_of(folder))
        assert sum(name.startswith(DELETED) for name in container.state.garbage) == 1  # all of them together
        assert all(container.entries(STORAGE, replaced).values())
    wrote(folder, ["more"])
    assert document("defrag", "sc/one/0.#epoch.0.99", root=folder) == {"defrag": []}
    assert content(folder) == [*before, b"more"]
    Path(folder, new[0]["object"]).write_bytes(bytes(new[0]["length"]))
    with pytest.raises(DataCorruption, match="do not match their checksums"):  # what was merged is checked too
        content(folder)


def test_the_target_limits_a_chunk(folder: str) -> None:
    size = chunks_of(folder)[0]["length"]
    found = document("defrag", SEGMENT + ".", "--target", str(2 * size), root=folder)["defrag"]
    assert [(row["merges"], row["chunks"], row["bytes"]) for row in found] == [(2, 4, 4 * size)]
    assert [part["length"] for part in chunks_of(folder)] == [2 * size, 2 * size, 23]


def test_damage_is_not_merged_away(folder: str) -> None:
    path = Path(folder, chunks_of(folder)[1]["object"])
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\0")
    assert path.name in run("defrag", root=folder, code=1).stderr
    path.write_bytes(data)
    assert len(chunks_of(folder)) == 5
    assert_healthy(folder)


def test_a_root_that_keeps_no_garbage_is_not_merged(tmp_path: Path) -> None:
    url = made(str(tmp_path / "root"), garbage_delay_seconds=0)
    assert "garbage delay is 0" in run("defrag", root=url, code=1).stderr


@pytest.fixture
def merging(folder: str) -> Iterator[tuple[Root, Container]]:
    with Root.open(folder) as root:
        container = root.container(number_of(folder))
        container.flush()
        yield root, container


def merged(container: Container, copies: CopyTasks | None = None) -> list[tuple[int, int]]:
    done = compact_segments(container.flush_context, SEGMENT + ".", 1 << 20, copies)
    return [(row.merges, row.refused) for row in done]


def test_a_merge_that_takes_too_long_is_not_made(
    merging: tuple[Root, Container], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, container = merging
    before = container.read(SEGMENT, 0, 500)

    def slowly(merges: Sequence[CompactionTask]) -> Iterator[bytes | None]:
        for merge in merges:
            set_ahead(monkeypatch, container.settings.garbage_delay / 2 + 1)
            yield copy_task(merge, container.stores.chunks)

    assert merged(container, slowly) == [(0, 1)]
    monkeypatch.undo()
    assert container.read(SEGMENT, 0, 500) == before
    root.close()
    assert_healthy(root.stores.chunks.root)


@pytest.mark.parametrize("when", ["copied", "planned"])
@pytest.mark.parametrize("what", ["truncated", "merged", "deleted", "collected"])
def test_others_change_the_chunks_meanwhile(merging: tuple[Root, Container], when: str, what: str) -> None:
    root, container = merging
    before = container.read(SEGMENT, 0, container.info(SEGMENT).length)

    def change() -> None:
        with Root.open(root.stores.chunks.root) as other:
            another = other.container(container.number)
            if what == "truncated":
                another.truncate(SEGMENT, 300)
                another.flush()
            elif what == "merged":
                assert merged(another) == [(1, 0)]
            else:
                another.delete(SEGMENT)
                another.flush()
                if what == "collected":
                    another.flush()
                    collect_garbage(another.flush_context, time.time() + 1000, 0.0, EVERYTHING.sequence)

    def copies(merges: Sequence[CompactionTask]) -> Iterator[bytes | None]:
        for merge in merges:
            if when == "planned":
                change()
            copied = copy_task(merge, root.stores.chunks)
            if when == "copied":
                change()
            yield copied

    found = merged(container, copies)
    assert found == [(0, 1)] or what == "truncated"  # of which the swap need not know
    container.refresh()
    if what in ("truncated", "merged"):
        start = container.info(SEGMENT).start_offset
        assert container.read(SEGMENT, start, len(before)) == before[start:]
    root.close()
    with Root.open(root.stores.chunks.root) as again:
        assert list(verify(again, deep=True).findings) == []


# --- backup and restore -------------------------------------------------------------------------------------------


def test_a_root_comes_back(folder: str, tmp_path: Path) -> None:
    copy, new = str(tmp_path / "copy"), str(tmp_path / "new")
    done = document("backup", copy, root=folder)
    assert done["place"].endswith("/copy") and [row["number"] for row in done["backup"]] == [0, 1]
    assert sum(row["copied"] for row in done["backup"]) > 5
    assert not Path(copy, ROOT).exists()
    assert "holds no streams" in run("verify", root=copy, code=1).stderr
    again = document("backup", copy, root=folder)["backup"]
    assert [row["cycle"] for row in again] == [row["cycle"] + 1 for row in done["backup"]]
    kept = content(folder)
    wrote(folder, ["too late"])
    Path(folder).rename(tmp_path / "lost")
    restored = document("restore", copy, root=new)
    assert [row["cycle"] for row in restored["restored"]] == [row["cycle"] for row in again]
    assert content(new) == kept and not Path(new, RESTORING).exists()
    assert_healthy(new)
    wrote(new, ["and on it goes"])
    assert content(new) == [*kept, b"and on it goes"]
    assert document("verify", root=new)["verify"]["orphans"]["number"] == 0
    assert str(len(kept) + 1) in run("stream", "list", root=new).stdout


def test_a_backup_grows_by_what_is_new(folder: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    first = document("backup", copy, root=folder)["backup"]
    wrote(folder, ["x" * 100_000])
    second = document("backup", copy, root=folder)["backup"]
    number = number_of(folder)
    assert 100_000 < second[number]["bytes"] < 200_000 and second[1 - number]["copied"] == 0
    assert second[number]["objects"] > second[number]["copied"] > 0 < first[number]["copied"]
    assert len(list(Path(copy, "_system/containers", str(number), "recovery-points").glob("*/*"))) == 1
    run("restore", copy, root=tmp_path / "new")
    assert content(str(tmp_path / "new")) == content(folder)


def test_the_log_of_a_restored_root_is_in_it(tmp_path: Path) -> None:
    url, copy, new = (str(tmp_path / name) for name in ("root", "copy", "new"))
    made(url, wal=str(tmp_path / "wal"))
    wrote(url, ["kept"])
    run("backup", copy, root=url)
    (tmp_path / "wal").rename(tmp_path / "lost")
    assert "omit --wal" in run("--wal", str(tmp_path / "w"), "restore", copy, root=new, code=2).stderr
    run("restore", copy, root=new)
    assert content(new) == [b"kept"] and any(is_log(info.path) for info in open_store(new).list(""))


def test_places_that_a_backup_is_not_made_in(folder: str, tmp_path: Path) -> None:
    other = made(str(tmp_path / "other"))
    assert "neither empty nor a backup" in run("backup", other, root=folder, code=1).stderr
    assert "neither empty nor a backup" in run("backup", folder, root=folder, code=1).stderr
    copy = str(tmp_path / "copy")
    run("backup", copy, root=other)
    assert "backup of another root" in run("backup", copy, root=folder, code=1).stderr
    assert "is a root already" in run("restore", copy, root=other, code=1).stderr
    assert "is not a backup" in run("restore", other, root=tmp_path / "new", code=1).stderr
    assert not (tmp_path / "new").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    assert "not empty" in run("restore", copy, root=tmp_path / "full", code=1).stderr
    Path(copy, BACKUP).write_text("{}")
    for arguments, root in ((["backup", copy], other), (["restore", copy], str(tmp_path / "new"))):
        assert "backup.json does not describe a root of streams" in run(*arguments, root=root, code=1).stderr


def test_damage_is_not_copied(folder: str, tmp_path: Path) -> None:
    path = Path(folder, chunks_of(folder)[1]["object"])
    data = path.read_bytes()
    for bad in (data[:-1] + b"\0", data[:-1]):
        path.write_bytes(bad)
        assert path.name in run("backup", str(tmp_path / "copy"), root=folder, code=1).stderr
    path.unlink()
    assert (
        "though the newest recovery point names it" in run("backup", str(tmp_path / "copy"), root=folder, code=1).stderr
    )
    path.write_bytes(data)
    run("backup", str(tmp_path / "copy"), root=folder)
    Path(tmp_path, "copy", path.relative_to(folder)).write_bytes(data[:-1] + b"\0")
    assert path.name in run("restore", str(tmp_path / "copy"), root=tmp_path / "new", code=1).stderr
    assert "holds no streams" in run("verify", root=tmp_path / "new", code=1).stderr


def test_an_object_without_checksums_is_copied_whole(tmp_path: Path) -> None:
    source, target = open_store(str(tmp_path / "one")), open_store(str(tmp_path / "other"))
    source.put("s/x", b"1234")
    assert backups.copy_object(source, target, [ObjectRange(False, "s/x", 0, 4, b"", 0, 4)]) == 4
    with pytest.raises(DataCorruption, match="s/x does not match"):
        backups.copy_object(source, target, [ObjectRange(False, "s/x", 0, 5, b"", 0, 5)])


def test_a_copy_that_is_overtaken_begins_again(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Root.open(folder) as root:
        number = root.container_id(number_of(folder))
        root.container(number).flush()
        source, target = root.stores.chunks, open_store(str(tmp_path / "copy"))
        copy, overtaken = backups.copy_object, iter([True])

        def overtake(source: Store, target: Store, pieces: Any) -> int | None:
            if next(overtaken, False):
                root.container(number).flush()
                raise ObjectNotFound("collected meanwhile")
            return copy(source, target, pieces)

        monkeypatch.setattr(backups, "copy_object", overtake)
        done = backups.copy_container(source, target, number)
        newest = recovery_points.newest(source, number)
        assert newest is not None and done.cycle == newest.number
        overtaken = itertools.repeat(True)
        with pytest.raises(ObjectNotFound, match="meanwhile"):
            backups.copy_container(source, target, number)
        with pytest.raises(DataCorruption, match="container 9 has no recovery point"):
            backups.copy_container(source, target, 9)


def test_restoring_may_be_interrupted_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, copy = made(str(tmp_path / "root")), str(tmp_path / "copy")
    wrote(url, ["kept"])
    run("backup", copy, root=url)
    monkeypatch.setattr(backups, "PARALLEL", 1)
    monkeypatch.setattr(backups, "self_test", lambda store: None)
    real, verbs = open_store, ("put", "put_if_absent", "delete")
    stores: list[FaultStore] = []

    def plan_at(number: int, when: Any) -> Callable[..., Store]:
        def opened(place: str, options: Any) -> Store:
            store = real(place, options)
            if not place.endswith("/copy"):
                store = FaultStore(store, crash_at(number, when), verbs)
                stores.append(store)
            return store

        return opened

    def restored(new: Path, number: int, when: Any = "after") -> None:
        with monkeypatch.context() as patch:
            patch.setattr(backups, "open_store", plan_at(number, when))
            run("restore", copy, root=new)

    restored(tmp_path / "whole", 0)
    assert stores[-1].passed > 8
    for number, when in itertools.product(range(1, stores[-1].passed), ("before", "after")):
        new = tmp_path / f"{number} {when}"
        with pytest.raises((Crashed, AssertionError)):
            restored(new, number, when)
        assert stores[-1].crashed
        if not (new / ROOT).exists():
            assert run("--json", "restore", copy, root=new).stdout
        assert content(str(new)) == [b"kept"]


# --- legacy headers -----------------------------------------------------------------------------------------------


def framed(*texts: bytes) -> bytes:
    return b"".join(struct.pack(">ii", 0, len(text)) + text for text in texts)


def legacy(url: str, pieces: list[bytes], name: str = "old/seg/0") -> None:
    """A segment as old code leaves it."""
    chunks, at, store = [], 0, open_store(url)
    for piece in pieces:
        chunks.append(HeaderChunk(at, f"{name}$offset.{at}"))
        store.put(chunks[-1].name, piece)
        at += len(piece)
    store.put(f"{name}$header", format_header(Header(1000, tuple(chunks))))


def cut(data: bytes, seed: int) -> list[bytes]:
    dice = random.Random(seed)
    places = sorted({0, len(data), *(dice.randrange(len(data)) for _ in range(4))})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def test_a_header_tells_what_old_code_needs(folder: str) -> None:
    assert "23 bytes are only in the log" in run("header", "export", SEGMENT, root=folder, code=1).stderr
    run("container", "flush", root=folder)
    done = document("header", "export", SEGMENT, root=folder)["header"]
    assert done["object"] == f"{SEGMENT}$header" and done["chunks"] == 5 and not done["sealed"]
    header = parse_header(Path(folder, done["object"]).read_bytes())
    assert header is not None
    ends = [*(chunk.start for chunk in header.chunks[1:]), None]
    data = b""
    for chunk, end in zip(header.chunks, ends, strict=True):
        found = Path(folder, chunk.name).read_bytes()
        data += found if end is None else found[: end - chunk.start]
    with Root.open(folder) as root:
        assert data == root.container(number_of(folder)).read(SEGMENT, 0, done["length"])
    last = Path(folder, header.chunks[-1].name)
    last.write_bytes(last.read_bytes() + b"beyond what counts")
    again = document("header", "export", SEGMENT, root=folder)["header"]
    header = parse_header(Path(folder, done["object"]).read_bytes())
    assert header is not None and again["chunks"] == 6
    assert header.chunks[-1].start == done["length"] and Path(folder, header.chunks[-1].name).stat().st_size == 0
    assert_healthy(folder)
    run("stream", "create", "sc/empty", root=folder)
    assert "is empty" in run("header", "export", "sc/empty/0.#epoch.0", root=folder, code=1).stderr


def test_what_is_exported_belongs_to_the_root_already(folder: str) -> None:
    run("container", "flush", root=folder)
    run("header", "export", SEGMENT, root=folder)
    assert "already belongs to container" in run("header", "import", SEGMENT, "sc/new", root=folder, code=1).stderr
    assert "sc/new" not in run("stream", "list", root=folder).stdout


@pytest.mark.parametrize("seed", range(6))
def test_old_segments_become_streams(folder: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.import_step(monkeypatch, 7 if seed % 2 else 1 << 20)
    texts = [random.Random(n).randbytes(n % 40) for n in range(60)]
    legacy(folder, cut(framed(*texts), seed))
    before = {path for path in objects(folder) if "$offset" in path}
    done = document("header", "import", "old/seg/0", "sc/new", "--yes", root=folder)["imported"]
    assert done["events"] == 60 and done["bytes"] == len(framed(*texts)) and done["chunks"] == len(before)
    with StreamManager(folder) as manager:
        assert [event.data for event in manager.read_events("sc", "new")] == texts
        assert manager.stream_info("sc", "new").events == 60
        for number in range(2):
            manager.root.container(number).flush()
    assert {path for path in objects(folder) if "$" in path} == before  # the header has gone, and no byte was moved
    assert_healthy(folder)
    assert "does not exist" in run("header", "import", "old/seg/0", "sc/again", root=folder, code=1).stderr
    run("stream", "delete", "sc/new", "--seal", "--yes", root=folder)
    assert_healthy(folder)


@pytest.mark.parametrize("rewritten", [False, True], ids=["header as it was", "header without what is gone"])
def test_that_an_old_segment_was_truncated_is_said(folder: str, rewritten: bool) -> None:
    store, pieces = open_store(folder), [framed(b"one", b"two"), framed(b"three"), framed(b"four")]
    legacy(folder, pieces)
    store.delete(["old/seg/0$offset.0"])
    gone = len(pieces[0])
    if rewritten:
        kept = [HeaderChunk(at, f"old/seg/0$offset.{at}") for at in (gone, gone + len(pieces[1]))]
        store.put("old/seg/0$header", format_header(Header(1000, tuple(kept))))
    before = objects(folder)
    told = run("header", "import", "old/seg/0", "sc/new", "--yes", root=folder, code=1).stderr
    assert f"'old/seg/0' was truncated: the rest of it begins at offset {gone}" in told and "restore" not in told
    assert objects(folder) == before and "sc/new" not in run("stream", "list", root=folder).stdout


def test_old_chunks_that_a_clean_up_takes_meanwhile_are_not_imported(
    tmp_path: Path, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are called as ours are; whatever else old code left is never taken, and is imported after it, too."""
    url, real = made(str(tmp_path / "root"), garbage_delay_seconds=0), creation_time_of
    store = open_store(url)
    chunk = f"sc/new/0.E-1-O-0.{uuid.uuid4()}"
    store.put(chunk, framed(b"one"))
    store.put("old/seg/0$header", format_header(Header(9, (HeaderChunk(0, chunk),))))

    def taken(store: Store, chunks: list[str]) -> int:
        begun = real(store, chunks)
        for _ in range(2):
            document("gc", "--plausible-share", "1", "--yes", root=url)
        assert chunk not in objects(url)
        return begun

    with monkeypatch.context() as patch:
        patch.setattr(rolling_import, "creation_time_of", taken)
        assert (
            "garbage collection has deleted"
            in run("header", "import", "old/seg/0", "sc/new", "--yes", root=url, code=1).stderr
        )
    assert document("stream", "read", "sc/new", root=url)["events"] == []
    store.put("old/plain/0", framed(b"one", b""))
    assert document("header", "import", "old/plain/0", "sc/plain", "--yes", root=url)["imported"]["events"] == 2
    assert_healthy(url)


def test_what_was_imported_is_checked(folder: str) -> None:
    legacy(folder, [framed(b"one"), framed(b"two")])
    run("header", "import", "old/seg/0", "sc/new", "--yes", root=folder)
    open_store(folder).put("old/seg/0$offset.11", framed(b"TWO"))
    assert "do not match their checksums" in run("stream", "read", "sc/new", root=folder, code=1).stderr


def test_segments_without_a_header_or_without_bytes(folder: str) -> None:
    store = open_store(folder)
    store.put("old/plain/0", framed(b"one", b""))
    assert document("header", "import", "old/plain/0", "sc/plain", "--yes", root=folder)["imported"]["events"] == 2
    legacy(folder, [b""])
    assert "0 events of" in run("header", "import", "old/seg/0", "sc/none", "--yes", root=folder).stdout
    assert document("stream", "read", "sc/none", root=folder)["events"] == []
    assert len(document("stream", "read", "sc/plain", root=folder)["events"]) == 2
    assert_healthy(folder)


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        ([framed(b"fine"), b"\0\0\0\x01\0\0\0\x01x"], "offset 12: an event has type 1 and length 1"),
        ([framed(b"fine"), b"\0\0\0\0\xff\xff\xff\xff"], "offset 12: an event has type 0 and length -1"),
        ([framed(b"fine")[:-1]], "runs over the end"),
        ([framed(b"fine"), b"\0\0\0"], "runs over the end"),
    ],
    ids=["type", "length", "event", "header"],
)
def test_what_are_no_events(folder: str, pieces: list[bytes], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (5, 1 << 20):
        limits.import_step(monkeypatch, step)
        legacy(folder, pieces)
        told = run("header", "import", "old/seg/0", "sc/new", root=folder, code=1).stderr
        assert problem in told and "nothing was imported" in told
    assert "sc/new" not in run("stream", "list", root=folder).stdout


def test_nothing_of_the_root_becomes_a_chunk(folder: str) -> None:
    """It would be deleted with the stream."""
    store = open_store(folder)
    frame = next(info.path for info in store.list("") if is_log(info.path))
    store.put("old/seg/0$header", format_header(Header(9, (HeaderChunk(0, frame),))))
    for segment in (ROOT, frame, "old/seg/0"):
        assert "belongs to the root itself" in run("header", "import", segment, "sc/new", root=folder, code=1).stderr
    assert "sc/new" not in run("stream", "list", root=folder).stdout


def test_headers_that_do_not_fit_what_is_there(folder: str) -> None:
    store = open_store(folder)
    legacy(folder, [framed(b"one"), framed(b"two")])
    assert "exists already" in run("header", "import", "old/seg/0", S, root=folder, code=1).stderr
    store.delete(["old/seg/0$offset.11"])
    with pytest.raises(InvalidHeader, match="at 11 is missing"):
        rolling_segments.find_rolling_segment(store, "old/seg/0")
    store.put("old/seg/0$offset.11", framed(b"two"))
    store.put("old/seg/0$offset.0", b"short")
    with pytest.raises(InvalidHeader, match="at 0 has 5 bytes, which does not"):
        rolling_segments.find_rolling_segment(store, "old/seg/0")
    store.put("old/seg/0$header", format_header(Header(9, (HeaderChunk(11, "old/seg/0$offset.11"),))))
    with pytest.raises(rolling_segments.HeaderRefused, match="was truncated: the rest of it begins at offset 11"):
        rolling_segments.find_rolling_segment(store, "old/seg/0")
    store.put("old/seg/0$header", b"")
    assert (
        "the creation of the segment failed"
        in run("header", "import", "old/seg/0", "sc/new", root=folder, code=1).stderr
    )
    store.put("old/seg/0$header", b"what&")
    assert "key=value is due" in run("header", "import", "old/seg/0", "sc/new", root=folder, code=1).stderr
