"""Segments of a container as tests see them: appends to them, their content, their chunks."""

from collections.abc import Callable
from typing import Any

from chunkstore import Store
from chunkstore.metadata.metadata_records import ChunkRecord
from chunkstore.testing import CountingStore
from engine.containers.container import Container
from engine.state.operations import Append, AttributeUpdate, Payload
from tests.support.simulation import Simulation

MIB = 1 << 20


def append(segment: str, data: bytes, offset: int | None = None, *updates: AttributeUpdate) -> Append:
    return Append(segment, Payload(data), offset, updates)


def pattern(count: int) -> bytes:
    """Bytes that are different everywhere."""
    return b"".join(number.to_bytes(4, "big") for number in range(count // 4 + 1))[:count]


def content(container: Container, segment: str) -> bytes:
    info = container.info(segment)
    return container.read(segment, info.start_offset, info.length)


def chunks_in(store: Store) -> list[str]:
    """The chunks of users' segments."""
    return [info.path for info in store.list("") if not info.path.startswith("_system/")]


def chunks_of(container: Container) -> list[str]:
    """The chunks that the container knows, in LTS and in the log."""
    records = [record.name for _, record in container.records.records() if isinstance(record, ChunkRecord)]
    return sorted(records + [name for name in container.state.chunks if not name.startswith("_system/")])


USUAL = ("memory, threads", "folder, inline")
"""Where the objects are, and whether the containers use threads: each of both, in the usual run."""
RARE = ("memory, inline", "folder, threads")
S3 = "s3, threads"
Opener = Callable[..., Container]


def counted(**settings: Any) -> tuple[Simulation, CountingStore, Container]:
    simulation = Simulation(**settings)
    counting = CountingStore(simulation.store)
    container = simulation.open(through=counting)
    container.create_segment("s/a")
    counting.reset()
    return simulation, counting, container
