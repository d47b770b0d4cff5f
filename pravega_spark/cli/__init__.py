"""The command line: `pravega-spark`, or `python -m pravega_spark.cli`. One module for each group of commands."""
