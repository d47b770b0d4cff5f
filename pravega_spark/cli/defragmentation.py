"""`defrag`: runs of small chunks become one."""

from __future__ import annotations

import click

from engine.defragmentation import defragment
from pravega_spark.cli.session import Refused, Session, pass_session


@click.command()
@click.argument("prefix", default="")
@click.option("--target", type=click.IntRange(min=2), default=64 << 20, show_default=True, help="Bytes of a new chunk.")
@pass_session
def defrag(session: Session, prefix: str, target: int) -> None:
    """Merge small chunks of the segments whose names begin with PREFIX, of all segments by default.

    Other processes may use the root meanwhile. What is only in the log is brought to tier 2 first.
    """
    root = session.root
    if not root.config.garbage_delay_seconds:
        raise Refused("this root keeps garbage for no time at all, so that chunks cannot be replaced under readers")
    rows = []
    with session.output.progress() as bar:
        task = bar.add_task("segments", total=None) if bar is not None else None
        for number in range(root.config.containers):
            container = root.container(number)
            container.flush()
            for merged in defragment(container, prefix, target):
                rows.append(merged._asdict())
                if bar is not None and task is not None:
                    bar.update(task, description=merged.segment)
    session.output.document({"defrag": rows})
    session.output.table(_MERGED, rows)
    session.output.line(f"{sum(row['chunks'] for row in rows)} chunks became {sum(row['merges'] for row in rows)}")


_MERGED = {
    "segment": "segment in tier 2",
    "container": "container",
    "merges": "merges",
    "chunks": "chunks merged",
    "bytes": "bytes",
    "refused": "not made",
}
