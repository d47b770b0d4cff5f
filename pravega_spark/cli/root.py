"""`root`: creating a root, and the settings that it fixes."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from engine.root import RootConfig
from engine.settings import CHANGEABLE, MAX_SEGMENTS, OF_ROOT
from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import change_options, seconds_option
from pravega_spark.console.output import Headings, duration_column

_DEFAULT = RootConfig("")


@click.command()
@click.option(
    "--containers",
    type=click.IntRange(min=1, max=int(OF_ROOT["containers"].most)),
    default=_DEFAULT.containers,
    show_default=True,
    help="Number of containers, each with a log of its own.",
)
@seconds_option(
    "--grace-seconds",
    _DEFAULT.grace_seconds,
    "How long log frames are kept after a checkpoint has covered them.",
    min_open=True,
)
@seconds_option(
    "--garbage-delay-seconds",
    _DEFAULT.garbage_delay_seconds,
    "How long garbage is kept before it is deleted. Must exceed the longest task that reads.",
)
@seconds_option(
    "--transient-idle-seconds",
    _DEFAULT.transient_idle_seconds,
    "Uploads of large events that are idle for this long are aborted.",
    min_open=True,
)
@click.option(
    "--max-segments",
    type=click.IntRange(min=1, max=MAX_SEGMENTS),
    default=_DEFAULT.max_segments,
    show_default=True,
    help="Maximum number of segments of a stream at a time.",
)
@pass_session
def create(session: Session, /, **agreed: Any) -> None:
    """Create the root.

    Its settings, and the place of its log (--wal), are final. Fails if the root exists. The folder or bucket may hold
    other objects, but neither a root nor remains of one, and must not be inside a root.
    """
    source = click.get_current_context().get_parameter_source
    made = session.create({key: value for key, value in agreed.items() if source(key) is not ParameterSource.DEFAULT})
    _print(session, made.stores.chunks.root, made.config)


@click.command("set")
@seconds_option("--garbage-delay-seconds", None, "How long garbage is kept before it is deleted.")
@seconds_option(
    "--transient-idle-seconds", None, "Uploads of large events that are idle for this long are aborted.", min_open=True
)
@click.option(
    "--max-segments", type=click.IntRange(min=1, max=MAX_SEGMENTS), help="Maximum number of segments of a stream."
)
@change_options
@pass_session
def set_(session: Session, /, dry_run: bool, yes: bool, **given: Any) -> None:
    """Change settings of the root.

    Programs that are running keep the earlier ones until they open the root again. The other settings cannot be
    changed: the number of containers, the grace period and the place of the log.
    """
    root = session.root
    changes = {key: value for key, value in given.items() if value is not None and value != getattr(root.config, key)}
    if all(value is None for value in given.values()):
        names = ", ".join(f"--{key.replace('_', '-')}" for key in CHANGEABLE)
        raise click.UsageError(f"Give what to change: {names}.")
    if changes:
        told = ", ".join(f"{key} from {getattr(root.config, key):g} to {value:g}" for key, value in changes.items())
        session.confirm(yes, f"This would change root {root.stores.chunks.root}: {told}.", dry_run=dry_run)
        root.change(**changes)
    _print(session, root.stores.chunks.root, root.config)


@click.command()
@pass_session
def describe(session: Session) -> None:
    """Show the settings of the root."""
    _print(session, session.root.stores.chunks.root, session.root.config)


def _print(session: Session, place: str, config: RootConfig) -> None:
    settings = {key: getattr(config, key) for key in _LABELS if key not in ("place", "log", "signed")}
    row = {"place": place, **settings, "log": config.wal, "signed": config.signed}
    session.output.document({"root": row})
    shown = {**row, "log": config.wal or "in the root", "signed": config.signed or "not signed"}
    session.output.properties(shown, _LABELS)


_LABELS: Headings = {
    "place": "root",
    "id": "id",
    "containers": "containers",
    "grace_seconds": duration_column("log grace period"),
    "garbage_delay_seconds": duration_column("garbage delay"),
    "transient_idle_seconds": duration_column("upload idle time"),
    "max_segments": "maximum segments of a stream",
    "log": "write-ahead log",
    "signed": "signing key",
}
