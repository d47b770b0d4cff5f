"""`backup` and `restore` (see `engine.admin.backups`)."""

from __future__ import annotations

import click

from engine.admin.backups import RootBackup, back_up, restore as restore_root
from engine.signatures import key_in
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.advice import elsewhere
from pravega_spark.console.arguments import storage_option
from pravega_spark.console.output import Headings, id_column, moment, size_column
from pravega_spark.settings import key_for
from pravega_spark.storage_options import open_checked

_elsewhere_option = storage_option("--elsewhere", "the backup's")


@click.command()
@click.argument("target")
@_elsewhere_option
@pass_session
def backup(session: Session, target: str, options: dict[str, object]) -> None:
    """Copy the root to another place.

    TARGET is an empty folder or bucket, or an earlier backup of this root, which is updated. Other processes may use
    the root meanwhile. Each container is copied as of one of its flush cycles.
    """
    with elsewhere(target, options), session.output.progress() as progress:
        root = session.root
        done = back_up(root, target, options, progress=progress)
    _print(session, "backup", done)


@click.command()
@click.argument("source")
@_elsewhere_option
@click.option(
    "--backup-key",
    metavar="FILE",
    help="The file with the key of the backup, if it is another one than the root's; 'none' if it is not signed.",
)
@pass_session
def restore(session: Session, source: str, options: dict[str, object], backup_key: str | None) -> None:
    """Create the root from a backup.

    The root must not exist. Repeat the command if it was interrupted. With a signing key the root is signed.
    """
    if session.wal is not None:
        raise click.UsageError("A restored root keeps its log inside the root: omit --wal.")
    with elsewhere(source, options), session.output.progress() as progress:
        open_checked(session.url, session.options)
        key = key_for(session.settings)
        done = restore_root(
            source,
            session.url,
            source_options=options,
            target_options=session.options,
            progress=progress,
            source_key=key if backup_key is None else key_in("" if backup_key == "none" else backup_key),
            target_key=key,
        )
    _print(session, "restored", done)


def _print(session: Session, what: str, done: RootBackup) -> None:
    rows = [{**row._asdict(), "time": moment(row.time)} for row in done.containers]
    session.output.document({what: rows, "place": done.place})
    session.output.table(_COPIED, rows, title=done.place)


_COPIED: Headings = {
    "number": id_column("container"),
    "cycle": id_column("flush cycle"),
    "time": "begun",
    "sequence": "last sequence number",
    "objects": "objects",
    "copied": "copied now",
    "bytes": size_column("size copied"),
}
