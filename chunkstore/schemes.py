"""The schemes that the URL of a root may have: one table, from which the adapter is chosen and messages and checks are
made."""

from __future__ import annotations

from typing import NamedTuple


class Scheme(NamedTuple):
    """The schemes of one backend.

    names: the usual one first. place: what follows it, for people; if it begins with "/", other places are refused.
    adapter: the module of `chunkstore.backends` whose function `opened` makes the store. folder: what follows is the
    path of a folder, so an '@' or ':' in it is part of a name. user: what comes before an '@' is no secret
    (`user@host`, `container@account's host`). passed_on: a regular expression of the storage options that its
    filesystem passes on, besides the named parameters of its classes. options: None if the store takes no storage
    options; otherwise what has them as parameters, as "module:name", or "" for the classes of its filesystem.
    """

    names: tuple[str, ...]
    place: str
    adapter: str = "generic"
    folder: bool = False
    user: bool = False
    passed_on: str = ""
    options: str | None = ""


ADAPTED = (
    Scheme(("file",), "/…", "local", folder=True, options=None),
    Scheme(("memory",), "…", "memory", folder=True, options=None),
    Scheme(  # passed on to the session of aiobotocore
        ("s3", "s3a"), "bucket/…", "s3_clients", passed_on=r"profile|session_vars|event_hooks|include_builtin_handlers"
    ),
    Scheme(("gs", "gcs"), "bucket/…", "gcs", passed_on=r"retry_\w+|memmove_max_workers|experimental_\w+"),
    Scheme(
        ("abfs", "abfss", "az"),
        "container/…",
        "azure",
        user=True,
        passed_on=r"exclude_\w+|\w+_client_id|\w+_tenant_id|authority|\w+_username|\w+_timeout|\w+_tenants|\w+_discovery",
    ),
    Scheme(("sftp", "ssh"), "host/…", "sftp", user=True, passed_on="temppath", options="paramiko:SSHClient.connect"),
)
"""Of the backends that have an adapter."""

_ALL = (
    *ADAPTED,
    Scheme(("local",), "/…", folder=True),
    Scheme(("ftp", "smb", "hdfs", "webhdfs"), "host/…", user=True),
)

CONTROLLERS = frozenset({"tcp", "tls", "ssl", "pravega", "pravegas"})
"""Of a Pravega's controller, which is no root."""

FOLDERS = frozenset(name for scheme in _ALL if scheme.folder for name in scheme.names)
WITH_USER = frozenset(name for scheme in _ALL if scheme.user for name in scheme.names)
BUCKETS = frozenset(name for scheme in ADAPTED if scheme.place in ("bucket/…", "container/…") for name in scheme.names)
"""Of storages of which a URL names a bucket, and no host unless it has an '@'."""

BY_NAME = {name: scheme for scheme in ADAPTED for name in scheme.names}
KNOWN = CONTROLLERS.union(*(scheme.names for scheme in _ALL))


def _told(scheme: Scheme) -> str:
    first, *others = (f"{name}://" for name in scheme.names)
    return f"{first}{scheme.place}" + (f" (or {', '.join(f'{other}…' for other in others)})" if others else "")


SUPPORTED = (
    f"a folder (a path or file:///…), {', '.join(map(_told, ADAPTED[1:]))}, "
    "or a URL of another filesystem that fsspec knows"
)
"""What a root may be, for people."""
