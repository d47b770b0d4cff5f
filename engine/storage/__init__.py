"""Reading content from the log and from long-term storage, and recovering a container from the latter alone."""
