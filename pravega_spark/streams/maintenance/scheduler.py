"""Maintenance after commits: retention and scaling by the stream's policies.

Jobs can do the same, but are not required. A commit only checks the state known to this process; once in a minute it
waits for due maintenance. Failures are logged, shown with the container's other failures, and retried by a later
commit. They stop neither the writer nor a job.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from weakref import WeakKeyDictionary

from chunkstore import StorageError
from engine.errors import EngineError
from engine.root import Root
from pravega_spark.errors import StreamError
from pravega_spark.streams.maintenance import retention, scaling
from pravega_spark.streams.stream import Stream

logger = logging.getLogger(__name__)

PAUSE = 60.0
"""Seconds between two checks of a process."""

_lock = threading.Lock()  # released in a fork, whichever thread forks
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_looked: WeakKeyDictionary[Root, dict[str, float]] = WeakKeyDictionary()


def after_commit(stream: Stream) -> None:
    """Called after each commit to a stream. Never raises."""
    if not _is_time(stream):
        return
    kind = f"policies of {stream.key}"
    try:
        record = stream.snapshot(refresh=False).record
        if record.retention is not None and retention.due(stream):
            retention.retain(stream)
        if record.scaling.kind != "fixed":
            scaling.scale(stream)
        stream.container.background.note(kind, None)
    except (StreamError, EngineError, StorageError) as error:
        stream.container.background.note(kind, error)
        logger.warning("stream %s: applying its policies failed and will be retried: %s", stream.key, str(error))
    except Exception as error:
        stream.container.background.note(kind, error)
        logger.exception("stream %s: applying its policies failed unexpectedly and will be retried", stream.key)


def _is_time(stream: Stream) -> bool:
    now = time.monotonic()
    with _lock:
        looked = _looked.setdefault(stream.root, {})
        if now - looked.get(stream.key, -PAUSE) < PAUSE:
            return False
        looked[stream.key] = now
        return True
