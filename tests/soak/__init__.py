"""A long proof with real processes: `make soak`. docs/soak.md describes it.

Actors are processes of their own that share one root and nothing else: `actor.py` is what they have in common, and
there is a module for each family of them. `supervisor.py` starts them and lets them die, `faults.py` draws what
happens to them from a seed, `place.py` is the storage with its faults. What was acknowledged is in ledgers outside the
root; `checker.py` holds the streams against them while all goes on, and `checks.py` everything at the end.
"""

from __future__ import annotations

SCOPE = "soak"
"""The scope of all streams."""

KEYS = 4
"""Routing keys of a writer: event `number` has key `number % KEYS`."""

PARTS = 6
"""Events of a transaction."""
