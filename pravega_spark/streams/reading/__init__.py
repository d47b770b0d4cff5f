"""Reading streams: their state at one moment, ranges of events, and traversal between two cuts."""
