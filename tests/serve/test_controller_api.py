"""The REST API of Pravega's controller: paths, JSON and status codes, as its documentation and its tests have them
(restapis.md; StreamMetaDataTests, ControllerRestApiTest)."""

from __future__ import annotations

import base64
import time
from typing import Any
from urllib.parse import urlencode

import pytest

from pravega_spark.serve.operations import OPERATIONS
from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
from tests.support.served import Served

FIXED = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 2}


def test_scopes(server: Served) -> None:
    created = server.change("POST", "/v1/scopes", {"scopeName": "new"})
    assert (created.status, created.json) == (201, {"scopeName": "new"})
    assert created.headers["content-type"] == "application/json"
    assert server.change("POST", "/v1/scopes", {"scopeName": "new"}).status == 409
    assert server.get("/v1/scopes").json == {"scopes": [{"scopeName": "new"}, {"scopeName": "sc"}]}
    assert server.get("/v1/scopes/new").json == {"scopeName": "new"}
    assert server.get("/v1/scopes/none").status == 404
    assert server.change("DELETE", "/v1/scopes/sc").status == 412
    deleted = server.change("DELETE", "/v1/scopes/new")
    assert (deleted.status, deleted.body) == (204, b"")
    assert server.change("DELETE", "/v1/scopes/new").status == 404


@pytest.mark.parametrize("name", ["", "a/b", "_system", "..", "a b", "x" * 256, None, 7])
def test_a_scope_with_a_bad_name_is_not_created(server: Served, name: Any) -> None:
    assert server.change("POST", "/v1/scopes", {"scopeName": name}).status == 400
    assert server.get("/v1/scopes").json == {"scopes": [{"scopeName": "sc"}]}


def test_a_stream_lives_as_in_the_original_test(server: Served) -> None:
    request = {
        "streamName": "two",
        "scalingPolicy": {**FIXED, "targetRate": 2, "scaleFactor": 2},
        "retentionPolicy": {"type": "LIMITED_DAYS", "value": 123},
        "streamTags": ["testTag"],
        "timestampAggregationTimeout": 1000,
        "rolloverSizeBytes": 1024,
    }
    created = server.change("POST", "/v1/scopes/sc/streams", request)
    found = created.json
    assert created.status == 201 and (found["scopeName"], found["streamName"]) == ("sc", "two")
    assert found["scalingPolicy"] == FIXED and found["tags"] == ["testTag"]
    assert found["retentionPolicy"] == {
        "type": "LIMITED_DAYS",
        "value": 123,
        "timeBasedRetention": {"days": 123, "hours": 0, "minutes": 0},
    }
    assert "timestampAggregationTimeout, rolloverSizeBytes" in created.headers["warning"]
    assert server.change("POST", "/v1/scopes/sc/streams", request).status == 409
    assert server.change("POST", "/v1/scopes/none/streams", request).status == 404

    assert [each["streamName"] for each in server.get("/v1/scopes/sc/streams").json["streams"]] == ["one", "two"]
    tagged = server.get("/v1/scopes/sc/streams?filter_type=tag&filter_value=testTag").json["streams"]
    assert [each["streamName"] for each in tagged] == ["two"]
    for query in ("filter_type=tag&filter_value=randomTag", "filter_type=showInternalStreams"):
        assert server.get(f"/v1/scopes/sc/streams?{query}").json == {"streams": []}
    assert server.get("/v1/scopes/none/streams").status == 404

    update = {"scalingPolicy": {**FIXED, "minSegments": 4}, "retentionPolicy": {"type": "LIMITED_SIZE_MB", "value": 3}}
    updated = server.change("PUT", "/v1/scopes/sc/streams/two", update)
    assert updated.status == 200 and updated.json["scalingPolicy"]["minSegments"] == 4
    assert server.get("/v1/scopes/sc/streams/two").json == updated.json
    assert updated.json["retentionPolicy"] == {"type": "LIMITED_SIZE_MB", "value": 3} and updated.json["tags"] == []
    assert server.change("PUT", "/v1/scopes/sc/streams/none", update).status == 404

    assert server.change("DELETE", "/v1/scopes/sc/streams/two").status == 412
    sealed = server.change("PUT", "/v1/scopes/sc/streams/two/state", {"streamState": "SEALED"})
    assert (sealed.status, sealed.json) == (200, {"streamState": "SEALED"})
    assert server.change("PUT", "/v1/scopes/sc/streams/two/state", {"streamState": "ACTIVE"}).status == 400
    assert server.change("PUT", "/v1/scopes/sc/streams/none/state", {"streamState": "SEALED"}).status == 404
    assert server.change("PUT", "/v1/scopes/sc/streams/two", update).status == 409
    assert server.change("DELETE", "/v1/scopes/sc/streams/two").status == 204
    assert server.get("/v1/scopes/sc/streams/two").status == 404


