"""The process that serves: an application behind a socket, with limits for clients that are slow or many.

Keeps that a client that does not send its request in time, or does not take the answer, loses its connection: the web
server has such a limit only between requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from pravega_spark.serve.settings import ServeSettings

_LONGEST_HEAD = 256 << 10  # bytes of a request's line and headers: two stream cuts of many segments in a query
_SHUTDOWN_SECONDS = 3  # for requests that are under way
_CONNECTIONS = 256  # beyond those of requests: idle ones


def protocol(seconds: float) -> type[H11Protocol]:
    """The protocol of a connection whose client has `seconds` to send the head of each request, and to take what waits
    to be sent."""

    class Punctual(H11Protocol):
        """Ends the connection of a client that is late."""

        _late: asyncio.TimerHandle | None = None  # with the head of a request
        _stuck: asyncio.TimerHandle | None = None  # with what waits to be sent

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:  # the head of a request is not complete
                self._watch()
            else:
                self._unwatch()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stuck = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            self._unstick()
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            self._unstick()
            super().connection_lost(exc)

        def _unstick(self) -> None:
            if self._stuck is not None:
                self._stuck.cancel()
                self._stuck = None

        def _watch(self) -> None:
            if self._late is None:
                self._late = self.loop.call_later(seconds, self.transport.abort)

        def _unwatch(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Punctual


class Server:
    """A server of an application, on a socket that is bound at once. certificate, key: files in PEM for TLS, or None.

    Raises OSError if it cannot be bound, and ssl.SSLError for files that are no certificate with its key.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        host: str = "127.0.0.1",
        port: int = 8080,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=1024)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self.secure = certificate is not None
        tls: dict[str, Any] = {}
        if certificate is not None:
            tls = {"ssl_certfile": str(certificate), "ssl_keyfile": None if key is None else str(key)}
        config = uvicorn.Config(
            app,
            http=protocol(settings.client_seconds),
            ws="none",
            loop="asyncio",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            limit_concurrency=settings.max_requests + settings.max_viewers + _CONNECTIONS,
            timeout_keep_alive=math.ceil(settings.client_seconds),
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            **tls,
        )
        with contextlib.ExitStack() as failed:
            failed.callback(self._socket.close)
            config.load()  # reads the files
            failed.pop_all()
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """Where it is reached."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"

    def run(self) -> None:
        """Serve until `stop`, or until a signal ends the process (in its main thread)."""
        with contextlib.closing(self._socket):
            self._server.run([self._socket])

    def stop(self) -> None:
        """Make `run` return soon. From any thread."""
        self._server.should_exit = True
