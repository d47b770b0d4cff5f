"""What the metrics tell of processes that commit together (W18)."""

from __future__ import annotations

from chunkstore.metrics import default_metrics
from engine.admin.inspection import describe_container
from tests.engine.logs.company import Company, appended, processor_of

COUNTED = ("submit", "submit_message", "carried", "void_submission", "carry", "carrying_frame", "begin_epoch")


def counts() -> dict[str, float]:
    registry = default_metrics().registry
    return {
        name: registry.get_sample_value("pravega_log_seconds_count", {"operation": name}) or 0.0 for name in COUNTED
    }


def gained(before: dict[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in counts().items() if value != before[name]}


def test_what_is_carried_is_counted_by_its_owner_and_by_the_maker() -> None:
    company, before = Company(), counts()
    waiting = counts_seconds("carried")
    futures = [company.owner.submit([appended(b"one")]), company.owner.submit([appended(b"two")])]
    company.turn()
    assert all(future.exception() is None for future in futures)
    assert gained(before) == {"submit": 1, "carried": 2, "carry": 2, "carrying_frame": 1}
    assert counts_seconds("carried") > waiting


def counts_seconds(name: str) -> float:
    found = default_metrics().registry.get_sample_value("pravega_log_seconds_sum", {"operation": name})
    return found or 0.0


def test_a_void_submission_and_a_new_epoch_are_counted() -> None:
    company, before = Company(), counts()
    future = company.owner.submit([appended(b"once")])
    processor_of(company.owner).step()
    company.now(company.containers[2], appended(b"another "))
    company.turn(company.owner)
    assert gained(before) == {"submit": 2, "void_submission": 1, "begin_epoch": 1}
    company.turn()
    assert future.exception() is None


def test_a_container_shows_its_epoch_and_what_waits_in_its_inbox() -> None:
    company = Company()
    assert describe_container(company.maker).submissions == 0
    company.owner.submit([appended(b"one")])
    processor_of(company.owner).step()
    shown = describe_container(company.maker)
    assert (shown.submissions, shown.epoch) == (1, company.owner.log.head.epoch)
