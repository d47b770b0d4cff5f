"""A root's description: made once, agreed by all, and everything else refused."""

import itertools
import json
import multiprocessing
import os
import random
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chunkstore import Outcome, StorageError, StorageRefused, Store, open_store
from chunkstore.paths import ROOT, SELF_TESTS, is_log
from chunkstore.testing import CountingStore, Crashed, FaultStore, SimulatedStore, crash_at
from chunkstore.testing.faults import Fault, Plan
from chunkstore.urls import host_of
from chunkstore.wrapping import Request
from engine import root as root_module
from engine.errors import FrameDamaged
from engine.logs.log import frame_path, frames_folder
from engine.root import Root, RootConfig
from engine.settings import Settings


def described(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / ROOT).read_bytes())
    return found


# --- making and finding a root --------------------------------------------------------------------------------


def test_a_root_keeps_what_it_was_made_with(tmp_path: Path) -> None:
    with Root.open(str(tmp_path), containers=2, grace_seconds=30.0, garbage_delay_seconds=5.0) as root:
        made = root.config
        assert (made.containers, made.grace_seconds, made.garbage_delay_seconds, made.wal) == (2, 30.0, 5.0, None)
        assert (root.settings.grace, root.settings.garbage_delay) == (30.0, 5.0)
        root.container(1).create_segment("s/a")
        root.container(1).append("s/a", b"data")
        assert root.container(1) is root.container(1)
        for number in (-1, 2):
            with pytest.raises(ValueError, match="containers 0 to 1"):
                root.container(number)
    with Root.open(str(tmp_path), containers=9, grace_seconds=1.0, settings=Settings(grace=1.0)) as again:
        assert again.config == made
        assert again.settings.grace == 30.0
        assert again.container(1).read("s/a", 0, 4) == b"data"
        assert again.container(0).refresh().sequence == 0
    assert repr(again) == f"Root('file://{tmp_path}')"


def test_a_root_is_not_made_by_who_only_looks(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match=f"{tmp_path}/none holds no streams"):
        Root.open(str(tmp_path / "none"), create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "agreed", [{"containers": 0}, {"containers": 1.5}, {"grace_seconds": 0}, {"garbage_delay_seconds": -1}]
)
def test_a_root_is_not_made_with_values_that_nobody_could_open(tmp_path: Path, agreed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(agreed))):
        Root.open(str(tmp_path), **agreed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wal", [False, True])
def test_racing_openers_agree(tmp_path: Path, wal: bool) -> None:
    log = str(tmp_path / "log") if wal else None

    def opener(containers: int) -> RootConfig:
        with Root.open(str(tmp_path / "root"), wal=log, containers=containers) as root:
            root.container(0).create_segment(f"s/{containers}")
            return root.config

    with ThreadPoolExecutor(4) as pool:
        configs = set(pool.map(opener, range(1, 5)))
    assert len(configs) == 1
    with Root.open(str(tmp_path / "root")) as root:
        assert {root.config} == configs
        assert set(root.container(0).refresh().segments) == {f"s/{number}" for number in range(1, 5)}


def open_in_process(folder: str, barrier: Any, results: Any) -> None:
    barrier.wait()
    with Root.open(folder) as root:
        results.put(root.config.id)


@pytest.mark.processes
def test_racing_processes_agree(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=open_in_process, args=(str(tmp_path), barrier, results)) for _ in range(2)]
    for process in processes:
        process.start()
    ids = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert ids == {described(tmp_path)["id"]}


# --- the self-test --------------------------------------------------------------------------------------------


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[CountingStore]:
    """The stores that roots open from now on."""
    stores: list[CountingStore] = []

    def opener(url: str, storage_options: Any = None) -> CountingStore:
        stores.append(CountingStore(open_store(url, storage_options)))
        return stores[-1]

    monkeypatch.setattr(root_module, "open_store", opener)
    return stores


