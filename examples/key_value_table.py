"""A table of stock: several processes change the same counters, each by conditional updates.

python examples/key_value_table.py /data/streams
"""

import sys
import tempfile

from pravega_spark import (
    BadKeyVersion,
    Insert,
    KeyValueTable,
    KeyValueTableConfiguration,
    StreamManager,
    TableKey,
)

SCOPE, TABLE = "examples", "stock"


def take(stock: KeyValueTable, key: TableKey, number: int) -> int:
    """Take so many items out of the stock, however many processes do the same. Returns how many are left."""
    while True:
        entry = stock.get(key)
        left = (int(entry.value) if entry is not None else 0) - number
        if entry is None or left < 0:
            raise ValueError(f"{key.primary.decode()} has not {number} left")
        try:
            stock.replace(key, b"%d" % left, entry.version)
            return left
        except BadKeyVersion:
            continue  # another process was faster


def run(root: str) -> dict[str, int]:
    """Stock of two articles in two sizes. Returns what is left of the first."""
    with StreamManager(root) as manager:
        manager.create_scope(SCOPE)
        # An article has 5 bytes, and a size has 2.
        manager.create_key_value_table(SCOPE, TABLE, KeyValueTableConfiguration(1, 5, 2))
        stock = manager.key_value_table(SCOPE, TABLE)
        for article in (b"shirt", b"shoes"):
            stock.update([Insert(TableKey(article, size), b"10") for size in (b"_M", b"_L")])  # both or none
        take(stock, TableKey(b"shirt", b"_M"), 3)
        return {entry.secondary.decode(): int(entry.value) for entry in stock.entries(b"shirt")}


if __name__ == "__main__":
    print(run(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
