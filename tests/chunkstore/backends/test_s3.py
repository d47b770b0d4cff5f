"""What a bucket adds to the contract: lost responses, conflicts, credentials, and what a request costs.

All of it with both clients, unless a test says that it is about one.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from chunkstore import (
    ObjectNotFound,
    Outcome,
    PutUnknown,
    Range,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    Store,
    open_store,
)
from chunkstore.backends import s3
from chunkstore.measured_store import MeasuredStore
from chunkstore.testing.contracts import NOT_A_LISTING, body
from tests.support.adapters import adapter_of
from tests.support.cycles import left_by_failures
from tests.support.s3_server import S3Server
from tests.support.wsgi_server import ServerFault

SECRETS = ("AKIAVERYSECRET", "hunter2-is-secret", "token-is-secret-too")
NOWHERE = "http://127.0.0.1:1"


def impatient(options: dict[str, Any]) -> dict[str, Any]:
    """Without the repetitions below us, which take their time."""
    return {**options, "config_kwargs": {"retries": {"max_attempts": 0}}}


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.make_bucket()


@pytest.fixture(scope="module", params=["s3fs", "obstore"])
def client(request: pytest.FixtureRequest) -> str:
    if request.param == "obstore":
        pytest.importorskip("obstore")
    return str(request.param)


@pytest.fixture(scope="module")
def options(s3_server: S3Server, client: str) -> dict[str, Any]:
    """Those of the server, with the client."""
    return {**s3_server.storage_options(), "client": client}


@pytest.fixture(scope="module")
def stores(options: dict[str, Any], bucket: str) -> Iterator[tuple[Store, Store]]:
    """A store as it is, and one that repeats nothing."""
    both = open_store(bucket, options), open_store(bucket, impatient(options))
    yield both
    for store in both:
        store.close()


@pytest.fixture
def store(stores: tuple[Store, Store], s3_server: S3Server) -> Iterator[Store]:
    yield stores[0]
    s3_server.clear_faults()
    stores[0].delete([info.path for info in stores[0].list("")])


@pytest.fixture
def once(stores: tuple[Store, Store], store: Store) -> Store:
    return stores[1]


only_s3fs = pytest.mark.parametrize("client", ["s3fs"], indirect=True, scope="module")


@pytest.fixture
def requests(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of the requests that s3fs sends from now on."""
    sent: list[str] = []
    call = s3.S3Store.request

    async def noted(self: s3.S3Store, fs: Any, method: str, **arguments: Any) -> Any:
        sent.append(method)
        return await call(self, fs, method, **arguments)

    monkeypatch.setattr(s3.S3Store, "request", noted)
    return sent


# -- answers of somebody else


@pytest.mark.parametrize("answer", NOT_A_LISTING)
def test_an_answer_that_is_no_listing(once: Store, s3_server: S3Server, answer: str) -> None:
    """Taken for one, it would be an empty one (P2)."""
    once.put("a/b", b"")
    s3_server.add_fault(ServerFault("GET", status=NOT_A_LISTING[answer], answer=answer))
    with pytest.raises(StorageError) as raised:
        once.list("a/")
    assert not isinstance(raised.value, ObjectNotFound)
    assert [info.path for info in once.list("a/")] == ["a/b"]


def test_not_found_by_somebody_else_is_no_absence(once: Store, s3_server: S3Server) -> None:
    """A load balancer says so while no server is behind it."""
    once.put("a", b"")
    s3_server.add_fault(ServerFault("GET", status=404, answer="default backend - 404"))
    with pytest.raises(StorageUnavailable, match="'a'"):
        once.read("a")
    assert once.read("a") == b""


# -- lost responses


@pytest.mark.parametrize("fault", [ServerFault("PUT", after=True), ServerFault("PUT", status=503, after=True)])
def test_a_winner_that_is_told_it_lost(store: Store, s3_server: S3Server, fault: ServerFault) -> None:
    """The response to the create is lost; what repeats it below us hears that the object exists."""
    mine = body()
    s3_server.add_fault(fault)
    assert store.put_if_absent("a", mine) is Outcome.MINE
    assert store.read("a") == mine
    assert store.put_if_absent("a", body()) is Outcome.ANOTHERS


