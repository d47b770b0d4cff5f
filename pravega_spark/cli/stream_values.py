"""Policies, cuts and segments of streams as commands take and print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Literal

import click

from pravega_spark.cli.session import Session
from pravega_spark.console.arguments import Command, MillisecondsType, SizeType
from pravega_spark.console.output import Column, Headings, id_column
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut, positions_text
from pravega_spark.streams.model.policies import RetentionPolicy, limited_retention, retention_text, scaling_text

if TYPE_CHECKING:
    from pravega_spark.streams.model.epochs import StreamSegmentRecord
    from pravega_spark.streams.model.stream_record import StreamRecord


POLICIES: Headings = {"scaling": "scaling", "retention": "retention", "tags": "tags", "values": "values"}


def policies_texts(record: StreamRecord) -> dict[str, str | None]:
    """Policies and tags for people."""
    texts = {"scaling": scaling_text(record.scaling), "retention": retention_text(record.retention)}
    values = None if record.values is None else f"{record.values.format}: {record.values.schema}"
    return {**texts, "tags": ", ".join(record.tags) or None, "values": values}


def policies_row(record: StreamRecord) -> dict[str, Any]:
    """Policies and tags in a document."""
    kind, min_segments, rate, factor = astuple(record.scaling)
    scaling = {"kind": kind, "min_segments": min_segments, "target_rate": rate, "factor": factor}
    row = {"scaling": scaling, "retention": retention_row(record.retention), "tags": list(record.tags)}
    values = None if record.values is None else record.values._asdict()
    return {**row, "values": values}


def retention_options(command: Command) -> Command:
    """Give a command the options of a retention policy: the values of `retention_of`."""
    size, duration = SizeType(min=1), MillisecondsType(min=1)
    waiting = "Keep at most {} for subscribers that are behind. By default everything that they have not read is kept."
    for option in (
        click.option("--retain-time-max", type=duration, help=waiting.format("this long")),
        click.option("--retain-time", type=duration, help="Keep events at least this long, such as 7d."),
        click.option("--retain-size-max", type=size, help=waiting.format("this much")),
        click.option("--retain-size", type=size, help="Keep at least this much, such as 10GiB."),
    ):
        command = option(command)
    return command


def retention_of(given: Mapping[str, Any], present: RetentionPolicy | None = None) -> RetentionPolicy | None:
    """The policy by the options of `retention_options`, None without one. present: its values are kept where none are
    given, if it is of the same kind."""
    kinds: list[Literal["time", "size"]] = ["size", "time"]
    wanted = [kind for kind in kinds if given[f"retain_{kind}"] or given[f"retain_{kind}_max"]]
    if len(wanted) > 1:
        raise click.UsageError("Give only one of --retain-size and --retain-time.")
    for kind in wanted:
        known = present if present is not None and present.kind == kind else None
        minimum = given[f"retain_{kind}"] or (known.limit if known is not None else None)
        maximum = given[f"retain_{kind}_max"] or (known.maximum if known is not None else None)
        try:
            return limited_retention(kind, minimum, maximum, (f"--retain-{kind}", f"--retain-{kind}-max"))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    return None


def retention_row(policy: RetentionPolicy | None) -> dict[str, Any] | None:
    return None if policy is None else {"kind": policy.kind, "limit": policy.limit, "maximum": policy.maximum}


def cut_row(cut: StreamCut) -> dict[str, Any]:
    """A stream cut in a document."""
    return {"cut": cut.as_text(), "positions": {str(number): at for number, at in cut.positions.items()}}


def print_cuts(session: Session, cuts: Sequence[tuple[str, StreamCut]]) -> None:
    """Print cuts for copying. Equal cuts are printed once, with all of their labels."""
    names: dict[str, list[str]] = {}
    for name, cut in cuts:
        names.setdefault(f"{positions_text(cut)}\n{cut.as_text()}", []).append(name)
    for told, called in names.items():
        positions, text = told.split("\n")
        session.output.copied(f"{', '.join(called)}: {positions}", text)


def segment_row(segment: StreamSegmentRecord) -> dict[str, Any]:
    return {"id": segment.id, "segment": segment_label(segment.id)}


SEGMENT_COLUMNS: Headings = {
    "segment": "segment",
    "id": id_column("id"),
    "low": Column("above hash", "{:.6g}".format),
    "high": Column("up to hash", "{:.6g}".format),
    "tail": "tail",
    "name": Column("name", wide=True),
}
