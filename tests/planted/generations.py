"""Breakages of generations: positions, producers, groups and transactions after a restore or a recovery."""

from tests.planted import Breakage

_STREAMS = "tests/streams/test_generations.py"
_CLIENT = "tests/client/test_generations.py"
_GROUPS = "tests/client/groups/test_generations.py"
_REFUSED = f"{_STREAMS}::test_a_cut_in_what_was_lost_is_refused_and_the_error_names_where_what_was_restored_ends"

BREAKAGES = [
    Breakage(
        name="restored-stream-grows-in-its-old-segments",
        file="pravega_spark/streams/writing/writable_stream.py",
        old="        if self._begun == generation:",
        new="        if generation:",
        tests=[_REFUSED],
    ),
    Breakage(
        name="restored-stream-numbers-without-gap",
        file="pravega_spark/streams/writing/changes.py",
        old="        sealed, first = segments, after_gap(snapshot.stream.key, first, len(ranges))",
        new="        sealed = segments",
        tests=[_REFUSED],
    ),
    Breakage(
        name="restored-stream-is-scaled-as-ever",
        file="pravega_spark/streams/writing/changes.py",
        old="    if generation_is_over(snapshot):",
        new="    if generation_is_over(snapshot) and not sealed:",
        tests=[f"{_STREAMS}::test_a_scale_as_the_first_change_begins_the_generation_in_the_same_append"],
    ),
    Breakage(
        name="restored-transaction-commits-into-old-segments",
        file="pravega_spark/streams/writing/transactions.py",
        old="        self.stream.begin_generation()\n",
        new="",
        tests=[f"{_STREAMS}::test_whatever_writes_first_begins_the_generation"],
    ),
    Breakage(
        name="restored-upload-commits-into-old-segments",
        file="pravega_spark/streams/writing/uploads.py",
        old="        target = str(parent_in(self.segment))\n        self.stream.begin_generation()\n",
        new="        target = str(parent_in(self.segment))\n",
        tests=[f"{_STREAMS}::test_whatever_writes_first_begins_the_generation"],
    ),
    Breakage(
        name="small-event-goes-into-old-segments",
        file="pravega_spark/streams/writing/uploads.py",
        old='self._retry("it is committed")\n        self.stream.begin_generation()\n        while',
        new='self._retry("it is committed")\n        while',
        tests=[f"{_STREAMS}::test_whatever_writes_first_begins_the_generation"],
    ),
    Breakage(
        name="rolling-transaction-takes-numbers-of-lost-segments",
        file="pravega_spark/streams/writing/changes.py",
        old="    if epoch.epoch >= begun and",
        new="    if",
        tests=[
            f"{_STREAMS}::test_epochs_of_a_rolling_transaction_after_a_restore_share_no_segment_with_lost_ones",
        ],
    ),
    Breakage(
        name="new-stream-takes-numbers-of-a-lost-one",
        file="pravega_spark/streams/stream.py",
        old="after_gap(self.key, first, count) if self.continues_a_copy else first",
        new="after_gap(self.key, first, count) if not self.root else first",
        tests=[f"{_STREAMS}::test_a_cut_of_a_lost_stream_is_none_of_a_new_stream_of_its_name"],
    ),
    Breakage(
        name="lost-position-is-set-back-to-the-last-restore",
        file="pravega_spark/streams/model/generations.py",
        old="for n in begun if known",
        new="for n in reversed(begun) if known",
        tests=[f"{_STREAMS}::test_a_position_lost_in_an_earlier_restore_is_recognised_after_another_one"],
    ),
    Breakage(
        name="lost-numbers-of-a-producer-are-believed",
        file="pravega_spark/streams/writing/producer_state.py",
        old="        if before != self._generation and self._write.sequence > last + 1:",
        new="        if before == self._write.sequence:",
        tests=[f"{_STREAMS}::test_a_producer_whose_writes_were_lost_is_refused_until_it_writes_them_again"],
    ),
    Breakage(
        name="producer-is-not-looked-at-in-a-new-generation",
        file="pravega_spark/streams/writing/producer_state.py",
        old="self._operations(UpdateKind.REPLACE_IF_GREATER, None, self._generation)",
        new="self._operations(UpdateKind.REPLACE_IF_GREATER, None, NULL_VALUE)",
        tests=[f"{_STREAMS}::test_each_generation_refuses_a_gap_anew"],
    ),
    Breakage(
        name="group-ahead-of-its-stream-stays-there",
        file="pravega_spark/client/groups/opening.py",
        old="    state = _placed(group, state)\n",
        new="",
        tests=[f"{_GROUPS}::test_a_group_ahead_of_its_stream_gets_all_events_that_come_after_the_restore"],
    ),
    Breakage(
        name="query-passes-over-what-was-restored",
        file="pravega_spark/source/micro_batch.py",
        old="            found = snapshot.restored(cut.positions) or snapshot.head_cut()",
        new="            found = snapshot.tail_cut()",
        tests=[
            f"{_CLIENT}::test_a_query_goes_on_from_its_checkpoint_only_when_it_is_told_to_leave_out_what_was_lost",
        ],
    ),
    Breakage(
        name="import-grows-where-a-lost-one-did",
        file="pravega_spark/streams/pravega_lts/stream_import.py",
        old='generation = "" if stream.continues_a_copy else stream',
        new="generation = stream",
        tests=[
            "tests/streams/test_imports.py::test_a_position_in_an_import_that_a_recovery_lost_is_none_of_the_stream_imported_again",
        ],
    ),
]