@pytest.mark.parametrize(
    ("config", "policy"),
    [
        (FIXED, ScalingPolicy.fixed_scaling_policy(2)),
        (
            {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 100, "scaleFactor": 2, "minSegments": 2},
            ScalingPolicy.auto_scaling_policy_by_event_rate(100, 2, 2),
        ),
        (
            {"type": "BY_RATE_IN_KBYTES_PER_SEC", "targetRate": 7, "scaleFactor": 3, "minSegments": 1},
            ScalingPolicy.auto_scaling_policy_by_data_rate(7, 3, 1),
        ),
    ],
)
def test_scaling_policies(server: Served, config: dict[str, Any], policy: ScalingPolicy) -> None:
    request = {"streamName": "x", "scalingPolicy": config}
    assert server.change("POST", "/v1/scopes/sc/streams", request).json["scalingPolicy"] == config
    server.manager.create_stream_with_policy("sc", "y", policy)
    assert server.get("/v1/scopes/sc/streams/y").json["scalingPolicy"] == config


@pytest.mark.parametrize(
    ("config", "policy", "shown"),
    [
        ({"type": "LIMITED_SIZE_MB", "value": 5, "maxValue": 9}, RetentionPolicy.by_size("5MiB", "9MiB"), {}),
        (
            {
                "type": "LIMITED_DAYS",
                "value": 0,
                "timeBasedRetention": {"days": 1, "hours": 2, "minutes": 3},
                "maxTimeBasedRetention": {"days": 3},
            },
            RetentionPolicy.by_time("1d2h3m", "3d"),
            {"maxValue": 3, "maxTimeBasedRetention": {"days": 3, "hours": 0, "minutes": 0}},
        ),
        ({"type": "LIMITED_DAYS", "timeBasedRetention": {"hours": 48}}, RetentionPolicy.by_time("2d"), None),
    ],
)
def test_retention_policies(
    server: Served, config: dict[str, Any], policy: RetentionPolicy, shown: dict[str, Any] | None
) -> None:
    request = {"streamName": "x", "scalingPolicy": FIXED, "retentionPolicy": config}
    found = server.change("POST", "/v1/scopes/sc/streams", request).json["retentionPolicy"]
    server.manager.create_stream_with_policy("sc", "y", retention_policy=policy)
    assert server.get("/v1/scopes/sc/streams/y").json["retentionPolicy"] == found
    if shown is not None:
        assert found == {**config, **shown}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"scalingPolicy": {"type": "SOME"}}, "body.scalingPolicy.type must be one of"),
        ({"scalingPolicy": {**FIXED, "minSegments": 0}}, "a whole number from 1"),
        ({"scalingPolicy": {**FIXED, "minSegments": "2"}}, "body.scalingPolicy.minSegments must be a whole number"),
        ({"scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC", "minSegments": 2}}, "target_rate"),
        ({"retentionPolicy": {"type": "LIMITED_DAYS"}}, "neither value nor timeBasedRetention"),
        ({"retentionPolicy": {"type": "LIMITED_SIZE_MB", "value": 9, "maxValue": 1}}, "maximum"),
        ({"retentionPolicy": {"type": "LIMITED_DAYS", "value": 2**62}}, "minimum"),
        ({"streamTags": ["x" * 257]}, "body.streamTags[0] has 257 characters"),
        ({"streamTags": ["\ud800"]}, "half a character"),
        ({"shards": 3}, "body has a member 'shards'"),
        ({"streamName": "a/b"}, "body.streamName"),
    ],
)
def test_what_a_stream_cannot_have_is_refused(server: Served, change: dict[str, Any], problem: str) -> None:
    refused = server.change("POST", "/v1/scopes/sc/streams", {"streamName": "x", "scalingPolicy": FIXED, **change})
    assert refused.status == 400 and problem in refused.json["message"], refused.text
    assert server.manager.list_stream("sc") == ["one"]


