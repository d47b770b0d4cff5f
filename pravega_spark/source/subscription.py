"""A streaming query as a subscriber of the streams that it reads: their retention waits for it (PDP-47).

It subscribes where it begins, and releases what Spark has committed: no more often than it is told, as each release is
an append. Spark tells of a commit when it begins the next batch, and kills the process that has this when a query
ends; so what a batch begins with is released too, and where a query restarts, what was read before. Retention goes on
without it when the policy's maximum is reached, and when somebody removes the subscriber.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Mapping

from chunkstore import StorageError
from engine.errors import EngineError
from pravega_spark.errors import InvalidStreamCut, PositionLost, StreamNotFound
from pravega_spark.streams.maintenance.subscribers import (
    NotSubscribed,
    query_subscriber,
    release,
    subscribe,
    subscribers,
)
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.stream import Stream

logger = logging.getLogger(__name__)


class Subscription:
    """The subscriptions of a query to its streams. interval: seconds between two releases, at least."""

    def __init__(self, name: str, interval: float, stream: Callable[[str], Stream]) -> None:
        self._name = query_subscriber(name)
        self._interval = interval
        self._stream = stream
        self._last = -interval
        self._kept: dict[str, StreamCut] = {}
        self._released: dict[str, StreamCut] = {}
        self._told: set[str] = set()

    def begin(self, cuts: Mapping[str, StreamCut], *, anew: bool, restarted: bool = False) -> None:
        """Hold back what lies behind these cuts. anew: even if a query of this name had released more. restarted: the
        query goes on from its checkpoint; it may have had another name before, which is nowhere recorded."""
        for name, cut in cuts.items():
            stream = self._stream(name)
            if restarted:
                tell_other_queries(stream, self._name)
            subscribe(stream, self._name, cut, restart=anew)

    def committed(self, cuts: Mapping[str, StreamCut]) -> None:
        """The query needs nothing before these cuts any more: release it now, or later with more."""
        self._kept |= {name: cut for name, cut in cuts.items() if cut != self._released.get(name)}
        if self._kept and time.monotonic() - self._last >= self._interval:
            self.release()

    def release(self) -> None:
        """Release all that was committed. Never raises: what is held back too long is released the next time."""
        self._last = time.monotonic()
        for name, cut in list(self._kept.items()):
            try:
                release(self._stream(name), self._name, cut)
            except (StreamNotFound, PositionLost):
                pass  # which the read will tell
            except (NotSubscribed, InvalidStreamCut) as error:
                self._tell(
                    f"The query's subscriber does not release what was read of stream {self._stream(name).key}: "
                    f"{error}. Each query needs a name of its own as option 'subscriber'."
                )
            except (StorageError, EngineError) as error:
                logger.warning("What a query has read was not released, and will be later: %s", str(error))
                continue
            self._released[name] = self._kept.pop(name)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            logger.warning(text)


def tell_other_queries(stream: Stream, name: str | None) -> None:
    """Log which queries a stream's retention waits for, when one goes on from its checkpoint that is none of them: one
    may be the same query by the name that it had before. name: of the query now, None for none."""
    there = [each for each in subscribers(stream, refresh=False) if each.startswith(query_subscriber(""))]
    if not there or name in there:
        return
    wal = stream.root.config.wal
    command = (
        f"pravega-spark --root {shlex.quote(stream.root.stores.chunks.root)} "
        f"{f'--wal {shlex.quote(wal)} ' if wal else ''}stream unsubscribe {stream.key} {shlex.quote(there[0])} --yes"
    )
    now = f"{name} is new among them" if name is not None else "this query is none of them, without option 'subscriber'"
    logger.log(
        logging.WARNING if name is not None else logging.INFO,
        f"A query goes on from its checkpoint. Retention waits for these queries of stream {stream.key}: "
        f"{', '.join(there)}; {now}. If one is this query by an earlier name, it holds data back for good: remove it "
        f"by `{command}`, or StreamManager.remove_subscriber{(stream.scope, stream.name, there[0])!r}",
    )
