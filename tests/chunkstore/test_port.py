"""Choosing a store, checking names, and what errors carry."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from chunkstore import (
    ObjectInfo,
    ObjectNotFound,
    Outcome,
    PutUnknown,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
    Store,
    open_store,
)
from chunkstore.backends.azure import AzureStore
from chunkstore.backends.gcs import GcsStore
from chunkstore.backends.generic import GenericStore
from chunkstore.backends.local import LocalStore
from chunkstore.backends.memory import MemoryStore
from chunkstore.backends.s3 import S3Store
from chunkstore.backends.sftp import SftpStore
from chunkstore.errors import InvalidOffset, ObjectReadOnly, Unsupported
from chunkstore.measured_store import MeasuredStore
from chunkstore.port import TOKEN, Parts, check_path, check_prefix, joined, token_of
from chunkstore.schemes import BY_NAME
from chunkstore.testing.contracts import BAD_PATHS


@pytest.mark.parametrize(
    ("url", "kind", "root"),
    [
        ("/a/b/", LocalStore, "file:///a/b"),
        ("/a//b/./c", LocalStore, "file:///a/b/c"),
        ("file:///a/b", LocalStore, "file:///a/b"),
        ("FILE:///a/b", LocalStore, "file:///a/b"),
        ("file:/a/b", LocalStore, "file:///a/b"),
        ("/a/s3:/b", LocalStore, "file:///a/s3:/b"),
        ("./s3:/b", LocalStore, f"file://{os.getcwd()}/s3:/b"),
        ("C:/data", LocalStore, f"file://{os.getcwd()}/C:/data"),
        ("day 1: s3:/b", LocalStore, f"file://{os.getcwd()}/day 1: s3:/b"),
        ("night:shift/b", LocalStore, f"file://{os.getcwd()}/night:shift/b"),
        ("relative/to here", LocalStore, f"file://{os.getcwd()}/relative/to here"),
        ("memory://", MemoryStore, "memory://"),
        ("memory://a/b/", MemoryStore, "memory://a/b"),
        ("s3://bucket", S3Store, "s3://bucket"),
        ("s3://bucket/a/b/", S3Store, "s3://bucket/a/b"),
        ("s3a://bucket/a", S3Store, "s3://bucket/a"),
        ("gs://bucket/a/", GcsStore, "gs://bucket/a"),
        ("gcs://bucket", GcsStore, "gs://bucket"),
        ("abfs://container/a", AzureStore, "abfs://container/a"),
        ("az://container", AzureStore, "abfs://container"),
        ("sftp://user@host:22/a/b/", SftpStore, "sftp://user@host:22/a/b"),
        ("dir://a/b", GenericStore, "dir://a/b"),
    ],
)
def test_the_store_for_a_url(url: str, kind: type[Store], root: str) -> None:
    store = open_store(url)
    assert isinstance(store, MeasuredStore) and type(store.inner) is kind
    assert store.root == store.inner.root == root
    assert repr(store) == f"MeasuredStore({kind.__name__}({root!r}))"


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_each_scheme_has_the_adapter_of_its_row(name: str) -> None:
    store = open_store(f"{name}://{BY_NAME[name].place.strip('…')}a/b")
    assert isinstance(store, MeasuredStore)
    assert type(store.inner).__module__ == f"chunkstore.backends.{BY_NAME[name].adapter.removesuffix('_clients')}"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("tcp://localhost:9090", "there is no broker"),
        ("nonsense://host/a", "unknown filesystem nonsense://"),
        ("nonsense://secret@host/a", "a token, before"),
        ("simplecache::s3://a", "not supported"),
        ("file://host/a", "absolute path"),
        ("", "empty"),
        ("/a\0b", "NUL"),
        ("s3:/bucket/x", r"'s3:/bucket/x' would be a folder named 's3:'. Did you mean 's3://bucket/x'\?"),
        ("S3:bucket", r"Did you mean 'S3://bucket'\?"),
        ("s3a:/bucket", r"Did you mean 's3a://bucket'\?"),
        ("s3//bucket/x", r"Did you mean 's3://bucket/x'\?"),
        ("gs:/bucket/x", r"Did you mean 'gs://bucket/x'\?"),
        ("abfs:/container@account/x", r"Did you mean 'abfs://container@account/x'\?"),
        ("memory:/a", r"Did you mean 'memory://a'\?"),
        ("webhdfs:/host/a", r"Did you mean 'webhdfs://host/a'\?"),
        ("file:a/b", r"Did you mean 'file:///a/b'\?"),
        ("FILE:/a/b", r"Did you mean 'file:///a/b'\?"),
        ("s3:/secret@bucket/x", "a token, before"),
    ],
)
def test_urls_that_are_refused(url: str, reason: str) -> None:
    with pytest.raises(StorageRefused, match=reason) as raised:
        open_store(url)
    assert "secret" not in str(raised.value)


def test_options_for_a_bucket_do_not_disturb_a_folder(tmp_path: Path) -> None:
    """The log may be in a folder and the chunks in a bucket, with one set of options."""
    open_store(str(tmp_path), {"key": "x", "secret": "y"}).put("a", b"")
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize("path", BAD_PATHS)
def test_bad_paths(path: str) -> None:
    with pytest.raises(ValueError, match="storage path"):
        check_path(path)
    if path:
        with pytest.raises(ValueError, match="storage path"):
            check_prefix(path + "/")


@pytest.mark.parametrize("path", ["a", "a/b", "...", "a/..b", ".a", "é" * 450, "a" * 900, "a\\b", "~", "a b"])
def test_good_paths(path: str) -> None:
    check_path(path)
    check_prefix(path + "/")


def test_token() -> None:
    assert token_of(bytearray(range(30))) == bytes(range(TOKEN))
    with pytest.raises(ValueError, match="24 bytes; got 23"):
        token_of(bytes(23))


def test_kinds_of_errors() -> None:
    kinds = {
        ObjectNotFound,
        ObjectReadOnly,
        StorageUnavailable,
        PutUnknown,
        InvalidOffset,
        Unsupported,
        StorageFull,
        StorageRefused,
    }
    assert all(kind.__mro__[1] is StorageError for kind in kinds)


def test_errors_cross_processes() -> None:
    error = pickle.loads(pickle.dumps(InvalidOffset("where and why", expected=3, given=5)))
    assert (type(error), str(error), error.expected, error.given) == (InvalidOffset, "where and why", 3, 5)
    assert str(pickle.loads(pickle.dumps(PutUnknown("why")))) == "why"


class SmallestStore(Store):
    """Only what has no default."""

    root = "smallest://"
    remote = can_append = False

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        if path not in self.objects:
            raise ObjectNotFound(path)
        return self.objects[path][start:end]

    def put(self, path: str, data: Parts) -> None:
        self.objects[path] = bytes(joined(data))

    def put_if_absent(self, path: str, data: Parts) -> Outcome:
        return Outcome.MINE if self.objects.setdefault(path, bytes(joined(data))) == joined(data) else Outcome.ANOTHERS

    def list(self, prefix: str, after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        return []

    def stat(self, path: str) -> ObjectInfo:
        return ObjectInfo(path, len(self.objects[path]), 12.5)

    def delete(self, paths: object) -> None:
        self.objects.clear()


def test_defaults() -> None:
    store = SmallestStore()
    store.put("a", b"abc")
    assert store.read_ranges([("a", 1, 2), ("b", 0, None)]) == [b"b", None]  # type: ignore[list-item]
    assert store.clock() == 12.5
    assert store.objects == {}
    with pytest.raises(Unsupported, match=r"smallest://.*'a'"):
        store.append("a", 0, b"")
    with pytest.raises(Unsupported, match=r"smallest://.*'a'"):
        store.set_read_only("a", True)
    store.close()
