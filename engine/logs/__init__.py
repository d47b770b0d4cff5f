"""The durable log of a container: frames, group commit, checkpoints, truncation."""
