"""Breakages of key-value tables."""

from __future__ import annotations

from tests.planted import Breakage

_CRASH = "tests/client/test_key_value_table_crash.py"
_BEHAVIOUR = "tests/client/test_key_value_table.py"

BREAKAGES = [
    Breakage(
        name="an-update-reaches-a-table-that-was-deleted",
        file="pravega_spark/streams/key_value_table.py",
        old="            operations: list[Operation] = [CheckEntry(KEY_VALUE_TABLES, self.key, opened.version)]\n"
        "            operations += [",
        new="            operations: list[Operation] = [CheckEntry(KEY_VALUE_TABLES, 'none', -1)]\n"
        "            operations += [",
        tests=[f"{_BEHAVIOUR}::test_an_update_in_the_moment_of_a_deletion_changes_no_other_table"],
    ),
    Breakage(
        name="a-recovery-point-lacks-a-table-that-its-records-name",
        file="engine/writer/flush_cycle.py",
        old="        if self._strict and not set(state.tables) <= set(after.tables):",
        new="        if False and not set(state.tables) <= set(after.tables):",
        tests=[f"{_CRASH}::test_a_recovery_point_has_each_table_or_nothing_of_it"],
    ),
    Breakage(
        name="a-deleted-table-keeps-its-space-as-other-tables-share-its-objects",
        file="engine/writer/table_writer.py",
        old="    alone = is_one and sum(map(len, parts)) > SHARED_BYTES\n",
        new="    alone = False\n",
        tests=[f"{_BEHAVIOUR}::test_entries_leave_memory_and_a_deleted_table_its_space"],
    ),
    Breakage(
        name="a-range-leaves-out-entries-that-are-only-in-the-log",
        file="engine/storage/lookups.py",
        old="        if older is None or (newer is not None and newer[0] <= older[0]):",
        new="        if newer is not None and (older is None or newer[0] < older[0]):",
        tests=[f"{_BEHAVIOUR}::test_all_in_order"],
    ),
]
