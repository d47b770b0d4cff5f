"""What is different with the client obstore: which options there are, where it goes, and what its errors say."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import certifi
import pytest

from chunkstore import Outcome, Range, StorageRefused, Store, open_store
from chunkstore.testing.contracts import body
from tests.support.s3_server import S3Server
from tests.support.wsgi_server import ServerFault

pytest.importorskip("obstore")

SECRET = "sesame"


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.make_bucket()


@pytest.fixture
def options(s3_server: S3Server) -> Iterator[dict[str, Any]]:
    yield {**s3_server.storage_options(), "client": "obstore"}
    s3_server.clear_faults()


@pytest.fixture
def store(bucket: str, options: dict[str, Any]) -> Iterator[Store]:
    store = open_store(bucket, options)
    yield store
    store.close()


def used(bucket: str, options: dict[str, Any]) -> None:
    """Make, read, list and delete an object: with both clients, and both must get there."""
    store, mine, name = open_store(bucket, options), body(), uuid.uuid4().hex
    assert store.put_if_absent(f"{name}/a", mine) is Outcome.MINE
    assert store.read(f"{name}/a") == mine
    assert [info.path for info in store.list(f"{name}/")] == [f"{name}/a"]
    store.delete([f"{name}/a"])
    store.close()


# -- which options there are


@pytest.mark.parametrize("value", ["s3", "Obstore", "", None, 1, SECRET])
def test_a_client_that_nobody_knows(value: object) -> None:
    with pytest.raises(StorageRefused, match='neither "s3fs", the default') as caught:
        open_store("s3://bucket", {"client": value})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"requester_pays": SECRET}, "'requester_pays'"),
        ({"aws_key": SECRET}, "'aws_key'"),
        ({"s3_additional_kwargs": {"ServerSideEncryption": SECRET}}, "'s3_additional_kwargs'"),
        ({"client_kwargs": {"aws_access_key_id": SECRET}}, "'client_kwargs.aws_access_key_id'"),
        ({"config_kwargs": {"retries": {"mode": SECRET}}, "kms": SECRET}, "'config_kwargs.retries.mode', 'kms'"),
        ({"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, "'config_kwargs.s3.use_accelerate_endpoint'"),
    ],
)  # fmt: skip
def test_an_option_without_counterpart_is_refused_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(
        StorageRefused, match=f'client = "obstore" there is no {told}.*: remove .* Known are anon, '
    ) as caught:
        open_store("s3://bucket", {**given, "client": "obstore"})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "more",
    [
        {"config_kwargs": {"connect_timeout": 3, "read_timeout": 20, "retries": {"max_attempts": 1}}},
        {"config_kwargs": {"max_pool_connections": 3, "s3": {"addressing_style": "path"}}, "use_ssl": False},
        {"client_kwargs": None, "config_kwargs": None, "token": None, "anon": False},
        {"client_kwargs": {"verify": False, "use_ssl": False}},
        {"client_kwargs": {"verify": certifi.where()}},
    ],
)
def test_options_of_both_clients(s3_server: S3Server, bucket: str, options: dict[str, Any], more: Any) -> None:
    used(bucket, {"endpoint_url": s3_server.endpoint, **options, **more})


def test_without_a_signature(s3_server: S3Server, bucket: str, store: Store) -> None:
    """The server gives nobody but its owner what is not public."""
    store.put("private", b"x")
    anonymous = open_store(bucket, {"endpoint_url": s3_server.endpoint, "anon": True, "client": "obstore"})
    with pytest.raises(StorageRefused, match="no permission"):
        anonymous.read("private")
    assert store.read("private") == b"x"
    anonymous.close()


def test_a_bucket_in_the_host_name(s3_server: S3Server, bucket: str, options: dict[str, Any]) -> None:
    """The name cannot be looked up here, so that is as far as it goes."""
    there = {**options["client_kwargs"], "endpoint_url": "http://nowhere.invalid:1"}
    style = {"retries": {"max_attempts": 0}, "s3": {"addressing_style": "virtual"}}
    store = open_store(bucket, {**options, "client_kwargs": there, "config_kwargs": style})
    with pytest.raises(Exception, match="check the endpoint"):
        store.read("a")
    store.close()


# -- where it goes, and as whom


def test_what_the_environment_says(s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing-secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    used(bucket, {"client": "obstore"})


def test_a_profile(s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = "aws_access_key_id = testing\naws_secret_access_key = testing-secret\n"
    place = f"region = us-east-1\nendpoint_url = {s3_server.endpoint}\n"
    (tmp_path / "config").write_text(f"[profile work]\n{keys}{place}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    used(bucket, {"client": "obstore", "profile": "work"})
    store = open_store(bucket, {"client": "obstore"})
    for verb, *arguments in (
        (store.read, "a"),
        (store.read_ranges, [Range("a"), Range("b")]),
        (store.read_into, "a", 0, memoryview(bytearray(3))),
        (store.put_if_absent, "a", body()),
        (store.put, "a", b""),
        (store.list, ""),
        (store.stat, "a"),
    ):
        with pytest.raises(StorageRefused, match="no credentials found"):
            verb(*arguments)
    store.close()


def test_only_the_environment_of_both_counts(
    bucket: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What object_store alone looks for would send bodies elsewhere, or unsigned, or as somebody else."""
    for name, value in {
        "AWS_ENDPOINT": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_BUCKET": "another",
        "AWS_REGION": "eu-west-1",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_SESSION_TOKEN": "stale",
        "AWS_CONDITIONAL_PUT": "disabled",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "AWS_S3_EXPRESS": "true",
    }.items():
        monkeypatch.setenv(name, value)
    used(bucket, options)


