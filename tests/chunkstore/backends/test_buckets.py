"""What Google Cloud Storage and Azure add to the contract: lost responses, refusals, and what is asked of the server.

S3, whose libraries repeat requests below us, has its own (test_s3).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from azure.storage.blob import BlobServiceClient

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
from chunkstore.backends import azure, gcs
from chunkstore.testing.contracts import NOT_A_LISTING, body
from tests.support.adapters import adapter_of
from tests.support.cycles import left_by_failures
from tests.support.faulty_proxy import FaultyProxy
from tests.support.gcs_server import GcsServer
from tests.support.wsgi_server import ServerFault, WsgiServer

SECRETS = ("aHVudGVyMi1pcy1zZWNyZXQ=", "token-is-secret-too")
NOWHERE = "http://127.0.0.1:1"


class Kind(NamedTuple):
    """A kind of bucket: its module, its server, and the method of the request that makes an object."""

    module: Any
    server: WsgiServer
    create: str


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.server) for name in ("gcs", "azure")])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    if request.param == "gcs":
        yield Kind(gcs, request.getfixturevalue("gcs_server"), "POST")
        return
    with FaultyProxy(request.getfixturevalue("azurite")) as proxy:
        yield Kind(azure, proxy, "PUT")


@pytest.fixture(scope="module")
def place(kind: Kind) -> tuple[str, dict[str, Any]]:
    return kind.server.make_bucket(), kind.server.storage_options()


@pytest.fixture(scope="module")
def module_store(place: tuple[str, dict[str, Any]]) -> Iterator[Store]:
    store = open_store(*place)
    yield store
    store.close()


@pytest.fixture
def store(module_store: Store, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(adapter_of(module_store), "first_pause", 0.01)
    yield module_store
    kind.server.clear_faults()
    module_store.delete([info.path for info in module_store.list("")])


def fails(kind: Kind, method: str, **fault: Any) -> None:
    kind.server.add_fault(ServerFault(method, **fault))


# -- creating


@pytest.mark.parametrize("status", [0, 503])
def test_a_winner_that_is_told_it_lost(store: Store, kind: Kind, status: int) -> None:
    """The response to the create is lost; its repetition hears that the object exists."""
    mine = body()
    fails(kind, kind.create, status=status, after=True)
    assert store.put_if_absent("a", mine) is Outcome.MINE
    assert store.read("a") == mine
    assert store.put_if_absent("a", body()) is Outcome.ANOTHERS


@pytest.mark.parametrize("after", [False, True])
def test_a_loser_whose_response_is_lost(store: Store, kind: Kind, after: bool) -> None:
    store.put_if_absent("a", body())
    fails(kind, kind.create, status=500, after=after, count=5)
    assert store.put_if_absent("a", body()) is Outcome.ANOTHERS


def test_a_lost_response_without_repetition(store: Store, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_of(store), "tries", 1)
    fails(kind, kind.create, status=500, after=True)
    assert store.put_if_absent("a", body()) is Outcome.MINE


def test_lost_requests_have_an_unknown_outcome(store: Store, kind: Kind) -> None:
    """Absent now is no proof: one of them may be on its way yet."""
    mine = body()
    fails(kind, kind.create, status=503, count=5)
    with pytest.raises(PutUnknown, match="'a'"):
        store.put_if_absent("a", mine)
    assert store.put_if_absent("a", mine) is Outcome.MINE


def test_an_unreadable_answer_has_an_unknown_outcome(store: Store, kind: Kind) -> None:
    mine = body()
    fails(kind, kind.create, status=500, after=True, count=5)
    fails(kind, "GET", status=403)
    with pytest.raises(PutUnknown):
        store.put_if_absent("a", mine)
    kind.server.clear_faults()
    assert store.put_if_absent("a", mine) is Outcome.MINE


def test_a_refused_create_is_no_unknown_outcome(store: Store, kind: Kind) -> None:
    fails(kind, kind.create, status=403)
    with pytest.raises(StorageRefused, match="no permission"):
        store.put_if_absent("a", body())
    with pytest.raises(ObjectNotFound):
        store.read("a")


def test_a_refusal_after_a_lost_response_is_no_proof(store: Store, kind: Kind) -> None:
    mine = body()
    fails(kind, kind.create, status=500, after=True)
    fails(kind, kind.create, status=403)
    assert store.put_if_absent("a", mine) is Outcome.MINE
    fails(kind, kind.create, status=500)
    fails(kind, kind.create, status=403)
    with pytest.raises(PutUnknown):
        store.put_if_absent("b", mine)


# -- reading, listing, deleting


def test_reads_are_repeated(store: Store, kind: Kind) -> None:
    data = os.urandom(100_000)
    store.put("a", data)
    fails(kind, "GET", half=True, count=2)
    assert store.read("a") == data
    fails(kind, "GET", status=503, count=2)
    assert store.read("a", 5, 10) == data[5:10]
    fails(kind, "GET", status=503, count=5)
    with pytest.raises(StorageUnavailable, match="'a'"):
        store.read("a")


def test_a_failed_range_fails_all(store: Store, kind: Kind) -> None:
    store.put("a", b"a")
    store.put("b", b"b")
    fails(kind, "GET", part="/b?" if kind.module is gcs else "/b", status=403)
    with pytest.raises(StorageRefused, match="'b'"):
        store.read_ranges([Range("a"), Range("b")])
    assert store.read_ranges([Range("a"), Range("b")]) == [b"a", b"b"]


def test_pages(store: Store, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_of(store), "page", 4)
    names = [f"a/{number:02d}" for number in range(10)]
    for name in names:
        store.put(name, b"")
    assert [info.path for info in store.list("a/")] == names
    assert [info.path for info in store.list("a/", after="a/02", limit=5)] == names[3:8]
    assert [info.path for info in store.list("a/", after="a/", limit=1)] == names[:1]


@pytest.mark.parametrize("answer", NOT_A_LISTING)
def test_an_answer_that_is_no_listing(store: Store, kind: Kind, answer: str) -> None:
    """Taken for one, it would be an empty one (P2)."""
    store.put("a/b", b"")
    fails(kind, "GET", status=NOT_A_LISTING[answer], answer=answer, count=5)
    with pytest.raises(StorageError) as raised:
        store.list("a/")
    assert not isinstance(raised.value, ObjectNotFound)
    kind.server.clear_faults()
    assert [info.path for info in store.list("a/")] == ["a/b"]


@pytest.fixture
def with_keys(kind: Kind) -> Iterator[Callable[..., Store]]:
    """Makes a store with objects under keys that no store of ours would give them."""
    url, options = kind.server.make_bucket(), kind.server.storage_options()
    name = url.partition("://")[2]

    def make(*keys: str) -> Store:
        for key in keys:
            if kind.module is gcs:
                path = f"/upload/storage/v1/b/{name}/o?uploadType=media&name={quote(key, safe='')}"
                kind.server.send("POST", path, b"")
            else:
                with BlobServiceClient.from_connection_string(options["connection_string"]) as client:
                    client.get_blob_client(name, key).upload_blob(b"")
        return opened

    opened = open_store(url, options)
    yield make
    opened.close()


def test_objects_that_stand_for_folders_are_not_listed(with_keys: Callable[..., Store]) -> None:
    store = with_keys("a/b", "a/", "a/c/")
    assert [info.path for info in store.list("a/")] == [info.path for info in store.list("")] == ["a/b"]
    assert [info.path for info in store.list("", limit=1)] == ["a/b"]
    assert store.passed_over() == dict.fromkeys(("a/", "a/c/"), "an object that stands for a folder")


def test_keys_that_are_no_paths_are_passed_over(with_keys: Callable[..., Store]) -> None:
    strange = ["a//b", "a/" + "é" * 460]
    store = with_keys("a/b", *strange)
    assert [info.path for info in store.list("")] == ["a/b"]
    assert set(strange) <= set(store.passed_over())


def test_an_object_that_cannot_be_deleted(store: Store, kind: Kind) -> None:
    store.put("a", b"")
    fails(kind, "DELETE", part="/a", status=403)
    with pytest.raises(StorageRefused, match="'a'"):
        store.delete(["b", "a"])
    store.delete(["b", "a"])
    assert store.list("") == []


# -- what cannot be used


def test_a_bucket_that_does_not_exist(kind: Kind, place: tuple[str, dict[str, Any]]) -> None:
    url = f"{place[0].partition('://')[0]}://no-such-bucket"
    store = open_store(url, place[1])
    for verb, *arguments in (
        (store.read, "a"),
        (store.read_ranges, [Range("a")]),
        (store.put, "a", b""),
        (store.put_if_absent, "a", body()),
        (store.list, ""),
        (store.stat, "a"),
        (store.delete, ["a"]),
    ):
        with pytest.raises(StorageRefused, match=r"no-such-bucket.*bucket does not exist"):
            verb(*arguments)
    store.close()


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [("s3://b/x", "s3fs", "s3"), ("gs://b/x", "gcsfs", "gcs"), ("abfs://c@a.dfs.core.windows.net/x", "adlfs", "azure")],
)
def test_a_package_that_is_not_installed(url: str, package: str, extra: str) -> None:
    program = (
        f"import sys; from chunkstore import open_store\nsys.modules[{package!r}] = None\nopen_store({url!r}).read('a')"
    )
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = failed.stderr.strip().splitlines()[-1]
    assert said.startswith("chunkstore.errors.StorageRefused")
    assert said.endswith(f"needs the package {package}: pip install 'pravega-spark[{extra}]'")


def test_a_server_that_is_not_there(kind: Kind, place: tuple[str, dict[str, Any]], monkeypatch: Any) -> None:
    options = {name: value.replace(kind.server.endpoint, NOWHERE) for name, value in place[1].items()}
    store = open_store(place[0], options)
    monkeypatch.setattr(adapter_of(store), "tries", 2)
    with pytest.raises(StorageUnavailable):
        store.read("a")
    with pytest.raises(StorageUnavailable):
        store.put("a", b"")
    with pytest.raises(PutUnknown):
        store.put_if_absent("a", body())
    store.close()


def test_an_outage_leaves_nothing_to_the_collector(
    kind: Kind, place: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {name: value.replace(kind.server.endpoint, NOWHERE) for name, value in place[1].items()}
    store = open_store(place[0], options)
    monkeypatch.setattr(adapter_of(store), "first_pause", 0.001)
    assert left_by_failures(store) == {}
    store.close()


@pytest.mark.parametrize(
    ("url", "options", "fault"),
    [
        ("abfs://c", {"connection_string": f"AccountName=a;AccountKey={SECRETS[0]};BlobEndpoint={NOWHERE}/a"}, None),
        ("abfs://c", {"connection_string": f"{SECRETS[0]}"}, None),
        ("abfs://c", {"account_name": "a", "account_key": SECRETS[0], "account_host": f"{SECRETS[1]}@nowhere"}, None),
        ("gs://b", {"token": SECRETS[1], "endpoint_url": NOWHERE}, None),
        ("gs://b", {"token": {"refresh_token": SECRETS[1]}}, None),
        ("gs://b", {"token": "anon"}, 403),
        ("gs://b", {"token": "anon"}, 400),
    ],
)
def test_credentials_are_never_shown(
    gcs_server: GcsServer, monkeypatch: Any, url: str, options: dict[str, Any], fault: int | None
) -> None:
    monkeypatch.setenv("FETCH_RAW_TOKEN_EXPIRY", "false")
    if fault:
        options = {**options, "endpoint_url": gcs_server.endpoint}
        answer = json.dumps({"error": {"message": f"invalid {SECRETS[0]}", "code": fault}})
        for method in ("GET", "POST"):
            gcs_server.add_fault(ServerFault(method, status=fault, answer=answer))
    store = open_store(url, options)
    monkeypatch.setattr(adapter_of(store), "tries", 1)
    for verb, *arguments in ((store.put_if_absent, "a", body()), (store.read, "a")):
        with pytest.raises(StorageError) as raised:
            verb(*arguments)
        shown = "".join(traceback.format_exception(raised.value)) + repr(store)
        error: BaseException | None = raised.value
        while error is not None:  # also what a traceback would not print
            shown += repr(error) + str(vars(error))
            error = error.__cause__ or error.__context__
        assert not any(secret in shown for secret in SECRETS), shown
    store.close()


@pytest.mark.parametrize("scheme", ["gs", "abfs"])
@pytest.mark.parametrize("place", ["", "/folder", "key:secret@bucket/a", "bucket/../other", "b/a//c"])
def test_roots_that_are_none(scheme: str, place: str) -> None:
    with pytest.raises((StorageRefused, ValueError)) as raised:
        open_store(f"{scheme}://{place}")
    assert "secret" not in str(raised.value)


# -- of one kind


def test_azure_creates_with_one_request(kind: Kind, place: tuple[str, dict[str, Any]], monkeypatch: Any) -> None:
    """Staged in blocks, it would hit the fault; the blocks of two writers could be committed as one blob."""
    if kind.module is not azure:
        return
    store = open_store(*place)
    store.put("first", b"")  # makes the filesystem
    fails(kind, "PUT", part="comp=block", status=403, count=100)
    large = os.urandom(70 * 2**20)  # more than the client sends in one request by itself
    assert store.put_if_absent("large", large) is Outcome.MINE
    assert store.read("large", 69 * 2**20) == large[69 * 2**20 :]
    monkeypatch.setattr(adapter_of(store), "largest_put", 1000)
    with pytest.raises(StorageRefused, match="1001 bytes; at most 1000"):
        store.put_if_absent("a", bytes(1001))
    kind.server.clear_faults()
    store.close()


@pytest.mark.parametrize("host", ["account.dfs.core.windows.net", "account.blob.core.usgovcloudapi.net"])
def test_azure_accounts_in_the_url(host: str) -> None:
    store = open_store(f"abfss://container@{host}/a/b/")
    assert store.root == f"abfs://container@{host}/a/b"
    assert azure.account_options(host) == {
        "account_name": "account",
        "account_host": f"account.blob.{host.partition('.')[2].partition('.')[2]}",
    }
