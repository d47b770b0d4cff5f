"""The system tables of a root's containers, and their entries."""

from __future__ import annotations

SCOPES = "_system/scopes"
"""Table: the scopes, each in the container that its name belongs to."""

STREAMS = "_system/streams"
"""Table: the records of streams."""

NUMBERS = "_system/numbers"
"""Table: the first segment numbers of new streams with the names of deleted ones."""

KEY_VALUE_TABLES = "_system/key_value_tables"
"""Table: the records of key-value tables, whose entries are in tables of their own."""

DELETIONS = "_system/deletions"
"""Table: marks that a scope is being deleted; checked by every process that creates something in a scope (see
`scopes`)."""

MAINTENANCE = "_system/maintenance"
"""Table in container 0: the lease of maintenance, and what the last run did."""

TRANSACTIONS = "_system/transactions"
SUBSCRIBERS = "_system/subscribers"
MARKS = "_system/marks"
"""Table: the marks of revisioned streams."""

TIMES = "_system/times"
"""Table: the times that writers of streams have noted, and the watermarks made of them."""

OF_STREAMS = (TRANSACTIONS, SUBSCRIBERS, MARKS, TIMES)
"""Tables whose keys begin with a scope and stream name."""
