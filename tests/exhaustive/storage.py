"""A storage as a value, and what requests do to it.

A request is one or several parts, each of which takes effect at a moment of its own: the objects of one deletion, for
example. A part's effect depends on the storage and the time alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from chunkstore import ObjectInfo

UNIT = 1000.0
"""Seconds of one unit of the time."""

EPOCH = 1_000_000_000.0
"""The storage's time of day at the time 0."""

WRITES = frozenset({"put", "put_if_absent", "delete"})
"""Verbs whose requests may take effect after their sender was told that they failed."""


class Object(NamedTuple):
    """An object. time: when it was made."""

    path: str
    content: bytes
    time: int


Storage: TypeAlias = tuple[Object, ...]
"""The objects, by their paths."""


class Request(NamedTuple):
    """A request. paths: the objects, or the prefix of a listing. content: what is put. rest: further arguments."""

    verb: str
    paths: tuple[str, ...]
    content: bytes = b""
    rest: tuple[Any, ...] = ()

    def __str__(self) -> str:
        names = [path.replace("_system/containers/0/", "").replace("0" * 18, "") for path in self.paths]
        return f"{self.verb} {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


class Answer(NamedTuple):
    """What a sender hears. value: of the call. error: "absent" or "unavailable" in its place. time: the storage's, if
    the answer carries it."""

    value: Any = None
    error: str = ""
    time: int | None = None


def parts_of(request: Request, split_reads: bool) -> tuple[Request, ...]:
    """The parts of a request, which take effect in any order."""
    if request.verb == "delete" or (request.verb == "read_ranges" and split_reads):
        pieces = request.rest or ((),) * len(request.paths)
        return tuple(
            Request(request.verb, (path,), b"", (piece,) if piece else ())
            for path, piece in zip(request.paths, pieces, strict=True)
        )
    return (request,)


def joined(request: Request, answers: tuple[Answer, ...]) -> Answer:
    """The answer to a request, of those to its parts."""
    if len(answers) == 1:
        return answers[0]
    times = [answer.time for answer in answers if answer.time is not None]
    value = tuple(value for answer in answers for value in answer.value) if request.verb == "read_ranges" else None
    return Answer(value, "", max(times, default=None))


def effect(storage: Storage, request: Request, time: int) -> tuple[Storage, Answer]:
    """The storage after a request, and the answer."""
    verb, paths, content, rest = request
    if verb == "clock":
        return storage, Answer(EPOCH + time * UNIT, "", time)
    if verb == "list":
        after, limit = rest
        found = [each for each in storage if each.path.startswith(paths[0]) and each.path > after]
        listed = tuple(ObjectInfo(path, len(data), EPOCH + made * UNIT) for path, data, made in found[:limit])
        return storage, Answer(listed, "", time)
    if verb == "delete":
        return tuple(each for each in storage if each.path not in paths), Answer(None, "", time)
    if verb == "read_ranges":
        ranges = zip(paths, rest, strict=True)
        there = {each.path: each.content for each in storage}
        pieces = tuple(there[path][start:end] if path in there else None for path, (start, end) in ranges)
        return storage, Answer(pieces, "", time)
    there_is = next((each for each in storage if each.path == paths[0]), None)
    if verb == "put" or (verb == "put_if_absent" and there_is is None):
        kept = [each for each in storage if each is not there_is]
        return tuple(sorted([*kept, Object(paths[0], content, time)])), Answer(True, "", time)
    if verb == "put_if_absent":
        return storage, Answer(there_is is not None and there_is.content == content, "", time)
    if there_is is None:
        return storage, Answer(None, "absent", time)
    if verb == "stat":
        return storage, Answer(ObjectInfo(paths[0], len(there_is.content), EPOCH + there_is.time * UNIT), "", time)
    assert verb == "read", verb
    start, end = rest
    return storage, Answer(there_is.content[start:end], "", time)
