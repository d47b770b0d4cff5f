"""The containers of a process: started when they are needed, watched, and isolated from each other's failures.

A container that went offline is started again at its next use (Pravega: SegmentContainerRegistry leaves that to the
controller). One that fails to start repeatedly is not started until an operator asks for it: the restart counter of the
Segment Store design. A storage that does not answer is no failure of the container: who uses it starts it again as
soon as the storage answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from chunkstore import StorageError, StorageUnavailable
from engine.errors import ContainerOffline, EngineError

if TYPE_CHECKING:
    from engine.containers.container import Container

MOST_RESTARTS = 5
"""Failed starts in a row after which a container is not started any more. Outages of the storage do not count."""


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
        except StorageUnavailable:
            raise
        except (EngineError, StorageError) as error:
            self._failures[number] = failures + 1, error
            raise
        self._failures.pop(number, None)
        return container

    @property
    def online(self) -> list[int]:
        """The containers that are started and have not failed."""
        return [number for number, container in self._containers.items() if not container.offline]

    def restart(self, number: int) -> Container:
        """Start a container, with a failure count of 0."""
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
