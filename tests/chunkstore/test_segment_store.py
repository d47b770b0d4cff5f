"""A segment store by itself: every verb, with a crash and a takeover at each of its requests, compared with a model."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from chunkstore import (
    BadStoredOffset,
    LayoutMode,
    SegmentStorageConfig,
    SegmentStore,
    StorageError,
    StorageNotPrimary,
    StorageRefused,
    Store,
    StoredSegmentExists,
    StoredSegmentNotFound,
    StoredSegmentNotSealed,
    StoredSegmentSealed,
    StoredSegmentTruncated,
    open_store,
)
from chunkstore.chunk_names import made_for
from chunkstore.errors import StorageUnavailable, Unsupported
from chunkstore.pravega.layout_mode import layout_mode
from chunkstore.pravega.source import is_archive
from chunkstore.segments.errors import SegmentDamaged, SegmentUnsupported
from chunkstore.testing import Crashed, FaultStore, Request, SimulatedStore, WrappingStore, crash_at, fail_at
from tests.chunkstore.pravega.test_rolling import OldCode

DATA = bytes(range(250))
AT_ONCE = SegmentStorageConfig(garbage_delay=0, relocate_min=20, relocate_max=1000)
PUTTING = replace(AT_ONCE, appends=False)


@dataclass(frozen=True)
class Segment:
    """A segment in the model."""

    content: bytes = b""
    start: int = 0
    sealed: bool = False


Model: TypeAlias = dict[str, Segment]
Verb: TypeAlias = Callable[[SegmentStore], object]


def found_in(store: SegmentStore) -> Model:
    """What a store holds; a truncated beginning is filled with zeros."""
    model = {}
    for info in store.list():
        content = store.read(info.name, info.start_offset, info.length - info.start_offset)
        assert content == b"".join(store.scan(info.name, info.start_offset))
        model[info.name] = Segment(bytes(info.start_offset) + content, info.start_offset, info.sealed)
    return model


def prepare(store: Store, config: SegmentStorageConfig) -> Model:
    """A store that has some segments; what is in it."""
    with SegmentStore.open(store, config=config) as segments:
        segments.create("scope/a", rolling_length=40)
        for at in range(0, 100, 10):
            segments.append("scope/a", DATA[at : at + 10])
        segments.create("scope/source")
        segments.append("scope/source", DATA[:30])
        segments.append("scope/source", DATA[30:50])
        segments.seal("scope/source")
        segments.create("scope/b")
        return found_in(segments)


def truncated(segment: Segment, offset: int) -> Segment:
    return Segment(bytes(offset) + segment.content[offset:], offset, segment.sealed)


VERBS: dict[str, tuple[Verb, Callable[[Model], Model]]] = {
    "create": (lambda store: store.create("scope/new"), lambda model: {**model, "scope/new": Segment()}),
    "append": (
        lambda store: store.append("scope/a", DATA[100:200]),
        lambda model: {**model, "scope/a": Segment(DATA[:200])},
    ),
    "concat": (
        lambda store: store.concat("scope/a", "scope/source"),
        lambda model: {
            name: Segment(DATA[:100] + DATA[:50]) if name == "scope/a" else segment
            for name, segment in model.items()
            if name != "scope/source"
        },
    ),
    "truncate": (
        lambda store: store.truncate("scope/a", 75),
        lambda model: {**model, "scope/a": truncated(model["scope/a"], 75)},
    ),
    "seal": (lambda store: store.seal("scope/a"), lambda model: {**model, "scope/a": Segment(DATA[:100], sealed=True)}),
    "unseal": (lambda store: store.unseal("scope/source"), lambda model: {**model, "scope/source": Segment(DATA[:50])}),
    "delete": (
        lambda store: store.delete("scope/a"),
        lambda model: {name: segment for name, segment in model.items() if name != "scope/a"},
    ),
    "compact": (lambda store: store.compact("scope/a", 1000), lambda model: model),
    "collect_garbage": (lambda store: store.collect_garbage(), lambda model: model),
}
"""Each verb on what `prepare` makes, and what the model is after it."""


EVERY_THIRD_OR_ALL = pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
"""At which requests something happens: at the first one and at every third after it in `make test`, else at all."""


def fresh_copy(origin: SimulatedStore) -> SimulatedStore:
    store = SimulatedStore(can_append=origin.can_append)
    store.copy_of(origin)
    return store


def check_recovered(store: SimulatedStore, config: SegmentStorageConfig, *allowed: Model) -> Model:
    """Reopen a store: it holds one of the models, goes on holding it, and no chunk is left that no segment names."""
    with SegmentStore.open(store, config=config) as segments:
        model = found_in(segments)
        assert model in allowed
        segments.collect_garbage()
        assert found_in(segments) == model
        segments.create("scope/later")
        segments.append("scope/later", b"later")
    with SegmentStore.open(store, config=config) as segments:
        assert found_in(segments) == {**model, "scope/later": Segment(b"later")}
        named = {placed.chunk.name for info in segments.list() for placed in segments.chunks(info.name)}
        segments.collect_garbage()
    stored = {info.path for info in store.list("scope/") if made_for(info.path)}
    assert stored == named
    return model


@pytest.fixture(scope="module", params=[AT_ONCE, PUTTING], ids=["appending", "putting"])
def config(request: pytest.FixtureRequest) -> SegmentStorageConfig:
    config: SegmentStorageConfig = request.param
    return config


@pytest.fixture(scope="module")
def prepared_once(config: SegmentStorageConfig) -> tuple[SimulatedStore, Model]:
    store = SimulatedStore(can_append=config.appends)
    return store, prepare(store, config)


@pytest.fixture
def prepared(prepared_once: tuple[SimulatedStore, Model]) -> tuple[SimulatedStore, Model]:
    store, model = prepared_once
    return fresh_copy(store), model


# -- what the verbs do


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SegmentStore]:
    where = str(tmp_path / "root") if request.param == "folder" else f"memory://{tmp_path}"
    with SegmentStore.open(where, config=AT_ONCE) as store:
        yield store


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_does_what_the_model_says(
    name: str, prepared: tuple[SimulatedStore, Model], config: SegmentStorageConfig
) -> None:
    store, before = prepared
    verb, change = VERBS[name]
    with SegmentStore.open(store, config=config) as segments:
        verb(segments)
        assert found_in(segments) == change(before)
    check_recovered(store, config, change(before))


def test_appends_return_where_their_bytes_begin(store: SegmentStore) -> None:
    store.create("a")
    assert [store.append("a", b"one"), store.append("a", [b"tw", b"o"]), store.append("a", b"")] == [0, 3, 6]
    assert store.append("a", b"three", offset=6) == 6
    with pytest.raises(BadStoredOffset) as raised:
        store.append("a", b"three", offset=6)
    assert (raised.value.expected, raised.value.given) == (11, 6)
    assert store.read("a", 0, 11) == b"onetwothree"


def test_what_a_segment_cannot_do_is_refused_with_its_name(store: SegmentStore) -> None:
    store.create("a")
    store.append("a", DATA)
    store.create("b")
    calls: list[tuple[type[Exception], Verb]] = [
        (StoredSegmentExists, lambda store: store.create("a")),
        (StoredSegmentNotFound, lambda store: store.append("none", b"")),
        (StoredSegmentNotFound, lambda store: store.read("none", 0, 0)),
        (StoredSegmentNotFound, lambda store: store.info("none")),
        (StoredSegmentNotFound, lambda store: store.delete("none")),
        (StoredSegmentNotSealed, lambda store: store.concat("b", "a")),
        (SegmentUnsupported, lambda store: store.concat("b", "b")),
        (BadStoredOffset, lambda store: store.read("a", 0, 251)),
        (BadStoredOffset, lambda store: store.truncate("a", 251)),
        (ValueError, lambda store: store.create("../a")),
    ]
    for error, call in calls:
        with pytest.raises(error):
            call(store)
    store.truncate("a", 100)
    store.seal("a")
    with pytest.raises(StoredSegmentTruncated):
        store.read("a", 99, 1)
    with pytest.raises(StoredSegmentSealed):
        store.append("a", b"x")
    assert found_in(store) == {"a": Segment(bytes(100) + DATA[100:], 100, True), "b": Segment()}


def test_the_log_is_compacted_and_its_garbage_collected(tmp_path: Path) -> None:
    config = replace(AT_ONCE, system_rolling_length=50_000)
    with SegmentStore.open(str(tmp_path), config=config) as store:
        store.create("a")
        for _ in range(1200):
            store.append("a", b"x")
        store.collect_garbage()
    log = sum(path.stat().st_size for path in tmp_path.glob("_system/containers/storage_metadata_0.*"))
    assert log < 300_000, "1,200 commits of 300 bytes and more"
    with SegmentStore.open(str(tmp_path), config=AT_ONCE) as store:
        assert found_in(store) == {"a": Segment(b"x" * 1200)}
        store.collect_garbage()
    assert len(list(tmp_path.glob("_system/epochs/*"))) == 1
    assert len(list(tmp_path.glob("_system/containers/_sysjournal.*"))) <= 2


# -- crashes


@EVERY_THIRD_OR_ALL
@pytest.mark.parametrize("when", ["partway", "after"])
@pytest.mark.parametrize("name", VERBS)
def test_after_a_crash_at_any_request_a_verb_has_happened_or_not(
    name: str, when: Any, prepared: tuple[SimulatedStore, Model], config: SegmentStorageConfig, step: int
) -> None:
    origin, before = prepared
    verb, change = VERBS[name]
    after, outcomes = change(before), []
    for number in itertools.count(1, step):
        inner = fresh_copy(origin)
        faulty = FaultStore(inner)
        segments = SegmentStore.open(faulty, config=config)
        faulty.plan = crash_at(faulty.passed + number, when)
        try:
            verb(segments)
        except Crashed:
            outcomes.append(check_recovered(inner, config, before, after) == after)
        else:
            break
        finally:
            segments.close()
    assert outcomes == sorted(outcomes), "once a crash is late enough for the change, it stays so"


@EVERY_THIRD_OR_ALL
@pytest.mark.parametrize("when", ["partway", "after"])
def test_after_a_crash_at_any_request_of_opening_the_store_is_as_it_was(
    when: Any, prepared: tuple[SimulatedStore, Model], config: SegmentStorageConfig, step: int
) -> None:
    origin, before = prepared
    for source, model in ((origin, before), (SimulatedStore(can_append=config.appends), {})):
        faulty = FaultStore(fresh_copy(source))
        SegmentStore.open(faulty, config=config).close()
        for number in range(1, faulty.passed + 1, step):
            inner = fresh_copy(source)
            with pytest.raises(Crashed):
                SegmentStore.open(FaultStore(inner, crash_at(number, when)), config=config)
            if inner.list("_system/epochs/", limit=1) or not inner.list("", limit=1):
                check_recovered(inner, config, model)


@EVERY_THIRD_OR_ALL
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["append", "concat", "truncate", "delete"])
def test_after_a_failed_request_nothing_is_in_doubt_once_the_store_is_opened_again(
    name: str, when: Any, prepared: tuple[SimulatedStore, Model], config: SegmentStorageConfig, step: int
) -> None:
    """The process lives on, and may use the store as far as it lets it."""
    origin, before = prepared
    verb, change = VERBS[name]
    for number in itertools.count(1, step):
        inner = fresh_copy(origin)
        faulty = FaultStore(inner)
        with SegmentStore.open(faulty, config=config) as segments:
            faulty.plan = fail_at(last := faulty.passed + number, when)
            with contextlib.suppress(StorageError):
                verb(segments)
            seen = [change(before), before]
            with contextlib.suppress(StorageError):
                seen = [found_in(segments)]
            done = faulty.passed < last
        check_recovered(inner, config, *seen)
        if done:
            return


# -- takeovers


class Overtaken(WrappingStore):
    """Calls `overtake` before its request number `at`, once."""

    def __init__(self, inner: Store, overtake: Callable[[], None]) -> None:
        super().__init__(inner)
        self.at = 0
        self.passed = 0
        self._overtake = overtake

    def _carry_out(self, request: Request, call: Callable[[], Any]) -> Any:
        self.passed += 1
        if self.passed == self.at:
            self._overtake()
        return call()


@EVERY_THIRD_OR_ALL
@pytest.mark.parametrize("name", VERBS)
def test_a_process_that_is_overtaken_at_any_request_acknowledges_what_the_next_one_finds(
    name: str, prepared: tuple[SimulatedStore, Model], config: SegmentStorageConfig, step: int
) -> None:
    origin, before = prepared
    verb, change = VERBS[name]
    after, refused = change(before), 0
    for number in itertools.count(1, step):
        inner = fresh_copy(origin)
        successors: list[SegmentStore] = []
        overtaken = Overtaken(inner, lambda: successors.append(SegmentStore.open(inner, config=config)))  # noqa: B023
        with SegmentStore.open(overtaken, config=config) as segments:
            overtaken.at = overtaken.passed + number
            try:
                verb(segments)
            except StorageNotPrimary:
                refused += 1
                allowed = [before, after]
                with pytest.raises(StorageNotPrimary):
                    segments.create("scope/zombie")
            except StorageError:
                allowed = [before, after]
            else:
                allowed = [after]
            if not successors:
                break
            [successor] = successors
            with successor:
                model = found_in(successor)
                assert model in allowed, number
                successor.append("scope/b", b"mine")
                with contextlib.suppress(StorageError):
                    segments.collect_garbage()
                with contextlib.suppress(StorageError):
                    segments.append("scope/b", b"zombie")
                assert found_in(successor) == {**model, "scope/b": Segment(b"mine")}
        check_recovered(inner, config, {**model, "scope/b": Segment(b"mine")})
    assert refused or number == 1 or name == "collect_garbage", "a change is refused at some of its requests"


# -- where a store may be


@pytest.mark.parametrize("marker", ["_system/pravega.json", "_system/backup.json", "_system/restoring.json"])
def test_a_root_of_streams_is_no_segment_store(marker: str) -> None:
    store = SimulatedStore()
    store.put(marker, b"{}")
    for layout in (None, *LayoutMode):
        with pytest.raises(StorageRefused, match="StreamManager"):
            SegmentStore.open(store, layout=layout)
    assert [info.path for info in store.list("")] == [marker]


def test_the_storage_of_a_pravega_is_no_segment_store() -> None:
    store = SimulatedStore()
    store.put("_system/containers/_sysjournal.container0.snapshot_info", b"info")
    with pytest.raises(StorageRefused, match="long-term storage of a Pravega"):
        SegmentStore.open(store, layout=LayoutMode.LAYOUT_UPGRADE)


def test_a_segment_store_is_not_taken_for_the_storage_of_a_pravega() -> None:
    store = SimulatedStore()
    with SegmentStore.open(store) as segments:
        segments.create("a")
    assert store.list("_system/containers/") and not is_archive(store)


def test_damage_is_reported_without_commands_for_roots_of_streams() -> None:
    store = SimulatedStore()
    with SegmentStore.open(store) as segments:
        segments.create("a")
        segments.append("a", b"lost")
        store.delete([placed.chunk.name for placed in segments.chunks("a")])
        with pytest.raises(SegmentDamaged, match=r"Restore it from a backup\.$") as raised:
            segments.read("a", 0, 4)
    assert "pravega-spark" not in str(raised.value)


def test_a_place_that_is_not_empty_is_taken_over_only_if_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageRefused, match="not empty"):
        SegmentStore.open(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# -- segments of RollingStorage


@pytest.mark.parametrize("mode", [LayoutMode.CODE_ONLY_UPGRADE, LayoutMode.LAYOUT_UPGRADE])
def test_segments_of_rolling_storage_are_taken_over(mode: LayoutMode, tmp_path: Path) -> None:
    old = OldCode(open_store(str(tmp_path)))
    name, other = "scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"
    data = old.create(name, b"one", b"two")
    old.create(other, b"other")
    with SegmentStore.open(str(tmp_path), layout=mode, config=AT_ONCE) as store:
        assert layout_mode(old.store) is mode
        assert store.append(name, b"three") == len(data)
        assert store.read(name, 0, len(data) + 5) == data + b"three"
        assert (report := store.adopt_all()).adopted == 1 and not report.refused
        assert report.known == (mode is LayoutMode.CODE_ONLY_UPGRADE), "the header of one that is known has gone"
        assert {info.name for info in store.list()} == {name, other}
        if mode is LayoutMode.CODE_ONLY_UPGRADE:
            assert old.read(name) == (0, data + b"three")
    with SegmentStore.open(str(tmp_path), config=AT_ONCE) as store:
        assert store.read(name, 0, len(data) + 5) == data + b"three"
        assert list(tmp_path.glob("scope/stream/*$header")) == [] or mode is LayoutMode.CODE_ONLY_UPGRADE
        store.delete(name)
        store.collect_garbage()
    assert [path for path in tmp_path.glob("scope/stream/*") if path.name.startswith("0")] == []


def test_a_new_store_adopts_nothing_and_says_so(store: SegmentStore) -> None:
    with pytest.raises(Unsupported, match="adopts no segments"):
        store.adopt_all()


# -- what goes wrong


def test_after_an_unknown_outcome_the_store_is_opened_again() -> None:
    faulty = FaultStore(SimulatedStore())
    with SegmentStore.open(faulty, config=AT_ONCE) as store:
        store.create("a")
        faulty.plan = lambda at, request: (
            fail_at(at, "after")(at, request) if "_system/epochs/" in request.paths else None
        )
        with pytest.raises(StorageUnavailable):
            store.create("b")
        faulty.plan = lambda at, request: None
        for call in (lambda: store.info("a"), lambda: store.append("a", b"x"), lambda: list(store.list())):
            with pytest.raises(StorageError, match="open the store again"):
                call()
    with SegmentStore.open(faulty.inner) as store:
        assert store.exists("b")


def test_a_forked_process_cannot_use_the_store_of_its_parent(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a")
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        for call in (lambda: store.append("a", b"x"), lambda: store.info("a"), store.collect_garbage):
            with pytest.raises(StorageError, match="before a fork"):
                call()
    assert store.append("a", b"x") == 0


def test_a_log_that_is_not_what_was_written_is_an_error(prepared: tuple[SimulatedStore, Model]) -> None:
    store, _ = prepared
    [log] = [info.path for info in store.list("_system/containers/") if "storage_metadata_0.E" in info.path][:1]
    data = bytearray(store.read(log))
    data[20] ^= 1
    store.put(log, data)
    with pytest.raises(StorageError, match="metadata log"):
        SegmentStore.open(store)
