"""The OpenAPI document of the server, made from its operations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pravega_spark.serve.operations import OPEN, OPERATIONS, Operation, path_schema
from pravega_spark.serve.schemas import DEFINITIONS, ref
from pravega_spark.serve.settings import ServeSettings

PATH_NAME = re.compile(r"\{(\w+)\}")

_EVERYWHERE: Mapping[int, str] = {
    400: "The request does not fit this document, or names what cannot be",
    403: "The request comes from another site, or the server allows no changes",
    421: "The host of the request is not one of this server",
    500: "The root is damaged, or the server failed",
    503: "The server or the storage is busy: try again",
}


def openapi(settings: ServeSettings) -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        described = paths.setdefault(operation.path, _path(operation))
        described[operation.method.lower()] = _described(operation, settings)
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Pravega streams in a folder or bucket",
            "description": "The REST API of Pravega's controller, and some more, of `pravega-spark serve`.",
            "version": "1",
            "license": {"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": dict(DEFINITIONS),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _path(operation: Operation) -> dict[str, Any]:
    names = PATH_NAME.findall(operation.path)
    found = [{"in": "path", "name": name, "required": True, "schema": path_schema(name)} for name in names]
    return {"parameters": found} if found else {}


def _described(operation: Operation, settings: ServeSettings) -> dict[str, Any]:
    private = settings.private and operation.path not in OPEN
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(operation, secured=operation.changes or private),
    }
    if operation.query:
        described["parameters"] = [
            {
                "in": "query",
                "name": each.name,
                "description": each.meaning,
                "required": each.required,
                "schema": each.schema if each.default is None else {**each.schema, "default": each.default},
            }
            for each in operation.query
        ]
    if operation.body:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": ref(operation.body)}}}
    if operation.changes or private:
        described["security"] = [{"token": []}]
    return described


def _responses(operation: Operation, secured: bool) -> dict[str, Any]:
    success = next(iter(operation.answers))
    extra = {401: "The token is missing or wrong"} if secured else {}
    if operation.body:
        extra |= {408: "The body came too slowly", 413: "The body is too large", 415: "The body is no JSON"}
    found: dict[str, Any] = {}
    for status, meaning in sorted({**_EVERYWHERE, **extra, **operation.answers}.items()):
        found[str(status)] = {"description": meaning}
        if status == success:
            if operation.schema:
                found[str(status)]["content"] = {operation.media: {"schema": ref(operation.schema)}}
            elif status == 200 and operation.path != "/ping":
                found[str(status)]["content"] = {operation.media: {"schema": {"type": "string"}}}
        else:
            schema = operation.schema if operation.name == "probe" and status == 503 else "Error"
            found[str(status)]["content"] = {"application/json": {"schema": ref(schema)}}
    return found