@pytest.mark.parametrize("status", [0, 500])
def test_a_lost_response_without_repetition(once: Store, s3_server: S3Server, status: int) -> None:
    mine = body()
    s3_server.add_fault(ServerFault("PUT", status=status, after=True))
    assert once.put_if_absent("a", mine) is Outcome.MINE


@pytest.mark.parametrize("status", [0, 500])
@pytest.mark.parametrize("after", [False, True])
def test_a_loser_whose_response_is_lost(once: Store, s3_server: S3Server, status: int, after: bool) -> None:
    once.put_if_absent("a", body())
    s3_server.add_fault(ServerFault("PUT", status=status, after=after))
    assert once.put_if_absent("a", body()) is Outcome.ANOTHERS


def test_a_lost_request_has_an_unknown_outcome(once: Store, s3_server: S3Server) -> None:
    """Absent now is no proof: the request may be on its way yet."""
    mine = body()
    s3_server.add_fault(ServerFault("PUT", count=2))  # aiohttp repeats a request once when the connection was dropped
    with pytest.raises(PutUnknown, match="'a'"):
        once.put_if_absent("a", mine)
    s3_server.clear_faults()
    assert once.put_if_absent("a", mine) is Outcome.MINE


def test_an_unreadable_answer_has_an_unknown_outcome(once: Store, s3_server: S3Server) -> None:
    mine = body()
    s3_server.add_fault(ServerFault("PUT", after=True, count=2))
    s3_server.add_fault(ServerFault("GET", count=2))
    with pytest.raises(PutUnknown):
        once.put_if_absent("a", mine)
    s3_server.clear_faults()
    assert once.put_if_absent("a", mine) is Outcome.MINE
    s3_server.add_fault(ServerFault("GET", status=403, code="AccessDenied"))
    with pytest.raises(PutUnknown):
        once.put_if_absent("a", mine)


def test_a_refusal_after_a_lost_response_is_no_proof(store: Store, s3_server: S3Server) -> None:
    """The first attempt took effect; its repetition below us is refused."""
    mine = body()
    s3_server.add_fault(ServerFault("PUT", status=500, after=True))
    s3_server.add_fault(ServerFault("PUT", status=403, code="ExpiredToken"))
    assert store.put_if_absent("a", mine) is Outcome.MINE
    s3_server.add_fault(ServerFault("PUT", status=500))
    s3_server.add_fault(ServerFault("PUT", status=403, code="ExpiredToken"))
    with pytest.raises(PutUnknown):
        store.put_if_absent("b", mine)


def test_a_refused_create_is_no_unknown_outcome(once: Store, s3_server: S3Server) -> None:
    s3_server.add_fault(ServerFault("PUT", status=403, code="AccessDenied"))
    with pytest.raises(StorageRefused, match="AccessDenied"):
        once.put_if_absent("a", body())


def test_a_conflict_is_tried_again(once: Store, s3_server: S3Server) -> None:
    s3_server.add_fault(ServerFault("PUT", status=409, code="ConditionalRequestConflict", count=2))
    assert once.put_if_absent("a", body()) is Outcome.MINE
    s3_server.add_fault(ServerFault("PUT", status=409, code="ConditionalRequestConflict"))
    assert once.put_if_absent("a", body()) is Outcome.ANOTHERS


