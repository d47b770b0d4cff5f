"""The system tables of a root's containers: their names, and what their entries are about."""

from __future__ import annotations

SCOPES = "_system/scopes"
"""Table: the scopes, each in the container that its name belongs to."""

STREAMS = "_system/streams"
"""Table: the records of streams."""

NUMBERS = "_system/numbers"
"""Table: the segment numbers at which deleted streams go on when they are made again."""

DELETIONS = "_system/deletions"
"""Table: that a scope is being deleted; checked by every process that creates something in one (see `scopes`)."""

TRANSACTIONS = "_system/transactions"
SUBSCRIBERS = "_system/subscribers"
OF_STREAMS = (TRANSACTIONS, SUBSCRIBERS)
"""Tables whose keys begin with the scope and name of the stream that they are about."""
