"""Scopes, streams and what is told of them; and that the package itself stays light."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import pravega_spark
from chunkstore import StorageRefused
from chunkstore.errors import DeclaredError
from engine.containers.container import Container
from engine.errors import RootNotFound
from engine.ownership import MadeBeforeFork
from pravega_spark import (
    InvalidStreamCut,
    ScopeNotEmpty,
    ScopeNotFound,
    Serializer,
    StreamCut,
    StreamError,
    StreamManager,
    StreamNotFound,
    StreamNotSealed,
    StreamReaderGroupConfig,
    StreamRetentionPolicy,
    StreamScalingPolicy,
    StreamSealed,
    TruncatedData,
)
from pravega_spark.streams.catalog import Catalog


def test_times_durations_and_sizes_as_text(manager: StreamManager) -> None:
    manager.create_stream("sc", "s")
    with manager.create_writer("sc", "s") as writer:
        writer.write_event("event")
    info = manager.stream_info("sc", "s")
    for moment in ("5 minutes ago", "1970-01-01", 0, datetime(2020, 1, 1, tzinfo=timezone.utc)):
        assert manager.stream_cut_at("sc", "s", moment) == info.head
    assert manager.next_stream_cut("sc", "s", info.head, "10MiB") == info.tail
    assert manager.retain("sc", "s", period="1h").recorded is None
    for wrong in ("soon", datetime(2020, 1, 1)):
        with pytest.raises(ValueError, match=r"is not a time|has no zone"):
            manager.stream_cut_at("sc", "s", wrong)
    assert StreamRetentionPolicy.by_time("7d") == StreamRetentionPolicy("time", 7 * 86_400_000)
    assert StreamRetentionPolicy.by_size("10MiB", "1GiB") == StreamRetentionPolicy("size", 10 << 20, 1 << 30)


def test_a_truncation_at_a_time_to_come_is_refused(manager: StreamManager) -> None:
    manager.create_stream("sc", "s")
    with manager.create_writer("sc", "s") as writer:
        writer.write_event("event")
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    for future in (later, "2999-01-01", int(later.timestamp() * 1000)):
        with pytest.raises(InvalidStreamCut, match=r"sc/s.* is in the future, as it is .* now: .*'tail'"):
            manager.truncate_stream("sc", "s", future)
    info = manager.stream_info("sc", "s")
    assert info.events == 1
    manager.truncate_stream("sc", "s", datetime.now(timezone.utc) + timedelta(seconds=20))  # clocks differ
    assert manager.stream_info("sc", "s").events == 0


@pytest.mark.parametrize("make", ["scope", "create"])
def test_who_makes_a_root_beside_one_with_a_like_name_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: str
) -> None:
    caplog.set_level("INFO")
    for name, level in (("streams", "INFO"), ("other", "INFO"), ("streams-2", "INFO"), ("streems", "WARNING")):
        caplog.clear()
        with StreamManager(str(tmp_path / name), create=True if make == "create" else None) as manager:
            manager.create_scope("home")
        (told,) = [each for each in caplog.records if "created a root of streams" in each.getMessage()]
        assert told.levelname == level
        asked = f" Did you mean '{tmp_path}/streams'?" if level == "WARNING" else ""
        assert told.getMessage() == (
            f"created a root of streams in file://{tmp_path}/{name}, where there was none{'.' if asked else ''}{asked}"
        )


def test_scopes(manager: StreamManager) -> None:
    assert manager.list_scope() == ["sc"]
    assert manager.create_scope("a-second") is True
    assert manager.create_scope("a-second") is False
    assert manager.list_scope() == ["a-second", "sc"]
    assert manager.delete_scope("a-second") is True
    assert manager.delete_scope("a-second") is False
    with pytest.raises(ScopeNotEmpty, match="sc"):
        manager.delete_scope("sc")
    with pytest.raises(ValueError, match="scope name"):
        manager.create_scope("../up")


def test_whether_something_exists(manager: StreamManager, url: str) -> None:
    assert manager.check_scope_exists("sc") and not manager.check_scope_exists("none")
    assert manager.check_stream_exists("sc", "one") and not manager.check_stream_exists("sc", "none")
    assert not manager.check_stream_exists("none", "one")
    with StreamManager(url) as other:
        other.delete_scope("sc", force=True)
    assert not manager.check_stream_exists("sc", "one") and not manager.check_scope_exists("sc")
    with pytest.raises(ValueError, match="stream name"):
        manager.check_stream_exists("sc", "a/b")


def test_streams_by_tag(manager: StreamManager) -> None:
    manager.set_tags("sc", "one", ["t1", "t1"])
    assert manager.get_stream_tags("sc", "one") == ["t1"]
    manager.create_stream_with_policy("sc", "b", tags=["t2", "t1"])
    assert manager.list_stream("sc", "t1") == manager.list_stream("sc", tag="t1") == ["b", "one"]
    assert manager.list_stream("sc", "t2") == ["b"] and manager.list_stream("sc", "t3") == []
    assert [info.stream for info in manager.stream_infos("sc", tag="t2")] == ["b"]
    with pytest.raises(ScopeNotFound):
        manager.list_stream("none", "t1")


def test_the_distance_of_two_cuts(manager: StreamManager) -> None:
    with manager.create_writer("sc", "one") as writer:
        writer.write_events(["a", "b", "c"])
    first, tail = StreamCut("sc", "one", {0: 9}), manager.stream_info("sc", "one").tail
    manager.scale_stream("sc", "one", [0], [(0.0, 0.5), (0.5, 1.0)])
    with manager.create_writer("sc", "one") as writer:
        writer.write_events(["d", "e", "f"], ["a", "b", "c"])
    assert manager.distance("sc", "one") == 54 and manager.distance("sc", "one", first, tail) == 18
    assert manager.distance("sc", "one", first) == 45 and manager.distance("sc", "one", end=first) == 9
    assert manager.distance("sc", "one", first, first) == 0 == manager.distance("sc", "one", "tail", "tail")
    with pytest.raises(InvalidStreamCut):
        manager.distance("sc", "one", tail, first)
    manager.truncate_stream("sc", "one", tail)
    with pytest.raises(TruncatedData):
        manager.distance("sc", "one", first)
    assert manager.distance("sc", "one") == 27


def test_completed_transactions_are_listed(manager: StreamManager) -> None:
    writer = manager.create_transaction_writer("sc", "one")
    committed, aborted = writer.begin_txn(), writer.begin_txn()
    writer.begin_txn().write_event("open")
    committed.write_event("a")
    assert manager.list_completed_transactions("sc", "one") == []
    committed.commit()
    aborted.abort()
    found = manager.list_completed_transactions("sc", "one")
    assert {each.txn_id: each.status for each in found} == {
        committed.get_txn_id(): "committed",
        aborted.get_txn_id(): "aborted",
    }
    assert found[0].ended >= found[1].ended > 1_600_000_000_000
    with pytest.raises(StreamNotFound):
        manager.list_completed_transactions("sc", "none")


@pytest.mark.parametrize(
    "ask",
    [
        StreamManager.list_stream,
        StreamManager.list_key_value_table,
        StreamManager.list_reader_group,
        StreamManager.stream_infos,
    ],
)
def test_what_a_scope_has_is_asked_of_one_that_exists(
    manager: StreamManager, ask: Callable[[StreamManager, str], Iterable[object]]
) -> None:
    manager.create_scope("empty")
    assert list(ask(manager, "empty")) == []
    with pytest.raises(ScopeNotFound, match=re.escape("Scope does not exist: emty. Did you mean 'empty'?")):
        ask(manager, "emty")


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("sc/fur", "Stream does not exist: sc/fur. Did you mean 'sc/four'?"),
        (
            "scc/four",
            "Scope does not exist: scc, so there is no stream scc/four. Did you mean 'sc'? Create it first with",
        ),
        (
            "scc/new",
            "Scope does not exist: scc, so there is no stream scc/new. Did you mean 'sc'? Create it first with",
        ),
        (
            "other/new",
            "Scope does not exist: other, so there is no stream other/new. Create it first with create_scope.",
        ),
    ],
)
def test_what_is_missing_of_a_streams_name_is_told(manager: StreamManager, missing: str, told: str) -> None:
    scope, stream = missing.split("/")
    for call in (manager.stream_info, manager.create_writer, manager.seal_stream, manager.get_stream_tags):
        with pytest.raises(StreamNotFound, match=re.escape(told)):
            call(scope, stream)


STREAM_CALLS: dict[str, Callable[[StreamManager, str], object]] = {
    "reading": lambda manager, scope: manager.read_events(scope, "one"),
    "columns": lambda manager, scope: manager.to_arrow(scope, "one"),
    "the last": lambda manager, scope: manager.last_events(scope, "one"),
    "following": lambda manager, scope: next(manager.tail(scope, "one")),
    "a byte stream": lambda manager, scope: manager.create_byte_stream(scope, "one"),
    "revisions": lambda manager, scope: manager.create_revisioned_stream_client(scope, "one"),
    "a state": lambda manager, scope: manager.create_state_synchronizer(
        scope, "one", Serializer(bytes, bytes), Serializer(bytes, bytes)
    ),
    "a transaction": lambda manager, scope: manager.create_transaction_writer(scope, "one").begin_txn(),
    "a large event": lambda manager, scope: manager.begin_event(scope, "one"),
    "an event": lambda manager, scope: manager.open_event(f"{scope}/one/0.#epoch.0:0-10"),
    "policies": lambda manager, scope: manager.set_tags(scope, "one", ["a"]),
    "scaling": lambda manager, scope: manager.scale_stream(scope, "one", [0], [(0, 1)]),
    "truncation": lambda manager, scope: manager.truncate_stream(scope, "one", "tail"),
    "retention": lambda manager, scope: manager.retain(scope, "one"),
    "a cut": lambda manager, scope: manager.stream_cut_at(scope, "one", "5m"),
    "a time window": lambda manager, scope: manager.time_window(scope, "one", "tail"),
    "a timeline": lambda manager, scope: manager.stream_timeline(scope, "one"),
    "a subscriber": lambda manager, scope: manager.remove_subscriber(scope, "one", "a"),
    "the streams of a group": lambda manager, scope: manager.create_reader_group_with_config(
        "g", "sc", StreamReaderGroupConfig(False, scope, "one")
    ),
    "a group": lambda manager, scope: manager.reader_group_cuts("one", scope),
    "its lag": lambda manager, scope: manager.group_lag("one", scope),
    "its end": lambda manager, scope: manager.delete_reader_group("one", scope),
    "a key-value table": lambda manager, scope: next(manager.read_key_value_table(scope, "one")),
    "updates of a table": lambda manager, scope: manager.key_value_table(scope, "one"),
    "a table's description": lambda manager, scope: manager.key_value_table_info(scope, "one"),
}


@pytest.mark.parametrize("call", STREAM_CALLS.values(), ids=list(STREAM_CALLS))
def test_whatever_is_asked_of_a_missing_scope_names_it_and_those_like_it(
    manager: StreamManager, call: Callable[[StreamManager, str], object]
) -> None:
    with pytest.raises(
        StreamError, match=r"^Scope does not exist: scc, so there is no [\w -]+ scc/one\. Did you mean 'sc'\?"
    ):
        call(manager, "scc")


def test_streams(manager: StreamManager) -> None:
    assert manager.list_stream("sc") == ["four", "one"]
    assert manager.create_stream("sc", "four", 7) is False
    assert len(manager.stream_info("sc", "four").segments) == 4
    with pytest.raises(ScopeNotFound, match="none"):
        manager.create_stream("none", "x", 1)
    with pytest.raises(ValueError, match=r"^create_stream: initial_segments must be .* from 1 to 2147483647, not 0$"):
        manager.create_stream("sc", "x", 0)
    with pytest.raises(StreamNotFound, match="sc/x"):
        manager.stream_info("sc", "x")


def test_policies_and_tags_are_kept(url: str) -> None:
    scaling = StreamScalingPolicy.auto_scaling_policy_by_data_rate(10, 2, 3)
    retention = StreamRetentionPolicy.by_time(1000)
    with StreamManager(url) as manager:
        manager.create_scope("sc")
        assert manager.create_stream_with_policy("sc", "a", scaling, retention, ["t1", "t2"])
        assert manager.create_stream_with_policy(
            scope_name="sc", stream_name="b", retention_policy=StreamRetentionPolicy.none()
        )
    with StreamManager(url) as manager:
        assert manager.get_stream_tags("sc", "a") == ["t1", "t2"]
        assert manager.get_stream_tags("sc", "b") == []
        record = Catalog(manager.root).stream("sc", "a").snapshot().record
        assert (record.scaling, record.retention) == (scaling, retention)
        assert len(manager.stream_info("sc", "a").segments) == 3
        assert len(manager.stream_info("sc", "b").segments) == 1


def test_seal_and_delete(manager: StreamManager) -> None:
    with pytest.raises(StreamNotSealed):
        manager.delete_stream("sc", "one")
    assert manager.seal_stream("sc", "one") is True
    assert manager.seal_stream("sc", "one") is True
    assert manager.stream_info("sc", "one").sealed
    assert manager.delete_stream("sc", "one") is True
    assert manager.list_stream("sc") == ["four"]
    for call in (manager.seal_stream, manager.delete_stream, manager.get_stream_tags, manager.create_writer):
        with pytest.raises(StreamNotFound, match="sc/one"):
            call("sc", "one")
    manager.create_stream("sc", "one", 1)
    assert [segment.id for segment in manager.stream_info("sc", "one").segments] == [1]


def test_stream_info_before_and_after_truncation(manager: StreamManager) -> None:
    empty = manager.stream_info("sc", "four")
    assert (empty.size, empty.events, empty.sealed, len(empty.epochs)) == (0, 0, False, 1)
    assert empty.head == empty.tail == StreamCut("sc", "four", dict.fromkeys(range(4), 0))
    with manager.create_writer("sc", "four") as writer:
        for number in range(40):
            writer.write_event("x" * number, str(number))
    middle = manager.stream_info("sc", "four").tail
    with manager.create_writer("sc", "four") as writer:
        writer.write_events(["y"] * 10)
    full = manager.stream_info("sc", "four")
    assert (full.size, full.events) == (sum(range(40)) + 40 * 8 + 10 * 9, 50)
    manager.truncate_stream("sc", "four", middle)
    rest = manager.stream_info("sc", "four")
    assert (rest.size, rest.events, rest.head, rest.tail) == (90, 10, middle, full.tail)
    assert [event.data for event in manager.read_events("sc", "four")] == [b"y"] * 10
    with pytest.raises(InvalidStreamCut, match="behind previous truncation point"):
        manager.truncate_stream("sc", "four", full.head)
    with pytest.raises(TruncatedData, match="sc/four"):
        manager.next_stream_cut("sc", "four", full.head, 1)
    manager.seal_stream("sc", "four")
    with pytest.raises(StreamSealed):
        manager.truncate_stream("sc", "four", full.tail)


def test_cuts_by_size_and_time(manager: StreamManager) -> None:
    for _ in range(3):
        with manager.create_writer("sc", "one") as writer:
            writer.write_events(["x" * 92] * 5)
    info = manager.stream_info("sc", "one")
    assert manager.next_stream_cut("sc", "one", info.head, 1).positions == {0: 500}
    assert manager.next_stream_cut("sc", "one", info.head, 501).positions == {0: 1000}
    assert manager.next_stream_cut("sc", "one", info.head, 10**9) == info.tail
    with pytest.raises(ValueError, match="approx_bytes"):
        manager.next_stream_cut("sc", "one", info.head, 0)
    assert manager.stream_cut_at("sc", "one", 0) == info.head
    assert manager.stream_cut_at("sc", "one", 1 << 60) == info.tail


def test_a_truncation_meanwhile_only_means_another_look(
    manager: StreamManager, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just when the index is read, another process truncates the stream and what was to be read is gone."""
    with manager.create_writer("sc", "one") as writer:
        writer.write_events(["x" * 92] * 10)
    cut = StreamCut("sc", "one", {0: 500})
    manager.truncate_stream("sc", "one", cut)
    read = Container.read

    def read_later(container: Container, *place: Any) -> bytes:
        monkeypatch.setattr(Container, "read", read)
        with StreamManager(url) as other:
            other.truncate_stream("sc", "one", other.stream_info("sc", "one").tail)
        container.refresh()
        return read(container, *place)

    monkeypatch.setattr(Container, "read", read_later)
    assert manager.stream_info("sc", "one").events == 0
    assert Container.read is read
    monkeypatch.setattr(Container, "read", read_later)
    with pytest.raises(TruncatedData):
        manager.next_stream_cut("sc", "one", cut, 100)


