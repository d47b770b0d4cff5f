"""Pravega event streams that live in a folder or a bucket, with a Spark data source."""
