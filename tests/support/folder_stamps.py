"""A storage whose answers carry the time as those of a folder do."""

from __future__ import annotations

from collections.abc import Callable

from chunkstore import ObjectNotFound, Store, stamps
from chunkstore.testing import Request, WrappingStore
from chunkstore.wrapping import Result


class FolderStamps(WrappingStore):
    """Only answers about objects that are there carry a time: that of their last change."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.dated = False

    def _carry_out(self, request: Request, call: Callable[[], Result]) -> Result:
        with stamps.listening():
            result = call()
            changed = [self._changed(path) for path in request.paths if path and not path.endswith("/")]
        for each in filter(None, changed):
            stamps.note(each)
        return result

    def _changed(self, path: str) -> float | None:
        try:
            return self.inner.stat(path).modified
        except ObjectNotFound:
            return None
