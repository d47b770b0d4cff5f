"""How much of what a store keeps free is left alone by what is written (P6).

A store that is full to the last byte stays full: a truncation, a flush and a garbage collection write something before
they free anything. So what is kept free (`min_free`) is for them. Each part below is what a kind of write has to leave.
"""

from __future__ import annotations

SMALL_OBJECT = 64 << 10
"""So many bytes of an object record what frees space: it may take as much as there is."""

USERS_DATA = 1.0
"""Events, bytes, entries, transactions, and all copies that free nothing soon: backups, imports, compaction."""

SMALL_ADDITIONS = 0.5
"""What else adds to a log: positions of a reader group, new streams and tables."""

FLUSHES = 0.25
"""Copies of what is in the log, whose frames can be deleted then."""

CHECKPOINTS = 0.125
"""Checkpoints, before which frames can be deleted. The rest is for truncations, deletions and garbage collection."""
