"""The state of a container as a value: segments, tables, the operations that change it. No input, no output."""
