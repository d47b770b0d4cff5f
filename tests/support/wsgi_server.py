"""Servers for tests that are WSGI applications: requests one after the other, and faults when a test asks for them."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.servers import Server

_FAULTS = "/_faults"

Application = Callable[..., Iterable[bytes]]


@dataclasses.dataclass
class ServerFault:
    """What happens to the next `count` requests with this method and with `part` in their path and query.

    `status` and `code` are the HTTP status and the S3 error code of the answer, or `answer` its whole body. Status 0
    drops the connection, with `half` in the middle of the true answer. `after`: the request takes effect nevertheless.
    """

    method: str
    part: str = ""
    status: int = 0
    code: str = "InternalError"
    answer: str = ""
    after: bool = False
    half: bool = False
    count: int = 1


class WsgiServer(Server):
    """A running server that meets requests with faults."""

    def add_fault(self, fault: ServerFault) -> None:
        """Let `fault` happen once; faults that were added earlier come first."""
        self.send("POST", _FAULTS, json.dumps(dataclasses.asdict(fault)).encode())

    def clear_faults(self) -> None:
        """Forget the faults that have not happened."""
        self.send("DELETE", _FAULTS)

    def send(self, method: str, path: str, body: bytes | None = None) -> None:
        """Send a plain HTTP request, for what no store does."""
        request = urllib.request.Request(self.endpoint + path, data=body, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            response.read()


class _OneAtATime:
    """A WSGI application that carries out the requests of another one after the other, and meets them with faults."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._faults: list[ServerFault] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # Read before the lock is taken: a slow client must not stop the others.
        length = None if environ.get("wsgi.input_terminated") else int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if length is not None and len(body) < length:  # the client has gone: half a request is none
            return _drop(environ, start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
        if environ["PATH_INFO"] == _FAULTS:
            return self._change_faults(environ["REQUEST_METHOD"], body, start_response)
        with self._lock:
            fault = self._next_fault(environ)
            if fault is None:
                return [b"".join(self._application(environ, start_response))]
            if fault.half:
                content = b"".join(self._application(environ, start_response))
                return [content[: len(content) // 2]]  # the headers have promised the whole
            if fault.after:
                b"".join(self._application(environ, _ignore))
        return _answer(fault, start_response) if fault.status else _drop(environ, start_response)

    def _change_faults(self, method: str, body: bytes, start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            if method == "POST":
                self._faults.append(ServerFault(**json.loads(body)))
            else:
                self._faults.clear()
        start_response("204 No Content", [])
        return []

    def _next_fault(self, environ: dict[str, Any]) -> ServerFault | None:
        url = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        for fault in self._faults:
            if fault.method == environ["REQUEST_METHOD"] and fault.part in url:
                fault.count -= 1
                if not fault.count:
                    self._faults.remove(fault)
                return fault
        return None


def run_wsgi_server(application: Application) -> None:
    """Be the server's process: serve `application` on a free port until the parent has gone."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class SilentHandler(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            """Tests do not look at it."""

    def end_with_parent() -> None:
        sys.stdin.buffer.read()  # the parent holds the other end and writes nothing: this returns when it has gone
        os._exit(0)

    server = make_server("127.0.0.1", 0, _OneAtATime(application), threaded=True, request_handler=SilentHandler)
    threading.Thread(target=end_with_parent, daemon=True).start()
    print(f"http://127.0.0.1:{server.port}", flush=True)
    server.serve_forever()


def _ignore(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
    """A start_response for a response that nobody gets."""


def _drop(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    start_response("500 Dropped", [])
    return []


def _answer(fault: ServerFault, start_response: Callable[..., Any]) -> Iterable[bytes]:
    message = f"<Error><Code>{fault.code}</Code><Message>asked for by a test</Message></Error>"
    content = (fault.answer or message).encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(content)))]
    start_response(f"{fault.status} Fault", headers)
    return [content]
