"""Credentials are shown nowhere, wherever they were planted: in URLs, in storage options, in the environment."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest

from chunkstore import open_store
from chunkstore.metrics import default_metrics
from chunkstore.urls import REMOVED, check_url, redact
from engine.root import Root
from pravega_spark import StreamManager
from pravega_spark.cli.main import cli
from pravega_spark.console.advice import ROOT_VARIABLE
from pravega_spark.jobs.spread import Target
from pravega_spark.roots import open_root
from pravega_spark.source.batch import BatchReader
from pravega_spark.source.options import SourceOptions, table_options
from pravega_spark.source.sink import BatchWriter
from tests.support.s3_server import S3Server

SECRET = "hunter2-is-secret"

LEAKY = [
    f"s3://bucket/streams?token={SECRET}",
    f"s3://bucket?{SECRET}",
    f"s3a://bucket/streams#{SECRET}",
    f"s3://AKIA:{SECRET}@bucket/streams",
    f"s3://{SECRET}@bucket/streams",
    f"S3://AKIA:pass/{SECRET}@bucket/streams",
    f"gs://bucket/streams?access_token={SECRET}",
    f"gs://user:{SECRET}@bucket/streams",
    f"abfs://container@account.dfs.core.windows.net/streams?sv=2022&sig={SECRET}",
    f"abfs://container@account:{SECRET}@host/streams",
    f"az://container/streams?{SECRET}",
    f"sftp://user:{SECRET}@host/streams",
    f"sftp://user:pa/{SECRET}@host/streams",
    f"sftp://user:pa?{SECRET}@host/streams",
    f"sftp://user%3A{SECRET}%40host/streams",
    f"ftp://:{SECRET}@host/streams",
    f"smb://domain;user:{SECRET}@host/share",
    f"https://{SECRET}@host/streams",
    f"nonsense://user:{SECRET}@host/streams",
    f"nonsense://host/streams?sig={SECRET}",
    f"simplecache::s3://AKIA:{SECRET}@bucket/streams",
    f"filecache::/data/streams?token={SECRET}",
    f"zip://streams.zip::s3://AKIA:{SECRET}@bucket/streams",
    f"memory://streams?token={SECRET}",
    f"file:///data/streams?token={SECRET}",
    f"file:/data/streams?sig={SECRET}",
    f"/data/streams?password={SECRET}",
    f"s3:/bucket/streams?X-Amz-Signature={SECRET}",
    f"s3:/AKIA:{SECRET}@bucket/streams",
    f"AKIA:{SECRET}@bucket/streams",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET};EndpointSuffix=core.windows.net",
]

HARMLESS = [
    "s3://bucket/streams",
    "s3://bucket/year=2026/key=1",
    "gs://bucket",
    "abfs://container/streams",
    "abfss://container@account.dfs.core.windows.net/streams",
    "sftp://user@host:22/data/streams",
    "sftp://[::1]:22/data",
    "hdfs://namenode:8020/streams",
    "memory://a/b",
    "/data/what? #1/a:b@c/key=5",
    "./a:b@c",
    "file:///data/with space/100%/a#b",
    "relative/streams",
]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """What was logged so far, by anybody, with DEBUG as the level of the root logger."""
    with caplog.at_level(logging.DEBUG):
        yield lambda: "\n".join(record.getMessage() + str(record.exc_text) for record in caplog.records)


def told(act: Callable[[], object]) -> str:
    """All that is shown of an error."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - its callers look at the message
        act()
    error = raised.value
    return "\n".join([str(error), repr(error), *traceback.format_exception(type(error), error, error.__traceback__)])


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"scope": "s", "stream": "t", **given}, {})


def of_the_environment(url: str) -> SourceOptions:
    return SourceOptions.parse({"scope": "s", "stream": "t"}, {ROOT_VARIABLE: url})


