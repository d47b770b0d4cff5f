"""What real Pravega servers left in their long-term storage, and the truth about it (tests/data/pravega-lts).

With the environment variable PRAVEGA_LTS the archives in that folder are tested as well.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chunkstore import Store
from chunkstore.metadata.serialization import FieldWriter, with_version
from chunkstore.testing import SimulatedStore
from pravega_spark.streams.model.cuts import StreamCut
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.pravega_lts.streams import PravegaStream, PravegaStreams, decoded

_TRIMMED = Path(__file__).parent / "data" / "pravega-lts"
_FULL = os.environ.get("PRAVEGA_LTS")

CHUNKED = _TRIMMED / "chunked-0.13.0.tar.xz"
ROLLING = _TRIMMED / "rolling-0.9.0.tar.xz"
_GIVEN = sorted(Path(_FULL).glob("*.tar.gz")) if _FULL else []
KILLED = [path for path in _GIVEN if path.name.startswith("killed-")]
"""Those of servers that were killed. What is right is not known of them, but what is whole in their objects."""

ARCHIVES = [CHUNKED, ROLLING, *(path for path in _GIVEN if path not in KILLED)]


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


def laid_out(objects: dict[str, bytes], folder: Path) -> Path:
    """The folder, with these objects as files."""
    for name, data in objects.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, str]:
    """All files of a folder and the hashes of their bytes."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def with_entries(objects: dict[str, bytes], table: str, rows: dict[str, bytes | None]) -> dict[str, bytes]:
    """Objects of the rolling layout, with entries behind those of a table of the controller: None removes a key. Its
    index does not know them, as where it was not flushed yet. table: what its name begins with below `_tables/`."""
    [name] = (n for n in objects if n.startswith(f"_system/_tables/{table}") and "$attributes" not in n and "$off" in n)
    more = b""
    for key, value in rows.items():
        more += struct.pack(">Biiq", 0, len(key), -1 if value is None else len(value), -1 << 63)
        more += key.encode() + (value or b"")
    return {**objects, name: objects[name] + more}


def retention_set(cuts: Sequence[tuple[int, int]]) -> bytes:
    """The controller's record of the cuts that retention recorded: time (ms) and size of each."""
    fields = FieldWriter()
    fields.compact_int(len(cuts))
    for time, size in cuts:
        reference = FieldWriter()
        reference.long(size)
        reference.long(time)
        fields.raw(with_version(0, reference.getvalue()))
    return with_version(0, fields.getvalue())


def retention_cut(time: int, size: int, positions: Mapping[int, int]) -> bytes:
    """The controller's record of a cut that retention recorded."""
    fields = FieldWriter()
    fields.long(time)
    fields.long(size)
    fields.compact_int(len(positions))
    for segment, offset in positions.items():
        fields.long(segment)
        fields.long(offset)
    return with_version(0, fields.getvalue())


class ArchivedEvent(NamedTuple):
    """An event: the id of its segment, the offset of its header, and its payload."""

    segment: int
    offset: int
    data: bytes


def live_events(streams: PravegaStreams, stream: PravegaStream) -> Iterator[ArchivedEvent]:
    """The events of a stream, segment after segment, read without a root."""
    for number, (low, high) in stream.ranges().items():
        name = segment_name(stream.scope, stream.name, number)
        read = functools.partial(streams.archive.read, name)
        for offset, data in decoded(read, name, low, high, high):
            yield ArchivedEvent(number, offset, data)


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


def retained() -> tuple[dict[str, bytes], StreamCut, StreamCut]:
    """An archive in which retention recorded three cuts of a truncated stream: one before its head, its head and tail,
    which are returned."""
    one = case(ROLLING)
    told = json.loads(one.expected["cuts.json"])
    texts = [told["truncated/1800"]["head"], told["truncated/1800"]["tail"], told["truncated/3000"]["tail"]]
    cuts = [StreamCut.from_text(text) for text in texts]
    times = (1_700_000_000_000, 1_700_000_100_000, 1_700_000_200_000)
    sizes = [sum(cut.positions.values()) for cut in cuts]
    rows: dict[str, bytes | None] = {"retention": retention_set(list(zip(times, sizes, strict=True)))}
    for time, size, cut in zip(times, sizes, cuts, strict=True):
        rows[f"retentionCuts-{time}"] = retention_cut(time, size, cut.positions)
    return with_entries(one.objects, "demo/truncated/metadata", rows), cuts[1], cuts[2]
