"""The pages for people: their routes, and what they load, which is nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from pravega_spark.picture import STYLE
from pravega_spark.serve.access import check_read
from pravega_spark.serve.failures import failure
from pravega_spark.serve.rendering import Pages
from pravega_spark.serve.service import Service
from pravega_spark.serve.views import VIEWS, View
from pravega_spark.serve.work import Work
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name

STYLE_HASHES = (f"sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}",)
"""For the policy of content: the style inside pictures."""

_STATIC = {"serve.css": "text/css", "serve.js": "text/javascript"}
_KEPT = ("filter", "sort", "page", "even")  # of a page's query: what its parts depend on
_HTML = "text/html"


def checked_path(given: Mapping[str, str]) -> dict[str, str]:
    """The values of a page's path. Raises ValueError for what is no name."""
    if given:
        validate_scope_name(given["scope"])
        validate_stream_name(given["stream"])
    return dict(given)


def kept_query(given: Mapping[str, str]) -> dict[str, str]:
    """What of a page's query its parts depend on, in one order: equal pages share one look at the root."""
    return {name: given[name][:255] for name in _KEPT if given.get(name)}


def routes(service: Service, work: Work, pages: Pages) -> list[BaseRoute]:
    """The routes of all pages, and of what they load."""
    views = [_page_route(path, view, service, work, pages) for path, view in VIEWS.items()]
    return [*views, *(_static_route(name, media) for name, media in _STATIC.items())]


def _page_route(path: str, view: View, service: Service, work: Work, pages: Pages) -> Route:
    async def answer(request: Request) -> Response:
        try:
            check_read(service.settings, request.headers.get("authorization", ""))
            given, query = checked_path(request.path_params), dict(request.query_params)
            live = f"/live?{urlencode({'view': request.url.path, **kept_query(query)})}"
            return Response(await work.run(pages.page, view, given, query, live), media_type=_HTML)
        except Exception as error:
            found = failure(error)
            title = {404: "Not found", 401: "Not allowed"}.get(found.status, "This did not work")
            page = pages.problem(title, found.content["message"])
            return Response(page, found.status, dict(found.headers), _HTML)

    return Route(path, answer, name=view.template)


def _static_route(name: str, media: str) -> Route:
    content = (resources.files("pravega_spark.serve") / "static" / name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=media)

    return Route(f"/static/{name}", answer, name=name)
