"""Breakages of what deletes, and of what lets it: garbage, checkpoints and their parts, truncation, recovery points; and of
what keeps credentials from being shown."""

from tests.planted import Breakage

BREAKAGES = [
    Breakage(
        name="retention-cannot-record-on-a-full-disk",
        file="pravega_spark/streams/maintenance/retention.py",
        old="*operations], frees=True)\n",
        new="*operations])\n",
        tests=["tests/client/test_full_disk.py::test_retention_and_deletion_go_on_to_the_last"],
    ),
    Breakage(
        name="the-file-of-a-stopped-writer-is-removed",
        file="chunkstore/backends/local.py",
        old="            if size > SMALL_OBJECT:\n                with contextlib.suppress(OSError):",
        new="            if size < 0:\n                with contextlib.suppress(OSError):",
        tests=["tests/chunkstore/backends/test_local.py::test_a_large_temporary_file_is_locked_until_it_has_its_name"],
    ),
    Breakage(
        name="large-files-of-dead-writers-stay",
        file="chunkstore/backends/local.py",
        old="    if age <= _UNLOCKED or found.st_size <= SMALL_OBJECT:\n",
        new="    if age <= _UNLOCKED or found.st_size >= 0:\n",
        tests=["tests/chunkstore/backends/test_local.py"],
    ),
    Breakage(
        name="a-log-that-lost-its-last-frames-is-whole",
        file="engine/admin/checks/log_check.py",
        old="            if address > self._head.address or sequence > self._state.sequence:\n",
        new="            if address > self._head.address:\n",
        tests=["tests/engine/admin/test_damaged_log.py"],
    ),
    Breakage(
        name="a-later-truncation-finds-no-checkpoint",
        file="engine/logs/truncation.py",
        old="        if abs(info.modified - last[0].modified) >= spacing:",
        new="        if abs(info.modified - last[0].modified) >= 100 * spacing:",
        tests=["tests/engine/logs/test_truncation.py::test_the_truncation_point_moves_on_though_checkpoints_come_fast"],
    ),
    Breakage(
        name="fast-checkpoints-are-all-kept",
        file="engine/logs/truncation.py",
        old="        elif info.modified < before:\n",
        new="        elif info.modified < before - 600:\n",
        tests=["tests/engine/logs/test_truncation.py::test_of_checkpoints_that_come_fast_only_some_are_kept"],
    ),
    Breakage(
        name="a-checkpoint-vanishes-before-an-opening-has-read-it",
        file="engine/logs/truncation.py",
        old="superseded(rest, grace, now - OPENING)",
        new="superseded(rest, grace, now)",
        tests=["tests/engine/logs/test_truncation.py::test_of_checkpoints_that_come_fast_only_some_are_kept"],
    ),
    Breakage(
        name="nobody-deletes-fast-checkpoints-in-between",
        file="engine/containers/maintenance_scheduler.py",
        old="            if self._checkpoint_bytes >= CHECKPOINT_BYTES and self._settings.maintenance:\n",
        new="            if self._checkpoint_bytes < 0:\n",
        tests=["tests/engine/containers/test_room.py"],
    ),
    Breakage(
        name="positions-take-the-last-room",
        file="engine/logs/durable_log.py",
        old="            if not frees and adds_data(transaction.operations):\n",
        new="            if not transaction.operations:\n",
        tests=["tests/engine/containers/test_room.py::test_small_additions_leave_half_of_what_is_kept"],
    ),
    Breakage(
        name="a-full-disk-takes-no-truncation",
        file="engine/logs/transaction.py",
        old="_FREEING = (TruncateSegment, DeleteSegment,",
        new="_FREEING = (DeleteSegment,",
        tests=["tests/engine/containers/test_room.py::test_what_frees_space_goes_on_to_the_last"],
    ),
    Breakage(
        name="what-waits-for-a-flush-needs-no-room",
        file="engine/logs/durable_log.py",
        old="size + self.state.backlog + self._throttle.outstanding",
        new="size + self._throttle.outstanding",
        tests=["tests/engine/containers/test_room.py::test_what_waits_in_the_log_can_always_be_copied"],
    ),
    Breakage(
        name="a-flush-takes-the-last-room",
        file="engine/writer/segment_flush.py",
        old="            store.check_room(0, FLUSHES)\n",
        new="",
        tests=["tests/engine/containers/test_room.py::test_a_flush_takes_no_more_than_there_is_room_for"],
    ),
    Breakage(
        name="a-refused-write-starts-nothing",
        file="engine/containers/maintenance_scheduler.py",
        old="""            self._background.start("flush", self._run_once, "flush", self._relieve)
        self._start("truncate_log", "collect_garbage")
""",
        new="""            pass
        self._start("truncate_log", "collect_garbage")
""",
        tests=["tests/engine/containers/test_room.py::test_writes_that_are_refused_start_what_frees_space"],
    ),
    Breakage(
        name="a-large-object-takes-the-last-room",
        file="chunkstore/backends/local.py",
        old="        return max(self.free - self.kept, self.free // _PART_OF_KEPT)\n",
        new="        return self.free\n",
        tests=["tests/engine/containers/test_room.py::test_a_large_object_leaves_most_of_the_last_room"],
    ),
    Breakage(
        name="an-append-takes-the-last-room",
        file="chunkstore/backends/local.py",
        old="            self._check_fits(len(data), path)\n",
        new="",
        tests=["tests/engine/containers/test_room.py::test_a_large_object_leaves_most_of_the_last_room"],
    ),
    Breakage(
        name="a-transaction-begins-without-room",
        file="pravega_spark/streams/writing/transactions.py",
        old="""    stream.container.check_room()
    while True:
        snapshot = stream.snapshot()
        if snapshot.record.sealed:
            raise StreamSealed(stream.key)
        routing, now""",
        new="""    while True:
        snapshot = stream.snapshot()
        if snapshot.record.sealed:
            raise StreamSealed(stream.key)
        routing, now""",
        tests=["tests/client/test_safe_size.py"],
    ),
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
