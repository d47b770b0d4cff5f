"""The guard before all requests: which sites may send them, and how many there are at once.

Keeps that a page of another site can neither change nor read anything (the host of a request is one of this server's
names, which defeats DNS rebinding; its origin is this server), and that a large body that was not wanted is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pravega_spark.serve.failures import Refusal, busy, failure
from pravega_spark.serve.replies import JSON, Reply
from pravega_spark.serve.settings import ServeSettings

_SAME_SITE = ("same-origin", "none")  # of Sec-Fetch-Site: from this server's pages, or from the user


class Guard:
    """An ASGI application around another one. style_hashes: of styles in pages that are allowed to be inside them."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, style_hashes: Iterable[str] = ()) -> None:
        self._app = app
        self._settings = settings
        self._hosts = settings.known_hosts()
        self._running = 0
        self._headers = [(name.encode(), value.encode()) for name, value in _headers(style_hashes).items()]

    @property
    def running(self) -> int:
        """How many requests are under way."""
        return self._running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a web socket: there are none
        guarded = _Guarded(scope, receive, send, self._headers, self._settings)
        try:
            self._check(scope)
            if self._running >= self._settings.max_requests + self._settings.max_viewers:
                raise busy(f"{self._running} requests are under way: try again")
        except Refusal as refusal:
            await guarded.reply(failure(refusal))
            return
        self._running += 1
        try:
            await self._app(scope, guarded.receive, guarded.send)
        finally:
            self._running -= 1

    def _check(self, scope: Scope) -> None:
        """Raise Refusal for a request that another site may have made."""
        headers = _by_name(scope)
        host = _host(headers.get("host", ""))
        if host not in self._hosts:
            raise Refusal(
                421,
                "UnknownHost",
                "The request is for a host that is not one of this server's names: start it with --allow-host NAME for "
                "another name than localhost",
            )
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{headers['host']}":
            raise Refusal(403, "ForeignOrigin", "The request comes from a page of another site: it is refused")
        site = headers.get("sec-fetch-site", "none")
        followed = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in ("GET", "HEAD")
        if site not in _SAME_SITE and not followed:
            raise Refusal(403, "ForeignOrigin", "The request comes from a page of another site: it is refused")


class _Guarded:
    """One request, whose answer gets the headers of all answers."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: list[tuple[bytes, bytes]],
        settings: ServeSettings,
    ) -> None:
        self._receive, self._send = receive, send
        self._headers = headers
        self._settings = settings
        found = _by_name(scope)
        length = found.get("content-length", "0")
        chunked = "transfer-encoding" in found
        self._unread = length != "0" or chunked
        self._is_small = not chunked and length.isdecimal() and int(length[:20]) <= settings.max_body

    async def receive(self) -> Message:
        """The next part of the request."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._unread = False
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            if self._unread and self._is_small:
                await self._skip_body()
            message["headers"] = [*message.get("headers", ()), *self._headers]
            if self._unread:  # the connection ends, rather than that all of it is read first
                message["headers"].append((b"connection", b"close"))
        await self._send(message)

    async def _skip_body(self) -> None:
        """Read what is left of a small body, that its client does not lose the answer with the connection."""

        async def skip() -> None:
            left = self._settings.max_body
            while self._unread and left >= 0:
                message = await self.receive()
                if message["type"] != "http.request":
                    return
                left -= len(message.get("body", b""))

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(skip(), self._settings.client_seconds)

    async def reply(self, reply: Reply) -> None:
        """Send an answer."""
        body = reply.encoded()
        headers = {"content-type": JSON, "content-length": str(len(body)), **reply.headers}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": reply.status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})


def _by_name(scope: Scope) -> dict[str, str]:
    """The headers of a request. Of several with one name, all: such a host or origin fits nothing."""
    found: dict[str, Any] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _host(text: str) -> str:
    """The name in a Host header, in lower case and without its port; empty if there is none."""
    try:
        return (urlsplit(f"//{text}").hostname or "") if text and not set(text) & set("/@?#\\, ") else ""
    except ValueError:
        return ""


def _headers(style_hashes: Iterable[str]) -> Mapping[str, str]:
    styles = " ".join(("'self'", *(f"'{each}'" for each in style_hashes)))
    return {
        "content-security-policy": (
            f"default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self' data:; connect-src 'self'; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-store",
    }