def test_a_conflict_without_end(once: Store, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(once, MeasuredStore)
    monkeypatch.setattr(once.inner, "tries", 2)
    s3_server.add_fault(ServerFault("PUT", status=409, code="ConditionalRequestConflict", count=2))
    with pytest.raises(PutUnknown, match="ConditionalRequestConflict"):
        once.put_if_absent("a", body())


def test_other_servers_name_no_condition(once: Store, s3_server: S3Server) -> None:
    """A bare status 412, which s3fs does not turn into FileExistsError."""
    once.put_if_absent("a", body())
    s3_server.add_fault(ServerFault("PUT", status=412, code="PreconditionFailed"))
    assert once.put_if_absent("a", body()) is Outcome.ANOTHERS


# -- reading


def test_half_a_body_is_read_again(store: Store, s3_server: S3Server) -> None:
    data = os.urandom(100_000)
    store.put("a", data)
    s3_server.add_fault(ServerFault("GET", half=True, count=2))
    assert store.read("a") == data
    s3_server.add_fault(ServerFault("GET", half=True, count=9))
    with pytest.raises(StorageUnavailable):
        store.read("a")


def test_a_failed_range_fails_all(once: Store, s3_server: S3Server) -> None:
    once.put("a", b"a")
    once.put("b", b"b")
    s3_server.add_fault(ServerFault("GET", part="/b", status=500))
    with pytest.raises(StorageUnavailable, match="'b'"):
        once.read_ranges([Range("a"), Range("b")])
    assert once.read_ranges([Range("a"), Range("b")]) == [b"a", b"b"]


@only_s3fs
def test_what_requests_cost(store: Store, requests: list[str]) -> None:
    def sent() -> list[str]:
        copy = requests[:]
        requests.clear()
        return copy

    mine = body()
    store.put_if_absent("a", mine)
    assert sent() == ["put_object"]
    store.put_if_absent("a", body())
    assert sent() == ["put_object", "get_object"]
    for start, end in ((0, None), (0, 5), (5, None), (5, 10), (10_000, None)):
        store.read("a", start, end)
        assert sent() == ["get_object"]
    with pytest.raises(ObjectNotFound):
        store.read("none")
    assert sent() == ["get_object"]
    store.read("a", 5, 5)
    assert sent() == ["head_object"]
    store.read_ranges([Range("a", 1, 2), Range("none"), Range("a")])
    assert sent() == ["get_object"] * 3
    store.list("")
    assert sent() == ["list_objects_v2"]
    store.delete(["a", "b", "c"])
    assert sent() == ["delete_objects"]


# -- listing and deleting


@only_s3fs
def test_pages(store: Store, requests: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_of(store), "page", 4)
    names = [f"a/{number:02d}" for number in range(10)]
    for name in names:
        store.put(name, b"")
    requests.clear()
    assert [info.path for info in store.list("a/")] == names
    assert requests == ["list_objects_v2"] * 3
    requests.clear()
    assert [info.path for info in store.list("a/", after="a/02", limit=5)] == names[3:8]
    assert requests == ["list_objects_v2"] * 2
    store.delete([*names, "a/none"])
    assert store.list("") == []


def test_objects_that_stand_for_folders_are_not_listed(s3_server: S3Server, options: dict[str, Any]) -> None:
    bucket = s3_server.make_bucket()
    store = open_store(bucket, options)
    store.put("a/b", b"")
    for marker in ("a/", "a/c/"):
        s3_server.send("PUT", f"/{bucket.removeprefix('s3://')}/{marker}", b"")
    assert [info.path for info in store.list("a/")] == [info.path for info in store.list("")] == ["a/b"]
    assert [info.path for info in store.list("", limit=1)] == ["a/b"]
    store.close()


def test_a_server_that_ignores_where_to_start(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    call = s3.S3Store.request

    async def ignorant(self: s3.S3Store, fs: Any, method: str, StartAfter: str = "", **arguments: Any) -> Any:
        return await call(self, fs, method, **arguments)

    monkeypatch.setattr(s3.S3Store, "request", ignorant)
    for name in "abcd":
        store.put(name, b"")
    assert [info.path for info in store.list("", after="b")] == ["c", "d"]
    assert [info.path for info in store.list("", after="b", limit=1)] == ["c"]


@pytest.mark.parametrize(("code", "kind"), [("AccessDenied", StorageRefused), ("InternalError", StorageUnavailable)])
def test_an_object_that_cannot_be_deleted(store: Store, s3_server: S3Server, code: str, kind: type[Exception]) -> None:
    answer = f"<DeleteResult><Error><Key>a</Key><Code>{code}</Code><Message>no</Message></Error></DeleteResult>"
    s3_server.add_fault(ServerFault("POST", part="?delete", status=200, answer=answer))
    with pytest.raises(kind, match=f"'a'.*{code}"):
        store.delete(["a", "b"])


# -- limits


@only_s3fs
def test_a_create_is_one_request(store: Store, requests: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_of(store), "largest_create", 1000)
    with pytest.raises(StorageRefused, match="1001 bytes; at most 1000"):
        store.put_if_absent("a", bytes(1001))
    assert store.put_if_absent("a", bytes(1000)) is Outcome.MINE
    assert requests == ["put_object"]


# -- refusals


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///folder", "s3://key:secret@bucket/a", "s3://bucket/../other", "s3://b/a//c"]
)
def test_roots_that_are_none(url: str) -> None:
    with pytest.raises((StorageRefused, ValueError)) as raised:
        open_store(url)
    assert "secret" not in str(raised.value)


def test_a_bucket_that_does_not_exist(options: dict[str, Any]) -> None:
    store = open_store("s3://no-such-bucket", options)
    for verb, *arguments in (
        (store.read, "a"),
        (store.read_ranges, [Range("a")]),
        (store.put, "a", b""),
        (store.put_if_absent, "a", body()),
        (store.list, ""),
        (store.delete, ["a"]),
    ):
        with pytest.raises(StorageRefused, match=r"s3://no-such-bucket.*bucket does not exist"):
            verb(*arguments)
    store.close()


def test_an_option_that_nobody_knows(s3_server: S3Server, bucket: str) -> None:
    store = open_store(bucket, {**s3_server.storage_options(), "end_point": "x"})
    with pytest.raises(StorageRefused, match=r"storage options.*end_point"):
        store.put_if_absent("a", body())


def test_options_are_left_as_they_are(bucket: str, options: dict[str, Any]) -> None:
    """The next store is opened with the same ones."""
    given = impatient(options)
    store = open_store(bucket, given)
    store.put("a", b"")
    store.delete(["a"])
    store.close()
    assert given == impatient(options)


def test_credentials_are_never_shown(s3_server: S3Server, bucket: str, options: dict[str, Any]) -> None:
    key, secret, token = SECRETS
    server = {**options, "key": key, "secret": secret, "token": token}
    echo = f"<Error><Code>SignatureDoesNotMatch</Code><Message>{key} {secret}</Message><Token>{token}</Token></Error>"
    wrong = [
        (server, ServerFault("", count=100, status=403, answer=echo)),
        (server, ServerFault("", count=100)),
        ({**server, "client_kwargs": {"endpoint_url": f"http://{key}:{secret}@127.0.0.1:1"}}, None),
        ({**server, "client_kwargs": {"endpoint_url": f"{key}:{secret}@nowhere"}}, None),
        ({**server, "client_kwargs": {"endpoint_url": NOWHERE, "region_name": f"{secret} {token}"}}, None),
    ]
    if options["client"] == "s3fs":
        wrong += [({**server, "username": key}, None), ({**server, "max_concurrency": 0}, None)]
    for given, fault in wrong:
        store = open_store(bucket, impatient(given))
        assert_clean(repr(store), str(store))
        for method, verb, *arguments in (
            ("PUT", store.put_if_absent, "a", body()),
            ("GET", store.read, "a"),
            ("HEAD", store.stat, "a"),
            ("POST", store.delete, ["a"]),
        ):
            if fault:
                fault.method = method
                s3_server.add_fault(fault)
            with pytest.raises(StorageError) as raised:
                verb(*arguments)
            s3_server.clear_faults()
            error: BaseException | None = raised.value
            assert_clean("".join(traceback.format_exception(raised.value)))
            while error is not None:  # also what a traceback would not print
                assert_clean(repr(error), str(vars(error)))
                error = error.__cause__ or error.__context__
        store.close()


def assert_clean(*texts: str) -> None:
    for text in texts:
        assert not any(secret in text for secret in SECRETS), text


def test_a_server_that_is_not_there(bucket: str, client: str) -> None:
    there = {"endpoint_url": NOWHERE, "region_name": "us-east-1"}
    store = open_store(bucket, impatient({"key": "k", "secret": "s", "client_kwargs": there, "client": client}))
    with pytest.raises(StorageUnavailable):
        store.read("a")
    with pytest.raises(StorageUnavailable):
        store.put("a", b"")
    with pytest.raises(PutUnknown):
        store.put_if_absent("a", body())


def test_an_outage_leaves_nothing_to_the_collector(bucket: str, client: str) -> None:
    there = {"endpoint_url": NOWHERE, "region_name": "us-east-1"}
    options = {"key": "k", "secret": "s", "client_kwargs": there, "client": client}
    store = open_store(bucket, {**options, "config_kwargs": {"retries": {"max_attempts": 1}}})  # one more, below us
    assert left_by_failures(store) == {}
    store.close()


def test_closed_and_used_again(options: dict[str, Any], bucket: str) -> None:
    store = open_store(bucket, options)
    store.close()
    store.put("a", b"x")
    store.close()
    store.close()
    assert store.read("a") == b"x"
    store.delete(["a"])
    store.close()
