"""A server that is further away: what stands between it and its clients, and takes its time in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import TypeVar
from urllib.parse import urlsplit

Made = TypeVar("Made")


class Far:
    """A proxy to the server at the URL `endpoint`; bytes arrive `seconds` / 2 later on either side, however many they
    are, so that a request takes `seconds` more. `url`: its own."""

    def __init__(self, endpoint: str, seconds: float) -> None:
        self._server = urlsplit(endpoint)
        self._delay = seconds / 2
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="far", daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._call(self._listen())}"

    def close(self) -> None:
        self._call(self._cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[object, object, Made]) -> Made:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self) -> int:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(self._listening.sockets[0].getsockname()[1])

    async def _cancel(self) -> None:
        self._listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._server.hostname, self._server.port)
        with contextlib.suppress(asyncio.CancelledError):  # by `close`
            await asyncio.gather(self._carry(reader, there[1]), self._carry(there[0], writer))

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Give on what comes, in order, each piece after its delay."""
        travelling: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

        async def arrive() -> None:
            while True:
                when, data = await travelling.get()
                await asyncio.sleep(when - self._loop.time())
                if not data:
                    target.close()
                    return
                target.write(data)
                await target.drain()

        arriving = asyncio.ensure_future(arrive())
        try:
            while True:
                data = await source.read(1 << 18)
                await travelling.put((self._loop.time() + self._delay, data))
                if not data:
                    break
            await arriving
        except ConnectionError:
            arriving.cancel()
            target.close()
