"""Requests about reader groups (Pravega: StreamMetadataResourceImpl)."""

from __future__ import annotations

from pravega_spark.client.groups.positions import group_state
from pravega_spark.serve.replies import Call, Reply, Streamed, streamed_list
from pravega_spark.serve.service import Service


def list_groups(service: Service, call: Call) -> Streamed:
    """The reader groups of a scope, by their names."""
    names = service.manager.list_reader_group(call.path["scopeName"])
    return streamed_list("readerGroups", ({"readerGroupName": name} for name in names))


def get_group(service: Service, call: Call) -> Reply:
    """The streams of a reader group, and its readers that are online."""
    scope, name = call.path["scopeName"], call.path["readerGroupName"]
    state = group_state(service.manager.root, scope, name)
    cuts = state.cuts() if state is not None else service.manager.reader_group_cuts(name, scope)
    return Reply(
        200,
        {
            "scopeName": scope,
            "readerGroupName": name,
            "streamList": [f"{cut.scope}/{cut.stream}" for cut in cuts],
            "onlineReaderIds": sorted(state.readers) if state is not None else [],
        },
    )


def delete_group(service: Service, call: Call) -> Reply:
    """Delete a reader group and take its readers offline."""
    service.manager.delete_reader_group(call.path["readerGroupName"], call.path["scopeName"])
    return Reply(204)