def test_the_self_test_is_paid_once(tmp_path: Path, counting: list[CountingStore]) -> None:
    Root.open(str(tmp_path)).close()
    first, *above = counting
    assert first.count(prefix=SELF_TESTS) > 100
    assert first.count() - first.count(prefix=SELF_TESTS) == 10, "five of them look for the data of other programs"
    folders = {f"file://{folder}" for folder in tmp_path.parents} - {"file:///"}
    assert {store.root: store.counts for store in above if store.root in folders} == {
        folder: {"read_ranges": 1, "list": 5} for folder in folders
    }
    assert all(store.counts == {"read_ranges": 1} for store in above if store.root not in folders), "names like it"
    del counting[:]
    Root.open(str(tmp_path)).close()
    assert [store.counts for store in counting] == [{"read": 1}]


def test_the_self_test_covers_a_log_on_another_root(tmp_path: Path, counting: list[CountingStore]) -> None:
    Root.open(str(tmp_path / "root"), wal=str(tmp_path / "log")).close()
    tested = {store.root for store in counting if store.count(prefix=SELF_TESTS)}
    assert tested == {f"file://{tmp_path}/root", f"file://{tmp_path}/log"}
    del counting[:]
    Root.open(str(tmp_path / "root")).close()
    assert [store.counts for store in counting] == [{"read": 1}, {"read": 1}]


class Overwriting(SimulatedStore):
    """A store whose creates are not creates."""

    def put_if_absent(self, path: str, data: Any) -> Outcome:
        self.put(path, data)
        return Outcome.MINE


@pytest.mark.parametrize("bad", ["root", "log"])
def test_storage_that_fails_the_self_test_is_refused_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    stores = {name: Overwriting() if name == bad else SimulatedStore() for name in ("root", "log")}
    stores["root"].root, stores["log"].root = "simulated://root", "simulated://log"
    with pytest.raises(StorageRefused, match=f"simulated://{bad}"):
        open_within(monkeypatch, stores)
    for store in stores.values():
        assert store.list("") == []


def open_within(monkeypatch: pytest.MonkeyPatch, stores: Mapping[str, Store]) -> Root:
    """Open the root "root" with its log in "log", in a world with these stores."""
    monkeypatch.setattr(root_module, "open_store", lambda url, options=None: stores[url.removeprefix("simulated://")])
    return Root.open("root", wal="log")


# --- crashes --------------------------------------------------------------------------------------------------


def counted(plan: Plan, numbers: Iterator[int], _: int, request: Request) -> Fault | None:
    """What a plan says of the requests to several stores, counted together."""
    return plan(next(numbers), request)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_root_that_was_half_made_is_made_by_the_next_opening(monkeypatch: pytest.MonkeyPatch, when: Any) -> None:
    monkeypatch.setattr(root_module, "self_test", lambda store: None)
    crashes = 0
    for number in range(1, 40):
        stores = {name: SimulatedStore() for name in ("root", "log")}
        stores["root"].root, stores["log"].root = "simulated://root", "simulated://log"
        passed = itertools.count(1)
        wrapped = {
            name: FaultStore(store, partial(counted, crash_at(number, when), passed)) for name, store in stores.items()
        }
        try:
            open_within(monkeypatch, wrapped).close()
        except Crashed:
            crashes += 1
        with open_within(monkeypatch, stores) as root:
            assert root.config.wal == "simulated://log"
            root.container(0).create_segment("s/a")
    assert 5 < crashes < 39


# --- a log on another root ------------------------------------------------------------------------------------


def test_the_log_may_lie_on_another_root(tmp_path: Path) -> None:
    root_path, log_path = tmp_path / "root", tmp_path / "log"
    with Root.open(str(root_path), wal=str(log_path)) as root:
        container = root.container(0)
        container.create_segment("s/a")
        container.append("s/a", b"flushed")
        container.flush()
        container.append("s/a", b"logged")
        frames, number = container.head.address + 1, container.number
    assert not any(is_log(info.path) for info in open_store(str(root_path)).list(""))
    assert len(list((log_path / frames_folder(number)).iterdir())) == frames >= 4
    assert len(list((root_path / "s").iterdir())) == 1
    for wal in (None, str(log_path), f"file://{log_path}/"):
        with Root.open(str(root_path), wal=wal) as again:
            assert again.container(0).read("s/a", 0, 13) == b"flushedlogged"
    moved = log_path.rename(tmp_path / "moved")
    with Root.open(str(root_path), wal=str(moved)) as again:
        assert again.container(0).read("s/a", 0, 13) == b"flushedlogged"


