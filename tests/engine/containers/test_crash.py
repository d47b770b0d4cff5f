"""Crashes, lost requests, lost responses, late requests and other processes, at every storage request of a workload.

The workload is a list of steps: transactions, which change what the model holds, and upkeep, which must not. After
each misfortune a fresh process opens the root and must find every acknowledged step exactly once, and the step under
way wholly or not at all; then it carries out the rest of the workload.
"""

import functools
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from chunkstore import PutUnknown, StorageError, Store
from chunkstore.paths import is_log
from chunkstore.testing import WRITES, Crashed, FaultStore, Request, SimulatedExecutor, WrappingStore, crash_at, fail_at
from chunkstore.testing.faults import When
from chunkstore.wrapping import Result
from engine.containers.container import Container
from engine.errors import OutcomeUnknown
from engine.state.index_records import RECORD_SIZE, IndexRecords
from engine.state.operations import (
    Append,
    AttributeUpdate,
    CreateSegment,
    DeleteSegment,
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
from engine.state.segments import EVENT_COUNT, MAX_VALUE, Extent, transient_name
from engine.storage.chunk_writer import write_chunk
from tests.support.container_model import Contents, Model, contents_of
from tests.support.simulation import MAX_PAYLOAD, Simulation, audit, small_sizes

WRITER = bytes(15) + b"w"
GRACE = 600.0


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_sizes():
        yield


# --- the workload ---------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A transaction, for which `chunks` are written first; or upkeep, by the name of the container's method."""

    operations: tuple[Operation, ...] = ()
    chunks: Mapping[str, Sequence[bytes]] = {}
    upkeep: str = ""
    wait: float = 0.0


def append(segment: str, data: bytes, offset: int | None = None, *updates: AttributeUpdate) -> Append:
    return Append(segment, Payload(data), offset, updates)


def batch(number: int) -> AttributeUpdate:
    """The sink's guard against committing a batch twice."""
    return AttributeUpdate(WRITER, UpdateKind.REPLACE_IF_GREATER, number)


def events(count: int) -> AttributeUpdate:
    return AttributeUpdate(EVENT_COUNT, UpdateKind.ACCUMULATE, count)


def letters(count: int, first: int = 0) -> bytes:
    return bytes(97 + (first + i) % 26 for i in range(count))


def sink_commit(number: int, *appends: Operation, chunks: Mapping[str, Sequence[bytes]] | None = None) -> Step:
    """What the Spark sink does: all tasks' data, the writer's batch number, and a table entry, in one transaction."""
    guard = UpdateAttributes("a", (batch(number), events(2)))
    return Step((guard, *appends, PutEntry("sinks", "query", b"batch %d" % number)), chunks or {})


def attached(name: str, parts: Sequence[bytes]) -> list[Extent]:
    position, extents = 0, []
    for part in parts:
        extents.append(Extent(name, position, len(part), Payload(part).checksums))
        position += len(part)
    return extents


def attach(segment: str, extents: Sequence[Extent], offset: int | None = None, *updates: AttributeUpdate) -> Append:
    return Append(segment, tuple(extents), offset, updates, MADE)


MADE = 5
"""When chunks were begun, and the attach fence of a sweep."""

SHARED = ("chunks/shared", (letters(90, 1), letters(70, 2), letters(33, 3)))
SINGLE = ("chunks/single", (letters(200, 4),))
EARLY, LATE = ("chunks/early", (letters(100, 7),)), ("chunks/late", (letters(60, 8),))
LARGE, LEFT = (transient_name("a", uuid.UUID(int=1), uuid.UUID(int=number)) for number in (2, 3))
LENGTH = IndexRecords("a", bytes(RECORD_SIZE))


def workload() -> list[Step]:
    return [
        Step((CreateSegment("a", (events(0),)), CreateSegment("b"), CreateSegment("a#index"))),
        Step((append("a", b"first"),)),
        Step((append("a", b"second", 5, AttributeUpdate(WRITER, UpdateKind.NONE, 0)),)),
        sink_commit(1, append("a", letters(40)), append("b", letters(30)), Append("a#index", LENGTH)),
        Step((append("b", letters(3 * MAX_PAYLOAD, 5)),)),
        sink_commit(2, append("a", letters(150)), append("b", letters(170)), append("a#index", letters(80))),
        Step(upkeep="flush"),
        Step(upkeep="checkpoint"),
        Step((append("a", b"third", None, batch(3)), DiscardChunks(("chunks/abandoned",), MADE))),
        sink_commit(
            4,
            *(attach(name, [extent]) for name, extent in zip("aba", attached(*SHARED), strict=True)),
            append("a", b"inline"),
            chunks=dict([SHARED]),
        ),
        Step((CreateSegment("transaction", (events(3),)), append("transaction", letters(50, 6)))),
        Step((attach("transaction", attached(*SINGLE)),), dict([SINGLE])),
        Step(wait=0.7 * GRACE),
        Step((SealSegment("transaction"),)),
        Step((MergeSegment("b", "transaction"),)),
        Step((CreateSegment(LARGE, (events(1), batch(1)), "a"), attach(LARGE, attached(*EARLY))), dict([EARLY])),
        Step((TruncateSegment("a", 8), TruncateSegment("b", 33))),
        Step(upkeep="flush"),
        Step((attach(LARGE, attached(*LATE), 100, batch(2)),), dict([LATE])),
        Step((CreateSegment(LEFT, (), "a"), append(LEFT, letters(40, 9)))),
        Step((append(LARGE, b"", 160), Append("a#index", LENGTH), MergeSegment("a", LARGE, Payload(b"header")))),
        Step((ExpireSegments((LEFT,), MAX_VALUE),)),
        Step((CreateSegment("dead"), append("dead", letters(40)))),
        Step((DeleteSegment("dead"),)),
        Step(upkeep="checkpoint"),
        Step((append("a", b"fourth"), append("b", letters(2 * MAX_PAYLOAD)))),
        Step(wait=1.2 * GRACE),
        Step(upkeep="truncate_log"),
        Step((TruncateSegment("a", 320), UpdateAttributes("b", (events(1),)), PutEntry("sinks", "other", b"1"))),
        Step((SealSegment("b"), PutEntry("sinks", "query", None))),
        Step(upkeep="flush"),
        Step((DeleteSegment("b"),)),
        Step((TruncateSegment("a", 330),)),
        Step(upkeep="flush"),
        Step((append("a", letters(600), None, batch(5)),)),
        Step(upkeep="flush"),
        Step(wait=1.2 * GRACE),
        Step(upkeep="collect_garbage"),
        Step((append("a", letters(10, 9)),)),
        Step(upkeep="flush"),
        Step(wait=1.2 * GRACE),
        Step(upkeep="collect_garbage"),
        Step(upkeep="checkpoint"),
        Step((append("a", b"last", None, batch(6)),)),
    ]


def expected(steps: Sequence[Step]) -> Iterator[tuple[list[Any], Contents]]:
    """Of each step the results, and what the root holds after it."""
    model = Model()
    model.chunks = {name: b"".join(parts) for name, parts in (SHARED, SINGLE, EARLY, LATE)}
    for step in steps:
        yield model.commit(step.operations), model.contents()


with small_sizes():  # payloads are checksummed when they are made
    WORKLOAD = workload()
    RESULTS, CONTENTS = zip(*expected(WORKLOAD), strict=True)
NOTHING: Contents = ({}, {})


CONFIGURATIONS: dict[str, tuple[dict[str, Any], Callable[[], SimulatedExecutor | None]]] = {
    "plain": ({}, lambda: None),
    "frames in flight": ({"flights": 4}, lambda: SimulatedExecutor(7)),
    "upkeep by appends": ({"maintenance": True, "checkpoint_frames": 3, "flush_bytes": 300}, lambda: None),
    "upkeep by shared facts": (
        {
            "maintenance": True,
            "checkpoint_frames": 2,
            "flush_frames": 12,
            "flush_seconds": GRACE / 2,
            "timeout": GRACE / 9,
        },
        lambda: None,
    ),
}


RARE = {"upkeep by appends"}
"""What the long tests try: upkeep that is decided by more than bytes goes all its ways too."""


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.long if name in RARE else ()) for name in CONFIGURATIONS])
def configuration(request: pytest.FixtureRequest) -> str:
    return str(request.param)


