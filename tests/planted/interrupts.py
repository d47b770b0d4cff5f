"""Breakages of what an exception of a signal leaves behind, and of what heals and tells damaged indexes (W16, P2)."""

from tests.planted import Breakage

_WRITERS = "tests/client/test_interrupted_writers.py::test_a_call_that_is_interrupted_leaves_all_or_nothing"
_CALLS = "tests/client/test_interrupted_calls.py::test_a_call_that_is_interrupted_is_done_or_not"
_REBUILT = "tests/streams/test_index_repair.py::"
_DAMAGED = "tests/streams/test_damaged_indexes.py::"

BREAKAGES = [
    Breakage(
        name="a-column-is-published-part-by-part",
        file="pravega_spark/client/writer.py",
        old="            self._enqueue(routes, self._framed_column(routes, column, keys, None))\n",
        new="            for content in self._framed_column(routes, column, keys, None):\n                self._enqueue(routes, [content])\n",
        tests=["-m", "long", f"{_WRITERS}[write_events of several appends-every point]"],
    ),
    Breakage(
        name="only-ctrl-c-is-put-off",
        file="engine/interrupts.py",
        old='("SIGINT", "SIGALRM", "SIGTERM",',
        new='("SIGINT", "SIGTERM",',
        tests=["tests/engine/test_interrupts.py::test_every_signal_is_put_off_and_raised_when_the_work_is_done"],
    ),
    Breakage(
        name="what-does-not-end-is-never-torn-out",
        file="engine/interrupts.py",
        old="        _thread.start_new_thread(self._remind, (number,))\n",
        new="",
        tests=["tests/engine/test_interrupts.py::test_work_that_does_not_end_is_torn_out_by_the_first_one"],
    ),
    Breakage(
        name="a-transaction-with-half-a-write-is-committed",
        file="pravega_spark/client/transaction.py",
        old="            if begun > isinstance(error, Throttled) and self._failure is None:",
        new="            if begun > 10 and self._failure is None:",
        tests=["-m", "long", f"{_CALLS}[transaction.write_events-many points]"],
    ),
    Breakage(
        name="a-rebuilt-index-that-was-right",
        file="pravega_spark/streams/maintenance/index_repair.py",
        old="        and counted == events\n",
        new="        and counted == events + 1\n",
        tests=[_REBUILT + "test_a_right_index_is_left_as_it_is"],
    ),
    Breakage(
        name="positions-in-an-index-that-was-made-again",
        file="pravega_spark/streams/reading/indexed_segments.py",
        old="        return self._positions.get((index.name, index.id, offset))",
        new="        found = [each for key, each in self._positions.items() if (key[0], key[2]) == (index.name, offset)]\n"
        "        return found[0] if found else None",
        tests=[_REBUILT + "test_places_in_an_index_are_looked_up_again_once_it_was_made_again"],
    ),
    Breakage(
        name="records-out-of-order-are-scanned",
        file="pravega_spark/streams/reading/scan.py",
        old="        if (steps < 0).any():",
        new="        if len(steps) < 0:",
        tests=[_DAMAGED + "test_an_index_that_cannot_be_right_is_told"],
    ),
    Breakage(
        name="index-records-are-believed",
        file="pravega_spark/streams/model/index.py",
        old="        if wrong.any():\n",
        new="        if False and wrong.any():\n",
        tests=["tests/streams/test_index.py::test_records_that_cannot_be_right_are_told"],
    ),
]
