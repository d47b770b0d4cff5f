"""Members of a cluster: processes that agree on who is in it, by updates in a stream.

python examples/shared_state.py /data/streams
"""

import json
import sys
import tempfile
from dataclasses import dataclass

from pravega_spark import Revision, Serializer, StateSynchronizer, StreamManager, Update

SCOPE, STREAM, PLACES = "examples", "members", 2

State = frozenset[str]


@dataclass(frozen=True)
class Begin:
    """The initial update: a whole set."""

    members: State = frozenset()

    def create(self, scoped_stream_name: str, revision: Revision) -> State:
        return self.members


@dataclass(frozen=True)
class Join:
    """One more member."""

    name: str

    def apply_to(self, old_state: State, new_revision: Revision) -> State:
        return old_state | {self.name}


BEGINS = Serializer(
    lambda update: json.dumps(sorted(update.members)).encode(), lambda data: Begin(frozenset(json.loads(data)))
)
JOINS = Serializer(lambda update: update.name.encode(), lambda data: Join(data.decode()))


def join(members: StateSynchronizer[State], name: str) -> bool:
    """Take a place, if one is free: of several processes that want the last one, exactly one gets it."""

    def decide(state: State, updates: list[Update[State]]) -> bool:
        if name not in state and len(state) < PLACES:
            updates.append(Join(name))
            return True
        return name in state

    return members.update_state(decide)


def run(root: str) -> dict[str, bool]:
    """Three processes, here three synchronizers, and two places. Returns who got one."""
    with StreamManager(root) as manager:
        manager.create_scope(SCOPE)
        manager.create_stream(SCOPE, STREAM)
        joined = {}
        for name in ("worker-1", "worker-2", "worker-3"):
            with manager.create_state_synchronizer(SCOPE, STREAM, JOINS, BEGINS) as members:
                members.initialize(Begin())
                joined[name] = join(members, name)
                if members.bytes_written_since_compaction() > 1 << 20:
                    members.compact(Begin)
        return joined


if __name__ == "__main__":
    print(run(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
