"""Writes a root of format 1 with all that a root may have, and the truth about it.

    python -m tests.data.format_1 FOLDER

The root of `tests/data/format-1/root.tar.gz` was written by this program and is frozen: a later version has to read it.
So do not run it over the frozen files. Run it into a folder of its own to see what the present version writes.

It owns what the root contains; `truth` is how the present Python code reads any root, in the lines that
`tests/format_reader` prints too. Ids, times and addresses differ from run to run, so the truth belongs to one root.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.errors import SegmentNotFound
from pravega_spark import (
    Insert,
    KeyValueTableConfiguration,
    Remove,
    Serializer,
    StreamManager,
    StreamReaderGroupConfig,
    StreamRetentionPolicy,
    StreamScalingPolicy,
    TableKey,
    ValueFormat,
)
from pravega_spark.checks import verify_root
from tests.archives import ROLLING, case
from tests.support import limits

FROZEN = Path(__file__).parent / "format-1"
SETTINGS: dict[str, Any] = {
    "maintenance": False,
    "attach_bytes": "8KiB",
    "containers": 2,
    "grace_seconds": 15,
    "garbage_delay_seconds": 1,
    "transient_idle_seconds": 1,
    "checkpoint_frames": 1000,
    "active_segments": 12,
}
SCOPES = ("Shop", "lab")
BYTE_STREAM = ("lab", "bytes")
IMPORTED = "demo/truncated"


def write(folder: Path) -> None:
    """Write the root. It takes half a minute, most of which is a wait for the grace period of the log."""
    with pytest.MonkeyPatch.context() as patch:
        limits.inline_bytes(patch, 4096)
        limits.own_chunk_bytes(patch, 4096)
        limits.chunk_bytes(patch, 16384)
        limits.cached_attributes(patch, 8)
        limits.chunks_per_index_block(patch, 3)
        with StreamManager(folder, settings=SETTINGS) as manager:
            _create(manager)
            _first(manager)
            _flush(manager)
            _second(manager)
            _flush(manager)
            _collect(manager)
            time.sleep(SETTINGS["grace_seconds"] + 1)
            _flush(manager)
            _collect(manager)
            _third(manager)
            for number in range(manager.root.config.containers):
                manager.root.container(number).checkpoint()
            _fourth(manager)
            _last(manager)
        _together(folder)


def _create(manager: StreamManager) -> None:
    for scope in SCOPES:
        manager.create_scope(scope)
    manager.create_stream("Shop", "fixed", 2)
    scaling = StreamScalingPolicy.auto_scaling_policy_by_event_rate(1000, 2, 1)
    manager.create_stream_with_policy("Shop", "Scaled", scaling, tags=["a", "ünïcode"])
    manager.create_stream_with_policy("Shop", "retained", retention_policy=StreamRetentionPolicy.by_size(3000))
    for name in (
        "sealed",
        "attached",
        "transactions",
        "empty",
        "con",
        "large",
        "numbered",
        "timed",
        "frames",
        "together",
    ):
        manager.create_stream("Shop", name, 2 if name in ("transactions", "frames", "numbered") else 1)
    manager.create_stream("lab", "bytes", 1)
    manager.create_stream("lab", "members", 1)
    manager.create_stream("lab", "values", 1)
    manager.create_stream("lab", "recreated", 1)
    manager.set_value_format("lab", "values", ValueFormat("json", "id bigint, name string"))
    manager.create_key_value_table("Shop", "stock", KeyValueTableConfiguration(2, 5, 2))
    manager.create_key_value_table("lab", "plain", KeyValueTableConfiguration(1, 4, 0))


def _events(manager: StreamManager, scope: str, stream: str, what: str, count: int, size: int = 0) -> None:
    with manager.create_writer(scope, stream) as writer:
        for i in range(count):
            writer.write_event_bytes(f"{what} {i} ".encode() + bytes([i % 251]) * size, f"key-{i % 7}")


def _first(manager: StreamManager) -> None:
    """What the first flush cycle moves."""
    for scope, stream in (("Shop", "fixed"), ("Shop", "Scaled"), ("Shop", "con"), ("Shop", "sealed")):
        _events(manager, scope, stream, "first", 20)
    for batch in range(6):
        _events(manager, "Shop", "attached", f"attached {batch}", 10, 1200)
    _events(manager, "Shop", "retained", "first", 30, 100)
    manager.retain("Shop", "retained")
    manager.scale_stream("Shop", "Scaled", [0], [(0.0, 0.2), (0.2, 1.0)])
    _events(manager, "Shop", "Scaled", "after a split", 25)
    manager.create_byte_stream(*BYTE_STREAM).write(b"\x07bytes, not events")
    for turn in range(12):
        manager.write_events("Shop", "frames", _table(f"app {turn}", 6), txn_app_id=f"app-{turn}", txn_version=turn)
    manager.write_events("Shop", "frames", _table("long", 40, 700), txn_app_id="app-0", txn_version=99)
    with manager.create_writer("Shop", "numbered", producer="import:orders.csv") as writer:
        for i in range(9):
            writer.write_event(f"numbered {i}", f"key-{i}", number=3 * i)
    _table_entries(manager, b"1")
    _transactions(manager, "first")
    _events(manager, "lab", "recreated", "of the deleted stream", 5)
    manager.seal_stream("lab", "recreated")
    manager.delete_stream("lab", "recreated")
    with manager.begin_event("Shop", "large", "key", name="parts") as event:
        for part in range(3):
            event.write(bytes([65 + part]) * 5000)
            event.flush()
        event.commit()
    _synchronized(manager)


def _second(manager: StreamManager) -> None:
    """What makes garbage of some of that."""
    manager.seal_stream("Shop", "sealed")
    _events(manager, "Shop", "fixed", "second", 20)
    info = manager.stream_info("Shop", "attached")
    manager.truncate_stream("Shop", "attached", manager.next_stream_cut("Shop", "attached", info.head, 25_000))
    manager.scale_stream("Shop", "Scaled", _tail(manager, "Scaled"), [(0.0, 1.0)])
    _events(manager, "Shop", "Scaled", "after a merge", 12)
    manager.create_stream("lab", "recreated", 1)
    _events(manager, "lab", "recreated", "of the new stream", 4)
    for i in range(5):
        _events(manager, "lab", "values", f'{{"id": {i}, "name": "x"}}', 1)
    _events(manager, "Shop", "retained", "second", 30, 100)
    manager.retain("Shop", "retained", period=0)
    _table_entries(manager, b"2")
    _transactions(manager, "second")
    with manager.create_writer("Shop", "timed") as writer:
        writer.note_time(1_790_000_000_000)
        writer.write_event("timed")
        writer.note_time(1_790_000_001_000)
    for turn in range(4):
        _events(manager, "Shop", "con", f"turn {turn}", 3)
        for number in range(2):
            manager.root.container(number).flush()


def _third(manager: StreamManager) -> None:
    """What only the log has when the last checkpoint is written."""
    _events(manager, "Shop", "fixed", "third", 10)
    manager.scale_stream("Shop", "Scaled", _tail(manager, "Scaled"), [(0.0, 0.5), (0.5, 1.0)])
    _events(manager, "Shop", "Scaled", "after another split", 12)
    head = manager.next_stream_cut("Shop", "Scaled", manager.stream_info("Shop", "Scaled").head, 200)
    manager.truncate_stream("Shop", "Scaled", head)
    manager.create_byte_stream(*BYTE_STREAM).write(b", more bytes")
    _transactions(manager, "third")
    _table_entries(manager, b"3")
    group = manager.create_reader_group("readers", "Shop", "fixed")
    reader = group.create_reader("one")
    for _ in range(7):
        reader.read_next_event()
    group.close()
    manager.create_reader_group_with_config("tailing", "lab", StreamReaderGroupConfig(True, "lab", "values")).close()


def _fourth(manager: StreamManager) -> None:
    """A flush cycle, a collection, an import and an expiry of which only the log knows, as no checkpoint follows."""
    _events(manager, "Shop", "attached", "fourth", 8, 1100)
    _events(manager, "Shop", "con", "fourth", 8)
    manager.create_key_value_table("lab", "deleted", KeyValueTableConfiguration(1, 4, 0))
    manager.delete_key_value_table("lab", "deleted")
    with manager.create_writer("Shop", "Scaled") as writer:
        writer.write_event("before the seal of a segment", "key")
    for turn in range(6):
        manager.write_events(
            "Shop", "frames", _table(f"late app {turn}", 2), txn_app_id=f"late-{turn}", txn_version=turn
        )
    left = manager.begin_event("Shop", "large", "key", name="left")
    left.write(b"expires")
    left.flush()
    time.sleep(2)
    with tempfile.TemporaryDirectory() as source:
        manager.import_streams(case(ROLLING).laid_out(Path(source)), [IMPORTED], copy=True)
    for number in range(manager.root.config.containers):
        container = manager.root.container(number)
        container.flush()
        container.collect_garbage()
        container.expire_transients()


def _together(folder: Path) -> None:
    """Two processes write at once, so that one of them makes the frames of both (W18)."""
    writer = (
        "from pravega_spark import StreamManager\nfrom tests.data.format_1 import SETTINGS, _burst\n_burst({!r}, {!r})"
    )
    both = [subprocess.Popen([sys.executable, "-c", writer.format(str(folder), name)]) for name in ("first", "second")]
    for process in both:
        if process.wait(60):
            raise RuntimeError("a writer failed")


def _burst(folder: str, what: str) -> None:
    with (
        StreamManager(folder, create=False, settings=SETTINGS) as manager,
        manager.create_writer("Shop", "together") as writer,
    ):
        for i in range(80):
            writer.write_event(f"{what} process {i}", f"key-{i}")
            writer.flush()


def _last(manager: StreamManager) -> None:
    """Frames after the last flush."""
    for stream in ("fixed", "Scaled", "con", "attached", "numbered"):
        _events(manager, "Shop", stream, "last", 8, 1100 if stream == "attached" else 0)
    manager.scale_stream("Shop", "fixed", [1], [(0.5, 0.7), (0.7, 1.0)])
    _events(manager, "Shop", "fixed", "after the last scale", 12)
    manager.write_events("Shop", "frames", _table("last", 30, 600), txn_app_id="app-1", txn_version=100)
    manager.create_byte_stream(*BYTE_STREAM).truncate(7)
    _transactions(manager, "last")
    _table_entries(manager, b"4")
    manager.create_stream("lab", "young", 1)
    _events(manager, "lab", "young", "only in the log", 3)
    with manager.begin_event("Shop", "large", "key", name="more parts") as event:
        for part in range(2):
            event.write(bytes([97 + part]) * 3000)
            event.flush()
        event.commit()
    unfinished = manager.begin_event("Shop", "large", "key", name="unfinished")
    unfinished.write(b"never committed")
    unfinished.flush()


def _tail(manager: StreamManager, stream: str) -> list[int]:
    return list(manager.stream_info("Shop", stream).tail.positions)


def _table(what: str, rows: int, size: int = 0) -> pa.Table:
    events = [f"{what} row {i} ".encode() + b"." * size for i in range(rows)]
    return pa.table({"event": events, "routing_key": [f"key-{i}" for i in range(rows)]})


def _transactions(manager: StreamManager, what: str) -> None:
    writer = manager.create_transaction_writer("Shop", "transactions")
    with writer.begin_txn() as committed:
        for i in range(5):
            committed.write_event(f"{what} committed {i}", f"key-{i}")
        committed.commit()
    with writer.begin_txn() as spilled:
        spilled.write_events([f"{what} spilled {i} " + "s" * 900 for i in range(24)], [f"key-{i}" for i in range(24)])
        spilled.flush()
        manager.root.container(0).flush() if what == "second" else None
        manager.root.container(1).flush() if what == "second" else None
        spilled.commit()
    with writer.begin_txn() as aborted:
        aborted.write_event(f"{what} aborted", "key")
        aborted.abort()
    opened = writer.begin_txn("1h")
    opened.write_event(f"{what} open", "key")
    opened.flush()


def _table_entries(manager: StreamManager, value: bytes) -> None:
    stock, plain = manager.key_value_table("Shop", "stock"), manager.key_value_table("lab", "plain")
    for i in range(20):
        stock.put(TableKey(b"shi%02d" % (i % 10), b"_%d" % (i // 10)), value * (i + 1))
    stock.update([Insert(TableKey(b"new0" + value, b"_M"), b"inserted")])
    stock.update([Remove(TableKey(b"shi03", b"_1"))])
    plain.put(b"key" + value, b"")


def _synchronized(manager: StreamManager) -> None:
    text: Serializer[Any] = Serializer(lambda it: it.text.encode(), lambda data: _Word(data.decode()))
    with manager.create_state_synchronizer("lab", "members", text, text) as members:
        members.initialize(_Word("begin"))
        for name in ("one", "two"):
            members.update_state_unconditionally([_Word(name)])
        members.compact(lambda state: _Word(state))


class _Word:
    """An update that adds a word to a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def create(self, scoped_stream_name: str, revision: object) -> str:
        return self.text

    def apply_to(self, old: str, revision: object) -> str:
        return f"{old} {self.text}"


