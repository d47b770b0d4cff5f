"""The pages for people: rendered on the server, with nothing loaded from elsewhere.

Keeps that everything is escaped: templates escape all values, and pictures escape their own texts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from pravega_spark.picture import STYLE
from pravega_spark.serve.access import check_read
from pravega_spark.serve.failures import failure
from pravega_spark.serve.service import Service
from pravega_spark.serve.views import VIEWS, View
from pravega_spark.serve.work import Work
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name

STYLE_HASHES = (f"sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}",)
"""For the policy of content: the style inside pictures."""

_STATIC = {"serve.css": "text/css", "serve.js": "text/javascript"}
_KEPT = ("filter", "sort", "page", "even")  # of a page's query: what its parts depend on
_HTML = "text/html"


class Pages:
    """Renders views. Handlers run it in threads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._templates = Environment(
            loader=PackageLoader("pravega_spark.serve"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["drawn"] = Markup

    def page(self, view: View, path: Mapping[str, str], query: Mapping[str, str], live: str) -> str:
        """A page as a whole. live: where its changes come from. Raises as the view."""
        values = view.collect(self._service, path, query)
        parts = self._parts(view, values)
        return self._templates.get_template(view.template).render(values, parts=parts, live=live)

    def parts(self, view: View, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, str]:
        """The parts of a page that change. Raises as the view."""
        return {name: str(part) for name, part in self._parts(view, view.collect(self._service, path, query)).items()}

    def problem(self, title: str, message: str) -> str:
        """A page that says what is wrong."""
        url = self._service.manager.root.stores.chunks.root
        return self._templates.get_template("problem.html").render(title=title, message=message, url=url, live="")

    def part_problem(self, message: str) -> str:
        """A part that says what is wrong."""
        return self._templates.get_template("part_problem.html").render(message=message)

    def _parts(self, view: View, values: Mapping[str, Any]) -> dict[str, Markup]:
        made = ((name, self._templates.get_template(f"part_{name}.html")) for name in view.parts)
        return {name: Markup(template.render(values)) for name, template in made}


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
    content = resources.files("pravega_spark.serve").joinpath("static", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=media)

    return Route(f"/static/{name}", answer, name=name)
