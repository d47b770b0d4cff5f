"""Whatever goes through the log goes through the commit queue (W18), with the results that a single process gets.

Each kind of operation is submitted by an owner and carried by a maker, and by a maker that carries others beside it.
Rejections are the same ones, with the same words and values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from chunkstore import StorageError
from engine.containers.container import Container
from engine.errors import EngineError
from engine.root import Root, RootConfig
from engine.settings import Settings
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CheckEntry,
    CreateSegment,
    CreateTable,
    DeleteSegment,
    DeleteTable,
    DiscardChunks,
    ExpireSegments,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    SealSegment,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
)
from engine.state.segments import Extent
from engine.storage.chunk_writer import write_chunk
from pravega_spark.errors import StreamError
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import transactions
from pravega_spark.streams.writing.producer_state import ProducerWrite
from tests.engine.logs.company import Company, S, appended, carried, processor_of
from tests.streams.test_transactions import begun, check, parts
from tests.support.container_model import Contents, contents_of
from tests.support.simulation import Simulation, small_sizes

Role = Literal["owner", "maker"]

NUMBER = bytes(15) + b"n"
CHUNK = "chunks/c"
HORIZON = 100


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


def number(value: int, expected: int) -> AttributeUpdate:
    return AttributeUpdate(NUMBER, UpdateKind.REPLACE_IF_EQUALS, value, expected)


def text(segment: str, data: bytes, offset: int | None = None, *updates: AttributeUpdate) -> Append:
    return Append(segment, Payload(data), offset, updates)


def attached(created_at: int) -> Append:
    return Append("a", (Extent(CHUNK, 0, 5, Payload(b"chunk").checksums),), None, (), created_at)


def prepared() -> list[Operation]:
    return [
        CreateSegment("a", (AttributeUpdate(NUMBER, UpdateKind.REPLACE, 5),)),
        text("a", b"first"),
        CreateSegment("b"),
        CreateSegment("sealed"),
        text("sealed", b"sealed"),
        SealSegment("sealed"),
        PutEntry("t", "there", b"value"),
        CreateTable("sorted", 2),
        PutEntry("sorted", "ab", b"value"),
        ExpireSegments((), 1),
        DiscardChunks(("chunks/gone",), HORIZON),
    ]


def kinds() -> dict[str, list[Operation]]:
    return {
        "an append": [text("a", b"x")],
        "an append at an offset": [text("a", b"x", 5)],
        "an append at a wrong offset": [text("a", b"x", 4)],
        "an append to no segment": [text("none", b"x")],
        "an append to a sealed segment": [text("sealed", b"x")],
        "a large append": [text("a", b"large" * 200)],
        "an append with an attribute": [text("a", b"x", None, number(6, 5))],
        "an append with a wrong attribute": [text("a", b"x", None, number(6, 4))],
        "an attribute": [UpdateAttributes("a", (number(6, 5),))],
        "a wrong attribute": [UpdateAttributes("a", (number(6, 4),))],
        "a chunk": [attached(HORIZON)],
        "a chunk that was begun too long ago": [attached(HORIZON - 1)],
        "a new segment": [CreateSegment("new", (number(1, 0)._replace(kind=UpdateKind.NONE),)), text("new", b"x")],
        "a segment that is there": [CreateSegment("a")],
        "a seal": [SealSegment("a")],
        "a second seal": [SealSegment("sealed")],
        "a truncation": [TruncateSegment("a", 3)],
        "a truncation beyond the end": [TruncateSegment("a", 6)],
        "a deletion": [DeleteSegment("b")],
        "a deletion of nothing": [DeleteSegment("none")],
        "a merge": [MergeSegment("a", "sealed", Payload(b"header"))],
        "a merge of what is not sealed": [MergeSegment("a", "b")],
        "a table entry": [PutEntry("t", "new", b"value", -1), PutEntry("t", "there", None)],
        "a table entry of a wrong version": [PutEntry("t", "there", b"other", -1)],
        "a check": [CheckEntry("t", "none", -1), text("a", b"x")],
        "a check that fails": [CheckEntry("t", "there", -1), text("a", b"x")],
        "a new table": [CreateTable("new", 1), PutEntry("new", "a", b"value", -1)],
        "a table that is there": [CreateTable("sorted", 2)],
        "a key of another length": [PutEntry("sorted", "abc", b"value")],
        "a deletion of a table": [DeleteTable("sorted")],
        "a deletion of no table": [DeleteTable("t")],
        "several segments": [text("a", b"x", 5), text("b", b"y", 0), UpdateAttributes("a", (number(6, 5),))],
        "several segments, and the last refuses": [text("a", b"x"), text("b", b"y"), text("sealed", b"z")],
        "no operation": [],
    }


Outcome = tuple[Any, ...]


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """What a call returns or raises, in values that can be compared."""
    try:
        return ("done", call())
    except (EngineError, StorageError, StreamError) as error:
        return (type(error), str(error), {name: value for name, value in vars(error).items() if name[0] != "_"})


def results_of(container: Container, operations: list[Operation]) -> Outcome:
    def commit() -> list[Any]:
        results = container.commit(operations).results
        for place, operation in enumerate(operations):
            if isinstance(operation, PutEntry):
                entry = container.entry(operation.table, operation.key)
                assert (entry is None) == (operation.value is None)
                assert entry is None or entry.version == results[place]
                results[place] = "its version"
        return results

    return outcome_of(commit)


def contents(simulation: Simulation) -> Contents:
    with simulation.open() as newcomer:
        segments, tables = contents_of(newcomer)
        segments.pop(S, None)
        return segments, tables


def begin(container: Container) -> None:
    write_chunk(container.stores.chunks, CHUNK, [[b"chunk"]])
    container.commit([CreateSegment(S), CheckEntry("t", "none", -1)])  # as many operations as a company begins with
    container.commit(prepared())


class Together:
    """A process in company that commits as if it were alone: as owner, or as maker that carries another one's."""

    def __init__(self, role: Role) -> None:
        self.company = Company(2)
        self.container = self.company.owner if role == "owner" else self.company.maker
        self.beside = self.company.containers[2]
        self.role = role
        self.futures: list[Any] = []
        processor_of(self.container).finishes = True

    def prepare(self) -> None:
        """Let the company be as the role says before the process commits something."""
        company = self.company
        if not company.maker.log.processor.log.makes_frames:
            company.now(company.maker, appended(b"maker;"))
            self.container.refresh()
        self.futures.append(self.beside.submit([appended(b"beside;")]))
        company.work(self.beside)
        processor_of(self.container).log.meet()

    def finish(self) -> int:
        """Let the others end what they have begun; how many transactions were carried."""
        for _ in range(50):
            self.company.turn(*[each for each in self.company.containers if each is not self.container])
            self.company.simulation.advance(0.02)
        assert all(future.exception(0) is None for future in self.futures)
        return carried(self.company.simulation.store)


