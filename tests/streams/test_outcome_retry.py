"""Unknown outcomes under streams: tried again where that is safe, never taken for success, and not for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chunkstore.testing import SimulatedStore
from chunkstore.testing.faults import When
from engine.containers.container import Container
from engine.errors import OutcomeUnknown
from engine.settings import Settings
from engine.state.operations import Payload
from engine.storage.object_reads import Stores
from pravega_spark.client.manager import StreamManager
from pravega_spark.streams.model.policies import ScalingPolicy
from pravega_spark.streams.stream import Stream
from pravega_spark.streams.writing import transactions, uploads
from pravega_spark.streams.writing.outcome_retry import OutcomeRetry
from pravega_spark.streams.writing.producer_state import ProducerWrite
from tests.streams.test_transactions import begun, check, parts, read
from tests.unsure import Unsure

SETTINGS = Settings(maintenance=False, threaded=False, timeout=60.0)
NEVER: list[When] = ["before"] * 1000
LANDED_OR_NOT = pytest.mark.parametrize("when", ["before", "after"])


@pytest.fixture
def unsure() -> Unsure:
    return Unsure()


@pytest.fixture
def stream(unsure: Unsure) -> Stream:
    made = Stream(unsure.root, "sc", "st")
    made.create(ScalingPolicy(min_segments=2))
    return made


def write(stream: Stream, number: int, *events: str) -> bool:
    return stream.write(parts(stream.snapshot().record.routing, *events), ProducerWrite("job", number))


@LANDED_OR_NOT
def test_a_named_write_whose_outcome_is_unknown_is_there_once(stream: Stream, unsure: Unsure, when: When) -> None:
    unsure.fates = [when]
    write(stream, 0, "a", "z")
    assert unsure.met
    check(stream, "a", "z")
    assert write(stream, 1, "b")
    assert not write(stream, 1, "b")
    check(stream, "a", "z", "b")


def test_a_named_write_is_not_tried_for_ever(stream: Stream, unsure: Unsure) -> None:
    unsure.fates = [*NEVER]
    told = r"(?s)it is unknown whether write 7 of 'job' was committed.*wal/.*same name and number is safe"
    with pytest.raises(OutcomeUnknown, match=told):
        write(stream, 7, "a")
    assert 1 < len(NEVER) - len(unsure.fates) < len(NEVER)
    unsure.fates.clear()
    check(stream)
    assert write(stream, 7, "a")
    check(stream, "a")


@LANDED_OR_NOT
def test_a_write_without_a_name_is_not_tried_again(stream: Stream, unsure: Unsure, when: When) -> None:
    unsure.fates = [when]
    with pytest.raises(OutcomeUnknown):
        stream.write(parts(stream.snapshot().record.routing, "a"))
    check(stream, *(["a"] if when == "after" else []))


@LANDED_OR_NOT
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_whose_end_is_unknown_ends_once(stream: Stream, unsure: Unsure, when: When, end: str) -> None:
    transaction = begun(stream, "a", "z")
    unsure.fates = [when]
    getattr(transaction, end)()
    assert unsure.met
    assert transaction.record().status == {"commit": "committed", "abort": "aborted"}[end]
    check(stream, *(["a", "z"] if end == "commit" else []))


@LANDED_OR_NOT
def test_a_ping_whose_outcome_is_unknown_counts(stream: Stream, unsure: Unsure, when: When) -> None:
    transaction = begun(stream, "a")
    unsure.fates = [when]
    transaction.ping(77)
    assert unsure.met and transaction.record().lease == 77_000


@pytest.mark.parametrize("change", ["commit", "abort", "ping"])
def test_a_transaction_is_not_tried_for_ever(stream: Stream, unsure: Unsure, change: str) -> None:
    transaction = begun(stream, "a")
    unsure.fates = [*NEVER]
    with pytest.raises(OutcomeUnknown, match=r"(?s)sc/st/.* it is unknown whether .*wal/.*the call is safe"):
        getattr(transaction, change)()
    unsure.fates.clear()
    assert transaction.record().status == transactions.OPEN
    transaction.commit()
    check(stream, "a")


LARGE = b"x" * 100


def _begun(stream: Stream, unsure: Unsure) -> uploads.Upload:
    upload = uploads.begin(stream, "key", "name")
    upload.attach(Payload(LARGE))
    return upload


def _begin(stream: Stream, unsure: Unsure, fates: list[When]) -> None:
    unsure.fates = fates
    _begun(stream, unsure)


def _attach(stream: Stream, unsure: Unsure, fates: list[When]) -> None:
    upload = _begun(stream, unsure)
    unsure.fates = fates
    upload.attach(Payload(LARGE))
    upload.settle()


def _take_over(stream: Stream, unsure: Unsure, fates: list[When]) -> None:
    _begun(stream, unsure)
    unsure.fates = fates
    uploads.begin(stream, "key", "name")


def _commit(stream: Stream, unsure: Unsure, fates: list[When]) -> None:
    upload = _begun(stream, unsure)
    unsure.fates = fates
    upload.commit(move=False)


def _append(stream: Stream, unsure: Unsure, fates: list[When]) -> None:
    upload = uploads.begin(stream, "key", "name")
    unsure.fates = fates
    upload.append(memoryview(bytes(4) + len(LARGE).to_bytes(4, "big") + LARGE))


STEPS = pytest.mark.parametrize("step", [_begin, _attach, _take_over, _commit, _append])
Step = Callable[[Stream, Unsure, "list[When]"], None]


@STEPS
@LANDED_OR_NOT
def test_an_upload_whose_outcome_is_unknown_goes_on(stream: Stream, unsure: Unsure, step: Step, when: When) -> None:
    step(stream, unsure, [when])
    assert unsure.met
    assert len(read(stream)) == (1 if step in (_commit, _append) else 0)


@STEPS
def test_an_upload_is_not_tried_for_ever(stream: Stream, unsure: Unsure, step: Step) -> None:
    with pytest.raises(OutcomeUnknown, match=r"(?s)upload 'name': it is unknown .*wal/.*begun again safely"):
        step(stream, unsure, [*NEVER])
    unsure.fates.clear()
    assert read(stream) == []


@LANDED_OR_NOT
def test_a_reader_group_goes_on(stream: Stream, unsure: Unsure, when: When) -> None:
    with StreamManager.over(unsure.root) as manager:
        manager.create_scope("sc")
        unsure.fates = [when]
        group = manager.create_reader_group("group", "sc", "st")
        assert unsure.met
        unsure.fates = [*NEVER]
        with pytest.raises(OutcomeUnknown, match=r"(?s)reader group sc/group: it is unknown .*the call is safe"):
            group.create_reader("reader")
        unsure.fates.clear()


def test_the_first_unknown_outcome_is_tried_again_however_long_ago_the_change_was_begun() -> None:
    """The process may have been stopped meanwhile. After that it is tried for five times the container's timeout."""
    store, now = SimulatedStore(0), [1e6]
    retry = OutcomeRetry(Container(Stores(store, store), 0, SETTINGS, clock=lambda: now[0]), "what", "advice")
    now[0] += 1e6
    retry.wait_or_raise(OutcomeUnknown("first"))
    now[0] += 299
    retry.wait_or_raise(OutcomeUnknown("second"))
    now[0] += 1
    with pytest.raises(OutcomeUnknown, match=r"what: .* for 300 seconds \(third\)\. advice"):
        retry.wait_or_raise(OutcomeUnknown("third"))
