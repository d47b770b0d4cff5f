"""The log's protocol, checked exhaustively: all orders of the requests of a few processes, within bounds.

The processes run the product's own code. `python -m tests.exhaustive` (`make exhaustive`) runs configurations;
docs/exhaustive.md describes what is explored and what is checked.
"""
