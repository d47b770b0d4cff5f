"""How a process finds out which readers of a group are gone.

No two clocks are compared: a process counts by its own monotonic one, from when it first saw a reader's last beat. So
no reader is taken for gone before the time of the lease has passed since it was heard of.
"""

from __future__ import annotations

from pravega_spark.client.groups.state import GroupState


class Leases:
    """Which readers have not been heard of for the time of a lease."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int, float]] = {}

    def expired(self, state: GroupState, now: float) -> list[tuple[str, str, int]]:
        """Name, token and last beat of each reader that is taken for gone. `now`: seconds."""
        seen = {}
        for name, reader in state.readers.items():
            before = self._seen.get(name)
            same = before is not None and before[:2] == (reader.token, reader.beat)
            seen[name] = before if before is not None and same else (reader.token, reader.beat, now)
        self._seen = seen
        return [(name, token, beat) for name, (token, beat, since) in seen.items() if now - since >= state.lease]
