"""Single lines of engine, each of which would lose, double or reorder operations, or forget what is acknowledged."""

from tests.planted import Breakage

BREAKAGES = [
    Breakage(
        name="half-flushed-extent",
        file="engine/writer/flush_steps.py",
        old="        whole = at >= segment.storage_length\n",
        new="        whole = True\n",
        tests=["tests/engine/containers/test_flushes.py::test_what_is_truncated_within_is_not_taken_over_as_a_whole"],
    ),
    Breakage(
        name="truncation-point-listed-once",
        file="engine/logs/log.py",
        old="            newest = self._listed_log_start()  # a listing may miss",
        new="            pass  # a listing may miss",
        tests=[
            "tests/engine/logs/test_log.py::test_a_truncation_point_that_is_replaced_while_it_is_listed_is_not_lost"
        ],
    ),
    Breakage(
        name="append-in-flight-not-sent",
        file="engine/logs/frame_sender.py",
        old="                transaction.sent = True\n",
        new="",
        tests=[
            "tests/engine/logs/test_outcomes.py::test_of_what_flies_when_a_container_fails_nobody_is_told_that_it_is_not_done"
        ],
    ),
    Breakage(
        name="unmarked-stored-start",
        file="engine/writer/flush_cycle.py",
        old="            stored_start=segment.start_offset if marked else segment.stored_start,",
        new="            stored_start=segment.start_offset,",
        tests=["tests/engine/containers/test_flushes.py::test_a_recovery_point_says_only_what_lts_was_told"],
    ),
    Breakage(
        name="unmarked-stored-sealed",
        file="engine/writer/flush_cycle.py",
        old="            stored_sealed=segment.sealed if marked else segment.stored_sealed,",
        new="            stored_sealed=segment.sealed,",
        tests=["tests/engine/containers/test_flushes.py::test_a_recovery_point_says_only_what_lts_was_told"],
    ),
    Breakage(
        name="flushed-from-elsewhere",
        file="engine/state/changes/cycle_changes.py",
        old="    if segment.storage_length != op.offset or op.end",
        new="    if op.end",
        tests=["tests/engine/state/test_flush_cycles.py::test_what_was_flushed_is_not_the_logs_any_more"],
    ),
    Breakage(
        name="flushed-beyond-the-end",
        file="engine/state/changes/cycle_changes.py",
        old=" or op.end > segment.length or ",
        new=" or ",
        tests=[
            "tests/engine/state/test_flush_cycles.py::test_a_segment_that_is_gone_before_it_is_flushed_stops_the_cycle"
        ],
    ),
    Breakage(
        name="flushed-under-another-name",
        file="engine/state/changes/cycle_changes.py",
        old=' or segment.storage not in ("", op.storage):',
        new=":",
        tests=["tests/engine/state/test_operations.py::test_refusals_change_nothing_and_undo_the_whole_transaction"],
    ),
    Breakage(
        name="mark-of-another-storage",
        file="engine/state/changes/cycle_changes.py",
        old=("    if segment.storage != op.storage:\n        raise"),
        new=("    if not op.storage:\n        raise"),
        tests=["tests/engine/state/test_operations.py::test_refusals_change_nothing_and_undo_the_whole_transaction"],
    ),
    Breakage(
        name="recovery-point-of-the-end",
        file="engine/state/changes/cycle_changes.py",
        old="complete=True, recovery_point=draft.cycle.sequence)",
        new="complete=True, recovery_point=draft.sequence)",
        tests=[
            "tests/engine/containers/test_flushes.py::test_garbage_is_deleted_after_the_delay_and_a_later_cycle_and_only_then"
        ],
    ),
    Breakage(
        name="two-cycles-of-one-number",
        file="engine/state/changes/cycle_changes.py",
        old="    if op.number != draft.cycle.number + 1:\n",
        new="    if op.number < draft.cycle.number:\n",
        tests=["tests/engine/state/test_flush_cycles.py::test_a_cycle_that_is_over_does_nothing_more"],
    ),
    Breakage(
        name="saved-for-another-segment",
        file="engine/state/changes/active_segments.py",
        old="        if segment is None or segment.id != number:\n",
        new="        if segment is None:\n",
        tests=["tests/engine/state/test_idle_segments.py::test_segments_are_saved_as_they_were_unless_they_are_gone"],
    ),
    Breakage(
        name="saved-though-changed-since",
        file="engine/state/changes/active_segments.py",
        old=("        if segment.touched <= op.sequence:\n            draft.unsaved.pop(name, None)\n"),
        new="        draft.unsaved.pop(name, None)\n",
        tests=["tests/engine/state/test_flush_cycles.py::test_the_cycle_ends_as_it_began"],
    ),
    Breakage(
        name="evicted-unsaved",
        file="engine/state/changes/active_segments.py",
        old=(" and name not in draft.unsaved:\n            del draft.segments"),
        new=(":\n            del draft.segments"),
        tests=[
            "tests/engine/state/test_idle_segments.py::test_segments_that_changed_since_they_were_saved_stay_active"
        ],
    ),
    Breakage(
        name="mapped-old-record",
        file="engine/state/changes/active_segments.py",
        old="        if entry is None or entry.version != op.version:\n",
        new="        if entry is None:\n",
        tests=["tests/engine/state/test_idle_segments.py::test_a_stale_record_is_not_mapped"],
    ),
    Breakage(
        name="deleted-on-its-way-comes-back",
        file="engine/state/changes/segment_changes.py",
        old="    if segment.saved >= 0 or not draft.cycle.complete:\n",
        new="    if segment.saved >= 0:\n",
        tests=["tests/engine/state/test_flush_cycles.py::test_the_cycle_ends_as_it_began"],
    ),
    Breakage(
        name="created-with-the-cycle-comes-back",
        file="engine/state/changes/segment_changes.py",
        old="    if segment.saved >= 0 or not draft.cycle.complete:\n",
        new="    if segment.saved >= 0 or (segment.id <= draft.cycle.sequence and not draft.cycle.complete):\n",
        tests=[
            "tests/engine/storage/test_recovery.py::test_a_segment_that_was_created_as_the_cycle_began_stays_deleted"
        ],
    ),
    Breakage(
        name="removal-not-under-way",
        file="engine/state/changes/segment_changes.py",
        old="Entry(None, draft.sequence), under_way=True)",
        new="Entry(None, draft.sequence))",
        tests=["tests/engine/state/test_flush_cycles.py::test_the_cycle_ends_as_it_began"],
    ),
    Breakage(
        name="truncated-past-storage",
        file="engine/state/changes/segment_changes.py",
        old=("    if op.offset > segment.storage_length:\n        segment = _without_storage"),
        new=("    if op.offset > segment.length:\n        segment = _without_storage"),
        tests=["tests/engine/state/test_flush_cycles.py::test_what_long_term_storage_knows_of_a_segment_is_noted"],
    ),
    Breakage(
        name="truncated-source-merged",
        file="engine/state/changes/segment_changes.py",
        old=("    if source.start_offset:\n        raise BadOffset(op.source"),
        new=("    if source.start_offset < 0:\n        raise BadOffset(op.source"),
        tests=["tests/engine/state/test_operations.py::test_refusals_change_nothing_and_undo_the_whole_transaction"],
    ),
    Breakage(
        name="merge-without-its-count",
        file="engine/state/changes/segment_changes.py",
        old="    update = (AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, events),) if events else ()\n",
        new="    update = ()\n",
        tests=["tests/engine/state/test_merges.py::test_merging_adds_event_counts_and_moves_the_extents"],
    ),
    Breakage(
        name="idle-segment-made-anew",
        file="engine/state/changes/segment_changes.py",
        old=(
            "    if op.segment in draft.segments or (draft.validating and draft.entry(METADATA, "
            "op.segment) is not None):\n"
        ),
        new="    if op.segment in draft.segments:\n",
        tests=["tests/engine/state/test_flush_cycles.py::test_the_cycle_ends_as_it_began"],
    ),
    Breakage(
        name="removed-attribute-comes-back",
        file="engine/state/changes/attribute_changes.py",
        old="        if update.value == NULL_VALUE and not is_core(update.attribute):\n",
        new="        if update.value == NULL_VALUE and is_core(update.attribute):\n",
        tests=[
            "tests/engine/state/test_attributes.py::test_an_attribute_that_is_removed_does_not_come_back_from_the_table"
        ],
    ),
    Breakage(
        name="unspilled-attribute-assumed",
        file="engine/state/changes/attribute_changes.py",
        old="                _require_spilled(draft, segment, update.attribute, None)  # otherwise",
        new="                pass  # else",
        tests=["tests/engine/state/test_attributes.py::test_updates_of_spilled_attributes_wait_for_them"],
    ),
    Breakage(
        name="settled-newer-entries",
        file="engine/state/tables.py",
        old="            if entry.version <= upto and (entry.value is None or not keep):\n",
        new="            if entry.value is None or not keep:\n",
        tests=["tests/engine/state/test_flush_cycles.py::test_the_cycle_ends_as_it_began"],
    ),
    Breakage(
        name="last-entry-stays",
        file="engine/state/tables.py",
        old="if self.flushed < entry.version <= upto]",
        new="if self.flushed < entry.version < upto]",
        tests=["tests/cli/test_cli.py::test_entries_of_tables_are_counted_exactly"],
    ),
    Breakage(
        name="dropped-unknown",
        file="engine/state/tables.py",
        old="                dropped = dropped or entry.value is not None\n",
        new="                dropped = dropped and entry.value is not None\n",
        tests=["tests/engine/state/test_attributes.py::test_extended_attributes_spill_and_core_attributes_stay"],
    ),
    Breakage(
        name="removal-of-what-is-in-lts",
        file="engine/state/tables.py",
        old=" and not self.layout.length and not under_way:",
        new=" and not under_way:",
        tests=[
            "tests/engine/state/test_attributes.py::test_an_attribute_that_is_removed_does_not_come_back_from_the_table"
        ],
    ),
    Breakage(
        name="attach-fence-for-known-length",
        file="engine/state/changes/chunk_references.py",
        old="    if created_at < draft.min_attach_time:\n",
        new="    if created_at and created_at < draft.min_attach_time:\n",
        tests=[
            "tests/engine/state/test_garbage.py::test_chunks_from_before_a_sweep_cannot_be_attached_even_when_their_names_are_forgotten"
        ],
    ),
    Breakage(
        name="discard-of-named",
        file="engine/state/changes/chunk_references.py",
        old=("        if chunk not in draft.chunks:\n            draft.garbage[chunk]"),
        new=("        if chunk:\n            draft.garbage[chunk]"),
        tests=[
            "tests/engine/state/test_garbage.py::test_chunks_that_were_given_up_cannot_be_attached_and_those_that_were_attached_stay"
        ],
    ),
    Breakage(
        name="attach-fence-goes-back",
        file="engine/state/changes/chunk_references.py",
        old="    draft.min_attach_time = max(draft.min_attach_time, op.min_attach_time)\n",
        new="    draft.min_attach_time = op.min_attach_time\n",
        tests=["tests/engine/state/test_garbage.py::test_the_attach_fence_never_moves_back"],
    ),
    Breakage(
        name="garbage-attached-again",
        file="engine/state/changes/chunk_references.py",
        old=("            if source in draft.garbage:\n                raise"),
        new=("            if not source:\n                raise"),
        tests=[
            "tests/engine/state/test_garbage.py::test_chunks_that_were_given_up_cannot_be_attached_and_those_that_were_attached_stay"
        ],
    ),
    Breakage(
        name="moved-chunk-is-garbage",
        file="engine/state/changes/chunk_references.py",
        old=("            if source not in moved:\n                draft.garbage"),
        new=("            if source:\n                draft.garbage"),
        tests=[
            "tests/engine/state/test_flush_cycles.py::test_an_attached_chunk_that_long_term_storage_took_over_is_no_garbage"
        ],
    ),
    Breakage(
        name="children-outlive-parents",
        file="engine/state/changes/segment_changes.py",
        old=("        if parent == segment.name:\n            _delete_transient(draft, name)\n"),
        new=("        if not parent:\n            _delete_transient(draft, name)\n"),
        tests=["tests/engine/state/test_transient.py::test_it_goes_with_its_parent"],
    ),
    Breakage(
        name="expired-in-use",
        file="engine/state/changes/segment_changes.py",
        old="    elif segment.modified < before:\n",
        new="    elif segment.modified <= before or before:\n",
        tests=["tests/engine/state/test_transient.py::test_an_append_between_judging_and_expiry"],
    ),
    Breakage(
        name="replaced-ends-elsewhere",
        file="engine/state/segments.py",
        old=("        if self._starts[last - 1] + self._items[last - 1].length != end:\n            return None\n"),
        new="",
        tests=["tests/engine/state/test_tables.py::test_only_what_fills_the_same_range_is_replaced"],
    ),
    Breakage(
        name="shared-list-appended",
        file="engine/state/segments.py",
        old="        if len(self._items) == self._count:\n",
        new="        if len(self._items) >= self._count:\n",
        tests=["tests/engine/state/test_operations.py::test_two_versions_that_go_on_from_one_do_not_meet"],
    ),
    Breakage(
        name="log-truncated-at-its-truncation-point",
        file="engine/logs/truncation.py",
        old="if address_of(info.path) < limit]",
        new="if address_of(info.path) <= limit]",
        tests=[
            "tests/engine/logs/test_stopped_hosts.py::test_the_frame_at_the_truncation_point_stays_when_the_log_is_truncated"
        ],
    ),
    Breakage(
        name="truncation-point-deleted-too",
        file="engine/logs/truncation.py",
        old="    doomed = [*old[:-1], ",
        new="    doomed = [*old, ",
        tests=["tests/engine/logs/test_log_stall.py::test_sleepers_lose_nothing_and_see_no_wrong_frame"],
    ),
    Breakage(
        name="needed-by-the-first-extent",
        file="engine/logs/truncation.py",
        old="    return min(addresses, default=None)\n",
        new="    return next(addresses, None)\n",
        tests=[
            "tests/engine/containers/test_flushes.py::test_the_log_keeps_what_is_not_flushed_even_below_a_truncation_point"
        ],
    ),
    Breakage(
        name="repair-of-another-frame",
        file="engine/logs/log.py",
        old="                and repair_of(frame, path)[::2] == (damage.address, None)\n",
        new="                and repair_of(frame, path).skipped is None\n",
        tests=["tests/engine/logs/test_log.py::test_only_the_right_repair_passes_over_damage"],
    ),
    Breakage(
        name="append-results-of-a-run",
        file="engine/logs/validation.py",
        old="            offset += len(payload)\n",
        new="",
        tests=["tests/engine/logs/test_durable_log.py::test_each_append_of_a_frame_gets_its_own_offset"],
    ),
    Breakage(
        name="pieces-of-one-frame",
        file="engine/logs/payload.py",
        old="            view, checksums = view[taken:], checksums[blocks * WIDTH :]\n",
        new="            view, checksums = view[taken:], checksums\n",
        tests=["tests/engine/containers/test_spanning_appends.py::test_a_crash_between_pieces_leaves_nothing"],
    ),
    Breakage(
        name="room-not-in-blocks",
        file="engine/logs/payload.py",
        old="        return min(wanted, room // BLOCK * BLOCK)\n",
        new="        return min(wanted, room)\n",
        tests=[
            "tests/engine/containers/test_spanning_appends.py::test_what_spans_frames_behind_something_small_is_cut_at_whole_blocks"
        ],
    ),
    Breakage(
        name="lost-race-keeps-its-state",
        file="engine/logs/frame_settler.py",
        old=(
            "        self._context.queue.retry_after_lost_race([each for flight in flights for each in flight.body.transactions()])\n"
            "        replica.optimistic = replica.state\n"
        ),
        new="        self._context.queue.retry_after_lost_race([each for flight in flights for each in flight.body.transactions()])\n",
        tests=["tests/engine/logs/test_outcomes.py::test_a_race_that_is_lost_against_a_void_frame_leaves_no_trace"],
    ),
    Breakage(
        name="unknown-keeps-its-state",
        file="engine/logs/frame_settler.py",
        old=(
            "            self._report_unknown(replica.log.renew(), error)\n            replica.optimistic = replica.state\n"
        ),
        new="            self._report_unknown(replica.log.renew(), error)\n",
        tests=[
            "tests/engine/logs/test_outcomes.py::test_a_refusal_waits_for_the_frames_in_flight_that_it_was_held_against"
        ],
    ),
    Breakage(
        name="refused-keeps-its-state",
        file="engine/logs/frame_settler.py",
        old=(
            "                self._context.acknowledgements.fail(flight.body.transactions(), error)\n"
            "            replica.optimistic = replica.state\n"
        ),
        new="                self._context.acknowledgements.fail(flight.body.transactions(), error)\n",
        tests=["tests/engine/logs/test_outcomes.py::test_what_the_storage_refused_leaves_no_trace"],
    ),
    Breakage(
        name="spanning-overtaken-is-lost",
        file="engine/logs/frame_sender.py",
        old=(
            "            self._context.queue.retry_after_lost_race(batch)\n            self._settler.recover(error)\n"
        ),
        new="            self._settler.recover(error)\n",
        tests=[
            "tests/engine/containers/test_spanning_appends.py::test_another_writer_between_pieces_voids_them_and_the_payload_goes_to_a_chunk"
        ],
    ),
    Breakage(
        name="moved-log-is-done-again",
        file="engine/logs/frame_settler.py",
        old="            self._report_unknown(replica.log.drop(), error)\n            replica.reopen()\n",
        new=(
            "            lost = [each for flight in replica.log.drop() for each in flight.body.transactions()]\n"
            "            self._context.queue.retry_after_lost_race(lost)\n            replica.reopen()\n"
        ),
        tests=[
            "tests/engine/logs/test_log_stall.py::test_a_process_stopped_before_its_put_acknowledges_nothing_that_is_lost"
        ],
    ),
    Breakage(
        name="repair-keeps-the-attach-fence",
        file="engine/logs/replay.py",
        old="        return state._replace(min_attach_time=fence), None\n",
        new="        return state, None\n",
        tests=["tests/engine/admin/test_orphans.py::test_a_repair_gives_up_what_nobody_knows_of"],
    ),
    Breakage(
        name="lost-log-begun-again",
        file="engine/logs/durable_log.py",
        old=(
            "            if head == START:  # and was so before and after the log's first frame was looked for\n"
            "                raise lost\n"
        ),
        new="",
        tests=["tests/engine/storage/test_recovery.py::test_after_every_request_of_a_cycle"],
    ),
    Breakage(
        name="stored-read-to-its-end",
        file="engine/storage/object_reads.py",
        old="        pieces += stored(segment.storage, start, min(end, segment.storage_length))\n",
        new="        pieces += stored(segment.storage, start, segment.storage_length)\n",
        tests=[
            "tests/engine/containers/test_container.py::test_an_attached_chunk_goes_to_long_term_storage_as_it_is_unless_it_is_shared"
        ],
    ),
    Breakage(
        name="blocks-beyond-the-extent",
        file="engine/storage/object_reads.py",
        old="    last = min(-(-(piece.skip + piece.taken) // BLOCK) * BLOCK, piece.length)\n",
        new="    last = -(-(piece.skip + piece.taken) // BLOCK) * BLOCK\n",
        tests=[
            "tests/engine/containers/test_flushes.py::test_garbage_is_deleted_after_the_delay_and_a_later_cycle_and_only_then"
        ],
    ),
    Breakage(
        name="scan-meets-twice",
        file="engine/reading/table_store.py",
        old="                    if key not in met:\n",
        new="                    if key:\n",
        tests=[
            "tests/engine/containers/test_moved_objects.py::test_a_scan_whose_objects_have_gone_meets_nothing_twice"
        ],
    ),
    Breakage(
        name="part-of-a-chunk-taken-over",
        file="engine/writer/flush_steps.py",
        old=" or position or state.chunks.get(source) != 1:",
        new=" or state.chunks.get(source) != 1:",
        tests=[
            "tests/engine/containers/test_flushes.py::test_an_attached_chunk_that_was_let_go_is_deleted_after_the_delay"
        ],
    ),
    Breakage(
        name="shared-chunk-taken-over",
        file="engine/writer/flush_steps.py",
        old=" or position or state.chunks.get(source) != 1:",
        new=" or position:",
        tests=[
            "tests/engine/containers/test_container.py::test_an_attached_chunk_goes_to_long_term_storage_as_it_is_unless_it_is_shared"
        ],
    ),
    Breakage(
        name="attached-chunk-forgotten",
        file="engine/writer/flush_steps.py",
        old="            attached, offset = [], position\n",
        new="            attached, offset = [], end\n",
        tests=[
            "tests/engine/containers/test_container.py::test_an_attached_chunk_goes_to_long_term_storage_as_it_is_unless_it_is_shared"
        ],
    ),
    Breakage(
        name="joined-step-begins-before",
        file="engine/writer/flush_steps.py",
        old="        if (joined or chunk is not None) and not attached and position > offset:\n",
        new="        if chunk is not None and not attached and position > offset:\n",
        tests=["tests/engine/containers/test_merges.py::test_merged_segments_read_the_same_before_and_after_flushing"],
    ),
    Breakage(
        name="index-before-data",
        file="engine/writer/flush_steps.py",
        old="    return (buckets[key] for key in sorted(buckets))\n",
        new="    return (buckets[key] for key in sorted(buckets, reverse=True))\n",
        tests=["tests/engine/containers/test_flushes.py::test_data_is_flushed_before_its_index"],
    ),
    Breakage(
        name="passed-over-in-the-recovery-point",
        file="engine/writer/flush_cycle.py",
        old=".plus({**records, **dict.fromkeys(segments.skipped)}),",
        new=".plus(records),",
        tests=[
            "tests/engine/containers/test_flushes.py::test_what_a_cycle_passed_over_is_missing_in_its_recovery_point"
        ],
    ),
    Breakage(
        name="chunk-records-of-the-beginning",
        file="engine/writer/flush_cycle.py",
        old="                STORAGE: Dirty.of(context.log.refresh(), STORAGE),\n",
        new="                STORAGE: Dirty.of(state, STORAGE),\n",
        tests=[
            "tests/engine/containers/test_flushes.py::test_a_recovery_point_is_what_the_container_was_when_its_cycle_began"
        ],
    ),
    Breakage(
        name="segments-saved-without-the-point",
        file="engine/writer/flush_cycle.py",
        old=".plus({**records, **dict.fromkeys(segments.skipped)}),",
        new=".plus(dict.fromkeys(segments.skipped)),",
        tests=[
            "tests/engine/containers/test_flushes.py::test_a_recovery_point_is_what_the_container_was_when_its_cycle_began"
        ],
    ),
    Breakage(
        name="sealed-with-the-truncation",
        file="engine/writer/segment_flush.py",
        old="        mark = RecordStoredBounds(self._number, segment.name, storage, start, segment.stored_sealed)\n",
        new="        mark = RecordStoredBounds(self._number, segment.name, storage, start, segment.sealed)\n",
        tests=[
            "tests/engine/containers/test_flushes.py::test_a_crash_between_truncating_and_sealing_in_lts_leaves_neither_undone"
        ],
    ),
    Breakage(
        name="garbage-by-an-old-state",
        file="engine/writer/container_gc.py",
        old="        held=lambda names: _named(context.log.refresh(), names),\n",
        new="        held=lambda names: _named(context.log.state, names),\n",
        tests=[
            "tests/engine/containers/test_flushes.py::test_a_collection_keeps_what_was_attached_once_more_since_it_began"
        ],
    ),
    Breakage(
        name="records-read-unchecked",
        file="engine/writer/container_records.py",
        old=(
            "    operations += [CheckEntry(STORAGE, key, version) for key, version in expected.items() "
            "if key not in changes]\n"
        ),
        new="    pass\n",
        tests=["tests/engine/writer/test_records.py::TestInMemory::test_what_was_only_read_is_checked_too"],
    ),
    Breakage(
        name="alive-garbage-collected",
        file="engine/writer/container_garbage.py",
        old="            if name not in state.chunks\n",
        new="            if name\n",
        tests=[
            "tests/engine/containers/test_flushes.py::test_a_chunk_that_only_the_log_names_is_not_collected_though_it_is_queued"
        ],
    ),
    Breakage(
        name="garbage-of-this-recovery-point",
        file="engine/writer/container_garbage.py",
        old="        return old and not state.is_kept_for_recovery(garbage)\n",
        new="        return old\n",
        tests=[
            "tests/engine/containers/test_flushes.py::test_garbage_is_deleted_after_the_delay_and_a_later_cycle_and_only_then"
        ],
    ),
    Breakage(
        name="uncovered-garbage",
        file="engine/writer/container_garbage.py",
        old=" and garbage.sequence < self._covered\n",
        new="\n",
        tests=["tests/engine/containers/test_clocks.py::test_garbage_of_a_folder_stays_when_its_clock_is_stepped"],
    ),
    Breakage(
        name="entries-of-the-old-state-dropped",
        file="engine/writer/table_writer.py",
        old="    return _Draft(name, dirty.upto, tuple(flush.layout)",
        new="    return _Draft(name, context.log.state.sequence, tuple(flush.layout)",
        tests=["tests/engine/containers/test_flushes.py::test_an_entry_that_is_put_while_its_table_is_flushed_stays"],
    ),
    Breakage(
        name="compaction-moves-the-dead",
        file="engine/tables/content.py",
        old="            if found.get(own) == offset:\n",
        new="            if own in found:\n",
        tests=["tests/engine/tables/test_content.py::test_it_is_a_dict"],
    ),
    Breakage(
        name="compaction-moves-over-the-new",
        file="engine/tables/content.py",
        old="found = self._stored.find({key for key in keys if key not in self._dirty})",
        new="found = self._stored.find(set(keys))",
        tests=["tests/engine/tables/test_content.py::test_garbage_does_not_grow"],
    ),
    Breakage(
        name="collision-unnoticed-with-the-old",
        file="engine/tables/content.py",
        old="            if entry.key != self._dirty[own].key:\n",
        new="            if entry.key == b'':\n",
        tests=["tests/engine/tables/test_content.py::test_a_key_with_the_hash_of_another_is_not_found_and_not_written"],
    ),
    Breakage(
        name="another-key-found",
        file="engine/tables/content.py",
        old=" if own in entries and entries[own].key == key}",
        new=" if own in entries}",
        tests=["tests/engine/tables/test_content.py::test_a_key_with_the_hash_of_another_is_not_found_and_not_written"],
    ),
    Breakage(
        name="tree-low-of-the-page",
        file="engine/tables/btree.py",
        old=(
            "        low = min((_POINTER.unpack(value)[2] for _, value in entries), default=offset) if "
            "inner else offset\n"
        ),
        new=(
            "        low = min((_POINTER.unpack(value)[0] for _, value in entries), default=offset) if "
            "inner else offset\n"
        ),
        tests=["tests/engine/tables/test_btree.py::test_an_update_that_changes_nothing_writes_nothing"],
    ),
    Breakage(
        name="tree-routes-off-by-one",
        file="engine/tables/btree.py",
        old="bisect_left(keys, page[place + 1], first, last)",
        new="bisect_right(keys, page[place + 1], first, last)",
        tests=["tests/engine/tables/test_btree.py::test_an_update_that_changes_nothing_writes_nothing"],
    ),
    Breakage(
        name="tree-page-of-another-key",
        file="engine/tables/btree.py",
        old='    if at.key not in (b"", keys[0]):\n',
        new='    if at.key == b"-":\n',
        tests=["tests/engine/tables/test_btree.py::test_a_damaged_leaf_is_found"],
    ),
    Breakage(
        name="orphans-by-an-old-state",
        file="engine/admin/orphans.py",
        old=("            state = container.refresh()\n            left = [path"),
        new=("            state = container.state\n            left = [path"),
        tests=["tests/engine/admin/test_orphans.py::test_what_others_attached_lately_is_no_orphan"],
    ),
    Breakage(
        name="orphans-of-any-age",
        file="engine/admin/orphans.py",
        old="            elif chunks[path].modified < self._before:\n",
        new="            elif chunks[path].modified:\n",
        tests=["tests/engine/admin/test_orphans.py::test_every_kind_of_orphan_goes_and_nothing_else"],
    ),
    Breakage(
        name="orphans-named-in-lts",
        file="engine/admin/orphans.py",
        old="            left = [path for path in left if entries[path] is None]\n",
        new="",
        tests=["tests/engine/admin/test_orphans.py::test_where_nothing_is_lost_nothing_is_found"],
    ),
    Breakage(
        name="orphans-without-a-cycle",
        file="engine/admin/orphans.py",
        old="        if container.refresh().cycle.recovery_point < 0:\n",
        new="        if container.refresh().cycle.recovery_point < -1:\n",
        tests=["tests/engine/admin/test_orphans.py::test_a_flush_that_slept_with_an_object_in_its_hands"],
    ),
]
