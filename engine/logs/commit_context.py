"""What the parts of an operation processor share: the log as read, the queue, and the ways out of the container."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.logs.acknowledgements import Acknowledgements
from engine.logs.commit_queue import CommitQueue
from engine.logs.mailbox import OwnMailbox
from engine.logs.replica import Replica
from engine.settings import Settings


@dataclass(frozen=True)
class CommitContext:
    """What the frame sender, the frame settler, the submitter and the carrier share. Callers of these hold the
    processor's log lock.

    fail: takes the container offline. notify: called when a request in the background has its answer; None: no thread
    waits for that. clock, sleep: seconds of a monotonic clock, and how to wait for them.
    """

    replica: Replica
    queue: CommitQueue
    acknowledgements: Acknowledgements
    mailbox: OwnMailbox
    settings: Settings
    fail: Callable[[BaseException], None]
    notify: Callable[[Any], None] | None
    clock: Callable[[], float]
    sleep: Callable[[float], None]
