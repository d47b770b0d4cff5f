"""The Python client: scopes and streams, the event writer, and reading without Spark."""
