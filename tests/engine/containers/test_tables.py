"""Tables of a container, the attributes that spill into them, and many segments."""

import pytest

from chunkstore.testing import CountingStore
from engine.containers.container import Container
from engine.errors import BadAttributeUpdate, BadKeyVersion, SegmentExists, SegmentNotFound
from engine.logs import validation
from engine.state.changes.apply import apply_operation
from engine.state.changes.draft import StateDraft
from engine.state.operations import Append, AttributeUpdate, CreateSegment, Operation, Payload, UpdateKind
from engine.state.segments import CREATION_TIME, EVENT_COUNT, NULL_VALUE
from engine.state.state import ATTRIBUTES_GARBAGE
from engine.state.tables import ATTRIBUTES, attribute_key
from engine.writer import storage_writer
from tests.engine.containers.segments import Opener, append, content
from tests.support import limits
from tests.support.container_model import contents_of
from tests.support.simulation import Simulation, audit

# --- tables ----------------------------------------------------------------------------------------------------------


def entries_of(container: Container, table: str, prefix: str = "") -> dict[str, bytes | None]:
    """A table's entries as a scan shows them, each once."""
    found = list(container.scan_entries(table, prefix))
    assert len(dict(found)) == len(found), "an entry was met twice"
    assert all(container.entry(table, key) == entry for key, entry in found)
    return {key: entry.value for key, entry in found}


def test_versions_of_entries(opened: Opener, tables_of_size: str) -> None:
    container, other = opened(), opened()
    versions = container.put_entries("t", {"k": b"1", "l": b"2"})
    assert list(versions) == ["k", "l"] and versions["k"] < versions["l"]
    assert container.entry("t", "k") == (b"1", versions["k"])
    assert container.entry("t", "none") is None and container.entry("none", "k") is None
    for number, flushed in enumerate((False, True, True)):
        if flushed:
            container.flush()
        with pytest.raises(BadKeyVersion) as error:
            other.put_entries("t", {"k": b"x"}, {"k": versions["k"] - 1})
        assert (error.value.key, error.value.actual) == ("k", versions["k"])
        before = versions["k"]
        versions |= other.put_entries("t", {"k": b"new %d" % number}, {"k": versions["k"]})
        assert versions["k"] > before, "a version is never given twice"
        container.refresh()
        assert container.entries("t", ["k", "l", "none"]) == {
            "k": (b"new %d" % number, versions["k"]),
            "l": (b"2", versions["l"]),
            "none": None,
        }
    container.flush()
    assert opened().entry("t", "k") == (b"new 2", versions["k"])


def test_entries_that_must_be_absent(opened: Opener, tables_of_size: str) -> None:
    container, other = opened(), opened()
    container.put_entries("t", {"k": b"1"}, {"k": -1})
    for flushed in (False, True):
        if flushed:
            container.flush()
        for process in (container, other, opened()):
            with pytest.raises(BadKeyVersion):
                process.put_entries("t", {"k": b"2"}, {"k": -1})
            with pytest.raises(BadKeyVersion):
                process.put_entries("t", {"new": b"2"}, {"k": -1})
            process.put_entries("t", {"checked": b"2"}, {"none": -1, "other": -1})
    container.put_entries("t", {"k": None})
    assert other.refresh() and other.entry("t", "k") is None
    for flushed in (False, True):
        if flushed:
            container.flush()
        with pytest.raises(BadKeyVersion):
            container.put_entries("t", {"k": b"2"}, {"k": 1})
        other.put_entries("t", {"k": b"3"}, {"k": -1})
        other.put_entries("t", {"k": None})
    assert entries_of(opened(), "t") == {"checked": b"2"}


def test_batches_of_entries_are_all_or_nothing(opened: Opener, tables_of_size: str) -> None:
    container = opened()
    versions = container.put_entries("t", {"a": b"1", "b": b"2" * 60})
    container.flush()
    before = contents_of(container)
    batch = {"a": b"x", "new": b"x", "b": None}
    for expected in ({"a": versions["b"]}, {"new": 0}, {"b": -1}, {"a": versions["a"], "none": 1}, {"none": 0}):
        with pytest.raises(BadKeyVersion):
            container.put_entries("t", batch, expected)
        for process in (container, opened()):
            assert contents_of(process) == before
    container.put_entries("t", batch, {"a": versions["a"], "b": versions["b"], "new": -1, "none": -1})
    for process in (container, opened()):
        assert contents_of(process)[1] == {"t": {"a": b"x", "new": b"x"}}


