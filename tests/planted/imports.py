"""Breakages of imports from a Pravega's long-term storage."""

from tests.planted import Breakage

_TESTS = "tests/streams/test_imports.py"
_KILLED = "tests/streams/test_pravega_lts_killed.py"

BREAKAGES = [
    Breakage(
        name="copies-that-are-not-checked",
        file="pravega_spark/streams/pravega_lts/segment_import.py",
        old="        if self._copied:\n            self._check()",
        new="        if self._copied and not self._extents:\n            self._check()",
        tests=[f"{_TESTS}::test_a_copy_that_is_not_what_was_read_does_not_appear"],
    ),
    Breakage(
        name="progress-that-is-believed",
        file="pravega_spark/streams/pravega_lts/unfinished_imports.py",
        old='    if len(data) < TOKEN or crc32c(data[:-WIDTH]) != int.from_bytes(data[-WIDTH:], "big"):',
        new="    if len(data) < TOKEN:",
        tests=[f"{_TESTS}::test_progress_is_used_after_a_kill_and_damaged_progress_is_not"],
    ),
    Breakage(
        name="another-stream-taken-for-the-imported-one",
        file="pravega_spark/streams/pravega_lts/stream_import.py",
        old="            if self._mark in container.known_attributes(self._stream.writers, [self._mark]):",
        new="            if container.known_attributes(self._stream.writers, [self._mark]) is not None:",
        tests=[f"{_TESTS}::test_what_cannot_be_imported_is_refused_with_a_reason"],
    ),
    Breakage(
        name="chunks-named-anew-when-an-import-goes-on",
        file="pravega_spark/streams/pravega_lts/unfinished_imports.py",
        old="        if found is not None and found.source == source:",
        new="        if found is not None and found.source != source:",
        tests=[f"{_TESTS}::test_progress_is_used_after_a_kill_and_damaged_progress_is_not"],
    ),
    Breakage(
        name="objects-without-a-record-that-are-passed-over",
        file="chunkstore/pravega/unrecorded.py",
        old="    chain, end = _recorded(source, found, start, is_trusted)",
        new="    chain, end = _recorded(source, found, start, is_trusted)\n    others = ()",
        tests=[f"{_KILLED}::test_objects_without_a_record_continue_a_segment_where_it_ends"],
    ),
    Breakage(
        name="objects-that-contradict-each-other",
        file="chunkstore/pravega/unrecorded.py",
        old="        if not _same(source, last, chunk, shared):",
        new="        if _same(source, last, chunk, -1) is None:",
        tests=[f"{_KILLED}::test_objects_that_contradict_each_other_are_not_used"],
    ),
    Breakage(
        name="segments-that-begin-at-zero",
        file="engine/state/changes/segment_changes.py",
        old="    draft.keep(segment._replace(start_offset=op.offset, length=op.offset, modified=draft.time))",
        new="    draft.keep(segment._replace(start_offset=0, length=op.offset, modified=draft.time))",
        tests=["tests/engine/state/test_operations.py::test_a_segment_that_begins_elsewhere_has_nothing_before"],
    ),
]
