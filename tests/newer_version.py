"""A root to whose records a newer version added optional fields (W19), and which of them still have these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from chunkstore.metadata.metadata_records import decode, encode
from engine.containers.container import Container
from engine.root import checksum
from engine.state.segment_record import decode_segment, encode_segment
from engine.state.tables import METADATA, STORAGE
from engine.writer import container_records, flush_cycle
from pravega_spark import StreamManager
from pravega_spark.client.groups.entry import GROUPS
from pravega_spark.streams.model.system_tables import KEY_VALUE_TABLES, SCOPES, STREAMS, TIMES, TRANSACTIONS

ALONE = {"maintenance": False, "active_segments": 10, "transient_idle_seconds": 3600}
ADDED = {"newer": {"what": [1, 2.5, None, 'é\t"\x7f\U0001f600'], "A": {"z": 1, "b": 2}}}
LATER = ((2, b"newer"), (3, b""))
TABLES = (SCOPES, STREAMS, TRANSACTIONS, TIMES, GROUPS, KEY_VALUE_TABLES)
IN_MAPS = (STREAMS, GROUPS)


def add(folder: Path) -> None:
    """Let a newer version add fields to all records of the frozen root, in a copy."""
    _add_to_the_description(folder)
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr(container_records, "encode", lambda record: encode(record._replace(later=LATER)))
        newer.setattr(flush_cycle, "encode_segment", lambda segment: encode_segment(segment._replace(later=LATER)))
        with StreamManager(folder, create=False, settings={**ALONE, "active_segments": 1}) as manager:
            with manager.create_writer("Shop", "con") as writer:
                writer.write_events([f"newer {i}" for i in range(10)])
            for container in containers(manager):
                for table, key, value in entries(container):
                    container.put_entries(table, {key: _with_fields(table, value)})
            touch_all(manager)
            maintain(manager)


def _add_to_the_description(folder: Path) -> None:
    path = folder / "_system/pravega.json"
    fields = {**json.loads(path.read_text()), "optional": ADDED}
    fields["checksum"] = checksum({name: value for name, value in fields.items() if name != "checksum"})
    path.write_text(json.dumps(fields))


def containers(manager: StreamManager) -> Iterator[Container]:
    for number in range(manager.root.config.containers):
        yield manager.root.container(number)


def entries(container: Container) -> Iterator[tuple[str, str, bytes]]:
    """The entries of the tables whose records have optional fields."""
    state = container.refresh()
    for table in TABLES:
        for key, entry in container.lookups.scan(state, table):
            if entry.value is not None and not key.endswith("/watermarks"):
                yield table, key, entry.value


def _with_fields(table: str, value: bytes) -> bytes:
    plain = msgpack.unpackb(value, strict_map_key=False)
    return bytes(msgpack.packb({**plain, "optional": ADDED} if table in IN_MAPS else [*plain, ADDED]))


def _has_fields(table: str, value: bytes) -> bool:
    plain = msgpack.unpackb(value, strict_map_key=False)
    return bool((plain.get("optional") if table in IN_MAPS else plain[-1]) == ADDED)


def touch_all(manager: StreamManager) -> None:
    """Append to each stream that takes events, so that the records of its segments are stored again."""
    for stream in ("fixed", "Scaled", "retained", "attached", "transactions", "con", "timed"):
        with manager.create_writer("Shop", stream) as writer:
            writer.write_events([f"touched {i}" for i in range(20)], [f"key-{i}" for i in range(20)])


def maintain(manager: StreamManager) -> None:
    for container in containers(manager):
        container.flush()
        container.expire_transients()
        container.collect_garbage()
        container.checkpoint()
        container.truncate_log()


def found(folder: Path) -> dict[tuple[str, str], bool]:
    """Whether each record that may have what a newer version added has it."""
    found = {("description", ""): json.loads((folder / "_system/pravega.json").read_text()).get("optional") == ADDED}
    with StreamManager(folder, create=False, settings=ALONE) as manager:
        for container in containers(manager):
            state = container.refresh()
            found |= {(table, key): _has_fields(table, value) for table, key, value in entries(container)}
            for name, entry in container.lookups.scan(state, METADATA):
                found[METADATA, name] = decode_segment(entry.value or b"", 0, name).later == LATER
            for key, entry in container.lookups.scan(state, STORAGE):
                found[STORAGE, key] = decode(entry.value or b"").later == LATER
    return found
