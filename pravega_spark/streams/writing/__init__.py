"""Changes of streams, each one append: writes, transactions, uploads of large events, and producer state."""
