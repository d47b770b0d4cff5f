"""`defrag`: merge runs of small chunks."""

from __future__ import annotations

import click

from engine.writer.defragmentation import defragment
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import SizeType
from pravega_spark.console.output import Headings, id_column, size_column
from pravega_spark.console.program import Refused


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
    """Merge small chunks of segments.

    PREFIX chooses the segments whose names start with it. What is only in the log is flushed to LTS first. Other
    processes may use the root meanwhile.
    """
    root = session.root
    if not root.config.garbage_delay_seconds:
        raise Refused("the root's garbage delay is 0, so chunks cannot be replaced while they may be read")
    rows = []
    with session.output.progress() as progress:
        for number in range(root.config.containers):
            container = root.container(number)
            container.flush()
            for merged in defragment(container, prefix, target):
                rows.append(merged._asdict())
                progress(merged.segment, 0, 0)
    session.output.document({"defrag": rows})
    session.output.table(_MERGED, rows)
    session.output.line(f"merged {sum(row['chunks'] for row in rows)} chunks into {sum(row['merges'] for row in rows)}")


_MERGED: Headings = {
    "segment": "segment in LTS",
    "container": id_column("container", wide=True),
    "merges": "merges",
    "chunks": "chunks merged",
    "bytes": size_column("size"),
    "refused": "skipped",
}
