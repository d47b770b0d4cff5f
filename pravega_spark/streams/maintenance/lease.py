"""The lease of maintenance: which of several servers maintains a root now, and what the last run did.

It is one table entry in container 0, and each change is conditional on the entry's version. Keeps that a root in which
there is nothing to do costs no write: the lease is taken for one run, and given back with the run's outcome. Clocks of
two hosts are never compared: a process measures by its own monotonic clock, from when it first observed the last beat.
The lease saves work, nothing depends on it: maintenance is safe if two processes do it at once.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

import msgpack

from chunkstore.decoding import Natural, check_format, reader, unpack
from engine.containers.container import Container
from engine.errors import BadKeyVersion, DataCorruption, OutcomeUnknown, UnknownFormat, understanding
from engine.root import Root
from engine.state.operations import PutEntry
from engine.state.state import NOT_EXISTS
from pravega_spark.streams.model.readback import readable
from pravega_spark.streams.model.system_tables import MAINTENANCE

LEASE_SECONDS = 60.0
"""After which the lease of a process that records no beat passes to another one."""

LEASE = "lease"
"""The key of the entry."""

MOST_LINES = 50
"""Lines of a run that are kept."""

_FORMAT = 1
_LONGEST = 500  # characters of a text


class MaintenanceRun(NamedTuple):
    """A run that has ended, at `ended` (ms since the epoch). holder: the process, for people. steps, changed, failed:
    how many steps there were. lines: what changed, and what failed; at most MOST_LINES."""

    ended: int
    holder: str
    steps: int
    changed: int
    failed: int
    lines: tuple[str, ...]


class Verification(NamedTuple):
    """What `verify` found last, at `ended` (ms since the epoch)."""

    ended: int
    errors: int
    text: str


class MaintenanceRecord(NamedTuple):
    """The entry. token: of the run under way, "" without one. beat: grows while it goes on."""

    holder: str = ""
    token: str = ""
    beat: int = 0
    run: MaintenanceRun | None = None
    verified: Verification | None = None

    def encode(self) -> bytes:
        """The entry's value. Raises UnreadableRecord."""
        return readable("the record of maintenance", self, _encoded, _decoded)

    @classmethod
    def decode(cls, data: bytes, key: str = LEASE) -> MaintenanceRecord:
        """The inverse of `encode`. Raises DataCorruption, which names the entry."""
        with understanding(f"maintenance {key}: its record", "the next run of `serve --maintain` replaces it"):
            return _decoded(data)


def shortened(text: str) -> str:
    """A text as long as a record may have it, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


class MaintenanceLease:
    """The lease, as one process sees it. Not thread-safe. seconds: after which a lease without a beat has expired."""

    def __init__(self, root: Root, holder: str, seconds: float = LEASE_SECONDS) -> None:
        self._root = root
        self._holder = shortened(holder)
        self._seconds = seconds
        self._observed: tuple[str, int, float] | None = None  # token and beat, and when they were first seen
        self._held: tuple[MaintenanceRecord, int] | None = None  # as this process stored it last

    @property
    def _container(self) -> Container:
        return self._root.container(0)

    def record(self, refresh: bool = True) -> MaintenanceRecord:
        """The record as it is now; an empty one if no run has ended yet. Raises UnknownFormat, StorageError."""
        return self._read(refresh)[0]

    def take(self) -> bool:
        """Take the lease for a run. False if another process has it, or was faster."""
        record, version = self._read()
        if record.token and not self._expired(record):
            return False
        taken = record._replace(holder=self._holder, token=uuid.uuid4().hex, beat=0)
        return self._put(taken, version)

    def beat(self) -> bool:
        """Record that the run goes on. False if the lease is lost."""
        if self._held is None:
            return False
        record, version = self._held
        return self._put(record._replace(beat=record.beat + 1), version)

    def give_back(self, run: MaintenanceRun, verified: Verification | None) -> bool:
        """End the run, and record what it did; `verified` None keeps the last one. False if the lease was lost."""
        if self._held is None:
            return False
        record, version = self._held
        done = record._replace(holder="", token="", beat=0, run=run, verified=verified or record.verified)
        given = self._put(done, version)
        self._held = None
        return given

    def _expired(self, record: MaintenanceRecord) -> bool:
        """Whether the run has shown no beat for as long as a lease lasts, since this process first saw the last one."""
        now, seen = self._container.clock(), self._observed
        if seen is None or seen[:2] != (record.token, record.beat):
            self._observed = (record.token, record.beat, now)
            return self._seconds <= 0
        return now - seen[2] >= self._seconds

    def _read(self, refresh: bool = True) -> tuple[MaintenanceRecord, int]:
        container = self._container
        state = container.refresh() if refresh else container.state
        entry = container.entries(MAINTENANCE, [LEASE], state)[LEASE]
        if entry is None or entry.value is None:
            return MaintenanceRecord(), entry.version if entry is not None else NOT_EXISTS
        try:
            return MaintenanceRecord.decode(entry.value), entry.version
        except UnknownFormat:
            raise
        except DataCorruption:
            return MaintenanceRecord(), entry.version  # verify reports it, and the next run replaces it

    def _put(self, record: MaintenanceRecord, version: int) -> bool:
        """Store the record. False if another process changed it, or the outcome is unknown."""
        self._held = None
        try:
            results = self._container.commit([PutEntry(MAINTENANCE, LEASE, record.encode(), version)]).results
        except (BadKeyVersion, OutcomeUnknown):
            return False
        self._held = (record, int(results[0]))
        return True


def maintenance_record(root: Root) -> MaintenanceRecord:
    """The record of a root, as its container was seen last. Raises UnknownFormat, StorageError."""
    return MaintenanceLease(root, "").record(refresh=False)


_FIELDS = reader(
    tuple[
        str,
        str,
        Natural,
        tuple[int, str, Natural, Natural, Natural, tuple[str, ...]] | None,
        tuple[int, Natural, str] | None,
    ]
)


def _encoded(record: MaintenanceRecord) -> bytes:
    return bytes(msgpack.packb([_FORMAT, *record]))


def _decoded(data: bytes) -> MaintenanceRecord:
    known, *fields = unpack(data)
    check_format(known, _FORMAT)
    holder, token, beat, run, verified = _FIELDS(fields)
    return MaintenanceRecord(
        holder,
        token,
        beat,
        None if run is None else MaintenanceRun(*run),
        None if verified is None else Verification(*verified),
    )
