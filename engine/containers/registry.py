"""The containers of a process: started when they are needed, watched, and isolated from each other's failures.

A container that went offline is started again at its next use (Pravega: SegmentContainerRegistry leaves that to the
controller). One that fails to start repeatedly is not started until an operator asks for it: the restart counter of the
Segment Store design.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from chunkstore import StorageError
from engine.errors import ContainerOffline, EngineError

if TYPE_CHECKING:
    from engine.containers.container import Container

MOST_RESTARTS = 5
"""Failed starts in a row after which a container is not started any more."""

PARALLEL_STARTS = 2
"""Containers that are started at a time (Pravega: container.parallelStarts)."""


class Condition(enum.Enum):
    """The condition of a container of this process."""

    STOPPED = "stopped"
    ONLINE = "online"
    OFFLINE = "offline"  # it failed, and is started again at its next use
    POISONED = "left alone"  # it failed to start too often


class Status(NamedTuple):
    """A container's condition. failures: failed starts in a row; cause: of the last failure."""

    condition: Condition
    failures: int = 0
    cause: BaseException | None = None


class ContainerManager:
    """Starts and stops containers by their numbers. Thread-safe: one start does not hold up another's container."""

    def __init__(self, start: Callable[[int], Container]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._starting: dict[int, threading.Lock] = {}
        self._containers: dict[int, Container] = {}
        self._failures: dict[int, tuple[int, BaseException]] = {}

    def container(self, number: int) -> Container:
        """The container, started if need be. Raises what starting raises; ContainerOffline once it failed too often."""
        container = self._containers.get(number)
        if container is not None and not container.offline:
            return container
        with self._lock:
            starting = self._starting.setdefault(number, threading.Lock())
        with starting:
            container = self._containers.get(number)
            if container is None or container.offline:
                container = self._containers[number] = self._started(number)
            return container

    def _started(self, number: int) -> Container:
        failures, cause = self._failures.get(number, (0, None))
        if failures >= MOST_RESTARTS:
            last = str(cause).rstrip(".")
            raise ContainerOffline(
                f"container {number} failed to start {failures} times in a row, last with: {last}. Mend that, then "
                f"call Root.restart({number}) or begin a new process"
            ) from cause
        try:
            container = self._start(number)
        except (EngineError, StorageError) as error:
            self._failures[number] = failures + 1, error
            raise
        self._failures.pop(number, None)
        return container

    def start(self, numbers: Collection[int]) -> dict[int, Status]:
        """Start containers, some at a time; a failing one does not stop the rest. Returns the status of each."""
        with ThreadPoolExecutor(PARALLEL_STARTS, "container-start") as pool:
            for future in [pool.submit(self.container, number) for number in numbers]:
                if not isinstance(future.exception(), EngineError | StorageError | None):
                    future.result()
        return {number: self.status(number) for number in numbers}

    def status(self, number: int) -> Status:
        """The condition of a container in this process."""
        failures, cause = self._failures.get(number, (0, None))
        container = self._containers.get(number)
        if failures >= MOST_RESTARTS:
            return Status(Condition.POISONED, failures, cause)
        if failures:
            return Status(Condition.OFFLINE, failures, cause)
        if container is None:
            return Status(Condition.STOPPED)
        return Status(Condition.OFFLINE, 0, container.failure) if container.offline else Status(Condition.ONLINE)

    def restart(self, number: int) -> Container:
        """Start a container that is poisoned or offline, with a failure count of 0."""
        self._failures.pop(number, None)
        return self.container(number)

    def stop(self, number: int) -> None:
        """Finish what was submitted to a container, and close it."""
        container = self._containers.pop(number, None)
        if container is not None:
            container.close()

    def close(self) -> None:
        """Stop all containers. An error does not stop the rest; the first one is raised."""
        errors = []
        for number in list(self._containers):
            try:
                self.stop(number)
            except (EngineError, StorageError) as error:
                errors.append(error)
        if errors:
            raise errors[0]
