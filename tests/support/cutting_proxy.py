"""A relay before a server of any protocol that counts round trips and cuts connections in the middle of answers."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.support.servers import Server

_PIECE = 1 << 14


class CuttingProxy:
    """A relay for `server`, in threads of this process. Close it, or use it in a with statement.

    `cuts` is how many connections it has cut, `round_trips` how often clients have sent something and got an answer.
    """

    def __init__(self, server: Server) -> None:
        parts = urlsplit(server.endpoint)
        self._server = server
        self._origin = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._place = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._left: int | None = None
        self._reset = self._once = False
        self.cuts = 0
        self.round_trips = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def through(self, url: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """A URL and options of the server, with the relay in its place."""
        return self._moved(url), self._moved(dict(options))

    def _moved(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._moved(inner) for name, inner in value.items()}
        return value.replace("{}:{}".format(*self._origin), self._place) if isinstance(value, str) else value

    @contextlib.contextmanager
    def cut(self, after: int, *, reset: bool = False, once: bool = False) -> Iterator[None]:
        """Meanwhile, end connections after so many bytes of answers in all: every one, or that one `once`.

        With `reset` they do not end in order.
        """
        self._reset, self._once, self._left = reset, once, after
        try:
            yield
        finally:
            self._left = None

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._origin) as server, contextlib.suppress(ConnectionError):
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            last = client
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(_PIECE)
                    self.round_trips += source is server and last is client and bool(data)
                    last = source
                    if not data or (source is server and self._cuts(client, data)):
                        return
                    (client if source is server else server).sendall(data)

    def _cuts(self, client: socket.socket, data: bytes) -> bool:
        """Whether it is with this part of an answer that a connection ends; then what is left of it is sent."""
        left = self._left
        if left is None:
            return False
        self._left = max(left - len(data), 0)
        if len(data) < left:
            return False
        self.cuts += 1
        if self._once:
            self._left = None
        client.sendall(data[:left])
        if self._reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return True
