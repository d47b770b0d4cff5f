"""A root: the folder or bucket that holds streams, and the containers of it that this process has open.

Owns the root's description, which fixes what all processes must agree on: the format, the number of containers, the
grace period of the log, the location of the log. Only a call that asks for a new root creates it, after the storage has
passed the self-test, which is therefore run once. It is never created over parts of a root, nor inside another root
(P1); and while it is missing, no container begins an empty log. A log in a separate root has a marker that names the
root to which it belongs. The marker is created before the description, so if it is missing later, the log is missing,
and no process begins another one. The modules of a container are imported when one is opened: processes that only read
and write objects, such as Spark's tasks, do not open one.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from chunkstore import ObjectNotFound, StorageRefused, Store, open_store
from chunkstore.checksums import crc32c
from chunkstore.decoding import InvalidData, Natural, NewerFormat, check_known, decoding, json_value, reader
from chunkstore.optional_fields import OPTIONAL, OptionalFields, read_optional
from chunkstore.paths import BACKUP, ROOT, SELF_TESTS, SYSTEM, ContainerId
from chunkstore.selftest import self_test
from chunkstore.urls import check_url, host_of
from engine.containers.registry import ContainerManager
from engine.errors import RootNotFound, did_you_mean, root_command
from engine.foreign_data import MOST_LISTED, ForeignData, data_at, refused
from engine.identity import ANY_IDENTITY, Identity, RootIdentity
from engine.logs.frames import START
from engine.ownership import this_process
from engine.root_placement import Obstacle, enclosing_root, misspelled, obstacle, refuse_inside, similar_roots
from engine.settings import CHANGEABLE, OF_ROOT, Settings
from engine.signatures import SigningKey, signing_key, with_signature, without_signature
from engine.signed_store import SignedStore
from engine.storage.object_reads import Stores

if TYPE_CHECKING:
    from engine.containers.container import Container
    from engine.logs.log import Repair
    from engine.storage.recovery import Recovery

logger = logging.getLogger(__name__)

FORMAT = 1

_GENERATION = re.compile("[0-9a-f]{32}")
_RECOVERED = reader(tuple[tuple[Natural, str], ...])


@dataclass(frozen=True)
class RootConfig:
    """What all processes of a root agree on. wal: the URL of the log's root; None: the log is in the root."""

    id: str
    containers: int = 4
    grace_seconds: float = 600.0
    garbage_delay_seconds: float = 600.0
    transient_idle_seconds: float = 3600.0
    wal: str | None = None
    max_segments: int = 10_000
    """The most segments of a stream at one time."""
    origin: str | None = None
    """The id of the root from whose backup this one was restored."""
    recovered: tuple[tuple[int, str], ...] = ()
    """The containers that were recovered, and the generation of each one's new log (P4)."""
    signed: str | None = None
    """The id of the key with which the root's log and this description are signed; None: they are not (W20)."""
    optional: OptionalFields = field(default_factory=OptionalFields)
    """What newer versions added that this one need not know (W19)."""

    def __post_init__(self) -> None:
        for name, unit in OF_ROOT.items():
            value, kinds = getattr(self, name), (int,) if unit.name == "number" else (int, float)
            if type(value) not in kinds or not unit.least <= value <= unit.most:
                what = "a number" if unit.name == "number" else "a number of seconds"
                raise ValueError(f"{name}={value!r} is not {what} from {unit.least:g} to {unit.most:g}")
        if type(self.id) is not str or not {type(self.wal), type(self.origin)} <= {str, type(None)}:
            raise ValueError(f"id={self.id!r}, wal={self.wal!r} and origin={self.origin!r} must be strings")
        if type(self.signed) not in (str, type(None)):
            raise ValueError(f"signed={self.signed!r} must be a string")

    def container(self, number: int) -> ContainerId:
        """A container with the present generation of its log."""
        return ContainerId(number, dict(self.recovered).get(number, self.id))

    @property
    def generation(self) -> tuple[str, tuple[tuple[int, str], ...]]:
        """Changes if the root is created again or restored, or one of its containers is recovered (P4)."""
        return self.id, self.recovered

    def with_recovered(self, number: int, generation: str) -> RootConfig:
        """The config after a container was recovered, whose log has a new generation."""
        return replace(self, recovered=tuple(sorted({**dict(self.recovered), number: generation}.items())))

    def to_bytes(self, key: SigningKey | None = None, name: str = ROOT) -> bytes:
        """The content of the object `name`. It begins with the id, by which `put_if_absent` recognises its own object.

        key: the root's, if it is signed.
        """
        fields = {"id": self.id, "format": FORMAT, **{k: v for k, v in vars(self).items() if k != "id"}}
        del fields["signed"]  # `with_signature` has it from the key
        if not self.optional:
            del fields[OPTIONAL]
        fields = with_signature(fields, name, key)
        fields["checksum"] = checksum(fields)
        return json.dumps(fields, indent=1).replace('{\n "id"', '{"id"', 1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str, key: SigningKey | None = None, name: str = ROOT) -> RootConfig:
        """The inverse of `to_bytes`. Raises StorageRefused if it is not a root's description, or not signed as `key`
        demands."""
        wrong = f"{where}/{name} does not describe a root of streams"

        def refused(problem: InvalidData) -> StorageRefused:
            newer = isinstance(problem, NewerFormat)
            return StorageRefused(
                f"{where}/{name}: {problem}" if newer else f"{wrong}: {problem}. Restore it from a copy"
            )

        with decoding(refused):
            fields = json_value(data)
            version = fields.pop("format")
            if "log_of" in fields:
                raise StorageRefused(f"{where} holds the write-ahead log of another root; give that root instead")
            if version != FORMAT:
                raise StorageRefused(f"{where}/{name} has format {version}; this version reads format {FORMAT}")
            if fields.pop("checksum") != checksum({**fields, "format": version}):
                raise StorageRefused(f"{where}/{name} is damaged or was changed; restore it from a copy")
            fields = without_signature({**fields, "format": version}, name, where, key)
            del fields["format"]
            check_known(fields, RootConfig.__dataclass_fields__)
            fields["recovered"] = _RECOVERED(fields["recovered"])
            fields[OPTIONAL] = read_optional(fields.get(OPTIONAL, {}))
            for generation in (fields["id"], *dict(fields["recovered"]).values()):
                if type(generation) is not str or _GENERATION.fullmatch(generation) is None:
                    raise InvalidData(f"id={generation!r} is not an id, which has 32 hexadecimal digits")
            return cls(**fields)


