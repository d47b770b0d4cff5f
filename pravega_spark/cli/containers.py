"""`container`: the state of a root's containers; flushing them, and recovering one whose log is lost."""

from __future__ import annotations

from typing import Any

import click

from engine.admin.inspection import ContainerDescription, ContainerStatus, container_status, list_containers
from engine.storage import recovery_points
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import change_options
from pravega_spark.console.output import Column, Headings, id_column, moment, size_column
from pravega_spark.console.program import Refused


@click.group()
def container() -> None:
    """Inspect, flush and recover containers."""


@container.command("list")
@pass_session
def list_(session: Session) -> None:
    """List the containers, and whether each is online."""
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
    """Show everything about a container."""
    row = _status(container_status(session.root, number))
    session.output.document({"container": row})
    if not row["online"]:
        session.output.line(f"container {number} is offline: {row['reason']}")
        return
    session.output.properties({**row, **_cycle_row(row["cycle"]), **_due_row(row["due"])}, _DESCRIBED)
    session.output.table(_TABLE, row["tables"], title="tables")


@container.command()
@click.argument("numbers", metavar="[NUMBER]...", type=click.IntRange(min=0), nargs=-1)
@pass_session
def flush(session: Session, numbers: tuple[int, ...]) -> None:
    """Flush to LTS everything that is only in the log.

    All containers are flushed, or the given ones. Afterwards LTS alone is enough to recover the container.
    """
    root = session.root
    rows = []
    for number in numbers or range(root.config.containers):
        opened = root.container(number)
        moved = opened.flush()
        rows.append({"number": number, "bytes": moved, "cycle": opened.state.cycle.number})
    session.output.document({"flushed": rows})
    session.output.table(_FLUSHED, rows)


@container.command()
@click.argument("number", type=click.IntRange(min=0))
@change_options
@click.option("--force", is_flag=True, help="Recover even though the log exists; what is only in the log is lost.")
@click.option("--new-log", is_flag=True, help="The separate root of the log is lost, and --wal names an empty one.")
@pass_session
def recover(session: Session, number: int, dry_run: bool, yes: bool, force: bool, new_log: bool) -> None:
    """Start a new log for a container whose log is lost.

    It starts from the recovery point of its last complete flush cycle. Stop all other processes first. Everything
    acknowledged after that cycle began is lost. If the log has a root of its own, give --new-log with the first
    container.
    """
    if new_log:  # before the root is opened, which would start it
        session.confirm(
            yes,
            f"This would start a new log for the root, and recover container {number} from its last recovery point.",
            _LOST,
            dry_run=dry_run,
        )
    session.new_log = new_log
    root = session.root
    if number >= root.config.containers:
        raise ValueError(
            f"container {number} does not exist: the root has containers 0 to {root.config.containers - 1}"
        )
    if not yes or dry_run:
        point = recovery_points.newest(root.stores.chunks, number)
        if point is None:
            raise Refused(f"container {number} has no recovery point, so it cannot be recovered")
        cycle = point.state.cycle
        session.confirm(
            yes,
            f"This would start a new log for container {number} from the recovery point of flush cycle "
            f"{point.number}, begun {moment(cycle.time)}, up to operation {cycle.sequence}.",
            _LOST,
            dry_run=dry_run,
        )
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


_LOST = "Everything acknowledged later would be lost. Stop all other processes first."

_FLUSHED: Headings = {
    "number": id_column("container"),
    "bytes": size_column("moved"),
    "cycle": id_column("flush cycle"),
}

_LISTED: Headings = {
    "number": id_column("container"),
    "online": "online",
    "segments": "segments",
    "logged_bytes": size_column("only in the log"),
    "cycle_text": "last flush cycle",
    "sequence": Column("operations", wide=True),
    "head": Column("head", wide=True),
    "epoch": Column("epoch", wide=True),
    "unsaved": Column("unsaved", wide=True),
}

_DESCRIBED: Headings = {
    "number": id_column("container"),
    "online": "online",
    "sequence": "operations",
    "head": "head of the log",
    "epoch": "epoch",
    "boundary": "newest checkpoint",
    "frames_since_checkpoint": "frames since checkpoint",
    "segments": "segments",
    "active": "segments in memory",
    "unsaved": "segments not saved yet",
    "logged_bytes": size_column("only in the log"),
    "cycle_text": "last flush cycle",
    "recovery_point": "recovery point of cycle",
    "garbage": "garbage waiting",
    "due_text": "upkeep due",
}

_TABLE: Headings = {
    "name": "table",
    "entries": "entries",
    "stored_bytes": size_column("in LTS"),
    "unflushed": "unflushed entries",
}


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
            "given_up": found.cycle.given_up,
            "trouble": found.cycle.trouble or None,
        },
        "recovery_point": found.recovery_point,
        "garbage": found.garbage,
        "due": [{"upkeep": kind, "overdue": overdue} for kind, overdue in found.due.items()],
        "tables": [
            {"name": name, "entries": entries, "stored_bytes": stored, "unflushed": unflushed}
            for name, entries, stored, unflushed in found.tables
        ],
    }


def _cycle_row(cycle: dict[str, Any]) -> dict[str, str]:
    if not cycle["number"]:
        return {"cycle_text": "none"}
    end = "" if cycle["complete"] else ", given up" if cycle["given_up"] else ", not complete"
    end += f": {cycle['trouble']}" if cycle["trouble"] else ""
    return {"cycle_text": f"{cycle['number']} at {cycle['time']}{end}"}


def _due_row(due: list[dict[str, Any]]) -> dict[str, str]:
    kinds = [f"{found['upkeep']}, overdue" if found["overdue"] else found["upkeep"] for found in due]
    return {"due_text": "; ".join(kinds) or "nothing"}
