"""Key-value tables: what the tests of Pravega's client expect (KeyValueTableTestBase, KeyValueTableIteratorImplTests,
KeyValueTableManagerImplTest), and what must hold of ours: order, bounded reads, space, backups, deletions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.root import Root
from engine.state.tables import RESIDENT_BYTES
from pravega_spark import (
    BadKeyVersion,
    Closed,
    ConditionalTableUpdateFailed,
    Insert,
    KeyValueTableConfiguration,
    KeyValueTableNotFound,
    KeyValueTableRecreated,
    NoSuchKey,
    Put,
    Remove,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamManager,
    TableEntry,
    TableKey,
    Version,
)
from pravega_spark.checks import verify_root
from pravega_spark.client.key_value_table import KeyValueTable
from pravega_spark.streams.model.key_value_table import partition_of
from tests.client.large_events.simulated import process
from tests.support.limits import resident_bytes
from tests.support.simulation import Simulation, audit, small_sizes

CONFIGURATION = KeyValueTableConfiguration(partition_count=4, primary_key_length=4, secondary_key_length=2)
MOST = (1 << 20) - 8192


def key(primary: int, secondary: int = 0) -> TableKey:
    return TableKey(b"%04d" % primary, b"%02d" % secondary)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(str(tmp_path / "root")) as opened:
        opened.create_scope("sc")
        opened.create_key_value_table("sc", "kvt", CONFIGURATION)
        yield opened


@pytest.fixture
def table(manager: StreamManager) -> KeyValueTable:
    return manager.key_value_table("sc", "kvt")


def flush(manager: StreamManager) -> None:
    for number in range(manager.root.config.containers):
        manager.root.container(number).flush()


# --- tables ---------------------------------------------------------------------------------------------------------


def test_tables_of_scopes(manager: StreamManager) -> None:
    assert manager.create_key_value_table("sc", "kvt", KeyValueTableConfiguration(1, 1)) is False
    assert manager.create_key_value_table("sc", "another", KeyValueTableConfiguration(1, 1, 0, 1 << 20)) is True
    manager.create_scope("other")
    assert manager.create_key_value_table("other", "kvt", KeyValueTableConfiguration(2, 8)) is True
    assert manager.list_key_value_table("sc") == ["another", "kvt"]
    assert manager.list_key_value_table("other") == ["kvt"]
    assert manager.key_value_table_exists("sc", "kvt") and not manager.key_value_table_exists("sc", "none")
    info = manager.key_value_table_info("sc", "another")
    assert (info.scope, info.table, info.entries) == ("sc", "another", 0)
    assert info.configuration == KeyValueTableConfiguration(1, 1, 0, 1 << 20)
    assert manager.key_value_table("sc", "kvt").configuration == CONFIGURATION
    with pytest.raises(ScopeNotFound):
        manager.create_key_value_table("none", "kvt", CONFIGURATION)
    with pytest.raises(ScopeNotFound):
        manager.list_key_value_table("none")
    with pytest.raises(KeyValueTableNotFound, match="Did you mean 'sc/kvt'"):
        manager.key_value_table("sc", "kvtt")
    with pytest.raises(ValueError, match="key-value table name"):
        manager.create_key_value_table("sc", "_kvt", CONFIGURATION)
    manager.create_stream("sc", "kvt")  # names of streams are other names
    assert manager.list_stream("sc") == ["kvt"]


def test_a_scope_with_tables_is_not_deleted(manager: StreamManager) -> None:
    with pytest.raises(ScopeNotEmpty, match="Delete its key-value tables first: kvt"):
        manager.delete_scope("sc")
    assert manager.delete_key_value_table("sc", "kvt") is True
    assert manager.delete_key_value_table("sc", "kvt") is False
    assert manager.delete_scope("sc") is True


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((0, 4), "partition_count must be 1 to"),
        ((1, 0), "primary_key_length must be 1 to 256, not 0"),
        ((1, 257), "primary_key_length must be 1 to 256, not 257"),
        ((1, 200, 57), "secondary_key_length must be 0 to 56, not 57"),
        ((1, 4, -1), "secondary_key_length must be 0 to 252, not -1"),
        ((1, 4, 2, -1), "rollover_size_bytes must be 0 to"),
    ],
)
def test_impossible_configurations_are_refused(sizes: tuple[int, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        KeyValueTableConfiguration(*sizes)


def test_the_length_of_a_key_is_that_of_its_parts(table: KeyValueTable) -> None:
    assert table.configuration.key_length == 6 and len(key(1).primary + key(1).secondary) == 6
    assert KeyValueTableConfiguration(1, 16).key_length == 16


def test_keys_of_256_bytes(manager: StreamManager) -> None:
    manager.create_key_value_table("sc", "long", KeyValueTableConfiguration(1, 200, 56))
    long = manager.key_value_table("sc", "long")
    keys = [TableKey(bytes([byte]) * 200, bytes([255 - byte]) * 56) for byte in (0, 9, 255)]
    for each in keys:
        long.put(each, each.secondary)
    flush(manager)
    assert [(entry.key, entry.value) for entry in long.entries()] == [(each, each.secondary) for each in keys]


def test_a_table_is_there_after_reopening(tmp_path: Path) -> None:
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_key_value_table("sc", "kvt", CONFIGURATION)
        version = manager.key_value_table("sc", "kvt").put(key(1), b"value")
    with StreamManager(str(tmp_path)) as manager:
        assert manager.key_value_table("sc", "kvt").get(key(1)) == TableEntry(*key(1), b"value", version)
        table = manager.key_value_table("sc", "kvt")
    with pytest.raises(Closed):
        table.get(key(1))


def test_a_deleted_table_and_another_one_of_its_name(manager: StreamManager, table: KeyValueTable) -> None:
    version = table.put(key(1), b"old")
    manager.delete_key_value_table("sc", "kvt")
    calls: list[Callable[[], Any]] = [
        lambda: table.put(key(1), b"x"),
        lambda: table.remove(key(1)),
        lambda: table.get(key(1)),
        lambda: list(table.entries()),
    ]
    for call in calls:
        with pytest.raises(KeyValueTableNotFound):
            call()
    manager.create_key_value_table("sc", "kvt", CONFIGURATION)
    for call in calls:
        with pytest.raises(KeyValueTableRecreated):
            call()
    again = manager.key_value_table("sc", "kvt")
    assert list(again.entries()) == []
    with pytest.raises(NoSuchKey):
        again.replace(key(1), b"new", version)
    with pytest.raises(BadKeyVersion):
        again.put(key(1), b"new", again.put(key(1), b"first")._replace(number=version.number))


def test_an_update_in_the_moment_of_a_deletion_changes_no_other_table() -> None:
    """Another process deletes the table, and creates it again, after this one has looked at it."""
    simulation = Simulation()
    manager, other = process(simulation), process(simulation)
    manager.create_scope("sc")
    manager.create_key_value_table("sc", "kvt", CONFIGURATION)
    table = manager.key_value_table("sc", "kvt")
    other.delete_key_value_table("sc", "kvt")
    with pytest.raises(KeyValueTableNotFound):
        table.put(key(1), b"lost")
    tables = manager.root.container(0).refresh().tables
    assert not any(name.startswith("_kvt/") for name in tables), "the update has begun a table"
    other.create_key_value_table("sc", "kvt", CONFIGURATION)
    with pytest.raises(KeyValueTableRecreated):
        table.put(key(1), b"lost")
    assert list(other.key_value_table("sc", "kvt").keys()) == []


# --- single keys (KeyValueTableTestBase) ------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["in the log", "flushed"])
def settled(request: pytest.FixtureRequest, manager: StreamManager, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Brings what was written to long-term storage, and out of memory; or nothing."""
    resident_bytes(monkeypatch, 0)
    return (lambda: flush(manager)) if request.param else (lambda: None)


