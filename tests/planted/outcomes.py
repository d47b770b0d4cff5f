"""Breakages of what callers hear: look-ups, refusals, outcomes, and handles on both sides of a fork."""

from tests.planted import Breakage

_OUTCOMES = "tests/engine/logs/test_outcomes.py::"
_FORKS = "tests/client/test_forks.py::"

BREAKAGES = [
    Breakage(
        name="a-commit-raises-the-error-of-a-write",
        file="pravega_spark/client/transaction.py",
        old="            self._failure = error if isinstance(error, StreamError) else self._incomplete(error)\n",
        new="            self._failure = error\n",
        tests=[
            "tests/client/test_transaction.py::"
            "test_after_a_write_that_failed_it_cannot_be_committed_and_says_what_to_do"
        ],
    ),
    Breakage(
        name="sends-behind-frames-that-it-has-not-applied",
        file="engine/logs/frame_sender.py",
        old="        if replica.must_catch_up or replica.log.unapplied:\n",
        new="        if replica.must_catch_up:\n",
        tests=[_OUTCOMES + "test_frames_that_were_passed_before_an_error_are_applied_before_anything_is_sent"],
    ),
    Breakage(
        name="loaded-attributes-not-judged",
        file="engine/state/changes/attribute_changes.py",
        old="for key, value in missing.items() if draft.validating else ():",
        new="for key, value in ():",
        tests=["tests/engine/state/test_attributes.py::test_a_stale_attribute_is_not_loaded"],
    ),
    Breakage(
        name="looked-up-under-another-root",
        file="engine/state/state.py",
        old="if found is None or found.root != table.layout.root:",
        new="if found is None:",
        tests=["tests/engine/state/test_attributes.py::test_a_stale_attribute_is_not_loaded"],
    ),
    Breakage(
        name="look-ups-kept-when-queued-again",
        file="engine/logs/commit_queue.py",
        old="            transaction.looked_up = {}\n",
        new="",
        tests=[_OUTCOMES + "test_what_was_looked_up_is_forgotten_when_its_operation_is_queued_again"],
    ),
    Breakage(
        name="refusal-told-while-frames-fly",
        file="engine/logs/frame_sender.py",
        old="        if replica.log.flights:\n            replica.log.flights[-1].body",
        new="        if len(replica.log.flights) > 99:\n            replica.log.flights[-1].body",
        tests=[_OUTCOMES + "test_a_refusal_waits_for_the_frames_in_flight_that_it_was_held_against"],
    ),
    Breakage(
        name="refusal-by-a-state-older-than-the-call",
        file="engine/logs/frame_sender.py",
        old="for each, error in result.rejected if each.number <= replica.verified_up_to]",
        new="for each, error in result.rejected]",
        tests=[
            _OUTCOMES + "test_a_refusal_is_not_older_than_the_call",
            _OUTCOMES + "test_histories_with_refusals_are_linearizable",
        ],
    ),
    Breakage(
        name="refusals-not-read-after-for",
        file="engine/logs/frame_sender.py",
        old="        if unverified:\n            replica.must_catch_up = True\n",
        new="        if unverified:\n            replica.verified_up_to = self._context.queue.newest\n",
        tests=[_OUTCOMES + "test_a_refusal_is_not_older_than_the_call"],
    ),
    Breakage(
        name="read-refused-by-an-old-state",
        file="engine/reading/container_segments.py",
        old="if known is None or not known.start_offset <= start <= end <= known.length:",
        new="if known is None or end > known.length:",
        tests=[_OUTCOMES + "test_a_read_is_refused_by_no_older_state_either"],
    ),
    Breakage(
        name="call-back-failure-taken-for-the-operations",
        file="engine/logs/frame_settler.py",
        old="guarded(self._replica.observer.committed, flight.position, result.state, result.checkpoint)",
        new="self._replica.observer.committed(flight.position, result.state, result.checkpoint)",
        tests=[_OUTCOMES + "test_a_call_back_that_fails_is_not_taken_for_the_operations_failure"],
    ),
    Breakage(
        name="queued-before-there-is-a-thread",
        file="engine/logs/processor.py",
        old="            self._start_thread()  # it may fail, so nothing is queued yet\n",
        new="            self._queue.put(transaction)\n            self._start_thread()\n",
        tests=[_OUTCOMES + "test_a_thread_that_cannot_be_started"],
    ),
    Breakage(
        name="executor-failure-taken-for-the-frames",
        file="engine/logs/log.py",
        old="            flight.future = _INLINE.submit(self._put, address, data)\n",
        new="            raise\n",
        tests=[_OUTCOMES + "test_a_thread_that_cannot_be_started"],
    ),
    Breakage(
        name="frames-in-flight-given-up-on-failure",
        file="engine/logs/processor.py",
        old="            void = self._settler.settle_before_failing()\n",
        new="            void: set[Transaction] = set()\n",
        tests=[_OUTCOMES + "test_a_fault_at_every_call_between_submit_and_tell"],
    ),
    Breakage(
        name="settled-and-forgotten-before-it-is-told",
        file="engine/logs/acknowledgements.py",
        old="            flight = self.settled[0]\n",
        new="            flight = self.settled.popleft()\n",
        tests=[_OUTCOMES + "test_a_fault_at_every_call_between_submit_and_tell"],
    ),
    Breakage(
        name="queued-before-it-is-sure",
        file="engine/logs/processor.py",
        old="            self._queue.put(transaction)  # last: behind",
        new="            self._queue.put(transaction)\n            self._acknowledgements.register(transaction)  # last: behind",
        tests=[_OUTCOMES + "test_a_fault_at_every_call_between_submit_and_tell"],
    ),
    Breakage(
        name="who-is-called-back-waits-for-itself",
        file="engine/logs/transaction.py",
        old="        if self._transaction.outcome is None:  # a callback asks before the waiting threads are released\n",
        new="        if True:\n",
        tests=["tests/engine/logs/test_alone.py::test_who_is_called_back_may_ask_the_future_for_its_outcome"],
    ),
    Breakage(
        name="waiter-that-left-breaks-the-chain",
        file="engine/logs/transaction.py",
        old="        if self._released and self._chain:\n            self._wake_next()\n",
        new="",
        tests=["tests/engine/logs/test_alone.py::test_those_who_left_do_not_break_the_chain"],
    ),
    Breakage(
        name="ctrl-c-leaves-a-waiter-asleep",
        file="engine/logs/transaction.py",
        old="            uninterrupted(partial(wake_next, self._chain))\n",
        new="            wake_next(self._chain)\n",
        tests=["tests/engine/logs/test_alone.py::test_ctrl_c_while_others_are_woken_leaves_nobody_asleep"],
    ),
    Breakage(
        name="who-commits-keeps-readers-out",
        file="engine/logs/processor.py",
        old="taken = not self.readers and self._log_lock.acquire(blocking=False)",
        new="taken = self._log_lock.acquire(blocking=False)",
        tests=[
            "tests/engine/logs/test_alone.py::test_who_wants_to_read_is_not_kept_out_by_who_commits_one_after_the_other"
        ],
    ),
    Breakage(
        name="ctrl-c-deferred-in-a-fork",
        file="engine/interrupts.py",
        old="os.register_at_fork(after_in_child=_after_fork)\n",
        new="",
        tests=["tests/engine/test_interrupts.py::test_a_fork_meanwhile_hears_the_first_one"],
    ),
    Breakage(
        name="flush-waits-for-a-thread-at-other-work",
        file="pravega_spark/client/writer.py",
        old="self._durable_end[0] >= events or self._cause is not None or self._may_append_inline()",
        new="self._durable_end[0] >= events or self._cause is not None",
        tests=["tests/client/test_writer.py::test_a_flush_does_not_wait_for_a_thread_that_is_not_appending"],
    ),
    Breakage(
        name="events-take-the-last-room",
        file="pravega_spark/streams/writing/writes.py",
        old="    container.stores.check_room()\n",
        new="",
        tests=["tests/client/test_safe_size.py"],
    ),
    Breakage(
        name="chunks-take-the-last-room",
        file="pravega_spark/streams/writing/chunk_uploads.py",
        old="        self._store.check_room()\n",
        new="",
        tests=["tests/client/test_safe_size.py::test_no_chunk_is_written_for_a_write_that_would_be_refused"],
    ),
    Breakage(
        name="an-atomic-write-is-divided",
        file="pravega_spark/client/writer.py",
        old="        check_atomic(column, atomic, COLUMNS_BYTES)\n",
        new="        check_atomic(column, atomic, 2 * COLUMNS_BYTES)\n",
        tests=["tests/client/test_writer.py::test_an_atomic_write_has_a_limit"],
    ),
    Breakage(
        name="attached-before-it-is-confirmed-in-order",
        file="pravega_spark/client/writer.py",
        old="            self._attach_uploaded(0, pending)\n            self._append_batch(batch)\n",
        new="            self._append_batch(batch)\n",
        tests=["tests/client/test_writer_crash.py::test_one_request_that_fails"],
    ),
    Breakage(
        name="refused-attachments-are-lost",
        file="pravega_spark/client/writer.py",
        old="        for each in rejected:\n            self._append_batch(each.batch)\n",
        new="        for each in rejected:\n            self._confirm(each.batch)\n",
        tests=["tests/client/test_writer_crash.py::test_one_request_that_fails"],
    ),
    Breakage(
        name="chunks-of-refused-attachments-are-kept",
        file="pravega_spark/client/writer.py",
        old="        remove(rejected)\n",
        new="",
        tests=["tests/client/test_attachments.py::test_a_sealed_stream_takes_nothing"],
    ),
    Breakage(
        name="ctrl-c-tears-out-of-the-log",
        file="engine/logs/processor.py",
        old="uninterrupted(partial(self._commit_inline, transaction))",
        new="self._commit_inline(transaction)",
        tests=["tests/engine/logs/test_alone.py::test_ctrl_c_leaves_the_container_as_it_is"],
    ),
    Breakage(
        name="frame-under-way-forgotten",
        file="engine/logs/log.py",
        old="        self.flights.append(flight)  # first: what is under way is never forgotten\n"
        "        if inline:\n            flight.future = _INLINE.submit(self._put, position.address, data)\n        else:\n"
        "            self._start(flight)\n",
        new="        if inline:\n            flight.future = _INLINE.submit(self._put, position.address, data)\n        else:\n"
        "            self._start(flight)\n        self.flights.append(flight)\n",
        tests=[_OUTCOMES + "test_a_frame_is_known_before_its_request_leaves"],
    ),
    Breakage(
        name="unknown-outcome-taken-for-success",
        file="engine/logs/frame_settler.py",
        old="            self._report_unknown(replica.log.renew(), error)\n            replica.optimistic",
        new="            self._context.acknowledgements.settled.extend(replica.log.renew())\n            replica.optimistic",
        tests=[_OUTCOMES + "test_a_storage_that_fails_at_every_request"],
    ),
    Breakage(
        name="unknown-outcome-taken-for-failure",
        file="engine/logs/frame_settler.py",
        old="        error = cause if isinstance(cause, OutcomeUnknown) else OutcomeUnknown(str(cause))\n",
        new="        error = StorageError(str(cause))\n",
        tests=[_OUTCOMES + "test_a_storage_that_fails_at_every_request"],
    ),
    Breakage(
        name="failing-put-taken-for-no-put",
        file="engine/logs/log.py",
        old="                passing = not declared or isinstance(error, PutUnknown | StorageUnavailable)\n",
        new="                passing = isinstance(error, PutUnknown | StorageUnavailable)\n",
        tests=[_OUTCOMES + "test_a_put_that_fails_for_no_declared_reason_is_settled"],
    ),
    Breakage(
        name="log-sends-in-a-fork",
        file="engine/logs/log.py",
        old="        self._owner.check()  # two processes",
        new="        # two processes",
        tests=[
            "tests/engine/containers/test_forks.py::test_a_container_refuses_in_a_fork_and_goes_on_where_it_was_made"
        ],
    ),
    Breakage(
        name="containers-kept-in-a-fork",
        file="engine/root.py",
        old="manager = self._managers.get(this_process())",
        new="manager = next(iter(self._managers.values()))",
        tests=["tests/engine/containers/test_forks.py::test_a_root_opens_its_containers_anew_as_another_writer"],
    ),
    Breakage(
        name="container-closed-in-a-fork",
        file="engine/containers/container.py",
        old="        if not self.log.owner.here:\n            return\n",
        new="",
        tests=["tests/engine/containers/test_forks.py::test_closing_a_container_in_a_fork_changes_nothing"],
    ),
    Breakage(
        name="event-writer-takes-events-in-a-fork",
        file="pravega_spark/client/writer.py",
        old="        self._owner.check()\n        framed = frame_event(event)\n",
        new="        framed = frame_event(event)\n",
        tests=[_FORKS + "test_an_event_writer_refuses_in_a_fork"],
    ),
    Breakage(
        name="transaction-ended-in-a-fork",
        file="pravega_spark/client/transaction.py",
        old="        if self._ended or not self._owner.here:",
        new="        if self._ended:",
        tests=[_FORKS + "test_what_a_fork_lets_go_of_is_written_once_by_the_process_that_has_it"],
    ),
    Breakage(
        name="byte-stream-flushed-in-a-fork",
        file="pravega_spark/client/bytes.py",
        old="        if not self._owner.here:\n            return\n",
        new="",
        tests=[_FORKS + "test_what_a_fork_lets_go_of_is_written_once_by_the_process_that_has_it"],
    ),
    Breakage(
        name="large-event-aborted-in-a-fork",
        file="pravega_spark/client/large_events/large_event.py",
        old="        if not self._owner.here:\n            return\n",
        new="",
        tests=[_FORKS + "test_what_a_fork_lets_go_of_is_written_once_by_the_process_that_has_it"],
    ),
]
