"""How commands print policies, cuts and segments of streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from pravega_spark.cli.session import Session
from pravega_spark.console.output import Column, Headings, id_column
from pravega_spark.quantities import counted, duration_text, size_text
from pravega_spark.segment_ids import segment_label
from pravega_spark.streams.model.cuts import StreamCut, positions_text

if TYPE_CHECKING:
    from pravega_spark.streams.model.epochs import StreamSegmentRecord
    from pravega_spark.streams.model.policies import RetentionPolicy, ScalingPolicy
    from pravega_spark.streams.model.stream_record import StreamRecord


def scaling_text(policy: ScalingPolicy) -> str:
    if policy.kind == "fixed":
        return "fixed"
    rate = policy.target_rate
    text = size_text(rate * 1024) if policy.kind == "bytes" else counted(rate, "event")
    return f"segments above {text}/s are split into {policy.scale_factor}; at least {policy.min_segments}"


def retention_text(policy: RetentionPolicy | None) -> str:
    if policy is None:
        return "none: everything is kept"
    limits = [f"at least {_limit_text(policy.kind, policy.limit)}"]
    limits += [f"at most {_limit_text(policy.kind, policy.maximum)}"] if policy.maximum is not None else []
    return ", ".join(limits)


def _limit_text(kind: str, limit: int) -> str:
    return size_text(limit) if kind == "size" else duration_text(limit / 1000)


POLICIES: Headings = {"scaling": "scaling", "retention": "retention", "tags": "tags"}


def policies_texts(record: StreamRecord) -> dict[str, str | None]:
    """Policies and tags for people."""
    texts = {"scaling": scaling_text(record.scaling), "retention": retention_text(record.retention)}
    return {**texts, "tags": ", ".join(record.tags) or None}


def policies_row(record: StreamRecord) -> dict[str, Any]:
    """Policies and tags in a document."""
    kind, min_segments, rate, factor = astuple(record.scaling)
    scaling = {"kind": kind, "min_segments": min_segments, "target_rate": rate, "factor": factor}
    return {"scaling": scaling, "retention": retention_row(record.retention), "tags": list(record.tags)}


def retention_row(policy: RetentionPolicy | None) -> dict[str, Any] | None:
    return None if policy is None else {"kind": policy.kind, "limit": policy.limit}


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
    "low": Column("above key", "{:.6g}".format),
    "high": Column("up to key", "{:.6g}".format),
    "tail": "tail",
    "name": Column("name", wide=True),
}
