"""A proxy for tests in front of another server: it meets requests with faults that the server itself does not have."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from tests.support import wsgi_server
from tests.support.servers import Server

_OF_THE_CONNECTION = ("connection", "keep-alive", "transfer-encoding")


class FaultyProxy(wsgi_server.WsgiServer):
    """A running proxy for `server`; `endpoint` is the URL that stands for the server's. Requests pass one at a time."""

    module = "tests.support.faulty_proxy"

    def __init__(self, server: Server, *arguments: str) -> None:
        self._server = server
        parts = urlsplit(server.endpoint)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        super().__init__(self._origin, *arguments)

    def make_bucket(self) -> str:
        """The URL of a new bucket of the server."""
        return self._server.make_bucket()

    def storage_options(self) -> dict[str, Any]:
        """The server's options, with the proxy in its place."""
        options = self._server.storage_options()
        return {name: _replaced(value, self._origin, self.endpoint) for name, value in options.items()}


def _replaced(value: Any, origin: str, endpoint: str) -> Any:
    return value.replace(origin, endpoint) if isinstance(value, str) else value


def pass_on(
    origin: str, environ: dict[str, Any], start_response: Callable[..., Any], body: bytes | None = None
) -> Iterable[bytes]:
    """Send a request to the server. body: instead of the request's own."""
    headers = {
        name.removeprefix("HTTP_").replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or (name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value)
    }
    headers["Connection"] = "close"
    body = environ["wsgi.input"].read() if body is None else body
    connection = http.client.HTTPConnection(urlsplit(origin).netloc, timeout=30)
    try:
        connection.request(environ["REQUEST_METHOD"], environ["REQUEST_URI"], body or None, headers)
        response = connection.getresponse()
        content = response.read()
        answered = [(name, value) for name, value in response.getheaders() if name.lower() not in _OF_THE_CONNECTION]
        start_response(f"{response.status} Passed on", answered)
        return [content]
    finally:
        connection.close()


if __name__ == "__main__":
    origin = sys.argv[1]
    wsgi_server.run_wsgi_server(lambda environ, start_response: pass_on(origin, environ, start_response))
