"""State synchronizers: what the tests of Pravega's client expect (SynchronizerTest, StateSynchronizerTest), and what
must hold of ours: many threads and processes, scales, restores, foreign events; a model of two of them."""

from __future__ import annotations

import multiprocessing
import random
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.root import Root
from engine.settings import Settings
from pravega_spark import (
    Closed,
    CorruptedState,
    InitialUpdate,
    NotInitialized,
    NotOneSegment,
    PositionLost,
    Revision,
    Serializer,
    StateSynchronizer,
    StreamManager,
    StreamNotFound,
    StreamSealed,
    TruncatedData,
    Update,
)
from pravega_spark.checks import verify_root
from tests.client.large_events.simulated import process
from tests.client.synchronized_sets import (
    TEXTS,
    Begin,
    Change,
    Members,
    SetText,
    Text,
    add,
    set_of,
    text_of,
)
from tests.restored import flush, restored
from tests.support.simulation import Simulation, audit


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    root = Root.open(str(tmp_path / "root"), settings=Settings(maintenance=False, threaded=False), containers=2)
    with StreamManager.over(root) as opened:
        opened.create_scope("sc")
        opened.create_stream("sc", "one")
        yield opened


def update(synchronizer: StateSynchronizer[Text], value: str) -> tuple[int, str]:
    """Replace the text; how often it was tried, and the text that it replaced."""
    tries: list[str] = []

    def generate(state: Text, updates: list[Any]) -> str:
        tries.append(state.value)
        updates.append(SetText(value))
        return state.value

    found = synchronizer.update_state(generate)
    assert found == tries[-1]
    return len(tries), found


def value_of(synchronizer: StateSynchronizer[Text]) -> str:
    state = synchronizer.get_state()
    assert state is not None
    return state.value


# --- as the original ------------------------------------------------------------------------------------------------


def test_an_update_is_tried_again_with_what_others_have_written(manager: StreamManager) -> None:
    a, b = text_of(manager), text_of(manager)
    a.initialize(SetText("Foo"))
    assert update(b, "Bar") == (1, "Foo"), "the state is fetched before the first try"
    assert value_of(a) == "Foo"
    assert update(a, "Baz") == (2, "Bar") and value_of(a) == "Baz"
    b.fetch_updates()
    assert value_of(b) == "Baz"
    assert update(b, "Bat") == (1, "Baz") and value_of(a) == "Baz"
    a.fetch_updates()
    assert value_of(a) == "Bat"
    assert update(a, "current") == (1, "Bat") and update(b, "stale") == (2, "current")


def test_the_first_initial_state_stays(manager: StreamManager) -> None:
    a, b = text_of(manager), text_of(manager)
    assert a.get_state() is None
    a.initialize(SetText("a"))
    b.initialize(SetText("b"))
    assert value_of(a) == value_of(b) == "a"
    update(a, "later")
    c = text_of(manager)
    c.initialize(SetText("c"))
    assert value_of(c) == "later", "and the state is that of the stream"


def test_nothing_is_changed_before_there_is_a_state(manager: StreamManager) -> None:
    a = text_of(manager)
    a.fetch_updates()
    assert a.get_state() is None and a.bytes_written_since_compaction() == 0
    for call in (lambda: update(a, "x"), lambda: a.compact(lambda state: SetText("x"))):
        with pytest.raises(NotInitialized, match="state in stream sc/one is not initialized: call initialize"):
            call()
    a.update_state_unconditionally(SetText("x"))
    a.fetch_updates()
    assert a.get_state() is None, "an update without a state before it"
    with pytest.raises(CorruptedState, match="no initial state"):
        a.initialize(SetText("y"))


def test_a_generator_without_updates_writes_nothing(manager: StreamManager) -> None:
    a = text_of(manager)
    a.initialize(SetText("a"))
    size = manager.stream_info("sc", "one").size
    assert a.update_state(lambda state, updates: f"seen {state.value}") == "seen a"
    a.compact(lambda state: None)
    assert manager.stream_info("sc", "one").size == size


def test_compaction(manager: StreamManager) -> None:
    synchronizer, client = text_of(manager), manager.create_revisioned_stream_client("sc", "one")
    assert synchronizer.bytes_written_since_compaction() == 0
    synchronizer.initialize(SetText("a"))
    assert update(synchronizer, "b")[0] == 1
    size = synchronizer.bytes_written_since_compaction()
    assert size > 0
    assert update(synchronizer, "c")[0] == 1
    assert synchronizer.bytes_written_since_compaction() > size
    assert client.get_mark() is None
    synchronizer.compact(lambda state: SetText(state.value))
    assert synchronizer.bytes_written_since_compaction() == 0 and value_of(synchronizer) == "c"
    first = client.get_mark()
    assert first is not None and client.fetch_oldest_revision().offset == 0, "truncated by the next compaction"
    assert len(list(client.read_from(first))) == 1
    assert update(synchronizer, "e") == (2, "c"), "as in the original: the compacted state is fetched first"
    assert synchronizer.bytes_written_since_compaction() == size
    synchronizer.compact(lambda state: SetText(state.value))
    assert client.fetch_oldest_revision() == first != client.get_mark()
    late = text_of(manager)
    late.fetch_updates()
    assert value_of(late) == "e"


