"""`stream rebuild-index`: replaces wrong indexes of a stream."""

from __future__ import annotations

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import StreamName, stream_argument
from pravega_spark.quantities import counted
from pravega_spark.segment_ids import segment_label


@click.command("rebuild-index")
@stream_argument
@pass_session
def rebuild_index(session: Session, name: StreamName) -> None:
    """Rebuild wrong indexes of a stream from its events.

    For an index that `verify` reports. Event counts, cuts by time and split reads are correct afterwards. Correct
    indexes are not changed. Reads the whole stream. Other processes may use it meanwhile.
    """
    from pravega_spark.streams.maintenance.index_repair import rebuild_indexes

    rebuilt = rebuild_indexes(session.catalog.stream(*name))
    session.output.document({"stream": str(name), "rebuilt": len(rebuilt)})
    for segment, before, events in rebuilt:
        what = f"{counted(before, 'event')} counted before, {counted(events, 'event')} now"
        session.output.line(f"stream {name}: the index of segment {segment_label(segment)} was rebuilt: {what}")
    if not rebuilt:
        session.output.line(f"stream {name}: all indexes are right")
