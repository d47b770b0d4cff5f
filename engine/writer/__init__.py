"""The storage writer: flush cycles, which move what the log holds to long-term storage, and what they leave behind."""
