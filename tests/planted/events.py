"""Breakages of events and streams: framing, hashes, cuts, the index, and reading between cuts."""

from tests.planted import Breakage

BREAKAGES = [
    Breakage(
        name="an-event-may-run-over-the-end",
        file="pravega_spark/streams/model/events.py",
        old="        if place + HEADER_SIZE + length > limit:\n",
        new="        if length > limit:\n",
        tests=["tests/streams/test_events.py"],
    ),
    Breakage(
        name="many-lanes-do-not-check-types",
        file="pravega_spark/streams/model/events.py",
        old="if least < 0 or header.max() > MAX_INT32:",
        new="if least < 0:",
        tests=["tests/streams/test_events.py"],
    ),
    Breakage(
        name="events-of-a-segment-lose-their-order",
        file="pravega_spark/streams/model/framing.py",
        old='order = np.argsort(segments, kind="stable")',
        new='order = np.argsort(segments, kind="stable")[::-1]',
        tests=["tests/streams/test_events.py"],
    ),
    Breakage(
        name="equal-cuts-have-different-texts",
        file="pravega_spark/streams/model/cuts.py",
        old="dict(sorted(map(self._position, self.positions.items())))",
        new="dict(map(self._position, self.positions.items()))",
        tests=["tests/streams/test_cuts.py"],
    ),
    Breakage(
        name="a-segment-may-be-in-a-cut-twice",
        file="pravega_spark/streams/model/cuts.py",
        old="    if len(positions) != len(pairs):\n",
        new="    if len(positions) > len(pairs):\n",
        tests=["tests/streams/test_cuts.py"],
    ),
    Breakage(
        name="successors-are-those-of-the-same-epoch",
        file="pravega_spark/streams/model/epochs.py",
        old="        following = self._last_epochs[number] + 1 - self._first\n",
        new="        following = self._last_epochs[number] - self._first\n",
        tests=["tests/streams/test_epochs.py"],
    ),
    Breakage(
        name="a-truncation-may-go-back",
        file="pravega_spark/streams/writing/changes.py",
        old="if history.gone(cut.positions) or history.compare(cut.positions, head) is not Comparison.EQUAL_OR_AFTER:",
        new="if history.gone(cut.positions):",
        tests=["tests/streams/test_scaling.py", "tests/streams/test_stream.py"],
    ),
    Breakage(
        name="a-truncation-leaves-the-index",
        file="pravega_spark/streams/writing/changes.py",
        old="    return [TruncateSegment(name, offset), TruncateSegment(index_segment_name(name), records * RECORD_SIZE)]\n",
        new="    return [TruncateSegment(name, offset + 0 * records)]\n",
        tests=["tests/streams/test_scaling.py", "tests/streams/test_stream.py"],
    ),
    Breakage(
        name="a-segment-that-is-not-reached-counts-as-reached",
        file="pravega_spark/streams/reading/stream_position.py",
        old="        return snapshot.resolved(place)\n",
        new="        return place\n",
        tests=["tests/client/test_scaling.py"],
    ),
    Breakage(
        name="a-next-cut-goes-on-into-successors",
        file="pravega_spark/streams/reading/snapshot.py",
        old="        return self._cut(reached)\n",
        new="        traversal.go_to(reached)\n        return self._cut(traversal.position)\n",
        tests=["tests/client/test_scaling.py"],
    ),
    Breakage(
        name="groups-of-a-deleted-scope-hold-back-streams-elsewhere",
        file="pravega_spark/client/scope_contents.py",
        old="    _unsubscribe_groups(catalog.root, scope)\n",
        new="",
        tests=["tests/streams/test_scopes.py::test_a_forced_deletion_that_dies_anywhere_is_completed_by_another"],
    ),
    Breakage(
        name="a-policy-does-not-scale",
        file="pravega_spark/streams/writing/changes.py",
        old='    if len(segments) == wanted or (policy.kind != "fixed" and len(segments) > wanted):\n',
        new='    if len(segments) == wanted or policy.kind != "fixed":\n',
        tests=["tests/streams/test_scaling.py::test_an_update_of_the_scaling_policy_scales"],
    ),
    Breakage(
        name="a-scale-does-not-look-at-the-epoch",
        file="pravega_spark/streams/writing/changes.py",
        old="    if expected_epoch not in (None, record.current.epoch):\n",
        new="    if expected_epoch == -1:\n",
        tests=["tests/streams/test_scaling.py"],
    ),
    Breakage(
        name="data-loss-goes-by-unsaid",
        file="pravega_spark/streams/reading/scan.py",
        old="            if self._fail_on_data_loss:\n",
        new="            if head < 0:\n",
        tests=["tests/spark/test_data_loss.py"],
    ),
]
