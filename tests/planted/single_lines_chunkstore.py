"""Single lines of chunkstore, each of which would lose, mix up or let go of bytes that count."""

from tests.planted import Breakage

BREAKAGES = [
    Breakage(
        name="linked-source-not-synced",
        file="chunkstore/backends/local.py",
        old="        source._opened(name, os.fsync)  # the process that made it may not have\n",
        new="",
        tests=["tests/chunkstore/test_power.py::test_what_is_linked_survives_though_its_maker_never_synced_it"],
    ),
    Breakage(
        name="merge-of-truncated",
        file="chunkstore/segments/storage.py",
        old="            if merged.start_offset:\n",
        new="            if merged.start_offset < 0:\n",
        tests=["tests/chunkstore/segments/test_segment_model.py::test_segments_are_what_the_model_says"],
    ),
    Breakage(
        name="append-checksums-of-piece-only",
        file="chunkstore/segments/storage.py",
        old="continued(last.checksums, last.length, *piece))",
        new="block_checksums(*piece))",
        tests=["tests/chunkstore/segments/test_storage.py::test_checksums_of_a_chunk_go_on_as_it_is_added_to"],
    ),
    Breakage(
        name="write-before-the-end",
        file="chunkstore/segments/storage.py",
        old=(
            "        if offset != chunks.record.length:\n"
            '            raise BadStoredOffset(segment, chunks.record.length, offset, "adding to it")'
        ),
        new=(
            "        if offset > chunks.record.length:\n"
            '            raise BadStoredOffset(segment, chunks.record.length, offset, "adding to it")'
        ),
        tests=["tests/chunkstore/segments/test_segment_model.py::test_segments_are_what_the_model_says"],
    ),
    Breakage(
        name="any-open-chunk-grows",
        file="chunkstore/segments/storage.py",
        old="self._open_chunks.get(record.name) == record.last_chunk",
        new="record.name in self._open_chunks",
        tests=[
            "tests/chunkstore/segments/test_storage.py::test_a_chunk_of_another_instance_of_the_epoch_is_not_added_to"
        ],
    ),
    Breakage(
        name="relocated-from-its-start",
        file="chunkstore/segments/storage.py",
        old="[source], name, start - placed.start)",
        new="[source], name, 0)",
        tests=["tests/chunkstore/segments/test_segment_model.py::test_segments_are_what_the_model_says"],
    ),
    Breakage(
        name="lost-race-stays-in-memory",
        file="chunkstore/segments/storage.py",
        old=("        self._metadata.evict_all()\n        for segment in segments:\n"),
        new="        for segment in segments:\n",
        tests=[
            "tests/chunkstore/segments/test_storage.py::test_who_met_a_list_that_was_changed_sees_the_new_one_next_time"
        ],
    ),
    Breakage(
        name="room-of-a-whole-chunk",
        file="chunkstore/segments/storage.py",
        old="piece = rest.ahead(rolling - last.length)",
        new="piece = rest.ahead(rolling)",
        tests=["tests/chunkstore/segments/test_storage.py::TestSimulated::test_chunks_roll_over"],
    ),
    Breakage(
        name="sealed-lts-grows",
        file="chunkstore/segments/storage.py",
        old=(
            "        if chunks.record.status & RecordStatus.SEALED:\n            raise StoredSegmentSealed(segment)\n"
        ),
        new="",
        tests=["tests/chunkstore/segments/test_segment_model.py::test_segments_are_what_the_model_says"],
    ),
    Breakage(
        name="longer-append-believed",
        file="chunkstore/segments/storage.py",
        old=("            if error.expected < length:\n                raise\n            return False\n"),
        new="            return True\n",
        tests=[
            "tests/chunkstore/segments/test_storage.py::TestSimulated::test_bytes_beyond_the_recorded_length_do_not_exist"
        ],
    ),
    Breakage(
        name="start-beyond-the-end",
        file="chunkstore/segments/storage.py",
        old="            if not 0 <= offset <= chunks.record.length:\n",
        new="            if offset < 0:\n",
        tests=["tests/chunkstore/segments/test_storage.py::TestSimulated::test_truncation_step_by_step"],
    ),
    Breakage(
        name="replaced-though-grown",
        file="chunkstore/segments/chunk_list.py",
        old="        if end != new_start + length:\n",
        new="        if end < new_start + length:\n",
        tests=["tests/chunkstore/segments/test_storage.py::TestSimulated::test_only_what_is_there_is_replaced"],
    ),
    Breakage(
        name="joined-last-start",
        file="chunkstore/segments/chunk_list.py",
        old="            last_chunk_start=record.length + source.last_chunk_start,",
        new="            last_chunk_start=source.last_chunk_start,",
        tests=["tests/chunkstore/segments/test_chunk_list.py::test_any_changes_leave_the_list_and_its_index_right"],
    ),
    Breakage(
        name="extended-last-start",
        file="chunkstore/segments/chunk_list.py",
        old="            last_chunk_start=placed[-1][0],\n",
        new="            last_chunk_start=record.length,\n",
        tests=["tests/chunkstore/segments/test_chunk_list.py::test_any_changes_leave_the_list_and_its_index_right"],
    ),
    Breakage(
        name="joined-block-base",
        file="chunkstore/segments/chunk_list.py",
        old="moved = tuple((next_base + at - base, name)",
        new="moved = tuple((next_base + at, name)",
        tests=[
            "tests/chunkstore/segments/test_chunk_list.py::test_a_block_that_gets_chunks_forgets_those_that_were_cut_off"
        ],
    ),
    Breakage(
        name="run-begins-elsewhere",
        file="chunkstore/segments/chunk_list.py",
        old="or run[0].start != start:",
        new="or run[0].start < start:",
        tests=["tests/chunkstore/segments/test_chunk_list.py::test_what_begins_elsewhere_is_not_replaced"],
    ),
    Breakage(
        name="half-needed-chunk-cut",
        file="chunkstore/segments/chunk_list.py",
        old="            if placed.end > record.start_offset or len(doomed) == limit:\n",
        new="            if placed.start >= record.start_offset or len(doomed) == limit:\n",
        tests=["tests/chunkstore/segments/test_chunk_list.py::test_any_changes_leave_the_list_and_its_index_right"],
    ),
    Breakage(
        name="joined-not-linked",
        file="chunkstore/segments/chunk_list.py",
        old="            self._put(self.chunk(record.last_chunk)._replace(next_chunk=source.first_chunk))\n",
        new="            pass\n",
        tests=["tests/chunkstore/segments/test_chunk_list.py::test_any_changes_leave_the_list_and_its_index_right"],
    ),
    Breakage(
        name="replaced-not-linked",
        file="chunkstore/segments/chunk_list.py",
        old="            self._put(self._before(run[0])._replace(next_chunk=new))\n",
        new="            pass\n",
        tests=["tests/chunkstore/test_compaction.py::test_small_chunks_become_large_ones"],
    ),
    Breakage(
        name="covering-off-by-one",
        file="chunkstore/segments/chunk_list.py",
        old="            if start < placed.end and placed.chunk.length:\n",
        new="            if start <= placed.end and placed.chunk.length:\n",
        tests=["tests/chunkstore/segments/test_chunk_list.py::test_a_list_without_an_index_is_walked"],
    ),
    Breakage(
        name="short-chunk-read",
        file="chunkstore/segments/segment_reads.py",
        old="        if len(data) != part.length:\n",
        new="        if len(data) > part.length:\n",
        tests=["tests/chunkstore/segments/test_storage.py::TestSimulated::test_missing_and_short_chunks_are_damage"],
    ),
    Breakage(
        name="truncated-stored-read",
        file="chunkstore/segments/segment_reads.py",
        old="            if offset < record.start_offset:\n",
        new="            if offset < 0:\n",
        tests=[
            "tests/chunkstore/segments/test_segment_reads.py::test_a_reader_is_told_of_truncation_and_not_of_a_missing_chunk"
        ],
    ),
    Breakage(
        name="scan-of-moved-chunk",
        file="chunkstore/segments/segment_reads.py",
        old=("                except ObjectNotFound:\n                    yield self.read(segment, at, part.length)\n"),
        new=("                except ObjectNotFound:\n                    pass\n"),
        tests=[
            "tests/chunkstore/segments/test_segment_reads.py::test_a_sequential_reader_survives_that_chunks_are_replaced"
        ],
    ),
    Breakage(
        name="read-old-list-again",
        file="chunkstore/segments/segment_reads.py",
        old="                self._metadata.evict_all()  # the segment was changed: what",
        new="                pass  # the segment was changed: what",
        tests=[
            "tests/chunkstore/segments/test_segment_reads.py::test_a_reader_with_old_metadata_survives_that_chunks_are_replaced"
        ],
    ),
    Breakage(
        name="short-source-copied",
        file="chunkstore/segments/copying.py",
        old="    if len(data) < wanted:\n",
        new="    if len(data) < 0:\n",
        tests=["tests/chunkstore/test_compaction.py::test_what_is_damaged_is_not_merged"],
    ),
    Breakage(
        name="copy-skips-blocks",
        file="chunkstore/segments/copying.py",
        old="source.checksums[first * WIDTH :]",
        new="source.checksums",
        tests=["tests/chunkstore/segments/test_copying.py::test_what_is_left_of_a_chunk_is_copied_and_checked"],
    ),
    Breakage(
        name="only-old-forestalled",
        file="chunkstore/garbage_collector.py",
        old="                    if dead if are_new else len(dead) < len(names):\n",
        new="                    if len(dead) < len(names):\n",
        tests=[
            "tests/chunkstore/test_garbage_collector.py::test_a_collector_that_always_loses_tries_later_and_warns_nobody"
        ],
    ),
    Breakage(
        name="only-new-forestalled",
        file="chunkstore/garbage_collector.py",
        old="                    if dead if are_new else len(dead) < len(names):\n",
        new="                    if dead and are_new:\n",
        tests=["tests/chunkstore/test_garbage_collector.py::test_who_slept_between_queue_and_commit_cannot_commit"],
    ),
    Breakage(
        name="collector-believes-memory",
        file="chunkstore/garbage_collector.py",
        old="                self._metadata.evict_all()  # another instance",
        new="                pass  # another instance",
        tests=["tests/chunkstore/test_garbage_collector.py::test_a_crash_anywhere_in_a_collection_loses_no_garbage"],
    ),
    Breakage(
        name="collector-does-not-commit",
        file="chunkstore/garbage_collector.py",
        old="                    transaction.commit()\n                    return dead\n",
        new="                    return dead\n",
        tests=["tests/chunkstore/test_garbage_collector.py::test_who_slept_between_chunk_and_commit_cannot_commit"],
    ),
    Breakage(
        name="active-record-taken-apart",
        file="chunkstore/garbage_collector.py",
        old="                if record is None or record.status & RecordStatus.ACTIVE:\n",
        new="                if record is None:\n",
        tests=["tests/chunkstore/test_garbage_collector.py::test_a_segment_that_is_there_loses_no_chunk"],
    ),
    Breakage(
        name="failed-delete-is-done",
        file="chunkstore/garbage_collector.py",
        old=(
            '            _log.warning("garbage: chunk %s is not deleted: %s", name, str(error))\n'
            "            return False\n"
        ),
        new='            _log.warning("garbage: chunk %s is not deleted: %s", name, str(error))\n',
        tests=[
            "tests/chunkstore/test_garbage_collector.py::test_deletions_that_fail_are_tried_again_and_then_put_aside"
        ],
    ),
    Breakage(
        name="growing-chunk-merged",
        file="chunkstore/compaction.py",
        old=("        if not record.status & RecordStatus.SEALED:\n            placed = placed[:-1]\n"),
        new="",
        tests=["tests/chunkstore/test_compaction.py::test_the_rolling_length_is_a_limit"],
    ),
    Breakage(
        name="failed-commit-in-memory",
        file="chunkstore/metadata/store.py",
        old=("                self._cache.drop(key for key in read if key not in in_memory)\n                raise\n"),
        new="                raise\n",
        tests=[
            "tests/chunkstore/metadata/test_store.py::TestMemory::test_stored_records_are_stored_if_the_external_step_fails"
        ],
    ),
    Breakage(
        name="conflict-stays-in-memory",
        file="chunkstore/metadata/store.py",
        old="            self._cache.drop(changed)  # in memory may",
        new="            pass  # in memory may",
        tests=["tests/chunkstore/metadata/test_store.py::test_a_name_that_another_process_has_freed_can_be_used"],
    ),
    Breakage(
        name="committed-chunks-given-up",
        file="chunkstore/metadata/store.py",
        old="            self._otherwise.clear()\n",
        new="",
        tests=["tests/engine/writer/test_records.py::test_a_change_and_its_companions_are_one_append"],
    ),
    Breakage(
        name="continued-block-room",
        file="chunkstore/checksums.py",
        old=("BLOCK - length % BLOCK\n    return kept"),
        new=("BLOCK\n    return kept"),
        tests=["tests/chunkstore/test_checksums.py::test_checksums_that_are_continued_are_those_of_the_whole"],
    ),
    Breakage(
        name="missing-block-is-good",
        file="chunkstore/checksums.py",
        old="        if not len(block) or crc32c(block)",
        new="        if len(block) and crc32c(block)",
        tests=["tests/chunkstore/test_checksums.py::test_a_block_that_is_missing_is_bad"],
    ),
    Breakage(
        name="chunk-replaced",
        file="chunkstore/segments/copying.py",
        old="        chunks.stat(target)  # an earlier",
        new="        chunks.put(target, data)  # an earlier",
        tests=["tests/chunkstore/segments/test_copying.py::test_a_copy_that_is_there_is_not_written_again"],
    ),
    Breakage(
        name="written-over",
        file="chunkstore/segments/storage.py",
        old="            if self._chunks.can_append and self.config.appends:\n",
        new="            if self._chunks.can_append:\n",
        tests=["tests/chunkstore/segments/test_storage.py::test_without_appends_each_write_is_a_chunk"],
    ),
    Breakage(
        name="append-unsynced",
        file="chunkstore/backends/local.py",
        old=("                _write(fd, data, offset)\n                _sync(fd)\n            except"),
        new=("                _write(fd, data, offset)\n            except"),
        tests=["tests/chunkstore/backends/test_local.py::test_a_change_is_durable_on_return"],
    ),
    Breakage(
        name="half-append-stays",
        file="chunkstore/backends/local.py",
        old="                os.ftruncate(fd, offset)  # half an append would make its repetition fail\n",
        new="",
        tests=["tests/chunkstore/backends/test_local.py::test_an_error_of_writing_back_is_one_of_the_write"],
    ),
    Breakage(
        name="append-anywhere",
        file="chunkstore/backends/local.py",
        old=("            if size != offset:\n                message"),
        new=("            if size < offset:\n                message"),
        tests=["tests/chunkstore/backends/test_local.py::test_an_append_at_the_same_time_is_refused"],
    ),
    Breakage(
        name="other-file-linked",
        file="chunkstore/backends/local.py",
        old="            if not os.path.samefile(file, target):\n",
        new="            if not os.path.exists(target):\n",
        tests=["tests/chunkstore/backends/test_local.py::test_a_link_is_refused_where_another_object_is"],
    ),
    Breakage(
        name="link-name-unsynced",
        file="chunkstore/backends/local.py",
        old=(
            "                raise self._error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), path)\n"
            "            _sync_folder(os.path.dirname(target))\n"
        ),
        new="                raise self._error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), path)\n",
        tests=["tests/chunkstore/test_power.py::test_what_is_linked_survives_though_its_maker_never_synced_it"],
    ),
    Breakage(
        name="put-unsynced-name",
        file="chunkstore/backends/local.py",
        old="            self._replace(path, target, data, durable=True)\n            _sync_folder(os.path.dirname(target))\n",
        new="            self._replace(path, target, data, durable=True)\n",
        tests=["tests/chunkstore/backends/test_local.py::test_nothing_is_visible_before_it_is_durable"],
    ),
]
