"""A signed root (W20) used by all that uses one: streams, transactions, groups, tables, commands, backups."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from chunkstore import StorageRefused
from engine.errors import BadSignature
from engine.signatures import VARIABLE
from pravega_spark import KeyValueTableConfiguration, StreamManager, TableKey
from pravega_spark.cli.main import cli
from pravega_spark.roots import close_root, open_root
from pravega_spark.source.options import SourceOptions
from tests.cli.test_cli import document, run
from tests.support.signed import KEY, OTHER, SECRET, key_file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv(VARIABLE, raising=False)
    return key_file(tmp_path)


@pytest.fixture
def url(tmp_path: Path, file: str) -> str:
    with StreamManager(tmp_path / "root", create=True, settings={"signing_key_file": file}) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 2)
        with manager.create_writer("sc", "st") as writer:
            writer.write_events([f"event {i}" for i in range(20)], [f"key {i % 3}" for i in range(20)])
    return str(tmp_path / "root")


def events(manager: StreamManager) -> set[str]:
    return {bytes(event.data).decode() for event in manager.read_events("sc", "st")}


def test_streams_transactions_groups_and_tables(url: str, file: str, tmp_path: Path) -> None:
    expected = {f"event {i}" for i in range(20)} | {"committed"}
    with StreamManager(url, settings=f"signing_key_file={file}") as manager:
        with manager.create_transaction_writer("sc", "st").begin_txn() as transaction:
            transaction.write_event("committed", "key")
            transaction.commit()
        table = manager.create_key_value_table("sc", "kv", KeyValueTableConfiguration(1, 4, 0))
        manager.key_value_table("sc", "kv").put(TableKey(b"name"), b"value")
        manager.scale_stream("sc", "st", list(manager.stream_info("sc", "st").tail.positions), [(0.0, 0.5), (0.5, 1.0)])

        async def read() -> set[str]:
            found: set[str] = set()
            reader = manager.create_reader_group("group", "sc", "st").create_reader("one")
            for _ in range(10):
                piece = await reader.get_segment_slice_async()
                found |= {bytes(event.data).decode() for event in piece}
                reader.release_segment(piece)
                if found == expected:
                    break
            reader.reader_offline()
            return found

        assert asyncio.run(read()) == expected == events(manager)
        for number in range(manager.root.config.containers):
            container = manager.root.container(number)
            container.flush()
            container.checkpoint()
            container.collect_garbage()
            container.truncate_log()
        manager.backup(tmp_path / "copy")
        assert table is not None
    place, rotated = tmp_path / "restored", key_file(tmp_path, OTHER)
    StreamManager.restore(tmp_path / "copy", place, settings={"signing_key_file": rotated}, backup_key_file=file)
    with pytest.raises(StorageRefused, match="the root's own key"):
        StreamManager(place, create=False, settings={"signing_key_file": file})
    with StreamManager(place, create=False, settings={"signing_key_file": rotated}) as manager:
        assert events(manager) == expected
        found = manager.key_value_table("sc", "kv").get(TableKey(b"name"))
        assert found is not None and found.value == b"value"


def test_a_root_opened_with_and_without_a_key(url: str, file: str) -> None:
    """The settings are part of what distinguishes open roots."""
    with pytest.raises(StorageRefused, match="this process has none"):
        open_root(url)
    settings = {"signing_key_file": file}
    root = open_root(url, settings=settings)
    assert root.key is not None and root.key.id == KEY.id and open_root(url, settings=settings) is root
    with pytest.raises(StorageRefused, match="this process has none"):
        open_root(url)
    close_root(url, settings=settings)


def test_commands(url: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = run("stream", "list", "sc", root=url, code=1).stderr
    assert "'signing_key_file'" in told and SECRET.hex() not in told
    setting = ("--setting", f"signing_key_file={file}")
    assert document(*setting, "root", "describe", root=url)["root"]["signed"] == KEY.id
    assert "signing key" in run(*setting, "root", "describe", root=url).stdout
    for words in (
        ["stream", "list", "sc"],
        ["container", "list"],
        ["container", "describe", "0"],
        ["container", "flush"],
        ["segment", "list"],
        ["verify", "--deep"],
        ["gc", "--yes"],
        ["header", "export", "sc/st/0.#epoch.0"],
        ["maintain", "--yes"],
        ["status"],
        ["root", "set", "--max-segments", "50", "--yes"],
        ["backup", str(tmp_path / "copy")],
    ):
        assert SECRET.hex() not in run(*setting, *words, root=url).output, words
    monkeypatch.setenv(VARIABLE, SECRET.hex())
    copy, other = str(tmp_path / "copy"), key_file(tmp_path, OTHER)
    run("restore", copy, root=tmp_path / "same")
    assert document("root", "describe", root=tmp_path / "same")["root"]["signed"] == KEY.id
    monkeypatch.delenv(VARIABLE)
    run("--setting", f"signing_key_file={other}", "restore", copy, "--backup-key", file, root=tmp_path / "rotated")
    run("restore", copy, "--backup-key", file, root=tmp_path / "plain")
    with StreamManager(tmp_path / "plain", create=False) as manager:
        assert len(events(manager)) == 20
        manager.backup(tmp_path / "plain copy")
    run("--setting", f"signing_key_file={file}", "restore", str(tmp_path / "plain copy"), "--backup-key", "none",
        root=tmp_path / "signed")  # fmt: skip
    with StreamManager(tmp_path / "signed", create=False, settings={"signing_key_file": file}) as manager:
        assert len(events(manager)) == 20
    assert cli.name


def test_verify_names_the_object_and_fails(url: str, file: str) -> None:
    frame = sorted(Path(url).glob("_system/containers/*/wal/*/*"))[-1]
    data = bytearray(frame.read_bytes())
    data[-40] ^= 1
    frame.write_bytes(data)
    report = document("--setting", f"signing_key_file={file}", "verify", root=url, code=1)
    assert frame.name in json.dumps(report) and "its signature does not fit" in json.dumps(report)
    with StreamManager(url, create=False, settings={"signing_key_file": file}) as manager, pytest.raises(BadSignature):
        events(manager)


def test_sparks_options_have_the_path_and_not_the_key(url: str, file: str) -> None:
    given = {"controller": url, "scope": "sc", "stream": "st", "settings": f"signing_key_file={file}"}
    options = SourceOptions.parse(given, {})
    assert options.opening["settings"] == {"signing_key_file": file}
    assert SECRET.hex() not in repr(options)
