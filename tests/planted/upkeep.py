"""Breakages of upkeep: what is due, who waits for it, how a process ends (W12)."""

from tests.planted import Breakage

_TESTS = "tests/engine/containers/test_upkeep.py::"
_TIDY = [f"{_TESTS}test_processes_that_commit_once_keep_a_root_tidy"]

_KILLED = "tests/engine/writer/test_killed_flushes.py"

BREAKAGES = [
    Breakage(
        name="close-stops-the-flush",
        file="engine/containers/container.py",
        old="        if not self.background.finish(self.settings.maintenance_wait):\n            self.writer.stop()\n",
        new="        self.writer.stop()\n",
        tests=[f"{_TESTS}test_close_finishes_the_flush_under_way"],
    ),
    Breakage(
        name="close-waits-for-the-whole-cycle",
        file="engine/containers/container.py",
        old="            self.writer.stop()\n",
        new="            pass\n",
        tests=[f"{_TESTS}test_each_process_brings_a_slow_storage_on"],
    ),
    Breakage(
        name="close-loses-the-step-under-way",
        file="engine/containers/container.py",
        old="        self.background.close()  # the steps under way are appended to the log\n        self.log.close()\n",
        new="        self.log.close()\n        self.background.close()\n",
        tests=[f"{_TESTS}test_each_process_brings_a_slow_storage_on"],
    ),
    Breakage(
        name="a-cycle-that-was-given-up-goes-on",
        file="engine/state/state.py",
        old="        return self.number == number and not self.complete and not self.aborted",
        new="        return self.number == number and not self.complete",
        tests=[f"{_TESTS}test_a_cycle_that_was_given_up_is_over_for_the_log"],
    ),
    Breakage(
        name="overdue-upkeep-is-left-to-threads",
        file="engine/containers/maintenance_scheduler.py",
        old="            self._background.wait(self._settings.maintenance_wait)\n",
        new="            pass\n",
        tests=[f"{_TESTS}test_the_first_commit_waits_for_what_is_overdue"],
    ),
    Breakage(
        name="a-commit-waits-until-upkeep-is-done",
        file="engine/containers/maintenance_scheduler.py",
        old="            self._background.wait(self._settings.maintenance_wait)\n",
        new="            self._background.wait()\n",
        tests=[f"{_TESTS}test_a_commit_waits_for_upkeep_no_longer_than_its_bound"],
    ),
    Breakage(
        name="upkeep-waits-for-itself",
        file="engine/containers/container.py",
        old="FlushContext(\n            stores, settings, self.storage_clock, self.log,",
        new="FlushContext(\n            stores, settings, self.storage_clock, self,",
        tests=[f"{_TESTS}test_upkeep_never_waits_for_itself"],
    ),
    Breakage(
        name="a-missing-checkpoint-goes-unnoticed",
        file="engine/containers/maintenance_policy.py",
        old="    return Urgency.OVERDUE if head - log_start >= OVERDUE * frames else Urgency.NOT_DUE",
        new="    return Urgency.NOT_DUE",
        tests=[f"{_TESTS}test_a_checkpoint_that_was_never_made_is_made_by_the_next_process"],
    ),
    Breakage(
        name="only-who-stays-truncates",
        file="engine/containers/maintenance_policy.py",
        old="    return _urgency(old / OLD_CHECKPOINTS)",
        new="    return Urgency.NOT_DUE",
        tests=_TIDY,
    ),
    Breakage(
        name="only-who-stays-collects",
        file="engine/containers/maintenance_policy.py",
        old="    if not due:\n        return Urgency.NOT_DUE\n",
        new="    return Urgency.NOT_DUE\n",
        tests=_TIDY,
    ),
    Breakage(
        name="before-the-first-cycle-no-time-passes",
        file="engine/containers/maintenance_policy.py",
        old="        measures += [(address - max(state.flushed, 0)) / settings.flush_frames, age / settings.flush_seconds]",
        new="        measures += [(address - max(state.flushed, 0)) / settings.flush_frames,"
        " age / settings.flush_seconds if state.cycle.number else 0.0]",
        tests=_TIDY,
    ),
    Breakage(
        name="a-cycle-of-the-future-keeps-everybody-out",
        file="engine/containers/maintenance_policy.py",
        old="        return age(recorded / 1000, self._now(), math.inf)",
        new="        return age(recorded / 1000, self._now(), 0.0)",
        tests=[f"{_TESTS}test_no_host_s_clock_keeps_the_others_from_flushing"],
    ),
    Breakage(
        name="what-was-seen-to-begin-is-timed-by-others",
        file="engine/containers/maintenance_policy.py",
        old="self._recorded_age(recorded()) if self._known is None else 0.0",
        new="self._recorded_age(recorded())",
        tests=[f"{_TESTS}test_who_sees_a_cycle_begin_times_it_by_its_own_clock"],
    ),
    Breakage(
        name="a-cycle-shows-no-life",
        file="engine/state/changes/cycle_changes.py",
        old="    draft.cycle = draft.cycle._replace(alive=draft.time)\n",
        new="",
        tests=[f"{_TESTS}test_a_long_cycle_that_shows_life_is_left_alone"],
    ),
    Breakage(
        name="a-failed-cycle-is-tried-again-at-once",
        file="engine/containers/maintenance_policy.py",
        old="        if silence < settings.timeout and (not cycle.aborted or cycle.error):",
        new="        if silence < settings.timeout and not cycle.aborted:",
        tests=[f"{_TESTS}test_a_failed_cycle_is_tried_again_after_a_pause"],
    ),
    Breakage(
        name="upkeep-swallows-what-it-does-not-expect",
        file="engine/task_runner.py",
        old='            self._failed(kind, error, f"failed unexpectedly and will be retried: {error!r}", trace=True)',
        new="            del error",
        tests=[f"{_TESTS}test_what_upkeep_does_not_expect_is_logged_counted_and_shown"],
    ),
    Breakage(
        name="the-log-hears-of-no-failure",
        file="engine/writer/flush_cycle.py",
        old="        except Exception as error:\n            self.abort(error)\n            raise\n",
        new="",
        tests=[f"{_TESTS}test_what_upkeep_does_not_expect_is_logged_counted_and_shown"],
    ),
    Breakage(
        name="a-live-commit-fails-with-the-facts",
        file="engine/containers/maintenance_scheduler.py",
        old='            self._background.do("look", self._start_due, listed)',
        new="            self._start_due(listed)",
        tests=[f"{_TESTS}test_an_error_while_the_facts_are_weighed_is_not_told_as_a_failed_commit"],
    ),
    Breakage(
        name="a-thread-that-does-not-start-fails-a-commit",
        file="engine/task_runner.py",
        old="            except RuntimeError as error:  # no thread could be started, or the process is ending",
        new="            except KeyError as error:",
        tests=[f"{_TESTS}test_threads_that_cannot_be_started_do_not_fail_a_commit"],
    ),
    Breakage(
        name="the-recovery-point-comes-after-the-end-of-its-cycle",
        file="engine/writer/flush_cycle.py",
        old="""        recovery_points.write(context.stores.chunks, context.log.number, context.log.head, after, state, skipped)
        context.log.commit([EndCycle(self._number)])
""",
        new="""        context.log.commit([EndCycle(self._number)])
        recovery_points.write(context.stores.chunks, context.log.number, context.log.head, after, state, skipped)
""",
        tests=["tests/engine/storage/test_recovery.py::test_a_cycle_is_not_over_before_its_recovery_point_is_there"],
    ),
    Breakage(
        name="the-state-does-not-name-what-a-flush-begins-in-lts",
        file="engine/writer/segment_flush.py",
        old="flush_steps.MAX_CHUNK, offset, with_operations=[named])",
        new="flush_steps.MAX_CHUNK, offset)",
        tests=[_KILLED],
    ),
    Breakage(
        name="a-merged-segment-that-is-empty-in-lts-stays-there",
        file="engine/state/changes/segment_changes.py",
        old="    if not source.storage_length:\n        _drop_storage(draft, source)\n",
        new="",
        tests=[_KILLED],
    ),
    Breakage(
        name="a-recovery-does-not-delete-what-its-cycle-passed-over",
        file="engine/storage/recovery_points.py",
        old="in copied), *skipped], True))",
        new="in copied)], True))",
        tests=[_KILLED],
    ),
    Breakage(
        name="a-cycle-that-others-are-faster-than-makes-all-pause",
        file="engine/writer/flush_cycle.py",
        old="                self.abort()  # segments",
        new="                self.abort(error)  # segments",
        tests=["tests/engine/containers/test_upkeep.py::test_whoever_truncates_all_the_time_stops_no_flush_for_long"],
    ),
]
