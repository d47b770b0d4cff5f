"""Breakages of revisioned streams and state synchronizers."""

from __future__ import annotations

from tests.planted import Breakage

_REVISIONS = "tests/client/test_revisioned_stream.py"
_STATE = "tests/client/test_state_synchronizer.py"

BREAKAGES = [
    Breakage(
        name="a-conditional-write-that-depends-on-nothing",
        file="pravega_spark/streams/writing/writes.py",
        old="        Append(segment, part.content, offset, (count,), part.created_at),",
        new="        Append(segment, part.content, None, (count,), part.created_at),",
        tests=[f"{_REVISIONS}::test_a_conditional_write_needs_the_latest_revision"],
    ),
    Breakage(
        name="a-revision-of-a-segment-that-ended-is-the-end-of-the-stream",
        file="pravega_spark/streams/revisions.py",
        old="    if any(low != high for low, high in snapshot.ranges(cut, start).values()):\n",
        new="    if not snapshot.ranges(cut, start) and cut is None:\n",
        tests=[f"{_REVISIONS}::test_revisions_go_on_in_the_next_segment_of_a_scaled_stream"],
    ),
    Breakage(
        name="a-conditional-write-does-not-begin-a-generation",
        file="pravega_spark/streams/revisions.py",
        old="        self.stream.begin_generation()\n",
        new="",
        tests=[f"{_REVISIONS}::test_what_a_restore_has_lost_is_no_revision_of_the_restored_stream"],
    ),
    Breakage(
        name="a-mark-outlives-its-stream",
        file="pravega_spark/streams/model/system_tables.py",
        old="OF_STREAMS = (TRANSACTIONS, SUBSCRIBERS, MARKS, TIMES)",
        new="OF_STREAMS = (TRANSACTIONS, SUBSCRIBERS, TIMES)",
        tests=[f"{_REVISIONS}::test_a_stream_of_the_same_name_is_another_one"],
    ),
    Breakage(
        name="an-event-without-updates-leaves-a-state-behind-for-ever",
        file="pravega_spark/client/state_synchronizer.py",
        old="            if known is not None and known[1] < revision:  # an event without updates\n",
        new="            if False and known is not None:\n",
        tests=[f"{_STATE}::test_an_event_without_updates_changes_nothing", "--timeout=20"],
    ),
    Breakage(
        name="an-update-is-applied-twice",
        file="pravega_spark/client/state_synchronizer.py",
        old="                if known is not None and known[1] < each:\n",
        new="                if known is not None:\n",
        tests=[f"{_STATE}::test_a_blocking_update_blocks_no_reader_of_the_state"],
    ),
    Breakage(
        name="a-compaction-truncates-at-its-own-mark",
        file="pravega_spark/client/state_synchronizer.py",
        old="        if mark is not None:\n            self._client.truncate_to_revision(mark)",
        new="        if mark is None:\n            self._client.truncate_to_revision(new)",
        tests=[f"{_STATE}::test_compaction"],
    ),
]