def _flush(manager: StreamManager) -> None:
    for number in range(manager.root.config.containers):
        manager.root.container(number).flush()


def _collect(manager: StreamManager) -> None:
    for number in range(manager.root.config.containers):
        container = manager.root.container(number)
        container.checkpoint()
        container.collect_garbage()
        container.truncate_log()


def truth(folder: Path) -> Iterator[dict[str, Any]]:
    """What a reader of the root has to find: the streams, then their events, then the tables, each in its order."""
    with StreamManager(folder, create=False, settings={"maintenance": False}) as manager:
        for scope in sorted(manager.list_scope()):
            for stream in sorted(manager.list_stream(scope)):
                yield _stream(manager, scope, stream)
                yield from _attributes(manager, scope, stream)
                yield from _content(manager, scope, stream)
            for table in sorted(manager.list_key_value_table(scope)):
                for entry in manager.key_value_table(scope, table).entries():
                    key = {"primary": _text(entry.primary), "secondary": _text(entry.secondary)}
                    yield {"kind": "entry", "scope": scope, "table": table, **key, "value": _text(entry.value)}


def _stream(manager: StreamManager, scope: str, stream: str) -> dict[str, Any]:
    info = manager.stream_info(scope, stream)
    values, tags = manager.value_format(scope, stream), manager.get_stream_tags(scope, stream)
    kept = {"sealed": info.sealed, "tags": tags, "values": [values.format, values.schema] if values else []}
    ends = {"head": _positions(info.head.positions), "tail": _positions(info.tail.positions)}
    return {"kind": "stream", "scope": scope, "stream": stream, **kept, **ends}


