"""A small Google Cloud Storage for tests, in memory, on a free port of this machine, in a process of its own.

It speaks the part of the JSON API that stores need: buckets, uploads with one request, downloads of ranges, listings
and delete. Unlike what can be installed, it honours preconditions on generations, of which 0 means that there
must be no object: requests are carried out one after the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from email import message_from_bytes
from typing import Any
from urllib.parse import parse_qs

from tests.support import servers, wsgi_server

_LONGEST_NAME = 1024
_LARGEST_PAGE = 1000


class GcsServer(wsgi_server.WsgiServer):
    """A running server; `endpoint` is its URL."""

    module = "tests.support.gcs_server"

    def make_bucket(self) -> str:
        """The URL of a new bucket."""
        name = servers.new_name()
        self.send("POST", "/storage/v1/b", json.dumps({"name": name}).encode())
        return f"gs://{name}"

    def storage_options(self) -> dict[str, Any]:
        """Options for `open_store`, which also fit fsspec."""
        return {"endpoint_url": self.endpoint, "token": "anon", "project": "testing"}


@dataclasses.dataclass
class _Object:
    content: bytes
    generation: int
    created: datetime


class _Refused(Exception):
    """The answer to a request that is not carried out."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Service:
    """The WSGI application. It is not made for requests of several threads at once."""

    def __init__(self) -> None:
        self._buckets: dict[str, dict[str, _Object]] = {}
        self._generations = itertools.count(int(datetime.now(timezone.utc).timestamp() * 1e6))

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            status, headers, body = self._answer(environ)
        except _Refused as refused:
            error = {"code": refused.status, "message": str(refused)}
            status, headers, body = refused.status, {}, json.dumps({"error": error}).encode()
        headers = {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}
        start_response(f"{status} Answer", list(headers.items()))
        return [body]

    def _answer(self, environ: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].encode("latin-1").decode()
        query = {name: values[-1] for name, values in parse_qs(environ["QUERY_STRING"], True).items()}
        body = environ["wsgi.input"].read()
        place = re.fullmatch(r"(?:/upload|/download)?/storage/v1/b(?:/([^/]+)(?:/o(?:/(.+))?)?)?", path, re.DOTALL)
        if place is None:
            raise _Refused(404, "there is nothing at this path")
        bucket, name = place.groups()
        if bucket is None and method == "POST":
            return _as_json(self._make_bucket(json.loads(body)))
        objects = self._objects(bucket)
        if name is None and method == "POST":
            return _as_json(self._upload(bucket, objects, query, environ.get("CONTENT_TYPE", ""), body))
        if name is None and method == "GET":
            return _as_json(_list(bucket, objects, query))
        if name is not None and method == "GET":
            found = _found(bucket, objects, name, query)
            if query.get("alt") == "media" or path.startswith("/download"):
                return _download(found, environ.get("HTTP_RANGE", ""))
            return _as_json(_metadata(bucket, name, found))
        if name is not None and method == "DELETE":
            _found(bucket, objects, name, query)
            del objects[name]
            return 204, {}, b""
        raise _Refused(501, "this server does not do that")

    def _make_bucket(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if wanted["name"] in self._buckets:
            raise _Refused(409, "Your previous request to create the named bucket succeeded and you already own it.")
        self._buckets[wanted["name"]] = {}
        return {"kind": "storage#bucket", "name": wanted["name"]}

    def _objects(self, bucket: str | None) -> dict[str, _Object]:
        if bucket not in self._buckets:
            raise _Refused(404, "The specified bucket does not exist.")
        return self._buckets[bucket]

    def _upload(
        self, bucket: str, objects: dict[str, _Object], query: dict[str, str], kind: str, body: bytes
    ) -> dict[str, Any]:
        if query.get("uploadType") == "multipart":
            parts = list(message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body).walk())
            name = json.loads(str(parts[1].get_payload()))["name"]  # behind the whole comes the description
            content = body[_start_of_second_part(body) : body.rindex(b"\n--")].removesuffix(b"\r")
        elif query.get("uploadType") == "media":
            name, content = query["name"], body
        else:
            raise _Refused(501, "this server takes uploads of type media and multipart only")
        return self._store(bucket, objects, name, query, content)

    def _store(
        self, bucket: str, objects: dict[str, _Object], name: str, query: dict[str, str], content: bytes
    ) -> dict[str, Any]:
        if not 1 <= len(name.encode()) <= _LONGEST_NAME:
            raise _Refused(400, "The specified object name is not valid.")
        _check_generation(objects.get(name), query)
        objects[name] = _Object(content, next(self._generations), datetime.now(timezone.utc))
        return _metadata(bucket, name, objects[name])


def _found(bucket: str, objects: dict[str, _Object], name: str, query: dict[str, str]) -> _Object:
    if name not in objects:
        raise _Refused(404, f"No such object: {bucket}/{name}")
    _check_generation(objects[name], query)
    return objects[name]


def _check_generation(present: _Object | None, query: dict[str, str]) -> None:
    generation = present.generation if present else 0
    if "ifGenerationMatch" in query and int(query["ifGenerationMatch"]) != generation:
        raise _Refused(412, "At least one of the pre-conditions you specified did not hold.")
    if "ifGenerationNotMatch" in query and int(query["ifGenerationNotMatch"]) == generation:
        raise _Refused(304, "The object has this generation.")


def _list(bucket: str, objects: dict[str, _Object], query: dict[str, str]) -> dict[str, Any]:
    # By code points, which is the order of the names in UTF-8.
    start = max(query.get("startOffset", ""), query.get("pageToken", ""))
    names = sorted(name for name in objects if name.startswith(query.get("prefix", "")) and name >= start)
    if end := query.get("endOffset"):
        names = [name for name in names if name < end]
    size = min(int(query.get("maxResults", _LARGEST_PAGE)), _LARGEST_PAGE)
    if "delimiter" in query or not size:
        raise _Refused(501, "this server lists without delimiters, and at least one object")
    page = {"kind": "storage#objects", "items": [_metadata(bucket, name, objects[name]) for name in names[:size]]}
    return page if len(names) <= size else {**page, "nextPageToken": names[size]}


def _download(found: _Object, wanted: str) -> tuple[int, dict[str, str], bytes]:
    headers = {"Content-Type": "application/octet-stream"}
    bounds = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
    if bounds is None or not any(bounds.groups()):
        return 200, headers, found.content
    size = len(found.content)
    first, last = bounds.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(int(last) + 1, size) if first and last else size
    if start >= size:
        raise _Refused(416, "The requested range cannot be satisfied.")
    if stop <= start:  # an invalid range is ignored
        return 200, headers, found.content
    return 206, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}, found.content[start:stop]


def _metadata(bucket: str, name: str, of: _Object) -> dict[str, Any]:
    created = f"{of.created:%Y-%m-%dT%H:%M:%S}.{of.created.microsecond // 1000:03d}Z"
    return {
        "kind": "storage#object",
        "bucket": bucket,
        "name": name,
        "size": str(len(of.content)),
        "generation": str(of.generation),
        "timeCreated": created,
        "updated": created,
    }


def _start_of_second_part(body: bytes) -> int:
    """Where the content begins in a body of two parts, each with headers: behind the second empty line but one."""
    ends: Iterator[re.Match[bytes]] = re.finditer(rb"\r?\n\r?\n", body)
    next(ends)
    return next(ends).end()


def _as_json(answer: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps(answer).encode()


if __name__ == "__main__":
    wsgi_server.run_wsgi_server(_Service())
