"""Renders views as HTML: whole pages, and their parts that change.

Keeps that everything is escaped: templates escape all values, and pictures escape their own texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pravega_spark.serve.service import Service
from pravega_spark.serve.views import View


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
