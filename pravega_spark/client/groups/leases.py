"""Detects readers of a group whose lease has expired.

Clocks of two hosts are never compared: a process measures by its own monotonic clock, from when it first observed a
reader's last beat. So a reader is declared dead only if the lease has passed since it last recorded a beat.
"""

from __future__ import annotations

from pravega_spark.client.groups.state import GroupState


class Leases:
    """The readers without a new beat for the time of a lease."""

    def __init__(self) -> None:
        self._observed: dict[str, tuple[str, int, float]] = {}

    def expired(self, state: GroupState, now: float) -> list[tuple[str, str, int]]:
        """Name, token and last beat of each reader whose lease has expired. `now`: seconds."""
        observed = {}
        for name, reader in state.readers.items():
            before = self._observed.get(name)
            same = before is not None and before[:2] == (reader.token, reader.beat)
            observed[name] = before if before is not None and same else (reader.token, reader.beat, now)
        self._observed = observed
        return [(name, token, beat) for name, (token, beat, since) in observed.items() if now - since >= state.lease]
