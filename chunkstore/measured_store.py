"""A store that measures each request, as the layer "storage", and logs it at level DEBUG. `open_store` returns it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from chunkstore.metrics import default_metrics
from chunkstore.port import Store
from chunkstore.wrapping import Request, Result, WrappingStore, bytes_in

_log = logging.getLogger(__name__)


class MeasuredStore(WrappingStore):
    """Measures and logs what passes to `inner`, an adapter."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._layer = default_metrics().layer("storage")

    def link(self, path: str, source: Store, name: str) -> None:
        super().link(path, source.inner if isinstance(source, MeasuredStore) else source, name)

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        moved, failure = 0, None
        started = time.perf_counter()
        try:
            result = call()
            moved = request.sent or bytes_in(result)
            return result
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            seconds = time.perf_counter() - started
            self._layer.add(request.verb, seconds, moved, failure)
            if _log.isEnabledFor(logging.DEBUG):
                outcome = failure or "done"
                _log.debug("%s %s: %s, %d bytes, %.4f s", request.verb, request.paths, outcome, moved, seconds)
