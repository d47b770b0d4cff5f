"""The operations as routes: what comes in is checked, the handler runs in a thread, its answer goes out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from pravega_spark.serve.access import check_change, check_read
from pravega_spark.serve.failures import Refusal, failure
from pravega_spark.serve.operations import OPEN, OPERATIONS, Operation, Parameter, path_schema
from pravega_spark.serve.replies import JSON, Answer, Call, Reply, Streamed, Text, parse_json
from pravega_spark.serve.schemas import Unfit, check, ref
from pravega_spark.serve.service import Service
from pravega_spark.serve.settings import ServeSettings
from pravega_spark.serve.work import Work
from pravega_spark.streams.model.names import validate_scope_name, validate_stream_name

_WHOLE = re.compile(r"-?[0-9]{1,19}")


def routes(service: Service, work: Work) -> list[BaseRoute]:
    """The routes of all operations: one for each path, which knows all methods of it."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [_route(path, operations, service, work) for path, operations in by_path.items()]


def _route(path: str, operations: Mapping[str, Operation], service: Service, work: Work) -> Route:
    async def answer(request: Request) -> Response:
        operation = operations["GET" if request.method == "HEAD" else request.method]
        try:
            _check_access(operation, service.settings, request)
            values, query = _path(request.path_params), _query(operation, request)
            call = Call(values, query, await _body(operation, service, request))
            return await respond(work, await work.run(operation.handler, service, call))
        except Exception as error:
            return await respond(work, failure(error, operation.changes))

    return Route(path, answer, methods=[*operations], name=" ".join(each.name for each in operations.values()))


async def respond(work: Work, answer: Answer) -> Response:
    """The response with an answer. The first piece of a streamed one is made before anything is sent, so that its
    failure has a status."""
    if isinstance(answer, Reply):
        media = JSON if answer.content is not None else None
        return Response(answer.encoded(), answer.status, dict(answer.headers), media)
    if isinstance(answer, Text):
        return Response(answer.text.encode(), 200, {"content-type": answer.media})
    first = await work.run(next, answer.pieces, None)
    return StreamingResponse(_pieces(work, answer, first), 200, dict(answer.headers), answer.media)


async def _pieces(work: Work, answer: Streamed, first: bytes | None) -> AsyncIterator[bytes]:
    piece = first
    while piece is not None:
        yield piece
        piece = await work.run(next, answer.pieces, None)


def _check_access(operation: Operation, settings: ServeSettings, request: Request) -> None:
    authorization = request.headers.get("authorization", "")
    if operation.changes:
        check_change(settings, authorization)
    elif operation.path not in OPEN:
        check_read(settings, authorization)


def _path(given: Mapping[str, str]) -> dict[str, str]:
    """The values of the path, all of them names. Raises ValueError: none becomes a path unchecked."""
    for name, value in given.items():
        check(path_schema(name), value, name)
        if name == "scopeName":
            validate_scope_name(value)
        elif name != "id":
            validate_stream_name(value, "name")
    return dict(given)


def _query(operation: Operation, request: Request) -> dict[str, Any]:
    """The values of the query that the operation knows. Raises Unfit."""
    found: dict[str, Any] = {}
    for parameter in operation.query:
        text = request.query_params.get(parameter.name)
        if text is not None:
            found[parameter.name] = _value(parameter, text)
        elif parameter.required:
            raise Unfit(f"the query has no {parameter.name}: give it")
        elif parameter.default is not None:
            found[parameter.name] = parameter.default
    return found


def _value(parameter: Parameter, text: str) -> Any:
    value: Any = int(text) if parameter.schema["type"] == "integer" and _WHOLE.fullmatch(text) else text
    check(parameter.schema, value, parameter.name)
    return value


async def _body(operation: Operation, service: Service, request: Request) -> Any:
    """The body of a request, checked. Raises Refusal, Unfit."""
    if not operation.body:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Refusal(415, "NoJson", f"The body must be JSON: send the header `Content-Type: {JSON}`")
    data = await _received(request, service.settings)
    try:
        value = parse_json(data)
    except (ValueError, RecursionError):
        raise Unfit("the body is no JSON, or is nested too deeply") from None
    check(ref(operation.body), value, "body")
    return value


async def _received(request: Request, settings: ServeSettings) -> bytes:
    """The bytes of the body. Raises Refusal if they are too many, or come too slowly."""
    most = settings.max_body
    refusal = Refusal(413, "BodyTooLarge", f"The body has more than {most} bytes: send less at a time")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > most:
        raise refusal

    async def read() -> bytes:
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > most:
                raise refusal
        return bytes(data)

    try:
        return await asyncio.wait_for(read(), settings.client_seconds)
    except asyncio.TimeoutError:
        problem = f"The body did not come within {settings.client_seconds:g} seconds"
        raise Refusal(408, "BodyTooSlow", problem, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise Refusal(400, "Disconnected", "The client went away before it had sent the body") from None