class Root:
    """An open root. Containers are opened at their first use, once per process (and again after a fork).

    Use `Root.open`. config: what the root fixes. settings: how this process works with it.
    """

    def __init__(
        self,
        stores: Stores,
        config: RootConfig,
        settings: Settings,
        *,
        described: bool = False,
        mark: Hashable = None,
        key: SigningKey | None = None,
    ) -> None:
        """described: the root has a description, without which no container may begin a log. mark: of the description,
        from before it was read (see `engine.identity`). key: if the root is signed; the stores check signatures."""
        self.stores = stores
        self.config = config
        self.key = key
        self.settings = _with_agreed(settings, config)
        self._described = described
        self._identity: Identity = self._identity_of(config, mark) if described else ANY_IDENTITY
        self._managers = {this_process(): ContainerManager(self._start)}

    def _identity_of(self, config: RootConfig, mark: Hashable) -> RootIdentity:
        store = self.stores.chunks

        def generation(data: bytes) -> object:
            return RootConfig.from_bytes(data, store.root, self.key).generation

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
        settings: Settings | Mapping[str, Any] | None = None,
        **agreed: Any,
    ) -> Root:
        """Open a root. With `create`, create it if there is none; never over parts of another root (P1).

        Args: url: a folder or a URL. storage_options: for fsspec. wal: a separate root for the log, recorded in a new
        root. empty: create the root only in an empty folder or bucket, not beside foreign objects. new_log: the log's
        root is lost, and an empty one replaces it; `recover` each container afterwards. dry_run: with `create` and
        `new_log`, only check their conditions, and raise RootNotFound where a root would be created. settings: of this
        process, all or those that differ from the defaults. agreed: values of RootConfig for a new root (containers,
        grace_seconds, garbage_delay_seconds, transient_idle_seconds).

        Raises RootNotFound; StorageRefused if the storage fails its self-test, belongs to another root, or lacks the
        description.
        """
        check_url(url)
        if wal is not None:
            check_url(wal, "option 'wal'")
        store = open_store(url, storage_options)
        given = settings if isinstance(settings, Settings) else Settings(**(settings or {}))
        key = signing_key(given.signing_key_file)
        mark, config = store.mark(ROOT), _read_config(store, key)
        if config is None:
            if not create:
                raise _inside_root(store, url, storage_options) or _missing_root(store)
            config = _create(url, store, wal, storage_options, agreed, empty, dry_run, key)
        log = _log_store(url, store, config, wal, storage_options, new_log, dry_run, key)
        for each in {store, log}:
            each.sync(SYSTEM)  # the process that created the description may have died before it was durable (G3)
        if not isinstance(settings, Settings):
            settings = Settings(**{"linger": 0.05 if log.remote else 0.005, **(settings or {})})
        stores = signed_stores(Stores(log, store), key)
        return cls(stores, config, settings, described=True, mark=mark, key=key)

    @property
    def containers(self) -> ContainerManager:
        """The containers of this process."""
        manager = self._managers.get(this_process())
        if manager is None:  # threads, connections and holders of locks do not survive a fork (W10)
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
        """A container's number, with the generation of its log if the root has a description."""
        return self.config.container(number) if self._described else number

    def check(self) -> None:
        """Check that the root was not replaced, unless it was checked a moment ago. Raises RootReplaced,
        StorageError."""
        self._identity.check()

    def verify(self) -> None:
        """Check now that the root was not replaced: before a deletion, and for a backup. Raises as `check`."""
        self._identity.verify()

    def _check_described(self) -> None:
        """Raise StorageRefused, before a container begins an empty log, if its storage has disappeared (P1)."""
        log = self.stores.log
        if _read_config(self.stores.chunks, self.key) is None:
            raise _missing_root(self.stores.chunks)
        self._identity.verify()
        if log.root != self.stores.chunks.root and (read_marker(log, self.key) or {}).get("log_of") != self.config.id:
            raise _log_missing(self.stores.chunks, log)

    def container(self, number: int) -> Container:
        """The container of that number, which is opened at its first use. Raises ContainerOffline if that failed too
        often."""
        if not 0 <= number < self.config.containers:
            raise ValueError(f"container {number}: the root has containers 0 to {self.config.containers - 1}")
        return self.containers.container(number)

    read_only = False
    """Whether it can only be read: it is the storage of another system."""

    @property
    def losses(self) -> tuple[str, ...]:
        """Descriptions of data that reads have skipped so far: what is lost of a Pravega's storage that is salvaged,
        and what its metadata does not record."""
        return ()

    @property
    def recovered(self) -> tuple[str, ...]:
        """Descriptions of data that reads return although the metadata of a Pravega's storage does not record it."""
        return ()

    def check_writable(self) -> None:
        """Raise RootReadOnly if this root is read-only."""

    def open_private(self, number: int) -> Container:
        """Open a container for the caller alone, without maintenance or threads. Close it. Raises as `container`."""
        if not 0 <= number < self.config.containers:
            raise ValueError(f"container {number}: the root has containers 0 to {self.config.containers - 1}")
        from engine.containers.container import Container

        settings = replace(self.settings, maintenance=False, threaded=False)
        return Container(self.stores, self.container_id(number), settings, identity=self._identity)

    def restart(self, number: int) -> Container:
        """Open a container that failed to open too often, after its problem was fixed."""
        return self.containers.restart(number)

    def recover(self, container: int, *, force: bool = False) -> Recovery:
        """Begin a new log for a container whose log is lost (F3), and with it a generation of the root (P4).

        An operator's decision: stop all other processes first. A process that still runs fails with RootReplaced. All
        containers that are open here are closed. force: do so although the log exists. Raises NothingToRecover,
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
        self._describe(config)
        recovery_points.delete(self.stores.chunks, before)
        return recovery

    def change(self, **agreed: Any) -> RootConfig:
        """Change what the root fixes, as far as that is safe: values of CHANGEABLE.

        All containers that are open here are closed. Other processes keep the earlier values until they open the root
        again. Raises ValueError, RootReplaced, StorageError.
        """
        if fixed := sorted(agreed.keys() - set(CHANGEABLE)):
            raise ValueError(
                f"{fixed[0]} cannot be changed: it was fixed when the root was created. What can be changed: "
                f"{', '.join(CHANGEABLE)}"
            )
        self._identity.verify()
        store = self.stores.chunks
        config = replace(RootConfig.from_bytes(store.read(ROOT), store.root, self.key), **agreed)
        self.close()
        self._describe(config)
        self.settings = _with_agreed(self.settings, config)
        return config

    def _describe(self, config: RootConfig) -> None:
        """Store another description of the root."""
        self.stores.chunks.put(ROOT, config.to_bytes(self.key))
        self.config, self._identity = config, self._identity_of(config, None)

    def repair(self, container: int, address: int, *, dry_run: bool = False) -> Repair:
        """Skip the damaged or missing frame that stops a container's log, and the frames that follow it (W8, W21).

        If a frame is undamaged but has transactions that cannot be decoded or applied, only those are skipped. An
        operator's decision: stop all other processes first. dry_run: only return what would be skipped. Raises
        ValueError if the frame is neither damaged nor missing.
        """
        from engine.containers.container import Container

        self._identity.verify()
        number, settings = self.container_id(container), replace(self.settings, maintenance=False, threaded=False)
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


def _with_agreed(settings: Settings, config: RootConfig) -> Settings:
    return replace(
        settings,
        grace=config.grace_seconds,
        garbage_delay=config.garbage_delay_seconds,
        transient_idle=config.transient_idle_seconds,
    )


def signed_stores(stores: Stores, key: SigningKey | None) -> Stores:
    """The stores of a root that is signed with a key, which check its signatures (W20); without a key as they are."""
    if key is None:
        return stores
    chunks = SignedStore(stores.chunks, key)
    return Stores(chunks if stores.log is stores.chunks else SignedStore(stores.log, key), chunks)


def _read_config(store: Store, key: SigningKey | None) -> RootConfig | None:
    try:
        return RootConfig.from_bytes(store.read(ROOT), store.root, key)
    except ObjectNotFound:
        return None


def _missing_root(store: Store) -> StorageRefused:
    """The error for a root without a description: there is no root, or its description is lost."""
    found = obstacle(store, empty=False, create=True)
    if found is not None and found.ours:
        return _obstructed(store, found)
    foreign = found.foreign if found is not None else data_at(store)
    return RootNotFound(store.root, similar_roots(store, open_store), content=_content(store, foreign))


def _content(store: Store, foreign: ForeignData | None) -> str:
    """What a folder or bucket without a root holds, for RootNotFound; "" if it is empty."""
    if foreign is not None:
        where = (
            f"contains {foreign.what}, in {foreign.folder.rstrip('/')!r}" if foreign.folder else f"is {foreign.what}"
        )
        return f"it {where} (it has {foreign.path})"
    others = (info.path for info in store.list("", limit=MOST_LISTED) if not info.path.startswith(SELF_TESTS))
    first = next(others, None)
    return f"there is no {ROOT}, only other data, such as {first!r}" if first is not None else ""


def _inside_root(store: Store, url: str, options: Mapping[str, Any] | None) -> RootNotFound | None:
    """The error for a location inside a root; None if it is not inside one."""
    outer = enclosing_root(store, url, options, open_store)
    return RootNotFound(store.root, (outer.url,), outer.names) if outer is not None else None


def _obstructed(store: Store, found: Obstacle) -> StorageRefused:
    if found.foreign is not None:
        return refused(store.root, store.root, found.foreign, "a root")
    if not found.ours:
        return StorageRefused(
            f"{store.root} holds no streams, and is not empty: {found.what}. Use an empty folder or bucket; to create "
            f"a root beside these objects, ask for it: `{root_command(store.root)}`, or StreamManager(…, create=True)"
        )
    return StorageRefused(
        f"{store.root} holds no streams: there is no {ROOT}, and no new root is created here: {found.what}. Make all "
        "of the storage available (is everything mounted?). If the description was deleted, restore the object from a "
        f"copy, such as the {BACKUP} of this root's backup. To create a root elsewhere, use an empty folder or bucket"
    )


def _create(
    url: str,
    store: Store,
    wal: str | None,
    options: Mapping[str, Any] | None,
    agreed: Mapping[str, Any],
    empty: bool,
    dry_run: bool,
    key: SigningKey | None,
) -> RootConfig:
    """Create the root's description, or return that of another process that was faster. dry_run: raise RootNotFound
    instead, after all checks but the self-tests."""
    config = RootConfig(uuid.uuid4().hex, **agreed, signed=key.id if key is not None else None)
    log_options = _options_for(wal, url, options) if wal is not None else None
    log = open_store(wal, log_options) if wal is not None else store
    refuse_inside(store, url, options, "a root", open_store)
    found = obstacle(store, empty=empty, log=log.root, create=True)
    if found is not None:
        made = _read_config(store, key)  # a root that another process creates at this moment is no obstacle
        if made is None:
            raise _obstructed(store, found)
        return made
    if wal is not None and log.root != store.root:
        if store.root.startswith(f"{log.root}/"):
            raise StorageRefused(f"option 'wal': {store.root} lies in {log.root}: use a location beside the root")
        refuse_inside(log, wal, log_options, "a log", open_store)
    if dry_run:
        raise RootNotFound(store.root, similar_roots(store, open_store))
    self_test(store)
    if wal is not None and log.root != store.root:
        self_test(log)
        config = replace(config, id=_begin_log(log, store, config.id, key), wal=log.root)
    similar = did_you_mean(misspelled(store.root, similar_roots(store, open_store, beside=True)))
    store.put_if_absent(ROOT, config.to_bytes(key))
    made = _read_config(store, key)
    assert made is not None
    if made.id == config.id:
        level, end = (logging.WARNING, f".{similar}") if similar else (logging.INFO, "")
        logger.log(level, "created a root of streams in %s, where there was none%s", store.root, end)
    return made


def _begin_log(log: Store, store: Store, root_id: str, key: SigningKey | None) -> str:
    """Mark a new log's root as that of the root `store`, which is created next. Returns the id in the marker."""
    found = _mark(log, store, root_id, key)
    other = [info.path for info in log.list(SYSTEM, limit=2) if info.path != ROOT]
    used = any(not path.startswith(SELF_TESTS) for path in other) and _read_config(store, key) is None
    if found.get("root") != store.root or used:
        raise _in_use(log)
    return str(found["log_of"])


