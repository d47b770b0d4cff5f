"""Breakages of what is made up for in older versions of Spark, of pushed filters, of misplaced checkpoints and of the
self-test's race."""

from tests.planted import Breakage

READER = "pravega_spark/source/spark_api/stream_reader.py"
FILTERS = "pravega_spark/source/spark_api/filters.py"
BOUNDS = "pravega_spark/streams/reading/bounds.py"
MISPLACED = "pravega_spark/source/misplaced_checkpoints.py"
SPARK_API = ["tests/source/test_spark_api.py"]

BREAKAGES = [
    Breakage(
        name="a-restarted-query-begins-anew",
        file=READER,
        old="        self._position = end\n",
        new="",
        tests=SPARK_API,
    ),
    Breakage(
        name="a-batch-without-a-plan-is-read-again",
        file=READER,
        old="        self._position = self.reader.latestOffset(self._position, limit)\n        self._limited = True\n"
        "        return self._position\n",
        new="        self._limited = True\n        return self.reader.latestOffset(self._position, limit)\n",
        tests=SPARK_API,
    ),
    Breakage(
        name="limits-never-hold",
        file=READER,
        old="        self._limited = True\n",
        new="",
        tests=SPARK_API,
    ),
    Breakage(
        name="limits-do-not-hold-after-a-repeated-batch",
        file=READER,
        old="        self._limited = self._limited or start != end\n",
        new="",
        tests=SPARK_API,
    ),
    Breakage(
        name="the-whole-backlog-ends-at-a-scaling",
        file="pravega_spark/source/admission.py",
        old="        end = tail if whole else snapshot.up_to_scale(begin, tail)\n",
        new="        end = snapshot.up_to_scale(begin, tail)\n",
        tests=SPARK_API,
    ),
    Breakage(
        name="the-whole-backlog-waits-for-a-minimum",
        file="pravega_spark/source/admission.py",
        old="wait and not isinstance(limit, ReadAllAvailable | ReadWholeBacklog)",
        new="wait and not isinstance(limit, ReadAllAvailable)",
        tests=SPARK_API,
    ),
    Breakage(
        name="gathered-rows-lose-the-last",
        file="pravega_spark/source/spark_api/stream_writer.py",
        old="        while some := list(islice(rows, ROWS)):\n",
        new="        while len(some := list(islice(rows, ROWS))) == ROWS:\n",
        tests=SPARK_API,
    ),
    Breakage(
        name="a-negated-filter-counts-as-it-is",
        file=FILTERS,
        old='        path: tuple[str, ...] = getattr(each, "attribute", ())\n',
        new='        each = getattr(each, "child", each)\n'
        '        path: tuple[str, ...] = getattr(each, "attribute", ())\n',
        tests=["tests/source/test_filters.py"],
    ),
    Breakage(
        name="the-later-filter-replaces-the-first",
        file=FILTERS,
        old="getattr(bounds, column).within(limit)",
        new="limit",
        tests=["tests/source/test_filters.py"],
    ),
    Breakage(
        name="the-event-at-a-bound-is-left-out",
        file=BOUNDS,
        old="boundary_before(number, low + 1)",
        new="boundary_before(number, low + 5000)",
        tests=["tests/streams/test_bounds.py"],
    ),
    Breakage(
        name="the-last-event-of-a-bound-is-cut",
        file=BOUNDS,
        old="locate_offset(max(high + 1, 0))",
        new="locate_offset(max(high - 2000, 0))",
        tests=["tests/streams/test_bounds.py"],
    ),
    Breakage(
        name="clocks-never-differ",
        file=BOUNDS,
        old="low - CLOCKS_DIFFER",
        new="low",
        tests=["tests/streams/test_bounds.py"],
    ),
    Breakage(
        name="a-misplaced-checkpoint-stops-every-restart",
        file=MISPLACED,
        old="        if position in _offsets(place):\n",
        new="        if not _offsets(place) or position in _offsets(place):\n",
        tests=["tests/source/test_misplaced_checkpoints.py"],
    ),
    Breakage(
        name="a-writer-that-does-not-learn-its-outcome-ends-the-race",
        file="chunkstore/selftest.py",
        old="                        outcomes.append(None)\n",
        new="                        raise\n",
        tests=["tests/chunkstore/test_selftest.py"],
    ),
    Breakage(
        name="the-oldest-batch-of-a-checkpoint-counts",
        file=MISPLACED,
        old="max(batches)",
        new="min(batches)",
        tests=["tests/source/test_misplaced_checkpoints.py"],
    ),
]
