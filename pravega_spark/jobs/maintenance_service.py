"""Maintenance as a service: does on a timer what the maintenance job does, in one of several processes at a time.

A look at the root costs reads alone: a dry run finds whether there is anything to do. Only then it takes the lease,
which another process has if it maintains the root already (see `streams.maintenance.lease`). Keeps that nothing which
fails ends the service: it is logged, recorded, and tried again at the next look.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import TracebackType

from chunkstore import StorageError
from engine.errors import EngineError
from engine.root import Root
from pravega_spark.errors import StreamError
from pravega_spark.jobs.maintain import maintain
from pravega_spark.jobs.outcome import VERIFY, JobOutcome, failures
from pravega_spark.streams.maintenance.lease import (
    LEASE_SECONDS,
    MOST_LINES,
    MaintenanceLease,
    MaintenanceRun,
    Verification,
    shortened,
)

logger = logging.getLogger(__name__)

EVERY = 3600.0
"""Seconds between two looks at a root."""

VERIFY_EVERY = 86_400.0
"""Seconds between two verifications, at least."""

_STOP_SECONDS = 10.0  # for the step that is under way when the service is stopped


class Looked(Enum):
    """What a look at the root came to."""

    IDLE = "there is nothing to do"
    ELSEWHERE = "another process maintains the root"
    RAN = "the root was maintained"


class MaintenanceService:
    """A thread that maintains an open root, while this is entered as a context.

    every: seconds between two looks. lease_seconds: after which another process takes over from one that was killed.
    verify_every: seconds between two verifications of a root that changes.
    """

    def __init__(
        self,
        root: Root,
        *,
        every: float = EVERY,
        lease_seconds: float = LEASE_SECONDS,
        verify_every: float = VERIFY_EVERY,
    ) -> None:
        self._root = root
        self._every = every
        self._lease_seconds = lease_seconds
        self._verify_every = verify_every
        self._holder = f"{socket.gethostname()}, process {os.getpid()}"
        self._lease = MaintenanceLease(root, self._holder, lease_seconds)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def __enter__(self) -> MaintenanceService:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)  # a step that takes longer ends with the process, as if it was killed

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = self._every
            try:
                if self.look() is Looked.ELSEWHERE:
                    pause = min(pause, self._lease_seconds)  # that process may be killed
            except (StreamError, EngineError, StorageError) as error:
                logger.warning("maintenance failed and will be retried: %s", str(error))
            except Exception:
                logger.exception("maintenance failed unexpectedly and will be retried")
            self._stopping.wait(pause * random.uniform(0.9, 1.1))  # servers that started together do not look together

    def look(self) -> Looked:
        """Look at the root once, and maintain it if there is anything to do and no other process does. Raises
        StreamError, EngineError, StorageError."""
        if not any(map(_is_due, maintain(self._root, dry_run=True))):
            return Looked.IDLE
        if not self._lease.take():
            return Looked.ELSEWHERE
        verified = self._lease.record(refresh=False).verified
        check = verified is None or self._now() - verified.ended >= self._verify_every * 1000
        with self._beating():
            outcomes = list(self._maintained(check))
        now = self._now()
        self._lease.give_back(_run(now, self._holder, outcomes), _verification(now, outcomes))
        logger.info("maintenance: %d steps, %d changed something", len(outcomes), sum(one.changed for one in outcomes))
        return Looked.RAN

    def _maintained(self, check: bool) -> Iterator[JobOutcome]:
        """The outcomes of a run, which ends early if the service is stopped."""
        for outcome in maintain(self._root, check=check):
            yield outcome
            if self._stopping.is_set():
                return

    @contextmanager
    def _beating(self) -> Iterator[None]:
        """Record beats meanwhile, so that the lease does not expire."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(self._lease_seconds / 3):
                try:
                    if not self._lease.beat():
                        return  # another process does it too, which is safe
                except (EngineError, StorageError) as error:
                    logger.warning("the lease of maintenance could not be renewed: %s", str(error))
                    return

        thread = threading.Thread(target=beat, name="maintenance-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _now(self) -> int:
        """The storage's time, in ms since the epoch."""
        return int(self._root.container(0).storage_clock.reported() * 1000)


def _is_due(planned: JobOutcome) -> bool:
    """Whether an outcome of a dry run is something to do. A flush always says that it would flush."""
    return planned.bytes > 0 if planned.step == "flush" else planned.changed


def _run(ended: int, holder: str, outcomes: Sequence[JobOutcome]) -> MaintenanceRun:
    """What a run did, for people."""
    shown = [one for one in outcomes if one.error is not None] + [
        one for one in outcomes if one.error is None and one.changed
    ]
    lines = tuple(shortened(_line(one)) for one in shown[:MOST_LINES])
    return MaintenanceRun(
        ended, holder, len(outcomes), sum(one.changed for one in outcomes), len(failures(outcomes)), lines
    )


def _line(outcome: JobOutcome) -> str:
    whose = f" of {outcome.scope}/{outcome.stream}" if outcome.stream else ""
    return f"{outcome.step}{whose}: {f'failed: {outcome.error}' if outcome.error is not None else outcome.detail}"


def _verification(ended: int, outcomes: Sequence[JobOutcome]) -> Verification | None:
    """What verify found, if it ran."""
    found = next((one for one in outcomes if one.step == VERIFY), None)
    if found is None:
        return None
    return Verification(ended, int(found.error is not None), shortened(found.error or found.detail))
