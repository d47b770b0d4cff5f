"""The OpenAPI document: it is whole, it is what the server does, and schemathesis runs against it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pravega_spark.serve.openapi import PATH_NAME, openapi
from pravega_spark.serve.operations import OPERATIONS
from pravega_spark.serve.schemas import DEFINITIONS, check
from pravega_spark.serve.settings import ServeSettings
from tests.support.served import Served


def references(node: Any) -> Iterator[str]:
    """All $ref in a document."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "$ref":
                yield value
            yield from references(value)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def test_the_document_is_served_and_whole(server: Served) -> None:
    found = server.get("/openapi.json").json
    assert found == json.loads(json.dumps(openapi(ServeSettings())))
    used = set(references(found))
    assert used == {f"#/components/schemas/{name}" for name in DEFINITIONS if name != "Document"} | used
    assert {each.rpartition("/")[2] for each in used} <= DEFINITIONS.keys()
    for path, described in found["paths"].items():
        assert [each["name"] for each in described.get("parameters", [])] == re.findall(PATH_NAME, path)
    assert all(operation.summary for operation in OPERATIONS)


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.schema], ids=lambda each: each.name)
def test_answers_fit_their_definitions(server: Served, operation: Any) -> None:
    if operation.changes:
        pytest.skip("its answer is that of the operation that reads the same")
    values = {"scopeName": "sc", "streamName": "one", "readerGroupName": "rg", "id": "container-0"}
    path = operation.path.format(**values, keyValueTableName="prices")
    query = {"from": "0", "to": "1", "time": "0", "bytes": "1", "n": "1"}
    asked = "&".join(f"{each.name}={query[each.name]}" for each in operation.query if each.required)
    answer = server.get(f"{path}?{asked}")
    assert answer.status == 200, answer.text
    check(DEFINITIONS[operation.schema], answer.json, "answer")
