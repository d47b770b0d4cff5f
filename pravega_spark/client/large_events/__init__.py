"""Large events as files."""
