"""A process never adds to, reads or spoils a root that took the place of the one it opened (P4)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chunkstore import open_store
from chunkstore.paths import ROOT, ContainerId, is_earlier
from chunkstore.testing import CountingStore
from engine.errors import EngineError, OutcomeUnknown, RootReplaced
from engine.identity import CHECK_SECONDS, RootIdentity
from engine.logs.log import checkpoints_folder, frame_path, frames_folder
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.storage.object_reads import Stores
from tests.copies import copied

S = "s/a"


def opened(folder: Path, **settings: Any) -> Root:
    return Root.open(str(folder), containers=1, settings=Settings(maintenance=False, **{"threaded": False, **settings}))


def filled(folder: Path, data: bytes, frames: int = 3) -> Root:
    """A root with a segment, to which data was appended in some frames."""
    root = opened(folder)
    container = root.container(0)
    container.create_segment(S)
    for _ in range(frames):
        container.append(S, data)
    return root


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("frames", [0, 1, 9])
def test_a_writer_of_a_root_that_was_created_anew_is_refused(tmp_path: Path, threaded: bool, frames: int) -> None:
    """Also if the new root's log is shorter, as long, or longer."""
    folder = tmp_path / "root"
    filled(folder, b"old").close()
    with opened(folder, threaded=threaded) as old:
        container = old.container(0)
        container.append(S, b"old")
        shutil.rmtree(folder)
        new = filled(folder, b"new", frames)
        for _ in range(2):
            with pytest.raises((OutcomeUnknown, RootReplaced), match="created again, restored or recovered"):
                container.append(S, b"lost")
        with pytest.raises(RootReplaced):
            old.container(0)
    assert new.container(0).read(S, 0, 3 * frames) == b"new" * frames
    new.container(0).append(S, b"on")
    new.close()
    with opened(folder) as again:
        assert again.container(0).read(S, 0, 3 * frames + 2) == b"new" * frames + b"on"


def test_a_reader_of_a_root_that_was_created_anew_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    old = filled(folder, b"old")
    shutil.rmtree(folder)
    filled(folder, b"new").close()
    for _ in range(2):
        with pytest.raises(RootReplaced, match="open the root again"):
            old.container(0).refresh()


def test_what_an_earlier_process_writes_late_is_not_believed(tmp_path: Path) -> None:
    """A checkpoint of the old state came to be what everybody opened from."""
    folder = tmp_path / "root"
    old = filled(folder, b"old", 20).container(0)
    head, state = old.head, old.state
    shutil.rmtree(folder)
    filled(folder, b"new").close()
    old.log.write_checkpoint(head, state)
    with opened(folder) as again:
        assert again.container(0).read(S, 0, 9) == b"new" * 3


@pytest.mark.parametrize("what", ["frame", "checkpoint"])
def test_an_object_of_another_root_is_damage(tmp_path: Path, what: str) -> None:
    """Somebody copies a file from a backup of another root to where one is missing."""
    stores = []
    for name in ("mine", "theirs"):
        with filled(tmp_path / name, b"x") as root:
            if what == "checkpoint":
                root.container(0).checkpoint()
            number = root.container(0).number
            stores.append((root.stores.log, frame_path(number, 1), checkpoints_folder(number)))
    (mine, frame, folder), (theirs, their_frame, their_folder) = stores
    if what == "frame":
        mine.put(frame, theirs.read(their_frame))
    else:
        mine.put(mine.list(folder)[-1].path, theirs.read(theirs.list(their_folder)[-1].path))
    with opened(tmp_path / "mine") as root, pytest.raises(EngineError, match="another root or earlier log"):
        root.container(0)


@pytest.mark.parametrize("at", [1, 6])
def test_a_log_that_was_set_back_under_a_writer_is_noticed(tmp_path: Path, at: int) -> None:
    """A copy of the folder is put back, which has the same identity: what the writer appended last is not there."""
    folder, copy = tmp_path / "root", tmp_path / "copy"
    with filled(folder, b"x", at):
        copied(folder, copy)
    with opened(folder) as root:
        container = root.container(0)
        for _ in range(5):
            container.append(S, b"y")
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        with pytest.raises((OutcomeUnknown, RootReplaced), match="was replaced"):
            container.append(S, b"z")


