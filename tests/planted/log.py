"""Breakages of the write-ahead log: who believes what, when, and in which order (W1 to W8)."""

from tests.planted import Breakage

BREAKAGES = [
    Breakage(
        name="any-higher-epoch-follows",
        file="engine/logs/frames.py",
        old="return self.position.epoch == head.epoch + step",
        new="return self.position.epoch >= head.epoch",
        tests=["tests/engine/logs/test_frames.py::test_succession"],
    ),
    Breakage(
        name="the-predecessor-is-not-compared",
        file="engine/logs/frames.py",
        old="if self.kind is Kind.BELL or not self.names(head):",
        new="if self.kind is Kind.BELL:",
        tests=["tests/engine/logs/test_frames.py::test_succession"],
    ),
    Breakage(
        name="a-frame-is-valid-anywhere",
        file="engine/logs/frames.py",
        old="if number != container or own != address:",
        new="if number < 0:",
        tests=["tests/engine/logs/test_frames.py::test_a_frame_is_valid_at_its_own_place_only"],
    ),
    Breakage(
        name="metadata-of-a-frame-is-not-checked",
        file="engine/logs/frames.py",
        old="if len(meta) != end - HEADER or crc32c(meta) != meta_crc:",
        new="if len(meta) != end - HEADER:",
        tests=["tests/engine/logs/test_frames.py"],
    ),
    Breakage(
        name="a-proof-counts-from-the-answer",
        file="engine/logs/log.py",
        old="self._prove(flight.sent, stamp)",
        new="self._prove(self._clock(), stamp)",
        tests=["tests/engine/logs/test_log.py::test_a_proof_counts_from_before_its_request"],
    ),
    Breakage(
        name="a-miss-counts-from-the-answer",
        file="engine/logs/log.py",
        old="self._prove(sent, noted.latest)",
        new="self._prove(self._clock(), noted.latest)",
        tests=["tests/engine/logs/test_log.py::test_a_miss_counts_from_before_its_request"],
    ),
    Breakage(
        name="a-sleeper-believes-what-it-created",
        file="engine/logs/log.py",
        old="            self._trust(flight.position.address, stamp)\n",
        new="            pass\n",
        tests=["tests/engine/logs/test_log.py::test_a_create_at_a_deleted_address_is_not_acknowledged"],
    ),
    Breakage(
        name="a-sleeper-believes-what-it-reads",
        file="engine/logs/log.py",
        old="        self._trust(self.next, noted.latest)\n        if found:\n",
        new="        if found:\n",
        tests=["tests/engine/logs/test_log.py", "tests/engine/logs/test_log_stall.py"],
    ),
    Breakage(
        name="a-sleeper-believes-what-a-message-points-to",
        file="engine/logs/log.py",
        old="            self._trust(self.next, noted.latest)\n            for frame in found:\n",
        new="            for frame in found:\n",
        tests=["tests/engine/logs/test_log.py"],
    ),
    Breakage(
        name="any-repair-passes-over-damage",
        file="engine/logs/log.py",
        old="                and frame.follows(self.head)\n",
        new="",
        tests=["tests/engine/logs/test_log.py::test_only_the_right_repair_passes_over_damage"],
    ),
    Breakage(
        name="damage-is-skipped",
        file="engine/logs/log.py",
        old="self.next = self._repaired(frame)",
        new="self.next = frame.address + 1",
        tests=["tests/engine/logs/test_log.py", "tests/engine/admin/test_corruption.py"],
    ),
    Breakage(
        name="frames-needed-by-segments-are-deleted",
        file="engine/logs/truncation.py",
        old="limit = truncation_point if needed is None else min(truncation_point, needed)",
        new="limit = truncation_point",
        tests=[
            "tests/engine/logs/test_log_stall.py",
            "tests/engine/containers/test_flushes.py",
        ],
    ),
]
