"""What keeps streams in order: retention, scaling, subscribers, verification and repair."""
