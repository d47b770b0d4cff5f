"""Stream primitives: names, key routing, event framing, the sparse index, and stream cuts. Pure functions on bytes."""
