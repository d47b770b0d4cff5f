"""Two processes that share a root, in any order of operations and upkeep, show what the model holds after each step."""

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from chunkstore import Range
from engine.errors import BadOffset, Rejected, SegmentTruncated
from engine.logs import checkpoints
from engine.logs.frames import START
from engine.logs.log import frame_path
from engine.logs.replay import apply_frame
from engine.state.operations import Append, Payload
from engine.state.state import EMPTY, State
from tests.support.container_model import Model, contents_of
from tests.support.log_contracts import open_log
from tests.support.simulation import MAX_PAYLOAD, Simulation, audit, small_sizes
from tests.support.transactions import SEGMENTS, chunk_writer, transactions

GRACE = 600.0
processes = st.sampled_from((0, 1))


class TwoProcesses(RuleBasedStateMachine):
    """Containers 0 and 1 are two processes' views of one root. The model is told of every transaction."""

    @initialize(
        maintenance=st.booleans(), active_segments=st.sampled_from((1, 100)), cache_bytes=st.sampled_from((0, 1 << 20))
    )
    def start(self, maintenance: bool, active_segments: int, cache_bytes: int) -> None:
        self.sizes = small_sizes()
        self.sizes.__enter__()
        self.simulation = Simulation(
            grace=GRACE,
            garbage_delay=GRACE,
            transient_idle=1e9,  # the model knows of no expiry that nobody asked for
            maintenance=maintenance,
            checkpoint_frames=4,
            flush_bytes=2 * MAX_PAYLOAD,
            active_segments=active_segments,
            cache_bytes=cache_bytes,
        )
        self.model = Model()
        self.write = chunk_writer(self.model, self.simulation.store)
        self.containers = [self.simulation.open(), self.simulation.open()]

    @rule(data=st.data(), who=processes, times=st.integers(1, 5))
    def commit(self, data: st.DataObject, who: int, times: int) -> None:
        for _ in range(times):
            operations = data.draw(transactions(self.model, self.write, 2 * MAX_PAYLOAD + 9))
            try:
                expected = self.model.commit(operations)
            except Rejected as error:
                with pytest.raises(type(error)):
                    self.containers[who].commit(operations)
                continue
            results = self.containers[who].commit(operations).results
            assert all(wanted is None or wanted == result for wanted, result in zip(expected, results, strict=True))
            self.model.adopt(self.containers[who])

    @rule(who=processes, appended=st.integers(1, 5))
    def append_much(self, who: int, appended: int) -> None:
        """Enough frames to be due for upkeep."""
        name = next((n for n, s in sorted(self.model.segments.items()) if not s.sealed), None)
        for number in range(appended if name is not None else 0):
            operations = [Append(str(name), Payload(b"%d%s" % (number, b"." * MAX_PAYLOAD)))]
            self.model.commit(operations)
            self.containers[who].commit(operations)

    @rule(who=processes, what=st.sampled_from(("flush", "checkpoint", "truncate_log", "collect_garbage")))
    def take_care(self, who: int, what: str) -> None:
        getattr(self.containers[who], what)()

    @rule(who=processes, what=st.sampled_from(("truncate_log", "collect_garbage")))
    def take_care_when_it_is_time(self, who: int, what: str) -> None:
        self.containers[1 - who].checkpoint()
        self.simulation.advance(1.1 * GRACE)
        getattr(self.containers[who], what)()

    @rule(seconds=st.sampled_from((1.0, 0.6 * GRACE, 1.1 * GRACE)))
    def wait(self, seconds: float) -> None:
        self.simulation.advance(seconds)

    @rule(who=processes)
    def reopen(self, who: int) -> None:
        self.containers[who].close()
        self.containers[who] = self.simulation.open()

    @rule(data=st.data(), who=processes, name=st.sampled_from(SEGMENTS), flush=st.booleans())
    def read(self, data: st.DataObject, who: int, name: str, flush: bool) -> None:
        """Part of a segment, by a process that may not have looked at the log for long."""
        if name not in self.model.segments:
            return
        content, start, *_ = self.model.segments[name]
        begin, end = sorted((data.draw(st.integers(0, len(content))), data.draw(st.integers(0, len(content)))))
        self.containers[who].refresh()
        if flush:
            self.containers[1 - who].flush()
        if begin < start:
            with pytest.raises(SegmentTruncated):
                self.containers[who].read(name, begin, end)
        else:
            assert self.containers[who].read(name, begin, end) == content[begin:end]
        with pytest.raises((BadOffset, SegmentTruncated)):
            self.containers[who].read(name, begin, len(content) + 1)

    @invariant()
    def both_show_what_the_model_holds(self) -> None:
        expected = self.model.contents()
        for container in self.containers:
            assert contents_of(container) == expected
            audit(container.state)
        assert_equal(self.containers[0].state, self.containers[1].state)

    def teardown(self) -> None:
        try:
            self.what_opens_is_what_was_replayed()
        finally:
            self.sizes.__exit__(None, None, None)

    def what_opens_is_what_was_replayed(self) -> None:
        """The state from any checkpoint that is left is the state that was built up frame by frame (W5, W6)."""
        state = self.containers[0].refresh()
        for info in self.simulation.store.list("_system/containers/0/checkpoints/"):
            address = int(info.path.rpartition("/")[2])
            opening = checkpoints.decode(self.simulation.store.read(info.path), info.path, 0, address)
            assert_equal(self.replayed(opening), state)
        if self.simulation.store.read_ranges([Range(frame_path(0, 0))])[0] is not None:
            assert_equal(self.replayed(checkpoints.Opening(START, EMPTY)), state)

    def replayed(self, opening: checkpoints.Opening) -> State:
        state = opening.state
        for frame in open_log(self.simulation.store, head=opening.head, clock=self.simulation.clock).follow():
            state = apply_frame(state, frame, 0)
        return state


def assert_equal(left: State, right: State) -> None:
    for field in State._fields:
        assert getattr(left, field) == getattr(right, field), field


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        TwoProcesses,
        settings=settings(
            deadline=None,
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def test_two_processes() -> None:
    run(15, 25)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_processes_for_long() -> None:
    run(500, 30)
