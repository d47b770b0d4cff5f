"""`scope`: the scopes of a root."""

from __future__ import annotations

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import ScopeType, change_options
from pravega_spark.errors import ScopeNotEmpty


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
@pass_session
def delete(session: Session, name: str, dry_run: bool, yes: bool) -> None:
    """Delete an empty scope."""
    manager = session.manager
    if manager.list_stream(name):
        raise ScopeNotEmpty(name)
    if groups := manager.list_reader_group(name):
        raise ScopeNotEmpty(name, groups)
    session.confirm(yes, f"This would delete scope {name}, which has no streams.", dry_run=dry_run)
    deleted = manager.delete_scope(name)
    session.output.document({"scope": name, "deleted": deleted})
    session.output.line(f"scope {name} was deleted" if deleted else f"scope {name} was deleted by another process")
