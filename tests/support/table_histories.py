"""Histories of one key-value table, and whether they are linearizable (see `tests.support.linearizability`).

Versions order the updates whose versions are known, by their callers or by a read of what they put: each value is
there once, so a read tells which update it saw. An update of unknown outcome happened at some moment after it began,
or never. So the search is for one order of all calls: reads and refusals are taken as soon as the contents explain
them, as they change nothing, and updates of unknown outcome only where nothing else explains what follows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pravega_spark import Insert, KeyValueTableEntry, Remove, TableKey, Version
from pravega_spark.streams.model.key_value_table import TableModification, as_key
from tests.support.linearizability import MAX_WAYS, NotLinearizable, Ok, Outcome, Refused, Undecided, Unknown

Contents = Mapping[TableKey, KeyValueTableEntry]


@dataclass
class Call:
    """A call of a client. update: what it changes; None of a read. keys: what it reads; None: all keys.

    outcome: Ok with the versions of what was put, or the entries found; Refused with the name of the condition's error;
    Unknown while it is under way, and for ever if nobody heard of it.
    """

    by: str
    update: tuple[TableModification, ...] | None
    keys: tuple[TableKey, ...] | None
    begun: int
    ended: float = math.inf
    outcome: Outcome = field(default_factory=Unknown)

    def __str__(self) -> str:
        what = self.update if self.update is not None else f"read {self.keys or 'all'}"
        return f"{self.begun} to {self.ended}, {self.by}: {what} -> {self.outcome}"

    def of(self, primary: bytes) -> Call | None:
        """What the call has to do with one primary key; None for nothing."""
        if self.update is not None:
            return self if as_key(self.update[0].key).primary == primary else None
        keys = None if self.keys is None else tuple(key for key in self.keys if key.primary == primary)
        outcome = self.outcome
        if isinstance(outcome, Ok):
            outcome = Ok([entry for entry in outcome.result if entry.primary == primary])
        return Call(self.by, None, keys, self.begun, self.ended, outcome) if keys != () else None


class TableHistory:
    """The calls of all clients of a table, in the order in which they began. Time is the number of begins and ends."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._moments = itertools.count()

    def update(self, by: str, modifications: Sequence[TableModification]) -> Call:
        """An update that begins."""
        return self._begin(Call(by, tuple(modifications), None, next(self._moments)))

    def read(self, by: str, keys: Sequence[TableKey] | None) -> Call:
        """A read of keys that begins. None: of all keys."""
        return self._begin(Call(by, None, None if keys is None else tuple(keys), next(self._moments)))

    def _begin(self, call: Call) -> Call:
        self.calls.append(call)
        return call

    def end(self, call: Call, outcome: Outcome) -> None:
        """It ended. A read that failed is no part of the history, nor is an update that was not made for a reason that
        says nothing of the table: the caller leaves them out by `drop`."""
        call.outcome = outcome
        call.ended = math.inf if isinstance(outcome, Unknown) else next(self._moments)

    def drop(self, call: Call) -> None:
        """It did nothing."""
        self.calls.remove(call)

    def check(self) -> None:
        """Raise NotLinearizable if no order of the calls explains them; Undecided where the search gets too large."""
        calls = [call for call in self.calls if call.update is not None or isinstance(call.outcome, Ok)]
        updates = [as_key(call.update[0].key).primary for call in calls if call.update]
        for primary in sorted(set(updates)):
            _Search([part for call in calls if (part := call.of(primary)) is not None]).run()
        _Search(calls).run()


class _Step(NamedTuple):
    """How far a search is: the calls that have had their moment, as bits, and the contents then."""

    done: int
    contents: tuple[KeyValueTableEntry, ...]


