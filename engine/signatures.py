"""Signatures of a root's log and of its description: who has no key cannot change them unnoticed (W20).

A signature is an HMAC-SHA256 over an object's path below the root and its bytes, so an object that is copied to another
path does not fit there. The paths of a log name its generation, and with it the root. Whether a root is signed is fixed
when it is created, and stands in its description with the key's id; the key itself is in no object, message or pickle.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex

from chunkstore import StorageRefused
from chunkstore.port import Data, Parts, pieces_of

logger = logging.getLogger(__name__)

SETTING = "signing_key_file"
"""The setting with the path of the key's file."""

VARIABLE = "PRAVEGA_SIGNING_KEY"
"""The environment variable with the key itself, where there is no file."""

SIGNATURE = 32
"""Bytes of a signature."""

LEAST = 32
"""Bytes that a key has at least."""

_CONTEXT = b"pravega-spark signature 1\0"
_ID_CONTEXT = b"pravega-spark key id"
_MAKE_ONE = "`openssl rand -hex 32` makes one"


class SigningKey:
    """A key for signatures. id: names it, and does not reveal it. origin: where it was found, for messages.

    secret: at least LEAST bytes; ValueError if it has fewer. A key is not pickled, and its `repr` does not show it.
    """

    __slots__ = ("_begun", "id", "origin")

    def __init__(self, secret: bytes, origin: str) -> None:
        if len(secret) < LEAST:
            raise ValueError(f"a signing key has at least {LEAST} bytes; this one has {len(secret)}")
        self.id = hmac.digest(secret, _ID_CONTEXT, "sha256")[:8].hex()
        self.origin = origin
        self._begun = hmac.new(secret, _CONTEXT, hashlib.sha256)

    def sign(self, path: str, data: Parts) -> bytes:
        """The signature of an object with these bytes at a path below the root."""
        made = self._begun.copy()
        made.update(path.encode() + b"\0")
        for piece in pieces_of(data):
            made.update(piece)
        return made.digest()

    def fits(self, path: str, data: Parts, signature: Data) -> bool:
        """Whether a signature is that of an object with these bytes at a path."""
        return hmac.compare_digest(self.sign(path, data), signature)

    def __repr__(self) -> str:
        return f"SigningKey(id={self.id!r})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: read the key in the process that uses it")


def signing_key(file: str = "") -> SigningKey | None:
    """The key in a file; without a file that of the environment; None if there is none either. Both are hexadecimal.

    Raises StorageRefused, without the key, if it cannot be read or is too short.
    """
    text = os.environ.get(VARIABLE, "")
    return _key(text, f"environment variable {VARIABLE}") if text.strip() and not file else key_in(file)


def key_in(file: str) -> SigningKey | None:
    """The key in a file; None for "". Raises as `signing_key`."""
    if not file:
        return None
    if is_key(file):
        raise StorageRefused(f"setting '{SETTING}' has a key, not the path of its file: write the key into a file")
    origin, path = f"setting '{SETTING}'", Path(file).expanduser()
    try:
        text, mode = path.read_text("ascii"), path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StorageRefused(
            f"{origin}: {file!r} cannot be read ({why}). It has to be on each host, at this path"
        ) from None
    if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
        logger.warning("%s: other users may read or change %r: `chmod o-rw` forbids it", origin, file)
    return _key(text, f"{origin}, {file!r},")


def is_key(text: str) -> bool:
    """Whether a text looks like a key, which must be in no message."""
    return re.fullmatch(rf"\s*[0-9a-fA-F]{{{2 * LEAST},}}\s*", text) is not None


def _key(text: str, origin: str) -> SigningKey:
    if not is_key(text) or len(text.strip()) % 2:
        raise StorageRefused(
            f"{origin}: the signing key has to be at least {2 * LEAST} hexadecimal digits, two for a byte; {_MAKE_ONE}"
        )
    return SigningKey(bytes.fromhex(text.strip()), origin)


# --- descriptions ---------------------------------------------------------------------------------------------------


def with_signature(fields: Mapping[str, Any], path: str, key: SigningKey | None) -> dict[str, Any]:
    """The fields of an object in JSON at a path, signed if there is a key. Their `signed` is the key's id."""
    if key is None:
        return dict(fields)
    signed = {**fields, "signed": key.id}
    return {**signed, "signature": key.sign(path, _canonical(signed)).hex()}


def without_signature(fields: Mapping[str, Any], path: str, where: str, key: SigningKey | None) -> dict[str, Any]:
    """The fields without the signature, which has to fit. where: the root, for messages.

    Raises StorageRefused if it does not, if the root is signed and there is no key, and if it is not signed and there
    is one: somebody may have removed the signature.
    """
    rest = {name: value for name, value in fields.items() if name != "signature"}
    signed, signature = fields.get("signed"), fields.get("signature")
    if signed is None and signature is None:
        if key is not None:
            raise StorageRefused(
                f"{where}/{path} is not signed, but {key.origin} gives a signing key. If it was signed before, "
                "somebody has changed it: restore it from a copy. To use a root that was never signed, give no key; a "
                "restored backup of it can be signed"
            )
        return rest
    if key is None:
        raise StorageRefused(
            f"{where} is signed with key {signed!r}, and this process has none: give it in setting '{SETTING}', or in "
            f"the environment variable {VARIABLE}"
        )
    if signed != key.id:
        raise StorageRefused(
            f"{where} is signed with key {signed!r}, but {key.origin} gives key {key.id!r}: give the root's own key"
        )
    if type(signature) is not str or not hmac.compare_digest(key.sign(path, _canonical(rest)), _bytes_of(signature)):
        raise StorageRefused(
            f"{where}/{path}: its signature does not fit, so somebody without the key has changed it. Restore it from "
            "a copy, and find out who can write to the storage"
        )
    return rest


def _bytes_of(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _canonical(fields: Mapping[str, Any]) -> bytes:
    """Fields as JSON in one form, as the description's checksum has them."""
    return json.dumps(fields, sort_keys=True).encode()
