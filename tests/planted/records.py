"""Breakages of the decoding of what is stored or given, and of the limits of numbers that are."""

from tests.planted import Breakage

FUZZ = "test_whatever_is_read_is_understood_or_refused"
ENGINE, STREAMS = f"tests/fuzz/test_engine.py::{FUZZ}", f"tests/fuzz/test_streams.py::{FUZZ}"

OPTIONAL = ["tests/test_optional_fields.py::test_what_a_newer_version_added_is_kept_whatever_this_one_changes"]
ACTIVE = ["tests/test_optional_fields.py::test_active_segments_keep_it_in_checkpoints"]

BREAKAGES = [
    Breakage(
        name="optional-fields-of-streams-are-lost",
        file="pravega_spark/streams/model/stream_record.py",
        old='        for name in ("unknown", "values", OPTIONAL):\n            if not fields[name]:\n',
        new='        for name in ("unknown", "values", OPTIONAL):\n            if not fields[name] or name == OPTIONAL:\n',
        tests=OPTIONAL,
    ),
    Breakage(
        name="optional-fields-of-groups-are-lost",
        file="pravega_spark/client/groups/state.py",
        old="            fields[OPTIONAL] = self.optional\n",
        new="            pass\n",
        tests=OPTIONAL,
    ),
    Breakage(
        name="optional-fields-of-transactions-are-lost",
        file="pravega_spark/streams/writing/transactions.py",
        old="        return cls(routing, created, lease, changed, longest, status, version, optional)\n",
        new="        return cls(routing, created, lease, changed, longest, status, version)\n",
        tests=OPTIONAL,
    ),
    Breakage(
        name="optional-fields-of-scopes-are-lost",
        file="pravega_spark/streams/scopes.py",
        old="                self._put(record._replace(deleting=True), version)\n",
        new="                self._put(ScopeRecord(deleting=True), version)\n",
        tests=["tests/test_optional_fields.py::test_a_scope_keeps_it_when_its_deletion_begins_and_is_aborted"],
    ),
    Breakage(
        name="optional-fields-of-marks-are-lost",
        file="pravega_spark/streams/stream_time.py",
        old="            return marks._replace(highest=highest, writers={**kept, writer: mark})\n",
        new="            return Marks(highest, {**kept, writer: mark})\n",
        tests=OPTIONAL,
    ),
    Breakage(
        name="optional-fields-of-the-root-are-lost",
        file="engine/root.py",
        old="        if not self.optional:\n            del fields[OPTIONAL]\n",
        new="        del fields[OPTIONAL]\n",
        tests=OPTIONAL,
    ),
    Breakage(
        name="later-revisions-of-blocks-are-lost",
        file="chunkstore/segments/chunk_list.py",
        old="        self._transaction.put(self._block(key)._replace(entries=entries))\n",
        new="        self._transaction.put(IndexBlockRecord(key, entries))\n",
        tests=OPTIONAL,
    ),
    Breakage(
        name="later-revisions-of-segments-are-lost",
        file="engine/state/segment_record.py",
        old="        later=later_revisions(revisions, 2),\n",
        new="",
        tests=OPTIONAL,
    ),
    Breakage(
        name="later-revisions-are-not-in-checkpoints",
        file="engine/logs/checkpoints.py",
        old="    if segment.later:\n",
        new="    if False:\n",
        tests=ACTIVE,
    ),
    Breakage(
        name="type-errors-pass-decoding",
        file="chunkstore/decoding.py",
        old="    TypeError,\n    LookupError,",
        new="    LookupError,",
        tests=[f"{ENGINE}[operations]", f"{STREAMS}[stream-records]"],
    ),
    Breakage(
        name="deep-json-passes-decoding",
        file="chunkstore/decoding.py",
        old="    RecursionError,\n",
        new="",
        tests=["tests/streams/test_bounded_input.py::test_deep_json_and_constants_are_no_description"],
    ),
    Breakage(
        name="format-number-unread",
        file="chunkstore/decoding.py",
        old='    if found != known:\n        raise NewerFormat(f"it has format',
        new='    if False:\n        raise NewerFormat(f"it has format',
        tests=[
            "tests/fuzz/test_verify.py::test_a_frame_and_a_checkpoint_of_a_newer_version_say_so",
            "tests/engine/logs/test_frames.py::test_a_frame_of_a_newer_version_is_no_damage",
        ],
    ),
    Breakage(
        name="newer-frame-is-damage",
        file="engine/logs/frames.py",
        old='    with understanding(path, ""):  # its header is as it was written: nothing is damaged, and nothing may be repaired\n'
        "        check_format(version, VERSION)\n",
        new='    if version != VERSION:\n        raise FrameDamaged(path, address, "not a frame of format 1")\n',
        tests=["tests/engine/logs/test_frames.py::test_a_frame_of_a_newer_version_is_no_damage"],
    ),
    Breakage(
        name="extra-field-ignored",
        file="chunkstore/decoding.py",
        old="        if len(value) != len(readers):\n",
        new="        if len(value) < len(readers):\n",
        tests=["tests/fuzz/test_decoding.py"],
    ),
    Breakage(
        name="frame-not-understood-is-passed-by",
        file="engine/logs/replica.py",
        old="        except BaseException as error:  # the log has gone past frames that the state lacks\n            self._fail(error)\n",
        new="        except BaseException as error:  # the log has gone past frames that the state lacks\n",
        tests=[
            "tests/fuzz/test_verify.py::test_an_operation_of_a_newer_version_stops_whoever_follows_and_loses_nothing"
        ],
    ),
    Breakage(
        name="operations-without-types",
        file="engine/state/operations.py",
        old="    read = reader(kind)\n    return lambda fields, content: read(fields)",
        new="    return lambda fields, content: kind(*fields)",
        tests=["tests/fuzz/test_engine.py::test_each_field_of_each_operation_has_a_type"],
    ),
    Breakage(
        name="segments-of-a-checkpoint-unguarded",
        file="engine/logs/checkpoints.py",
        old="    with understanding(path, _REMEDY):\n        return _segment_of(fields)",
        new="    if True:\n        return _segment_of(fields)",
        tests=["tests/fuzz/test_verify.py::test_a_segment_in_a_checkpoint_that_nobody_understands_is_told"],
    ),
    Breakage(
        name="verify-dies-of-a-segment",
        file="engine/admin/verify.py",
        old="            except DataCorruption as error:  # a segment of the state cannot be decoded",
        new="            except ZeroDivisionError as error:",
        tests=["tests/fuzz/test_verify.py::test_a_segment_in_a_checkpoint_that_nobody_understands_is_told"],
    ),
    Breakage(
        name="verify-does-not-read-entries",
        file="engine/admin/verify.py",
        old='problem = check(container, key, entry.value or b"", entry.version)',
        new="problem = None",
        tests=["tests/fuzz/test_verify.py::test_entries_that_nobody_understands_are_told[_system/streams]"],
    ),
    Breakage(
        name="cut-text-unbounded",
        file="pravega_spark/streams/model/cuts.py",
        old='        _check_count(max(part.count(",") + 1 for part in parts[2:]))  # before they are used\n',
        new="",
        tests=[
            "tests/streams/test_bounded_input.py::test_a_cut_of_more_segments_than_there_can_be_is_refused_before_it_is_made"
        ],
    ),
    Breakage(
        name="cut-text-unpacks-too-much",
        file="pravega_spark/streams/model/cuts.py",
        old="LONGEST_PLAIN_TEXT = 42 * MAX_SEGMENTS + 1024",
        new="LONGEST_PLAIN_TEXT = 420 * MAX_SEGMENTS + 1024",
        tests=["tests/streams/test_bounded_input.py::test_a_short_text_of_a_cut_costs_little"],
    ),
    Breakage(
        name="any-number-of-segments",
        file="pravega_spark/streams/stream.py",
        old="        check_segments(self.key, scaling.min_segments, self.root.config.max_segments)\n",
        new="        check_segments(self.key, 1, self.root.config.max_segments)\n",
        tests=["tests/streams/test_bounded_input.py::test_the_limit_is_a_setting_of_the_root_and_holds_for_scaling"],
    ),
    Breakage(
        name="any-number-of-segments-by-scaling",
        file="pravega_spark/streams/writing/changes.py",
        old="    check_segments(snapshot.stream.key, max(len(epoch.segments) for epoch in epochs), limit)\n",
        new="",
        tests=["tests/streams/test_bounded_input.py::test_the_limit_is_a_setting_of_the_root_and_holds_for_scaling"],
    ),
    Breakage(
        name="any-number-of-containers",
        file="engine/root.py",
        old="not unit.least <= value <= unit.most:",
        new="not unit.least <= value:",
        tests=["tests/streams/test_bounded_input.py::test_a_root_with_numbers_that_cannot_be_is_refused"],
    ),
    Breakage(
        name="legacy-header-without-digits-limit",
        file="chunkstore/pravega/rolling.py",
        old=" and len(text) <= _DIGITS):",
        new="):",
        tests=["tests/chunkstore/pravega/test_rolling.py::test_headers_that_are_refused"],
    ),
    Breakage(
        name="endless-seconds",
        file="pravega_spark/console/arguments.py",
        old="click.FloatRange(least, MAX_SECONDS, min_open=min_open)",
        new="click.FloatRange(least, min_open=min_open)",
        tests=["tests/cli/test_streams.py::test_wrong_usage"],
    ),
]
