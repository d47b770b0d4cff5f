"""Deleting and merging chunks: garbage, orphans, the optimiser."""
