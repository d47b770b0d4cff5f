"""What a server refuses: changes without the right to make them, other sites, tricks with paths, what is too large, too
slow or too much. Nothing is changed by what is refused."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pravega_spark import StreamManager
from pravega_spark.serve.operations import OPERATIONS, Operation
from pravega_spark.serve.settings import ServeSettings, is_loopback
from tests.support.served import BEARER, TOKEN, Served, served

CHANGING = [operation for operation in OPERATIONS if operation.changes]
JSON = {"Content-Type": "application/json"}
BODIES: Mapping[str, Any] = {
    "CreateScopeRequest": {"scopeName": "new"},
    "CreateStreamRequest": {"streamName": "new"},
    "UpdateStreamRequest": {"streamTags": ["x"]},
    "StreamState": {"streamState": "SEALED"},
    "TruncateRequest": {"streamCut": "tail"},
    "WriteEventsRequest": {"events": [{"data": "x"}]},
    "CreateKeyValueTableRequest": {"keyValueTableName": "new", "primaryKeyLength": 2},
    "PutEntryRequest": {"primaryKey": "YWI=", "value": "YWI="},
    "": None,
}


def send(server: Served, operation: Operation, headers: Mapping[str, str]) -> Any:
    """A request that would change something."""
    path = operation.path.format(scopeName="sc", streamName="one", readerGroupName="rg", keyValueTableName="prices")
    path += "?primaryKey=YWI%3D" if operation.name == "removeEntry" else ""
    body = BODIES[operation.body]
    return server.request(operation.method, path, body and json.dumps(body).encode(), {**JSON, **headers})


def everything(manager: StreamManager) -> Any:
    """What the requests above would change."""
    streams = {name: manager.stream_info("sc", name) for name in manager.list_stream("sc")}
    tables = manager.list_key_value_table("sc"), list(manager.key_value_table("sc", "prices").entries())
    return manager.list_scope(), streams, manager.get_stream_tags("sc", "one"), manager.list_reader_group("sc"), tables


@pytest.fixture
def reading(manager: StreamManager) -> Iterator[Served]:
    """A server as it is by default."""
    with served(manager, ServeSettings()) as found:
        yield found


# --- changes --------------------------------------------------------------------------------------------------------


def test_nothing_is_changed_by_default(reading: Served) -> None:
    assert len(CHANGING) == 13
    before = everything(reading.manager)
    for operation in CHANGING:
        refused = send(reading, operation, BEARER)
        assert refused.status == 403 and "--allow-changes" in refused.json["message"], operation
    assert everything(reading.manager) == before


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Token {TOKEN}",
        TOKEN,
        f"Basic {base64.b64encode(f'user:{TOKEN}'.encode()).decode()}",
        "Bearer \xff",
    ],
)
def test_changes_need_the_token(server: Served, authorization: str) -> None:
    before = everything(server.manager)
    for operation in CHANGING:
        refused = send(server, operation, {"Authorization": authorization} if authorization else {})
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer"), operation
        assert TOKEN not in refused.text
    assert everything(server.manager) == before


def test_reads_that_are_private_need_the_token_too(manager: StreamManager) -> None:
    basic = {"Authorization": f"Basic {base64.b64encode(f'me:{TOKEN}'.encode()).decode()}"}
    with served(manager, ServeSettings(allow_changes=True, token=TOKEN, private=True)) as server:
        for path in ("/v1/scopes", "/", "/streams/sc/one", "/metrics", "/openapi.json", "/health", "/live?view=/"):
            assert server.get(path).status == 401, path
            assert server.get(path, Authorization="Basic eDp5").status == 401
            assert server.get(path, Authorization="Basic %").status == 401
        for headers in (BEARER, basic):
            assert server.request("GET", "/v1/scopes", headers=headers).status == 200
            assert server.request("GET", "/", headers=headers).status == 200
        assert server.request("DELETE", "/v1/scopes/sc", headers=basic).status == 401
        assert (server.get("/ping").status, server.get("/v1/health/liveness").status) == (200, 200)


def test_settings_without_a_good_token() -> None:
    for wrong in (None, "short", "ü" * 20):
        with pytest.raises(ValueError, match="token"):
            ServeSettings(allow_changes=True, token=wrong)
    with pytest.raises(ValueError, match="token"):
        ServeSettings(private=True)
    assert TOKEN not in repr(ServeSettings(token=TOKEN))


@pytest.mark.parametrize(
    ("host", "inside"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("example", False)],
)
def test_addresses_of_loopback(host: str, inside: bool) -> None:
    assert is_loopback(host) is inside


# --- other sites ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "localhost@evil", "", "[::1", "a, localhost"]
)
def test_a_host_that_is_not_ours_is_misdirected(server: Served, host: str) -> None:
    assert server.get("/v1/scopes", Host=host).status == 421
    assert server.change("DELETE", "/v1/scopes/sc/readergroups/rg", Host=host).status == 421
    assert server.manager.list_reader_group("sc") == ["rg"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8080"])
def test_names_of_loopback_are_ours(server: Served, host: str) -> None:
    assert server.get("/v1/scopes", Host=host).status == 200


def test_another_name_can_be_allowed(manager: StreamManager) -> None:
    with served(manager, ServeSettings(hosts=("Streams.Example",))) as server:
        assert server.get("/v1/scopes", Host="streams.example:8080").status == 200
        assert server.get("/v1/scopes", Host="other.example").status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_other_origins_are_refused(server: Served, headers: dict[str, str]) -> None:
    assert server.request("GET", "/v1/scopes", headers=headers).status == 403
    assert server.change("DELETE", "/v1/scopes/sc/readergroups/rg", **headers).status == 403
    assert server.manager.list_reader_group("sc") == ["rg"]


def test_our_own_pages_and_links_from_elsewhere_are_served(server: Served) -> None:
    own = {"Host": "localhost:9", "Origin": "http://localhost:9", "Sec-Fetch-Site": "same-origin"}
    assert server.request("GET", "/v1/scopes", headers=own).status == 200
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert server.request("GET", "/", headers=followed).status == 200
    assert server.change("DELETE", "/v1/scopes/sc/readergroups/rg", **followed).status == 403


def test_every_answer_forbids_what_pages_do_not_need(server: Served) -> None:
    for answer in (server.get("/"), server.get("/none"), server.get("/v1/scopes"), server.get("/", Host="evil")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store" and answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers and "access-control-allow-origin" not in answer.headers


# --- paths ----------------------------------------------------------------------------------------------------------

TRICKS = [
    "..",
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "a%00b",
    "%00",
    "a%5cb",
    "~",
    "_system",
    "x" * 256,
    "%ff",
    "a%20b",
    "é",
]


@pytest.mark.parametrize("trick", TRICKS)
def test_names_never_become_paths(server: Served, trick: str) -> None:
    name = trick.encode().decode("latin-1") if not trick.isascii() else trick
    before = everything(server.manager)
    for path in (
        f"/v1/scopes/{name}",
        f"/v1/scopes/{name}/streams",
        f"/v1/scopes/sc/streams/{name}",
        f"/v1/scopes/sc/streams/{name}/events",
        f"/v1/scopes/sc/readergroups/{name}",
        f"/v1/scopes/sc/keyvaluetables/{name}/entries",
        f"/v1/health/{name}",
        f"/streams/sc/{name}",
        f"/static/{name}",
        f"/{name}",
    ):
        with closing(socket.create_connection(("127.0.0.1", server.port), 30)) as raw:
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode("latin-1"))
            answer = raw.makefile("rb").read()
        status = int(answer.split(b" ", 2)[1])
        assert status in (400, 404), (path, answer[:300])
        assert b"Traceback" not in answer and b"root:" not in answer
    for method, path in (("DELETE", f"/v1/scopes/{trick}"), ("DELETE", f"/v1/scopes/sc/streams/{trick}")):
        if trick.isascii():
            assert server.change(method, path).status in (400, 404)
    assert everything(server.manager) == before


def test_an_unknown_path_or_method(server: Served) -> None:
    assert server.get("/v1").json["error"] == "NoSuchOperation"
    assert server.get("/v1/scopes/").status == 404
    for method in ("PATCH", "TRACE", "DELETE"):
        assert server.change(method, "/v1/scopes").status == 405
    refused = server.request("OPTIONS", "/v1/scopes")
    assert refused.status == 405 and set(refused.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert server.request("HEAD", "/v1/scopes").status == 200


# --- bodies ---------------------------------------------------------------------------------------------------------


def raw_request(server: Served, head: str, body: bytes = b"", seconds: float = 30) -> bytes:
    """What comes back until the server closes the connection."""
    with closing(socket.create_connection(("127.0.0.1", server.port), seconds)) as raw:
        raw.sendall(head.encode() + body)
        return raw.makefile("rb").read()


HEAD = (
    "POST /v1/scopes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Authorization: Bearer {TOKEN}\r\n"
)


def test_a_body_that_is_too_large_is_not_read(manager: StreamManager) -> None:
    # A client may take longer to send than the test waits: what is refused is refused before.
    settings = ServeSettings(allow_changes=True, token=TOKEN, max_body=1000, client_seconds=600)
    with served(manager, settings) as server:
        declared = raw_request(server, f"{HEAD}Content-Length: 1073741824\r\n\r\n")
        assert declared.startswith(b"HTTP/1.1 413 ") and b"connection: close" in declared.lower()
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        counted = raw_request(server, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n", chunk)
        assert counted.startswith(b"HTTP/1.1 413 ")
        without_right = raw_request(server, f"{HEAD}Content-Length: 1073741824\r\n\r\n".replace(TOKEN, "wrong"))
        assert without_right.startswith(b"HTTP/1.1 401 ") and b"connection: close" in without_right.lower()
        ignored = raw_request(server, "GET /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n")
        assert ignored.startswith(b"HTTP/1.1 200 ")
        assert server.change("POST", "/v1/scopes", {"scopeName": "new"}).status == 201


def test_a_small_body_that_is_refused_costs_no_connection(server: Served) -> None:
    """A client that still sends would lose the answer with the connection."""
    head = f"{HEAD}Content-Length: 20000\r\n\r\n".replace(TOKEN, "wrong")
    with closing(socket.create_connection(("127.0.0.1", server.port), 30)) as raw:
        raw.sendall(head.encode() + b" " * 10_000)
        while not server.under_way():
            pass
        raw.sendall(b" " * 10_000 + b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answers = raw.makefile("rb").read()
    assert answers.startswith(b"HTTP/1.1 401 ") and b"HTTP/1.1 200 " in answers


def test_queries_with_the_longest_positions_arrive(server: Served) -> None:
    longest, longer = "%20" * 32_000, "%20" * 32_001
    for query, problem in ((f"from={longest}&to={longest}", "is no place"), (f"from={longer}", "32001 characters")):
        refused = server.get(f"/v1/scopes/sc/streams/one/events?{query}")
        assert refused.status == 400 and problem in refused.json["message"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"scopeName": "new"}', "text/plain", 415),
        (b'{"scopeName": "new"}', "application/x-www-form-urlencoded", 415),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"scopeName": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"scopeName": ' + b"9" * 10_000 + b"}", "application/json", 400),
        (b"null", "application/json", 400),
        (b'{"scopeName": "new"}', "Application/JSON; charset=utf-8", 201),
    ],
)
def test_bodies_that_are_no_json(server: Served, body: bytes, kind: str, status: int) -> None:
    assert server.request("POST", "/v1/scopes", body, {**BEARER, "Content-Type": kind}).status == status
    assert ("new" in server.manager.list_scope()) == (status == 201)


# --- slow, and many -------------------------------------------------------------------------------------------------


def test_slow_clients_lose_their_connections(manager: StreamManager) -> None:
    settings = ServeSettings(allow_changes=True, token=TOKEN, client_seconds=0.3)
    with served(manager, settings) as server:
        assert raw_request(server, "") == b"", "sends nothing"
        assert raw_request(server, "GET / HTTP/1.1\r\nHost: loc") == b"", "stops within the head"
        slow = raw_request(server, f"{HEAD}Content-Length: 20\r\n\r\n", b'{"sc')
        assert slow.startswith(b"HTTP/1.1 408 "), slow
        again = raw_request(server, "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\nGET /pi")
        assert again.startswith(b"HTTP/1.1 200 ") and again.count(b"HTTP/1.1") == 1
        assert server.manager.list_scope() == ["sc"]
        assert server.get("/ping").status == 200


def test_a_client_that_does_not_read_loses_its_connection(manager: StreamManager) -> None:
    manager.create_stream("sc", "big")
    with manager.begin_event("sc", "big") as event:
        event.write(b"x" * (32 << 20))
        pointer = quote(str(event.commit()))
    with served(manager, ServeSettings(client_seconds=0.3)) as server:
        with closing(socket.socket()) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.settimeout(60)
            raw.connect(("127.0.0.1", server.port))
            path = f"/v1/scopes/sc/streams/big/event?pointer={pointer}"
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            ended = threading.Event()
            while not ended.wait(0.1):  # until the server has given it up
                if not server.under_way():
                    ended.set()
        assert server.get("/ping").status == 200


def test_too_many_requests_at_once_are_told_to_come_again(manager: StreamManager) -> None:
    with served(manager, ServeSettings(max_requests=0, max_viewers=1)) as server:
        refused = server.get("/v1/scopes")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert server.get("/v1/scopes").json["error"] == "Busy"
    with served(manager, ServeSettings(max_requests=0, max_viewers=0)) as server:
        assert server.get("/ping").status == 503


def test_many_clients_at_once_are_all_answered(server: Served) -> None:
    statuses: list[int] = []

    def ask() -> None:
        paths = ("/v1/scopes/sc/streams", "/v1/scopes/sc/streams/one/last-events", "/")
        statuses.extend(server.get(path).status for path in paths)

    clients = [threading.Thread(target=ask) for _ in range(40)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert statuses == [200] * 120


def test_a_request_that_takes_too_long_is_answered(manager: StreamManager) -> None:
    with served(manager, ServeSettings(request_seconds=0)) as server:
        refused = server.get("/v1/scopes")
        assert refused.status == 503 and "longer than 0 seconds" in refused.json["message"]


def test_errors_show_no_traceback(tmp_path: Path) -> None:
    """Also when the storage is gone, and then it is told by health."""
    with StreamManager(str(tmp_path / "root"), create=True) as manager:
        manager.create_scope("sc")
        with served(manager, ServeSettings(max_age_seconds=0)) as server:
            (tmp_path / "root").rename(tmp_path / "away")
            failed = server.get("/v1/scopes")
            assert failed.status in (500, 503) and "Traceback" not in failed.text and failed.json["message"]
            assert server.get("/v1/health/readiness").json is False and server.get("/health").status == 503
            assert server.get("/v1/health/liveness").json is True
            assert "Traceback" not in server.get("/").text
            (tmp_path / "away").rename(tmp_path / "root")
            assert server.get("/v1/scopes").status == 200
