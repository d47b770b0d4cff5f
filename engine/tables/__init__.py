"""The format of a table segment: its index, a B+tree, and its entries."""
