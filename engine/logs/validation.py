"""Validation of the transactions of a frame: each against the state to which it would be applied.

Keeps W5: an accepted transaction was validated against exactly the state before it, and laid out for exactly this
frame. Nothing is sent and no caller is notified here: the frame sender acts on the result. Pravega:
`ContainerMetadataUpdateTransaction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from chunkstore.decoding import InvalidData, decoding
from engine.errors import DataCorruption, InvalidOperation, Rejected, Unresolved
from engine.logs.payload import MAX_PAYLOAD, Layout
from engine.logs.transaction import Transaction
from engine.state.changes.apply import apply_operation
from engine.state.changes.draft import StateDraft
from engine.state.operations import (
    ActivateSegment,
    Append,
    CheckEntry,
    LoadAttributes,
    LoggedTransaction,
    Operation,
    PutEntry,
)
from engine.state.state import State, find_entry
from engine.state.tables import ATTRIBUTES, METADATA, Entry, LookupResult, stored_attribute

Loads: TypeAlias = "dict[tuple[str, str], Operation]"
"""The operations that bring entries of tables into memory, by table and key, in the order in which they were needed."""


class ValidationResult:
    """The state after the accepted transactions of a frame, and the errors of the rejected ones. It is kept with the
    frame while that is in flight.

    accepted: with the results of their operations; logged: the same as they stand in the frame. rejected: with their
    errors, which are final once the frame is live. invalid: what was looked up for them cannot be decoded, or their
    operations make no sense, whatever the state is. unresolved: they depend on entries that have to be looked up.
    carries: some were submitted by other processes; of those the invalid ones are `rejected`, as their owner validates
    them again. checkpoint: the frame holds a Checkpoint.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.accepted: list[tuple[Transaction, list[Any]]] = []
        self.logged: list[LoggedTransaction] = []
        self.rejected: list[tuple[Transaction, BaseException]] = []
        self.unresolved: list[tuple[Transaction, Unresolved]] = []
        self.invalid: list[tuple[Transaction, BaseException]] = []
        self.carries = False
        self.checkpoint = False

    def transactions(self) -> list[Transaction]:
        """All that are completed when the frame is live."""
        return [each for each, _ in self.accepted] + [each for each, _ in self.rejected]

    def accept(self, transaction: Transaction, layout: Layout, draft: StateDraft, loads: Loads | None = None) -> None:
        """Lay a transaction out and apply it, `loads` first. Raises Rejected or Unresolved."""
        bound, results = list((loads or {}).values()), []
        for operation in bound:
            apply_operation(draft, operation)
        number = draft.sequence
        for operation in transaction.operations:
            operation = layout.bind(operation, draft.segment, number)
            bound.append(operation)
            results.append(apply_operation(draft, operation))
        self.logged.append(LoggedTransaction(draft.time, tuple(bound)))
        self.accepted.append((transaction, results))
        self.carries = self.carries or transaction.carrying is not None

    def accept_appends(self, segment: str, run: Sequence[Transaction], layout: Layout, draft: StateDraft) -> None:
        """The same for plain appends to one segment, as one operation: that costs less here and in every reader."""
        payloads = [transaction.appended_payload() for transaction in run]
        operation = Append(segment, layout.together(payloads))
        offset: int = apply_operation(draft, operation)
        self.logged.append(LoggedTransaction(draft.time, (operation,)))
        for transaction, payload in zip(run, payloads, strict=True):
            self.accepted.append((transaction, [offset]))
            self.carries = self.carries or transaction.carrying is not None
            offset += len(payload)

    def refuse(self, transaction: Transaction, error: BaseException, invalid: bool = False) -> None:
        """Keep the error of a transaction that is not accepted."""
        carried = transaction.carrying is not None
        self.carries = self.carries or carried
        (self.invalid if invalid and not carried else self.rejected).append((transaction, error))


def validate(state: State, batch: Sequence[Transaction], layout: Layout, time_ms: int) -> ValidationResult:
    """Validate transactions that are applied one after the other to `state`."""
    result = _validate_together(state, batch, layout, time_ms) if len(batch) > 1 else None
    return result or _validate_each(state, batch, layout, time_ms)


def spans(transaction: Transaction) -> bool:
    """Whether a transaction needs more than one frame (W4)."""
    return transaction.size > MAX_PAYLOAD and transaction.chunk is None


def _validate_together(
    state: State, batch: Sequence[Transaction], layout: Layout, time_ms: int
) -> ValidationResult | None:
    """The result if all are accepted. None if one is not: then each has to be tried alone."""
    if batch[0].size > MAX_PAYLOAD or any(transaction.looked_up for transaction in batch):
        return None
    result, mark = ValidationResult(state), layout.mark()
    draft = StateDraft(state, time_ms, layout.frame.address, {})
    try:
        with decoding():
            for segment, run in _runs(batch):
                if segment is not None and len(run) > 1:
                    result.accept_appends(segment, run, layout, draft)
                else:
                    result.accept(run[0], layout, draft)
    except (Rejected, Unresolved, DataCorruption, InvalidData):
        layout.rewind(mark)
        return None
    result.state = draft.finish()
    return result


