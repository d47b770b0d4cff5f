"""One adapter of the storage port per backend, and the choice among them by URL."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from typing import Any

from chunkstore.errors import StorageRefused
from chunkstore.measured_store import MeasuredStore
from chunkstore.port import Store
from chunkstore.schemes import BY_NAME, CONTROLLERS, SUPPORTED
from chunkstore.urls import check_url


def open_store(url: str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store at `url`: a path, or a URL with a scheme of `chunkstore.schemes` or any other one of fsspec.

    `storage_options` go to fsspec's filesystem; folders take 'min_free', memory none, and both ignore others. Of
    s3://, `client` says which client it is: "s3fs", or "obstore" for those that it shares with s3fs. Nothing is
    requested yet, so a wrong bucket or missing permissions show at the first use. Raises StorageRefused for any other
    URL, and for one that holds credentials. Each request is measured and logged (`chunkstore.measured_store`).
    """
    check_url(url)
    return MeasuredStore(_adapter(*_split(url), storage_options or {}))


def _adapter(scheme: str, place: str, options: Mapping[str, Any]) -> Store:
    """The store of a scheme's adapter, which alone is imported."""
    if scheme in CONTROLLERS:
        raise StorageRefused(
            f"{scheme}:// names a controller, but there is no broker here: give a folder or a bucket URL"
        )
    adapter = BY_NAME[scheme].adapter if scheme in BY_NAME else "generic"
    module = importlib.import_module(f"chunkstore.backends.{adapter}")
    store: Store = module.opened(scheme, place, options)
    return store


def _split(url: str) -> tuple[str, str]:
    """Protocol and the rest; for a folder its absolute path. No URL is echoed: it may hold credentials."""
    if not url or "\0" in url:
        raise StorageRefused(f"the root is empty or contains a NUL character: give {SUPPORTED}")
    if found := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url):
        scheme, place = found[1].lower(), url[found.end() :]
    elif url.startswith("file:/"):  # the way Hadoop prints it
        scheme, place = "file", url.removeprefix("file:")
    elif "://" in url:
        raise StorageRefused(f"chained and other special URLs are not supported as a root: give {SUPPORTED}")
    elif re.fullmatch(r"[\w.-]+:[0-9]+", url):
        scheme, place = "tcp", url  # a controller's host and port; a folder of such a name has a / in front
    else:
        scheme, place = "file", os.path.abspath(url)
    if scheme in BY_NAME and BY_NAME[scheme].place.startswith("/") and not place.startswith("/"):
        raise StorageRefused(f"a {scheme}:// root needs an absolute path, as in {scheme}:///data/streams")
    return scheme, place