class _Search:
    """Looks for one order of the calls."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls
        self._versions = _versions(calls)
        self._all = sum(1 << number for number, call in enumerate(calls) if call.ended < math.inf)
        self._ends = sorted((call.ended, number) for number, call in enumerate(calls) if call.ended < math.inf)
        ordered = ((self._first_version(call), number) for number, call in enumerate(calls) if call.update)
        self._ordered = sorted((version, number) for version, number in ordered if version is not None)

    def _first_version(self, call: Call) -> int | None:
        """The version of the first thing that an update put, if it is known."""
        if isinstance(call.outcome, Refused) or call.update is None or isinstance(call.update[0], Remove):
            return None
        known = (self._versions.get(each.value) for each in call.update if not isinstance(each, Remove))
        return min((version.number for version in known if version is not None), default=None)

    def run(self) -> None:
        """Find an order. Raises NotLinearizable, Undecided."""
        seen: set[_Step] = set()
        stack = [self._settled(_Step(0, ()))]
        best = stack[0]
        while stack:
            step = stack.pop()
            if step.done & self._all == self._all:
                return
            if step in seen:
                continue
            seen.add(step)
            if len(seen) > MAX_WAYS:
                raise Undecided(
                    f"after {MAX_WAYS} tries {best.done.bit_count()} of {len(self._calls)} calls are explained"
                )
            best = max(best, step, key=lambda each: each.done.bit_count())
            stack += [self._settled(following) for following in reversed(list(self._following(step)))]
        left = [str(call) for number, call in enumerate(self._calls) if not best.done >> number & 1][:8]
        raise NotLinearizable("\n  ".join([f"with {list(best.contents)} nothing explains:", *left]))

    def _open(self, done: int) -> Iterator[tuple[int, Call]]:
        """The calls that may come next: those that began before any other one ended that is not done."""
        end = next((ended for ended, number in self._ends if not done >> number & 1), math.inf)
        for number, call in enumerate(self._calls):
            if call.begun > end:
                return
            if not done >> number & 1:
                yield number, call

    def _settled(self, step: _Step) -> _Step:
        """The same, where all reads and refusals that the contents explain have had their moment."""
        while True:
            contents = {entry.key: entry for entry in step.contents}
            explained = sum(1 << number for number, call in self._open(step.done) if _explains(contents, call))
            if not explained:
                return step
            step = step._replace(done=step.done | explained)

    def _following(self, step: _Step) -> Iterator[_Step]:
        """What may come next: acknowledged updates first, by the time of their end."""
        contents = {entry.key: entry for entry in step.contents}
        least = next((number for _, number in self._ordered if not step.done >> number & 1), None)
        candidates = [
            (call.ended, number, call)
            for number, call in self._open(step.done)
            if call.update is not None and not isinstance(call.outcome, Refused)
        ]
        for _, number, call in sorted(candidates, key=lambda each: each[:2]):
            assert call.update is not None
            if (self._first_version(call) is None or number == least) and _failing(contents, call.update) is None:
                changed = self._changed(contents, call.update)
                yield _Step(step.done | 1 << number, tuple(sorted(changed.values())))

    def _changed(self, contents: Contents, update: Iterable[TableModification]) -> dict[TableKey, KeyValueTableEntry]:
        changed = dict(contents)
        for each in update:
            key = as_key(each.key)
            changed.pop(key, None)
            if not isinstance(each, Remove):
                changed[key] = KeyValueTableEntry(*key, each.value, self._versions.get(each.value, Version.NOT_EXISTS))
        return changed


def _versions(calls: Iterable[Call]) -> dict[bytes, Version]:
    """The version of each value, as its writer or a reader got it. Raises NotLinearizable for two."""
    found: dict[bytes, Version] = {}
    for call in calls:
        if not isinstance(call.outcome, Ok):
            continue
        pairs = [(entry.value, entry.version) for entry in call.outcome.result if call.update is None]
        if call.update is not None and call.outcome.result:
            values = [each.value for each in call.update if not isinstance(each, Remove)]
            pairs = list(zip(values, call.outcome.result, strict=True))
        for value, version in pairs:
            if found.setdefault(value, version) != version:
                raise NotLinearizable(f"{value!r} has version {found[value]}, and by {call}: {version}")
    return found


def _failing(contents: Contents, update: Iterable[TableModification]) -> str | None:
    """The error of the first condition that does not hold; None if all do."""
    for each in update:
        entry = contents.get(as_key(each.key))
        if isinstance(each, Insert):
            if entry is not None:
                return "BadKeyVersion"
        elif each.version is not None:
            if entry is None:
                return "NoSuchKey"
            if entry.version != each.version:
                return "BadKeyVersion"
    return None


def _explains(contents: Contents, call: Call) -> bool:
    """Whether contents explain a read or a refusal."""
    if call.update is not None:
        return isinstance(call.outcome, Refused) and _failing(contents, call.update) == call.outcome.error
    assert isinstance(call.outcome, Ok)
    wanted = call.keys if call.keys is not None else sorted(contents)
    return bool([contents[key] for key in wanted if key in contents] == call.outcome.result)
