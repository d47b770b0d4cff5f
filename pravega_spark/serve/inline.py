"""The views of the server inside a notebook, without a server.

Keeps that a view loads nothing and runs nothing: it is shown in a frame that may do neither, and has no links.
"""

from __future__ import annotations

import re
from html import escape
from importlib import resources

from pravega_spark.client.manager import StreamManager
from pravega_spark.serve.service import Service
from pravega_spark.serve.settings import ServeSettings
from pravega_spark.serve.views import VIEWS
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name

_LINK = re.compile(r"</?a\b[^>]*>|<button\b.*?</button>", re.DOTALL)  # what a frame without scripts cannot use
_STREAM = "/streams/{scope}/{stream}"


class InlinePage:
    """A view as it was when it was made. Notebooks show it. html: the page as a whole."""

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        frame = 'sandbox="" width="100%" height="640" style="border: 1px solid #8884; resize: vertical"'
        return f'<iframe title="Pravega streams" {frame} srcdoc="{escape(self.html)}"></iframe>'


def inline_page(manager: StreamManager, scope_name: str | None, stream_name: str | None) -> InlinePage:
    """The view of a stream, or all streams and the root. Raises as `StreamManager.page`."""
    scope = None if scope_name is None else validate_scope_name(scope_name)
    stream = None if stream_name is None else validate_stream_name(stream_name)
    if (scope is None) != (stream is None):
        raise ValueError("scope_name and stream_name belong together: give both, or neither")
    try:
        from pravega_spark.serve.rendering import Pages  # needs a package that is not always there
    except ImportError as error:
        raise ImportError(
            f"StreamManager.page needs the package {error.name}: pip install 'pravega-spark[serve]'"
        ) from None
    service = Service(manager, ServeSettings())
    pages = Pages(service)
    if scope is None or stream is None:
        title, found = "Streams", {**pages.parts(VIEWS["/"], {}, {}), **pages.parts(VIEWS["/root"], {}, {})}
    else:
        path = {"scope": scope, "stream": stream}
        title, found = f"{scope}/{stream}", pages.parts(VIEWS[_STREAM], path, {})
    style = (resources.files("pravega_spark.serve") / "static" / "serve.css").read_text("utf-8")
    parts = "".join(f"<h2>{_HEADINGS[name]}</h2>{_LINK.sub('', part)}" for name, part in found.items())
    return InlinePage(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{style}</style></head><body><main><h1>{escape(title)}</h1>{parts}</main></body></html>"
    )


_HEADINGS = {
    "totals": "Root",
    "streams": "Streams",
    "consumers": "Consumers",
    "containers": "Containers",
    "maintenance": "Maintenance",
    "facts": "Stream",
    "picture": "Segments over time",
    "cuts": "Cuts",
    "retention": "Retention",
    "transactions": "Transactions",
}
"""The headings of the parts of all views."""
