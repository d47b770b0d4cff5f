"""The values that streams are made of: names, events, indexes, cuts, epochs, policies, records. No input or output."""
