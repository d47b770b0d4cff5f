"""`gc`: marks orphans as garbage, and deletes garbage that is due (see `engine.admin.garbage_collection`)."""

from __future__ import annotations

from typing import Any

import click

from engine.admin import orphans, root_gc
from engine.admin.orphans import Sweep
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import seconds_option, yes_option
from pravega_spark.console.output import Headings, size_column
from pravega_spark.quantities import counted, duration_text, size_text
from pravega_spark.streams.maintenance.chunk_ownership import ChunkOwnership

_NAMES_SHOWN = 20


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be collected; change nothing.")
@seconds_option(
    "--older-than", orphans.AGE, "Minimum age of an orphan. Writers slower than this are rejected at commit.", "age"
)
@click.option(
    "--plausible-share",
    "share",
    type=click.FloatRange(0, 1),
    default=orphans.PLAUSIBLE,
    show_default=True,
    help="Stop if more than this share of all objects are orphans.",
)
@yes_option
@pass_session
def gc(session: Session, dry_run: bool, age: float, share: float, yes: bool) -> None:
    """Collect garbage.

    Unreferenced objects (orphans) are marked as garbage, and garbage that is due is deleted. Orphans are deleted by a
    later run, or by the next writer, once the root's garbage delay has passed: an object that is attached at the last
    moment is kept. Uploads of large events that have been idle for the root's idle time are aborted. Other processes
    may use the root meanwhile.
    """
    root = session.root
    root.check_writable()
    with session.output.progress() as progress:
        found = root_gc.find_garbage(root, ChunkOwnership(root), age, progress)
    sweep = found.sweep
    row: dict[str, Any] = {
        "dry_run": dry_run,
        "examined": sweep.examined,
        "orphans": len(sweep.orphans),
        "bytes": sweep.bytes,
        "names": [orphan.path for orphan in sweep.orphans],
        "recent": sweep.recent,
        "unknown": sweep.unknown,
        "unknown_names": list(sweep.unknown_names),
        "nested": list(sweep.nested),
        "waiting": found.waiting,
        "expired": found.idle,
        "deleted": 0,
    }
    if not dry_run:
        orphans.check_plausible(root, sweep, share)
        waiting = f"{counted(found.waiting, 'garbage object')} waiting: those that are due would be deleted."
        idle = f"{counted(found.idle, 'idle upload')} of large events would be aborted."
        session.confirm(yes or found.empty, *_lines(sweep), waiting, idle)
        row |= root_gc.collect_garbage(root, found, share)._asdict()
    session.output.document({"gc": row})
    if dry_run:
        for line in _lines(sweep):
            session.output.line(line)
    session.output.properties({**row, "nested": ", ".join(row["nested"]) or None}, _LABELS)
    if dry_run:
        orphans.check_plausible(root, sweep, share)
    if not dry_run and sweep.orphans:
        delay = root.config.garbage_delay_seconds
        session.output.line(
            f"The orphans are marked as garbage; they are deleted after {duration_text(delay)} or later."
        )


def _lines(sweep: Sweep) -> list[str]:
    lines = [
        f"{counted(len(sweep.orphans), 'unreferenced object')} ({size_text(sweep.bytes)}) would be marked as garbage:"
    ]
    lines += [f"  {orphan.path}" for orphan in sweep.orphans[:_NAMES_SHOWN]]
    if len(sweep.orphans) > _NAMES_SHOWN:
        lines.append(f"  and {len(sweep.orphans) - _NAMES_SHOWN} more; --json lists all")
    return lines if sweep.orphans else ["No unreferenced objects."]


_LABELS: Headings = {
    "examined": "objects",
    "orphans": "orphans",
    "bytes": size_column("size of orphans"),
    "recent": "too recent",
    "unknown": "unknown objects, left alone",
    "nested": "other roots and backups, left alone",
    "expired": "idle uploads of large events",
    "deleted": "deleted now",
    "waiting": "garbage waiting",
}
