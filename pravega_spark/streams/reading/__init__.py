"""Reading streams: their state at one moment, ranges of events, and what lies between two cuts."""
