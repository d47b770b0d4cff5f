"""The segment store engine: a write-ahead log on plain objects and the segment containers that live on it.

Owns: frames and their succession (W1-W9), container state, segments and their extents, flushing and truncation.
Imports `chunkstore` only; knows nothing of streams or Spark.
"""
