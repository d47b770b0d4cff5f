"""Breakages of what a call has done when it returns (W17)."""

from tests.planted import Breakage

_DONE = "tests/engine/containers/test_done.py::test_"
_BACKUPS = "tests/engine/admin/test_backups.py::test_"

BREAKAGES = [
    Breakage(
        name="a-checkpoint-is-tried-once",
        file="engine/containers/container.py",
        old="        for _ in range(2):  # a single",
        new="        for _ in range(1):  # a single",
        tests=[f"{_DONE}a_checkpoint_whose_first_request_fails_is_made_all_the_same"],
    ),
    Breakage(
        name="a-flush-that-is-overtaken-is-done",
        file="engine/containers/maintenance_tasks.py",
        old="            if state.cycle.recovery_point >= wanted:",
        new="            if True:",
        tests=[f"{_DONE}flushes_that_are_always_overtaken_end_with_an_error_that_says_so"],
    ),
    Breakage(
        name="a-flush-does-not-wait-for-the-one-that-overtook-it",
        file="engine/containers/maintenance_tasks.py",
        old="            if self._writer.stopping or not cycle.runs(cycle.number) or cycle.sequence < wanted:",
        new="            if True:",
        tests=[f"{_DONE}a_flush_waits_for_a_later_one_that_is_at_work_and_no_longer_than_it_shows_life"],
    ),
    Breakage(
        name="a-flush-is-content-with-an-older-recovery-point",
        file="engine/containers/maintenance_tasks.py",
        old="        wanted = self._log.refresh().sequence\n",
        new="        wanted = self._log.refresh().cycle.recovery_point\n",
        tests=[f"{_DONE}a_flush_that_is_overtaken_at_any_step_returns_when_its_data_is_covered"],
    ),
    Breakage(
        name="a-late-recovery-point-deletes-newer-ones",
        file="engine/storage/recovery_points.py",
        old="for info in list_numbered(store, folder(container)) if info.path < path]",
        new="for info in list_numbered(store, folder(container)) if info.path != path]",
        tests=[f"{_DONE}a_late_recovery_point_deletes_no_newer_one"],
    ),
    Breakage(
        name="a-replaced-recovery-point-is-missed",
        file="engine/storage/recovery_points.py",
        old="            if path == gone:\n",
        new="            if True:\n",
        tests=[f"{_DONE}the_newest_recovery_point_is_found_while_others_replace_it"],
    ),
    Breakage(
        name="a-log-without-a-checkpoint-is-given-up",
        file="engine/storage/recovery.py",
        old='    return "its first frame" if has_first_frame(stores.log, container) else ""\n',
        new='    return ""\n',
        tests=[f"{_DONE}an_intact_log_without_a_checkpoint_is_not_given_up"],
    ),
    Breakage(
        name="a-copy-of-any-content-taken-for-whole",
        file="engine/admin/backups.py",
        old="        if _read_valid(target, ranges) is not None:\n",
        new="        if target.stat(path).size >= 0:\n",
        tests=[f"{_BACKUPS}what_is_not_whole_in_an_earlier_backup_is_copied_again"],
    ),
    Breakage(
        name="a-copy-judged-by-its-length",
        file="engine/admin/backups.py",
        old="        if _read_valid(target, ranges) is not None:\n",
        new="        if target.stat(path).size >= max(each.position + each.length for each in ranges):\n",
        tests=[f"{_BACKUPS}what_is_not_whole_in_an_earlier_backup_is_copied_again"],
    ),
    Breakage(
        name="a-copy-not-read-back",
        file="engine/admin/backups.py",
        old="    if _read_valid(target, ranges) is None:\n",
        new="    if False:\n",
        tests=[f"{_BACKUPS}a_storage_that_does_not_keep_what_was_copied_is_told"],
    ),
    Breakage(
        name="a-backup-of-an-older-recovery-point",
        file="engine/admin/backups.py",
        old="        if found.state.cycle.sequence < acknowledged:\n",
        new="        if False:\n",
        tests=[f"{_BACKUPS}an_older_recovery_point_than_what_was_acknowledged_is_refused"],
    ),
    Breakage(
        name="a-newer-backup-left-with-a-shorter-object",
        file="engine/admin/backups.py",
        old="        if newest.number <= found.number:\n",
        new="        if True:\n",
        tests=[f"{_BACKUPS}a_backup_that_ends_late_takes_nothing_from_a_newer_one"],
    ),
    Breakage(
        name="orphans-become-garbage-after-a-flush-that-was-overtaken",
        file="engine/containers/container.py",
        old="        moved = self.maintenance.flush()\n",
        new="        moved = self.maintenance.run_cycle(lambda state: True)\n",
        tests=[f"{_BACKUPS}orphans_become_garbage_only_when_a_recovery_point_exists"],
    ),
    Breakage(
        name="a-dry-run-of-recovery-looks-at-the-recovery-point-only",
        file="pravega_spark/cli/container.py",
        old="recoverable(root.stores, root.container_id(number), force=force)",
        new="recoverable(root.stores, root.container_id(number), force=True)",
        tests=["tests/cli/test_dry_runs.py::test_a_dry_run_ends_in_the_refusal_of_the_run[container recover-NUMBER]"],
    ),
    Breakage(
        name="a-dry-run-where-nothing-can-be-changed",
        file="pravega_spark/cli/session.py",
        old="            self._root.check_writable()\n",
        new="            pass\n",
        tests=["tests/cli/test_dry_runs.py::test_a_dry_run_ends_in_the_refusal_of_the_run"],
    ),
]
