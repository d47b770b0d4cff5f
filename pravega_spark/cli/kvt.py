"""`kvt`: the key-value tables of a root, and those in the long-term storage of a Pravega, which can only be read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import ScopeType, SizeType, StreamName, StreamNameType, change_options
from pravega_spark.console.output import Headings, moment
from pravega_spark.quantities import size_text

if TYPE_CHECKING:
    from pravega_spark.client.key_value_table import KeyValueTable
    from pravega_spark.streams.model.key_value_table import KeyValueTableEntry, TableKey, Version

Command = TypeVar("Command", bound=Callable[..., Any])


class BytesType(click.ParamType):
    """Bytes: text, or base64 behind `base64:`."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        """The bytes."""
        if isinstance(value, bytes):
            return value
        text = str(value)
        if not text.startswith("base64:"):
            return text.encode(errors="surrogateescape")
        try:
            return base64.b64decode(text.removeprefix("base64:"), validate=True)
        except binascii.Error as error:
            self.fail(f"{text!r} is no base64: {error}", param, ctx)


class VersionType(click.ParamType):
    """The version of an entry, as the commands print it."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Version:
        """The version."""
        from pravega_spark.streams.model.key_value_table import Version

        try:
            return value if isinstance(value, Version) else Version.from_text(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


table_argument = click.argument("name", metavar="SCOPE/TABLE", type=StreamNameType("SCOPE/TABLE"))
_key_argument = click.argument("key", type=BytesType())
_value_argument = click.argument("value", type=BytesType())
_secondary_option = click.option("--secondary", type=BytesType(), default=b"", help="Secondary key.")


def _range_options(command: Command) -> Command:
    """The options that choose keys."""
    options = (
        click.option("--count", type=click.IntRange(min=1), help="Print only so many."),
        click.option("--after", type=BytesType(), help="Continue behind this key: primary and secondary, as one."),
        click.option("--prefix", type=BytesType(), help="Only keys that begin so."),
        click.option("--to", "end", type=BytesType(), help="Last key."),
        click.option("--from", "start", type=BytesType(), help="First key."),
        click.option(
            "--primary",
            type=BytesType(),
            help="Only entries of this primary key; --from, --to and --prefix are then of secondary keys.",
        ),
    )
    for option in options:
        command = option(command)
    return command


def _opened(session: Session, name: StreamName) -> KeyValueTable:
    return session.manager.key_value_table(*name)


def _key(key: bytes, secondary: bytes) -> TableKey:
    from pravega_spark.streams.model.key_value_table import TableKey

    return TableKey(key, secondary)


# --- tables --------------------------------------------------------------------------------------------------------


@click.command()
@table_argument
@click.option("--primary", type=click.IntRange(min=1), required=True, help="Length of every primary key, bytes.")
@click.option(
    "--secondary",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Length of every secondary key, bytes; 0: there are none.",
)
@click.option(
    "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Number of partitions, for versions."
)
@click.option("--rollover", type=SizeType(), default=0, help="Rollover size; it is only kept.")
@pass_session
def create(session: Session, name: StreamName, primary: int, secondary: int, partitions: int, rollover: int) -> None:
    """Create a key-value table in an existing scope. An existing table is not changed."""
    from pravega_spark.streams.model.key_value_table import KeyValueTableConfiguration

    try:
        configuration = KeyValueTableConfiguration(partitions, primary, secondary, rollover)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    created = session.manager.create_key_value_table(*name, configuration)
    session.output.document({"table": str(name), "created": created})
    session.output.line(f"key-value table {name} was created" if created else f"key-value table {name} exists already")


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
@table_argument
@pass_session
def describe(session: Session, name: StreamName) -> None:
    """Show a key-value table: its configuration, and how much it has."""
    found = session.manager.key_value_table_info(*name)
    configuration = found.configuration
    row = {
        "table": str(name),
        "primary_key_length": configuration.primary_key_length,
        "secondary_key_length": configuration.secondary_key_length,
        "partition_count": configuration.partition_count,
        "rollover_size_bytes": configuration.rollover_size_bytes,
        "created": moment(found.created),
        "entries": found.entries,
        "stored": found.stored,
        "unflushed": found.unflushed,
    }
    session.output.document(row)
    for what, value in (
        ("entries", f"{found.entries:,}"),
        ("keys", f"{configuration.primary_key_length} + {size_text(configuration.secondary_key_length)}"),
        ("partitions", configuration.partition_count),
        ("in long-term storage", size_text(found.stored)),
        ("changes only in the log", found.unflushed),
    ):
        session.output.line(f"{what}: {value}")


@click.command()
@table_argument
@change_options
@pass_session
def delete(session: Session, name: StreamName, dry_run: bool, yes: bool) -> None:
    """Delete a key-value table with all of its entries."""
    manager = session.manager
    table = session.catalog.key_value_table(*name)
    if not table.is_stored():
        raise table.not_found()
    session.confirm(yes, f"This would delete key-value table {name} with all of its entries.", dry_run=dry_run)
    manager.delete_key_value_table(*name)
    session.output.document({"table": str(name), "deleted": True})
    session.output.line(f"key-value table {name} was deleted")


# --- updates -------------------------------------------------------------------------------------------------------


@click.command()
@table_argument
@_key_argument
@_value_argument
@_secondary_option
@click.option("--version", type=VersionType(), help="Only if the entry has this version.")
@pass_session
def put(
    session: Session, name: StreamName, key: bytes, value: bytes, secondary: bytes, version: Version | None
) -> None:
    """Put an entry, whether its key exists or not.

    KEY and VALUE are text, or base64 behind `base64:`.
    """
    _told(session, name, _opened(session, name).put(_key(key, secondary), value, version))


@click.command()
@table_argument
@_key_argument
@_value_argument
@_secondary_option
@pass_session
def insert(session: Session, name: StreamName, key: bytes, value: bytes, secondary: bytes) -> None:
    """Put an entry, only if its key does not exist."""
    _told(session, name, _opened(session, name).insert(_key(key, secondary), value))


@click.command()
@table_argument
@_key_argument
@_value_argument
@_secondary_option
@click.option("--version", type=VersionType(), required=True, help="The version that the entry must have.")
@pass_session
def replace(session: Session, name: StreamName, key: bytes, value: bytes, secondary: bytes, version: Version) -> None:
    """Replace the value of an entry, only if it has the given version."""
    _told(session, name, _opened(session, name).replace(_key(key, secondary), value, version))


@click.command()
@table_argument
@_key_argument
@_secondary_option
@click.option("--version", type=VersionType(), help="Only if the entry has this version.")
@pass_session
def remove(session: Session, name: StreamName, key: bytes, secondary: bytes, version: Version | None) -> None:
    """Remove an entry, if it exists."""
    _opened(session, name).remove(_key(key, secondary), version)
    session.output.document({"table": str(name), "removed": True})
    session.output.line(f"the key is not in {name} any more")


def _told(session: Session, name: StreamName, version: Version) -> None:
    session.output.document({"table": str(name), "version": version.as_text()})
    session.output.line(f"the entry has version {version.as_text()}")


# --- reads ---------------------------------------------------------------------------------------------------------


@click.command()
@table_argument
@_key_argument
@_secondary_option
@pass_session
def get(session: Session, name: StreamName, key: bytes, secondary: bytes) -> None:
    """Print an entry. Binary data is printed as base64."""
    entry = _opened(session, name).get(_key(key, secondary))
    row = _entry_row(entry) if entry is not None else None
    session.output.document({"table": str(name), "entry": row})
    if row is None:
        session.output.warning(f"the key is not in {name}")
    else:
        session.output.table(_ENTRY, [row])


@click.command()
@table_argument
@_range_options
@pass_session
def keys(session: Session, /, name: StreamName, count: int | None, after: bytes | None, **chosen: bytes | None) -> None:
    """Print the keys of a table, in order."""
    table = _opened(session, name)
    found = table.keys(**chosen, after=_after(table, after))
    rows = [_row({"primary": key.primary, "secondary": key.secondary}) for key in islice(found, count)]
    session.output.document({"table": str(name), "keys": rows})
    session.output.table(_KEY, rows)


@click.command()
@table_argument
@_range_options
@pass_session
def entries(
    session: Session, /, name: StreamName, count: int | None, after: bytes | None, **chosen: bytes | None
) -> None:
    """Print the entries of a table, in the order of their keys. Binary data is printed as base64."""
    table = _opened(session, name)
    rows = [_entry_row(entry) for entry in islice(table.entries(**chosen, after=_after(table, after)), count)]
    session.output.document({"table": str(name), "entries": rows})
    session.output.table(_ENTRY, rows)


def _after(table: KeyValueTable, after: bytes | None) -> TableKey | None:
    """The key behind which to continue, from both of its parts as one."""
    length = table.configuration.primary_key_length
    return _key(after[:length], after[length:]) if after is not None else None


@click.command()
@table_argument
@pass_session
def read(session: Session, name: StreamName) -> None:
    """Print all entries of a key-value table.

    It may be one in the long-term storage of a Pravega. Binary data is printed as base64.
    """
    from pravega_spark.streams.key_value_table import key_value_table_entries

    rows = [
        _row({"primary": entry.primary, "secondary": entry.secondary, "value": entry.value})
        for entry in sorted(key_value_table_entries(session.root, *name))
    ]
    session.output.document({"table": str(name), "entries": rows})
    session.output.table({**_KEY, "value": "value"}, rows)


def _entry_row(entry: KeyValueTableEntry) -> dict[str, Any]:
    row = _row({"primary": entry.primary, "secondary": entry.secondary, "value": entry.value})
    return {**row, "version": entry.version.as_text()}


def _row(entry: dict[str, bytes]) -> dict[str, Any]:
    row: dict[str, Any] = {"base64": []}
    for field, data in entry.items():
        try:
            row[field] = data.decode()
        except UnicodeDecodeError:
            row[field] = base64.b64encode(data).decode()
            row["base64"].append(field)
    return row


_KEY: Headings = {"primary": "primary key", "secondary": "secondary key"}
_ENTRY: Headings = {**_KEY, "value": "value", "version": "version"}
