"""Breakages of reading: from a segment's offsets to checked bytes (S1), and throttling."""

from tests.planted import Breakage

BREAKAGES = [
    Breakage(
        name="an-error-names-the-first-object-that-was-fetched",
        file="pravega_spark/streams/reading/scan.py",
        old="        place = max(offset - self.start, 0)\n",
        new="        place = 0\n",
        tests=["tests/streams/test_large_events.py::test_an_error_names_the_one_object_with_the_event"],
    ),
    Breakage(
        name="checksums-of-blocks-are-not-compared",
        file="engine/storage/object_reads.py",
        old="if len(data) != last - first or (piece.checksums and first_bad_block(data, sums) is not None):",
        new="if len(data) != last - first:",
        tests=["tests/engine/admin/test_corruption.py"],
    ),
    Breakage(
        name="what-is-truncated-is-read",
        file="engine/storage/object_reads.py",
        old="    if start < segment.start_offset:\n",
        new="    if start < 0:\n",
        tests=[
            "tests/engine/containers/test_container.py",
            "tests/engine/containers/test_moved_objects.py",
            "tests/engine/writer/test_data_flows.py",
        ],
    ),
    Breakage(
        name="what-moved-is-not-looked-up-again",
        file="engine/reading/container_segments.py",
        old="                self._log.refresh()\n                if self.plan(segment, start, end) == pieces:\n",
        new="                if self.plan(segment, start, end) == pieces:\n",
        tests=[
            "tests/engine/containers/test_moved_objects.py",
            "tests/engine/containers/test_container_model.py",
        ],
    ),
    Breakage(
        name="a-backlog-holds-nobody-back",
        file="engine/logs/throttle.py",
        old="            if fill <= 1:\n                self.outstanding, load.admitted = self.outstanding + size, size  # both",
        new="            fill = min(fill, 1.0)\n            if fill <= 1:\n"
        "                self.outstanding, load.admitted = self.outstanding + size, size  # both",
        tests=["tests/engine/logs/test_throttle.py"],
    ),
    Breakage(
        name="the-cache-keeps-everything",
        file="engine/storage/cache.py",
        old="            while self.used > self.size:\n",
        new="            while self.used < 0:\n",
        tests=["tests/engine/storage/test_cache.py"],
    ),
]