# -- what errors say


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ServerFault("GET", status=403, code="InvalidAccessKeyId"), r"no permission.*\(InvalidAccessKeyId\)"),
        (ServerFault("GET", status=401, code="Unauthorized"), r"no permission.*\(Unauthorized\)"),
        (ServerFault("GET", status=301, code="PermanentRedirect"), r"elsewhere.*\(PermanentRedirect\)"),
        (ServerFault("GET", status=400, code="AuthorizationHeaderMalformed"), "elsewhere"),
        (ServerFault("GET", status=503, code="SlowDown", count=9), r"try again \(SlowDown\)"),
        (ServerFault("GET", status=502, answer="<html>Bad gateway</html>", count=9), r"try again \(502\)"),
        (ServerFault("GET", status=404, answer="<html>Not found</html>"), r"try again \(404\)"),
        (ServerFault("GET", count=9), r"try again \(Request\)"),
    ],
)
def test_what_is_told_of_a_failure(
    s3_server: S3Server, bucket: str, options: dict[str, Any], fault: ServerFault, told: str
) -> None:
    store = open_store(bucket, {**options, "config_kwargs": {"retries": {"max_attempts": 1}}})
    for verb, *arguments in (
        (store.read, "a"),
        (store.read_ranges, [Range("a"), Range("a", 1, 2)]),
        (store.read_into, "a", 0, memoryview(bytearray(3))),
    ):
        s3_server.clear_faults()
        s3_server.add_fault(fault)
        with pytest.raises(Exception, match=f"'a'.*{told}"):
            verb(*arguments)
    store.close()


def test_a_key_that_no_header_can_hold(bucket: str, options: dict[str, Any]) -> None:
    store = open_store(bucket, {**options, "key": f"{SECRET}\n"})
    with pytest.raises(StorageRefused, match="check the storage options") as caught:
        store.read("a")
    assert SECRET not in str(caught.value)
    store.close()


# -- bodies


def test_large_bodies_go_in_parts_and_come_piece_by_piece(store: Store) -> None:
    data = os.urandom((20 << 20) + 5)
    store.put("large", [data[:100], memoryview(data)[100:]])
    assert store.stat("large").size == len(data)
    assert store.read("large") == data
    room = memoryview(bytearray(len(data) - 7))
    assert store.read_into("large", 7, room) == len(room)
    assert room == data[7:]
    ends = [*range(0, len(data), 1 << 20), len(data)]
    found = store.read_ranges([Range("large", start, end) for start, end in pairwise(ends)])
    assert b"".join(part or b"" for part in found) == data
    store.delete(["large"])


@pytest.mark.parametrize("path", ["a\nb", "a\x7f", "a\x01/b"])
def test_control_characters_in_paths(store: Store, path: str) -> None:
    for verb, *arguments in ((store.put, path, b""), (store.put_if_absent, path, body()), (store.read, path)):
        with pytest.raises(ValueError, match="contains a control character"):
            verb(*arguments)


def test_a_create_that_got_no_answer_is_sent_again(store: Store, s3_server: S3Server) -> None:
    s3_server.add_fault(ServerFault("PUT", count=2))
    assert store.put_if_absent("lost", body()) is Outcome.MINE
    store.delete(["lost"])
