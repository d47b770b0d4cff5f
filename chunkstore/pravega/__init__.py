"""Formats that Pravega itself leaves in long-term storage."""
