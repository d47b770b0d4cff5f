"""Breakages of the time of streams."""

from __future__ import annotations

from tests.planted import Breakage

_TIME = "tests/client/test_stream_time.py"

BREAKAGES = [
    Breakage(
        name="a-note-overtakes-the-events-before-it",
        file="pravega_spark/client/writer.py",
        old="        check_time(timestamp)\n        self.flush()\n",
        new="        check_time(timestamp)\n",
        tests=[f"{_TIME}::test_a_note_comes_after_all_that_the_writer_has_written"],
    ),
    Breakage(
        name="a-watermark-waits-for-nobody",
        file="pravega_spark/streams/model/watermarks.py",
        old="    lower = min((mark.timestamp for mark in marks.writers.values()), default=None)",
        new="    lower = max((mark.timestamp for mark in marks.writers.values()), default=None)",
        tests=[f"{_TIME}::test_no_event_is_earlier_than_the_lower_bound_of_a_place_before_it"],
    ),
    Breakage(
        name="a-watermark-of-an-earlier-time-follows",
        file="pravega_spark/streams/model/watermarks.py",
        old="(last is not None and lower <= last.lower)",
        new="(last is not None and lower == last.lower)",
        tests=[f"{_TIME}::test_a_writer_that_comes_later_with_an_earlier_time_holds_up_the_next_watermark"],
    ),
    Breakage(
        name="a-dead-writer-is-waited-for-for-ever",
        file="pravega_spark/streams/model/watermarks.py",
        old="        return now > self.noted + self.lease",
        new="        return False",
        tests=[f"{_TIME}::test_a_writer_that_is_dead_is_waited_for_during_its_lease"],
    ),
    Breakage(
        name="a-window-takes-a-part-of-a-cut-for-the-whole",
        file="pravega_spark/streams/model/watermarks.py",
        old="is not Comparison.EQUAL_OR_AFTER\n",
        new="is Comparison.BEFORE\n",
        tests=[
            f"{_TIME}::test_no_event_is_earlier_than_the_lower_bound_of_a_place_before_it",
            f"{_TIME}::test_windows_across_a_scale_and_a_truncation",
        ],
    ),
    Breakage(
        name="two-writers-note-at-once-and-one-note-is-lost",
        file="pravega_spark/streams/stream_time.py",
        old="encode_marks, decode_marks), stored.marks_version),",
        new="encode_marks, decode_marks), None),",
        tests=[f"{_TIME}::test_notes_of_several_processes_at_once"],
    ),
]
