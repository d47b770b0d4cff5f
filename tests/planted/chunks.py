"""Breakages of the chunk layer: whose chunks are added to, what counts, what is collected (S2 to S4, G1)."""

from tests.planted import Breakage

_ALL = ["-m", "long or not long"]
_SEGMENT_STORE = "tests/chunkstore/test_segment_store.py"

BREAKAGES = [
    Breakage(
        name="an-overtaken-segment-store-acknowledges",
        file="chunkstore/log_segment.py",
        old="        self._storage.write(LOG, self.end, data)\n        self._epoch.check()\n",
        new="        self._storage.write(LOG, self.end, data)\n",
        tests=[
            *_ALL,
            f"{_SEGMENT_STORE}::test_a_process_that_is_overtaken_at_any_request_acknowledges_what_the_next_one_finds",
        ],
    ),
    Breakage(
        name="new-chunks-of-a-segment-store-are-queued-with-their-commit",
        file="chunkstore/metadata_log.py",
        old="        if transaction is None or any(task.kind is GarbageKind.NEW_CHUNK for task in tasks):\n",
        new="        if transaction is None:\n",
        tests=[*_ALL, f"{_SEGMENT_STORE}::test_after_a_crash_at_any_request_a_verb_has_happened_or_not"],
    ),
    Breakage(
        name="a-segment-store-goes-on-after-an-unknown-outcome",
        file="chunkstore/metadata_log.py",
        old="            self._failure = error\n",
        new="            pass\n",
        tests=[f"{_SEGMENT_STORE}::test_after_an_unknown_outcome_the_store_is_opened_again"],
    ),
    Breakage(
        name="a-segment-store-in-a-root-of-streams",
        file="chunkstore/segment_store.py",
        old="        if not store.list(EPOCHS, limit=1):\n            _check_place(store, layout)\n",
        new="",
        tests=[f"{_SEGMENT_STORE}::test_a_root_of_streams_is_no_segment_store"],
    ),
    Breakage(
        name="a-merge-carries-damage-on",
        file="chunkstore/segments/copying.py",
        old="    if source.checksums and first_bad_block(",
        new="    if not source.name and first_bad_block(",
        tests=["tests/chunkstore/test_compaction.py::test_what_is_damaged_is_not_merged"],
    ),
    Breakage(
        name="a-chunk-is-added-to-after-a-failure",
        file="chunkstore/segments/storage.py",
        old="        self._open_chunks.pop(segment, None)  # and remembered after the commit: after any failure a chunk is begun\n",
        new="",
        tests=["tests/chunkstore/segments/test_storage.py", "tests/chunkstore/segments/test_segment_model.py"],
    ),
    Breakage(
        name="a-chunk-is-relocated-that-another-truncation-takes-out",
        file="chunkstore/segments/storage.py",
        old="                if start < placed.end and self._is_worth_relocating(segment, placed, start):",
        new="                if self._is_worth_relocating(segment, placed, start):",
        tests=["tests/chunkstore/segments/test_storage.py", "-k", "about_to_take_out"],
    ),
    Breakage(
        name="an-overtaken-instance-goes-on",
        file="chunkstore/segments/storage.py",
        old="""        if record.owner_epoch > self.epoch:
            raise StorageNotPrimary(segment, record.owner_epoch, self.epoch)
        chunks = ChunkList(transaction, record)
""",
        new="        chunks = ChunkList(transaction, record)\n",
        tests=["tests/chunkstore/segments/test_storage.py"],
    ),
    Breakage(
        name="a-chunk-may-belong-to-two-segments",
        file="chunkstore/segments/storage.py",
        old="                if name in known or transaction.get(name) is not None:\n",
        new="                if name in known:\n",
        tests=["tests/chunkstore/segments/test_storage.py"],
    ),
    Breakage(
        name="a-late-chunk-is-put-in-place",
        file="chunkstore/segments/storage.py",
        old="            if self.clock() >= new.deadline or ",
        new="            if new.deadline < 0 or ",
        tests=["tests/chunkstore/segments/test_storage.py", "tests/chunkstore/test_compaction.py"],
    ),
    Breakage(
        name="an-unsealed-segment-is-merged",
        file="chunkstore/segments/storage.py",
        old="            if not merged.status & RecordStatus.SEALED:\n",
        new="            if merged.status is None:\n",
        tests=["tests/chunkstore/segments/test_storage.py"],
    ),
    Breakage(
        name="a-deleted-segment-is-not-queued",
        file="chunkstore/segments/storage.py",
        old="            self._let_go(transaction, segment, deleted)\n            transaction.commit()\n",
        new="            transaction.put(deleted)\n            transaction.commit()\n",
        tests=["tests/chunkstore/segments/test_storage.py", "tests/chunkstore/test_garbage_collector.py"],
    ),
]
