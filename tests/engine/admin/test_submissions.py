"""Submissions are messages of the log (W18): verification counts their bytes, and no copy of a root contains them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from chunkstore import Store, open_store
from chunkstore.paths import SystemPlace, is_log, place_of
from engine.admin.backups import back_up, restore
from engine.admin.root_gc import collect_garbage, find_garbage
from engine.admin.verify import verify
from engine.logs.submission import Address, encode, inbox_folder, submission_path
from engine.root import Root
from engine.state.operations import Append, Payload
from tests.engine.admin.lives import lived, told


def posted(store: Store, container: int, epoch: int, number: int = 1) -> str:
    """The object of a submission that no process deleted."""
    address = Address(epoch, b"o" * 16, number, b"%08d" % number)
    path = submission_path(container, address)
    store.post(path, encode(container, address, [[Append("s/a", Payload(b"lost"))]]))
    return path


def inboxes(store: Store) -> list[str]:
    return [info.path for info in store.list("_system/") if "/inbox/" in info.path]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    root = Root.open(str(tmp_path / "root"), containers=1)
    container = root.container(0)
    container.create_segment("s/a")
    container.append("s/a", b"data")
    container.flush()
    for epoch in (0, container.head.epoch, container.head.epoch + 1):
        assert is_log(posted(root.stores.log, root.container_id(0), epoch))
    return root


def content(root: Root) -> bytes:
    return root.container(0).read("s/a", 0, root.container(0).info("s/a").length)


def test_submissions_belong_to_the_log_of_their_container() -> None:
    address = Address(7, b"o" * 16, 3, b"n" * 8)
    for container in (0, 12):
        assert place_of(submission_path(container, address)) == (SystemPlace.LOG, container)
    assert place_of(f"{inbox_folder(0, 7)}another") is None


@pytest.mark.usefixtures("small")
def test_verification_counts_the_bytes_of_submissions_as_the_logs() -> None:
    life = lived(2)
    before = life.verified().balances[0]
    paths = [posted(life.store, 0, epoch, number) for epoch in (0, 1, 99) for number in (1, 2)]
    report = life.verified(deep=True)
    assert told(report) == [] and report.orphans is not None and report.orphans.number == 0
    added = sum(life.store.stat(path).size for path in paths)
    assert report.balances[0] == before._replace(log=before.log + added)


@pytest.mark.usefixtures("small")
def test_a_damaged_submission_is_no_finding() -> None:
    """It is a message and no evidence; its owner commits without it."""
    life = lived(1)
    path = posted(life.store, 0, 1)
    life.store.put(path, b"nonsense")
    assert told(life.verified(deep=True)) == []


def test_a_backup_and_what_is_restored_from_it_have_no_submissions(root: Root, tmp_path: Path) -> None:
    back_up(root, str(tmp_path / "copy"))
    assert inboxes(open_store(str(tmp_path / "copy"))) == []
    restore(str(tmp_path / "copy"), str(tmp_path / "new"))
    with Root.open(str(tmp_path / "new")) as restored:
        assert inboxes(restored.stores.chunks) == []
        assert content(restored) == b"data"
        assert told(verify(restored)) == []


def test_a_recovered_log_ignores_submissions_of_the_one_before_and_gc_deletes_them(root: Root) -> None:
    root.recover(0, force=True)
    assert content(root) == b"data"
    assert root.container(0).append("s/a", b" more") == 4
    assert len(inboxes(root.stores.log)) == 3
    warnings = [finding.problem for finding in verify(root).findings]
    assert len(warnings) == 1 and "belong to an earlier log" in warnings[0]
    time.sleep(0.1)  # the age of an object is that of the filesystem's clock
    collect_garbage(root, find_garbage(root, lambda segment: 0, 0.01))
    assert inboxes(root.stores.log) == []
    assert content(root) == b"data more" and told(verify(root)) == []
