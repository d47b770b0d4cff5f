"""A key for tests, and what somebody does who can write to the storage of a signed root, and does not have its key."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkstore import Store, open_store
from chunkstore.paths import ROOT, is_signed
from engine.root import RootConfig, checksum
from engine.signatures import SIGNATURE, SigningKey

SECRET = bytes(range(32))
KEY = SigningKey(SECRET, "a test")
OTHER = bytes(range(1, 33))
"""Of another key."""


def key_file(folder: Path, secret: bytes = SECRET) -> str:
    """A file with the key."""
    path = folder / f"{secret[0]}.key"
    path.write_text(secret.hex())
    path.chmod(0o600)
    return str(path)


def objects(store: Store) -> dict[str, bytes]:
    """All objects of a root as they are stored."""
    return {info.path: store.read(info.path) for info in store.list("")}


def without_signatures(root: Path, target: Path) -> Path:
    """A copy of a signed root that is not signed, with all checksums right. Who has no key works with that."""
    shutil.copytree(root, target)
    store = open_store(str(target))
    for path, data in objects(store).items():
        if is_signed(path):
            store.put(path, data[:-SIGNATURE])
    store.put(ROOT, described_as(store.read(ROOT), signed=None, signature=None))
    return target


def described_as(description: bytes, **changes: Any) -> bytes:
    """A root's description with other fields, and the right checksum. None: `signed` or `signature` is removed."""
    fields: dict[str, Any] = {**json.loads(description), **changes}
    del fields["checksum"]
    for name in ("signed", "signature"):
        if fields.get(name) is None:
            fields.pop(name, None)
    return json.dumps({**fields, "checksum": checksum(fields)}).encode()


def with_signatures(root: Path) -> None:
    """Sign a root that is not signed, in its place: all that a new one would have signed."""
    store = open_store(str(root))
    for path, data in objects(store).items():
        if is_signed(path):
            store.put(path, data + KEY.sign(path, data))
    config = RootConfig.from_bytes(store.read(ROOT), store.root)
    store.put(ROOT, replace(config, signed=KEY.id).to_bytes(KEY))
