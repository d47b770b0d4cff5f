"""Entries of tables and their versions."""

from collections.abc import Callable

import pytest

from engine.errors import (
    BadKeyVersion,
    DataCorruption,
    FlushOvertaken,
    TableExists,
    TableNotFound,
    Unresolved,
    WrongKeyLength,
)
from engine.state.changes.apply import apply_operation, replay
from engine.state.changes.draft import StateDraft
from engine.state.operations import (
    BeginCycle,
    CheckEntry,
    CreateTable,
    DeleteTable,
    Operation,
    PutEntry,
    RecordTableFlush,
    decode_transactions,
)
from engine.state.segments import Extent, Extents, FrameRef
from engine.state.tables import (
    ATTRIBUTES,
    Entry,
    attribute_key,
    check_attribute,
    is_created,
    new_table,
    stored_attribute,
)
from engine.writer.table_writer import Dirty
from tests.engine.state.writer import HEADER, Writer, assert_equal, through_checkpoint
from tests.support.simulation import audit, small_sizes


def test_versions_of_entries_are_judged_by_what_long_term_storage_has() -> None:
    with small_sizes():
        writer = Writer()
        (version,) = writer.commit(PutEntry("t", "k", b"v" * 50))
        writer.commit(PutEntry("t", "gone", b"v" * 50))
        writer.flush()
        writer.commit(PutEntry("t", "gone", None))
        writer.flush()
        assert writer.state.tables["t"].dropped and not writer.state.tables["t"].recent
        assert isinstance(version, int)
        with pytest.raises(Unresolved) as missing:
            writer.state.entry("t", "k")
        assert (missing.value.table, missing.value.keys) == ("t", ("k",))
        checks: list[tuple[Callable[[int], Operation], str, int]] = [
            (lambda expected: PutEntry("t", "k", b"new", expected), "k", version),
            (lambda expected: PutEntry("t", "k", None, expected), "k", version),
            (lambda expected: CheckEntry("t", "k", expected), "k", version),
            (lambda expected: PutEntry("t", "gone", b"new", expected), "gone", -1),
            (lambda expected: CheckEntry("t", "none", expected), "none", -1),
        ]
        for make, key, right in checks:
            known = writer.lookups.look_up(writer.state, "t", [key])
            for wrong in {-1, 0, version, version + 1} - {right}:
                with pytest.raises(BadKeyVersion) as error:
                    writer.commit(make(wrong))
                assert (error.value.expected, error.value.actual) == (wrong, right)
            with pytest.raises(Unresolved) as unresolved:
                writer.judge(make(right))
            assert (unresolved.value.table, unresolved.value.keys) == ("t", (key,))
            apply_operation(StateDraft(writer.state, 0, 0, known), make(right))
        writer.judge(PutEntry("t", "k", b"newer"))  # who has no condition need not ask
        with pytest.raises(BadKeyVersion):
            writer.judge(CheckEntry("t", "k", version))
        writer.judge(PutEntry("t", "k", None))
        writer.judge(CheckEntry("t", "k", -1))
        assert writer.entry("t", "k") is None


def test_a_transaction_sees_its_own_entries() -> None:
    writer = Writer()
    (first, _) = writer.commit(PutEntry("t", "k", b"1", -1), PutEntry("t", "k", None, 1))
    assert first == 1 and writer.entry("t", "k") is None
    with pytest.raises(BadKeyVersion):
        writer.commit(PutEntry("t", "k", b"1", -1), PutEntry("t", "k", b"2", -1))
    assert writer.entry("t", "k") is None


def test_what_is_put_or_removed_while_a_table_is_flushed_stays_so(tables_of_size: str) -> None:
    writer = Writer()
    writer.commit(*(PutEntry("t", key, b"old" * 20) for key in "abc"))
    cycle = writer.cycle()
    assert next(cycle) == "begun"
    writer.commit(PutEntry("t", "a", b"new"), PutEntry("t", "b", None), PutEntry("t", "d", b"new"))
    expected = {"a": b"new", "c": b"old" * 20, "d": b"new"}
    assert writer.contents(writer.state)[1] == {"t": expected}
    assert list(cycle)[-1] == "ended"
    assert writer.contents(writer.state)[1] == {"t": expected}
    assert {key for key, _ in writer.state.tables["t"].dirty(writer.state.sequence)} == {"a", "b", "d"}
    writer.flush()
    assert writer.contents(writer.state)[1] == {"t": expected}
    assert not writer.state.tables["t"].dirty(writer.state.sequence)
    audit(writer.state)


