"""Breakages of the order of appends, of scopes, of what a truncation loses, of full storages, and of memory."""

from tests.planted import Breakage

_LAST = ["tests/client/test_last_events.py"]
_SCOPES = ["tests/streams/test_scopes.py"]

BREAKAGES = [
    Breakage(
        name="records-have-no-number-of-their-append",
        file="engine/state/index_records.py",
        old="[append if number == THIS_APPEND else number for number in given]",
        new="[1 if number == THIS_APPEND else number for number in given]",
        tests=[*_LAST, "tests/engine/state/test_index_records.py"],
    ),
    Breakage(
        name="appends-of-one-frame-have-one-number",
        file="engine/logs/validation.py",
        old="        number = draft.sequence\n",
        new="        number = self.state.sequence\n",
        tests=["tests/engine/containers/test_container.py"],
    ),
    Breakage(
        name="how-events-were-mixed-is-not-kept",
        file="pravega_spark/streams/writing/event_order.py",
        old="    if interleaving is None or len(interleaving.segments) < 2:\n",
        new="    if interleaving is None or len(interleaving.segments) < 3:\n",
        tests=_LAST,
    ),
    Breakage(
        name="batches-in-chunks-do-not-say-how-they-are-mixed",
        file="pravega_spark/client/writer.py",
        old="for part in each.parts], interleaving=combined(pending))",
        new="for part in each.parts])",
        tests=_LAST,
    ),
    Breakage(
        name="an-old-segment-with-enough-events-hides-newer-ones",
        file="pravega_spark/client/last_events.py",
        old="if sum(events for number, events in counted.items() if segment_epoch(number) >= epoch.epoch) >= n:",
        new="if sum(counted.values()) >= n:",
        tests=_LAST,
    ),
    Breakage(
        name="a-transaction-is-not-in-the-order-in-which-it-was-written",
        file="pravega_spark/streams/writing/event_order.py",
        old='        return cls(known, own[places[np.argsort(appends, kind="stable")]])\n',
        new="        return cls(known, own[places])\n",
        tests=_LAST,
    ),
    Breakage(
        name="a-truncation-forgets-the-order-of-what-is-left",
        file="pravega_spark/streams/writing/changes.py",
        old="    return order.truncation(min(first, default=None))\n",
        new="    return order.truncation(None)\n",
        tests=_LAST,
    ),
    Breakage(
        name="what-is-made-does-not-depend-on-the-scope",
        file="pravega_spark/streams/stream.py",
        old="            condition = unless_deleted(self.container, state)\n            keep_scope()\n",
        new="            keep_scope()\n            condition = unless_deleted(self.container, self.container.refresh())\n",
        tests=_SCOPES,
    ),
    Breakage(
        name="a-deletion-that-was-begun-goes-on-whatever-is-made",
        file="pravega_spark/streams/scopes.py",
        old="            if not decode_scope(stored[0], self.name):\n                return True\n",
        new="            if decode_scope(stored[0], self.name) in (True, False):\n                return True\n",
        tests=_SCOPES,
    ),
    Breakage(
        name="a-deletion-of-a-scope-looks-only-before-it-is-said",
        file="pravega_spark/streams/scopes.py",
        old="                self._root.container(number).commit([said])\n            check_empty()\n",
        new="                self._root.container(number).commit([said])\n",
        tests=_SCOPES,
    ),
    Breakage(
        name="a-group-does-not-depend-on-its-scope",
        file="pravega_spark/client/groups/entry.py",
        old="self._put(retry, condition, PutEntry(GROUPS, self.key, state.encode(), NOT_EXISTS))",
        new="self._put(retry, PutEntry(GROUPS, self.key, state.encode(), NOT_EXISTS))",
        tests=_SCOPES,
    ),
    Breakage(
        name="empty-segments-are-taken-for-lost-data",
        file="pravega_spark/streams/model/stream_record.py",
        old="        if all((next_ in found and found[next_].length == 0) or head.get(next_) == 0 for next_ in each.successors):",
        new="        if all(head.get(next_) == 0 for next_ in each.successors):",
        tests=["tests/streams/test_data_loss.py"],
    ),
    Breakage(
        name="lost-data-are-taken-for-empty-segments",
        file="pravega_spark/streams/model/stream_record.py",
        old="        if all((next_ in found and found[next_].length == 0) or head.get(next_) == 0 for next_ in each.successors):",
        new="        if all(next_ in found or head.get(next_) == 0 for next_ in each.successors):",
        tests=["tests/streams/test_data_loss.py"],
    ),
    Breakage(
        name="tags-are-kept-twice",
        file="pravega_spark/streams/model/stream_record.py",
        old="    once = tuple(dict.fromkeys(tags))\n",
        new="    once = tuple(tags)\n",
        tests=["tests/streams/test_policies.py", "-k", "tags"],
    ),
    Breakage(
        name="a-full-storage-is-damage",
        file="engine/writer/segment_flush.py",
        old="        if isinstance(error, StorageFull):\n",
        new="        if isinstance(error, MemoryError):\n",
        tests=["tests/engine/containers/test_full_storage.py"],
    ),
    Breakage(
        name="a-truncated-segment-of-old-code-is-to-be-restored",
        file="engine/admin/rolling_segments.py",
        old="    if there and there[0].start:  # truncation",
        new="    if not there:  # truncation",
        tests=["tests/cli/test_upkeep.py", "-k", "was_truncated_is_said"],
    ),
    Breakage(
        name="small-blocks-cost-nothing-but-their-bytes",
        file="engine/storage/cache.py",
        old="BLOCK_COST = 640\n",
        new="BLOCK_COST = 0\n",
        tests=["tests/engine/storage/test_cache.py"],
    ),
    Breakage(
        name="folders-are-remembered-for-ever",
        file="chunkstore/bounded_set.py",
        old="        if len(self._values) >= self._most:\n",
        new="        if len(self._values) >= 100 * self._most:\n",
        tests=["tests/chunkstore/test_bounded_set.py"],
    ),
    Breakage(
        name="a-manager-keeps-what-it-has-made",
        file="pravega_spark/client/manager.py",
        old="        self._writers = weakref.WeakSet()\n",
        new="        self._writers = set()  # type: ignore[assignment]\n",
        tests=["tests/client/test_memory.py"],
    ),
]
