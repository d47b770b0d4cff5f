"""What a container acknowledges, all others read back; what nobody could read back is refused at once (W14)."""

from __future__ import annotations

import pickle
import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import wait
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from chunkstore.testing import SimulatedStore
from engine.containers.container import Container
from engine.errors import DataCorruption, InvalidOperation, Rejected
from engine.logs import checkpoints
from engine.settings import Settings
from engine.state.index_records import RECORD_SIZE, IndexRecords
from engine.state.operations import (
    AbortCycle,
    ActivateSegment,
    AnswerSubmissions,
    Append,
    AttributeUpdate,
    BeginCycle,
    CheckEntry,
    Checkpoint,
    CreateSegment,
    CreateTable,
    DeleteSegment,
    DeleteTable,
    DequeueGarbage,
    DiscardChunks,
    EndCycle,
    EvictSegments,
    ExpireSegments,
    LoadAttributes,
    LoggedTransaction,
    MergeSegment,
    Operation,
    Payload,
    PutEntry,
    QueueGarbage,
    RecordDeletion,
    RecordFlush,
    RecordStoredBounds,
    RecordTableFlush,
    SaveSegments,
    SealSegment,
    SpillAttributes,
    StartSegment,
    TableFlush,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
    checked,
    decode_transactions,
    encode_transactions,
)
from engine.state.segments import MAX_VALUE, Extent, FrameRef, StoredRef
from engine.storage.object_reads import Stores
from engine.tables.content import empty
from tests.engine.state.test_formats import OPERATIONS
from tests.engine.state.writer import HEADER, W, assert_equal
from tests.support.simulation import Simulation


class Text(str):
    """A text of a type of somebody's own."""


ODD: list[Any] = [
    None,
    True,
    False,
    np.True_,
    0.0,
    30.0,
    float("nan"),
    float("inf"),
    np.float64(30),
    np.float32(1),
    np.int64(7),
    np.uint8(3),
    np.int64(-1),
    -1,
    2,
    77,
    MAX_VALUE,
    MAX_VALUE + 1,
    -MAX_VALUE - 2,
    1 << 64,
    Decimal(3),
    3 + 0j,
    "",
    "text",
    "7",
    "half \ud800",
    np.str_("numpy"),
    Text("own"),
    b"",
    b"bytes",
    bytes(15),
    bytes(17),
    bytearray(16),
    memoryview(bytes(16)),
    np.zeros(16, np.uint8),
    uuid.UUID(int=5),
    UpdateKind.ACCUMULATE,
    (),
    [],
    [1],
    ("a",),
    ((),),
    {},
    {"x": 1},
    {1, 2},
    ...,
    Payload(b"payload"),
    FrameRef(5, 7),
    FrameRef(5),
    Extent("chunk", 0.5, 1, b""),  # type: ignore[arg-type]
    Checkpoint(),
]