def _attributes(manager: StreamManager, scope: str, stream: str) -> Iterator[dict[str, Any]]:
    """The producers' state of a stream: its extended attributes, wherever they are."""
    for number in range(manager.root.config.containers):
        try:
            found = manager.root.container(number).attributes(f"{scope}/{stream}#writers")
        except SegmentNotFound:
            continue
        for each, value in sorted(found.items()):
            if not each[0] & 0x80:
                yield {"kind": "attribute", "scope": scope, "stream": stream, "id": each.hex(), "value": value}


def _content(manager: StreamManager, scope: str, stream: str) -> Iterator[dict[str, Any]]:
    if (scope, stream) == BYTE_STREAM:
        opened = manager.create_byte_stream(scope, stream)
        head = opened.current_head_offset()
        opened.seek(head)
        data = bytearray(opened.current_tail_offset() - head)
        opened.readinto(data)
        yield {"kind": "bytes", "scope": scope, "stream": stream, "segment": 0, "offset": head, "data": _text(data)}
        return
    for event in sorted(manager.read_events(scope, stream), key=lambda event: (event.segment_id, event.offset)):
        at = {"segment": event.segment_id, "offset": event.offset}
        yield {"kind": "event", "scope": scope, "stream": stream, **at, "data": _text(event.data)}


