"""Stores for tests: wrappers that count, delay and fail, a simulated store with a seed, and the port's contract suite.

    counting    CountingStore: requests and bytes, for budgets
    faults      FaultStore: fails or crashes at a chosen request, before or after it took effect
    latency     LatencyStore: as slow as a bucket
    simulated   SimulatedStore and SimulatedExecutor: faults, delays and reordering, reproducible by their seed
    contracts   StoreContract: what every store must do
    s3_server   S3Server: an S3 server in a process of its own

The wrappers go around any store and around each other.
"""

from chunkstore.testing.counting import CountingStore
from chunkstore.testing.faults import Crashed, Fault, FaultStore, crash_at, fail_at
from chunkstore.testing.latency import LatencyStore
from chunkstore.testing.simulated import SimulatedExecutor, SimulatedStore
from chunkstore.testing.wrapping import WRITES, Request, WrappingStore

__all__ = [
    "WRITES",
    "CountingStore",
    "Crashed",
    "Fault",
    "FaultStore",
    "LatencyStore",
    "Request",
    "SimulatedExecutor",
    "SimulatedStore",
    "WrappingStore",
    "crash_at",
    "fail_at",
]