def _mark(log: Store, store: Store, root_id: str, key: SigningKey | None) -> dict[str, Any]:
    """The marker of a log's root, which is created if there is none. Raises StorageRefused if the log's root is in
    use."""
    if read_marker(log, key) is None:
        _check_unused(log, key)
        log.put_if_absent(ROOT, marker(root_id, store.root, key))
    return read_marker(log, key) or {}


def _check_unused(log: Store, key: SigningKey | None) -> None:
    """Raise StorageRefused if the location of a new log has parts of a root, and no marker."""
    if obstacle(log, empty=False) is not None and read_marker(log, key) is None:
        raise _in_use(log)


def _in_use(log: Store) -> StorageRefused:
    return StorageRefused(f"option 'wal': {log.root} is in use already; use an empty folder or bucket")


def marker(root_id: str, root: str, key: SigningKey | None = None) -> bytes:
    """The marker in a log's root, which names the root to which the log belongs. key: that root's, if it is signed."""
    return json.dumps(with_signature({"log_of": root_id, "root": root, "format": FORMAT}, ROOT, key)).encode()


def _log_store(
    url: str,
    store: Store,
    config: RootConfig,
    wal: str | None,
    options: Mapping[str, Any] | None,
    new: bool,
    dry: bool,
    key: SigningKey | None,
) -> Store:
    """The log's root, after checking that it belongs to this root. dry: do not mark a new one."""
    where = wal or config.wal
    if wal is None and where is not None:
        _check_host(where, url, store)
    log = open_store(where, _options_for(where, url, options)) if where is not None else store
    if config.wal is None:
        if log.root != store.root:
            raise StorageRefused(f"option 'wal': the log of {store.root} is in the root itself, not in {log.root}")
        return store
    found = read_marker(log, key)
    if found is None and new:
        refuse_inside(log, str(where), _options_for(str(where), url, options), "a log", open_store)
        if dry:
            _check_unused(log, key)
            return log
        found = _mark(log, store, config.id, key)
    if found is None:
        raise _log_missing(store, log)
    if found.get("log_of") != config.id:
        raise StorageRefused(f"option 'wal': {log.root} is not the write-ahead log of {store.root}")
    return log