most_configurations = pytest.mark.parametrize(
    "configuration",
    [
        pytest.param(name, marks=pytest.mark.long if name in RARE | {"frames in flight"} else ())
        for name in CONFIGURATIONS
    ],
)


some_points = pytest.mark.parametrize(
    "points",
    [
        *(pytest.param(slice(first, None, 270), id=f"every 270th from {first} on") for first in (0, 90, 180)),
        pytest.param(slice(None), id="all", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
"""Each of them takes as long as a run of the workload: all are tried by the long tests, and no test of the others tries
more than a few, as it must end in time on a busy machine."""


class Run:
    """One run of the workload: a simulated root, and the number of steps that are done.

    `through` is what the requests of its first process go through: the root's store as `wrap` wraps it.
    """

    def __init__(self, configuration: str, wrap: Callable[[Store], Store] = lambda store: store) -> None:
        settings, self._executor = CONFIGURATIONS[configuration]
        self.simulation = Simulation(grace=GRACE, garbage_delay=GRACE, **settings)
        self.through = wrap(self.simulation.store)
        self.done = 0

    def first_process(self) -> Container:
        return self.simulation.open(through=self.through, executor=self._executor())

    def go_on(self, container: Container) -> None:
        """Carry out all steps that are not done yet."""
        while self.done < len(WORKLOAD):
            self.carry_out(WORKLOAD[self.done], container)
            self.done += 1

    def carry_out(self, step: Step, container: Container) -> None:
        for name, parts in step.chunks.items():
            write_chunk(container.stores.chunks, name, [[part] for part in parts])
        if step.upkeep:
            getattr(container, step.upkeep)()
        elif step.wait:
            self.simulation.advance(step.wait)
        else:
            results = container.commit(step.operations).results
            assert all(it is None or it == got for it, got in zip(RESULTS[self.done], results, strict=True))

    def settle(self, container: Container) -> None:
        """See whether the step under way was carried out: it was, or it was not, and nothing else has changed."""
        found = seen_in(container)
        if found != self.contents():
            self.done += 1
            assert found == self.contents()

    def check(self, container: Container | None = None) -> None:
        """What a process sees, by default one that opens the root now, is what the model holds."""
        assert seen_in(container or self.simulation.open()) == self.contents()

    def contents(self) -> Contents:
        """What the root should hold."""
        return CONTENTS[self.done - 1] if self.done else NOTHING


def seen_in(container: Container) -> Contents:
    """A container's contents, without what another process did to a segment of its own."""
    segments, tables = contents_of(container)
    audit(container.state)
    segments.pop("other", None)
    return segments, tables


@functools.cache
def requests_of(configuration: str) -> Sequence[Request]:
    """The requests of a run in which nothing goes wrong."""
    sent: list[Request] = []

    def note(number: int, request: Request) -> None:
        sent.append(request)

    run = Run(configuration, partial(FaultStore, plan=note))
    run.go_on(run.first_process())
    run.check()
    return sent


def test_every_step_changes_the_model_or_is_upkeep() -> None:
    for step, before, after in zip(WORKLOAD, (NOTHING, *CONTENTS), CONTENTS, strict=False):
        assert (before != after) == bool(step.operations)
    assert {step.upkeep for step in WORKLOAD} == {"", "flush", "checkpoint", "truncate_log", "collect_garbage"}


def test_the_workload_asks_the_storage_for_everything(configuration: str) -> None:
    asked = {(verb, place(path)) for verb, paths, _ in requests_of(configuration) for path in paths or [""]}
    assert asked >= {
        ("put_if_absent", "log"),
        ("put", "chunk of a"),
        ("put", "chunks"),
        ("put", "tables"),
        ("put", "recovery_points"),
        ("read_ranges", "log"),
        ("list", "log"),
        ("delete", "chunk of b"),
        ("delete", "tables"),
        ("delete", "recovery_points"),
        ("delete", "log"),
        ("delete", "chunks"),
        ("clock", ""),
    }


def place(path: str) -> str:
    if path.startswith("_system/"):
        if is_log(path) or path.endswith(("/wal/", "/checkpoints/")):
            return "log"
        return "recovery_points" if "/recovery-points/" in path else "tables"
    segment, dot, _ = path.partition(".")
    return f"chunk of {segment}" if dot else path.partition("/")[0]


# --- the process dies -----------------------------------------------------------------------------------------


class LateStore(WrappingStore):
    """The process dies at request `number`, which was on its way: `arrive` lets it take effect later."""

    def __init__(self, inner: Store, number: int) -> None:
        super().__init__(inner)
        self._left = number
        self.arrive: Callable[[], object] = lambda: None

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        self._left -= 1
        if self._left == 0:
            self.arrive = call
        if self._left <= 0:
            raise Crashed(request)
        return call()


def survive(run: Run) -> Container:
    """Run until the crash, open the root as another process, and find what was acknowledged."""
    with pytest.raises(Crashed):
        run.go_on(run.first_process())
    reopened = run.simulation.open()
    run.settle(reopened)
    return reopened


def crash_points(requests: Sequence[Request]) -> Iterator[tuple[int, When]]:
    for number, request in enumerate(requests, 1):
        yield number, "before"
        yield number, "after"
        if request.verb == "delete" and len(request.paths) > 1:
            yield number, "partway"


@some_points
def test_crash_at_every_request(
    configuration: str, points: slice, record_property: Callable[[str, object], None]
) -> None:
    every = list(crash_points(requests_of(configuration)))
    tried = every[points]
    for number, when in tried:
        run = Run(configuration, partial(FaultStore, plan=crash_at(number, when)))
        run.go_on(survive(run))
        run.check()
    record_property("crash points", len(tried))
    print(f"{len(tried)} crash points ({configuration})")
    assert len(every) > 400 and tried


@some_points
def test_crash_and_the_last_request_arrives_late(
    configuration: str, points: slice, record_property: Callable[[str, object], None]
) -> None:
    """It arrives before the next process has done anything, or after its first step."""
    writes = [number for number, request in enumerate(requests_of(configuration), 1) if request.verb in WRITES]
    tried = writes[points]
    for number, at_once in itertools.product(tried, (True, False)):
        run = Run(configuration, partial(LateStore, number=number))
        reopened = survive(run)
        assert isinstance(run.through, LateStore)
        if at_once:
            run.through.arrive()
            run.settle(reopened)  # the frame may have become live just now
        else:
            reopened.commit([])
            run.through.arrive()
        run.go_on(reopened)
        run.check()
        run.check(reopened)
    record_property("crash points", 2 * len(tried))
    print(f"{2 * len(tried)} late requests ({configuration})")
    assert len(writes) > 100


# --- the process lives ----------------------------------------------------------------------------------------


@some_points
@most_configurations
def test_one_failing_request_is_overcome_or_leaves_nothing(
    configuration: str, points: slice, record_property: Callable[[str, object], None]
) -> None:
    """Lost before it took effect, or after: whoever hears of an error may do the step again."""
    tried = list(crash_points(requests_of(configuration)))[points]
    heard = 0
    for number, when in tried:
        run = Run(configuration, partial(FaultStore, plan=fail_at(number, when)))
        container: Container | None = None
        while run.done < len(WORKLOAD):
            try:
                container = container or run.first_process()
                run.go_on(container)
            except StorageError as error:
                heard += 1
                assert not isinstance(error, PutUnknown)
                assert "put_if_absent" not in str(error), "a frame, or a checkpoint, is sent again"
                if container is not None:
                    run.check(container)
        assert container is not None
        run.check(container)
        run.check()
    record_property("faults", len(tried))
    print(f"{len(tried)} faults, {heard} of them heard of ({configuration})")
    assert 0 < heard < len(tried) or points != slice(None), "of a few faults all or none may be overcome"


# --- other processes ------------------------------------------------------------------------------------------


def append_elsewhere(run: Run) -> None:
    """Another process appends, to a segment of its own, and is gone."""
    other = run.simulation.open()
    if "other" not in other.state.segments:
        other.create_segment("other")
    other.append("other", b"mine")


def take_care_elsewhere(run: Run) -> None:
    """Another process does all the upkeep there is, and it takes so long that what was read before proves nothing."""
    other = run.simulation.open()
    append_elsewhere(run)
    other.flush()
    other.checkpoint()
    run.simulation.advance(1.1 * GRACE)
    other.truncate_log()
    other.collect_garbage()
    other.append("other", b"mine")


def interrupted(configuration: str, number: int, other: Callable[[Run], None]) -> Run:
    """A run whose request `number` is held up while `other` happens."""

    def plan(at: int, request: Request) -> None:
        if at == number:
            other(run)

    run = Run(configuration, partial(FaultStore, plan=plan))
    return run


@some_points
@most_configurations
@pytest.mark.parametrize("other", [append_elsewhere, take_care_elsewhere])
def test_another_process_at_every_request(
    configuration: str, other: Callable[[Run], None], points: slice, record_property: Callable[[str, object], None]
) -> None:
    every = range(1, len(requests_of(configuration)) + 1)
    numbers = every[points]
    unknown = 0
    for number in numbers:
        run = interrupted(configuration, number, other)
        container = run.first_process()
        while run.done < len(WORKLOAD):
            try:
                run.go_on(container)
            except OutcomeUnknown:  # the frame was sent before the pause, and its address was deleted since
                assert other is take_care_elsewhere or configuration.startswith("upkeep")
                unknown += 1
                run.settle(container)
        fresh = run.simulation.open()
        for process in (container, fresh):
            run.check(process)
            assert process.read("other", 0, process.info("other").length).replace(b"mine", b"") == b""
    record_property("interruptions", len(numbers))
    print(f"{len(numbers)} interruptions, {unknown} unknown outcomes ({configuration}, {other.__name__})")
    assert len(every) > 200