@pytest.mark.parametrize(
    ("key", "value"), [("k" * 8193, b""), ("é" * 4097, b""), ("k", bytes(1 << 20))], ids=["key", "bytes", "value"]
)
def test_keys_and_values_that_are_too_long_are_refused_at_once(key: str, value: bytes) -> None:
    container = Simulation().open()
    with pytest.raises(ValueError, match="are possible at most"):
        container.put_entries("t", {"fits": b"", key: value})
    assert entries_of(container, "t") == {}


def test_scans_with_a_prefix(opened: Opener, tables_of_size: str) -> None:
    container = opened()
    expected: dict[str, bytes] = {}
    for number in range(6):
        changes = {f"{letter}/{number}": b"%d" % number * 9 for letter in "abé"}
        container.put_entries("t", {**changes, "a": None, "a/0": None if number == 4 else b"%d" % number})
        expected |= changes | {"a/0": b"%d" % number}
        if number % 2:
            container.flush()
    expected["a/0"] = b"5"
    for process in (container, opened()):
        for prefix in ("", "a", "a/", "a/0", "é", "b/5", "c", "a/00"):
            wanted = {key: value for key, value in expected.items() if key.startswith(prefix)}
            assert entries_of(process, "t", prefix) == wanted
        assert entries_of(process, "none") == {}


# --- attributes that do not fit into memory --------------------------------------------------------------------------


def attribute(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_attributes_that_spilled_are_found_and_changed(opened: Opener, tables_of_size: str) -> None:
    container, other = opened(), opened()
    container.commit([CreateSegment("s/a"), CreateSegment("s/b")])
    own = storage_writer.CACHED_ATTRIBUTES
    count = own + 50
    updates = [AttributeUpdate(attribute(number), UpdateKind.REPLACE, number) for number in range(1, count)]
    container.update_attributes("s/a", [*updates, AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, 2)])
    container.update_attributes("s/b", [AttributeUpdate(attribute(1), UpdateKind.REPLACE, -1)])
    container.flush()
    expected = {attribute(number): number for number in range(1, count)} | {EVENT_COUNT: 2}
    assert container.info("s/a").spilled and set(container.info("s/a").attributes) == {CREATION_TIME, EVENT_COUNT}
    assert container.info("s/b").spilled == (own == 0)

    def check() -> None:
        for process in (container, other, opened()):
            found = process.attributes("s/a")
            assert found.pop(CREATION_TIME) > 0
            assert found == expected
            asked = [attribute(number) for number in (1, 2, 3, 4, 5, count)] + [EVENT_COUNT]
            assert process.attributes("s/a", asked) == {key: expected[key] for key in asked if key in expected}
            assert process.attributes("s/b", [attribute(1), attribute(2)]) == {attribute(1): -1}
            with pytest.raises(SegmentNotFound):
                process.attributes("s/none")

    check()
    for number, update in enumerate(
        (
            AttributeUpdate(attribute(1), UpdateKind.REPLACE_IF_EQUALS, 11, 1),
            AttributeUpdate(attribute(2), UpdateKind.ACCUMULATE, 20),
            AttributeUpdate(attribute(3), UpdateKind.REPLACE, NULL_VALUE),
            AttributeUpdate(attribute(4), UpdateKind.REPLACE_IF_GREATER, 44),
        ),
        start=1,
    ):
        (container, other)[number % 2].append("s/a", b"x", None, [update])
        expected[attribute(number)] = 11 * number
    del expected[attribute(3)]
    check()
    for update in (
        AttributeUpdate(attribute(1), UpdateKind.NONE, 0),
        AttributeUpdate(attribute(5), UpdateKind.REPLACE_IF_GREATER, 5),
        AttributeUpdate(attribute(3), UpdateKind.REPLACE_IF_EQUALS, 0, 3),
    ):
        with pytest.raises(BadAttributeUpdate):
            other.update_attributes("s/a", [update])
    container.flush()
    check()
    other.update_attributes("s/a", [AttributeUpdate(attribute(3), UpdateKind.NONE, 7)])
    expected[attribute(3)] = 7
    check()
    assert content(opened(), "s/a") == b"xxxx"


