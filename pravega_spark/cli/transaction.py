"""`transaction`: the open transactions of streams, which a program that died may have left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from pravega_spark.cli.session import Session, pass_session
from pravega_spark.console.arguments import (
    StreamName,
    change_options,
    selected,
    selection_options,
    stream_argument,
)
from pravega_spark.console.output import Headings, moment, size_column
from pravega_spark.console.program import Refused
from pravega_spark.quantities import duration_text, size_text

if TYPE_CHECKING:
    from pravega_spark.streams.writing.transactions import OpenTransaction

_COLUMNS: Headings = {
    "stream": "stream",
    "transaction": "transaction",
    "status": "status",
    "began": "began",
    "timeout": "lease ends",
    "bytes": size_column("size"),
}


@click.command("list")
@selection_options
@pass_session
def list_(session: Session, scope: str | None, stream: str | None) -> None:
    """List the open transactions of streams.

    One that is expired was not pinged within its lease: the next maintenance aborts it. Others can be committed or
    aborted by their programs.
    """
    scope, stream = selected(scope, stream)
    rows = [_row(each) for each in _found(session, scope, stream)]
    session.output.document({"transactions": rows})
    session.output.table(_COLUMNS, rows)


@click.command()
@stream_argument
@click.argument("transaction")
@change_options
@pass_session
def abort(session: Session, name: StreamName, transaction: str, dry_run: bool, yes: bool) -> None:
    """Abort an open transaction: delete its events.

    TRANSACTION is its id, as lists show it. A program that still writes to the transaction gets an error. A transaction
    whose record cannot be decoded is removed.
    """
    session.root.check_writable()
    writer = session.manager.create_transaction_writer(name.scope, name.stream)
    try:
        wanted = writer.get_txn(int(transaction) if transaction.isdigit() else transaction).get_txn_id()
    except ValueError:
        raise click.BadParameter(f"{transaction!r} is no id of a transaction", param_hint="TRANSACTION") from None
    open_ = [each for each in _found(session, name.scope, name.stream) if each.id.int == wanted]
    if not open_:
        raise Refused(f"transaction {transaction} of stream {name} is not open: it was committed or aborted")
    told = _row(open_[0])
    left = (open_[0].record.timeout - time.time() * 1000) / 1000
    lease = "its lease has expired" if left <= 0 else f"its lease ends in {duration_text(round(left))}"
    size = size_text(open_[0].size)
    session.confirm(
        yes, f"This would abort transaction {told['transaction']} of stream {name}: {size}; {lease}.", dry_run=dry_run
    )
    writer.abort_txn(wanted)
    session.output.document({"aborted": told})
    session.output.line(f"transaction {told['transaction']} of stream {name} was aborted")


def _found(session: Session, scope: str | None, stream: str | None) -> Iterator[OpenTransaction]:
    from pravega_spark.streams.writing.transactions import open_transactions

    if scope is not None and stream is not None:
        found = session.catalog.stream(scope, stream)
        found.snapshot()
        yield from open_transactions(found.container, f"{found.key}/")
        return
    if scope is not None:
        session.catalog.check_scope(scope)
    for container in map(session.root.container, range(session.root.config.containers)):
        container.refresh()
        yield from open_transactions(container, "" if scope is None else f"{scope}/")


def _row(found: OpenTransaction) -> Mapping[str, Any]:
    expired = found.record.expired(int(time.time() * 1000))
    return {
        "stream": f"{found.scope}/{found.stream}",
        "transaction": str(found.id),
        "status": "expired" if expired else found.record.status,
        "began": moment(found.record.created),
        "timeout": moment(found.record.timeout),
        "bytes": found.size,
    }
