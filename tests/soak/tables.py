"""An actor that is the only one to update a key-value table, and one that reads it.

A key's value is a number that grows by one. What is read is no less than what was acknowledged before the read began,
and no more than what was begun before it returned.
"""

from __future__ import annotations

from pravega_spark import KeyValueTable, TableKey
from tests.soak import SCOPE
from tests.soak.actor import Actor
from tests.soak.ledger import Ledger, entries, ledgers

TABLE = "table"
KEYS = 40


def run(actor: Actor) -> None:
    """Update, or read, until the end."""
    manager = actor.manager()
    work = {"updater": update, "reader": read}[actor.role]
    while not actor.ended.is_set():
        with actor.surviving("table"):
            work(actor, manager.key_value_table(SCOPE, TABLE))
    with actor.surviving("close"):
        manager.close()


def key(number: int) -> TableKey:
    """The key with this number."""
    return TableKey(b"%08d" % number)


def update(actor: Actor, table: KeyValueTable) -> None:
    """Count up the values of keys, by version."""
    ledger = Ledger(actor.folder, actor.name)
    while not actor.ended.is_set():
        number = actor.chance.randrange(KEYS)
        found = table.get(key(number))
        value = 0 if found is None else int(found.value) + 1
        ledger.note("I", number, value)
        if found is None:
            table.insert(key(number), b"0")
        else:
            table.replace(key(number), b"%d" % value, found.version)
        ledger.note("K", number, value)
        actor.ended.wait(actor.chance.expovariate(1 / actor.more.get("pause", 0.3)))


def read(actor: Actor, table: KeyValueTable) -> None:
    """Read the whole table now and then."""
    while not actor.ended.is_set():
        for problem in differences(actor, table):
            actor.problem(problem)
        actor.ended.wait(2)


def differences(actor: Actor, table: KeyValueTable) -> list[str]:
    """What of the table is not between the acknowledged and the begun values."""
    paths = [path for name, path in ledgers(actor.folder).items() if name.startswith("updater")]
    before = {number: value for path in paths for kind, (number, value) in entries(path) if kind == "K"}
    values = {int(entry.primary): int(entry.value) for entry in table.entries()}
    begun = {number: value for path in paths for kind, (number, value) in entries(path) if kind == "I"}
    numbers = sorted({*before, *values})
    wrong = [each for each in numbers if not before.get(each, -1) <= values.get(each, -1) <= begun.get(each, -1)]
    return [
        f"key {each}: {before.get(each)} was acknowledged, {begun.get(each)} begun, {values.get(each)} is there"
        for each in wrong
    ]
