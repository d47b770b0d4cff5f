"""What streams are made of, as values: names, events, indexes, cuts, epochs, policies, records. No input or output."""