@pytest.mark.parametrize("merges", [0, 1, 2, 3])
def test_a_tables_extents_are_merged(merges: int, tables_of_size: str) -> None:
    writer = Writer()
    for number in range(3):
        writer.commit(PutEntry("t", f"k{number}", b"%d" % number * 30), PutEntry("t", "again", b"%d" % number))
        for _ in writer.cycle():
            pass
    before = writer.state.tables["t"]
    assert len(before.entries) == 3
    writer.commit(PutEntry("t", "k3", b"3"), BeginCycle(4))
    writer.commit(RecordTableFlush(4, writer.flushed_tables({"t": Dirty.of(writer.state, "t")}, merges)))
    after = writer.state.tables["t"]
    assert len(after.entries) == 3 - max(merges - 1, 0) + 1
    replaced = {extent.source for _, extent in list(before.entries)[3 - merges :]}
    kept = {extent.source for _, extent in (*after.entries, *after.pages)}
    assert {name for name in writer.state.garbage if name in replaced} == replaced - kept
    assert len(replaced - kept) == merges
    expected = {f"k{number}": b"%d" % number * (30 if number < 3 else 1) for number in range(4)} | {"again": b"2"}
    assert writer.contents(writer.state)[1] == {"t": expected}
    audit(writer.state)
    assert_equal(through_checkpoint(writer.state, 0), writer.state)


def test_extents_that_are_not_those_that_were_merged_stay() -> None:
    writer = Writer()
    for number in range(2):
        writer.commit(PutEntry("t", f"k{number}", b"v"))
        writer.flush()
    writer.commit(PutEntry("t", "k2", b"v"), BeginCycle(3))
    (flushed,) = writer.flushed_tables({"t": Dirty.of(writer.state, "t")}, 2)
    at, (extent,) = flushed.merged_entries
    before = writer.state
    for wrong in (
        flushed._replace(merged_entries=(at + 1, (extent,))),
        flushed._replace(merged_entries=(at, (extent._replace(length=extent.length - 1),))),
        flushed._replace(merged_pages=(at, (extent._replace(length=extent.length + 1),))),
    ):
        with pytest.raises(FlushOvertaken, match="changed while they were merged"):
            writer.commit(RecordTableFlush(3, (wrong,)))
        assert writer.state is before
    writer.commit(RecordTableFlush(3, (flushed,)))


def test_a_flush_of_a_table_is_recorded_once() -> None:
    """The second one would name bytes that lie before the end of the table's entries."""
    writer = Writer()
    writer.commit(PutEntry("t", "k", b"v"), BeginCycle(1))
    flushed = RecordTableFlush(1, writer.flushed_tables({"t": Dirty.of(writer.state, "t")}))
    writer.commit(flushed)
    before = writer.state
    with pytest.raises(FlushOvertaken, match="changed while it was flushed"):
        writer.commit(flushed)
    assert writer.state is before


def test_only_what_fills_the_same_range_is_replaced() -> None:
    """Else bytes of a table would be named twice, or not at all."""
    listed = Extents().appended(0, [Extent("a", 0, 10, b""), Extent("b", 0, 10, b"")])
    for offset, length in ((0, 5), (0, 15), (5, 5), (5, 15), (10, 11), (20, 5)):
        assert listed.replaced(offset, [Extent("c", 0, length, b"")]) is None
        assert Extents().replaced(offset, [Extent("c", 0, length, b"")]) is None
        assert listed.replaced(offset, []) is None
    found = listed.replaced(0, [Extent("c", 0, 10, b"")])
    assert found is not None
    assert [(at, extent.source) for at, extent in found[0]] == [(0, "c"), (10, "b")]