@pytest.mark.parametrize("url", LEAKY, ids=range(len(LEAKY)))
def test_a_url_with_credentials_is_refused_and_not_repeated(
    url: str, tmp_path: Path, logged: Callable[[], str]
) -> None:
    place = str(tmp_path / "root")
    errors = [
        told(lambda: open_store(url)),
        told(lambda: Root.open(url)),
        told(lambda: Root.open(place, wal=url)),
        told(lambda: open_root(url, {"secret": SECRET})),
        told(lambda: open_root(place, {}, url)),
        told(lambda: StreamManager(url)),
        told(lambda: options(controller=url)),
        told(lambda: options(path=url)),
        told(lambda: options(path=place, wal=url)),
        told(lambda: of_the_environment(url)),
    ]
    shown = [repr(Target(url, "s", "t", wal=url, storage={"secret": SECRET})), redact(url)]
    calls: list[tuple[list[str], dict[str, str]]] = [
        (["--root", url, "scope", "list"], {}),
        (["scope", "list"], {ROOT_VARIABLE: url}),
        (["--root", place, "--wal", url, "scope", "list"], {}),
        (["--json", "--root", place, "restore", url], {}),
    ]
    for arguments, environment in calls:
        result = CliRunner(env={ROOT_VARIABLE: None, **environment}).invoke(cli, arguments)
        assert result.exit_code != 0
        shown += [result.output, result.stderr, repr(result.exception)]
    for text in [*errors, *shown, logged()]:
        assert SECRET not in text
    assert not (tmp_path / "root").exists(), "nothing was begun"
    assert all("storage.<name>" in error for error in errors)


@pytest.mark.parametrize("url", HARMLESS)
def test_other_urls_are_taken_as_they_are(url: str) -> None:
    check_url(url)
    assert redact(url) == url
    assert url.rstrip("/").rpartition("/")[2] in options(controller=url).root


def test_of_a_url_with_credentials_the_scheme_is_shown() -> None:
    assert redact(f"sftp://user:pa/{SECRET}@host/streams") == f"sftp://{REMOVED}"
    assert redact(f"user:{SECRET}@host") == REMOVED


def test_credentials_in_storage_options_are_shown_nowhere(s3_server: S3Server, logged: Callable[[], str]) -> None:
    """Tasks get them, as they have to open the storage; what tasks say, what is planned and what is kept does not."""
    bucket = s3_server.make_bucket()
    url, wal = f"{bucket}/root", f"{bucket}/wal"
    storage = {
        **s3_server.storage_options(),
        "secret": SECRET,
        "token": SECRET,
        "s3_additional_kwargs": {"password": SECRET},
    }
    given = {"controller": url, "wal": wal} | {f"storage.{name}": json.dumps(each) for name, each in storage.items()}
    Root.open(url, storage, wal=wal, containers=1).close()
    parsed = options(**given)
    with StreamManager(url, wal=wal, **storage) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "t", 1)
        shown = [repr(manager), repr(open_root(url, parsed.storage, parsed.wal)), repr(parsed), str(vars(manager))]
    writer = BatchWriter(parsed, _schema())
    batch = pa.record_batch({"event": pa.array([b"x" * 100], pa.binary())})
    message = writer.write(iter([batch]))
    writer.commit([message])
    reader = BatchReader(parsed)
    partitions = reader.partitions()
    assert partitions and sum(len(batch) for part in partitions for batch in reader.read(part)) == 1
    for value in (message, partitions):
        shown += [repr(value), repr(pickle.dumps(value))]
    shown += [str(table_options(given)), generate_latest(default_metrics().registry).decode(), logged()]
    shown += [
        told(lambda: options(**{**given, "storage.Secret": "other"})),
        told(lambda: options(**given, max_event_bytes="none")),
        told(lambda: writer.write(iter([pa.record_batch({"other": pa.array([1])})]))),
    ]
    store = open_store(bucket, storage)
    for info in store.list(""):
        shown += [info.path, repr(store.read(info.path))]
    for text in shown:
        assert SECRET not in text


def _schema() -> Any:
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StructType([StructField("event", BinaryType())])