def test_conditional_inserts(table: KeyValueTable, settled: Callable[[], None]) -> None:
    versions = {key(p, s): table.insert(key(p, s), b"%d-%d" % (p, s)) for p in range(4) for s in range(3)}
    settled()
    for each in versions:
        with pytest.raises(BadKeyVersion) as caught:
            table.insert(each, b"again")
        assert (caught.value.key, caught.value.expected) == (each, "")
        with pytest.raises(BadKeyVersion):
            table.put(each, b"again", Version.NOT_EXISTS)
    assert {entry.key: entry.version for entry in table.entries()} == versions
    assert {version.partition for version in versions.values()} <= set(range(4))


def test_updates_and_replacements(table: KeyValueTable, settled: Callable[[], None]) -> None:
    first = {key(p): table.put(key(p), b"first") for p in range(6)}
    settled()
    for each, version in first.items():
        for wrong in (
            version._replace(number=version.number + 1),
            version._replace(partition=version.partition + 1),
            Version(version.partition + 1, version.number + 1),
        ):
            with pytest.raises(BadKeyVersion) as caught:
                table.replace(each, b"wrong", wrong)
            assert caught.value.expected == wrong.as_text()
            with pytest.raises(BadKeyVersion):
                table.remove(each, wrong)
        second = table.replace(each, b"second", version)
        assert second.number > version.number and second.partition == version.partition
        assert table.get(each) == TableEntry(*each, b"second", second)
        with pytest.raises(BadKeyVersion, match=f"has version {second.as_text()}, but version {version.as_text()} was"):
            table.replace(each, b"third", version)
        assert table.put(each, b"whatever").number > second.number


