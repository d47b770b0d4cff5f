"""Maintenance of streams: retention, scaling, subscribers, verification and repair."""
