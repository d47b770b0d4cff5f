"""What every public call says of an argument that it cannot use: which parameter, what was given, what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pravega_spark
from pravega_spark import (
    UNBOUNDED,
    EventData,
    EventPointer,
    GroupNotFound,
    InvalidStreamCut,
    KeyValueTableConfiguration,
    Revision,
    SegmentRange,
    Serializer,
    StreamCut,
    StreamManager,
    StreamReaderGroupConfig,
    StreamRetentionPolicy,
    StreamScalingPolicy,
    TransactionNotFound,
    Version,
)
from pravega_spark.parameters import checks

CUT = StreamCut("sc", "one", {0: 0})


class Wrong:
    """What no parameter takes."""

    def __repr__(self) -> str:
        return "a-wrong-value"


GOOD: dict[str, Any] = {
    "root": "/nowhere",
    "scope_name": "sc",
    "scope": "sc",
    "stream": "one",
    "stream_name": "one",
    "table_name": "table",
    "reader_group_name": "rg",
    "reader_name": "reader",
    "name": "a-name",
    "rg_config": StreamReaderGroupConfig(False, "sc", "one"),
    "config": StreamReaderGroupConfig(False, "sc", "one"),
    "target": "/nowhere",
    "backup": "/nowhere",
    "source": "/nowhere",
    "path": "/nowhere/file.svg",
    "policy": None,
    "value_format": None,
    "tags": [],
    "segments_to_seal": [0],
    "new_key_ranges": [(0.0, 1.0)],
    "cut": CUT,
    "cuts": CUT,
    "other": CUT,
    "stream_cut": CUT,
    "subscriber": "query:job",
    "approx_bytes": 10,
    "timestamp": 0,
    "txn_id": 7,
    "event": "text",
    "events": ["text"],
    "offset": 0,
    "position": 0,
    "pointer": "sc/one/0.#epoch.0:0-12",
    "pointers": ["sc/one/0.#epoch.0:0-12"],
    "segment_id": 0,
    "segment_range": SegmentRange("sc", "one", "", 0, 0, 0, 0.0, 1.0),
    "length": 12,
    "text": "UNBOUNDED",
    "data": b"",
    "read_from_tail": False,
    "stream_names": "one",
    "initial_segments": 1,
    "scale_factor": 2,
    "target_rate_kbytes_per_sec": 1,
    "target_events_per_sec": 1,
    "size_in_bytes": 1,
    "time_in_millis": 1,
    "slice": None,
    "byte_array": b"",
    "buffer": bytearray(1),
    "configuration": KeyValueTableConfiguration(1, 4),
    "key": b"abcd",
    "keys": [b"abcd"],
    "value": b"",
    "version": Version(0, 1),
    "modifications": [],
    "limit": None,
    "count": 0,
    "revision": Revision("sc", "state", 0, 0),
    "latest_revision": Revision("sc", "state", 0, 0),
    "start": Revision("sc", "state", 0, 0),
    "end": Revision("sc", "state", 0, 0),
    "expected": None,
    "new_location": None,
    "update_serializer": Serializer(bytes, bytes),
    "init_serializer": Serializer(bytes, bytes),
}
"""A good value for each parameter without a default, by its name."""


class Call(NamedTuple):
    """A public call, and one of its parameters."""

    kind: str
    name: str
    parameter: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.name}({self.parameter})"


CONSTRUCTED = ("StreamManager", "StreamReaderGroupConfig", "StreamCuts", "EventPointer")
CLASSES = (
    *CONSTRUCTED,
    "EventWriter",
    "StreamTransactionWriter",
    "StreamTransaction",
    "StreamReaderGroup",
    "StreamReader",
    "ByteStream",
    "LargeEvent",
    "EventFile",
    "KeyValueTable",
    "RevisionedStreamClient",
    "StateSynchronizer",
    "Revision",
    "StreamCut",
    "StreamScalingPolicy",
    "StreamRetentionPolicy",
    "Event",
    "EventData",
)
FUNCTIONS = (
    "fetch_event",
    "fetch_event_to_file",
    "fetch_events",
    "stream_picture",
)


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods that a class has of its own, and `__init__` of those that users make."""
    for name, found in vars(kind).items():
        plain = getattr(found, "__func__", found)
        made = name == "__init__" and kind.__name__ in CONSTRUCTED
        if inspect.isfunction(plain) and (made or not name.startswith("_")):
            yield name, plain


