"""`defrag`: compaction, which merges runs of small chunks."""

from __future__ import annotations

import click

from engine.errors import did_you_mean
from engine.root import Root
from engine.writer.compaction import compact_segments
from pravega_spark.cli.segment import segment_names
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import SizeType
from pravega_spark.console.output import Headings, id_column, size_column
from pravega_spark.console.program import Refused
from pravega_spark.quantities import counted
from pravega_spark.streams.reading.suggestions import similar_names


@click.command()
@click.argument("prefix", default="")
@click.option(
    "--target",
    type=SizeType(min=2),
    default="64MiB",
    show_default=True,
    help="Target size of a merged chunk.",
)
@pass_session
def defrag(session: Session, prefix: str, target: int) -> None:
    """Compact segments: merge small chunks into larger ones.

    PREFIX selects the segments whose names start with it. Data that is only in the log is flushed to LTS first.
    Other processes may use the root meanwhile.
    """
    root = session.root
    if not root.config.garbage_delay_seconds:
        raise Refused("the root's garbage delay is 0, so chunks cannot be replaced while they may be read")
    rows = []
    with session.output.progress() as progress:
        for number in range(root.config.containers):
            container = root.container(number)
            container.flush()
            for merged in compact_segments(container.flush_context, prefix, target):
                rows.append(merged._asdict())
                progress(merged.segment, 0, 0)
    if prefix and not rows:
        _check_prefix(root, prefix)
    session.output.document({"defrag": rows})
    session.output.table(_MERGED, rows)
    chunks, merges = (sum(row[key] for row in rows) for key in ("chunks", "merges"))
    session.output.line(f"merged {counted(chunks, 'chunk')} into {merges}")


def _check_prefix(root: Root, prefix: str) -> None:
    """Raise Refused if no segment's name starts so: the prefix is probably mistyped."""
    names = list(segment_names(root))
    if not any(f"{name}.".startswith(prefix) or prefix.startswith(f"{name}.") for name in names):
        streams = {name.rpartition("/")[0] for name in names}
        similar = similar_names(sorted({*names, *streams}), prefix.rstrip("/"))
        raise Refused(f"no segment's name starts with {prefix!r}.{did_you_mean(similar)}")


_MERGED: Headings = {
    "segment": "segment in LTS",
    "container": id_column("container", wide=True),
    "merges": "merges",
    "chunks": "chunks merged",
    "bytes": size_column("size"),
    "refused": "skipped",
}
