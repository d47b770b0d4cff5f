"""The Spark session of the run, which the examples share."""
