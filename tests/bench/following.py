"""One of the processes of `tests.bench.followers`: threads that follow one stream.

`python -m tests.bench.following SPEC`: SPEC is JSON (`Spec`). It says "ready" when all of its threads follow. Then it
reads, twice, a line with the begin and the end of a window (`time.monotonic()`), and after that end tells in JSON
(`Followed`) what it did within.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass

from engine.root import Root
from engine.storage.object_reads import Stores
from pravega_spark import StreamManager
from tests.bench.writing import SCOPE, STREAM, Billed, Window


@dataclass
class Spec:
    """What a process does. latency: seconds between two looks at most."""

    url: str
    followers: int
    latency: float


@dataclass
class Followed:
    """What a process did in a window: GETs, seconds of CPU, and of each event and follower the seconds from the call
    that wrote it until it was there."""

    gets: int
    cpu: float
    times: list[float]


def main(spec: Spec) -> None:
    root = Root.open(spec.url, create=False)
    store = Billed(root.stores.log)
    root.stores = Stores(store, store)
    stop, arrivals = threading.Event(), list[tuple[float, float]]()
    with StreamManager.over(root) as manager:
        tails = [manager.tail(SCOPE, STREAM, poll_interval=spec.latency, stop=stop) for _ in range(spec.followers)]

        def follow(number: int) -> None:
            for event in tails[number]:
                now = time.monotonic()
                arrivals.append((now, now - float(event.data)))

        threads = [threading.Thread(target=follow, args=[number]) for number in range(spec.followers)]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        for _ in range(2):
            window = Window(lambda: {"requests": dict(store.counted())})
            counted = window.counted()
            times = [taken for at, taken in arrivals if window.begin <= at < window.end]
            cpu = counted["cpu"]["microseconds"] / 1e6
            print(json.dumps(asdict(Followed(counted["requests"].get("GET", 0), cpu, times))), flush=True)
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(Spec(**json.loads(sys.argv[1])))
