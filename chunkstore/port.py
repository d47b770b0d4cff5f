"""The storage port: the only way in which anything in this project touches storage.

A `Store` is a flat map from paths to objects below one root. The write-ahead log relies on two guarantees of it (W1,
W2, W8): an object appears whole or not at all; and if several writers create one path with `put_if_absent`, exactly one
succeeds and learns that it did, even if a retry in a library or a lost response says otherwise. The second promise
needs every such object to begin with a token that is unique for the attempt: in doubt the store reads it back and
compares. If the token is the caller's, it compares the whole object: two copies of one memory image (a cloned machine,
a fork that Python does not notice) have the same tokens (W15).

Stores are synchronous and may be used by many threads. They survive a fork, or refuse to be used after it. They are
never pickled: build them where they are used. Where an answer carries the storage's time, the store notes it
(`chunkstore.stamps`). Paths are relative, separated by "/", and checked (`check_path`).
"""

from __future__ import annotations

import abc
import builtins
import contextlib
import enum
import logging
import math
import re
import uuid
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, SupportsIndex

from chunkstore.errors import ObjectNotFound, StorageRefused, Unsupported
from chunkstore.room import USERS_DATA

TOKEN = 24
"""Bytes at the beginning of every object made by `put_if_absent`: writer id (16) and attempt (8), unique for ever."""

LONGEST_PATH = 900
"""Bytes (UTF-8) that a path may have; S3 allows 1,024 for root and path together."""

_PLAIN_PATH = re.compile(r"[ -\-0-~][ -.0-~]*(/[ -\-0-~][ -.0-~]*)*")
"""Paths of printable ASCII, none of whose parts is empty or begins with a dot."""

_MOST_FOREIGN = 1000

_log = logging.getLogger(__name__)

Data = bytes | bytearray | memoryview
"""What can be stored: anything bytes-like and C-contiguous."""

Parts = Data | Sequence[Data]
"""Data, or several pieces of it that are stored one behind the other."""


class Outcome(enum.Enum):
    """The result of a `put_if_absent`: the object is the caller's, or another writer's."""

    MINE = "mine"
    ANOTHERS = "another's"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing: its size in bytes, and when it was last changed by the store's clock (epoch s)."""

    path: str
    size: int
    modified: float


class Range(NamedTuple):
    """A byte range of an object; `end` is exclusive, None means to the end of the object."""

    path: str
    start: int = 0
    end: int | None = None


def check_path(path: str) -> None:
    """Raise ValueError unless `path` names an object on every backend and cannot leave the root."""
    if len(path) <= LONGEST_PATH and _PLAIN_PATH.fullmatch(path):  # nearly all are
        return
    if not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"storage path {path!r} is not relative with non-empty parts other than '.' and '..'")
    if "\0" in path:
        raise ValueError(f"storage path {path!r} contains a NUL character")
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise ValueError(f"storage path {path!r} is not valid Unicode text") from None
    if length > LONGEST_PATH:
        raise ValueError(f"storage path {path[:60]!r}… has {length} bytes; at most {LONGEST_PATH} are allowed")


def check_prefix(prefix: str) -> None:
    """Raise ValueError unless `prefix` is a folder, as in "a/b/", or "" for the whole root."""
    if prefix:
        if not prefix.endswith("/"):
            raise ValueError(f"listing prefix {prefix!r} is not a folder: it must end in '/'")
        check_path(prefix[:-1])


def check_range(path: str, start: int, end: int | None) -> None:
    """Raise ValueError unless 0 <= start <= end."""
    if start < 0 or (end is not None and end < start):
        raise ValueError(f"range [{start}, {end}) of {path!r} is not a byte range")


def token_of(data: Parts) -> bytes:
    """The token that `data` begins with, in its first piece; ValueError if that is too short to hold one."""
    view = memoryview(next(iter(pieces_of(data)), b"")).cast("B")
    if len(view) < TOKEN:
        raise ValueError(f"put_if_absent needs data that begins with a token of {TOKEN} bytes; got {len(view)} bytes")
    return bytes(view[:TOKEN])


