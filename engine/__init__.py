"""The segment store engine: a write-ahead log of plain objects, and the segment containers on it.

Owns frames and their order (W1-W8, W18), container state, segments and their extents, flushing and truncation. Imports
`chunkstore` only; knows nothing of streams or Spark. docs/decisions/wings.md shows its wings.

The package exports nothing: each name is imported from the module that defines it.
"""
