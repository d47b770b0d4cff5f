"""What a server allows, and its limits: plain values.

Keeps that nothing is changed without a token, and that no token is ever shown.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names under which a browser on the same machine reaches the server."""

SHORTEST_TOKEN = 16
"""Characters of a token, at least."""


def is_loopback(host: str) -> bool:
    """Whether a server bound to this address is reached from its own machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class ServeSettings:
    """What a server allows, and its limits.

    token: what a request that changes something has to carry; None forbids all changes. allow_changes: whether
    requests may change something at all. private: reads need the token too. hosts: names other than those of loopback
    under which the server is reached. max_body, max_page_bytes: bytes of a request, and of the events in one answer.
    max_requests, max_viewers: how many requests, and open pages, there may be at once. threads: for work on the
    storage. request_seconds: until a request is answered. client_seconds: within which a client has to send its
    request, and to take each piece of the answer. poll_seconds: between two looks at what an open page shows.
    max_age_seconds: how old the status of the root may be in metrics and in checks of health. page_rows: streams on a
    page. Raises ValueError for a token that is too short, or missing where it is needed.
    """

    allow_changes: bool = False
    token: str | None = field(default=None, repr=False)
    private: bool = False
    hosts: tuple[str, ...] = ()
    max_body: int = 1 << 20
    max_page_bytes: int = 8 << 20
    max_requests: int = 256
    max_viewers: int = 256
    threads: int = 8
    request_seconds: float = 30.0
    client_seconds: float = 10.0
    poll_seconds: float = 2.0
    max_age_seconds: float = 5.0
    page_rows: int = 100

    def __post_init__(self) -> None:
        if self.token is None and (self.allow_changes or self.private):
            what = "changes" if self.allow_changes else "reads"
            raise ValueError(f"a server that lets others in for {what} needs a token: give one in a file")
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii()):
            raise ValueError(f"the token must have at least {SHORTEST_TOKEN} characters, all ASCII: make another one")

    def known_hosts(self) -> frozenset[str]:
        """All names under which the server is reached, in lower case."""
        return frozenset(name.lower() for name in (*LOOPBACK, *self.hosts))
