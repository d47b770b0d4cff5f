"""A streaming query as a subscriber of the streams that it reads: their retention waits for it (PDP-47).

The query subscribes at the cut at which it begins, and releases what Spark has committed. It does so at most once per
interval, as each release is an append. Spark calls `commit` only when it begins the next batch, and kills this process
when the query ends. So each poll releases the start of its batch too, which a restarted query has from its checkpoint.
Retention stops waiting if the policy's maximum is reached, or if a user removes the subscriber.
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
    """The subscriptions of a query to its streams.

    interval: minimum seconds between two releases. stream: returns a stream by name. warn_once: logs a warning.
    """

    def __init__(
        self, name: str, interval: float, stream: Callable[[str], Stream], warn_once: Callable[[str], None]
    ) -> None:
        self._name = query_subscriber(name)
        self._interval = interval
        self._stream = stream
        self._warn_once = warn_once
        self._last = -interval
        self._pending: dict[str, StreamCut] = {}
        self._released: dict[str, StreamCut] = {}

    def begin(self, cuts: Mapping[str, StreamCut], *, anew: bool, restarted: bool = False) -> None:
        """Let retention keep the events from these cuts on.

        anew: also if an earlier query of this name had released more. restarted: the query continues from its
        checkpoint. It may have had another name before, which is not recorded anywhere.
        """
        for name, cut in cuts.items():
            stream = self._stream(name)
            if restarted:
                log_other_queries(stream, self._name)
            subscribe(stream, self._name, cut, restart=anew)

    def committed(self, cuts: Mapping[str, StreamCut]) -> None:
        """Release what lies before these cuts, which the query does not need any more; now, or with a later release."""
        self._pending |= {name: cut for name, cut in cuts.items() if cut != self._released.get(name)}
        if self._pending and time.monotonic() - self._last >= self._interval:
            self.release()

    def release(self) -> None:
        """Release all that was committed. Never raises: what could not be released now is released the next time."""
        self._last = time.monotonic()
        for name, cut in list(self._pending.items()):
            try:
                release(self._stream(name), self._name, cut)
            except (StreamNotFound, PositionLost):
                pass  # the next poll reports it
            except (NotSubscribed, InvalidStreamCut) as error:
                self._warn_once(
                    f"The query's subscriber cannot release what was read of stream {self._stream(name).key}: {error}. "
                    "Each query needs a name of its own as option 'subscriber'."
                )
            except (StorageError, EngineError) as error:
                logger.warning("A query could not release what it has read, and will try again: %s", str(error))
                continue
            self._released[name] = self._pending.pop(name)


def log_other_queries(stream: Stream, name: str | None) -> None:
    """Log for which queries a stream's retention waits, if a query that continues from its checkpoint is none of these.

    One of them may be the same query under an earlier name. name: the query's name now, None if it has none.
    """
    there = [each for each in subscribers(stream, refresh=False) if each.startswith(query_subscriber(""))]
    if not there or name in there:
        return
    wal = stream.root.config.wal
    command = (
        f"pravega-spark --root {shlex.quote(stream.root.stores.chunks.root)} "
        f"{f'--wal {shlex.quote(wal)} ' if wal else ''}stream unsubscribe {stream.key} {shlex.quote(there[0])} --yes"
    )
    now = f"{name} is new" if name is not None else "this query has no option 'subscriber', so it is not one of them"
    logger.log(
        logging.WARNING if name is not None else logging.INFO,
        f"A query continues from its checkpoint. Retention of stream {stream.key} waits for these queries: "
        f"{', '.join(there)}; {now}. If one of them is this query under an earlier name, retention waits for it "
        f"forever: remove it with `{command}`, "
        f"or StreamManager.remove_subscriber{(stream.scope, stream.name, there[0])!r}",
    )
