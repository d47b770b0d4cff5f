"""The errors of the storage port and of the metadata store.

Each message names the root, the object where there is one, what went wrong, and what to do. No message ever holds a
storage option's value, so credentials cannot reach a log through an error.
"""

from __future__ import annotations

from typing import Any


class DeclaredError(Exception):
    """Base of the errors of this project. It is the same after pickling, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _pickled, (type(self), self.args, dict(vars(self)))


def _pickled(kind: type[DeclaredError], args: tuple[Any, ...], state: dict[str, Any]) -> DeclaredError:
    error = kind.__new__(kind, *args)
    error.args = args  # OSError leaves that to its constructor
    vars(error).update(state)
    return error


class Damaged(DeclaredError):
    """Base of the errors about what is missing in the storage, or is not what was written there.

    `str` of it ends in what to do about it, `remedy`; `fact_of` gives what is wrong alone.
    """

    remedy = "Restore it from a backup."

    def __str__(self) -> str:
        fact = fact_of(self)
        return f"{fact}{'' if fact.endswith('.') else '.'} {self.remedy}" if fact else self.remedy


def forget_frames(error: BaseException) -> None:
    """Take the tracebacks from an exception that is not passed on, and from those that it names.

    The frames of a failed request hold its body, its responses and the exception itself. Such a cycle stays until
    Python's collector looks at old objects: an outage would fill the memory of a busy process with them.
    """
    found, seen = [error], set()
    while found:
        one = found.pop()
        if id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            chained = (one.__cause__, one.__context__, *getattr(one, "exceptions", ()))
            found += (each for each in chained if isinstance(each, BaseException))


def fact_of(error: BaseException) -> str:
    """What is wrong, without what to do about it: for messages that say that themselves."""
    return Exception.__str__(error) if isinstance(error, Damaged) else str(error)


class StorageError(DeclaredError):
    """Base of all errors of the storage port. Raised itself when the request was refused for good (disk full, …)."""


class ObjectNotFound(StorageError):
    """The object does not exist (now)."""


class StorageUnavailable(StorageError):
    """The store did not answer, or asked to come back later. Reads and idempotent requests may be repeated."""


class PutUnknown(StorageError):
    """A `put_if_absent` that may have happened, or may happen yet. Settle it with the same bytes at the same path."""


class InvalidOffset(StorageError):
    """An append at a place that is not the end of the object: `expected` is its size in bytes, `given` the offset."""

    def __init__(self, message: str, expected: int, given: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.given = given


class Unsupported(StorageError):
    """The backend does not offer this operation (for these objects)."""


class StorageFull(StorageError):
    """There is no room left: a disk, a quota. Free some; what was to be written was not."""


class ObjectReadOnly(StorageError):
    """The object, or the handle through which it was to be changed, is for reading only."""


class StorageRefused(StorageError):
    """The root cannot be used as it is: wrong URL or options, no permission, or it failed the self-test."""


class InvalidRecord(Damaged, StorageError):
    """A metadata record that contradicts itself: `field` is the field that cannot be right."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class MetadataConflict(StorageError):
    """Another transaction changed `keys` while this one was open. Nothing was changed; begin it again."""

    def __init__(self, message: str, keys: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.keys = keys
