"""`container`: inspects and flushes containers, and repairs one whose log is damaged or lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from engine.admin.inspection import ContainerDescription, ContainerStatus, container_status, list_containers
from engine.root import Root
from engine.storage.recovery import recoverable
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import change_options
from pravega_spark.console.output import Column, Headings, id_column, moment, size_column
from pravega_spark.quantities import counted


@click.command("list")
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


@click.command()
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


@click.command()
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


@click.command()
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
    session.new_log, session.dry_run = new_log, dry_run or not yes  # a new log begins when the root is opened
    root = session.root
    root.check_writable()
    _check_number(root, number)
    if not yes or dry_run:
        point = recoverable(root.stores, root.container_id(number), force=force)
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


@click.command()
@click.argument("number", type=click.IntRange(min=0))
@click.argument("address", type=click.IntRange(min=0))
@change_options
@pass_session
def repair(session: Session, number: int, address: int, dry_run: bool, yes: bool) -> None:
    """Skip a damaged or missing frame that stops a container's log.

    ADDRESS is the frame's, as the error and `verify` print it. Stop all other processes first. If there is a copy of
    the frame, restore it instead. If the frame is intact, but has transactions that this version cannot decode, only
    these are skipped. A frame that fails its checks or is missing is skipped as a whole, with the frames that depend on
    it.
    """
    root = session.root
    _check_number(root, number)
    found = root.repair(number, address, dry_run=True)
    whole = found.skipped is None
    what = "all of it, and the frames that depend on it" if found.skipped is None else _transactions(found.skipped)
    session.confirm(
        yes,
        f"This would skip of frame {address} of container {number}: {what}.",
        "Acknowledged data would be lost with it. Stop all other processes first.",
        dry_run=dry_run,
    )
    root.repair(number, address)
    skipped = None if found.skipped is None else list(found.skipped)
    session.output.document(
        {"repaired": {"number": number, "address": address, "whole": whole, "transactions": skipped}}
    )
    session.output.line(f"frame {address} of container {number} was repaired; skipped: {what}")


def _check_number(root: Root, number: int) -> None:
    if number >= root.config.containers:
        raise ValueError(
            f"container {number} does not exist: the root has containers 0 to {root.config.containers - 1}"
        )


def _transactions(places: Sequence[int]) -> str:
    """The skipped part of an intact frame."""
    if not places:
        return "all of it, as its transactions cannot be separated; later frames are kept"
    return f"{counted(len(places), 'transaction')} that cannot be decoded; everything else is kept"


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
    "sequence": Column("last sequence number", wide=True),
    "head": Column("head", wide=True),
    "epoch": Column("epoch", wide=True),
    "unsaved": Column("unsaved", wide=True),
}

_DESCRIBED: Headings = {
    "number": id_column("container"),
    "online": "online",
    "sequence": "last sequence number",
    "head": "head of the log",
    "epoch": "epoch",
    "newest_checkpoint": "newest checkpoint",
    "frames_since_checkpoint": "frames since checkpoint",
    "submissions": "submissions in the inbox",
    "segments": "segments",
    "active": "segments in memory",
    "unsaved": "segments not saved yet",
    "logged_bytes": size_column("only in the log"),
    "cycle_text": "last flush cycle",
    "recovery_point": "recovery point of cycle",
    "garbage": "garbage waiting",
    "due_text": "maintenance due",
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
        "newest_checkpoint": found.newest_checkpoint,
        "frames_since_checkpoint": found.frames,
        "submissions": found.submissions,
        "segments": found.segments,
        "active": found.active,
        "unsaved": found.unsaved,
        "logged_bytes": found.logged,
        "cycle": {
            "number": found.cycle.number,
            "time": moment(found.cycle.time),
            "sequence": found.cycle.sequence,
            "complete": found.cycle.complete,
            "aborted": found.cycle.aborted,
            "error": found.cycle.error or None,
        },
        "recovery_point": found.recovery_point,
        "garbage": found.garbage,
        "due": [{"maintenance": kind, "overdue": overdue} for kind, overdue in found.due.items()],
        "tables": [
            {"name": name, "entries": entries, "stored_bytes": stored, "unflushed": unflushed}
            for name, entries, stored, unflushed in found.tables
        ],
    }


def _cycle_row(cycle: dict[str, Any]) -> dict[str, str]:
    if not cycle["number"]:
        return {"cycle_text": "none"}
    end = "" if cycle["complete"] else ", aborted" if cycle["aborted"] else ", not complete"
    end += f": {cycle['error']}" if cycle["error"] else ""
    return {"cycle_text": f"{cycle['number']} at {cycle['time']}{end}"}


def _due_row(due: list[dict[str, Any]]) -> dict[str, str]:
    kinds = [f"{found['maintenance'].replace('_', ' ')}{', overdue' * found['overdue']}" for found in due]
    return {"due_text": "; ".join(kinds) or "nothing"}