def _runs(batch: Iterable[Transaction]) -> Iterator[tuple[str | None, list[Transaction]]]:
    """What can be applied at once: the plain appends to one segment between two other transactions, or one of those.

    With each run its segment, or None. Appends to several segments do not depend on each other.
    """
    plain: dict[str, list[Transaction]] = {}
    for transaction in batch:
        append = transaction.plain_append()
        if append is not None:
            plain.setdefault(append.segment, []).append(transaction)
            continue
        yield from plain.items()
        plain.clear()
        yield None, [transaction]
    yield from plain.items()


def _validate_each(state: State, batch: Sequence[Transaction], layout: Layout, time_ms: int) -> ValidationResult:
    result = ValidationResult(state)
    for transaction in batch:
        mark = layout.mark()
        try:
            with decoding():
                _validate_one(transaction, result, layout, mark, time_ms)
            continue
        except Unresolved as error:
            result.unresolved.append((transaction, error))
        except Rejected as error:
            result.refuse(transaction, error)
        except DataCorruption as error:
            result.refuse(transaction, error, invalid=True)
        except InvalidData as problem:
            names = ", ".join(type(operation).__name__ for operation in transaction.operations)
            refusal = InvalidOperation(f"{names} cannot be applied: {problem}. Nothing was done: correct the value")
            result.refuse(transaction, refusal, invalid=True)
        layout.rewind(mark)
    return result


def _validate_one(
    transaction: Transaction, result: ValidationResult, layout: Layout, mark: tuple[int, int], time_ms: int
) -> None:
    """Accept one transaction, which is laid out from `mark` on. Raises Rejected or Unresolved.

    The operations that bring into memory what was looked up for it are made here, from the state at hand, and not kept.
    """
    loads: Loads = _dry_run(transaction, result.state, time_ms) if spans(transaction) else {}
    while True:
        draft = StateDraft(result.state, time_ms, layout.frame.address, transaction.looked_up)
        try:
            result.accept(transaction, layout, draft, loads)
        except Unresolved as error:
            layout.rewind(mark)
            loads = _more_loads(error, result.state, transaction.looked_up, loads)
            continue
        result.state = draft.finish()
        return


def _dry_run(transaction: Transaction, state: State, time_ms: int) -> Loads:
    """See whether a spanning transaction is acceptable before its pieces are sent. Raises Rejected if not."""
    loads: Loads = {}
    while True:
        layout, draft = Layout(0), StateDraft(state, time_ms, 0, transaction.looked_up)
        try:
            for operation in (*loads.values(), *transaction.operations):
                apply_operation(draft, layout.bind(operation, draft.segment, draft.sequence))
            return loads
        except Unresolved as error:
            loads = _more_loads(error, state, transaction.looked_up, loads)


def keys_together(transaction: Transaction, error: Unresolved, state: State) -> tuple[str, ...]:
    """The keys to look up for a transaction that depends on those which the error names: with them all others of that
    table, as each by itself would cost a request, and another validation of all operations before it."""
    if error.table == METADATA:
        segments = (getattr(operation, "segment", None) for operation in transaction.operations)
        others = [name for name in segments if isinstance(name, str) and name not in state.segments]
    else:
        entries = (each for each in transaction.operations if isinstance(each, PutEntry | CheckEntry))
        others = [entry.key for entry in entries if entry.table == error.table]
    return tuple(dict.fromkeys((*error.keys, *others)))


def _more_loads(
    error: Unresolved, state: State, looked_up: Mapping[tuple[str, str], LookupResult], loads: Loads
) -> Loads:
    """`loads`, and those of the entries that `error` names, as far as these were looked up under the roots of `state`
    (W11).

    Raises `error` if they were not, or if loading them does not help: then they have to be looked up.
    """
    table, more = state.tables.get(error.table), dict(loads)
    for key in error.keys:
        try:
            entry = find_entry(table, error.table, key, looked_up)
        except Unresolved:
            raise error from None
        load = load_of(error.table, key, entry, error.segment)
        if load is None or (error.table, key) in loads:
            raise error
        more[error.table, key] = load
    if error.table == METADATA:  # the other segments that were looked up with it, see `keys_together`
        for name, key in looked_up:
            if name == METADATA and (name, key) not in more and key not in state.segments:
                with suppress(Unresolved):
                    if (load := load_of(name, key, find_entry(table, name, key, looked_up), "")) is not None:
                        more[name, key] = load
    return more


def load_of(table: str, key: str, entry: Entry | None, segment: str) -> Operation | None:
    """The operation that brings what was found in LTS into memory, if operations on it need that."""
    if entry is None or entry.value is None:
        return None
    if table == METADATA:
        return ActivateSegment(key, entry.value, entry.version)
    if table == ATTRIBUTES:
        return LoadAttributes(segment, (stored_attribute(key, entry.value),))
    return None
