"""Stores for tests: wrappers that count, delay and fail, a simulated store with a seed, and the port's contract suite.

    counting    CountingStore: requests and bytes, for budgets
    faults      FaultStore: fails or crashes at a chosen request, before or after it took effect
    folding     FoldingStore: takes names for the same that differ in case, form or dots at the end
    latency     LatencyStore: as slow as a bucket
    simulated   SimulatedStore and SimulatedExecutor: faults, delays and reordering, reproducible by their seed
    contracts   StoreContract: what every store must do
    file_contracts  FileStoreContract: what a store must do whose objects are files

The wrappers go around any store and around each other. A storage adapter of your own is tested by subclasses of
the contracts with their fixtures (see `docs/backends.md`).
"""

from chunkstore.testing.counting import CountingStore
from chunkstore.testing.faults import Crashed, Fault, FaultStore, crash_at, fail_at
from chunkstore.testing.folding import FoldingStore
from chunkstore.testing.latency import LatencyStore
from chunkstore.testing.simulated import SimulatedExecutor, SimulatedStore
from chunkstore.wrapping import WRITES, Request, WrappingStore

__all__ = [
    "WRITES",
    "CountingStore",
    "Crashed",
    "Fault",
    "FaultStore",
    "FoldingStore",
    "LatencyStore",
    "Request",
    "SimulatedExecutor",
    "SimulatedStore",
    "WrappingStore",
    "crash_at",
    "fail_at",
]
