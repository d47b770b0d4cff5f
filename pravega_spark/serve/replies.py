"""What handlers of requests get and return: plain values, without the web framework.

Handlers run in threads. All JSON is made here: ASCII only, so no text that a stream holds can break it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
BYTES = "application/octet-stream"

_PIECE = 64 << 10  # bytes of a streamed list that are sent together


class Call(NamedTuple):
    """A request, checked against its operation: values of its path and query, and its body (None without one)."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None


class Reply(NamedTuple):
    """An answer that is in memory. content: becomes JSON; None is no content. headers: others than its type."""

    status: int = 200
    content: Any = None
    headers: Mapping[str, str] = {}

    def encoded(self) -> bytes:
        """The body."""
        return b"" if self.content is None else json_bytes(self.content)


class Text(NamedTuple):
    """An answer that is a text."""

    text: str
    media: str


class Streamed(NamedTuple):
    """An answer that is made piece by piece, so that memory stays bounded however long it is. headers: others than
    its type."""

    pieces: Iterator[bytes]
    media: str = JSON
    headers: Mapping[str, str] = {}


Answer = Reply | Text | Streamed


def json_bytes(value: Any) -> bytes:
    """A value as JSON. Raises ValueError for numbers that JSON does not have."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def parse_json(data: bytes) -> Any:
    """The value of a JSON text. Raises ValueError for anything else, and for numbers that no JSON can answer with
    (NaN, 1e999); RecursionError if it is nested too deeply."""
    return json.loads(data, parse_constant=_not_finite, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_finite(text)


def _not_finite(text: str) -> Any:
    raise ValueError(f"{text} is no finite number")


def streamed_list(name: str, items: Iterable[Any], rest: Mapping[str, Any] | None = None) -> Streamed:
    """An object with a list that is made while it is sent. rest: the other members."""
    return Streamed(_joined(_list_pieces(name, items, rest or {})))


def _list_pieces(name: str, items: Iterable[Any], rest: Mapping[str, Any]) -> Iterator[bytes]:
    yield b"{"
    for key, value in rest.items():
        yield json_bytes(key) + b":" + json_bytes(value) + b","
    yield json_bytes(name) + b":["
    for place, item in enumerate(items):
        yield (b"," if place else b"") + json_bytes(item)
    yield b"]}"


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about `_PIECE`."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= _PIECE:
            yield bytes(held)
            held.clear()
    yield bytes(held)
