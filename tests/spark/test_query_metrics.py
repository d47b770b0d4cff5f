"""Metrics of streaming queries, as the driver program has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from pravega_spark import QueryMetrics
from pravega_spark.query_metrics import Queries
from pravega_spark.source.spark_api.stream_reader import tells_position
from tests.spark.folder import Folder


@pytest.fixture
def metrics(folder: Folder) -> Iterator[QueryMetrics]:
    with QueryMetrics(folder.spark) as metrics:
        yield metrics


def samples(metrics: QueryMetrics | Queries) -> dict[tuple[str, ...], float]:
    """The values, by name and those of the labels."""
    found = [sample for family in metrics.collect() for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in found}


def until(true: Callable[[], bool]) -> None:
    """Spark tells its listeners some time later."""
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("Spark has told nothing of it")


def test_batches_rows_and_what_is_left_of_each_stream(folder: Folder, metrics: QueryMetrics) -> None:
    folder.put(*map(str, range(20)))
    folder.put(*map(str, range(6)), stream="u")
    frame = folder.follow("t,u", max_events_per_trigger=13, start_stream_cut="earliest")
    writer = frame.writeStream.format("noop").queryName("mine").option("checkpointLocation", folder.checkpoint())
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    query.stop()
    until(lambda: samples(metrics).get(("pravega_query_running", "mine")) == 0)
    found = samples(metrics)
    assert (found["pravega_query_batches_total", "mine"], found["pravega_query_rows_total", "mine"]) == (2, 26)
    assert found["pravega_query_failures_total", "mine"] == 0 < found["pravega_query_last_batch_seconds", "mine"]
    assert found["pravega_query_seconds_total", "mine", "addBatch"] > 0
    if tells_position():  # earlier versions of Spark show no latest offset of a Python source
        lags = {key[1:]: value for key, value in found.items() if key[0].startswith("pravega_query_lag")}
        assert lags == {("mine", "s/t"): 0, ("mine", "s/u"): 0}
    assert 'pravega_query_rows_total{query="mine"} 26.0' in metrics.text()


def test_a_query_that_fails_and_one_without_a_name(folder: Folder, metrics: QueryMetrics) -> None:
    folder.put("a", "b")
    query = (
        folder.follow(start_stream_cut="earliest")
        .selectExpr("assert_true(event IS NULL)")
        .writeStream.format("noop")
        .start()
    )
    until(lambda: samples(metrics).get(("pravega_query_failures_total", query.id)) == 1)
    assert samples(metrics)["pravega_query_running", query.id] == 0 and not query.isActive


def test_other_sources_have_no_lag_and_a_closed_listener_hears_nothing(folder: Folder, metrics: QueryMetrics) -> None:
    def run(name: str) -> None:
        rate = folder.spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        query = rate.writeStream.format("noop").queryName(name).start()
        until(lambda: query.lastProgress is not None)
        query.stop()

    run("rates")
    until(lambda: samples(metrics).get(("pravega_query_running", "rates")) == 0)
    assert not any(key[0].startswith("pravega_query_lag") for key in samples(metrics))
    metrics.close()
    run("later")
    assert ("pravega_query_running", "later") not in samples(metrics)


def test_ended_queries_are_forgotten_when_there_are_many() -> None:
    """Those that run are kept."""
    metrics = Queries()
    metrics.started("first", "first")
    for number in range(1100):
        metrics.started(str(number), None)
        metrics.terminated(str(number), failed=False)
    known = {key[1] for key in samples(metrics) if key[0] == "pravega_query_running"}
    assert len(known) == 1000 and {"first", "1099"} <= known and "0" not in known
