"""The application of the server: the API, the pages, and the guard before both, as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pravega_spark.client.manager import StreamManager
from pravega_spark.serve import api, pages
from pravega_spark.serve.access import check_read
from pravega_spark.serve.failures import Refusal, failure
from pravega_spark.serve.guard import Guard
from pravega_spark.serve.live import Live
from pravega_spark.serve.openapi import openapi
from pravega_spark.serve.rendering import Pages
from pravega_spark.serve.replies import JSON, json_bytes
from pravega_spark.serve.service import Service
from pravega_spark.serve.settings import ServeSettings
from pravega_spark.serve.work import Work


def application(manager: StreamManager, settings: ServeSettings | None = None) -> Guard:
    """An ASGI application over the root of a manager, which stays open. Raises RootNotFound."""
    settings = settings or ServeSettings()
    service, work = Service(manager, settings), Work(settings)
    rendered = Pages(service)
    document = json_bytes(openapi(settings))

    async def description(request: Request) -> Response:
        try:
            check_read(settings, request.headers.get("authorization", ""))
        except Refusal as refusal:
            return await api.respond(work, failure(refusal))
        return Response(document, media_type=JSON)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        work.close()

    async def unknown(request: Request, error: Exception) -> Response:
        """The answer to a request that no route takes."""
        assert isinstance(error, HTTPException)
        what = {404: "There is nothing at this path", 405: "This path has no such method"}
        message = f"{what.get(error.status_code, str(error.detail))}: /openapi.json has all"
        refusal = Refusal(error.status_code, "NoSuchOperation", message, error.headers)
        return await api.respond(work, failure(refusal))

    app = Starlette(
        routes=[
            *api.routes(service, work),
            Route("/openapi.json", description),
            *pages.routes(service, work, rendered),
            Live(service, work, rendered).route(),
        ],
        exception_handlers={HTTPException: unknown},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return Guard(app, settings, pages.STYLE_HASHES)
