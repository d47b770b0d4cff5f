"""`container`: what the containers of a root are doing; flushing them, and recovering one whose log is lost."""

from __future__ import annotations

from typing import Any

import click

from engine import backups
from engine.inspection import ContainerDescription, ContainerStatus, container_status, list_containers
from pravega_spark.cli.output import moment
from pravega_spark.cli.session import Refused, Session, pass_session


@click.group()
def container() -> None:
    """Look at containers, flush them, recover one."""


@container.command("list")
@pass_session
def list_(session: Session) -> None:
    """List the containers and whether they are online."""
    statuses = list_containers(session.root)
    rows = [_status(status) for status in statuses]
    session.output.document({"containers": rows})
    flat = [{**row, **_cycle_row(row["cycle"])} if row["online"] else {**dict.fromkeys(_LISTED), **row} for row in rows]
    session.output.table(_LISTED, flat)
    for row in rows:
        if not row["online"]:
            session.output.line(f"container {row['number']} is offline: {row['reason']}")


@container.command()
@click.argument("number", type=click.IntRange(min=0))
@pass_session
def describe(session: Session, number: int) -> None:
    """Tell everything about container NUMBER."""
    row = _status(container_status(session.root, number))
    session.output.document({"container": row})
    if not row["online"]:
        session.output.line(f"container {number} is offline: {row['reason']}")
        return
    session.output.properties({**row, **_cycle_row(row["cycle"])}, _DESCRIBED)
    session.output.table(_TABLE, row["tables"], title="tables")


@container.command()
@click.argument("numbers", metavar="[NUMBER]...", type=click.IntRange(min=0), nargs=-1)
@pass_session
def flush(session: Session, numbers: tuple[int, ...]) -> None:
    """Bring everything that lies only in the log to tier 2: of all containers, or of those that are named.

    After it, tier 2 alone is a backup of the container.
    """
    root = session.root
    rows = []
    for number in numbers or range(root.config.containers):
        opened = root.container(number)
        moved = opened.flush()
        rows.append({"number": number, "bytes": moved, "cycle": opened.state.cycle.number})
    session.output.document({"flushed": rows})
    session.output.table({"number": "container", "bytes": "bytes moved", "cycle": "flush cycle"}, rows)


@container.command()
@click.argument("number", type=click.IntRange(min=0))
@click.option("--yes", is_flag=True, help="Do it.")
@click.option("--force", is_flag=True, help="Even though the log is there: what only it knows is lost.")
@click.option("--new-log", is_flag=True, help="The log's own root is lost, and --wal names an empty one.")
@pass_session
def recover(session: Session, number: int, yes: bool, force: bool, new_log: bool) -> None:
    """Begin a new log for container NUMBER, from the backup of its last complete flush cycle.

    Stop all other processes first. What was acknowledged after that cycle began is lost. If the log has a root of its
    own, give --new-log with the first container.
    """
    if new_log and not yes:
        session.output.line("This would begin a new log for the root, and a container's with its last backup.")
        raise Refused(_NOT_DONE)
    session.new_log = new_log
    root = session.root
    if number >= root.config.containers:
        raise ValueError(f"container {number}: the root has containers 0 to {root.config.containers - 1}")
    if not yes:
        backup = backups.newest(root.stores.chunks, number)
        if backup is not None:
            session.output.line(
                f"This would begin a new log for container {number} with what flush cycle {backup.number} found on "
                f"{moment(backup.state.cycle.time)}, up to operation {backup.state.cycle.sequence}."
            )
            session.output.line("Everything acknowledged after that would be lost. Stop all other processes first.")
        else:
            session.output.line(f"There is no backup of container {number}: it cannot be recovered.")
        raise Refused(_NOT_DONE)
    done = root.recover(number, force=force)
    row = {
        "number": number,
        "cycle": done.cycle,
        "time": moment(done.time),
        "sequence": done.sequence,
        "segments": done.segments,
        "head": done.address,
    }
    session.output.document({"recovered": row})
    for line in done.lines():
        session.output.line(line)


_NOT_DONE = "nothing was done: give --yes to recover the container"

_LISTED = {
    "number": "container",
    "online": "online",
    "sequence": "operations",
    "head": "head",
    "epoch": "epoch",
    "segments": "segments",
    "unsaved": "unsaved",
    "logged_bytes": "only in the log",
    "cycle_text": "last flush cycle",
}

_DESCRIBED = {
    "number": "container",
    "online": "online",
    "sequence": "operations",
    "head": "head of the log",
    "epoch": "epoch",
    "boundary": "newest checkpoint",
    "frames_since_checkpoint": "frames since then",
    "segments": "segments",
    "active": "segments in memory",
    "unsaved": "segments to be saved",
    "logged_bytes": "bytes only in the log",
    "cycle_text": "last flush cycle",
    "backup": "backup of cycle",
    "garbage": "garbage waiting",
}

_TABLE = {"name": "table", "entries": "entries", "stored_bytes": "bytes in tier 2", "unflushed": "unflushed entries"}


def _status(status: ContainerStatus) -> dict[str, Any]:
    base: dict[str, Any] = {"number": status.number, "online": status.online, "reason": status.reason or None}
    return base | (_described(status.description) if status.description is not None else {})


def _described(found: ContainerDescription) -> dict[str, Any]:
    return {
        "sequence": found.sequence,
        "head": found.head,
        "epoch": found.epoch,
        "boundary": found.boundary,
        "frames_since_checkpoint": found.frames,
        "segments": found.segments,
        "active": found.active,
        "unsaved": found.unsaved,
        "logged_bytes": found.logged,
        "cycle": {
            "number": found.cycle.number,
            "time": moment(found.cycle.time),
            "sequence": found.cycle.sequence,
            "complete": found.cycle.complete,
        },
        "backup": found.backup,
        "garbage": found.garbage,
        "tables": [
            {"name": name, "entries": entries, "stored_bytes": stored, "unflushed": unflushed}
            for name, entries, stored, unflushed in found.tables
        ],
    }


def _cycle_row(cycle: dict[str, Any]) -> dict[str, str]:
    if not cycle["number"]:
        return {"cycle_text": "none"}
    end = "" if cycle["complete"] else ", not complete"
    return {"cycle_text": f"{cycle['number']} at {cycle['time']}{end}"}