# --- created tables --------------------------------------------------------------------------------------------------


def test_the_bytes_of_created_tables_are_counted_until_a_flush_has_stored_them(tables_of_size: str) -> None:
    writer = Writer()
    writer.commit(CreateTable("t", 2), PutEntry("other", "k", b"not counted"))
    counted = [writer.state.table_bytes]

    def commit(*operations: Operation) -> None:
        writer.commit(*operations)
        audit(writer.state)
        counted.append(writer.state.table_bytes)

    commit(PutEntry("t", "ab", b"123"), PutEntry("t", "cd", b"4"))
    commit(PutEntry("t", "ab", b"12345"))
    commit(PutEntry("t", "ef", None))  # never put
    commit(PutEntry("t", "cd", None))
    cycle = writer.cycle()
    assert next(cycle) == "begun"
    commit(PutEntry("t", "ab", b"1"))
    assert list(cycle)[-1] == "ended"
    audit(writer.state)
    counted.append(writer.state.table_bytes)
    writer.flush()
    commit(PutEntry("t", "ab", b"123456"))
    commit(PutEntry("t", "ab", b"12"))
    commit(DeleteTable("t"))
    assert counted == [0, 8, 10, 10, 9, 5, 3, 8, 4, 0]


def test_an_entry_that_a_flush_has_stored_as_its_last_is_not_counted() -> None:
    writer = Writer()
    writer.commit(CreateTable("t", 2), BeginCycle(1), PutEntry("t", "ab", b"1"))
    dirty = Dirty.of(writer.state, "t")
    writer.commit(RecordTableFlush(1, writer.flushed_tables({"t": dirty})))
    table = writer.state.tables["t"]
    assert table.flushed == table.recent["ab"].version and writer.state.table_bytes == 0
    writer.commit(PutEntry("t", "ab", b"12"))
    assert writer.state.table_bytes == 4
    audit(writer.state)


def test_what_a_created_table_refuses() -> None:
    writer = Writer()
    writer.commit(CreateTable("t", 2), PutEntry("t", "\u00e9", b"2 bytes"), PutEntry("other", "k", b""))
    before = writer.state
    refused: list[tuple[Operation, type[Exception]]] = [
        (CreateTable("t", 2), TableExists),
        (CreateTable("other", 2), TableExists),
        (CreateTable("new", 0), ValueError),
        (DeleteTable("none"), TableNotFound),
        (DeleteTable("other"), TableNotFound),
        (PutEntry("t", "k", b""), WrongKeyLength),
        (PutEntry("t", "\u00e9x", None), WrongKeyLength),
    ]
    for operation, error in refused:
        with pytest.raises(error):
            writer.commit(PutEntry("other", "k", b"new"), operation)
        assert writer.state is before


def test_a_flush_of_a_table_that_was_deleted_meanwhile_stores_nothing_of_it() -> None:
    writer = Writer()
    writer.commit(CreateTable("t", 2), PutEntry("t", "ab", b"1"), PutEntry("u", "k", b"1"), BeginCycle(1))
    dirty = {name: Dirty.of(writer.state, name) for name in ("t", "u")}
    flushed = RecordTableFlush(1, writer.flushed_tables(dirty))
    writer.commit(DeleteTable("t"))
    without = writer.state
    writer.commit(flushed)
    assert "t" not in writer.state.tables and not writer.state.tables["u"].dirty(99)
    audit(writer.state)
    writer.state = without
    writer.commit(CreateTable("t", 3))
    with pytest.raises(FlushOvertaken, match="another length"):
        writer.commit(flushed)


def test_chunks_of_a_deleted_table_are_garbage(tables_of_size: str) -> None:
    writer = Writer()
    writer.commit(CreateTable("t", 2), PutEntry("t", "ab", b"1"))
    writer.flush()
    writer.commit(PutEntry("t", "cd", b"2"))
    table = writer.state.tables["t"]
    chunks = {extent.source for _, extent in (*table.entries, *table.pages)}
    assert chunks <= set(writer.state.chunks)
    writer.commit(DeleteTable("t"))
    assert chunks and chunks <= set(writer.state.garbage) and not chunks & set(writer.state.chunks)
    audit(writer.state)