@pytest.mark.parametrize("role", ["owner", "maker"])
def test_each_kind_of_operation_has_the_outcome_that_a_single_process_gets(role: Role) -> None:
    rejections = 0
    for kind, operations in kinds().items():
        alone = Simulation()
        with alone.open() as container:
            begin(container)
            expected = results_of(container, operations)
        together = Together(role)
        together.company.now(together.company.maker, *prepared())
        write_chunk(together.company.simulation.store, CHUNK, [[b"chunk"]])
        together.container.refresh()
        together.prepare()
        before = processor_of(together.container).outbox.new_address(0).number
        assert results_of(together.container, operations) == expected, kind
        submitted = processor_of(together.container).outbox.new_address(0).number > before + 1
        assert submitted == (role == "owner"), f"{kind} did not go through the queue"
        assert together.finish() >= 1 + (role == "owner" and expected[0] == "done"), kind
        assert contents(together.company.simulation) == contents(alone), kind
        rejections += expected[0] != "done"
    assert rejections > 10


# --- what streams do ---------------------------------------------------------------------------------------------


class Held(Root):
    """A root whose container is one that the test has made."""

    def __init__(self, container: Container) -> None:
        super().__init__(
            container.stores, RootConfig("root", containers=1), Settings(maintenance=False, threaded=False)
        )
        self._held = container

    def container(self, number: int) -> Container:
        return self._held


def write(stream: Stream, producer: ProducerWrite | None, *events: str) -> bool:
    routing = stream.snapshot().record.routing
    return stream.write(parts(routing, *events), producer, routing)


def steps(stream: Stream) -> Iterator[Callable[[], Any]]:
    """What is done with a stream, one after the other."""
    opened: list[transactions.Transaction] = []
    yield lambda: stream.create(ScalingPolicy(min_segments=2))
    yield lambda: stream.create(ScalingPolicy(min_segments=2))
    yield lambda: write(stream, None, "a", "z")
    yield lambda: write(stream, ProducerWrite("job", 1), "b", "y")
    yield lambda: write(stream, ProducerWrite("job", 1), "b", "y")
    yield lambda: stream.write(parts(stream.snapshot().record.routing, "other"), ProducerWrite("job", 1, None, "fail"))
    yield lambda: opened.append(begun(stream, "c", "x"))
    yield lambda: opened[0].write(parts(opened[0].record().routing, "d"))
    yield lambda: opened[0].commit()
    yield lambda: opened.append(begun(stream, "never"))
    yield lambda: opened[1].abort()
    yield lambda: opened[1].commit()
    yield lambda: stream.update(tags=("tag",))
    yield lambda: stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    yield lambda: stream.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    yield lambda: write(stream, ProducerWrite("job", 2), "e", "w")
    yield lambda: stream.truncate(stream.snapshot().tail_cut())
    yield lambda: write(stream, ProducerWrite("job", 3), "f", "v")
    yield lambda: stream.delete()
    yield lambda: stream.seal()
    yield lambda: write(stream, ProducerWrite("job", 4), "g")


def work(container: Container, prepare: Callable[[], object]) -> list[Outcome]:
    """Do all that is done with a stream by a container; what came of each step."""
    stream = Stream(Held(container), "sc", "st")
    outcomes = []
    for step in steps(stream):
        prepare()
        outcome = outcome_of(step)
        outcomes.append((outcome[0], re.sub(r"[0-9a-f-]{32,}", "an id", str(outcome[1]))))
    check(stream, "f", "v")
    return outcomes


@pytest.mark.parametrize("role", ["owner", "maker"])
def test_what_is_done_with_a_stream_in_company_has_the_outcomes_that_a_single_process_gets(role: Role) -> None:
    with Simulation().open() as container:
        expected = work(container, lambda: None)
    together = Together(role)
    assert work(together.container, together.prepare) == expected
    assert together.finish() >= len(expected)
    errors = {outcome[0].__name__ for outcome in expected if isinstance(outcome[0], type)}
    assert {"ReplayChanged", "TransactionClosed", "InvalidScale", "StreamNotSealed", "StreamSealed"} <= errors
