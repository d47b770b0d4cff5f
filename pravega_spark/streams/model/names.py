"""Names of streams, segments and index segments, and the container a name belongs to.

Owns the rule which names users may give (they become folders, so nothing else may reach a path) and keeps X1: the
container is a pure function of the name.
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

from pravega_spark.segment_ids import segment_epoch, segment_id, segment_number
from pravega_spark.streams.model.hashing import murmur64

MAX_SCOPE_NAME = 255
MAX_STREAM_NAME = 250

_CONTAINER_SEED = 1661405012
_INDEX_SUFFIX = "#index"
_EPOCH_MARK = ".#epoch."

_USER_NAME = re.compile(r"[A-Za-z0-9.\-]+")
_STORED_NAME = re.compile(r"_?[A-Za-z0-9.\-]+")
_SEGMENT_NAME = re.compile(
    r"(?:(?P<scope>[^/]+)/)?(?P<stream>[^/]+)/(?P<number>[0-9]{1,10})(?:\.#epoch\.(?P<epoch>[0-9]{1,10}))?"
)
_TRANSACTION_SUFFIX = re.compile(r"#transaction\.[0-9a-f]{32}$")
_TRANSIENT_SUFFIX = re.compile(r"#transient\.[0-9a-f]{32}\.[0-9a-f]{32}$")


class SegmentName(NamedTuple):
    """A parsed segment name. `scope` is empty where the name had none."""

    scope: str
    stream: str
    segment_id: int


def segment_name(scope: str, stream: str, segment: int) -> str:
    """The full name of a segment: `scope/stream/<number>.#epoch.<epoch>`."""
    return f"{scope}/{stream}/{segment_number(segment)}{_EPOCH_MARK}{segment_epoch(segment)}"


def parse_segment_name(name: str) -> SegmentName:
    """Takes a segment name apart; the old form without an epoch is epoch 0. ValueError for anything else."""
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not a segment name: expected scope/stream/<number>.#epoch.<epoch>")
    return SegmentName(
        match["scope"] or "", match["stream"], segment_id(int(match["number"]), int(match["epoch"] or 0))
    )


def index_segment_name(segment: str) -> str:
    """The name of the index segment that belongs to the segment named `segment`."""
    return segment + _INDEX_SUFFIX


def transaction_segment_name(scope: str, stream: str, segment: int, transaction: uuid.UUID) -> str:
    """The name of a transaction's segment that goes with a segment of the stream."""
    return f"{segment_name(scope, stream, segment)}#transaction.{transaction.hex}"


def indexed_segment_name(index_segment: str) -> str:
    """The name of the segment that an index segment describes. ValueError if the name is not an index segment's."""
    segment = index_segment.removesuffix(_INDEX_SUFFIX)
    if segment in ("", index_segment):
        raise ValueError(f"{index_segment!r} is not an index segment name: expected <segment>{_INDEX_SUFFIX}")
    return segment


def validate_scope_name(name: str) -> str:
    """Returns `name` if a user may give it to a scope, else raises ValueError."""
    return _validated("scope", name, _USER_NAME, MAX_SCOPE_NAME)


def validate_stream_name(name: str, what: str = "stream") -> str:
    """Returns `name` if a user may give it to a stream, else raises ValueError.

    what: what else has the name, by the same rule: for the error.
    """
    return _validated(what, name, _USER_NAME, MAX_STREAM_NAME)


def validate_stored_name(name: str) -> str:
    """Returns `name` if a scope or stream may carry it, one of the system's own (`_` in front) included."""
    return _validated("scope or stream", name, _STORED_NAME, MAX_SCOPE_NAME)


def _validated(what: str, name: str, pattern: re.Pattern[str], longest: int) -> str:
    if not isinstance(name, str):
        raise TypeError(f"The {what} name must be a str, not {name!r}")
    if not pattern.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"The {what} name {name!r} {_problem(name)}: use a to z, A to Z, digits, '.' and '-' only.")
    if len(name) > longest:
        raise ValueError(f"The {what} name has {len(name)} characters; choose one of at most {longest}.")
    return name


def _problem(name: str) -> str:
    """The reason why a name is invalid."""
    if not name:
        return "is empty"
    wrong = [repr(each) for each in dict.fromkeys(name) if not _USER_NAME.fullmatch(each)]
    if not wrong:
        return "stands for a folder"
    return f"has the character{'s' if len(wrong) > 1 else ''} {', '.join(wrong)}"


def container_of(name: str, count: int) -> int:
    """The container, of `count`, that holds `name` (a segment of any kind, or `scope/stream`).

    All epochs of a segment number, their transactions, transients, indices and attributes share one container.
    """
    if count <= 0:
        raise ValueError(f"the number of containers must be positive, not {count}")
    return _consistent_hash(murmur64(_primary_name(name), _CONTAINER_SEED), count)


def owner_of(segment: str, count: int) -> int:
    """The container, of `count`, that holds a segment of a stream, by its name or by what it is called in LTS."""
    return container_of("/".join(segment.partition("#")[0].split("/")[:2]), count)


def _primary_name(name: str) -> str:
    name = _TRANSIENT_SUFFIX.sub("", _TRANSACTION_SUFFIX.sub("", name))
    # What follows the epoch goes too, so `#index` and `$attributes.index` need no rule of their own.
    return name.rpartition(_EPOCH_MARK)[0] or name


def _consistent_hash(state: int, buckets: int) -> int:
    """Jump consistent hashing (Lamping and Veach) with the generator that Guava uses."""
    bucket = 0
    while True:
        state = (state * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        following = int((bucket + 1) / (((state >> 33) + 1) / 2**31))
        if following >= buckets:
            return bucket
        bucket = following