def _check_host(wal: str, url: str, store: Store) -> None:
    """Raise StorageRefused for a log on another host, if only the description names it.

    Whoever can write to the root can change the description. They must not choose to which host the caller's
    credentials are sent.
    """
    name = f"the log's URL in {store.root}/{ROOT}"
    check_url(wal, name)
    if host_of(wal) not in ("", host_of(url)):
        raise StorageRefused(
            f"{name}: {wal!r} is on another host than the root. No credentials are sent there because of what the root "
            f"says; if the log is there, say so: wal={wal!r} (option 'wal' in Spark, --wal on the command line)"
        )


def _log_missing(store: Store, log: Store) -> StorageRefused:
    return StorageRefused(
        f"option 'wal': the write-ahead log of {store.root} should be in {log.root}, but there is no {ROOT}. Make the "
        "storage available, or give the log's new location. If the log is lost, open the root with new_log and recover "
        "its containers"
    )


def read_marker(log: Store, key: SigningKey | None = None) -> dict[str, Any] | None:
    """What the marker in a log's root has; None if there is none. Raises StorageRefused if it is not signed as `key`
    demands."""
    try:
        found = json_value(log.read(ROOT))
    except ObjectNotFound:
        return None
    except InvalidData:
        found = {}
    if isinstance(found, dict) and found.get("format", FORMAT) != FORMAT:
        raise StorageRefused(f"{log.root}/{ROOT} has format {found['format']}; this version reads format {FORMAT}")
    if not isinstance(found, dict) or "log_of" not in found:
        return {}  # of no log, or damaged
    return without_signature(found, ROOT, log.root, key)


def checksum(fields: Mapping[str, Any]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())


def _options_for(wal: str, url: str, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The storage options for the log. They are those of the root, or none if the log is on another kind of storage."""
    return options if _protocol(wal) == _protocol(url) else None


def _protocol(url: str) -> str:
    return url.partition("://")[0] if "://" in url else "file"
