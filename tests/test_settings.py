"""Settings: their texts, where they can be given, and what changes of a root."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from chunkstore.paths import ROOT
from engine.errors import RootReplaced
from engine.root import Root
from engine.settings import OF_ROOT, Settings
from pravega_spark import StreamManager
from pravega_spark.roots import close_root, open_root
from pravega_spark.settings import VARIABLE, known_settings, parse_settings
from pravega_spark.source.options import SourceOptions
from tests.cli.test_cli import document, run


@pytest.fixture
def url(tmp_path: Path) -> str:
    with StreamManager(str(tmp_path / "root"), create=True) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st")
    return str(tmp_path / "root")


def test_every_setting_can_be_given() -> None:
    """But for the three that the root has."""
    of_process = {each.name for each in fields(Settings)} - {"grace", "garbage_delay", "transient_idle"}
    assert set(known_settings()) == of_process | set(OF_ROOT)
    for name, unit in known_settings().items():
        if unit is not None and unit.name == "path":
            assert parse_settings(f"{name}=/a/b")[name] == "/a/b"
            continue
        value = "true" if unit is None else str(max(int(unit.least), 1))
        assert parse_settings(f"{name}={value}")[name] == (unit is None or float(value))
    assert Settings(**parse_settings(Settings())) == Settings()


def test_texts_and_values() -> None:
    given = "cache_bytes=256MiB, flush_seconds = 1m30s,maintenance=false,"
    assert parse_settings(given) == {"cache_bytes": 256 << 20, "flush_seconds": 90.0, "maintenance": False}
    assert parse_settings({"cache_bytes": 5, "linger": 0.5, "threaded": True}) == {
        "cache_bytes": 5,
        "linger": 0.5,
        "threaded": True,
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("cache_byte=1", "there is no setting 'cache_byte'. Did you mean 'cache_bytes'"),
        ("nonsense=1", "there is no setting 'nonsense'. docs/settings.md lists them"),
        ("grace=5", "there is no setting 'grace'. Did you mean 'grace_seconds'?"),
        ("cache_bytes", "'cache_bytes' is not NAME=VALUE"),
        ("cache_bytes=1, cache_bytes=2", "'cache_bytes' is given twice"),
        ("cache_bytes=much", "'cache_bytes': 'much' is not a size"),
        ("cache_bytes=0", "'cache_bytes': '0' is not from 1 to"),
        ("flush_seconds=-1", "'flush_seconds': '-1' is not"),
        ("maintenance=5", "'maintenance': '5' is neither true nor false"),
        ({"signing_key_file": 5}, "'signing_key_file': it is not the path of a file"),
        (f"signing_key_file={'0a' * 32}", "'signing_key_file': it is a key; give the path of a file that has it"),
        ({"flights": True}, "'flights': True is not a number"),
        ("checkpoint_part=1GiB", "'checkpoint_part': '1GiB' is not from 1.04858e+06 to 9.43718e+07"),
    ],
)
def test_wrong_settings_are_named(given: Any, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        parse_settings(given, "option 'settings'")
    assert str(caught.value).startswith("option 'settings': ")


def test_a_process_takes_them_from_its_program_and_its_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "cache_bytes=1MiB, flush_frames=7")
    with StreamManager(url, settings={"cache_bytes": "2MiB"}) as manager:
        assert (manager.root.settings.cache_bytes, manager.root.settings.flush_frames) == (2 << 20, 7)
    with StreamManager(url, settings="flights=1") as manager:
        assert (manager.root.settings.flights, manager.root.settings.cache_bytes) == (1, 1 << 20)
    with StreamManager(url, settings=Settings(flush_frames=9)) as manager:
        assert manager.root.settings.flush_frames == 9
    monkeypatch.setenv(VARIABLE, "cache=1")
    with pytest.raises(ValueError, match=f"environment variable {VARIABLE}: there is no setting 'cache'"):
        StreamManager(url)


def test_spark_passes_them_to_its_tasks(url: str) -> None:
    options = SourceOptions.parse(
        {"controller": url, "scope": "sc", "stream": "st", "settings": "cache_bytes=3MiB, flush_seconds=60s"}
    )
    assert hash(options) == hash(options)
    root = open_root(**options.opening)
    assert root.settings.cache_bytes == 3 << 20 and open_root(**options.opening) is root
    assert open_root(url).settings.cache_bytes == Settings().cache_bytes
    close_root(**options.opening)
    close_root(url)
    with pytest.raises(ValueError, match="Option 'settings': there is no setting 'cash'"):
        SourceOptions.parse({"controller": url, "scope": "sc", "stream": "st", "settings": "cash=3"})


def test_commands_take_them(url: str) -> None:
    run("stream", "list", "--setting", "cache_bytes=1MiB", "--setting", "flights=1", root=url)
    refused = run("--setting", "flight=1", "stream", "list", root=url, code=2).stderr
    assert "there is no setting 'flight'. Did you mean 'flights'?" in refused


def test_those_of_a_root_count_when_it_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "new")
    with StreamManager(url, create=True, settings={"containers": 2, "grace_seconds": "20m"}) as manager:
        assert (manager.root.config.containers, manager.root.settings.grace) == (2, 1200.0)
    with StreamManager(url, settings={"containers": 3}) as manager:
        assert manager.root.config.containers == 2
    monkeypatch.setenv(VARIABLE, "containers=5, max_segments=20")
    created = document("root", "create", "--max-segments", "30", root=str(tmp_path / "other"))["root"]
    assert (created["containers"], created["max_segments"]) == (5, 30)


def test_what_is_safe_to_change_is_changed(url: str) -> None:
    with StreamManager(url) as running:
        running.create_writer("sc", "st").write_event("before")
        assert "max_segments from 10000 to 3" in run("root", "set", "--max-segments", "3", root=url, code=1).stdout
        assert document("root", "describe", root=url)["root"]["max_segments"] == 10_000
        changed = document("root", "set", "--max-segments", "3", "--garbage-delay-seconds", "1h", "--yes", root=url)
        assert changed["root"] == document("root", "describe", root=url)["root"]
        assert (changed["root"]["max_segments"], changed["root"]["garbage_delay_seconds"]) == (3, 3600)
        running.create_writer("sc", "st").write_event("after")  # a program that runs is not disturbed
        assert running.root.config.max_segments == 10_000
    with StreamManager(url) as manager:
        assert manager.root.settings.garbage_delay == 3600
        with pytest.raises(ValueError, match="max_segments"):
            manager.scale_stream("sc", "st", [0], [(each / 4, (each + 1) / 4) for each in range(4)])
        assert [event.data for event in manager.read_events("sc", "st")] == [b"before", b"after"]
    run("verify", root=url)


def test_the_other_settings_cannot_be_changed(url: str) -> None:
    with Root.open(url, create=False) as root:
        for name in ("containers", "grace_seconds", "id", "wal"):
            with pytest.raises(ValueError, match=f"{name} cannot be changed: it was fixed when the root was created"):
                root.change(**{name: 5})
        with pytest.raises(ValueError, match="max_segments=0 is not a number from 1"):
            root.change(max_segments=0)
    assert run("root", "set", "--yes", root=url, code=2).stderr.count("Give what to change") == 1


def test_a_change_keeps_what_another_process_changed(url: str) -> None:
    with Root.open(url, create=False) as early, Root.open(url, create=False) as other:
        other.change(max_segments=50)
        assert early.change(transient_idle_seconds=60).max_segments == 50
        stored = json.loads(Path(url, ROOT).read_text())
        assert (stored["max_segments"], stored["transient_idle_seconds"]) == (50, 60)


def test_a_root_that_was_replaced_is_not_changed(url: str, tmp_path: Path) -> None:
    with Root.open(url, create=False) as root:
        with Root.open(str(tmp_path / "another")) as another:
            description = Path(another.stores.chunks.root.removeprefix("file://"), ROOT).read_bytes()
        Path(url, ROOT).write_bytes(description)
        with pytest.raises(RootReplaced):
            root.change(max_segments=5)
        assert Path(url, ROOT).read_bytes() == description
