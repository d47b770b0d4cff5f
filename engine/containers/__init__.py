"""Segment containers: the log, the storage writer and the upkeep of one put together, and those of a process."""
