"""A root: the folder or bucket that holds streams, and the containers of it that this process has open.

Owns the root's description, which fixes for ever what all processes must agree on: the format, the number of
containers, the grace period of the log, where the log lies. It is made by who asks for a new root, after the storage
has passed the self-test of the port; so that is paid once. It is never made over what is ours, nor inside another root
(P1): where it is missing, no container begins from nothing. A log on a root of its own carries a counterpart that names
the root it belongs to; that one is made first, so that later its absence means that the log is not there, and nobody
begins another. What a container is made of is imported when one is opened: who only reads and writes objects, as the
tasks of Spark do, opens none.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chunkstore import ObjectNotFound, StorageRefused, Store, open_store
from chunkstore.checksums import crc32c
from chunkstore.decoding import InvalidData, Natural, decoding, json_value, reader
from chunkstore.paths import BACKUP, ROOT, SELF_TESTS, SYSTEM, ContainerId
from chunkstore.selftest import self_test
from chunkstore.urls import check_url
from engine.containers.registry import ContainerManager
from engine.errors import RootNotFound, did_you_mean, root_command
from engine.identity import ANY_IDENTITY, Identity, RootIdentity
from engine.logs.frames import START
from engine.ownership import this_process
from engine.places import Obstacle, obstacle, refuse_inside, root_around, similar_roots, slips_of
from engine.settings import Settings
from engine.storage.reads import Stores

if TYPE_CHECKING:
    from engine.containers.container import Container
    from engine.logs.log import Repair
    from engine.storage.recovery import Recovery

logger = logging.getLogger(__name__)

FORMAT = 1

_GENERATION = re.compile("[0-9a-f]{32}")
_RECOVERED = reader(tuple[tuple[Natural, str], ...])

MAX_CONTAINERS = 10_000
MAX_SEGMENTS = 100_000
"""The most that a root may allow a stream: what a stream cut can name."""

MAX_SECONDS = 1e9
"""Some thirty years: the longest time that may be set anywhere."""


@dataclass(frozen=True)
class RootConfig:
    """What a root's processes agree on. Seconds and numbers; `wal` is the URL of the log's root, None = in the root."""

    id: str
    containers: int = 4
    grace_seconds: float = 600.0
    garbage_delay_seconds: float = 600.0
    transient_idle_seconds: float = 3600.0
    wal: str | None = None
    max_segments: int = 10_000
    """The most segments that a stream may have at a time."""
    origin: str | None = None
    """The id of the root from whose backup this one was restored."""
    recovered: tuple[tuple[int, str], ...] = ()
    """The containers that were recovered, with the generation of each one's log since then (P4)."""

    def __post_init__(self) -> None:
        for name, most in (("containers", MAX_CONTAINERS), ("max_segments", MAX_SEGMENTS)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise ValueError(f"{name}={value!r} is not a number from 1 to {most}")
        for name in ("grace_seconds", "garbage_delay_seconds", "transient_idle_seconds"):
            value, none = getattr(self, name), name == "garbage_delay_seconds"
            if type(value) not in (int, float) or not (0 < value <= MAX_SECONDS or (none and value == 0)):
                raise ValueError(f"{name}={value!r} is not a positive number of seconds, {MAX_SECONDS:g} at most")
        if type(self.id) is not str or not {type(self.wal), type(self.origin)} <= {str, type(None)}:
            raise ValueError(f"id={self.id!r}, wal={self.wal!r} and origin={self.origin!r} are not all texts")

    def container(self, number: int) -> ContainerId:
        """A container with the present generation of its log."""
        return ContainerId(number, dict(self.recovered).get(number, self.id))

    @property
    def generation(self) -> tuple[str, tuple[tuple[int, str], ...]]:
        """What is another one after the root was created anew, restored, or one of its containers recovered (P4)."""
        return self.id, self.recovered

    def with_recovered(self, number: int, generation: str) -> RootConfig:
        """The same root after a container was recovered, whose log has a new generation."""
        return replace(self, recovered=tuple(sorted({**dict(self.recovered), number: generation}.items())))

    def to_bytes(self) -> bytes:
        """The object's content. It begins with the id, which serves as the token of `put_if_absent`."""
        fields = {"id": self.id, "format": FORMAT, **{k: v for k, v in vars(self).items() if k != "id"}}
        fields["checksum"] = checksum(fields)
        return json.dumps(fields, indent=1).replace('{\n "id"', '{"id"', 1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> RootConfig:
        """The inverse of `to_bytes`. Raises StorageRefused when it is not a root's description."""
        wrong = f"{where}/{ROOT} does not describe a root of streams"
        with decoding(lambda problem: StorageRefused(f"{wrong}: {problem}. Restore it from a copy")):
            fields = json_value(data)
            version = fields.pop("format")
            if "log_of" in fields:
                raise StorageRefused(f"{where} holds the write-ahead log of another root; give that root instead")
            if version != FORMAT:
                raise StorageRefused(f"{where}/{ROOT} has format {version}; this version reads format {FORMAT}")
            if fields.pop("checksum") != checksum({**fields, "format": version}):
                raise StorageRefused(f"{where}/{ROOT} is damaged or was changed; restore it from a copy")
            fields["recovered"] = _RECOVERED(fields["recovered"])
            for generation in (fields["id"], *dict(fields["recovered"]).values()):
                if type(generation) is not str or _GENERATION.fullmatch(generation) is None:
                    raise InvalidData(f"id={generation!r} is not an id, which has 32 hexadecimal digits")
            return cls(**fields)


class Root:
    """An open root. Containers are opened when they are first used, once for this process; again after a fork.

    Use `Root.open`. `config` is what the root fixed, `settings` how this process works with it.
    """

    def __init__(
        self, stores: Stores, config: RootConfig, settings: Settings, *, described: bool = False, mark: Hashable = None
    ) -> None:
        """described: the stores hold the description, so that no container is to begin where it is not (any more).
        mark: of the description, from before it was read (see `engine.identity`)."""
        self.stores = stores
        self.config = config
        self.settings = replace(
            settings,
            grace=config.grace_seconds,
            garbage_delay=config.garbage_delay_seconds,
            transient_idle=config.transient_idle_seconds,
        )
        self._described = described
        self._identity: Identity = self._identity_of(config, mark) if described else ANY_IDENTITY
        self._managers = {this_process(): ContainerManager(self._start)}

    def _identity_of(self, config: RootConfig, mark: Hashable) -> RootIdentity:
        store = self.stores.chunks

        def generation(data: bytes) -> object:
            return RootConfig.from_bytes(data, store.root).generation

        return RootIdentity(store, config.generation, generation, mark)

    @classmethod
    def open(
        cls,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        wal: str | None = None,
        create: bool = True,
        empty: bool = False,
        new_log: bool = False,
        dry_run: bool = False,
        settings: Settings | None = None,
        **agreed: Any,
    ) -> Root:
        """Open a root; if there is none, and `create` is set, make it: never over anything that is ours (P1).

        Args:
            url: a folder or a URL. storage_options: for fsspec. wal: another root for the log, kept with a new root.
            empty: make it in a place that is empty only, not beside objects of others.
            new_log: the log's root is lost, and an empty one takes its place; `recover` each container then.
            dry_run: with `create` and `new_log`, check all that they require, and make nothing; RootNotFound is raised
                where a root would be made.
            agreed: values of RootConfig for a new root (containers, grace_seconds, garbage_delay_seconds,
                transient_idle_seconds).

        Raises RootNotFound; StorageRefused when the storage is not fit, or not this root's, or lacks its description.
        """
        check_url(url)
        if wal is not None:
            check_url(wal, "option 'wal'")
        store = open_store(url, storage_options)
        mark, config = store.mark(ROOT), _read_config(store)
        if config is None:
            if not create:
                raise _in_root(store, url, storage_options) or _not_there(store)
            config = _create(url, store, wal, storage_options, agreed, empty, dry_run)
        log = _log_store(url, store, config, wal, storage_options, new_log, dry_run)
        for each in {store, log}:
            each.sync(SYSTEM)  # who made the description may have died before it was durable (G3)
        if settings is None:
            settings = Settings(linger=0.05 if log.remote else 0.005)
        return cls(Stores(log, store), config, settings, described=True, mark=mark)

    @property
    def containers(self) -> ContainerManager:
        """The containers of this process."""
        manager = self._managers.get(this_process())
        if manager is None:  # threads and connections did not survive the fork, nor did who held a lock (W10)
            manager = self._managers.setdefault(this_process(), ContainerManager(self._start))
        return manager

    def _start(self, number: int) -> Container:
        from engine.containers.container import Container

        container = Container(self.stores, self.container_id(number), self.settings, identity=self._identity)
        try:
            if self._described and container.head == START:
                self._check_described()
            self._identity.check()
        except BaseException:
            container.close()
            raise
        return container

    def container_id(self, number: int) -> int:
        """A container's number, with the generation of its log if the root is one that its stores describe."""
        return self.config.container(number) if self._described else number

    def check(self) -> None:
        """See that this root is still in its place, unless that was done a moment ago. Raises RootReplaced,
        StorageError."""
        self._identity.check()

    def verify(self) -> None:
        """See that this root is still in its place: before anything is deleted, and for a backup. Raises as `check`."""
        self._identity.verify()

    def _check_described(self) -> None:
        """Before a container begins from nothing: raise StorageRefused if its storage is not there any more (P1)."""
        log = self.stores.log
        if _read_config(self.stores.chunks) is None:
            raise _not_there(self.stores.chunks)
        self._identity.verify()
        if log.root != self.stores.chunks.root and (read_marker(log) or {}).get("log_of") != self.config.id:
            raise _log_not_there(self.stores.chunks, log)

    def container(self, number: int) -> Container:
        """The container of that number, opened if need be. Raises ContainerOffline if it failed to open too often."""
        if not 0 <= number < self.config.containers:
            raise ValueError(f"container {number}: the root has containers 0 to {self.config.containers - 1}")
        return self.containers.container(number)

    @property
    def losses(self) -> tuple[str, ...]:
        """What was lost and is passed over, as far as it was met, in words: nothing, unless the root is salvaged."""
        return ()

    def check_writable(self) -> None:
        """Raise RootReadOnly if nothing can ever be written to this root."""

    def separate(self, number: int) -> Container:
        """A container that is the caller's own, which does nothing by itself. Close it. Raises as `container`."""
        if not 0 <= number < self.config.containers:
            raise ValueError(f"container {number}: the root has containers 0 to {self.config.containers - 1}")
        from engine.containers.container import Container

        settings = replace(self.settings, upkeep=False, threaded=False)
        return Container(self.stores, self.container_id(number), settings, identity=self._identity)

    def restart(self, number: int) -> Container:
        """Open a container that failed to open too often, after what was wrong is mended."""
        return self.containers.restart(number)

    def recover(self, container: int, *, force: bool = False) -> Recovery:
        """Begin a new log for a container whose log is gone (F3), which begins a generation of the root (P4).

        An operator's decision: stop all other processes first; one that is forgotten ends with RootReplaced. All
        containers that are open here are closed. `force`: do so although there is a log. Raises NothingToRecover,
        DataCorruption, RootReplaced, StorageError.
        """
        from engine.storage import recovery_points
        from engine.storage.recovery import recover

        self._identity.verify()
        self.close()
        if not self._described:
            return recover(self.stores, container, force=force)
        config, before = self.config.with_recovered(container, uuid.uuid4().hex), self.container_id(container)
        recovery = recover(self.stores, before, config.container(container), force=force)
        self.stores.chunks.put(ROOT, config.to_bytes())
        recovery_points.delete(self.stores.chunks, before)
        self.config, self._identity = config, self._identity_of(config, None)
        return recovery

    def repair(self, container: int, address: int, *, dry_run: bool = False) -> Repair:
        """Give up the damaged frame that stops a container's log, and whatever hangs on it (W8).

        Of a frame that is whole, but holds what nobody understands, only the transactions are given up that this is in:
        everything else in it, and behind it, stands. An operator's decision: stop all other processes first. dry_run:
        only tell what would be given up. Raises ValueError when that frame is not damaged.
        """
        from engine.containers.container import Container

        self._identity.verify()
        number, settings = self.container_id(container), replace(self.settings, upkeep=False, threaded=False)
        with Container(self.stores, number, settings, unread=True, identity=self._identity) as opened:
            return opened.repair(address, dry_run)

    def close(self) -> None:
        """Close all containers that are open here."""
        if this_process() in self._managers:
            self.containers.close()

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Root({self.stores.chunks.root!r})"


def _read_config(store: Store) -> RootConfig | None:
    try:
        return RootConfig.from_bytes(store.read(ROOT), store.root)
    except ObjectNotFound:
        return None


def _not_there(store: Store) -> StorageRefused:
    """The error where a root has no description: there is none, or what it belongs to has lost it."""
    found = obstacle(store, empty=False)
    return RootNotFound(store.root, similar_roots(store, open_store)) if found is None else _lost(store, found)


def _in_root(store: Store, url: str, options: Mapping[str, Any] | None) -> RootNotFound | None:
    """The error where a place in a root is named as a root; None elsewhere."""
    outer = root_around(store, url, options, open_store)
    return RootNotFound(store.root, (outer.place,), outer.names) if outer is not None else None


def _lost(store: Store, found: Obstacle) -> StorageRefused:
    if not found.ours:
        return StorageRefused(
            f"{store.root} holds no streams, and is not empty: {found.what}. Name an empty place; if a root is to be "
            f"made beside that, make it explicitly: `{root_command(store.root)}`, or StreamManager(…, create=True)"
        )
    return StorageRefused(
        f"{store.root} holds no streams: there is no {ROOT}, and no new root is made here: {found.what}. Make all "
        "of the storage available (is everything mounted?); if the description was deleted, restore the object from a "
        f"copy, such as the {BACKUP} of this root's backup; if this is another place than you meant, name an empty one"
    )


def _create(
    url: str,
    store: Store,
    wal: str | None,
    options: Mapping[str, Any] | None,
    agreed: Mapping[str, Any],
    empty: bool,
    dry_run: bool,
) -> RootConfig:
    """Make the root's description, unless another process was faster: then theirs holds. dry_run: raise RootNotFound
    instead, after all checks but the self-tests."""
    config = RootConfig(uuid.uuid4().hex, **agreed)
    log_options = _options_for(wal, url, options) if wal is not None else None
    log = open_store(wal, log_options) if wal is not None else store
    refuse_inside(store, url, options, "a root", open_store)
    found = obstacle(store, empty=empty, log=log.root)
    if found is not None:
        made = _read_config(store)  # whoever makes it at this moment is no obstacle
        if made is None:
            raise _lost(store, found)
        return made
    if wal is not None and log.root != store.root:
        if store.root.startswith(f"{log.root}/"):
            raise StorageRefused(f"option 'wal': {store.root} lies in {log.root}: give a place beside the root")
        refuse_inside(log, wal, log_options, "a log", open_store)
    if dry_run:
        raise RootNotFound(store.root, similar_roots(store, open_store))
    self_test(store)
    if wal is not None and log.root != store.root:
        self_test(log)
        config = replace(config, id=_begin_log(log, store, config.id), wal=log.root)
    similar = did_you_mean(slips_of(store.root, similar_roots(store, open_store, beside=True)))
    store.put_if_absent(ROOT, config.to_bytes())
    made = _read_config(store)
    assert made is not None
    if made.id == config.id:
        level, end = (logging.WARNING, f".{similar}") if similar else (logging.INFO, "")
        logger.log(level, "there was no root of streams in %s: it was created%s", store.root, end)
    return made


def _begin_log(log: Store, store: Store, root_id: str) -> str:
    """Mark a new log's root as that of `store`, which is not made yet. Returns the id that the mark gives to it."""
    found = _mark(log, store, root_id)
    others = [info.path for info in log.list(SYSTEM, limit=2) if info.path != ROOT]
    used = any(not path.startswith(SELF_TESTS) for path in others) and _read_config(store) is None
    if found.get("root") != store.root or used:
        raise _in_use(log)
    return str(found["log_of"])


def _mark(log: Store, store: Store, root_id: str) -> dict[str, Any]:
    """The mark of a log's root, made unless there is one, or anything of ours without one."""
    if read_marker(log) is None:
        _check_unused(log)
        log.put_if_absent(ROOT, marker(root_id, store.root))
    return read_marker(log) or {}


def _check_unused(log: Store) -> None:
    """Raise StorageRefused if anything of ours lies where a log is to begin, and no mark says whose it is."""
    if obstacle(log, empty=False) is not None and read_marker(log) is None:
        raise _in_use(log)


def _in_use(log: Store) -> StorageRefused:
    return StorageRefused(f"option 'wal': {log.root} is in use already; give an empty folder or bucket")


def marker(root_id: str, root: str) -> bytes:
    """What says in a log's root whose log it is."""
    return json.dumps({"log_of": root_id, "root": root, "format": FORMAT}).encode()


def _log_store(
    url: str, store: Store, config: RootConfig, wal: str | None, options: Mapping[str, Any] | None, new: bool, dry: bool
) -> Store:
    """The root of the log, which must be the one that belongs to this root. dry: one that would be new is not begun."""
    where = wal or config.wal
    log = open_store(where, _options_for(where, url, options)) if where is not None else store
    if config.wal is None:
        if log.root != store.root:
            raise StorageRefused(f"option 'wal': the log of {store.root} lies in the root itself, not in {log.root}")
        return store
    found = read_marker(log)
    if found is None and new:
        refuse_inside(log, str(where), _options_for(str(where), url, options), "a log", open_store)
        if dry:
            _check_unused(log)
            return log
        found = _mark(log, store, config.id)
    if found is None:
        raise _log_not_there(store, log)
    if found.get("log_of") != config.id:
        raise StorageRefused(f"option 'wal': {log.root} is not the write-ahead log of {store.root}")
    return log


def _log_not_there(store: Store, log: Store) -> StorageRefused:
    return StorageRefused(
        f"option 'wal': the write-ahead log of {store.root} should be in {log.root}, but there is no {ROOT} of it; "
        "make the storage available, or say where the log is now; if it is lost, open the root with new_log and "
        "recover its containers"
    )


def read_marker(log: Store) -> dict[str, Any] | None:
    try:
        found = json_value(log.read(ROOT))
    except ObjectNotFound:
        return None
    except InvalidData:
        found = {}
    if isinstance(found, dict) and found.get("format", FORMAT) != FORMAT:
        raise StorageRefused(f"{log.root}/{ROOT} has format {found['format']}; this version reads format {FORMAT}")
    return found if isinstance(found, dict) else {}


def checksum(fields: Mapping[str, Any]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())


def _options_for(wal: str, url: str, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The storage options are for the root; a log on another kind of storage gets none."""
    return options if _protocol(wal) == _protocol(url) else None


def _protocol(url: str) -> str:
    return url.partition("://")[0] if "://" in url else "file"
