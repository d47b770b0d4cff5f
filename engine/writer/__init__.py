"""Moving content from the log to long-term storage: flush cycles, compaction and garbage collection."""
