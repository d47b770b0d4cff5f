"""What the API has beyond that of Pravega's controller: what streams hold, cuts, truncation, events, metrics."""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.served import Served

ONE = "/v1/scopes/sc/streams/one"


def pages(server: Served, stream: str, max_bytes: int, form: str = "text") -> list[list[Any]]:
    """All events of a stream, page by page."""
    found, place = [], "head"
    while True:
        page = server.get(f"{stream}/events?from={quote(place)}&maxBytes={max_bytes}&format={form}").json
        found.append([each["data"] for each in page["events"]])
        place = page["next"]
        if page["atEnd"]:
            return found


def test_pages_of_events_have_each_event_once(server: Served) -> None:
    with server.manager.create_writer("sc", "one") as writer:
        writer.write_events([f"{number:1000}" for number in range(100, 400)], [f"{number}" for number in range(300)])
    found = pages(server, ONE, 100_000)
    assert sorted(int(data) for page in found for data in page) == list(range(400))
    assert 1 < len(found) <= 400 and all(len(page) < 250 for page in found)
    assert pages(server, ONE, 8 << 20) == [[data for page in found for data in page]] or len(found) > 1


def test_a_page_begins_at_any_position_and_ends_at_one(server: Served) -> None:
    middle = server.get(f"{ONE}/next-stream-cut?from=head&bytes=1").json["streamCut"]
    info = server.get(f"{ONE}/info").json
    nothing = {"events": [], "next": info["tail"]["streamCut"], "atEnd": True}
    assert server.get(f"{ONE}/events?from=tail").json == nothing
    before = server.get(f"{ONE}/events?to={quote(middle)}").json["events"]
    behind = server.get(f"{ONE}/events?from={quote(middle)}").json["events"]
    assert len(before) + len(behind) == 100
    assert server.get(f"{ONE}/events?from=1h").json["events"] == server.get(f"{ONE}/events").json["events"]
    for wrong in ("from=nowhere", "maxBytes=0", "maxBytes=x", "format=xml", f"from={quote(middle[:-4])}"):
        assert server.get(f"{ONE}/events?{wrong}").status == 400, wrong
    other = server.get(f"{ONE}/events?from={quote(middle)}".replace("/one/", "/none/"))
    assert other.status == 404


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"a": 1}', {"base64": "eyJhIjogMX0=", "text": '{"a": 1}', "hex": "7b2261223a20317d", "json": {"a": 1}}),
        (b"\xff<b>", {"base64": "/zxiPg==", "text": "\ufffd<b>", "hex": "ff3c623e", "json": None}),
        (b"1e999", {"json": None, "text": "1e999"}),
        (b"NaN", {"json": None}),
        (b"[" * 5000 + b"]" * 5000, {"json": None}),
        (b"", {"text": "", "json": None}),
        (b"x" * 65537, {"text": None, "base64": None}),
    ],
)
def test_payloads_in_each_format(server: Served, payload: bytes, shown: dict[str, Any]) -> None:
    server.manager.create_stream("sc", "x")
    with server.manager.create_writer("sc", "x") as writer:
        writer.write_event_bytes(payload)
    stream = "/v1/scopes/sc/streams/x"
    for form, data in shown.items():
        (event,) = server.get(f"{stream}/events?format={form}").json["events"]
        assert event["data"] == data and event["size"] == len(payload)
        assert server.get(f"{stream}/last-events?format={form}").json["events"] == [event]
    whole = server.get(f"{stream}/event?pointer={quote(event['pointer'])}")
    assert (whole.status, whole.body) == (200, payload)
    assert whole.headers["content-disposition"] == "attachment"
    assert whole.headers["content-type"] == "application/octet-stream"


def test_one_event_by_its_pointer(server: Served) -> None:
    server.manager.create_stream("sc", "two")
    pointer = server.get(f"{ONE}/last-events?n=1").json["events"][0]["pointer"]
    assert server.get(f"/v1/scopes/sc/streams/two/event?pointer={quote(pointer)}").status == 400
    assert server.get(f"{ONE}/event?pointer=x").status == 400
    assert server.get(f"{ONE}/event?pointer={quote('sc/one/0.#epoch.0:9999999-9')}").status == 400
    assert server.get(f"{ONE}/event").status == 400