def _positions(positions: Any) -> list[list[int]]:
    return sorted([segment, offset] for segment, offset in dict(positions).items())


def _text(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode()


def lines(found: Iterator[dict[str, Any]]) -> str:
    """One JSON document a line, as the Go reader prints them."""
    return "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in found)


def verified(folder: Path) -> dict[str, Any]:
    """What `verify --deep` finds in a root."""
    with StreamManager(folder, create=False, settings={"maintenance": False}) as manager:
        report = verify_root(manager.root, deep=True)
        return {"errors": report.errors, "warnings": report.warnings, "findings": [str(it) for it in report.findings]}


def packed(folder: Path) -> bytes:
    """The files of a folder as an archive, which depends on their names and contents only."""
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", filename="", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "_system/tmp" not in file.as_posix():
                member = tarfile.TarInfo(file.relative_to(folder).as_posix())
                member.size, member.mode = file.stat().st_size, 0o644
                archive.addfile(member, io.BytesIO(file.read_bytes()))
    return content.getvalue()


def frozen_truth() -> list[dict[str, Any]]:
    """The truth about the frozen root."""
    return [json.loads(line) for line in gzip.decompress((FROZEN / "truth.jsonl.gz").read_bytes()).splitlines()]


def unpacked(folder: Path) -> Path:
    """The frozen root, as the files of this folder."""
    with tarfile.open(FROZEN / "root.tar.gz") as archive:
        archive.extractall(folder)
    return folder


def main(folder: Path) -> None:
    """Write `root`, and beside it the archive and the truth."""
    write(folder / "root")
    (folder / "root.tar.gz").write_bytes(packed(folder / "root"))
    (folder / "truth.jsonl.gz").write_bytes(gzip.compress(lines(truth(folder / "root")).encode(), mtime=0))
    (folder / "verify.json").write_text(json.dumps(verified(folder / "root"), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