def test_removals(table: KeyValueTable, settled: Callable[[], None]) -> None:
    versions = {key(p): table.put(key(p), b"value") for p in range(4)}
    settled()
    table.remove(key(0), versions[key(0)])
    table.remove(key(1))
    table.remove(key(9))  # it never existed
    table.remove(key(9), Version.NOT_EXISTS)
    with pytest.raises(BadKeyVersion):
        table.remove(key(2), Version.NOT_EXISTS)
    for gone in (0, 1, 9):
        with pytest.raises(NoSuchKey) as caught:
            table.remove(key(gone), Version(partition_of(CONFIGURATION, key(gone).primary), versions[key(0)].number))
        assert isinstance(caught.value, ConditionalTableUpdateFailed)
        assert pickle.loads(pickle.dumps(caught.value)).expected == caught.value.expected
        assert table.get(key(gone)) is None and not table.exists(key(gone))
    settled()
    assert list(table.keys()) == [key(2), key(3)] and table.exists(key(2))
    assert table.insert(key(0), b"again").number > versions[key(3)].number


def test_several_keys_of_one_primary_key(table: KeyValueTable, settled: Callable[[], None]) -> None:
    versions = table.update([Insert(key(1, s), b"%d" % s) for s in range(5)])
    settled()
    assert len(versions) == 5 and sorted(set(versions)) == versions
    mixed: list[Put | Insert | Remove] = [
        Put(key(1, 0), b"x", versions[0]),
        Put(key(1, 1), b"y"),
        Insert(key(1, 9), b"z"),
    ]
    wrongs: list[Put | Insert | Remove] = [
        Insert(key(1, 4), b"there"),
        Put(key(1, 4), b"old", versions[3]),
        Put(key(1, 8), b"", versions[0]),
    ]
    for wrong in wrongs:
        with pytest.raises(ConditionalTableUpdateFailed) as caught:
            table.update([*mixed, wrong])
        assert caught.value.key == wrong.key
        assert [entry.value for entry in table.entries()] == [b"0", b"1", b"2", b"3", b"4"], "all or nothing"
    after = table.update(mixed)
    assert [entry.version for entry in table.get_all([key(1, 0), key(1, 1), key(1, 9)]) if entry] == after
    with pytest.raises(BadKeyVersion):
        table.update([Remove(key(1, 2)), Remove(key(1, 0), versions[0])])
    assert table.update([Remove(key(1, 2)), Remove(key(1, 0), after[0])]) == []
    assert table.update([]) == [] and table.update(Remove(key(1, 3))) == []
    assert list(table.keys()) == [key(1, 1), key(1, 4), key(1, 9)]