def test_the_last_events_come_in_the_order_of_writing(server: Served) -> None:
    found = server.get(f"{ONE}/last-events?n=5&format=text").json
    assert [each["data"] for each in found["events"]] == ["95", "96", "97", "98", "99"]
    assert server.get(f"{ONE}/events?from={quote(found['next'])}").json["events"] == []
    assert server.get(f"{ONE}/last-events?n=0").status == 400


@pytest.mark.parametrize(
    ("form", "data", "payload"),
    [
        ("text", "é<", "é<".encode()),
        ("base64", base64.b64encode(b"\0\xff").decode(), b"\0\xff"),
        ("hex", "00ff", b"\0\xff"),
        ("json", {"a": [1, "é"]}, b'{"a":[1,"\\u00e9"]}'),
    ],
)
def test_events_are_written_in_each_format(server: Served, form: str, data: Any, payload: bytes) -> None:
    body = {"format": form, "events": [{"data": data, "routingKey": "k"}, {"data": data}]}
    written = server.change("POST", f"{ONE}/events", body)
    assert (written.status, written.json) == (201, {"written": 2})
    assert [each.data for each in server.manager.last_events("sc", "one", 2)] == [payload] * 2


@pytest.mark.parametrize(
    "body",
    [
        {"events": []},
        {"events": [{"data": 7}]},
        {"events": [{"data": "a"}, {"data": "\ud800"}]},
        {"format": "hex", "events": [{"data": "0"}]},
        {"format": "base64", "events": [{"data": "%%"}]},
        {"events": [{"data": "a", "key": "b"}]},
        {"events": [{"data": "a"}], "txnAppId": "x"},
        {"events": "a"},
        [],
        None,
    ],
)
def test_what_is_no_event_is_refused_and_nothing_is_written(server: Served, body: Any) -> None:
    refused = server.request(
        "POST",
        f"{ONE}/events",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer a-token-for-tests-only"},
    )
    assert refused.status == 400, refused.text
    assert server.manager.stream_info("sc", "one").events == 100


def test_a_write_that_is_sent_again_writes_nothing(server: Served) -> None:
    body = {"events": [{"data": "once"}], "txnAppId": "app", "txnVersion": 1}
    assert server.change("POST", f"{ONE}/events", body).json == {"written": 1}
    assert server.change("POST", f"{ONE}/events", body).json == {"written": 0}
    assert server.manager.stream_info("sc", "one").events == 101


def test_a_sealed_stream_is_not_written(server: Served) -> None:
    server.manager.seal_stream("sc", "one")
    assert server.change("POST", f"{ONE}/events", {"events": [{"data": "x"}]}).status == 409
    assert server.change("POST", f"{ONE}/events".replace("one", "none"), {"events": [{"data": "x"}]}).status == 404


def test_the_cut_of_a_time_and_truncation_there(server: Served) -> None:
    first = server.get(f"{ONE}/stream-cut?time=0").json
    last = server.get(f"{ONE}/stream-cut?time={int(time.time() * 1000) + 60_000}").json
    info = server.get(f"{ONE}/info").json
    assert (first, last) == (info["head"], info["tail"]) and info["events"] == 100
    assert server.get(f"{ONE}/stream-cut?time=soon").status == 400
    truncated = server.change("POST", f"{ONE}/truncation", {"streamCut": last["streamCut"]})
    assert truncated.status == 200 and truncated.json["positions"] == last["positions"]
    assert server.get(f"{ONE}/info").json["events"] == 0
    assert server.get(f"{ONE}/events?from={quote(first['streamCut'])}").status == 410
    assert server.change("POST", f"{ONE}/truncation", {"streamCut": "nowhere"}).status == 400
    assert server.change("POST", f"{ONE}/truncation", {"streamCut": str(2**60)}).status == 400


def test_metrics(server: Served) -> None:
    found = server.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, sample.labels.get("stream")): sample.value
        for family in text_string_to_metric_families(found.text)
        for sample in family.samples
    }
    assert samples["pravega_stream_events", "one"] == 100
    assert samples["pravega_consumer_lag_events", "one"] == 100
    assert any(name == "pravega_log_seconds_count" for name, _ in samples)
    assert server.get("/v1/status").json["streams"][0]["events"] == 100
