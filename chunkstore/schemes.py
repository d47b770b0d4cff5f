"""The schemes that the URL of a root may have: one table, from which messages and checks are made."""

from __future__ import annotations

from typing import NamedTuple


class Scheme(NamedTuple):
    """The schemes of one backend.

    names: the usual one first. place: what follows it, for people. folder: what follows it is the path of a folder.
    user: what comes before an '@' is no secret (`user@host`, `container@account's host`).
    """

    names: tuple[str, ...]
    place: str
    folder: bool = False
    user: bool = False


ADAPTED = (
    Scheme(("file",), "/…", folder=True),
    Scheme(("memory",), "…", folder=True),
    Scheme(("s3", "s3a"), "bucket/…"),
    Scheme(("gs", "gcs"), "bucket/…"),
    Scheme(("abfs", "abfss", "az"), "container/…", user=True),
    Scheme(("sftp", "ssh"), "host/…", user=True),
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
KNOWN = CONTROLLERS.union(*(scheme.names for scheme in _ALL))


def _told(scheme: Scheme) -> str:
    first, *others = (f"{name}://" for name in scheme.names)
    return f"{first}{scheme.place}" + (f" (or {', '.join(f'{other}…' for other in others)})" if others else "")


SUPPORTED = (
    f"a folder (a path or file:///…), {', '.join(map(_told, ADAPTED[1:]))}, "
    "or a URL of another filesystem that fsspec knows"
)
"""What a root may be, for people."""
