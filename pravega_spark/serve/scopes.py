"""Requests about scopes (Pravega: StreamMetadataResourceImpl)."""

from __future__ import annotations

from pravega_spark.serve.failures import Refusal
from pravega_spark.serve.replies import Call, Reply, Streamed, streamed_list
from pravega_spark.serve.service import Service


def list_scopes(service: Service, call: Call) -> Streamed:
    """All scopes, by their names."""
    return streamed_list("scopes", ({"scopeName": name} for name in service.manager.list_scope()))


def create_scope(service: Service, call: Call) -> Reply:
    """Create a scope."""
    name = call.body["scopeName"]
    if not service.manager.create_scope(name):
        raise Refusal(409, "ScopeExists", f"Scope exists already: {name}")
    return Reply(201, {"scopeName": name})


def get_scope(service: Service, call: Call) -> Reply:
    """A scope."""
    name = call.path["scopeName"]
    service.catalog.check_scope(name)
    return Reply(200, {"scopeName": name})


def delete_scope(service: Service, call: Call) -> Reply:
    """Delete an empty scope."""
    name = call.path["scopeName"]
    if not service.manager.delete_scope(name):
        raise service.catalog.scope_not_found(name)
    return Reply(204)
