"""A Spark session for the round trips."""

from tests.spark.conftest import spark

__all__ = ["spark"]
