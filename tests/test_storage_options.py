"""Storage options that nobody knows are refused by name, wherever they are given, before anything is requested."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chunkstore import StorageRefused, open_store
from chunkstore.schemes import BY_NAME
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.roots import open_root
from pravega_spark.source.checkpoint import query_position
from pravega_spark.source.opening import Access, open_stream
from pravega_spark.source.options import SourceOptions
from pravega_spark.storage_options import check_storage_options, open_checked

SECRET = "sesame"
AZURE = "abfs://container@account.dfs.core.windows.net/streams"


@pytest.mark.parametrize(
    ("url", "given", "told"),
    [
        (
            "s3://bucket/a",
            {"aws_key": SECRET},
            "'aws_key' is not among the storage options of s3://. Did you mean 'key'?",
        ),
        (
            "s3://bucket",
            {"aws_secret_access_key": SECRET},
            "'aws_secret_access_key' is not among the storage options of s3://. Did you mean 'secret'?",
        ),
        (
            "s3a://bucket",
            {"region": SECRET},
            "'region' is not among the storage options of s3://. Did you mean "
            '\'client_kwargs\', as {"region_name": "…"}?',
        ),
        (
            "s3://bucket",
            {"endpoint_ur": SECRET, "key": SECRET, "foo": SECRET},
            "'endpoint_ur', 'foo' are not among the storage options of s3://. Did you mean 'endpoint_url'?",
        ),
        ("gs://bucket", {"tokn": SECRET}, "'tokn' is not among the storage options of gs://. Did you mean 'token'?"),
        (
            AZURE,
            {"acount_key": SECRET},
            "'acount_key' is not among the storage options of abfs://. Did you mean 'account_key'?",
        ),
        (
            "sftp://host/a",
            {"pasword": SECRET},
            "'pasword' is not among the storage options of sftp://. Did you mean 'password'?",
        ),
        (
            "/data/a",
            {"key": SECRET},
            "a folder takes no storage options except 'min_free', but 'key' is given: remove it, or give the URL",
        ),
        (
            "memory://a",
            {"key": SECRET, "b": SECRET},
            "memory takes no storage options, but 'key', 'b' are given: remove them, or",
        ),
    ],
)
def test_an_unknown_option_is_named_with_the_known_ones(url: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(StorageRefused, match=re.escape(f": {told}")) as caught:
        open_checked(url, given)
    assert SECRET not in str(caught.value)
    assert "takes no" in told or ". Known are " in str(caught.value).replace("? Known", "?. Known")


@pytest.mark.parametrize(
    ("url", "given"),
    [
        (
            "s3://bucket",
            ["key", "secret", "token", "endpoint_url", "anon", "client_kwargs", "config_kwargs", "profile"],
        ),
        ("s3://bucket", ["client"]),
        ("s3://bucket", ["use_listings_cache", "max_concurrency", "s3_additional_kwargs", "requester_pays"]),
        ("gs://bucket", ["token", "project", "endpoint_url", "retry_timeout", "session_kwargs"]),
        (AZURE, ["connection_string", "account_key", "sas_token", "anon", "exclude_cli_credential", "client_id"]),
        ("sftp://host/a", ["username", "password", "key_filename", "port", "temppath"]),
        ("hdfs://host/a", ["anything"]),
        ("/data/a", []),
    ],
)
def test_what_filesystems_take_is_let_through(url: str, given: list[str]) -> None:
    try:
        store = open_store(url)
    except StorageRefused:
        pytest.skip(f"nothing is installed for {url}")
    check_storage_options(store, dict.fromkeys(given, SECRET))


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_no_adapted_filesystem_takes_an_option_that_nobody_knows(name: str) -> None:
    with pytest.raises(StorageRefused, match="'no_such_option'"):
        open_checked(f"{name}://{BY_NAME[name].place.strip('…')}a/b", {"no_such_option": SECRET})


@pytest.mark.parametrize("url", ["gs://bucket", AZURE, "/data/a", "memory://a"])
def test_only_s3_has_a_choice_of_clients(url: str) -> None:
    with pytest.raises(StorageRefused, match="'client'"):
        open_checked(url, {"client": "obstore"})


def test_what_the_client_obstore_takes() -> None:
    """Its store refuses what the two clients do not share."""
    open_checked("s3://bucket", {"client": "obstore", "key": SECRET, "client_kwargs": {"region_name": SECRET}})
    with pytest.raises(StorageRefused, match="there is no 'requester_pays': remove it, or the option client"):
        open_checked("s3://bucket", {"client": "obstore", "requester_pays": SECRET})
    with pytest.raises(
        StorageRefused, match=re.escape('neither "s3fs", the default of s3://, nor "obstore"')
    ) as caught:
        open_checked("s3://bucket", {"client": SECRET})
    assert SECRET not in str(caught.value)


def test_wherever_they_are_given(tmp_path: Path) -> None:
    url, other, given = str(tmp_path / "root"), str(tmp_path / "other"), dict[str, Any](aws_key=SECRET)
    Root.open(url).close()
    options = {"controller": url, "scope": "s", "stream": "t", "storage.aws_key": SECRET}

    def by_spark(access: Access) -> object:
        return open_stream(SourceOptions.parse(options, {}), access)

    manager = StreamManager(url)
    acts: list[Callable[[], object]] = [
        lambda: by_spark("read"),
        lambda: by_spark("follow"),
        lambda: by_spark("write"),
        lambda: open_root(url, given),
        lambda: StreamManager(url, **given),
        lambda: manager.backup(other, given),
        lambda: StreamManager.restore(other, url, backup_options=given),
        lambda: StreamManager.restore(other, url, storage_options=given),
        lambda: manager.import_streams(other, storage_options=given),
        lambda: query_position(other, "s", "t", given),
    ]
    for act in acts:
        with pytest.raises(
            StorageRefused, match=r"a folder takes no storage options except 'min_free', but 'aws_key' is given"
        ) as caught:
            act()
        assert SECRET not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    manager.close()