def test_the_examples_of_the_documentation_leave_members_empty(server: Served) -> None:
    request = {
        "streamName": "string",
        "scalingPolicy": FIXED,
        "streamTags": {},
        "timestampAggregationTimeout": {},
        "rolloverSizeBytes": {},
    }
    created = server.change("POST", "/v1/scopes/sc/streams", request)
    assert created.status == 201 and created.json["tags"] == [] and "warning" not in created.headers


def test_scaling_events(server: Served) -> None:
    begun = server.manager.stream_info("sc", "one").epochs[0].created
    server.manager.scale_stream("sc", "one", [0], [(0.0, 0.25), (0.25, 0.5)])
    server.manager.scale_stream("sc", "one", ["2.1", "3.1"], [(0.0, 0.5)])
    now = int(time.time() * 1000) + 60_000
    path = "/v1/scopes/sc/streams/one/scaling-events"
    first, split, merged = server.get(f"{path}?from=0&to={now}").json["scalingEvents"]
    assert (first["timestamp"], first["splits"], first["merges"]) == (begun, 0, 0)
    assert first["segmentList"] == [
        {"number": 0, "startTime": begun, "keyStart": 0.0, "keyEnd": 0.5},
        {"number": 1, "startTime": begun, "keyStart": 0.5, "keyEnd": 1.0},
    ]
    assert (split["splits"], split["merges"]) == (1, 0) and (merged["splits"], merged["merges"]) == (0, 1)
    assert [each["number"] for each in split["segmentList"]] == [2, 3, 1]
    assert split["segmentList"][2]["startTime"] == begun
    (last,) = server.get(f"{path}?from={now}&to={now}").json["scalingEvents"]
    assert last == {**merged, "splits": 0, "merges": 0}, "the one that there was at the beginning of the period"
    assert server.get(f"{path}?from=0&to=0").json == {"scalingEvents": []}
    assert server.get(path.replace("one", "none") + "?from=0&to=0").status == 404


@pytest.mark.parametrize("query", ["", "?from=0", "?to=0", "?from=2&to=1", "?from=-1&to=1", "?from=x&to=1"])
def test_a_period_of_scaling_events_is_checked(server: Served, query: str) -> None:
    assert server.get(f"/v1/scopes/sc/streams/one/scaling-events{query}").status == 400


def test_reader_groups(server: Served) -> None:
    manager = server.manager
    assert server.get("/v1/scopes/sc/readergroups").json == {"readerGroups": [{"readerGroupName": "rg"}]}
    assert server.get("/v1/scopes/none/readergroups").status == 404
    group = {"scopeName": "sc", "readerGroupName": "rg", "streamList": ["sc/one"]}
    assert server.get("/v1/scopes/sc/readergroups/rg").json == {**group, "onlineReaderIds": []}
    opened = manager.create_reader_group("rg", "sc", "one")
    readers = [opened.create_reader(name) for name in ("reader2", "reader1")]
    found = server.get("/v1/scopes/sc/readergroups/rg").json
    assert found == {**group, "onlineReaderIds": ["reader1", "reader2"]}
    for reader in readers:
        reader.reader_offline()
    assert server.get("/v1/scopes/sc/readergroups/unknownreadergroup").status == 404
    assert server.get("/v1/scopes/unknownscope/readergroups/rg").status == 404
    assert server.change("DELETE", "/v1/scopes/sc/readergroups/rg").status == 204
    assert server.change("DELETE", "/v1/scopes/sc/readergroups/rg").status == 404
    assert server.get("/v1/scopes/sc/readergroups").json == {"readerGroups": []}


def test_health(server: Served) -> None:
    assert server.get("/ping").status == 200
    found = server.get("/v1/health").json
    assert (found["status"], found["readiness"], found["liveness"]) == ("UP", True, True)
    child = found["children"]["container-0"]
    assert child["status"] == "UP" and server.get("/v1/health/container-0").json == child
    assert server.get("/v1/health/status").json == "UP"
    assert server.get("/v1/health/status/container-0").json == "UP"
    for what in ("readiness", "liveness"):
        assert server.get(f"/v1/health/{what}").json is True
        assert server.get(f"/v1/health/{what}/container-0").json is True
        assert server.get(f"/v1/health/{what}/none").status == 404
    assert server.get("/v1/health/details/container-0").json == child["details"]
    assert server.get("/v1/health/details").json["streams"] == "1"
    for path in ("", "/status", "/details"):
        assert server.get(f"/v1/health{path}/none").status == 404
    assert server.get("/health").status == 200