def parameters_of(function: Callable[..., Any]) -> list[str]:
    left_out = (inspect.Parameter.VAR_KEYWORD,)
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.name not in ("self", "cls") and each.kind not in left_out]


def calls() -> list[Call]:
    found = [
        Call(kind, name, parameter)
        for kind in CLASSES
        for name, function in methods(getattr(pravega_spark, kind))
        for parameter in parameters_of(function)
    ]
    found += [Call("", name, each) for name in FUNCTIONS for each in parameters_of(getattr(pravega_spark, name))]
    return [call for call in found if call not in ANY]


ANY = {Call("EventFile", "write", "data")}
"""Those that take anything: the first is refused as a whole."""


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One of each class whose methods are called."""
    folder: Path = tmp_path_factory.mktemp("root")
    with StreamManager(str(folder)) as manager:
        manager.create_scope("sc")
        for name in ("one", "bytes", "state"):
            manager.create_stream("sc", name)
        with manager.create_writer("sc", "one") as first:
            first.write_event("text")
        manager.create_key_value_table("sc", "table", KeyValueTableConfiguration(1, 4))
        pointer = next(manager.read_events("sc", "one")).pointer
        group = manager.create_reader_group("rg", "sc", "one")
        transactions = manager.create_transaction_writer("sc", "one")
        yield {
            "StreamManager": manager,
            "EventWriter": manager.create_writer("sc", "one"),
            "StreamTransactionWriter": transactions,
            "StreamTransaction": transactions.begin_txn(),
            "StreamReaderGroup": group,
            "StreamReader": group.create_reader("reader"),
            "ByteStream": manager.create_byte_stream("sc", "bytes"),
            "LargeEvent": manager.begin_event("sc", "one"),
            "EventFile": manager.open_event(pointer),
            "KeyValueTable": manager.key_value_table("sc", "table"),
            "RevisionedStreamClient": manager.create_revisioned_stream_client("sc", "state"),
            "StateSynchronizer": manager.create_state_synchronizer(
                "sc", "state", Serializer(bytes, bytes), Serializer(bytes, bytes)
            ),
            "Revision": Revision("sc", "state", 0, 0),
            "StreamCut": CUT,
            "StreamCuts": group.get_streamcut(),
            "Event": next(manager.read_events("sc", "one")),
            "EventPointer": pointer,
            "EventData": EventData(b"text", 0, 0, "sc", "one"),
        }


@pytest.mark.parametrize("call", calls(), ids=str)
def test_a_wrong_argument_is_named(objects: dict[str, Any], call: Call) -> None:
    kind: Any = getattr(pravega_spark, call.kind) if call.kind else pravega_spark
    function = kind if call.name == "__init__" else getattr(objects.get(call.kind, kind), call.name)
    signature = inspect.signature(function)
    given: dict[str, Any] = {
        each.name: GOOD[each.name]
        for each in signature.parameters.values()
        if each.default is each.empty and each.name in GOOD and each.kind is not each.VAR_KEYWORD
    }
    if "manager" in signature.parameters:
        given["manager"] = objects["StreamManager"]
    if call.name == "write_event_bytes":
        given["event"] = b"bytes"
    given[call.parameter] = Wrong()
    positional = [
        given.pop(each.name)
        for each in signature.parameters.values()
        if each.name in given and each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL)
    ]
    if any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values()):
        positional, given = [given.pop("read_from_tail"), given.pop("scope_name"), *positional], given
    with pytest.raises((TypeError, ValueError)) as caught:
        function(*positional, **given)
    told = str(caught.value)
    assert call.parameter in told and "a-wrong-value" in told, told


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[StreamManager]:
    with StreamManager(str(tmp_path)) as manager:
        manager.create_scope("sc")
        manager.create_stream("sc", "one")
        manager.create_stream("sc", "four", 4)
        with manager.create_writer("sc", "one") as writer:
            writer.write_event("text")
        yield manager


@pytest.mark.parametrize("name", ["one", "four"])
def test_events_and_keys_of_other_types_are_told_how_to_be_made(streams: StreamManager, name: str) -> None:
    with streams.create_writer("sc", name) as writer, streams.create_transaction_writer("sc", name).begin_txn() as txn:
        for each in (writer, txn):
            with pytest.raises(TypeError, match=r"event must be a str, not \{\} \(dict\): give json.dumps\(event\)"):
                each.write_event({})  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"event must be a str, not 7 \(int\): give str\(event\)"):
                each.write_event(7)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"routing_key must be a str or None, not 5 \(int\)"):
                each.write_event("e", routing_key=5)  # type: ignore[arg-type]


def test_wrong_arguments_say_what_to_give(streams: StreamManager) -> None:
    transactions = streams.create_transaction_writer("sc", "one")
    with pytest.raises(TypeError, match=r"get_txn: txn_id must be .*, not 7\.5 \(float\): give what get_txn_id"):
        transactions.get_txn(7.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"txn_id must be .* or a UUID, not 'abc'"):
        transactions.get_txn("abc")
    with pytest.raises(ValueError, match="txn_id must be from 0 to"):
        transactions.get_txn(-1)
    with pytest.raises(TransactionNotFound):
        transactions.get_txn(7)
    with pytest.raises(TypeError, match=r"StreamManager: root must be .* not None \(NoneType\): give a folder"):
        StreamManager(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"create_stream: missing a required argument: 'stream_name'"):
        streams.create_stream("sc")  # type: ignore[call-arg]
    for many in ("a", [7]):
        with pytest.raises(TypeError, match="tags must be a Sequence of str"):
            streams.set_tags("sc", "one", many)  # type: ignore[arg-type]


def test_places_are_those_of_the_command_line(streams: StreamManager) -> None:
    info = streams.stream_info("sc", "one")
    for start in ("earliest", "head", "HEAD", info.head, info.head.as_text(), "1h", "5 minutes ago", 0, "unbounded"):
        assert len(list(streams.read_events("sc", "one", start))) == 1, start
        assert not list(streams.read_events("sc", "one", start, "earliest"))
    for start in ("latest", "tail", info.tail.as_text(), "now"):
        assert not list(streams.read_events("sc", "one", start)), start
    assert streams.next_stream_cut("sc", "one", "earliest", "1MiB") == info.tail
    assert streams.lag(info.head.as_text()).events == 1
    assert list(streams.stream_timeline("sc", "one", {"begin": "earliest"}).cuts) == ["begin"]
    group = streams.create_reader_group("rg", "sc", "one", stream_cut="latest")
    assert group.get_streamcut().stream_cut == info.tail
    group.reset("earliest")
    assert group.get_streamcut().stream_cut == info.head
    streams.truncate_stream("sc", "one", "latest")
    assert streams.stream_info("sc", "one").head == info.tail


@pytest.mark.parametrize("wrong", ["beginning", "", 7.5, True, ["head"]])
def test_what_is_no_place_is_told_what_is(streams: StreamManager, wrong: Any) -> None:
    with pytest.raises(InvalidStreamCut, match=r"start is wrong: .* is no place in a stream: give earliest"):
        streams.read_events("sc", "one", wrong)


def test_places_that_do_not_say_of_which_stream(streams: StreamManager) -> None:
    with pytest.raises(InvalidStreamCut, match="lag: cut is wrong: 'earliest' does not say of which stream"):
        streams.lag("earliest")
    with pytest.raises(InvalidStreamCut, match="UNBOUNDED does not say of which stream"):
        streams.lag(UNBOUNDED)
    with pytest.raises(InvalidStreamCut, match="an unbounded cut is no position: give head or tail"):
        streams.truncate_stream("sc", "one", UNBOUNDED)


def test_a_missing_reader_group_is_told_with_those_that_there_are(streams: StreamManager) -> None:
    for name in ("billing", "audit", "search"):
        streams.create_reader_group(name, "sc", "one")
    missing = r"does not exist: sc/biling\. Did you mean 'sc/billing'\? Scope sc has billing, (audit|search), "
    for call in (streams.reader_group_cuts, streams.group_lag, streams.delete_reader_group):
        with pytest.raises(GroupNotFound, match=missing):
            call("biling", "sc")


NAMES = {"scope_name": "scope", "stream_name": "stream", "reader_group_name": "reader group", "scope": "scope"}
LOOKING = ("read_key_value_table", "reader_group_cuts", "group_lag")
"""Those that look for any name, and tell that there is none."""
NAMED = [call for call in calls() if call.parameter in NAMES and call.kind == "StreamManager"]
NAMED = [call for call in NAMED if call.name not in LOOKING]


@pytest.mark.parametrize("call", NAMED, ids=str)
def test_a_name_that_nothing_may_have_is_told_with_the_call(objects: dict[str, Any], call: Call) -> None:
    called = call.kind if call.name == "__init__" else call.name
    function = getattr(pravega_spark, call.kind) if call.name == "__init__" else getattr(objects[call.kind], call.name)
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    given = {each.name: GOOD[each.name] for each in required} | {call.parameter: "a b!"}
    with pytest.raises(ValueError, match=r"name 'a b!' has the characters ' ', '!'") as caught:
        for _ in function(**given) or ():
            pass
    assert str(caught.value).startswith(f"{called}: ") and call.parameter in str(caught.value)


VALUES: list[tuple[str, str, dict[str, Any]]] = [
    ("StreamScalingPolicy", "fixed_scaling_policy", {"initial_segments": 0}),
    ("StreamScalingPolicy", "auto_scaling_policy_by_data_rate", {"target_rate_kbytes_per_sec": -1}),
    ("StreamScalingPolicy", "auto_scaling_policy_by_event_rate", {"scale_factor": 0}),
    ("StreamRetentionPolicy", "by_time", {"time_in_millis": "7"}),
    ("StreamRetentionPolicy", "by_time", {"time_in_millis": -7}),
    ("StreamRetentionPolicy", "by_time", {"maximum": "7"}),
    ("StreamRetentionPolicy", "by_size", {"size_in_bytes": -7}),
    ("StreamRetentionPolicy", "by_size", {"maximum": 0}),
    ("StreamManager", "create_stream", {"initial_segments": 0}),
    ("StreamManager", "next_stream_cut", {"approx_bytes": 0}),
    ("StreamManager", "next_stream_cut", {"approx_bytes": "7 feet"}),
    ("StreamManager", "last_events", {"n": 0}),
    ("StreamManager", "retain", {"period": "soon"}),
    ("StreamManager", "retain", {"period": -7}),
    ("StreamManager", "tail", {"poll_interval": -7}),
    ("StreamManager", "tail", {"poll_interval": "soon"}),
    ("StreamManager", "stream_cut_at", {"timestamp": "soon"}),
    ("StreamManager", "open_event", {"pointer": "nothing"}),
    ("StreamTransactionWriter", "begin_txn", {"lease": 0}),
    ("StreamTransactionWriter", "begin_txn", {"lease": "soon"}),
    ("StreamTransactionWriter", "get_txn", {"txn_id": "nothing"}),
    ("StreamTransactionWriter", "get_txn", {"txn_id": -7}),
    ("StreamTransaction", "ping", {"lease": -7}),
    ("ByteStream", "seek", {"position": -7}),
    ("ByteStream", "truncate", {"offset": -7}),
    ("EventPointer", "from_text", {"text": "nothing"}),
]
"""Values of the right type that a call cannot use."""


@pytest.mark.parametrize(("kind", "name", "wrong"), VALUES, ids=lambda each: str(each))
def test_a_value_that_a_call_cannot_use_is_named(
    objects: dict[str, Any], kind: str, name: str, wrong: dict[str, Any]
) -> None:
    function = getattr(objects.get(kind, getattr(pravega_spark, kind)), name)
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    ((parameter, value),) = wrong.items()
    with pytest.raises((ValueError, TypeError)) as caught:
        for _ in function(**({each.name: GOOD[each.name] for each in required} | wrong)) or ():
            pass
    told = str(caught.value)
    assert told.startswith(f"{name}: ") and parameter in told and str(value) in told, told


def test_a_readers_group_names_its_lease() -> None:
    with pytest.raises(ValueError, match=r"^StreamReaderGroupConfig: lease must be at least 1 seconds, not -7"):
        StreamReaderGroupConfig(False, "sc", "one", lease=-7)


def test_what_a_callable_of_the_user_raises_stays_as_it_is(streams: StreamManager) -> None:
    def stop() -> bool:
        raise ValueError("of the user")

    def progress(*_: object) -> None:
        raise ValueError("of the user")

    with pytest.raises(ValueError, match=r"^of the user$"):
        streams.backup("memory://a-backup-that-fails", progress=progress)
    with pytest.raises(ValueError, match=r"^of the user$"):
        list(streams.tail("sc", "one", stop=stop))


def test_policies_name_the_parameters_of_their_makers() -> None:
    with pytest.raises(ValueError, match=r"^fixed_scaling_policy: initial_segments must be a whole .* not 0$"):
        StreamScalingPolicy.fixed_scaling_policy(0)
    with pytest.raises(ValueError, match=r"^auto_scaling_policy_by_data_rate: target_rate_kbytes_per_sec must .* -1$"):
        StreamScalingPolicy.auto_scaling_policy_by_data_rate(-1, 2, 1)
    with pytest.raises(ValueError, match=r"^by_size: size_in_bytes must be .* not -1$"):
        StreamRetentionPolicy.by_size(-1)
    with pytest.raises(ValueError, match=r"^by_time: maximum, with time_in_millis 10, must be .* not 9$"):
        StreamRetentionPolicy.by_time(10, 9)
    with pytest.raises(ValueError, match="by_time: time_in_millis is wrong: 'soon' is not a duration"):
        StreamRetentionPolicy.by_time("soon")
    with pytest.raises(ValueError, match=r"^by_time: time_in_millis: '5' has no unit\. Durations are written"):
        StreamRetentionPolicy.by_time("5")


def test_a_time_without_a_zone_is_told_so(streams: StreamManager) -> None:
    with pytest.raises(ValueError, match="the time 2026-01-01 00:00:00 has no zone: give it one"):
        streams.read_events("sc", "one", datetime(2026, 1, 1))


def test_a_checking_function_is_the_same_otherwise() -> None:
    def function(count: int, *names: str, place: str | None = None) -> tuple[Any, ...]:
        """Its docstring."""
        return count, names, place

    checking = checks(function)
    assert checking(1, "a", "b", place=None) == (1, ("a", "b"), None)
    assert checking.__doc__ == "Its docstring." and inspect.signature(checking) == inspect.signature(function)
    with pytest.raises(TypeError, match=r"function: names must be a str, not 7 \(int\)"):
        checking(1, "a", 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"function: count must be an int, not True \(bool\)"):
        checking(True)


def test_a_pointer_is_a_value() -> None:
    assert EventPointer("sc", "one", 0, 0, 12).as_text() == GOOD["pointer"]