def test_what_was_validated_once_is_replayed_without_a_look_at_long_term_storage() -> None:
    """Whoever follows the log has not looked anything up: the conditions held when the frame was made."""
    with small_sizes():
        writer = Writer()
        (version,) = writer.commit(PutEntry("t", "k", b"v" * 50))
        writer.flush()
        before = writer.state
        assert isinstance(version, int) and before.tables["t"].dropped
        writer.commit(PutEntry("t", "k", b"new", version), CheckEntry("t", "none", -1))
        address = len(writer.frames) - 1
        transactions = decode_transactions(writer.frames[address], FrameRef(address, HEADER))
        assert_equal(replay(before, transactions, address), writer.state)


# --- a table in memory -----------------------------------------------------------------------------------------------


def test_entries_leave_memory_when_they_are_flushed() -> None:
    table = new_table("t")
    entries = [("b", b"12", 0), ("a", b"345", 4), ("gone", b"x", 5), ("gone", None, 6), ("c", b"6", 7)]
    for key, value, version in entries:
        table = table.put(key, Entry(value, version))
    assert table.size == table.unflushed() == 3 + 4 + 4 + 2
    assert [key for key, _ in table.dirty(6)] == ["b", "a", "gone"], "in the order of their versions"
    halfway = table.settled(4, keep=True)
    assert (halfway.size, halfway.unflushed(), halfway.dropped) == (13, 6, False)
    assert halfway.dirty(7) == [("gone", Entry(None, 6)), ("c", Entry(b"6", 7))]
    for before in (table, halfway):
        kept, dropped = before.settled(6, keep=True), before.settled(6, keep=False)
        assert (set(kept.recent), kept.size, kept.flushed, kept.dropped) == ({"a", "b", "c"}, 9, 6, False)
        assert (set(dropped.recent), dropped.size, dropped.flushed, dropped.dropped) == ({"c"}, 2, 6, True)
        assert kept.settled(6, keep=False) == dropped


def test_the_removal_of_a_key_that_was_never_put_is_kept_only_for_a_flush_under_way() -> None:
    table, removal = new_table("t"), Entry(None, 3)
    assert table.put("k", removal) is table
    assert dict(table.put("k", removal, under_way=True).recent) == {"k": removal}
    flushed = table._replace(layout=table.layout._replace(length=1))
    assert dict(flushed.put("k", removal).recent) == {"k": removal}, "long-term storage may have it"


def test_tables_with_a_length_of_keys_were_created_but_that_of_attributes() -> None:
    cases = [("t", 0, False), ("t", 8, True), (ATTRIBUTES, 0, False), (ATTRIBUTES, 8, False)]
    for name, length, expected in cases:
        assert is_created(name, new_table(name, length)) is expected
    assert new_table(ATTRIBUTES).layout.key_length == len(attribute_key(5, bytes(16)))


@pytest.mark.parametrize(
    ("key", "value"), [("0" * 47, bytes(8)), ("0" * 49, None), ("F" * 48, None), ("f" * 48, bytes(7))]
)
def test_an_entry_is_an_attribute_only_with_the_fixed_lengths(key: str, value: bytes | None) -> None:
    for good in (bytes(8), None):
        check_attribute("f" * 48, good)
    with pytest.raises(ValueError, match=f"key '{key}' with a value of {7 if value == bytes(7) else 8} bytes.*48 hex"):
        check_attribute(key, value)


@pytest.mark.parametrize(("key", "value"), [("0" * 46, bytes(8)), ("0" * 50, bytes(8)), ("0" * 48, bytes(7))])
def test_a_damaged_attribute_is_reported(key: str, value: bytes) -> None:
    identity = bytes(range(16))
    stored = attribute_key(1 << 40, identity)
    assert stored_attribute(stored, (-5).to_bytes(8, "big", signed=True)) == (identity, -5)
    with pytest.raises(DataCorruption, match=f"^{ATTRIBUTES}, key '{key}'.* {len(value)} bytes.*Restore the root"):
        stored_attribute(key, value)
