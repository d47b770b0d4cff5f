"""What is checked in each state, by what is true (`truth`) and by what processes say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from tests.exhaustive import truth
from tests.exhaustive.actors import append, opened
from tests.exhaustive.process import Position, Process, run_alone
from tests.exhaustive.storage import Storage
from tests.exhaustive.truth import Chain

Said = tuple[tuple[str, bytes, int], ...]
"""What became of records: how it ended, the record, and for one that was acknowledged the address of its frame."""


class Violation(Exception):
    """Something that must not be. label: the step that leads to it."""

    def __init__(self, problem: str, label: str) -> None:
        super().__init__(problem)
        self.label = label


class Checks:
    """The checks. names: of the processes."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._opened: set[tuple[Storage, Chain]] = set()
        self._ended: set[tuple[Storage, Chain]] = set()

    @staticmethod
    def kept(said: Said, position: Position) -> Said:
        """What became of a process's records, with what it has just said."""
        new = [fact for fact in position.facts if fact[0] in ("acknowledged", "unknown", "refused")]
        return (*said, *((fact[0], fact[1], fact[2] if fact[0] == "acknowledged" else -1) for fact in new))

    def said(self, process: int, position: Position, chain: Chain, label: str) -> None:
        """Check what a process has just said."""
        name = self._names[process]
        if position.error:
            raise Violation(f"{name} ended with {position.error}", label)
        for fact in position.facts:
            if fact[0] == "acknowledged":
                _, record, address, state = fact
                place = truth.place_of(chain, address)
                if place <= 0 or record not in truth.records_in(chain[place - 1]):
                    raise Violation(f"{name}: {_shown(record)} is acknowledged at {address} and not in the log", label)
                if state is not None and state != truth.digest_after(chain[:place]):
                    raise Violation(f"{name}: the state of a receipt is not the log's: {state}", label)
            elif fact[0] == "flushed":
                _, acknowledged, covered = fact
                wanted, _ = truth.digest_after(chain[: truth.place_of(chain, acknowledged)])
                if covered < wanted:
                    raise Violation(
                        f"{name} has flushed {covered} operations, {wanted} were acknowledged before", label
                    )
            elif fact[0] == "saw":
                _, acknowledged, address, state = fact
                place = truth.place_of(chain, address)
                if place < 0:
                    raise Violation(f"{name} reads a frame that is not live, at {address}", label)
                if acknowledged > address:
                    raise Violation(f"{name} does not see frame {acknowledged}, acknowledged before it looked", label)
                if state != truth.digest_after(chain[:place]):
                    raise Violation(f"{name} sees another state than the log's up to {address}: {state}", label)

    @staticmethod
    def outcomes(said: Iterable[Said], chain: Chain, label: str) -> None:
        """Check what became of records."""
        outcomes = [each for process in said for each in process]
        again = [record for record, count in Counter(record for _, record, _ in outcomes).items() if count > 1]
        if again:
            raise Violation(f"{_shown(again[0])} has two outcomes", label)
        counted = _counted(chain)
        for how, record, _ in outcomes:
            times = counted.get(record, 0)
            if (how == "acknowledged" and times != 1) or (how == "refused" and times):
                raise Violation(f"{_shown(record)} was {how}, and is there {times} times", label)

    def stored(self, storage: Storage, chain: Chain, time: int, label: str) -> None:
        """Check what is stored: whoever opens the log now has all of it."""
        for record, count in _counted(chain).items():
            if count > 1:
                raise Violation(f"{_shown(record)} is in the log {count} times", label)
        if (problem := _disorder(chain)) is not None:
            raise Violation(problem, label)
        if not chain or (storage, chain) in self._opened:
            return
        self._opened.add((storage, chain))
        self._open(storage, chain, time, appends=False, label=label)

    def end(self, storage: Storage, chain: Chain, time: int) -> None:
        """Check what is stored when all processes have ended: the next one appends."""
        if (storage, chain) not in self._ended:
            self._ended.add((storage, chain))
            self._open(storage, chain, time, appends=True, label="")

    def _open(self, storage: Storage, chain: Chain, time: int, appends: bool, label: str) -> None:
        """Open the log as a process that is alone, and append to it."""

        def script(process: Process) -> None:
            log = opened(process)
            process.say("opened", log.head.address, truth.digest(log.state))
            if appends:
                append(process, log, 0)
                log.close()

        position = run_alone("the next", script, storage, time)
        said = position.facts
        if position.error:
            raise Violation(f"who opens the log now fails: {position.error}", label)
        head = truth.decoded(chain[-1]).position.address if chain else -1
        if said[0] != ("opened", head, truth.digest_after(chain)):
            raise Violation(f"who opens the log now sees {said[0][1:]}, and {head} is its last frame", label)
        if appends and [fact[0] for fact in said] != ["opened", "sent", "acknowledged"]:
            raise Violation(f"who appends now: {said[1:]}", label)


@lru_cache(1 << 16)
def _counted(chain: Chain) -> Counter[bytes]:
    return Counter(record for content in chain for record in truth.records_in(content))


@lru_cache(1 << 16)
def _disorder(chain: Chain) -> str | None:
    """Records of one process that are not in their order."""
    last: dict[str, int] = {}
    for content in chain:
        for record in truth.records_in(content):
            name, _, number = _shown(record).rpartition("-")
            if int(number) <= last.get(name, -1):
                return f"{_shown(record)} is behind a later record of its writer"
            last[name] = int(number)
    return None


def _shown(record: bytes) -> str:
    return record.rstrip(b"\0").decode()
