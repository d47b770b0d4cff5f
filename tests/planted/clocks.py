"""Breakages of clocks (W13), of ages in folders (W7), and of what is durable in one (G3)."""

from tests.planted import Breakage

_CLOCKS = "tests/engine/containers/test_clocks.py::test_"
_POWER = "tests/engine/containers/test_power.py::test_"
_STALL = "tests/engine/logs/test_log_stall.py::test_"
_STOPPED = "tests/engine/logs/test_stopped_hosts.py::test_"
_STOPPED_MERGES = "tests/engine/writer/test_stopped_merges.py::test_"
_STREAMS = "tests/streams/test_clocks.py::test_"

BREAKAGES = [
    Breakage(
        name="a-proof-is-renewed-when-it-is-old",
        file="engine/logs/frame_sender.py",
        old="        if replica.log.proof_is_older_than(RENEWED) and not replica.log.flights:\n",
        new="        if replica.log.proof_is_older_than(2) and not replica.log.flights:\n",
        tests=[
            "tests/engine/logs/test_log_stall.py"
            "::test_a_writer_that_pauses_beside_busy_ones_knows_what_became_of_its_appends",
            "tests/engine/logs/test_commit_queue_sleepers.py"
            "::test_an_owner_that_never_needs_to_read_to_the_logs_end_does_so_now_and_then",
        ],
    ),
    Breakage(
        name="a-stopped-host-swaps-in-what-was-collected",
        file="chunkstore/segments/storage.py",
        old=" or not self._garbage.waits(new.name):",
        new=":",
        tests=[f"{_STOPPED_MERGES}a_merge_of_a_stopped_host_swaps_in_nothing_that_was_collected"],
    ),
    Breakage(
        name="a-collector-claims-nothing",
        file="engine/writer/container_garbage.py",
        old="        transaction.with_operations.append(queueing(tasks))\n\n    def waits",
        new="        pass\n\n    def waits",
        tests=[f"{_STOPPED_MERGES}a_new_chunk_that_a_collector_has_claimed_is_not_swapped_in"],
    ),
    Breakage(
        name="the-storages-time-is-not-compared",
        file="engine/logs/log.py",
        old="return expected if abs(stamp - expected) <= self._grace / STOPPED else None",
        new="return expected if abs(stamp - expected) <= 1e12 else None",
        tests=[f"{_STALL}hosts_whose_clocks_stand_still_lose_nothing_and_see_no_wrong_frame"],
    ),
    Breakage(
        name="the-storages-time-stands-still-where-answers-carry-none",
        file="engine/logs/log.py",
        old="expected = self._stamp + (self._proof - self._stamped) * (1 - DRIFT)",
        new="expected = self._stamp",
        tests=[f"{_STOPPED}who_reads_to_the_end_where_absence_carries_no_time_knows_that_it_was_not_stopped"],
    ),
    Breakage(
        name="a-hosts-clock-is-believed-to-the-second",
        file="engine/logs/log.py",
        old="expected = self._stamp + (self._proof - self._stamped) * (1 - DRIFT)",
        new="expected = self._stamp + self._proof - self._stamped",
        tests=[f"{_STOPPED}who_was_stopped_after_long_reading_where_absence_carries_no_time_starts_over"],
    ),
    Breakage(
        name="the-storages-time-of-a-frame-is-not-heard",
        file="engine/logs/log.py",
        old="return Put(outcome, noted.latest)",
        new="return Put(outcome, None)",
        tests=[f"{_STOPPED}a_frame_of_a_stopped_host_behind_a_truncation_point_is_not_acknowledged"],
    ),
    Breakage(
        name="a-file-takes-the-place-of-another-that-was-created-meanwhile",
        file="chunkstore/backends/local.py",
        old="lambda: os.link(temporary, target))",
        new="lambda: os.replace(temporary, target))",
        tests=["tests/backends/test_local.py::TestPort::test_racing_creates_have_one_winner"],
    ),
    Breakage(
        name="a-frame-is-stamped-before-it-is-linked",
        file="chunkstore/backends/local.py",
        old="        try:\n            self._in_folder_of(target, lambda: os.link(temporary, target))\n",
        new="        try:\n            stamps.note(os.lstat(temporary).st_ctime)\n            self._in_folder_of(target, lambda: os.link(temporary, target))\n            return True\n",
        tests=["tests/chunkstore/test_stamps.py::test_a_file_is_stamped_when_it_is_linked"],
    ),
    Breakage(
        name="a-stopped-host-is-not-told-by-its-time-of-day",
        file="engine/logs/log.py",
        old=" or abs(stepped) > self._grace / STOPPED",
        new="",
        tests=[f"{_STOPPED}the_time_of_day_tells_where_answers_do_not"],
    ),
    Breakage(
        name="frames-without-a-stamp-are-never-looked-up",
        file="engine/logs/log.py",
        old="if stamp is None and self._clock() - self._stamped > self._grace / LOOKED_AT:",
        new="if False:",
        tests=[f"{_STOPPED}where_answers_carry_no_time_a_frame_is_looked_up_now_and_then"],
    ),
    Breakage(
        name="frames-believed-before-they-are-durable",
        file="engine/logs/log.py",
        old="self.store.sync(self._folder)  # their makers may have died before that (G3)",
        new="pass",
        tests=[f"{_POWER}what_was_told_survives_a_power_failure"],
    ),
    Breakage(
        name="frames-deleted-behind-a-truncation-point-that-is-not-durable",
        file="engine/logs/truncation.py",
        old="    store.sync(checkpoints_folder(container))  # their makers may have died before that\n",
        new="",
        tests=[f"{_POWER}frames_are_deleted_behind_durable_truncation_points_only"],
    ),
    Breakage(
        name="opened-at-a-checkpoint-that-is-not-durable",
        file="engine/logs/checkpoints.py",
        old="        store.sync(checkpoints_folder(container))  # what we append will depend on it (G3)\n",
        new="",
        tests=[f"{_POWER}what_hangs_on_a_recovered_log_survives"],
    ),
    Breakage(
        name="root-used-before-its-description-is-durable",
        file="engine/root.py",
        old="            each.sync(SYSTEM)",
        new="            pass",
        tests=[f"{_POWER}a_root_that_somebody_used_survives_its_maker"],
    ),
    Breakage(
        name="folders-that-others-made-not-synced",
        file="chunkstore/backends/local.py",
        old="        sync(parent)\n",
        new="        if made:\n            sync(parent)\n",
        tests=["tests/chunkstore/test_power.py::test_what_is_put_into_folders_of_others_survives"],
    ),
    Breakage(
        name="a-folders-clock-is-trusted",
        file="engine/logs/age_evidence.py",
        old="    if not store.host_clock or delay <= 0:",
        new="    if True:",
        tests=[f"{_CLOCKS}a_step_of_a_folders_clock_loses_no_acknowledged_append"],
    ),
    Breakage(
        name="a-witness-dated-before-its-look",
        file="engine/logs/age_evidence.py",
        old="AgeEvidence(boot, clock(), now)))",
        new="AgeEvidence(boot, clock() - 1000.0, now)))",
        tests=[f"{_CLOCKS}the_time_of_a_witness_is_that_after_the_look"],
    ),
    Breakage(
        name="a-witness-always-replaced",
        file="engine/logs/age_evidence.py",
        old="or ages[-1] > longest:",
        new="or ages[-1] > 0:",
        tests=[f"{_CLOCKS}who_looks_often_does_not_wait_for_ever"],
    ),
    Breakage(
        name="a-new-witness-drives-the-old-one-out",
        file="engine/logs/age_evidence.py",
        old="(*evidence[-1:], AgeEvidence(",
        new="(*evidence[:0], AgeEvidence(",
        tests=[f"{_CLOCKS}who_looks_after_another_finds_what_is_old_too"],
    ),
    Breakage(
        name="clocks-not-compared",
        file="engine/clocks.py",
        old="        if abs(storage - own) > self._tolerance:",
        new="        if abs(storage - own) > 1e9:",
        tests=[f"{_CLOCKS}a_host_whose_clock_is_wrong_deletes_nothing_and_stops_nobody"],
    ),
    Breakage(
        name="a-step-not-noticed",
        file="engine/clocks.py",
        old="            self._check_for_steps(storage, purpose)",
        new="            pass",
        tests=[f"{_CLOCKS}a_step_of_a_hosts_clock_is_noticed_and_believed_in_time"],
    ),
    Breakage(
        name="the-storages-time-carried-on-from-before-its-answer",
        file="engine/clocks.py",
        old="            storage = self._store.clock()\n",
        new="            since = self._steady()\n            storage = self._store.clock() + self._steady() - since\n",
        tests=[f"{_CLOCKS}the_storages_time_is_never_ahead_of_it"],
    ),
    Breakage(
        name="garbage-of-the-future-waits-for-it",
        file="engine/writer/container_gc.py",
        old="    _redate(context, now)\n",
        new="",
        tests=[f"{_CLOCKS}garbage_of_the_future_became_garbage_when_it_was_met"],
    ),
    Breakage(
        name="garbage-dated-by-the-host",
        file="engine/containers/container.py",
        old="            now=self.storage_clock.known,",
        new="            now=now,",
        tests=[f"{_CLOCKS}garbage_of_a_host_that_is_behind_is_kept_for_the_delay"],
    ),
    Breakage(
        name="retention-by-the-hosts-clock",
        file="pravega_spark/streams/maintenance/retention.py",
        old='stream.container.storage_clock.agreed("the stream is not truncated")',
        new="stream.container.storage_clock._own()",
        tests=[f"{_STREAMS}retention_goes_on_as_if_a_wrong_clock_were_not_there"],
    ),
    Breakage(
        name="retention-waits-for-a-cut-of-the-future",
        file="pravega_spark/streams/maintenance/retention.py",
        old="age(last / 1000, moment / 1000, math.inf)",
        new="age(last / 1000, moment / 1000, 0.0)",
        tests=[f"{_STREAMS}retention_survives_cuts_that_were_recorded_in_the_future"],
    ),
    Breakage(
        name="a-cut-of-the-future-dates-all-that-follow",
        file="pravega_spark/streams/maintenance/recorded_cuts.py",
        old="if self.last_time is not None and not is_plausible(self.last_time / 1000, time_ms / 1000):",
        new="if False:",
        tests=[f"{_STREAMS}retention_survives_cuts_that_were_recorded_in_the_future"],
    ),
    Breakage(
        name="cuts-recorded-anew-over-others",
        file="pravega_spark/streams/maintenance/recorded_cuts.py",
        old='            Append(self._names[1], Payload(b""), self._records.length),',
        new='            Append(self._names[1], Payload(b"")),',
        tests=[f"{_STREAMS}two_that_record_anew_at_a_time_do_it_once"],
    ),
    Breakage(
        name="a-lease-by-the-hosts-clock",
        file="pravega_spark/streams/writing/transactions.py",
        old="    return int(stream.container.storage_clock.now() * 1000)",
        new="    return int(stream.container.storage_clock._own() * 1000)",
        tests=[f"{_STREAMS}a_lease_ends_by_the_storages_clock"],
    ),
    Breakage(
        name="an-epoch-of-the-future-stops-scaling",
        file="pravega_spark/streams/maintenance/scaling.py",
        old="age(epoch.created / 1000, now / 1000, math.inf)",
        new="age(epoch.created / 1000, now / 1000, 0.0)",
        tests=[f"{_STREAMS}an_epoch_of_the_future_does_not_stop_scaling"],
    ),
    Breakage(
        name="chunks-dated-by-the-task",
        file="pravega_spark/streams/writing/collector.py",
        old="creation_time(self._store.stat(names[0]).modified)",
        new="creation_time(__import__('time').time())",
        tests=["tests/source/test_slow_jobs.py::test_a_host_whose_clock_is_wrong_tells_the_age_of_its_chunks"],
    ),
]