def test_cuts_of_other_streams_are_refused(manager: StreamManager) -> None:
    cut = manager.stream_info("sc", "four").tail
    for call in (manager.truncate_stream, manager.read_events, manager.tail):
        with pytest.raises(InvalidStreamCut, match="another stream"):
            call("sc", "one", cut)


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    with StreamManager(tmp_path, wal=str(tmp_path / "log")) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "st", 2)
        with manager.create_writer("sc", "st") as writer:
            writer.write_event("kept", "k")
        info = manager.stream_info("sc", "st")
    with StreamManager(str(tmp_path)) as manager:
        assert manager.stream_info("sc", "st") == info
        assert [event.data for event in manager.read_events("sc", "st")] == [b"kept"]


def test_a_controller_is_refused() -> None:
    with pytest.raises(StorageRefused, match="no broker"):
        StreamManager("tcp://localhost:9090")


def test_every_exported_name_is_there() -> None:
    for name in pravega_spark.__all__:
        assert getattr(pravega_spark, name) is not None
        assert name in dir(pravega_spark)
    with pytest.raises(AttributeError, match="no_such_name"):
        pravega_spark.no_such_name  # noqa: B018


@pytest.mark.processes
def test_importing_the_package_loads_nothing_else() -> None:
    code = "import json, sys, pravega_spark; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"numpy", "pyarrow", "pyspark", "msgpack", "fsspec", "engine", "chunkstore"}


