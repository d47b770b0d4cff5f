"""The long-term storage of a real Pravega: reading it in place, and importing it."""
