"""`segment`: segments of any kind, and where their bytes are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import click

from engine.admin.inspection import describe_segment, list_segments, segment_chunks
from engine.containers.container import Container
from engine.errors import SegmentNotFound
from engine.root import Root
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import SegmentNameType
from pravega_spark.console.output import Column, Headings, id_column, moment, size_column
from pravega_spark.streams.model.names import owner_of
from pravega_spark.streams.reading.suggestions import similar_names

T = TypeVar("T")


@click.command("list")
@click.argument("prefix", default="")
@pass_session
def list_(session: Session, prefix: str) -> None:
    """List segments, or those whose names start with PREFIX."""
    rows = []
    for number in range(session.root.config.containers):
        with session.root.open_private(number) as container:
            found = (name for name in list_segments(container) if name.startswith(prefix))
            rows += [{"name": name, "container": number} for name in found]
    rows.sort(key=lambda row: str(row["name"]))
    session.output.document({"segments": rows})
    session.output.table({"name": "segment", "container": id_column("container")}, rows)


@click.command()
@click.argument("name", type=SegmentNameType())
@pass_session
def describe(session: Session, name: str) -> None:
    """Show all properties of a segment.

    NAME: scope/stream/2.1 or scope/stream/2.#epoch.1 for segment 2 of epoch 1, or the name of any other segment.
    """
    number, found = _find(session.root, name, lambda container: describe_segment(container, name))
    # The id of a stream's segment is another one, and in its name.
    row: dict[str, Any] = {"id_in_container" if key == "id" else key: value for key, value in found._asdict().items()}
    row["container"] = number
    row |= {"last_modified": moment(found.last_modified), "attributes": dict(found.attributes)}
    session.output.document({"segment": row})
    session.output.properties(row, _DESCRIBED)
    attributes = [
        {"name": key, "value": moment(value) if key == "creation_time" else value}
        for key, value in found.attributes.items()
    ]
    session.output.table({"name": "attribute", "value": "value"}, attributes)


@click.command()
@click.argument("name", type=SegmentNameType())
@pass_session
def chunks(session: Session, name: str) -> None:
    """Show where the bytes of a segment are stored.

    First come its chunks, then what is only in the log. NAME is that of `segment describe`.
    """
    number, parts = _find(session.root, name, lambda container: list(segment_chunks(container, name)))
    rows = [part._asdict() for part in parts]
    session.output.document({"name": name, "segment": name, "container": number, "parts": rows})
    session.output.table(_PARTS, rows)


def _find(root: Root, name: str, inspect: Callable[[Container], T]) -> tuple[int, T]:
    """What `inspect` returns for the container that has the segment, and its number. Raises SegmentNotFound.

    The container where the segments of a stream lie is asked first.
    """
    likely = owner_of(name, root.config.containers)
    for number in sorted(range(root.config.containers), key=lambda number: number != likely):
        with root.open_private(number) as container, suppress(SegmentNotFound):
            return number, inspect(container)
    raise missing(root, name)


def missing(root: Root, name: str) -> SegmentNotFound:
    """The error of a segment that does not exist, with the names like its name."""
    names = (each for each in segment_names(root) if each.count("#") <= name.count("#"))  # no index, unless it is one
    return SegmentNotFound(name, similar_names(names, name))


def segment_names(root: Root) -> Iterator[str]:
    """The names of all segments of all containers."""
    for number in range(root.config.containers):
        with root.open_private(number) as container:
            yield from list_segments(container)


_DESCRIBED: Headings = {
    "name": "segment",
    "container": id_column("container"),
    "id_in_container": id_column("id in container"),
    "start_offset": "start offset",
    "storage_length": "storage length",
    "durable_length": "durable log length",
    "last_modified": "last modified",
    "sealed": "sealed",
    "sealed_in_storage": "sealed in storage",
    "merged_into": "merged into",
    "transient_of": "transient segment of",
    "deleted": "deleted",
    "active": "in memory",
    "storage": "name in LTS",
}

_PARTS: Headings = {
    "start": "start",
    "length": size_column("length"),
    "place": "place",
    "object": "object",
    "position": Column("from", wide=True),
}
