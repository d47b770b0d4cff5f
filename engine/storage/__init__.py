"""Reading what lies in the log and in long-term storage, and recovering a container from the latter alone."""
