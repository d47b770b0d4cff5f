"""Stores for tests: wrappers that count, delay and fail, a simulated store with a seed, and the port's contract suite.

    counting    CountingStore: requests and bytes, for budgets
    faults      FaultStore: fails or crashes at a chosen request, before or after it took effect
    folding     FoldingStore: takes names for the same that differ in case, form or dots at the end
    latency     LatencyStore: as slow as a bucket
    power       Disk: a folder whose power can fail, which knows what was synced
    simulated   SimulatedStore and SimulatedExecutor: faults, delays and reordering, reproducible by their seed
    metadata    FlakyMetadataStore: commits that fail, reproducible by their seed
    contracts   StoreContract: what every store must do
    chunk_contracts, metadata_contracts, segment_contracts
                the same for chunk storage, metadata stores, and segments of chunks
    segment_model   a seeded simulation of segments with failovers, zombies and faults, compared with a small model
    servers     what the servers have in common: s3_server (moto), rados_gateway, gcs_server, azurite, sftp_server, each
                in a process of its own, and faulty_proxy, which goes in front of one

The wrappers go around any store and around each other.
"""

from chunkstore.testing.counting import CountingStore
from chunkstore.testing.faults import Crashed, Fault, FaultStore, crash_at, fail_at
from chunkstore.testing.folding import FoldingStore
from chunkstore.testing.latency import LatencyStore
from chunkstore.testing.metadata import FlakyMetadataStore
from chunkstore.testing.simulated import SimulatedExecutor, SimulatedStore
from chunkstore.testing.wrapping import WRITES, Request, WrappingStore

__all__ = [
    "WRITES",
    "CountingStore",
    "Crashed",
    "Fault",
    "FaultStore",
    "FlakyMetadataStore",
    "FoldingStore",
    "LatencyStore",
    "Request",
    "SimulatedExecutor",
    "SimulatedStore",
    "WrappingStore",
    "crash_at",
    "fail_at",
]