def test_a_log_that_is_not_there_is_not_begun_anew(tmp_path: Path) -> None:
    """A disk that is not mounted looks like an empty folder: all streams would seem to be empty."""
    with Root.open(str(tmp_path / "root"), wal=str(tmp_path / "log")) as root:
        root.container(0).create_segment("s/a")
    (tmp_path / "log").rename(tmp_path / "away")
    for wal in (None, str(tmp_path / "log"), str(tmp_path / "elsewhere")):
        with pytest.raises(StorageRefused, match="Make the storage available"):
            Root.open(str(tmp_path / "root"), wal=wal)
    assert not (tmp_path / "log" / ROOT).exists()


def test_roots_and_logs_are_not_confused(tmp_path: Path) -> None:
    one, two, log, other_log = (str(tmp_path / name) for name in ("one", "two", "log", "other log"))
    Root.open(one, wal=log).close()
    Root.open(two).close()
    with pytest.raises(StorageRefused, match="write-ahead log of another root"):
        Root.open(log)
    with pytest.raises(StorageRefused, match="is in use already"):
        Root.open(str(tmp_path / "three"), wal=log)
    with pytest.raises(StorageRefused, match="is in use already"):
        Root.open(str(tmp_path / "three"), wal=two)
    assert not (tmp_path / "three" / ROOT).exists()
    with pytest.raises(StorageRefused, match="is in the root itself"):
        Root.open(two, wal=log)
    Root.open(str(tmp_path / "four"), wal=other_log).close()
    for wal in (other_log, two, one):
        with pytest.raises(StorageRefused, match="is not the write-ahead log of"):
            Root.open(one, wal=wal)


def test_the_root_itself_may_be_named_as_the_place_of_the_log(tmp_path: Path) -> None:
    for _ in range(2):
        with Root.open(str(tmp_path), wal=f"file://{tmp_path}") as root:
            assert root.config.wal is None


def test_an_old_log_is_not_taken_for_that_of_a_new_root(tmp_path: Path) -> None:
    with Root.open(str(tmp_path / "root"), wal=str(tmp_path / "log")) as root:
        root.container(0).create_segment("s/a")
    (tmp_path / "root" / ROOT).unlink()
    with pytest.raises(StorageRefused, match="is in use already"):
        Root.open(str(tmp_path / "root"), wal=str(tmp_path / "log"))


# --- what is not a root's description -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not describe"),
        (b"[]", "does not describe"),
        (b"\xff\xfe", "does not describe"),
        (b"{}", "does not describe"),
        (b'{"format": 2, "id": "x"}', "has format 2; this version reads format 1"),
        (b'{"format": 1, "id": "x"}', "does not describe"),
        (b'{"format": 1, "id": "x", "checksum": 5}', "is damaged or was changed"),
    ],
)
def test_what_is_not_a_description_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / ROOT).parent.mkdir()
    (tmp_path / ROOT).write_bytes(content)
    with pytest.raises(StorageRefused, match=message) as error:
        Root.open(str(tmp_path))
    assert str(tmp_path) in str(error.value) and ROOT in str(error.value)
    assert (tmp_path / ROOT).read_bytes() == content


def test_a_value_that_was_changed_is_noticed(tmp_path: Path) -> None:
    """With another number of containers, or another grace period, processes would work against each other."""
    Root.open(str(tmp_path)).close()
    fields = described(tmp_path)
    for change in ({"containers": 5}, {"grace_seconds": 60.0}, {"wal": "/elsewhere"}, {"id": uuid.uuid4().hex}):
        (tmp_path / ROOT).write_text(json.dumps(fields | change))
        with pytest.raises(StorageRefused, match="is damaged or was changed"):
            Root.open(str(tmp_path))
    (tmp_path / ROOT).write_text(json.dumps(fields))
    Root.open(str(tmp_path)).close()


