"""What is true of a log, whatever processes believe: which frames are live, and what state they make.

The chain is the live frames in their order (W1), noted at the moment when each is made: later some of them are deleted.
A frame is decoded, and what it says is applied, by the product's own code.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

from engine.logs import frames
from engine.logs.frames import START, Frame, Kind, Position
from engine.logs.log import address_of, checkpoints_folder, frames_folder
from engine.logs.replay import apply_frame
from engine.state.operations import UpdateAttributes, decode_transactions
from engine.state.segments import FrameRef
from engine.state.state import EMPTY, State
from tests.exhaustive.storage import Storage

SEGMENT = "scope/stream/0"
"""The segment that processes write to."""

FRAMES, CHECKPOINTS = frames_folder(0), checkpoints_folder(0)

Chain: TypeAlias = tuple[bytes, ...]
"""The live frames, as objects."""

Digest: TypeAlias = tuple[int, tuple[tuple[bytes, int], ...]]
"""What is compared of a state: the number of operations, and which records it has, how often each."""


@lru_cache(1 << 16)
def decoded(content: bytes) -> Frame:
    """A frame."""
    address = frames.BODY.unpack_from(content)[8]
    return frames.decode(content, f"{FRAMES}{address:020d}", 0, address, whole=True)


def grown(chain: Chain, storage: Storage) -> Chain:
    """The chain after a frame was made."""
    there = {address_of(path): content for path, content, _ in storage if path.startswith(FRAMES)}
    head = decoded(chain[-1]).position if chain else START
    address = head.address + 1
    while address in there:
        if _is_live(decoded(there[address]), head):
            chain, head = (*chain, there[address]), decoded(there[address]).position
        address += 1
    return chain


def _is_live(frame: Frame, head: Position) -> bool:
    """W1, said once more: a product that takes void frames for live ones would agree with itself."""
    own, named = frame.position, frame.predecessor
    follows = (named.address, named.writer, named.seal) == (head.address, head.writer, head.seal)
    return follows and frame.kind is not Kind.BELL and own.epoch == head.epoch + (own.writer != head.writer)


@lru_cache(1 << 16)
def records_in(content: bytes) -> tuple[bytes, ...]:
    """The records that a frame has: of those that a writer wrote itself, and of those that it carries."""
    frame = decoded(content)
    transactions = decode_transactions(frame.meta, FrameRef(frame.position.address, frame.payload_start))
    operations = [operation for _, each in transactions for operation in each]
    updates = [operation.updates for operation in operations if isinstance(operation, UpdateAttributes)]
    return tuple(update.attribute for each in updates for update in each)


@lru_cache(1 << 16)
def state_after(chain: Chain) -> State:
    """The state that a chain makes."""
    return apply_frame(state_after(chain[:-1]), decoded(chain[-1]), 0) if chain else EMPTY


def digest(state: State) -> Digest:
    """What is compared of a state."""
    segment = state.segments.get(SEGMENT)
    attributes: Any = segment.attributes if segment is not None else {}
    return state.sequence, tuple(sorted(attributes.items()))


@lru_cache(1 << 16)
def digest_after(chain: Chain) -> Digest:
    """Of the state that a chain makes."""
    return digest(state_after(chain))


@lru_cache(1 << 16)
def place_of(chain: Chain, address: int) -> int:
    """How many frames of a chain lie up to an address, which is that of one of them; -1 if it is not. 0: the log's
    beginning."""
    if address == START.address:
        return 0
    addresses = [decoded(content).position.address for content in chain]
    return addresses.index(address) + 1 if address in addresses else -1
