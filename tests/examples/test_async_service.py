"""The example of a web service, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from examples import async_service
from pravega_spark import StreamManager


class Sent(NamedTuple):
    """A server-sent event."""

    id: str
    data: str


@asynccontextmanager
async def served(root: str, patience: float = 10.0) -> AsyncIterator[aiohttp.ClientSession]:
    """The service, at a port of its own, and a client."""
    runner = web.AppRunner(async_service.application(root, patience), shutdown_timeout=5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession(f"http://{host}:{port}") as client:
            yield client
    finally:
        await runner.cleanup()


@asynccontextmanager
async def followed(client: aiohttp.ClientSession, last: str | None = None) -> AsyncIterator[AsyncIterator[Sent]]:
    """What a GET returns, one by one."""
    async with client.get("/events", headers={} if last is None else {"Last-Event-ID": last}) as response:
        assert response.status == 200 and response.content_type == "text/event-stream"
        yield sent(response)


async def sent(response: aiohttp.ClientResponse) -> AsyncIterator[Sent]:
    name, data = "", list[str]()
    async for line in response.content:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "id":
            name = value
        elif field == "data":
            data.append(value)
        elif not field and data:
            yield Sent(name, "\n".join(data))
            data = []


async def post(client: aiohttp.ClientSession, body: str, key: str) -> int:
    async with client.post("/events", data=body, params={"key": key}) as response:
        await response.read()
        return response.status


def test_a_post_is_durable_and_a_get_follows(tmp_path: Path) -> None:
    async def program() -> None:
        async with served(str(tmp_path)) as client:
            async with followed(client) as events:
                statuses = await asyncio.gather(*(post(client, f"{n}\nlines", f"key {n}") for n in range(20)))
                assert statuses == [200] * 20
                with StreamManager(str(tmp_path)) as manager:
                    assert manager.stream_info("examples", "posts").events == 20
                found = [await anext(events) for _ in range(12)]
            async with followed(client, found[-1].id) as events:  # the client has lost its connection
                found += [await anext(events) for _ in range(8)]
                assert {each.data for each in found} == {f"{n}\nlines" for n in range(20)}
                waiting = asyncio.ensure_future(anext(events))
                await post(client, "the last", "key")
                assert (await waiting).data == "the last"
            async with client.get("/events", headers={"Last-Event-ID": "nonsense"}) as response:
                assert response.status == 400

    asyncio.run(asyncio.wait_for(program(), 60))


def test_it_ends_while_clients_follow(tmp_path: Path) -> None:
    async def program() -> None:
        async with served(str(tmp_path), patience=0.05) as client:
            response = await client.get("/events")
            assert await response.content.readline() == b": still here\n"
        response.close()

    asyncio.run(asyncio.wait_for(program(), 60))
