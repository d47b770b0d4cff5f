"""Makes the archives in this folder of long-term storage that real servers wrote (`FOLDER/lts`, `FOLDER/expected`).

    python tests/data/pravega-lts/trim.py FOLDER OUTPUT.tar.xz

Every object stays, with its name and its size, and so do all that servers wrote about them: records, journals, indexes,
offsets. Of the events and of the table's values the random padding is replaced by as many `x`, so that they pack well;
their stream, number and key stay. Of what is expected the padding and the hashes go: a hash of all the events of each
segment (`digests.json`) takes their place.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import sys
import tarfile
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from chunkstore import open_store
from chunkstore.pravega.archive import Archive, open_archive
from chunkstore.testing import SimulatedStore
from pravega_spark.streams.model.names import segment_name
from pravega_spark.streams.pravega_lts.streams import PravegaStreams, decoded

PAD = b'"pad":"'
KEPT = ("stream", "seq", "key", "len", "txn", "txnState")


def without_padding(data: bytes) -> bytes:
    """The bytes with `x` for each random one: an event, or an entry of a table with a value of that form."""
    found = data.find(PAD)
    if found < 0:
        return data
    start = found + len(PAD)
    return data[:start] + b"x" * (data.rindex(b'"}') - start) + b'"}' + data[data.rindex(b'"}') + 2 :]


def heads(archive: Archive) -> dict[str, int]:
    """Where segments of streams begin, as the controller says."""
    streams = PravegaStreams(archive)
    found: dict[str, int] = {}
    for scope in streams.scopes():
        for name in streams.streams(scope):
            ranges = streams.stream(scope, name).ranges()
            found |= {segment_name(scope, name, number): start for number, (start, _) in ranges.items()}
    return found


def trimmed_segment(archive: Archive, name: str, head: int) -> bytes:
    """The bytes of a segment from its head on, without padding."""
    segment = archive.segment(name)
    if segment.is_table:
        table = archive.read(name, head, segment.length)
        parts = table.split(PAD)
        return parts[0] + b"".join(PAD + without_padding(PAD + part)[len(PAD) :] for part in parts[1:])
    rows = decoded(partial(archive.read, name), name, head, segment.length, segment.length)
    return b"".join(bytes(4) + len(data).to_bytes(4, "big") + without_padding(data) for _, data in rows)


def trimmed_objects(folder: Path) -> dict[str, bytes]:
    """All objects of the folder's `lts`, by their names."""
    root = folder / "lts"
    objects = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    archive = open_archive(open_store(str(root)))
    starts = heads(archive)
    for name, segment in archive.segments().items():
        if name.startswith(("_system/", "demo/_")) or not segment.chunks:
            continue
        head = starts.get(name, segment.start_offset)
        content = bytes(head) + trimmed_segment(archive, name, head)  # what is truncated is nought
        assert len(content) == segment.length
        for chunk in segment.chunks:
            rest = bytes(len(objects[chunk.name]) - chunk.length)
            objects[chunk.name] = content[chunk.offset : chunk.offset + chunk.length] + rest
    return objects


def trimmed_truth(folder: Path, objects: dict[str, bytes]) -> dict[str, bytes]:
    """What is expected, by the names of the files."""
    expected = folder / "expected"
    rows = [json.loads(line) for line in (expected / "readback.jsonl").read_text().splitlines()]
    events = [json.loads(line) for line in (expected / "events.jsonl").read_text().splitlines()]
    truth = {
        "readback.jsonl": _lines({key: row[key] for key in row if key != "sha256"} for row in rows),
        "events.jsonl": _lines({key: row[key] for key in KEPT if key in row} for row in events),
        "cuts.json": (expected / "cuts.json").read_bytes(),
        "digests.json": json.dumps(_digests(rows, objects)).encode(),
    }
    if (expected / "segments.jsonl").exists():
        truth["segments.jsonl"] = (expected / "segments.jsonl").read_bytes()
        live = [json.loads(line) for line in (expected / "kvt.jsonl").read_text().splitlines()]
        values = ({**row, "value": without_padding(row["value"].encode()).decode()} for row in live)
        truth["kvt.jsonl"] = _lines(values)
    return truth


def _digests(rows: list[dict[str, object]], objects: dict[str, bytes]) -> dict[str, str]:
    """For each segment the hash of the hashes of its events, as the trimmed objects have them."""
    store = SimulatedStore()
    for name, data in objects.items():
        store.put(name, data)
    archive = open_archive(store)
    found = defaultdict[str, Any](hashlib.sha256)
    for row in rows:
        start = int(str(row["offset"])) + 8
        data = archive.read(str(row["segName"]), start, start + int(str(row["len"])))
        found[str(row["segName"])].update(hashlib.sha256(data).digest())
    return {name: digest.hexdigest() for name, digest in found.items()}


def _lines(rows: object) -> bytes:
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()  # type: ignore[attr-defined]


def main(folder: Path, output: Path) -> None:
    """Write the archive."""
    objects = trimmed_objects(folder)
    files = {f"lts/{name}": data for name, data in objects.items()}
    files |= {f"expected/{name}": data for name, data in trimmed_truth(folder, objects).items()}
    preset = 9 | lzma.PRESET_EXTREME
    with lzma.open(output, "wb", preset=preset) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
