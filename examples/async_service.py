"""A web service on a stream: a POST is answered when its event is durable, a GET follows the stream.

    python examples/async_service.py /data/streams
    curl --data 'hello' 'http://127.0.0.1:8080/events?key=me'
    curl --no-buffer http://127.0.0.1:8080/events

The GET sends server-sent events. A browser's `EventSource` continues by itself behind the last event that it got.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator

from aiohttp import web

from pravega_spark import AsyncEventWriter, StreamManager

SCOPE, STREAM = "examples", "posts"
MANAGER = web.AppKey("manager", StreamManager)
WRITER = web.AppKey("writer", AsyncEventWriter)
STOP = web.AppKey("stop", threading.Event)
PATIENCE = web.AppKey("patience", float)


def application(root: str, patience: float = 10.0) -> web.Application:
    """The service on the streams of a root.

    patience: seconds until a POST is answered at the latest, and between two signs of life of a GET without events.
    """
    app = web.Application()
    app.add_routes([web.post("/events", post), web.get("/events", follow)])

    async def streams(app: web.Application) -> AsyncIterator[None]:
        async with await asyncio.to_thread(StreamManager, root) as manager:
            await asyncio.to_thread(manager.create_scope, SCOPE)
            await asyncio.to_thread(manager.create_stream, SCOPE, STREAM, 2)
            async with manager.create_async_writer(SCOPE, STREAM) as writer:
                app[MANAGER], app[WRITER] = manager, writer
                yield

    async def end_tails(app: web.Application) -> None:
        app[STOP].set()

    app[STOP], app[PATIENCE] = threading.Event(), patience
    app.cleanup_ctx.append(streams)
    app.on_shutdown.append(end_tails)
    return app


async def post(request: web.Request) -> web.Response:
    """Write the body as an event. 200: it is durable. 503: it may be written or not."""
    body = await request.read()
    try:
        write = request.app[WRITER].write_event_bytes(body, request.query.get("key"))
        await asyncio.wait_for(write, request.app[PATIENCE])
    except asyncio.TimeoutError:
        raise web.HTTPServiceUnavailable(text="the storage has not answered: the event may be written or not") from None
    return web.Response(text="durable")


async def follow(request: web.Request) -> web.StreamResponse:
    """Send events as they come, from the position that the client names, or from now on."""
    start = request.headers.get("Last-Event-ID")
    try:
        tail = request.app[MANAGER].tail_async(SCOPE, STREAM, start, stop=request.app[STOP])
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    async with tail:
        await response.prepare(request)
        while True:
            try:
                event = await asyncio.wait_for(anext(tail), request.app[PATIENCE])
            except asyncio.TimeoutError:  # the tail has lost nothing: the next anext continues
                await response.write(b": still here\n\n")  # raises an error if the client is gone
                continue
            except StopAsyncIteration:
                return response
            lines = event.data.decode(errors="replace").splitlines() or [""]
            data = "".join(f"data: {line}\n" for line in lines)
            await response.write(f"id: {tail.position.as_text()}\n{data}\n".encode())


if __name__ == "__main__":
    if len(sys.argv) == 2:
        web.run_app(application(sys.argv[1]), host="127.0.0.1", port=8080)
    else:
        with tempfile.TemporaryDirectory() as folder:
            web.run_app(application(folder), host="127.0.0.1", port=8080)