# --- the root -----------------------------------------------------------------------------------------------------


def test_a_root_is_made_by_the_first_scope_only(tmp_path: Path) -> None:
    """A program of the original makes a manager, then a scope; whoever looks at a wrong place makes nothing."""
    url = str(tmp_path / "new")
    with StreamManager(url) as manager, StreamManager(url) as other:
        assert url in repr(manager) and url in manager.to_str()
        for call in (manager.list_scope, lambda: manager.create_stream("s", "t"), lambda: manager.delete_scope("s")):
            with pytest.raises(RootNotFound, match="create_scope"):
                call()
        with pytest.raises(ValueError, match="The scope name"):
            manager.create_scope("_system")
        assert not Path(url).exists()
        assert manager.create_scope("s") and not other.create_scope("s")
        assert manager.create_stream("s", "t") and other.list_stream("s") == ["t"]
        assert repr(manager) == f"StreamManager(Root('file://{url}'))"


def test_a_root_is_made_beside_other_things_by_who_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    url = str(tmp_path)
    with StreamManager(url) as manager, pytest.raises(StorageRefused, match="is not empty"):
        manager.create_scope("s")
    with pytest.raises(RootNotFound):
        StreamManager(url, create=False)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    with StreamManager(url, create=True) as manager:
        assert manager.list_scope() == []
        with StreamManager(url, create=False) as other:
            assert other.create_scope("s") and manager.list_scope() == ["s"]
    (tmp_path / "_system/pravega.json").unlink()
    for create in (None, False, True):
        with pytest.raises(StorageRefused, match="restore the object from"):
            StreamManager(url, create=create)


