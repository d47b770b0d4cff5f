"""`header`: exchanges segments with code that uses the RollingStorage layout, which has no chunk metadata.

See `engine.admin.rolling_segments` and `pravega_spark.streams.pravega_lts.rolling_import`.
"""

from __future__ import annotations

import click

from chunkstore.pravega.rolling import segment_of
from engine.admin.rolling_segments import export_header
from engine.errors import SegmentNotFound
from pravega_spark.cli.segment import missing
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import SegmentNameType, StreamName, StreamNameType, change_options
from pravega_spark.quantities import counted, size_text
from pravega_spark.streams.model.names import owner_of
from pravega_spark.streams.reading.suggestions import similar_names


@click.command()
@click.argument("name", type=SegmentNameType())
@pass_session
def export(session: Session, name: str) -> None:
    """Write the legacy header of a segment.

    NAME is that of `segment describe`. The whole segment must be in LTS. The header describes the segment as it is now;
    merging its chunks makes the header invalid.
    """
    root = session.root
    try:
        with root.open_private(owner_of(name, root.config.containers)) as container:
            done = export_header(container, name)
    except SegmentNotFound:
        raise missing(root, name) from None
    session.output.document({"header": {"name": name, "segment": name, **done._asdict()}})
    session.output.line(f"wrote {done.object}: {counted(done.chunks, 'chunk')} up to offset {done.length}")


@click.command("import")
@click.argument("segment")
@click.argument("name", metavar="SCOPE/STREAM", type=StreamNameType())
@change_options
@pass_session
def import_(session: Session, segment: str, name: StreamName, dry_run: bool, yes: bool) -> None:
    """Make a stream from a segment of old code.

    The events of SEGMENT, which old code wrote below the root, become a new stream with one segment. No data is
    copied: the stream adopts the chunks, which are deleted with it. The legacy header is deleted. Old code must not
    use the segment any more.
    """
    from pravega_spark.streams.pravega_lts.rolling_import import import_segment  # slow to import

    try:
        with session.output.progress() as progress:
            done = import_segment(session.root, segment, *name, progress, dry_run=dry_run or not yes)
    except SegmentNotFound:
        headers = (segment_of(found.path) for found in session.root.stores.chunks.list(""))
        raise SegmentNotFound(segment, similar_names(filter(None, headers), segment)) from None
    told = f"{counted(done.events, 'event')} of {segment}, {size_text(done.bytes)}"
    session.confirm(
        yes,
        f"This would make stream {name} of the {told}, which old code must not use any more.",
        f"This would delete {done.header}." if done.header is not None else "There is no legacy header to delete.",
        dry_run=dry_run,
    )
    session.output.document({"imported": {"segment": segment, "stream": str(name), **done._asdict()}})
    session.output.line(f"stream {name} has the {told}")