def test_compactions_of_two_with_truncations(manager: StreamManager) -> None:
    a, b = text_of(manager), text_of(manager)
    a.initialize(SetText("a"))
    b.initialize(SetText("b"))
    assert update(a, "b")[0] == 1
    b.fetch_updates()
    size = a.bytes_written_since_compaction()
    for value in ("c", "d", "e"):
        assert update(a, value)[0] == 1
        assert value_of(b) != value
        b.fetch_updates()
        assert value_of(b) == value and a.bytes_written_since_compaction() > size
    update(a, "f")
    calls: list[str] = []

    def compactor(state: Text) -> SetText:
        calls.append(state.value)
        return SetText(state.value)

    b.compact(compactor)
    assert calls == ["e", "f"] and b.bytes_written_since_compaction() == 0 and value_of(b) == "f"
    assert update(a, "g") == (2, "f") and a.bytes_written_since_compaction() == size
    assert update(a, "h") == (1, "g")
    a.compact(compactor)
    assert calls == ["e", "f", "h"] and value_of(a) == "h"
    b.fetch_updates()
    assert value_of(b) == "h" and a.bytes_written_since_compaction() == 0


def test_who_was_away_for_several_compactions_begins_at_the_last(manager: StreamManager) -> None:
    a, away = text_of(manager), text_of(manager)
    a.initialize(SetText("first"))
    away.fetch_updates()
    for number in range(4):
        update(a, f"value {number}")
        a.compact(lambda state: SetText(state.value))
    state = away.get_state()
    assert state is not None
    with pytest.raises(TruncatedData):
        manager.create_revisioned_stream_client("sc", "one").read_from(state.revision)
    away.fetch_updates()
    assert value_of(away) == "value 3" and update(away, "goes on")[1] == "value 3"


def test_a_set(manager: StreamManager) -> None:
    one, two = set_of(manager), set_of(manager)
    for each in (one, two):
        each.initialize(Begin())
    add(one, "Foo")
    add(two, "Bar")
    one.fetch_updates()
    assert members(one) == {"Foo", "Bar"}
    one.compact(lambda state: Begin())
    one.fetch_updates()
    assert members(one) == set()
    add(one, "Baz")
    two.fetch_updates()
    assert members(two) == {"Baz"}
    two.update_state(lambda state, updates: updates.append(Change(removed=frozenset({"Baz"}))))
    one.fetch_updates()
    assert members(one) == set()
    three = set_of(manager)
    three.fetch_updates()
    assert members(three) == set()


def test_all_that_is_there_is_fetched(manager: StreamManager) -> None:
    one, two = set_of(manager), set_of(manager)
    one.initialize(Begin())
    for number in range(10):
        add(one, str(number))
    two.initialize(Begin())
    assert len(members(two)) == 10
    for number in range(10, 20):
        add(one, str(number))
    two.fetch_updates()
    assert len(members(two)) == 20


def members(synchronizer: StateSynchronizer[Members]) -> set[str]:
    state = synchronizer.get_state()
    assert state is not None
    return set(state.values)


def test_updates_that_are_written_together_and_unconditionally(manager: StreamManager) -> None:
    a, b = set_of(manager), set_of(manager)
    a.initialize(Begin())
    a.update_state_unconditionally(Change(frozenset({"x"})))
    assert members(a) == set(), "not before it is fetched"
    a.update_state_unconditionally([Change(frozenset({"y"})), Change(removed=frozenset({"x"}))])
    b.fetch_updates()
    a.fetch_updates()
    assert members(a) == members(b) == {"y"}
    state = a.get_state()
    assert state is not None and state.revision.event_at_offset == 1, "the second update of an event"
    assert add(b, "p", "q") == 1 and add(a, "r") == 2 and members(a) == {"y", "p", "q", "r"}