TABLES = "/v1/scopes/sc/keyvaluetables"


def test_key_value_tables(server: Served) -> None:
    assert server.get(TABLES).json == {"keyValueTables": [{"keyValueTableName": "prices"}]}
    assert server.get("/v1/scopes/none/keyvaluetables").status == 404
    wanted = {"keyValueTableName": "kvt", "partitionCount": 2, "primaryKeyLength": 2, "secondaryKeyLength": 1}
    made = server.change("POST", TABLES, wanted)
    assert made.status == 201 and made.json.items() >= wanted.items() and made.json["entries"] == 0
    assert server.change("POST", TABLES, wanted).status == 409
    assert server.change("POST", "/v1/scopes/none/keyvaluetables", wanted).status == 404
    assert server.change("POST", TABLES, {**wanted, "keyValueTableName": "b", "primaryKeyLength": 9**9}).status == 400
    assert server.get(TABLES).json == {
        "keyValueTables": [{"keyValueTableName": "kvt"}, {"keyValueTableName": "prices"}]
    }
    assert server.get(f"{TABLES}/kvt").json == made.json
    assert server.change("DELETE", f"{TABLES}/kvt").status == 204
    for method, path in (("DELETE", ""), ("GET", ""), ("GET", "/entries")):
        assert server.change(method, f"{TABLES}/kvt{path}").status == 404


def test_entries_of_a_key_value_table(server: Served) -> None:
    table = f"{TABLES}/kvt"
    wanted = {"keyValueTableName": "kvt", "primaryKeyLength": 2, "secondaryKeyLength": 1}
    assert server.change("POST", TABLES, wanted).status == 201

    def put(primary: bytes, secondary: bytes, value: bytes, **more: str) -> Any:
        entry = {"primaryKey": encoded(primary), "secondaryKey": encoded(secondary), "value": encoded(value), **more}
        return server.change("PUT", f"{table}/entries", entry)

    first = put(b"aa", b"1", b"one", version="").json["version"]
    assert put(b"aa", b"1", b"two", version="").status == 412
    second = put(b"aa", b"1", b"two", version=first).json["version"]
    assert put(b"aa", b"1", b"three", version=first).status == 412 and second != first
    assert put(b"aa", b"2", b"").status == put(b"bb", b"1", b"\xff").status == 200
    assert put(b"a", b"1", b"too short").status == put(b"aa", b"1", b"x", version="nonsense").status == 400
    assert server.change("PUT", f"{table}/entries", {"primaryKey": "no base64", "value": ""}).status == 400

    def keys(**query: str) -> list[Any]:
        found = server.get(f"{table}/entries?{urlencode(query)}").json["entries"]
        return [(decoded(each["primaryKey"]), decoded(each["secondaryKey"]), decoded(each["value"])) for each in found]

    everything = [(b"aa", b"1", b"two"), (b"aa", b"2", b""), (b"bb", b"1", b"\xff")]
    assert sorted(keys()) == everything and len(keys(limit="2")) == 2
    assert keys(primaryKey=encoded(b"aa")) == everything[:2]
    assert keys(afterPrimaryKey=encoded(b"aa"), afterSecondaryKey=encoded(b"1")) == everything[1:]
    assert server.get(f"{table}/entries?primaryKey=%21").status == 400
    there = f"{table}/entries?{urlencode({'primaryKey': encoded(b'aa'), 'secondaryKey': encoded(b'1')})}"
    assert server.change("DELETE", f"{there}&version={first}").status == 412
    assert server.change("DELETE", f"{there}&version={second}").status == 204
    assert server.change("DELETE", there).status == 204 and sorted(keys()) == everything[1:]
    assert server.get(table).json["entries"] == 2


def encoded(data: bytes) -> str:
    """In base64."""
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes:
    """From base64."""
    return base64.b64decode(text)


def test_every_operation_of_pravega_is_there() -> None:
    """Those of Controller.yaml, and ping."""
    wanted = {
        "listScopes createScope getScope deleteScope listStreams createStream getStream updateStream deleteStream",
        "updateStreamState getScalingEvents listReaderGroups getReaderGroup deleteReaderGroup getHealth getReadiness",
        "getLiveness getDetails getStatus getContributorHealth getContributorReadiness getContributorLiveness",
        "getContributorDetails getContributorStatus ping",
    }
    assert {name for line in wanted for name in line.split()} <= {operation.name for operation in OPERATIONS}
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)
