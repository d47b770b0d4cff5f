"""The open roots of this process, one for each URL and set of storage options.

Spark's Python workers run one task after the other. Roots stay open, so that not each task has to open them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chunkstore import StorageError, StorageRefused
from chunkstore.pravega.source import is_archive
from engine.errors import EngineError, RootReplaced
from engine.root import Root
from pravega_spark.settings import opening
from pravega_spark.storage_options import open_checked

if TYPE_CHECKING:
    from pravega_spark.streams.pravega_lts.root import PravegaRoot

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_open: dict[tuple[int, str], Root] = {}


def open_root(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    wal: str | None = None,
    *,
    create: bool = False,
    salvage: bool = False,
    unrecorded: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Root:
    """The root at `url`. Do not close it, as other parts of this process share it.

    create: create it if there is none, and the folder or bucket is empty. salvage, unrecorded, settings: see
    `opened_root`. Raises RootNotFound, StorageRefused.
    """
    how: dict[str, Any] = {"salvage": salvage, "unrecorded": unrecorded, "settings": settings or {}}
    key = _key(url, storage_options, wal, how)
    with _lock:
        root = _still_there(key)
        if root is None:
            root = _open[key] = opened_root(url, storage_options, wal=wal, create=create, empty=True, **how)
        return root


def _still_there(key: tuple[int, str]) -> Root | None:
    """The open root of a key; None if it is not open, or if another root has replaced it in the storage (P4)."""
    root = _open.get(key)
    if root is not None:
        try:
            root.check()
        except RootReplaced as error:
            logger.warning("%s", str(error))
            del _open[key]
            with contextlib.suppress(EngineError, StorageError):
                root.close()
            return None
    return root


def close_root(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    wal: str | None = None,
    *,
    salvage: bool = False,
    unrecorded: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Close the root at `url` if this process has it open. A later call of `open_root` opens it again."""
    with _lock:
        how = {"salvage": salvage, "unrecorded": unrecorded, "settings": settings or {}}
        root = _open.pop(_key(url, storage_options, wal, how), None)
    if root is not None:
        root.close()


def _key(url: str, options: Mapping[str, Any] | None, wal: str | None, how: Mapping[str, Any]) -> tuple[int, str]:
    return os.getpid(), json.dumps([url, wal, how, dict(options or {})], sort_keys=True, default=repr)


def opened_root(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    salvage: bool = False,
    unrecorded: bool = False,
    settings: Mapping[str, Any] | None = None,
    **how: Any,
) -> Root:
    """Open the root at `url`, or the long-term storage of a Pravega cluster, which is read-only.

    salvage: read the intact part of damaged long-term storage. unrecorded: read the events that a killed server left in
    its objects and did not record. settings: as `parse_settings` returns them; those of a root count if it is created
    now. The environment may have others. how: arguments of `Root.open`. Raises its errors, ValueError for wrong
    settings in the environment, StorageRefused for an unknown storage option, and RootReadOnly for a new root in a
    Pravega cluster's storage.
    """
    open_checked(url, storage_options)
    try:
        return Root.open(url, storage_options, **opening(settings or {}), **how)
    except StorageRefused:
        archive = archive_at(url, storage_options, salvage=salvage, unrecorded=unrecorded)
        if archive is None:
            raise
        return archive


def archive_at(url: str, storage_options: Mapping[str, Any] | None = None, **how: bool) -> PravegaRoot | None:
    """The long-term storage of a Pravega at `url`, None if there is none. how: `salvage`, `unrecorded`."""
    store = open_checked(url, storage_options)
    if not is_archive(store):
        return None
    from pravega_spark.streams.pravega_lts.root import PravegaRoot  # takes longer to load than all of ours needs

    return PravegaRoot(store, **how)


def _after_fork() -> None:
    """A forked process opens its own roots. A thread that does not exist in it may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)
