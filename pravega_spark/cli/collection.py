"""`gc`: the objects that nothing names are let go, and what is garbage is deleted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from engine import orphans
from engine.container import Container
from engine.orphans import Sweep
from engine.state import Garbage, State
from pravega_spark.cli.arguments import with_yes
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.streams.names import owner_of

if TYPE_CHECKING:
    from rich.progress import Progress

_TOLD = 20  # names for people


@click.command()
@click.option("--dry-run", is_flag=True, help="Tell what there is, and change nothing.")
@click.option(
    "--older-than",
    "age",
    type=click.FloatRange(min=0),
    default=orphans.AGE,
    show_default=True,
    help="Seconds; younger objects stay, which tasks may be about to attach. Who takes longer is refused.",
)
@click.option(
    "--plausible-share",
    "share",
    type=click.FloatRange(0, 1),
    default=orphans.PLAUSIBLE,
    show_default=True,
    help="If a greater share of all objects would go, stop.",
)
@with_yes
@pass_session
def gc(session: Session, dry_run: bool, age: float, share: float, yes: bool) -> None:
    """Collect garbage: objects that nothing names, and what was let go before.

    Orphans are deleted by a later run, or by whoever appends, after the root's garbage delay: so nothing is lost if
    somebody has a use for one at the last moment. Uploads of large events that nobody has gone on with for the root's
    idle time are given up too. Other processes may use the root meanwhile.
    """
    root = session.root
    with session.output.progress() as bar:
        sweep = orphans.find_orphans(root, partial(owner_of, count=root.config.containers), age, _teller(bar))
    containers = [root.container(number) for number in range(root.config.containers)]
    waiting = sum(len(container.state.garbage) for container in containers)
    row: dict[str, Any] = {
        "dry_run": dry_run,
        "examined": sweep.examined,
        "orphans": len(sweep.orphans),
        "bytes": sweep.bytes,
        "names": [orphan.path for orphan in sweep.orphans],
        "recent": sweep.recent,
        "unknown": sweep.unknown,
        "unknown_names": list(sweep.unknown_names),
        "waiting": waiting,
        "expired": sum(len(container.idle_transients()) for container in containers),
        "deleted": 0,
    }
    if not dry_run:
        orphans.check_plausible(root, sweep, share)
        held = f"{waiting} objects are garbage already, and would be deleted if they are due."
        idle = f"{row['expired']} uploads of large events are idle, and would be given up."
        session.insist(yes or not (sweep.orphans or waiting or row["expired"]), *_lines(sweep), held, idle)
        row["expired"] = sum(len(container.expire_transients()) for container in containers)
        orphans.give_up(root, sweep, share)
        row["deleted"] = sum(map(_collect, containers))
        row["waiting"] = sum(len(container.refresh().garbage) for container in containers)
    session.output.document({"gc": row})
    if dry_run:
        for line in _lines(sweep):
            session.output.line(line)
    session.output.properties(row, _LABELS)
    if not dry_run and sweep.orphans:
        delay = root.config.garbage_delay_seconds
        session.output.line(f"The orphans are garbage now, and are deleted in {delay:g} seconds or later.")


def _teller(bar: Progress | None) -> Callable[[int], None]:
    if bar is None:
        return lambda count: None
    task = bar.add_task("objects", total=None)
    return lambda count: bar.update(task, description=f"{count} objects")


def _lines(sweep: Sweep) -> list[str]:
    lines = [f"{len(sweep.orphans)} objects with {sweep.bytes} bytes belong to nothing and would be let go:"]
    lines += [f"  {orphan.path}" for orphan in sweep.orphans[:_TOLD]]
    if len(sweep.orphans) > _TOLD:
        lines.append(f"  and {len(sweep.orphans) - _TOLD} more; --json tells all")
    return lines if sweep.orphans else ["No object belongs to nothing."]


def _collect(container: Container) -> int:
    """Delete what is due, after a flush cycle if that is all that it waits for; how many objects were."""
    before = int((container.now() - container.settings.garbage_delay) * 1000)
    if any(_is_held(container.state, garbage, before) for garbage in container.state.garbage.values()):
        container.flush()
    return container.collect_garbage()


def _is_held(state: State, garbage: Garbage, before: int) -> bool:
    return garbage.since < before and state.is_backed_up(garbage)


_LABELS = {
    "examined": "objects",
    "orphans": "orphans",
    "bytes": "bytes of orphans",
    "recent": "too young to tell",
    "unknown": "made by others, left alone",
    "expired": "idle uploads of large events",
    "deleted": "deleted now",
    "waiting": "garbage waiting",
}