# --- backups ------------------------------------------------------------------------------------------------------


def test_a_backup_is_restored_to_a_new_root(tmp_path: Path) -> None:
    url, copy, new = tmp_path / "root", tmp_path / "copy", tmp_path / "new"
    shown: list[str] = []
    with StreamManager(url) as manager:
        manager.create_scope("s")
        manager.create_stream("s", "t")
        with manager.create_writer("s", "t") as writer:
            writer.write_event("kept")
        first = manager.backup(copy, progress=lambda what, done, total: shown.append(what))
        assert manager.backup(copy).containers[0].number == 0
        with pytest.raises(StorageRefused, match="neither empty nor a backup"):
            manager.backup(url)
    assert first.place.endswith(str(copy)) and sum(each.copied for each in first.containers) > 0 and shown
    assert StreamManager.restore(copy, new).place.endswith(str(new))
    with StreamManager(new) as manager:
        assert [event.data for event in manager.read_events("s", "t")] == [b"kept"]
    with pytest.raises(StorageRefused, match="is a root already"):
        StreamManager.restore(copy, new)
    with pytest.raises(StorageRefused, match="is not a backup"):
        StreamManager.restore(url, tmp_path / "other")


def test_what_public_methods_return_can_be_imported() -> None:
    """Classes of ours that stand in annotations of what public methods return; the engine's own stay where they are."""
    known = set(pravega_spark.__all__) | {"RetentionPolicy", "ScalingPolicy"}  # their public names begin with Stream
    known |= {"LoopFutures"}  # for the asynchronous writer alone
    for name in (
        "StreamManager",
        "StreamReaderGroup",
        "StreamReader",
        "SegmentSlice",
        "EventData",
        "Event",
        "EventWriter",
    ):
        kind = getattr(pravega_spark, name)
        own = [found for key, found in vars(kind).items() if not key.startswith("_")]
        for found in own:
            function = getattr(found, "fget", None) or getattr(found, "__func__", found)
            told = str(getattr(function, "__annotations__", {}).get("return", ""))
            ours = set(re.findall(r"(?<![.\w])[A-Z]\w+", told)) - {"Iterator", "Future", "None", "EventPointer", "Any"}
            assert ours <= known, f"{name}: {told}"


