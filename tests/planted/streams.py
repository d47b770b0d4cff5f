"""Breakages of streams: named writers, unknown outcomes, transactions, policies, retention."""

from tests.planted import Breakage

_RETRY = "tests/streams/test_outcome_retry.py"
_PRODUCERS = "tests/streams/test_producer_state.py"
_TRANSACTIONS = "tests/streams/test_transactions.py"
_SINK = "tests/source/test_sink.py"
_POLICIES = "tests/streams/test_policies.py"

BREAKAGES = [
    Breakage(
        name="unknown-named-write-is-success",
        file="pravega_spark/streams/writing/writes.py",
        old="            retry.wait_or_raise(error)  # a repeated write is recognised",
        new="            return  # a repeated write is recognised",
        tests=[f"{_RETRY}::test_a_named_write_whose_outcome_is_unknown_is_there_once"],
    ),
    Breakage(
        name="unknown-batch-is-success",
        file="pravega_spark/streams/writing/writes.py",
        old="            retry.wait_or_raise(error)  # a repeated write is recognised",
        new="            return  # a repeated write is recognised",
        tests=[f"{_SINK}::test_a_batch_whose_outcome_is_unknown_is_there_once"],
    ),
    Breakage(
        name="unknown-for-ever",
        file="pravega_spark/streams/writing/outcome_retry.py",
        old="elif now - self._since >= TIMEOUTS * self._container.settings.timeout:",
        new="elif now < self._since:",
        tests=[f"{_RETRY}::test_a_named_write_is_not_tried_for_ever"],
    ),
    Breakage(
        name="unknown-once-is-enough",
        file="pravega_spark/streams/writing/outcome_retry.py",
        old="            self._since = now\n        elif",
        new="            self._since = now\n        if",
        tests=[_RETRY],
    ),
    Breakage(
        name="unknown-transaction-end-is-success",
        file="pravega_spark/streams/writing/transactions.py",
        old="            except OutcomeUnknown as error:\n                retry.wait_or_raise(error)",
        new="            except OutcomeUnknown:\n                return",
        tests=[f"{_RETRY}::test_a_transaction_whose_end_is_unknown_ends_once"],
    ),
    Breakage(
        name="unknown-part-of-an-upload-is-success",
        file="pravega_spark/streams/writing/uploads.py",
        old="""                self.stream.container.commit([submitted])
                return
            except OutcomeUnknown as error:
                retry.wait_or_raise(error)""",
        new="""                self.stream.container.commit([submitted])
                return
            except OutcomeUnknown:
                return""",
        tests=[f"{_RETRY}::test_an_upload_is_not_tried_for_ever"],
    ),
    Breakage(
        name="unknown-group-state-is-success",
        file="pravega_spark/client/groups/entry.py",
        old="            retry.wait_or_raise(error)\n            return False",
        new="            return True",
        tests=[f"{_RETRY}::test_a_reader_group_goes_on"],
    ),
    Breakage(
        name="expire-takes-any-version",
        file="pravega_spark/streams/writing/transactions.py",
        old="            self.stream.container.commit(self._abort(record))",
        new="            self.abort()",
        tests=[f"{_TRANSACTIONS}::test_what_is_pinged_or_committed_while_it_is_judged_stays"],
    ),
    Breakage(
        name="transaction-commits-whatever-the-stream-is",
        file="pravega_spark/streams/writing/transactions.py",
        old="            *(before or [CheckEntry(STREAMS, self.stream.key, snapshot.record.version)]),",
        new="            *before,",
        tests=[f"{_TRANSACTIONS}::test_a_commit_is_routed_again_when_the_stream_is_scaled_meanwhile"],
    ),
    Breakage(
        name="transaction-lives-for-ever",
        file="pravega_spark/streams/writing/transactions.py",
        old="        return min(self.changed + self.lease, self.created + self.longest)",
        new="        return self.changed + self.lease",
        tests=[f"{_TRANSACTIONS}::test_no_transaction_is_open_for_longer_than_a_thousand_leases_or_a_day"],
    ),
    Breakage(
        name="ping-beyond-the-longest-life",
        file="pravega_spark/streams/writing/transactions.py",
        old="            if now + length > record.created + record.longest:",
        new="            if now > record.created + record.longest:",
        tests=[f"{_TRANSACTIONS}::test_no_transaction_is_open_for_longer_than_a_thousand_leases_or_a_day"],
    ),
    Breakage(
        name="other-data-told-as-a-replay",
        file="pravega_spark/streams/writing/producer_state.py",
        old="        if state[:2] == (write.sequence, self._digest):",
        new="        if state.sequence == write.sequence:",
        tests=[_PRODUCERS],
    ),
    Breakage(
        name="older-number-told-as-a-replay",
        file="pravega_spark/streams/writing/producer_state.py",
        old="        if state[:2] == (write.sequence, self._digest):",
        new="        if state.sequence > write.sequence or state[:2] == (write.sequence, self._digest):",
        tests=[f"{_PRODUCERS}::test_a_checkpoint_that_was_rolled_back"],
    ),
    Breakage(
        name="other-data-written-without-condition",
        file="pravega_spark/streams/writing/producer_state.py",
        old="            return self._operations(UpdateKind.REPLACE_IF_EQUALS, state, state.generation)",
        new="            return self._operations(UpdateKind.REPLACE, state, state.generation)",
        tests=[f"{_PRODUCERS}::test_what_is_written_all_the_same_is_there_once"],
    ),
    Breakage(
        name="number-kept-without-its-digest",
        file="pravega_spark/streams/writing/producer_state.py",
        old="        return [UpdateAttributes(self._stream.writers, tuple(updates))]",
        new="        return [UpdateAttributes(self._stream.writers, tuple(updates)[:1])]",
        tests=[_PRODUCERS],
    ),
    Breakage(
        name="number-in-an-append-of-its-own",
        file="pravega_spark/streams/writing/writes.py",
        old="            container.commit([operation for write in pending for operation in write.operations()])",
        new="            for write in pending:\n"
        "                container.commit(write.operations()[: write.named is not None] or write.operations())\n"
        "            container.commit([each for one in pending for each in one.operations()[one.named is not None :]])",
        tests=[f"{_PRODUCERS}::test_a_crash_at_every_request_of_a_named_write"],
    ),
    Breakage(
        name="rerouted-write-forgotten",
        file="pravega_spark/streams/writing/writes.py",
        old="        return [*self._update_operations, *self._before, *appends, *order, *self._after]",
        new="        return [*([] if self._before else self._update_operations), *self._before, *appends, *order, *self._after]",
        tests=[f"{_PRODUCERS}::test_what_was_planned_before_a_scale_is_remembered_too"],
    ),
    Breakage(
        name="replay-of-one-stream-hides-the-others",
        file="pravega_spark/streams/writing/writes.py",
        old="            pending = [write for write in pending if write.new]",
        new="            pending = [write for write in pending if all(each.new for each in pending)]",
        tests=["tests/source/test_by_row.py::test_a_replay_with_other_rows_is_told_of_each_stream"],
    ),
    Breakage(
        name="digest-of-figures-only",
        file="pravega_spark/streams/writing/digests.py",
        old="        total += int(hashes.sum())",
        new="        total += 0 * int(hashes.sum())",
        tests=[_PRODUCERS],
    ),
    Breakage(
        name="digest-by-order",
        file="pravega_spark/streams/writing/digests.py",
        old="        total += int(hashes.sum())",
        new="        total += int((hashes * np.arange(len(hashes), dtype=np.uint64)).sum())",
        tests=[f"{_PRODUCERS}::test_a_digest_does_not_depend_on_order_tasks_and_segments"],
    ),
    Breakage(
        name="large-events-without-digest",
        file="pravega_spark/streams/writing/collector.py",
        old="        self._digest(target.stream, Digest.of_large(extents))",
        new="        self._digest(target.stream, Digest(1, len(payload), hash(self._uploads.names[-1])))",
        tests=[f"{_SINK}::test_the_same_rows_in_other_tasks_and_another_order_are_a_replay"],
    ),
    Breakage(
        name="one-name-for-all-batches",
        file="pravega_spark/source/sink.py",
        old="        if options.txn_app_id is not None:\n            raise ValueError(",
        new="        if options.txn_version == -1:\n            raise ValueError(",
        tests=[f"{_SINK}::test_one_batch_cannot_be_named_for_a_whole_query"],
    ),
    Breakage(
        name="changed-replays-always-skipped",
        file="pravega_spark/source/sink.py",
        old="ProducerWrite(*writer, digest, self._options.on_changed_replay, ",
        new='ProducerWrite(*writer, digest, "skip", ',
        tests=[f"{_SINK}::test_what_is_done_with_other_rows_is_an_option"],
    ),
    Breakage(
        name="micro-batch-past-a-scale",
        file="pravega_spark/source/admission.py",
        old="        end = tail if whole else snapshot.up_to_scale(begin, tail)",
        new="        end = tail",
        tests=["tests/source/test_batches.py::test_a_batch_ends_where_the_stream_was_scaled"],
    ),
    Breakage(
        name="target-rate-of-zero",
        file="pravega_spark/streams/model/policies.py",
        old="        least, most = (1, _MAX_INT32) if self.kind",
        new="        least, most = (0, _MAX_INT32) if self.kind",
        tests=[f"{_POLICIES}::test_scaling_policies_that_make_no_sense"],
    ),
    Breakage(
        name="any-number-of-tags",
        file="pravega_spark/streams/model/stream_record.py",
        old="    if len(once) > MAX_TAGS:",
        new="    if len(once) < 0:",
        tests=[f"{_POLICIES}::test_tags"],
    ),
    Breakage(
        name="upkeep-stops-a-writer",
        file="pravega_spark/streams/maintenance/scheduler.py",
        old="    except Exception as error:",
        new="    except KeyError as error:",
        tests=[f"{_POLICIES}::test_what_upkeep_meets_does_not_stop_a_writer"],
    ),
    Breakage(
        name="one-stream-stops-a-job",
        file="pravega_spark/jobs/spread.py",
        old="        except Exception as error:",
        new="        except KeyError as error:",
        tests=[f"{_POLICIES}::test_what_fails_for_one_stream_does_not_keep_a_job_from_the_others"],
    ),
    Breakage(
        name="writer-dies-silently",
        file="pravega_spark/client/writer.py",
        old="        except BaseException as error:  # whatever ends this thread",
        new="        except Exception as error:  # whatever ends this thread",
        tests=[f"{_POLICIES}::test_whatever_ends_the_thread_of_a_writer_is_told"],
    ),
    Breakage(
        name="retention-needs-a-recorded-cut",
        file="pravega_spark/streams/maintenance/retention.py",
        old="        if slowest is not None and self._by_size:",
        new="        if slowest is not None and self._by_size and least is not None:",
        tests=["tests/streams/test_retention.py"],
    ),
    Breakage(
        name="sealed-segment-changes-its-attributes",
        file="engine/state/changes/attribute_changes.py",
        old="    if segment.sealed and not all(is_core(update.attribute) for update in op.updates):",
        new="    if segment.sealed and not op.updates:",
        tests=["tests/engine/state/test_attributes.py::test_of_a_sealed_segment_only_core_attributes_are_updated"],
    ),
    Breakage(
        name="batch-write-to-a-sealed-stream-found-at-commit",
        file="pravega_spark/source/sink.py",
        old="        if not self._is_idempotent() or not stream.is_committed(replayed):",
        new="        if self._is_idempotent() and not stream.is_committed(replayed):",
        tests=["tests/source/test_attempts.py::test_a_sealed_stream_is_refused_before_any_task_runs"],
    ),
    Breakage(
        name="dry-run-of-retention-without-the-cut-that-is-due",
        file="pravega_spark/streams/maintenance/retention.py",
        old="        self.recorded = RecordedCuts(snapshot, added)",
        new="        self.recorded = RecordedCuts(snapshot)",
        tests=["tests/streams/test_retention.py"],
    ),
    Breakage(
        name="legacy-header-deleted-unasked",
        file="pravega_spark/cli/header.py",
        old="dry_run=dry_run or not yes)",
        new="dry_run=dry_run)",
        tests=["tests/cli/test_confirmation.py"],
    ),
    Breakage(
        name="job-begins-before-it-looks-for-the-stream",
        file="pravega_spark/jobs/spread.py",
        old="        catalog.stream(scope, stream).snapshot()  # raises StreamNotFound\n",
        new="",
        tests=["tests/jobs/test_jobs.py"],
    ),
    Breakage(
        name="cut-of-an-empty-segment-drawn-at-its-end",
        file="pravega_spark/streams/reading/timeline.py",
        old="            return min(following)\n",
        new="            return inf\n",
        tests=["tests/client/test_picture.py"],
    ),
    Breakage(
        name="head-behind-a-truncated-epoch-drawn-at-its-beginning",
        file="pravega_spark/streams/reading/timeline.py",
        old='span.ended if span.state == "gone" and offset else span.begun, None)',
        new="span.begun, None)",
        tests=["tests/client/test_picture.py"],
    ),
    Breakage(
        name="object-that-is-gone-without-a-remedy",
        file="pravega_spark/streams/reading/scan.py",
        old="                            raise ObjectLost(str(error)) from error\n",
        new="                            raise\n",
        tests=["tests/client/test_lost_objects.py"],
    ),
]
