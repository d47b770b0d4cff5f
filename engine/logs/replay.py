"""A live frame applied to a state: by whoever follows the log, and whoever verifies it."""

from __future__ import annotations

from engine.errors import DataCorruption, Rejected, understanding
from engine.logs.frames import Frame, Kind
from engine.logs.log import repair_of
from engine.state.changes.change import replay
from engine.state.operations import decode_transactions
from engine.state.segments import FrameRef
from engine.state.state import State

_REMEDY = "Restore the object from a copy"


def apply_frame(state: State, frame: Frame, path: str) -> State:
    """The state after a live frame, the object `path`.

    Raises DataCorruption for one that cannot be applied: then the log is not what was written.
    """
    own = FrameRef(frame.position.address, frame.payload_start)
    if frame.kind is Kind.REPAIR:
        return state._replace(orphan_horizon=max(state.orphan_horizon, repair_of(frame, path).orphan_horizon))
    try:
        with understanding(path, _REMEDY):
            return replay(state, decode_transactions(frame.meta, own), frame.position.address)
    except Rejected as error:
        raise DataCorruption(f"{path}: it cannot be applied: {error}. {_REMEDY}") from error
