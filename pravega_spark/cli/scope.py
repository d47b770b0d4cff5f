"""`scope`: the scopes of a root."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import ScopeType, change_options
from pravega_spark.quantities import counted, size_text

if TYPE_CHECKING:
    from pravega_spark.client.scope_contents import ScopeContents


@click.command()
@click.argument("name", type=ScopeType())
@click.option("--new-root", is_flag=True, help="Create the root too, if it does not exist.")
@pass_session
def create(session: Session, name: str, new_root: bool) -> None:
    """Create a scope. Does nothing if it exists."""
    session.new_root = new_root
    created = session.manager.create_scope(name)
    session.output.document({"scope": name, "created": created})
    session.output.line(f"scope {name} was created" if created else f"scope {name} exists already")


@click.command("list")
@pass_session
def list_(session: Session) -> None:
    """List the scopes with the number of streams in each."""
    catalog = session.catalog
    rows = [{"scope": name, "streams": len(list(catalog.streams(name)))} for name in catalog.scopes()]
    session.output.document({"scopes": rows})
    session.output.table({"scope": "scope", "streams": "streams"}, rows)


@click.command()
@click.argument("name", type=ScopeType())
@change_options
@click.option("--force", is_flag=True, help="Delete its streams, reader groups and key-value tables too.")
@pass_session
def delete(session: Session, name: str, dry_run: bool, yes: bool, force: bool) -> None:
    """Delete an empty scope, or with --force a scope and all that it has."""
    from pravega_spark.client.scope_contents import ScopeContents

    manager = session.manager
    session.catalog.check_scope(name)
    contents = ScopeContents.of(session.root, name)
    if not force:
        contents.check_empty(name)
    session.confirm(yes, *_would(session, name, contents), dry_run=dry_run)
    deleted = manager.delete_scope(name, force)
    gone = {what: len(names) for what, names in contents._asdict().items()}
    session.output.document({"scope": name, "deleted": deleted, "contents": gone})
    session.output.line(f"scope {name} was deleted" if deleted else f"scope {name} was deleted by another process")


def _would(session: Session, name: str, contents: ScopeContents) -> Iterator[str]:
    """What a deletion would delete."""
    if not any(contents):
        yield f"This would delete scope {name}, which has no streams."
        return
    counts = ", ".join(
        counted(len(names), what.removesuffix("s").replace("_", " ").replace("key value", "key-value"))
        for what, names in contents._asdict().items()
    )
    yield f"This would delete scope {name} with all that it has: {counts}."
    damaged: list[str] = []
    for info in session.manager.stream_infos(name, lambda stream, _: damaged.append(stream)):
        yield f"stream {name}/{info.stream}: {counted(info.events, 'event')}, {size_text(info.size)}"
    yield from (f"stream {name}/{stream}, whose record cannot be decoded" for stream in damaged)
    yield from (f"reader group {name}/{group}" for group in contents.reader_groups)
    yield from (f"key-value table {name}/{table}" for table in contents.key_value_tables)
