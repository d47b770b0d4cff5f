"""Breakages of what deletes, and of what lets it: garbage, checkpoints and their parts, truncation, recovery points; and of
what keeps credentials from being shown."""

from tests.planted import Breakage

BREAKAGES = [
    Breakage(
        name="garbage-is-forgotten-when-its-deletion-failed",
        file="engine/writer/container_garbage.py",
        old="        left = {task.name for task in (*again, *aside)}\n",
        new="        left: set[str] = set()\n",
        tests=["tests/engine/writer/test_garbage.py"],
    ),
    Breakage(
        name="a-record-is-taken-apart-though-its-chunks-are-there",
        file="chunkstore/garbage_collector.py",
        old="                    self._chunks.delete(garbage)\n",
        new="""                    try:
                        self._chunks.delete(garbage)
                    except StorageError:
                        pass
""",
        tests=["tests/engine/writer/test_garbage.py"],
    ),
    Breakage(
        name="a-deleted-segment-takes-chunks-with-it-that-something-else-names",
        file="chunkstore/garbage_collector.py",
        old="if garbage := [name for name in names if name not in held]:",
        new="if garbage := list(names):",
        tests=["tests/chunkstore/test_garbage_collector.py::test_chunks_that_something_else_names_stay"],
    ),
    Breakage(
        name="truncation-queues-every-chunk-by-its-name",
        file="chunkstore/segments/storage.py",
        old="        if chunks.record.status & RecordStatus.SYSTEM_SEGMENT:  # the journal",
        new="        if True:  # the journal",
        tests=["tests/engine/logs/test_checkpoint_size.py"],
    ),
    Breakage(
        name="a-collection-never-pauses-for-a-flush",
        file="chunkstore/garbage_collector.py",
        old="        while self._may_go_on():\n",
        new="        while True:\n",
        tests=["tests/engine/logs/test_checkpoint_size.py", "tests/chunkstore/test_garbage_collector.py"],
    ),
    Breakage(
        name="a-detached-list-leads-on-to-the-chunks-that-stayed",
        file="chunkstore/segments/chunk_list.py",
        old="            self._put(last.chunk._replace(next_chunk=None))\n",
        new="            pass\n",
        tests=["tests/chunkstore/segments/test_chunk_list.py"],
    ),
    Breakage(
        name="a-large-checkpoint-is-one-object",
        file="engine/logs/checkpoints.py",
        old="    if len(content) <= largest:\n",
        new="    if True:\n",
        tests=["tests/engine/logs/test_checkpoint_size.py"],
    ),
    Breakage(
        name="a-checkpoint-is-made-before-its-parts",
        file="engine/logs/checkpoint_parts.py",
        old="        store.put(path, piece)\n        parts.append(",
        new="        if number:\n            store.put(path, piece)\n        parts.append(",
        tests=["tests/engine/logs/test_checkpoint_size.py"],
    ),
    Breakage(
        name="parts-of-checkpoints-stay-for-ever",
        file="engine/logs/checkpoint_parts.py",
        old="        store.delete(doomed)\n",
        new="        doomed = []\n",
        tests=["tests/engine/logs/test_checkpoint_size.py"],
    ),
    Breakage(
        name="parts-are-deleted-while-their-checkpoint-is-made",
        file="engine/logs/checkpoint_parts.py",
        old=" and info.modified < before\n",
        new="\n",
        tests=["tests/engine/logs/test_checkpoint_size.py"],
    ),
    Breakage(
        name="a-damaged-part-is-believed",
        file="engine/logs/checkpoint_parts.py",
        old="        if len(piece) != part.size or crc32c(piece) != part.crc:\n",
        new="        if False:\n",
        tests=["tests/engine/logs/test_checkpoint_size.py::test_a_damaged_part_is_named"],
    ),
    Breakage(
        name="truncation-knows-an-older-state-than-its-truncation-point",
        file="engine/containers/maintenance_tasks.py",
        old="""        covered = self._observed_before(grace).address
        now = self._log_clock.agreed("the log is not truncated")
        return truncate_log(self._context.stores.log, self._number, self._log.refresh, grace, now, covered)
""",
        new="""        known = self._log.refresh()
        covered = self._observed_before(grace).address
        now = self._log_clock.agreed("the log is not truncated")
        return truncate_log(self._context.stores.log, self._number, lambda: known, grace, now, covered)
""",
        tests=[
            "tests/engine/containers/test_flushes.py::test_a_truncation_that_sleeps_knows_of_all_that_the_truncation_point_covers"
        ],
    ),
    Breakage(
        name="a-url-is-opened-whatever-it-holds",
        file="chunkstore/backends/__init__.py",
        old="    check_url(url)\n",
        new="",
        tests=["tests/source/test_secrets.py"],
    ),
    Breakage(
        name="a-password-ends-at-the-first-slash",
        file="chunkstore/urls.py",
        old='    login, marked, _ = rest.rpartition("@")',
        new='    login, marked, _ = rest.partition("/")[0].rpartition("@")',
        tests=["tests/source/test_secrets.py"],
    ),
    Breakage(
        name="the-url-of-the-log-is-not-checked",
        file="engine/root.py",
        old="""            check_url(wal, "option 'wal'")\n""",
        new="            pass\n",
        tests=["tests/source/test_secrets.py"],
    ),
    Breakage(
        name="a-job-shows-the-url-that-it-was-given",
        file="pravega_spark/jobs/spread.py",
        old="Target({redact(self.root)!r}",
        new="Target({self.root!r}",
        tests=["tests/source/test_secrets.py"],
    ),
    Breakage(
        name="tiny-appends-count-by-their-bytes-alone",
        file="engine/state/state.py",
        old="        return self.logged_bytes + EXTENT * self.extents + self.table_bytes\n",
        new="        return self.logged_bytes + self.table_bytes\n",
        tests=["tests/engine/logs/test_checkpoint_size.py"],
    ),
    Breakage(
        name="what-was-deleted-waits-for-other-work",
        file="engine/state/state.py",
        old="        return bool(self.unsaved or self.dropped or self.table_bytes) or any(\n",
        new="        return bool(self.unsaved or self.table_bytes) or any(\n",
        tests=["tests/engine/logs/test_checkpoint_size.py"],
    ),
    Breakage(
        name="extents-of-a-deleted-segment-are-counted-for-ever",
        file="engine/state/changes/segment_changes.py",
        old="    draft.extents -= len(segment.extents)\n",
        new="",
        tests=["tests/engine/logs/test_checkpoint_size.py::test_extents_are_counted_whatever_becomes_of_them"],
    ),
    Breakage(
        name="what-goes-with-no-change-of-a-record-is-lost",
        file="chunkstore/metadata/store.py",
        old="            to_store = bool(stored or with_operations)\n",
        new="            to_store = bool(stored)\n",
        tests=[
            "tests/chunkstore/metadata/test_store.py::"
            "test_companions_happen_though_no_record_changes_and_on_the_same_conditions"
        ],
    ),
    Breakage(
        name="the-containers-state-hears-nothing-of-a-flush",
        file="engine/writer/container_records.py",
        old="commit([*operations, *with_operations])",
        new="commit(operations)",
        tests=["tests/engine/writer/test_records.py::test_a_change_and_its_companions_are_one_append"],
    ),
    Breakage(
        name="a-copied-first-chunk-is-not-fenced",
        file="chunkstore/segments/storage.py",
        old="        self._relocate_first_chunk(segment, with_operations)\n",
        new="        self._relocate_first_chunk(segment, ())\n",
        tests=[
            "tests/chunkstore/segments/test_storage.py::test_each_change_hands_on_its_companions",
            "tests/engine/admin/test_orphans.py::test_a_relocated_chunk_of_a_cycle_that_slept",
        ],
    ),
    Breakage(
        name="chunks-of-a-refused-step-are-forgotten",
        file="engine/writer/container_garbage.py",
        old="            transaction.unless_committed(lambda: self._queue_uncommitted(new))\n",
        new="            pass\n",
        tests=[
            "tests/engine/writer/test_records.py::"
            "test_a_change_whose_companion_is_refused_is_not_made_and_its_chunk_is_garbage"
        ],
    ),
]
