"""Breakages of group commit by many processes (W18): one for each of its rules."""

from tests.planted import Breakage

_QUEUE = "tests/engine/logs/test_commit_queue.py::test_"
_RULES = "tests/engine/logs/test_commit_queue_rules.py::test_"
_FORKS = "tests/engine/logs/test_commit_queue_forks.py::test_"
_SLEEPERS = "tests/engine/logs/test_commit_queue_sleepers.py::test_"
_OPERATIONS = "tests/engine/logs/test_commit_queue_operations.py::test_"
_CRASHES = "tests/engine/logs/test_commit_queue_crashes.py::test_"
_CROWDS = "tests/engine/logs/test_commit_queue_crowds.py::test_"
_POWER = "tests/engine/logs/test_commit_queue_power.py::test_"

BREAKAGES = [
    Breakage(
        name="carried-in-another-epoch",
        file="engine/logs/frame_sender.py",
        old="            if each.outcome is None and (each.carrying is None or each.carrying.address.epoch == epoch)\n",
        new="            if each.outcome is None and epoch >= 0\n",
        tests=[f"{_QUEUE}what_was_taken_in_is_not_carried_in_another_epoch"],
    ),
    Breakage(
        name="taken-in-for-a-past-epoch-is-carried-once-the-inbox-has-begun-anew",
        file="engine/logs/frame_sender.py",
        old="            if each.outcome is None and (each.carrying is None or each.carrying.address.epoch == epoch)\n",
        new="            if each.outcome is None\n"
        "            and (not self._carrier.inbox.unsettled or each.carrying is None or each.carrying.address.epoch == epoch)\n",
        tests=[f"{_RULES}what_a_slow_listing_brings_is_not_carried_in_a_later_epoch"],
    ),
    Breakage(
        name="carried-as-often-as-it-is-listed",
        file="engine/logs/inbox.py",
        old="        self._newest[address.owner] = address.number\n",
        new="",
        tests=[f"{_QUEUE}a_submission_is_carried_once_however_often_it_is_listed"],
    ),
    Breakage(
        name="an-older-submission-behind-a-newer-one",
        file="engine/logs/inbox.py",
        old="        return address.number > self._newest.get(address.owner, -1)\n",
        new="        return address.number != self._newest.get(address.owner, -1)\n",
        tests=[f"{_QUEUE}an_older_submission_of_an_owner_is_not_carried_after_a_newer_one"],
    ),
    Breakage(
        name="queued-again-before-it-is-void",
        file="engine/logs/outbox.py",
        old="        void = frame_epoch > self._address.epoch and",
        new="        void = frame_epoch >= self._address.epoch and",
        tests=["tests/engine/logs/test_commit_queue.py"],
    ),
    Breakage(
        name="void-and-in-flight-is-queued-again",
        file="engine/logs/outbox.py",
        old="            if not self.recalled:\n                outcomes.void",
        new="            if True:\n                outcomes.void",
        tests=[f"{_RULES}what_is_void_and_in_flight_is_not_queued_again"],
    ),
    Breakage(
        name="what-was-submitted-survives-a-log-that-moved",
        file="engine/logs/replica.py",
        old="        self._on_reopen(LogMoved(",
        new="        str(LogMoved(",
        tests=[f"{_QUEUE}what_was_submitted_before_a_checkpoint_was_opened_again_is_unknown"],
    ),
    Breakage(
        name="refused-while-it-may-be-carried",
        file="engine/logs/frame_sender.py",
        old="or self._rejects_submitted(result):",
        new="or False:",
        tests=[
            f"{_QUEUE}a_refusal_is_not_told_while_it_may_be_carried",
            f"{_RULES}an_empty_frame_makes_a_submission_void_that_nobody_listed",
        ],
    ),
    Breakage(
        name="an-owner-that-is-passed-over-is-patient",
        file="engine/logs/outbox.py",
        old="        if self._passed_over >= PASSED_OVER:\n",
        new="        if self._passed_over < 0:\n",
        tests=[f"{_RULES}who_is_passed_over_makes_a_frame_itself"],
    ),
    Breakage(
        name="submitted-to-a-maker-that-closed",
        file="engine/logs/outbox.py",
        old="carried is not None and not carried.leaving\n",
        new="carried is not None\n",
        tests=[f"{_RULES}nothing_is_submitted_to_a_maker_that_was_heard_to_close"],
    ),
    Breakage(
        name="what-is-refused-waits-for-a-round",
        file="engine/logs/processor.py",
        old="first.carrying is not None or first.direct:",
        new="first.carrying is not None:",
        tests=[f"{_RULES}what_was_refused_waits_for_no_round"],
    ),
    Breakage(
        name="unknown-and-still-outstanding",
        file="engine/logs/submitter.py",
        old="        left = self.outbox.forget()\n",
        new="        left = list(self.outbox._transactions.values())\n",
        tests=[f"{_RULES}who_cannot_look_for_the_outcome_tells_unknown_and_has_nothing_outstanding"],
    ),
    Breakage(
        name="unknown-by-an-own-frame-and-still-outstanding",
        file="engine/logs/outbox.py",
        old="for place, each in self._transactions.items() if each.outcome is None}",
        new="for place, each in self._transactions.items()}",
        tests=[f"{_RULES}an_own_frame_of_unknown_outcome_leaves_nothing_outstanding"],
    ),
    Breakage(
        name="completed-by-a-void-frame",
        file="engine/logs/log.py",
        old="        if frame.follows(self.head):\n            if frame.position.writer",
        new="        if frame.kind is Kind.DATA:\n            if frame.position.writer",
        tests=[f"{_RULES}a_void_frame_that_carries_it_completes_nothing"],
    ),
    Breakage(
        name="refused-before-the-empty-frame-is-live",
        file="engine/logs/frame_sender.py",
        old="            self._launch(meta, layout, result)\n",
        new="            for transaction, error in result.rejected:\n"
        "                self._context.acknowledgements.complete(transaction, error)\n"
        "            result.rejected = []\n"
        "            self._launch(meta, layout, result)\n",
        tests=[f"{_RULES}an_empty_frame_that_loses_to_the_one_that_carries_it_refuses_nothing"],
    ),
    Breakage(
        name="what-the-maker-refused-is-submitted-again",
        file="engine/logs/submitter.py",
        old="            transaction.direct = True\n",
        new="            pass\n",
        tests=[f"{_RULES}a_refusal_by_maker_and_owner_is_told_and_leaves_nothing_behind"],
    ),
    Breakage(
        name="a-clones-submission-taken-for-ones-own",
        file="engine/logs/outbox.py",
        old="            if (owner, number, nonce) != self._address[1:]:\n",
        new="            if (owner, number) != self._address[1:3]:\n",
        tests=[f"{_QUEUE}a_submission_of_another_life_is_not_ones_own"],
    ),
    Breakage(
        name="endless-patience",
        file="engine/logs/outbox.py",
        old="        return self._clock() >= self._deadline\n",
        new="        return False\n",
        tests=[f"{_QUEUE}who_is_not_served_makes_a_frame_itself"],
    ),
    Breakage(
        name="one-frame-a-request-however-far-behind",
        file="engine/logs/submitter.py",
        old="min(1 << max(reads - ONE_BY_ONE, 0), MAX_WINDOW)",
        new="1",
        tests=[
            "tests/engine/logs/test_commit_queue_requests.py::test_an_owner_that_is_far_behind_reads_ever_more_frames_at_once"
        ],
    ),
    Breakage(
        name="nobody-rings",
        file="engine/logs/frame_settler.py",
        old="        if (busy or log.losses % RING == 0) and",
        new="        if busy and",
        tests=[f"{_QUEUE}a_maker_that_does_not_listen_is_rung_for"],
    ),
    Breakage(
        name="a-maker-at-full-speed-is-raced-with",
        file="engine/logs/frame_settler.py",
        old="        if (busy or log.losses % RING == 0) and",
        new="        if log.losses % RING == 0 and",
        tests=[f"{_QUEUE}a_maker_at_full_speed_is_rung_for_after_one_lost_race"],
    ),
    Breakage(
        name="bells-where-many-race",
        file="engine/logs/frame_settler.py",
        old="log.head.epoch == epoch and ",
        new="",
        tests=[f"{_QUEUE}nobody_is_rung_for_where_several_race"],
    ),
    Breakage(
        name="own-void-frames-count-as-another-makers",
        file="engine/logs/frame_settler.py",
        old="        count = replica.read_to_end()\n",
        new="        count = LEAD\n        replica.read_to_end()\n",
        tests=[f"{_QUEUE}a_maker_that_runs_into_a_bell_rings_for_nobody"],
    ),
    Breakage(
        name="who-rang-races-at-once",
        file="engine/logs/frame_settler.py",
        old="range(1, RUNG_TRIPS + 1)",
        new="range(0)",
        tests=[f"{_QUEUE}an_owner_that_rang_reads_until_the_maker_listens"],
    ),
    Breakage(
        name="submitted-to-a-maker-that-does-not-listen",
        file="engine/logs/outbox.py",
        old="        return epoch == self.listening and ",
        new="        return ",
        tests=[f"{_RULES}nothing_is_submitted_to_a_maker_that_does_not_say_that_it_listens"],
    ),
    Breakage(
        name="a-submission-that-became-void-passes-over",
        file="engine/logs/outbox.py",
        old="        elif carried is not None and carried.answers:\n",
        new="        elif void or (carried is not None and carried.answers):\n",
        tests=[f"{_RULES}an_owner_whose_submissions_become_void_goes_on_submitting"],
    ),
    Breakage(
        name="passed-over-counts-each-submission-anew",
        file="engine/logs/outbox.py",
        old="        self._sent = self._clock()\n",
        new="        self._sent = self._clock()\n        self._passed_over = 0\n",
        tests=[f"{_RULES}frames_that_pass_over_an_owner_count_until_it_is_served"],
    ),
    Breakage(
        name="patient-with-a-maker-that-listens-no-more",
        file="engine/logs/outbox.py",
        old="            self._deadline = now + 2 * round_trip * random.random()\n",
        new="            self._be_patient(now, round_trip)\n",
        tests=[f"{_RULES}an_owner_whose_maker_stopped_listening_makes_a_frame_itself"],
    ),
    Breakage(
        name="who-comes-back-knows-of-no-company",
        file="engine/logs/replica.py",
        old="        if crowded or self.log.made_often(len(listening), since):\n",
        new="        if crowded:\n",
        tests=[f"{_RULES}a_writer_that_returns_to_a_busy_log_submits"],
    ),
    Breakage(
        name="few-frames-are-company",
        file="engine/logs/log.py",
        old="self._seconds_of(count * OFTEN_TRIPS)",
        new="self._seconds_of(count * MAKER_TRIPS * MAKER_TRIPS)",
        tests=[f"{_RULES}a_writer_that_returns_to_a_busy_log_submits"],
    ),
    Breakage(
        name="says-that-it-listens-and-does-not",
        file="engine/logs/frame_sender.py",
        old="            if log.upcoming().epoch > log.head.epoch:\n",
        new="            if log is None:\n",
        tests=[f"{_RULES}a_maker_that_begins_an_epoch_in_company_keeps_listening"],
    ),
    Breakage(
        name="raced-with-while-it-sends-a-large-operation",
        file="engine/logs/replay.py",
        old="        if not frame.meta:\n            return _PIECE\n",
        new="",
        tests=[f"{_RULES}the_pieces_of_a_large_operation_are_not_raced_with"],
    ),
    Breakage(
        name="a-maker-that-closes-says-nothing",
        file="engine/logs/processor.py",
        old="            self._carrier.leaving = True\n",
        new="            self._carrier.leaving = False\n",
        tests=[f"{_QUEUE}a_maker_that_closes_says_so"],
    ),
    Breakage(
        name="a-damaged-submission-is-carried",
        file="engine/logs/submission.py",
        old="        if len(payload) != size or crc32c(meta) != meta_crc or crc32c_of([payload]) != crc:\n",
        new="        if len(payload) != size:\n",
        tests=[f"{_QUEUE}a_damaged_or_misplaced_submission_is_told_from_a_good_one"],
    ),
    Breakage(
        name="submissions-are-never-swept",
        file="engine/logs/truncation.py",
        old="            return deleted + _sweep_inbox(store, container, now - grace)\n",
        new="            return deleted\n",
        tests=["tests/engine/logs/test_inbox_sweep.py::test_a_truncation_costs_one_listing_more"],
    ),
    Breakage(
        name="submissions-are-swept-too-soon",
        file="engine/logs/truncation.py",
        old="        doomed = [info.path for info in listed if info.modified < before]\n        store.delete(doomed)\n"
        "        deleted += len(doomed)\n    return deleted",
        new="        doomed = [info.path for info in listed]\n        store.delete(doomed)\n"
        "        deleted += len(doomed)\n    return deleted",
        tests=["tests/engine/logs/test_inbox_sweep.py::test_a_truncation_costs_one_listing_more"],
    ),
    Breakage(
        name="a-carried-operation-is-submitted",
        file="engine/logs/transaction.py",
        old="_INTERNAL = (ActivateSegment, LoadAttributes, AnswerSubmissions)",
        new="_INTERNAL = (ActivateSegment, LoadAttributes)",
        tests=["tests/engine/containers/test_readback.py::test_what_the_log_makes_by_itself_is_not_submitted"],
    ),
    Breakage(
        name="acknowledged-by-a-makers-frame-that-is-not-synced",
        file="engine/logs/log.py",
        old="        if found:\n            self.store.sync(self._folder)",
        new="        if window < 0:\n            self.store.sync(self._folder)",
        tests=[f"{_POWER}an_owner_acknowledges_nothing_that_a_killed_maker_has_not_synced"],
    ),
    Breakage(
        name="a-submission-is-evidence",
        file="engine/logs/submitter.py",
        old="            delivery = self._deliver(address, data)\n",
        new="            delivery = self._deliver(address, data)\n"
        "            for transaction in self.outbox.forget():\n"
        "                receipt = Receipt(address.epoch, [], 1, self._replica.state)\n"
        "                self._context.acknowledgements.complete(transaction, receipt)\n",
        tests=[f"{_POWER}what_was_acknowledged_in_company_survives_a_power_failure"],
    ),
    Breakage(
        name="a-submission-that-was-cut-ends-the-maker",
        file="engine/logs/inbox.py",
        old="        except (InvalidData, InvalidOperation) as problem:\n",
        new="        except InvalidOperation as problem:\n",
        tests=[f"{_POWER}submissions_that_vanish_or_are_cut_cost_time_only"],
    ),
    Breakage(
        name="two-lives-of-an-owner-take-one-submission-for-both",
        file="engine/logs/outbox.py",
        old="return Address(epoch, self._owner, self._number, os.urandom(8))",
        new="return Address(epoch, self._owner, self._number, bytes(8))",
        tests=[f"{_FORKS}two_lives_of_an_owner_know_what_was_carried_and_submit_under_one_number"],
    ),
    Breakage(
        name="two-lives-of-a-maker-carry-it-both",
        file="engine/logs/frame_sender.py",
        old="            if each.outcome is None and (each.carrying is None or each.carrying.address.epoch == epoch)\n",
        new="            if each.outcome is None\n",
        tests=[f"{_FORKS}two_lives_of_a_maker_carry_a_submission_once"],
    ),
    Breakage(
        name="what-was-submitted-is-queued-again-when-the-log-has-moved",
        file="engine/logs/processor.py",
        old="        self._submitter.forget(why)\n",
        new="        self._queue.retry(self._submitter.outbox.forget())\n",
        tests=[f"{_SLEEPERS}an_owner_that_slept_over_a_swept_inbox_reports_its_submission_unknown_once"],
    ),
    Breakage(
        name="what-a-sleeping-maker-sent-is-queued-again-when-the-log-has-moved",
        file="engine/logs/frame_settler.py",
        old="            self._report_unknown(replica.log.drop(), error)\n            replica.reopen()\n",
        new="            lost = [each for flight in replica.log.drop() for each in flight.body.transactions()]\n"
        "            self._context.queue.retry_after_lost_race(lost)\n"
        "            replica.reopen()\n",
        tests=[f"{_SLEEPERS}a_process_in_company_that_sleeps_at_any_request_loses_and_doubles_nothing"],
    ),
    Breakage(
        name="what-a-maker-had-taken-in-before-it-slept-is-carried",
        file="engine/logs/frame_sender.py",
        old="            if each.outcome is None and (each.carrying is None or each.carrying.address.epoch == epoch)\n",
        new="            if each.outcome is None\n",
        tests=[f"{_SLEEPERS}a_maker_that_slept_with_submissions_taken_in_carries_none_of_them"],
    ),
    Breakage(
        name="an-owner-does-not-get-the-results-of-what-was-carried",
        file="engine/logs/outbox.py",
        old="outcomes.done.append((transaction, [result.value for result in results]))",
        new="outcomes.done.append((transaction, [None for result in results]))",
        tests=[f"{_OPERATIONS}each_kind_of_operation_has_the_outcome_that_a_single_process_gets"],
    ),
    Breakage(
        name="index-records-are-submitted-as-bytes",
        file="engine/logs/submission.py",
        old="    return IndexRecords(_NAME(rest[2]), data) if kind == _INDEX else Payload(data)",
        new="    return Payload(data)",
        tests=[f"{_OPERATIONS}what_is_done_with_a_stream_in_company_has_the_outcomes_that_a_single_process_gets"],
    ),
    Breakage(
        name="a-thousand-submissions-are-read-before-the-next-frame",
        file="engine/logs/inbox.py",
        old="        for address, info in listed[: self._most]:\n",
        new="        for address, info in listed:\n",
        tests=[f"{_CROWDS}what_many_submit_is_read_in_parts_that_grow"],
    ),
    Breakage(
        name="the-first-owners-are-always-served-first",
        file="engine/logs/inbox.py",
        old="key=lambda each: (each[0].owner <= reached, each[0].owner, each[0].number)",
        new="key=lambda each: (reached is None, each[0].owner, each[0].number)",
        tests=[f"{_CROWDS}all_get_their_turn_whatever_the_first_ones_submit_meanwhile"],
    ),
    Breakage(
        name="own-transactions-wait-for-a-short-round-only",
        file="engine/logs/inbox.py",
        old="        longest = max(WAIT_TRIPS * round_trip, min(WAIT_ROUNDS * self._round, LONGEST_WAIT))\n",
        new="        longest = WAIT_TRIPS * round_trip\n",
        tests=[f"{_CROWDS}own_transactions_of_a_maker_wait_for_a_round_that_takes_long"],
    ),
    Breakage(
        name="who-is-served-by-turns-is-passed-over",
        file="engine/logs/outbox.py",
        old="            self._passed_over += 1 / CROWD if self._crowded else 1\n",
        new="            self._passed_over += 1\n",
        tests=[f"{_CROWDS}who_is_served_by_turns_is_not_passed_over"],
    ),
    Breakage(
        name="impatient-with-the-maker-of-a-crowd",
        file="engine/logs/outbox.py",
        old="1 if self._crowded else UNANSWERED",
        new="UNANSWERED",
        tests=[f"{_CROWDS}an_owner_is_as_patient_with_the_maker_of_a_crowd_as_if_it_had_answered"],
    ),
    Breakage(
        name="impatient-where-frames-take-long",
        file="engine/logs/outbox.py",
        old="        usual = max(self._usual, min(self._frame_took, least))\n",
        new="        usual = self._usual\n",
        tests=[f"{_CROWDS}an_owner_waits_longer_for_frames_that_take_long"],
    ),
    Breakage(
        name="patient-for-as-long-as-the-maker-was-away",
        file="engine/logs/outbox.py",
        old="        usual = max(self._usual, min(self._frame_took, least))\n",
        new="        usual = max(self._usual, self._frame_took)\n",
        tests=[f"{_CROWDS}a_maker_that_was_away_for_long_is_not_waited_for_as_long"],
    ),
    Breakage(
        name="looked-for-as-often-however-long-it-takes",
        file="engine/logs/outbox.py",
        old="max(LOOK_TRIPS * round_trip, (now - self._sent) / WAITED)",
        new="LOOK_TRIPS * round_trip",
        tests=[f"{_CROWDS}the_longer_an_outcome_takes_the_more_rarely_it_is_looked_for"],
    ),
    Breakage(
        name="a-crowd-is-no-company",
        file="engine/logs/replica.py",
        old="        if crowded or self.log.made_often(len(listening), since):\n",
        new="        if self.log.made_often(len(listening), since):\n",
        tests=[f"{_CROWDS}a_frame_for_a_crowd_is_company_to_one_that_was_away"],
    ),
    Breakage(
        name="who-takes-over-does-not-listen",
        file="engine/logs/submitter.py",
        old="            self._replica.log.meet()  # its frame says that it listens: what others submitted is void with this epoch\n",
        new="",
        tests=[f"{_CROWDS}who_takes_over_from_a_maker_listens"],
    ),
    Breakage(
        name="who-became-void-knows-of-nobody",
        file="engine/logs/submitter.py",
        old="        if outcomes.void or (concerned and carried is not None and carried.answers):\n",
        new="        if concerned and carried is not None and carried.answers:\n",
        tests=[f"{_CROWDS}an_owner_whose_submission_became_void_knows_of_others"],
    ),
    Breakage(
        name="a-submission-is-no-round-trip",
        file="engine/logs/submitter.py",
        old="            log.guess_trip(self._context.clock() - sent)\n",
        new="",
        tests=[f"{_CROWDS}an_owner_knows_how_long_a_round_trip_takes"],
    ),
]
