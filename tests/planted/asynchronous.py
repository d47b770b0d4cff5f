"""Breakages of writers and tails in event loops."""

from tests.planted import Breakage

_TESTS = "tests/client/test_asynchronous.py::test_"
_LOOPS = "pravega_spark/client/asynchronous.py"
_FUTURES = "pravega_spark/client/loop_futures.py"

BREAKAGES = [
    Breakage(
        name="a-coroutine-writes-before-those-that-wait",
        file=_LOOPS,
        old="        if not self._turns and loops.has_room:\n",
        new="        if loops.has_room:\n",
        tests=[f"{_TESTS}a_write_does_not_overtake_those_that_wait"],
    ),
    Breakage(
        name="a-cancelled-write-is-written-when-there-is-room",
        file=_LOOPS,
        old="            self._turns.pop(done, None)",
        new="            pass",
        tests=[f"{_TESTS}a_write_that_is_cancelled_while_it_waits_for_room_writes_nothing"],
    ),
    Breakage(
        name="a-write-that-waits-sees-later-changes-of-its-bytes",
        file=_LOOPS,
        old="bytes(event) if isinstance(event, bytearray | memoryview) else event",
        new="event",
        tests=[f"{_TESTS}a_full_queue_is_awaited_and_blocks_no_other_coroutine"],
    ),
    Breakage(
        name="writes-that-wait-are-closed-out",
        file=_LOOPS,
        old="        while self._turns:\n            await asyncio.wait(",
        new="        while False:\n            await asyncio.wait(",
        tests=[f"{_TESTS}a_full_queue_is_awaited_and_blocks_no_other_coroutine"],
    ),
    Breakage(
        name="an-asynchronous-writer-closes-in-the-loop",
        file=_LOOPS,
        old="        await asyncio.to_thread(self._writer.close)\n",
        new="        self._writer.close()\n",
        tests=[f"{_TESTS}closing_waits_for_what_was_written_and_blocks_no_other_coroutine"],
    ),
    Breakage(
        name="a-stream-is-opened-in-the-loop",
        file=_LOOPS,
        old="await asyncio.to_thread(self._create)",
        new="self._create()",
        tests=[f"{_TESTS}no_request_is_made_in_the_thread_of_the_event_loop"],
    ),
    Breakage(
        name="a-writer-of-several-loops",
        file=_LOOPS,
        old="        elif self._loop is not loop:\n",
        new="        elif False:\n",
        tests=[f"{_TESTS}a_loop_that_is_closed_before_its_writes_are_durable_harms_nothing"],
    ),
    Breakage(
        name="a-coroutine-writes-in-a-fork",
        file=_LOOPS,
        old="        loops.check_process()\n",
        new="",
        tests=[f"{_TESTS}a_fork_is_refused"],
    ),
    Breakage(
        name="a-closed-loop-fails-the-writer",
        file=_FUTURES,
        old="        except RuntimeError:  # the loop was closed\n            return\n",
        new="",
        tests=[f"{_TESTS}a_loop_that_is_closed_before_its_writes_are_durable_harms_nothing"],
    ),
    Breakage(
        name="a-failure-of-a-cancelled-write-counts-as-raised",
        file=_FUTURES,
        old="                pass  # it was cancelled\n",
        new="                failed and writer.failure_to_raise()\n",
        tests=[f"{_TESTS}a_failure_that_no_call_raised_is_raised_by_close"],
    ),
    Breakage(
        name="coroutines-are-not-woken-by-a-failure",
        file="pravega_spark/client/writer.py",
        old="        self._work.wake()\n        self._loops.wake()\n",
        new="        self._work.wake()\n",
        tests=[f"{_TESTS}every_call_that_waits_gets_the_failure_once"],
    ),
    Breakage(
        name="a-cancelled-tail-cancels-its-poll",
        file=_LOOPS,
        old="        await asyncio.wait([step])  # which cancels nothing\n",
        new="        await step\n",
        tests=[f"{_TESTS}a_tail_that_is_cancelled_all_the_time_loses_no_event"],
    ),
    Breakage(
        name="a-tail-stands-behind-what-it-has-read",
        file=_LOOPS,
        old="        if not self._ready or self._start is None:\n",
        new="        if True:\n",
        tests=[f"{_TESTS}another_tail_continues_at_the_position_of_one"],
    ),
    Breakage(
        name="a-tail-reads-everything-at-once",
        file=_LOOPS,
        old="self._follower.poll(ROUND_BYTES)",
        new="self._follower.poll()",
        tests=[f"{_TESTS}a_tail_reads_much_in_rounds"],
    ),
    Breakage(
        name="a-tail-polls-in-the-loop",
        file=_LOOPS,
        old="            self._step = loop.run_in_executor(None, self._poll)\n",
        new="            self._step = loop.create_future()\n            self._step.set_result(self._poll())\n",
        tests=[f"{_TESTS}no_request_is_made_in_the_thread_of_the_event_loop"],
    ),
    Breakage(
        name="a-tail-that-waits-does-not-notice-its-manager-closed",
        file=_LOOPS,
        old="            self._check_open()\n            await asyncio.sleep(min(left, CHECK_AGAIN))\n",
        new="            await asyncio.sleep(left)\n",
        tests=[f"{_TESTS}what_ends_a_tail_that_waits"],
    ),
    Breakage(
        name="a-tail-forgets-the-error-of-its-poll",
        file=_LOOPS,
        old="            raise failure\n",
        new="            return\n",
        tests=[f"{_TESTS}a_tail_whose_poll_fails_can_be_continued"],
    ),
]
