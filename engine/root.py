"""A root: the folder or bucket that holds streams, and the containers of it that this process has open.

Owns `pravega.json`, which fixes for ever what all processes must agree on: the format, the number of containers, the
grace period of the log, where the log lies. It is made by the first opening, after the storage has passed the self-test
of the port; so that is paid once. A log on a root of its own carries a counterpart that names the root it belongs to;
that one is made first, so that later its absence means that the log is not there, and nobody begins another.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chunkstore import ObjectNotFound, StorageRefused, Store, open_store
from chunkstore.checksums import crc32c
from chunkstore.selftest import self_test
from engine.container import Container, Settings
from engine.manager import ContainerManager
from engine.reads import Stores
from engine.recovery import Recovery, recover

CONFIG = "pravega.json"
FORMAT = 1


@dataclass(frozen=True)
class RootConfig:
    """What a root's processes agree on. Seconds and numbers; `wal` is the URL of the log's root, None = in the root."""

    id: str
    containers: int = 4
    grace_seconds: float = 600.0
    garbage_delay_seconds: float = 600.0
    transient_idle_seconds: float = 3600.0
    wal: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.containers, int) and self.containers > 0):
            raise ValueError(f"containers={self.containers!r} is not a positive number")
        if not self.grace_seconds > 0:
            raise ValueError(f"grace_seconds={self.grace_seconds!r} is not a positive number of seconds")
        if not self.garbage_delay_seconds >= 0:
            raise ValueError(f"garbage_delay_seconds={self.garbage_delay_seconds!r} is not a number of seconds")
        if not self.transient_idle_seconds > 0:
            raise ValueError(
                f"transient_idle_seconds={self.transient_idle_seconds!r} is not a positive number of seconds"
            )

    def to_bytes(self) -> bytes:
        """The object's content. It begins with the id, which serves as the token of `put_if_absent`."""
        fields = {"id": self.id, "format": FORMAT, **{k: v for k, v in vars(self).items() if k != "id"}}
        fields["checksum"] = _checksum(fields)
        return json.dumps(fields, indent=1).replace('{\n "id"', '{"id"', 1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> RootConfig:
        """The inverse of `to_bytes`. Raises StorageRefused when it is not a root's description."""
        try:
            fields = json.loads(data)
            version = fields.pop("format")
            if "log_of" in fields:
                raise StorageRefused(f"{where} holds the write-ahead log of another root; give that root instead")
            if version != FORMAT:
                raise StorageRefused(f"{where}/{CONFIG} has format {version}; this version reads format {FORMAT}")
            if fields.pop("checksum") != _checksum({**fields, "format": version}):
                raise StorageRefused(f"{where}/{CONFIG} is damaged or was changed; restore it from a copy")
            return cls(**fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageRefused(f"{where}/{CONFIG} does not describe a root of streams: {error!r}") from error


class Root:
    """An open root. Containers are opened when they are first used, once for this process; again after a fork.

    Use `Root.open`. `config` is what the root fixed, `settings` how this process works with it.
    """

    def __init__(self, stores: Stores, config: RootConfig, settings: Settings) -> None:
        self.stores = stores
        self.config = config
        self.settings = replace(
            settings,
            grace=config.grace_seconds,
            garbage_delay=config.garbage_delay_seconds,
            transient_idle=config.transient_idle_seconds,
        )
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._manager = ContainerManager(self._start)

    @classmethod
    def open(
        cls,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        wal: str | None = None,
        create: bool = True,
        new_log: bool = False,
        settings: Settings | None = None,
        **agreed: Any,
    ) -> Root:
        """Open a root, making it if it is new and `create` is set.

        Args:
            url: a folder or a URL. storage_options: for fsspec. wal: another root for the log, kept with a new root.
            new_log: the log's root is lost, and an empty one takes its place; `recover` each container then.
            agreed: values of RootConfig for a new root (containers, grace_seconds, garbage_delay_seconds,
                transient_idle_seconds).

        Raises StorageRefused when the storage is not fit, or not this root's.
        """
        store = open_store(url, storage_options)
        config = _read_config(store)
        if config is None:
            if not create:
                raise StorageRefused(f"{store.root} holds no streams: there is no {CONFIG}")
            config = _create(url, store, wal, storage_options, agreed)
        log = _log_store(url, store, config, wal, storage_options, new_log)
        if settings is None:
            settings = Settings(linger=0.05 if log.remote else 0.005)
        return cls(Stores(log, store), config, settings)

    @property
    def containers(self) -> ContainerManager:
        """The containers of this process."""
        with self._lock:
            if self._pid != os.getpid():  # threads and connections did not survive the fork
                self._manager, self._pid = ContainerManager(self._start), os.getpid()
            return self._manager

    def _start(self, number: int) -> Container:
        return Container(self.stores, number, self.settings)

    def container(self, number: int) -> Container:
        """The container of that number, opened if need be. Raises ContainerOffline if it failed to open too often."""
        if not 0 <= number < self.config.containers:
            raise ValueError(f"container {number}: the root has containers 0 to {self.config.containers - 1}")
        return self.containers.container(number)

    def restart(self, number: int) -> Container:
        """Open a container that failed to open too often, after what was wrong is mended."""
        return self.containers.restart(number)

    def recover(self, container: int, *, force: bool = False) -> Recovery:
        """Begin a new log for a container whose log is gone (F3).

        An operator's decision: stop all other processes first. `force`: do so although there is a log. Raises
        NothingToRecover, DataCorruption, StorageError.
        """
        self.containers.stop(container)
        return recover(self.stores, container, force=force)

    def repair(self, container: int, address: int) -> None:
        """Give up the damaged frame that stops a container's log, and whatever hangs on it (W8).

        An operator's decision: stop all other processes first. Raises ValueError when that frame is not damaged.
        """
        Container(self.stores, container, self.settings, repair=address).close()

    def close(self) -> None:
        """Close all containers that are open here."""
        if self._pid == os.getpid():
            self._manager.close()

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Root({self.stores.chunks.root!r})"


def _read_config(store: Store) -> RootConfig | None:
    try:
        return RootConfig.from_bytes(store.read(CONFIG), store.root)
    except ObjectNotFound:
        return None


def _create(
    url: str, store: Store, wal: str | None, options: Mapping[str, Any] | None, agreed: Mapping[str, Any]
) -> RootConfig:
    """Make the root's description, unless another process was faster: then theirs holds."""
    config = RootConfig(uuid.uuid4().hex, **agreed)
    self_test(store)
    if wal is not None and (log := open_store(wal, _options_for(wal, url, options))).root != store.root:
        self_test(log)
        config = replace(config, id=_begin_log(log, store, config.id), wal=log.root)
    store.put_if_absent(CONFIG, config.to_bytes())
    made = _read_config(store)
    assert made is not None
    return made


def _begin_log(log: Store, store: Store, root_id: str) -> str:
    """Mark a new log's root as that of `store`, which is not made yet. Returns the id that the mark gives to it."""
    log.put_if_absent(CONFIG, _marker(root_id, store.root))
    found = _read_marker(log)
    used = bool(log.list("containers/", limit=1)) and _read_config(store) is None
    if found is None or found.get("root") != store.root or used:
        raise StorageRefused(f"option 'wal': {log.root} is in use already; give an empty folder or bucket")
    return str(found["log_of"])


def _marker(root_id: str, root: str) -> bytes:
    """What says in a log's root whose log it is."""
    return json.dumps({"log_of": root_id, "root": root, "format": FORMAT}).encode()


def _log_store(
    url: str, store: Store, config: RootConfig, wal: str | None, options: Mapping[str, Any] | None, new: bool
) -> Store:
    """The root of the log, which must be the one that belongs to this root."""
    where = wal or config.wal
    log = open_store(where, _options_for(where, url, options)) if where is not None else store
    if config.wal is None:
        if log.root != store.root:
            raise StorageRefused(f"option 'wal': the log of {store.root} lies in the root itself, not in {log.root}")
        return store
    found = _read_marker(log)
    if found is None and new:
        log.put_if_absent(CONFIG, _marker(config.id, store.root))
        found = _read_marker(log)
    if found is None:
        raise StorageRefused(
            f"option 'wal': the write-ahead log of {store.root} should be in {log.root}, but there is no {CONFIG}; "
            "make the storage available, or say where the log is now; if it is lost, open the root with new_log and "
            "recover its containers"
        )
    if found.get("log_of") != config.id:
        raise StorageRefused(f"option 'wal': {log.root} is not the write-ahead log of {store.root}")
    return log


def _read_marker(log: Store) -> dict[str, Any] | None:
    try:
        found = json.loads(log.read(CONFIG))
    except ObjectNotFound:
        return None
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def _checksum(fields: Mapping[str, Any]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())


def _options_for(wal: str, url: str, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The storage options are for the root; a log on another kind of storage gets none."""
    return options if _protocol(wal) == _protocol(url) else None


def _protocol(url: str) -> str:
    return url.partition("://")[0] if "://" in url else "file"
