"""`kvt`: the key-value tables in the long-term storage of a Pravega. A root of this project has none."""

from __future__ import annotations

import base64
from typing import Any

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import ScopeType, StreamName, StreamNameType
from pravega_spark.streams.key_value_table import key_value_table_entries


@click.command("list")
@click.argument("scope", type=ScopeType(), required=False)
@pass_session
def list_(session: Session, scope: str | None) -> None:
    """List the key-value tables of a scope, or of all."""
    manager = session.manager
    rows = [{"table": f"{each}/{name}"} for each, name in session.in_scopes(scope, manager.list_key_value_table)]
    session.output.document({"tables": rows})
    session.output.table({"table": "key-value table"}, rows)


@click.command()
@click.argument("name", metavar="SCOPE/TABLE", type=StreamNameType("SCOPE/TABLE"))
@pass_session
def read(session: Session, name: StreamName) -> None:
    """Print the live entries of a key-value table. Binary data is printed as base64."""
    rows = [
        _row({"primary": entry.primary, "secondary": entry.secondary, "value": entry.value})
        for entry in sorted(key_value_table_entries(session.root, *name))
    ]
    session.output.document({"table": str(name), "entries": rows})
    session.output.table({"primary": "primary key", "secondary": "secondary key", "value": "value"}, rows)


def _row(entry: dict[str, bytes]) -> dict[str, Any]:
    row: dict[str, Any] = {"base64": []}
    for field, data in entry.items():
        try:
            row[field] = data.decode()
        except UnicodeDecodeError:
            row[field] = base64.b64encode(data).decode()
            row["base64"].append(field)
    return row
