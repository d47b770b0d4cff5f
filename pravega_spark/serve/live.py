"""Pages that stay up to date: one poller looks at what is open, and sends what has changed to all viewers.

Keeps that nobody's page costs no request: the poller ends with the last viewer, and viewers of one page share its look
at the root. Of changes that a viewer has not taken yet, only the newest are kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, compile_path

from pravega_spark.serve.access import check_read
from pravega_spark.serve.api import respond
from pravega_spark.serve.failures import Refusal, busy, failure
from pravega_spark.serve.pages import checked_path, kept_query
from pravega_spark.serve.rendering import Pages
from pravega_spark.serve.replies import json_bytes
from pravega_spark.serve.service import Service
from pravega_spark.serve.views import VIEWS, View
from pravega_spark.serve.work import Work

MOST_SUBJECTS = 32
"""Different pages that are looked at."""

_SHARE = 4  # the poller rests for this many times as long as a look at all pages takes, at least
_BEAT_SECONDS = 15.0  # after which a viewer of an unchanged page gets a sign of life

_PATTERNS = [(compile_path(path)[0], view) for path, view in VIEWS.items()]


@dataclass(eq=False)
class _Viewer:
    """An open page. news: its changed parts that were not sent yet."""

    news: dict[str, str] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class _Subject:
    """What viewers of one page look at. parts: as they were seen last."""

    view: View
    path: Mapping[str, str]
    query: Mapping[str, str]
    parts: dict[str, str] = field(default_factory=dict)
    viewers: set[_Viewer] = field(default_factory=set)


class Live:
    """The poller, and its viewers. Lives in one event loop."""

    def __init__(self, service: Service, work: Work, pages: Pages) -> None:
        self._service, self._work, self._pages = service, work, pages
        self._subjects: dict[str, _Subject] = {}
        self._poller: asyncio.Task[None] | None = None

    @property
    def viewers(self) -> int:
        """How many pages are open."""
        return sum(len(subject.viewers) for subject in self._subjects.values())

    def route(self) -> Route:
        """The route of changes, as server-sent events."""

        async def answer(request: Request) -> Response:
            try:
                check_read(self._service.settings, request.headers.get("authorization", ""))
                key, subject = self._subject(request)
            except Exception as error:
                return await respond(self._work, failure(error))
            return StreamingResponse(self._changes(key, subject), media_type="text/event-stream")

        return Route("/live", answer)

    def _subject(self, request: Request) -> tuple[str, _Subject]:
        """What a viewer wants to see. Raises Refusal, ValueError."""
        place, query = request.query_params.get("view", ""), kept_query(request.query_params)
        key = json_bytes([place, query]).decode()
        if key in self._subjects:
            subject = self._subjects[key]
        else:
            for pattern, view in _PATTERNS:
                if found := pattern.fullmatch(place):
                    subject = _Subject(view, checked_path(found.groupdict()), query)
                    break
            else:
                raise Refusal(404, "NoSuchView", "There is no page at the path `view`")
            if len(self._subjects) >= MOST_SUBJECTS:
                raise busy(f"{MOST_SUBJECTS} different pages are open: this one is not kept up to date")
        if self.viewers >= self._service.settings.max_viewers:
            raise busy(f"{self.viewers} pages are open: this one is not kept up to date")
        return key, subject

    async def _changes(self, key: str, subject: _Subject) -> AsyncIterator[bytes]:
        """What a viewer is sent, until it goes."""
        subject = self._subjects.setdefault(key, subject)
        viewer = _Viewer(dict(subject.parts))  # its page may be older than these
        if viewer.news:
            viewer.woken.set()
        subject.viewers.add(viewer)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            yield b"retry: 3000\n\n"
            while True:
                try:
                    await asyncio.wait_for(viewer.woken.wait(), _BEAT_SECONDS)
                except asyncio.TimeoutError:
                    yield b": still here\n\n"
                    continue
                viewer.woken.clear()
                news, viewer.news = viewer.news, {}
                yield b"data: " + json_bytes(news) + b"\n\n"
        finally:
            subject.viewers.discard(viewer)
            if not subject.viewers:
                self._subjects.pop(key, None)

    async def _poll(self) -> None:
        """Look at all pages again and again, until none is open."""
        while self._subjects:
            began = time.monotonic()
            for subject in list(self._subjects.values()):
                if subject.viewers:
                    self._tell(subject, await self._look(subject))
            took = time.monotonic() - began
            await asyncio.sleep(max(self._service.settings.poll_seconds, _SHARE * took))

    async def _look(self, subject: _Subject) -> dict[str, str]:
        try:
            return await self._work.run(self._pages.parts, subject.view, subject.path, subject.query)
        except Exception as error:
            answer: Any = failure(error).content
            return {subject.view.parts[0]: self._pages.part_problem(answer["message"])}

    def _tell(self, subject: _Subject, parts: dict[str, str]) -> None:
        """Send the parts that differ from those seen before to the page's viewers."""
        changed = {name: part for name, part in parts.items() if subject.parts.get(name) != part}
        subject.parts = parts
        for viewer in subject.viewers if changed else ():
            viewer.news |= changed
            viewer.woken.set()