def test_every_address_in_a_new_root_differs_from_those_of_the_root_before(tmp_path: Path) -> None:
    paths = []
    for _ in range(2):
        with filled(tmp_path / "root", b"x") as root:
            paths.append({info.path for info in root.stores.log.list(frames_folder(root.container(0).number))})
        shutil.rmtree(tmp_path / "root")
    assert all(paths) and not paths[0] & paths[1]


def test_a_collector_of_an_earlier_root_deletes_nothing(tmp_path: Path) -> None:
    """A root that was restored in place names chunks that the earlier one has for garbage."""
    folder = tmp_path / "root"
    with opened(folder) as made:
        config, settings = made.config, made.settings
    store = Remote(str(folder))  # where the root is not looked at each time
    with Root(Stores(store, store), config, settings, described=True) as root:
        container = root.container(0)
        container.create_segment(S)
        container.append(S, b"x" * 100)
        container.flush()
        container.truncate(S, 100)
        container.delete(S)
        container.flush()
        container.flush()
        before = {info.path for info in store.list("s/")}
        store.put(ROOT, RootConfig("f" * 32, 1, config.grace_seconds, config.garbage_delay_seconds).to_bytes())
        with pytest.raises(RootReplaced):
            container.collect_garbage()
        assert {info.path for info in store.list("s/")} == before != set()


def test_a_process_that_opens_the_root_again_goes_on_with_the_new_one(tmp_path: Path) -> None:
    from pravega_spark.roots import close_root, open_root

    folder = tmp_path / "root"
    filled(folder, b"old").close()
    first = open_root(str(folder))
    assert first.container(0).read(S, 0, 3) == b"old"
    assert open_root(str(folder)) is first
    shutil.rmtree(folder)
    filled(folder, b"new").close()
    second = open_root(str(folder))
    assert second.container(0).read(S, 0, 3) == b"new"
    close_root(str(folder))


# --- how often it is looked at ---------------------------------------------------------------------------------------


class Remote(CountingStore):
    """A store where each look is a request."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url))

    def mark(self, path: str) -> None:
        return None


@pytest.fixture
def described() -> Callable[[str], RootConfig]:
    def describe(identity: str) -> RootConfig:
        config = RootConfig(identity * 32)
        open_store("memory://identity").put(ROOT, config.to_bytes())
        return config

    return describe


def identity_of(store: CountingStore, config: RootConfig, seconds: list[float]) -> RootIdentity:
    """seconds: what the clock shows."""

    def generation(data: bytes) -> object:
        return RootConfig.from_bytes(data, "x").generation

    return RootIdentity(store, config.generation, generation, None, lambda: seconds[0])


def test_a_bucket_is_asked_every_few_seconds_at_most(described: Callable[[str], RootConfig]) -> None:
    store, clock = Remote("memory://identity"), [0.0]
    identity = identity_of(store, described("a"), clock)
    for _ in range(100):
        assert not identity.check()
    assert not store.requests
    clock[0] += CHECK_SECONDS
    assert identity.check()
    assert not identity.check()
    assert [request.verb for request in store.requests] == ["read"]
    described("b")
    assert not identity.check(), "until the time is over"
    clock[0] += CHECK_SECONDS
    for _ in range(3):
        with pytest.raises(RootReplaced, match="memory://identity"):
            identity.check()


def test_a_root_that_was_seen_to_be_replaced_is_never_used_again(described: Callable[[str], RootConfig]) -> None:
    identity = identity_of(Remote("memory://identity"), described("a"), [0.0])
    described("b")
    with pytest.raises(RootReplaced):
        identity.verify()
    described("a")
    with pytest.raises(RootReplaced):
        identity.check()


def test_containers_keep_their_numbers_in_every_generation() -> None:
    config = RootConfig("a" * 32, containers=3).with_recovered(1, "b" * 32)
    assert [int(config.container(number)) for number in range(3)] == [0, 1, 2]
    assert [config.container(number).generation[0] for number in range(3)] == ["a", "b", "a"]
    assert RootConfig.from_bytes(config.to_bytes(), "x") == config
    assert config.generation != RootConfig("a" * 32, containers=3).generation
    for path in (frame_path(config.container(1), 7), f"{checkpoints_folder(config.container(1))}{7:020d}"):
        assert is_earlier(path, ContainerId(1, "a" * 32)) and not is_earlier(path, config.container(1))
    assert not is_earlier("s/a", config.container(1))
