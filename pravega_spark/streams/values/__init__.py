"""Events that hold structured values: their formats and schemas, and the columns of their fields. Knows no Spark."""