def test_errors_that_public_docstrings_name_can_be_imported() -> None:
    """Whoever reads which errors a call raises can catch them without knowing which package they come from."""
    errors = {kind.__name__: kind for kind in [*every_error(DeclaredError), MadeBeforeFork]}
    for name in pravega_spark.__all__:
        found = getattr(pravega_spark, name)
        ours = str(getattr(found, "__module__", "")).startswith(("pravega_spark", "engine.ownership"))
        members = list(vars(found).values()) if isinstance(found, type) and ours else []
        for each in [found, *members] if ours else []:
            named = set(re.findall(r"\b[A-Z]\w+", str(getattr(each, "__doc__", "")))) & errors.keys()
            for error in named:
                assert getattr(pravega_spark, error, None) is errors[error], f"{name}: {error}"


def every_error(kind: type[Exception]) -> Iterator[type[Exception]]:
    for each in kind.__subclasses__():
        yield each
        yield from every_error(each)


def test_what_operators_are_told_to_call_can_be_imported() -> None:
    for name in ("Root", "Settings", "Slice", "SegmentSlice", "EventData", "Lag", "Timeline", "Retained"):
        assert getattr(pravega_spark, name).__doc__
    assert pravega_spark.Slice is pravega_spark.SegmentSlice


def test_a_retention_of_a_few_milliseconds_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A number is milliseconds, as in the original's client, and was probably meant in days."""
    for plain in (1000, "7ms", "7d", 0):
        StreamRetentionPolicy.by_time(plain)
    assert "by_time" not in caplog.text
    StreamRetentionPolicy.by_time(7)
    assert "by_time(7) keeps events for 7 milliseconds at least" in caplog.text