def pieces_of(data: Parts) -> Sequence[Data]:
    """The pieces of `data`."""
    return (data,) if isinstance(data, Data) else data


def joined(data: Parts) -> Data:
    """`data` as one piece, for a storage that takes no pieces."""
    return data if isinstance(data, Data) else b"".join(data)


def same_content(stored: Data, data: Parts) -> bool:
    """Whether an object has exactly the bytes of `data`; nothing is copied."""
    view, place = memoryview(stored).cast("B"), 0
    for piece in pieces_of(data):
        part = memoryview(piece).cast("B")
        if view[place : place + len(part)] != part:
            return False
        place += len(part)
    return place == len(view)


def length_of(data: Parts) -> int:
    """How many bytes `data` has."""
    return sum(memoryview(piece).nbytes for piece in pieces_of(data))


class Store(abc.ABC):
    """Objects below one root. Every method may raise StorageError or one of its subclasses (`chunkstore.errors`).

    `root`: a URL without credentials, for messages. `remote`: a request costs tens of milliseconds. `can_append`:
    whether `append` is offered. `host_clock`: `clock` may be this host's own, which can be stepped.
    `dated`: the answer to a listing carries the storage's time (`chunkstore.stamps`).
    """

    root: str
    remote: bool
    can_append: bool
    host_clock: bool = False
    dated: bool = False

    @abc.abstractmethod
    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end) of an object; fewer if it ends before, none if it ends at or before `start`.

        Raises ObjectNotFound.
        """

    def read_into(self, path: str, start: int, room: memoryview) -> int:
        """Fill `room` with the bytes from `start` on and return how many there were; spares fresh memory for each read.

        Raises ObjectNotFound.
        """
        data = self.read(path, start, start + room.nbytes)
        room[: len(data)] = data
        return len(data)

    def read_ranges(self, ranges: Sequence[Range]) -> builtins.list[bytes | None]:
        """What `read` returns for each range, in their order, and None where the object is absent."""
        results: list[bytes | None] = []
        for path, start, end in ranges:
            try:
                results.append(self.read(path, start, end))
            except ObjectNotFound:
                results.append(None)
        return results

    @abc.abstractmethod
    def put(self, path: str, data: Parts) -> None:
        """Make or overwrite an object: readers see the old bytes or the new, and it is durable on return."""

    def post(self, path: str, data: Parts) -> None:
        """Like `put`, for a message between processes: it need not survive a crash of their machine."""
        self.put(path, data)

    @abc.abstractmethod
    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        """Make an object unless one exists: atomic, and durable on return. `data` must begin with a unique token.

        Outcome.MINE: the object there has these bytes (so after an unknown outcome the same bytes may be put again).
        Outcome.ANOTHERS: another object is there, be it with the same token (W15). Raises PutUnknown whenever the
        object may have been made, or may still be; any other error means that it was not, and will not be, made by
        this request.
        """

    def holds(self, path: str, data: Parts) -> bool:
        """Whether the object has these bytes. Of an object with another token only the token is read.

        Raises ObjectNotFound.
        """
        token = token_of(data)
        return self.read(path, 0, len(token)) == token and same_content(self.read(path), data)

    def append(self, path: str, offset: int, data: Data) -> None:
        """Add bytes at the end of an object, which must be at `offset`; durable on return, not atomic for readers.

        Raises InvalidOffset if the object's size is not `offset`, ObjectNotFound, and Unsupported if not `can_append`.
        """
        raise Unsupported(f"{self.root}: objects cannot be appended to here; put a new object instead of {path!r}")

    def link(self, path: str, source: Store, name: str) -> None:
        """Make an object here of the object `name` of another store, without moving its bytes; durable on return.

        From then on each of them may be deleted or overwritten, and the other one stays. If there is an object at
        `path` already that was linked so, nothing happens. Raises ObjectNotFound; Unsupported where this cannot be
        done, or not between these stores.
        """
        raise Unsupported(f"{self.root}: objects of {source.root} cannot be linked here, so neither can {name!r}: copy")

    def set_read_only(self, path: str, read_only: bool) -> None:
        """Let `append` to an object raise ObjectReadOnly from now on, or no longer.

        It may be overwritten and deleted all the same. Raises ObjectNotFound, and Unsupported where this cannot be
        done.
        """
        raise Unsupported(f"{self.root}: objects cannot be made read-only here, so neither can {path!r}")

    @abc.abstractmethod
    def list(self, prefix: str, after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        """All objects below the folder `prefix` ("a/b/", "" = root) with path > `after`, sorted, at most `limit`.

        Objects that exist throughout the call are in it; it is never served from a cache.
        """

    @abc.abstractmethod
    def stat(self, path: str) -> ObjectInfo:
        """Size and time of an object. Raises ObjectNotFound."""

    @abc.abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, in any order; what is absent counts as deleted. May be repeated after an error."""

    def sync(self, prefix: str) -> None:  # noqa: B027 - most stores show only what is durable
        """Make all objects in the folder `prefix` ("a/b/", "" = root) durable, whichever process put them.

        For a caller that acts on objects that another process may not have synced yet.
        """

    def check_room(self, needed: int = 0, part: float = USERS_DATA) -> None:  # noqa: B027 - most stores cannot tell
        """Raise StorageFull if, with `needed` bytes more, less would be free than that part of what is kept for what
        frees space (P6). For a caller that adds data."""

    def largest_object(self) -> float:
        """The most bytes of an object that fits in now, without taking what is kept for what frees space (P6)."""
        return math.inf

    def mark(self, path: str) -> Hashable:
        """A value that changes when the object is created, replaced or deleted; None where it would cost a request."""
        return None

    def neighbours(self) -> builtins.list[str]:
        """Places beside this root with names like its name, the most similar first, as far as that costs no request."""
        return []

    def passed_over(self) -> Mapping[str, str]:
        """What listings have met so far that is no object: names, printable, and what each is. At most 1,000 of them.

        Links, names that are no paths, and other foreign files. They are never read, followed or deleted.
        """
        return dict(vars(self).get("_foreign", {}))

    def pass_over(self, name: str, what: str) -> None:
        """Remember the name of something that is not an object; the first one is logged."""
        foreign: dict[str, str] = vars(self).setdefault("_foreign", {})
        shown = name.encode(errors="backslashreplace").decode()
        if len(foreign) < _MOST_FOREIGN and shown not in foreign:
            if not foreign:
                _log.warning("%s: %r is ignored (%s); further such names are not logged", self.root, shown, what)
            foreign[shown] = what

    def _can_name(self, path: str) -> bool:
        """Whether a name that was listed can be that of an object; if not it is passed over."""
        try:
            self._check_path(path)
        except ValueError as error:
            self.pass_over(path, "an object that stands for a folder" if path.endswith("/") else str(error))
            return False
        return True

    def _check_path(self, path: str) -> None:
        """Raise ValueError unless `path` can name an object here."""
        check_path(path)

    def clock(self) -> float:
        """Now, in seconds since the epoch, by the clock that stamps `ObjectInfo.modified`."""
        probe = f".clock/{uuid.uuid4().hex}"
        self.put(probe, b"")
        try:
            return self.stat(probe).modified
        finally:
            with contextlib.suppress(StorageRefused):  # a writer that may not delete: see Least-privilege policies
                self.delete([probe])

    def close(self) -> None:  # noqa: B027 - most stores hold nothing
        """Close connections. The store must not be used afterwards."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        # A pickled store would carry its credentials to wherever the pickle goes.
        raise TypeError(f"{self!r} cannot be pickled: open the store in the process that uses it")
