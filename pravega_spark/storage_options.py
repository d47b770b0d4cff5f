"""Checks the names of storage options: whether the filesystem of a root knows them.

A filesystem may ignore an unknown option silently, or fail on it with an obscure error, so names are checked before the
first request. Errors show no values. Options that a filesystem passes on to an unknown library are not checked.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any

from chunkstore import StorageRefused, Store, open_store
from chunkstore.schemes import BY_NAME
from chunkstore.similarity import suggest

_OF_FSSPEC = ("use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache")
_OURS = {"s3": {"client"}, "file": {"min_free"}}
"""Options of the store itself, which no filesystem gets."""

_S3_NAMES = {
    "aws_access_key_id": "'key'",
    "aws_key": "'key'",
    "access_key": "'key'",
    "aws_secret_access_key": "'secret'",
    "aws_secret": "'secret'",
    "secret_key": "'secret'",
    "aws_session_token": "'token'",
    "session_token": "'token'",
    "endpoint": "'endpoint_url'",
    "region": '\'client_kwargs\', as {"region_name": "…"}',
    "region_name": '\'client_kwargs\', as {"region_name": "…"}',
}
"""Names of S3 options in other programs, and the options of s3fs with their meaning."""


def open_checked(url: str, options: Mapping[str, Any] | None = None) -> Store:
    """`open_store` for options given by a user. Raises StorageRefused for an unknown one."""
    store = open_store(url, options)
    check_storage_options(store, options or {})
    return store


def check_storage_options(store: Store, options: Mapping[str, Any]) -> None:
    """Raise StorageRefused for an option that the store's filesystem does not know. Makes no request."""
    if not options:
        return
    scheme = store.root.partition("://")[0]
    known = _known(scheme)
    unknown = [] if known is None else [name for name in options if not _is_known(name, known, scheme)]
    if not unknown:
        return
    verb, them = ("is", "it") if len(unknown) == 1 else ("are", "them")
    what = f"{', '.join(map(repr, unknown))} {verb}"
    if not known or scheme == "file":
        takes = "a folder takes no storage options except 'min_free'" if known else f"{scheme} takes no storage options"
        raise StorageRefused(
            f"{store.root}: {takes}, but {what} given: remove {them}, or give the URL of a bucket as the root"
        )
    raise StorageRefused(
        f"{store.root}: {what} not among the storage options of {scheme}://.{_advice(scheme, unknown[0], known)} Known "
        f"are {', '.join(sorted(known))}"
    )


def _advice(scheme: str, name: str, known: set[str]) -> str:
    near = [_S3_NAMES[name]] if scheme == "s3" and name in _S3_NAMES else []
    near = near or [repr(each) for each in suggest(name, known, most=1)]
    return f" Did you mean {near[0]}?" if near else ""


def _is_known(name: str, known: set[str], scheme: str) -> bool:
    return name in known or name in _OF_FSSPEC or re.fullmatch(_passed_on(scheme), name) is not None


def _passed_on(scheme: str) -> str:
    return BY_NAME[scheme].passed_on if scheme in BY_NAME else ""


def _known(scheme: str) -> set[str] | None:
    """The names of a filesystem's options; None if they cannot be determined."""
    import fsspec

    place = BY_NAME[scheme].options if scheme in BY_NAME else ""
    if place is None:
        return _OURS.get(scheme, set())
    try:
        if place:
            module, _, name = place.partition(":")
            return {*inspect.signature(attrgetter(name)(import_module(module))).parameters} - {"self", "hostname"}
        made = fsspec.get_filesystem_class(scheme)
    except ImportError:
        return None  # opening the storage raises the error that says what to install
    own = inspect.signature(made.__init__).parameters.values()
    if scheme not in BY_NAME and any(each.kind is each.VAR_KEYWORD for each in own):
        return None
    signatures = [inspect.signature(each.__init__) for each in made.__mro__ if "__init__" in vars(each)]
    named = [each for signature in signatures for each in signature.parameters.values()]
    taken = {each.name for each in named if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    return taken - {"self"} | _OURS.get(scheme, set())