@pytest.mark.usefixtures("small")
def test_what_a_deleted_segment_left_in_the_table_of_attributes_is_removed() -> None:
    simulation = Simulation(garbage_delay=100.0)
    container = simulation.open()
    for name in ("s/a", "s/b"):
        container.create_segment(name, [AttributeUpdate(attribute(n), UpdateKind.REPLACE, n) for n in (1, 2)])
    container.flush()
    assert len(entries_of(container, ATTRIBUTES)) == 4
    container.delete("s/a")
    simulation.advance(101)
    container.collect_garbage()
    prefix = attribute_key(container.info("s/b").id, b"")
    assert set(entries_of(container, ATTRIBUTES)) == set(entries_of(container, ATTRIBUTES, prefix))
    assert container.attributes("s/b", [attribute(1), attribute(2)]) == {attribute(1): 1, attribute(2): 2}
    assert not any(garbage.kind == ATTRIBUTES_GARBAGE for garbage in container.state.garbage.values())


# --- many segments ---------------------------------------------------------------------------------------------------


def test_many_segments_are_looked_up_and_deleted_together(opened: Opener, tables_of_size: str) -> None:
    """Most of them are not active."""
    container = opened(active_segments=4)
    names = [f"s/{number}" for number in range(30)]
    container.commit([operation for name in names for operation in (CreateSegment(name), append(name, name.encode()))])
    container.flush()
    assert len(container.state.segments) <= 4
    for process in (container, opened()):
        infos = process.segments.infos([*names, "s/none"])
        assert list(infos) == [*names, "s/none"] and infos["s/none"] is None
        assert [info and (info.name, info.length) for info in infos.values()] == [
            *((name, len(name)) for name in names),
            None,
        ]
        assert [content(process, name) for name in names] == [name.encode() for name in names]
        assert len(process.state.segments) <= 4, "looking is no use of it"
    before = contents_of(container)
    with pytest.raises(SegmentNotFound, match="s/none"):
        container.delete("s/1", "s/2", "s/none", "s/3")
    with pytest.raises(SegmentExists):
        container.create_segment("s/7")
    assert contents_of(container) == before
    container.delete(*names[:20])
    container.append("s/25", b"more", 4)
    container.create_segment("s/3")
    for flushed in (False, True):
        if flushed:
            container.flush()
        for process in (container, opened()):
            infos = process.segments.infos(names)
            assert {name for name, info in infos.items() if info is not None} == {"s/3", *names[20:]}
            assert content(process, "s/25") == b"s/25more" and content(process, "s/3") == b""
    audit(container.refresh())


def counted(count: int, monkeypatch: pytest.MonkeyPatch, active: int) -> tuple[int, int]:
    """The requests and the validated operations of two commits: of as many entries, and of as many segments, that are
    not in memory."""
    simulation = Simulation(active_segments=active)
    with simulation.open() as container:
        versions = container.put_entries("t", {f"key-{number}": b"1" for number in range(count)})
        for number in range(count):
            container.create_segment(f"s{number}")
        container.flush()
        container.checkpoint()
    applied = 0

    def count_it(draft: StateDraft, operation: Operation) -> object:
        nonlocal applied
        applied += 1
        return apply_operation(draft, operation)

    store = CountingStore(simulation.store)
    with simulation.open(through=store) as container:
        assert not container.info("s0").length
        store.reset()
        monkeypatch.setattr(validation, "apply_operation", count_it)
        container.put_entries("t", {f"key-{number}": b"2" for number in range(count)}, versions)
        container.commit([Append(f"s{number}", Payload(b"x")) for number in range(1, count)])
        assert content(container, f"s{count - 1}") == b"x"
        return store.count(), applied


def test_what_a_commit_depends_on_is_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, each key would cost a request, and another validation of all operations before it."""
    limits.resident_bytes(monkeypatch, 0)
    few, many = counted(4, monkeypatch, 1), counted(60, monkeypatch, 1)
    assert many[0] <= few[0] + 6, "blocks of the index are larger"
    assert many[1] <= 6 * 2 * 60
