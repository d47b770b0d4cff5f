"""A relay before an S3 server, with a port for each actor, so that the network of a single one can fail.

    python -m tests.soak.relay HOST PORT NAME…

Prints one line of JSON, the port of each name. On standard input, `reset NAME` ends connections and takes no more,
`silence NAME` lets nothing through and ends nothing (what was sent arrives when it is over, however late that is), and
`heal NAME` ends both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

PIECE = 1 << 16


class Line:
    """The connections of one actor."""

    def __init__(self, host: str, port: int) -> None:
        self._origin = host, port
        self._through = asyncio.Event()
        self._through.set()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()

    def control(self, word: str) -> None:
        """Let the network fail, or heal it."""
        self._refuses = word == "reset"
        if word == "silence":
            self._through.clear()
        else:
            self._through.set()
        if word == "reset":
            for writer in list(self._writers):
                writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            if not self._refuses:
                server_reader, server_writer = await asyncio.open_connection(*self._origin)
                try:
                    ways = self._pass(reader, server_writer), self._pass(server_reader, writer)
                    tasks = [asyncio.ensure_future(way) for way in ways]
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in tasks:
                        task.cancel()
                finally:
                    server_writer.transport.abort()
        writer.transport.abort()
        self._writers.discard(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                await self._through.wait()
                writer.write(data)
                await writer.drain()


async def main(host: str, port: str, *names: str) -> None:
    """Relay until standard input ends."""
    lines = {name: Line(host, int(port)) for name in names}
    servers = {name: await asyncio.start_server(line.serve, "127.0.0.1", 0) for name, line in lines.items()}
    print(json.dumps({name: server.sockets[0].getsockname()[1] for name, server in servers.items()}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        word, name = line.split()
        lines[name].control(word)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
