"""Breakages of W14: what is logged can be read back, and what cannot be is removed without harm to the rest."""

from tests.planted import Breakage

ENGINE, CLIENT = "tests/engine/containers/test_readback.py", "tests/client/test_readback.py"
PASSED_OVER, UNREADABLE = "tests/engine/logs/test_passed_over.py", "tests/client/test_unreadable.py"

BREAKAGES = [
    Breakage(
        name="operations-are-queued-unjudged",
        file="engine/logs/transaction.py",
        old="tuple(map(checked, operations))",
        new="tuple(operations)",
        tests=[ENGINE],
    ),
    Breakage(
        name="truths-are-whole-numbers",
        file="chunkstore/decoding.py",
        old="        if not isinstance(value, numbers.Integral) or isinstance(value, bool):\n",
        new="        if not isinstance(value, numbers.Integral):\n",
        tests=[ENGINE],
    ),
    Breakage(
        name="updates-of-any-attribute-are-exact",
        file="engine/state/operations.py",
        old="        if not (type(attribute) is bytes and len(attribute) == 16 and type(kind) is UpdateKind):\n            return False\n",
        new="",
        tests=[ENGINE],
    ),
    Breakage(
        name="an-operation-without-sense-stops-the-container",
        file="engine/logs/validation.py",
        old="            with decoding():\n                _validate_one(transaction, result, layout, mark, time_ms)\n",
        new="            _validate_one(transaction, result, layout, mark, time_ms)\n",
        tests=[f"{ENGINE}::test_an_odd_argument_costs_its_operation_and_nothing_else"],
    ),
    Breakage(
        name="what-the-log-makes-is-submitted",
        file="engine/logs/transaction.py",
        old="            if isinstance(operation, _INTERNAL):\n",
        new="            if False:\n",
        tests=[f"{ENGINE}::test_what_the_log_makes_by_itself_is_not_submitted"],
    ),
    Breakage(
        name="index-records-overflow",
        file="engine/state/index_records.py",
        old="        except OverflowError:\n            raise Rejected(",
        new="        except ZeroDivisionError:\n            raise Rejected(",
        tests=[f"{ENGINE}::test_index_records_that_do_not_fit_are_refused"],
    ),
    Breakage(
        name="any-key-in-the-table-of-attributes",
        file="engine/storage/container_storage.py",
        old="            if operation.table == ATTRIBUTES:\n",
        new="            if False:\n",
        tests=[f"{ENGINE}::test_an_entry_that_the_table_of_attributes_cannot_hold_is_refused"],
    ),
    Breakage(
        name="checkpoints-are-made-unjudged",
        file="engine/logs/checkpoints.py",
        old="        _state(plain, path)\n    return plain\n",
        new="    return plain\n",
        tests=[
            "tests/engine/state/test_formats.py::test_a_state_with_an_odd_value_is_refused_or_comes_out_of_a_checkpoint"
        ],
    ),
    Breakage(
        name="segments-go-into-checkpoints-unjudged",
        file="engine/logs/checkpoints.py",
        old="    _segment_of(plain)\n    return plain\n",
        new="    return plain\n",
        tests=[
            "tests/engine/state/test_formats.py::test_a_state_with_an_odd_value_is_refused_or_comes_out_of_a_checkpoint"
        ],
    ),
    Breakage(
        name="names-of-records-with-half-a-character",
        file="chunkstore/metadata/serialization.py",
        old="        self.utf(_TEXT(text))\n",
        new="        self.utf(text)\n",
        tests=["tests/chunkstore/metadata/test_readback.py"],
    ),
    Breakage(
        name="records-are-kept-unread",
        file="pravega_spark/streams/model/readback.py",
        old="            found = read(data)\n",
        new="            found = record\n",
        tests=[f"{CLIENT}::test_a_streams_record_is_refused_or_read_back"],
    ),
    Breakage(
        name="cuts-of-anything",
        file="pravega_spark/streams/model/cuts.py",
        old="        if type(segment) is int and type(offset) is int:\n            return given\n",
        new="        if segment is not None:\n            return given\n",
        tests=[f"{CLIENT}::test_a_cut_of_anything_but_whole_numbers_is_refused_by_name"],
    ),
    Breakage(
        name="numbers-of-numpy-refused",
        file="pravega_spark/parameters.py",
        old="            given[name] = as_number(value)\n",
        new="",
        tests=[f"{CLIENT}::test_numbers_of_numpy_are_whole_numbers"],
    ),
    Breakage(
        name="given-up-operations-are-not-counted",
        file="engine/logs/replay.py",
        old="(len(operations) if isinstance(operations, list) else 0)",
        new="0",
        tests=[f"{PASSED_OVER}::test_the_other_transactions_of_the_frame_stand_and_operations_keep_their_numbers"],
    ),
    Breakage(
        name="repair-gives-up-the-whole-frame",
        file="engine/logs/replay.py",
        old="            found.append(place)\n",
        new="            found = list(range(len(_taken_apart(frame))))\n",
        tests=[f"{PASSED_OVER}::test_the_other_transactions_of_the_frame_stand_and_operations_keep_their_numbers"],
    ),
    Breakage(
        name="repair-gives-up-what-is-newer",
        file="engine/logs/replay.py",
        old="            state = _with(state, frame, plain, container)\n        except UnknownFormat:\n            raise\n",
        new="            state = _with(state, frame, plain, container)\n",
        tests=[f"{PASSED_OVER}::test_what_a_newer_version_wrote_is_never_given_up"],
    ),
    Breakage(
        name="who-wrote-a-bad-frame-keeps-it",
        file="engine/logs/replica.py",
        old="        if any(self._opened_at < address < live[0].position.address for address in repaired):\n",
        new="        if False:\n",
        tests=[f"{PASSED_OVER}::test_who_wrote_the_bad_frame_and_lives_on_agrees_with_everybody"],
    ),
    Breakage(
        name="verify-knows-no-given-up-transactions",
        file="engine/admin/checks/log_check.py",
        old="                skipped = self._skipped_by_repair(frame)\n",
        new="                skipped = None\n",
        tests=[f"{PASSED_OVER}::test_what_nobody_understands_of_a_frame_can_be_given_up_and_costs_only_that"],
    ),
    Breakage(
        name="unreadable-groups-stay",
        file="pravega_spark/client/groups/entry.py",
        old="        except DataCorruption:\n            return None\n",
        new="        except DataCorruption:\n            raise\n",
        tests=[f"{UNREADABLE}::test_a_group_that_nobody_understands_is_named_and_deleted"],
    ),
    Breakage(
        name="unreadable-groups-hold-back-retention",
        file="pravega_spark/client/groups/opening.py",
        old="        group.subscriptions.end_everywhere()\n",
        new="        pass\n",
        tests=[f"{UNREADABLE}::test_a_group_that_nobody_understands_is_named_and_deleted"],
    ),
    Breakage(
        name="an-unreadable-stream-ends-the-list",
        file="pravega_spark/streams/catalog.py",
        old="                problems.append(error)\n",
        new="                raise\n",
        tests=[f"{UNREADABLE}::test_a_stream_whose_record_nobody_understands_is_named_and_deleted"],
    ),
    Breakage(
        name="an-unreadable-stream-begins-at-its-old-numbers",
        file="pravega_spark/streams/writing/changes.py",
        old="    return _deletion(stream, state, version, last + 1, names)\n",
        new="    return _deletion(stream, state, version, 0, names)\n",
        tests=[f"{UNREADABLE}::test_a_stream_whose_record_nobody_understands_is_named_and_deleted"],
    ),
    Breakage(
        name="a-newer-streams-record-is-deleted",
        file="pravega_spark/streams/stream.py",
        old="            record = self._record(state)\n        except UnknownFormat:\n            raise\n",
        new="            record = self._record(state)\n",
        tests=[f"{UNREADABLE}::test_what_a_newer_version_wrote_is_not_deleted"],
    ),
    Breakage(
        name="an-unreadable-transaction-hides-the-others",
        file="pravega_spark/streams/writing/transactions.py",
        old="                unreadable = unreadable or error\n                continue\n",
        new="                raise error\n",
        tests=[f"{UNREADABLE}::test_expired_transactions_beside_one_that_nobody_understands_are_aborted"],
    ),
]
