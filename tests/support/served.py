"""A server of a root for tests: a real one, in a thread, on a free port of loopback."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from pravega_spark import StreamManager
from pravega_spark.serve.application import application
from pravega_spark.serve.guard import Guard
from pravega_spark.serve.server import Server
from pravega_spark.serve.settings import ServeSettings

TOKEN = "a-token-for-tests-only"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Answered(NamedTuple):
    """An answer. headers: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body's JSON."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body's text."""
        return self.body.decode()


class Served:
    """A server, and what it serves."""

    def __init__(self, manager: StreamManager, server: Server, app: Guard) -> None:
        self.manager, self.server, self.app = manager, server, app
        self.port = server.port

    def under_way(self) -> int:
        """How many requests the server works on."""
        return self.app.running

    def connect(self, timeout: float = 30) -> http.client.HTTPConnection:
        """A connection to it."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path: str, **headers: str) -> Answered:
        """Send a GET. headers: with _ for -."""
        return self.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def change(self, method: str, path: str, body: Any = None, **headers: str) -> Answered:
        """Send a request with the token, and a body as JSON."""
        data = None if body is None else json.dumps(body).encode()
        return self.request(method, path, data, {"Content-Type": "application/json", **BEARER, **headers})

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """Send a request."""
        with closing(self.connect()) as connection:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            data = response.read()
            return Answered(response.status, {name.lower(): value for name, value in response.getheaders()}, data)


@contextmanager
def served(manager: StreamManager, settings: ServeSettings | None = None) -> Iterator[Served]:
    """Serve the root of a manager."""
    settings = settings or ServeSettings(allow_changes=True, token=TOKEN)
    app = application(manager, settings)
    server = Server(app, settings, port=0)
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        yield Served(manager, server, app)
    finally:
        server.stop()
        thread.join()
