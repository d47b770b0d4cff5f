"""A standalone cluster of one master and two workers, each a process of its own, which have the package from a wheel.

Batch, streaming, a worker that is killed and a driver that is killed; on a folder and on a bucket.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster, kill, waited
from tests.spark.cluster_program import EVENTS, KEYS
from tests.support.s3_server import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("cluster_program.py")


@pytest.fixture(params=["folder", "bucket"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Where the streams are, and the checkpoint."""
    url, storage = str(tmp_path / "streams"), {}
    if request.param == "bucket":
        server: S3Server = request.getfixturevalue("s3_server")
        url, storage = server.make_bucket(), server.storage_options()
    checkpoint = str(tmp_path / "checkpoint")
    return {"CLUSTER_ROOT": url, "CLUSTER_STORAGE": json.dumps(storage), "CLUSTER_CHECKPOINT": checkpoint}


def numbers(environment: dict[str, str], stream: str) -> dict[str, list[int]]:
    """The numbers of each key's events, as they lie in the stream."""
    from pravega_spark import StreamManager

    found: dict[str, list[int]] = {}
    with StreamManager(environment["CLUSTER_ROOT"], **json.loads(environment["CLUSTER_STORAGE"])) as manager:
        for event in manager.read_events("s", stream):
            key, number = bytes(event.data).decode().split("/")
            found.setdefault(key, []).append(int(number))
    return found


def test_batch_stream_a_killed_worker_and_a_killed_driver(cluster: Cluster, environment: dict[str, str]) -> None:
    name = f"driver{len(environment['CLUSTER_STORAGE'])}"
    assert cluster.submit(name, environment, PROGRAM, "batch").wait() == 0, cluster.log(name)[-5000:]
    (told,) = [json.loads(line) for line in cluster.log(name).splitlines() if line.startswith('{"count"')]
    assert told["count"] == EVENTS
    assert told["places"] and all(".zip" in place for place in told["places"]), "driver and executors have the wheel's"

    commits = Path(environment["CLUSTER_CHECKPOINT"]) / "commits"

    def batches() -> int:
        return sum(file.name.isdigit() for file in commits.iterdir()) if commits.exists() else 0

    driver = cluster.submit(name, environment, PROGRAM, "stream")
    waited(lambda: batches() >= 2 or driver.poll() is not None)
    kill(cluster.workers.pop())  # with its executor, in the middle of a batch
    before = batches()
    waited(lambda: batches() >= before + 3 or driver.poll() is not None)
    assert driver.poll() is None, cluster.log(name)[-5000:]
    kill(driver)
    cluster.workers.append(cluster.start(f"again{name}", "Worker", *cluster.of_worker()))
    assert before < batches() < EVENTS // 100, "it was killed on its way"
    assert cluster.submit(name, environment, PROGRAM, "stream").wait() == 0, cluster.log(name)[-5000:]
    copied = {key: sorted(some) for key, some in numbers(environment, "out").items()}
    assert copied == {str(key): list(range(key, EVENTS, KEYS)) for key in range(KEYS)}, "each event once"
