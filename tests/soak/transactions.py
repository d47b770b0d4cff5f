"""An actor that writes transactions: most are committed, some aborted, and some left open by a kill."""

from __future__ import annotations

from pravega_spark import (
    OutcomeUnknown,
    StorageUnavailable,
    StreamManager,
    StreamTransaction,
    TransactionClosed,
    TransactionIncomplete,
)
from tests.soak import KEYS, PARTS, SCOPE
from tests.soak.actor import Actor
from tests.soak.ledger import Ledger, entries


def run(actor: Actor) -> None:
    """Begin, write and end transactions until the end."""
    ledger, manager = Ledger(actor.folder, actor.name), actor.manager()
    while not actor.ended.is_set():
        with actor.surviving("transactions"):
            _work(actor, manager, ledger)
    with actor.surviving("close"):
        manager.close()


def _work(actor: Actor, manager: StreamManager, ledger: Ledger) -> None:
    writer = manager.create_transaction_writer(SCOPE, actor.more["stream"])
    while not actor.ended.is_set():
        number = 1 + max((numbers[0] for kind, numbers in entries(ledger.path) if kind == "B"), default=-1)
        ledger.note("B", number)
        transaction = writer.begin_txn(60)
        for part in range(PARTS):
            transaction.write_event_bytes(f"{actor.name} {number} {part} ....".encode(), f"{part % KEYS}")
        if actor.chance.random() < 0.15:
            transaction.abort()
            ledger.note("X", number, number)
        elif commit(actor, transaction):
            ledger.note("A", number, number)
        else:  # a write of it is unknown, so it cannot be committed
            transaction.abort()
            ledger.note("X", number, number)
        actor.ended.wait(actor.chance.expovariate(1 / actor.more.get("pause", 0.5)))


TRIES = 5
"""So often a commit of unknown outcome is repeated."""


def commit(actor: Actor, transaction: StreamTransaction) -> bool:
    """Commit, and again while the outcome is unknown. Whether it is committed; if it is not, it is open."""
    for _ in range(TRIES):
        try:
            transaction.commit()
            return True
        except (OutcomeUnknown, StorageUnavailable) as error:
            actor.log_error("commit", error)
        except TransactionIncomplete:
            return False
        except TransactionClosed as closed:
            if closed.status == "committed":
                return True
            raise
        actor.ended.wait(1)
    return False