def places(value: Any, so_far: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """The places of all values within a value, as paths of indices."""
    if isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield (*so_far, index)
            yield from places(item, (*so_far, index))


def with_odd(value: Any, place: tuple[int, ...], odd: Any) -> Any:
    """The value with something else at a place."""
    if not place:
        return odd
    items = list(value)
    items[place[0]] = with_odd(items[place[0]], place[1:], odd)
    return type(value)._make(items) if hasattr(value, "_make") else type(value)(items)


def at(value: Any, place: tuple[int, ...]) -> Any:
    """The value at a place."""
    for index in place:
        value = value[index]
    return value


def is_plain(value: Any) -> bool:
    """Whether a value consists of what msgpack gives back, and of the types that operations are made of."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    if isinstance(value, FrameRef):
        return type(value.address) is int and type(value.start) is int
    return value is None or type(value) in (int, str, bytes, bool, UpdateKind)


OWN = FrameRef(77, HEADER)


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_an_operation_is_refused_or_read_back_as_it_is(kind: type, data: st.DataObject) -> None:
    operation = data.draw(OPERATIONS[kind])
    found = list(places(operation))
    if found:
        operation = with_odd(operation, data.draw(st.sampled_from(found)), data.draw(st.sampled_from(ODD)))
    try:
        judged = checked(operation)
    except InvalidOperation as error:
        assert kind.__name__ in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        return
    if isinstance(judged, Append | MergeSegment) and isinstance(judged[1 if kind is Append else 2], Payload):
        return  # it is laid out first
    assert is_plain(judged), judged
    written = [LoggedTransaction(5, (judged,))]
    assert decode_transactions(encode_transactions(written, OWN), FrameRef(OWN.address, OWN.start)) == written
    assert checked(judged) == judged, "what was judged once is judged alike"


EXAMPLES: list[Operation] = [
    CreateSegment("s/new", (AttributeUpdate(W, UpdateKind.REPLACE, 1),)),
    CreateSegment("s/new", (AttributeUpdate(W, UpdateKind.REPLACE, 1),), "s/a"),
    StartSegment("s/empty", 9),
    Append("s/a", Payload(b"data"), 10, (AttributeUpdate(W, UpdateKind.REPLACE_IF_GREATER, 5, 3),), 7),
    Append("s/a", IndexRecords("s/a", bytes(RECORD_SIZE))),
    Append("s/a", (Extent("chunk", 0, 5, b"1234"),), 10, (), 7),
    SealSegment("s/a"),
    MergeSegment("s/a", "s/sealed", Payload(b"header")),
    MergeSegment("s/a", "s/sealed", (Extent("chunk", 0, 5, b"1234"),)),
    TruncateSegment("s/a", 5),
    DeleteSegment("s/a"),
    ExpireSegments(("s/a",), 7),
    UpdateAttributes("s/a", (AttributeUpdate(W, UpdateKind.NONE, 5, 3), AttributeUpdate(W, UpdateKind.REPLACE, 5, 3))),
    PutEntry("t", "k", b"value", -1),
    CheckEntry("t", "k", -1),
    BeginCycle(2),
    EndCycle(1),
    AbortCycle(1, "trouble"),
    RecordFlush(1, "s/a", "s/a.1", 0, 10, ("chunk",)),
    RecordStoredBounds(1, "s/a", "", 0, False),
    RecordDeletion(1, ("s/a.1",)),
    SaveSegments(1, 5, (("s/a", 1, b"record"),)),
    CreateTable("u", 4),
    DeleteTable("created"),
    RecordTableFlush(1, (TableFlush("t", 5, tuple(empty()), (), (Extent("chunk", 0, 5, b""),)),)),
    EvictSegments(("s/a",)),
    SpillAttributes("s/a"),
    QueueGarbage((("chunk", 1, "s/a"),)),
    DiscardChunks(("chunk",), 5),
    DequeueGarbage(("chunk",)),
    Checkpoint(),
]

NEVER = (float, bool, np.float64, np.float32, np.bool_, Decimal, complex, dict, set, object, uuid.UUID)
"""Types of values that stand in no field of these operations."""

APPENDS: list[Operation] = [
    Append("s/a", (Extent(FrameRef(5, 7), 1, 5, b""), Extent(StoredRef("s/b.1"), 0, 9, b"")), None, (), MAX_VALUE),
    MergeSegment("s/a", "s/b", IndexRecords("s/a", bytes(RECORD_SIZE))),
    Append("s/\u00e9", (Extent("\u00e9", MAX_VALUE, MAX_VALUE, b""),), MAX_VALUE, (), -MAX_VALUE - 1),
    CreateSegment("s/\u00e9", (AttributeUpdate(W, UpdateKind.ACCUMULATE, MAX_VALUE, -MAX_VALUE - 1),)),
]
"""More of what an operation can append, and the bounds of its numbers."""


def appended(operation: Operation) -> Payload | IndexRecords | None:
    """What an operation appends that is laid out first."""
    content = operation.content if isinstance(operation, Append) else getattr(operation, "header", ())
    return content if isinstance(content, Payload | IndexRecords) else None


def without_payload(operation: Operation) -> Operation:
    """The operation with nothing that is laid out first."""
    if appended(operation) is not None and isinstance(operation, Append):
        return operation._replace(content=())
    if appended(operation) is not None and isinstance(operation, MergeSegment):
        return operation._replace(header=())
    return operation


def test_each_argument_that_is_odd_is_refused_or_read_back_as_it_is() -> None:
    """As above, without chance: each odd value in each place of an operation."""
    refused = 0
    for operation in (*EXAMPLES, *APPENDS):
        assert checked(operation) == operation
        for place in places(operation):
            for odd in ODD:
                tried: Any = with_odd(operation, place, odd)
                fits = type(odd) is bool and type(at(operation, place)) is bool
                try:
                    judged = checked(tried)
                except InvalidOperation:
                    refused += 1
                    continue
                assert fits or type(odd) not in NEVER, (operation, place, odd)
                assert (type(judged), appended(judged)) == (type(tried), appended(tried))
                judged = without_payload(judged)
                assert is_plain(judged), judged
                written = [LoggedTransaction(5, (judged,))]
                assert decode_transactions(encode_transactions(written, OWN), OWN) == written, (operation, place, odd)
    assert refused > 3000


@pytest.mark.parametrize("segment", [None, 5, b"s", "half \ud800"], ids=repr)
def test_index_records_of_an_odd_segment_are_refused(segment: Any) -> None:
    records = IndexRecords(segment, bytes(RECORD_SIZE))
    for operation in (Append("s/a", records), MergeSegment("s/a", "s/b", records)):
        with pytest.raises(InvalidOperation, match=type(operation).__name__):
            checked(operation)


def test_what_only_looks_like_an_extent_is_refused() -> None:
    like: Any = (("chunk", 0, 5, b"1234"),)
    for operation in (Append("s/a", like), MergeSegment("s/a", "s/b", like)):
        with pytest.raises(InvalidOperation, match="an Extent is due"):
            checked(operation)


NEVER_SUBMITTED = {ActivateSegment, LoadAttributes, AnswerSubmissions}
"""What the log makes by itself."""


def test_every_operation_is_tried() -> None:
    assert {type(operation) for operation in EXAMPLES} == set(OPERATIONS) - NEVER_SUBMITTED


def lived(simulation: Simulation) -> Container:
    container = simulation.open()
    for name in ("s/a", "s/empty", "s/sealed"):
        container.create_segment(name)
    container.append("s/a", b"0123456789")
    container.append("s/sealed", b"01234")
    container.seal("s/sealed")
    container.create_segment("s/other")
    container.put_entries("t", {"there": b"value"})
    container.commit([CreateTable("created", 4)])
    container.commit([BeginCycle(1)])
    return container


def other_process(simulation: Simulation, container: Container) -> None:
    """Another process reads what this one knows, from the log and from a checkpoint."""
    other = simulation.open()
    assert_equal(other.refresh(), container.state)
    data = checkpoints.encode(0, container.head, container.state)
    opening = checkpoints.decode(data, "path", 0, container.head.address)
    assert_equal(opening.state, container.state)


def tried(container: Container, operation: Operation) -> str:
    """What becomes of an operation, beside another one. Whatever that is, the container goes on."""
    before = container.state
    try:
        container.commit([PutEntry("t", "beside", b"1"), operation])
        outcome = "done"
    except (InvalidOperation, Rejected, ValueError) as error:
        known = isinstance(error, InvalidOperation | Rejected) or re.search("path|lie in|transient", str(error))
        assert known, (operation, error)
        outcome = "rejected" if isinstance(error, Rejected) else "invalid"
        assert container.state.segments == before.segments and container.state.tables == before.tables
    assert not container.offline, operation
    return outcome


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=lambda number: type(EXAMPLES[number]).__name__)
def test_an_odd_argument_costs_its_operation_and_nothing_else(number: int) -> None:
    operation, outcomes, simulation = EXAMPLES[number], Counter[str](), Simulation()
    container = lived(simulation)
    for place in places(operation):
        for odd in ODD:
            outcome = tried(container, with_odd(operation, place, odd))
            outcomes[outcome] += 1
            if type(odd) in NEVER and not (type(odd) is bool and type(at(operation, place)) is bool):
                assert outcome == "invalid", (operation, place, odd)
            if outcome == "done":
                container.append("s/other", b"goes on")
                other_process(simulation, container)
                simulation = Simulation()
                container = lived(simulation)
    container.append("s/other", b"goes on")
    other_process(simulation, container)
    assert outcomes["invalid"] or isinstance(operation, Checkpoint)


@pytest.mark.parametrize(
    "operation", [ActivateSegment("s/x", b"record", 5), LoadAttributes("s/a", ((W, 5),)), AnswerSubmissions(())]
)
def test_what_the_log_makes_by_itself_is_not_submitted(operation: Operation) -> None:
    """It would be looked up again and again, and nothing behind it would ever leave."""
    container = lived(Simulation())
    with pytest.raises(InvalidOperation, match="never submitted"):
        container.commit([operation])


def test_a_record_that_is_none_is_no_other_operations_concern() -> None:
    """It is looked at where it is applied, together with what others submitted."""
    simulation = Simulation()
    container = lived(simulation)
    version = container.put_entries("_system/containers/metadata", {"s/x": b"nonsense"})["s/x"]
    assert version
    with pytest.raises(DataCorruption, match="s/x"):
        container.append("s/x", b"data")
    container.append("s/other", b"goes on")
    other_process(simulation, container)


@pytest.mark.parametrize(
    "what",
    [None, 5, "text", b"bytes", ("s/a",), ..., CreateSegment, Extent("c", 0, 0, b""), [CreateSegment("s/x")]],
    ids=repr,
)
def test_what_is_no_operation_is_refused(what: Any) -> None:
    simulation = Simulation()
    container = lived(simulation)
    with pytest.raises(InvalidOperation, match="not an operation of a container"):
        container.commit([CreateSegment("s/b"), what])
    container.append("s/other", b"goes on")
    other_process(simulation, container)


def test_numbers_of_numpy_are_numbers() -> None:
    simulation = Simulation()
    container = lived(simulation)
    update = AttributeUpdate(W, UpdateKind.REPLACE, np.int64(5))
    assert container.append("s/a", b"more", np.int64(10), [update]) == 10
    container.truncate("s/a", np.uint8(3))
    info = container.info("s/a")
    assert (info.start_offset, type(info.start_offset), type(info.attributes[W])) == (3, int, int)
    other_process(simulation, container)


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (TruncateSegment("s/a", 30.0), "TruncateSegment: offset: 30.0 stands where"),  # type: ignore[arg-type]
        (PutEntry("t", "k", "text"), "PutEntry: value: 'text' stands where bytes is due"),  # type: ignore[arg-type]
        (PutEntry("t", "k", b"", True), "PutEntry: expected: True stands where"),
        (UpdateAttributes("s/a", (AttributeUpdate(b"w", UpdateKind.NONE, 1),)), "updates: attribute: b'w' .* 16 bytes"),
        (UpdateAttributes("s/a", (AttributeUpdate(W, 9, 1),)), "updates: kind: 9 stands where one of"),  # type: ignore[arg-type]
        (Append("s/a", b"bytes"), "Append: content: b'bytes' stands where a Payload"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_error_names_the_parameter_and_the_value(operation: Operation, told: str) -> None:
    container = lived(Simulation())
    with pytest.raises(InvalidOperation, match=told):
        container.commit([operation])


def test_an_invalid_operation_is_no_other_threads_concern() -> None:
    """It never comes into a group commit, so that those of others leave as if it had not been."""
    store = SimulatedStore()
    container = Container(Stores(store, store), 0, Settings(maintenance=False, linger=0.05))
    container.create_segment("s/a")
    futures, refused = [], []

    def writes() -> None:
        for number in range(30):
            futures.append(container.submit_append("s/a", b"data"))
            try:
                container.submit([Append("s/a", Payload(b"x"), number + 0.5)])  # type: ignore[arg-type]
            except InvalidOperation as error:
                refused.append(error)

    threads = [threading.Thread(target=writes) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait(futures)
    assert len(refused) == 120 and all(future.exception() is None for future in futures)
    assert container.info("s/a").length == 480
    container.close()
    other = Container(Stores(store, store), 0, Settings(maintenance=False, threaded=False))
    assert other.refresh().segments["s/a"].length == 480


@settings(deadline=None, max_examples=20)
@given(numbers=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=4, max_size=4))
@example([MAX_VALUE, 0, 0, 0])
@example([0, MAX_VALUE, 0, 0])
def test_index_records_that_do_not_fit_are_refused(numbers: list[int]) -> None:
    """What they count from is known only where they are judged."""
    simulation = Simulation()
    container = lived(simulation)
    records = IndexRecords("s/a", b"".join(number.to_bytes(8, "big", signed=True) for number in numbers))
    try:
        container.commit([Append("s/other", records)])
    except Rejected as error:
        assert "64 bits" in str(error)
    assert not container.offline
    container.append("s/other", b"goes on")
    other_process(simulation, container)


@pytest.mark.parametrize("records", ["x" * 32, bytes(31), 32, None, np.zeros(4)])
def test_records_that_are_none_are_refused_as_they_are_made(records: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="records"):
        IndexRecords("s/a", records)


@pytest.mark.parametrize("data", ["text", 5, None, [1], np.zeros((4, 4))[:, 1], 1.5])
def test_data_that_is_no_buffer_is_refused_by_name(data: Any) -> None:
    container = lived(Simulation())
    with pytest.raises(TypeError, match="data must be bytes"):
        container.append("s/a", data)


@pytest.mark.parametrize(("key", "value"), [("short", bytes(8)), ("0" * 48, b"short"), ("x" * 48, bytes(8))])
def test_an_entry_that_the_table_of_attributes_cannot_hold_is_refused(key: str, value: bytes) -> None:
    """It has keys of one length: no flush could bring another one to LTS, nor anything else."""
    simulation = Simulation()
    container = lived(simulation)
    with pytest.raises(ValueError, match=key):
        container.put_entries("_system/containers/attributes", {key: value})
    container.flush()
    other_process(simulation, container)


def test_the_engines_calls_refuse_odd_arguments() -> None:
    """Each public call of a container, with each odd value for each of its arguments."""
    calls: dict[str, tuple[Any, ...]] = {
        "create_segment": ("s/new", [AttributeUpdate(W, UpdateKind.REPLACE, 1)], ""),
        "append": ("s/a", b"data", 10, [AttributeUpdate(W, UpdateKind.REPLACE, 1)]),
        "submit_append": ("s/a", b"data"),
        "seal": ("s/a",),
        "merge": ("s/a", "s/sealed", b"header"),
        "truncate": ("s/a", 5),
        "delete": ("s/a",),
        "update_attributes": ("s/a", [AttributeUpdate(W, UpdateKind.REPLACE, 1)]),
        "put_entries": ("t", {"k": b"value"}, {"l": -1}),
        "commit": ([CreateSegment("s/new")],),
        "submit": ([CreateSegment("s/new")],),
    }
    odd_maps = [{"k": odd} for odd in ODD] + [{odd: b"v"} for odd in ODD if getattr(odd, "__hash__", None)]
    simulation, count = Simulation(), 0
    container = simulation.open()
    for call, arguments in calls.items():
        for place in range(len(arguments)):
            for odd in [*ODD, *(odd_maps if isinstance(arguments[place], dict) else ())]:
                count += 1
                try:
                    found = getattr(container, call)(*arguments[:place], odd, *arguments[place + 1 :])
                    if hasattr(found, "result"):
                        found.result()
                except (Rejected, ValueError, TypeError, AttributeError):
                    pass
                assert not container.offline, (call, place, odd)
    assert count > 1000
    other_process(simulation, container)
