"""A proxy for tests in front of a storage server: it carries out what a policy of examples/policies allows.

Emulators do not evaluate such policies, or only parts of them. So each HTTP request of the adapter is checked here,
on its way to the server, and refused with status 403 if the policy does not allow it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

from tests.support import faulty_proxy, wsgi_server
from tests.support.policies import PROVIDERS, HttpRequest, Need, Provider
from tests.support.servers import Server

_NEEDS = "/_needs"


class PolicyProxy(faulty_proxy.FaultyProxy):
    """A running proxy for `server` that lets through what the role of that provider may do with a root.

    The root is `folder` in `bucket`. `endpoint` is the URL that stands for the server's.
    """

    module = "tests.support.policy_proxy"

    def __init__(self, server: Server, provider: str, role: str, bucket: str, folder: str) -> None:
        super().__init__(server, provider, role, bucket, folder)

    def storage_options(self) -> dict[str, Any]:
        """The server's options, with the proxy in its place."""
        text = json.dumps(self._server.storage_options())
        options: dict[str, Any] = json.loads(text.replace(self._origin, self.endpoint))
        return options

    @property
    def needs(self) -> tuple[set[str], set[str]]:
        """The rights that were needed so far, and allowed, and those that were denied."""
        with urllib.request.urlopen(self.endpoint + _NEEDS, timeout=10) as response:
            allowed, denied = json.load(response)
        return set(allowed), set(denied)


class _Policed:
    """The WSGI application."""

    def __init__(self, origin: str, provider: Provider, refusal: Callable[[HttpRequest, Need], tuple[int, str, bytes]]):
        self._origin = origin
        self._provider = provider
        self._refusal = refusal
        self._allowed: set[str] = set()
        self._denied: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == _NEEDS:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps([sorted(self._allowed), sorted(self._denied)]).encode()]
        request = _request(environ, exists=self._exists(environ))
        needs = self._provider.needs(request)
        denied = [need for need in needs if not self._provider.allows(need)]
        (self._denied if denied else self._allowed).update(need.right for need in denied or needs)
        if denied:
            status, kind, body = self._refusal(request, denied[0])
            start_response(f"{status} Refused", [("Content-Type", kind), ("Content-Length", str(len(body)))])
            return [b"" if request.method == "HEAD" else body]
        return faulty_proxy.pass_on(self._origin, environ, start_response)

    def _exists(self, environ: dict[str, Any]) -> bool:
        """Whether the object of the request exists: the server is asked for it, with the request's credentials."""
        target = environ["REQUEST_URI"]
        if environ["REQUEST_METHOD"] == "POST":  # an upload to Google names its object in the query
            name = re.search(r"[?&]name=([^&]+)", target)
            if name is None:
                return False
            target = f"{target.partition('?')[0].removeprefix('/upload')}/{name[1]}"
        asked = {**environ, "REQUEST_METHOD": "HEAD" if "/storage/v1/" not in target else "GET"}
        asked |= {"REQUEST_URI": target, "CONTENT_LENGTH": ""}
        return status_of(self._origin, asked) == 200


def status_of(origin: str, environ: dict[str, Any]) -> int:
    """The status of the server's answer to a request without a body."""
    found: list[str] = []
    environ = {name: value for name, value in environ.items() if name not in ("HTTP_RANGE", "HTTP_IF_NONE_MATCH")}
    list(faulty_proxy.pass_on(origin, environ, lambda status, headers: found.append(status), body=b""))
    return int(found[0].partition(" ")[0])


def _request(environ: dict[str, Any], *, exists: bool) -> HttpRequest:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    body = environ["wsgi.input"].read()
    environ["wsgi.input"].seek(0)
    return HttpRequest(environ["REQUEST_METHOD"], environ["REQUEST_URI"], headers, body, exists)


def _s3_refusal(request: HttpRequest, need: Need) -> tuple[int, str, bytes]:
    if need.right == "s3:DeleteObject" and request.method == "POST":
        key = need.resource.partition(":::")[2].partition("/")[2]
        error = f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        return 200, "application/xml", f"<DeleteResult>{error}</DeleteResult>".encode()
    return 403, "application/xml", b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def _gcs_refusal(request: HttpRequest, need: Need) -> tuple[int, str, bytes]:
    return 403, "application/json", json.dumps({"error": {"code": 403, "message": "no access"}}).encode()


def _azure_refusal(request: HttpRequest, need: Need) -> tuple[int, str, bytes]:
    code = "AuthorizationPermissionMismatch"
    return 403, "application/xml", f"<Error><Code>{code}</Code><Message>no access</Message></Error>".encode()


_REFUSALS = {"s3": _s3_refusal, "gcs": _gcs_refusal, "azure": _azure_refusal}


if __name__ == "__main__":
    origin, provider, *place = sys.argv[1:]
    wsgi_server.run_wsgi_server(_Policed(origin, PROVIDERS[provider](*place), _REFUSALS[provider]))