def test_a_blocking_update_blocks_no_reader_of_the_state(manager: StreamManager) -> None:
    started, go_on = threading.Event(), threading.Event()
    applied: list[str] = []

    @dataclass(frozen=True)
    class Blocking(SetText):
        def apply_to(self, old_state: Text, new_revision: Revision) -> Text:
            applied.append(self.value)
            started.set()
            assert go_on.wait(30)
            return super().apply_to(old_state, new_revision)

    blocking = Serializer(TEXTS.serialize, lambda data: Blocking(data.decode()))
    a = text_of(manager)
    a.initialize(SetText("a"))
    b: StateSynchronizer[Text] = manager.create_state_synchronizer("sc", "one", blocking, TEXTS)
    b.fetch_updates()
    update(a, "b")
    threads = [threading.Thread(target=b.fetch_updates) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert started.wait(30) and value_of(b) == "a"
    go_on.set()
    for thread in threads:
        thread.join()
    assert value_of(b) == "b" and applied == ["b"]


def test_a_stream_that_cannot_hold_a_state(manager: StreamManager) -> None:
    with pytest.raises(StreamNotFound):
        text_of(manager, "none")
    manager.create_stream("sc", "two", 2)
    with pytest.raises(NotOneSegment):
        text_of(manager, "two")
    a = text_of(manager)
    a.initialize(SetText("a"))
    manager.seal_stream("sc", "one")
    with pytest.raises(StreamSealed):
        update(a, "b")
    with pytest.raises(StreamSealed):
        text_of(manager)


# --- ours -----------------------------------------------------------------------------------------------------------


def test_the_stored_form_is_that_of_the_original(manager: StreamManager) -> None:
    a = text_of(manager)
    a.initialize(SetText("start"))
    a.update_state_unconditionally([SetText("x"), SetText("yz")])
    stored = [event.data for event in manager.read_events("sc", "one")]
    assert stored == [b"\0\0\0\1start", b"\0\0\0\2\0\0\0\1x\0\0\0\2yz"]


def test_an_event_without_updates_changes_nothing(manager: StreamManager) -> None:
    a, b = text_of(manager), text_of(manager)
    a.initialize(SetText("a"))
    b.fetch_updates()
    a.update_state_unconditionally([])
    assert manager.stream_info("sc", "one").events == 1
    with manager.create_writer("sc", "one") as writer:
        writer.write_event_bytes(b"\0\0\0\2")  # as the original's client can write one
    assert update(a, "b") == (2, "a") and update(b, "c") == (2, "b")
    b.compact(lambda state: SetText(state.value))


@pytest.mark.parametrize(
    "event", [b"", b"\0\0", b"\0\0\0\3x", b"an event", b"\0\0\0\2\0\0\0\5x", b"\0\0\0\2\0", struct.pack(">ii", 2, -1)]
)
def test_an_event_that_is_no_update_is_named(manager: StreamManager, event: bytes) -> None:
    a = text_of(manager)
    a.initialize(SetText("a"))
    with manager.create_writer("sc", "one") as writer:
        writer.write_event_bytes(event)
    with pytest.raises(CorruptedState, match=r"The state in stream sc/one cannot be read at revision sc/one/0\.#epoch"):
        a.fetch_updates()
    assert value_of(a) == "a"


def test_a_state_goes_on_when_its_stream_was_scaled(manager: StreamManager) -> None:
    a, b = text_of(manager), text_of(manager)
    a.initialize(SetText("a"))
    b.fetch_updates()
    manager.scale_stream("sc", "one", [0], [(0.0, 1.0)])
    assert update(a, "b") == (1, "a") and update(b, "c") == (2, "b")
    size = b.bytes_written_since_compaction()
    b.compact(lambda state: SetText(state.value))
    update(a, "d")
    a.compact(lambda state: SetText(state.value))
    b.fetch_updates()
    assert value_of(b) == "d" and 0 < b.bytes_written_since_compaction() < size
    late = text_of(manager)
    late.initialize(SetText("late"))
    assert value_of(late) == "d"


def test_a_restored_state_goes_on_and_one_that_knows_more_says_so(tmp_path: Path) -> None:
    source, place = tmp_path / "source", tmp_path / "restored"
    with StreamManager.over(Root.open(str(source), containers=2)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        a = text_of(manager)
        a.initialize(SetText("a"))
        update(a, "b")
        a.compact(lambda state: SetText(state.value))
    flush(source)
    with StreamManager(str(source)) as manager:
        ahead = text_of(manager)
        ahead.fetch_updates()
        update(ahead, "lost")
        state = ahead.get_state()
    restored(source, place)
    with StreamManager(str(place)) as manager:
        b = text_of(manager)
        b.fetch_updates()
        assert value_of(b) == "b"
        assert update(b, "c") == (1, "b")
        assert state is not None
        with pytest.raises(PositionLost):
            manager.create_revisioned_stream_client("sc", "one").read_from(state.revision)


def test_wrong_arguments_and_the_end(manager: StreamManager) -> None:
    with text_of(manager) as a:
        with pytest.raises(TypeError, match="initialize: initial must be an InitialUpdate, not 'a'"):
            a.initialize("a")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="compact: compactor must be a Callable"):
            a.compact("a")  # type: ignore[arg-type]
        a.initialize(SetText("a"))
    assert value_of(a) == "a" and isinstance(SetText("a"), InitialUpdate) and isinstance(SetText("a"), Update)
    with pytest.raises(Closed):
        a.fetch_updates()


# --- several at once ------------------------------------------------------------------------------------------------


def _add_in_process(root: str, names: list[str]) -> None:
    with StreamManager(root) as manager:
        mine = set_of(manager)
        for number, name in enumerate(names):
            add(mine, name)
            if number % 4 == 3:
                mine.compact(lambda state: Begin(state.values))


def test_processes_that_change_and_compact_one_state(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with StreamManager(root) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        mine = set_of(manager)
        mine.initialize(Begin())
        names = [[f"{who}-{number}" for number in range(8)] for who in range(3)]
        with multiprocessing.get_context("spawn").Pool(3) as pool:
            pool.starmap(_add_in_process, [(root, each) for each in names])
        mine.fetch_updates()
        assert members(mine) == {name for each in names for name in each}


def test_threads_that_change_one_state(manager: StreamManager) -> None:
    shared = set_of(manager)
    shared.initialize(Begin())
    rng = random.Random(7)
    names = [[f"{who}-{number}" for number in range(10)] for who in range(3)]

    def work(mine: list[str], own: StateSynchronizer[Members], compacting: bool) -> None:
        for name in mine:
            add(own, name)
            if compacting:
                own.compact(lambda state: Begin(state.values))

    threads = [
        threading.Thread(target=work, args=(each, shared if rng.random() < 0.5 else set_of(manager), number == 0))
        for number, each in enumerate(names)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.fetch_updates()
    assert members(shared) == {name for each in names for name in each}


class TwoSynchronizers(RuleBasedStateMachine):
    """Two processes with a synchronizer each, against a set and what each has seen of it."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation()
        first = process(self.simulation)
        first.create_scope("sc")
        first.create_stream("sc", "one")
        self.managers = [first, process(self.simulation)]
        self.both = [set_of(each) for each in self.managers]
        self.model: set[str] = set()
        self.seen: list[set[str] | None] = [None, None]

    @initialize(who=st.integers(0, 1))
    def begin(self, who: int) -> None:
        self.both[who].initialize(Begin(frozenset({"first"})))
        self.model = {"first"}
        self.seen[who] = {"first"}

    @rule(who=st.integers(0, 1), names=st.sets(st.sampled_from("abcdef"), max_size=3), remove=st.booleans())
    def change(self, who: int, names: set[str], remove: bool) -> None:
        def generate(state: Members, updates: list[Any]) -> frozenset[str]:
            for name in sorted(names):
                each = frozenset({name})
                updates.append(Change(removed=each) if remove else Change(each))
            return state.values

        before = self.both[who].update_state(generate)
        if names:
            assert before == self.model, "the generator that counts got the present state"
            self.model = self.model - names if remove else self.model | names
        self.seen[who] = set(self.model) if names or self.seen[who] is None else self.seen[who]

    @rule(who=st.integers(0, 1), name=st.sampled_from("abcdef"))
    def write(self, who: int, name: str) -> None:
        self.both[who].update_state_unconditionally(Change(frozenset({name})))
        self.model.add(name)

    @rule(who=st.integers(0, 1))
    def fetch(self, who: int) -> None:
        self.both[who].fetch_updates()
        self.seen[who] = set(self.model)

    @rule(who=st.integers(0, 1), names=st.sets(st.sampled_from("xyz"), max_size=1))
    def compact(self, who: int, names: set[str]) -> None:
        self.both[who].compact(lambda state: Begin(state.values))
        self.seen[who] = set(self.model)

    @rule(who=st.integers(0, 1))
    def restart(self, who: int) -> None:
        self.managers[who] = process(self.simulation)
        self.both[who] = set_of(self.managers[who])
        self.seen[who] = None

    @rule(who=st.integers(0, 1))
    def flush(self, who: int) -> None:
        self.managers[who].root.container(0).flush()

    @rule(who=st.integers(0, 1))
    def scale(self, who: int) -> None:
        [segment] = self.managers[who].stream_info("sc", "one").segments
        self.managers[who].scale_stream("sc", "one", [segment.id], [(0.0, 1.0)])

    @invariant()
    def the_states_in_memory_are_what_was_seen(self) -> None:
        for synchronizer, seen in zip(self.both, self.seen, strict=True):
            state = synchronizer.get_state()
            assert (set(state.values) if state is not None else None) == seen

    def teardown(self) -> None:
        late = set_of(process(self.simulation))
        late.fetch_updates()
        state = late.get_state()
        if self.model:
            assert state is not None and set(state.values) == self.model
        container = self.managers[0].root.container(0)
        audit(container.state)
        assert verify_root(self.managers[0].root, deep=True).errors == 0


TestTwoSynchronizers = TwoSynchronizers.TestCase
TestTwoSynchronizers.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
