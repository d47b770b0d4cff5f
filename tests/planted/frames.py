"""Breakages of what other libraries read and write: ranges of segments, and tables in one commit."""

from tests.planted import Breakage

_RANGES = "tests/client/test_segment_ranges.py"
_FRAMES = "tests/client/test_frames.py"

BREAKAGES = [
    Breakage(
        name="a-range-of-any-stream-of-its-name",
        file="pravega_spark/client/segment_ranges.py",
        old="if snapshot.record.id.hex() != wanted.stream_id:",
        new="if not wanted.stream_id:",
        tests=[f"{_RANGES}::test_a_range_of_a_deleted_stream_reads_no_other_stream"],
    ),
    Breakage(
        name="ranges-that-seem-to-share-no-keys",
        file="pravega_spark/client/segment_ranges.py",
        old="low, high, *segments[number][1:])",
        new="low, high, 0.0, 0.0)",
        tests=[f"{_RANGES}::test_ranges_that_share_no_keys_may_be_read_in_any_order"],
    ),
    Breakage(
        name="a-range-beyond-the-end",
        file="pravega_spark/streams/reading/snapshot.py",
        old="            if end > length:\n",
        new="            if end < 0:\n",
        tests=[f"{_RANGES}::test_a_range_that_a_restored_root_lost_is_an_error"],
    ),
    Breakage(
        name="batches-before-they-are-asked-for",
        file="pravega_spark/client/reader.py",
        old="from_batches(schema_of(chosen, self._values), self._batches(chosen, values))",
        new="from_batches(schema_of(chosen, self._values), list(self._batches(chosen, values)))",
        tests=[f"{_RANGES}::test_bytes_are_requested_as_batches_are_consumed"],
    ),
    Breakage(
        name="a-table-in-several-appends",
        file="pravega_spark/client/frames.py",
        old="        written = stream.write(parts, producer, record.routing)\n",
        new="        written = all(stream.write([part], producer, record.routing) for part in parts)\n",
        tests=["tests/client/test_frame_crash.py::test_a_crash_at_every_request"],
    ),
    Breakage(
        name="chunks-of-a-table-that-failed",
        file="pravega_spark/client/frames.py",
        old="            collector.drop()\n",
        new="            pass\n",
        tests=[f"{_FRAMES}::test_nothing_is_seen_or_left_of_a_reader_that_fails"],
    ),
    Breakage(
        name="a-large-batch-at-a-time",
        file="pravega_spark/client/frames.py",
        old="row_ranges(events, BYTES)",
        new="row_ranges(events, 1 << 40)",
        tests=[f"{_FRAMES}::test_large_batches_are_framed_in_parts"],
    ),
    Breakage(
        name="a-table-without-digest",
        file="pravega_spark/client/frames.py",
        old="producer._replace(digest=collector.digests[stream.name])",
        new="producer._replace(digest=None)",
        tests=[f"{_FRAMES}::test_a_version_is_written_once_also_by_spark"],
    ),
]
