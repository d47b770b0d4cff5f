"""What real Pravega servers left in their long-term storage, and the truth about it (tests/data/pravega-lts).

With the environment variable PRAVEGA_LTS the archives in that folder are tested as well.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from chunkstore import Store
from chunkstore.testing import SimulatedStore

_TRIMMED = Path(__file__).parent / "data" / "pravega-lts"
_FULL = os.environ.get("PRAVEGA_LTS")

CHUNKED = _TRIMMED / "chunked-0.13.0.tar.xz"
ROLLING = _TRIMMED / "rolling-0.9.0.tar.xz"
ARCHIVES = [CHUNKED, ROLLING, *(sorted(Path(_FULL).glob("*.tar.gz")) if _FULL else ())]


class Case(NamedTuple):
    """An archive: the objects by their names, and what is expected, by the names of the files."""

    name: str
    objects: dict[str, bytes]
    expected: dict[str, bytes]

    def store(self) -> Store:
        """The objects in a store of their own."""
        return stored(self.objects)

    def laid_out(self, folder: Path) -> str:
        """The objects as files of a folder, which is returned."""
        for name, data in self.objects.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return str(folder)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of an expected file; rows that the server left unfinished when it failed are not among them."""
        found = []
        for line in self.expected.get(name, b"").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                assert b"error" in line
        return found

    def digests(self) -> dict[str, str]:
        """For each segment the hash of the hashes of its events, in their order."""
        if "digests.json" in self.expected:
            return dict(json.loads(self.expected["digests.json"]))
        found: dict[str, Any] = defaultdict(hashlib.sha256)
        for row in self.rows("readback.jsonl"):
            found[row["segName"]].update(bytes.fromhex(row["sha256"]))
        return {name: digest.hexdigest() for name, digest in found.items()}


def stored(objects: dict[str, bytes]) -> Store:
    """A store with these objects."""
    store = SimulatedStore()
    for name, data in objects.items():
        store.put(name, data)
    return store


@functools.cache
def case(path: Path) -> Case:
    """The archive in a file."""
    objects: dict[str, bytes] = {}
    expected: dict[str, bytes] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            data = tar.extractfile(member)
            if data is not None:
                folder, _, name = member.name.removeprefix("./").partition("/")
                (objects if folder == "lts" else expected)[name] = data.read()
    return Case(path.name.removesuffix(".xz").removesuffix(".gz"), objects, expected)