def test_a_damaged_description_is_never_believed() -> None:
    config = RootConfig(uuid.uuid4().hex, containers=7, wal="memory://elsewhere")
    data, dice = config.to_bytes(), random.Random(4)
    for _ in range(2000):
        damaged = bytearray(data)
        damaged[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        if dice.random() < 0.2:
            del damaged[dice.randrange(len(data)) :]
        try:
            assert RootConfig.from_bytes(bytes(damaged), "here") == config  # white space may have changed
        except StorageRefused as error:
            assert "here/_system/pravega.json" in str(error)


@pytest.mark.parametrize("url", ["tcp://controller:9090", "ftp://host/folder", ""])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StorageError):
        Root.open(url)


# --- processes ------------------------------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # Python 3.12 on: Spark forks all the same
def test_after_a_fork_the_child_opens_its_own_containers(tmp_path: Path) -> None:
    with Root.open(str(tmp_path)) as root:
        container = root.container(0)
        container.create_segment("s/a")
        container.append("s/a", b"parent,")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert root.container(0) is not container
                root.container(0).append("s/a", b"child,")
                root.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert root.container(0) is container
        container.append("s/a", b"parent")
        assert container.read("s/a", 0, 19) == b"parent,child,parent"


def test_a_container_that_went_offline_is_opened_again(tmp_path: Path) -> None:
    with Root.open(str(tmp_path)) as root:
        first = root.container(0)
        first.log.processor.claim()
        with Root.open(str(tmp_path)) as other:
            other.container(0).create_segment("s/a")
        with pytest.raises(Exception, match="another process"):
            first.refresh()
        assert root.container(0) is not first
        assert "s/a" in root.container(0).refresh().segments


def test_a_damaged_frame_is_given_up_without_opening_the_container(tmp_path: Path) -> None:
    with Root.open(str(tmp_path), containers=1, settings=Settings(threaded=False, maintenance=False)) as root:
        container = root.container(0)
        container.create_segment("s/a")
        container.append("s/a", b"kept")
        container.append("s/a", b"damaged")
        address = container.head.address
    path = tmp_path / frame_path(container.number, address)
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    with Root.open(str(tmp_path)) as root:
        with pytest.raises(FrameDamaged, match=rf"repair\(container, {address}\)"):
            root.container(0)
        with pytest.raises(ValueError, match="not a damaged frame"):
            root.repair(0, address - 1)
        root.repair(0, address)
        assert root.container(0).append("s/a", b" on") == 4
        assert root.container(0).read("s/a", 0, 7) == b"kept on"
        with pytest.raises(ValueError, match="not a damaged frame"):
            root.repair(0, address)


@pytest.mark.parametrize(
    ("wal", "reason"),
    [
        ("sftp://elsewhere.invalid/log", "another host"),
        ("abfs://c@account.blob.elsewhere.invalid/log", "another host"),
        ("https://elsewhere.invalid/log", "another host"),
        ("filecache::sftp://elsewhere.invalid/log", "chained"),
        ("sftp://user:word@elsewhere.invalid/log", "a password"),
    ],
)
def test_a_description_cannot_send_credentials_to_another_host(tmp_path: Path, wal: str, reason: str) -> None:
    """A writer could forge it. The caller may name that place."""
    root = tmp_path / "root"
    Root.open(str(root)).close()
    description = root / ROOT
    forged = replace(RootConfig.from_bytes(description.read_bytes(), "root"), wal=wal)
    description.write_bytes(forged.to_bytes())
    with pytest.raises(StorageRefused, match=reason) as raised:
        Root.open(str(root), create=False)
    assert "the log's URL in" in str(raised.value)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("/a/folder", ""),
        ("file:///a@b/c", ""),
        ("memory://x", ""),
        ("s3://bucket/a", ""),
        ("gs://bucket", ""),
        ("abfs://container/a", ""),
        ("abfss://c@Account.dfs.core.windows.net/a", "account.dfs.core.windows.net"),
        ("sftp://user@host:22/a", "host:22"),
        ("sftp://host/a", "host"),
        ("https://host/a", "host"),
    ],
)
def test_the_host_of_a_url(url: str, host: str) -> None:
    assert host_of(url) == host
