"""Breakages of identities: a process meets a root, a log, a backup or a stream that took the place of its own."""

from tests.planted import Breakage

_GENERATIONS = "tests/engine/test_generations.py"
_BACKUPS = "tests/engine/admin/test_backup_identity.py"
_QUERIES = "tests/source/test_micro_batch.py"

BREAKAGES = [
    Breakage(
        name="frame-of-another-root-is-read",
        file="engine/logs/frames.py",
        old="    if generation != generation_bytes(container):\n",
        new="    if not generation:\n",
        tests=[f"{_GENERATIONS}::test_an_object_of_another_root_is_damage"],
    ),
    Breakage(
        name="log-is-not-recognised",
        file="engine/logs/log.py",
        old="        if not self._identity.check() or self.head.address <= self._log_start:\n            return\n",
        new="        return\n",
        tests=[f"{_GENERATIONS}::test_a_writer_of_a_root_that_was_created_anew_is_refused"],
    ),
    Breakage(
        name="recovery-leaves-the-description",
        file="engine/root.py",
        old="        self.stores.chunks.put(ROOT, config.to_bytes(self.key))\n",
        new="",
        tests=[f"{_BACKUPS}::test_a_process_that_was_overlooked_ends"],
    ),
    Breakage(
        name="recovery-gives-versions-again",
        file="engine/storage/recovery.py",
        old="        sequence=point.state.sequence + VERSION_GAP,\n",
        new="        sequence=point.state.sequence,\n",
        tests=[f"{_BACKUPS}::test_versions_from_before_never_fit_again"],
    ),
    Breakage(
        name="recovery-without-a-recovery-point",
        file="engine/storage/recovery.py",
        old="        recovery_points.copy(stores.chunks, point, successor)",
        new="        pass",
        tests=[f"{_BACKUPS}::test_a_log_that_is_lost_again_is_recovered_again"],
    ),
    Breakage(
        name="backup-over-another-roots",
        file="engine/admin/backups.py",
        old="    if found is None or found.id != config.id:\n",
        new="    if found is None:\n",
        tests=[f"{_BACKUPS}::test_a_staging_copy_cannot_back_up_over_productions_backup"],
    ),
    Breakage(
        name="restored-root-is-the-one-before",
        file="engine/admin/backups.py",
        old="replace(saved, id=uuid.uuid4().hex, origin",
        new="replace(saved, id=saved.id, origin",
        tests=[f"{_BACKUPS}::test_a_restored_root_has_an_identity_of_its_own"],
    ),
    Breakage(
        name="garbage-of-another-root-is-collected",
        file="engine/containers/maintenance_tasks.py",
        old="        self._identity.verify()  # a root",
        new="        # a root",
        tests=[f"{_GENERATIONS}::test_a_collector_of_an_earlier_root_deletes_nothing"],
    ),
    Breakage(
        name="root-that-was-replaced-stays-open",
        file="pravega_spark/roots.py",
        old="            root.check()\n",
        new="            pass\n",
        tests=[f"{_GENERATIONS}::test_a_process_that_opens_the_root_again_goes_on_with_the_new_one"],
    ),
    Breakage(
        name="query-reads-another-stream",
        file="pravega_spark/source/micro_batch.py",
        old="        snapshot.require(self._ids.setdefault(name, snapshot.record.id))\n",
        new="        self._ids.setdefault(name, snapshot.record.id)\n",
        tests=[f"{_QUERIES}::test_a_checkpoint_of_another_root_is_refused"],
    ),
    Breakage(
        name="query-plans-another-stream",
        file="pravega_spark/source/micro_batch.py",
        old="self._identified(name, self._snapshot_with(self._selection.stream(name), cut))",
        new="self._snapshot_with(self._selection.stream(name), cut)",
        tests=[f"{_QUERIES}::test_a_checkpoint_of_another_root_is_refused"],
    ),
    Breakage(
        name="replaced-root-is-forgotten",
        file="engine/identity.py",
        old="            self._replaced = RootReplaced(self._store.root)\n            raise self._error(self._replaced)",
        new="            raise RootReplaced(self._store.root)",
        tests=[f"{_GENERATIONS}::test_a_root_that_was_seen_to_be_replaced_is_never_used_again"],
    ),
    Breakage(
        name="generations-share-a-folder",
        file="chunkstore/paths.py",
        old='    return f"{folder}{generation}/" if generation else folder\n',
        new="    return folder\n",
        tests=[f"{_GENERATIONS}::test_every_address_in_a_new_root_differs_from_those_of_the_root_before"],
    ),
]
