"""Records are read back before they are stored (W14): decoding the stored form must give the same record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from chunkstore.decoding import InvalidData, decoding
from chunkstore.errors import fact_of
from engine.errors import DataCorruption
from pravega_spark.errors import StreamError

T = TypeVar("T")


class UnreadableRecord(StreamError, ValueError):
    """A record that cannot be read back, because it has an invalid value. Nothing was stored.

    what: the record, in words.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(
            f"{what} was not stored, as it could not be read back: {problem}. Nothing was changed: correct this value"
        )
        self.what = what


def readable(what: str, record: T, write: Callable[[T], bytes], read: Callable[[bytes], T]) -> bytes:
    """The bytes of a record that `read` decodes to the same record. what: the record, for the error.

    Raises UnreadableRecord.
    """
    try:
        with decoding():
            data = write(record)
            found = read(data)
    except InvalidData as problem:
        raise UnreadableRecord(what, str(problem)) from None
    except DataCorruption as damage:  # which names a stored object, and how to restore it: here there is none
        raise UnreadableRecord(what, damage.problem or fact_of(damage)) from None
    if found != record:
        raise UnreadableRecord(what, f"of {record!r} would come {found!r}")
    return data