def test_updates_that_cannot_be_atomic_are_refused(table: KeyValueTable) -> None:
    with pytest.raises(ValueError, match="the same primary key"):
        table.update([Put(key(1), b""), Put(key(2), b"")])
    with pytest.raises(ValueError, match="both put and remove"):
        table.update([Put(key(1), b""), Remove(key(1, 1))])
    with pytest.raises(TypeError, match="must be a Put, an Insert or a Remove, not 'text'"):
        table.update(["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Put: the value must be bytes, not str"):
        table.update(Put(key(1), "text"))  # type: ignore[arg-type]
    assert list(table.entries()) == []


def test_wrong_lengths_are_refused(table: KeyValueTable) -> None:
    for primary, secondary, told in (
        (b"123", b"12", "primary key b'123' has 3 bytes, where 4 are due"),
        (b"12345", b"12", "primary key b'12345' has 5 bytes, where 4 are due"),
        (b"1234", b"1", "secondary key b'1' has 1 bytes, where 2 are due"),
        (b"1234", b"123", "secondary key b'123' has 3 bytes, where 2 are due"),
        (b"1234", b"", "secondary key b'' has 0 bytes, where 2 are due"),
    ):
        wrong = TableKey(primary, secondary)
        calls: list[Callable[[TableKey], Any]] = [
            lambda key: table.put(key, b""),
            lambda key: table.insert(key, b""),
            table.remove,
            table.get,
            lambda key: table.keys(after=key),
        ]
        for call in calls:
            with pytest.raises(ValueError, match=told):
                call(wrong)
    table.put(key(1), bytes(MOST))
    found = table.get(key(1))
    assert found is not None and found.value == bytes(MOST)
    with pytest.raises(ValueError, match=f"a value has {MOST + 1} bytes; {MOST} are possible"):
        table.put(key(1), bytes(MOST + 1))
    with pytest.raises(ValueError, match="keys and values of one update have"):
        table.update([Put(key(1, s), bytes(MOST)) for s in range(33)])


def test_a_table_without_secondary_keys(manager: StreamManager) -> None:
    manager.create_key_value_table("sc", "plain", KeyValueTableConfiguration(1, 3))
    plain = manager.key_value_table("sc", "plain")
    version = plain.put(b"abc", b"value")
    assert plain.get(b"abc") == plain.get(TableKey(b"abc")) == TableEntry(b"abc", b"", b"value", version)
    assert list(plain.keys(b"abc")) == [TableKey(b"abc")]
    with pytest.raises(ValueError, match="where 0 are due: the table has no secondary keys"):
        plain.get(TableKey(b"abc", b"x"))


def test_many_keys_at_once(table: KeyValueTable, settled: Callable[[], None]) -> None:
    for p in range(30):
        table.put(key(p), b"%d" % p)
    settled()
    wanted = [key(p) for p in (7, 99, 3, 7, *range(30))]
    found = table.get_all(wanted)
    assert [entry.value if entry else None for entry in found[:4]] == [b"7", None, b"3", b"7"]
    assert [entry.key for entry in found[4:] if entry] == wanted[4:]
    assert table.get_all([]) == []


# --- iteration (KeyValueTableIteratorImplTests) -----------------------------------------------------------------------


@pytest.fixture
def filled(table: KeyValueTable, settled: Callable[[], None]) -> KeyValueTable:
    """Half of the entries are older, and there are removed keys among them."""
    for p in (1, 12, 13, 120, 9999):
        table.update([Put(key(p, s), b"old") for s in range(0, 12, 2)])
    settled()
    for p in (1, 12, 13, 120, 9999):
        table.update([Put(key(p, s), b"new") for s in range(1, 12, 2)])
        table.remove(key(p, 2))
    return table


LIVE = [s for s in range(12) if s != 2]
PRIMARIES = [1, 12, 13, 120, 9999]


def test_all_in_order(filled: KeyValueTable) -> None:
    assert list(filled.keys()) == [key(p, s) for p in PRIMARIES for s in LIVE]
    assert [entry.value for entry in filled.entries(b"0012")] == [b"new" if s % 2 else b"old" for s in LIVE]
    found = list(filled.entries())
    assert filled.get_all([entry.key for entry in found]) == found


@pytest.mark.parametrize(
    ("chosen", "due"),
    [
        ({"primary": b"0012"}, [(12, s) for s in LIVE]),
        ({"primary": b"0012", "start": b"01", "end": b"03"}, [(12, 1), (12, 3)]),
        ({"primary": b"0012", "start": b"10"}, [(12, 10), (12, 11)]),
        ({"primary": b"0012", "end": b"02"}, [(12, 0), (12, 1)]),
        ({"primary": b"0012", "prefix": b"1"}, [(12, 10), (12, 11)]),
        ({"primary": b"0012", "prefix": b""}, [(12, s) for s in LIVE]),
        ({"primary": b"0012", "prefix": b"07"}, [(12, 7)]),
        ({"primary": b"0012", "prefix": b"02"}, []),
        ({"primary": b"0077"}, []),
        ({"start": b"0013"}, [(p, s) for p in (13, 120, 9999) for s in LIVE]),
        ({"start": b"0002", "end": b"0013"}, [(p, s) for p in (12, 13) for s in LIVE]),
        ({"end": b"0001"}, [(1, s) for s in LIVE]),
        ({"start": b"0500", "end": b"0400"}, []),
        ({"prefix": b"001"}, [(p, s) for p in (12, 13) for s in LIVE]),
        ({"prefix": b""}, [(p, s) for p in PRIMARIES for s in LIVE]),
        ({"prefix": b"9999"}, [(9999, s) for s in LIVE]),
        ({"after": key(120, 10)}, [(120, 11), *((9999, s) for s in LIVE)]),
        ({"primary": b"0012", "after": key(12, 10)}, [(12, 11)]),
        ({"primary": b"0012", "after": key(13, 0)}, []),
        ({"primary": b"0120", "after": key(13, 0)}, [(120, s) for s in LIVE]),
    ],
)
def test_ranges(filled: KeyValueTable, chosen: dict[str, Any], due: list[tuple[int, int]]) -> None:
    assert list(filled.keys(**chosen)) == [key(*each) for each in due]
    assert [entry.key for entry in filled.entries(**chosen)] == [key(*each) for each in due]


@pytest.mark.parametrize(
    "chosen",
    [
        {"primary": b"123"},
        {"primary": b"12345"},
        {"primary": b"1234", "start": b"123"},
        {"primary": b"1234", "start": b"1"},
        {"primary": b"1234", "end": b"123"},
        {"primary": b"1234", "prefix": b"123"},
        {"start": b"123"},
        {"end": b"12345"},
        {"prefix": b"12345"},
        {"prefix": b"1", "start": b"1234"},
    ],
)
def test_impossible_ranges_are_refused(table: KeyValueTable, chosen: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"bytes|prefix"):
        table.entries(**chosen)


def test_an_iteration_sees_the_moment_of_its_call(table: KeyValueTable, settled: Callable[[], None]) -> None:
    for p in range(50):
        table.put(key(p), b"first")
    settled()
    found = table.entries()
    assert next(found).key == key(0)
    for p in range(50):
        table.put(key(p), b"second")
    table.put(key(90), b"more")
    settled()
    assert [entry.value for entry in found] == [b"first"] * 49


def test_an_iteration_whose_objects_are_deleted_continues_behind_its_last_key() -> None:
    simulation = Simulation()
    with small_sizes(), process(simulation) as manager:
        manager.create_scope("sc")
        manager.create_key_value_table("sc", "kvt", CONFIGURATION)
        table, container = manager.key_value_table("sc", "kvt"), manager.root.container(0)
        for p in range(300):
            table.put(key(p), b"first" * 9)
        container.flush()
        found = table.entries()
        seen = [next(found) for _ in range(40)]
        for turn in range(4):
            for p in range(300):
                table.put(key(p), b"%d" % turn * 9)
            container.flush()
        simulation.advance(700)
        container.flush()
        assert container.collect_garbage() > 0
        seen += list(found)
        assert [entry.key for entry in seen] == [key(p) for p in range(300)]


# --- size and space ---------------------------------------------------------------------------------------------------


def test_entries_leave_memory_and_a_deleted_table_its_space() -> None:
    """Much more than what stays in memory, overwritten several times: what is kept is bounded."""
    simulation = Simulation(flush_bytes=1 << 20, maintenance=True, garbage_delay=10.0, grace=10.0)
    manager = process(simulation)
    manager.create_scope("sc")
    manager.create_key_value_table("sc", "kvt", CONFIGURATION)
    table, container = manager.key_value_table("sc", "kvt"), manager.root.container(0)
    before = sum(len(simulation.store.read(each.path)) for each in simulation.store.list(""))
    value = bytes(range(256)) * 128
    for turn in range(8):
        for p in range(100):
            table.put(key(p), value + b"%d" % turn)
            simulation.advance(1)
        assert container.state.table_bytes < 3 << 20
    container.flush()
    assert sum(each.size for each in container.state.tables.values()) <= RESIDENT_BYTES
    info = manager.key_value_table_info("sc", "kvt")
    live = 100 * len(value)
    assert info.entries == 100 and live < info.stored < 2.5 * live, "superseded entries are compacted"
    audit(container.state)
    manager.delete_key_value_table("sc", "kvt")
    audit(container.state)
    for _ in range(3):
        container.flush()
        simulation.advance(700)
        container.collect_garbage()
        container.checkpoint()
        container.truncate_log()
    after = sum(len(simulation.store.read(each.path)) for each in simulation.store.list(""))
    assert after < before + 10_000, "its space is given back"


def test_many_small_tables_stay_in_memory_together_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    resident_bytes(monkeypatch, 5000)
    manager = process(Simulation())
    manager.create_scope("sc")
    container = manager.root.container(0)
    for number in range(40):
        manager.create_key_value_table("sc", f"t{number}", CONFIGURATION)
        manager.key_value_table("sc", f"t{number}").put(key(1), bytes(500))
        container.flush()
    own = [table for name, table in container.state.tables.items() if name.startswith("_kvt/")]
    assert len(own) == 40 and sum(table.size for table in own) <= 6000
    assert all(manager.key_value_table("sc", f"t{number}").exists(key(1)) for number in range(40))


# --- backups, recovery, verification ----------------------------------------------------------------------------------


def test_a_backup_has_the_tables(tmp_path: Path, manager: StreamManager, table: KeyValueTable) -> None:
    due = {key(p, s): table.put(key(p, s), b"%d" % p) for p in range(40) for s in range(3)}
    manager.backup(tmp_path / "backup")
    table.put(key(77), b"later")
    StreamManager.restore(tmp_path / "backup", tmp_path / "restored")
    with StreamManager(str(tmp_path / "restored")) as other:
        assert other.list_key_value_table("sc") == ["kvt"]
        again = other.key_value_table("sc", "kvt")
        assert {entry.key: entry.version for entry in again.entries()} == due
        lost = table.put(key(1, 1), b"in the other root")
        with pytest.raises(BadKeyVersion):
            again.replace(key(1, 1), b"x", lost)
        assert again.put(key(5), b"goes on").number > lost.number
        assert not list(verify_root(other.root, deep=True).findings)


def test_verify_counts_tables_and_finds_damage(tmp_path: Path, manager: StreamManager, table: KeyValueTable) -> None:
    for p in range(20):
        table.put(key(p), b"value" * 100)
    flush(manager)
    report = verify_root(manager.root, deep=True)
    assert not list(report.findings)
    assert sum(scan.entries for scan, _ in report.containers) >= 20
    container = next(c for c in map(manager.root.container, range(4)) if any("_kvt" in name for name in c.state.tables))
    [name] = [name for name in container.state.tables if name.startswith("_kvt/sc/kvt/")]
    [(_, extent), *_] = list(container.state.tables[name].entries)
    path = tmp_path / "root" / str(extent.source)
    data = bytearray(path.read_bytes())
    data[extent.position + 30] ^= 1
    path.write_bytes(data)
    with Root.open(str(tmp_path / "root")) as other:
        problems = list(verify_root(other, deep=True).findings)
    assert any(name in str(problem) for problem in problems)


def test_a_damaged_record_is_listed_reported_and_can_be_deleted(manager: StreamManager) -> None:
    for number in range(4):
        container = manager.root.container(number)
        if any(name.startswith("_kvt/") for name in container.state.tables):
            container.put_entries("_system/key_value_tables", {"sc/kvt": b"\x93nonsense"})
    assert manager.list_key_value_table("sc") == ["kvt"]
    with pytest.raises(Exception, match="key-value table sc/kvt: its record: it cannot be understood"):
        manager.key_value_table("sc", "kvt")
    problems = list(verify_root(manager.root).findings)
    assert any("kvt delete sc/kvt --yes" in str(problem) for problem in problems)
    assert manager.delete_key_value_table("sc", "kvt") and manager.list_key_value_table("sc") == []


# --- against a dictionary ---------------------------------------------------------------------------------------------

PRIMARY, SECONDARY = st.integers(0, 3), st.integers(0, 2)
VALUES = st.binary(max_size=40)


class Machine(RuleBasedStateMachine):
    """A table and a dictionary with versions get the same calls, while it is flushed, collected and reopened."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = small_sizes()
        self.sizes.__enter__()
        self.model: dict[TableKey, tuple[bytes, Version]] = {}
        self.simulation = Simulation()
        self.newest = -1

    def teardown(self) -> None:
        self.sizes.__exit__(None, None, None)

    @initialize()
    def begin(self) -> None:
        self.manager = process(self.simulation)
        self.manager.create_scope("sc")
        self.create()

    def create(self) -> None:
        assert self.manager.create_key_value_table("sc", "kvt", CONFIGURATION)
        self.table = self.manager.key_value_table("sc", "kvt")

    def expected_of(self, draw: st.DataObject, each: TableKey) -> Version | None:
        there = self.model.get(each)
        some = [None, Version.NOT_EXISTS, Version(0, 5)] + ([there[1]] * 3 if there else [])
        return draw.draw(st.sampled_from(some))

    def problem(self, each: TableKey, expected: Version | None) -> type[Exception] | None:
        """What the original does."""
        there = self.model.get(each)
        if expected is None or expected == (there[1] if there else Version.NOT_EXISTS):
            return None
        wrong_partition = expected.partition not in (-1, partition_of(CONFIGURATION, each.primary))
        return NoSuchKey if there is None and not wrong_partition else BadKeyVersion

    @rule(data=st.data(), primary=PRIMARY, seconds=st.lists(SECONDARY, min_size=1, max_size=3, unique=True))
    def update(self, data: st.DataObject, primary: int, seconds: list[int]) -> None:
        removing, changes, after, problem = data.draw(st.booleans()), [], dict(self.model), None
        for second in seconds:
            each, value = key(primary, second), data.draw(VALUES)
            expected = self.expected_of(data, each)
            change: Any = Remove(each, expected) if removing else Put(each, value, expected)
            if not removing and expected == Version.NOT_EXISTS:
                change = Insert(each, value)
            changes.append(change)
            problem = problem or self.problem(each, expected)
            if removing:
                after.pop(each, None)
            else:
                after[each] = (value, Version.NOT_EXISTS)
        if problem is not None:
            with pytest.raises(ConditionalTableUpdateFailed):
                self.table.update(changes)
            return
        versions = self.table.update(changes)
        self.model = after
        for change, version in zip(changes, versions, strict=not removing):
            assert version.number > self.newest, "a version was given twice"
            self.newest = version.number
            self.model[change.key] = (change.value, version)

    @rule(data=st.data(), primary=PRIMARY)
    def scan(self, data: st.DataObject, primary: int) -> None:
        low, high = sorted(data.draw(st.tuples(SECONDARY, SECONDARY)))
        found = [
            (e.key, (e.value, e.version))
            for e in self.table.entries(b"%04d" % primary, start=b"%02d" % low, end=b"%02d" % high)
        ]
        due = [(k, v) for k, v in sorted(self.model.items()) if key(primary, low) <= k <= key(primary, high)]
        assert found == due
        after = key(primary, low)
        assert list(self.table.keys(after=after)) == [each for each in sorted(self.model) if each > after]

    @rule()
    def flush(self) -> None:
        self.manager.root.container(0).flush()

    @rule()
    def collect(self) -> None:
        self.simulation.advance(700)
        self.manager.root.container(0).flush()
        self.manager.root.container(0).collect_garbage()

    @rule()
    def reopen(self) -> None:
        self.manager = process(self.simulation)
        self.table = self.manager.key_value_table("sc", "kvt")

    @rule()
    @precondition(lambda self: self.model)
    def recreate(self) -> None:
        old = self.table
        assert self.manager.delete_key_value_table("sc", "kvt")
        self.create()
        self.model = {}
        with pytest.raises(KeyValueTableRecreated):
            old.get(key(1))

    @invariant()
    def everything_is_there(self) -> None:
        if hasattr(self, "table"):
            found = {entry.key: (entry.value, entry.version) for entry in self.table.entries()}
            assert found == self.model and list(found) == sorted(found)
            audit(self.manager.root.container(0).state)


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestMachine = Machine.TestCase
